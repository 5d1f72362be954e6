//! `rma-bench compare`: 1RMA beside what else carries bytes between two hosts, on this machine or
//! between two.
//!
//! Rules: on this machine each peer has two namespaces and a veth pair of its own, alike but for
//! what the kernel does best with: no XDP program for its sockets. Between two machines all share
//! an interface, and the table says what that means. Both sides spin, on a core each. The work is a
//! fetch: what is asked for is an offset and a length in 64 MiB, and the answer has those bytes.
//! Rounds take turns, figures are medians of the rounds, and what 1RMA is of another is the median
//! of the rounds' ratios. No peer is left out: who is not measured has a reason.

mod between;
mod lab;
mod list;
mod round;
mod table;
mod tools;

use clap::{Args, builder::PossibleValuesParser};

use crate::{
    aead,
    amount::Amount,
    compare::fetch::Memory,
    error::PairError,
    interrupt::Interrupt,
    keys::ClientKeyArgs,
    machine::Machine,
    mode::ModeArgs,
    pair::cores,
    rates::tell_again,
    serve::{HostArgs, ServeError},
};
use lab::Stage;
use list::{How, PEERS, Peer};
use round::{LONGS, MEMORY, MTU, Round, SEED, Values};
use table::{Row, Start, Table, event};

/// The arguments of `compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Compare on this machine, in network namespaces. Needs root.
    #[arg(long, required_unless_present = "service", conflicts_with = "service")]
    lab: bool,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    keys: ClientKeyArgs,
    /// Less of everything: within a minute.
    #[arg(long)]
    quick: bool,
    /// Only these peers; several separated by commas. 1rma is what others are compared with.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(PEERS.map(|it| it.name)))]
    only: Vec<String>,
    /// Print lines of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Fetches under way at once where a rate is measured.
    #[arg(short = 't', long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: u16,
    /// Fetches of each peer, and as many under way at once. Default: 420000 with --lab, else
    /// 100000; 20000 with --quick.
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    iters: Option<u64>,
    /// Rounds that take turns. Default: 21 with --lab, else 5; 5 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Rounds that programs of others are measured in.
const TOOL_ROUNDS: u64 = 5;

/// Peers with the places that they run in, or the reasons why they do not, and their rounds.
struct Contest<S> {
    entries: Vec<Entry<S>>,
}

struct Entry<S> {
    peer: Peer,
    stage: Result<S, String>,
    measured_by: Option<String>,
    rounds: Vec<Values>,
}

impl CompareArgs {
    fn peers(&self) -> impl Iterator<Item = Peer> {
        let is_asked =
            |it: &Peer| self.only.is_empty() || self.only.iter().any(|name| name == it.name);
        PEERS.into_iter().filter(is_asked)
    }

    fn amount(&self) -> Amount {
        let (rounds, count) = match (self.quick, self.lab) {
            (true, _) => (5, 20_000),
            (false, false) => (5, 100_000),
            (false, true) => (21, 420_000),
        };
        let rounds = self.rounds.unwrap_or(rounds);
        Amount { rounds, count: self.iters.unwrap_or(count).max(rounds) }
    }

    fn start(&self, machine: Machine, links: String, notes: Vec<String>) -> Start {
        let amount = self.amount();
        Start {
            command: "compare",
            machine,
            links,
            mtu: MTU,
            aead: aead::words(),
            depth: self.depth,
            rounds: amount.rounds,
            iters: amount.count,
            notes,
        }
    }

    fn introduce(&self, start: &Start) {
        if self.json { event("start", start) } else { table::introduce(start) }
    }
}

impl<S> Contest<S> {
    /// Has all of them measured in turns by `measure`, and prints the rows. One that cannot be is
    /// left with the reason, if `measure` gives one.
    fn run<E: From<PairError>>(
        mut self,
        args: &CompareArgs,
        interrupt: &Interrupt,
        mut measure: impl FnMut(Peer, &mut S, Round) -> Result<Result<Values, String>, E>,
    ) -> Result<(), E> {
        let amount = args.amount();
        for round in 0..amount.rounds {
            let (warm, long) = LONGS;
            let longs = if args.quick { (warm / 2, long / 2) } else { (warm, long) };
            let counts = amount.of_round(round);
            for Entry { peer, stage, rounds, .. } in &mut self.entries {
                let Ok(place) = stage else { continue };
                // Somebody else's programs take a second each.
                if matches!(peer.how, How::Tool(_)) && round >= TOOL_ROUNDS {
                    continue;
                }
                if interrupt.is_set() {
                    return Err(PairError::Interrupted.into());
                }
                match measure(*peer, place, Round { depth: args.depth, counts, longs })? {
                    Ok(values) => rounds.push(values),
                    Err(why) => {
                        rounds.clear();
                        *stage = Err(why);
                    }
                }
            }
        }
        let rma = self.entries.iter().find(|it| matches!(it.peer.how, How::OneRma));
        let rma: &[Values] = rma.map_or(&[], |it| &it.rounds);
        let row = |it: &Entry<S>| {
            let reason = it.stage.as_ref().err().cloned();
            Row::new(it.peer, reason, &it.rounds, rma).by(it.measured_by.clone())
        };
        let rows = self.entries.iter().map(row).collect();
        let table = Table { rows, depth: args.depth };
        if args.json {
            table.events()
        } else {
            table.print()
        }
        Ok(())
    }
}

/// Compares.
///
/// # Errors
/// If namespaces, hosts or sockets cannot be had; if too few rounds count; if a byte is wrong; on
/// Ctrl-C.
pub fn run(args: &CompareArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    if args.lab { Ok(in_lab(args, interrupt)?) } else { between::run(args, interrupt) }
}

fn in_lab(args: &CompareArgs, interrupt: &Interrupt) -> Result<(), PairError> {
    args.mode.ask_for();
    let machine = Machine::here();
    let mut entries = Vec::new();
    for peer in args.peers() {
        let stage = Stage::open(peer.how, args.depth)?;
        let measured_by = stage.as_ref().ok().and_then(Stage::measured_by);
        entries.push(Entry { peer, stage, measured_by, rounds: Vec::new() });
    }
    let mode = entries.iter().find_map(|it| it.stage.as_ref().ok()?.mode());
    let mode = mode.map_or(String::new(), |it| format!("; AF_XDP {it}"));
    let links = format!("a veth pair for each peer, MTU {MTU}{mode}; {}", aead::words());
    let pinned =
        if cores().0.is_some() { "a core for each side" } else { "both sides on one core" };
    args.introduce(&args.start(machine, links, vec![format!("{pinned}, spinning")]));
    let memory = Memory::new(MEMORY, SEED);
    Contest { entries }.run(args, interrupt, |peer, stage: &mut Stage, round| {
        match once(|| stage.measure(&memory, round, interrupt), interrupt) {
            // What another's program says that is not understood is told, and is no number.
            Err(error @ PairError::Sockets(_)) if matches!(peer.how, How::Tool(_)) => {
                Ok(Err(error.to_string()))
            }
            Err(error @ PairError::SpoiledRound(_)) if !matches!(peer.how, How::OneRma) => {
                Ok(Err(error.to_string()))
            }
            measured => measured.map(Ok),
        }
    })
}

/// Measures in one round, again if it was spoiled.
fn once(
    mut measure: impl FnMut() -> Result<Values, PairError>,
    interrupt: &Interrupt,
) -> Result<Values, PairError> {
    const TRIES: u32 = 3;
    let mut tries = 0;
    loop {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        tries += 1;
        match measure() {
            Err(PairError::SpoiledRound(why)) if tries < TRIES => tell_again(&why),
            done => return done,
        }
    }
}
