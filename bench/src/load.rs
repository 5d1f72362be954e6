//! Loads on a host that serves: `rma-bench read-lat` and its siblings.
//!
//! One loop (`run.rs`) for all: a schedule says when the next op may be issued, a work issues it
//! and tells how it ended, a recorder keeps what was seen. From issue to completion, never halved.
//! Ops of up to 4 KiB go through a portal, larger ones are calls of an executor. What is written
//! depends on its place alone, and the region holds afterwards what it held before
//! (`contents.rs`).

pub mod args;
mod atomics;
mod call_work;
mod checked;
mod columns;
mod contents;
mod crew;
mod hdr;
mod mix;
mod null;
mod op;
mod output;
mod places;
mod portal_work;
mod recorder;
pub mod row;
mod run;
pub mod schedule;
mod team;
mod work;

use core::time::Duration;
use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rma_core::cc::Algorithm;
use rma_xdp::{
    OpType,
    ops::{ClassOfService, OP_SIZE_MAX},
    time::{Clock, TscClock},
};
use serde::Serialize;

pub(crate) use self::columns::Number;
use self::{
    args::{ArgsError, Asks, AtomicArgs, LoadArgs, MixedArgs},
    call_work::{CallWork, Calls},
    contents::Contents,
    crew::Crew,
    hdr::HdrLog,
    mix::Mix,
    output::Output,
    portal_work::{PortalWork, Small},
    recorder::{Interval, Recorder},
    row::{Limit, Peer, Row, ServerUsage, Taken},
    run::{Extent, Plan, Tell},
    schedule::Schedule,
    work::{Leaves, Left},
};
pub use self::{
    checked::Checked,
    null::{Generator, generator},
    op::LoadOp,
    output::NotWritten,
};
use crate::{
    amount::WARM,
    client::{Area, Client},
    conditions::Conditions,
    cores,
    cpu::CoreTimes,
    error::PairError,
    failures::Failures,
    interrupt::Interrupt,
    keys::KeysError,
    latency::Latencies,
    line,
    machine::Machine,
    out,
    remote::{Remote, Wanted, open_client},
    serve::{ServeError, Tuning, tell_ways},
    session::Usage,
};

/// How long a closed loop runs that tells what a share of is the rate of an open one.
const PEAK: Extent = Extent::Time(Duration::from_secs(1));

/// An error that ended a load.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// An argument makes no sense for this load.
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// The server could not be reached, or an op went wrong.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A result could not be written.
    #[error(transparent)]
    NotWritten(#[from] NotWritten),
    /// Everything was measured, and limits do not hold.
    #[error("{missed} of {limits} limits do not hold: see the lines with LIMIT")]
    Limits {
        /// How many do not.
        missed: usize,
        /// How many were checked.
        limits: usize,
    },
}

impl From<PairError> for LoadError {
    fn from(error: PairError) -> Self {
        Self::Serve(error.into())
    }
}

impl LoadError {
    /// The exit status of a program that ends with it.
    #[must_use]
    pub const fn status(&self) -> u8 {
        match self {
            Self::Args(_) => 2,
            Self::Serve(error) => error.status(),
            Self::NotWritten(_) => 1,
            Self::Limits { .. } => 3,
        }
    }
}

/// A load, as it was typed.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    command: &'static str,
    asks: Asks,
    mix: Mix,
    args: &'a LoadArgs,
}

impl<'a> Task<'a> {
    /// The latency of one type of op.
    #[must_use]
    pub fn latency(command: &'static str, op: LoadOp, args: &'a LoadArgs) -> Self {
        Self { command, asks: Asks::Latency, mix: mix_of(op, args), args }
    }

    /// The rate of one type of op, and the payload that gets through.
    #[must_use]
    pub fn bandwidth(command: &'static str, op: LoadOp, args: &'a LoadArgs) -> Self {
        Self { command, asks: Asks::Bandwidth, mix: mix_of(op, args), args }
    }

    /// The latency of atomics.
    #[must_use]
    pub fn atomic_latency(args: &'a AtomicArgs) -> Self {
        Self::latency("atomic-lat", args.op(), &args.load)
    }

    /// The rate of atomics.
    #[must_use]
    pub fn atomic_bandwidth(args: &'a AtomicArgs) -> Self {
        Self::bandwidth("atomic-bw", args.op(), &args.load)
    }

    /// Several types of op at once.
    #[must_use]
    pub fn mixed(args: &'a MixedArgs) -> Self {
        let (asks, mix) = (Asks::Mixed, args.ratio.mix());
        Self { command: "mixed", asks, mix, args: &args.load }
    }

    /// The types of op that keys are needed for.
    fn op_types(&self) -> Vec<OpType> {
        let mut op_types: Vec<OpType> = self.mix.ops().map(LoadOp::op_type).collect();
        // What is written is read back.
        let reads_back = self.args.verify > 0 && self.mix.ops().any(LoadOp::writes);
        if reads_back && !op_types.contains(&OpType::Read) {
            op_types.push(OpType::Read);
        }
        op_types
    }

    /// The part of an area that each thread has for ops of this size.
    fn parts(&self, area: Area, size: u64) -> Result<Vec<Area>, ArgsError> {
        let (threads, len) = (self.args.threads, area.len);
        let change = self.mix.ops().any(|it| it.writes() || it.is_atomic());
        let parts = crew::parts(area, threads, change, size.max(8));
        parts.ok_or(ArgsError::Parts { threads, size, len })
    }

    /// The part of the region that ops go to. Whoever changes bytes or words has a lane, where the
    /// server has lanes; readers have the part without lanes, so that they see no writer.
    fn area(
        &self,
        remote: &mut Remote,
        region_len: u64,
        spread: Spread,
    ) -> Result<Area, ServeError> {
        let Spread { span, largest } = spread;
        if self.mix.ops().any(|it| it == LoadOp::Send) {
            // Messages have no place in the region: theirs is in what they are sent from.
            return Ok(Area { offset: 0, len: WARM });
        }
        let changes = self.mix.ops().any(|it| it.writes() || it.is_atomic());
        let Some(session) = &mut remote.session else {
            let writes = self.mix.ops().any(LoadOp::writes);
            let len = if writes { region_len.min(span) } else { region_len };
            return Ok(Area { offset: 0, len });
        };
        let hello = session.hello();
        let (room, lanes) = (hello.writable, hello.lanes);
        if !changes {
            if room.offset < largest {
                return Err(ServeError::ReadersHalf { size: largest, len: room.offset });
            }
            return Ok(Area { offset: 0, len: room.offset.min(region_len) });
        }
        // As much as each of them may have, if all are there.
        let least = largest.saturating_mul(4).saturating_mul(self.args.threads.into());
        let fair = (room.len / u64::from(lanes.max(1))).max(least).max(WARM);
        let is_asked = self.args.span.is_some();
        let wanted = if is_asked { span } else { span.min(fair).min(room.len.max(largest)) };
        let lane = session.lane(wanted).map_err(KeysError::from)?;
        Ok(Area { offset: lane.offset, len: lane.len })
    }
}

/// The bytes that ops are spread over, and the largest op.
#[derive(Clone, Copy, Debug)]
struct Spread {
    span: u64,
    largest: u64,
}

/// One type of op, or both directions.
fn mix_of(op: LoadOp, args: &LoadArgs) -> Mix {
    match op {
        LoadOp::Read if args.both => Mix::in_turns([op, LoadOp::Write]),
        LoadOp::Write if args.both => Mix::in_turns([op, LoadOp::Read]),
        _ => Mix::of(op),
    }
}

/// Runs a load and prints its rows.
///
/// # Errors
/// If something could not be set up; on a wrong byte; if op after op fails; if it is interrupted;
/// if a limit does not hold.
pub fn run(task: &Task<'_>, interrupt: &Interrupt) -> Result<(), LoadError> {
    let Task { asks, mix, args, .. } = task;
    if args.both && (mix.ops().len() != 2 || *asks == Asks::Mixed) {
        return Err(ArgsError::Both.into());
    }
    let sizes = args.sizes(mix)?;
    let depths = args.depths(*asks)?;
    let span = args.span(&sizes)?;
    args.check_rates(&sizes)?;
    let slots = args.slots(&sizes, &depths)?;
    let output = Output::open(&args.output, *asks)?;
    let hdr = args.output.hdr.as_deref().map(HdrLog::create).transpose()?;
    let quiet = !output.is_text();
    // Before this thread is pinned to one core of them.
    let machine = Machine::here();
    let used = match args.remote.host.cores() {
        [] => cores::available(),
        pinned => pinned.to_vec(),
    };
    let (cores, yields) = (machine.cores, args.yields(machine.cores));
    if args.lacks_cores(cores) {
        let threads = args.spinning();
        eprintln!("rma-bench: fallback: --idle yield, as {threads} threads have {cores} cores");
    }
    let largest = sizes.iter().max().map_or(0, |&it| it as u32);
    let tuning =
        Tuning { threads: args.spinning(), slots, timeout: args.timeout, ..Tuning::default() };
    let (op_types, patience) = (&*task.op_types(), args.patience);
    let wanted = Wanted { size: largest, op_types, patience, tuning, quiet };
    let (mut client, mut remote) = open_client(&args.remote, wanted, interrupt)?;
    let small = sizes.iter().any(|&it| it <= u64::from(OP_SIZE_MAX));
    if let Some(&deepest) = depths.iter().max().filter(|_| small) {
        client.deepen(deepest as u16, args.threads as u16).map_err(ServeError::from)?;
    }
    let region_len = client.grants.any().region_len;
    let spread = Spread { span, largest: largest.into() };
    client.set_area(task.area(&mut remote, region_len, spread)?);
    let room = client.area().with_len_at_most(span);
    for &size in sizes.iter() {
        task.parts(room, size)?;
    }
    let conditions = Conditions::new(machine, &client.host, args.remote.host.pinning(yields));
    let peer = Peer::new(&remote, region_len);
    if !quiet {
        let there = remote.session.as_ref().map(|it| it.hello().conditions.nodes());
        let there = there.map_or_else(String::new, |it| format!("; there {it}"));
        line!("  nodes     {}{}", conditions.nodes(), there.replace(char::is_control, ""));
    }
    let mut run = Run {
        task,
        span: span.min(client.area().len),
        seed: client.pattern.seed(),
        timeout: client.host.executor_config().timeout,
        cores: used,
        output: Mutex::new(output),
        hdr,
        conditions,
        server: remote.session.as_ref().map(|it| it.hello().conditions.clone()),
        peer,
        contents: Contents::default(),
        missed: 0,
        limits: 0,
    };
    let start = Start { command: task.command, conditions: &run.conditions, peer: &run.peer };
    run.output().event("start", &start)?;
    let done = run.contents.before(&mut client, mix, args.verify, interrupt);
    let done = done.map_err(LoadError::from);
    let lists = Lists { sizes: &sizes, depths: &depths };
    let done = done.and_then(|()| run.rows(&mut client, &mut remote, lists, interrupt));
    run.finish(&mut client, &mut remote, done, interrupt)
}

/// The first event of a run.
#[derive(Serialize)]
struct Start<'a> {
    command: &'static str,
    conditions: &'a Conditions,
    peer: &'a Peer,
}

/// The last event of a run.
#[derive(Serialize)]
struct End {
    command: &'static str,
    partial: bool,
    error: Option<String>,
    verified: Checked,
    pauses: u32,
    path_mtu: Option<u32>,
}

/// A run between its first event and its last.
struct Run<'a> {
    task: &'a Task<'a>,
    span: u64,
    /// The seed that arrivals follow from.
    seed: u64,
    /// How long an op waits for its data.
    timeout: Duration,
    /// The cores that threads may run on.
    cores: Vec<usize>,
    output: Mutex<Output>,
    hdr: Option<HdrLog>,
    conditions: Conditions,
    server: Option<Conditions>,
    peer: Peer,
    contents: Contents,
    missed: usize,
    limits: usize,
}

/// The record of a row, here and at the server.
struct Seen<'a> {
    recorder: &'a Recorder,
    per_second: Option<f64>,
    served: Option<Usage>,
    taken: Taken,
}

/// The rows to measure.
#[derive(Clone, Copy, Debug)]
struct Lists<'a> {
    sizes: &'a [u64],
    depths: &'a [u32],
}

/// The rest that measuring a row needs.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    clock: &'a TscClock,
    interrupt: &'a Interrupt,
}

/// One row to measure.
#[derive(Clone, Copy, Debug)]
struct Point {
    size: u64,
    depth: u32,
    class: ClassOfService,
    rate: Option<args::Load>,
}

impl Run<'_> {
    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows(
        &mut self,
        client: &mut Client,
        remote: &mut Remote,
        Lists { sizes, depths }: Lists<'_>,
        interrupt: &Interrupt,
    ) -> Result<(), LoadError> {
        let args = self.task.args;
        let rates: Vec<_> = match &*args.rate {
            [] => vec![None],
            rates => rates.iter().copied().map(Some).collect(),
        };
        for &size in sizes {
            for &depth in depths {
                for &rate in &rates {
                    let (class, depth) = (args.class(size), args.depth(depth));
                    let point = Point { size, depth, class, rate };
                    self.point(client, remote, point, interrupt)?;
                }
            }
        }
        Ok(())
    }

    /// Measures one row, through what ops of its size need.
    fn point(
        &mut self,
        client: &mut Client,
        remote: &mut Remote,
        point: Point,
        interrupt: &Interrupt,
    ) -> Result<(), LoadError> {
        let (mix, args, clock) = (&self.task.mix, self.task.args, client.clock.clone());
        let Point { size, depth, class, .. } = point;
        let areas = self.task.parts(client.area().with_len_at_most(self.span), size)?;
        let at = Place { clock: &clock, interrupt };
        let (done, (left, failures)) = if size <= u64::from(OP_SIZE_MAX) {
            let ops = Small { size: size as u32, class };
            self.measured(PortalWork::all(client, mix, ops, &areas)?, remote, point, at)
        } else {
            let calls = Calls { size, depth, class, cc: args.cc(size) };
            self.measured(CallWork::all(client, mix, calls, &areas)?, remote, point, at)
        };
        client.left(left, &failures);
        done
    }

    /// Measures one row, and returns what it leaves.
    fn measured<W: Leaves + Send>(
        &mut self,
        mut crew: Crew<'_, W>,
        remote: &mut Remote,
        point: Point,
        at: Place<'_>,
    ) -> (Result<(), LoadError>, (Vec<Left>, Vec<Failures>)) {
        let done = self.measure(&mut crew, remote, point, at);
        (done, crew.finish())
    }

    fn measure(
        &mut self,
        crew: &mut Crew<'_, impl Leaves + Send>,
        remote: &mut Remote,
        point: Point,
        Place { clock, interrupt }: Place<'_>,
    ) -> Result<(), LoadError> {
        let Task { asks, mix, args, .. } = self.task;
        let amount = args.amount(*asks, point.size);
        let plan = Plan {
            rounds: amount.rounds,
            yields: self.conditions.yields,
            ..Plan::of_one([amount.warm_up, amount.extent], point.depth, interrupt)
        };
        let (kinds, threads) = (mix.ops().len(), args.threads);
        let cores = args.remote.host.cores().get(1..).unwrap_or(&[]);
        let peak = match point.rate {
            Some(args::Load::Share(_)) => {
                let mut recorder = Recorder::new(kinds, 1);
                let plan = Plan { extent: PEAK, rounds: 1, ..plan };
                let closed = Schedule::closed_of(threads);
                crew.run(closed, cores, clock, plan, &mut recorder)?;
                recorder.moved().per_second(recorder.elapsed).ops_per_s
            }
            _ => 0.0,
        };
        let rate = point.rate.map(|it| it.per_second(point.size, peak));
        let per_second = rate.transpose()?;
        let open = |it| Schedule::open_of(threads, args.arrivals, it, self.seed);
        let schedules = per_second.map_or_else(|| Schedule::closed_of(threads), open);
        let failed = Mutex::new(None);
        let output = &self.output;
        let say = |interval: &Interval| {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = output.interval(interval) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        };
        let tell = args.output.interval.map(|every| Tell { every, say: &say });
        let mut recorder = Recorder::new(kinds, amount.rounds as usize);
        let plan = Plan { tell, ..plan };
        let before = remote.usage();
        let (cores_before, began) = (CoreTimes::of(&self.cores), clock.now());
        let done = crew.run(schedules, cores, clock, plan, &mut recorder);
        let elapsed = clock.now().since(began);
        let times = CoreTimes::of(&self.cores).zip(cores_before).map(|(now, it)| now.since(it));
        // Nobody waits for a server that may be gone.
        let before = before.filter(|_| done.is_ok());
        let served = before.and_then(|it| Some(remote.usage()?.since(&it)));
        let taken = Taken { times, elapsed };
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error.into());
        }
        if recorder.elapsed > Duration::ZERO {
            let partial = done.is_err();
            let seen = Seen { recorder: &recorder, per_second, served, taken };
            self.row(point, &seen, partial)?;
        }
        Ok(done?)
    }

    /// Makes a row for each kind of op.
    fn row(&mut self, point: Point, seen: &Seen<'_>, partial: bool) -> Result<(), LoadError> {
        let &Seen { recorder, per_second, ref served, taken } = seen;
        let Task { command, mix, args, .. } = self.task;
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, (op, kind)) in mix.ops().zip(&recorder.kinds).enumerate() {
            let load = row::Load {
                op: op.name(),
                r#loop: if per_second.is_some() { "open" } else { "closed" },
                depth: point.depth,
                threads: args.threads,
                size: if op.is_atomic() { 8 } else { point.size },
                span: self.span,
                asked_per_s: per_second.map(|it| it * mix.share(index)),
                arrivals: per_second.map(|_| args.arrivals.name()),
                rounds: kind.rates.len() as u32,
                class: class_name(point.class),
                cc: cc_name(args, point.size),
                timeout_ms: self.timeout.as_secs_f64() * 1e3,
            };
            let server_usage = served.as_ref().map(|it| ServerUsage::new(it, recorder, &load));
            let of_kind = Row::of(kind, recorder, per_second);
            let cpu = of_kind.cpu.with(taken, recorder);
            let row = Row {
                schema: row::SCHEMA,
                event: "row",
                command,
                row: output.rows(),
                partial,
                conditions: self.conditions.clone(),
                peer: self.peer.clone(),
                load,
                verified: self.contents.checked,
                server: self.server.clone(),
                server_usage,
                cpu,
                ..of_kind
            };
            if let Some(log) = &mut self.hdr {
                let rate = per_second.map_or_else(String::new, |it| format!("-{it:.0}"));
                let (op, Point { size, depth, .. }) = (op.name().replace(' ', "-"), point);
                let tag = format!("{op}-{size}-{depth}{rate}");
                log.write(&format!("{tag}-response"), &kind.response, recorder.elapsed)?;
                if recorder.is_open {
                    log.write(&format!("{tag}-service"), &kind.service, recorder.elapsed)?;
                }
            }
            let limits = limits(&args.output, &row);
            self.limits += limits.len();
            self.missed += limits.iter().filter(|it| !it.ok).count();
            output.row(&Row { limits, ..row })?;
        }
        Ok(())
    }

    /// Reads back and restores what was written, says what was verified, and returns how the run
    /// ended.
    fn finish(
        mut self,
        client: &mut Client,
        remote: &mut Remote,
        done: Result<(), LoadError>,
        interrupt: &Interrupt,
    ) -> Result<(), LoadError> {
        let quiet = !self.output().is_text();
        let done = done.and_then(|()| Ok(self.contents.after(client, interrupt)?));
        let interrupted =
            matches!(done, Err(LoadError::Serve(ServeError::Pair(PairError::Interrupted))));
        // Whatever ended it: what was there before is written back.
        let restored = match &done {
            Ok(()) => Ok(()),
            Err(_) => self.contents.restore_hastily(client, interrupt),
        };
        let done = match done {
            Err(LoadError::Serve(ServeError::Pair(error))) => {
                remote.is_interrupted(Err(error), client, quiet).map(drop).map_err(LoadError::from)
            }
            done => done,
        };
        let pauses = client.failures.pauses();
        if !quiet {
            if interrupted {
                line!("\n  partial   it was interrupted: this is what there was until then");
            } else if done.is_err() {
                line!("\n  partial   it ended early: this is what there was until then");
            }
            let server = client.grants.any().responder;
            let ended_well = done.is_ok() && !interrupted;
            self.contents.say(&self.task.mix, self.task.args.verify, ended_well, &server);
            pauses.say();
            tell_ways(&client.host);
        }
        let end = End {
            command: self.task.command,
            partial: interrupted || done.is_err(),
            error: done.as_ref().err().map(ToString::to_string),
            verified: self.contents.checked,
            pauses: pauses.count(),
            path_mtu: client.host.narrow_paths().first().map(|narrow| narrow.mtu),
        };
        let is_left = done.is_err() && matches!(restored, Err(PairError::Interrupted));
        if is_left || restored.is_err() && out::failure().is_some() {
            // No other error says so, or nobody reads it.
            let _ = writeln!(io::stderr(), "rma-bench: what was there before is not restored");
        }
        let told = self.output().event("end", &end);
        done?;
        told?;
        restored.map_err(|why| {
            let Area { offset, len } = client.area();
            ServeError::NotRestored { why, offset, end: offset + len }
        })?;
        if interrupted {
            return Err(PairError::Interrupted.into());
        }
        let Self { missed, limits, .. } = self;
        if missed > 0 { Err(LoadError::Limits { missed, limits }) } else { Ok(()) }
    }
}

/// The congestion control of ops of this size, if there is any.
fn cc_name(args: &LoadArgs, size: u64) -> Option<String> {
    let default = || Algorithm::default().name().to_owned();
    let is_paced = size > OP_SIZE_MAX.into();
    is_paced.then(|| args.cc.map_or_else(default, |it| it.to_string()))
}

const fn class_name(class: ClassOfService) -> &'static str {
    match class {
        ClassOfService::Latency => "latency",
        ClassOfService::Throughput => "throughput",
    }
}

/// The limits that were asked for, beside what a row has.
fn limits(args: &args::OutputArgs, row: &Row) -> Vec<Limit> {
    let throughput = &row.throughput;
    let at_most = |name, limit, value: Option<f64>| {
        let ok = value.is_some_and(|it| it <= limit);
        Limit { name, limit, value, ok }
    };
    let at_least =
        |name, limit, value| Limit { name, limit, value: Some(value), ok: value >= limit };
    let p99 = args.limit_p99.map(|it| at_most("p99_us", it, row.latency_us.p99));
    let rate = args.limit_rate.map(|it| at_least("ops_per_s", it, throughput.ops_per_s));
    let goodput = args
        .limit_goodput
        .map(|it| at_least("payload_gbit_per_s", it, throughput.payload_gbit_per_s));
    [p99, rate, goodput].into_iter().flatten().collect()
}

impl Client {
    /// Takes note of what works have left, and of how their ops failed.
    fn left(&mut self, left: Vec<Left>, failures: &[Failures]) {
        self.failures.join(failures.iter());
        left.into_iter().for_each(|it| it.tell(self));
    }

    /// Runs ops of `size` bytes at random lines of the first `span` bytes of its area, one after
    /// the other: `warm_up` times, then `count` times with the clock running. An atomic's `size`
    /// is 8, whatever it is.
    ///
    /// # Errors
    /// If op after op fails, or such ops are not granted; if an atomic finds another word than
    /// should be there.
    pub fn measure(
        &mut self,
        op: LoadOp,
        (size, span): (u32, u64),
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let clock = self.clock.clone();
        let class = ClassOfService::Latency;
        let areas = [self.area().with_len_at_most(span)];
        let mut crew = PortalWork::all(self, &Mix::of(op), Small { size, class }, &areas)?;
        let plan = Plan::of_one([Extent::Ops(warm_up), Extent::Ops(count)], 1, interrupt);
        let mut recorder = Recorder::new(1, 1);
        let done = crew.run(Schedule::closed_of(1), &[], &clock, plan, &mut recorder);
        let (left, failures) = crew.finish();
        self.left(left, &failures);
        done.map(|()| recorder.into_latencies())
    }

    /// READs of `size` bytes all over its area, as calls of an executor, `depth` at once: `warm_up`
    /// for nothing, then `count`. Returns their payload in Gbit/s.
    ///
    /// # Errors
    /// If call after call fails, a byte is wrong, or READs are not granted.
    pub(crate) fn goodput(
        &mut self,
        (size, depth): (u64, u32),
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<f64, PairError> {
        let clock = self.clock.clone();
        let (areas, class) = ([self.area()], ClassOfService::Throughput);
        let calls = Calls { size, depth, class, cc: None };
        let mut crew = CallWork::all(self, &Mix::of(LoadOp::Read), calls, &areas)?;
        let plan = Plan::of_one([Extent::Ops(warm_up), Extent::Ops(count)], depth, interrupt);
        let mut recorder = Recorder::new(1, 1);
        let done = crew.run(Schedule::closed_of(1), &[], &clock, plan, &mut recorder);
        let (left, failures) = crew.finish();
        self.left(left, &failures);
        done.map(|()| recorder.moved().per_second(recorder.elapsed).gbit_per_s)
    }
}
