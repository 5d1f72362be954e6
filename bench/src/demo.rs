//! `rma-bench demo`: two hosts on this machine, verified reads and writes, their latency beside the
//! raw floor, and key rotations as a reader sees them.

use std::io::{IsTerminal, Write, stderr};

use clap::Args;
use rma_lab::{Lab, LabConfig, LabError};
use serde::Serialize;

use crate::{
    aead,
    amount::Amount,
    client::Verified,
    error::PairError,
    floor::Link,
    interrupt::Interrupt,
    latency::{Summary, Table},
    line,
    load::LoadOp,
    machine::{Machine, mode_and_mtu},
    measure::{Floor, Links, What, in_turns},
    mode::ModeArgs,
    pair::{Pair, PairConfig, Place, cores},
    rotation::{self, By, NextGrant, Rotations, beside_reads},
};
use rma_xdp::{OpType, device::DeviceInfo, ops::Moves};

/// The arguments of `demo`.
#[derive(Args, Clone, Copy, Debug)]
pub struct DemoArgs {
    /// Print one line of JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// MTU of the veth pair, in bytes of IP packet.
    #[arg(long, default_value_t = 3400, conflicts_with = "udp", value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    pub mtu: u32,
    /// Random reads to verify, and as many writes.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub verify: u64,
    /// Ops of each type and size to measure, and raw exchanges.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Key rotations in each of four ways.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub rotations: u64,
    /// Seed of the region's pattern and of the choice of reads.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Use IPv6.
    #[arg(long, conflicts_with = "udp")]
    pub ipv6: bool,
    /// UDP port of both hosts.
    #[arg(long, default_value_t = rma_xdp::config::DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Use kernel UDP sockets on loopback, even if AF_XDP would work.
    #[arg(long)]
    pub udp: bool,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Bytes of the served region.
const REGION_LEN: usize = 64 << 20;

/// The demo's report, in one line.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    machine: Machine,
    device: &'static str,
    mode: String,
    mtu: u32,
    fallbacks: Vec<String>,
    pinning: String,
    engine: &'static str,
    encryption: &'static str,
    region_bytes: usize,
    seed: u64,
    verified: Verified,
    latencies: Vec<Summary>,
    read64_over_floor: Option<f64>,
    read64_p99_over_floor: Option<f64>,
    read4096_over_floor: Option<f64>,
    write64_over_read64: f64,
    write64_over_floor: Option<f64>,
    write4096_over_floor: Option<f64>,
    floor_lost: u64,
    rotations: Vec<RotationReport>,
}

/// The demo's report of rotations of one kind. Times are from the issue of the first op that failed
/// to the issue of the first that then succeeded; READ 64 B p50 is that of READs in turn with the
/// rotations.
#[derive(Debug, Serialize)]
struct RotationReport {
    by: By,
    next_grant: NextGrant,
    rotations: u64,
    read64_p50_us: f64,
    unavailable_p50_us: f64,
    unavailable_max_us: f64,
    unavailable_p50_over_read64: f64,
    unavailable_max_over_read64: f64,
    reader_p50_us: f64,
    failed_ops: u64,
    failed_otherwise: u64,
    other_region_ops: u64,
    other_region_failures: u64,
    /// The rotation whose unavailability is the median.
    timeline: Vec<rotation::Op>,
}

impl RotationReport {
    fn new(rotations: &Rotations, read64_us: f64) -> Self {
        let (p50, max) = (rotations.gaps.quantile_us(0.5), rotations.gaps.max_us());
        Self {
            by: rotations.by,
            next_grant: rotations.next_grant,
            rotations: rotations.count(),
            read64_p50_us: read64_us,
            unavailable_p50_us: p50,
            unavailable_max_us: max,
            unavailable_p50_over_read64: p50 / read64_us,
            unavailable_max_over_read64: max / read64_us,
            reader_p50_us: rotations.reads.quantile_us(0.5),
            failed_ops: rotations.failed,
            failed_otherwise: rotations.failed_otherwise,
            other_region_ops: rotations.other_ops,
            other_region_failures: rotations.other_failed,
            timeline: rotations.ops(),
        }
    }
}

/// Runs the demo.
///
/// # Errors
/// If something could not be set up; on a wrong byte; if op after op fails; on Ctrl-C. Everything
/// that was made has been removed.
pub fn run(args: &DemoArgs, interrupt: &Interrupt) -> Result<(), PairError> {
    args.mode.ask_for();
    let say = Say { json: args.json };
    say.line("1RMA demo: one-sided, encrypted reads and writes between two hosts\n");
    if args.udp {
        say.line("  hosts     on loopback, over kernel UDP sockets, as asked for with --udp");
        return over_loopback(args, interrupt, say);
    }
    let lab_config = LabConfig { mtu: args.mtu, ..LabConfig::default() };
    match Lab::new(&lab_config) {
        Ok(lab) => {
            say.line(&format!(
                "  hosts     two network namespaces joined by a veth pair, MTU {}",
                args.mtu
            ));
            over_xdp((&lab, &lab_config), args, interrupt, say)
        }
        Err(error @ (LabError::NotRoot { .. } | LabError::MissingCapability { .. })) => {
            say.line(&format!("  note      {error}"));
            say.line("  hosts     on loopback, over kernel UDP sockets, which need no privileges");
            over_loopback(args, interrupt, say)
        }
        Err(error) => Err(error.into()),
    }
}

fn over_xdp(
    (lab, lab_config): (&Lab, &LabConfig),
    args: &DemoArgs,
    interrupt: &Interrupt,
    say: Say,
) -> Result<(), PairError> {
    let place = Place::Lab(lab);
    let mut pair = open(place, args)?;
    let verified = introduce_and_verify(&mut pair, args, interrupt, say)?;
    let amount = Amount { count: args.count, rounds: 10.min(args.count) };
    let (read, write) = (LoadOp::Read, LoadOp::Write);
    let everywhere = |size| What::Ops { op: read, size, span: REGION_LEN as u64 };
    let small = [
        What::warm(read, 64),
        What::Raw(Floor::TwoSmall),
        What::warm(write, 64),
        What::Raw(Floor::FourSmall),
    ];
    let large = [
        What::warm(read, 4096),
        What::Raw(Floor::FramesOf(read, 4096)),
        What::warm(write, 4096),
        What::Raw(Floor::FramesOf(write, 4096)),
    ];
    let mut link = Link::open(lab_config, args.port, args.ipv6)?;
    let small = in_turns(&mut pair, Links::raw(&mut link), small, amount, interrupt)?;
    let large = in_turns(&mut pair, Links::raw(&mut link), large, amount, interrupt)?;
    let cold = in_turns(
        &mut pair,
        Links::default(),
        [everywhere(64), everywhere(4096)],
        amount,
        interrupt,
    )?;
    let rotations = rotate(&mut pair, place, args, interrupt)?;
    let names = [
        "READ 64 B",
        "raw AF_XDP, two frames of 64 B",
        "WRITE 64 B",
        "raw AF_XDP, four frames of 64 B",
        "READ 4 KiB",
        "raw AF_XDP, the frames of such a READ",
        "WRITE 4 KiB",
        "raw AF_XDP, the frames of such a WRITE",
        "READ 64 B, all over 64 MiB",
        "READ 4 KiB, all over 64 MiB",
    ];
    let all = small.latencies.iter().chain(&large.latencies).chain(&cold.latencies);
    let report = Report {
        latencies: names.iter().zip(all).map(|(name, it)| it.summary(name)).collect(),
        read64_over_floor: Some(small.ratio(0, 1, 0.5)),
        read64_p99_over_floor: Some(small.ratio(0, 1, 0.99)),
        read4096_over_floor: Some(large.ratio(0, 1, 0.5)),
        write64_over_read64: small.ratio(2, 0, 0.5),
        write64_over_floor: Some(small.ratio(2, 3, 0.5)),
        write4096_over_floor: Some(large.ratio(2, 3, 0.5)),
        floor_lost: small.lost + large.lost,
        ..report(&pair, args, verified)
    };
    say.results(report, &rotations, &|| {
        for (what, turns, op) in [
            ("READ 64 B  ", &small, 0),
            ("READ 4 KiB ", &large, 0),
            ("WRITE 64 B ", &small, 2),
            ("WRITE 4 KiB", &large, 2),
        ] {
            line!(
                "  {what} is {:.2} x its raw floor at p50, {:.2} x at p99",
                turns.ratio(op, op + 1, 0.5),
                turns.ratio(op, op + 1, 0.99)
            );
        }
        line!(
            "  WRITE is {:.2} x READ for 64 B, {:.2} x for 4 KiB: four hops, each sent when the last has come",
            small.ratio(2, 0, 0.5),
            large.ratio(2, 0, 0.5)
        );
        line!(
            "  Floor and ops take turns. Memory is warm, but for the last two rows, which wait for it too."
        );
    });
    Ok(())
}

fn over_loopback(args: &DemoArgs, interrupt: &Interrupt, say: Say) -> Result<(), PairError> {
    let mut pair = open(Place::Loopback, args)?;
    let verified = introduce_and_verify(&mut pair, args, interrupt, say)?;
    let amount = Amount { count: args.count, rounds: 10.min(args.count) };
    let (read, write) = (LoadOp::Read, LoadOp::Write);
    let whats = [(read, 64), (write, 64), (read, 4096), (write, 4096)];
    let whats = whats.map(|(op, size)| What::warm(op, size));
    let turns = in_turns(&mut pair, Links::default(), whats, amount, interrupt)?;
    let rotations = rotate(&mut pair, Place::Loopback, args, interrupt)?;
    let names = ["READ 64 B", "WRITE 64 B", "READ 4 KiB", "WRITE 4 KiB"];
    let all = names.iter().zip(&turns.latencies);
    let report = Report {
        latencies: all.map(|(name, it)| it.summary(name)).collect(),
        write64_over_read64: turns.ratio(1, 0, 0.5),
        ..report(&pair, args, verified)
    };
    say.results(report, &rotations, &|| {
        line!(
            "  Not shown, as it needs root: AF_XDP, the steering program, and the raw floor that"
        );
        line!("  latencies are compared with. Run: sudo -E env PATH=$PATH cargo xtask demo");
    });
    Ok(())
}

/// Rotates a key in each way, [`DemoArgs::rotations`] times, in turns with READs; their p50 in
/// microseconds as well.
fn rotate(
    pair: &mut Pair,
    place: Place<'_>,
    args: &DemoArgs,
    interrupt: &Interrupt,
) -> Result<(f64, Vec<Rotations>), PairError> {
    let kinds = [
        (By::Host, NextGrant::Beforehand),
        (By::RekeyOp, NextGrant::Beforehand),
        (By::Host, NextGrant::Fetched),
        (By::RekeyOp, NextGrant::Fetched),
    ];
    let amount = Amount { count: args.rotations, rounds: 10.min(args.rotations) };
    let amounts = (amount, args.count.div_ceil(amount.rounds));
    let (reads, rotations) = beside_reads(pair, place, &kinds, amounts, interrupt)?;
    Ok((reads.quantile_us(0.5), rotations))
}

/// The table of rotations, and one of them as it happened.
fn show_rotations(rotations: &[Rotations], read64_us: f64) {
    line!(
        "\n  A key is rotated while a reader probes its region, and another reader another region:\n"
    );
    line!(
        "  {:52}  {:>6}  {:>9} {:>8}  {:>9} {:>8}  {:>6}  other region",
        format!("unavailability in µs and in READs of {read64_us:.2} µs (p50)"),
        "count",
        "p50",
        "",
        "max",
        "",
        "failed"
    );
    for kind in rotations {
        let by = match kind.by {
            By::Host => "by the region's host",
            By::RekeyOp => "by the Rekey op",
        };
        let next_grant = match kind.next_grant {
            NextGrant::Beforehand => "next grant handed out before",
            NextGrant::Fetched => "next grant fetched over TCP",
        };
        let (p50, max) = (kind.gaps.quantile_us(0.5), kind.gaps.max_us());
        line!(
            "  {:52}  {:>6}  {p50:>9.2} {:>7.2}x  {max:>9.2} {:>7.1}x  {:>6}  {} of {} failed",
            format!("{by}, {next_grant}"),
            kind.count(),
            p50 / read64_us,
            max / read64_us,
            kind.failed,
            kind.other_failed,
            kind.other_ops,
        );
    }
    let otherwise: u64 = rotations.iter().map(|kind| kind.failed_otherwise).sum();
    if otherwise > 0 {
        line!("  {otherwise} of the failed ops ended with another status than {REFUSED}.");
    } else {
        line!("  All failed ops ended with {REFUSED}.");
    }
    for kind in rotations.iter().filter(|kind| kind.by == By::RekeyOp) {
        line!(
            "\n  One of these Rekey ops, {}. Ops from | or X on: = OK, x failed\n",
            match kind.next_grant {
                NextGrant::Beforehand => "next grant at hand",
                NextGrant::Fetched => "next grant fetched over TCP",
            }
        );
        line!("{}", kind.timeline().trim_end());
    }
}

/// The status of an op under an old key.
const REFUSED: rma_xdp::OpStatus = rma_xdp::OpStatus::RemoteAuthenticationFailure;

fn open(place: Place<'_>, args: &DemoArgs) -> Result<Pair, PairError> {
    let &DemoArgs { seed, port, ipv6, .. } = args;
    let config = PairConfig { region_len: REGION_LEN, seed, port, ipv6, ..PairConfig::default() };
    Pair::open(place, &config)
}

fn introduce_and_verify(
    pair: &mut Pair,
    args: &DemoArgs,
    interrupt: &Interrupt,
    say: Say,
) -> Result<Verified, PairError> {
    say.line(&format!("  device    {}", pair.device()));
    for fallback in pair.fallbacks() {
        say.line(&format!("  fallback  {fallback}"));
    }
    say.line(&format!("  engines   inline, {}", pinning()));
    say.line(&format!("  crypto    {}, a key of its own for every pair of hosts\n", aead::words()));
    let mut verified = Verified::default();
    for op_type in [OpType::Read, OpType::Write] {
        let progress = Progress::new(say, op_type, args.verify);
        let run = pair.run(|client| {
            client.verify(op_type, args.verify, interrupt, |done| progress.show(done))
        });
        let done = run?;
        progress.end();
        verified.reads += done.reads;
        verified.writes += done.writes;
        verified.bytes += done.bytes;
        verified.retried += done.retried;
        let compared = if op_type.shape().moves == Moves::Out {
            verified.compared = pair.compare()?;
            ", then all of it compared"
        } else {
            ""
        };
        say.line(&format!(
            "  verified  {} {} of 1 to 4096 bytes at random places of {} MiB: {:.1} MB{compared}, every byte right{}",
            done.reads + done.writes,
            if op_type.shape().moves == Moves::Out { "writes" } else { "reads" },
            REGION_LEN >> 20,
            done.bytes as f64 / 1e6,
            match done.retried {
                0 => String::new(),
                retried => format!("; {retried} ops failed and were repeated"),
            }
        ));
    }
    say.line("");
    Ok(verified)
}

fn report(pair: &Pair, args: &DemoArgs, verified: Verified) -> Report {
    let device = match pair.device() {
        DeviceInfo::Xdp(_) => "AF_XDP on veth",
        DeviceInfo::Udp(_) => "kernel UDP on loopback",
        _ => "another device",
    };
    let (mode, mtu) = mode_and_mtu(pair.device());
    Report {
        machine: Machine::here(),
        device,
        mode,
        mtu,
        fallbacks: pair.fallbacks(),
        pinning: pinning(),
        engine: "inline",
        encryption: aead::CIPHER,
        region_bytes: REGION_LEN,
        seed: args.seed,
        verified,
        latencies: Vec::new(),
        read64_over_floor: None,
        read64_p99_over_floor: None,
        read4096_over_floor: None,
        write64_over_read64: 0.0,
        write64_over_floor: None,
        write4096_over_floor: None,
        floor_lost: 0,
        rotations: Vec::new(),
    }
}

fn pinning() -> String {
    match cores() {
        (Some(client), Some(server)) => format!("client on core {client}, server on core {server}"),
        _ => "not pinned: this process may use one core only, so figures show the scheduler".into(),
    }
}

/// The sink of text: nowhere, if a machine reads.
#[derive(Clone, Copy, Debug)]
struct Say {
    json: bool,
}

impl Say {
    fn line(self, text: &str) {
        if !self.json {
            line!("{text}");
        }
    }

    /// `rotations` come with the p50 of READ 64 B that they are compared with.
    fn results(
        self,
        mut report: Report,
        (read64_us, rotations): &(f64, Vec<Rotations>),
        remarks: &dyn Fn(),
    ) {
        report.rotations =
            rotations.iter().map(|kind| RotationReport::new(kind, *read64_us)).collect();
        if self.json {
            line!("{}", serde_json::to_string(&report).expect("plain data"));
        } else {
            line!("{}", Table(&report.latencies));
            remarks();
            show_rotations(rotations, *read64_us);
        }
    }
}

/// Shows on a terminal how far a run has come.
#[derive(Debug)]
struct Progress {
    shown: bool,
    what: OpType,
    count: u64,
}

impl Progress {
    fn new(say: Say, what: OpType, count: u64) -> Self {
        Self { shown: !say.json && stderr().is_terminal(), what, count }
    }

    fn show(&self, done: &Verified) {
        if self.shown {
            let ops = done.reads + done.writes;
            let share = ops * 30 / self.count;
            let bar: String = (0..30).map(|at| if at < share { '#' } else { '.' }).collect();
            eprint!("\r  verifying {}s [{bar}] {ops} of {}", self.what, self.count);
            // A terminal that cannot be written to loses its progress bar, nothing else.
            let _ = stderr().flush();
        }
    }

    fn end(&self) {
        if self.shown {
            eprint!("\r{:70}\r", "");
        }
    }
}
