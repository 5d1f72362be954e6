//! `rma-bench figures`: every figure that the documentation quotes, by name.

use core::time::Duration;

use clap::Args;
use rma_sim::{scenario, swarm};
use rma_xdp::{Clock, NicConfigBuilder, OpStatus, OpType, Timing, TscClock};
use serde::Serialize;

use crate::{
    death,
    interrupt::Interrupt,
    lab::{Lab, LabConfig},
    line,
    measure::{Amount, Floor, Turns, What, in_turns},
    pair::{Pair, PairConfig, PairError, Place},
    rotation::{By, NextGrant, beside_reads},
};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct FiguresArgs {
    /// Print one line of JSON for each figure.
    #[arg(long)]
    pub json: bool,
    /// Measure this figure only.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// List the figures' names.
    #[arg(long)]
    pub list: bool,
}

/// One figure, as it is printed.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// Under which conditions, and what it is made of.
    pub detail: String,
}

/// A measurement, and the figures that come out of it.
struct Benchmark {
    names: &'static [&'static str],
    run: fn(&Interrupt) -> Result<Vec<Figure>, PairError>,
}

const BENCHMARKS: &[Benchmark] = &[
    Benchmark { names: &["read64_over_floor", "read64_p99_over_floor"], run: read64 },
    Benchmark { names: &["read4096_over_floor"], run: read4096 },
    Benchmark { names: &["read64_cold_over_floor"], run: read64_cold },
    Benchmark { names: &["read4096_cold_over_floor"], run: read4096_cold },
    Benchmark { names: &["write64_over_read64"], run: write64 },
    Benchmark {
        names: &["rekey_gap_over_read", "rekey_gap_max_over_read", "rekey_other_region_failures"],
        run: rekey,
    },
    Benchmark {
        names: &["peer_death_over_bound", "peer_death_over_bound_and_noise", "peer_death_noise"],
        run: peer_death,
    },
    Benchmark { names: &["sim_events_per_s"], run: simulator },
];

/// Of each kind of exchange, in turns.
const AMOUNT: Amount = Amount { count: 200_000, rounds: 20 };

/// MTU of the veth pair.
const MTU: u32 = 3400;

/// Why figures could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FiguresError {
    /// There is no figure of that name.
    #[error("there is no figure {name:?}; the figures are: {}", names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// A measurement failed.
    #[error(transparent)]
    Pair(#[from] PairError),
}

fn names() -> Vec<&'static str> {
    BENCHMARKS.iter().flat_map(|benchmark| benchmark.names.iter().copied()).collect()
}

/// Measures and prints.
///
/// # Errors
/// If a figure does not exist or cannot be measured here.
pub fn run(args: &FiguresArgs, interrupt: &Interrupt) -> Result<(), FiguresError> {
    if args.list {
        line!("{}", names().join("\n"));
        return Ok(());
    }
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| only == name);
    if !names().into_iter().any(wanted) {
        return Err(FiguresError::Unknown { name: args.only.clone().unwrap_or_default() });
    }
    if !args.json {
        line!("  {:31} {:>10}  {:6} detail", "figure", "value", "unit");
    }
    for benchmark in BENCHMARKS {
        if !benchmark.names.iter().any(|name| wanted(name)) {
            continue;
        }
        for figure in (benchmark.run)(interrupt)? {
            if !wanted(figure.name) {
                continue;
            }
            if args.json {
                line!("{}", serde_json::to_string(&figure).expect("plain data"));
            } else {
                let Figure { name, value, unit, detail } = figure;
                line!("  {name:31} {value:>10.3}  {unit:6} {detail}");
            }
        }
    }
    Ok(())
}

/// The raw exchange for reads of 64 B, in words.
const SMALL: &str = "raw ping-pong of 64 B frames";
/// The raw exchange for reads of 4 KiB, in words.
const SAME: &str = "raw exchange of the same frames";
/// Under which conditions all of it is measured.
const CONDITIONS: &str = "inline engines, one pinned core each, AES-128-GCM on";

fn read64(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let what = What::warm(OpType::Read, 64);
    let turns = over_floor(what, Floor::TwoSmall, interrupt)?;
    Ok(vec![
        figure("read64_over_floor", what, &turns, 0.5, SMALL),
        figure("read64_p99_over_floor", what, &turns, 0.99, SMALL),
    ])
}

fn read4096(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let what = What::warm(OpType::Read, 4096);
    let turns = over_floor(what, Floor::FramesOf(OpType::Read, 4096), interrupt)?;
    Ok(vec![figure("read4096_over_floor", what, &turns, 0.5, SAME)])
}

/// Reads all over the region.
const fn cold(size: u32) -> What {
    What::Ops { op_type: OpType::Read, size, span: u64::MAX }
}

fn read64_cold(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let turns = over_floor(cold(64), Floor::TwoSmall, interrupt)?;
    Ok(vec![figure("read64_cold_over_floor", cold(64), &turns, 0.5, SMALL)])
}

fn read4096_cold(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let turns = over_floor(cold(4096), Floor::FramesOf(OpType::Read, 4096), interrupt)?;
    Ok(vec![figure("read4096_cold_over_floor", cold(4096), &turns, 0.5, SAME)])
}

/// How fast a simulation goes, on one core.
fn simulator(_: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let options = swarm::load();
    let mut rates: Vec<(f64, u64, Duration)> = (0..5)
        .map(|_| {
            let clock = TscClock::new();
            let report = scenario::run(&options, |_| ());
            let events = report.expect("the load is fixed, and keeps every promise").frame_events();
            let took = Duration::from_nanos(clock.now().as_nanos());
            (events as f64 / took.as_secs_f64(), events, took)
        })
        .collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (value, events, took) = rates[rates.len() / 2];
    let detail = format!(
        "the median of {} runs: {events} frames sent and received in {took:.2?} on one core, {} nodes, AES-128-GCM on, \
         every promise checked after every event",
        rates.len(),
        options.nodes.len(),
    );
    Ok(vec![Figure { name: "sim_events_per_s", value, unit: "1/s", detail }])
}

fn lab() -> Result<Lab, PairError> {
    Ok(Lab::new(&LabConfig { mtu: MTU, ..LabConfig::default() })?)
}

fn over_floor(what: What, floor: Floor, interrupt: &Interrupt) -> Result<Turns<2>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    in_turns(&mut pair, Some(&lab), [what, What::Raw(floor)], AMOUNT, interrupt)
}

/// An op over its floor.
fn figure(
    name: &'static str,
    what: What,
    turns: &Turns<2>,
    quantile: f64,
    floor_is: &str,
) -> Figure {
    let [read, floor] = &turns.latencies;
    let span = match what {
        What::Ops { span: u64::MAX, .. } => "all of 64 MiB".to_owned(),
        What::Ops { span, .. } => format!("{} KiB", span >> 10),
        What::Raw(_) => String::new(),
    };
    let detail = format!(
        "p{} of {} READs in {span} {:.2} us, of {} times a {floor_is} {:.2} us; veth MTU {MTU}, {CONDITIONS}",
        quantile * 100.0,
        read.count(),
        read.quantile_us(quantile),
        floor.count(),
        floor.quantile_us(quantile),
    );
    Figure { name, value: turns.ratio(0, 1, quantile), unit: "ratio", detail }
}

fn write64(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let (read, write) = (What::warm(OpType::Read, 64), What::warm(OpType::Write, 64));
    let whats = [read, write, What::Raw(Floor::TwoSmall), What::Raw(Floor::FourSmall)];
    let turns = in_turns(&mut pair, Some(&lab), whats, AMOUNT, interrupt)?;
    let compared = pair.compare()?;
    let p50 = turns.latencies.each_ref().map(|latencies| latencies.quantile_us(0.5));
    let detail = format!(
        "p50 of {} WRITEs {:.2} us, of READs in turn {:.2} us; raw AF_XDP: four frames {:.2} us, two {:.2} us; \
         {compared} bytes compared afterwards; veth MTU {MTU}, {CONDITIONS}",
        turns.latencies[1].count(),
        p50[1],
        p50[0],
        p50[3],
        p50[2],
    );
    let value = turns.ratio(1, 0, 0.5);
    Ok(vec![Figure { name: "write64_over_read64", value, unit: "ratio", detail }])
}

/// Rotations, in turns with reads.
const ROTATIONS: Amount = Amount { count: 2000, rounds: 20 };

/// The NICs' timeout while keys are rotated: a core that the scheduler takes away fails no op, so what fails does
/// so for the key.
const PATIENT: Duration = Duration::from_secs(2);

fn rekey(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let lab = lab()?;
    let place = Place::Lab(&lab);
    let timing = Timing::software(Duration::from_micros(10), PATIENT);
    let nic = NicConfigBuilder { timing, ..NicConfigBuilder::default() };
    let mut pair = Pair::open(place, &PairConfig { nic, ..PairConfig::default() })?;
    let kind = (By::RekeyOp, NextGrant::Beforehand);
    let amounts = (ROTATIONS, AMOUNT.count / ROTATIONS.rounds);
    let (reads, rotations) = beside_reads(&mut pair, place, &[kind], amounts, interrupt)?;
    let rotations = &rotations[0];
    let read = reads.quantile_us(0.5);
    let detail = |what: &str, of: f64| {
        format!(
            "{what} of {} rotations by the Rekey op, next grants handed out before: {of:.2} us from the issue of the \
             first READ that failed to that of the first that then succeeded; READ 64 B p50 alone {read:.2} us, in the \
             reader beside another {:.2} us; {} ops failed, {} with another status than {}; veth MTU {MTU}, {CONDITIONS}",
            rotations.count(),
            rotations.reads.quantile_us(0.5),
            rotations.failed,
            rotations.failed_otherwise,
            OpStatus::RemoteAuthenticationFailure,
        )
    };
    let (p50, max) = (rotations.gaps.quantile_us(0.5), rotations.gaps.max_us());
    Ok(vec![
        Figure {
            name: "rekey_gap_over_read",
            value: p50 / read,
            unit: "ratio",
            detail: detail("p50", p50),
        },
        Figure {
            name: "rekey_gap_max_over_read",
            value: max / read,
            unit: "ratio",
            detail: detail("longest", max),
        },
        Figure {
            name: "rekey_other_region_failures",
            value: rotations.other_failed as f64,
            unit: "ops",
            detail: format!(
                "of {} READs of another region of the same host meanwhile, by another portal of the same host; {} of \
                 them with {}",
                rotations.other_ops,
                rotations.other_refused,
                OpStatus::RemoteAuthenticationFailure
            ),
        },
    ])
}

/// Ops that are outstanding when the peer dies, or issued later.
const DEATH_OPS: u64 = 10_000;

fn peer_death(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let lab = lab()?;
    let death = death::run(Place::Lab(&lab), &PairConfig::default(), DEATH_OPS, interrupt)?;
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let detail = format!(
        "slowest of {} reads {:.3} ms, bound {:.0} ms; of {} writes {:.3} ms, bound {:.0} ms; past a bound {:.3} ms, \
         in the NIC's own count {:.3} ms; engine without a turn for up to {:.3} ms meanwhile; {}; {} in flight at \
         once, default timing, all over {:.2} s after the peer's death",
        death.ops - death.writes,
        ms(death.slowest[0]),
        ms(death.bounds[0]),
        death.writes,
        ms(death.slowest[1]),
        ms(death.bounds[1]),
        ms(death.excess()[0]),
        ms(death.excess()[1]),
        ms(death.turn_gap),
        death.endings(),
        death.slots,
        death.took as f64 / 1e9,
    );
    let noise = format!(
        "twice the longest time between two engine turns while peer_death_over_bound was measured: one may be late to \
         take an op, and one to end it; a loop on that core that only looks at the clock was stopped for up to {:.3} \
         ms in half a second before",
        ms(death.idle_gap)
    );
    let over = |name, noise, detail| {
        let value = death.over_bound(noise);
        Figure { name, value, unit: "ratio", detail }
    };
    let with_noise =
        "as peer_death_over_bound, with peer_death_noise added to each bound: at most 1";
    Ok(vec![
        over("peer_death_over_bound", 0, detail),
        over("peer_death_over_bound_and_noise", death.noise(), with_noise.to_owned()),
        Figure { name: "peer_death_noise", value: ms(death.turn_gap), unit: "ms", detail: noise },
    ])
}
