//! A sender's end: offers that have come, and messages that go into them.

use core::ops::Range;
use std::collections::VecDeque;

use rma_core::{
    executor::{CallId, CallStatus, Piece},
    gate::{Gate, Peer},
    op::OpStatus,
    portal::Source,
    receive_queue::ReceiveQueue,
    region::RegisteredRegion,
    time::Instant,
};

use super::offers::{Again, IndirectConfig, LAST, NEEDS, OTHERS, Offer};
use crate::{
    close::{Registered, gives_back, opened_with},
    epochs::Ahead,
    image::{Image, Lying},
    link::Link,
    read_ring::notify_receiver::open_queue,
    ring::{Malformed, Position},
    sender::{self, Outgoing, SendError, SendHandle, SendRegion, SendState, checked_len, refused},
    table::Kind,
    terms::{OpenError, Side, Terms, TermsError},
};

/// A buffer that this sender has.
#[derive(Clone, Copy, Debug)]
struct Lent {
    offset: u64,
    /// The newest epoch in which it was offered.
    epoch: usize,
}

/// A message.
#[derive(Debug)]
struct Sent {
    lying: Lying,
    /// The buffer that it goes to.
    to: Lent,
    /// In which epoch that was tried.
    tried: usize,
    call: Option<CallId>,
    /// It was refused, and must be tried again.
    again: Option<Again>,
    /// The status that it ended with.
    status: Option<CallStatus>,
}

impl Sent {
    /// Whether it must be issued again.
    fn is_due(&self, now: Instant) -> bool {
        let is_idle = self.call.is_none() && self.status.is_none();
        is_idle && (self.to.epoch > self.tried || self.again.is_none_or(|it| it.at <= now))
    }

    /// Its op ended so.
    fn end(&mut self, now: Instant, status: CallStatus, patience: core::time::Duration) {
        self.call = None;
        match status {
            // It was not applied. The next epoch may have begun, and is told then.
            CallStatus::Failed(OpStatus::RemoteAuthenticationFailure) => {
                let again = Again::refused(self.again, now);
                self.again = Some(again);
                let is_over = again.is_over(now, patience) && self.to.epoch == self.tried;
                self.status = is_over.then_some(status);
            }
            // It was not applied: others have used up the receives. It is offered again.
            CallStatus::Failed(OpStatus::RemoteNotReady) => self.again = None,
            status => self.status = Some(status),
        }
    }
}

/// A sender's end.
#[derive(Debug)]
pub struct Sender {
    config: IndirectConfig,
    ahead: Ahead,
    queue: ReceiveQueue,
    /// Of messages that may be under way.
    image: Image,
    /// Offers for messages that are not sent, from that of the next on.
    offers: VecDeque<Option<Lent>>,
    /// The messages that were sent, and are not over or not processed.
    sent: VecDeque<Sent>,
    /// The number of the first of those.
    first: Position,
    /// Up to where messages are processed, as far as offers say.
    tail: Position,
    malformed: Option<Malformed>,
    /// There is an epoch that this sender has no grants for, or it is out.
    is_revoked: bool,
    /// The first message that has failed, as far as is known.
    failed: Option<(Position, CallStatus)>,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl Sender {
    /// Opens a sender's end of the channel `name`, of what its receiver, `to`, has told, and what
    /// it tells that.
    ///
    /// # Errors
    /// If those are not terms of such a channel, or the host has no room.
    pub fn join(
        host: &dyn Gate,
        name: u64,
        to: Peer,
        terms: &Terms,
    ) -> Result<(Self, Terms), OpenError> {
        opened_with(host, |host| {
            let (theirs, kind) = (terms.agreed(), Kind::ReadSlotIndirect);
            let us = host.identity();
            let grants = terms.epochs_for(us, kind, Side::Sender, NEEDS)?.to_vec();
            if theirs.name != name {
                let ours = crate::terms::Agreed { name, ..theirs };
                return Err(TermsError::Disagree { theirs, ours }.into());
            }
            let config = IndirectConfig::told(&theirs)?;
            let image = Image::open(host, config.lent, config.len_max)?;
            // Those that may come, and as many again that were told twice.
            let (queue, notify) = open_queue(host, 2 * config.lent, to)?;
            let terms = Terms::new(theirs, Side::Sender, vec![notify]);
            let it = Self {
                config,
                ahead: Ahead::new(grants, NEEDS.len()),
                queue,
                image,
                offers: VecDeque::new(),
                sent: VecDeque::new(),
                first: Position::ZERO,
                tail: Position::ZERO,
                malformed: None,
                is_revoked: false,
                failed: None,
                registered: Registered::default(),
            };
            Ok((it, terms))
        })
    }

    /// The queue that offers come to: who has something to send, and no offer, may wait for one.
    #[must_use]
    pub const fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }

    /// How many messages may be sent now.
    #[must_use]
    pub fn offered(&self) -> usize {
        self.offers.iter().take_while(|offer| offer.is_some()).count()
    }

    /// The number of the next message.
    fn head(&self) -> Position {
        self.first.after(self.sent.len() as u64)
    }

    fn check(&self) -> Result<(), SendError> {
        if let Some(error) = self.malformed {
            return Err(error.into());
        }
        if let Some((number, status)) = self.failed {
            return Err(SendError::Broken { handle: SendHandle(number), status });
        }
        if self.is_revoked {
            return Err(SendError::Revoked { epochs: self.ahead.count() });
        }
        Ok(())
    }

    /// A NOTIFY has told this.
    pub(super) fn told(&mut self, word: u64) -> Result<(), Malformed> {
        let Offer { number, epoch, offset } = Offer::from_word(word);
        let epoch = usize::from(epoch);
        if epoch >= self.ahead.count() {
            self.is_revoked = true;
            return Ok(());
        }
        let ahead = number.wrapping_sub(self.tail.to_bits() as u32) % Offer::NUMBERS;
        if ahead >= Offer::NUMBERS / 2 {
            // It was told before, and its buffer has had its message since.
            return Ok(());
        }
        let number = self.tail.after(ahead.into());
        let (head, lent) = (self.head(), u64::from(self.config.lent));
        let end = self.ahead.grant(LAST).region_len;
        let is_within = offset.checked_add(self.config.len_max.into()).is_some_and(|it| it <= end);
        let malformed = Malformed::Offer { number: number.to_bits(), offset, end };
        if number.since(self.tail) >= head.since(self.tail) + lent || !is_within {
            return Err(malformed);
        }
        if number.since(self.tail) >= head.since(self.tail) {
            let place = number.since(head) as usize;
            if place >= self.offers.len() {
                self.offers.resize(place + 1, None);
            }
            self.offers[place].get_or_insert(Lent { offset, epoch });
        }
        let known = match number.since(self.first).checked_sub(self.sent.len() as u64) {
            None => &mut self.sent[number.since(self.first) as usize].to,
            Some(place) => match &mut self.offers[place as usize] {
                Some(offer) => offer,
                None => return Err(malformed),
            },
        };
        if known.offset != offset {
            return Err(malformed);
        }
        known.epoch = known.epoch.max(epoch);
        // It is offered as the one so many before it is processed.
        let newest = number.after(1).since(self.tail);
        self.tail = self.tail.after(newest.saturating_sub(lent));
        Ok(())
    }

    fn take_offers(&mut self) {
        while let Some(event) = self.queue.poll() {
            // It was polled just now.
            let _ = self.queue.post(event.receive);
            if self.malformed.is_none() {
                self.malformed = self.told(event.immediate).err();
            }
        }
    }

    fn take_outcomes(&mut self, link: &mut Link, now: Instant) {
        for sent in &mut self.sent {
            if let Some(outcome) = sent.call.and_then(|call| link.take(call)) {
                sent.end(now, outcome.status, self.config.patience);
            }
            // A refused message stays refused.
            if self.is_revoked && sent.call.is_none() {
                let refused = CallStatus::Failed(OpStatus::RemoteAuthenticationFailure);
                sent.status.get_or_insert(refused);
            }
        }
        while let Some(sent) = self.sent.front()
            && sent.status.is_some()
            && self.first != self.tail
        {
            self.sent.pop_front();
            self.first = self.first.after(1);
        }
        // One that nobody knew of is known to have come once it is processed.
        let processed = self.tail.since(self.first) as usize;
        let failed = self.sent.iter().enumerate().skip(processed).find_map(|(place, sent)| {
            let status = sent.status.filter(|&status| status != CallStatus::Ok)?;
            Some((self.first.after(place as u64), status))
        });
        self.failed = failed;
    }

    /// Issues what was refused, and is due.
    fn issue_again(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        let Self { ahead, image, sent, first, .. } = self;
        for (place, sent) in sent.iter_mut().enumerate().filter(|(_, sent)| sent.is_due(now)) {
            match issue(link, now, ahead, image, first.after(place as u64), sent) {
                Ok(call) => {
                    let is_new = sent.to.epoch > sent.tried;
                    (sent.call, sent.tried) = (Some(call), sent.to.epoch);
                    sent.again = sent.again.filter(|_| !is_new);
                }
                // Others of the link are over sooner or later.
                Err(SendError::Full) => {
                    (sent.again, sent.tried) = (None, sent.to.epoch);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next message's number and its buffer, if it has one.
    fn next(&self) -> Result<(Position, Lent), SendError> {
        self.check()?;
        let offer = self.offers.front().copied().flatten();
        // Its place in the image is that of one that must be over.
        let has_place = self.sent.len() < self.config.lent.into();
        let offer = offer.filter(|_| has_place).ok_or(SendError::Full)?;
        Ok((self.head(), offer))
    }

    /// Issues a message that lies there.
    fn add(
        &mut self,
        link: &mut Link,
        now: Instant,
        number: Position,
        to: Lent,
        lying: Lying,
    ) -> Result<SendHandle, SendError> {
        let (call, again, status, tried) = (None, None, None, to.epoch);
        let mut sent = Sent { lying, to, tried, call, again, status };
        let call = issue(link, now, &self.ahead, &self.image, number, &sent)?;
        sent.call = Some(call);
        self.offers.pop_front();
        self.sent.push_back(sent);
        Ok(SendHandle(number))
    }
}

//= channels#4.5-indirect
/// Issues a message into the buffer that it has.
fn issue(
    link: &mut Link,
    now: Instant,
    ahead: &Ahead,
    image: &Image,
    number: Position,
    sent: &Sent,
) -> Result<CallId, SendError> {
    let Sent { lying, to, .. } = sent;
    let (last, grant) = (ahead.grant_in(to.epoch, LAST), ahead.grant_in(to.epoch, OTHERS));
    let Source { region: local, offset: local_offset, len } = image.source(lying);
    let piece = Piece { grant, remote_offset: to.offset, local, local_offset, len: len.into() };
    link.submit_with_imm(now, &piece, last, number.to_bits()).map_err(refused)
}

gives_back!(Sender);

impl Outgoing for Sender {
    fn len_max(&self) -> u32 {
        self.config.len_max
    }

    /// A message is processed once a later offer says so: the last ones may stay accepted.
    fn test(&self, handle: SendHandle) -> SendState {
        let ahead = handle.0.since(self.first);
        let Some(sent) = self.sent.get(ahead as usize) else { return SendState::Processed };
        match sent.status {
            None => SendState::Sending,
            Some(_) if ahead < self.tail.since(self.first) => SendState::Processed,
            Some(CallStatus::Ok) => SendState::Accepted,
            Some(status) => SendState::Failed(status),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let idle = self.sent.iter().filter(|sent| sent.call.is_none() && sent.status.is_none());
        idle.filter_map(|sent| sent.again.map(|it| it.at)).min()
    }
}

impl sender::Sender for Sender {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        checked_len(message.len(), self.len_max())?;
        let (number, to) = self.next()?;
        let lying = self.image.copy(number, message);
        let sent = self.add(link, now, number, to, lying)?;
        link.count_copied(message.len());
        Ok(sent)
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.take_offers();
        self.take_outcomes(link, now);
        let issued = self.issue_again(link, now);
        self.check()?;
        issued
    }
}

impl SendRegion for Sender {
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let lying = self.image.at(region, &range)?;
        let (number, to) = self.next()?;
        self.add(link, now, number, to, lying)
    }
}
