//! A process that writes what it likes into its portal's memory, while the engine serves it and
//! others (P8).
//!
//! The fuzz target `ring` does the same step by step. Here it happens at any moment, on a thread of
//! its own.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use rma_shm::{Mapping, RingMemory};

use super::*;

/// The step of the clock in each turn.
const TURN: Duration = Duration::from_millis(1);

const HOSTILE: Range<u16> = SLOTS..2 * SLOTS;

/// A hostile portal's memory: all of it, and the rings in it.
struct Memory {
    mapping: Arc<Mapping>,
    rings: [RingMemory; 2],
}

/// An engine, two honest portals, the memory of a hostile one whose slots are between theirs, and
/// where data would land.
fn hostile_engine() -> (Engine<Lost, HandClock>, Vec<CommandPortal>, Memory, RegisteredRegion) {
    let (mut engine, mut portals, sink) = engine(3);
    portals.remove(1);
    assert!(engine.service_mut().detach(&HOSTILE).is_some());
    engine.service_mut().nic_mut().configure_slots(HOSTILE, Some(PID));
    let mapping = Arc::new(Mapping::heap(PortalMemory::footprint(SLOTS)));
    let memory = PortalMemory::format(&mapping, SLOTS).unwrap();
    let rings = [memory.commands().clone(), memory.completions().clone()];
    engine.service_mut().attach(memory.into_port(HOSTILE));
    (engine, portals, Memory { mapping, rings }, sink)
}

/// Uses every free slot. Returns how many ops had completed.
fn use_all_slots(portal: &mut CommandPortal, sink: &RegisteredRegion) -> u64 {
    let mut done = 0;
    while let Some(completion) = portal.poll() {
        assert_eq!(completion.status, OpStatus::Timeout);
        done += 1;
    }
    while portal.next_slot().is_some() {
        read(portal, sink);
    }
    done
}

/// Writes anything anywhere, mostly near to what would be right, until told to stop.
fn scribble(Memory { mapping, rings }: &Memory, stop: &AtomicBool) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    while !stop.load(Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let [a, b, c, d, ..] = random.to_le_bytes();
        let memory = &rings[usize::from(a & 1)];
        let near = u32::from(b % 8).wrapping_sub(3);
        match a >> 1 & 7 {
            0 | 1 => memory.set_tail(memory.tail().wrapping_add(near)),
            2 | 3 => memory.set_head(memory.head().wrapping_add(near)),
            4 => memory.set_head(memory.tail()),
            5 => memory.set_tail(random as u32),
            // Op type READ in the latency class, for a slot that may be its own.
            6 => {
                let slot = u64::from(HOSTILE.start - 4) + u64::from(c % 16);
                memory.set_word(b.into(), 0, slot | 1 << 16 | u64::from(d) << 32);
            }
            // Labels, doorbells, and what nobody looks at, too.
            _ if d & 1 == 0 => {
                let words = mapping.words();
                words[(random >> 32) as usize % words.len()].store(random, Relaxed);
            }
            _ => memory.set_word(b.into(), c.into(), random),
        }
    }
}

#[test]
fn a_hostile_process_stalls_itself_alone_and_an_operator_sees_it() {
    const OPS: u64 = 24_000;
    let (mut engine, mut honest, hostile, sink) = hostile_engine();
    engine.turn();
    assert_eq!(engine.service().nic().counters().impossible_indexes(), 0);
    let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let process = {
        let (stop, begun) = (Arc::clone(&stop), Arc::clone(&begun));
        thread::spawn(move || {
            hostile.rings[0].set_tail(u32::MAX / 2);
            begun.wait();
            // The engine sees that one; then come all others.
            begun.wait();
            scribble(&hostile, &stop);
        })
    };
    begun.wait();
    engine.turn();
    assert_eq!(engine.service().nic().counters().impossible_indexes(), 1);
    assert!(engine.is_idle(), "it does not keep the engine from its sleep");
    begun.wait();

    let (mut done, mut turns) = ([0; 2], [0; 2]);
    while done.iter().any(|&done| done < OPS) {
        for ((portal, done), turns) in honest.iter_mut().zip(&mut done).zip(&mut turns) {
            let completed = use_all_slots(portal, &sink);
            *done += completed;
            *turns = if completed > 0 { 0 } else { *turns + 1 };
            // The timeout is 100 ms.
            assert!(*turns < 110, "an honest op was held up");
        }
        engine.turn();
        pass(&engine, TURN);
    }
    stop.store(true, Relaxed);
    process.join().unwrap();

    assert!(engine.service().nic().counters().impossible_indexes() > 1);
    let settled = (0..1000).any(|_| {
        engine.turn();
        pass(&engine, TURN);
        honest.iter_mut().for_each(|portal| while portal.poll().is_some() {});
        engine.service().nic().are_free(0..3 * SLOTS)
    });
    assert!(settled, "every command that was taken has completed");
    assert_eq!(engine.service().nic().window_debited(), 0);
    for number in 0..3 {
        assert!(engine.service_mut().detach(&(number * SLOTS..(number + 1) * SLOTS)).is_some());
    }
}
