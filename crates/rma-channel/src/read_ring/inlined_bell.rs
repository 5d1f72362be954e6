//! Read ring, inlined bell (§4.6): the bell of a record is its first word, and receivers READ where
//! the next one begins until it is set.
//!
//! With prefetching ([`ReaderConfig::prefetch`]) a look reads on beyond the bell: as its first word
//! is loaded before all others, the record that begins there is whole as far as the look goes. So
//! a message that fits comes with its bell, in two hops. The look also finds the bells of records
//! behind it, and what those say is true; but their messages may have been loaded before they were
//! stored. (The words in the middle of a READ have no order.) They are read again, all in one READ
//! and at the same time as the next look: so a receiver that is behind gets as much as a look can
//! reach for each round trip, for twice the bytes.

use rma_core::{
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    time::Instant,
};

use super::{
    Bell, ReadRingConfig, ReaderConfig, RingSender,
    into::{RecordFinds, join_into},
    look_len,
    receiver::{At, Found, Image, Joining, Look, Pace, RingReceiver},
    records::{bell, footprint},
};
use crate::{
    close::opened,
    into::{Fault, IntoReceiver},
    link::Link,
    readers::Readers,
    reading::submit,
    receiver::ReceiveError,
    ring::{Position, WORD},
    sender::SendError,
    table::Kind,
    terms::{OpenError, Side, Terms},
};

/// The sender's end.
pub type Sender = RingSender<InRecords>;

/// The receiver's end.
pub type Receiver = RingReceiver<BellLook>;

/// Bells that are words of records.
#[derive(Debug)]
pub struct InRecords(());

impl Bell for InRecords {
    fn ring(&mut self, _: Position) {}

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
        opened(host, |host| Self::open_with(host, config, InRecords(())))
    }

    /// Admits `peer` as a receiver of all that is sent from now on, and returns the terms to send
    /// to it.
    ///
    /// # Errors
    /// If there are too many receivers, or the host has no room.
    pub fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Terms, OpenError> {
        let (_, grants) = self.admit_to(host, peer)?;
        Ok(Terms::new(self.config.agreed(Kind::ReadRingInlined), Side::Sender, grants))
    }
}

/// The receiver's end that reads into the application's memory: it READs bells, and then messages.
pub type Into = IntoReceiver<RecordFinds<BellLook>>;

impl Receiver {
    /// A receiver's end, of what its sender has told.
    ///
    /// # Errors
    /// If the terms are not for this receiver, it is to prefetch more than the sender was opened
    /// for, or the host has no room.
    pub fn join(host: &dyn Gate, config: ReaderConfig, terms: &Terms) -> Result<Self, OpenError> {
        opened(host, |host| {
            let (ring, grants) = check(host, config, terms)?;
            let (pace, len) = (Pace::new(config.every), look_len(config.prefetch));
            Self::join_with(host, ring, &grants, BellLook { len, asked: 0, pace })
        })
    }
}

impl Into {
    /// A receiver's end, of what its sender has told. It prefetches nothing.
    ///
    /// # Errors
    /// As [`Receiver::join`].
    pub fn join(host: &dyn Gate, config: ReaderConfig, terms: &Terms) -> Result<Self, OpenError> {
        opened(host, |host| {
            let (ring, grants) = check(host, config, terms)?;
            join_into(host, ring, &grants, config.every, None)
        })
    }
}

fn check(
    host: &dyn Gate,
    config: ReaderConfig,
    terms: &Terms,
) -> Result<(ReadRingConfig, Vec<Grant>), OpenError> {
    use OpType::{Read, Write};
    let (kind, grants) = (Kind::ReadRingInlined, &[Read, Write, Read]);
    let (ring, _, grants) = Joining { config, terms, kind, grants }.check(host)?;
    Ok((ring, grants))
}

/// Looks at where the next record begins, and beyond.
#[derive(Debug)]
pub struct BellLook {
    /// How many bytes, if there is room for them.
    len: u64,
    /// How many the look has that is under way.
    asked: u64,
    pace: Pace,
}

impl Look for BellLook {
    fn poll_timeout(&self) -> Option<Instant> {
        self.pace.poll_timeout()
    }

    fn take(&mut self, link: &mut Link, image: &Image, at: At) -> Result<Option<Found>, Fault> {
        let Some(issued) = self.pace.take(link)? else { return Ok(None) };
        let Image { memory, ring, len_max, capacity, .. } = image;
        let (end, mut known, mut whole) = (at.known.after(self.asked), at.known, at.known);
        while end.since(known) >= WORD && known.since(at.known) < self.asked {
            let len = bell(memory, *ring, *len_max, known).map_err(Fault::Malformed)?;
            let Some(len) = len else { break };
            let next = known.after(footprint(len));
            if !at.can_be(next, *capacity) {
                let (told, from) = (next.to_bits(), at.tail.to_bits());
                return Err(Fault::Malformed(crate::ring::Malformed::Head { told, from }));
            }
            if known == at.known {
                let is_cut = next.since(known) > self.asked;
                whole = if is_cut { end } else { next };
            }
            known = next;
        }
        self.pace.found(issued, known != at.known);
        let news = Found::Known { known, whole };
        Ok(Some(if known == at.known { Found::Nothing(issued) } else { news }))
    }

    fn begin(
        &mut self,
        link: &mut Link,
        now: Instant,
        image: &Image,
        at: At,
    ) -> Result<(), ReceiveError> {
        // Not over what is not processed: of the ring there is always a word that is free.
        let room = image.ring.get() - at.known.since(at.tail);
        if self.pace.is_time(now) {
            self.asked = self.len.min(room);
            let call = submit(link, now, &image.piece(at.known, self.asked))?;
            self.pace.began(call, now);
        }
        Ok(())
    }
}
