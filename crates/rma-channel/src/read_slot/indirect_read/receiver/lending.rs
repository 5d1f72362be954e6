//! The lending of buffers to senders, and the words that tell them.

use rma_core::{
    executor::{CallStatus, OpCall},
    gate::Peer,
    op::OpStatus,
    portal::Change,
    time::Instant,
};

use super::{
    super::offers::{Again, Offer, OfferError, Standing},
    Lend, Notice, Receiver, Seat, Stage,
};
use crate::{
    link::{Link, if_room},
    reading::is_passing,
    receiver::ReceiveError,
    ring::WORD,
};

impl Receiver {
    /// Lends a buffer of the application's to a sender, for its next message for which there is
    /// none yet: as long as the longest message, padded to 8, from `offset` of the memory on. The
    /// sender is told by the next poll. It may change at any moment from now on, until the message
    /// is given back, or it is [taken back](Receiver::take_back).
    ///
    /// # Errors
    /// If it is not to be had, or the sender is none.
    pub fn offer(&mut self, to: Peer, offset: u64) -> Result<(), OfferError> {
        if self.pool.is_some() {
            return Err(OfferError::Lends);
        }
        // Beyond its length, circular memory is the same once more.
        let (len, reach) = (self.config.stride(), self.memory().len());
        let end = offset.checked_add(len).filter(|&end| end <= reach);
        let is_free = |end| {
            let before = offset.saturating_sub(len - 1);
            self.lent.range(before..end).next().is_none()
        };
        if !offset.is_multiple_of(WORD) || !end.is_some_and(is_free) {
            return Err(OfferError::Place { offset, len, reach });
        }
        let found = self.seats.iter().find(|(_, seat)| seat.peer == to);
        let is_present = |seat: &Seat| seat.grant.is_some() && seat.standing == Standing::Present;
        let Some((&number, seat)) = found.filter(|(_, seat)| is_present(seat)) else {
            return Err(OfferError::NoSender { peer: to });
        };
        if !seat.takes(self.config.lent) || self.lent.len() >= self.config.buffers.into() {
            return Err(OfferError::Full);
        }
        self.lend_to(number, offset);
        Ok(())
    }

    /// To whom the next buffer is lent, of so many that are free.
    fn next_borrower(&self, free: usize) -> Option<u64> {
        let takers = self.seats.iter().filter(|(_, seat)| seat.takes(self.config.lent));
        let (&number, seat) = takers.min_by_key(|(_, seat)| seat.has())?;
        // One is kept for each sender that has none, and for each that may come.
        let have = self.seats.values().filter(|seat| seat.has() > 0).count();
        let is_kept = seat.has() > 0 && free + have <= self.config.senders.into();
        (!is_kept).then_some(number)
    }

    /// Lends what is free.
    pub(super) fn lend(&mut self) {
        while let Some(pool) = &mut self.pool
            && let Some(offset) = pool.pop()
        {
            let free = pool.len() + 1;
            let Some(seat) = self.next_borrower(free) else {
                self.pool.get_or_insert_default().push(offset);
                break;
            };
            self.lend_to(seat, offset);
        }
        self.may_lend = false;
    }

    /// Lends a buffer to a sender, and tells it in later polls.
    fn lend_to(&mut self, seat: u64, offset: u64) {
        let Some(it) = self.seats.get_mut(&seat) else { return };
        let number = it.lent;
        it.lent = number.after(1);
        self.lent.insert(offset, Lend { seat, number, stage: Stage::Lent });
        self.notices.push(Notice { seat, number, offset, call: None, again: None });
    }

    /// Tells of a buffer, if that is due. Returns whether there is more to do.
    //= channels#4.5-indirect
    pub(super) fn tell(
        &mut self,
        link: &mut Link,
        now: Instant,
        index: usize,
    ) -> Result<bool, ReceiveError> {
        let Self { notices, seats, lent, epochs, config, .. } = self;
        let (notice, present) = (&mut notices[index], epochs.epoch());
        let mut ended = None;
        if let Some((call, epoch)) = notice.call {
            let Some(outcome) = link.take(call) else { return Ok(true) };
            notice.call = None;
            ended = Some((outcome.status, epoch));
        }
        let is_lent = |lend: &Lend| {
            (lend.seat, lend.number, lend.stage) == (notice.seat, notice.number, Stage::Lent)
        };
        let is_needed = lent.get(&notice.offset).is_some_and(is_lent);
        let seat = seats.get_mut(&notice.seat).filter(|it| it.standing == Standing::Present);
        let Some((seat, grant)) = seat.and_then(|it| it.grant.map(|grant| (it, grant))) else {
            return Ok(false);
        };
        match ended {
            Some((CallStatus::Ok, epoch)) if epoch == present => return Ok(false),
            Some((status, _)) if !may_pass(status) => {
                let again = Again::refused(notice.again, now);
                notice.again = Some(again);
                if again.is_over(now, config.patience) {
                    seat.standing = Standing::Gone { status };
                    return Ok(false);
                }
            }
            Some(_) => notice.again = None,
            None => {}
        }
        if !is_needed {
            return Ok(false);
        }
        if notice.again.is_some_and(|it| now < it.at) {
            return Ok(true);
        }
        let offer = Offer::new(notice.number, present - seat.epoch, notice.offset);
        let change = Change::Notify { immediate: offer.to_word() };
        let issued = if_room(link.submit_op(now, &OpCall::of(&grant, change)))?;
        match issued {
            Some(call) => notice.call = Some((call, present)),
            None => notice.again = None,
        }
        Ok(true)
    }
}

/// Whether a NOTIFY that ended so is told again at once: it came, or nothing says that it never
/// will.
const fn may_pass(status: CallStatus) -> bool {
    let is_known = matches!(
        status,
        CallStatus::Ok | CallStatus::Unknown | CallStatus::Failed(OpStatus::RemoteNotReady)
    );
    is_known || is_passing(status)
}
