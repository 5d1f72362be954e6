//! `rma-bench send-lat`: messages to a host that serves a receive queue, and their latency.
//!
//! The receiver compares each message and says at its end what came; see [`inbox`](crate::inbox).
//! What is measured is from issue to completion: that the message was delivered is known then.

use core::time::Duration;

use clap::Args;
use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_xdp::{Completion, OpStatus, OpType, time::Clock};
use serde::Serialize;

use crate::{
    amount::WARM,
    client::Client,
    error::PairError,
    interrupt::Interrupt,
    lat::{ClientArgs, SizeArgs, end, print_json, say_partial},
    latency::{Latencies, Table},
    line,
    remote::open_client,
    serve::{ServeError, tell_ways},
};

/// Arguments of `send-lat`.
#[derive(Args, Clone, Debug)]
pub struct SendLatArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    size: SizeArgs,
}

/// The counts of `send-lat`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Sent {
    /// Messages that were delivered, those to warm up among them.
    delivered: u64,
    /// How often one was refused as no receive was posted, and sent again.
    not_ready: u64,
}

/// Sends some messages to warm up, and measures many.
///
/// # Errors
/// If something could not be set up; if op after op fails.
pub fn send_lat(args: &SendLatArgs, interrupt: &Interrupt) -> Result<(), ServeError> {
    let SendLatArgs { client: args, size: SizeArgs { size } } = args;
    let (mut client, remote) =
        open_client(&args.remote, (*size, &[OpType::Send]), args.json, interrupt)?;
    let grant = client.grants.get(OpType::Send)?;
    let (mut sent, mut latencies) = (Sent::default(), Latencies::new());
    let counts = (args.iters / 10, args.iters);
    let done = send(&mut client, *size, counts, (&mut sent, &mut latencies), interrupt);
    let interrupted = remote.is_interrupted(done, &client, args.json)?;
    let latency = latencies.summary(&format!("SEND {size} B"));
    if args.json {
        print_json(args, *size, &client, sent, (latency, interrupted));
        return end(interrupted);
    }
    say_partial(interrupted);
    line!(
        "  delivered {} messages to {}, which says at its end whether every byte was right; {} refused as no receive \
         was posted, and sent again\n",
        sent.delivered,
        grant.responder,
        sent.not_ready,
    );
    client.failures.pauses().say();
    tell_ways(&client.host);
    line!("{}", Table(&[latency]));
    end(interrupted)
}

fn send(
    client: &mut Client,
    size: u32,
    (warm_up, count): (u64, u64),
    (sent, latencies): (&mut Sent, &mut Latencies),
    interrupt: &Interrupt,
) -> Result<(), PairError> {
    let grant = client.grants.get(OpType::Send)?;
    let mut random = StdRng::seed_from_u64(client.pattern.seed() ^ u64::from(size));
    while sent.delivered < warm_up + count {
        let place = random.random_range(0..=WARM - u64::from(size));
        let start = client.clock.now();
        client.portal.send(&grant, &client.source, place, size, place)?;
        let Completion { status, .. } = client.host.wait(&mut client.portal)?;
        let now = client.clock.now();
        let took: Duration = now.since(start);
        match status {
            OpStatus::Ok => {
                client.failures.ok(now);
                sent.delivered += 1;
                if sent.delivered > warm_up {
                    latencies.record(took);
                }
            }
            // Its receiver has more to do at the moment than to take messages.
            OpStatus::RemoteNotReady => sent.not_ready += 1,
            // The message may have come, and its slot may hold another one now.
            status => client.failures.count(status, now)?,
        }
        if interrupt.is_set() {
            return Err(PairError::Interrupted);
        }
    }
    Ok(())
}
