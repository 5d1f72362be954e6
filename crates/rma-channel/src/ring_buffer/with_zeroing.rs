//! Ring buffer, inlined bell with zeroing (§4.3): one ordered WRITE a message, any number of them
//! under way and in any order; the receiver zeroes what it has processed.

use rma_core::{
    executor::{Call, OpCall, Piece, Publish},
    grant::Grant,
    limits::OP_SIZE_MAX,
    portal::{Change, CommandPortal, Source},
    region::RegisteredRegion,
    time::Instant,
};

use super::sending::{SenderParts, Sending, refused};
use crate::{
    flow::Teller,
    link::Link,
    ring::{
        Position, RingLen,
        zeroing::{Place, Reader, Writer, footprint},
    },
    sender::{SendError, SendHandle, SendState},
};

/// The receiver's end.
pub type Receiver = super::Receiver<Reader>;

impl Receiver {
    /// Of `ring`, a circular region of this host that is `len` bytes long and zero, for messages of
    /// up to `len_max` bytes. `grant` is one for WRITE into the sender's word for the tail, and
    /// `word` a word of this host's, which the tail is sent from.
    #[must_use]
    pub fn new(
        ring: RegisteredRegion,
        len: RingLen,
        len_max: u32,
        (grant, word): (Grant, RegisteredRegion),
    ) -> Self {
        Self::over(Reader::new(ring, len, len_max), Teller::new(grant, word, len))
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
    /// Of a ring that is empty.
    #[must_use]
    pub fn new(parts: SenderParts) -> Self {
        let writer = Writer::new(parts.len, parts.len_max);
        Self { parts, writer, sending: Sending::default() }
    }

    /// Takes what became of messages. After [`Link::poll`].
    ///
    /// # Errors
    /// If the receiver tells what cannot be.
    pub fn poll<P: AsMut<CommandPortal>>(&mut self, link: &mut Link<P>) -> Result<(), SendError> {
        self.sending.poll(link, &self.parts.tail, self.writer.room())
    }

    /// Sends a message: it is copied into the ring's image, and goes with the next [`Link::poll`].
    ///
    /// # Errors
    /// If it cannot be, if there is no room, or a message before it has failed. Then nothing was
    /// issued.
    pub fn send<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let max = self.parts.len_max;
        let len = u32::try_from(message.len()).ok().filter(|&len| 0 < len && len <= max);
        let Some(len) = len else { return Err(SendError::Len { len: message.len(), max }) };
        self.sending.check()?;
        let place = self.writer.take(len).ok_or(SendError::Full)?;
        self.write(&place, message);
        let SenderParts { grant, image, .. } = &self.parts;
        let at = place.remote_offset;
        let submitted = if place.len <= OP_SIZE_MAX.into() {
            let source = Source { region: image, offset: at, len: place.len as u32 };
            let change = Change::OrderedWrite { remote_offset: at, source };
            link.submit_op(now, &OpCall::of(grant, change))
        } else {
            let piece =
                Piece { grant, remote_offset: at, local: image, local_offset: at, len: place.len };
            let call = Call::of(core::slice::from_ref(&piece));
            link.submit(now, &call.with(|it| it.publish = Publish::Ordered))
        };
        let call = submitted.map_err(|error| {
            self.writer.room().untake(footprint(len));
            refused(error)
        })?;
        self.sending.publish((place.position, self.writer.room().head()), call);
        Ok(SendHandle(place.position))
    }

    /// Makes the record in the image.
    fn write(&self, place: &Place, message: &[u8]) {
        let (image, at) = (&self.parts.image, place.remote_offset);
        let end = at + place.len - place.last_word().len() as u64;
        // The image is as long as the ring: or else nothing is written, and the call is refused.
        let _ = image.write(at, &place.first_word());
        let _ = image.write(at + Place::MESSAGE, message);
        let pad = end - (at + Place::MESSAGE + message.len() as u64);
        let _ = image.write(end - pad, &[0; 8][..pad as usize]);
        let _ = image.write(end, &place.last_word());
    }

    /// What became of a message.
    #[must_use]
    pub fn test(&mut self, handle: SendHandle) -> SendState {
        self.sending.test(handle.0, self.writer.room())
    }

    /// Up to where the receiver has processed messages, as far as is known.
    #[must_use]
    pub fn tail(&mut self) -> Position {
        self.writer.room().tail()
    }
}
