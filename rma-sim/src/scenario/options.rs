//! All that a run depends on.

use core::{fmt, time::Duration};

use rma_core::{limits::OP_SIZE_MAX, wire::read::RESPONSE_OVERHEAD};

use crate::{
    link::{Faults, LinkOptions},
    mishap::MishapOptions,
    node::{NodeOptions, wire_len},
    prng::Chance,
    queue::QueueOptions,
};

/// All that a run depends on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where every random number of the run comes from.
    pub seed: u64,
    /// The nodes; all have addresses of the same families. At least one.
    pub nodes: Vec<NodeOptions>,
    /// What joins them.
    pub link: LinkOptions,
    /// The ports of the switch at the end of all links; `None` if each link ends at its receiver.
    pub switch: Option<QueueOptions>,
    /// What befalls nodes in the safety phase.
    pub mishaps: MishapOptions,
    /// Ops that each node issues in the safety phase.
    pub safety_ops: u32,
    /// Ops that each node issues in the liveness phase.
    pub liveness_ops: u32,
    /// The mean time between two ops of a node.
    pub gap: Duration,
    /// How many of the ops are bound to fail: wrong keys, unknown regions, out of bounds, and so on.
    pub hopeless: Chance,
}

/// The most that one op of 4 KiB takes on the wire one way, with all headers, at the smallest MTU: an upper
/// bound.
pub(crate) const OP_WIRE_LEN: u64 =
    OP_SIZE_MAX as u64 + 65 * (RESPONSE_OVERHEAD as u64 + wire_len(0, false) as u64);

impl Options {
    /// How many ops may be outstanding in the whole network for no queue to be ever full.
    #[must_use]
    pub fn outstanding_max(&self) -> usize {
        let inbound = self.nodes.iter().map(|node| node.nic.inbound_queue as usize);
        let port = self.switch.map(|port| (port.len / OP_WIRE_LEN).max(1) as usize);
        inbound.chain(port).min().unwrap_or(1)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, nodes, link, switch, mishaps, .. } = self;
        let Self { safety_ops, liveness_ops, gap, hopeless, .. } = self;
        let Faults { loss, duplicate, replay, replay_within, corrupt } = link.faults;
        writeln!(f, "seed {seed}: {} nodes", nodes.len())?;
        for (number, node) in nodes.iter().enumerate() {
            let nic = &node.nic;
            let addresses: Vec<_> = nic.addresses.iter().collect();
            writeln!(
                f,
                "  n{number} {addresses:?} mtu {} rate {} B/s window {} slots {} regions {} inbound queue {} \
                 receive ring {} notices {}/s dispatch timeout {:?} timeout {:?} counter from {:#x} \
                 clock from {} ns {:+} ppm",
                node.mtu,
                node.rate,
                nic.solicitation_window,
                nic.command_slots,
                nic.regions,
                nic.inbound_queue,
                node.receive_ring,
                nic.notices_per_second,
                nic.timing.dispatch_timeout,
                nic.timing.timeout,
                nic.counter_start,
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
        let MishapOptions { count, gap: between, crash, pause_max, down_max, .. } = mishaps;
        writeln!(
            f,
            "  mishaps: {count} a node, one every {between:?}, pauses up to {pause_max:?}, {crash} crashes \
             for up to {down_max:?} with new keys {}, clocks stepping up to {:?}",
            mishaps.new_keys, mishaps.clock_step_max
        )?;
        write!(
            f,
            "  ops: {safety_ops} + {liveness_ops} a node, one every {gap:?}, {hopeless} hopeless"
        )
    }
}
