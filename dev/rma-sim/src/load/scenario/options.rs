//! All that a run depends on.

use core::{fmt, time::Duration};

use rma_core::{limits::OP_SIZE_MAX, wire::read::RESPONSE_OVERHEAD};

use crate::{
    net::{
        beside::Spread,
        counter::CounterOptions,
        frame::wire_len,
        link::{Faults, LinkOptions},
        mishap::MishapOptions,
        node::NodeOptions,
        queue::QueueOptions,
    },
    prng::Chance,
};

/// All that a run depends on.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of every random number of the run.
    pub seed: u64,
    /// The nodes; all have addresses of the same families. At least one.
    pub nodes: Vec<NodeOptions>,
    /// The link that joins them.
    pub link: LinkOptions,
    /// The ports of the switch at the end of all links; `None` if each link ends at its receiver.
    pub switch: Option<QueueOptions>,
    /// The mishaps of nodes in the safety phase.
    pub mishaps: MishapOptions,
    /// The way in which nodes reserve the values of their message counters, all above the
    /// `counter_start` of their settings.
    pub counters: CounterOptions,
    /// Ops that each node issues in the safety phase.
    pub safety_ops: u32,
    /// Ops that each node issues in the liveness phase.
    pub liveness_ops: u32,
    /// The mean time between two ops of a node.
    pub gap: Duration,
    /// Ops that a node issues at once, all to one responder, in the safety phase: at least 1. Where
    /// there are several, `gap` is from one lot to the next, and most frames share packets.
    pub together: u32,
    /// How many of the ops are writes or rekeys.
    pub mutations: Chance,
    /// How many of those are rekeys.
    pub rekeys: Chance,
    /// How many of the other mutations are recorded at their targets: SEND, NOTIFY, atomics and so
    /// on.
    pub recorded: Chance,
    /// How many of the ops are bound to fail: wrong keys, unknown regions, out of bounds, and so
    /// on.
    pub hopeless: Chance,
    /// How many of these come under a key that their region had before, where there is one.
    pub old_keys: Chance,
    /// How many recorded requests of mutations somebody without a key puts on the wire with each op
    /// of the safety phase.
    pub recordings: u32,
    /// How many of the nodes, the last ones, take no solicitation in the safety phase: they ask,
    /// and fall silent.
    pub silent: u16,
    /// The way in which packets are spread over the engines of hosts with several.
    pub spread: Spread,
}

/// The most that one op of 4 KiB takes on the wire one way, with all headers, at the smallest MTU:
/// an upper bound.
pub(crate) const OP_WIRE_LEN: u64 =
    OP_SIZE_MAX as u64 + 65 * (RESPONSE_OVERHEAD as u64 + wire_len(0, false) as u64);

impl Options {
    /// How many ops may be outstanding in the whole network for no queue to be ever full.
    #[must_use]
    pub fn outstanding_max(&self) -> usize {
        let least = |node: &NodeOptions| {
            let nic = &node.nic;
            let window = nic.solicitation_window / OP_SIZE_MAX;
            // Nor may so much wait to be answered that one more is refused.
            let threshold = nic.build(node.place).map_or(0, |config| config.nack_threshold());
            let answers = 1 + u32::try_from(threshold / u64::from(OP_SIZE_MAX)).unwrap_or(u32::MAX);
            nic.inbound_queue.min(nic.pending_writes).min(window).min(answers) as usize
        };
        let port = self.switch.map(|port| (port.len / OP_WIRE_LEN).max(1) as usize);
        // A link carries what one node writes to the other, and what that other reads from the one.
        let link = (self.link.queue < 2 * OP_WIRE_LEN).then_some(1);
        self.nodes.iter().map(least).chain(port).chain(link).min().unwrap_or(1)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, nodes, link, switch, mishaps, .. } = self;
        let Self { safety_ops, liveness_ops, gap, mutations, rekeys, hopeless, old_keys, .. } =
            self;
        let Self { recordings, silent, together, recorded, spread, .. } = self;
        let Faults { loss, duplicate, replay, replay_within, corrupt } = link.faults;
        writeln!(f, "seed {seed}: {} nodes", nodes.len())?;
        for (number, node) in nodes.iter().enumerate() {
            let nic = &node.nic;
            let addresses: Vec<_> = node.place.addresses.iter().collect();
            writeln!(
                f,
                "  n{number} {addresses:?} mtu {} rate {} B/s {:?} window {} slots {} regions {} inbound queue {} \
                 pending writes {} records {} receive ring {} notices {}/s dispatch timeout {:?} timeout {:?} RTT {:?} bandwidth {} B/s counter from {:#x} \
                 clock from {} ns {:+} ppm",
                node.mtu,
                node.rate,
                node.pace,
                nic.solicitation_window,
                nic.command_slots,
                nic.regions,
                nic.inbound_queue,
                nic.pending_writes,
                nic.outcome_records,
                node.receive_ring,
                nic.notices_per_second,
                nic.timing.dispatch_timeout,
                nic.timing.timeout,
                nic.rtt,
                nic.bandwidth,
                node.place.counter_start,
                node.clock.starts_at.as_nanos(),
                node.clock.drift_ppm,
            )?;
        }
        writeln!(
            f,
            "  links: delay {:?} + {:?} rate {} B/s queue {} B",
            link.delay, link.jitter, link.rate, link.queue
        )?;
        if let Some(port) = switch {
            writeln!(f, "  switch: rate {} B/s queue {} B a port", port.rate, port.len)?;
        }
        writeln!(
            f,
            "  faults: loss {loss}, duplicate {duplicate}, replay {replay} within {replay_within:?}, \
             corrupt {corrupt}"
        )?;
        let MishapOptions { count, gap: between, crash, change, stall, .. } = mishaps;
        let MishapOptions { pause_max, down_max, new_keys, clock_step_max, .. } = mishaps;
        writeln!(
            f,
            "  mishaps: {count} a node, one every {between:?}: {crash} crashes for up to {down_max:?}, with new keys \
             {new_keys}, clocks stepping up to {clock_step_max:?}; else {change} changes, or pauses up to \
             {pause_max:?}; {stall} stalls"
        )?;
        let CounterOptions { first, most, latency_max } = self.counters;
        writeln!(f, "  counters: blocks of {first} to {most}, reserved within {latency_max:?}")?;
        write!(
            f,
            "  ops: {safety_ops} + {liveness_ops} a node, {together} every {gap:?}, {mutations} mutations, of these \
             {rekeys} rekeys, of others {recorded} recorded, {hopeless} hopeless, of these {old_keys} under old keys; {recordings} recordings \
             replayed with each, {silent} nodes silent"
        )?;
        let engines: Vec<u16> = nodes.iter().map(|node| node.place.engines).collect();
        if engines.iter().all(|&it| it == 1) {
            return Ok(());
        }
        write!(f, "\n  engines: {engines:?}, packets are spread {spread:?}")
    }
}
