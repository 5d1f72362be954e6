//! `rma-bench write-lat`: verified writes to a host that serves, and their latency.
//!
//! The writer checks its own writes: it reads the region before, notes what it writes in a model,
//! and reads everything back at the end, through the READ grant that `serve --op read,write` puts
//! beside the WRITE grant. The server takes no part, as always. Then the writer restores what it
//! found, so that `read-lat` still finds the pattern; also if it is interrupted. Two writers at
//! once would each find the other's bytes.

use rma_xdp::{Grant, OpType};
use serde::Serialize;

use crate::{
    alone::LoneOp,
    client::{Client, Verified},
    error::PairError,
    interrupt::Interrupt,
    lat::{LatArgs, SizeArgs, SpanArgs, end, print_json, say_partial},
    latency::{Latencies, Table},
    line,
    model::Model,
    remote::open_client,
    serve::{ServeError, tell_ways},
};

/// How much of the region is written to: all of it, if it is not longer than this.
const SPAN_MAX: u64 = 64 << 20;

/// The counts of a verified `write-lat`.
#[derive(Debug, Serialize)]
struct VerifiedWrites {
    verified_writes: u64,
    compared_bytes: u64,
}

/// Results of a run.
#[derive(Default)]
struct Run {
    verified: Verified,
    latencies: Latencies,
    /// The region's content before.
    found: Vec<u8>,
    /// The error that kept it from being written back.
    not_restored: Option<PairError>,
}

/// Verifies some writes and measures many. With `--verify 0` it neither reads back nor restores,
/// and needs no READ grant.
///
/// # Errors
/// If something could not be set up; on a wrong byte; if op after op fails.
pub fn write_lat(args: &LatArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    let LatArgs { client: common, size: SizeArgs { size }, span: SpanArgs { verify, .. } } = args;
    let op_types = if *verify > 0 { &[OpType::Write, OpType::Read][..] } else { &[OpType::Write] };
    let (mut client, remote) =
        open_client(&common.remote, (*size, op_types), common.json, interrupt)?;
    let grant = client.grants.get(OpType::Write)?;
    let mut run = Run::default();
    let mut done = run.measure(&mut client, args, interrupt);
    if done.is_ok() {
        done = client.restore(&run.found, interrupt).map(drop);
    }
    let interrupted = remote.is_interrupted(done, &client, common.json)?;
    if interrupted {
        run.restore_hastily(&mut client);
    }
    let Run { verified, latencies, not_restored, .. } = run;
    let latency = latencies.summary(&format!("WRITE {size} B"));
    if common.json {
        let Verified { writes: verified_writes, compared: compared_bytes, .. } = verified;
        let verified = VerifiedWrites { verified_writes, compared_bytes };
        print_json(common, *size, &client, verified, (latency, interrupted));
    } else {
        say_partial(interrupted);
        say(&verified, &grant, client.model.is_some());
        client.failures.pauses().say();
        tell_ways(&client.host);
        line!("{}", Table(&[latency]));
    }
    not_restored.map_or_else(|| end(interrupted), |why| Err(ServeError::NotRestored { why }))
}

/// Says to people what was verified, and what the region holds. `restores`: what it held before.
fn say(verified: &Verified, grant: &Grant, restores: bool) {
    let (writes, responder) = (verified.writes, grant.responder);
    let repeated = if verified.retried > 0 { "; some repeated" } else { "" };
    match (restores, verified.compared) {
        (false, _) => line!(
            "  verified  nothing, as asked for with --verify 0: the region holds what was written last\n"
        ),
        (true, 0) => {
            line!("  verified  {writes} random writes to {responder}, not read back{repeated}");
        }
        (true, bytes) => {
            line!(
                "  verified  {writes} random writes to {responder}, and those that were measured: all {bytes} bytes read back, \
                 every byte right{repeated}"
            );
            line!("  restored  what was there before\n");
        }
    }
}

impl Run {
    /// Does all but restoring what was there.
    fn measure(
        &mut self,
        client: &mut Client,
        args: &LatArgs,
        interrupt: &Interrupt,
    ) -> Result<(), PairError> {
        let LatArgs { client: common, size: SizeArgs { size }, span: SpanArgs { span, verify } } =
            args;
        let Self { verified, latencies, found, .. } = self;
        if *verify > 0 {
            let len = client.grants.any().region_len.min(SPAN_MAX);
            *found = client.read_all(len, interrupt)?;
            client.model = Some(Model::new(found.clone()));
            let done =
                client.verify(OpType::Write, *verify, interrupt, |done| *verified = *done)?;
            *verified = done;
        }
        let counts = (common.iters / 10, common.iters);
        let of = (*size, *span);
        client.measure_into(LoneOp::Write, of, counts, (latencies, interrupt))?;
        let Some(model) = &client.model else { return Ok(()) };
        let len = model.len();
        let now = client.read_all(len, interrupt)?;
        let wrong = client.model.as_ref().and_then(|model| model.first_difference(0, &now));
        if let Some(at) = wrong {
            return Err(PairError::WrongByte { at });
        }
        verified.compared = len;
        Ok(())
    }

    /// Writes back what was there, though somebody wants the program to end.
    fn restore_hastily(&mut self, client: &mut Client) {
        if client.model.is_none() {
            return;
        }
        eprintln!(
            "rma-bench: restoring what was there before; once more Ctrl-C leaves it as it is"
        );
        client.failures.make_haste();
        // The flag is set already; a signal that comes now ends the program by itself.
        self.not_restored = client.restore(&self.found, &Interrupt::default()).err();
    }
}
