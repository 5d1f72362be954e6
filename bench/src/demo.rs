//! `rma-bench demo`: two hosts on this machine, verified reads, and their latency beside the raw floor.

use std::io::{IsTerminal, Write, stderr};

use clap::Args;
use serde::Serialize;

use crate::{
    interrupt::Interrupt,
    lab::{Lab, LabConfig, LabError},
    latency::{Summary, Table},
    line,
    machine::{Machine, mode_and_mtu},
    measure::{Amount, Compared, Floor, WARM, compare},
    pair::{Pair, PairConfig, PairError, Place, Verified, cores},
};
use rma_xdp::DeviceInfo;

/// What the demo is run with.
#[derive(Args, Clone, Copy, Debug)]
pub struct DemoArgs {
    /// Print one line of JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// MTU of the veth pair, in bytes of IP packet.
    #[arg(long, default_value_t = 3400, conflicts_with = "udp", value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    pub mtu: u32,
    /// How many random reads to verify.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub verify: u64,
    /// How many reads of each size, and raw exchanges, to measure.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Seed of the region's pattern and of the choice of reads.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Talk over IPv6.
    #[arg(long, conflicts_with = "udp")]
    pub ipv6: bool,
    /// The UDP port of both hosts.
    #[arg(long, default_value_t = rma_xdp::DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Use kernel UDP sockets on loopback, also where AF_XDP would work.
    #[arg(long)]
    pub udp: bool,
}

/// Bytes of the served region.
const REGION_LEN: usize = 64 << 20;

/// What the demo has to say in one line.
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
    floor_lost: u64,
}

/// Runs the demo.
///
/// # Errors
/// What could not be set up, and why; a wrong byte; op after op that fails; Ctrl-C. Everything that was made
/// has been removed.
pub fn run(args: &DemoArgs, interrupt: &Interrupt) -> Result<(), PairError> {
    let say = Say { json: args.json };
    say.line("1RMA demo: one-sided, encrypted reads between two hosts\n");
    if args.udp {
        say.line("  hosts     on loopback, over kernel UDP sockets, as asked for with --udp");
        return over_loopback(args, interrupt, say);
    }
    match Lab::new(&LabConfig { mtu: args.mtu, ..LabConfig::default() }) {
        Ok(lab) => {
            say.line(&format!(
                "  hosts     two network namespaces joined by a veth pair, MTU {}",
                args.mtu
            ));
            over_xdp(&lab, args, interrupt, say)
        }
        Err(error @ (LabError::NotRoot { .. } | LabError::MissingCapability { .. })) => {
            say.line(&format!("  note      {error}"));
            say.line("  hosts     on loopback, over kernel UDP sockets, which need no privileges");
            over_loopback(args, interrupt, say)
        }
        Err(error) => Err(error.into()),
    }
}

fn over_xdp(lab: &Lab, args: &DemoArgs, interrupt: &Interrupt, say: Say) -> Result<(), PairError> {
    let mut pair = open(Place::Lab(lab), args)?;
    let verified = introduce_and_verify(&mut pair, args, interrupt, say)?;
    let amount = Amount { count: args.count, rounds: 10.min(args.count) };
    let mut measure = |what, floor| compare(&mut pair, Some(lab), what, floor, amount, interrupt);
    let small = measure((64, WARM), Floor::Small)?;
    let large = measure((4096, WARM), Floor::SameFrames)?;
    let small_cold = measure((64, REGION_LEN as u64), Floor::None)?;
    let large_cold = measure((4096, REGION_LEN as u64), Floor::None)?;
    let report = Report {
        latencies: vec![
            small.read.summary("READ 64 B"),
            small.floor.summary("raw AF_XDP, 64 B frames both ways"),
            large.read.summary("READ 4 KiB"),
            large.floor.summary("raw AF_XDP, the same frames back"),
            small_cold.read.summary("READ 64 B, all over 64 MiB"),
            large_cold.read.summary("READ 4 KiB, all over 64 MiB"),
        ],
        read64_over_floor: Some(small.ratio(0.5)),
        read64_p99_over_floor: Some(small.ratio(0.99)),
        read4096_over_floor: Some(large.ratio(0.5)),
        floor_lost: small.floor_lost + large.floor_lost,
        ..report(&pair, args, verified)
    };
    say.results(&report, &|| {
        let ratio = |what, compared: &Compared| {
            line!(
                "  {what} is {:.2} x its raw floor at p50, {:.2} x at p99",
                compared.ratio(0.5),
                compared.ratio(0.99)
            );
        };
        ratio("READ 64 B ", &small);
        ratio("READ 4 KiB", &large);
        line!("  Floor and reads take turns. Memory is warm, but for the last two rows, which wait for it too.");
    });
    Ok(())
}

fn over_loopback(args: &DemoArgs, interrupt: &Interrupt, say: Say) -> Result<(), PairError> {
    let mut pair = open(Place::Loopback, args)?;
    let verified = introduce_and_verify(&mut pair, args, interrupt, say)?;
    let amount = Amount { count: args.count, rounds: 1 };
    let mut measure = |size| compare(&mut pair, None, (size, WARM), Floor::None, amount, interrupt);
    let (small, large) = (measure(64)?, measure(4096)?);
    let report = Report {
        latencies: vec![small.read.summary("READ 64 B"), large.read.summary("READ 4 KiB")],
        ..report(&pair, args, verified)
    };
    say.results(&report, &|| {
        line!(
            "  Not shown, as it needs root: AF_XDP, the steering program, and the raw floor that"
        );
        line!("  latencies are compared with. Run: sudo -E env PATH=$PATH cargo xtask demo");
    });
    Ok(())
}

fn open(place: Place<'_>, args: &DemoArgs) -> Result<Pair, PairError> {
    let config =
        PairConfig { region_len: REGION_LEN, seed: args.seed, port: args.port, ipv6: args.ipv6 };
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
    say.line("  crypto    AES-128-GCM on every frame, a key of its own for every pair of hosts\n");
    let progress = Progress::new(say, args.verify);
    let verified =
        pair.run(|client| client.verify(args.verify, interrupt, |done| progress.show(done)))?;
    progress.end();
    say.line(&format!(
        "  verified  {} reads of 1 to 4096 bytes at random places of {} MiB: {:.1} MB, every byte right{}\n",
        verified.reads,
        REGION_LEN >> 20,
        verified.bytes as f64 / 1e6,
        match verified.retried {
            0 => String::new(),
            retried => format!("; {retried} ops failed and were repeated"),
        }
    ));
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
        encryption: "AES-128-GCM",
        region_bytes: REGION_LEN,
        seed: args.seed,
        verified,
        latencies: Vec::new(),
        read64_over_floor: None,
        read64_p99_over_floor: None,
        read4096_over_floor: None,
        floor_lost: 0,
    }
}

fn pinning() -> String {
    match cores() {
        (Some(client), Some(server)) => format!("client on core {client}, server on core {server}"),
        _ => "not pinned: this process may use one core only, so figures show the scheduler".into(),
    }
}

/// Where text goes: nowhere, if a machine reads.
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

    fn results(self, report: &Report, remarks: &dyn Fn()) {
        if self.json {
            line!("{}", serde_json::to_string(report).expect("plain data"));
        } else {
            line!("{}", Table(&report.latencies));
            remarks();
        }
    }
}

/// Shows on a terminal how far a run has come.
#[derive(Debug)]
struct Progress {
    shown: bool,
    count: u64,
}

impl Progress {
    fn new(say: Say, count: u64) -> Self {
        Self { shown: !say.json && stderr().is_terminal(), count }
    }

    fn show(&self, done: &Verified) {
        if self.shown {
            let share = done.reads * 30 / self.count;
            let bar: String = (0..30).map(|at| if at < share { '#' } else { '.' }).collect();
            eprint!("\r  verifying [{bar}] {} of {}", done.reads, self.count);
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
