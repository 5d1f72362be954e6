//! Read slot, notify receiver (§4.5): a NOTIFY brings the newest message's bell to each receiver,
//! which says where the message lies, and that READs it. Receivers may block.
//!
//! A receiver has one NOTIFY under way. What is sent meanwhile gathers, and the next one tells of
//! all of it: of the messages before the newest the receiver READs the bells. One that fails is
//! told again: a bell that comes twice is
//! not news, as it has its message's number.

use std::collections::VecDeque;

use rma_core::{
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    receive_queue::ReceiveQueue,
    region::RegisteredRegion,
    time::Instant,
};
use rma_shm::Region;

use super::{
    Bells, Joined, ReadSlotConfig, SlotSender,
    bells::{BellLook, BellWords, open_look, tag},
    receiver::SlotReceiver,
};
use crate::{
    close::opened_with,
    into::{Fault, Finds, Found, IntoReceiver},
    link::Link,
    open::end::End,
    read_ring::{
        ReaderConfig,
        notify_receiver::{Notices, open_queue},
        receiver::Pace,
    },
    readers::Readers,
    receiver::Blocking,
    ring::{Malformed, Position},
    sender::SendError,
    table::Kind,
    terms::{Admitted, Half, Needs, OpenError, Side, Terms, TermsError},
};

/// The sender's end.
pub type Sender = SlotSender<Told>;

/// The receiver's end that has memory for messages.
pub type Receiver = SlotReceiver<EventFinds>;

/// The receiver's end that reads into the application's memory.
pub type Into = IntoReceiver<EventFinds>;

/// Bells in a region of their own, of which the newest is told.
#[derive(Debug)]
pub struct Told {
    words: BellWords,
    notices: Notices,
    newest: u64,
}

impl Told {
    /// Tells any bell, for tests of a sender that is hostile.
    #[cfg(test)]
    pub(super) const fn tell_any(&mut self, head: Position, bell: u64) {
        self.notices.go_on(head);
        self.newest = bell;
    }
}

impl Bells for Told {
    const KIND: Kind = Kind::ReadSlotNotify;

    fn len(config: &ReadSlotConfig) -> u64 {
        config.copies.into()
    }

    fn open(host: &dyn Gate, config: &ReadSlotConfig, memory: &Region) -> Result<Self, OpenError> {
        let words = BellWords::open(host, config, memory)?;
        Ok(Self { words, notices: Notices::new(), newest: 0 })
    }

    fn grant(&self, host: &dyn Gate, peer: Peer) -> Result<Option<Grant>, OpenError> {
        self.words.grant(host, peer)
    }

    fn take(&mut self, number: Position, len: u32, freed: Position) -> Option<u64> {
        self.words.take(number, len, freed)
    }

    fn may_lie(&self, _: Position, offset: u64) -> bool {
        self.words.may_lie(offset)
    }

    //= channels#4.5-notify
    fn ring(&mut self, _: &RegisteredRegion, number: Position, place: u64, len: u32) {
        self.newest = self.words.ring(number, place, len);
        self.notices.go_on(number.after(1));
    }

    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        readers: &mut Readers,
    ) -> Result<(), SendError> {
        self.notices.tell(link, now, readers, self.newest)
    }
}

impl Sender {
    /// Admits `peer` as a receiver of all that is sent from now on, and returns the terms to send
    /// to it. The peer tells how it is notified: [`Sender::accept`].
    ///
    /// # Errors
    /// If there are too many receivers, or the host has no room.
    pub fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, OpenError> {
        let (seat, grants) = self.admit_to(host, peer)?;
        self.bells.notices.clear(seat);
        let (us, agreed) = (host.identity(), self.agreed());
        let needs = Needs { us, agreed, side: Side::Sender, grants: &[OpType::Notify] };
        let from = self.head;
        let seat = seat as u64;
        Ok(Half::new(needs, grants, move |told| Admitted { seat, from, grant: Some(told[0]) }))
    }

    /// Notifies a receiver that was admitted, and has told its terms, from now on.
    ///
    /// # Errors
    /// If those are not terms of that receiver.
    pub fn accept(&mut self, half: Half<Admitted>, theirs: &Terms) -> Result<(), TermsError> {
        self.seat(half.complete(theirs)?);
        Ok(())
    }
}

impl Into {
    /// A receiver's end, of the `terms` that its sender, `from`, has told, and those that it tells
    /// that.
    ///
    /// # Errors
    /// If the terms are not for this receiver, or the host has no room.
    pub fn join(
        host: &dyn Gate,
        config: ReaderConfig,
        from: Peer,
        terms: &Terms,
    ) -> Result<(Self, Terms), OpenError> {
        opened_with(host, |host| {
            let (joined, finds, terms) = open(host, config, from, terms)?;
            Ok((joined.into_receiver(host, finds)?, terms))
        })
    }

    /// The queue that a NOTIFY leaves its event in: who has nothing to receive may wait for one.
    #[must_use]
    pub const fn queue(&self) -> &ReceiveQueue {
        &self.finds.queue
    }
}

impl Receiver {
    /// A receiver's end, of the `terms` that its sender, `from`, has told, and those that it tells
    /// that.
    ///
    /// # Errors
    /// As [`Into::join`].
    pub fn join(
        host: &dyn Gate,
        config: ReaderConfig,
        from: Peer,
        terms: &Terms,
    ) -> Result<(Self, Terms), OpenError> {
        opened_with(host, |host| {
            let (joined, finds, terms) = open(host, config, from, terms)?;
            let into = joined.clone().into_receiver(host, finds)?;
            Ok((Self::new(host, &joined, into)?, terms))
        })
    }
}

impl Blocking for Receiver {
    fn queue(&self) -> &ReceiveQueue {
        &self.into.finds.queue
    }
}

impl End for Sender {
    fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, OpenError> {
        Self::admit(self, host, peer)
    }

    fn seat(&mut self, admitted: Admitted) {
        self.bells.notices.accept(admitted);
    }
}

/// How many receives are posted: one for the NOTIFY that is under way, and one for the next.
const RECEIVES: u16 = 2;

fn open(
    host: &dyn Gate,
    config: ReaderConfig,
    from: Peer,
    terms: &Terms,
) -> Result<(Joined, EventFinds, Terms), OpenError> {
    use OpType::{Read, Write};
    let grants = &[Read, Write, Read, Read];
    let joined = super::check(host, Kind::ReadSlotNotify, config.name, grants, terms)?;
    let look = open_look(host, &joined, Pace::new(config.every))?;
    let (queue, notify) = open_queue(host, RECEIVES, from)?;
    let terms = Terms::new(joined.agreed, Side::Receiver, vec![notify]);
    Ok((joined, EventFinds { look, queue, known: Position::ZERO }, terms))
}

/// Finds messages by events.
#[derive(Debug)]
pub struct EventFinds {
    look: BellLook,
    queue: ReceiveQueue,
    /// All before it are known to be there.
    known: Position,
}

impl EventFinds {
    /// A bell was told.
    fn told(&mut self, bell: u64, found: &mut VecDeque<Found>) -> Result<(), Malformed> {
        let ahead = tag(bell).wrapping_sub(self.known.to_bits() as u8);
        if ahead >= 1 << 7 {
            // It was told before.
            return Ok(());
        }
        let (newest, next) = (self.known.after(ahead.into()), self.look.messages().next);
        if newest == next {
            let Some(it) = self.look.messages().rung(bell)? else {
                let (number, len_max) = (newest.to_bits(), self.look.messages().len_max);
                return Err(Malformed::Bell { number, bell, len_max });
            };
            self.look.messages().next = it.end;
            found.push_back(it);
        }
        self.known = newest.after(1);
        Ok(())
    }
}

impl Finds for EventFinds {
    const ASKS: bool = false;

    fn begin(&mut self, start: Position) {
        (self.look.messages().next, self.known) = (start, start);
    }

    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        tail: Position,
        found: &mut VecDeque<Found>,
    ) -> Result<Option<Instant>, Fault> {
        // It was rung before it was told; what finds nothing is nothing that can be.
        if self.look.take(link, found)?.is_some() {
            let (number, next) = (self.known.to_bits(), self.look.messages().next.to_bits());
            let room = self.look.messages().slots;
            return Err(Fault::Malformed(Malformed::Number { number, next, room }));
        }
        while let Some(event) = self.queue.poll() {
            // It was posted.
            let _ = self.queue.post(event.receive);
            self.told(event.immediate, found).map_err(Fault::Malformed)?;
        }
        let (next, room) = (self.look.messages().next, self.look.messages().slots);
        if self.known.since(tail) > room {
            let (number, next) = (self.known.to_bits(), next.to_bits());
            return Err(Fault::Malformed(Malformed::Number { number, next, room }));
        }
        self.look.begin(link, now, self.known.since(next))?;
        Ok(None)
    }
}
