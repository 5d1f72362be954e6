//! What software does: regions with known contents; reads, writes and rekeys of them, right and
//! wrong; and what it does to its own regions meanwhile.
//!
//! Each host has two *targets* that others read and write. The key of one never changes in a life
//! of the host. The other is *restless*: others may rekey it, its owner rotates its key, or takes
//! it away and registers it anew. In both, the first bytes are only ever read, and then come areas
//! of which each write under way has one to itself. So what memory must hold is known exactly,
//! whatever the order in which ops end.

mod host;
mod plan;

use rma_core::{
    addr::HostAddr, command::CommandSlotId, error::NotSent, op::OpStatus, region::RegionId,
};

use crate::{
    check::{oracle::Effect, violation::Violation},
    net::{frame::NodeId, sim::Sim},
    prng::Prng,
};
use host::{Host, Target};
use plan::Use;
pub(crate) use plan::{Bias, Planned};

/// Regions that each node registers: what a table must have room for.
pub(crate) const REGIONS_PER_NODE: u32 = TARGETS as u32 + 1 + PIDS as u32;

const TARGETS: usize = 2;
const PIDS: usize = 2;

/// The target whose key may change.
const RESTLESS: usize = 1;

/// All memory of all nodes.
#[derive(Debug)]
pub(crate) struct World {
    prng: Prng,
    hosts: Vec<Host>,
    /// Ops whose applications have crashed: their data may still be on its way.
    orphans: Vec<(NodeId, Planned)>,
}

impl World {
    /// Registers regions on every node and hands out its slots.
    pub(crate) fn new(sim: &mut Sim, prng: Prng) -> Self {
        let nodes: Vec<NodeId> = sim.nodes().collect();
        let start = |node: NodeId| Host::new(sim, node, prng.fork(node.0.into()));
        Self { hosts: nodes.into_iter().map(start).collect(), prng, orphans: Vec::new() }
    }

    /// How often `node` has started.
    pub(crate) fn life(&self, node: NodeId) -> u32 {
        self.hosts[node.index()].life
    }

    /// The next op of `node`, for `slot`, which may be busy. Nothing is done about it yet.
    ///
    /// Each op draws from a generator of its own, so that one more draw here shifts no later op.
    pub(crate) fn plan(&mut self, sim: &Sim, node: NodeId, slot: u16, bias: Bias) -> Planned {
        let seed = self.hosts[node.index()].prng.next();
        plan::plan(&self.hosts, sim, Prng::new(seed), (node, slot), bias)
    }

    /// Software is about to issue `planned`.
    pub(crate) fn begin(&mut self, node: NodeId, planned: &Planned) {
        match planned.purpose {
            Use::Write { area, .. } => {
                let slot = planned.command.slot;
                self.area_mut(node, slot).fill(planned.area_offset, planned.data());
                self.target_mut(planned).areas_in_use[area] = true;
            }
            Use::Rekey { key } if planned.expected == OpStatus::Ok => {
                self.target_mut(planned).rekeying = Some(key);
            }
            Use::Read | Use::Rekey { .. } => {}
        }
    }

    /// An op has ended with `status`. Checks what it did, and that it did nothing else.
    pub(crate) fn end(
        &mut self,
        sim: &Sim,
        node: NodeId,
        status: OpStatus,
        planned: &Planned,
    ) -> Result<(), Violation> {
        let data = if planned.expected == OpStatus::Ok { planned.data() } else { &[] };
        let local = if matches!(planned.purpose, Use::Read) { data } else { &[] };
        let local = Effect { offset: planned.area_offset, data: local };
        self.area_mut(node, planned.command.slot).check_effect(status, local)?;
        self.end_at_target(sim, status, planned)
    }

    fn end_at_target(
        &mut self,
        sim: &Sim,
        status: OpStatus,
        planned: &Planned,
    ) -> Result<(), Violation> {
        let honest = planned.expected == OpStatus::Ok;
        let responder = planned.responder;
        let is_present = planned.contents == self.hosts[responder.index()].contents;
        let target = self.target_mut(planned);
        match planned.purpose {
            Use::Read => Ok(()),
            Use::Write { area, offset } => {
                target.areas_in_use[area] = false;
                let data = if honest { planned.data() } else { &[] };
                target.areas[area].check_effect(status, Effect { offset, data })
            }
            Use::Rekey { .. } if !is_present => Ok(()),
            Use::Rekey { key } => {
                if honest {
                    target.rekeying = None;
                }
                // Another key may have been installed over it.
                let installed = target.key_bytes == key || planned.stale;
                if status == OpStatus::Ok && !installed {
                    return Err(Violation::WrongKey { node: responder });
                }
                target.check_key(sim, responder)
            }
        }
    }

    /// The application of an op that is under way has crashed: its data may be on its way.
    pub(crate) fn orphan(&mut self, node: NodeId, planned: Planned) -> Result<(), Violation> {
        let data = if planned.expected == OpStatus::Ok { planned.data() } else { &[] };
        let local = if matches!(planned.purpose, Use::Read) { data } else { &[] };
        let local = Effect { offset: planned.area_offset, data: local };
        self.area_mut(node, planned.command.slot).check_effect(OpStatus::Timeout, local)?;
        self.orphans.push((node, planned));
        Ok(())
    }

    /// Solicited data of a Rekey was accepted by `node` for its region: it has the new key from now
    /// on, in one step.
    pub(crate) fn rekeyed(
        &mut self,
        sim: &Sim,
        node: NodeId,
        region: RegionId,
    ) -> Result<(), Violation> {
        let wrong = Violation::WrongKey { node };
        let target = &mut self.hosts[node.index()].targets_mut()[RESTLESS];
        let key = target.rekeying.filter(|_| target.id == region).ok_or(wrong)?;
        target.set_key(key);
        target.check_key(sim, node)
    }

    /// The owner rotates the key of its restless region. Returns that region's name.
    pub(crate) fn rotate(&mut self, sim: &mut Sim, node: NodeId) -> RegionId {
        let host = &mut self.hosts[node.index()];
        let key = host::draw_key(&mut host.prng);
        let target = &mut host.targets_mut()[RESTLESS];
        target.set_key(key);
        let regions = sim.nic_mut(node).regions_mut();
        regions.rekey(target.id, &key).expect("registered when the host started");
        target.id
    }

    /// The owner takes its restless region away and registers it anew, with another key. Returns
    /// the name that it had.
    pub(crate) fn churn(&mut self, sim: &mut Sim, node: NodeId) -> RegionId {
        let host = &mut self.hosts[node.index()];
        let key = host::draw_key(&mut host.prng);
        let target = &mut host.targets_mut()[RESTLESS];
        let before = target.id;
        target.set_key(key);
        sim.nic_mut(node).regions_mut().deregister(before).expect("registered until now");
        target.register(sim, node);
        before
    }

    /// A process takes the local end of its ops away and registers it anew.
    pub(crate) fn churn_local(&mut self, sim: &mut Sim, node: NodeId) {
        let host = &mut self.hosts[node.index()];
        let process = host.prng.below(PIDS as u64) as usize;
        host.churn_local(sim, node, process);
    }

    /// What the software of `node` does when it starts again: the same as the first time, so that
    /// regions have names of before; with new keys and contents if `new_keys`, and those of before
    /// otherwise. Returns the names that mean nothing any more, or something else.
    pub(crate) fn restart(&mut self, sim: &mut Sim, node: NodeId, new_keys: bool) -> Vec<RegionId> {
        let seeds = self.prng.fork(node.0.into());
        let host = &mut self.hosts[node.index()];
        let before: Vec<RegionId> = host.targets().iter().map(|target| target.id).collect();
        host.restart(sim, node, seeds, new_keys);
        let now = host.targets().iter().map(|target| target.id);
        before
            .into_iter()
            .zip(now)
            .filter(|(old, new)| new_keys || old != new)
            .map(|(id, _)| id)
            .collect()
    }

    fn target_mut(&mut self, planned: &Planned) -> &mut Target {
        let host = &mut self.hosts[planned.responder.index()];
        &mut host.epochs[planned.contents][planned.target]
    }

    fn area_mut(&mut self, node: NodeId, slot: CommandSlotId) -> &mut crate::check::oracle::Area {
        &mut self.hosts[node.index()].areas[usize::from(slot.0)]
    }

    /// Checks that the area of a slot that is used again has not changed meanwhile.
    pub(crate) fn check_area(&self, node: NodeId, slot: CommandSlotId) -> Result<(), Violation> {
        self.hosts[node.index()].areas[usize::from(slot.0)].check_rest()
    }

    /// Checks all local memory of a node on which no op is under way.
    pub(crate) fn check_local(&self, node: NodeId) -> Result<(), Violation> {
        self.hosts[node.index()].areas.iter().try_for_each(|area| area.check_rest())
    }

    /// Nothing is under way any more. Checks that nothing has changed that nobody wrote to, and
    /// that every region has the key that it must have.
    pub(crate) fn check_rest(&mut self, sim: &Sim) -> Result<(), Violation> {
        for (_, planned) in core::mem::take(&mut self.orphans) {
            self.end_at_target(sim, OpStatus::Timeout, &planned)?;
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let node = NodeId(index as u16);
            self.check_local(node)?;
            host.epochs.iter().flatten().try_for_each(|target| target.check_rest(node))?;
            host.forbidden.check_rest(node)?;
            host.targets().iter().try_for_each(|target| target.check_key(sim, node))?;
        }
        Ok(())
    }
}

/// The process that has number `process` on `node`.
const fn pid(node: NodeId, process: usize) -> rma_core::addr::Pid {
    rma_core::addr::Pid(1000 + node.0 as u32 * 10 + process as u32)
}

/// The addresses of both nodes in one family: IPv4 if asked for and there is one, or else there is
/// no other.
fn addresses(sim: &Sim, a: NodeId, b: NodeId, ipv4: bool) -> (HostAddr, HostAddr) {
    let all = |node| sim.nic(node).config().place().addresses.iter();
    let preferred = all(a).find(|addr| addr.is_ipv4() == ipv4);
    let from = preferred.or_else(|| all(a).next()).expect("a NIC has an address");
    let to = all(b).find(|addr| addr.is_ipv4() == from.is_ipv4());
    (from, to.expect("all nodes have addresses of the same families"))
}

/// Notices that `node` has not sent, for their rate or as too many waited.
pub(crate) fn notices_unsent(sim: &Sim, node: NodeId) -> u64 {
    let not_sent = |reason| sim.nic(node).counters().not_sent(reason);
    NotSent::ALL.into_iter().map(not_sent).sum::<u64>() + sim.unpaid(node)
}
