//! The replicated cache of `rma-kv`: a get beside a READ, and gets while a server is killed and
//! keys rotate.
//!
//! The example itself, as a stranger would start it: three servers that are processes on loopback,
//! over kernel UDP sockets, and a client with a thread of its own. A server is this program, asked
//! for it by a command that is not shown. Invariant: every value is held against what was put.

use core::time::Duration;
use std::{env, io};

use rma_bench::{error::PairError, interrupt::Interrupt};
use rma_kv::{
    client::{Cache, GetError},
    demo::{Demo, DemoError, Program},
    load::{
        run::Load,
        seconds::Counts,
        workload::{Mix, key},
    },
    puts::PutClient,
    store::Stored,
};
use rma_lab::Scratch;
use rma_xdp::time::Clock as _;

use crate::error::FigureError;

/// The command that has this program be a server.
pub const SERVER: &str = "kv-server";

/// Gets, and READs, whose latency is looked at.
const PROBES: usize = 10_000;

/// How many of the one before the next of the other.
const IN_A_ROW: usize = 100;

/// How long a value is that is got, and what a READ beside it reads.
const PROBE_LEN: usize = 64;

/// How often keys change under load, in seconds.
const ROTATE: f64 = 1.0;

/// Before a server is killed, and from a second after that until it is looked at.
const BEFORE: Duration = Duration::from_secs(4);
const GONE: Duration = Duration::from_secs(3);

/// The results of gets under load.
#[derive(Clone, Copy, Debug)]
pub struct UnderLoad {
    /// While all servers are there, and keys rotate.
    pub before: Counts,
    /// From a second after one was killed.
    pub gone: Counts,
    /// Of the whole run.
    pub all: Counts,
    /// How often a key changed while all servers were there.
    pub rotated: usize,
}

fn demo(scratch: &Scratch, rotate: f64) -> Result<Demo, PairError> {
    let failed = |source| DemoError::System { what: "finding this program", source };
    let path = env::current_exe().map_err(failed).map_err(FigureError::from)?;
    let program = Program { path, args: vec![SERVER.into()] };
    Ok(Demo::start(program, scratch.path(), rotate).map_err(FigureError::from)?)
}

/// Medians of the latency of a get and of a READ of 64 B.
///
/// # Errors
/// If something could not be set up; if a get does not give its value.
pub fn latency(interrupt: &Interrupt) -> Result<(Duration, Duration), PairError> {
    let scratch = Scratch::new();
    let demo = demo(&scratch, 3600.0)?;
    let cache = demo.client().map_err(FigureError::from)?;
    // All at one server: another would have fallen asleep since it was asked last.
    let keys: Vec<_> = (0..).map(key).filter(|it| cache.servers_of(it)[0] == 0).take(64).collect();
    let server = &demo.servers()[0];
    let mut puts = PutClient::new(server.puts, server.identity.clone(), demo.credentials());
    for key in &keys {
        let put = puts.put(key, &[7; PROBE_LEN], 1);
        let (Stored::Yes | Stored::Stale) = put.map_err(|it| FigureError::Cache(it.to_string()))?;
    }
    let (mut gets, mut reads) = (Vec::with_capacity(PROBES), Vec::with_capacity(PROBES));
    // The first ones fetch keys.
    for round in 0..=PROBES / IN_A_ROW {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        for i in 0..IN_A_ROW {
            let key = &keys[i % keys.len()];
            let (get, read) = (get(&cache, key)?, read(&cache)?);
            if round > 0 {
                gets.push(get);
                reads.push(read);
            }
        }
    }
    let median = |mut all: Vec<Duration>| {
        let middle = all.len() / 2;
        *all.select_nth_unstable(middle).1
    };
    Ok((median(gets), median(reads)))
}

fn get(cache: &Cache, key: &[u8]) -> Result<Duration, PairError> {
    let clock = rma_xdp::time::TscClock::new();
    let began = clock.now();
    let got = cache.client().block_on(cache.get(key));
    let took = clock.now().since(began);
    let got = got.map_err(|it| FigureError::Cache(it.to_string()))?;
    match got.map_err(|it: GetError| FigureError::Cache(it.to_string()))?.found {
        Some(found) if found.value == [7; PROBE_LEN] => Ok(took),
        other => {
            Err(FigureError::Cache(format!("a get gives {other:?} for 64 octets of 7")).into())
        }
    }
}

fn read(cache: &Cache) -> Result<Duration, PairError> {
    let mut buf = cache.pool().try_acquire().expect("one get at a time has one buffer");
    buf.set_len(PROBE_LEN);
    let clock = rma_xdp::time::TscClock::new();
    let began = clock.now();
    let client = cache.client();
    let done = client.block_on(client.read(&cache.regions(0).1, 0, buf));
    let took = clock.now().since(began);
    let (result, _) = done.map_err(|it| FigureError::Cache(it.to_string()))?;
    result.map_err(|it| FigureError::Cache(it.to_string()))?;
    Ok(took)
}

/// A load on three servers whose keys rotate, one of which is killed.
///
/// # Errors
/// If something could not be set up.
pub fn under_load(interrupt: &Interrupt) -> Result<UnderLoad, PairError> {
    let scratch = Scratch::new();
    let mut demo = demo(&scratch, ROTATE)?;
    let mix = Mix { keys: 1000, rate: 1000.0, ..Mix::default() };
    let failed = |source: io::Error| DemoError::System { what: "starting a load", source };
    let client = demo.client().map_err(FigureError::from)?;
    let load = Load::new(client, demo.servers(), demo.credentials(), (mix, 1));
    let mut load = load.map_err(failed).map_err(FigureError::from)?;
    load.fill();
    let mut rotated = 0;
    let mut run = |load: &mut Load, demo: &Demo, time: Duration| {
        let (end, before) = (load.time() + time, load.counts());
        let over = |load: &mut Load| {
            rotated += demo.events().iter().filter(|it| it.1 == "rotated").count();
            load.time() >= end || interrupt.is_set()
        };
        load.run(over, |_| ());
        (load.counts().since(&before), rotated)
    };
    let (before, rotated) = run(&mut load, &demo, BEFORE);
    demo.kill(0).map_err(FigureError::from)?;
    run(&mut load, &demo, Duration::from_secs(1));
    let (gone, _) = run(&mut load, &demo, GONE);
    if interrupt.is_set() {
        return Err(PairError::Interrupted);
    }
    Ok(UnderLoad { before, gone, all: load.counts(), rotated })
}
