//! Every interleaving that the memory model allows, walked through by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p rma-shm --test loom --release`
//!
//! Covered: full, empty and the wrap of the indexes while both sides move; lengths seen meanwhile;
//! what a push makes visible; pairs of lines, never seen by half; that a command is seen no earlier
//! than the room for its completion; a producer that writes what it likes; the doorbell, from one
//! sleep beside one or two applications to an engine that sleeps as often as it finds nothing, and
//! in the other direction; flags, which go down while a line comes, beside another's flag and
//! before a sleep; messages between two engines, in `loom/neighbours.rs`; regions, in
//! `loom/regions.rs`; and two threads that sleep on one doorbell, in `loom/seat.rs`.
//!
//! Tried by weakening the code: without either fence of the doorbell, without the Release store or
//! the Acquire load of `tail`, with a pair that is published line by line, without the Release
//! store of an ordered copy, the Acquire loads or the fence of a copy out, or the order of the
//! atomics, these tests fail. Loom never lets a load see a later store, so it cannot tell that the
//! Release store and the Acquire load of `head` are needed as well: there the argument in the
//! module's doc has to do.
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use loom::{
    sync::{
        Arc, Notify,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use rma_shm::{Capacity, Consumer, Doorbell, Flags, Line, Producer, RingMemory};

#[path = "loom/neighbours.rs"]
mod neighbours;
#[path = "loom/regions.rs"]
mod regions;
#[path = "loom/seat.rs"]
mod seat;

/// The indexes wrap during each run.
const FIRST: u32 = u32::MAX - 1;

/// The memory of a ring in which `FIRST` lines, modulo 2^32, have been pushed and taken.
fn memory(capacity: usize) -> RingMemory {
    let memory = RingMemory::heap(Capacity::new(capacity).unwrap());
    memory.set_tail(FIRST);
    memory.set_head(FIRST);
    memory
}

fn ring(capacity: usize) -> (Producer, Consumer) {
    let memory = memory(capacity);
    (memory.clone().into_producer(), memory.into_consumer())
}

/// All words differ, so that a mix of two lines is no line.
fn line(n: u64) -> Line {
    Line(core::array::from_fn(|i| n << 8 | i as u64))
}

fn push_all(producer: &mut Producer, lines: u64) {
    for n in 1..=lines {
        while producer.push(&line(n)).is_err() {
            thread::yield_now();
        }
    }
}

fn pop_all(consumer: &mut Consumer, lines: u64, wipe: bool) {
    for n in 1..=lines {
        let popped = loop {
            match consumer.pop_and_wipe_if(|_| wipe) {
                Some(line) => break line,
                None => thread::yield_now(),
            }
        };
        assert_eq!(popped, line(n), "lost, duplicated, reordered or torn");
    }
    assert_eq!(consumer.pop(), None, "duplicated");
}

fn explore_ring(capacity: usize, lines: u64, wipe: bool) {
    loom::model(move || {
        let (mut producer, mut consumer) = ring(capacity);
        let pusher = thread::spawn(move || push_all(&mut producer, lines));
        pop_all(&mut consumer, lines, wipe);
        pusher.join().unwrap();
        assert!(consumer.is_empty());
        assert_eq!(consumer.impossible_indexes(), 0);
    });
}

#[test]
fn lines_that_are_published_together_come_whole_and_in_order() {
    const LINES: u64 = 3;
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2);
        let pusher = thread::spawn(move || {
            for n in 1..=LINES {
                while producer.push_unpublished(&line(n)).is_err() {
                    thread::yield_now();
                }
            }
            producer.publish();
        });
        pop_all(&mut consumer, LINES, false);
        pusher.join().unwrap();
        assert_eq!(consumer.impossible_indexes(), 0);
    });
}

/// The first pair is published as it steps over the index at which lines are kept back no longer;
/// the second fits once the consumer has taken a line, and is published by a call.
#[test]
fn a_pair_of_lines_is_never_seen_by_half() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(4);
        producer.push_unpublished(&line(1)).unwrap();
        let pusher = thread::spawn(move || {
            producer.push_pair_unpublished(&line(2), &line(3)).expect("three entries are free");
            let pushed = producer.push_pair_unpublished(&line(4), &line(5));
            producer.publish();
            if pushed.is_ok() { 5 } else { 3 }
        });
        let mut taken = 0;
        let mut look = |consumer: &mut Consumer| {
            while let Some(popped) = consumer.pop() {
                taken += 1;
                assert_eq!(popped, line(taken), "lost, duplicated, reordered or torn");
                if [2, 4].contains(&taken) {
                    taken += 1;
                    assert_eq!(consumer.pop(), Some(line(taken)), "half a pair");
                }
            }
            taken
        };
        look(&mut consumer);
        let pushed = pusher.join().unwrap();
        assert_eq!(look(&mut consumer), pushed);
        assert_eq!(consumer.impossible_indexes(), 0);
    });
}

#[test]
fn a_ring_of_one_entry_neither_loses_nor_tears_lines() {
    explore_ring(1, 3, false);
}

#[test]
fn a_ring_of_two_entries_neither_loses_nor_tears_lines() {
    explore_ring(2, 3, false);
}

#[test]
fn a_line_that_is_wiped_is_not_the_next_one_that_comes_into_its_entry() {
    explore_ring(1, 3, true);
}

#[test]
fn writes_before_a_push_are_visible_after_its_pop() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2);
        // Stands for the bytes of a region, which are copied with relaxed stores.
        let copied = Arc::new(AtomicBool::new(false));
        let engine = {
            let copied = Arc::clone(&copied);
            thread::spawn(move || {
                copied.store(true, Ordering::Relaxed);
                producer.push(&line(1)).unwrap();
            })
        };
        if consumer.pop().is_some() {
            assert!(copied.load(Ordering::Relaxed), "a completion overtook its bytes");
        }
        engine.join().unwrap();
    });
}

/// The engine goes to sleep at most once. A run in which it sleeps, a line lies in the ring and
/// nobody rang is a lost wake-up.
fn explore_doorbell(applications: usize) {
    loom::model(move || {
        let doorbell = Doorbell::new();
        let rung = Arc::new(AtomicBool::new(false));
        let (threads, mut consumers): (Vec<_>, Vec<_>) = (0..applications)
            .map(|_| {
                let (mut producer, consumer) = ring(1);
                let (doorbell, rung) = (doorbell.clone(), Arc::clone(&rung));
                let application = thread::spawn(move || {
                    producer.push(&line(1)).unwrap();
                    if doorbell.needs_ring() {
                        rung.store(true, Ordering::Relaxed);
                    }
                });
                (application, consumer)
            })
            .unzip();

        doorbell.prepare_sleep();
        let sleeps = consumers.iter().all(Consumer::is_empty);
        if !sleeps {
            doorbell.awake();
        }
        for application in threads {
            application.join().unwrap();
        }
        if sleeps {
            assert!(rung.load(Ordering::Relaxed), "asleep for ever beside a full ring");
            doorbell.awake();
        }
        for consumer in &mut consumers {
            assert_eq!(consumer.pop(), Some(line(1)));
        }
    });
}

/// The engine watches the ring, finds it empty and takes its flag down. A run in which it looks
/// into the ring no more, the flag is down and a line lies there is a line that waits for ever.
fn explore_flags(lines: u64, others: bool) {
    loom::model(move || {
        let flags = Flags::new();
        let (mut producer, mut consumer) = ring(2);
        flags.raise(3);
        let application = {
            let flags = flags.clone();
            thread::spawn(move || {
                for n in 1..=lines {
                    producer.push(&line(n)).unwrap();
                    flags.raise(3);
                }
            })
        };
        let other = others.then(|| {
            let flags = flags.clone();
            thread::spawn(move || flags.raise(4))
        });
        flags.lower(3);
        let watches = !consumer.is_empty();
        application.join().unwrap();
        let is_up = flags.raised() >> 3 & 1 == 1;
        assert!(watches || is_up, "nobody looks into a ring that is not empty");
        if let Some(other) = other {
            other.join().unwrap();
            assert_eq!(flags.raised() >> 4 & 1, 1, "another flag than its own was moved");
        }
        for n in 1..=lines {
            assert_eq!(consumer.pop(), Some(line(n)));
        }
    });
}

#[test]
fn a_line_that_comes_while_its_flag_goes_down_is_looked_for() {
    explore_flags(1, false);
    explore_flags(2, false);
}

/// The engine looks into a ring only while its flag is up, and takes that down where it finds
/// nothing: as it takes the keys of other engines.
#[test]
fn lines_that_come_while_their_flag_goes_down_are_all_found() {
    loom::model(|| {
        let flags = Flags::new();
        let (mut producer, mut consumer) = ring(2);
        flags.raise(3);
        let home = {
            let flags = flags.clone();
            thread::spawn(move || {
                for n in 1..=2 {
                    producer.push(&line(n)).unwrap();
                    flags.raise(3);
                }
            })
        };
        let mut taken = 0;
        let mut take_all = || {
            while flags.raised() >> 3 & 1 == 1 {
                if !consumer.has_line() {
                    flags.lower(3);
                    if !consumer.has_line() {
                        break;
                    }
                    flags.raise(3);
                }
                taken += u64::from(consumer.pop().is_some());
            }
        };
        take_all();
        home.join().unwrap();
        take_all();
        assert_eq!(taken, 2, "nobody looks into a ring that is not empty");
    });
}

#[test]
fn a_flag_goes_up_and_down_beside_another() {
    explore_flags(1, true);
}

/// The engine does not watch the ring. It looks at the flags before it sleeps, and the application
/// at the doorbell after its flag, with the flag's fence.
#[test]
fn a_flag_that_goes_up_wakes_an_engine_that_goes_to_sleep() {
    loom::model(|| {
        let (flags, doorbell) = (Flags::new(), Doorbell::new());
        let rung = Arc::new(AtomicBool::new(false));
        let (mut producer, mut consumer) = ring(2);
        let application = {
            let (flags, doorbell, rung) = (flags.clone(), doorbell.clone(), rung.clone());
            thread::spawn(move || {
                for n in 1..=2 {
                    producer.push(&line(n)).unwrap();
                    flags.raise(0);
                    if doorbell.needs_ring_after_fence() {
                        rung.store(true, Ordering::Relaxed);
                    }
                }
            })
        };
        doorbell.prepare_sleep();
        let sleeps = flags.raised() == 0;
        application.join().unwrap();
        if sleeps {
            assert!(rung.load(Ordering::Relaxed), "asleep for ever beside a flag that is up");
        }
        assert_eq!(flags.raised(), 1);
        assert_eq!([consumer.pop(), consumer.pop()], [Some(line(1)), Some(line(2))]);
    });
}

/// A whole turn of an engine's: it watches while lines come, lets go, and finds the flag again. It
/// takes every line, however the two meet.
#[test]
fn an_engine_that_watches_and_lets_go_takes_every_line() {
    const LINES: u64 = 2;
    loom::model(|| {
        let flags = Flags::new();
        let (mut producer, mut consumer) = ring(2);
        let application = {
            let flags = flags.clone();
            thread::spawn(move || {
                for n in 1..=LINES {
                    producer.push(&line(n)).unwrap();
                    flags.raise(0);
                }
            })
        };
        let (mut watches, mut taken) = (false, 0);
        while taken < LINES {
            watches |= flags.raised() & 1 == 1;
            if watches {
                if let Some(popped) = consumer.pop() {
                    taken += 1;
                    assert_eq!(popped, line(taken));
                    continue;
                }
                flags.lower(0);
                watches = !consumer.is_empty();
            }
            thread::yield_now();
        }
        application.join().unwrap();
    });
}

/// Each application has a doorbell of its own, as in its portal's memory. The engine announces its
/// sleep on all of them, with one fence.
#[test]
fn either_of_two_applications_with_doorbells_of_their_own_wakes_an_engine_that_goes_to_sleep() {
    loom::model(|| {
        let doorbells = [Doorbell::new(), Doorbell::new()];
        let rung = Arc::new(AtomicBool::new(false));
        let (threads, consumers): (Vec<_>, Vec<_>) = doorbells
            .iter()
            .map(|doorbell| {
                let (mut producer, consumer) = ring(1);
                let (doorbell, rung) = (doorbell.clone(), Arc::clone(&rung));
                let application = thread::spawn(move || {
                    producer.push(&line(1)).unwrap();
                    if doorbell.needs_ring() {
                        rung.store(true, Ordering::Relaxed);
                    }
                });
                (application, consumer)
            })
            .unzip();
        doorbells[0].announce_sleep();
        doorbells[1].prepare_sleep();
        let sleeps = consumers.iter().all(Consumer::is_empty);
        for application in threads {
            application.join().unwrap();
        }
        if sleeps {
            assert!(rung.load(Ordering::Relaxed), "asleep for ever beside a full ring");
        }
    });
}

#[test]
fn a_push_wakes_an_engine_that_goes_to_sleep() {
    explore_doorbell(1);
}

#[test]
fn either_of_two_applications_wakes_an_engine_that_goes_to_sleep() {
    explore_doorbell(2);
}

/// The engine sleeps whenever it finds nothing, as often as it takes. Its eventfd keeps a wake-up
/// that comes too early; without one it sleeps for ever, which loom reports as a deadlock. (It also
/// wakes once for no reason, as at a timeout.)
#[test]
fn an_engine_that_sleeps_time_and_again_takes_every_line() {
    const LINES: u64 = 2;
    loom::model(|| {
        let doorbell = Doorbell::new();
        let eventfd = Arc::new(Notify::new());
        let (mut producer, mut consumer) = ring(2);
        let application = {
            let (doorbell, eventfd) = (doorbell.clone(), Arc::clone(&eventfd));
            thread::spawn(move || {
                for n in 1..=LINES {
                    producer.push(&line(n)).unwrap();
                    if doorbell.needs_ring() {
                        eventfd.notify();
                    }
                }
            })
        };
        for n in 1..=LINES {
            let popped = loop {
                if let Some(popped) = consumer.pop() {
                    break popped;
                }
                doorbell.prepare_sleep();
                if consumer.is_empty() {
                    eventfd.wait();
                }
                doorbell.awake();
            };
            assert_eq!(popped, line(n));
        }
        application.join().unwrap();
    });
}

/// The other direction: an application sleeps until a completion. When the engine ends it says so
/// first and wakes everybody then, asked or not: nobody sleeps on, and nobody takes the end for a
/// completion that was lost.
#[test]
fn an_application_that_sleeps_takes_the_last_completion_and_learns_of_the_end() {
    loom::model(|| {
        let doorbell = Doorbell::new();
        let eventfd = Arc::new(Notify::new());
        let ended = Arc::new(AtomicBool::new(false));
        let (mut given, mut completions) = ring(1);
        let engine = {
            let (doorbell, eventfd, ended) = (doorbell.clone(), eventfd.clone(), ended.clone());
            thread::spawn(move || {
                given.push(&line(1)).unwrap();
                if doorbell.needs_ring() {
                    eventfd.notify();
                }
                ended.store(true, Ordering::SeqCst);
                eventfd.notify();
            })
        };
        let mut taken = 0;
        loop {
            let over = ended.load(Ordering::SeqCst);
            if completions.pop().is_some() {
                taken += 1;
                continue;
            }
            if over {
                break;
            }
            doorbell.prepare_sleep();
            if completions.is_empty() && !ended.load(Ordering::SeqCst) {
                eventfd.wait();
            }
            doorbell.awake();
        }
        assert_eq!(taken, 1);
        engine.join().unwrap();
    });
}

/// An application reuses a command slot only once it has taken the completion. So the engine finds
/// room for the next completion as soon as it sees the next command.
#[test]
fn a_reader_of_a_command_sees_the_room_for_its_completion() {
    const COMMANDS: u64 = 3;
    loom::model(|| {
        let (mut commands, mut taken) = ring(1);
        let (mut given, mut completions) = ring(1);
        let application = thread::spawn(move || {
            for n in 1..=COMMANDS {
                commands.push(&line(n)).expect("the engine has taken the one before");
                while !completions.has_line() {
                    thread::yield_now();
                }
                assert_eq!(completions.pop(), Some(line(n)));
            }
        });
        for n in 1..=COMMANDS {
            while !taken.has_line() {
                thread::yield_now();
            }
            assert!(given.has_room_for(1), "a command without room for its completion");
            assert_eq!(taken.pop(), Some(line(n)));
            given.push(&line(n)).expect("there was room");
        }
        application.join().unwrap();
        assert_eq!((taken.impossible_indexes(), given.impossible_indexes()), (0, 0));
    });
}

#[test]
fn lengths_stay_within_the_ring_while_both_sides_move() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2);
        producer.push(&line(1)).unwrap();
        let pusher = thread::spawn(move || {
            let room = producer.has_room_for(2);
            producer.push(&line(2)).expect("one entry was free from the start");
            assert!(producer.len() <= 2);
            if room {
                producer.push(&line(3)).expect("room that was seen is not lost again");
            }
            room
        });
        assert!((1..=2).contains(&consumer.len()));
        assert_eq!(consumer.pop(), Some(line(1)));
        assert!(consumer.len() <= 2);
        let popped = u64::from(consumer.pop().is_some());
        let pushed = u64::from(pusher.join().unwrap());
        assert_eq!(consumer.len() as u64, 1 - popped + pushed);
    });
}

/// A process that writes what it likes makes garbage, and at most as much of it as it has entries.
#[test]
fn a_hostile_producer_gets_no_more_taken_than_its_ring_holds() {
    loom::model(|| {
        let memory = memory(1);
        let mut consumer = memory.clone().into_consumer();
        let hostile = thread::spawn(move || {
            memory.set_line(FIRST, &line(1));
            memory.set_tail(FIRST.wrapping_add(2));
            memory.set_tail(FIRST.wrapping_add(1));
            // The entry is the consumer's now.
            memory.set_word(FIRST, 0, line(2).0[0]);
            memory.set_tail(FIRST);
        });
        let mut taken = 0;
        for _ in 0..3 {
            if let Some(popped) = consumer.pop() {
                taken += 1;
                assert_eq!(popped.0[1..], line(1).0[1..]);
                assert!([line(1).0[0], line(2).0[0]].contains(&popped.0[0]), "nobody wrote that");
            }
        }
        hostile.join().unwrap();
        assert!(taken <= 1, "taken twice");
        assert!(consumer.impossible_indexes() + taken <= 3, "one look for each call");
    });
}
