//! Ring buffers (§4.3): a receiver has a circular region for each of its senders, who write one
//! message after the other into it.
//!
//! | | bell | ops for each message | receiver |
//! |---|---|---|---|
//! | [`detached_bell`] | a word elsewhere, which holds the head | one, and one more for all that has gathered | only frees |
//! | [`immediate`] | an event, which says where the message is | one | posts receives, may block |
//! | [`with_zeroing`] | in the record, behind the message | one, any number under way | zeroes each record |
//! | [`without_zeroing`] | in the record, above the message | one, less when busy | only frees |
//!
//! All copy at the receiver, out of the ring. A sender may copy, too, into an image of the ring
//! from where messages are written, or send from where they lie. Messages are of 1 byte up to what
//! was agreed on, several ops' worth included; a message takes as much of the ring as its length
//! asks for. The receiver issues nothing for a message, and tells the sender its tail when an
//! eighth of the ring is processed, or all that is there and nothing more comes.
//!
//! # When something fails
//!
//! Each message is published once or not at all, and its sender knows which, or that it does not
//! know: its op is settled, never repeated blindly. A message that was not published is a hole,
//! which the receiver does not get past: so the channel is *broken* from then on, its sender is
//! told at which message, and what lies behind was accepted but is not delivered. Both ends are set
//! up anew then.

use std::sync::Arc;

use rma_core::{
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

pub(crate) use self::sender::SenderParts;
use self::sender::{RingSender, Writes};
use crate::{
    close::{Registered, gives_back},
    duplex::Tails,
    flow::{self, Rides, Teller},
    link::Link,
    receiver::{Claim, Claims, Ended, ReceiveError, Receiver, read},
    ring::{Position, Reads, RingLen},
    table::Kind,
    terms::{Agreed, Half, Needs, OpenError, Side},
};

pub mod detached_bell;
pub mod immediate;
pub mod sender;
pub mod with_zeroing;
pub mod without_zeroing;

/// The settings that both ends of a ring have to be opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct RingConfig {
    /// The application's name for the channel: whatever tells it from others between the two.
    pub name: u64,
    /// The peer at the other end.
    pub peer: Peer,
    /// How long the ring is.
    pub len: RingLen,
    /// The longest message, in bytes: such that it fits the ring with what a record has besides.
    pub len_max: u32,
    /// How many messages there can be that are sent and not processed, where each takes a receive:
    /// [`immediate`] alone. More: more small messages fit, at 128 bytes of memory for each.
    pub messages: u16,
}

impl RingConfig {
    /// A ring of 64 KiB for messages of up to 4 KiB, to or from `peer`; of 1024 messages, where
    /// they are counted.
    pub const fn with_peer(peer: Peer) -> Self {
        Self { name: 0, peer, len: RingLen::DEFAULT, len_max: 4096, messages: 1024 }
    }

    pub(crate) const fn agreed(&self, kind: Kind) -> Agreed {
        let messages = if matches!(kind, Kind::RingImmediate) { self.messages } else { 0 };
        let numbers = [self.len.get(), self.len_max as u64, messages as u64];
        Agreed { kind, name: self.name, numbers }
    }

    /// Refuses a message that can never be sent. `footprint`: what the longest uses up.
    fn check(&self, footprint: u64) -> Result<(), OpenError> {
        if self.len_max > 0 && footprint <= self.len.get() {
            return Ok(());
        }
        let why = "it must be at least 1, and fit the ring with what a record has besides";
        Err(OpenError::Settings { what: "the longest message", value: self.len_max.into(), why })
    }
}

/// A ring's memory, of which `len` bytes go around.
fn circular(
    host: &dyn Gate,
    len: RingLen,
    permissions: Permissions,
) -> Result<RegisteredRegion, OpenError> {
    flow::region(host, Region::circular(len.get() as usize)?, permissions)
}

/// Opens a sender's end that needs grants for the ring and its bell, the first of them for WRITE
/// into the ring, and gives one for its tail.
fn open_sender<W: Writes + 'static>(
    host: &dyn Gate,
    config: RingConfig,
    kind: Kind,
    grants: &'static [OpType],
    writes: impl FnOnce(&SenderParts, &[Grant]) -> W + Send + 'static,
) -> Result<Half<RingSender<W>>, OpenError> {
    let RingConfig { peer, len, len_max, .. } = config;
    let image = circular(host, len, Permissions::NONE)?;
    let (tail, grant) = flow::tail_word(host, peer)?;
    let (us, agreed, side) = (host.identity(), config.agreed(kind), Side::Sender);
    let needs = Needs { us, agreed, side, grants };
    Ok(Half::new(needs, vec![grant], move |grants| {
        let (grant, registered) = (grants[0], Registered::default());
        let parts = SenderParts { grant, image, tail, len, len_max, registered };
        let writes = writes(&parts, &grants[1..]);
        RingSender::new(parts, writes)
    }))
}

/// Opens the receiver's end of a ring whose messages `reader` finds. `ours`: the sender's grants.
fn open_receiver<T: Reads + Send + 'static>(
    host: &dyn Gate,
    config: RingConfig,
    kind: Kind,
    reader: T,
    ours: Vec<Grant>,
) -> Result<Half<RingReceiver<T>>, OpenError> {
    let word = Teller::word(host)?;
    let (us, agreed, side) = (host.identity(), config.agreed(kind), Side::Receiver);
    let needs = Needs { us, agreed, side, grants: &[OpType::Write] };
    Ok(Half::new(needs, ours, move |grants| RingReceiver {
        reader,
        teller: Teller::new(grants[0], word, config.len.get()),
        registered: Registered::default(),
        told: Ended::default(),
    }))
}

/// The receiver's end of a ring of which WRITE is all that the sender needs.
fn open_inlined<T: Reads + Send + 'static>(
    host: &dyn Gate,
    config: RingConfig,
    kind: Kind,
    reader: impl FnOnce(RegisteredRegion) -> T,
) -> Result<Half<RingReceiver<T>>, OpenError> {
    let ring = circular(host, config.len, Permissions::WRITE)?;
    let grant = host.grant(&ring, config.peer, OpType::Write).map_err(OpenError::Host)?;
    open_receiver(host, config, kind, reader(ring), vec![grant])
}

/// The receiver's end of a ring.
#[derive(Debug)]
pub struct RingReceiver<R: Reads> {
    reader: R,
    teller: Teller,
    /// All that it gives back when it is closed.
    registered: Registered,
    /// The error that it has reported, if any.
    told: Ended,
}

gives_back!(RingReceiver<R: Reads>);

impl<R: Reads> RingReceiver<R> {
    /// How many bytes of messages were processed since the beginning, with what they have besides.
    #[must_use]
    pub fn tail(&self) -> Position {
        self.reader.tail()
    }
}

impl<R: Reads> Tails for RingReceiver<R> {
    fn tail(&self) -> Position {
        self.tail()
    }

    fn ride(&mut self, rides: Arc<Rides>) {
        self.teller.ride(rides);
    }
}

impl<R: Reads> Claims for RingReceiver<R> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        self.told.check()?;
        let record = self.told.keep(self.reader.poll().map_err(ReceiveError::Malformed))?;
        Ok(record.map(|record| Claim { record, from: None }))
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        read(self.reader.ring(), &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        let _ = self.reader.give_back(claim.record);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.teller.poll_timeout()
    }
}

impl<R: Reads> Receiver for RingReceiver<R> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let Self { reader, teller, .. } = self;
        let (tail, is_all) = (reader.tail(), reader.tail() == reader.next() && !reader.has_next());
        // A failed report is repeated.
        teller.poll(link, now, tail, is_all)?;
        Ok(())
    }
}

rma_core::settings!(RingConfig);

#[cfg(test)]
mod tests;
