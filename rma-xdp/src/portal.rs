//! A portal as an application holds it: the protocol's [`CommandPortal`], and the slots' way back.

use core::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use rma_core::{command::Completion, portal::CommandPortal};

use crate::{control::Life, error::WaitError};

/// How often [`Portal::wait`] looks before it lets other threads have the core.
const SPINS: u32 = 1000;

/// Slots of portals that were dropped and whose ops may be in flight still. Shared with the portals.
pub(crate) type Retired = Arc<ArrayQueue<Range<u16>>>;

/// Command slots and a completion queue, allocated from a host. Used by one thread at a time; may be sent to
/// another. All that [`CommandPortal`] does, this does.
///
/// When it is dropped, its slots go back to the host's pool as soon as their last op has completed. Memory
/// that such an op may still write belongs to a registered region, which the host keeps alive.
#[derive(Debug)]
pub struct Portal {
    inner: CommandPortal,
    retired: Retired,
    life: Life,
}

impl Portal {
    pub(crate) const fn new(inner: CommandPortal, retired: Retired, life: Life) -> Self {
        Self { inner, retired, life }
    }

    /// Whether it was allocated from the host whose queue of returned slots this is.
    pub(crate) fn is_of(&self, retired: &Retired) -> bool {
        Arc::ptr_eq(&self.retired, retired)
    }

    /// Waits for the next completion: spins, then yields. It comes within
    /// [`Timing::bound`](crate::Timing::bound) of its type of op (P1), as long as the engine's thread is scheduled.
    ///
    /// # Errors
    /// If no completion can come: nothing is in flight, the engine is gone, or it is inline and so does
    /// nothing while this thread waits ([`crate::InlineHost::wait`] is for those).
    pub fn wait(&mut self) -> Result<Completion, WaitError> {
        let mut spins = 0;
        loop {
            // Looked at first: completions given before the engine ended are still there.
            let ended = self.life.ended();
            if let Some(completion) = self.inner.poll() {
                return Ok(completion);
            }
            if self.inner.outstanding() == 0 {
                return Err(WaitError::NothingOutstanding);
            }
            ended?;
            if spins < SPINS {
                spins += 1;
                core::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Deref for Portal {
    type Target = CommandPortal;

    fn deref(&self) -> &CommandPortal {
        &self.inner
    }
}

impl DerefMut for Portal {
    fn deref_mut(&mut self) -> &mut CommandPortal {
        &mut self.inner
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        let slots = self.inner.slots().clone();
        // The queue has room for every portal that there can be. Were it ever full, the slots would stay
        // allocated: nothing worse.
        let _ = self.retired.push(slots);
    }
}
