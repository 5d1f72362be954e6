//! `rma-bench cas-lat` and `rma-bench fetch-add-lat`: atomics on the words of a host that serves,
//! and their latency.
//!
//! The region holds a pattern, so each word is known before anybody changes it. Verified are
//! changes of random words, each of them and back: what an atomic tells of the word has to be what
//! was there. Measured are those that leave the word as it is. So the pattern is there afterwards,
//! and two such clients at once would each find the other's words. An op that ends with TIMEOUT is
//! settled, never repeated blindly.

use clap::Args;
use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_xdp::{
    Grant, OpStatus,
    ops::{Change, ClassOfService, RecordedOp, Verdict},
    time::Clock,
};
use serde::Serialize;

use crate::{
    alone::LoneOp,
    client::Client,
    error::PairError,
    interrupt::Interrupt,
    lat::{ClientArgs, SpanArgs, end, print_json, say_partial},
    latency::{Latencies, Table},
    line,
    remote::open_client,
    serve::{ServeError, tell_ways},
};

/// Bytes of a word.
const WORD: u32 = 8;

/// Arguments of `cas-lat` and `fetch-add-lat`.
#[derive(Args, Clone, Debug)]
pub struct AtomicLatArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    span: SpanArgs,
}

/// The counts of a verified run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct VerifiedAtomics {
    verified_atomics: u64,
    /// Those that ended with TIMEOUT, and of which SETTLE told what had become of them.
    settled: u64,
}

/// COMPARE_SWAP: verifies some and measures many.
///
/// # Errors
/// If something could not be set up; on a wrong word; if op after op fails.
pub fn cas_lat(args: &AtomicLatArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    atomic_lat(args, LoneOp::CompareSwap, interrupt)
}

/// FETCH_ADD: verifies some and measures many.
///
/// # Errors
/// As [`cas_lat`].
pub fn fetch_add_lat(args: &AtomicLatArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    atomic_lat(args, LoneOp::FetchAdd, interrupt)
}

fn atomic_lat(args: &AtomicLatArgs, op: LoneOp, interrupt: &Interrupt) -> Result<(), ServeError> {
    let AtomicLatArgs { client: args, span: SpanArgs { span, verify } } = args;
    let (mut client, remote) =
        open_client(&args.remote, (WORD, &[op.op_type()]), args.json, interrupt)?;
    let grant = client.grants.get(op.op_type())?;
    let (mut verified, mut latencies) = (VerifiedAtomics::default(), Latencies::new());
    let all = verify_words(&mut client, (&grant, op), *verify, &mut verified, interrupt);
    let done = all.and_then(|()| {
        let counts = (args.iters / 10, args.iters);
        client.measure_into(op, (WORD, *span), counts, (&mut latencies, interrupt))
    });
    let interrupted = remote.is_interrupted(done, &client, args.json)?;
    let latency = latencies.summary(op.name());
    if args.json {
        print_json(args, WORD, &client, verified, (latency, interrupted));
        return end(interrupted);
    }
    say_partial(interrupted);
    line!(
        "  verified  {} changes of random words of {}, every word what it had been left as; {} ended with TIMEOUT and \
         were settled",
        verified.verified_atomics,
        grant.responder,
        verified.settled,
    );
    line!("  restored  what was there before\n");
    client.failures.pauses().say();
    tell_ways(&client.host);
    line!("{}", Table(&[latency]));
    end(interrupted)
}

/// Changes random words and changes them back, `count` changes in all or one more.
fn verify_words(
    client: &mut Client,
    (grant, op): (&Grant, LoneOp),
    count: u64,
    verified: &mut VerifiedAtomics,
    interrupt: &Interrupt,
) -> Result<(), PairError> {
    let mut random = StdRng::seed_from_u64(client.pattern.seed() ^ op as u64);
    let words = client.span() / u64::from(WORD);
    while verified.verified_atomics < count {
        let remote_offset = random.random_range(0..words) * u64::from(WORD);
        let (old, new): (u64, u64) = (client.word(remote_offset), random.random());
        for (expected, new) in [(old, new), (new, old)] {
            let change = match op {
                LoneOp::CompareSwap => Change::CompareSwap { remote_offset, expected, new },
                _ => Change::FetchAdd { remote_offset, addend: new.wrapping_sub(expected) },
            };
            let settled = &mut verified.settled;
            let found = match once(client, (grant, change), settled, interrupt) {
                Err(PairError::Failing { .. }) if interrupt.is_set() => {
                    line!(
                        "  not restored: nothing comes back, and the word at {remote_offset} may be another than before; start \
                         `rma-bench serve` again, which fills the region anew"
                    );
                    return Err(PairError::Interrupted);
                }
                found => found?,
            };
            if found != expected {
                return Err(PairError::WrongByte { at: remote_offset });
            }
            verified.verified_atomics += 1;
        }
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
    }
    Ok(())
}

/// Applies a change exactly once, and tells what was there before.
fn once(
    client: &mut Client,
    (grant, change): (&Grant, Change<'_>),
    settled: &mut u64,
    interrupt: &Interrupt,
) -> Result<u64, PairError> {
    loop {
        if interrupt.is_set() {
            client.failures.make_haste();
        }
        let class = ClassOfService::Latency;
        client.portal.issue_recorded(&RecordedOp { grant, change, class })?;
        let ended = client.host.wait(&mut client.portal)?;
        let now = client.clock.now();
        if ended.status == OpStatus::Ok {
            client.failures.ok(now);
            return Ok(ended.result().expect("an atomic that was applied has a result"));
        }
        client.failures.count(ended.status, now)?;
        let Some(name) = ended.name().filter(|_| ended.may_have_changed()) else { continue };
        let answer = loop {
            client.portal.settle(grant, name)?;
            let answer = client.host.wait(&mut client.portal)?;
            if answer.status == OpStatus::Ok {
                break answer;
            }
            if interrupt.is_set() {
                client.failures.make_haste();
            }
            client.failures.count(answer.status, client.clock.now())?;
        };
        *settled += 1;
        match (answer.verdict(), answer.result()) {
            (Some(Verdict::Applied), Some(found)) => return Ok(found),
            (Some(Verdict::NotApplied), _) => {}
            _ => return Err(PairError::Forgotten { op_type: grant.op_type }),
        }
    }
}
