//! Ring buffer, inlined bell with zeroing (§4.3): one ordered WRITE a message, any number of them
//! under way and in any order; the receiver zeroes what it has processed.

use core::ops::Range;

use rma_core::{
    executor::Piece,
    gate::Gate,
    op::OpType,
    portal::{CommandPortal, Source},
    region::RegisteredRegion,
    time::Instant,
};

use super::{RingConfig, RingReceiver, SenderParts, open_inlined, open_sender};
use crate::{
    close::{Close, Registered, opened},
    duplex::Hears,
    link::Link,
    ring::{
        Position, WORD,
        zeroing::{Place, Reader, Writer, footprint},
    },
    sender::{
        self, Outgoing, SendError, SendHandle, SendRegion, SendState, checked_len, checked_place,
        refused,
    },
    sending::Sending,
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
#[derive(Debug)]
pub struct Sender {
    parts: SenderParts,
    writer: Writer,
    sending: Sending,
}

impl Sender {
    /// Opens a sender's end: a ring that is empty.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            config.check(footprint(config.len_max))?;
            open_sender(host, config, Kind::RingWithZeroing, &[OpType::Write], |parts, _| {
                Self::new(parts)
            })
        })
    }

    fn new(parts: SenderParts) -> Self {
        let writer = Writer::new(parts.len, parts.len_max);
        Self { parts, writer, sending: Sending::default() }
    }

    /// Writes the record of a message, which is made in memory around where that lies.
    fn write<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        place: Place,
        Source { region: local, offset, len: message_len }: Source<'_>,
    ) -> Result<SendHandle, SendError> {
        let Place { remote_offset, len, .. } = place;
        let (grant, local_offset) = (&self.parts.grant, offset - Place::MESSAGE);
        place.surround(local, local_offset, message_len);
        let piece = Piece { grant, remote_offset, local, local_offset, len };
        let call = link.submit_ordered(now, &piece).map_err(|error| {
            self.writer.room_mut().untake(footprint(message_len));
            refused(error)
        })?;
        self.sending.publish(place.position..self.writer.room().head(), call);
        Ok(SendHandle(place.position))
    }

    /// Up to where the receiver has processed messages, as far as is known.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.writer.room().tail()
    }
}

impl Close for Sender {
    fn registered(&mut self) -> &mut Registered {
        &mut self.parts.registered
    }
}

impl Hears for Sender {
    fn hear(&mut self, tail: Position) {
        self.sending.hear(tail);
    }
}

impl Outgoing for Sender {
    fn len_max(&self) -> u32 {
        self.parts.len_max
    }

    fn beside(&self) -> (u64, u64) {
        (WORD, WORD)
    }

    fn test(&self, handle: SendHandle) -> SendState {
        self.sending.test(handle.0, self.writer.room())
    }
}

impl<P: AsMut<CommandPortal>> sender::Sender<P> for Sender {
    fn send(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let len = checked_len(message.len(), self.parts.len_max)?;
        self.sending.check()?;
        let place = self.writer.take(len).ok_or(SendError::Full)?;
        let (image, at) = (self.parts.image.clone(), place.remote_offset);
        let source = Source { region: &image, offset: at + Place::MESSAGE, len };
        // The image is as long as the ring: or else nothing is written, and the call is refused.
        let _ = image.write(source.offset, message);
        let sent = self.write(link, now, place, source)?;
        link.count_copied(message.len());
        Ok(sent)
    }

    fn poll(&mut self, link: &mut Link<P>, _: Instant) -> Result<(), SendError> {
        self.sending.poll(link, &self.parts.tail, self.writer.room_mut())
    }
}

impl<P: AsMut<CommandPortal>> SendRegion<P> for Sender {
    fn send_region(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let len = checked_place(region, &range, WORD, WORD, self.parts.len_max)?;
        self.sending.check()?;
        let place = self.writer.take(len).ok_or(SendError::Full)?;
        self.write(link, now, place, Source { region, offset: range.start, len })
    }
}
