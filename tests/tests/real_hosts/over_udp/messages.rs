//! Receive queues, atomics and ordered writes over kernel UDP sockets, and who waits for events
//! how.

use core::time::Duration;

use rma_tests::{
    hosts::{Hosts, Loopback},
    messages::{everything, grant, layout},
};
use rma_xdp::{
    Grant, HostConfig, InlineHost, OpStatus, OpType, Permissions,
    config::{NicConfigBuilder, Timing},
};

#[test]
fn messages_and_atomics_are_what_they_say_over_udp() {
    everything(|| Hosts::over_udp(NicConfigBuilder::default()));
}

#[test]
fn an_event_wakes_the_thread_that_sleeps_for_its_portal() {
    // Longer than a busy machine stalls between two lines of a test.
    let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(30));
    let hosts = Hosts::over_udp(NicConfigBuilder::default().with(|it| it.timing = timing));
    let server = hosts.server();
    let mut portal = server.portal(1).unwrap();
    let mut queue =
        server.waking(&portal).receive_queue(layout(1, 0), Permissions::NOTIFY).unwrap();
    queue.post_all();
    let to_notify = grant(&hosts, queue.region(), OpType::Notify);
    // An op that does not end meanwhile, so that the portal may sleep.
    let nobody = Grant { responder: Loopback::third(), op_type: OpType::Read, ..to_notify };
    let nobody = Grant { initiator: hosts.server_addr, pid: server.pid(), ..nobody };
    let local = server.register(8, Permissions::NONE).unwrap();
    portal.read(&nobody, 0, &local, 0, 8).unwrap();
    assert!(portal.arm() && !queue.has_event());
    let mut sender = hosts.client.portal(1).unwrap();
    sender.notify(&to_notify, 5).unwrap();
    assert_eq!(sender.wait().unwrap().status, OpStatus::Ok);
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(
        portal.completion_fd().expect("its engine is a thread"),
        rustix::event::PollFlags::IN,
    )];
    let patience = Duration::from_secs(60).try_into().unwrap();
    assert_eq!(rustix::event::poll(&mut fds, Some(&patience)), Ok(1), "it is readable");
    assert!(!portal.has_completion(), "the event did it");
    portal.disarm();
    assert_eq!(queue.poll().expect("it is published").immediate, 5);
}

#[test]
fn inline_hosts_have_queues_as_well() {
    let Loopback { addresses: [a, b], port } = Loopback::unused();
    let open = |addr| InlineHost::open(HostConfig::udp(addr).with(|it| it.port = port)).unwrap();
    let (mut sender, mut receiver) = (open(a), open(b));
    let portal = receiver.portal(1).unwrap();
    let mut queue =
        receiver.waking(&portal).receive_queue(layout(1, 16), Permissions::SEND).unwrap();
    queue.post_all();
    let grant = receiver.grant(queue.region(), a, sender.pid(), OpType::Send).unwrap();
    let local = sender.register(16, Permissions::NONE).unwrap();
    local.write(0, b"inline").unwrap();
    let mut from = sender.portal(1).unwrap();
    from.send(&grant, &local, 0, 6, 0).unwrap();
    let completion = loop {
        sender.turn();
        receiver.turn();
        if let Some(completion) = from.poll() {
            break completion;
        }
    };
    assert_eq!(completion.status, OpStatus::Ok);
    let event = queue.poll().expect("it is published");
    let mut bytes = [0; 6];
    queue.read(&event, &mut bytes).unwrap();
    assert_eq!(&bytes, b"inline");
}
