//! A sender against an engine in the test's hands: what it says of messages, and what it issues.

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, Completion},
    crypto::DerivedRegionKey,
    executor::{CallStatus, CommandExecutor, ExecutorConfig},
    grant::Grant,
    op::{OpStatus, OpType},
    portal::{PortalConfig, PortalPort, portal},
    region::{NicTag, RegionId},
};
use rma_shm::Region;

use super::*;
use crate::{
    close::Registered,
    ring::RingLen,
    sender::{Outgoing as _, SendState, Sender as _},
};

const RING: u64 = 1024;

fn grant(responder: [u8; 4]) -> Grant {
    Grant {
        responder: HostAddr::from(responder),
        region: RegionId::from_bits(9),
        region_len: 2 * RING,
        initiator: HostAddr::from([192, 0, 2, 1]),
        pid: Pid(7),
        op_type: OpType::Write,
        key: DerivedRegionKey::from_bytes([3; 16]),
    }
}

fn region(id: u32, memory: Region) -> RegisteredRegion {
    RegisteredRegion::new(RegionId::from_bits(id), Arc::new(memory), NicTag(1))
}

struct Bench {
    link: Link,
    port: PortalPort,
    tail: RegisteredRegion,
    sender: Sender,
    /// Under way.
    taken: Vec<Command>,
    /// It goes on with each poll.
    now: Instant,
}

impl Bench {
    /// A link of so many calls, with so many hosts.
    fn new(calls: u16, remotes: u32) -> Self {
        let (nic, pid) = (NicTag(1), Pid(7));
        let addresses = HostAddr::from([192, 0, 2, 1]).into();
        let slots = 0..16;
        let (portal, port) =
            portal(PortalConfig { slots, pid, addresses, bell: None, flag: None, nic });
        let mut config = ExecutorConfig::default();
        (config.calls, config.cc.remotes) = (calls, remotes);
        let link = Link::new(CommandExecutor::new(portal, config).unwrap());
        let image = region(1, Region::circular(RING as usize).unwrap());
        let tail = region(2, Region::new(8).unwrap());
        let len = RingLen::new(RING).unwrap();
        let parts = SenderParts {
            grant: grant([192, 0, 2, 2]),
            image,
            tail: tail.clone(),
            len,
            len_max: 100,
            registered: Registered::default(),
        };
        let runs = Runs::new(&parts);
        let sender = Sender::new(parts, runs);
        Self { link, port, tail, sender, taken: Vec::new(), now: Instant::from_nanos(1_000_000) }
    }

    fn poll(&mut self) -> Result<(), SendError> {
        self.now = self.now + Duration::from_millis(1);
        self.link.poll(self.now);
        let polled = self.sender.poll(&mut self.link, self.now);
        self.link.poll(self.now);
        self.taken.extend(core::iter::from_fn(|| self.port.take()).map(Result::unwrap));
        polled
    }

    fn send(&mut self, message: &[u8]) -> Result<SendHandle, SendError> {
        self.sender.send(&mut self.link, self.now, message)
    }

    /// The oldest op that is under way ends so.
    fn end(&mut self, status: OpStatus) {
        let command = self.taken.remove(0);
        self.port.complete(&Completion::new(command.slot, status, 0, 1_000));
    }

    /// The receiver says that it has processed all before this message.
    fn tell(&self, handle: SendHandle) {
        self.tail.store(0, handle.0.to_bits().to_le()).unwrap();
    }

    /// Another end of the link writes to this host.
    fn write_elsewhere(&mut self, responder: [u8; 4]) {
        let (grant, local) = (&grant(responder), &self.tail);
        let word = Piece { grant, remote_offset: 0, local, local_offset: 0, len: 8 };
        self.link.submit(self.now, &Call::of(&[word])).unwrap();
    }
}

#[test]
fn a_message_that_has_not_been_issued_is_not_accepted_with_those_before_it() {
    let mut it = Bench::new(1, 8);
    let first = it.send(b"first").unwrap();
    it.poll().unwrap();
    it.end(OpStatus::Ok);
    it.link.poll(it.now);
    it.write_elsewhere([192, 0, 2, 2]);
    assert_eq!(it.poll(), Ok(()), "a link without room is no failure");
    assert_eq!(it.sender.test(first), SendState::Accepted);
    let second = it.send(b"second").unwrap();
    assert_eq!(it.sender.test(second), SendState::Sending);
    assert_eq!(it.poll(), Ok(()), "a link without room is no failure");
    assert_eq!(it.sender.test(second), SendState::Sending);
    it.end(OpStatus::Ok);
    it.poll().unwrap();
    it.poll().unwrap();
    it.end(OpStatus::Ok);
    it.poll().unwrap();
    assert_eq!(it.sender.test(second), SendState::Accepted);
}

#[test]
fn the_rest_of_a_run_is_accepted_while_its_beginning_is_processed() {
    let mut it = Bench::new(8, 8);
    it.send(b"alone").unwrap();
    it.poll().unwrap();
    let (second, third) = (it.send(b"second").unwrap(), it.send(b"third").unwrap());
    it.end(OpStatus::Ok);
    it.poll().unwrap();
    it.end(OpStatus::Ok);
    it.tell(third);
    it.poll().unwrap();
    assert_eq!(it.sender.test(second), SendState::Processed);
    assert_eq!(it.sender.test(third), SendState::Accepted);
}

#[test]
fn a_failed_message_breaks_nothing_once_it_is_processed_whatever_gathers_behind_it() {
    let mut it = Bench::new(8, 8);
    let first = it.send(b"first").unwrap();
    it.poll().unwrap();
    let second = it.send(b"second").unwrap();
    it.end(OpStatus::RemotePermissionDenied);
    assert!(matches!(it.poll(), Err(SendError::Broken { .. })));
    let failed = CallStatus::Failed(OpStatus::RemotePermissionDenied);
    assert_eq!(it.sender.test(first), SendState::Failed(failed));
    it.tell(second);
    it.poll().unwrap();
    assert_eq!(it.sender.test(first), SendState::Processed);
    it.end(OpStatus::Ok);
    it.poll().unwrap();
    assert_eq!(it.sender.test(second), SendState::Accepted);
}

#[test]
fn a_message_is_issued_as_soon_as_the_link_has_room() {
    let mut it = Bench::new(8, 1);
    it.write_elsewhere([192, 0, 2, 9]);
    let first = it.send(b"first").unwrap();
    it.poll().unwrap();
    assert_eq!(it.taken.len(), 1, "that to the other host, and none of the message");
    it.end(OpStatus::Ok);
    it.poll().unwrap();
    assert_eq!(it.taken.len(), 1, "the message");
    it.end(OpStatus::Ok);
    it.poll().unwrap();
    assert_eq!(it.sender.test(first), SendState::Accepted);
}
