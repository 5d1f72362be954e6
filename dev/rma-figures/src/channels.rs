//! Message channels between the two hosts of a pair: messages a second, how long one takes, and
//! how long a request and its answer.
//!
//! The client's ends are on its thread, the server's on its own, which looks between any two turns
//! of its engine. Invariant: receivers compare every message with what it has to be, and take them
//! in the order in which they were sent.

pub mod broadcast;
pub mod fan_in;
pub mod log;
mod open;
pub mod receiving;

use core::fmt;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use rma_bench::{
    client::Client, error::PairError, interrupt::Interrupt, latency::Latencies, one_way::pause,
    pair::Pair,
};
use rma_core::executor::CommandExecutor;
use rma_xdp::{
    InlineHost, OpType,
    channel::{Claims, Link, Message, Peer, Receiver, SendError, Sender},
    ops::PortalLease,
    time::{Clock, Instant},
};

pub use self::open::Shape;
use self::open::{Ends, failed, open};

use crate::error::FigureError;

/// Ops that a side's link has under way for what is told the other way.
const SLOTS_BACK: u16 = 8;

/// One side's link, and what keeps its slots.
#[derive(Debug)]
struct Side {
    link: Link,
    // Dropped behind it.
    _lease: PortalLease,
}

impl Side {
    fn open(host: &InlineHost, slots: u16) -> Result<Self, PairError> {
        let (portal, lease) = host.portal(slots)?.into_parts();
        let executor = CommandExecutor::new(portal, host.executor_config());
        let link = Link::new(executor.expect("a host's own settings work"));
        Ok(Self { link, _lease: lease })
    }
}

/// A channel from the client of a pair to its server, and one back. One that breaks, as channels do
/// when an op of theirs fails, is opened anew for the next measurement.
pub struct Channel {
    shape: Shape,
    /// The channel back.
    back: Shape,
    /// `None` if it has broken.
    opened: Option<Opened>,
}

/// Both channels, and what their ends issue through.
struct Opened {
    // Dropped in this order.
    there: Ends,
    back: Ends,
    client: Side,
    server: Side,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("kind", &self.shape.kind).finish_non_exhaustive()
    }
}

/// A message: its number, over and over.
fn fill(bytes: &mut [u8], number: u64) {
    let number = number.to_le_bytes();
    for chunk in bytes.chunks_mut(number.len()) {
        chunk.copy_from_slice(&number[..chunk.len()]);
    }
}

/// Takes all messages that have come and counts them in `taken`: they are numbered from the one
/// after it on.
fn take<R: Claims + ?Sized>(
    receiver: &mut R,
    taken: &mut u64,
    (bytes, expected): (&mut [u8], &mut [u8]),
    failed: &dyn Fn(&dyn fmt::Display) -> PairError,
) -> Result<(), PairError> {
    while let Some(message) = Message::next(receiver).map_err(|error| failed(&error))? {
        let len = message.copy_to(bytes);
        *taken += 1;
        fill(expected, *taken);
        if len != expected.len() || bytes != expected {
            return Err(PairError::WrongMessages { wrong: 1, messages: *taken });
        }
    }
    Ok(())
}

impl Opened {
    fn open(pair: &Pair, [shape, back]: [Shape; 2]) -> Result<Self, PairError> {
        let grant = pair.client.grants.get(OpType::Read)?;
        let (client, server) = (&pair.client.host, &pair.server);
        let peers = [
            Peer { address: grant.initiator, pid: client.pid() },
            Peer { address: grant.responder, pid: server.pid() },
        ];
        let [one, other] = peers;
        let to = open(shape, client, server, [one, other])?;
        let back = open(back, server, client, [other, one])?;
        let (client, server) = (Side::open(client, shape.slots)?, Side::open(server, SLOTS_BACK)?);
        Ok(Self { there: to, back, client, server })
    }
}

impl Channel {
    /// Opens a channel and one of the same kind back.
    ///
    /// # Errors
    /// If slots or memory cannot be had.
    pub fn open(pair: &Pair, shape: Shape) -> Result<Self, PairError> {
        Self::with_back(pair, shape, shape)
    }

    /// Opens a channel whose messages are answered through one of another kind, by as many of their
    /// first bytes as its messages may have: acknowledged.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn with_back(pair: &Pair, shape: Shape, back: Shape) -> Result<Self, PairError> {
        Ok(Self { shape, back, opened: Some(Opened::open(pair, [shape, back])?) })
    }

    /// The channels, opened anew if they have broken.
    fn opened(&mut self, pair: &Pair) -> Result<&mut Opened, PairError> {
        if self.opened.is_none() {
            self.opened = Some(Opened::open(pair, [self.shape, self.back])?);
        }
        Ok(self.opened.as_mut().expect("opened above"))
    }

    /// Notes whether it may be used again after such a measurement.
    fn keep_if_ok<T>(&mut self, done: Result<T, PairError>) -> Result<T, PairError> {
        if done.is_err() {
            self.opened = None;
        }
        done
    }

    /// Messages of `size` bytes a second: `warm_up` for nothing, then `count`, as many under way as
    /// the channel takes.
    ///
    /// # Errors
    /// If one is lost, or another.
    pub fn rate(
        &mut self,
        pair: &mut Pair,
        size: usize,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<f64, PairError> {
        let failed = &failed(self.shape.kind);
        let Opened { there, client: from, server: to, .. } = self.opened(pair)?;
        let (sender, receiver) = there;
        let (got, wrong) = (&AtomicU64::new(0), &std::sync::OnceLock::new());
        let (clock, mut bytes, mut expected) =
            (pair.client.clock.clone(), vec![0; size], vec![0; size]);
        let mut taken = 0;
        let server = move || -> Result<(), PairError> {
            to.link.poll(clock.now());
            let before = taken;
            take(receiver, &mut taken, (&mut bytes, &mut expected), failed)?;
            let now = clock.now();
            receiver.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            if taken > before {
                to.link.poll(now);
                got.store(taken, Release);
            }
            Ok(())
        };
        let done = run(pair, server, wrong, |client| {
            let (mut sent, mut message) = (0, vec![0; size]);
            let mut until = |client: &mut Client, all: u64| {
                while got.load(Acquire) < all {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    let now = client.clock.now();
                    from.link.poll(now);
                    sender.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                    while sent < all {
                        fill(&mut message, sent + 1);
                        match sender.send(&mut from.link, now, &message) {
                            Ok(_) => sent += 1,
                            Err(SendError::Full) => break,
                            Err(error) => return Err(failed(&error)),
                        }
                    }
                    from.link.poll(now);
                }
                Ok(())
            };
            until(client, warm_up)?;
            let start = client.clock.now();
            until(client, warm_up + count)?;
            Ok(count as f64 / client.clock.now().since(start).as_secs_f64())
        });
        self.keep_if_ok(done)
    }

    /// Messages of `size` bytes, one some time after the one before is there: how long each takes,
    /// from before it is sent until its receiver has it.
    ///
    /// # Errors
    /// As [`Channel::rate`].
    pub fn one_way(
        &mut self,
        pair: &mut Pair,
        size: usize,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let failed = &failed(self.shape.kind);
        let Opened { there, client: from, server: to, .. } = self.opened(pair)?;
        let (sender, receiver) = there;
        let (got, at, wrong) =
            (&AtomicU64::new(0), &AtomicU64::new(0), &std::sync::OnceLock::new());
        let (clock, mut bytes, mut expected) =
            (pair.client.clock.clone(), vec![0; size], vec![0; size]);
        let mut taken = 0;
        let server = move || -> Result<(), PairError> {
            let now = clock.now();
            to.link.poll(now);
            receiver.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            let before = taken;
            take(receiver, &mut taken, (&mut bytes, &mut expected), failed)?;
            if taken > before {
                at.store(clock.now().as_nanos(), Relaxed);
                got.store(taken, Release);
            }
            // The receiver's requests go out with the next turn.
            to.link.poll(now);
            Ok(())
        };
        let done = run(pair, server, wrong, |client| {
            let (mut latencies, mut message) = (Latencies::new(), vec![0; size]);
            for number in 1..=warm_up + count {
                fill(&mut message, number);
                let begin = client.clock.now() + pause(number);
                while client.clock.now() < begin {
                    client.host.turn();
                    let now = client.clock.now();
                    from.link.poll(now);
                    sender.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                    from.link.poll(now);
                }
                let start = client.clock.now();
                send(sender, (from, client), start, &message, failed)?;
                while got.load(Acquire) < number {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    let now = client.clock.now();
                    from.link.poll(now);
                    sender.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                    from.link.poll(now);
                }
                if number > warm_up {
                    let took = at.load(Relaxed).saturating_sub(start.as_nanos());
                    latencies.record_nanos(took);
                }
            }
            Ok(latencies)
        });
        self.keep_if_ok(done)
    }

    /// Requests of `size` bytes and their answers of as many, or as the channel back takes, one
    /// after the other: how long each takes, from before the request is sent until its answer is
    /// there.
    ///
    /// # Errors
    /// As [`Channel::rate`].
    pub fn round_trips(
        &mut self,
        pair: &mut Pair,
        size: usize,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let (failed, wrong) = (&failed(self.shape.kind), &std::sync::OnceLock::new());
        let answer = size.min(self.back.len_max as usize);
        let Opened { there, back, client: from, server: to } = self.opened(pair)?;
        let (sender, requests) = there;
        let (answering, receiver) = back;
        let (clock, mut bytes, mut expected) =
            (pair.client.clock.clone(), vec![0; size], vec![0; size]);
        let (mut taken, mut answered) = (0, 0);
        let server = move || -> Result<(), PairError> {
            take(requests, &mut taken, (&mut bytes, &mut expected), failed)?;
            let now = clock.now();
            if answered < taken {
                match answering.send(&mut to.link, now, &bytes[..answer]) {
                    Ok(_) => answered += 1,
                    Err(SendError::Full) => {}
                    Err(error) => return Err(failed(&error)),
                }
            }
            to.link.poll(now);
            answering.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            requests.poll(&mut to.link, now).map_err(|error| failed(&error))
        };
        let done = run(pair, server, wrong, |client| {
            let (mut latencies, mut message) = (Latencies::new(), vec![0; size]);
            let (mut bytes, mut expected, mut come) = (vec![0; answer], vec![0; answer], 0);
            for number in 1..=warm_up + count {
                fill(&mut message, number);
                let start = client.clock.now();
                send(sender, (from, client), start, &message, failed)?;
                let end = loop {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    take(receiver, &mut come, (&mut bytes, &mut expected), failed)?;
                    let now = client.clock.now();
                    if come == number {
                        break now;
                    }
                    from.link.poll(now);
                    sender.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                    receiver.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                };
                if number > warm_up {
                    latencies.record_nanos(end.since(start).as_nanos() as u64);
                }
            }
            Ok(latencies)
        });
        self.keep_if_ok(done)
    }
}

/// Sends a message, as soon as there is room for it.
fn send(
    sender: &mut impl Sender,
    (from, client): (&mut Side, &mut Client),
    start: Instant,
    message: &[u8],
    failed: &dyn Fn(&dyn fmt::Display) -> PairError,
) -> Result<(), PairError> {
    let mut now = start;
    loop {
        match sender.send(&mut from.link, now, message) {
            Ok(_) => break,
            Err(SendError::Full) => {}
            Err(error) => return Err(failed(&error)),
        }
        client.host.turn();
        now = client.clock.now();
        from.link.poll(now);
        sender.poll(&mut from.link, now).map_err(|error| failed(&error))?;
    }
    from.link.poll(now);
    Ok(())
}

/// The error that stopped the server's side.
type Wrong = std::sync::OnceLock<PairError>;

/// An error if there is no sense in going on.
fn check(wrong: &Wrong, interrupt: &Interrupt) -> Result<(), PairError> {
    if wrong.get().is_some() || interrupt.is_set() { Err(PairError::Interrupted) } else { Ok(()) }
}

/// Runs `client` while the server's side does `server` between turns, until that fails.
fn run<T: Send>(
    pair: &mut Pair,
    mut server: impl FnMut() -> Result<(), PairError> + Send,
    wrong: &Wrong,
    client: impl FnOnce(&mut Client) -> Result<T, PairError> + Send,
) -> Result<T, PairError> {
    let between = |_: &mut InlineHost, _: &mut _| {
        if wrong.get().is_none()
            && let Err(error) = server()
        {
            let _ = wrong.set(error);
        }
    };
    let done = pair.run_beside(between, client);
    match (wrong.get(), done) {
        // No machine is so busy that a message becomes another one.
        (Some(&PairError::WrongMessages { wrong, messages }), _) => {
            Err(PairError::WrongMessages { wrong, messages })
        }
        (Some(error), _) => Err(PairError::SpoiledRound(error.to_string())),
        (None, Err(PairError::Other(error))) if error.is::<FigureError>() => {
            Err(PairError::SpoiledRound(error.to_string()))
        }
        (None, done) => done,
    }
}
