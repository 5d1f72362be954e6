//! Rows as text: columns for people, and perftest's for programs that read those.
//!
//! A row is printed as soon as it is there, so columns have fixed widths.

use core::fmt;

use super::{
    args::{Asks, Format},
    row::{Cpu, Gaps, Latency, Row, ServerUsage, Throughput},
};

/// The head of the columns.
pub(crate) fn head(asks: Asks, format: Format) -> String {
    match (asks, format) {
        (Asks::Mixed, Format::People) => {
            format!("{:>12} {}", "op", head(Asks::Latency, format))
        }
        (Asks::Latency, Format::People) => format!(
            "{:>8} {:>10} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  [µs]  CPU/op[ns] user   sys  server",
            "#bytes", "#iterations", "t_min", "t_max", "t_typical", "t_avg", "t_stdev", "90%", "99%", "99.9%", "99.99%"
        ),
        (Asks::Bandwidth, Format::People) => format!(
            "{:>8} {:>10} {:>17} {:>10} {:>8} {:>13} {:>8} {:>6} {:>6} {:>11} {:>7}",
            "#bytes",
            "#iterations",
            "BW peak[Gbit/s]",
            "average",
            "least",
            "MsgRate[Mops]",
            "retried",
            "busy",
            "burnt",
            "core-s/Gbit",
            "server"
        ),
        (Asks::Latency | Asks::Mixed, Format::Perftest) => " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ".to_owned(),
        (Asks::Bandwidth, Format::Perftest) => {
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]".to_owned()
        }
    }
}

/// A row in these columns.
pub(crate) fn row(row: &Row, asks: Asks, format: Format) -> String {
    let Latency { count, min, p50, p90, p99, p99_9, p99_99, max, mean, stdev, .. } = row.latency_us;
    let (size, in_columns) = (row.load.size, |it| Number(it, 2));
    let Throughput { ops_per_s, payload_gbit_per_s, best_100ms, worst_100ms, .. } = row.throughput;
    let mops = ops_per_s / 1e6;
    match (asks, format) {
        (Asks::Mixed, Format::People) => {
            format!("{:>12} {}", row.load.op, self::row(row, Asks::Latency, format))
        }
        (Asks::Latency, Format::People) => {
            let [min, max, p50, mean, stdev, p90, p99, p99_9, p99_99] =
                [min, max, p50, mean, stdev, p90, p99, p99_9, p99_99].map(in_columns);
            let Cpu { user_ns_per_op, sys_ns_per_op, .. } = row.cpu;
            let (user, sys) = (Number(user_ns_per_op, 0), Number(sys_ns_per_op, 0));
            // All of a spinning engine's time would say nothing.
            let server = row.server_usage.as_ref().and_then(|it| it.cpu.busy_ns_per_op);
            let server = Number(server, 0);
            format!(
                "{size:>8} {count:>11} {min:>8} {max:>9} {p50:>9} {mean:>8} {stdev:>8} {p90:>8} {p99:>8} {p99_9:>8} {p99_99:>8}             {user:>9} {sys:>5} {server:>7}"
            )
        }
        (Asks::Bandwidth, Format::People) => {
            let [best, worst] = [best_100ms, worst_100ms].map(|it| Number(it, 3));
            let retried = share(row, "retried");
            let Cpu { busy, burnt, core_s_per_gbit, .. } = row.cpu;
            let core_s = Number(core_s_per_gbit, 3);
            let server = row.server_usage.as_ref().and_then(|it| it.cpu.core_s_per_gbit);
            let server = Number(server, 3);
            format!(
                "{size:>8} {count:>11} {best:>17} {payload_gbit_per_s:>10.3} {worst:>8} {mops:>13.6} {retried:>7.2}% {busy:>6.2} {burnt:>6.2} {core_s:>11} {server:>7}"
            )
        }
        (Asks::Latency | Asks::Mixed, Format::Perftest) => {
            let [min, max, p50, mean, stdev, p99, p99_9] =
                [min, max, p50, mean, stdev, p99, p99_9].map(|it| it.unwrap_or(0.0));
            format!(
                " {size:<7} {count:<10} {min:<14.2} {max:<14.2} {p50:<16.2} {mean:<14.2} {stdev:<16.2} {p99:<22.2} {p99_9:<22.2} "
            )
        }
        (Asks::Bandwidth, Format::Perftest) => {
            let peak = best_100ms.unwrap_or(0.0);
            format!(" {size:<10} {count:<15} {peak:<18.2} {payload_gbit_per_s:<20.2} {mops:<14.6}")
        }
    }
}

/// The sentences below a row for people.
pub(crate) fn notes(row: &Row) -> Vec<String> {
    let mut notes = Vec::new();
    let Row { latency_us, throughput, outcomes, gaps, load, .. } = row;
    let sure = |[low, high]: [f64; 2]| format!("95 % sure of {low:.2} to {high:.2}");
    let rate_sure = |[low, high]: [f64; 2]| format!("95 % sure of {low:.0} to {high:.0}");
    let bad = outcomes.iter().filter(|(name, count)| **count > 0 && **name != "retried");
    let ended: Vec<String> = bad.map(|(name, count)| format!("{count} {name}")).collect();
    let typical =
        latency_us.p50_ci95.map_or_else(String::new, |it| format!("t_typical {}; ", sure(it)));
    let threads =
        if load.threads > 1 { format!("{} threads, ", load.threads) } else { String::new() };
    notes.push(format!(
        "{}, {} loop, {threads}depth {}: {typical}issue to completion; {}",
        load.op,
        load.r#loop,
        load.depth,
        if ended.is_empty() { "none came".to_owned() } else { ended.join(", ") }
    ));
    if load.depth > 1
        && let Some(ci95) = throughput.ci95
    {
        notes.push(format!("{:.0} ops/s, {}", throughput.ops_per_s, rate_sure(ci95)));
    }
    if let Some(lateness) = &row.lateness_us {
        let asked = load.asked_per_s.unwrap_or_default();
        let share = Number(lateness.share_above_1.map(|it| it * 100.0), 2);
        notes.push(format!(
            "open loop, {}, {asked:.0}/s asked, {:.0}/s made; {share} % issued more than 1 µs late, at most {:.0} µs; \
             backlog never above {} ops",
            load.arrivals.unwrap_or_default(),
            throughput.ops_per_s,
            lateness.max,
            lateness.backlog_max,
        ));
        let stood_still = gaps.longest_us.filter(|it| *it >= 1e6).map(|it| it / 1e6);
        match (lateness.saturated_at_per_s, stood_still) {
            (Some(made), None) => notes.push(format!(
                "saturated at {made:.0}/s: ops were more than a second late, and the row was ended; give a lower --rate"
            )),
            (Some(_), Some(seconds)) => notes.push(format!(
                "ended: this machine, or this process, stood still for {seconds:.1} s, and ops were more than a second late \
                 after it; run it again"
            )),
            (None, _) => {}
        }
    }
    if gaps.count > 0 {
        let undisturbed = latency_us
            .p99_9_undisturbed
            .map_or_else(String::new, |it| format!("; without those 99.9% is {it:.2}"));
        notes.push(format!(
            "{:.2} % of the samples met one of {} gaps above 100 µs of {}, the longest of {:.0} µs{undisturbed}",
            latency_us.disturbed_share * 100.0,
            gaps.count,
            if load.threads > 1 { "these threads" } else { "this core" },
            gaps.longest_us.unwrap_or(0.0),
        ));
    }
    notes.push(taken(row));
    if let Some(usage) = &row.server_usage {
        let ServerUsage { gaps, drops, disturbed_share_at_most: share, .. } = usage;
        if gaps.count > 0 {
            let Gaps { count, longest_us } = gaps;
            let longest =
                longest_us.map_or_else(String::new, |it| format!(", the longest of {it:.0} µs"));
            let met = share.map_or_else(String::new, |it| {
                format!(": at most {:.2} % of the samples met one", it * 100.0)
            });
            notes.push(format!("gaps above 100 µs of the server's engine: {count}{longest}{met}"));
        }
        let drops: Vec<String> =
            drops.iter().map(|(why, count)| format!("{count} {why}")).collect();
        if !drops.is_empty() {
            notes.push(format!("the server dropped {}", drops.join(", ")));
        }
    }
    if throughput.steady == Some(false) {
        notes.push(
            "not steady: the second half of the rounds is more than 3 % from the first".to_owned(),
        );
    }
    for limit in row.limits.iter().filter(|it| !it.ok) {
        let found =
            limit.value.map_or_else(|| "too few samples".to_owned(), |it| format!("{it:.3}"));
        notes.push(format!("LIMIT {} {}: {found}", limit.name, limit.limit));
    }
    notes
}

/// The time that was taken from the cores of both sides.
fn taken(row: &Row) -> String {
    let known = |it: Option<String>| it.unwrap_or_else(|| "unknown".to_owned());
    let of = |cpu: &Cpu| {
        let softirq = known(cpu.softirq_ns_per_op.map(|it| format!("{it:.0} ns/op")));
        let steal = known(cpu.steal_share.map(|it| format!("{:.1} %", it * 100.0)));
        format!("softirq {softirq}, steal {steal}")
    };
    let server = row.server_usage.as_ref().map(|it| format!("; there {}", of(&it.cpu)));
    format!("the cores: {}{}", of(&row.cpu), server.unwrap_or_default())
}

fn share(row: &Row, outcome: &str) -> f64 {
    let count = row.outcomes.get(outcome).copied().unwrap_or_default();
    count as f64 / row.latency_us.count.max(1) as f64 * 100.0
}

/// A number with so many digits, or a dash where there is none.
pub(crate) struct Number(pub(crate) Option<f64>, pub(crate) usize);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => f.pad(&format!("{number:.*}", self.1)),
            None => f.pad("-"),
        }
    }
}
