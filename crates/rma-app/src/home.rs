//! Where portals come from: the [`PortalParts`] that their maker puts together, and the [`Home`]
//! that they tell what the maker wants to know.
//!
//! Whoever has an engine makes portals over it: a host of this process does, and whoever speaks
//! with the host of another process can. A portal does not know which. It has a handle to its
//! maker, and tells it two things, each once: that an executor was made over it, and that its slots
//! are given back.
//!
//! So the list of a host's executors is the host's own. An application makes executors of portals
//! and has nothing else of the host's in its hands, so only the portal can say whom to tell; but it
//! says no more than that, and carries no list.

use core::{fmt, ops::Range};
use std::sync::Arc;

use rma_core::portal::CommandPortal;

use crate::{gauges::ExecutorWatch, life::Life, sleep::Sleep};

/// What the maker of portals is told about them, by the threads that use them. Homes are told apart
/// by where they lie in memory.
pub trait Home: fmt::Debug + Send + Sync {
    /// An executor was made over one of the portals. Watching it keeps nothing of it alive.
    fn executor_made(&self, executor: ExecutorWatch);

    /// The portal of these slots was dropped. Ops of it may be in flight still; nobody will poll
    /// their completions.
    fn slots_returned(&self, slots: Range<u16>);
}

/// What a [`Portal`](crate::Portal) is made of.
#[derive(Debug)]
pub struct PortalParts {
    /// The application's end of the rings. The engine has the other.
    pub rings: CommandPortal,
    /// Who made it.
    pub home: Arc<dyn Home>,
    /// Whether the engine can still complete ops.
    pub life: Life,
    /// How the thread that waits for completions sleeps, if the engine's end of the rings has the
    /// [`Sleep::bell`] of it. `None` if the engine is inline: then nobody would wake a sleeper.
    pub sleep: Option<Sleep>,
}
