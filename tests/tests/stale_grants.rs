//! A server that restarts has new keys. Who comes with a grant of its last life is told so, over AF_XDP too: there a
//! notice needs a way to the initiator, and must not look for one itself, as anybody can send in its name.

#![expect(clippy::unwrap_used, reason = "a test's fixtures fail as the test itself does")]

use core::time::Duration;

use rma_tests::hosts::{CLIENT_PID, Hosts, Setup};
use rma_xdp::{
    Clock, Grant, Host, HostAddr, InlineHost, NicConfigBuilder, OpStatus, OpType, Permissions,
    Portal, RegisteredRegion, Timing, TscClock,
};

/// Longer than a path takes to be found, by far.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's next life: an engine on a thread, or one that is turned here.
enum Server {
    Threaded(Box<Host>),
    Inline(Box<InlineHost>),
}

impl Server {
    fn grant(&mut self, initiator: HostAddr) -> Grant {
        let (len, read) = (4096, (CLIENT_PID, OpType::Read));
        match self {
            Self::Threaded(host) => {
                let region = host.register(len, Permissions::READ).unwrap();
                host.grant(&region, initiator, read.0, read.1).unwrap()
            }
            Self::Inline(host) => {
                let region = host.register(len, Permissions::READ).unwrap();
                host.grant(&region, initiator, read.0, read.1).unwrap()
            }
        }
    }

    /// How a read under `grant` ends.
    fn read(&mut self, portal: &mut Portal, grant: &Grant, sink: &RegisteredRegion) -> OpStatus {
        portal.read(grant, 0, sink, 0, 64).unwrap();
        loop {
            if let Some(completion) = portal.poll() {
                return completion.status;
            }
            match self {
                Self::Threaded(_) => std::thread::yield_now(),
                Self::Inline(host) => drop::<usize>(host.turn()),
            }
        }
    }
}

fn setup(ipv6: bool) -> Setup {
    // Here a timeout is what ops end with, so it should come soon.
    let timing = Timing::software(Duration::from_micros(10), Duration::from_millis(100));
    let nic = NicConfigBuilder { timing, ..NicConfigBuilder::default() };
    Setup { ipv6, nic, ..Setup::default() }
}

fn a_stale_grant_is_refused(setup: &Setup, restart: impl FnOnce(&Hosts) -> Server) {
    let mut hosts = Hosts::in_lab(setup);
    let mut portal = hosts.client.portal(1).unwrap();
    let sink = hosts.client.register(64, Permissions::NONE).unwrap();
    let mut last_life = Server::Threaded(Box::new(hosts.server.take().unwrap()));
    let stale = last_life.grant(hosts.client_addr);
    assert_eq!(last_life.read(&mut portal, &stale, &sink), OpStatus::Ok);
    drop(last_life);

    let mut server = restart(&hosts);
    let status = server.read(&mut portal, &stale, &sink);
    assert_eq!(status, OpStatus::Timeout, "to a stranger nothing is sent, and nobody looks for it");
    let fresh = server.grant(hosts.client_addr);
    // The way is looked for while the host goes on.
    let clock = TscClock::new();
    loop {
        match server.read(&mut portal, &stale, &sink) {
            OpStatus::RemoteAuthenticationFailure => break,
            status => assert_eq!(status, OpStatus::Timeout),
        }
        assert!(Duration::from_nanos(clock.now().as_nanos()) < PATIENCE, "still no refusal");
    }
    assert_eq!(server.read(&mut portal, &fresh, &sink), OpStatus::Ok);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_restarted_host_refuses_a_stale_grant_once_it_has_granted_its_initiator_something() {
    let setup = setup(false);
    a_stale_grant_is_refused(&setup, |hosts| {
        let _inside = hosts.lab.as_ref().unwrap().b().enter().unwrap();
        Server::Threaded(Box::new(Host::open(setup.server(hosts.server_addr)).unwrap()))
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_restarted_inline_host_refuses_a_stale_grant_once_it_has_granted_its_initiator_something() {
    let setup = setup(true);
    a_stale_grant_is_refused(&setup, |hosts| {
        let _inside = hosts.lab.as_ref().unwrap().b().enter().unwrap();
        Server::Inline(Box::new(InlineHost::open(setup.server(hosts.server_addr)).unwrap()))
    });
}
