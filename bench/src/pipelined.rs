//! Small reads with many under way at once.

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

/// Reads of 64 B a second with `depth` under way, which the portal has slots for: `warm_up` of them
/// for nothing, then `count`. They go through a region of 64 KiB, one line after the other.
///
/// # Errors
/// If one does not succeed.
pub fn reads_per_second(
    client: &mut Client,
    portal: &mut Portal,
    depth: u16,
    (warm_up, count): (u64, u64),
) -> Result<f64, PairError> {
    reads(client, portal, depth, warm_up)?;
    let start = client.clock.now();
    reads(client, portal, depth, count)?;
    Ok(count as f64 / client.clock.now().since(start).as_secs_f64())
}

fn reads(
    client: &mut Client,
    portal: &mut Portal,
    depth: u16,
    count: u64,
) -> Result<(), PairError> {
    let grant = client.grants.get(OpType::Read)?;
    let (mut issued, mut done) = (0, 0);
    while done < count {
        let mut batch = portal.batch();
        while issued < count && issued - done < depth.into() {
            batch.read(&ReadOp {
                grant: &grant,
                remote_offset: issued * 64 % WARM,
                sink: &client.local,
                sink_offset: 0,
                op_size: 64,
                class: ClassOfService::Latency,
            })?;
            issued += 1;
        }
        drop(batch);
        client.host.turn();
        while let Some(completion) = portal.poll() {
            done += 1;
            match completion.status {
                OpStatus::Ok => {}
                status => {
                    let hint = hint(status);
                    return Err(PairError::Failed { op_type: OpType::Read, status, hint });
                }
            }
        }
    }
    Ok(())
}

/// Writes of 64 B a second, likewise.
///
/// # Errors
/// If one does not succeed.
pub fn writes_per_second(
    client: &mut Client,
    portal: &mut Portal,
    depth: u16,
    (warm_up, count): (u64, u64),
) -> Result<f64, PairError> {
    writes(client, portal, depth, warm_up)?;
    let start = client.clock.now();
    writes(client, portal, depth, count)?;
    Ok(count as f64 / client.clock.now().since(start).as_secs_f64())
}

fn writes(
    client: &mut Client,
    portal: &mut Portal,
    depth: u16,
    count: u64,
) -> Result<(), PairError> {
    let grant = client.grants.get(OpType::Write)?;
    let (mut issued, mut done) = (0, 0);
    while done < count {
        while issued < count && issued - done < depth.into() {
            let place = issued * 64 % WARM;
            portal.write(&grant, place, &client.source, place, 64)?;
            issued += 1;
        }
        client.host.turn();
        while let Some(completion) = portal.poll() {
            done += 1;
            match completion.status {
                OpStatus::Ok => {}
                status => {
                    let hint = hint(status);
                    return Err(PairError::Failed { op_type: OpType::Write, status, hint });
                }
            }
        }
    }
    Ok(())
}
