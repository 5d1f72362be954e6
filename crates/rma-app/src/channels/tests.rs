//! Threads that wait for channels, against an engine in the test's hands: what wakes them, and that
//! nobody waits for what cannot come.

use core::cell::Cell;
use std::{sync::Arc, thread};

use rma_channel::{
    Outgoing as _, Peer,
    send_recv::bufferless::{Receiver, Sender},
    write_slot::{SlotConfig, immediate},
};
use rma_core::{
    addr::HostAddr,
    command::{CommandOp, RecordedOp},
    crypto::RegionKey,
    gate::{Gate, Identity, Refused},
    grant::Grant,
    op::{OpStatus, OpType},
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{Permissions, RegionId, RegisteredRegion},
};
use rma_shm::Region;

use super::*;
use crate::scripted::{Fate, HERE, NIC, PID, Scripted, grant, local, portal_and_queue};

pub(crate) const OK: Fate = Fate::Ends(OpStatus::Ok);

fn us() -> Peer {
    Peer { address: HERE.into(), pid: PID }
}

/// A host for channels, of which no engine looks at anything.
struct Scribe {
    /// The queue that is bound to the portal, until a channel has it.
    queue: Cell<Option<ReceiveQueue>>,
    /// The last region that others may write.
    written: Cell<Option<RegisteredRegion>>,
}

impl Gate for Scribe {
    fn identity(&self) -> Identity {
        us().into()
    }

    fn key(&self) -> Result<RegionKey, Refused> {
        Ok(RegionKey::from_bytes([7; 16]))
    }

    fn register(
        &self,
        memory: Arc<Region>,
        _: RegionKey,
        permissions: Permissions,
        _: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        let region = RegisteredRegion::new(RegionId::from_bits(5), memory, NIC);
        if permissions == Permissions::WRITE {
            self.written.set(Some(region.clone()));
        }
        Ok(region)
    }

    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        _: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        let unbound = || {
            let memory = local(layout.memory_len());
            ReceiveQueueMemory::heap(layout).into_application(memory)
        };
        Ok(self.queue.take().unwrap_or_else(unbound))
    }

    fn deregister(&self, _: &RegisteredRegion) -> Result<(), Refused> {
        Ok(())
    }

    fn grant(&self, _: &RegisteredRegion, _: Peer, op_type: OpType) -> Result<Grant, Refused> {
        Ok(grant(op_type))
    }

    fn rekey(&self, _: &RegisteredRegion, _: RegionKey) -> Result<(), Refused> {
        Ok(())
    }

    fn prepare(&self, _: HostAddr) {}
}

/// Both ends of a bufferless channel, on one link that sleeps at once, and the engine.
pub(crate) struct Bench {
    pub(crate) channels: Channels,
    pub(crate) engine: Scripted,
    pub(crate) receiver: Receiver,
    /// The sender, which has room for one word.
    pub(crate) sender: Sender,
    /// A sender of one slot, and the word that it is told its tail by.
    pub(crate) slot: (immediate::Sender, RegisteredRegion),
}

impl Bench {
    pub(crate) fn new() -> Self {
        let (portal, queue, engine) = portal_and_queue();
        let mut channels = Channels::new(portal, ExecutorConfig::default()).unwrap();
        let at_once = |it: &mut IdlePolicy| {
            (it.spin, it.yield_for) = (Duration::ZERO, Duration::ZERO);
        };
        channels.set_idle(WAIT.with(at_once));
        let scribe = Scribe { queue: Cell::new(Some(queue)), written: Cell::new(None) };
        let receiver = Receiver::open(&scribe, 7, 4).unwrap();
        let terms = receiver.admit(&scribe, us()).unwrap();
        let sender = Sender::join(&scribe, &terms, 1).unwrap();
        let one = SlotConfig::with_peer(us()).with(|it| it.slots = 1);
        let there = immediate::Receiver::open(&scribe, one).unwrap();
        let slot = immediate::Sender::open(&scribe, one).unwrap();
        let slot = slot.connect(there.terms()).unwrap();
        let tail = scribe.written.take().unwrap();
        Self { channels, engine, receiver, sender, slot: (slot, tail) }
    }

    /// Ends the engine as soon as the application sleeps. The thread's end is the engine's.
    fn ends_soon(engine: Scripted) -> thread::JoinHandle<Scripted> {
        thread::spawn(move || {
            engine.until_asleep();
            engine.end_engine();
            engine
        })
    }
}

/// The word that a command sends, if it sends one.
pub(crate) fn word_of(op: CommandOp) -> Option<u64> {
    match op {
        CommandOp::Recorded { op: RecordedOp::Notify { immediate }, .. } => Some(immediate),
        _ => None,
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn a_receiver_that_sleeps_is_woken_by_every_message() {
    const MESSAGES: u64 = 200;
    let Bench { mut channels, mut engine, mut receiver, .. } = Bench::new();
    let engine = thread::spawn(move || {
        for number in 0..MESSAGES {
            engine.until_asleep();
            engine.publish(number);
        }
        engine
    });
    // It sleeps for as long as nobody rings, with a timeout far away and without.
    let far = Duration::from_hours(1);
    for number in 0..MESSAGES {
        let message = if number % 2 == 0 {
            channels.recv(&mut receiver, &mut []).unwrap()
        } else {
            channels.recv_timeout(&mut receiver, &mut [], far).unwrap().unwrap()
        };
        assert_eq!(word(&message.to_vec()), number);
    }
    drop(engine.join().unwrap());
}

#[test]
fn a_timeout_ends_a_wait_for_nothing_and_hides_nothing_that_is_there() {
    let Bench { mut channels, mut engine, mut receiver, .. } = Bench::new();
    let soon = Duration::from_millis(1);
    assert!(channels.recv_timeout(&mut receiver, &mut [], soon).unwrap().is_none());
    engine.publish(1);
    engine.publish(2);
    for number in [1, 2] {
        let message = channels.recv_timeout(&mut receiver, &mut [], Duration::ZERO).unwrap();
        assert_eq!(word(&message.unwrap().to_vec()), number);
    }
    assert!(channels.recv_timeout(&mut receiver, &mut [], Duration::ZERO).unwrap().is_none());
}

#[test]
fn a_look_now_and_then_finds_what_nothing_wakes_for() {
    let Bench { mut channels, mut engine, mut receiver, .. } = Bench::new();
    let engine = thread::spawn(move || {
        engine.until_asleep();
        engine.publish(5);
        engine
    });
    let every = Duration::from_micros(50);
    let message = channels.recv_every(&mut receiver, &mut [], every).unwrap();
    assert_eq!(word(&message.to_vec()), 5);
    drop(engine.join().unwrap());
}

#[test]
fn a_send_waits_for_room_and_then_for_its_end() {
    let Bench { mut channels, mut engine, mut sender, .. } = Bench::new();
    let engine = thread::spawn(move || {
        for number in [10, 11] {
            let command = loop {
                match engine.take() {
                    Some(command) => break command,
                    None => thread::yield_now(),
                }
            };
            engine.until_asleep();
            assert_eq!((word_of(command.op), engine.take()), (Some(number), None), "one at a time");
            engine.end(command.slot, OK);
        }
        engine
    });
    let first = channels.send(&mut sender, &10_u64.to_le_bytes()).unwrap();
    let second = channels.send(&mut sender, &11_u64.to_le_bytes()).unwrap();
    assert_eq!(sender.test(first), SendState::Accepted, "it made room");
    assert_eq!(channels.sent(&mut sender, second), Ok(SendState::Accepted));
    drop(engine.join().unwrap());
}

#[test]
fn a_send_that_waits_for_memory_sees_it() {
    let Bench { mut channels, mut engine, slot: (mut sender, tail), .. } = Bench::new();
    let engine = thread::spawn(move || {
        let mut next = || loop {
            match engine.take() {
                Some(command) => break engine.end(command.slot, OK),
                None => thread::yield_now(),
            }
        };
        next();
        engine.until_asleep();
        // The effect of the receiver's WRITE, which wakes nobody.
        tail.store(0, 1_u64.to_le()).unwrap();
        engine
    });
    channels.send(&mut sender, b"first").unwrap();
    channels.send(&mut sender, b"second").unwrap();
    drop(engine.join().unwrap());
}

#[test]
fn nobody_waits_for_an_engine_that_is_gone_and_what_came_before_is_received() {
    const GONE: ChannelError = ChannelError::Wait(WaitError::EngineGone);
    type Waits = fn(&mut Channels, &mut Receiver, &mut Sender) -> Result<(), ChannelError>;
    let bytes = 1_u64.to_le_bytes();
    let far = Duration::from_hours(1);
    let waits: [Waits; 4] = [
        |it, receiver, _| it.recv(receiver, &mut []).map(drop),
        |it, receiver, _| it.recv_timeout(receiver, &mut [], Duration::from_hours(1)).map(drop),
        |it, receiver, _| it.recv_every(receiver, &mut [], Duration::from_hours(1)).map(drop),
        |it, _, sender| it.send(sender, &2_u64.to_le_bytes()).map(drop),
    ];
    for (number, wait) in waits.iter().enumerate() {
        let Bench { mut channels, engine, mut receiver, mut sender, .. } = Bench::new();
        // The message takes all the room.
        let handle = channels.send(&mut sender, &bytes).unwrap();
        let engine = Bench::ends_soon(engine);
        assert_eq!(wait(&mut channels, &mut receiver, &mut sender), Err(GONE), "{number}");
        assert_eq!(channels.sent(&mut sender, handle), Err(GONE), "{number}");
        drop(engine.join().unwrap());
    }
    let Bench { mut channels, mut engine, mut receiver, .. } = Bench::new();
    engine.publish(9);
    engine.end_engine();
    let message = channels.recv_timeout(&mut receiver, &mut [], far).unwrap().unwrap();
    assert_eq!(word(&message.to_vec()), 9);
    drop(message);
    assert_eq!(channels.recv(&mut receiver, &mut []).map(drop), Err(GONE));
}
