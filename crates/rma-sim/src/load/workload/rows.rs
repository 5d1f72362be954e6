//! How rows of region tables come about, whether they are regions or receive queues.

use rma_core::{crypto::RegionKey, nic::RegionEntry, region::RegionId};

use crate::{
    net::{frame::NodeId, sim::Sim},
    prng::Prng,
};

/// A K_r that nobody knows but those who are told.
pub(super) fn draw_key(prng: &mut Prng) -> RegionKey {
    let mut key = [0; 16];
    prng.fill(&mut key);
    RegionKey::from_bytes(key)
}

/// Registers a row at the NIC of `node`.
pub(super) fn register(sim: &mut Sim, node: NodeId, entry: RegionEntry) -> RegionId {
    let registered = sim.nic_mut(node).regions_mut().register(Box::new(entry));
    registered.map_err(|(error, _)| error).expect("the table has room for `REGIONS_PER_NODE`")
}
