//! Ctrl-C and SIGTERM as a flag that loops look at, so that everything made is removed in the
//! ordinary way.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::out;

/// Whether the program should end: somebody wants it to, or nobody reads what it writes.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that SIGINT and SIGTERM set. A second signal ends the program at once.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn on_signals() -> io::Result<Self> {
        let flag = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag.0.clone())?;
            signal_hook::flag::register(signal, flag.0.clone())?;
        }
        Ok(flag)
    }

    /// Asks the program to end.
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether the program should end.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed) || out::failure().is_some()
    }
}
