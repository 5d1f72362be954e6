//! Atomics that are verified: changes of random words, each of them and back.
//!
//! An atomic has to tell the word that was there. One that ends with TIMEOUT is settled, never
//! repeated blindly. So the words are afterwards what they were before.

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_xdp::{
    OpStatus,
    ops::{Change, ClassOfService, RecordedOp, Verdict},
    time::Clock,
};

use super::{checked::Checked, op::LoadOp};
use crate::{client::Client, error::PairError, interrupt::Interrupt, line};

/// Bytes of a word.
const WORD: u64 = 8;

/// Changes random words and changes them back, `count` changes in all or one more.
///
/// # Errors
/// On a wrong word; if op after op fails.
pub(super) fn verify(
    client: &mut Client,
    op: LoadOp,
    count: u64,
    checked: &mut Checked,
    interrupt: &Interrupt,
) -> Result<(), PairError> {
    let grant = client.grants.get(op.op_type())?;
    let mut random = StdRng::seed_from_u64(client.pattern.seed() ^ op as u64);
    let area = client.area();
    // A region that is shorter than a word has none.
    let words = (area.len / WORD).max(1);
    let (end, class) = (checked.ops + count, ClassOfService::Latency);
    while checked.ops < end {
        let remote_offset = area.offset + random.random_range(0..words) * WORD;
        let (old, new): (u64, u64) = (client.word(remote_offset), random.random());
        for (expected, new) in [(old, new), (new, old)] {
            let change = match op {
                LoadOp::CompareSwap => Change::CompareSwap { remote_offset, expected, new },
                _ => Change::FetchAdd { remote_offset, addend: new.wrapping_sub(expected) },
            };
            let found = match once(
                client,
                RecordedOp { grant: &grant, change, class },
                checked,
                interrupt,
            ) {
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
            checked.ops += 1;
            checked.bytes += WORD;
            if let Some(model) = &mut client.model {
                model.apply(remote_offset, &new.to_le_bytes());
            }
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
    op: RecordedOp<'_>,
    checked: &mut Checked,
    interrupt: &Interrupt,
) -> Result<u64, PairError> {
    loop {
        if interrupt.is_set() {
            client.failures.make_haste();
        }
        client.portal.issue_recorded(&op)?;
        let ended = client.host.wait(&mut client.portal)?;
        let now = client.clock.now();
        if ended.status == OpStatus::Ok {
            client.failures.ok(now);
            return Ok(ended.result().expect("an atomic that was applied has a result"));
        }
        checked.retried += 1;
        client.failures.count(ended.status, now)?;
        let Some(name) = ended.name().filter(|_| ended.may_have_changed()) else { continue };
        let answer = loop {
            client.portal.settle(op.grant, name)?;
            let answer = client.host.wait(&mut client.portal)?;
            if answer.status == OpStatus::Ok {
                break answer;
            }
            if interrupt.is_set() {
                client.failures.make_haste();
            }
            client.failures.count(answer.status, client.clock.now())?;
        };
        checked.settled += 1;
        match (answer.verdict(), answer.result()) {
            (Some(Verdict::Applied), Some(found)) => return Ok(found),
            (Some(Verdict::NotApplied), _) => {}
            _ => return Err(PairError::Forgotten { op_type: op.grant.op_type }),
        }
    }
}
