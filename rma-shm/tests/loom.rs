//! Every interleaving that the memory model allows, walked through by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p rma-shm --test loom --release`
//!
//! Tried by weakening the code: without either fence of the doorbell, without the Release store or
//! the Acquire load of `tail`, these tests fail. Loom never lets a load see a later store, so it
//! cannot tell that the Release store and the Acquire load of `head` are needed as well: there the
//! argument in the module's doc has to do.
#![cfg(loom)]

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use rma_shm::{Consumer, Doorbell, Line, Producer, spsc::ring_with_first_index};

/// The indexes wrap during each run.
const FIRST: u32 = u32::MAX - 1;

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

fn pop_all(consumer: &mut Consumer, lines: u64) {
    for n in 1..=lines {
        let popped = loop {
            match consumer.pop() {
                Some(line) => break line,
                None => thread::yield_now(),
            }
        };
        assert_eq!(popped, line(n), "lost, duplicated, reordered or torn");
    }
    assert_eq!(consumer.pop(), None, "duplicated");
}

fn explore_ring(capacity: usize, lines: u64) {
    loom::model(move || {
        let (mut producer, mut consumer) = ring_with_first_index(capacity, FIRST).unwrap();
        let pusher = thread::spawn(move || push_all(&mut producer, lines));
        pop_all(&mut consumer, lines);
        pusher.join().unwrap();
        assert!(consumer.is_empty());
        assert_eq!(consumer.impossible_indexes(), 0);
    });
}

#[test]
fn a_ring_of_one_entry_neither_loses_nor_tears_lines() {
    explore_ring(1, 3);
}

#[test]
fn a_ring_of_two_entries_neither_loses_nor_tears_lines() {
    explore_ring(2, 3);
}

#[test]
fn what_was_written_before_a_push_is_visible_after_its_pop() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring_with_first_index(2, FIRST).unwrap();
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
        let doorbell = Arc::new(Doorbell::new());
        let rung = Arc::new(AtomicBool::new(false));
        let (threads, mut consumers): (Vec<_>, Vec<_>) = (0..applications)
            .map(|_| {
                let (mut producer, consumer) = ring_with_first_index(1, FIRST).unwrap();
                let (doorbell, rung) = (Arc::clone(&doorbell), Arc::clone(&rung));
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

#[test]
fn a_push_wakes_an_engine_that_goes_to_sleep() {
    explore_doorbell(1);
}

#[test]
fn either_of_two_applications_wakes_an_engine_that_goes_to_sleep() {
    explore_doorbell(2);
}
