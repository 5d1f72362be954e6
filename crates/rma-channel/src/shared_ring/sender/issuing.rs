//! The ops that a sender of a shared ring issues: reservations, messages, looks at the tail, and
//! questions what became of an op.

use rma_core::{
    executor::{Call, CallError, OpCall, Piece},
    portal::Change,
    time::Instant,
};

use super::{AUTH, Item, LOOK_MIN, QUIET, SEARCH_MAX, SharedSender, Stage};
use crate::{
    link::Link,
    ring::{Position, WORD},
    sender::{SendError, refused},
    shared_ring::{FETCH_ADD, Form, HEAD, LOOK_MAX, MESSAGE, Place, READ, TAIL},
};

impl<F: Form> SharedSender<F> {
    /// Issues what may be issued; what the link has no room for now goes with a later poll.
    pub(super) fn issue_or_wait(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        match self.issue(link, now).map_err(refused) {
            Err(SendError::Full) => {
                let again = now + LOOK_MIN;
                (self.look_at, self.quiet_at) = (self.look_at.max(again), self.quiet_at.max(again));
                self.idle_at = self.idle_at.max(again);
                Ok(())
            }
            issued => issued,
        }
    }

    /// Issues what may be issued, until the link has no room.
    fn issue(&mut self, link: &mut Link, now: Instant) -> Result<(), CallError> {
        if self.ended.is_some() {
            return Ok(());
        }
        if let Some(lost) = self.lost {
            // All have been tried twice, and for long enough.
            let tries = 4 * (self.ahead.count() - self.ahead.at());
            if lost.spent > self.search_for && lost.step >= tries {
                let error = SendError::Revoked { epochs: self.ahead.count() };
                self.end(error, AUTH);
                return Ok(());
            }
            let epoch = lost.next(self.ahead.at(), self.ahead.count());
            return self.look(link, now, epoch);
        }
        let mut is_full = false;
        for index in 0..self.items.len() {
            match self.items[index].stage {
                Stage::Placed(position) => is_full |= !self.write(link, now, index, position)?,
                Stage::InDoubt(position, doubt) => {
                    let call = link.submit_settle(now, self.ahead.grant(MESSAGE), doubt.name)?;
                    self.items[index].stage = Stage::Asked(position, doubt, call);
                }
                _ => {}
            }
        }
        let is_idle = self.items.is_empty() && self.reserving.is_none();
        if is_full || is_idle && !self.landed.is_empty() && now >= self.idle_at {
            self.look(link, now, self.ahead.at())?;
        }
        if !is_full {
            self.reserve(link, now)?;
        }
        if now >= self.quiet_at && !is_idle {
            self.quiet_at = now + QUIET;
            self.look(link, now, self.ahead.at())?;
        }
        Ok(())
    }

    /// Writes a message, if there is room for it.
    fn write(
        &mut self,
        link: &mut Link,
        now: Instant,
        index: usize,
        position: Position,
    ) -> Result<bool, CallError> {
        let Item { region, offset, len, .. } = &self.items[index];
        let (len, end) = (*len, position.after(F::footprint(*len)));
        if end.since(self.tail) > self.len.get() {
            return Ok(false);
        }
        let number = (self.first + index as u64) as u32;
        let place = Place { ring: self.len, position, len, sender: self.index, number };
        let change = F::change(place, region, *offset);
        let call = link.submit_op(now, &OpCall::of(self.ahead.grant(MESSAGE), change))?;
        self.items[index].stage = Stage::Written(position, call, self.ahead.at());
        Ok(true)
    }

    /// Looks at the tail, by the grant for an epoch, unless it is too soon.
    pub(super) fn look(
        &mut self,
        link: &mut Link,
        now: Instant,
        epoch: usize,
    ) -> Result<(), CallError> {
        if self.looking.is_some() || now < self.look_at {
            return Ok(());
        }
        let (grant, local) = (self.ahead.grant_in(epoch, READ), &self.sight);
        let word = Piece { grant, remote_offset: TAIL, local, local_offset: 0, len: WORD };
        self.looking = Some((link.submit(now, &Call::of(&[word]))?, epoch));
        self.look_at = now + self.look_wait;
        self.look_wait = (self.look_wait * 2).min(LOOK_MAX.min(SEARCH_MAX));
        Ok(())
    }

    /// Reserves places for what waits, unless a reservation is under way, or something of an epoch
    /// that is over.
    fn reserve(&mut self, link: &mut Link, now: Instant) -> Result<(), CallError> {
        let at = self.ahead.at();
        let is_old = |item: &Item| match item.stage {
            Stage::Written(.., epoch) => epoch != at,
            Stage::InDoubt(..) | Stage::Asked(..) => true,
            _ => false,
        };
        if self.reserving.is_some() || self.items.iter().any(is_old) {
            return Ok(());
        }
        let waiting = self.items.iter().filter(|item| item.stage == Stage::Waiting);
        let (mut count, mut addend) = (0, 0);
        for item in waiting {
            let more = F::footprint(item.len);
            if count > 0 && addend + more > self.len.get() / 2 {
                break;
            }
            (count, addend) = (count + 1, addend + more);
        }
        if count > 0 {
            let change = Change::FetchAdd { remote_offset: HEAD, addend };
            let call = link.submit_op(now, &OpCall::of(self.ahead.grant(FETCH_ADD), change))?;
            self.reserving = Some((call, count, at));
        }
        Ok(())
    }
}
