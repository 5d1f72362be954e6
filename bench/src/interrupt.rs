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
    /// Whether a signal ends the program at once: as what it does may take long, or as one came
    /// before.
    leaves: Arc<AtomicBool>,
    insists: Arc<AtomicBool>,
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
        let Self { is_set, leaves, insists, .. } = &flag;
        // A terminal that is closed is no other end. Whoever is started by `nohup` goes on.
        let hangs_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangs_up) {
            for at_once in [insists, leaves] {
                let status = 128 + signal;
                signal_hook::flag::register_conditional_shutdown(signal, status, at_once.clone())?;
            }
            let number = signal.unsigned_abs() as usize;
            signal_hook::flag::register_usize(signal, flag.signal.clone(), number)?;
            for raised in [is_set, insists] {
                signal_hook::flag::register(signal, raised.clone())?;
            }
        }
        Ok(flag)
    }

    /// Runs `work`, which has to be done though the program is to end, and though nobody reads what
    /// it writes. It has a flag of its own, which one more signal sets, so that it can say what it
    /// leaves undone; a signal after that ends the program at once.
    pub fn once_more<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        self.insists.store(false, Relaxed);
        let was_set = self.is_set.swap(false, Relaxed);
        let done = work(&Self { is_deaf: true, ..self.clone() });
        if was_set {
            self.is_set.store(true, Relaxed);
        }
        done
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_after_a_signal_sees_the_next_one_and_not_the_first() {
        let interrupt = Interrupt::default();
        for was_set in [false, true] {
            if was_set {
                interrupt.set();
            }
            let seen = interrupt.once_more(|second| {
                let before = second.is_set();
                second.set();
                [before, second.is_set()]
            });
            assert_eq!(seen, [false, true]);
            assert!(interrupt.is_set());
        }
        let quiet = Interrupt::default();
        quiet.once_more(|second| assert!(!second.is_set()));
        assert!(!quiet.is_set());
    }
}
