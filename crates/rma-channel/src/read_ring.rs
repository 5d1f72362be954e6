//! Read rings (§4.6): a sender has a circular region of its own, and any number of receivers READ
//! it. All get all messages, and the sender issues nothing for them.
//!
//! | | how a receiver learns of messages | hops to delivery | ops of a receiver |
//! |---|---|---|---|
//! | [`detached_bell`] | READs the head | 4, or more | 2, or more; less in batches |
//! | [`inlined_bell`] | READs where the next one begins | 4, or more; 2 if prefetched | the same |
//! | [`notify_receiver`] | a NOTIFY for what has gathered | 5 | 1, and 1 of the sender |
//!
//! The sender copies each message into the ring. A receiver has an image of the ring, into which
//! READs land, or READs each message into memory of the application's
//! ([`ReceiveInto`](crate::ReceiveInto)). Bodies that are known of are under way in parallel, and
//! at the same time as the next look for more. Only a message that comes alone, after a look that
//! found nothing, is waited for first where there is an image.
//!
//! # Who holds up the ring
//!
//! Each receiver tells its tail, and the smallest frees. One that tells nothing for
//! [`ReadRingConfig::reader_timeout`], although there is something to tell, no longer counts, and
//! the others go on. It finds out by itself before it believes a message that was overwritten:
//! [`ReceiveError::Ejected`](crate::ReceiveError::Ejected). A message is *accepted* when it is in
//! the ring, at once, and *processed* when all who count have processed it. Without any receiver it
//! is so at once.
//!
//! Times are told to polls. A receiver must not be told, when it takes what has come, a reading of
//! the clock that is older than a 64th of `reader_timeout`, less what the two hosts' clocks differ
//! by in that time.
//!
//! # Setting it up
//!
//! The sender is opened alone, and *admits* receivers at any time, each of which gets all that is
//! sent from then on.

use core::time::Duration;

use rma_core::{
    gate::{Gate, Peer},
    grant::Grant,
    region::Permissions,
    time::Instant,
};
use rma_shm::Region;

use crate::{
    close::{Registered, gives_back},
    flow,
    link::Link,
    readers::{READERS_MAX, Reader, Readers},
    ring::{Position, RingLen, padded},
    sender::{Outgoing, SendError, SendHandle, SendState, Sender, checked_len},
    table::Kind,
    terms::{Agreed, OpenError, within},
};

pub mod detached_bell;
pub mod inlined_bell;
pub mod into;
pub mod notify_receiver;
pub mod receiver;
mod records;

use self::records::{Writer, capacity, footprint};

/// The settings that the sender of a read ring is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct ReadRingConfig {
    /// The application's name for the channel.
    pub name: u64,
    /// How long the ring is.
    pub len: RingLen,
    /// The longest message, in bytes: such that it fits the ring with what a record has besides.
    pub len_max: u32,
    /// How many bytes a receiver may read beyond a bell that it looks at, if bells are inlined: the
    /// sender keeps as many beyond its head zero, so they are not there for messages. At most 4088.
    pub prefetch: u32,
    /// How many receivers there can be at a time; at most [`READERS_MAX`].
    pub readers: u16,
    /// For how long a receiver counts that tells nothing, although there is something. Longer:
    /// receivers outlast longer pauses. Shorter: one that died holds up the others less long. At
    /// least a millisecond, and several times what a READ may take, or a WRITE that congestion
    /// control holds back: a round trip / CWND_MIN.
    pub reader_timeout: Duration,
}

impl Default for ReadRingConfig {
    fn default() -> Self {
        Self {
            name: 0,
            len: RingLen::DEFAULT,
            len_max: 4096,
            prefetch: 0,
            readers: 8,
            reader_timeout: Duration::from_secs(10),
        }
    }
}

/// How far a look reaches at most, in bytes: one op.
const LOOK_MAX: u64 = 4096;

impl ReadRingConfig {
    fn check(&self) -> Result<(), OpenError> {
        let Self { len, len_max, prefetch, readers, reader_timeout, .. } = *self;
        let why = "a look is one op: at most 4088 bytes";
        within("prefetching", prefetch, 0..=LOOK_MAX - 8, why)?;
        if len_max == 0 || footprint(len_max) > capacity(len, prefetch) {
            let why = "at least 1, and it fits the ring with what a record has besides";
            let (what, value) = ("the longest message", len_max.into());
            return Err(OpenError::Settings { what, value, why });
        }
        check_readers(readers, reader_timeout)
    }

    const fn agreed(&self, kind: Kind) -> Agreed {
        let lens = self.len_max as u64 | (self.prefetch as u64) << 32;
        let timeout = self.reader_timeout.as_nanos() as u64;
        Agreed { kind, name: self.name, numbers: [self.len.get(), lens, timeout] }
    }

    /// Decodes the ring's settings from terms, if they are possible.
    fn from_agreed(agreed: &Agreed) -> Result<Self, OpenError> {
        let [len, lens, timeout] = agreed.numbers;
        let why = "a power of two, from 128 to 2^30";
        let len = RingLen::new(len);
        let len = len.or(Err(OpenError::Settings { what: "the ring's length", value: 0, why }))?;
        let config = Self {
            name: agreed.name,
            len,
            len_max: lens as u32,
            prefetch: (lens >> 32) as u32,
            readers: 1,
            reader_timeout: Duration::from_nanos(timeout),
        };
        config.check()?;
        Ok(config)
    }
}

/// Refuses what no sender can have of readers.
pub(crate) fn check_readers(readers: u16, timeout: Duration) -> Result<(), OpenError> {
    within("the number of readers", readers, 1..=READERS_MAX.into(), "from 1 to 64")?;
    let nanos = timeout.as_nanos().min(u64::MAX.into()) as u64;
    let longest = Duration::from_secs(1 << 30).as_nanos() as u64;
    within("the readers' time", nanos, 1_000_000..=longest, "nanoseconds, from 10^6 to 10^18")
}

/// The settings by which receivers look for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct ReaderConfig {
    /// The application's name for the channel, as its sender has it.
    pub name: u64,
    /// How long to wait after a look that found nothing until the next; with zero not at all. Where
    /// the sender notifies there are no looks.
    pub every: Duration,
    /// How many bytes to read beyond a bell that is looked at, if bells are inlined: no more than
    /// the sender was opened for.
    pub prefetch: u32,
}

impl ReaderConfig {
    /// Looks at once, again and again, at bells alone.
    pub const fn new() -> Self {
        Self { name: 0, every: Duration::ZERO, prefetch: 0 }
    }
}

impl Default for ReaderConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// The way in which a sender announces messages.
pub(crate) trait Bell: core::fmt::Debug {
    /// All before `head` is there.
    fn ring(&mut self, head: Position);

    /// Issues the ops that are due.
    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        readers: &mut Readers,
    ) -> Result<(), SendError>;
}

/// The sender's end of a read ring, whichever way receivers learn of messages.
#[derive(Debug)]
#[expect(private_bounds, reason = "the three kinds of bells are all there are")]
pub struct RingSender<B: Bell> {
    writer: Writer,
    readers: Readers,
    config: ReadRingConfig,
    bell: B,
    /// All that it gives back when it is closed.
    registered: Registered,
}

#[expect(private_bounds, reason = "the three kinds of bells are all there are")]
impl<B: Bell> RingSender<B> {
    fn open_with(host: &dyn Gate, config: ReadRingConfig, bell: B) -> Result<Self, OpenError> {
        config.check()?;
        let memory = Region::circular(config.len.get() as usize)?;
        let ring = flow::region(host, memory, Permissions::READ)?;
        let writer = Writer::new(ring, config.len, config.prefetch);
        let readers = Readers::new(config.readers, config.reader_timeout);
        Ok(Self { writer, readers, config, bell, registered: Registered::default() })
    }

    /// A seat for `peer`, and what it needs besides: grants for its seat, and for the ring.
    fn admit_to(&mut self, host: &dyn Gate, peer: Peer) -> Result<(usize, Vec<Grant>), OpenError> {
        use rma_core::op::OpType::Read;
        let ring = self.writer.memory();
        let ring = host.grant(ring, peer, Read).map_err(OpenError::Host)?;
        let (readers, registered) = (&mut self.readers, &mut self.registered);
        let (index, [read, write]) = readers.admit(host, registered, peer, self.writer.head())?;
        Ok((index, vec![read, write, ring]))
    }

    /// The receivers that were admitted, and whether the ring waits for them.
    pub fn readers(&self) -> impl Iterator<Item = Reader> + '_ {
        self.readers.iter()
    }

    /// Up to where messages were sent.
    #[must_use]
    pub const fn head(&self) -> Position {
        self.writer.head()
    }

    /// Up to where all receivers that count have processed messages, as far as is known.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.readers.freed()
    }
}

gives_back!(RingSender<B: Bell>);

impl<B: Bell> Outgoing for RingSender<B> {
    fn len_max(&self) -> u32 {
        self.config.len_max
    }

    fn test(&self, handle: SendHandle) -> SendState {
        published(handle, self.readers.freed(), self.writer.head())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.readers.poll_timeout(self.writer.head())
    }
}

/// Returns the state of a message that lies in memory others read.
pub(crate) const fn published(handle: SendHandle, freed: Position, head: Position) -> SendState {
    if handle.0.since(freed) < head.since(freed) {
        SendState::Accepted
    } else {
        SendState::Processed
    }
}

impl<B: Bell> Sender for RingSender<B> {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        checked_len(message.len(), self.config.len_max)?;
        let head = self.writer.head();
        let position = match self.writer.write(self.readers.freed(), message) {
            Some(position) => position,
            None => {
                let freed = self.readers.poll(now, head);
                self.writer.write(freed, message).ok_or(SendError::Full)?
            }
        };
        link.count_copied(message.len());
        self.bell.ring(self.writer.head());
        // The message is there. What a link refuses is told by the next poll.
        let _ = self.bell.poll(link, now, &mut self.readers);
        Ok(SendHandle(position))
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.bell.poll(link, now, &mut self.readers)?;
        self.readers.poll(now, self.writer.head());
        Ok(())
    }
}

/// The bytes of a look that has a word and so many bytes besides.
const fn look_len(prefetch: u32) -> u64 {
    8 + padded(prefetch)
}

rma_core::settings!(ReadRingConfig, ReaderConfig);

#[cfg(test)]
mod tests;
