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
use rma_xdp::{Change, ClassOfService, Grant, OpStatus, RecordedOp, Verdict};
use serde::Serialize;

use crate::{
    alone::LoneOp,
    client::Client,
    error::{PairError, count_failure},
    interrupt::Interrupt,
    lat::{ClientArgs, SpanArgs, open_client, print_json},
    latency::Table,
    line,
    serve::ServeError,
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

/// What was verified.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct VerifiedAtomics {
    verified_atomics: u64,
    /// Those that ended with TIMEOUT, and of which SETTLE told what had become of them.
    settled: u64,
}

/// COMPARE_SWAP: verifies some and measures many.
///
/// # Errors
/// What could not be set up, and why; a wrong word; op after op that fails.
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
    let (mut client, remote) = open_client(args, (WORD, &[op.op_type()]), interrupt)?;
    let grant = client.grants.get(op.op_type())?;
    let verified = verified(&mut client, &grant, op, *verify, interrupt);
    let verified = verified.map_err(|error| remote.explain(error))?;
    let counts = (args.iters / 10, args.iters);
    let latencies = client.measure(op, (WORD, *span), counts, interrupt);
    let latency = latencies.map_err(|error| remote.explain(error))?.summary(op.name());
    if args.json {
        print_json(args, WORD, &client, verified, latency);
        return Ok(());
    }
    line!(
        "  verified  {} changes of random words of {}, every word what it had been left as; {} ended with TIMEOUT and \
         were settled",
        verified.verified_atomics,
        grant.responder,
        verified.settled,
    );
    line!("  restored  what was there before\n");
    line!("{}", Table(&[latency]));
    Ok(())
}

/// Changes random words and changes them back, `count` changes in all or one more.
fn verified(
    client: &mut Client,
    grant: &Grant,
    op: LoneOp,
    count: u64,
    interrupt: &Interrupt,
) -> Result<VerifiedAtomics, PairError> {
    let mut verified = VerifiedAtomics::default();
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
            let found = once(client, grant, change, &mut verified.settled)?;
            if found != expected {
                return Err(PairError::WrongByte { at: remote_offset });
            }
            verified.verified_atomics += 1;
        }
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
    }
    Ok(verified)
}

/// Applies a change exactly once, and tells what was there before.
fn once(
    client: &mut Client,
    grant: &Grant,
    change: Change<'_>,
    settled: &mut u64,
) -> Result<u64, PairError> {
    let mut failures = 0;
    loop {
        let class = ClassOfService::Latency;
        client.portal.issue_recorded(&RecordedOp { grant, change, class })?;
        let ended = client.host.wait(&mut client.portal)?;
        if ended.status == OpStatus::Ok {
            return Ok(ended.result().expect("an atomic that was applied has a result"));
        }
        failures = count_failure(failures, ended.status)?;
        let Some(name) = ended.name().filter(|_| ended.may_have_changed()) else { continue };
        let answer = loop {
            client.portal.settle(grant, name)?;
            let answer = client.host.wait(&mut client.portal)?;
            if answer.status == OpStatus::Ok {
                break answer;
            }
            failures = count_failure(failures, answer.status)?;
        };
        *settled += 1;
        match (answer.verdict(), answer.result()) {
            (Some(Verdict::Applied), Some(found)) => return Ok(found),
            (Some(Verdict::NotApplied), _) => {}
            _ => return Err(PairError::Forgotten { op_type: grant.op_type }),
        }
    }
}
