//! The sender's end of a ring, whichever way its messages say that they are there.

use core::{fmt, ops::Range};

use rma_core::{
    executor::{CallError, CallId},
    grant::Grant,
    portal::Source,
    region::RegisteredRegion,
    time::Instant,
};

use crate::{
    close::{Close, Registered},
    duplex::Hears,
    link::Link,
    ring::{Position, RingLen, Room},
    sender::{
        Outgoing, SendError, SendHandle, SendRegion, SendState, Sender, checked_len, checked_place,
        refused,
    },
    sending::Sending,
};

/// The parts of a ring's sender: of its own host, and from its receiver.
#[derive(Debug)]
pub(crate) struct SenderParts {
    /// For WRITE into the receiver's ring.
    pub(crate) grant: Grant,
    /// A circular region of this host, as long as the ring: its image, which messages are written
    /// from.
    pub(crate) image: RegisteredRegion,
    /// A word of this host, zero, which the receiver has a grant for WRITE for: its tail.
    pub(crate) tail: RegisteredRegion,
    /// How long the ring is.
    pub(crate) len: RingLen,
    /// The longest message, in bytes.
    pub(crate) len_max: u32,
    /// All that it gives back when it is closed.
    pub(crate) registered: Registered,
}

/// The way in which messages are written into a ring.
pub(crate) trait Writes: fmt::Debug {
    /// How many bytes before a message, and behind it, padded to 8, are written beside it.
    const BESIDE: (u64, u64);

    /// The account of the ring's room.
    fn room(&self) -> &Room;
}

/// The way in which a message is carried that goes by itself.
pub(crate) trait Carries: fmt::Debug {
    /// How many bytes before a message, and behind it, padded to 8, are written beside it.
    const BESIDE: (u64, u64);

    /// How many bytes of the ring a message of a length uses up.
    const FOOTPRINT: fn(u32) -> u64;

    /// Whether the call of a message publishes it; or else its bell follows.
    const IS_WHOLE: bool = true;

    /// Whether `count` messages are all that there can be, however much room the ring has.
    fn is_full(&self, _count: usize) -> bool {
        false
    }

    /// Issues a message from where it lies. The place was checked, or is in the image.
    fn carry(
        &self,
        parts: &SenderParts,
        link: &mut Link,
        now: Instant,
        position: Position,
        source: Source<'_>,
    ) -> Result<CallId, CallError>;

    /// Takes the outcome of a bell that is an op of its own.
    fn rung(&mut self, _: &mut Link, _: &mut Sending) {}

    /// Issues a bell of its own for what has landed.
    fn ring(&mut self, _: &mut Link, _: Instant, _: &Sending) -> Result<(), SendError> {
        Ok(())
    }
}

/// Messages that go one by one.
#[derive(Debug)]
pub struct Each<C> {
    room: Room,
    pub(super) carrier: C,
}

#[expect(private_bounds, reason = "the four kinds of rings are all there are")]
impl<C: Carries> Each<C> {
    pub(super) const fn new(parts: &SenderParts, carrier: C) -> Self {
        Self { room: Room::new(parts.len.get()), carrier }
    }
}

impl<C: Carries> Writes for Each<C> {
    const BESIDE: (u64, u64) = C::BESIDE;

    fn room(&self) -> &Room {
        &self.room
    }
}

/// The sender's end of a ring.
#[derive(Debug)]
#[expect(private_bounds, reason = "the four kinds of rings are all there are")]
pub struct RingSender<W: Writes> {
    pub(super) parts: SenderParts,
    pub(super) sending: Sending,
    pub(super) writes: W,
}

#[expect(private_bounds, reason = "the four kinds of rings are all there are")]
impl<W: Writes> RingSender<W> {
    pub(super) fn new(parts: SenderParts, writes: W) -> Self {
        Self { parts, sending: Sending::default(), writes }
    }

    /// Up to where the receiver has processed messages, as far as is known.
    #[must_use]
    pub fn tail(&self) -> Position {
        self.writes.room().tail()
    }
}

#[expect(private_bounds, reason = "the four kinds of rings are all there are")]
impl<C: Carries> RingSender<Each<C>> {
    /// Takes the place of a message of `len` bytes.
    fn take(&mut self, len: u32) -> Result<Position, SendError> {
        self.sending.check()?;
        let Each { room, carrier } = &mut self.writes;
        let is_full = carrier.is_full(self.sending.count());
        let position = if is_full { None } else { room.take((C::FOOTPRINT)(len)) };
        position.ok_or(SendError::Full)
    }

    /// Issues the message at `position`, the last that was taken, from where it lies.
    fn write(
        &mut self,
        link: &mut Link,
        now: Instant,
        position: Position,
        source: Source<'_>,
    ) -> Result<SendHandle, SendError> {
        let (Each { room, carrier }, len) = (&mut self.writes, source.len);
        let call = carrier.carry(&self.parts, link, now, position, source).map_err(|error| {
            room.untake((C::FOOTPRINT)(len));
            refused(error)
        })?;
        if C::IS_WHOLE {
            self.sending.publish(position..room.head(), call);
        } else {
            self.sending.begin(position..room.head(), call);
        }
        Ok(SendHandle(position))
    }
}

impl<W: Writes> Close for RingSender<W> {
    fn registered(&mut self) -> &mut Registered {
        &mut self.parts.registered
    }
}

impl<W: Writes> Hears for RingSender<W> {
    fn hear(&mut self, tail: Position) {
        self.sending.hear(tail);
    }
}

impl<W: Writes> Outgoing for RingSender<W> {
    fn len_max(&self) -> u32 {
        self.parts.len_max
    }

    fn beside(&self) -> (u64, u64) {
        W::BESIDE
    }

    fn test(&self, handle: SendHandle) -> SendState {
        self.sending.test(handle.0, self.writes.room())
    }
}

impl<C: Carries> Sender for RingSender<Each<C>> {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let len = checked_len(message.len(), self.parts.len_max)?;
        let position = self.take(len)?;
        let image = self.parts.image.clone();
        let offset = self.parts.len.offset(position) + C::BESIDE.0;
        // The image is as long as the ring: or else nothing is written, and the call is refused.
        let _ = image.write(offset, message);
        let sent = self.write(link, now, position, Source { region: &image, offset, len })?;
        link.count_copied(message.len());
        Ok(sent)
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        let Self { parts, sending, writes } = self;
        writes.carrier.rung(link, sending);
        let polled = sending.poll(link, &parts.tail, &mut writes.room);
        // Messages that landed before a failed one are announced all the same.
        writes.carrier.ring(link, now, sending)?;
        polled
    }
}

impl<C: Carries> SendRegion for RingSender<Each<C>> {
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let (before, behind) = C::BESIDE;
        let len = checked_place(region, &range, before, behind, self.parts.len_max)?;
        let position = self.take(len)?;
        self.write(link, now, position, Source { region, offset: range.start, len })
    }
}
