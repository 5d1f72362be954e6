//! Whether an engine can still complete ops: [`Life`].

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;

use rma_shm::{Forked, Process};

use crate::error::WaitError;

/// Whether an engine can still complete ops. In a child that was forked it cannot.
#[derive(Clone, Debug)]
pub struct Life {
    engine: Engine,
    process: Process,
}

#[derive(Clone, Debug)]
enum Engine {
    /// It runs when the application calls it, and never while its thread waits.
    Inline,
    /// It has a thread, which sets this as the last thing it does, also when it panics.
    Thread(Arc<AtomicBool>),
}

impl Life {
    /// That of an engine that runs when the application calls it.
    #[must_use]
    pub fn inline() -> Self {
        Self { engine: Engine::Inline, process: Process::this() }
    }

    /// That of an engine with a thread of this process, which sets `ended` as the last thing it
    /// does, also when it panics.
    #[must_use]
    pub fn thread(ended: Arc<AtomicBool>) -> Self {
        Self { engine: Engine::Thread(ended), process: Process::this() }
    }

    /// Whether the engine runs when the application calls it.
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        matches!(self.engine, Engine::Inline)
    }

    /// Whether the engine's thread has ended, or is its parent's.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let has_ended = matches!(&self.engine, Engine::Thread(ended) if ended.load(SeqCst));
        has_ended || !self.process.is_this()
    }

    /// An error if the engine is the parent's.
    ///
    /// # Errors
    /// [`Forked`].
    #[inline]
    pub fn check_process(&self) -> Result<(), Forked> {
        self.process.check()
    }

    /// An error if waiting for the engine is of no use.
    ///
    /// # Errors
    /// [`WaitError::Forked`], [`WaitError::InlineEngine`] and [`WaitError::EngineGone`].
    #[inline]
    pub fn ended(&self) -> Result<(), WaitError> {
        self.check_process()?;
        match &self.engine {
            Engine::Inline => Err(WaitError::InlineEngine),
            Engine::Thread(ended) if ended.load(SeqCst) => Err(WaitError::EngineGone),
            Engine::Thread(_) => Ok(()),
        }
    }
}
