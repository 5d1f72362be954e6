//! Receive queues that events were published in, and whose applications are to be looked after (not
//! in the paper).

use crate::{command::CommandSlotId, receive_queue::ReceiveQueuePort, region::RegionId};

use super::region_table::RegionTable;

/// The names of such queues, each once. Never grows.
#[derive(Debug)]
pub(super) struct RungQueues(Vec<RegionId>);

impl RungQueues {
    /// Bytes that each row of the region table takes here.
    pub(super) const ROW_LEN: usize = size_of::<RegionId>();

    /// Room for the queues that `rows` rows of the region table may be.
    pub(super) fn new(rows: u32) -> Self {
        Self(Vec::with_capacity(rows as usize))
    }

    /// An event was published in `queue`, whose engine's end this is.
    pub(super) fn note(&mut self, queue: RegionId, port: &mut ReceiveQueuePort) {
        // A queue that was deregistered meanwhile may still have a place.
        if port.portal().is_some() && !port.rung && self.0.len() < self.0.capacity() {
            port.rung = true;
            self.0.push(queue);
        }
    }

    /// A slot of the portal whose application the next of them wakes; they are forgotten here.
    pub(super) fn poll(&mut self, regions: &mut RegionTable) -> Option<CommandSlotId> {
        while let Some(queue) = self.0.pop() {
            if let Some((port, _)) = regions.queue_mut(queue) {
                port.rung = false;
                return port.portal();
            }
        }
        None
    }
}
