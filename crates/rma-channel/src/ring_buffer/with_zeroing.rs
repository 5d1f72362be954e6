//! Ring buffer, inlined bell with zeroing (§4.3): one ordered WRITE a message, any number of them
//! under way and in any order; the receiver zeroes what it has processed.

use rma_core::{
    executor::{CallError, CallId, Piece},
    gate::Gate,
    op::OpType,
    portal::Source,
    time::Instant,
};

use super::{
    RingConfig, RingReceiver, SenderParts, open_inlined, open_sender,
    sender::{Carries, Each, RingSender},
};
use crate::{
    close::opened,
    link::Link,
    ring::{
        Position, WORD,
        zeroing::{Place, Reader, footprint},
    },
    table::Kind,
    terms::{Half, OpenError},
};

/// The receiver's end.
pub type Receiver = RingReceiver<Reader>;

impl Receiver {
    /// Opens a receiver's end: a ring that is empty.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let RingConfig { len, len_max, .. } = config;
            config.check(footprint(len_max))?;
            let reader = |ring| Reader::new(ring, len, len_max);
            open_inlined(host, config, Kind::RingWithZeroing, reader)
        })
    }
}

/// The sender's end.
pub type Sender = RingSender<Each<Records>>;

/// Messages that go by an ordered WRITE each, of the record around them.
#[derive(Debug)]
pub struct Records;

impl Sender {
    /// Opens a sender's end: a ring that is empty.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            config.check(footprint(config.len_max))?;
            open_sender(host, config, Kind::RingWithZeroing, &[OpType::Write], |parts, _| {
                Each::new(parts, Records)
            })
        })
    }
}

impl Carries for Records {
    const BESIDE: (u64, u64) = (Place::MESSAGE, WORD);
    const FOOTPRINT: fn(u32) -> u64 = footprint;

    /// Makes the record in memory around where the message lies.
    fn carry(
        &self,
        parts: &SenderParts,
        link: &mut Link,
        now: Instant,
        position: Position,
        Source { region: local, offset, len: message_len }: Source<'_>,
    ) -> Result<CallId, CallError> {
        let place = Place::at(parts.len, position, message_len);
        let (grant, local_offset) = (&parts.grant, offset - Place::MESSAGE);
        place.surround(local, local_offset, message_len);
        let Place { remote_offset, len, .. } = place;
        link.submit_ordered(now, &Piece { grant, remote_offset, local, local_offset, len })
    }
}
