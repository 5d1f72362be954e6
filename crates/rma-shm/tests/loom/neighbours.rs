//! Messages from one engine of a host to another, of a head and a rest: the ring, its flag and the
//! receiver's sleep together, as `rma_core::engine::Neighbours` uses them.

use super::*;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The flag goes up before the lines are there to be seen.
    FlagFirst,
    /// A ring whose flag was taken down is not looked into once more.
    NotOnceMore,
    /// The flag goes up, and nobody looks whether the receiver sleeps.
    NotWoken,
    /// The receiver looks whether there is something, and then says that it sleeps.
    LooksFirst,
}

/// Whether the receiver looks into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    No,
    Yes,
    Once,
}

struct Receiver {
    ring: Consumer,
    flags: Flags,
    watch: Watched,
    /// Whether a head was taken whose rest has not come.
    has_head: bool,
    taken: u64,
}

impl Receiver {
    fn turn(&mut self, flaw: Option<Flaw>) {
        if self.watch == Watched::No && self.flags.raised() & 1 == 1 {
            self.watch = Watched::Yes;
        }
        if self.watch == Watched::No {
            return;
        }
        let mut fetched = self.ring.len();
        if fetched > 0 {
            self.watch = Watched::Yes;
        } else if self.watch == Watched::Yes {
            self.flags.lower(0);
            let looks = flaw != Some(Flaw::NotOnceMore);
            self.watch = if looks { Watched::Once } else { Watched::No };
        } else {
            self.watch = Watched::No;
        }
        while fetched > 0 {
            self.taken += u64::from(self.has_head);
            self.has_head = !self.has_head;
            fetched -= 1;
            assert!(self.ring.pop().is_some(), "it was there");
        }
    }

    fn is_idle(&self) -> bool {
        match self.watch {
            Watched::No => self.flags.raised() & 1 == 0,
            Watched::Yes | Watched::Once => self.ring.is_empty(),
        }
    }
}

/// The receiver takes some turns and goes to sleep, while messages come.
fn explore(messages: u64, turns: usize, flaw: Option<Flaw>) {
    loom::model(move || {
        let (flags, doorbell) = (Flags::new(), Doorbell::new());
        let rung = Arc::new(AtomicBool::new(false));
        let (mut producer, ring) = ring(4);
        let sender = {
            let (flags, doorbell, rung) = (flags.clone(), doorbell.clone(), rung.clone());
            thread::spawn(move || {
                for n in 1..=messages {
                    if flaw == Some(Flaw::FlagFirst) {
                        flags.raise(0);
                    }
                    // A head may be seen alone.
                    producer.push(&line(n)).unwrap();
                    producer.push_unpublished(&line(n)).unwrap();
                    producer.publish();
                    if flaw != Some(Flaw::FlagFirst) {
                        flags.raise(0);
                    }
                    if flaw != Some(Flaw::NotWoken) && doorbell.needs_ring_after_fence() {
                        rung.store(true, Ordering::Relaxed);
                    }
                }
            })
        };
        // It has watched until now.
        let (watch, has_head, taken) = (Watched::Yes, false, 0);
        let mut receiver = Receiver { ring, flags, watch, has_head, taken };
        (0..turns).for_each(|_| receiver.turn(flaw));
        let was_idle = receiver.is_idle();
        doorbell.prepare_sleep();
        let sleeps = if flaw == Some(Flaw::LooksFirst) { was_idle } else { receiver.is_idle() };
        sender.join().unwrap();
        let waits = receiver.taken < messages;
        assert!(!sleeps || !waits || rung.load(Ordering::Relaxed), "asleep beside a message");
        for _ in 0..4 {
            receiver.turn(flaw);
        }
        assert_eq!((receiver.taken, receiver.has_head), (messages, false), "a message lies there");
    });
}

#[test]
fn a_message_to_an_engine_that_lets_its_ring_go_and_sleeps_is_taken() {
    explore(1, 3, None);
    explore(2, 2, None);
}

#[test]
#[should_panic(expected = "asleep beside a message")]
fn a_flag_that_goes_up_before_its_message_is_a_mistake() {
    explore(1, 3, Some(Flaw::FlagFirst));
}

#[test]
#[should_panic(expected = "beside a message")]
fn a_ring_that_is_let_go_without_another_look_is_a_mistake() {
    explore(1, 3, Some(Flaw::NotOnceMore));
}

#[test]
#[should_panic(expected = "asleep beside a message")]
fn a_receiver_that_is_not_woken_is_a_mistake() {
    explore(1, 3, Some(Flaw::NotWoken));
}

#[test]
#[should_panic(expected = "asleep beside a message")]
fn a_receiver_that_looks_before_it_says_that_it_sleeps_is_a_mistake() {
    explore(1, 3, Some(Flaw::LooksFirst));
}
