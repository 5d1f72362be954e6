//! One sender and many receivers: a read ring, whose sender is the server, and does nothing for it
//! but store into its own memory.

use core::{
    fmt,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use rma_bench::{
    client::Client, error::PairError, interrupt::Interrupt, latency::Latencies, one_way::pause,
    pair::Pair,
};
use rma_xdp::{
    OpType,
    channel::{
        AnyReceiver, AnySender, ChannelConfig, Kind, Peer, Receiver as _, SendError, Sender as _,
        Terms, ring::RingLen,
    },
    time::Clock,
};

use super::{SLOTS_BACK, Side, Wrong, check, failed, fill, run, take};

/// A ring that several receivers of the client read, and the server stores into.
pub struct Broadcast {
    kind: Kind,
    // Dropped in this order.
    sender: AnySender,
    receivers: Vec<AnyReceiver>,
    client: Side,
    server: Side,
    size: usize,
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broadcast").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Broadcast {
    /// Opens a read ring for messages of `size` bytes and so many receivers, who have `slots` ops
    /// under way in all, and prefetch so many bytes if bells are inlined.
    ///
    /// # Errors
    /// If slots or memory cannot be had, or the kind is no read ring.
    pub fn open(
        pair: &Pair,
        kind: Kind,
        (receivers, size, prefetch): (u16, u32, u32),
        slots: u16,
    ) -> Result<Self, PairError> {
        let failed = failed(kind);
        let grant = pair.client.grants.get(OpType::Read)?;
        let (client, server) = (&pair.client.host, &pair.server);
        let home = Peer { address: grant.responder, pid: server.pid() };
        let reader = Peer { address: grant.initiator, pid: client.pid() };
        if !matches!(kind, Kind::ReadRingDetached | Kind::ReadRingInlined | Kind::ReadRingNotify) {
            return Err(failed(&"it is no read ring"));
        }
        let config = ChannelConfig::new(size, 1).with(|it| {
            it.ring = RingLen::new(1 << 20).ok();
            (it.prefetch, it.peers) = (prefetch, receivers);
        });
        let mut ends = Vec::new();
        let mut join = |terms: &Terms| {
            let joined = kind.join(client, &config, home, terms);
            let (end, answer) = joined.map_err(|error| failed(&error.why))?;
            ends.extend(end.into_receiver());
            Ok::<_, PairError>(answer)
        };
        let half = kind.open(server, &config, reader).map_err(|error| failed(&error.why))?;
        let answer = join(half.terms())?;
        let end = half.connect(&answer).map_err(|error| failed(&error))?;
        let mut sender = end.into_sender().expect("a read ring is opened by its sender");
        for _ in 1..receivers {
            let half = sender.admit(server, reader).map_err(|error| failed(&error.why))?;
            let answer = join(half.terms())?;
            sender.accept(half, &answer).map_err(|error| failed(&error))?;
        }
        let (client, server) = (Side::open(client, slots)?, Side::open(server, SLOTS_BACK)?);
        Ok(Self { kind, sender, receivers: ends, client, server, size: size as usize })
    }

    /// Messages one at a time, each when the one before is there: how long each takes, from before
    /// it is sent until the last receiver has it.
    ///
    /// # Errors
    /// As [`Broadcast::rate`].
    pub fn one_way(
        &mut self,
        pair: &mut Pair,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let Self { kind, sender, receivers, client: from, server: to, size } = self;
        let (size, failed) = (*size, &failed(*kind));
        let (wanted, started, wrong) = (&AtomicU64::new(0), &AtomicU64::new(0), &Wrong::new());
        let (clock, mut message, mut sent) = (pair.client.clock.clone(), vec![0; size], 0);
        let server = move || -> Result<(), PairError> {
            let now = clock.now();
            to.link.poll(now);
            sender.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            if sent < wanted.load(Acquire) {
                fill(&mut message, sent + 1);
                let start = clock.now();
                started.store(start.as_nanos(), Release);
                match sender.send(&mut to.link, start, &message) {
                    Ok(_) => sent += 1,
                    Err(SendError::Full) => {}
                    Err(error) => return Err(failed(&error)),
                }
                to.link.poll(start);
            }
            Ok(())
        };
        let mut taken = vec![0; receivers.len()];
        let (mut bytes, mut expected) = (vec![0; size], vec![0; size]);
        run(pair, server, wrong, |client| {
            let mut latencies = Latencies::new();
            for number in 1..=warm_up + count {
                // The receivers go on looking meanwhile.
                let begin = client.clock.now() + pause(number);
                while taken.iter().any(|taken| *taken < number) {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    let now = client.clock.now();
                    if now >= begin {
                        wanted.store(number, Release);
                    }
                    from.link.poll(now);
                    for (receiver, taken) in receivers.iter_mut().zip(&mut taken) {
                        receiver.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                        take(receiver, taken, (&mut bytes, &mut expected), failed)?;
                    }
                    from.link.poll(now);
                }
                if number > warm_up {
                    let end = client.clock.now().as_nanos();
                    latencies.record_nanos(end.saturating_sub(started.load(Acquire)));
                }
            }
            Ok(latencies)
        })
    }

    /// Messages a second that the receivers have taken, all together: of `warm_up` for nothing, and
    /// then of `count` that are sent.
    ///
    /// # Errors
    /// If one is lost, or another.
    pub fn rate(
        &mut self,
        pair: &mut Pair,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<f64, PairError> {
        let Self { kind, sender, receivers, client: from, server: to, size } = self;
        let (size, failed) = (*size, &failed(*kind));
        let (wanted, wrong) = (&AtomicU64::new(0), &Wrong::new());
        let (clock, mut message, mut sent) = (pair.client.clock.clone(), vec![0; size], 0);
        let server = move || -> Result<(), PairError> {
            let now = clock.now();
            to.link.poll(now);
            sender.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            // No more between two turns than others can wait for.
            let all = wanted.load(Acquire).min(sent + 64);
            while sent < all {
                fill(&mut message, sent + 1);
                match sender.send(&mut to.link, now, &message) {
                    Ok(_) => sent += 1,
                    Err(SendError::Full) => break,
                    Err(error) => return Err(failed(&error)),
                }
            }
            to.link.poll(now);
            Ok(())
        };
        let (mut taken, readers) = (vec![0; receivers.len()], receivers.len() as u64);
        let (mut bytes, mut expected) = (vec![0; size], vec![0; size]);
        run(pair, server, wrong, |client| {
            let mut until = |client: &mut Client, all: u64| -> Result<(), PairError> {
                wanted.store(all, Release);
                while taken.iter().any(|taken| *taken < all) {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    let now = client.clock.now();
                    from.link.poll(now);
                    for (receiver, taken) in receivers.iter_mut().zip(&mut taken) {
                        receiver.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                        take(receiver, taken, (&mut bytes, &mut expected), failed)?;
                    }
                    from.link.poll(now);
                }
                Ok(())
            };
            until(client, warm_up)?;
            let start = client.clock.now();
            until(client, warm_up + count)?;
            let all = count * readers;
            Ok(all as f64 / client.clock.now().since(start).as_secs_f64())
        })
    }
}
