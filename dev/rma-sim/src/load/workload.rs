//! The actions of software: regions with known contents; reads, writes and rekeys of them, right
//! and wrong; and what it does to its own regions meanwhile.
//!
//! Each host has two *targets* that others read and write. The key of one never changes in a life
//! of the host. The other is *restless*: others may rekey it, its owner rotates its key, or takes
//! it away and registers it anew. In both, the first bytes are only ever read, and then come areas
//! of which each write under way has one to itself. So what memory must hold is known exactly,
//! whatever the order in which ops end. Behind them is a *board*, which ordered ops change while
//! reads follow, and which is looked at after every event. Last come words that atomics are on,
//! those of the host's own processor among them: what became of each is judged by a history of all.
//! Each target names a receive queue, whose application posts and reads at its own pace.

mod board;
mod host;
mod plan;
mod queue;
mod recorded;
mod rows;
#[cfg(test)]
mod tests;

use rma_core::{
    addr::HostAddr,
    command::{CommandSlotId, Completion},
    error::NotSent,
    op::OpStatus,
    region::RegionId,
};

use crate::{
    check::{
        history::{Broken, Checked, History, Kind, OpId, Outcome, Word},
        oracle::Effect,
        violation::Violation,
    },
    net::{frame::NodeId, sim::Sim},
    prng::{Chance, Prng},
};
pub(crate) use board::BoardCounts;
use host::{Host, Target};
use plan::recorded::{draw_addend, swapped_value};
pub(crate) use plan::{Bias, Planned};
use plan::{RowOf, Use};
use recorded::{AllTold, word};

/// Regions that each node registers: what a table must have room for.
pub(crate) const REGIONS_PER_NODE: u32 = 2 * TARGETS as u32 + 1 + PIDS as u32;

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
    /// The observations of recorded ops.
    told: AllTold,
    /// The observations of words.
    history: History,
    /// Points of the run that histories have had.
    events: u64,
    /// Atomics of hosts on their own words.
    local_ops: u64,
    /// Values that were swapped into words.
    values: u64,
    /// The observations of boards.
    boards: BoardCounts,
    /// Keys of receive queues that other hosts have installed.
    queue_rekeys: u64,
}

impl World {
    /// Registers regions on every node and hands out its slots.
    pub(crate) fn new(sim: &mut Sim, prng: Prng) -> Self {
        let nodes: Vec<NodeId> = sim.nodes().collect();
        let start = |node: NodeId| Host::new(sim, node, prng.fork(node.0.into()));
        let mut world = Self {
            hosts: nodes.iter().copied().map(start).collect(),
            prng,
            orphans: Vec::new(),
            told: AllTold::default(),
            history: History::new(),
            events: 0,
            local_ops: 0,
            values: 0,
            boards: BoardCounts::default(),
            queue_rekeys: 0,
        };
        nodes.into_iter().for_each(|node| world.add_words(node));
        world
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
        let mut recorded = Prng::new(seed).fork(1);
        if recorded.chance(bias.recorded)
            && recorded.chance(Chance::ppm(300_000))
            && let Some(planned) = self.plan_settle(sim, (node, slot), &mut recorded)
        {
            return planned;
        }
        let value = swapped_value(self.values);
        let mut planned =
            plan::plan(&self.hosts, sim, Prng::new(seed), (node, slot), (bias, value));
        self.values += u64::from(planned.swaps());
        if planned.is_recorded() && recorded.chance(Chance::ppm(700_000)) {
            planned.set_done(self.done_for(node, &planned));
        }
        planned
    }

    /// Software is about to issue `planned`.
    pub(crate) fn begin(&mut self, sim: &Sim, node: NodeId, planned: &Planned) {
        self.begin_recorded(sim, node, planned);
        self.begin_on_board(planned);
        match planned.purpose {
            Use::Send | Use::Board { .. } => {
                let slot = planned.command.slot;
                self.area_mut(node, slot).fill(planned.area_offset, planned.data());
            }
            Use::Write { area, .. } => {
                let slot = planned.command.slot;
                self.area_mut(node, slot).fill(planned.area_offset, planned.data());
                self.target_mut(planned).areas_in_use[area] = true;
            }
            Use::Rekey { of, key } if planned.expected == OpStatus::Ok => {
                self.row_mut(planned, of).rekeying = Some(key);
            }
            Use::Read
            | Use::Follow { .. }
            | Use::Rekey { .. }
            | Use::Notify
            | Use::Atomic { .. }
            | Use::Settle { .. } => {}
        }
    }

    /// An op has ended as `completion` says. Checks what it did, and that it did nothing else.
    pub(crate) fn end(
        &mut self,
        sim: &Sim,
        node: NodeId,
        completion: &Completion,
        planned: &Planned,
    ) -> Result<(), Violation> {
        let status = completion.status;
        self.end_at_initiator(node, status, planned)?;
        self.end_recorded(sim, node, completion, planned)?;
        self.end_on_board(planned);
        self.end_at_target(sim, status, planned)
    }

    fn end_at_initiator(
        &mut self,
        node: NodeId,
        status: OpStatus,
        planned: &Planned,
    ) -> Result<(), Violation> {
        if let Use::Follow { offset, since } = planned.purpose {
            return self.check_follower(node, status, planned, (offset, since));
        }
        let data = if planned.expected == OpStatus::Ok { planned.data() } else { &[] };
        let local = if matches!(planned.purpose, Use::Read) { data } else { &[] };
        let local = Effect::new(planned.area_offset, local);
        self.area_mut(node, planned.command.slot).check_effect(status, local)
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
        let (is_applied, is_recorded) = (self.is_applied(planned), planned.is_recorded());
        match planned.purpose {
            Use::Read
            | Use::Follow { .. }
            | Use::Board { .. }
            | Use::Send
            | Use::Notify
            | Use::Atomic { .. }
            | Use::Settle { .. } => Ok(()),
            Use::Write { area, offset } => {
                // Of an op that is recorded it is known whether it was applied.
                let status = if is_recorded && is_applied { OpStatus::Ok } else { status };
                let lands = !is_recorded || status != OpStatus::RemoteNotReady;
                let data = if honest && lands { planned.data() } else { &[] };
                let target = self.target_mut(planned);
                target.areas_in_use[area] = false;
                target.areas[area].check_effect(status, Effect::new(offset, data))
            }
            Use::Rekey { .. } if !is_present => Ok(()),
            Use::Rekey { of, key } => {
                let row = self.row_mut(planned, of);
                if honest {
                    row.rekeying = None;
                }
                // Another key may have been installed over it.
                let installed = row.key_bytes == key || planned.stale;
                if status == OpStatus::Ok && !installed {
                    return Err(Violation::WrongKey { node: responder });
                }
                row.check_key(sim, responder)
            }
        }
    }

    /// The application of an op that is under way has crashed: its data may be on its way.
    pub(crate) fn orphan(&mut self, node: NodeId, planned: Planned) -> Result<(), Violation> {
        self.end_at_initiator(node, OpStatus::Timeout, &planned)?;
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
        let host = &mut self.hosts[node.index()];
        let queue = &mut host.queues[host.contents][RESTLESS].row;
        let is_queue = queue.id == region;
        let target = &mut host.epochs[host.contents][RESTLESS].row;
        let row = if is_queue { queue } else { target };
        row.set_key(row.rekeying.filter(|_| row.id == region).ok_or(wrong)?);
        row.check_key(sim, node)?;
        self.queue_rekeys += u64::from(is_queue);
        Ok(())
    }

    /// The owner rotates the key of its restless region. Returns that region's name.
    pub(crate) fn rotate(&mut self, sim: &mut Sim, node: NodeId) -> RegionId {
        let host = &mut self.hosts[node.index()];
        let key = rows::draw_key(&mut host.prng);
        let mut which = host.prng.fork(2);
        if which.chance(Chance::ppm(300_000)) {
            return host.queues[host.contents][RESTLESS].row.rotate(sim, node, key);
        }
        host.targets_mut()[RESTLESS].row.rotate(sim, node, key)
    }

    /// The owner takes its restless region and its queue away and registers them anew, with other
    /// keys. Returns the names that they had.
    pub(crate) fn churn(
        &mut self,
        sim: &mut Sim,
        node: NodeId,
    ) -> Result<[RegionId; 2], Violation> {
        let host = &mut self.hosts[node.index()];
        let key = rows::draw_key(&mut host.prng);
        let target = &mut host.targets_mut()[RESTLESS];
        let before = target.row.id;
        target.row.set_key(key);
        let queue = &mut host.queues[host.contents][RESTLESS];
        queue.check_rest(node)?;
        queue.row.set_key(rows::draw_key(&mut host.prng.fork(2)));
        let before = [before, queue.row.id];
        for region in before {
            sim.deregister(node, region).expect("registered until now");
        }
        host.register_target(sim, node, RESTLESS);
        Ok(before)
    }

    /// A process takes the local end of its ops away and registers it anew.
    pub(crate) fn churn_local(&mut self, sim: &mut Sim, node: NodeId) {
        let host = &mut self.hosts[node.index()];
        let process = host.prng.below(PIDS as u64) as usize;
        host.churn_local(sim, node, process);
    }

    /// Restarts the software of `node`: the same as the first time, so that regions have names of
    /// before; with new keys and contents if `new_keys`, and those of before otherwise. Returns the
    /// names that mean nothing any longer, or something else.
    pub(crate) fn restart(&mut self, sim: &mut Sim, node: NodeId, new_keys: bool) -> Vec<RegionId> {
        let seeds = self.prng.fork(node.0.into());
        let host = &mut self.hosts[node.index()];
        let names = |host: &Host| {
            let queues = host.queues[host.contents].iter().map(|queue| queue.row.id);
            host.targets().iter().map(|target| target.row.id).chain(queues).collect::<Vec<_>>()
        };
        let before = names(host);
        host.restart(sim, node, seeds, new_keys);
        let now = names(host);
        if new_keys {
            self.add_words(node);
        }
        before
            .into_iter()
            .zip(now)
            .filter(|(old, new)| new_keys || old != new)
            .map(|(id, _)| id)
            .collect()
    }

    /// The words of a host's targets, which are new, come into the history.
    fn add_words(&mut self, node: NodeId) {
        let host = &self.hosts[node.index()];
        for (number, target) in host.targets().iter().enumerate() {
            for offset in (0..host::WORDS).map(|it| target.word_offset(it)) {
                let word = word(node, host.contents, number, offset);
                self.history.add_word(word, target.load(offset));
            }
        }
    }

    /// The applications of `node` do something of their own accord: they post receives, read
    /// events, and change words.
    pub(crate) fn tend(&mut self, sim: &Sim, node: NodeId) -> Result<(), Violation> {
        let mut prng = self.hosts[node.index()].prng.fork(3);
        let contents = self.hosts[node.index()].contents;
        for queue in &mut self.hosts[node.index()].queues[contents] {
            queue.tend(node, &mut prng)?;
        }
        let (is_busy, is_swap) =
            (prng.chance(Chance::ppm(200_000)), prng.chance(Chance::ppm(300_000)));
        let value = swapped_value(self.values);
        if is_busy {
            let number = prng.below(TARGETS as u64) as usize;
            let host = &self.hosts[node.index()];
            let target = &host.targets()[number];
            let offset = target.word_offset(prng.below(host::WORDS as u64) as usize);
            let word = word(node, contents, number, offset);
            let there = target.load(offset);
            let kind = match value {
                Some(new) if is_swap && prng.below(2) > 0 => Kind::Store { new },
                Some(new) if is_swap => Kind::CompareSwap { expected: there, new },
                _ if is_swap => Kind::Load,
                _ => Kind::FetchAdd { addend: draw_addend(&mut prng) },
            };
            self.values += u64::from(matches!(kind, Kind::Store { .. } | Kind::CompareSwap { .. }));
            self.change_word(sim, word, kind);
        }
        self.tend_board(node, &mut prng);
        Ok(())
    }

    /// The host of a word does something to it.
    fn change_word(&mut self, sim: &Sim, word: Word, kind: Kind) {
        let id = OpId { client: word.target, number: 2 * self.local_ops };
        self.local_ops += 1;
        let at = self.moment(sim);
        self.history.invoke(id, word, kind, at);
        let host = &self.hosts[word.target.index()];
        let bits = word.region.to_bits() as usize;
        let memory = host.epochs[bits >> 8][bits & 0xff].memory();
        let offset = word.offset;
        let applied = |before| Outcome::Applied { before };
        let outcome = match kind {
            Kind::Load => memory.load_acquire(offset).map(applied),
            Kind::Store { new } => memory.store_release(offset, new).map(|()| Outcome::Stored),
            Kind::FetchAdd { addend } => memory.fetch_add(offset, addend).map(applied),
            Kind::CompareSwap { expected, new } => {
                memory.compare_exchange(offset, expected, new).map(applied)
            }
        };
        let at = self.moment(sim);
        self.history.respond(id, outcome.expect("a word of the region"), at);
    }

    /// The application of `node` reads all events and posts all receives.
    pub(crate) fn serve(&mut self, node: NodeId) -> Result<(), Violation> {
        let host = &mut self.hosts[node.index()];
        host.queues[host.contents].iter_mut().try_for_each(|queue| queue.serve(node))
    }

    /// A NIC has crashed: what it has published can be read, and no more comes.
    pub(crate) fn crashed(&mut self, node: NodeId) -> Result<(), Violation> {
        self.forget_told(node);
        let host = &mut self.hosts[node.index()];
        host.queues[host.contents].iter_mut().try_for_each(|queue| queue.check_rest(node))
    }

    /// `node` has refused an op on `region` for want of a receive.
    pub(crate) fn check_refusal(
        &self,
        node: NodeId,
        region: RegionId,
        bound: impl FnOnce([RegionId; 2]) -> usize,
    ) -> Result<(), Violation> {
        let host = &self.hosts[node.index()];
        let names = |it: usize| [host.targets()[it].row.id, host.queue(it).row.id];
        match (0..TARGETS).find(|&it| names(it).contains(&region)) {
            Some(target) => host.queue(target).check_refusal(node, bound(names(target))),
            None => Ok(()),
        }
    }

    /// Whether a planned op may find no receive posted, where as many are posted as can be, and at
    /// most so many ops are under way.
    pub(crate) fn may_lack_receives(&self, planned: &Planned, ops: usize) -> bool {
        let host = &self.hosts[planned.responder.index()];
        host.queues[planned.contents][planned.target].may_lack_receives(ops)
    }

    /// Looks at all that was done to words.
    pub(crate) fn check_words(&mut self, sim: &Sim) -> Result<Checked, Box<Broken>> {
        let words = self.history.words();
        for &word in &words {
            self.change_word(sim, word, Kind::Load);
        }
        self.history.check().map_err(|found| Box::new(self.history.shortest(*found)))
    }

    /// How many keys of receive queues other hosts have installed.
    pub(crate) const fn queue_rekeys(&self) -> u64 {
        self.queue_rekeys
    }

    /// Returns the observations of boards.
    pub(crate) const fn boards(&self) -> BoardCounts {
        self.boards
    }

    fn target_mut(&mut self, planned: &Planned) -> &mut Target {
        let host = &mut self.hosts[planned.responder.index()];
        &mut host.epochs[planned.contents][planned.target]
    }

    fn row_mut(&mut self, planned: &Planned, of: RowOf) -> &mut rows::Row {
        let host = &mut self.hosts[planned.responder.index()];
        match of {
            RowOf::Region => &mut host.epochs[planned.contents][planned.target].row,
            RowOf::Queue => &mut host.queues[planned.contents][planned.target].row,
        }
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

    /// Nothing is under way any longer. Checks that nothing has changed that nobody wrote to, and
    /// that every region has the key that it must have.
    pub(crate) fn check_rest(&mut self, sim: &Sim) -> Result<(), Violation> {
        for (_, planned) in core::mem::take(&mut self.orphans) {
            self.end_at_target(sim, OpStatus::Timeout, &planned)?;
        }
        for (index, host) in self.hosts.iter_mut().enumerate() {
            let node = NodeId(index as u16);
            host.areas.iter().try_for_each(|area| area.check_rest())?;
            host.epochs.iter().flatten().try_for_each(|target| target.check_rest(node))?;
            host.forbidden.check_rest(node)?;
            host.queues.iter_mut().flatten().try_for_each(|queue| queue.check_rest(node))?;
            let queues = host.queues[host.contents].iter().map(|queue| &queue.row);
            let mut rows = host.targets().iter().map(|target| &target.row).chain(queues);
            rows.try_for_each(|row| match sim.is_everywhere(node, row.id) {
                true => row.check_key(sim, node),
                false => Err(Violation::WrongKey { node }),
            })?;
            // Whatever was on its way to boards has come by now, or was lost.
            host.epochs.iter_mut().flatten().for_each(|target| target.board_users = 0);
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
    let not_sent = |&engine: &NodeId| {
        let counters = sim.nic(engine).counters();
        NotSent::ALL.into_iter().map(|reason| counters.not_sent(reason)).sum::<u64>()
    };
    sim.engines_of(node).iter().map(not_sent).sum::<u64>() + sim.unpaid(node)
}
