//! Ctrl-C and SIGTERM as a flag that loops look at, so that everything made is removed in the
//! ordinary way.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::out;

/// Whether the program should end: somebody wants it to, or nobody reads what it writes.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    is_set: Arc<AtomicBool>,
    /// Whether a signal ends the program at once.
    leaves: Arc<AtomicBool>,
    /// Whether it is all the same to it that nobody reads what is written.
    is_deaf: bool,
    /// The signal that came last; 0 if none has.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// A flag that SIGINT, SIGTERM and SIGHUP set. A second signal ends the program at once.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn on_signals() -> io::Result<Self> {
        let flag = Self::default();
        let Self { is_set, leaves, .. } = &flag;
        // A terminal that is closed is no other end. Whoever is started by `nohup` goes on.
        let hangs_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangs_up) {
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

    /// A flag for what has to be done though the program is to end, and though nobody reads what it
    /// writes.
    #[must_use]
    pub fn deaf() -> Self {
        Self { is_deaf: true, ..Self::default() }
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
        self.is_set.load(Relaxed) || !self.is_deaf && out::failure().is_some()
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

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1) != 0
}
