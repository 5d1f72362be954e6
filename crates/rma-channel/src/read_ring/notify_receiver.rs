//! Read ring, notify receiver (§4.6): the sender tells each receiver its head by a NOTIFY, and
//! those
//! READ what is new. Receivers may block.
//!
//! A receiver has one NOTIFY under way. What is sent meanwhile gathers, and the next one tells of
//! all of it. One that fails is told again, whatever became of it: a head that comes twice is not
//! news. (Nor may the sender give up who cannot be notified before its time is over, as that one
//! trusts until then that what it reads is not overwritten.)

use rma_core::{
    executor::{CallError, CallId, CallStatus, OpCall},
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    portal::Change,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::Permissions,
    time::Instant,
};

use super::{
    Bell, ReadRingConfig, ReaderConfig, RingSender,
    into::{RecordFinds, join_into},
    receiver::{At, Found, Image, Joining, Look, RingReceiver},
};
use crate::{
    close::{opened, opened_with},
    into::{Fault, IntoReceiver},
    link::Link,
    open::end::End,
    readers::Readers,
    receiver::{Blocking, ReceiveError},
    ring::{Malformed, Position},
    sender::SendError,
    table::Kind,
    terms::{Admitted, Half, Needs, OpenError, Side, Terms, TermsError},
};

/// The sender's end.
pub type Sender = RingSender<Notices>;

/// The receiver's end.
pub type Receiver = RingReceiver<EventLook>;

/// A receiver that is being notified.
#[derive(Debug)]
struct Notice {
    grant: Grant,
    told: Position,
    call: Option<(CallId, Position)>,
}

/// A NOTIFY for each receiver.
#[derive(Debug)]
pub struct Notices {
    head: Position,
    /// By seat.
    notices: Vec<Option<Notice>>,
}

impl Bell for Notices {
    fn ring(&mut self, head: Position) {
        self.head = head;
    }

    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        readers: &mut Readers,
    ) -> Result<(), SendError> {
        self.tell(link, now, readers, self.head.to_bits())
    }
}

impl Notices {
    /// Of no receiver yet.
    pub(crate) const fn new() -> Self {
        Self { head: Position::ZERO, notices: Vec::new() }
    }

    /// Sets the head after which the next notice counts.
    pub(crate) const fn go_on(&mut self, head: Position) {
        self.head = head;
    }

    /// Tells the head to those that count and do not know it, as `immediate`.
    pub(crate) fn tell(
        &mut self,
        link: &mut Link,
        now: Instant,
        readers: &Readers,
        immediate: u64,
    ) -> Result<(), SendError> {
        for (index, it) in self.notices.iter_mut().enumerate() {
            let Some(notice) = it else { continue };
            if readers.counts(index) {
                notice.poll(link, now, self.head, immediate)?;
            } else {
                *it = None;
            }
        }
        Ok(())
    }

    /// A seat has a reader anew, which has not said how it is notified.
    pub(crate) fn clear(&mut self, seat: usize) {
        if let Some(notice) = self.notices.get_mut(seat) {
            *notice = None;
        }
    }

    /// A receiver has said how it is notified.
    pub(crate) fn accept(&mut self, Admitted { seat, from, grant }: Admitted) {
        let seat = seat as usize;
        if seat >= self.notices.len() {
            self.notices.resize_with(seat + 1, || None);
        }
        self.notices[seat] = grant.map(|grant| Notice { grant, told: from, call: None });
    }
}

impl Notice {
    //= channels#4.6-notify
    /// Tells the head if it is news.
    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        head: Position,
        immediate: u64,
    ) -> Result<(), SendError> {
        if let Some((call, position)) = self.call {
            let Some(outcome) = link.take(call) else { return Ok(()) };
            self.call = None;
            if outcome.status == CallStatus::Ok {
                self.told = position;
            }
        }
        if self.told != head {
            let change = Change::Notify { immediate };
            match link.submit_op(now, &OpCall::of(&self.grant, change)) {
                Ok(call) => self.call = Some((call, head)),
                // Others of the link are over sooner or later.
                Err(CallError::TooManyCalls { .. } | CallError::TooManyRemotes(_)) => {}
                Err(error) => return Err(SendError::Call(error)),
            }
        }
        Ok(())
    }
}

impl Sender {
    /// Opens a sender's end: a ring that is empty, without receivers.
    ///
    /// # Errors
    /// If it cannot be like that, or the host has no room.
    pub fn open(host: &dyn Gate, config: ReadRingConfig) -> Result<Self, OpenError> {
        opened(host, |host| Self::open_with(host, config, Notices::new()))
    }

    /// Admits `peer` as a receiver of all that is sent from now on, and returns the terms to send
    /// to it. The peer tells how it is notified: [`Sender::accept`].
    ///
    /// # Errors
    /// If there are too many receivers, or the host has no room.
    pub fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, OpenError> {
        let (seat, grants) = self.admit_to(host, peer)?;
        self.bell.clear(seat);
        let agreed = self.config.agreed(Kind::ReadRingNotify);
        let (us, side) = (host.identity(), Side::Sender);
        let needs = Needs { us, agreed, side, grants: &[OpType::Notify] };
        let from = self.head();
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

impl End for Sender {
    fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, OpenError> {
        Self::admit(self, host, peer)
    }

    fn seat(&mut self, admitted: Admitted) {
        self.bell.accept(admitted);
    }
}

/// How many receives are posted: one for the NOTIFY that is under way, and one for the next.
const RECEIVES: u16 = 2;

impl Blocking for Receiver {
    fn queue(&self) -> &ReceiveQueue {
        &self.look.queue
    }
}

impl Into {
    /// The queue that a NOTIFY leaves its event in: who has nothing to receive may wait for one.
    #[must_use]
    pub fn queue(&self) -> Option<&ReceiveQueue> {
        self.finds.look.as_ref().map(|look| &look.queue)
    }
}

/// The receiver's end that reads into the application's memory: once notified, it READs how long
/// the next message is, and then the message.
pub type Into = IntoReceiver<RecordFinds<EventLook>>;

impl Receiver {
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
            let (ring, grants, look, terms) = check(host, config, from, terms)?;
            Ok((Self::join_with(host, ring, &grants, look)?, terms))
        })
    }
}

impl Into {
    /// A receiver's end, of the `terms` that its sender, `from`, has told, and those that it tells
    /// that.
    ///
    /// # Errors
    /// As [`Receiver::join`].
    pub fn join(
        host: &dyn Gate,
        config: ReaderConfig,
        from: Peer,
        terms: &Terms,
    ) -> Result<(Self, Terms), OpenError> {
        opened_with(host, |host| {
            let (ring, grants, look, terms) = check(host, config, from, terms)?;
            Ok((join_into(host, ring, &grants, config.every, Some(look))?, terms))
        })
    }
}

type Checked = (ReadRingConfig, Vec<Grant>, EventLook, Terms);

fn check(
    host: &dyn Gate,
    config: ReaderConfig,
    from: Peer,
    terms: &Terms,
) -> Result<Checked, OpenError> {
    use OpType::{Read, Write};
    let (kind, grants) = (Kind::ReadRingNotify, &[Read, Write, Read]);
    let (ring, agreed, grants) = Joining { config, terms, kind, grants }.check(host)?;
    let (queue, notify) = open_queue(host, RECEIVES, from)?;
    let terms = Terms::new(agreed, Side::Receiver, vec![notify]);
    Ok((ring, grants, EventLook { queue }, terms))
}

/// A queue of `receives` without buffers, all posted, and a grant for NOTIFY for `peer`.
pub(crate) fn open_queue(
    host: &dyn Gate,
    receives: u16,
    peer: Peer,
) -> Result<(ReceiveQueue, Grant), OpenError> {
    let layout = ReceiveQueueLayout::new(receives, 0)?;
    let queue = host.receive_queue(layout, Permissions::NOTIFY);
    let mut queue = queue.map_err(OpenError::Host)?;
    queue.post_all();
    let grant = host.grant(queue.region(), peer, OpType::Notify).map_err(OpenError::Host)?;
    Ok((queue, grant))
}

/// Takes heads from events.
#[derive(Debug)]
pub struct EventLook {
    queue: ReceiveQueue,
}

impl Look for EventLook {
    const ASKS: bool = false;

    fn take(&mut self, _: &mut Link, image: &Image, at: At) -> Result<Option<Found>, Fault> {
        let mut known = at.known;
        while let Some(event) = self.queue.poll() {
            // It was posted.
            let _ = self.queue.post(event.receive);
            let head = Position::from_bits(event.immediate);
            if !(At { known, ..at }).can_be(head, image.capacity) {
                let (told, from) = (event.immediate, at.tail.to_bits());
                return Err(Fault::Malformed(Malformed::Head { told, from }));
            }
            known = head;
        }
        let news = Found::Known { known, whole: at.known };
        Ok((known != at.known).then_some(news))
    }

    fn begin(&mut self, _: &mut Link, _: Instant, _: &Image, _: At) -> Result<(), ReceiveError> {
        Ok(())
    }
}
