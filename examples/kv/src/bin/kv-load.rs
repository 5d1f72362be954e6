//! Load on a cache: `kv-load demo` starts one on loopback, kills a server and has it return, while
//! keys rotate; `kv-load run` asks one that is there.

use std::{
    env, fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use rma_kv::{
    client::{Cache, ServerAt},
    demo::{Demo, Program},
    load::{
        run::{Load, UNDER_WAY_MAX},
        seconds::{HEADER, Second},
        workload::Mix,
    },
    server,
};
use rma_xdp::{HostAddr, HostConfig};
use serde::Serialize;

/// Runs gets and puts against a replicated cache, and verifies every value.
#[derive(Debug, Parser)]
#[command(name = "kv-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Debug, Subcommand)]
enum Cmd {
    /// Runs three servers on loopback; kills one after a third of the time, and restarts it after
    /// two thirds
    Demo {
        /// Seconds between changes of each region's key
        #[arg(long, default_value_t = 5.0)]
        rotate: f64,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Uses servers that run already
    Run {
        /// Server, as NAME=KEYS,PUTS@IDENTITY:
        /// a=192.0.2.1:7471,192.0.2.1:7472@spiffe://example.org/kv/server
        #[arg(long = "server", required = true, value_parser = parse_server)]
        servers: Vec<ServerAt>,
        /// Number of servers that hold each key
        #[arg(long, default_value_t = 2)]
        copies: usize,
        /// Directory of credentials, as `rmactl ca issue` makes it
        #[arg(long)]
        credentials: PathBuf,
        /// Use kernel UDP sockets, bound to this address
        #[arg(long, required_unless_present = "interface")]
        udp: Option<HostAddr>,
        /// Use AF_XDP on this interface
        #[arg(long, conflicts_with = "udp")]
        interface: Option<String>,
        /// UDP port of 1RMA, the same on all hosts
        #[arg(long, default_value_t = rma_xdp::config::DEFAULT_PORT)]
        port: u16,
        #[command(flatten)]
        load: LoadArgs,
    },
}

#[derive(Args, Clone, Copy, Debug)]
struct LoadArgs {
    /// Seconds to run
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Ops a second
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// Number of keys
    #[arg(long, default_value_t = 4000)]
    keys: u64,
    /// Share of gets among the ops, from 0 to 1
    #[arg(long, default_value_t = 0.95)]
    gets: f64,
    /// Seed of the whole load
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON at the end
    #[arg(long)]
    json: bool,
}

/// The results of all seconds, and of each.
#[derive(Serialize)]
struct Summary<'a> {
    all: &'a Second,
    seconds: &'a [Second],
}

type Failure = Box<dyn std::error::Error>;

fn parse_server(text: &str) -> Result<ServerAt, String> {
    let usage = || format!("{text:?} is not NAME=KEYS,PUTS@IDENTITY");
    let (name, rest) = text.split_once('=').ok_or_else(usage)?;
    let (addresses, identity) = rest.split_once('@').ok_or_else(usage)?;
    let (keys, puts) = addresses.split_once(',').ok_or_else(usage)?;
    let address = |it: &str| it.parse().map_err(|why| format!("{it:?}: {why}"));
    let identity = identity.parse().map_err(|why| format!("{identity:?}: {why}"))?;
    Ok(ServerAt { name: name.into(), keys: address(keys)?, puts: address(puts)?, identity })
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Cmd::Demo { rotate, load } => demo(rotate, load),
        Cmd::Run { servers, copies, credentials, udp, interface, port, load } => {
            let config = match (interface, udp) {
                (Some(interface), _) => HostConfig::xdp(&interface),
                (None, Some(address)) => HostConfig::udp(address),
                (None, None) => unreachable!("one of them is required"),
            };
            run(config, port, (&servers, copies), &credentials, load)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kv-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    config: HostConfig,
    port: u16,
    (servers, copies): (&[ServerAt], usize),
    credentials: &std::path::Path,
    args: LoadArgs,
) -> Result<bool, Failure> {
    let host = server::host(config, port)?;
    let cache = Cache::open(&host, credentials, servers, (copies, UNDER_WAY_MAX as u32))?;
    let mut load = filled(cache, servers, credentials, args)?;
    let end = Duration::from_secs(args.seconds);
    load.run(|it| it.time() >= end, tell);
    summary(load, args)
}

fn demo(rotate: f64, args: LoadArgs) -> Result<bool, Failure> {
    let directory = env::temp_dir().join(format!("kv-demo-{}", std::process::id()));
    fs::create_dir(&directory)?;
    // Beside this program, as cargo builds them.
    let path = env::current_exe()?.with_file_name("kv-server");
    let result = in_directory(Program { path, args: Vec::new() }, &directory, rotate, args);
    fs::remove_dir_all(&directory)?;
    result
}

fn in_directory(
    program: Program,
    directory: &std::path::Path,
    rotate: f64,
    args: LoadArgs,
) -> Result<bool, Failure> {
    let mut demo = Demo::start(program, directory, rotate)?;
    let mut load = filled(demo.client()?, demo.servers(), demo.credentials(), args)?;
    let seconds = Duration::from_secs(args.seconds);
    for (end, part) in [(1, "killed"), (2, "started again"), (3, "")] {
        let end = seconds * end / 3;
        load.run(
            |it| {
                for (server, what) in demo.events() {
                    it.note(format!("{} {what}", demo.servers()[server].name));
                }
                it.time() >= end
            },
            tell,
        );
        match part {
            "killed" => demo.kill(0)?,
            "started again" => demo.start_server(0)?,
            _ => continue,
        }
        load.note(format!("{} {part}", demo.servers()[0].name));
    }
    summary(load, args)
}

fn filled(
    cache: Cache,
    servers: &[ServerAt],
    credentials: &std::path::Path,
    args: LoadArgs,
) -> Result<Load, Failure> {
    let LoadArgs { rate, keys, gets, seed, .. } = args;
    let mix = Mix { keys, rate, gets, ..Mix::default() };
    let mut load = Load::new(cache, servers, credentials, (mix, seed))?;
    let copies = load.fill();
    say(&format!("{copies} copies of {keys} values at {} servers\n{HEADER}", servers.len()));
    Ok(load)
}

fn tell(second: &Second) {
    say(&second.to_string());
}

/// Prints a line; a reader who has gone misses the rest.
fn say(line: &str) {
    _ = writeln!(io::stdout(), "{line}");
}

/// Says what it was in all. Whether it was as it has to be.
fn summary(load: Load, args: LoadArgs) -> Result<bool, Failure> {
    if let Some(error) = load.error() {
        say(&format!("the last get that failed: {error}"));
    }
    let (seconds, all) = load.end();
    say(&format!("in all\n{all}"));
    say(&format!("{} wrong values of {}", all.counts.wrong, all.counts.hits));
    if args.json {
        say(&serde_json::to_string(&Summary { all: &all, seconds: &seconds })?);
    }
    Ok(all.counts.wrong == 0)
}
