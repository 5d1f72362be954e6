//! `rma-bench figures`: every figure that the documentation quotes, by name.

use clap::Args;
use serde::Serialize;

use crate::{
    interrupt::Interrupt,
    lab::{Lab, LabConfig},
    line,
    measure::{Amount, Compared, Floor, WARM, compare},
    pair::{Pair, PairConfig, PairError, Place},
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
        line!("  {:26} {:>10}  {:6} detail", "figure", "value", "unit");
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
                line!("  {name:26} {value:>10.3}  {unit:6} {detail}");
            }
        }
    }
    Ok(())
}

/// Bytes of the served region.
const REGION_LEN: usize = 64 << 20;

/// The raw exchange for reads of 64 B, in words.
const SMALL: &str = "raw ping-pong of 64 B frames";
/// The raw exchange for reads of 4 KiB, in words.
const SAME: &str = "raw exchange of the same frames";

fn read64(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let compared = compared((64, WARM), Floor::Small, interrupt)?;
    Ok(vec![
        figure("read64_over_floor", &compared, 0.5, SMALL),
        figure("read64_p99_over_floor", &compared, 0.99, SMALL),
    ])
}

fn read4096(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let compared = compared((4096, WARM), Floor::SameFrames, interrupt)?;
    Ok(vec![figure("read4096_over_floor", &compared, 0.5, SAME)])
}

fn read64_cold(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let compared = compared((64, REGION_LEN as u64), Floor::Small, interrupt)?;
    Ok(vec![figure("read64_cold_over_floor", &compared, 0.5, SMALL)])
}

fn read4096_cold(interrupt: &Interrupt) -> Result<Vec<Figure>, PairError> {
    let compared = compared((4096, REGION_LEN as u64), Floor::SameFrames, interrupt)?;
    Ok(vec![figure("read4096_cold_over_floor", &compared, 0.5, SAME)])
}

fn compared(
    (size, span): (u32, u64),
    floor: Floor,
    interrupt: &Interrupt,
) -> Result<Compared, PairError> {
    let lab = Lab::new(&LabConfig { mtu: MTU, ..LabConfig::default() })?;
    let port = rma_xdp::DEFAULT_PORT;
    let config = PairConfig { region_len: REGION_LEN, seed: 1, port, ipv6: false };
    let mut pair = Pair::open(Place::Lab(&lab), &config)?;
    let compared = compare(&mut pair, Some(&lab), (size, span), floor, AMOUNT, interrupt)?;
    Ok(compared)
}

fn figure(name: &'static str, compared: &Compared, quantile: f64, floor_is: &str) -> Figure {
    let detail = format!(
        "p{} of {} READs in {} KiB {:.2} us, of {} times a {floor_is} {:.2} us; veth MTU {MTU}, inline engines, \
         one pinned core each, AES-128-GCM on",
        quantile * 100.0,
        compared.read.count(),
        compared.span >> 10,
        compared.read.quantile_us(quantile),
        compared.floor.count(),
        compared.floor.quantile_us(quantile),
    );
    Figure { name, value: compared.ratio(quantile), unit: "ratio", detail }
}
