//! P11 and P2 of a Rekey at a host with several engines: when it is acknowledged, no engine has an
//! older key; and what is fetched after its home has put the key on its way is not handled under an
//! older one, so that nobody sees a change that comes late.
//!
//! That an engine goes by its own key is checked as it is of a host with one.

use std::collections::BTreeMap;

use rma_core::{
    crypto::DerivedRegionKey,
    error::DropReason,
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
    wire::FrameView,
};

use super::{Checker, Meant, state::OpIndex};
use crate::{
    check::violation::Violation,
    net::{
        beside::key_of,
        frame::{Frame, NodeId},
        node::Condition,
        sim::Sim,
        trace::Landing,
    },
};

/// The keys of a host's regions, in its present life.
#[derive(Debug, Default)]
pub(super) struct Keys(BTreeMap<RegionId, Row>);

#[derive(Debug, Default)]
struct Row {
    /// The keys that its home has put on their way, and when.
    put: Vec<(Instant, Option<DerivedRegionKey>)>,
    /// By engine: how many of them it has taken.
    taken: BTreeMap<NodeId, usize>,
    /// The Rekeys by op, and how many keys there were then.
    ops: BTreeMap<OpIndex, usize>,
}

impl Keys {
    /// Forgets Rekeys before this op.
    pub(super) fn forget(&mut self, first: OpIndex) {
        self.0.values_mut().for_each(|row| row.ops.retain(|&op, _| op >= first));
    }
}

impl Checker {
    /// `region` of host `node` has a new key at its home: by the op of a frame, or by its owner.
    pub fn key_put(&mut self, sim: &Sim, node: NodeId, region: RegionId, by: Option<&Frame>) {
        if sim.engines_of(node).len() == 1 {
            return self.region_changed(node, region);
        }
        let home = sim.home_of(node, region);
        let op = by.and_then(|frame| self.meant.of(frame).op);
        let row = self.keys[node.index()].0.entry(region).or_default();
        row.put.push((sim.now(), key_of(sim.nic(home), region)));
        let count = row.put.len();
        row.taken.insert(home, count);
        row.ops.extend(op.map(|op| (op, count)));
        self.region_changed_at(home, region);
    }

    /// An engine has taken a key of its host's `region`.
    pub(super) fn key_taken(&mut self, sim: &Sim, engine: NodeId, region: RegionId) {
        let host = self.host_of(engine);
        if let Some(row) = self.keys[host.index()].0.get_mut(&region) {
            let now = key_of(sim.nic(engine), region);
            let place = row.put.iter().rposition(|(_, key)| *key == now);
            row.taken.insert(engine, place.map_or(0, |it| it + 1));
        }
        self.region_changed_at(engine, region);
    }

    /// An acknowledgement is sent: of a Rekey, only if no engine has an older key.
    pub(super) fn check_rekeyed(
        &self,
        sim: &Sim,
        meant: Option<Meant>,
        status: OpStatus,
    ) -> Result<(), Violation> {
        let Some(index) = meant.and_then(|it| it.op) else { return Ok(()) };
        let op = &self.ops[index];
        let Some((host, region)) = op.target else { return Ok(()) };
        if op.op_type != OpType::Rekey || status != OpStatus::Ok {
            return Ok(());
        }
        let Some(row) = self.keys[host.index()].0.get(&region) else { return Ok(()) };
        let Some(&wanted) = row.ops.get(&index) else { return Ok(()) };
        let is_behind = |engine: &&NodeId| {
            let taken = row.taken.get(engine).copied().unwrap_or(0);
            let is_there = sim.nic(**engine).regions().get(region).is_some();
            sim.condition(**engine) != Condition::Down && is_there && taken < wanted
        };
        match sim.engines_of(host).iter().find(is_behind) {
            Some(&node) => Err(Violation::KeyBehind { node, region, is_acknowledged: true }),
            None => Ok(()),
        }
    }

    /// A frame was handled that was fetched at `landing`: under no key that was not its region's
    /// any more.
    pub(super) fn check_landing(
        &self,
        node: NodeId,
        frame: &Frame,
        landing: Landing,
        result: Result<(), DropReason>,
    ) -> Result<(), Violation> {
        let keys = &self.keys[self.host_of(node).index()].0;
        if keys.is_empty() || result.is_err() {
            return Ok(());
        }
        let region = match FrameView::parse(&frame.bytes) {
            Ok(FrameView::ReadRequest(it)) => it.claims().header.region,
            Ok(FrameView::MutationRequest(it)) => it.claims().header.region,
            Ok(FrameView::RecordedRequest(it)) => it.claims().header.region,
            Ok(FrameView::SolicitedData(it)) => it.claims().header.region,
            Ok(FrameView::SettleRequest(it)) => it.claims().header.region,
            _ => return Ok(()),
        };
        let Some(row) = keys.get(&region) else { return Ok(()) };
        let wanted = row.put.iter().filter(|(at, _)| *at < landing.at).count();
        if row.taken.get(&node).copied().unwrap_or(0) < wanted {
            return Err(Violation::KeyBehind { node, region, is_acknowledged: false });
        }
        Ok(())
    }
}
