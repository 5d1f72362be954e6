//! [`Metrics`] for a person: what a host does, in a dozen lines.
//!
//! What is zero and would be good news is left out: reasons for drops, things that should not be,
//! devices' counters. Nothing but this text depends on it: programs read the fields, scrapers
//! [`Metrics::prometheus`].

use core::{
    fmt::{self, Write as _},
    time::Duration,
};

use rma_app::ExecutorGauges;
use rma_core::{
    nic::{DelayHistogram, NicGauges, OtherVersion},
    wire,
};

use super::{Metrics, NicTotals, OpDelays, ServiceCounts};
use crate::driver::{
    ReceiveQueues,
    tenant::{PoolUsage, TenantUsage},
};

/// The width of the names at the left.
const NAME: usize = 12;

/// The lines about a host, a name and a text in each line. A name is said once.
struct Lines<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    is_first: bool,
}

impl Lines<'_, '_> {
    fn line(&mut self, name: &str, text: impl fmt::Display) -> fmt::Result {
        if !core::mem::take(&mut self.is_first) {
            self.f.write_char('\n')?;
        }
        write!(self.f, "{name:NAME$}{text}")
    }

    /// Those numbers that are not 0, or `none`.
    fn counts<N: fmt::Display>(
        &mut self,
        name: &str,
        counts: impl Iterator<Item = (N, u64)>,
        none: &str,
    ) -> fmt::Result {
        let counts = counts.filter(|&(_, count)| count > 0);
        let text = counts.map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>();
        match text.as_slice() {
            [] => self.line(name, none),
            _ => self.line(name, text.join(", ")),
        }
    }
}

/// A summary for a person; its form may change. The time within which ops ended is told as the
/// bounds of [`DelayHistogram`]'s buckets, so up to twice what it was.
///
/// ```text
/// engine      up, AES-GCM by vaes512
/// device      AF_XDP on eth1: native (the driver has XDP), copy, 2 queue(s), MTU 1500
/// ops         10213 OK, 2 TIMEOUT
///             ended OK    in service after p50, p99          complete after p50, p99
/// READ           10000             ≤ 1.0µs, ≤ 2.0µs               ≤ 16.4µs, ≤ 32.8µs
/// …
/// ```
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aead, completions, drops, not_sent, nic, .. } = self;
        let Self { delays, gauges, executors, .. } = self;
        let (received, sent) = (&self.packets_received, &self.device.packets_sent);
        let mut lines = Lines { f, is_first: true };
        let state = if self.engines_are_up() { "up" } else { "DOWN" };
        lines.line("engine", format_args!("{state}, AES-GCM by {aead}"))?;
        lines.line("device", &self.device.description)?;
        let by_status = completions.iter().map(|(status, count)| (status.name(), *count));
        lines.counts("ops", by_status, "none ended yet")?;
        write_delays(&mut lines, delays)?;
        write_totals(&mut lines, nic, received.packets(), sent.packets())?;
        lines.counts(
            "dropped",
            drops.iter().map(|(why, n)| (format!("{why:?}"), *n)),
            "nothing",
        )?;
        if let Some(OtherVersion { host, version, .. }) = self.other_version {
            let own = wire::VERSION;
            lines.line("version", format_args!("{host} speaks {version}, and this host {own}"))?;
        }
        lines.counts(
            "not sent",
            not_sent.iter().map(|(why, n)| (format!("{why:?}"), *n)),
            "nothing",
        )?;
        for ServiceCounts { name, drops, events, .. } in self.services() {
            lines.counts(name, events.into_iter(), "nothing yet")?;
            lines.counts("dropped", drops.into_iter(), "nothing")?;
        }
        write_gauges(&mut lines, gauges)?;
        write_receive_queues(&mut lines, &self.receive_queues)?;
        write_executors(&mut lines, executors)?;
        let counters = self.device.all();
        let counters = counters.iter().map(|it| (it.name.trim_end_matches("_total"), it.value));
        lines.counts("counted", counters, "nothing")?;
        self.tenants.iter().try_for_each(|tenant| write_tenant(&mut lines, tenant))
    }
}

fn write_delays(lines: &mut Lines<'_, '_>, delays: &[OpDelays]) -> fmt::Result {
    let seen = || delays.iter().filter(|it| it.total.count() > 0);
    if seen().next().is_some() {
        let (count, issue, total) =
            ("ended OK", "in service after p50, p99", "complete after p50, p99");
        lines.line("", format_args!("{count:>8}  {issue:>28}  {total:>28}"))?;
    }
    seen().try_for_each(|it| {
        let [issue, total] = [&it.issue, &it.total]
            .map(|delays| format!("{}, {}", bound(delays, 50), bound(delays, 99)));
        let (name, count) = (it.op_type.name(), it.total.count());
        lines.line(name, format_args!("{count:>8}  {issue:>28}  {total:>28}"))
    })
}

/// Returns the bound that so many of a hundred delays did not exceed.
fn bound(delays: &DelayHistogram, percent: u64) -> String {
    let wanted = (delays.count() * percent).div_ceil(100);
    let mut so_far = 0;
    let bucket = delays.counts.iter().position(|count| {
        so_far += count;
        so_far >= wanted
    });
    match bucket.and_then(DelayHistogram::bound_nanos) {
        Some(nanos) => format!("≤ {:.1?}", Duration::from_nanos(nanos)),
        None => "longer".to_owned(),
    }
}

fn write_totals(
    lines: &mut Lines<'_, '_>,
    nic: &NicTotals,
    packets_received: u64,
    packets_sent: u64,
) -> fmt::Result {
    let &NicTotals {
        frames_received,
        frames_sent,
        tail_octets,
        commands_refused,
        requests_abandoned,
        impossible_indexes,
        late_effects,
        seals_refused,
        posts_refused,
        ..
    } = nic;
    lines.line(
        "frames",
        format_args!(
            "{frames_received} received, {frames_sent} sent; packets: {packets_received} received, {packets_sent} sent"
        ),
    )?;
    let trouble = [
        ("commands refused", commands_refused),
        ("requests abandoned", requests_abandoned),
        ("impossible indexes", impossible_indexes),
        ("late effects", late_effects),
        ("seals refused", seals_refused),
        ("posts refused", posts_refused),
        ("octets in packets' tails", tail_octets),
    ];
    lines.counts("trouble", trouble.into_iter(), "none")
}

fn write_gauges(lines: &mut Lines<'_, '_>, gauges: &NicGauges) -> fmt::Result {
    let NicGauges { window, window_debited, command_slots, free_command_slots, .. } = *gauges;
    let slots = command_slots - free_command_slots.min(command_slots);
    lines.line(
        "outgoing",
        format_args!(
            "{slots} of {command_slots} command slots, {} ops wait, {} in service; {} of {} solicited",
            gauges.ops_waiting.iter().sum::<u64>(),
            gauges.ops_in_service,
            Bytes(window_debited),
            Bytes(window),
        ),
    )?;
    lines.line(
        "incoming",
        format_args!(
            "{} reads with {} to send, {} of {} pending writes, {} of {} outcome records",
            gauges.inbound_reads.iter().sum::<u64>(),
            Bytes(gauges.inbound_read_bytes.iter().sum()),
            gauges.pending_writes_used.iter().sum::<u64>(),
            gauges.pending_writes,
            gauges.outcome_records_used,
            gauges.outcome_records,
        ),
    )
}

fn write_receive_queues(lines: &mut Lines<'_, '_>, queues: &ReceiveQueues) -> fmt::Result {
    let &ReceiveQueues { queues, receives_posted, events_unread, events_unread_max } = queues;
    if queues == 0 {
        return Ok(());
    }
    lines.line(
        "queues",
        format_args!(
            "{queues}: {receives_posted} receives posted, {events_unread} events unread, at most \
             {events_unread_max} in one"
        ),
    )
}

fn write_executors(lines: &mut Lines<'_, '_>, gauges: &ExecutorGauges) -> fmt::Result {
    if gauges.executors == 0 {
        return lines.line("executors", "none");
    }
    let ExecutorGauges { executors, command_slots, calls, calls_waiting, .. } = *gauges;
    lines.line(
        "executors",
        format_args!(
            "{executors} with {command_slots} slots: {calls} calls, {calls_waiting} with more to issue; {} ops \
             under way; {} futures wait",
            gauges.ops_outstanding, gauges.transfers_waiting,
        ),
    )?;
    let windows = gauges.remote_cwnds.iter().sum::<u64>();
    let smallest = |cwnd: Option<f64>| match cwnd {
        Some(cwnd) => format!("{cwnd:.2} ops"),
        None => "-".to_owned(),
    };
    let (remote, local) = (smallest(gauges.remote_cwnd_min), smallest(gauges.local_cwnd_min));
    lines.line(
        "windows",
        format_args!("{windows} remote, the smallest {remote}; the smallest local {local}"),
    )
}

/// Writes a tenant's usage, and what it could have in all.
fn write_tenant(lines: &mut Lines<'_, '_>, tenant: &TenantUsage) -> fmt::Result {
    let usage = &tenant.usage;
    let of = |pool: PoolUsage| format!("{} of {}", pool.used, pool.used + pool.available);
    let bytes = match usage.bytes.used.checked_add(usage.bytes.available) {
        Some(all) if all < UNLIMITED => format!("{} of {}", Bytes(usage.bytes.used), Bytes(all)),
        _ => Bytes(usage.bytes.used).to_string(),
    };
    let (name, slots, regions) = (&tenant.tenant, of(usage.slots), of(usage.regions));
    lines.line(
        "tenant",
        format_args!("{name}: {slots} slots, {regions} regions, {bytes} registered"),
    )
}

/// More bytes than a machine has: there is no limit of the driver's.
const UNLIMITED: u64 = 1 << 60;

/// A number of bytes, with three digits at most before the unit.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1 << 10 {
            return write!(f, "{} B", self.0);
        }
        let unit = (self.0.ilog2() / 10) as usize;
        let value = self.0 as f64 / (1_u64 << (10 * unit)) as f64;
        write!(f, "{value:.1} {}", UNITS[unit - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_suits_them() {
        let sizes = [0, 1023, 1024, 1536, (1 << 20) - 1, 1 << 30, u64::MAX];
        let texts = sizes.map(|size| Bytes(size).to_string());
        let expected = ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1024.0 KiB", "1.0 GiB", "16.0 EiB"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_percentile_is_the_bound_of_the_bucket_that_it_falls_into() {
        let mut delays = DelayHistogram::default();
        (delays.counts[0], delays.counts[4]) = (99, 1);
        assert_eq!(
            (bound(&delays, 50), bound(&delays, 99)),
            ("≤ 128.0ns".into(), "≤ 128.0ns".into())
        );
        delays.counts[4] = 3;
        assert_eq!(bound(&delays, 99), "≤ 2.0µs");
        delays.counts[DelayHistogram::BUCKETS - 1] = 1000;
        assert_eq!(bound(&delays, 99), "longer");
    }
}
