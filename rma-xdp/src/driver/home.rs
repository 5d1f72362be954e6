//! The news of portals that a host hears once applications have them: [`PortalHome`].

use core::ops::Range;

use crossbeam_queue::{ArrayQueue, SegQueue};
use rma_app::{
    gauges::{ExecutorWatch, Executors},
    home::{Home, PortalTag},
};

/// Shared by the driver and its portals.
#[derive(Debug)]
pub(crate) struct PortalHome {
    /// Slots of portals that were dropped and whose ops may be in flight still.
    pub(super) retired: ArrayQueue<Range<u16>>,
    /// Portals of other services that were dropped, and may have frames under way still.
    pub(crate) retired_tags: SegQueue<PortalTag>,
    /// The executors over its portals.
    pub(super) executors: Executors,
}

impl PortalHome {
    /// For so many slots at most.
    pub(crate) fn new(slots: usize) -> Self {
        // One slot each is the most portals there can be.
        Self {
            retired: ArrayQueue::new(slots),
            retired_tags: SegQueue::new(),
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

    fn tag_returned(&self, portal: PortalTag) {
        tracing::debug!(?portal, "portal of another service dropped");
        self.retired_tags.push(portal);
    }
}
