//! The picture of a run: rows of shares and delays over time, and a table of them with curves of
//! text.

use core::{
    fmt::{self, Write},
    time::Duration,
};

use rma_core::{op::OpStatus, time::Instant};

use super::{
    RATE, RTT,
    network::{FlowOptions, Log, OpRecord},
    rates::Rates,
};

/// The rates in a span of time, at the client of the first flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// When it ended.
    pub at: Instant,
    /// The rate at which each flow received, in Gbit/s with all headers.
    pub gbps: Vec<f64>,
    /// The mean `issue_delay` of ops that succeeded, in nanoseconds; zero if there were none.
    pub issue_delay: u64,
    /// The longest.
    pub issue_delay_max: u64,
    /// Their mean `remote_delay`.
    pub remote_delay: u64,
    /// The local window after the last of them, in ops; zero if there were none.
    pub local_cwnd: f64,
    /// How many ops failed.
    pub failures: usize,
}

/// Rows for each `step` between `from` and `to`.
#[must_use]
pub fn rows(
    options: &FlowOptions,
    log: &Log,
    (from, to): (Duration, Duration),
    step: Duration,
) -> Vec<Row> {
    let rates = Rates::new(log, options.flows.len(), options.length);
    let client = options.flows.first().map(|flow| flow.client);
    let is_of_client = |op: &&OpRecord| Some(options.flows[op.flow].client) == client;
    let mut ops = log.ops.iter().filter(is_of_client).peekable();
    let mut rows = Vec::new();
    let (mut start, end) = (Instant::ZERO + from, Instant::ZERO + to);
    while ops.next_if(|op| op.at <= start).is_some() {}
    while start < end {
        let at = start + step;
        let all: Vec<&OpRecord> = core::iter::from_fn(|| ops.next_if(|op| op.at <= at)).collect();
        let ok: Vec<&&OpRecord> = all.iter().filter(|op| op.status == OpStatus::Ok).collect();
        let mean = |delay: fn(&OpRecord) -> Duration| {
            let sum: Duration = ok.iter().map(|op| delay(op)).sum();
            sum.as_nanos() as u64 / ok.len().max(1) as u64
        };
        let gbps = |flow| rates.share(flow, start, at) * RATE as f64 * 8.0 / 1e9;
        let longest = ok.iter().map(|op| op.issue_delay).max().unwrap_or_default();
        rows.push(Row {
            at,
            gbps: (0..options.flows.len()).map(gbps).collect(),
            issue_delay: mean(|op| op.issue_delay),
            issue_delay_max: longest.as_nanos() as u64,
            remote_delay: mean(|op| op.total_delay - op.issue_delay),
            local_cwnd: ok.last().map_or(0.0, |op| op.local_cwnd),
            failures: all.len() - ok.len(),
        });
        start = at;
    }
    rows
}

/// A table for people: the last column has the flows' rates as digits, and the mean `issue_delay`
/// as `d`, which covers them; 100 Gbit/s and 10 µs are at the right edge.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    const WIDTH: usize = 50;
    let mut table = format!("{:>8} {:>7}", "time", "RTT");
    let flows = rows.first().map_or(0, |row| row.gbps.len());
    let written = (|| -> fmt::Result {
        for flow in 1..=flows {
            write!(table, " {:>6}", format!("flow {flow}"))?;
        }
        writeln!(table, " {:>6} {:>6} {:>6} {:>6}", "issue", "max", "remote", "local")?;
        for row in rows {
            let mut plot = [' '; WIDTH + 1];
            for (flow, gbps) in row.gbps.iter().enumerate() {
                plot[scaled(gbps / 100.0, WIDTH)] =
                    char::from_digit(flow as u32 + 1, 36).unwrap_or('*');
            }
            plot[scaled(row.issue_delay as f64 / 10_000.0, WIDTH)] = 'd';
            let at = row.at.as_nanos();
            write!(table, "{:>8} {:>7.1}", micros(at), at as f64 / RTT.as_nanos() as f64)?;
            for gbps in &row.gbps {
                write!(table, " {gbps:>6.1}")?;
            }
            let [mean, longest, remote] =
                [row.issue_delay, row.issue_delay_max, row.remote_delay].map(|it| it as f64 / 1e3);
            let plot: String = plot.iter().collect();
            write!(table, " {mean:>6.2} {longest:>6.2} {remote:>6.2} {:>6.2}", row.local_cwnd)?;
            let failed = if row.failures > 0 { "!" } else { "" };
            writeln!(table, " |{plot}|{failed}")?;
        }
        Ok(())
    })();
    written.expect("a string takes all");
    table
}

fn scaled(part: f64, width: usize) -> usize {
    ((part * width as f64).round() as usize).min(width)
}

/// Nanoseconds as microseconds.
fn micros(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1_000, nanos % 1_000)
}
