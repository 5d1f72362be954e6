//! `rma-figures channels`: figures of "Efficient RDMA Communication Protocols", measured here: as a
//! table, as a plot (SVG), and whether what the paper says of them holds of these values.
//!
//! | figure | what |
//! |---|---|
//! | 4 | requests a second through send/recv whose server copies them into a log, or does not |
//! | 5 | median round trip through channels of one sender, by the size of messages |
//! | 6 | how the times of messages through a read ring are distributed, and those of a ring |
//! | 7 | throughput of rings and send/recv, by the size of messages |
//! | 9a | what eight senders get through one shared ring, by the size of messages |
//! | 9b | what four receivers of a read ring get, all together, by the size of messages |
//! | 10 | the same of one receiver, by how much it prefetches |
//!
//! Shapes are compared, not values: the paper has InfiniBand NICs, and axes that its text does not
//! give. Figure 8 has no counterpart: it moves the head of a shared ring to memory of the NIC, and
//! an engine in software has it in its cache anyway.

mod claims;

use std::{fs, io, path::PathBuf};

use clap::{Args, ValueEnum};
use rma_bench::{
    aead,
    error::PairError,
    interrupt::Interrupt,
    latency::Latencies,
    line,
    machine::Machine,
    pair::{Pair, PairConfig, Place},
    rates::medians_of,
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::{channel::Kind, ops::OP_SIZE_MAX};

use self::claims::Claim;
use crate::{
    channels::{Channel, Shape, broadcast::Broadcast, fan_in::FanIn, log::Logged},
    svg::{self, Axes, Series},
};

/// The arguments of `plots`.
#[derive(Args, Clone, Debug)]
pub struct PlotsArgs {
    /// Figure of the paper to draw. Figure 8 has no counterpart: it moves a word into the NIC's own
    /// memory, and an engine in software has it in its cache.
    #[arg(long, value_enum)]
    pub figure: Figure,
    /// Write the plot to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Sizes of messages in bytes, separated by commas; figure 6 uses the first and the last.
    #[arg(long, value_delimiter = ',', default_values_t = [16, 64, 256, 1024, 4096],
          value_parser = clap::value_parser!(u32).range(8..=32_768))]
    pub size: Vec<u32>,
    /// Rounds; each value is the median of them.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Messages in a round; figures of latency send a tenth of them.
    #[arg(short = 'n', long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(100..))]
    pub count: u64,
}

/// A figure that can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Requests a second with and without a copy by size.
    #[value(name = "4")]
    Copies,
    /// Median round trips by size.
    #[value(name = "5")]
    RoundTrips,
    /// The distribution of times of messages through a read ring.
    #[value(name = "6")]
    Distribution,
    /// Throughput of rings and send/recv by size.
    #[value(name = "7")]
    Throughput,
    /// Eight senders on one shared ring by size.
    #[value(name = "9a")]
    FanIn,
    /// Four receivers of a read ring by size.
    #[value(name = "9b")]
    Broadcast,
    /// Prefetching from a read ring by size.
    #[value(name = "10")]
    Prefetching,
}

/// An error that kept a figure from being drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotsError {
    /// It could not be measured.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The plot could not be made.
    #[error("cannot draw: {0}")]
    Draw(String),
    /// The file could not be written.
    #[error("cannot write {}: {error}; choose another file", path.display())]
    Svg {
        /// The file for the plot.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// Ops that a channel has under way at most.
const SLOTS: u16 = 32;
/// MTU of the veth pair.
const MTU: u32 = 3400;

/// Measures, prints and draws.
///
/// # Errors
/// If something could not be set up; if a channel fails; if the file cannot be written; on Ctrl-C.
pub fn run(args: &PlotsArgs, interrupt: &Interrupt) -> Result<(), PlotsError> {
    let lab = Lab::new(&LabConfig { mtu: MTU, ..LabConfig::default() }).map_err(PairError::from)?;
    let mut axes = Axes::sizes(&args.size);
    let measured = match args.figure {
        Figure::Copies => copies(&lab, args, interrupt)?,
        Figure::RoundTrips => round_trips(&lab, args, interrupt)?,
        Figure::Distribution => {
            let (times, measured) = distribution(&lab, args, interrupt)?;
            axes = times;
            measured
        }
        Figure::Throughput => throughput(&lab, args, interrupt)?,
        Figure::FanIn => fan_in(&lab, args, interrupt)?,
        Figure::Broadcast => broadcast(&lab, args, interrupt)?,
        Figure::Prefetching => prefetching(&lab, args, interrupt)?,
    };
    let (title, unit) = args.figure.words();
    line!(
        "{title}, {unit}; medians of {} rounds; {}; {}\n",
        args.rounds,
        aead::words(),
        Machine::here().machine
    );
    let heads: Vec<String> = axes.at.iter().map(|at| format!("{at} {}", axes.unit)).collect();
    line!("| | {} |", heads.join(" | "));
    line!("|---|{}", "---|".repeat(heads.len()));
    for Series { name, values } in &measured {
        let word = |value: &f64| if value.is_nan() { "".to_owned() } else { format!("{value:.3}") };
        let values: Vec<String> = values.iter().map(word).collect();
        line!("| {name} | {} |", values.join(" | "));
    }
    line!("");
    for Claim { says, holds, because } in args.figure.claims(&args.size, &measured) {
        line!("{}: {says} ({because})", if holds { "holds" } else { "DOES NOT HOLD" });
    }
    if let Some(path) = &args.svg {
        let svg = svg::draw((title, unit), &axes, &measured).map_err(PlotsError::Draw)?;
        fs::write(path, svg).map_err(|error| PlotsError::Svg { path: path.clone(), error })?;
        line!("\nwritten to {}", path.display());
    }
    Ok(())
}

impl Figure {
    /// Returns the quantity that is drawn, and its unit.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Copies => ("Requests through send/recv (figure 4)", "requests/s"),
            Self::Distribution => ("Times of messages (figure 6)", "share of messages"),
            Self::RoundTrips => ("Round trip of a message and one back (figure 5)", "us at p50"),
            Self::Throughput => ("Messages through one channel (figure 7)", "MiB/s"),
            Self::FanIn => ("Messages through one shared ring (figure 9a)", "MiB/s"),
            Self::Broadcast => ("Messages of four receivers of a read ring (figure 9b)", "MiB/s"),
            Self::Prefetching => ("Messages of a receiver of a read ring (figure 10)", "MiB/s"),
        }
    }

    /// Returns the paper's claims about it, with these values.
    fn claims(self, sizes: &[u32], measured: &[Series]) -> Vec<Claim> {
        match self {
            Self::Copies => claims::copies(sizes, measured),
            Self::RoundTrips => claims::round_trips(sizes, measured),
            Self::Distribution => claims::distribution(sizes, measured),
            Self::Throughput => claims::throughput(sizes, measured),
            Self::FanIn => claims::fan_in(sizes, measured),
            Self::Broadcast => claims::broadcast(sizes, measured),
            Self::Prefetching => claims::prefetching(sizes, measured),
        }
    }
}

/// A pair of hosts and a channel of a kind for messages of one size.
fn opened(lab: &Lab, kind: Kind, size: u32) -> Result<(Channel, Pair), PairError> {
    let pair = Pair::open(Place::Lab(lab), &PairConfig::patient())?;
    let shape = Shape { kind, len_max: size, room: 1 << 20, slots: SLOTS };
    Ok((Channel::open(&pair, shape)?, pair))
}

/// The median of what `measure` gives, for each kind and size.
fn by_kind(
    lab: &Lab,
    args: &PlotsArgs,
    kinds: &[Kind],
    mut measure: impl FnMut(&mut Channel, &mut Pair, u32) -> Result<f64, PairError>,
) -> Result<Vec<Series>, PairError> {
    let mut all = Vec::new();
    for &kind in kinds {
        let mut values = Vec::new();
        for &size in &args.size {
            let open = || opened(lab, kind, size);
            let measure =
                |(channel, pair): &mut (Channel, Pair)| Ok([measure(channel, pair, size)?]);
            values.extend(medians_of(args.rounds, open, measure)?);
        }
        all.push(Series { name: kind.to_string(), values });
    }
    Ok(all)
}

/// Kinds of one sender and one receiver that both figures have.
const KINDS: [Kind; 7] = [
    Kind::SendRecvNormal,
    Kind::WriteSlotInlined,
    Kind::WriteSlotImmediate,
    Kind::RingDetached,
    Kind::RingImmediate,
    Kind::RingWithZeroing,
    Kind::RingWithoutZeroing,
];

fn round_trips(
    lab: &Lab,
    args: &PlotsArgs,
    interrupt: &Interrupt,
) -> Result<Vec<Series>, PairError> {
    let counts = (args.count / 100, args.count / 10);
    by_kind(lab, args, &KINDS, |channel, pair, size| {
        let times = channel.round_trips(pair, size as usize, counts, interrupt)?;
        Ok(times.quantile_us(0.5))
    })
}

fn copies(lab: &Lab, args: &PlotsArgs, interrupt: &Interrupt) -> Result<Vec<Series>, PairError> {
    let mut all = ["answered where they lie", "copied into a log"]
        .map(|name| Series { name: name.to_owned(), values: Vec::new() });
    for &size in &args.size {
        // One SEND carries a request.
        if size > OP_SIZE_MAX {
            all.iter_mut().for_each(|series| series.values.push(f64::NAN));
            continue;
        }
        let open = || {
            let pair = Pair::open(Place::Lab(lab), &PairConfig::patient())?;
            Ok((Logged::open(&pair, size, SLOTS)?, pair))
        };
        let counts = (args.count / 10, args.count);
        let rates = |(requests, pair): &mut (Logged, Pair)| {
            let mut rate = |keeps| requests.rate(pair, keeps, counts, interrupt);
            Ok([rate(false)?, rate(true)?])
        };
        let medians = medians_of(args.rounds, open, rates)?;
        all.iter_mut().zip(medians).for_each(|(series, it)| series.values.push(it));
    }
    Ok(all.into())
}

/// Parts that the times of figure 6 are sorted into.
const PARTS: u32 = 40;

/// The times that messages take, and which share takes how long: of the smallest and the largest
/// size, through a read ring whose receiver asks for bells, and through a ring.
fn distribution(
    lab: &Lab,
    args: &PlotsArgs,
    interrupt: &Interrupt,
) -> Result<(Axes, Vec<Series>), PairError> {
    let (passive, pushed) = (Kind::ReadRingInlined, Kind::RingWithoutZeroing);
    let counts = (args.count / 100, args.count / 10);
    let mut times: Vec<(String, Latencies)> = Vec::new();
    let ends = [args.size.first(), args.size.last()];
    for &size in ends.into_iter().flatten() {
        let mut pair = Pair::open(Place::Lab(lab), &PairConfig::patient())?;
        let mut ring = Broadcast::open(&pair, passive, (1, size, 0), SLOTS)?;
        let mut all = Latencies::new();
        for _ in 0..args.rounds {
            all.merge(&ring.one_way(&mut pair, counts, interrupt)?);
        }
        times.push((format!("{passive}, {size} B"), all));
        drop((ring, pair));
        let (mut channel, mut pair) = opened(lab, pushed, size)?;
        let mut all = Latencies::new();
        for _ in 0..args.rounds {
            all.merge(&channel.one_way(&mut pair, size as usize, counts, interrupt)?);
        }
        times.push((format!("{pushed}, {size} B"), all));
    }
    let high = times.iter().map(|(_, it)| it.quantile_us(0.98)).fold(0.0, f64::max);
    let at = |part: u32| (high * f64::from(part) / f64::from(PARTS) * 100.0).round() / 100.0;
    let series = times.into_iter().map(|(name, times)| {
        let share = |part| times.share_between_us(at(part), at(part + 1));
        Series { name, values: (0..PARTS).map(share).collect() }
    });
    Ok((Axes::times((0..PARTS).map(at).collect()), series.collect()))
}

/// Messages a second, in MiB of them.
fn mib(rate: f64, size: u32) -> f64 {
    rate * f64::from(size) / f64::from(1 << 20)
}

fn throughput(
    lab: &Lab,
    args: &PlotsArgs,
    interrupt: &Interrupt,
) -> Result<Vec<Series>, PairError> {
    by_kind(lab, args, &KINDS, |channel, pair, size| {
        let count = (args.count * 256 / u64::from(size.max(256))).max(100);
        let rate = channel.rate(pair, size as usize, (count / 10, count), interrupt)?;
        Ok(mib(rate, size))
    })
}

/// How many senders share a ring, as in the paper, and the one that they are compared with.
const SENDERS: [u16; 2] = [8, 1];

fn fan_in(lab: &Lab, args: &PlotsArgs, interrupt: &Interrupt) -> Result<Vec<Series>, PairError> {
    let mut all = Vec::new();
    for senders in SENDERS {
        let mut values = Vec::new();
        for &size in &args.size {
            if size > FanIn::LEN_MAX {
                values.push(f64::NAN);
                continue;
            }
            let open = || {
                let pair = Pair::open(Place::Lab(lab), &PairConfig::patient())?;
                Ok((FanIn::open(&pair, senders, size, SLOTS)?, pair))
            };
            let counts = (args.count / 10, args.count);
            let rate = |(ring, pair): &mut (FanIn, Pair)| Ok([ring.rate(pair, counts, interrupt)?]);
            let [rate] = medians_of(args.rounds, open, rate)?;
            values.push(mib(rate, size));
        }
        let who = if senders == 1 { "sender" } else { "senders" };
        all.push(Series { name: format!("{senders} {who}"), values });
    }
    Ok(all)
}

/// Measures so many receivers of a read ring all together, by size.
fn read_ring(
    lab: &Lab,
    args: &PlotsArgs,
    (kind, receivers, prefetch): (Kind, u16, u32),
    interrupt: &Interrupt,
) -> Result<Vec<f64>, PairError> {
    let by_size = args.size.iter().map(|&size| {
        let open = || {
            let pair = Pair::open(Place::Lab(lab), &PairConfig::patient())?;
            Ok((Broadcast::open(&pair, kind, (receivers, size, prefetch), SLOTS)?, pair))
        };
        let count = (args.count / 10 * 256 / u64::from(size.max(256))).max(100);
        let counts = (count / 10, count);
        let rate = |(ring, pair): &mut (Broadcast, Pair)| Ok([ring.rate(pair, counts, interrupt)?]);
        let [rate] = medians_of(args.rounds, open, rate)?;
        Ok(mib(rate, size))
    });
    by_size.collect()
}

fn broadcast(lab: &Lab, args: &PlotsArgs, interrupt: &Interrupt) -> Result<Vec<Series>, PairError> {
    let kinds = [Kind::ReadRingNotify, Kind::ReadRingDetached, Kind::ReadRingInlined];
    let series = kinds.into_iter().map(|kind| {
        let values = read_ring(lab, args, (kind, 4, 0), interrupt)?;
        Ok(Series { name: kind.to_string(), values })
    });
    series.collect()
}

fn prefetching(
    lab: &Lab,
    args: &PlotsArgs,
    interrupt: &Interrupt,
) -> Result<Vec<Series>, PairError> {
    let series = [0, 512, 4088].into_iter().map(|prefetch| {
        let values = read_ring(lab, args, (Kind::ReadRingInlined, 1, prefetch), interrupt)?;
        Ok(Series { name: format!("{prefetch} B beyond the bell"), values })
    });
    series.collect()
}
