//! An engine in a test's hands: its end of a portal, and of a receive queue that is bound to it.

use core::{ops::Range, time::Duration};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandSlotId, Completion},
    crypto::{DerivedRegionKey, EngineId},
    grant::Grant,
    op::{OpStatus, OpType},
    outcome::{OpName, Verdict},
    portal::{PortalConfig, PortalPort, portal},
    receive_queue::{Event, Receive, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, RegionId, RegisteredRegion},
    time::Instant,
};
use rma_shm::{Consumer, Line, Producer, Region};

use crate::{
    IdlePolicy, Portal, gauges::ExecutorWatch, home::Home, home::PortalParts, life::Life,
    sleep::Sleep,
};

pub(crate) const HERE: [u8; 4] = [192, 0, 2, 1];
pub(crate) const PID: Pid = Pid(1);
pub(crate) const NIC: NicTag = NicTag(1);

/// The name that targets of the test give to their ops.
pub(crate) const NAME: OpName = OpName { engine: EngineId(3), counter: 77, number: 9 };

#[derive(Debug)]
struct Nobody;

impl Home for Nobody {
    fn executor_made(&self, _: ExecutorWatch) {}
    fn slots_returned(&self, _: Range<u16>) {}
}

/// The end of an op of the test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Ends(OpStatus),
    /// OK, with what an atomic found.
    Found(u64),
    /// TIMEOUT, after its data was sent.
    Lost,
    /// The answer to a SETTLE.
    Says(Verdict, Option<u64>),
}

/// The engine's ends of a portal and of a queue that is bound to it.
pub(crate) struct Scripted {
    pub(crate) port: PortalPort,
    posts: Consumer,
    events: Producer,
    sleep: Sleep,
    ended: Arc<AtomicBool>,
}

impl Scripted {
    /// The next command; what an application asked for.
    pub(crate) fn take(&mut self) -> Option<Command> {
        self.port.take().map(|command| command.expect("an application that is not hostile"))
    }

    /// Ends an op.
    pub(crate) fn end(&mut self, slot: CommandSlotId, fate: Fate) {
        let (reached, may_have_changed, named, has_result) = (1, 2, 4, 8);
        let (status, flags, result) = match fate {
            Fate::Ends(status) => (status, 0, 0),
            Fate::Found(word) => (OpStatus::Ok, reached | named | has_result, word),
            Fate::Lost => (OpStatus::Timeout, reached | named | may_have_changed, 0),
            Fate::Says(verdict, result) => {
                let found = if result.is_some() { has_result } else { 0 };
                (OpStatus::Ok, named | found | (verdict as u64) << 4, result.unwrap_or(0))
            }
        };
        let head = u64::from(slot.0) | (status as u64) << 16 | flags << 24;
        let place = u64::from(NAME.engine.0) | u64::from(NAME.number) << 16;
        let line = Line([head, 10, 5_000, result, NAME.counter, place, 0, 0]);
        let completion = Completion::from_line(&line).expect("a defined status");
        assert!(self.port.complete(&completion));
        self.port.wake_sleeper();
    }

    /// How many receives are posted, and not taken by an event.
    pub(crate) fn posted(&self) -> usize {
        self.posts.len()
    }

    /// Publishes an event for the receive that was posted first, once one is.
    pub(crate) fn publish(&mut self, immediate: u64) {
        let post = loop {
            match self.posts.pop() {
                Some(post) => break post,
                None => thread::yield_now(),
            }
        };
        let event = Event {
            op_type: OpType::Notify,
            receive: Receive(post.0[0] as u16),
            len: 0,
            immediate,
            initiator: HostAddr::from([192, 0, 2, 2]),
            pid: Pid(2),
            region: RegionId::from_bits(5),
            region_offset: 0,
            at: Instant::ZERO,
        };
        self.events.push(&event.to_line()).expect("the ring has room");
        let bell = self.sleep.bell();
        if bell.doorbell.needs_ring() {
            bell.wake.wake();
        }
    }

    /// Waits until the application sleeps, or is about to.
    pub(crate) fn until_asleep(&self) {
        while !self.sleep.bell().doorbell.is_sleeping() {
            thread::yield_now();
        }
    }

    /// It has gone.
    pub(crate) fn end_engine(&self) {
        self.ended.store(true, SeqCst);
        self.sleep.bell().wake.wake();
    }
}

/// A portal of four slots that sleeps at once, a queue of four receives without buffers, and the
/// engine's end of both.
pub(crate) fn portal_and_queue() -> (Portal, ReceiveQueue, Scripted) {
    let sleep = Sleep::new().expect("a file descriptor");
    let addresses = HostAddr::from(HERE).into();
    let bell = None;
    let config = PortalConfig { slots: 0..4, pid: PID, addresses, bell, flag: None, nic: NIC };
    let (rings, mut port) = portal(config);
    port.set_sleeper(sleep.bell());
    let ended = Arc::new(AtomicBool::new(false));
    let (life, home) = (Life::thread(ended.clone()), Arc::new(Nobody));
    let mut portal = Portal::new(PortalParts { rings, home, life, sleep: Some(sleep.clone()) });
    let at_once = Duration::ZERO;
    portal.set_idle(IdlePolicy::default().with(|it| (it.spin, it.yield_for) = (at_once, at_once)));
    let layout = ReceiveQueueLayout::new(4, 0).expect("so large a queue can be");
    let memory = ReceiveQueueMemory::heap(layout);
    let (posts, events) =
        (memory.posts().clone().into_consumer(), memory.events().clone().into_producer());
    let queue = memory.into_application(local(layout.memory_len()));
    (portal, queue, Scripted { port, posts, events, sleep, ended })
}

/// A region of so many bytes of the portal's own.
pub(crate) fn local(len: usize) -> RegisteredRegion {
    let bytes = Arc::new(Region::new(len).expect("memory"));
    RegisteredRegion::new(RegionId::from_bits(5), bytes, NIC)
}

/// A grant to do this at a region of 64 KiB of another host.
pub(crate) fn grant(op_type: OpType) -> Grant {
    Grant {
        responder: HostAddr::from([192, 0, 2, 2]),
        region: RegionId::from_bits(9),
        region_len: 1 << 16,
        initiator: HostAddr::from(HERE),
        pid: PID,
        op_type,
        key: DerivedRegionKey::from_bytes([3; 16]),
    }
}
