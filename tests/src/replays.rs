//! A flood of recorded ops' requests: authentic ones of a host that was granted everything and
//! whose data never comes, sent again and again by somebody without a key.
//!
//! Not here: what a hostile wire does to frames that are on their way, which is
//! [`hostile_wire`](super::hostile_wire).
//!
//! Invariant: the flood's requests are all that ever comes of that host; so nothing that only its
//! data could do happens.

use core::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    thread::Scope,
};

use rma_core::{
    command::{Command, CommandOp, CommandSlotId, RecordedOp, Transfer},
    crypto::EngineId,
    nic::{Nic, NicPlace, RegionEntry},
    outcome::OpName,
    wire::FRAME_LEN_MIN,
};
use rma_xdp::{
    Grant, OpType, Permissions, Region, RegionKey,
    config::NicConfigBuilder,
    memory::RegionId,
    ops::ClassOfService,
    time::{Clock, Instant, TscClock},
};

/// Ops that the host whose requests are replayed has under way at once.
const SLOTS: u16 = 1024;

/// Requests that are sent between two looks at the clock.
const BURST: u64 = 16;

/// The op that requests ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A recorded op of this type; of WRITE, an ordered one.
    Op(OpType),
    /// A question about an op of this type, which also ends it. No op has the name that it gives.
    Settle(OpType),
}

impl What {
    /// The type that a grant for it is for.
    #[must_use]
    pub const fn op_type(self) -> OpType {
        match self {
            Self::Op(op_type) | Self::Settle(op_type) => op_type,
        }
    }

    fn op(self, number: usize, local_region: RegionId, remote_offset: u64) -> CommandOp {
        let transfer = |remote_offset| Transfer {
            op_size: 4096,
            remote_offset,
            local_region,
            local_offset: 0,
        };
        let immediate = number as u64;
        let op = match self {
            Self::Settle(op_type) => {
                let number = 4000 + number as u16 % 100;
                let name = OpName { engine: EngineId(0), counter: 1, number };
                return CommandOp::Settle { op_type, name };
            }
            Self::Op(OpType::Write) => RecordedOp::OrderedWrite(transfer(remote_offset)),
            Self::Op(OpType::Send) => RecordedOp::Send { message: transfer(0), immediate },
            Self::Op(OpType::WriteWithImm) => {
                let (transfer, ordered) = (transfer(remote_offset), number.is_multiple_of(2));
                RecordedOp::WriteWithImm { transfer, immediate, ordered }
            }
            Self::Op(OpType::Notify) => RecordedOp::Notify { immediate },
            Self::Op(OpType::CompareSwap) => {
                RecordedOp::CompareSwap { remote_offset, expected: 0, new: 1 }
            }
            Self::Op(OpType::FetchAdd) => RecordedOp::FetchAdd { remote_offset, addend: 1 },
            Self::Op(other) => panic!("{other} is not recorded"),
        };
        CommandOp::Recorded { op, done: None }
    }
}

/// `count` requests, in turns of each that is asked for, of both classes, each of another op. All
/// grants are one host's. What is asked for is at `remote_offset` of regions.
///
/// # Panics
/// If the host's NIC makes none.
#[must_use]
pub fn requests(asked: &[(What, Grant)], remote_offset: u64, count: usize) -> Vec<Box<[u8]>> {
    let (_, first) = asked[0];
    let config = NicConfigBuilder::default().build(NicPlace::at(first.initiator));
    let mut nic = Nic::new(config.expect("the defaults and an address"));
    nic.configure_slots(0..SLOTS, Some(first.pid));
    let memory = Arc::new(Region::new(4096).expect("a page can be had"));
    let key = RegionKey::from_bytes([0; 16]);
    let entry = RegionEntry::new(memory, &key, Permissions::NONE, first.pid);
    let local_region = nic.regions_mut().register(Box::new(entry)).expect("the table is empty");
    let (mut requests, mut now) = (Vec::with_capacity(count), Instant::ZERO);
    let mut frame = [0; FRAME_LEN_MIN];
    while requests.len() < count {
        let number = requests.len();
        let slot = (number % usize::from(SLOTS)) as u16;
        if slot == 0 {
            // All before have timed out by then.
            now = now + Duration::from_secs(1);
            nic.handle_timeout(now);
            while nic.poll_completion().is_some() {}
        }
        let (what, grant) = asked[number % asked.len()];
        let command = Command {
            slot: CommandSlotId(slot),
            class: ClassOfService::ALL[number / asked.len() % 2],
            responder: grant.responder,
            remote_region: grant.region,
            key: grant.key,
            op: what.op(number, local_region, remote_offset),
        };
        nic.handle_command(now, command).expect("the slot is free");
        let transmit = nic.poll_transmit(now, &mut frame).expect("a request needs no window");
        requests.push(frame[..transmit.len].into());
    }
    requests
}

/// A flood of replayed requests, which lasts until it is dropped.
#[derive(Debug)]
pub struct Flood<'a> {
    ended: &'a AtomicBool,
    sent: &'a AtomicU64,
}

impl<'a> Flood<'a> {
    /// Has a thread send `requests` to `to` by `socket`, in turn, `per_second` of them. `state` is
    /// for it alone.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, 'a>,
        (ended, sent): &'a (AtomicBool, AtomicU64),
        (socket, to): (&'a UdpSocket, SocketAddr),
        requests: &'a [Box<[u8]>],
        per_second: u64,
    ) -> Self {
        scope.spawn(move || {
            let clock = TscClock::new();
            let mut tried = 0;
            while !ended.load(Relaxed) {
                let due = clock.now().as_nanos() / 1000 * per_second / 1_000_000;
                for _ in 0..BURST.min(due.saturating_sub(tried)) {
                    let request = &requests[tried as usize % requests.len()];
                    tried += 1;
                    // A request that the kernel has no room for is not counted.
                    sent.fetch_add(socket.send_to(request, to).is_ok().into(), Relaxed);
                }
                std::thread::yield_now();
            }
        });
        Self { ended, sent }
    }

    /// How many requests were sent up to now.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }
}

impl Drop for Flood<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
    }
}
