//! StaR's shipped engines in simulation when packets are lost, a host dies, or roles change.
//!
//! A run repeats exactly, so noise is no excuse.

use core::time::Duration;

use rma_bench::{error::PairError, interrupt::Interrupt};
use rma_sim::{
    prng::Chance,
    star::engines::{
        deaths::deaths,
        options::{Options, Outcome},
        run::Run,
    },
};

use super::spec::Measured;

/// The round trip of these runs with turns and queues, which the timers go by.
const RTT: Duration = Duration::from_micros(20);
/// One packet of a hundred.
const LOSS: u32 = 10_000;
/// How long calls are counted, after as long a time in which they are not.
const LENGTH: Duration = Duration::from_millis(10);

/// Calls of RPC, with so many connections and so many packets of a million lost.
fn rpc(connections: u32, ppm: u32, rtt: Option<Duration>) -> (Outcome, Duration) {
    let options = Options { connections, loss: Chance::ppm(ppm), ..Options::default() };
    let options = rtt.map_or(options, |rtt| options.with_timers_of(rtt));
    let mut run = Run::new(options);
    run.run_for(LENGTH);
    let _ = run.outcome();
    run.run_for(LENGTH);
    (run.outcome(), options.star.ends_within())
}

/// Returns the rate of calls that is left when packets are lost. Calls that took longer than T_dead
/// count as not done, and none counts if a work request has failed.
fn left(connections: u32, rtt: Option<Duration>) -> (f64, Outcome, Outcome) {
    let (all, _) = rpc(connections, 0, rtt);
    let (lossy, bound) = rpc(connections, LOSS, rtt);
    let in_time = |&&took: &&u64| Duration::from_nanos(took) <= bound;
    let done = lossy.took.iter().filter(in_time).count();
    let done = if lossy.failed == 0 { done as f64 } else { 0.0 };
    (done / all.done as f64, all, lossy)
}

pub(super) fn loss(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let (value, all, lossy) = left(64, Some(RTT));
    let mut others = Vec::new();
    for (connections, rtt) in [(8, Some(RTT)), (400, Some(RTT)), (64, None), (400, None)] {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        let timers = if rtt.is_some() { "these timers" } else { "the default ones" };
        others.push(format!("{connections} with {timers} {:.2}", left(connections, rtt).0));
    }
    let rate = |outcome: &Outcome| outcome.done as f64 / LENGTH.as_secs_f64() * 1e-6;
    let slowest = |outcome: &Outcome| outcome.took.iter().max().map_or(0, |&took| took / 1000);
    let detail = format!(
        "simulated, shipped engines, RPC of 64 connections of 8 hosts, 10 Gbit/s, 1 % of packets lost, W and retransmits four \
         round trips of 20 us: {:.3} of {:.3} M calls/s, the slowest {} us, {} without loss; {} packets \
         lost, {} frames sent again; connections: {}",
        rate(&lossy),
        rate(&all),
        slowest(&lossy),
        slowest(&all),
        lossy.lost[0],
        lossy.again,
        others.join(", "),
    );
    Ok(vec![Measured::new(value, detail)])
}

/// How often roles change in a run, and how long each time lasts.
const SWITCHES: u32 = 8;
const BETWEEN: Duration = Duration::from_millis(100);

/// Calls of RPC beside changes of roles of all connections, and without.
fn switched(ppm: u32, switches: bool) -> Outcome {
    let mut run = Run::new(Options { loss: Chance::ppm(ppm), ..Options::default() });
    run.run_for(LENGTH);
    let _ = run.outcome();
    for _ in 0..SWITCHES {
        if switches {
            run.switch_roles();
        }
        run.run_for(BETWEEN);
    }
    run.outcome()
}

pub(super) fn switch(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let options = Options::default();
    let again = options.star.retransmit_timeout;
    let (mut value, mut parts) = (0.0_f64, Vec::new());
    for ppm in [0, 100, 1000] {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        let [with, without] = [true, false].map(|switches| switched(ppm, switches));
        let gap = with.longest_gap.as_secs_f64() / again.as_secs_f64();
        // A call that was lost, or connections that keep their roles, show nothing.
        let counts = with.failed == 0 && with.switched > 0;
        // With more loss some packets are lost twice, and that takes longer than 3 with no change.
        if ppm <= 100 || !counts {
            value = value.max(if counts { gap } else { f64::INFINITY });
        }
        parts.push(format!(
            "{:.2} % of packets lost: {:?} in {} changes, {:?} without any",
            f64::from(ppm) * 1e-4,
            with.longest_gap,
            with.switched,
            without.longest_gap,
        ));
    }
    let detail = format!(
        "simulated, shipped engines, RPC of {} connections of {} hosts, roles of all change {SWITCHES} times, {again:?} until \
         a frame is sent again; the longest time between two calls of a connection: {}",
        options.connections,
        options.clients,
        parts.join("; "),
    );
    Ok(vec![Measured::new(value, detail)])
}

pub(super) fn death(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let (mut runs, mut failed, mut worst, mut bounds) = (0, 0, [0.0_f64; 2], [0.0; 2]);
    for death in deaths() {
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
        let side = usize::from(death.stateless_lives);
        (worst[side], bounds[side]) =
            (worst[side].max(death.over_bound()), death.bound.as_secs_f64());
        (runs, failed) = (runs + 1, failed + death.outcome.failed);
    }
    let detail = format!(
        "simulated, shipped engines, default timers, RPC, WRITEs and READs of 2 connections, either host killed after each of \
         the first turns of its work, {runs} runs, {failed} work requests failed: {:.3} of {:.1} s where the stateful side \
         lives, {:.3} of {:.1} s where the stateless side does",
        worst[0], bounds[0], worst[1], bounds[1],
    );
    let value = worst[0].max(worst[1]);
    Ok(vec![Measured::new(value, detail)])
}
