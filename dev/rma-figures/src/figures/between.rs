//! Figures of `rma-bench` between two processes, beside the same in one process: what an operator
//! measures is what the figures of this project say.
//!
//! The two stand in turns: a server that waits is stopped, as it would have a core.

use core::time::Duration;
use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use rma_bench::{
    client::Client,
    compare::{
        Sockets,
        fetch::{Fetches, Memory, Way, fetch},
    },
    error::PairError,
    interrupt::Interrupt,
    load::{Generator, LoadOp, generator},
    pair::{Pair, PairConfig, Place, cores},
    pipelined,
    rates::{self, Measure},
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::{OpType, Portal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    conditions::{CONDITIONS, MTU, lab},
    spec::Measured,
};
use crate::{
    allocator::{self, Asked},
    transfers::{PIPELINED, Transfers},
};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 7;
/// READs of 64 B in a round: for nothing, and measured.
const READS: (u64, u64) = (2_000, 20_000);
/// READs of 64 B in a round, with 32 under way.
const MANY: (u64, u64) = (20_000, 200_000);
/// READs of 4 MiB in a round.
const LARGE: u64 = 48;
/// Ops of the generator alone.
const GENERATED: u64 = 2_000_000;

/// A server's process in a namespace, and what its clients type.
struct Server {
    lab: Lab,
    process: Child,
    /// Its output: a server that nobody reads ends.
    _said: Option<BufReader<ChildStdout>>,
    code: String,
}

/// The program that operators run, which lies beside this one.
fn program(inside: &Lab, is_server: bool) -> Result<Command, PairError> {
    let path = std::env::current_exe()?.with_file_name("rma-bench");
    if !path.exists() {
        let why = format!("{} is not there: cargo build --release -p rma-bench", path.display());
        return Err(PairError::Other(why.into()));
    }
    let netns = if is_server { inside.b() } else { inside.a() };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", netns.name()]).arg(path);
    Ok(command)
}

/// The option that pins a process like the threads of a pair.
fn on(core: Option<usize>) -> impl Iterator<Item = String> {
    core.into_iter().map(|it| format!("--core={it}"))
}

impl Server {
    fn start(more: &[&str]) -> Result<Self, PairError> {
        let lab = lab()?;
        let mut command = program(&lab, true)?;
        command.args(["serve", "--interface", Lab::INTERFACE]).args(on(cores().1)).args(more);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut said = process.stdout.take().map(BufReader::new);
        let mut lines = said.iter_mut().flat_map(BufRead::lines).map_while(Result::ok);
        // Without sessions there is no code, and the grant is there when this is said.
        let code = lines.find_map(|it| match it.split_once("--invite ") {
            Some((_, code)) => Some(code.to_owned()),
            None => it.contains("carry it over").then(String::new),
        });
        drop(lines);
        let code = code.ok_or_else(|| PairError::Other("rma-bench serve has ended".into()))?;
        let server = Self { lab, process, _said: said, code };
        server.signal(Signal::STOP)?;
        Ok(server)
    }

    fn signal(&self, signal: Signal) -> Result<(), PairError> {
        kill_process(Pid::from_child(&self.process), signal)
            .map_err(|error| PairError::Sockets(error.into()))
    }

    /// The row of a client's only measurement.
    fn row(&self, args: &str) -> Result<Value, PairError> {
        self.signal(Signal::CONT)?;
        let mut command = program(&self.lab, false)?;
        command.args(args.split(' ')).args(["--json", "--verify", "0"]);
        if !self.code.is_empty() {
            command.arg(Lab::B_V4.to_string());
        }
        command.args(["--interface", Lab::INTERFACE]).args(on(cores().0));
        let output = command.env("RMA_BENCH_INVITE", &self.code).output()?;
        self.signal(Signal::STOP)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rows = text.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let row = { rows }.find(|it| it["event"] == "row");
        row.ok_or_else(|| {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            PairError::SpoiledRound(format!("rma-bench {args}: {why}"))
        })
    }

    fn number(&self, args: &str, path: &str) -> Result<f64, PairError> {
        let row = self.row(args)?;
        row.pointer(path)
            .and_then(Value::as_f64)
            .ok_or_else(|| PairError::SpoiledRound(format!("rma-bench {args} has no {path}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is stopped, and goes on to its end.
        let _ = self.signal(Signal::KILL);
        let _ = self.process.wait();
    }
}

/// Both, in turns.
struct Both {
    pair: Pair,
    portal: Portal,
    transfers: Transfers,
    server: Server,
}

/// Latency, rate and goodput of two processes over those of a pair in one.
pub(super) fn over_pair(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let portal = pair.client.host.portal(32)?;
    let transfers = Transfers::open(&mut pair.client.host, None)?;
    let mut both = Both { pair, portal, transfers, server: Server::start(&[])? };
    let (warm_up, count) = READS;
    let lat = format!("read-lat -s 64 -w {warm_up} -n {count}");
    let mut p50_of_pair = |it: &mut Both| {
        let measured =
            it.pair.run(|client| client.measure(LoadOp::Read, (64, 64 << 10), READS, interrupt));
        Ok(measured?.quantile_us(0.5))
    };
    let mut p50 = |it: &mut Both| it.server.number(&lat, "/latency_us/p50");
    let (warm_up, count) = MANY;
    let bw = format!("read-bw -s 64 -t 32 -w {warm_up} -n {count}");
    let mut rate_of_pair = |it: &mut Both| {
        let Both { pair, portal, .. } = it;
        pair.run(|client| pipelined::ops_per_second(client, portal, OpType::Read, 32, MANY))
    };
    let mut rate = |it: &mut Both| it.server.number(&bw, "/throughput/ops_per_s");
    let large = format!("read-bw -s 4M -t {PIPELINED} --span 8M -w 4 -n {LARGE}");
    let mut goodput_of_pair = |it: &mut Both| {
        let Both { pair, transfers, .. } = it;
        let counts = (LARGE, PIPELINED);
        let moved = pair.run(|client| transfers.large(client, OpType::Read, counts, interrupt))?;
        Ok(moved.bytes_per_second() * 8.0 / 1e9)
    };
    let mut goodput = |it: &mut Both| it.server.number(&large, "/throughput/payload_gbit_per_s");
    let measures: [&mut Measure<'_, Both>; 6] = [
        &mut p50,
        &mut p50_of_pair,
        &mut rate,
        &mut rate_of_pair,
        &mut goodput,
        &mut goodput_of_pair,
    ];
    let of = rates::in_turns(&mut both, measures, ROUNDS, interrupt)?;
    let figure = |what: &str, [two, one]: [&rates::Rates; 2]| {
        let detail = format!(
            "{what}: {:.3} of rma-bench's two processes, {:.3} of a pair in one process; medians of {} rounds in turns; veth \
             MTU {MTU}, {CONDITIONS}",
            two.median(),
            one.median(),
            two.rounds(),
        );
        Measured::new(two.over(one), detail)
    };
    let [p50, p50_of_pair, rate, rate_of_pair, goodput, goodput_of_pair] = &of;
    Ok(vec![
        figure("p50 of READs of 64 B, in us", [p50, p50_of_pair]),
        figure("READs of 64 B a second, 32 under way", [rate, rate_of_pair]),
        figure("Gbit/s of READs of 4 MiB, 2 under way", [goodput, goodput_of_pair]),
    ])
}

/// The share of an open loop's ops that are issued later than one READ takes.
pub(super) fn open_loop(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let mut server = Server::start(&[])?;
    let mut late = |it: &mut Server| {
        let load = "read-lat -s 64 -D 2 --arrivals poisson -R 20%";
        it.number(load, "/lateness_us/share_above_p50")
    };
    let [late] = rates::in_turns(&mut server, [&mut late], ROUNDS, interrupt)?;
    let detail = format!(
        "of READs of 64 B at 20 % of the peak rate, Poisson, without those that a gap of the core fell into: issued later \
         than half of them take; median of {} runs of rma-bench; veth MTU {MTU}, {CONDITIONS}",
        late.rounds()
    );
    Ok(vec![Measured::new(late.median(), detail)])
}

/// A server with a session and metrics, and one that wrote a grant.
struct Told {
    told: Server,
    silent: Server,
    grant: PathBuf,
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.grant);
    }
}

impl Told {
    /// The p50 of READs while somebody reads the metrics ten times a second.
    fn beside_reader(&self, load: &str) -> Result<f64, PairError> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let _inside = self.told.lab.a().enter()?;
                let mut read = 0_u64;
                while !done.load(Relaxed) {
                    read += u64::from(metrics(METRICS).is_ok());
                    thread::park_timeout(Duration::from_millis(100));
                }
                Ok::<_, PairError>(read)
            });
            let p50 = self.told.number(&format!("{load} --interval 1"), "/latency_us/p50");
            done.store(true, Relaxed);
            let read = reader.join().unwrap_or_else(|it| std::panic::resume_unwind(it))?;
            if read == 0 {
                return Err(PairError::SpoiledRound("no metrics could be read".to_owned()));
            }
            p50
        })
    }
}

/// The port of the metrics.
const METRICS: u16 = 9_472;

/// Reads all metrics of a server once.
fn metrics(port: u16) -> io::Result<()> {
    let wait = Duration::from_millis(500);
    let mut stream = TcpStream::connect_timeout(&(Lab::B_V4, port).into(), wait)?;
    stream.set_read_timeout(Some(wait))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n")?;
    let mut first = [0; 256];
    match stream.read(&mut first)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// READs with a session, a reader of metrics and intervals, over those without any.
pub(super) fn session_over_none(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let grant = std::env::temp_dir().join(format!("rma-figures-{}.json", std::process::id()));
    let (path, client) = (grant.display().to_string(), Lab::A_V4.to_string());
    let metrics = format!("{}:{METRICS}", Lab::B_V4);
    let told = Server::start(&["--metrics", &metrics])?;
    let silent = Server::start(&["--initiator", &client, "--grant-file", &path])?;
    let mut both = Told { told, silent, grant };
    let load = "read-lat -s 64 -w 5000 -n 100000";
    let mut with = |it: &mut Told| it.beside_reader(load);
    let mut without =
        |it: &mut Told| it.silent.number(&format!("{load} --grant-file {path}"), "/latency_us/p50");
    let [with, without] = rates::in_turns(&mut both, [&mut with, &mut without], ROUNDS, interrupt)?;
    let detail = format!(
        "p50 of READs of 64 B, in us: {:.3} with a session, its metrics read ten times a second, and --interval 1; {:.3} by a \
         grant file; medians of {} rounds in turns; veth MTU {MTU}, {CONDITIONS}",
        with.median(),
        without.median(),
        with.rounds(),
    );
    Ok(vec![Measured::new(with.over(&without), detail)])
}

/// The words of `rma-bench compare` on 1RMA, beside a pair of hosts in this process.
pub(super) fn compare_over_figure(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    struct Both {
        pair: Pair,
        portal: Portal,
        row: Value,
    }
    let lab = lab()?;
    let pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let portal = pair.client.host.portal(32)?;
    let mut both = Both { pair, portal, row: Value::Null };
    let number = |it: &Both, of: &str| {
        let why = || PairError::SpoiledRound(format!("rma-bench compare has no {of}"));
        it.row[of].as_f64().ok_or_else(why)
    };
    let mut p50 = |it: &mut Both| {
        it.row = compared()?;
        number(it, "p50_us")
    };
    let mut p50_of_pair = |it: &mut Both| {
        let reads =
            |client: &mut Client| client.measure(LoadOp::Read, (64, 64 << 10), READS, interrupt);
        Ok(it.pair.run(reads)?.quantile_us(0.5))
    };
    let mut rate = |it: &mut Both| number(it, "ops_per_s");
    let mut rate_of_pair = |it: &mut Both| {
        let Both { pair, portal, .. } = it;
        pair.run(|client| pipelined::ops_per_second(client, portal, OpType::Read, 32, MANY))
    };
    let measures: [&mut Measure<'_, Both>; 4] =
        [&mut p50, &mut p50_of_pair, &mut rate, &mut rate_of_pair];
    let [p50, p50_of_pair, rate, rate_of_pair] =
        rates::in_turns(&mut both, measures, ROUNDS, interrupt)?;
    let ratios = [p50.over(&p50_of_pair), rate.over(&rate_of_pair)];
    let apart = ratios.map(|it| (it - 1.0).abs()).into_iter().fold(0.0, f64::max);
    let [of_p50, of_rate] = ratios;
    let detail = format!(
        "what compare says of 1RMA over the same of a pair here: p50 of READs of 64 B {of_p50:.3}, READs a second, 32 under way, \
         {of_rate:.3}; medians of {} rounds in turns; veth MTU {MTU}, {CONDITIONS}",
        p50.rounds(),
    );
    Ok(vec![Measured::new(apart, detail)])
}

/// The words of a short `rma-bench compare` on 1RMA.
fn compared() -> Result<Value, PairError> {
    let path = std::env::current_exe()?.with_file_name("rma-bench");
    let args = "compare --lab --quick --rounds 1 -n 100000 --only 1rma --json";
    let output = Command::new(path).args(args.split(' ')).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = text.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    rows.find(|it| it["peer"] == "1rma").ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        PairError::SpoiledRound(format!("rma-bench {args}: {why}"))
    })
}

/// READs over fetches by QUIC, where this build has it.
pub(super) fn over_quic(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    if !cfg!(feature = "quic") {
        return Ok(Vec::new());
    }
    let (on_pair, on_sockets) = (lab()?, LabConfig { mtu: MTU, ..LabConfig::default() });
    let pair = Pair::open(Place::Lab(&on_pair), &PairConfig::default())?;
    let mut both = (pair, Sockets::open(&on_sockets)?);
    let memory = Memory::new(64 << 20, 1);
    let (warm_up, count) = READS;
    let fetches = Fetches { size: 64, depth: 1, span: 64 << 10, warm_up, count };
    let mut read = |it: &mut (Pair, Sockets)| {
        let reads =
            |client: &mut Client| client.measure(LoadOp::Read, (64, 64 << 10), READS, interrupt);
        Ok(it.0.run(reads)?.quantile_us(0.5))
    };
    let mut quic = |it: &mut (Pair, Sockets)| {
        Ok(fetch(&it.1, Way::Quic, &memory, fetches)?.latencies.quantile_us(0.5))
    };
    let [read, quic] = rates::in_turns(&mut both, [&mut read, &mut quic], ROUNDS, interrupt)?;
    let detail = format!(
        "p50 of 64 B, in us: {:.3} of READs, {:.3} of a request and its answer on one QUIC stream (quinn, kept awake by polling); \
         medians of {} rounds in turns; veth MTU {MTU}, {CONDITIONS}",
        read.median(),
        quic.median(),
        read.rounds(),
    );
    Ok(vec![Measured::new(read.over(&quic), detail)])
}

/// The loop of `rma-bench` alone, over the readings of the clock and the record that it has to do.
pub(super) fn generator_alone(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let mut of = [0.0; 3];
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let Generator { closed, open, parts } = generator(GENERATED, interrupt)?;
        of = [closed, open, parts];
        ratios.push(closed.max(open) / parts);
    }
    let ratios: rates::Rates = ratios.into_iter().collect();
    let [closed, open, parts] = of;
    let detail = format!(
        "an op that ends at once takes the loop {closed:.1} ns closed and {open:.1} ns open, two readings of the clock and \
         one record {parts:.1} ns, each in the last round; median of {ROUNDS} rounds of the slower one's ratio"
    );
    let mut measured = vec![Measured::new(ratios.median(), detail)];
    if allocator::counts() {
        let of = |count| Asked::by(|| generator(count, interrupt)).0.given;
        let detail = "of a loop over 300,000 ops beyond that over 3,000: histograms and tables are made before";
        measured.push(Measured::new(of(300_000) as f64 - of(3_000) as f64, detail));
    }
    Ok(measured)
}
