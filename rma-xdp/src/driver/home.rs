//! The news of portals that a host hears once applications have them: [`PortalHome`].

use core::ops::Range;

use crossbeam_queue::ArrayQueue;
#[cfg(feature = "star")]
use crossbeam_queue::SegQueue;
#[cfg(feature = "star")]
use rma_app::home::StarTag;
use rma_app::{
    gauges::{ExecutorWatch, Executors},
    home::Home,
};

/// Shared by the driver and its portals.
#[derive(Debug)]
pub(crate) struct PortalHome {
    /// Slots of portals that were dropped and whose ops may be in flight still.
    pub(super) retired: ArrayQueue<Range<u16>>,
    /// Portals of StaR that were dropped, and whose connections may have frames under way still.
    #[cfg(feature = "star")]
    pub(super) retired_star: SegQueue<StarTag>,
    /// The executors over its portals.
    pub(super) executors: Executors,
}

impl PortalHome {
    /// For so many slots at most.
    pub(super) fn new(slots: usize) -> Self {
        // One slot each is the most portals there can be.
        Self {
            retired: ArrayQueue::new(slots),
            #[cfg(feature = "star")]
            retired_star: SegQueue::new(),
            executors: Executors::default(),
        }
    }
}

impl Home for PortalHome {
    fn executor_made(&self, executor: ExecutorWatch) {
        self.executors.add(executor);
    }

    fn slots_returned(&self, slots: Range<u16>) {
        tracing::debug!(?slots, "portal dropped");
        // The queue has room for every portal that there can be. Were it ever full, the slots would
        // stay allocated: nothing worse.
        let _ = self.retired.push(slots);
    }

    #[cfg(feature = "star")]
    fn star_returned(&self, portal: StarTag) {
        tracing::debug!(?portal, "portal of StaR dropped");
        self.retired_star.push(portal);
    }
}
