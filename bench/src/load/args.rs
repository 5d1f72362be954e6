//! The arguments of the load commands, and what is made of them: sizes, depths, amounts, rates.

use core::{fmt, str::FromStr, time::Duration};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rma_core::{
    cc::{Algorithm, CcConfigBuilder},
    limits::{TIMEOUT_MAX, TIMEOUT_MIN},
};
use rma_xdp::ops::{ClassOfService, OP_SIZE_MAX};

use super::{mix::Mix, op::LoadOp, run::Extent, schedule::Arrivals};
use crate::{bytes::Bytes, pair::VERIFY_DEPTH, remote::RemoteArgs};

/// The largest transfer.
const SIZE_MAX: u64 = 4 << 20;

/// The lowest rate: an op in a quarter of an hour.
const RATE_MIN: f64 = 0.001;

/// The highest rate: an op each nanosecond.
const RATE_MAX: f64 = 1e9;

/// The most command slots that a load has.
const SLOTS_MAX: u32 = 16_384;

/// The largest window of congestion control, in ops.
const CWND_MAX: f64 = 64.0;

/// The most sizes, depths or rates in a list.
const LIST_MAX: usize = 64;

/// Arguments of all load commands.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Bytes of each op: 1 to 4M, several separated by commas. K and M are powers of two. Ops above
    /// 4K are calls of an executor, which cuts them. Of messages at most 4K; an atomic has 8.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) size: Vec<Bytes>,
    /// All sizes: 1 byte, 64, and then each power of two up to 4M.
    #[arg(short, long, conflicts_with = "size")]
    all: bool,
    /// Ops to measure. Default of latencies of up to 4K: 100000.
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    iters: Option<u64>,
    /// Seconds to measure for, in place of --iters. Default of all others: 2.
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters", value_parser = seconds)]
    duration: Option<Duration>,
    /// Ops before, to warm up. Default: a tenth of what is measured.
    #[arg(short, long, value_name = "COUNT")]
    warm_up: Option<u64>,
    /// Threads that issue ops, each through slots of its own; one more turns the engine, which one
    /// thread alone does itself.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
    /// Ops that each thread has under way at once; several separated by commas. Default: 1 for
    /// latency, 32 for bandwidth, 256 in an open loop.
    #[arg(short = 't', long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Vec<u32>,
    /// Open loop: ops a second, whatever the server does; several separated by commas. 500k, 10Gbit
    /// of payload, or 20% of what a closed loop gets through before.
    #[arg(short = 'R', long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) rate: Vec<Load>,
    /// Distances between the ops of an open loop.
    #[arg(long, requires = "rate", value_enum, default_value_t = Arrivals::Poisson)]
    pub(crate) arrivals: Arrivals,
    /// Spread the ops at random over this many bytes. If it exceeds the server's cache, the latency
    /// includes its memory's. Default: 64K for ops of up to 4K; 64M, or what there is, for others.
    #[arg(long, value_name = "BYTES")]
    pub(crate) span: Option<Bytes>,
    /// Random ops to verify first, byte by byte; 0 for none. Then WRITEs neither read back nor
    /// restore what was there.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) verify: u64,
    /// Both directions at once: of READs and WRITEs, as many of the other as well.
    #[arg(short, long)]
    pub(crate) both: bool,
    /// Class of service. Default: latency for ops of up to 4K, throughput for larger ones.
    #[arg(long, value_enum)]
    class: Option<Class>,
    /// Congestion control of ops above 4K: aimd, swift, total-delay-only, or fixed=N, a window of N
    /// ops. Default: aimd.
    #[arg(long, value_name = "ALGORITHM")]
    pub(crate) cc: Option<Cc>,
    /// How long an op may wait for its data before it ends with TIMEOUT: 50ms, 2s. Default: 100ms.
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// How long a server is waited for: before it answers, and while op after op fails.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = seconds)]
    pub(crate) patience: Duration,
    /// Rounds that the measurement is cut into: what they spread over says how sure a figure is.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Spin, or offer the core to others, while nothing is to be done. yield: where the two sides
    /// share a core. Default: spin, unless there are fewer cores than threads.
    #[arg(long, value_enum)]
    idle: Option<Idle>,
    /// Refused: there are no queue pairs.
    #[arg(short = 'q', hide = true, num_args = 0..=1, value_parser = no_queue_pairs)]
    queue_pairs: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments about what is printed.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// Print lines of JSON instead of text, or write them to FILE beside it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(crate) json: Option<Option<PathBuf>>,
    /// Write the rows to this file, as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write all latencies to this file, as an HdrHistogram log in nanoseconds.
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,
    /// The columns of the text: for people, or those of perftest for programs that read them.
    #[arg(long, value_enum, default_value_t = Format::People)]
    pub(crate) format: Format,
    /// Say on standard error how it goes, each so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
    /// Exit with 3 if the 99th percentile of the latency, in microseconds, is above this.
    #[arg(long, value_name = "US", value_parser = limit)]
    pub(crate) limit_p99: Option<f64>,
    /// Exit with 3 if there are fewer ops a second.
    #[arg(long, value_name = "OPS", value_parser = limit)]
    pub(crate) limit_rate: Option<f64>,
    /// Exit with 3 if less payload gets through, in Gbit/s.
    #[arg(long, value_name = "GBIT", value_parser = limit)]
    pub(crate) limit_goodput: Option<f64>,
}

/// The columns of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    People,
    /// Those of perftest.
    Perftest,
}

/// Arguments of `atomic-lat` and `atomic-bw`.
#[derive(Args, Clone, Debug)]
pub struct AtomicArgs {
    /// The op.
    #[arg(short = 'A', long, value_enum, ignore_case = true, default_value_t = Atomic::FetchAdd)]
    pub(crate) atomic: Atomic,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// An atomic, as people type it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Atomic {
    /// COMPARE_SWAP of a word for itself.
    #[value(name = "COMPARE_SWAP", alias = "CMP_AND_SWAP")]
    CompareSwap,
    /// FETCH_ADD of nothing.
    #[value(name = "FETCH_ADD", alias = "FETCH_AND_ADD")]
    FetchAdd,
}

/// Arguments of `mixed`.
#[derive(Args, Clone, Debug)]
pub struct MixedArgs {
    /// Percent of each op, together 100: of read, write, compare-swap and fetch-add.
    #[arg(long, value_name = "OP=PERCENT,...", default_value = "read=90,write=10")]
    pub(crate) ratio: Ratio,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// The class of service, as people type it.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Class {
    Latency,
    Throughput,
}

/// The use of a thread while nothing is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Idle {
    Spin,
    Yield,
}

/// An argument that is not understood.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArgsError {
    /// Not a rate.
    #[error(
        "{text:?} is no rate of 0.001 or more: give ops a second such as 500k, payload such as 10Gbit, or a share such as 20%"
    )]
    Rate {
        /// The text.
        text: String,
    },
    /// A rate beyond what a clock tells apart.
    #[error(
        "--rate asks for {ops:.3e} ops of {size} bytes a second, and the clock tells 1e9 apart: give a lower one"
    )]
    RateTooHigh {
        /// Ops a second.
        ops: f64,
        /// Bytes of each.
        size: u64,
    },
    /// Not a limit.
    #[error("{text:?} is no limit: give a number above 0")]
    Limit {
        /// The text.
        text: String,
    },
    /// Not a time.
    #[error("{text:?} is no time: give seconds above 0, such as 10 or 0.5")]
    Seconds {
        /// The text.
        text: String,
    },
    /// Not a mix of ops.
    #[error(
        "{text:?} is no mix: give each of read, write, compare-swap and fetch-add at most once with its percent, together 100, such as read=90,write=10"
    )]
    Ratio {
        /// The text.
        text: String,
    },
    /// Not an algorithm of congestion control.
    #[error(
        "{text:?} is no congestion control: give aimd, swift, total-delay-only, or fixed=N with a window of 1 to 64 ops"
    )]
    Cc {
        /// The text.
        text: String,
    },
    /// Congestion control of ops that have none.
    #[error(
        "--cc is for ops above 4K, which an executor paces, and there are none: give a larger --size, or \
         leave it out"
    )]
    CcOfSmall,
    /// Not a timeout.
    #[error("{text:?} is no timeout: give 3us to 3600s, such as 50ms")]
    Timeout {
        /// The text.
        text: String,
    },
    /// More ops at once than there are slots.
    #[error(
        "{threads} threads with {depth} ops under way each need {} command slots, and a host has at most {SLOTS_MAX} \
         for them: give fewer --threads, or a smaller --depth", u64::from(*threads) * u64::from(*depth)
    )]
    Slots {
        /// How many threads there are.
        threads: u32,
        /// The ops that each has under way.
        depth: u32,
    },
    /// Fewer ops than threads.
    #[error(
        "--iters {iters} is less than an op for each of {threads} threads: give more, or fewer --threads"
    )]
    Iters {
        /// Ops to measure.
        iters: u64,
        /// How many threads there are.
        threads: u32,
    },
    /// Too few bytes for threads that write.
    #[error(
        "{threads} threads that write have no {size} bytes each in the {len} that they have together: give fewer \
         --threads, or a larger --span"
    )]
    Parts {
        /// How many threads there are.
        threads: u32,
        /// The largest size.
        size: u64,
        /// The bytes that they have together.
        len: u64,
    },
    /// perftest's queue pairs.
    #[error(
        "there are no queue pairs here: --threads says how many issue ops, --depth how many ops each has under way"
    )]
    QueuePairs,
    /// A size that such an op cannot have.
    #[error("an op of {size} bytes: {op} has 1 to {most} bytes; give another --size")]
    Size {
        /// The op.
        op: &'static str,
        /// The size.
        size: u64,
        /// The largest.
        most: u64,
    },
    /// Both directions of what has one.
    #[error("--both is for READs and WRITEs alone: leave it out")]
    Both,
    /// The size of an atomic.
    #[error("an atomic has 8 bytes: leave out --size and --all")]
    AtomicSize,
    /// A list that is too long.
    #[error(
        "{given} values of --{name}, and a list has at most {LIST_MAX}: give fewer, or run it several times"
    )]
    List {
        /// The option.
        name: &'static str,
        /// How many there are.
        given: usize,
    },
    /// Fewer bytes than one op has.
    #[error("--span {span} is less than an op of {size} bytes: give a larger one")]
    Span {
        /// The span.
        span: u64,
        /// The largest size.
        size: u64,
    },
}

/// The algorithm of congestion control, as people type it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cc {
    algorithm: Algorithm,
    /// Ops of a window that stays as it is.
    window: Option<f64>,
}

impl FromStr for Cc {
    type Err = ArgsError;

    fn from_str(text: &str) -> Result<Self, ArgsError> {
        let no_cc = || ArgsError::Cc { text: text.to_owned() };
        let (name, window) = match text.split_once('=') {
            Some((name, window)) => (name, Some(window.parse().ok().ok_or_else(no_cc)?)),
            None => (text, None),
        };
        let algorithm = Algorithm::ALL.into_iter().find(|it| it.name() == name);
        let algorithm = algorithm.ok_or_else(no_cc)?;
        let is_right = match (algorithm, window) {
            (Algorithm::Fixed, Some(window)) => (1.0..=CWND_MAX).contains(&window),
            (Algorithm::Fixed, None) => false,
            (_, window) => window.is_none(),
        };
        if is_right { Ok(Self { algorithm, window }) } else { Err(no_cc()) }
    }
}

impl fmt::Display for Cc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name())?;
        self.window.map_or(Ok(()), |it| write!(f, "={it}"))
    }
}

impl Cc {
    /// Sets it in the settings of an executor.
    pub(crate) fn set(self, settings: &mut CcConfigBuilder) {
        settings.algorithm = self.algorithm;
        if let Some(window) = self.window {
            settings.cwnd_initial = window;
        }
    }
}

/// A load of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Ops a second.
    Ops(f64),
    /// Bits of payload a second.
    Bits(f64),
    /// A share of what a closed loop gets through.
    Share(f64),
}

impl FromStr for Load {
    type Err = ArgsError;

    fn from_str(text: &str) -> Result<Self, ArgsError> {
        let is_of_number = |it: char| it.is_ascii_digit() || it == '.';
        let number = text.trim_end_matches(|it| !is_of_number(it));
        let no_rate = || ArgsError::Rate { text: text.to_owned() };
        let value: Option<f64> = number.parse().ok();
        let is_rate = |it: &f64| *it >= RATE_MIN && it.is_finite();
        let value = value.filter(is_rate).ok_or_else(no_rate)?;
        match text[number.len()..].to_ascii_lowercase().as_str() {
            "" => Ok(Self::Ops(value)),
            "k" => Ok(Self::Ops(value * 1e3)),
            "m" => Ok(Self::Ops(value * 1e6)),
            "%" => Ok(Self::Share(value / 100.0)),
            "kbit" => Ok(Self::Bits(value * 1e3)),
            "mbit" => Ok(Self::Bits(value * 1e6)),
            "gbit" => Ok(Self::Bits(value * 1e9)),
            _ => Err(no_rate()),
        }
    }
}

impl Load {
    /// Ops of `size` bytes a second, where a closed loop does `peak`.
    pub(crate) fn per_second(self, size: u64, peak: f64) -> Result<f64, ArgsError> {
        let ops = match self {
            Self::Ops(ops) => ops,
            Self::Bits(bits) => bits / 8.0 / size as f64,
            Self::Share(share) => share * peak,
        };
        if ops > RATE_MAX { Err(ArgsError::RateTooHigh { ops, size }) } else { Ok(ops) }
    }
}

/// Percent of each op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ratio(Vec<(LoadOp, u32)>);

impl FromStr for Ratio {
    type Err = ArgsError;

    fn from_str(text: &str) -> Result<Self, ArgsError> {
        let no_ratio = || ArgsError::Ratio { text: text.to_owned() };
        let mut ops: Vec<(LoadOp, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, percent) = part.split_once('=').ok_or_else(no_ratio)?;
            let op = match name.trim() {
                "read" => LoadOp::Read,
                "write" => LoadOp::Write,
                "compare-swap" => LoadOp::CompareSwap,
                "fetch-add" => LoadOp::FetchAdd,
                _ => return Err(no_ratio()),
            };
            let percent = percent.trim().trim_end_matches('%').parse().ok().ok_or_else(no_ratio)?;
            if !(1..=100).contains(&percent) || ops.iter().any(|(other, _)| *other == op) {
                return Err(no_ratio());
            }
            ops.push((op, percent));
        }
        let sum: u32 = ops.iter().map(|(_, percent)| percent).sum();
        if sum == 100 { Ok(Self(ops)) } else { Err(no_ratio()) }
    }
}

impl Ratio {
    /// The ops with their weights.
    pub(crate) fn mix(&self) -> Mix {
        Mix::weighted(self.0.iter().copied())
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.iter().map(|(op, percent)| format!("{}={percent}", op.name()));
        f.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}

fn seconds(text: &str) -> Result<Duration, ArgsError> {
    let time = time(text).filter(|it| !it.is_zero() && *it <= Duration::from_secs(1 << 30));
    time.ok_or_else(|| ArgsError::Seconds { text: text.to_owned() })
}

fn timeout(text: &str) -> Result<Duration, ArgsError> {
    // A part of it is how long an op may wait to enter service.
    let time = time(text).filter(|it| (3 * TIMEOUT_MIN..=TIMEOUT_MAX).contains(it));
    time.ok_or_else(|| ArgsError::Timeout { text: text.to_owned() })
}

/// Reads a time: seconds, or what its unit says.
fn time(text: &str) -> Option<Duration> {
    let (number, per_second) = [("ms", 1e3), ("us", 1e6), ("s", 1.0), ("", 1.0)]
        .into_iter()
        .find_map(|(unit, per_second)| Some((text.strip_suffix(unit)?, per_second)))?;
    let seconds = number.parse::<f64>().ok()? / per_second;
    Duration::try_from_secs_f64(seconds).ok()
}

fn limit(text: &str) -> Result<f64, ArgsError> {
    let limit = text.parse().ok().filter(|it: &f64| *it > 0.0 && it.is_finite());
    limit.ok_or_else(|| ArgsError::Limit { text: text.to_owned() })
}

fn no_queue_pairs(_: &str) -> Result<String, ArgsError> {
    Err(ArgsError::QueuePairs)
}

/// Whether a command asks for latency or for bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// For latency.
    Latency,
    /// For bandwidth, and the rate of ops.
    Bandwidth,
    /// For both, of several types of op.
    Mixed,
}

impl AtomicArgs {
    /// The op that was asked for.
    pub(crate) const fn op(&self) -> LoadOp {
        match self.atomic {
            Atomic::CompareSwap => LoadOp::CompareSwap,
            Atomic::FetchAdd => LoadOp::FetchAdd,
        }
    }
}

impl LoadArgs {
    /// The sizes to measure, for ops of this mix.
    pub(crate) fn sizes(&self, mix: &Mix) -> Result<Vec<u64>, ArgsError> {
        let given = !self.size.is_empty() || self.all;
        if mix.ops().all(LoadOp::is_atomic) {
            return if given { Err(ArgsError::AtomicSize) } else { Ok(vec![8]) };
        }
        let is_large = |op| matches!(op, LoadOp::Read | LoadOp::Write);
        let small = mix.ops().find(|&op| !is_large(op));
        let most = if small.is_some() { OP_SIZE_MAX.into() } else { SIZE_MAX };
        let sizes: Vec<u64> = match (self.all, &*self.size) {
            (true, _) => {
                [1].into_iter().chain((6..=22).map(|it| 1 << it)).filter(|&it| it <= most).collect()
            }
            (false, []) => vec![64],
            (false, sizes) => sizes.iter().map(|it| it.0).collect(),
        };
        within_list("size", &sizes)?;
        let op = match small {
            Some(op) if op.is_atomic() => "an op of a mix with atomics",
            small => small.or_else(|| mix.ops().next()).map_or("", LoadOp::name),
        };
        match sizes.iter().find(|&&size| size > most) {
            Some(&size) => Err(ArgsError::Size { op, size, most }),
            None => Ok(sizes),
        }
    }

    /// Whether rates can be told apart, as far as that is known before anything is measured.
    pub(crate) fn check_rates(&self, sizes: &[u64]) -> Result<(), ArgsError> {
        let mut all = self.rate.iter().flat_map(|rate| sizes.iter().map(|&size| (*rate, size)));
        all.try_for_each(|(rate, size)| rate.per_second(size, 0.0).map(drop))
    }

    /// How many ops are under way at once.
    pub(crate) fn depths(&self, asks: Asks) -> Result<Vec<u32>, ArgsError> {
        within_list("depth", &self.depth)?;
        within_list("rate", &self.rate)?;
        if !self.depth.is_empty() {
            return Ok(self.depth.clone());
        }
        Ok(vec![match (asks, &*self.rate) {
            (_, [_, ..]) => 256,
            (Asks::Latency, []) => 1,
            (Asks::Bandwidth | Asks::Mixed, []) => 32,
        }])
    }

    /// The congestion control of ops of `size` bytes, if something else was asked for than what
    /// they have anyway.
    pub(crate) fn cc(&self, size: u64) -> Option<Cc> {
        self.cc.filter(|_| size > OP_SIZE_MAX.into())
    }

    /// The command slots that a load needs, all threads and sizes together.
    pub(crate) fn slots(&self, sizes: &[u64], depths: &[u32]) -> Result<u32, ArgsError> {
        let is_small = sizes.iter().any(|&it| it <= OP_SIZE_MAX.into());
        if self.cc.is_some() && sizes.iter().all(|&it| it <= OP_SIZE_MAX.into()) {
            return Err(ArgsError::CcOfSmall);
        }
        let threads = self.threads;
        if let Some(iters) = self.iters.filter(|&it| it < threads.into()) {
            return Err(ArgsError::Iters { iters, threads });
        }
        let depth = depths.iter().copied().max().filter(|_| is_small).unwrap_or(1);
        let slots = threads.saturating_mul(depth);
        if slots > SLOTS_MAX {
            return Err(ArgsError::Slots { threads, depth });
        }
        // Beside those of executors, and of whoever verifies.
        Ok(slots + executor_slots(threads) + u32::from(VERIFY_DEPTH))
    }

    /// How much is measured of ops of `size` bytes.
    pub(crate) fn amount(&self, asks: Asks, size: u64) -> Amount {
        let is_short = asks == Asks::Latency && size <= OP_SIZE_MAX.into() && self.rate.is_empty();
        let extent = match (self.iters, self.duration) {
            (Some(iters), _) => Extent::Ops(iters),
            (None, Some(time)) => Extent::Time(time),
            (None, None) if is_short => Extent::Ops(100_000),
            (None, None) => Extent::Time(Duration::from_secs(2)),
        };
        let (tenth, rounds) = match extent {
            Extent::Ops(count) => (Extent::Ops(count / 10), self.rounds.min(count)),
            Extent::Time(time) => (Extent::Time(time / 10), self.rounds),
        };
        Amount { warm_up: self.warm_up.map_or(tenth, Extent::Ops), extent, rounds }
    }

    /// The class of service of ops of `size` bytes.
    pub(crate) fn class(&self, size: u64) -> ClassOfService {
        match self.class {
            Some(Class::Latency) => ClassOfService::Latency,
            Some(Class::Throughput) => ClassOfService::Throughput,
            None if size <= OP_SIZE_MAX.into() => ClassOfService::Latency,
            None => ClassOfService::Throughput,
        }
    }

    /// The bytes that ops of these sizes are spread over.
    pub(crate) fn span(&self, sizes: &[u64]) -> Result<u64, ArgsError> {
        let size = *sizes.iter().max().expect("there is one");
        let is_large = size > OP_SIZE_MAX.into();
        let span = self.span.map_or(if is_large { 64 << 20 } else { 64 << 10 }, |it| it.0);
        if span < size { Err(ArgsError::Span { span, size }) } else { Ok(span) }
    }

    /// Ops that each thread has under way at once, of as many as were asked for: never more than
    /// its part of all that are measured.
    pub(crate) fn depth(&self, asked: u32) -> u32 {
        let part = self.iters.map_or(u64::MAX, |it| it / u64::from(self.threads));
        asked.min(u32::try_from(part).unwrap_or(u32::MAX))
    }

    /// Threads that spin: those that issue ops, and of several the one that turns the engine.
    pub(crate) const fn spinning(&self) -> usize {
        if self.threads == 1 { 1 } else { self.threads as usize + 1 }
    }

    /// Whether threads offer their cores to others, of which the program may use so many.
    pub(crate) fn yields(&self, cores: usize) -> bool {
        let too_few = cores < self.spinning().max(2);
        self.idle.map_or(too_few, |it| it == Idle::Yield)
    }

    /// Whether they do only because there are too few cores, of several threads.
    pub(crate) fn lacks_cores(&self, cores: usize) -> bool {
        self.idle.is_none() && self.threads > 1 && self.yields(cores)
    }
}

/// The command slots of the executors of so many threads, all together: as many as are of use on a
/// fast link, and at least 16 each.
pub(crate) fn executor_slots(threads: u32) -> u32 {
    threads.saturating_mul(16).max(256)
}

fn within_list<T>(name: &'static str, list: &[T]) -> Result<(), ArgsError> {
    let given = list.len();
    if given > LIST_MAX { Err(ArgsError::List { name, given }) } else { Ok(()) }
}

/// How much is measured in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) warm_up: Extent,
    pub(crate) extent: Extent,
    pub(crate) rounds: u64,
}
