//! Ops that tell an application of themselves, over a hostile wire: SEND, NOTIFY and
//! WRITE_WITH_IMM, and the receive queue that their events come to.
//!
//! What must hold, whatever the wire does: an op that is reported OK is one event, with the bytes
//! and the immediate that were sent, and with the address and the process of its sender; no op is
//! two; and once an op has been reported as anything else, no event of it comes any longer. One
//! that came before is there if a SETTLE says APPLIED, and is not if it says NOT_APPLIED.
//!
//! The application posts receives late and drains in bursts, so that queues run dry as well.

use core::marker::PhantomData;
use std::collections::BTreeMap;

use rma_core::portal::{Change, Placement, RecordedOp, Source};
use rma_lab::Pattern;
use rma_sim::prng::Prng;
use rma_xdp::{
    Grant, HostAddr, OpType, Permissions, Portal, ReceiveQueue, RegisteredRegion,
    messages::{Event, Receive, ReceiveQueueLayout},
    ops::{ClassOfService, CommandSlotId},
};

use super::{
    super::{
        lab::Ends,
        places::{End, PLACE, Places},
    },
    Effect, Known, SLOTS, SOURCE_LEN,
};
use crate::hosts::CLIENT_PID;

/// Receives of the queue: fewer than ops under way, so that it runs dry now and then.
const RECEIVES: u16 = 12;

/// The largest message.
const BUFFER_LEN: u32 = 4096;

/// The ops that make the events of a queue.
pub trait Tells {
    /// Their type.
    const OP_TYPE: OpType;
}

/// Messages with bytes in posted buffers.
#[derive(Debug)]
pub struct Send;
/// Events without bytes.
#[derive(Debug)]
pub struct Notify;
/// Bytes of a region, and an event for them.
#[derive(Debug)]
pub struct WriteWithImm;

impl Tells for Send {
    const OP_TYPE: OpType = OpType::Send;
}

impl Tells for Notify {
    const OP_TYPE: OpType = OpType::Notify;
}

impl Tells for WriteWithImm {
    const OP_TYPE: OpType = OpType::WriteWithImm;
}

/// An op that was issued, by its immediate.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// The offset in the source of its bytes.
    source: u64,
    len: u32,
    /// Of a WRITE_WITH_IMM: its place, and where it begins in the region.
    at: (usize, u64),
    placement: Placement,
    /// Its event has come.
    is_here: bool,
    /// It has ended, and may have changed something. No event of it comes any longer.
    is_timed_out: bool,
}

/// A receive queue, and all ops that may have an event in it.
#[derive(Debug)]
pub struct Events<T> {
    queue: ReceiveQueue,
    /// The places that WRITE_WITH_IMMs go to. Registered for the others too, which leave it alone.
    places: Places,
    source: RegisteredRegion,
    pattern: Pattern,
    sender: HostAddr,
    /// By immediate.
    ops: BTreeMap<u64, Told>,
    immediates: Vec<u64>,
    /// Receives whose events were taken, and which are not posted yet.
    taken: Vec<Receive>,
    /// Events of ops that had timed out.
    late: u64,
    ops_are: PhantomData<fn() -> T>,
}

impl<T: Tells> Events<T> {
    /// Takes all events that there are. Panics if one is not as it must be.
    fn drain(&mut self) {
        while let Some(event) = self.queue.poll() {
            self.hold_against_its_op(&event);
            self.taken.push(event.receive);
        }
    }

    fn hold_against_its_op(&mut self, event: &Event) {
        let Some(op) = self.ops.get_mut(&event.immediate) else {
            panic!("of no op, or of one whose event has come, or that had none: {event:?}")
        };
        assert!(!core::mem::replace(&mut op.is_here, true), "twice: {event:?} of {op:?}");
        // The server's NIC must have counted it.
        self.late += u64::from(op.is_timed_out);
        let op = *op;
        assert_eq!((event.op_type, event.len), (T::OP_TYPE, op.len), "{event:?} of {op:?}");
        assert_eq!((event.initiator, event.pid), (self.sender, CLIENT_PID), "{event:?}");
        let mut bytes = vec![0; op.len as usize];
        let region = match T::OP_TYPE {
            OpType::WriteWithImm => {
                assert_eq!(event.region_offset, op.at.1, "{event:?} of {op:?}");
                self.places.memory().read(op.at.1, &mut bytes).expect("inside");
                self.places.memory().id()
            }
            OpType::Send => {
                self.queue.read(event, &mut bytes).expect("as long as the event says");
                self.queue.id()
            }
            _ => self.queue.id(),
        };
        assert_eq!(event.region, region);
        assert_eq!(self.pattern.first_difference(op.source, &bytes), None, "{event:?} of {op:?}");
    }

    /// Posts what was taken, most of the time.
    fn post(&mut self, prng: &mut Prng) {
        if prng.below(8) > 0 {
            for receive in self.taken.drain(..) {
                self.queue.post(receive).expect("its event has been taken");
            }
        }
    }
}

impl<T: Tells> Effect for Events<T> {
    const OP_TYPE: OpType = T::OP_TYPE;

    fn new(ends: &Ends, prng: &mut Prng) -> Self {
        let (client, server) = (ends.client(), ends.server());
        let source = client.register(SOURCE_LEN as usize, Permissions::NONE).expect("a region");
        let pattern = Pattern::new(prng.next());
        pattern.fill_region(&source);
        let layout = ReceiveQueueLayout::new(RECEIVES, BUFFER_LEN).expect("a sensible queue");
        let both = Permissions::SEND | Permissions::NOTIFY;
        let mut queue = server.receive_queue(layout, both).expect("a queue");
        queue.post_all();
        let count = 4 * usize::from(SLOTS);
        let written = Permissions::WRITE | Permissions::NOTIFY;
        let region = server.register_with_events(&queue, count * PLACE, written);
        Self {
            queue,
            places: Places::new(region.expect("a region"), count),
            source,
            pattern,
            sender: ends.client_addr(),
            ops: BTreeMap::new(),
            immediates: Vec::new(),
            taken: Vec::new(),
            late: 0,
            ops_are: PhantomData,
        }
    }

    fn remote(&self) -> &RegisteredRegion {
        match T::OP_TYPE {
            OpType::WriteWithImm => self.places.memory(),
            _ => self.queue.region(),
        }
    }

    fn issue(
        &mut self,
        portal: &mut Portal,
        grant: &Grant,
        prng: &mut Prng,
    ) -> (CommandSlotId, u64) {
        self.drain();
        self.post(prng);
        let placement = prng.choose(&[Placement::Any, Placement::Ordered]);
        let granule = if placement == Placement::Ordered { 8 } else { 1 };
        let len = match (T::OP_TYPE, prng.below(3)) {
            (OpType::Notify, _) => 0,
            (_, 0) => granule,
            (_, 1) => BUFFER_LEN,
            _ => (prng.between(granule.into(), BUFFER_LEN.into()) as u32) / granule * granule,
        };
        let offset = prng.below(SOURCE_LEN - u64::from(len));
        let at = match T::OP_TYPE {
            OpType::WriteWithImm => {
                let (place, at) = self.places.take(len as usize, prng);
                (place, at as u64 / u64::from(granule) * u64::from(granule))
            }
            _ => (0, 0),
        };
        // No two are alike, and none looks like anything else on the wire.
        let immediate = prng.next();
        let source = Source { region: &self.source, offset, len };
        let change = match T::OP_TYPE {
            OpType::Send => Change::Send { message: source, immediate },
            OpType::Notify => Change::Notify { immediate },
            _ => Change::WriteWithImm { remote_offset: at.1, source, immediate, placement },
        };
        let op = RecordedOp { grant, change, class: prng.choose(&ClassOfService::ALL) };
        let slot = portal.issue_recorded(&op).expect("a sensible op");
        let (is_here, is_timed_out) = (false, false);
        let told = Told { source: offset, len, at, placement, is_here, is_timed_out };
        assert!(self.ops.insert(immediate, told).is_none(), "immediates are drawn from many");
        self.immediates.push(immediate);
        (slot, immediate)
    }

    fn timed_out(&mut self, op: u64) {
        // Events in time are there by now.
        self.drain();
        self.ops.get_mut(&op).expect("it was issued").is_timed_out = true;
    }

    fn ended(&mut self, op: u64, known: Known, prng: &mut Prng) {
        self.drain();
        let told = self.ops[&op];
        match known {
            Known::Applied(_) => assert!(told.is_here, "no event: {told:?}"),
            Known::NotApplied => {
                assert!(!told.is_here, "an event of what is not applied: {told:?}")
            }
            Known::Unknown => (),
        }
        // A later event is of no op; but if nobody knows how it ended, it may be late.
        if known != Known::Unknown {
            self.ops.remove(&op);
        }
        if T::OP_TYPE == OpType::WriteWithImm {
            let in_one_step = told.placement == Placement::Ordered && known == Known::NotApplied;
            let mut right = vec![0; if in_one_step { 0 } else { told.len as usize }];
            self.pattern.fill(told.source, &mut right);
            let end = match known {
                Known::Applied(_) => End::Ok,
                _ if told.is_timed_out => End::MayBeLate,
                _ => End::Failed,
            };
            let (place, start) = told.at;
            let settled = self.places.settle(place, start as usize, &right, end, prng);
            settled.unwrap_or_else(|wrong| panic!("{known:?} of {told:?}: {wrong}"));
        }
    }

    fn assert_at_rest(&mut self) {
        self.drain();
        self.places.look_at_rest().unwrap_or_else(|wrong| panic!("{wrong}"));
        let mut source = vec![0; SOURCE_LEN as usize];
        self.source.read(0, &mut source).expect("inside");
        assert_eq!(self.pattern.first_difference(0, &source), None, "the source never changes");
    }

    fn late_effects(&self) -> u64 {
        self.late + self.places.late_frames()
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        let mut bytes = vec![0; SOURCE_LEN as usize];
        self.pattern.fill(0, &mut bytes);
        let immediates = self.immediates.iter().map(|it| it.to_be_bytes().to_vec());
        [bytes].into_iter().chain(immediates).collect()
    }
}
