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

/// Gets and puts against a replicated cache, every value of which is verified.
#[derive(Debug, Parser)]
#[command(name = "kv-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Debug, Subcommand)]
enum Cmd {
    /// Three servers on loopback: one is killed after a third of the time, and back after two
    Demo {
        /// Seconds from one key of each region to the next
        #[arg(long, default_value_t = 5.0)]
        rotate: f64,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Servers that run somewhere
    Run {
        /// A server: NAME=KEYS,PUTS@IDENTITY, such as
        /// a=192.0.2.1:7471,192.0.2.1:7472@spiffe://example.org/kv/server
        #[arg(long = "server", required = true, value_parser = parse_server)]
        servers: Vec<ServerAt>,
        /// How many of them hold each key
        #[arg(long, default_value_t = 2)]
        copies: usize,
        /// The directory of credentials, as `rmactl ca issue` makes it
        #[arg(long)]
        credentials: PathBuf,
        /// Over kernel UDP sockets, bound to this address
        #[arg(long, required_unless_present = "interface")]
        udp: Option<HostAddr>,
        /// Over AF_XDP, on this interface
        #[arg(long, conflicts_with = "udp")]
        interface: Option<String>,
        /// The UDP port of 1RMA, the same at all hosts
        #[arg(long, default_value_t = rma_xdp::DEFAULT_PORT)]
        port: u16,
        #[command(flatten)]
        load: LoadArgs,
    },
}

#[derive(Args, Clone, Copy, Debug)]
struct LoadArgs {
    /// For how long, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Ops a second
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// How many keys there are
    #[arg(long, default_value_t = 4000)]
    keys: u64,
    /// The part of ops that gets
    #[arg(long, default_value_t = 0.95)]
    gets: f64,
    /// What all of it follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// At the end, one line of JSON
    #[arg(long)]
    json: bool,
}

/// What all seconds brought, and each.
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

/// Who does not listen any more misses the rest.
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
