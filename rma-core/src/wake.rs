//! Waking a thread that sleeps in the kernel: the way is a trait, as system calls are made
//! elsewhere.

use std::sync::Arc;

use rma_shm::Doorbell;

/// Wakes a thread that sleeps in the kernel. Implemented where system calls are made.
pub trait Wake: core::fmt::Debug + Send + Sync {
    /// Makes the thread's present or next sleep end at once. Never blocks.
    ///
    /// An eventfd keeps that promise as long as nobody else has it: that it does not block belongs
    /// to the open file, so a process that was given it can have a write to it block for ever.
    fn wake(&self);
}

/// A bell by which an application wakes its engine, or the engine an application's thread.
#[derive(Clone, Debug)]
pub struct Bell {
    /// Whether the one to be woken sleeps.
    pub doorbell: Doorbell,
    /// The means to wake it.
    pub wake: Arc<dyn Wake>,
}
