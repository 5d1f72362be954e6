//! Message channels between the two hosts of a pair: messages a second, how long one takes, and
//! how long a request and its answer.
//!
//! The client's ends are on its thread, the server's on its own, which looks between any two turns
//! of its engine. Invariant: receivers compare every message with what it has to be, and take them
//! in the order in which they were sent.

pub mod broadcast;
pub mod fan_in;
pub mod log;

use core::fmt;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use rma_core::executor::CommandExecutor;
use rma_xdp::{
    Clock, HostRegistrar, InlineEngine, InlineHost, Instant, OpType, PortalLease,
    channel::{
        Close, Half, Kind, Link, Message, OpenError, Peer, Receiver, SendError, Sender,
        ring::RingLen,
        ring_buffer::{
            RingConfig, detached_bell, immediate as ring_immediate, with_zeroing, without_zeroing,
        },
        send_recv::{SendRecvConfig, normal},
        write_slot::{SlotConfig, immediate, inlined_bell},
    },
};

use crate::{
    client::Client, error::PairError, interrupt::Interrupt, latency::Latencies, pair::Pair,
};

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

type Ends = (Box<dyn Sender + Send>, Box<dyn Receiver + Send>);

/// How a channel is opened.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Which of those that have one sender and one receiver.
    pub kind: Kind,
    /// The longest message, in bytes.
    pub len_max: u32,
    /// Bytes of a ring; as many slots or receives as hold so much.
    pub room: u64,
    /// How many ops the sender's link has under way at most.
    pub slots: u16,
}

impl Shape {
    /// For messages of 64 B.
    #[must_use]
    pub const fn small(kind: Kind, slots: u16) -> Self {
        Self { kind, len_max: 64, room: 1 << 18, slots }
    }
}

/// Why a channel does not do what it should.
fn failed(kind: Kind) -> impl Fn(&dyn fmt::Display) -> PairError {
    move |why| PairError::Channel { kind, why: why.to_string() }
}

/// Opens both ends of a channel.
fn open(
    shape: Shape,
    from: &mut HostRegistrar<'_, InlineEngine>,
    to: &mut HostRegistrar<'_, InlineEngine>,
    peers: [Peer; 2],
) -> Result<Ends, PairError> {
    let Shape { kind, len_max, room, .. } = shape;
    let [here, there] = peers;
    let ring = |peer| {
        RingConfig::with_peer(peer).with(|it| {
            it.len_max = len_max;
            it.len = RingLen::new(room.next_power_of_two()).expect("as long as a ring may be");
        })
    };
    let count = (room / u64::from(len_max).next_multiple_of(64)).clamp(2, 1024) as u16;
    let count = 1 << count.ilog2();
    let slots =
        |peer| SlotConfig::with_peer(peer).with(|it| (it.slots, it.len_max) = (count, len_max));
    let receives = |peer| {
        SendRecvConfig::with_peer(peer).with(|it| (it.receives, it.len_max) = (count, len_max))
    };
    macro_rules! ends {
        ($of:ident, $config:expr) => {
            connect(
                kind,
                $of::Sender::open(from, $config(there)),
                $of::Receiver::open(to, $config(here)),
            )
        };
    }
    match kind {
        Kind::SendRecvNormal => ends!(normal, receives),
        Kind::WriteSlotInlined => ends!(inlined_bell, slots),
        Kind::WriteSlotImmediate => ends!(immediate, slots),
        Kind::RingDetached => ends!(detached_bell, ring),
        Kind::RingImmediate => ends!(ring_immediate, ring),
        Kind::RingWithZeroing => ends!(with_zeroing, ring),
        Kind::RingWithoutZeroing => ends!(without_zeroing, ring),
        other => Err(failed(other)(&"it is not measured here")),
    }
}

fn connect<S, R, E>(
    kind: Kind,
    sender: Result<Half<S>, OpenError<E>>,
    receiver: Result<Half<R>, OpenError<E>>,
) -> Result<Ends, PairError>
where
    S: Sender + Close + Send + 'static,
    R: Receiver + Close + Send + 'static,
    E: core::error::Error,
{
    let (sender, receiver) = both(kind, sender, receiver)?;
    Ok((Box::new(sender), Box::new(receiver)))
}

/// Both ends, once each has the other's terms.
fn both<S: Close, R: Close, E: core::error::Error>(
    kind: Kind,
    sender: Result<Half<S>, OpenError<E>>,
    receiver: Result<Half<R>, OpenError<E>>,
) -> Result<(S, R), PairError> {
    let failed = failed(kind);
    let sender = sender.map_err(|error| failed(&error))?;
    let receiver = receiver.map_err(|error| failed(&error))?;
    let (to, from) = (receiver.terms().clone(), sender.terms().clone());
    let sender = sender.connect(&to).map_err(|error| failed(&error))?;
    let receiver = receiver.connect(&from).map_err(|error| failed(&error))?;
    Ok((sender, receiver))
}

/// A channel from the client of a pair to its server, and one back.
pub struct Channel {
    kind: Kind,
    // Dropped in this order.
    there: Ends,
    back: Ends,
    client: Side,
    server: Side,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("kind", &self.kind).finish_non_exhaustive()
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
fn take(
    receiver: &mut (dyn Receiver + Send),
    taken: &mut u64,
    (bytes, expected): (&mut [u8], &mut [u8]),
    failed: &dyn Fn(&dyn fmt::Display) -> PairError,
) -> Result<(), PairError> {
    while let Some(message) = Message::next(receiver).map_err(|error| failed(&error))? {
        let len = message.copy_to(bytes);
        *taken += 1;
        fill(expected, *taken);
        if len != expected.len() || bytes != expected {
            return Err(failed(&format_args!("message {taken} is another one")));
        }
    }
    Ok(())
}

impl Channel {
    /// Opens a channel and one of the same kind back.
    ///
    /// # Errors
    /// If slots or memory cannot be had, or the kind is not one that is measured here.
    pub fn open(pair: &Pair, shape: Shape) -> Result<Self, PairError> {
        let grant = pair.client.grants.get(OpType::Read)?;
        let (client, server) = (&pair.client.host, &pair.server);
        let peers = [
            Peer { address: grant.initiator, pid: client.pid() },
            Peer { address: grant.responder, pid: server.pid() },
        ];
        let mut here = HostRegistrar::new(client, grant.initiator);
        let mut there = HostRegistrar::new(server, grant.responder);
        let [one, other] = peers;
        let to = open(shape, &mut here, &mut there, [one, other])?;
        let back = open(shape, &mut there, &mut here, [other, one])?;
        let (client, server) = (Side::open(client, shape.slots)?, Side::open(server, SLOTS_BACK)?);
        Ok(Self { kind: shape.kind, there: to, back, client, server })
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
        let Self { kind, there: (sender, receiver), client: from, server: to, .. } = self;
        let failed = &failed(*kind);
        let (got, wrong) = (&AtomicU64::new(0), &std::sync::OnceLock::new());
        let (clock, mut bytes, mut expected) =
            (pair.client.clock.clone(), vec![0; size], vec![0; size]);
        let mut taken = 0;
        let server = move || -> Result<(), PairError> {
            to.link.poll(clock.now());
            let before = taken;
            take(&mut **receiver, &mut taken, (&mut bytes, &mut expected), failed)?;
            let now = clock.now();
            receiver.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            if taken > before {
                to.link.poll(now);
                got.store(taken, Release);
            }
            Ok(())
        };
        run(pair, server, wrong, |client| {
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
        })
    }

    /// Messages of `size` bytes, one when the one before is there: how long each takes, from before
    /// it is sent until its receiver has it.
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
        let Self { kind, there: (sender, receiver), client: from, server: to, .. } = self;
        let failed = &failed(*kind);
        let (got, at, wrong) =
            (&AtomicU64::new(0), &AtomicU64::new(0), &std::sync::OnceLock::new());
        let (clock, mut bytes, mut expected) =
            (pair.client.clock.clone(), vec![0; size], vec![0; size]);
        let mut taken = 0;
        let server = move || -> Result<(), PairError> {
            let before = taken;
            take(&mut **receiver, &mut taken, (&mut bytes, &mut expected), failed)?;
            let now = clock.now();
            if taken > before {
                at.store(now.as_nanos(), Relaxed);
                got.store(taken, Release);
            }
            to.link.poll(now);
            receiver.poll(&mut to.link, now).map_err(|error| failed(&error))
        };
        run(pair, server, wrong, |client| {
            let (mut latencies, mut message) = (Latencies::new(), vec![0; size]);
            for number in 1..=warm_up + count {
                fill(&mut message, number);
                let start = client.clock.now();
                send(&mut **sender, (from, client), start, &message, failed)?;
                while got.load(Acquire) < number {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    let now = client.clock.now();
                    from.link.poll(now);
                    sender.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                }
                if number > warm_up {
                    let took = at.load(Relaxed).saturating_sub(start.as_nanos());
                    latencies.record_nanos(took);
                }
            }
            Ok(latencies)
        })
    }

    /// Requests of `size` bytes and their answers of as many, one after the other: how long each
    /// takes, from before the request is sent until its answer is there.
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
        let Self { kind, there, back, client: from, server: to } = self;
        let (sender, requests) = there;
        let (answering, receiver) = back;
        let (failed, wrong) = (&failed(*kind), &std::sync::OnceLock::new());
        let (clock, mut bytes, mut expected) =
            (pair.client.clock.clone(), vec![0; size], vec![0; size]);
        let (mut taken, mut answered) = (0, 0);
        let server = move || -> Result<(), PairError> {
            take(&mut **requests, &mut taken, (&mut bytes, &mut expected), failed)?;
            let now = clock.now();
            if answered < taken {
                match answering.send(&mut to.link, now, &bytes) {
                    Ok(_) => answered += 1,
                    Err(SendError::Full) => {}
                    Err(error) => return Err(failed(&error)),
                }
            }
            to.link.poll(now);
            answering.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            requests.poll(&mut to.link, now).map_err(|error| failed(&error))
        };
        run(pair, server, wrong, |client| {
            let (mut latencies, mut message) = (Latencies::new(), vec![0; size]);
            let (mut bytes, mut expected, mut come) = (vec![0; size], vec![0; size], 0);
            for number in 1..=warm_up + count {
                fill(&mut message, number);
                let start = client.clock.now();
                send(&mut **sender, (from, client), start, &message, failed)?;
                let end = loop {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    take(&mut **receiver, &mut come, (&mut bytes, &mut expected), failed)?;
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
        })
    }
}

/// Sends a message, as soon as there is room for it.
fn send(
    sender: &mut (dyn Sender + Send),
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

/// Why the server's side has stopped.
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
    match wrong.get() {
        Some(error) => Err(PairError::SpoiledRound(error.to_string())),
        None => done,
    }
}
