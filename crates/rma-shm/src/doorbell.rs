//! The doorbell: whether an engine sleeps in the kernel, so that whoever pushes a command must wake
//! it; or an application, so that its engine must.
//!
//! It is one flag and two fences, not a way to wake anybody: the system call (a write to an eventfd
//! that the engine polls) is the caller's. While the engine spins, an application pays one fence
//! and one load of a line that nobody writes.
//!
//! # Why no wake-up is lost
//!
//! Both sides store first and look afterwards, with a sequentially consistent fence between
//! (Dekker's pattern):
//!
//! | engine | application |
//! |---|---|
//! | 1. [`prepare_sleep`](Doorbell::prepare_sleep): set the flag, fence | 1. push a command |
//! | 2. look into every ring once more | 2. [`needs_ring`](Doorbell::needs_ring): fence, read the flag |
//! | 3. nothing there: sleep; else go on | 3. if it says so, write the eventfd |
//! | 4. [`awake`](Doorbell::awake): clear the flag | |
//!
//! The two fences are in one order that both threads agree on. If the engine's is first, the
//! application sees the flag and wakes it. If the application's is first, the engine sees the
//! command when it looks again. Without the fences both may read old values, and the command waits
//! for ever: `tests/loom.rs` looks for that run and does not find it.
//!
//! An eventfd keeps its count, so a wake-up that arrives between steps 2 and 3 ends the sleep at
//! once.
//!
//! # The other direction
//!
//! An application that waits for a completion sleeps in the same way, on a doorbell and an eventfd
//! of its portal's own: it is the one that calls [`prepare_sleep`](Doorbell::prepare_sleep), and
//! the engine asks [`needs_ring`](Doorbell::needs_ring) once after the completions of a turn. In
//! what follows, and at each method, read *engine* for the one that sleeps and *application* for
//! the one that pushes.
//!
//! # What it does not promise
//!
//! [`needs_ring`](Doorbell::needs_ring) does not claim the wake-up for its caller: while the engine
//! is waking, several applications may each write the eventfd. One that claimed it and died before
//! the write would leave the others' commands waiting. Memory that holds a doorbell and is mapped
//! into other processes must be mapped read-only there: who can clear the flag can delay others'
//! commands until the engine's next timeout.

use crate::sync::{AtomicBool, Ordering, fence};
use crossbeam_utils::CachePadded;

/// Whether one engine sleeps. Shared by that engine and every application that pushes commands to
/// it.
#[derive(Debug)]
pub struct Doorbell {
    sleeping: CachePadded<AtomicBool>,
}

impl Doorbell {
    /// A doorbell of an engine that is awake.
    #[must_use]
    pub fn new() -> Self {
        Self { sleeping: CachePadded::new(AtomicBool::new(false)) }
    }

    /// Engine: announces that it wants to sleep. Next, look into *every* ring once more; only if
    /// all are empty, sleep. In both cases call [`Doorbell::awake`] afterwards.
    pub fn prepare_sleep(&self) {
        // Release, so that what the engine published before (completions) is there for whoever sees
        // it.
        self.sleeping.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Engine: it sleeps no more, or found work when it looked again and never did.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Release);
    }

    /// Application, after a push: whether the engine must be woken through its eventfd.
    ///
    /// After a burst of pushes one call is enough. `true` may be a false alarm (the engine is just
    /// waking); `false` never is: then the engine has seen the command or will look again.
    #[must_use = "an engine that sleeps does not see the command until it is woken"]
    pub fn needs_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Whether the engine has announced that it sleeps. For reports only: it orders nothing.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeping_engine_needs_a_ring() {
        let doorbell = Doorbell::new();
        assert!(!doorbell.needs_ring());
        doorbell.prepare_sleep();
        assert!(doorbell.needs_ring());
        assert!(doorbell.needs_ring(), "asking does not claim the wake-up");
        doorbell.awake();
        assert!(!doorbell.needs_ring());
    }
}
