//! Several clients of one host, each of which issues its next op when the one before is done.

use rma_bench::{
    client::Client,
    error::{PairError, hint},
    load::LoadOp,
};
use rma_xdp::{Completion, OpStatus, Portal, time::Clock};

/// Bytes of a WRITE, and how far apart the clients write.
const LINE: u64 = 64;

/// The offset of the word that all clients add to.
const WORD: u64 = 0;

/// The work of such clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// All add 1 to one word. None of them is told what another is.
    Count,
    /// Each writes 64 B to a line of its own.
    Write,
}

impl Work {
    const fn op(self) -> LoadOp {
        match self {
            Self::Count => LoadOp::FetchAdd,
            Self::Write => LoadOp::Write,
        }
    }
}

/// Ops a second of as many clients as there are portals, each with one under way: `warm_up` of them
/// for nothing, then `count`.
///
/// # Errors
/// If an op does not succeed, or two clients that count are told the same.
pub fn per_second(
    client: &mut Client,
    portals: &mut [Portal],
    work: Work,
    (warm_up, count): (u64, u64),
) -> Result<f64, PairError> {
    ops(client, portals, work, warm_up)?;
    let start = client.clock.now();
    ops(client, portals, work, count)?;
    Ok(count as f64 / client.clock.now().since(start).as_secs_f64())
}

fn ops(
    client: &mut Client,
    portals: &mut [Portal],
    work: Work,
    count: u64,
) -> Result<(), PairError> {
    let grant = client.grants.get(work.op().op_type())?;
    let first = client.word(WORD);
    let (mut issued, mut done, mut sum) = (0, 0, 0_u64);
    while done < count {
        for (index, portal) in portals.iter_mut().enumerate() {
            if issued == count || portal.outstanding() > 0 {
                continue;
            }
            match work {
                Work::Count => portal.fetch_add(&grant, WORD, 1)?,
                Work::Write => {
                    let place = index as u64 * LINE;
                    portal.write(&grant, place, &client.source, place, LINE as u32)?
                }
            };
            issued += 1;
        }
        client.host.turn();
        for portal in portals.iter_mut() {
            let Some(completion) = portal.poll() else { continue };
            let Completion { status, .. } = completion;
            if status != OpStatus::Ok {
                let (op_type, hint) = (grant.op_type, hint(status));
                return Err(PairError::Failed { op_type, status, hint });
            }
            // The first, the second and so on: from 0.
            let ticket = completion.result().unwrap_or_default().wrapping_sub(first);
            sum = sum.wrapping_add(ticket);
            done += 1;
        }
    }
    tell_model(client, portals.len() as u64, work, (first, count));
    // Of 0, 1, 2 and so on.
    let all = count.wrapping_mul(count.saturating_sub(1)) / 2;
    if work == Work::Count && sum != all { Err(PairError::WrongByte { at: WORD }) } else { Ok(()) }
}

/// Tells the model what the region holds now.
fn tell_model(client: &mut Client, clients: u64, work: Work, (first, count): (u64, u64)) {
    let Client { model: Some(model), source, .. } = client else { return };
    match work {
        Work::Count => model.apply(WORD, &first.wrapping_add(count).to_le_bytes()),
        Work::Write => {
            let mut line = [0; LINE as usize];
            for place in (0..clients.min(count)).map(|index| index * LINE) {
                source.read(place, &mut line).expect("inside");
                model.apply(place, &line);
            }
        }
    }
}
