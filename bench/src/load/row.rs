//! A row of results, and the other events of a run, as programs read them: schema `rma-bench/1`.
//!
//! A row stands alone: it repeats the conditions and the load. Numbers are finite or null, and
//! their units are in their names. Fields are only added under a number of the schema.

use core::time::Duration;
use std::collections::BTreeMap;

use rma_xdp::OpStatus;
use serde::Serialize;

use super::{
    checked::Checked,
    recorder::{Kind, Moved, Rate, Recorder, Windows},
};
use crate::{
    conditions::Conditions, cpu::CoreTimes, latency::Latencies, remote::Remote, session::Usage,
};

/// The schema, and its number.
pub(crate) const SCHEMA: &str = "rma-bench/1";

/// Ops by how they ended.
pub(crate) type Outcomes = BTreeMap<&'static str, u64>;

/// A row: one op at one size, depth and rate.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The schema and its number: `rma-bench/1`.
    pub schema: &'static str,
    /// The kind of event: `row`.
    pub event: &'static str,
    /// The command, such as `read-lat`.
    pub command: &'static str,
    /// Its number in the run, from 0.
    pub row: u32,
    /// Whether somebody ended it early.
    pub partial: bool,
    /// The place where it was measured.
    pub conditions: Conditions,
    /// The same of the server, where it tells of itself. Else null.
    pub server: Option<Conditions>,
    /// With whom, and what is allowed there.
    pub peer: Peer,
    /// The load that was asked for.
    pub load: Load,
    /// From issue to completion; in an open loop, from when an op was due.
    pub latency_us: Latency,
    /// In an open loop, from issue to completion. Else null.
    pub service_us: Option<Latency>,
    /// In an open loop, how late ops were issued. Else null.
    pub lateness_us: Option<Lateness>,
    /// Ops and bytes in a second.
    pub throughput: Throughput,
    /// Ops by status, and those that an executor issued again as `retried`.
    pub outcomes: Outcomes,
    /// The processor time of the threads that issue ops and turn the engine.
    pub cpu: Cpu,
    /// Times at which one of those threads did not run.
    pub gaps: Gaps,
    /// The server's engine meanwhile, where it tells of itself. Else null.
    pub server_usage: Option<ServerUsage>,
    /// The ops that were verified before.
    pub verified: Checked,
    /// Limits that were asked for.
    pub limits: Vec<Limit>,
}

/// The other side.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Peer {
    /// Its address.
    pub address: String,
    /// Bytes of its region, or of its receive queue.
    pub region_len: u64,
    /// The source of the keys: `key service` or `grant file`.
    pub permit: &'static str,
}

/// The load that was asked for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Load {
    /// The op, in the words of the paper.
    pub op: &'static str,
    /// `closed` or `open`.
    pub r#loop: &'static str,
    /// Ops that each thread has under way at once, at most.
    pub depth: u32,
    /// Threads that issue ops.
    pub threads: u32,
    /// Bytes of each op.
    pub size: u64,
    /// Bytes that the ops are spread over.
    pub span: u64,
    /// In an open loop, ops of this type a second that were asked for. Else null.
    pub asked_per_s: Option<f64>,
    /// In an open loop, `poisson` or `even`. Else null.
    pub arrivals: Option<&'static str>,
    /// Rounds that were measured.
    pub rounds: u32,
    /// The class of service.
    pub class: &'static str,
    /// Congestion control of ops above 4 KiB. Null of others, which have none.
    pub cc: Option<String>,
    /// How long an op may wait for its data, in milliseconds.
    pub timeout_ms: f64,
}

/// A distribution of latencies, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Ops that were OK.
    pub count: u64,
    /// The shortest.
    pub min: Option<f64>,
    /// Half stay within it. As all percentiles null with fewer than ten samples beyond.
    pub p50: Option<f64>,
    /// 90 % stay within it.
    pub p90: Option<f64>,
    /// 99 % stay within it.
    pub p99: Option<f64>,
    /// 99.9 % stay within it.
    pub p99_9: Option<f64>,
    /// 99.99 % stay within it.
    pub p99_99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
    /// The mean of all.
    pub mean: Option<f64>,
    /// The standard deviation.
    pub stdev: Option<f64>,
    /// The median of the rounds' medians lies between these with 95 % certainty, if there are
    /// rounds enough.
    pub p50_ci95: Option<[f64; 2]>,
    /// The share that a gap of this core fell into.
    pub disturbed_share: f64,
    /// `p99_9` without those.
    pub p99_9_undisturbed: Option<f64>,
}

/// The times by which ops of an open loop were issued late, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lateness {
    /// The share of ops that were issued more than a microsecond late, of those that no gap of this
    /// core fell into.
    pub share_above_1: Option<f64>,
    /// The share of these that were issued later than half of the ops took from their issue.
    pub share_above_p50: Option<f64>,
    /// Half of these were late by no more.
    pub p50: Option<f64>,
    /// 99 % of these were late by no more.
    pub p99: Option<f64>,
    /// The latest of all.
    pub max: f64,
    /// Ops that were due at most and not issued.
    pub backlog_max: u64,
    /// Ops a second that were made, where the load was too much and was ended. Else null.
    pub saturated_at_per_s: Option<f64>,
}

/// The ops and bytes that got through.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Throughput {
    /// Ops that were OK, in a second.
    pub ops_per_s: f64,
    /// Their payload.
    pub payload_gbit_per_s: f64,
    /// Payload of the best 100 ms, of all ops of a mix. Null if none was whole.
    pub best_100ms: Option<f64>,
    /// Payload of the worst 100 ms.
    pub worst_100ms: Option<f64>,
    /// Ops a second of the median round lie between these with 95 % certainty.
    pub ci95: Option<[f64; 2]>,
    /// Whether the second half of the rounds is within 3 % of the first. Null of fewer than 100 ops
    /// a round.
    pub steady: Option<bool>,
}

/// Processor time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cpu {
    /// User time of an op, in nanoseconds.
    pub user_ns_per_op: Option<f64>,
    /// System time of an op.
    pub sys_ns_per_op: Option<f64>,
    /// Time of turns that had something to do, for an op.
    pub busy_ns_per_op: Option<f64>,
    /// Cores that were busy: the share of time in which turns had something to do, of all threads
    /// together.
    pub busy: f64,
    /// Cores that the threads had: 1 of one that spins.
    pub burnt: f64,
    /// Seconds of a core, as far as it was busy, for a gigabit of payload.
    pub core_s_per_gbit: Option<f64>,
    /// Time that the kernel spent on the used cores for interrupts that it had put off, those of
    /// the network among them, for an op, warm-up included. Null if it does not tell, or of less
    /// than a second.
    pub softirq_ns_per_op: Option<f64>,
    /// The share of the used cores' time that a hypervisor took away meanwhile. Null likewise.
    pub steal_share: Option<f64>,
}

/// The time of some cores that was nobody's here, over some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) times: Option<CoreTimes>,
    pub(crate) elapsed: Duration,
}

impl Taken {
    /// From this long on the kernel's tick of 10 ms says something.
    const LEAST: Duration = Duration::from_secs(1);

    /// For each of so many ops, and as a share.
    fn of_ops(self, ops: u64) -> (Option<f64>, Option<f64>) {
        let times = self.times.filter(|_| self.elapsed >= Self::LEAST);
        let softirq = times.filter(|_| ops > 0).map(|it| it.softirq.as_nanos() as f64 / ops as f64);
        let all = self.elapsed.as_secs_f64();
        let steal = times.map(|it| it.steal.as_secs_f64() / (all * f64::from(it.cores)));
        (softirq, steal)
    }
}

/// Times above 100 µs between two turns.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Gaps {
    /// How many.
    pub count: u64,
    /// The longest, in microseconds. Null of a server's if there was a longer one before.
    pub longest_us: Option<f64>,
}

/// The server's engine while a row was measured, with its warm-up and what was under way at its
/// end.
#[derive(Clone, Debug, Serialize)]
pub struct ServerUsage {
    /// Its processor time, over all these ops.
    pub cpu: Cpu,
    /// Times at which it did not turn.
    pub gaps: Gaps,
    /// The share of all ops at most that one of these times fell into: their number is known here,
    /// and not when they were, as the two hosts have no clock in common. Null if it is not known.
    pub disturbed_share_at_most: Option<f64>,
    /// Frames that it received, and dropped or did not send, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// A limit that was asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limit {
    /// `p99_us`, `ops_per_s` or `payload_gbit_per_s`.
    pub name: &'static str,
    /// The value that was asked for.
    pub limit: f64,
    /// The value that was measured. Null if there are too few samples.
    pub value: Option<f64>,
    /// Whether it holds.
    pub ok: bool,
}

impl Row {
    /// The record of one kind of op, in an open loop of so many a second or a closed one.
    /// The rest is for the caller to fill in.
    pub(crate) fn of(kind: &Kind, recorder: &Recorder, per_second: Option<f64>) -> Self {
        let latency_us = Latency::new(&kind.response, &kind.disturbed, &kind.medians);
        // Nothing tells which of them a gap fell into: those of the response do.
        let none = Latencies::new();
        let service_us = per_second.map(|_| Latency::new(&kind.service, &none, &[]));
        Self {
            schema: SCHEMA,
            event: "row",
            command: "",
            row: 0,
            partial: false,
            conditions: Conditions::default(),
            server: None,
            peer: Peer::default(),
            load: Load::default(),
            latency_us,
            service_us,
            lateness_us: per_second.map(|it| Lateness::new(recorder, kind, it)),
            throughput: Throughput::new(recorder, kind),
            outcomes: outcomes(kind),
            cpu: Cpu::new(recorder),
            gaps: Gaps::new(recorder),
            server_usage: None,
            verified: Checked::default(),
            limits: Vec::new(),
        }
    }
}

impl Peer {
    /// The server with its region of so many bytes.
    pub(crate) fn new(remote: &Remote, region_len: u64) -> Self {
        let (address, permit) = (remote.responder().to_string(), remote.permit_name());
        Self { address, region_len, permit }
    }
}

impl Latency {
    /// Of all samples, those of them that were disturbed, and medians of rounds.
    pub(crate) fn new(all: &Latencies, disturbed: &Latencies, medians: &[f64]) -> Self {
        let count = all.count();
        let of = |value: f64| (count > 0).then_some(value);
        let [min, mean, stdev] = all.min_mean_stdev_us();
        Self {
            count,
            min: of(min),
            p50: all.percentile_us(0.5),
            p90: all.percentile_us(0.9),
            p99: all.percentile_us(0.99),
            p99_9: all.percentile_us(0.999),
            p99_99: all.percentile_us(0.9999),
            max: of(all.max_us()),
            mean: of(mean),
            stdev: of(stdev),
            p50_ci95: interval95(medians),
            disturbed_share: disturbed.count() as f64 / count.max(1) as f64,
            p99_9_undisturbed: all.without(disturbed).percentile_us(0.999),
        }
    }
}

impl Throughput {
    pub(crate) fn new(recorder: &Recorder, kind: &Kind) -> Self {
        let Rate { ops_per_s, gbit_per_s } = kind.moved().per_second(recorder.elapsed);
        let window = |it: Option<Moved>| it.map(|it| it.per_second(Windows::LEN).gbit_per_s);
        let rates: Vec<f64> = kind.rates.iter().map(|it| it.ops_per_s).collect();
        let (first, second) = rates.split_at(rates.len() / 2);
        let (first, second) = (median(first), median(second));
        let drift = first.zip(second).map(|(a, b)| ((b - a) / a).abs());
        let is_enough = kind.moved().ops >= 100 * rates.len() as u64;
        let steady = drift.filter(|it| it.is_finite() && is_enough).map(|it| it <= 0.03);
        Self {
            ops_per_s,
            payload_gbit_per_s: gbit_per_s,
            best_100ms: window(recorder.windows.best),
            worst_100ms: window(recorder.windows.worst),
            ci95: interval95(&rates),
            steady,
        }
    }
}

impl Cpu {
    pub(crate) fn new(recorder: &Recorder) -> Self {
        let Moved { ops, bytes } = recorder.moved();
        let elapsed = recorder.elapsed.as_secs_f64().max(1e-9);
        let of_op = |time: Duration| (ops > 0).then(|| time.as_nanos() as f64 / ops as f64);
        let (gbit, busy) = (bytes as f64 * 8.0 / 1e9, recorder.busy as f64 / 1e9);
        let (user, system) = (recorder.cpu.user, recorder.cpu.system);
        Self {
            user_ns_per_op: of_op(user),
            sys_ns_per_op: of_op(system),
            busy_ns_per_op: (ops > 0).then(|| recorder.busy as f64 / ops as f64),
            busy: busy / elapsed,
            burnt: (user + system).as_secs_f64() / elapsed,
            core_s_per_gbit: (gbit > 0.0).then(|| busy / gbit),
            softirq_ns_per_op: None,
            steal_share: None,
        }
    }

    /// The same, with what was taken from cores while all ops of a run were done.
    pub(crate) fn with(self, taken: Taken, recorder: &Recorder) -> Self {
        let (softirq_ns_per_op, steal_share) = taken.of_ops(recorder.all.ops);
        Self { softirq_ns_per_op, steal_share, ..self }
    }
}

impl ServerUsage {
    /// Of what a server has used while ops were recorded, of which `load` had so many under way at
    /// once.
    pub(crate) fn new(usage: &Usage, recorder: &Recorder, load: &Load) -> Self {
        let Moved { ops, bytes } = recorder.all;
        let elapsed = usage.elapsed_us.max(1) as f64;
        let of_op = |us: u64| (ops > 0).then(|| us as f64 * 1e3 / ops as f64);
        let (gbit, busy) = (bytes as f64 * 8.0 / 1e9, usage.busy_us as f64);
        let drops = usage.drops.iter().chain(&usage.not_sent);
        let (elapsed_time, times) = (Duration::from_micros(usage.elapsed_us), usage.core_times());
        let taken = Taken { times, elapsed: elapsed_time };
        let (softirq_ns_per_op, steal_share) = taken.of_ops(ops);
        Self {
            cpu: Cpu {
                user_ns_per_op: of_op(usage.user_us),
                sys_ns_per_op: of_op(usage.system_us),
                busy_ns_per_op: of_op(usage.busy_us),
                busy: busy / elapsed,
                burnt: usage.user_us.saturating_add(usage.system_us) as f64 / elapsed,
                core_s_per_gbit: (gbit > 0.0).then(|| busy / 1e6 / gbit),
                softirq_ns_per_op,
                steal_share,
            },
            disturbed_share_at_most: disturbed_at_most(usage, ops, load),
            gaps: Gaps { count: usage.gaps, longest_us: usage.longest_gap_us.map(|it| it as f64) },
            drops: drops.map(|(reason, count)| (reason.clone(), *count)).collect(),
        }
    }
}

/// The share of so many ops at most that met a time at which the server's engine did not turn: all
/// that were under way when it began, and in an open loop those that were due meanwhile.
fn disturbed_at_most(usage: &Usage, ops: u64, load: &Load) -> Option<f64> {
    let under_way = f64::from(load.depth) * f64::from(load.threads.max(1));
    let gap_us = usage.gap_us?;
    let due = match load.asked_per_s {
        Some(per_second) => per_second * gap_us as f64 / 1e6,
        None => 0.0,
    };
    (ops > 0).then(|| ((usage.gaps as f64 * under_way + due) / ops as f64).min(1.0))
}

impl Gaps {
    pub(crate) fn new(recorder: &Recorder) -> Self {
        let longest_us = recorder.gaps.longest as f64 / 1e3;
        Self { count: recorder.gaps.count, longest_us: Some(longest_us) }
    }
}

impl Lateness {
    /// Of a loop that was to make so many ops a second.
    pub(crate) fn new(recorder: &Recorder, kind: &Kind, asked_per_s: f64) -> Self {
        let late = &recorder.lateness;
        let later = |us: f64| (late.count() > 0).then(|| late.share_between_us(us, f64::INFINITY));
        let made = recorder.moved().per_second(recorder.elapsed).ops_per_s;
        Self {
            share_above_1: later(1.0),
            share_above_p50: kind.service.percentile_us(0.5).and_then(later),
            p50: late.percentile_us(0.5),
            p99: late.percentile_us(0.99),
            max: recorder.latest as f64 / 1e3,
            backlog_max: (recorder.latest as f64 / 1e9 * asked_per_s) as u64,
            saturated_at_per_s: recorder.is_saturated.then_some(made),
        }
    }
}

/// Ops of a kind by status.
pub(crate) fn outcomes(kind: &Kind) -> Outcomes {
    let counted = OpStatus::ALL.iter().zip(kind.outcomes);
    let all = counted.map(|(status, count)| (status.name(), count));
    all.chain([("retried", kind.retries)]).collect()
}

/// The median, if there are any.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len.is_multiple_of(2) => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

/// The values between which the median of what they were drawn from lies with 95 % certainty, by
/// their order alone. `None` of fewer than six.
pub(crate) fn interval95(values: &[f64]) -> Option<[f64; 2]> {
    let sorted = sorted(values);
    let count = sorted.len() as i32;
    // The chance that fewer than `low + 1` of them are below the median.
    let (mut tail, mut term, mut low) = (0.0, 0.5_f64.powi(count), None);
    for below in 0..count {
        tail += term;
        if tail > 0.025 {
            break;
        }
        low = Some(below as usize);
        term *= f64::from(count - below) / f64::from(below + 1);
    }
    low.map(|low| [sorted[low], sorted[sorted.len() - 1 - low]])
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of READs of this size as it is written, with a median of 4 µs.
    pub(crate) fn row(size: u64) -> serde_json::Value {
        row_at(size, None)
    }

    /// The same, in an open loop of so many a second.
    pub(crate) fn row_at(size: u64, asked_per_s: Option<f64>) -> serde_json::Value {
        let recorder = Recorder::new(1, 1);
        let mut row = Row::of(&recorder.kinds[0], &recorder, asked_per_s);
        row.command = "read-lat";
        row.conditions.kernel = "6.1".to_owned();
        row.load = Load { op: "READ", depth: 1, size, asked_per_s, ..Load::default() };
        let latency = &mut row.latency_us;
        (latency.p50, latency.p50_ci95) = (Some(4.0), Some([3.9, 4.1]));
        (latency.p90, latency.p99) = (Some(4.5), Some(5.0));
        let throughput = &mut row.throughput;
        (throughput.ops_per_s, throughput.ci95) = (1000.0, Some([990.0, 1010.0]));
        throughput.payload_gbit_per_s = size as f64 * 8e-6;
        serde_json::to_value(row).expect("plain data")
    }

    #[test]
    fn the_interval_of_ten_rounds_goes_from_the_second_to_the_ninth() {
        let ten: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(interval95(&ten), Some([2.0, 9.0]));
        assert_eq!(interval95(&ten[..6]), Some([5.0, 10.0]));
        assert_eq!(interval95(&ten[..5]), None);
        assert_eq!(interval95(&[]), None);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }

    /// Names of all fields, joined with dots, as the documentation has them.
    fn names(path: &str, value: &serde_json::Value, found: &mut Vec<String>) {
        let parts = match value {
            serde_json::Value::Object(fields) => fields.iter().collect(),
            // Of a list, those of its first.
            serde_json::Value::Array(items) => {
                return items.first().into_iter().for_each(|it| names(path, it, found));
            }
            _ => Vec::new(),
        };
        for (name, value) in parts {
            let name = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            found.push(name.clone());
            // Statuses, and a second distribution.
            if !["outcomes", "service_us", "server", "server_usage.drops"].contains(&&*name) {
                names(&name, value, found);
            }
        }
    }

    #[test]
    fn a_servers_gaps_are_held_against_all_that_may_have_met_one_and_no_less() {
        let usage = Usage { gaps: 6, gap_us: Some(3000), ..Usage::default() };
        let closed = Load { depth: 8, threads: 2, ..Load::default() };
        assert_eq!(disturbed_at_most(&usage, 9600, &closed), Some(0.01));
        assert_eq!(disturbed_at_most(&usage, 50, &closed), Some(1.0));
        let open = Load { depth: 1, threads: 1, asked_per_s: Some(10_000.0), ..Load::default() };
        // Six that were under way, and thirty that were due in 3 ms.
        assert_eq!(disturbed_at_most(&usage, 3600, &open), Some(0.01));
        let unknown = Usage { gap_us: None, ..usage };
        assert_eq!(disturbed_at_most(&unknown, 3600, &open), None);
        assert_eq!(disturbed_at_most(&Usage::default(), 0, &closed), None);
    }

    #[test]
    fn time_taken_from_cores_is_told_of_a_second_and_more_and_never_as_nothing() {
        let times = Some(CoreTimes {
            cores: 2,
            softirq: Duration::from_millis(10),
            steal: Duration::from_millis(100),
        });
        let of = |times, secs| Taken { times, elapsed: Duration::from_secs(secs) }.of_ops(1000);
        assert_eq!(of(times, 5), (Some(10_000.0), Some(0.01)));
        assert_eq!((of(times, 0), of(None, 5)), ((None, None), (None, None)));
    }

    #[test]
    fn the_documentation_names_each_field_of_a_row_and_no_other() {
        let recorder = Recorder::new(1, 1);
        let limits = vec![Limit { name: "p99_us", limit: 1.0, value: None, ok: false }];
        let server = Some(Conditions::default());
        let server_usage = Some(ServerUsage::new(&Usage::default(), &recorder, &Load::default()));
        let of = Row::of(&recorder.kinds[0], &recorder, Some(1000.0));
        let row = Row { limits, server, server_usage, ..of };
        let mut found = Vec::new();
        names("", &serde_json::to_value(row).unwrap(), &mut found);
        let text = include_str!("../../../docs/RMA-BENCH.md");
        let (_, table) = text.split_once("| field of a row |").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let documented = table.lines().filter_map(|it| it.strip_prefix("| `")?.split('`').next());
        let mut documented: Vec<&str> = documented.collect();
        found.sort();
        documented.sort_unstable();
        assert_eq!(found, documented);
    }
}
