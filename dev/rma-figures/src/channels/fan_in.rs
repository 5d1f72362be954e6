//! Many senders and one receiver: a shared ring.

use core::{
    fmt,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use rma_bench::{client::Client, error::PairError, interrupt::Interrupt, pair::Pair};
use rma_xdp::{
    OpType,
    channel::{
        Kind, Message, Peer, Receiver, SendError, Sender,
        ring::RingLen,
        shared_ring::{SharedRingConfig, immediate, with_zeroing},
    },
    time::Clock,
};

use super::{SLOTS_BACK, Side, Wrong, check, failed, fill, run};

/// One ring that several senders of the client write to, and the server receives from. One that
/// breaks is opened anew for the next measurement.
pub struct FanIn {
    kind: Kind,
    senders: u16,
    size: u32,
    slots: u16,
    /// `None` if it has broken.
    opened: Option<Opened>,
    /// Bytes that the receiver has registered.
    pub memory: u64,
}

/// The ring's ends, and what they issue through.
struct Opened {
    // Dropped in this order.
    senders: Vec<Box<dyn Sender + Send>>,
    receiver: Box<dyn Receiver + Send>,
    client: Side,
    server: Side,
    memory: u64,
}

impl fmt::Debug for FanIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanIn").field("senders", &self.senders).finish_non_exhaustive()
    }
}

impl FanIn {
    /// The longest message, in bytes: one op carries it.
    pub const LEN_MAX: u32 = 4080;

    /// Opens a shared ring, for messages of `size` bytes, at least 16, of so many senders, who have
    /// `slots` ops under way in all.
    ///
    /// # Errors
    /// If slots or memory cannot be had, or the kind is no shared ring.
    pub fn open(
        pair: &Pair,
        kind: Kind,
        senders: u16,
        size: u32,
        slots: u16,
    ) -> Result<Self, PairError> {
        let opened = Opened::open(pair, kind, senders, size, slots)?;
        let memory = opened.memory;
        Ok(Self { kind, senders, size, slots, opened: Some(opened), memory })
    }

    /// Messages a second that the receiver has taken: `warm_up` for nothing, then `count`, each
    /// sender with as many under way as the channel takes.
    ///
    /// # Errors
    /// If one is lost, or another.
    pub fn rate(
        &mut self,
        pair: &mut Pair,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<f64, PairError> {
        if self.opened.is_none() {
            self.opened = Some(Opened::open(pair, self.kind, self.senders, self.size, self.slots)?);
        }
        let opened = self.opened.as_mut().expect("opened above");
        let Opened { senders, receiver, client: from, server: to, .. } = opened;
        let (size, failed) = (self.size as usize, &failed(self.kind));
        let (got, wrong) = (&AtomicU64::new(0), &Wrong::new());
        let mut of_sender = vec![0_u64; senders.len()];
        let (clock, mut taken) = (pair.client.clock.clone(), 0);
        let (mut bytes, mut expected) = (vec![0; size], vec![0; size]);
        let server = move || -> Result<(), PairError> {
            to.link.poll(clock.now());
            let before = taken;
            while let Some(message) =
                Message::next(&mut **receiver).map_err(|error| failed(&error))?
            {
                let len = message.copy_to(&mut bytes);
                let word =
                    |at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 of them"));
                let (sender, number) = (word(0), word(8));
                let seen = of_sender.get_mut(sender as usize);
                let seen = seen.ok_or_else(|| failed(&"a message of nobody"))?;
                *seen += 1;
                fill(&mut expected[8..], number);
                if len != size || *seen != number || bytes[8..] != expected[8..] {
                    return Err(PairError::WrongMessages { wrong: 1, messages: taken + 1 });
                }
                taken += 1;
            }
            let now = clock.now();
            receiver.poll(&mut to.link, now).map_err(|error| failed(&error))?;
            if taken > before {
                to.link.poll(now);
                got.store(taken, Release);
            }
            Ok(())
        };
        let (mut sent, mut numbers) = (0, vec![0_u64; senders.len()]);
        let mut message = vec![0; size];
        let done = run(pair, server, wrong, |client| {
            let mut until = |client: &mut Client, all: u64| {
                while got.load(Acquire) < all {
                    check(wrong, interrupt)?;
                    client.host.turn();
                    let now = client.clock.now();
                    from.link.poll(now);
                    for ((sender, number), index) in
                        senders.iter_mut().zip(&mut numbers).zip(0_u64..)
                    {
                        sender.poll(&mut from.link, now).map_err(|error| failed(&error))?;
                        while sent < all {
                            fill(&mut message[8..], *number + 1);
                            message[..8].copy_from_slice(&index.to_le_bytes());
                            match sender.send(&mut from.link, now, &message) {
                                Ok(_) => (sent, *number) = (sent + 1, *number + 1),
                                Err(SendError::Full) => break,
                                Err(error) => return Err(failed(&error)),
                            }
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
        if done.is_err() {
            self.opened = None;
        }
        done
    }
}

impl Opened {
    fn open(
        pair: &Pair,
        kind: Kind,
        senders: u16,
        size: u32,
        slots: u16,
    ) -> Result<Self, PairError> {
        let failed = failed(kind);
        let grant = pair.client.grants.get(OpType::Read)?;
        let (client, server) = (&pair.client.host, &pair.server);
        let config = SharedRingConfig::new().with(|it| {
            it.len = RingLen::new(1 << 18).expect("a power of two");
            it.len_max = size;
        });
        let registered = || server.usage().map(|usage| usage.bytes.used);
        let before = registered()?;
        let peer = Peer { address: grant.initiator, pid: client.pid() };
        let mut ends: Vec<Box<dyn Sender + Send>> = Vec::new();
        macro_rules! ring {
            ($of:ident) => {{
                let receiver = $of::Receiver::open(server, config);
                let mut receiver = receiver.map_err(|error| failed(&error))?;
                for _ in 0..senders {
                    let terms = receiver.admit(server, peer).map_err(|error| failed(&error))?;
                    let end = $of::Sender::join(client, &terms);
                    ends.push(Box::new(end.map_err(|error| failed(&error))?));
                }
                Box::new(receiver) as Box<dyn Receiver + Send>
            }};
        }
        let receiver = match kind {
            Kind::SharedRingImmediate => ring!(immediate),
            Kind::SharedRingWithZeroing => ring!(with_zeroing),
            _ => return Err(failed(&"it is no shared ring")),
        };
        let memory = registered()? - before;
        let (client, server) = (Side::open(client, slots)?, Side::open(server, SLOTS_BACK)?);
        Ok(Self { senders: ends, receiver, client, server, memory })
    }
}
