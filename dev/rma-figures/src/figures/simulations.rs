//! The cost of simulations: time by the number of hosts, by what is checked, and memory.
//!
//! The load is [`steady`](rma_sim::load::steady): reads of 4 KiB, four of each host under way, one
//! switch, no executor and no log.

use core::time::Duration;
use std::fs;

use rma_bench::{error::PairError, interrupt::Interrupt, pair};
use rma_sim::{
    check::watch::Checks,
    load::steady::{Steady, SteadyOptions},
    net::model_aead::Seals,
};
use rma_xdp::time::{Clock, TscClock};

use super::spec::Measured;
use crate::allocator::{Asked, counts};

/// Rounds of each comparison, of which the median counts.
const ROUNDS: usize = 5;

/// Frame events of a round: enough that what is used for the first time does not count.
const EVENTS: u64 = 400_000;

/// For how long a load runs until it is measured, and between two looks at how far it is.
const STEP: Duration = Duration::from_micros(50);

const fn light(hosts: u16) -> SteadyOptions {
    let (seals, checks) = (Seals::Model, Checks::Light);
    SteadyOptions { seed: 1, hosts, depth: 4, seals, checks }
}

const fn full(hosts: u16) -> SteadyOptions {
    SteadyOptions { seals: Seals::AesGcm, checks: Checks::Every, ..light(hosts) }
}

/// A load that has begun.
fn begun(options: &SteadyOptions, length: Duration) -> Steady {
    let mut steady = Steady::new(options).expect("the settings are constants");
    steady.run(length).expect("every promise is kept");
    steady
}

/// Nanoseconds of one core for a frame event.
fn nanos(options: &SteadyOptions) -> f64 {
    let mut steady = begun(options, STEP);
    let mut run = || steady.run(STEP).expect("every promise is kept").frame_events;
    let first = run();
    let clock = TscClock::new();
    let mut last = first;
    while last - first < EVENTS {
        last = run();
    }
    clock.now().as_nanos() as f64 / (last - first) as f64
}

/// The median of some rounds of one load over another, and what they took.
fn over(options: &SteadyOptions, base: &SteadyOptions) -> Measured {
    let mut rounds = pair::pinned(pair::cores().0, || {
        let round = |_| [nanos(options), nanos(base)];
        (0..ROUNDS).map(round).collect::<Vec<_>>()
    });
    rounds.sort_by(|[a, b], [c, d]| (a / b).total_cmp(&(c / d)));
    let [own, of_base] = rounds[ROUNDS / 2];
    let words = |it: &SteadyOptions| {
        let SteadyOptions { hosts, seals, checks, .. } = it;
        format!("{hosts} hosts, {seals}, {checks}")
    };
    let detail = format!(
        "{own:.0} ns of one core for a frame sent or received ({}), over {of_base:.0} ns ({}); 4 KiB READs, 4 of each \
         host under way, the median of {ROUNDS} rounds of {EVENTS} frames",
        words(options),
        words(base),
    );
    Measured::new(own / of_base, detail)
}

pub(super) fn hosts(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    Ok([40, 1000].map(|hosts| over(&light(hosts), &light(2))).into())
}

pub(super) fn checks(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    Ok(vec![over(&light(2), &full(2))])
}

/// Bytes that this process has in memory, where the kernel says so.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

pub(super) fn resident_1000(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let before = resident();
    let mut steady = begun(&light(1000), STEP);
    let counts = steady.run(STEP).expect("every promise is kept");
    let (Some(before), Some(after)) = (before, resident()) else { return Ok(Vec::new()) };
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let detail = format!(
        "all that the process has while 1,000 hosts read from each other, each NIC with 64 slots and 16 regions, after {} \
         frames; {:.2} GiB before",
        counts.frame_events,
        gib(before),
    );
    Ok(vec![Measured::new(gib(after), detail)])
}

/// How long a load has run when its memory is looked at first; the second time after ten times as
/// long.
const SHORT: Duration = Duration::from_millis(5);

pub(super) fn growth(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    if !counts() {
        return Ok(Vec::new());
    }
    let kept = |options: &SteadyOptions| {
        let (mut asked, mut steady) = Asked::by(|| begun(options, SHORT));
        let short = asked.kept() as f64;
        asked.add(|| steady.run(9 * SHORT).expect("every promise is kept"));
        [short, asked.kept() as f64]
    };
    let all = [light(2), full(2)].map(|options| kept(&options));
    let words = all.map(|[short, long]| format!("{short:.0} B and {long:.0} B"));
    let detail = format!(
        "what two hosts under load have allocated after {:?}, over that after {SHORT:?}: the worse of light checks ({}) and \
         all checks ({})",
        10 * SHORT,
        words[0],
        words[1],
    );
    Ok(vec![Measured::new(
        all.map(|[short, long]| long / short).into_iter().fold(0.0, f64::max),
        detail,
    )])
}
