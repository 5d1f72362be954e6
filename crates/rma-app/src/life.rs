//! Whether an engine can still complete ops: [`Life`].

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;

use crate::error::WaitError;

/// Whether an engine can still complete ops.
#[derive(Clone, Debug)]
pub enum Life {
    /// The engine runs when the application calls it, and never while its thread waits.
    Inline,
    /// The engine has a thread, which sets this as the last thing it does, also when it panics.
    Thread(Arc<AtomicBool>),
}

impl Life {
    /// Whether the engine's thread has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Thread(ended) if ended.load(SeqCst))
    }

    /// An error if waiting for the engine is of no use.
    ///
    /// # Errors
    /// [`WaitError::InlineEngine`] and [`WaitError::EngineGone`].
    #[inline]
    pub fn ended(&self) -> Result<(), WaitError> {
        match self {
            Self::Inline => Err(WaitError::InlineEngine),
            Self::Thread(ended) if ended.load(SeqCst) => Err(WaitError::EngineGone),
            Self::Thread(_) => Ok(()),
        }
    }
}
