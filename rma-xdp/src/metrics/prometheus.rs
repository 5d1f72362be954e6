//! The text exposition format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Names say the unit; times are in seconds, written to the nanosecond without rounding.

use core::fmt::{self, Write};

use rma_app::ExecutorGauges;
use rma_core::{
    executor::SilentPeers,
    nic::{DelayHistogram, NicGauges, OtherVersion},
    op::ClassOfService,
    packet::sizes::PacketSizes,
};

use super::{EngineMetrics, Metrics, NicTotals, ServiceCounts};
use crate::{
    device::{
        metrics::DeviceMetrics,
        status::{InterfaceState, InterfaceStatus},
    },
    driver::{
        ReceiveQueues,
        tenant::{PoolUsage, Resource, TenantUsage},
    },
};

impl Metrics {
    /// Writes all of it as text that Prometheus understands, of type `text/plain; version=0.0.4`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn prometheus(&self, out: &mut impl Write) -> fmt::Result {
        let mut text = Exposition { out };
        write_engines(&self.engines, &mut text)?;
        let (name, help) = ("rma_device_info", "The device that carries the frames.");
        text.family(GAUGE, name, help)?;
        text.sample(name, &[("device", &self.device.description)], 1)?;
        if let Some(interface) = &self.device.interface {
            write_interface(interface, &mut text)?;
        }
        write_ways(&self.device, &mut text)?;
        let (name, help) = ("rma_aead_info", "The AEAD provider that encrypts frames.");
        text.family(GAUGE, name, help)?;
        text.sample(name, &[("provider", self.aead)], 1)?;
        self.write_ops(&mut text)?;
        write_totals(&self.nic, &mut text)?;
        self.services().iter().try_for_each(|service| write_service(service, &mut text))?;
        write_gauges(&self.gauges, &mut text)?;
        write_receive_queues(&self.receive_queues, &mut text)?;
        write_executors(&self.executors, &mut text)?;
        for counter in self.device.all() {
            text.one(COUNTER, counter.name, counter.help, counter.value)?;
        }
        write_tenants(&self.tenants, &mut text)
    }

    fn write_ops(&self, text: &mut Exposition<'_, impl Write>) -> fmt::Result {
        let name = "rma_ops_completed_total";
        text.family(COUNTER, name, "Ops of this host that ended, by status.")?;
        for (status, count) in &self.completions {
            text.sample(name, &[("status", status.name())], *count)?;
        }
        let name = "rma_frames_dropped_total";
        text.family(COUNTER, name, "Received frames that died in the NIC, by reason.")?;
        for (reason, count) in &self.drops {
            text.sample(name, &[("reason", &format!("{reason:?}"))], *count)?;
        }
        if let Some(OtherVersion { host, version, .. }) = self.other_version {
            let name = "rma_other_version_info";
            text.family(GAUGE, name, "Who spoke another version of the wire format last.")?;
            let labels = [("host", &*host.to_string()), ("version", &*version.to_string())];
            text.sample(name, &labels, 1)?;
        }
        let name = "rma_frames_not_sent_total";
        text.family(COUNTER, name, "Frames that the NIC was to send and has not, by reason.")?;
        for (reason, count) in &self.not_sent {
            text.sample(name, &[("reason", &format!("{reason:?}"))], *count)?;
        }
        let name = "rma_settled_total";
        text.family(COUNTER, name, "Answers to others that asked what became of ops, by verdict.")?;
        for (verdict, count) in &self.settled {
            text.sample(name, &[("verdict", verdict.name())], *count)?;
        }
        let name = "rma_issue_delay_seconds";
        text.family(HISTOGRAM, name, "Time until ops that ended with OK entered service.")?;
        for delays in &self.delays {
            text.histogram(name, delays.op_type.name(), &delays.issue)?;
        }
        let name = "rma_total_delay_seconds";
        text.family(HISTOGRAM, name, "Time until ops that ended with OK were complete.")?;
        for delays in &self.delays {
            text.histogram(name, delays.op_type.name(), &delays.total)?;
        }
        let name = "rma_packet_frames";
        text.family(HISTOGRAM, name, "Frames of packets that were received, and of those sent.")?;
        text.packets(name, "received", &self.packets_received)?;
        text.packets(name, "sent", &self.device.packets_sent)
    }
}

fn write_service(service: &ServiceCounts, text: &mut Exposition<'_, impl Write>) -> fmt::Result {
    let ServiceCounts { name: service, word, drops, events } = service;
    let name = &format!("rma_{word}_frames_dropped_total");
    text.family(COUNTER, name, &format!("Frames for {service} that died, by reason."))?;
    for (reason, count) in drops {
        text.sample(name, &[("reason", reason)], *count)?;
    }
    let name = &format!("rma_{word}_events_total");
    text.family(COUNTER, name, &format!("What has happened in {service}, by event."))?;
    for (event, count) in events {
        text.sample(name, &[("event", event)], *count)?;
    }
    Ok(())
}

fn write_ways(device: &DeviceMetrics, text: &mut Exposition<'_, impl Write>) -> fmt::Result {
    let name = "rma_address_present";
    text.family(GAUGE, name, "1 if the host's address is one of this machine, and usable.")?;
    for status in &device.addresses {
        let address = status.address.to_string();
        text.sample(name, &[("address", &*address)], u8::from(status.is_there))?;
    }
    let name = "rma_path_mtu_bytes";
    text.family(
        GAUGE,
        name,
        "The longest packet to a host whose path carries less than the device.",
    )?;
    for narrow in &device.narrow_paths {
        let peer = narrow.peer.to_string();
        text.sample(name, &[("peer", &*peer)], narrow.mtu)?;
    }
    Ok(())
}

fn write_interface(
    interface: &InterfaceStatus,
    text: &mut Exposition<'_, impl Write>,
) -> fmt::Result {
    let (name, help) = ("rma_interface_state", "1 for the state that the interface is in.");
    text.family(GAUGE, name, help)?;
    for state in InterfaceState::ALL {
        let labels = [("interface", &*interface.interface), ("state", state.name())];
        text.sample(name, &labels, u8::from(state == interface.state))?;
    }
    let name = "rma_interface_attachments_total";
    let help = "Times that the host has attached to the interface.";
    text.one(COUNTER, name, help, interface.attachments)?;
    let name = "rma_interface_receive_queues";
    text.one(GAUGE, name, "Receive queues that the interface has.", interface.queues.into())?;
    let name = "rma_interface_receive_queues_polled";
    let help = "Receive queues that are polled; frames on the others are lost.";
    text.one(GAUGE, name, help, interface.queues_polled.into())
}

fn write_engines(engines: &[EngineMetrics], text: &mut Exposition<'_, impl Write>) -> fmt::Result {
    type Count = fn(&EngineMetrics) -> u64;
    let families: [(&str, &str, &str, Count); 5] = [
        (GAUGE, "rma_engine_up", "Whether the engine runs.", |it| it.is_up.into()),
        (
            COUNTER,
            "rma_engine_frames_received_total",
            "Frames that the engine's NIC was given.",
            |it| it.frames_received,
        ),
        (
            COUNTER,
            "rma_engine_handed_over_total",
            "Frames that came to the engine and were for another.",
            |it| it.handed_over,
        ),
        (
            COUNTER,
            "rma_engine_handed_over_lost_total",
            "Frames that were for another engine and lost, as that one did not keep up.",
            |it| it.handed_over_lost,
        ),
        (
            COUNTER,
            "rma_engine_taken_over_total",
            "Frames that came to other engines and were for this one.",
            |it| it.taken_over,
        ),
    ];
    for (kind, name, help, count) in families {
        text.family(kind, name, help)?;
        for (number, engine) in engines.iter().enumerate() {
            text.sample(name, &[("engine", &number.to_string())], count(engine))?;
        }
    }
    Ok(())
}

fn write_totals(nic: &NicTotals, text: &mut Exposition<'_, impl Write>) -> fmt::Result {
    let &NicTotals {
        frames_received,
        frames_sent,
        tail_octets,
        commands_refused,
        shed_with_room,
        requests_abandoned,
        impossible_indexes,
        late_effects,
        parked,
        parked_forgotten,
        rekeys_held_up,
        pushed_out,
        seals_refused,
        previous_keys_lost,
        posts_refused,
    } = nic;
    let rows = [
        ("rma_frames_received_total", "Frames that the NIC was given.", frames_received),
        ("rma_frames_sent_total", "Frames that the NIC has made.", frames_sent),
        (
            "rma_packet_tail_octets_total",
            "Octets at the ends of packets in which no frame could be found.",
            tail_octets,
        ),
        (
            "rma_commands_refused_total",
            "Commands for slots that are not their portal's, or busy.",
            commands_refused,
        ),
        (
            "rma_ops_shed_with_room_total",
            "Ops that ended with DISPATCH_TIMEOUT as the engine or the device stood still, not for lack of window.",
            shed_with_room,
        ),
        (
            "rma_requests_abandoned_total",
            "Requests that waited too long to be answered in time.",
            requests_abandoned,
        ),
        (
            "rma_impossible_indexes_total",
            "Indexes in portals' rings that cannot be: a broken or hostile application.",
            impossible_indexes,
        ),
        (
            "rma_late_effects_total",
            "Mutations that may have been applied after their initiators had given up.",
            late_effects,
        ),
        (
            "rma_parked_total",
            "Writes of others that lost their share of the window, as data was late and others waited.",
            parked,
        ),
        (
            "rma_parked_forgotten_total",
            "Those of them that were forgotten as their entries were wanted: they time out.",
            parked_forgotten,
        ),
        (
            "rma_rekeys_held_up_total",
            "Rekeys of others that were not acknowledged, as an engine of this host stood still.",
            rekeys_held_up,
        ),
        (
            "rma_pushed_out_total",
            "Requests of others that were NACKed for an initiator with fewer of them.",
            pushed_out,
        ),
        (
            "rma_seals_refused_total",
            "Frames that were not sealed as no counter value was left.",
            seals_refused,
        ),
        (
            "rma_previous_keys_lost_total",
            "Previous keys of regions that were forgotten before their time: too many rotations.",
            previous_keys_lost,
        ),
        (
            "rma_posts_refused_total",
            "Posts of receives that there are not or that are posted: a broken or hostile application.",
            posts_refused,
        ),
    ];
    rows.into_iter().try_for_each(|(name, help, value)| text.one(COUNTER, name, help, value))
}

fn write_gauges(gauges: &NicGauges, text: &mut Exposition<'_, impl Write>) -> fmt::Result {
    let one = [
        ("rma_solicitation_window_bytes", "The solicitation window.", gauges.window),
        (
            "rma_solicitation_window_debited_bytes",
            "Bytes of the window that are solicited and have not arrived.",
            gauges.window_debited,
        ),
        ("rma_command_slots", "Entries of the command slot table.", gauges.command_slots),
        ("rma_command_slots_free", "Command slots without an op.", gauges.free_command_slots),
        ("rma_ops_in_service", "Ops of this host in service.", gauges.ops_in_service),
        (
            "rma_inbound_queue_requests_max",
            "Depth of the inbound queue of each class.",
            gauges.inbound_queue,
        ),
        ("rma_pending_writes_max", "Entries of the pending-write table.", gauges.pending_writes),
        (
            "rma_pending_writes_parked",
            "Writes of others whose data is late and that hold no window.",
            gauges.pending_writes_parked,
        ),
        (
            "rma_parked_bytes",
            "Bytes of these writes: so much may come besides the window.",
            gauges.parked_bytes,
        ),
        (
            "rma_outcome_records_max",
            "Entries of the table of outcome records.",
            gauges.outcome_records,
        ),
        (
            "rma_outcome_records",
            "Outcome records of ops that are under way, or whose initiators may ask.",
            gauges.outcome_records_used,
        ),
        (
            "rma_staging_buffers",
            "Buffers with data of ordered writes of others that are not whole.",
            gauges.staging_used,
        ),
        (
            "rma_counter_values_left",
            "Frames that can be sealed with the counter values that are left.",
            gauges.counter_values_left,
        ),
    ];
    for (name, help, value) in one {
        text.one(GAUGE, name, help, value)?;
    }
    let by_class = [
        ("rma_ops_waiting", "Ops of this host that wait to enter service.", gauges.ops_waiting),
        ("rma_inbound_reads", "Reads of others that wait for responses.", gauges.inbound_reads),
        (
            "rma_inbound_read_bytes",
            "Bytes that these reads still have to be sent.",
            gauges.inbound_read_bytes,
        ),
        (
            "rma_pending_writes",
            "Writes of others under way, but for the parked.",
            gauges.pending_writes_used,
        ),
    ];
    for (name, help, values) in by_class {
        text.family(GAUGE, name, help)?;
        for (class, value) in ClassOfService::ALL.into_iter().zip(values) {
            let class = match class {
                ClassOfService::Latency => "latency",
                ClassOfService::Throughput => "throughput",
            };
            text.sample(name, &[("class", class)], value)?;
        }
    }
    Ok(())
}

fn write_receive_queues(
    queues: &ReceiveQueues,
    text: &mut Exposition<'_, impl Write>,
) -> fmt::Result {
    let &ReceiveQueues { queues, receives_posted, events_unread, events_unread_max } = queues;
    let rows = [
        ("rma_receive_queues", "Receive queues that are registered.", queues),
        ("rma_receives_posted", "Receives that are posted and not consumed.", receives_posted),
        ("rma_events_unread", "Events that applications have not read.", events_unread),
        (
            "rma_events_unread_max",
            "The most of them in one receive queue: its application is behind.",
            events_unread_max,
        ),
    ];
    rows.into_iter().try_for_each(|(name, help, value)| text.one(GAUGE, name, help, value))
}

fn write_executors(gauges: &ExecutorGauges, text: &mut Exposition<'_, impl Write>) -> fmt::Result {
    let one = [
        ("rma_executors", "Executors over portals of this host.", gauges.executors),
        (
            "rma_executor_command_slots",
            "Command slots of the executors' portals.",
            gauges.command_slots,
        ),
        (
            "rma_executor_calls",
            "Calls that are not over, or whose outcomes have not been taken.",
            gauges.calls,
        ),
        (
            "rma_executor_calls_waiting",
            "Calls of which ops wait for a window, a slot, their time or a fence.",
            gauges.calls_waiting,
        ),
        (
            "rma_executor_transfers_waiting",
            "Futures of clients that wait for a place among the calls.",
            gauges.transfers_waiting,
        ),
        ("rma_executor_ops_outstanding", "Ops of executors under way.", gauges.ops_outstanding),
    ];
    for (name, help, value) in one {
        text.one(GAUGE, name, help, value)?;
    }
    let name = "rma_executor_silent_peers";
    text.family(GAUGE, name, "Remote NICs that do not answer, by what is done about them.")?;
    let SilentPeers { suspect, dead, probing } = gauges.silent_peers;
    for (state, count) in [("suspect", suspect), ("dead", dead), ("probing", probing)] {
        text.sample(name, &[("state", state)], count)?;
    }
    let name = "rma_executor_remote_cwnds";
    text.family(GAUGE, name, "Remote congestion windows in use, by their size in ops.")?;
    for (class, count) in ExecutorGauges::CWND_CLASSES.iter().zip(gauges.remote_cwnds) {
        text.sample(name, &[("ops", class)], count)?;
    }
    let smallest = [
        (
            "rma_executor_remote_cwnd_min_ops",
            "The smallest remote congestion window in use.",
            gauges.remote_cwnd_min,
        ),
        (
            "rma_executor_local_cwnd_min_ops",
            "The smallest local congestion window of an executor.",
            gauges.local_cwnd_min,
        ),
    ];
    for (name, help, value) in smallest {
        // Without a window, 0 would be a wrong one.
        if let Some(value) = value {
            text.family(GAUGE, name, help)?;
            text.sample(name, &[], value)?;
        }
    }
    Ok(())
}

fn write_tenants(tenants: &[TenantUsage], text: &mut Exposition<'_, impl Write>) -> fmt::Result {
    type What = fn(PoolUsage) -> u64;
    let whats: [(_, _, What); 2] = [
        ("used", "that a tenant has.", |usage| usage.used),
        ("available", "that a tenant could have in one piece.", |usage| usage.available),
    ];
    for resource in Resource::ALL {
        let (name, help) = resource.metric();
        for (suffix, rest, what) in whats {
            let name = &format!("{name}_{suffix}");
            text.family(GAUGE, name, &format!("{help} {rest}"))?;
            for TenantUsage { tenant, id, usage } in tenants {
                // Names may be the same.
                let labels = [("tenant", &**tenant), ("id", &id.to_string())];
                text.sample(name, &labels, what(usage.of(resource)))?;
            }
        }
    }
    Ok(())
}

/// Types of families.
const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

/// The format itself.
struct Exposition<'a, W> {
    out: &'a mut W,
}

impl<W: Write> Exposition<'_, W> {
    /// Begins a family. `help` is one line without backslashes.
    fn family(&mut self, kind: &str, name: &str, help: &str) -> fmt::Result {
        writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}")
    }

    /// A family of one sample without labels.
    fn one(&mut self, kind: &str, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(kind, name, help)?;
        self.sample(name, &[], value)
    }

    fn sample(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl fmt::Display,
    ) -> fmt::Result {
        self.out.write_str(name)?;
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(self.out, "{before}{label}=\"{}\"", Escaped(text))?;
        }
        let after = if labels.is_empty() { "" } else { "}" };
        writeln!(self.out, "{after} {value}")
    }

    fn histogram(&mut self, name: &str, op_type: &str, histogram: &DelayHistogram) -> fmt::Result {
        let label = ("op", op_type);
        let bucket = format!("{name}_bucket");
        let mut cumulative = 0;
        for (index, count) in histogram.counts.into_iter().enumerate() {
            cumulative += count;
            let bound = DelayHistogram::bound_nanos(index);
            let le = bound.map_or_else(|| "+Inf".into(), |nanos| Seconds(nanos).to_string());
            self.sample(&bucket, &[label, ("le", &le)], cumulative)?;
        }
        self.sample(&format!("{name}_sum"), &[label], Seconds(histogram.sum_nanos))?;
        self.sample(&format!("{name}_count"), &[label], cumulative)
    }

    /// As [`Exposition::histogram`]. No packet has more frames than the last bound.
    fn packets(&mut self, name: &str, direction: &str, sizes: &PacketSizes) -> fmt::Result {
        let (bucket, label) = (format!("{name}_bucket"), ("direction", direction));
        let mut cumulative = 0;
        for (index, count) in sizes.counts.into_iter().enumerate() {
            cumulative += count;
            let le = PacketSizes::bound_frames(index).to_string();
            self.sample(&bucket, &[label, ("le", &le)], cumulative)?;
        }
        self.sample(&bucket, &[label, ("le", "+Inf")], cumulative)?;
        self.sample(&format!("{name}_sum"), &[label], sizes.sum_frames)?;
        self.sample(&format!("{name}_count"), &[label], cumulative)
    }
}

/// Nanoseconds as seconds, exactly.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos == 0 {
            return write!(f, "{whole}");
        }
        let nanos = format!("{nanos:09}");
        write!(f, "{whole}.{}", nanos.trim_end_matches('0'))
    }
}

/// The value of a label.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => f.write_char(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        let seconds = [0, 1, 128, 1_500_000_000, 17_179_869_184, u64::MAX].map(Seconds);
        let text = seconds.map(|it| it.to_string());
        let right =
            ["0", "0.000000001", "0.000000128", "1.5", "17.179869184", "18446744073.709551615"];
        assert_eq!(text, right);
    }

    #[test]
    fn no_name_of_a_tenant_leaves_its_label() {
        let mut out = String::new();
        Exposition { out: &mut out }.sample("a", &[("b", "x\"} 7\n\\")], 1).unwrap();
        assert_eq!(out, "a{b=\"x\\\"} 7\\n\\\\\"} 1\n");
    }
}
