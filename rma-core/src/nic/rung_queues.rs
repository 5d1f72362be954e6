//! Receive queues that events were published in, and whose applications must be looked after (not
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
            let Some((port, _)) = regions.queue_mut(queue) else { continue };
            port.rung = false;
            // One that was unbound meanwhile wakes nobody, and those behind it do.
            if let Some(slot) = port.portal() {
                return Some(slot);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rma_shm::Region;

    use super::*;
    use crate::{
        addr::Pid,
        crypto::{RegionKey, fastest},
        nic::RegionEntry,
        receive_queue::{ReceiveQueueLayout, ReceiveQueueMemory},
        region::Permissions,
    };

    #[test]
    fn a_queue_that_was_unbound_meanwhile_hides_no_other() {
        let mut regions = RegionTable::new(4, fastest());
        let mut rung = RungQueues::new(4);
        let mut queues = [7, 8].map(|slot| {
            let memory = ReceiveQueueMemory::heap(ReceiveQueueLayout::new(1, 0).unwrap());
            let port = memory.into_port(Some(CommandSlotId(slot)));
            let (bytes, key) = (Arc::new(Region::new(1).unwrap()), RegionKey::from_bytes([1; 16]));
            let entry = RegionEntry::receive_queue(port, bytes, &key, Permissions::NOTIFY, Pid(1));
            regions.register(Box::new(entry)).ok().unwrap()
        });
        for queue in queues {
            rung.note(queue, regions.queue_mut(queue).unwrap().0);
        }
        // The one that is looked at first.
        queues.reverse();
        regions.queue_mut(queues[0]).unwrap().0.bind(None);
        assert_eq!(rung.poll(&mut regions), Some(CommandSlotId(7)));
        assert_eq!(rung.poll(&mut regions), None);
    }
}
