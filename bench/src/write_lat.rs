//! `rma-bench write-lat`: verified writes to a host that serves, and their latency.
//!
//! The writer checks its own writes: it reads the region before, notes what it writes in a model,
//! and reads everything back at the end, through the READ grant that `serve --op read,write` puts
//! beside the WRITE grant. The server takes no part, as always. Then the writer restores what it
//! found, so that `read-lat` still finds the pattern. Two writers at once would each find the
//! other's bytes.

use rma_xdp::OpType;
use serde::Serialize;

use crate::{
    alone::LoneOp,
    client::{Client, Verified},
    error::PairError,
    interrupt::Interrupt,
    lat::{LatArgs, SizeArgs, SpanArgs, open_client, print_json},
    latency::{Latencies, Table},
    line,
    model::Model,
    serve::{ServeError, tell_ways},
};

/// How much of the region is written to: all of it, if it is not longer than this.
const SPAN_MAX: u64 = 64 << 20;

/// What `write-lat` has verified.
#[derive(Debug, Serialize)]
struct VerifiedWrites {
    verified_writes: u64,
    compared_bytes: u64,
}

/// Verifies some writes and measures many. With `--verify 0` it neither reads back nor restores,
/// and needs no READ grant.
///
/// # Errors
/// What could not be set up, and why; a wrong byte; op after op that fails.
pub fn write_lat(args: &LatArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    let LatArgs { client: common, size: SizeArgs { size }, span: SpanArgs { verify, .. } } = args;
    let op_types = if *verify > 0 { &[OpType::Write, OpType::Read][..] } else { &[OpType::Write] };
    let (mut client, remote) = open_client(common, (*size, op_types), interrupt)?;
    let grant = client.grants.get(OpType::Write)?;
    let (verified, latencies) = write(&mut client, args, interrupt)
        .map_err(|error| remote.explain_on(&client, common.json, error))?;
    let latency = latencies.summary(&format!("WRITE {size} B"));
    if common.json {
        let Verified { writes: verified_writes, compared: compared_bytes, .. } = verified;
        let verified = VerifiedWrites { verified_writes, compared_bytes };
        print_json(common, *size, &client, verified, latency);
        return Ok(());
    }
    if verified.compared > 0 {
        line!(
            "  verified  {} random writes to {}, and those that were measured: all {} bytes read back, every byte \
             right{}",
            verified.writes,
            grant.responder,
            verified.compared,
            if verified.retried > 0 { "; some repeated" } else { "" }
        );
        line!("  restored  what was there before\n");
    } else {
        line!(
            "  verified  nothing, as asked for with --verify 0: the region holds what was written last\n"
        );
    }
    tell_ways(&client.host);
    line!("{}", Table(&[latency]));
    Ok(())
}

fn write(
    client: &mut Client,
    args: &LatArgs,
    interrupt: &Interrupt,
) -> Result<(Verified, Latencies), PairError> {
    let LatArgs { client: common, size: SizeArgs { size }, span: SpanArgs { span, verify } } = args;
    let mut found = Vec::new();
    let mut verified = Verified::default();
    if *verify > 0 {
        found = client.read_all(client.grants.any().region_len.min(SPAN_MAX), interrupt)?;
        client.model = Some(Model::new(found.clone()));
        verified = client.verify(OpType::Write, *verify, interrupt, |_| ())?;
    }
    let counts = (common.iters / 10, common.iters);
    let latencies = client.measure(LoneOp::Write, (*size, *span), counts, interrupt)?;
    if let Some(model) = &client.model {
        verified.compared = model.len();
        let now = client.read_all(verified.compared, interrupt)?;
        let wrong = client.model.as_ref().and_then(|model| model.first_difference(0, &now));
        if let Some(at) = wrong {
            return Err(PairError::WrongByte { at });
        }
        client.restore(&found, interrupt)?;
    }
    Ok((verified, latencies))
}
