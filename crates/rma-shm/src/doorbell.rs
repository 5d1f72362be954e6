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
//! the write would leave the others' commands waiting.
//!
//! # In memory that is shared with another process
//!
//! The flag is a word, so that any bit pattern that somebody writes there is one: 0 says awake, and
//! everything else asleep. A process that can write it can let the sleeper sleep on beside work
//! until its next timeout, and have it woken for nothing, which costs the thread that wakes it a
//! system call. So a flag that only two sides look at, such as that of a portal, may lie where both
//! can write: what is late is theirs. But a process that says at all times that it sleeps takes
//! that system call from all for whom its engine works: an engine makes no more than one a turn for
//! each. A flag that several applications look at must be mapped read-only for them.

use crate::sync::{Ordering, fence};
#[cfg(not(loom))]
use crate::{
    mapping::{LayoutError, Lone, Mapping, Part},
    sync::Arc,
};

/// The place of the flag.
#[cfg(not(loom))]
type Flag = Part<Lone>;
#[cfg(loom)]
type Flag = crate::sync::Arc<crate::sync::Word>;

/// Whether one engine sleeps. Shared by that engine and every application that pushes commands to
/// it: a clone is the same doorbell.
#[derive(Clone, Debug)]
pub struct Doorbell {
    flag: Flag,
}

const AWAKE: u64 = 0;
const ASLEEP: u64 = 1;

#[cfg(not(loom))]
impl Doorbell {
    /// The bytes that a doorbell takes in a mapping.
    pub const FOOTPRINT: usize = size_of::<Lone>();

    /// A doorbell of an engine of this process that is awake.
    #[must_use]
    pub fn new() -> Self {
        let mapping = Arc::new(Mapping::heap(Self::FOOTPRINT));
        Self::at(&mapping, 0).expect("a mapping of the doorbell's footprint")
    }

    /// The doorbell at offset `at` of `mapping`. The process that formats that part of the mapping
    /// leaves zeros there: the engine is awake.
    ///
    /// # Errors
    ///
    /// If no doorbell fits there.
    pub fn at(mapping: &Arc<Mapping>, at: usize) -> Result<Self, LayoutError> {
        Ok(Self { flag: Part::new(mapping, at, Self::FOOTPRINT)? })
    }
}

#[cfg(loom)]
impl Doorbell {
    /// A doorbell of an engine that is awake.
    #[must_use]
    pub fn new() -> Self {
        Self { flag: Flag::new(crate::sync::Word::new(AWAKE)) }
    }
}

impl Doorbell {
    /// Engine: announces that it wants to sleep. Next, look into *every* ring once more; only if
    /// all are empty, sleep. In both cases call [`Doorbell::awake`] afterwards.
    pub fn prepare_sleep(&self) {
        self.announce_sleep();
        fence(Ordering::SeqCst);
    }

    /// Engine, with several doorbells: first this for all of them but one, and then
    /// [`Doorbell::prepare_sleep`] for that one, whose fence is for all.
    pub fn announce_sleep(&self) {
        // Release, so that what the engine published before (completions) is there for whoever sees
        // it.
        self.flag.store(ASLEEP, Ordering::Release);
    }

    /// Engine: it no longer sleeps, or found work when it looked again and never did.
    pub fn awake(&self) {
        self.flag.store(AWAKE, Ordering::Release);
    }

    /// Application, after a push: whether the engine must be woken through its eventfd.
    ///
    /// After a burst of pushes one call is enough. `true` may be a false alarm (the engine is just
    /// waking); `false` never is: then the engine has seen the command or will look again.
    #[must_use = "an engine that sleeps does not see the command until it is woken"]
    pub fn needs_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.needs_ring_after_fence()
    }

    /// [`Doorbell::needs_ring`], for whoever has made a sequentially consistent fence after the
    /// push, as [`Flags::raise`](crate::Flags::raise) does.
    #[must_use = "an engine that sleeps does not see the command until it is woken"]
    #[inline]
    pub fn needs_ring_after_fence(&self) -> bool {
        self.flag.load(Ordering::Relaxed) != AWAKE
    }

    /// Whether the engine has announced that it sleeps. For reports only: it orders nothing.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.flag.load(Ordering::Relaxed) != AWAKE
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
