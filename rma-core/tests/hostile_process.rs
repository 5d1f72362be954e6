//! A process that writes what it likes into its portal's memory, while the engine serves it and others (P8).
//!
//! The fuzz target `ring` does the same step by step. Here it happens at any moment, on a thread of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::{cell::Cell, ops::Range, time::Duration};
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use rma_core::{
    addr::{HostAddr, Pid},
    backend::{Backend, RxFrame, Transmit},
    crypto::{DerivedRegionKey, RegionKey},
    engine::Engine,
    grant::Grant,
    nic::{Nic, NicConfigBuilder, RegionEntry},
    op::{OpStatus, OpType},
    portal::{CommandPortal, PortalConfig, PortalPort, portal},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::{Clock, Instant},
    wire::FRAME_LEN_MAX,
};
use rma_shm::{Region, ring, spsc::RingMemory};

const PID: Pid = Pid(5);
const TAG: NicTag = NicTag(1);
const SLOTS: u16 = 4;

/// A device whose frames all get lost: every op ends with TIMEOUT.
struct Lost;

impl Backend for Lost {
    fn rx_burst(&mut self, _: usize, _: impl FnMut(RxFrame<'_>)) -> usize {
        0
    }

    fn tx_burst(
        &mut self,
        max: usize,
        mut fill: impl FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> usize {
        (0..max).map_while(|_| fill(&mut [0; FRAME_LEN_MAX])).count()
    }

    fn flush(&mut self, _: Instant) {}
}

/// A clock that goes on by a millisecond whenever it is read.
#[derive(Default)]
struct TickingClock(Cell<Instant>);

impl Clock for TickingClock {
    fn now(&self) -> Instant {
        self.0.replace(self.0.get() + Duration::from_millis(1))
    }
}

fn local() -> HostAddr {
    "192.0.2.1".parse().unwrap()
}

fn slots(number: u16) -> Range<u16> {
    number * SLOTS..(number + 1) * SLOTS
}

/// An engine with a hostile portal between two honest ones, the memory of its rings, and where data would land.
fn engine() -> (Engine<Lost, TickingClock>, [CommandPortal; 2], [RingMemory; 2], RegisteredRegion) {
    let addresses = local().into();
    let config = NicConfigBuilder { addresses, ..NicConfigBuilder::default() };
    let mut nic = Nic::new(config.build().unwrap());
    let memory = Arc::new(Region::new(64).unwrap());
    let key = RegionKey::from_bytes([1; 16]);
    let entry = RegionEntry::new(memory.clone(), &key, Permissions::NONE, PID);
    let id = nic.regions_mut().register(Box::new(entry)).unwrap();
    nic.configure_slots(0..3 * SLOTS, Some(PID));
    let mut engine = Engine::new(nic, Lost, TickingClock::default());
    let mut honest = |number| {
        let config =
            PortalConfig { slots: slots(number), pid: PID, addresses, bell: None, nic: TAG };
        let (portal, port) = portal(config);
        engine.attach(port);
        portal
    };
    let honest = [honest(0), honest(2)];
    let (commands, taken) = ring(usize::from(SLOTS)).unwrap();
    let (given, completions) = ring(usize::from(SLOTS)).unwrap();
    engine.attach(PortalPort::new(slots(1), taken, given));
    let hostile = [commands.memory(), completions.memory()];
    (engine, honest, hostile, RegisteredRegion::new(id, memory, TAG))
}

/// Uses every free slot. Returns how many ops had completed.
fn use_all_slots(portal: &mut CommandPortal, sink: &RegisteredRegion) -> u64 {
    let mut done = 0;
    while let Some(completion) = portal.poll() {
        assert_eq!(completion.status, OpStatus::Timeout);
        done += 1;
    }
    let grant = Grant {
        responder: "192.0.2.2".parse().unwrap(),
        region: RegionId::from_bits(0),
        region_len: 64,
        initiator: local(),
        pid: PID,
        op_type: OpType::Read,
        key: DerivedRegionKey::from_bytes([2; 16]),
    };
    while portal.next_slot().is_some() {
        portal.read(&grant, 0, sink, 0, 64).unwrap();
    }
    done
}

/// Writes anything anywhere, mostly near to what would be right, until told to stop.
fn scribble(memories: &[RingMemory; 2], stop: &AtomicBool) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    while !stop.load(Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let [a, b, c, d, ..] = random.to_le_bytes();
        let memory = &memories[usize::from(a & 1)];
        let near = u32::from(b % 8).wrapping_sub(3);
        match a >> 1 & 7 {
            0 | 1 => memory.set_tail(memory.tail().wrapping_add(near)),
            2 | 3 => memory.set_head(memory.head().wrapping_add(near)),
            4 => memory.set_head(memory.tail()),
            5 => memory.set_tail(random as u32),
            // Op type READ in the latency class, for a slot that may be its own.
            6 => memory.set_word(b.into(), 0, u64::from(c % 16) | 1 << 16 | u64::from(d) << 32),
            _ => memory.set_word(b.into(), c.into(), random),
        }
    }
}

#[test]
fn a_hostile_process_stalls_itself_alone_and_an_operator_sees_it() {
    const OPS: u64 = 2000;
    let (mut engine, mut honest, hostile, sink) = engine();
    engine.turn();
    assert_eq!(engine.nic().counters().impossible_indexes(), 0);
    let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let process = {
        let (stop, begun) = (Arc::clone(&stop), Arc::clone(&begun));
        thread::spawn(move || {
            hostile[0].set_tail(u32::MAX / 2);
            begun.wait();
            // The engine sees that one; then come all others.
            begun.wait();
            scribble(&hostile, &stop);
        })
    };
    begun.wait();
    engine.turn();
    assert_eq!(engine.nic().counters().impossible_indexes(), 1);
    assert!(engine.is_idle(), "it does not keep the engine from its sleep");
    begun.wait();

    let (mut done, mut turns) = ([0; 2], [0; 2]);
    while done.iter().any(|&done| done < OPS) {
        for ((portal, done), turns) in honest.iter_mut().zip(&mut done).zip(&mut turns) {
            let completed = use_all_slots(portal, &sink);
            *done += completed;
            *turns = if completed > 0 { 0 } else { *turns + 1 };
            // The timeout of 100 ms at 1 ms a turn.
            assert!(*turns < 110, "an honest op was held up");
        }
        engine.turn();
    }
    stop.store(true, Relaxed);
    process.join().unwrap();

    assert!(engine.nic().counters().impossible_indexes() > 1);
    let settled = (0..1000).any(|_| {
        engine.turn();
        honest.iter_mut().for_each(|portal| while portal.poll().is_some() {});
        engine.nic().are_free(0..3 * SLOTS)
    });
    assert!(settled, "every command that was taken has completed");
    assert_eq!(engine.nic().window_debited(), 0);
    assert!((0..3).all(|number| engine.detach(&slots(number)).is_some()));
}
