//! Ctrl-C and SIGTERM as a flag that loops look at, so that everything made is removed in the
//! ordinary way.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::out;

/// Whether the program should end: somebody wants it to, or nobody reads what it writes.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    is_set: Arc<AtomicBool>,
    /// Whether a signal ends the program at once.
    leaves: Arc<AtomicBool>,
    /// The signal that came last; 0 if none has.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// A flag that SIGINT and SIGTERM set. A second signal ends the program at once.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn on_signals() -> io::Result<Self> {
        let flag = Self::default();
        let Self { is_set, leaves, .. } = &flag;
        for signal in [SIGINT, SIGTERM] {
            for at_once in [is_set, leaves] {
                let status = 128 + signal;
                signal_hook::flag::register_conditional_shutdown(signal, status, at_once.clone())?;
            }
            let number = signal.unsigned_abs() as usize;
            signal_hook::flag::register_usize(signal, flag.signal.clone(), number)?;
            signal_hook::flag::register(signal, is_set.clone())?;
        }
        Ok(flag)
    }

    /// Asks the program to end.
    pub fn set(&self) {
        self.is_set.store(true, Relaxed);
    }

    /// The signal that asked the program to end.
    #[must_use]
    pub fn signal(&self) -> Option<u8> {
        u8::try_from(self.signal.load(Relaxed)).ok().filter(|&it| it > 0)
    }

    /// Whether the program should end.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Relaxed) || out::failure().is_some()
    }

    /// Runs `work`, during which a signal ends the program at once: it may take long, there is
    /// nothing to tell of it, and nothing to remove but what the kernel removes.
    pub fn leaving_at_once<T>(&self, work: impl FnOnce() -> T) -> T {
        let was = self.leaves.swap(true, Relaxed);
        let done = work();
        self.leaves.store(was, Relaxed);
        done
    }
}
