//! Small ops with many under way at once.

use rma_xdp::{
    OpStatus, OpType, Portal,
    ops::{ClassOfService, ReadOp},
    time::Clock,
};

use crate::{
    amount::WARM,
    client::Client,
    error::{PairError, hint},
};

/// READs or WRITEs of 64 B a second with `depth` under way, which the portal has slots for:
/// `warm_up` of them for nothing, then `count`. They go through a region of 64 KiB, one line after
/// the other; READs in batches.
///
/// # Errors
/// If one does not succeed.
pub fn ops_per_second(
    client: &mut Client,
    portal: &mut Portal,
    op_type: OpType,
    depth: u16,
    (warm_up, count): (u64, u64),
) -> Result<f64, PairError> {
    run(client, portal, op_type, depth, warm_up)?;
    let start = client.clock.now();
    run(client, portal, op_type, depth, count)?;
    Ok(count as f64 / client.clock.now().since(start).as_secs_f64())
}

fn run(
    client: &mut Client,
    portal: &mut Portal,
    op_type: OpType,
    depth: u16,
    count: u64,
) -> Result<(), PairError> {
    let grant = client.grants.get(op_type)?;
    let (mut issued, mut done) = (0, 0);
    while done < count {
        let first = issued;
        issued = count.min(done + u64::from(depth));
        let places = (first..issued).map(|op| op * 64 % WARM);
        if op_type == OpType::Read {
            let (grant, sink, class) = (&grant, &client.local, ClassOfService::Latency);
            let mut batch = portal.batch();
            for remote_offset in places {
                let read =
                    ReadOp { grant, remote_offset, sink, sink_offset: 0, op_size: 64, class };
                batch.read(&read)?;
            }
        } else {
            for place in places {
                portal.write(&grant, place, &client.source, place, 64)?;
            }
        }
        client.host.turn();
        while let Some(completion) = portal.poll() {
            done += 1;
            let status = completion.status;
            if status != OpStatus::Ok {
                return Err(PairError::Failed { op_type, status, hint: hint(status) });
            }
        }
    }
    Ok(())
}
