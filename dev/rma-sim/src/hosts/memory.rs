//! Names of regions, addresses of hosts, and grants: what a driver tells applications.

use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::KeyBinding,
    grant::Grant,
    nic::RegionEntry,
    op::OpType,
    region::{NicTag, RegionId, RegisteredRegion},
};
use rma_shm::Region;

use crate::net::{frame::NodeId, sim::Sim};

/// Returns the tag that `node`'s regions are registered with.
pub(crate) fn nic_tag(node: NodeId) -> NicTag {
    NicTag(u64::from(node.0) + 1)
}

/// The node whose regions have this tag.
pub(crate) fn node_of(region: &RegisteredRegion) -> NodeId {
    let node = region.nic().0.checked_sub(1).and_then(|it| u16::try_from(it).ok());
    NodeId(node.expect("a region of this network"))
}

/// The first address of `node`.
pub(crate) fn address(sim: &Sim, node: NodeId) -> HostAddr {
    let addresses = sim.nic(node).config().place().addresses;
    addresses.iter().next().expect("each node has one")
}

/// Registers a row at the NIC of `node`, which must have room for it.
pub(crate) fn register_row(sim: &mut Sim, node: NodeId, entry: RegionEntry) -> RegionId {
    let id = sim.nic_mut(node).regions_mut().register(Box::new(entry));
    id.map_err(|(error, _)| error).unwrap_or_else(|error| panic!("{node}: {error}"))
}

/// Registers a region at the NIC of `node`, which must have room for it.
pub(crate) fn register(
    sim: &mut Sim,
    node: NodeId,
    entry: RegionEntry,
    memory: Arc<Region>,
) -> RegisteredRegion {
    RegisteredRegion::new(register_row(sim, node, entry), memory, nic_tag(node))
}

/// A grant under the key that `region` of `node` has now, which must be registered.
pub(crate) fn grant(
    sim: &Sim,
    (node, region): (NodeId, RegionId),
    region_len: u64,
    (initiator, pid): (HostAddr, Pid),
    op_type: OpType,
) -> Grant {
    let responder = address(sim, node);
    let entry = sim.nic(node).regions().get(region);
    let entry = entry.unwrap_or_else(|| panic!("{node}: region {region} is not registered"));
    let key = entry.key.derive(&KeyBinding { initiator, responder, pid, op_type });
    Grant { responder, region, region_len, initiator, pid, op_type, key }
}
