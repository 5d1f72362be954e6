//! The sender's end: numbers, places, and what became of each message.

use core::{fmt, ops::Range};

use rma_core::{executor::CallId, region::RegisteredRegion, time::Instant};

use super::places::Places;
use crate::{
    close::{Registered, gives_back},
    duplex::Hears,
    link::Link,
    ring::{Position, Room, WORD, padded},
    sender::{
        Outgoing, SendError, SendHandle, SendRegion, SendState, Sender, checked_len, checked_place,
    },
    sending::Sending,
};

/// A message to carry.
#[derive(Clone, Copy, Debug)]
pub struct Parcel<'a> {
    pub(crate) number: Position,
    pub(crate) len: u32,
    /// The region of this host that it lies in.
    pub(crate) region: &'a RegisteredRegion,
    /// The offset in that region, in bytes.
    pub(crate) offset: u64,
}

/// The way in which a channel carries a message: by which ops, and where to.
pub trait Carries: fmt::Debug + Send {
    /// How many bytes behind a message, padded to 8, are written with it: 0 or 8. If there are
    /// any, the message begins at a multiple of 8.
    const BEHIND: u64 = 0;

    /// Returns the offset of a message of `len` bytes in its place at the sender.
    fn shift(&self, _len: u32) -> u64 {
        0
    }

    /// Issues the message, but for its bell if that is another op ([`Carries::ring`]).
    ///
    /// # Errors
    /// If the link refuses it. Then nothing is issued.
    fn carry(
        &self,
        link: &mut Link,
        now: Instant,
        parcel: &Parcel<'_>,
    ) -> Result<CallId, SendError>;

    /// Issues the bell of message `number`, whose bytes have landed, or do by the call that it
    /// comes `after`. `None`: those are all.
    fn ring(
        &self,
        _link: &mut Link,
        _now: Instant,
        _number: Position,
        _after: Option<CallId>,
    ) -> Option<Result<CallId, SendError>> {
        None
    }
}

/// The sender's end of a channel of numbered messages.
#[derive(Debug)]
pub struct NumberedSender<C> {
    carrier: C,
    places: Places,
    /// The image from which copied messages are written: a place for each.
    image: RegisteredRegion,
    /// A word of this host, which the receiver writes: its tail.
    tail: RegisteredRegion,
    room: Room,
    sending: Sending,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl<C: Carries> NumberedSender<C> {
    pub(crate) fn new(
        carrier: C,
        places: Places,
        image: RegisteredRegion,
        tail: RegisteredRegion,
    ) -> Self {
        let (room, sending) = (Room::new(places.count.into()), Sending::default());
        let registered = Registered::default();
        Self { carrier, places, image, tail, room, sending, registered }
    }

    /// Up to which message the receiver has processed them, as far as is known.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.room.tail()
    }

    /// The next number, if there is room.
    fn take(&mut self) -> Result<Position, SendError> {
        self.sending.check()?;
        self.room.take(1).ok_or(SendError::Full)
    }

    /// Issues message `number`, which was taken, from where it lies.
    fn issue(
        &mut self,
        link: &mut Link,
        now: Instant,
        parcel: &Parcel<'_>,
    ) -> Result<SendHandle, SendError> {
        let number = parcel.number;
        if C::BEHIND > 0 {
            // The place was checked, or is the image's; between message and bell lies nothing else.
            let (end, pad) = (u64::from(parcel.len), padded(parcel.len));
            let _ = parcel
                .region
                .write(parcel.offset + end, &[0; WORD as usize][..(pad - end) as usize]);
        }
        let call = match self.carrier.carry(link, now, parcel) {
            Ok(call) => call,
            Err(error) => {
                self.room.untake(1);
                return Err(error);
            }
        };
        let extent = number..number.after(1);
        match self.carrier.ring(link, now, number, Some(call)) {
            None => self.sending.publish(extent, call),
            Some(Ok(bell)) => self.sending.publish_after(extent, call, bell),
            // The link is asked again with each poll, once the bytes have landed.
            Some(Err(_)) => self.sending.begin(extent, call),
        }
        Ok(SendHandle(number))
    }
}

gives_back!(NumberedSender<C: Carries>);

impl<C: Carries> Hears for NumberedSender<C> {
    fn hear(&mut self, tail: Position) {
        self.sending.hear(tail);
    }
}

impl<C: Carries> Outgoing for NumberedSender<C> {
    fn len_max(&self) -> u32 {
        self.places.len_max
    }

    fn beside(&self) -> (u64, u64) {
        (0, C::BEHIND)
    }

    fn test(&self, handle: SendHandle) -> SendState {
        self.sending.test(handle.0, &self.room)
    }
}

impl<C: Carries> Sender for NumberedSender<C> {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let len = checked_len(message.len(), self.places.len_max)?;
        let number = self.take()?;
        let image = self.image.clone();
        let offset = self.places.offset(number) + self.carrier.shift(len);
        // The image has a place for each message that may be under way.
        let _ = image.write(offset, message);
        let parcel = Parcel { number, len, region: &image, offset };
        let sent = self.issue(link, now, &parcel)?;
        link.count_copied(message.len());
        Ok(sent)
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        let polled = self.sending.poll(link, &self.tail, &mut self.room);
        // Also those of messages before one that has failed.
        while let Some(number) = self.sending.ready() {
            match self.carrier.ring(link, now, number, None) {
                Some(Ok(bell)) => self.sending.ring(number, bell),
                Some(Err(SendError::Full)) | None => break,
                Some(Err(error)) => return polled.and(Err(error)),
            }
        }
        polled
    }
}

impl<C: Carries> SendRegion for NumberedSender<C> {
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let (before, behind) = self.beside();
        let len = checked_place(region, &range, before, behind, self.places.len_max)?;
        let number = self.take()?;
        self.issue(link, now, &Parcel { number, len, region, offset: range.start })
    }
}
