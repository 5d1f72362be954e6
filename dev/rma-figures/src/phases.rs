//! `rma-figures phases`: where the time of an op goes, phase by phase, on both hosts.
//!
//! Two engines over AF_XDP, each on a core of its own. Between engine and device stands a backend
//! that only looks at the clock (`probe`), and in place of the AES-GCM provider one that does the
//! same around each call: the engine that is measured is the one that is shipped, and it has no
//! hooks. Each look at the clock costs some 10 ns, which the phases have in them; so what all of
//! them make together is more than an op takes without.
//!
//! A phase is told apart from what happens within it: receiving, for example, has neither the
//! AES-GCM calls in it nor what a service does with a frame.

mod hosts;
mod probe;

use clap::{Args, ValueEnum};
use rma_bench::{
    aead, error::PairError, interrupt::Interrupt, line, machine::Machine, rates::Rates,
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::OpType;
use serde::Serialize;

use self::{
    hosts::{Hosts, Ops, Round},
    probe::Phase,
};

/// The arguments of `phases`.
#[derive(Args, Clone, Copy, Debug)]
pub struct PhasesArgs {
    /// Type of op to measure.
    #[arg(long, value_enum, default_value = "read")]
    pub op: Op,
    /// Bytes of each op: 1 to 4096. One full frame carries 3264 at an MTU of 3400.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub size: u32,
    /// Ops under way at once. A single op is of the latency class, several are of the throughput
    /// class.
    #[arg(short = 't', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,
    /// Ops in each round.
    #[arg(short = 'n', long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Rounds; each row is the median of them.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// MTU of the veth pair, in bytes of IP packet.
    #[arg(long, default_value_t = 3400, value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    pub mtu: u32,
    /// Print one line of JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// A type of op, as people type it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// READs: bytes come to the initiator.
    Read,
    /// WRITEs: bytes go to the responder.
    Write,
}

/// A row: what one phase takes for an op on each side.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The phase, in words.
    pub phase: &'static str,
    /// Nanoseconds an op of the initiator's thread.
    pub initiator_ns: f64,
    /// Nanoseconds an op of the responder's thread.
    pub responder_ns: f64,
}

/// All of it, and its conditions.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    machine: Machine,
    op: String,
    size: u32,
    depth: u16,
    mtu: u32,
    mode: String,
    aead: String,
    /// Nanoseconds an op, with all the looks at the clock.
    pub op_ns: f64,
    /// The phases that they consist of.
    pub phases: Vec<Row>,
    initiator_turns_per_op: f64,
    responder_turns_per_op: f64,
    initiator_doorbells_per_op: f64,
    responder_doorbells_per_op: f64,
}

/// Measures and prints.
///
/// # Errors
/// As [`measure`].
pub fn run(args: &PhasesArgs, interrupt: &Interrupt) -> Result<(), PairError> {
    let report = measure(args, interrupt)?;
    if args.json {
        line!("{}", serde_json::to_string(&report).expect("plain data"));
    } else {
        show(&report, args);
    }
    Ok(())
}

/// Measures.
///
/// # Errors
/// If something could not be set up; if an op fails; on Ctrl-C.
pub fn measure(args: &PhasesArgs, interrupt: &Interrupt) -> Result<Report, PairError> {
    let &PhasesArgs { op, size, depth, count, rounds, mtu, .. } = args;
    let op_type = if op == Op::Read { OpType::Read } else { OpType::Write };
    let lab = Lab::new(&LabConfig { mtu, ..LabConfig::default() })?;
    let mut hosts = Hosts::open(&lab, mtu)?;
    let mut measured = Vec::new();
    // The first warms up.
    for round in 0..=rounds {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        let of_round = hosts.round(Ops { op_type, size, depth }, count)?;
        if round > 0 {
            measured.push(of_round);
        }
    }
    let per_op = |of: &dyn Fn(&Round) -> f64| {
        let rates: Rates = measured.iter().map(|round| of(round) / count as f64).collect();
        rates.median()
    };
    let rows = Phase::ALL.map(|phase| {
        let [initiator_ns, responder_ns] =
            [0, 1].map(|side| per_op(&|round| round.spent[side].nanos(phase)));
        Row { phase: phase.words(), initiator_ns, responder_ns }
    });
    let [initiator_turns_per_op, responder_turns_per_op] =
        [0, 1].map(|side| per_op(&|round| round.spent[side].turns as f64));
    let [initiator_doorbells_per_op, responder_doorbells_per_op] =
        [0, 1].map(|side| per_op(&|round| round.doorbells[side] as f64));
    Ok(Report {
        machine: Machine::here(),
        op: op_type.to_string(),
        size,
        depth,
        mtu,
        mode: hosts.mode(),
        aead: aead::words(),
        op_ns: per_op(&|round| round.nanos as f64),
        phases: rows.into(),
        initiator_turns_per_op,
        responder_turns_per_op,
        initiator_doorbells_per_op,
        responder_doorbells_per_op,
    })
}

fn show(report: &Report, args: &PhasesArgs) {
    let Report { op, size, depth, mtu, mode, aead, op_ns, phases, .. } = report;
    let PhasesArgs { count, rounds, .. } = args;
    line!(
        "{op}s of {size} B, {depth} under way: {op_ns:.0} ns an op with all the looks at the clock; medians of {rounds} rounds of \
         {count}; veth MTU {mtu}, {mode}, {aead}, one pinned core each\n"
    );
    line!("| ns per op | initiator | responder |\n|---|---|---|");
    for Row { phase, initiator_ns, responder_ns } in phases {
        line!("| {phase} | {initiator_ns:.0} | {responder_ns:.0} |");
    }
    line!(
        "| turns that did something | {:.2} | {:.2} |",
        report.initiator_turns_per_op,
        report.responder_turns_per_op
    );
    line!(
        "| doorbells | {:.2} | {:.2} |",
        report.initiator_doorbells_per_op,
        report.responder_doorbells_per_op
    );
}
