//! Programs of others, where they are installed: started at both ends of a veth pair, and what they
//! print is read. A version or an output that is not known gives no number.

use core::time::Duration;
use std::{
    fs,
    io::{self, ErrorKind},
    process::{Child, Command, Output, Stdio},
    thread,
};

use rma_lab::{Lab, Netns};
use serde_json::Value;

use super::round::Values;
use crate::{
    error::PairError,
    floor::clock,
    pair::{cores, pinned},
};

/// The port of their servers.
const PORT: u16 = 21_111;
/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(5);
/// Exchanges of those that count them: for nothing, and measured.
const COUNTS: [&str; 2] = ["500", "5000"];

/// A program of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ucx,
    Libfabric,
    Sockperf,
    Iperf3,
}

/// One that is installed.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    kind: Kind,
    /// Its name and version, in its own words.
    pub(super) version: String,
}

impl Kind {
    const fn program(self) -> &'static str {
        match self {
            Self::Ucx => "ucx_perftest",
            Self::Libfabric => "fi_pingpong",
            Self::Sockperf => "sockperf",
            Self::Iperf3 => "iperf3",
        }
    }

    /// Debian's package.
    const fn package(self) -> &'static str {
        match self {
            Self::Ucx => "ucx-utils",
            Self::Libfabric => "libfabric-bin",
            Self::Sockperf => "sockperf",
            Self::Iperf3 => "iperf3",
        }
    }

    /// The command that says the version, what stands before it, and the first numbers that are
    /// known.
    const fn version(self) -> (&'static str, &'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::Ucx => ("ucx_info", "-v", "# Version ", &["1."]),
            Self::Libfabric => ("fi_info", "--version", "libfabric: ", &["1.", "2."]),
            Self::Sockperf => ("sockperf", "--version", "sockperf, version ", &["3."]),
            Self::Iperf3 => ("iperf3", "--version", "iperf ", &["3."]),
        }
    }

    /// The version in what was said, if it is a known one.
    fn known(self, said: &str) -> Result<String, String> {
        let (_, _, before, known) = self.version();
        let mut versions = said.lines().filter_map(|it| it.strip_prefix(before));
        let version = versions.next().and_then(|it| it.split_whitespace().next());
        let version = version.ok_or(format!("{} says no version that is known", self.program()))?;
        if known.iter().any(|it| version.starts_with(it)) {
            return Ok(format!("{} {version}", self.program()));
        }
        Err(format!("what {} {version} prints is not known here", self.program()))
    }

    fn server(self) -> Vec<String> {
        let port = PORT.to_string();
        let address = Lab::B_V4.to_string();
        let args: &[&str] = match self {
            Self::Ucx => &["-p", &port],
            Self::Libfabric => {
                &["-p", "tcp", "-e", "msg", "-B", &port, "-I", COUNTS[1], "-S", "64"]
            }
            Self::Sockperf => &["server", "-i", &address, "-p", &port, "--nonblocked"],
            Self::Iperf3 => &["-s", "-1", "-p", &port],
        };
        args.iter().map(|&it| it.to_owned()).collect()
    }

    fn client(self) -> Vec<String> {
        let port = PORT.to_string();
        let address = Lab::B_V4.to_string();
        let args: &[&str] = match self {
            Self::Ucx => {
                // Not its get: the server of that looks for requests once a millisecond.
                let [warm, count] = COUNTS;
                &[
                    &address, "-p", &port, "-t", "tag_lat", "-s", "64", "-w", warm, "-n", count,
                    "-f", "-v",
                ]
            }
            Self::Libfabric => {
                &["-p", "tcp", "-e", "msg", "-P", &port, "-I", COUNTS[1], "-S", "64", &address]
            }
            Self::Sockperf => &[
                "ping-pong",
                "-i",
                &address,
                "-p",
                &port,
                "-m",
                "64",
                "-t",
                "1",
                "--full-rtt",
                "--nonblocked",
            ],
            Self::Iperf3 => &["-c", &address, "-p", &port, "-t", "1", "-J"],
        };
        args.iter().map(|&it| it.to_owned()).collect()
    }

    /// Reads what the client has printed. `None`: it is not what is known.
    fn read(self, said: &str) -> Option<Values> {
        match self {
            Self::Ucx => ucx(said),
            Self::Libfabric => libfabric(said),
            Self::Sockperf => sockperf(said),
            Self::Iperf3 => iperf3(said),
        }
    }
}

/// A number above 0.
fn number(word: &str) -> Option<f64> {
    word.parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0)
}

/// `ucx_perftest -f -v`: a header, and a line of that many numbers, latencies of which are half of
/// a round trip.
fn ucx(said: &str) -> Option<Values> {
    const HEAD: &str =
        "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr";
    let mut lines = said.lines().skip_while(|&it| it != HEAD).skip(1);
    let cells: Vec<f64> = lines.next()?.split(',').map_while(|it| it.parse().ok()).collect();
    let [count, p50_us, ..] = cells[..] else { return None };
    let is_whole = cells.len() == HEAD.split(',').count()
        && count.to_string() == COUNTS[1]
        && said.ends_with('\n');
    let p50_us = number(&p50_us.to_string()).filter(|_| is_whole && lines.next().is_none())?;
    Some(Values { p50_us: 2.0 * p50_us, ..Values::NONE })
}

/// `fi_pingpong`: half of a mean round trip, in the last column but one.
fn libfabric(said: &str) -> Option<Values> {
    const HEAD: [&str; 8] =
        ["bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"];
    let mut lines = said.lines().map(|it| it.split_whitespace().collect::<Vec<_>>());
    lines.find(|it| it[..] == HEAD)?;
    let row = lines.next()?;
    let &["64", sent, ack, _, _, _, half, _] = &row[..] else { return None };
    // One that has lost some says fewer.
    (ack == format!("={sent}")).then_some(())?;
    Some(Values { p50_us: 2.0 * number(half)?, ..Values::NONE })
}

/// `sockperf ping-pong --full-rtt`: microseconds, with colours between them.
fn sockperf(said: &str) -> Option<Values> {
    let after = |words: &str| {
        let (_, rest) = said.split_once(words)?;
        rest.split(|it: char| it.is_whitespace() || it == ';').find(|it| !it.is_empty())
    };
    said.contains(" usec\n").then_some(())?;
    let round_trip = after("Summary: Round trip is ")?;
    number(round_trip)?;
    (after("# dropped messages = ")? == "0").then_some(())?;
    let (before, _) = said.split_once(" observations")?;
    let count = number(before.split_whitespace().next_back()?)?;
    // It says percentiles of one sample; here ten lie beyond.
    let percentile = |of: &str, share: f64| {
        let value = number(after(&format!("---> percentile {of} = "))?)?;
        Some(if count * share < 10.0 { f64::NAN } else { value })
    };
    let (p50_us, p99_us) = (percentile("50.000", 0.5)?, percentile("99.000", 0.01)?);
    Some(Values { p50_us, p99_us, ..Values::NONE })
}

/// `iperf3 -J`: what has arrived.
fn iperf3(said: &str) -> Option<Values> {
    let all: Value = serde_json::from_str(said).ok()?;
    let is_asked = all["start"]["test_start"]["protocol"] == "TCP" && all["error"].is_null();
    let bits = all["end"]["sum_received"]["bits_per_second"].as_f64()?;
    let bits = number(&bits.to_string()).filter(|_| is_asked)?;
    Some(Values { payload_gbit_per_s: bits / 1e9, ..Values::NONE })
}

/// A process that is ended with its value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Tool {
    /// The one that is installed, or the reason why there is none.
    pub(super) fn find(kind: Kind) -> Result<Self, String> {
        let (program, option, ..) = kind.version();
        let said = match output(Command::new(program).arg(option)) {
            Ok(output) => [output.stdout, output.stderr].concat(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let package = kind.package();
                return Err(format!("{} is missing: apt install {package}", kind.program()));
            }
            Err(error) => return Err(format!("{program} cannot be run: {error}")),
        };
        let version = kind.known(&String::from_utf8_lossy(&said))?;
        Ok(Self { kind, version })
    }

    fn command(&self, inside: &Netns, args: Vec<String>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", inside.name(), self.kind.program()]).args(args);
        // Else it takes what is fastest within a machine.
        command.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", Lab::INTERFACE);
        command.stdin(Stdio::null());
        command
    }

    /// Measures once.
    ///
    /// # Errors
    /// [`PairError::SpoiledRound`] if it fails, or prints what is not known.
    pub(super) fn measure(&self, lab: &Lab) -> Result<Values, PairError> {
        let (client_core, server_core) = cores();
        let mut server = self.command(lab.b(), self.kind.server());
        server.stdout(Stdio::null()).stderr(Stdio::null());
        // A process has the cores of the thread that starts it.
        let server = pinned(server_core, || server.spawn()).map_err(PairError::Sockets)?;
        let mut server = Running(server);
        self.wait_for(&mut server)?;
        let mut client = self.command(lab.a(), self.kind.client());
        let said = pinned(client_core, || output(&mut client)).map_err(|why| {
            PairError::Sockets(io::Error::other(format!("{}: {why}", self.version)))
        })?;
        let spoiled = |why: String| PairError::SpoiledRound(format!("{}: {why}", self.version));
        if !said.status.success() {
            let why = [said.stderr, said.stdout].concat();
            let why = String::from_utf8_lossy(&why).replace(|it: char| it.is_control(), " ");
            return Err(spoiled(format!("{}; {:.200}", said.status, why.trim())));
        }
        let values = self.kind.read(&String::from_utf8_lossy(&said.stdout));
        values.ok_or_else(|| spoiled("what it prints is not known here".to_owned()))
    }

    /// Waits until the server listens.
    fn wait_for(&self, server: &mut Running) -> Result<(), PairError> {
        let protocol = if self.kind == Kind::Sockperf { "udp" } else { "tcp" };
        let end = clock() + PATIENCE;
        let pid = server.0.id();
        let tables = [protocol.to_owned(), format!("{protocol}6")];
        let is_there = |name: &String| {
            let table = fs::read_to_string(format!("/proc/{pid}/net/{name}"));
            table.is_ok_and(|it| listens(&it))
        };
        // Until it has become the program, it is in another namespace.
        while !tables.iter().any(is_there) {
            let has_ended = server.0.try_wait().map_err(PairError::Sockets)?.is_some();
            if has_ended || clock() > end {
                let why = format!("{}: its server does not listen", self.version);
                return Err(PairError::SpoiledRound(why));
            }
            thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Whether a table of sockets has one at the port that waits: connected ones are of the last round.
fn listens(table: &str) -> bool {
    let port = format!(":{PORT:04X}");
    table.lines().any(|line| {
        let mut cells = line.split_whitespace().skip(1);
        let (local, _, state) = (cells.next(), cells.next(), cells.next());
        local.is_some_and(|it| it.ends_with(&port)) && matches!(state, Some("0A" | "07"))
    })
}

/// Runs it, for ten seconds at most.
fn output(command: &mut Command) -> io::Result<Output> {
    let mut limited = Command::new("timeout");
    limited.arg("--kill-after=1").arg("10").arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let output = limited.stdin(Stdio::null()).output()?;
    match output.status.code() {
        Some(124) => Err(ErrorKind::TimedOut.into()),
        // What `timeout` says of a program that is not there.
        Some(127) => Err(ErrorKind::NotFound.into()),
        _ => Ok(output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKPERF: &str = include_str!("tools/sockperf-3.7.txt");
    const IPERF3: &str = include_str!("tools/iperf3-3.12.json");
    const UCX: &str = include_str!("tools/ucx_perftest-1.13.1.txt");
    const LIBFABRIC: &str = include_str!("tools/fi_pingpong-1.17.0.txt");
    const RECORDED: [(Kind, &str); 4] = [
        (Kind::Sockperf, SOCKPERF),
        (Kind::Iperf3, IPERF3),
        (Kind::Ucx, UCX),
        (Kind::Libfabric, LIBFABRIC),
    ];

    #[test]
    fn records_of_each_program_are_read() {
        let values = RECORDED.map(|(kind, said)| kind.read(said).unwrap());
        let [sockperf, iperf3, ucx, libfabric] = values;
        assert_eq!(sockperf.p50_us, 9.654);
        assert!(sockperf.p99_us.is_nan(), "of 207 samples");
        let more = Kind::Sockperf.read(&SOCKPERF.replace("Total 207", "Total 1000")).unwrap();
        assert_eq!(more.p99_us, 8010.259);
        assert_eq!(iperf3.payload_gbit_per_s, 2.7765296488979793);
        assert!(iperf3.p50_us.is_nan() && sockperf.payload_gbit_per_s.is_nan());
        assert_eq!((ucx.p50_us, libfabric.p50_us), (10.586, 58.26));
    }

    #[test]
    fn another_output_gives_no_number() {
        for (kind, said) in RECORDED {
            // Cut anywhere before the last number that is read, none is made up.
            let end = match kind {
                Kind::Sockperf => said.find("percentile 50.000").unwrap(),
                Kind::Libfabric => said.find("29.13").unwrap(),
                Kind::Ucx | Kind::Iperf3 => said.trim_end().len() - 4,
            };
            for cut in 0..end {
                let part = said.get(..cut).unwrap_or_default();
                assert!(kind.read(part).is_none(), "{kind:?} cut at {cut}");
            }
            for (_, other) in RECORDED.into_iter().filter(|it| it.0 != kind) {
                assert!(kind.read(other).is_none(), "{kind:?}: {other}");
            }
        }
        let changed = [
            (Kind::Sockperf, "usec", "msec"),
            (Kind::Sockperf, "dropped messages = 0", "dropped messages = 3"),
            (Kind::Sockperf, "percentile 50.000 =    9.654", "percentile 50.000 =    nan"),
            (Kind::Iperf3, "2776529648.8979793", "null"),
            (Kind::Iperf3, "\"TCP\"", "\"UDP\""),
            (Kind::Ucx, "50.0_percentile_lat", "99.0_percentile_lat"),
            (Kind::Ucx, "5.293", "nan"),
            (Kind::Ucx, "5.293", "-1"),
            (Kind::Ucx, "5000", "50"),
            (Kind::Libfabric, "usec/xfer", "nsec/xfer"),
            (Kind::Libfabric, "=5k", "=4k"),
            (Kind::Libfabric, "29.13", "inf"),
            (Kind::Libfabric, "64 ", "65 "),
        ];
        for (kind, from, to) in changed {
            let (_, said) = RECORDED.into_iter().find(|it| it.0 == kind).unwrap();
            let said = said.replace(from, to);
            assert!(said.contains(to) && kind.read(&said).is_none(), "{kind:?}: {to}");
        }
    }

    #[test]
    fn a_version_that_is_not_known_is_named() {
        let said = [
            (Kind::Sockperf, "sockperf, version 3.7-no.git\n", "sockperf 3.7-no.git"),
            (Kind::Iperf3, "iperf 3.12 (cJSON 1.7.15)\nLinux\n", "iperf3 3.12"),
            (Kind::Ucx, "# Version 1.13.1\n# Git\n", "ucx_perftest 1.13.1"),
            (Kind::Libfabric, "fi_info: 1.17.0\nlibfabric: 1.17.0\n", "fi_pingpong 1.17.0"),
        ];
        for (kind, text, version) in said {
            assert_eq!(kind.known(text).unwrap(), version);
            let later = text.replace(" 1.", " 9.").replace(" 3.", " 9.");
            let why = kind.known(&later).unwrap_err();
            assert!(why.contains(" 9.") && why.contains("is not known"), "{why}");
            assert!(kind.known("usage: none\n").unwrap_err().contains(kind.program()));
        }
    }

    #[test]
    fn a_server_listens_once_its_socket_is_in_the_table() {
        let line = |state: &str| format!("head\n  0: 0100007F:5277 00000000:0000 {state} 0:0\n");
        assert_eq!(PORT, 0x5277);
        assert!(listens(&line("0A")) && listens(&line("07")));
        assert!(!listens(&line("01")) && !listens(&line("06")) && !listens(""));
    }
}
