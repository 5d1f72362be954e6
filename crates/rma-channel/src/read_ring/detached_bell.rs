//! Read ring, detached bell (§4.6): the sender stores its head in a word of its own, which
//! receivers
//! READ until it is a new one; then they READ all that is new, as one run of bytes.
//!
//! The paper says that readers do not know how many messages they fetch so. Here records say how
//! long they are, and each is found in what was fetched.

use core::time::Duration;

use rma_core::{
    executor::Piece,
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{
    Bell, ReadRingConfig, ReaderConfig, RingSender,
    into::{RecordFinds, join_into},
    receiver::{At, Found, Image, Joining, Look, Pace, RingReceiver},
};
use crate::{
    close::opened,
    flow,
    into::{Fault, IntoReceiver},
    link::Link,
    readers::Readers,
    reading::submit,
    receiver::ReceiveError,
    ring::{Malformed, Position, WORD, word_at},
    sender::SendError,
    table::Kind,
    terms::{OpenError, Side, Terms},
};

/// The sender's end.
pub type Sender = RingSender<HeadWord>;

/// The receiver's end.
pub type Receiver = RingReceiver<HeadLook>;

/// A word of the sender's: its head.
#[derive(Debug)]
pub struct HeadWord {
    word: RegisteredRegion,
}

impl Bell for HeadWord {
    //= channels#4.6-detached
    fn ring(&mut self, head: Position) {
        let _ = self.word.store(0, head.to_bits().to_le());
    }

    fn poll(&mut self, _: &mut Link, _: Instant, _: &mut Readers) -> Result<(), SendError> {
        Ok(())
    }
}

impl Sender {
    /// Opens a sender's end: a ring that is empty, without receivers.
    ///
    /// # Errors
    /// If it cannot be like that, or the host has no room.
    pub fn open(host: &dyn Gate, config: ReadRingConfig) -> Result<Self, OpenError> {
        opened(host, |host| {
            config.check()?;
            let word = flow::region(host, Region::new(WORD as usize)?, Permissions::READ)?;
            Self::open_with(host, config, HeadWord { word })
        })
    }

    /// Admits `peer` as a receiver of all that is sent from now on, and returns the terms to send
    /// to it.
    ///
    /// # Errors
    /// If there are too many receivers, or the host has no room.
    pub fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Terms, OpenError> {
        let head = host.grant(&self.bell.word, peer, OpType::Read).map_err(OpenError::Host)?;
        let (_, mut grants) = self.admit_to(host, peer)?;
        grants.push(head);
        Ok(Terms::new(self.config.agreed(Kind::ReadRingDetached), Side::Sender, grants))
    }
}

/// The receiver's end that reads into the application's memory: it READs the head, then how long
/// the next message is, and then the message.
pub type Into = IntoReceiver<RecordFinds<HeadLook>>;

impl Receiver {
    /// A receiver's end, of what its sender has told.
    ///
    /// # Errors
    /// If the terms are not for this receiver, or the host has no room.
    pub fn join(host: &dyn Gate, config: ReaderConfig, terms: &Terms) -> Result<Self, OpenError> {
        opened(host, |host| {
            let (ring, grants) = check(host, config, terms)?;
            let look = HeadLook::open(host, config, grants[3])?;
            Self::join_with(host, ring, &grants, look)
        })
    }
}

impl Into {
    /// A receiver's end, of what its sender has told.
    ///
    /// # Errors
    /// As [`Receiver::join`].
    pub fn join(host: &dyn Gate, config: ReaderConfig, terms: &Terms) -> Result<Self, OpenError> {
        opened(host, |host| {
            let (ring, grants) = check(host, config, terms)?;
            let look = HeadLook::open(host, config, grants[3])?;
            join_into(host, ring, &grants, Duration::ZERO, Some(look))
        })
    }
}

fn check(
    host: &dyn Gate,
    config: ReaderConfig,
    terms: &Terms,
) -> Result<(ReadRingConfig, Vec<Grant>), OpenError> {
    use OpType::{Read, Write};
    let (kind, grants) = (Kind::ReadRingDetached, &[Read, Write, Read, Read]);
    let (ring, _, grants) = Joining { config, terms, kind, grants }.check(host)?;
    Ok((ring, grants))
}

impl HeadLook {
    fn open(host: &dyn Gate, config: ReaderConfig, grant: Grant) -> Result<Self, OpenError> {
        let word = flow::region(host, Region::new(WORD as usize)?, Permissions::NONE)?;
        Ok(Self { grant, word, pace: Pace::new(config.every) })
    }
}

/// Looks at the sender's head.
#[derive(Debug)]
pub struct HeadLook {
    grant: Grant,
    word: RegisteredRegion,
    pace: Pace,
}

impl Look for HeadLook {
    fn poll_timeout(&self) -> Option<Instant> {
        self.pace.poll_timeout()
    }

    fn take(&mut self, link: &mut Link, image: &Image, at: At) -> Result<Option<Found>, Fault> {
        let Some(issued) = self.pace.take(link)? else { return Ok(None) };
        let head = Position::from_bits(word_at(&self.word, 0));
        if !at.can_be(head, image.capacity) {
            let (told, from) = (head.to_bits(), at.tail.to_bits());
            return Err(Fault::Malformed(Malformed::Head { told, from }));
        }
        self.pace.found(issued, head != at.known);
        let news = Found::Known { known: head, whole: at.known };
        Ok(Some(if head == at.known { Found::Nothing(issued) } else { news }))
    }

    fn begin(
        &mut self,
        link: &mut Link,
        now: Instant,
        _: &Image,
        _: At,
    ) -> Result<(), ReceiveError> {
        if self.pace.is_time(now) {
            let (grant, local) = (&self.grant, &self.word);
            let piece = Piece { grant, remote_offset: 0, local, local_offset: 0, len: WORD };
            let call = submit(link, now, &piece)?;
            self.pace.began(call, now);
        }
        Ok(())
    }
}
