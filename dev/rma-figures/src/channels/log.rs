//! Requests and answers through send/recv, whose server keeps what it is sent in a log or does not:
//! what a copy at the receiver costs (the paper's §6.1).
//!
//! The server answers with the bytes of the request, out of the buffer that they have come in,
//! which it gives back when its answer has been accepted. So the copy into the log is all that the
//! two ways differ in.

use core::fmt;
use std::collections::VecDeque;

use rma_bench::{
    client::Client, error::PairError, interrupt::Interrupt, latency::Latencies, pair::Pair,
};
use rma_xdp::{
    OpType,
    channel::{
        Claim, Claims as _, Kind, Outgoing as _, Peer, Receiver as _, SendError, SendHandle,
        SendRegion as _, SendState, Sender as _,
        send_recv::{
            SendRecvConfig,
            normal::{Receiver, Sender},
        },
    },
    time::Clock,
};

use super::{Side, Wrong, check, failed, fill, open::both, run, take};

/// Requests under way at most.
const RECEIVES: u16 = 32;

/// The messages that a server has been sent, one message behind the other, around its end.
struct Log {
    bytes: Vec<u8>,
    end: usize,
}

impl Log {
    /// Returns the place of the next message.
    fn next(&mut self, len: usize) -> &mut [u8] {
        if self.end + len > self.bytes.len() {
            self.end = 0;
        }
        let start = self.end;
        self.end += len;
        &mut self.bytes[start..self.end]
    }
}

/// A channel from the client of a pair to its server and one back, and the server's log.
pub struct Logged {
    // Dropped in this order.
    there: (Sender, Receiver),
    back: (Sender, Receiver),
    client: Side,
    server: Side,
    desk: Desk,
    size: usize,
    /// How many requests were sent, all of which are answered between two rounds.
    sent: u64,
}

/// The results of requests.
struct Requests {
    per_s: f64,
    /// Of each, where there was one at a time.
    latencies: Latencies,
}

/// The desk of a server.
struct Desk {
    log: Log,
    /// The messages that are being answered, in order.
    answered: VecDeque<(SendHandle, Claim)>,
    /// The message that waits for room to be answered.
    waiting: Option<Claim>,
}

impl fmt::Debug for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logged").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Logged {
    /// Opens both channels, for messages of `size` bytes, up to an op's worth, and a log of so many
    /// bytes.
    ///
    /// # Errors
    /// If slots or memory cannot be had.
    pub fn open(pair: &Pair, size: u32, slots: u16, log: usize) -> Result<Self, PairError> {
        let kind = Kind::SendRecvNormal;
        let grant = pair.client.grants.get(OpType::Read)?;
        let (client, server) = (&pair.client.host, &pair.server);
        let here = Peer { address: grant.initiator, pid: client.pid() };
        let there = Peer { address: grant.responder, pid: server.pid() };
        let with = |peer: Peer| {
            SendRecvConfig::with_peer(peer).with(|it| (it.receives, it.len_max) = (RECEIVES, size))
        };
        let requests =
            both(kind, Sender::open(client, with(there)), Receiver::open(server, with(here)))?;
        let answers =
            both(kind, Sender::open(server, with(here)), Receiver::open(client, with(there)))?;
        let (client, server) = (Side::open(client, slots)?, Side::open(server, slots)?);
        // Written to, so that all of it is there.
        let log = Log { bytes: vec![0xff; log], end: 0 };
        let desk = Desk { log, answered: VecDeque::new(), waiting: None };
        let size = size as usize;
        Ok(Self { there: requests, back: answers, client, server, desk, size, sent: 0 })
    }

    /// Requests a second that are answered, as many under way as the channels take: `warm_up` for
    /// nothing, then `count`. `keeps`: the server copies each into its log.
    ///
    /// # Errors
    /// If one is lost, or another.
    pub fn rate(
        &mut self,
        pair: &mut Pair,
        keeps: bool,
        counts: (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<f64, PairError> {
        Ok(self.requests(pair, keeps, u64::MAX, counts, interrupt)?.per_s)
    }

    /// How long a request takes, one after the other, until its answer is there. Otherwise as
    /// [`Logged::rate`].
    ///
    /// # Errors
    /// As [`Logged::rate`].
    pub fn latency(
        &mut self,
        pair: &mut Pair,
        keeps: bool,
        counts: (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        Ok(self.requests(pair, keeps, 1, counts, interrupt)?.latencies)
    }

    /// Requests, of which no more than `depth` are under way.
    fn requests(
        &mut self,
        pair: &mut Pair,
        keeps: bool,
        depth: u64,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Requests, PairError> {
        let Self { there, back, client: from, server: to, desk, size, sent } = self;
        let (sender, requests) = there;
        let (answering, receiver) = back;
        let (size, failed) = (*size, &failed(Kind::SendRecvNormal));
        let (clock, wrong) = (pair.client.clock.clone(), &Wrong::new());
        let Desk { log, answered, waiting } = desk;
        let server = move || -> Result<(), PairError> {
            let now = clock.now();
            to.link.poll(now);
            answering.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            while let Some((handle, _)) = answered.front()
                && matches!(answering.test(*handle), SendState::Accepted | SendState::Processed)
                && let Some((_, claim)) = answered.pop_front()
            {
                requests.free(claim);
            }
            loop {
                let claim = match waiting.take() {
                    Some(claim) => claim,
                    None => match requests.claim().map_err(|error| failed(&error))? {
                        Some(claim) => {
                            if keeps {
                                requests.read(&claim, 0, log.next(claim.len()));
                            }
                            claim
                        }
                        None => break,
                    },
                };
                let (memory, range) = requests.place(&claim);
                match answering.send_region(&mut to.link, now, memory, range) {
                    Ok(handle) => answered.push_back((handle, claim)),
                    Err(SendError::Full) => {
                        *waiting = Some(claim);
                        break;
                    }
                    Err(error) => return Err(failed(&error)),
                }
            }
            requests.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            to.link.poll(now);
            Ok(())
        };
        let (mut message, mut come) = (vec![0; size], *sent);
        let (mut bytes, mut expected) = (vec![0; size], vec![0; size]);
        run(pair, server, wrong, |client| {
            let before = come;
            let (mut began, mut tried) = (client.clock.now(), before);
            let mut until = |client: &mut Client, all: u64| -> Result<Latencies, PairError> {
                let mut latencies = Latencies::new();
                while come < all {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    let seen = come;
                    take(receiver, &mut come, (&mut bytes, &mut expected), failed)?;
                    let now = client.clock.now();
                    // Where several are under way it is not known which one this is.
                    if depth == 1 && come > seen {
                        latencies.record(now.since(began));
                    }
                    from.link.poll(now);
                    sender.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                    receiver.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                    while *sent < all.min(come.saturating_add(depth)) {
                        fill(&mut message, *sent + 1);
                        if tried == *sent {
                            (began, tried) = (now, *sent + 1);
                        }
                        match sender.send(&mut from.link, now, &message) {
                            Ok(_) => *sent += 1,
                            Err(SendError::Full) => break,
                            Err(error) => return Err(failed(&error)),
                        }
                    }
                    from.link.poll(now);
                }
                Ok(latencies)
            };
            until(client, before + warm_up)?;
            let start = client.clock.now();
            let latencies = until(client, before + warm_up + count)?;
            let per_s = count as f64 / client.clock.now().since(start).as_secs_f64();
            Ok(Requests { per_s, latencies })
        })
    }
}
