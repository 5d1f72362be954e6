//! The outcomes of the ops that a sender of a shared ring has issued: stages of messages go on from
//! here.

use core::time::Duration;

use rma_core::{
    executor::{CallStatus, Outcome},
    op::OpStatus,
    outcome::Verdict,
    time::Instant,
};

use super::{AUTH, Doubt, IDLE, Item, LOOK_MIN, Lost, QUIET, SEARCH_MAX, SharedSender, Stage};
use crate::{
    link::Link,
    ring::{Malformed, Position},
    sender::SendError,
    shared_ring::{ALIGN, Form},
};

/// How often a target is asked in vain about an op until it stays unknown. More: another epoch may
/// come in between. Fewer: a target that is gone is known to be sooner.
const ASKS: u8 = 3;

/// The status of a call that found no receive for too long. Its op was not applied.
const NOT_READY: CallStatus = CallStatus::Failed(OpStatus::RemoteNotReady);

/// The status of a call whose target had no record to spare for too long. Its op was not applied.
const NACK: CallStatus = CallStatus::Failed(OpStatus::Nack);

impl<F: Form> SharedSender<F> {
    /// Takes what became of all that is under way.
    pub(super) fn take(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        if let Some((call, epoch)) = self.looking
            && let Some(outcome) = link.take(call)
        {
            self.looking = None;
            self.looked(link, now, epoch, outcome.status)?;
        }
        if let Some((call, count, epoch)) = self.reserving
            && let Some(outcome) = link.take(call)
        {
            self.reserving = None;
            self.quiet_at = now + QUIET;
            self.reserved(now, count, epoch, &outcome)?;
        }
        for index in 0..self.items.len() {
            let call = match self.items[index].stage {
                Stage::Written(_, call, _) | Stage::Asked(.., call) => call,
                _ => continue,
            };
            if let Some(outcome) = link.take(call) {
                self.quiet_at = now + QUIET;
                self.over(now, index, &outcome);
            }
        }
        while let Some(item) = self.items.front()
            && let Stage::Landed(position) = item.stage
        {
            self.landed.push_back(position.after(F::footprint(item.len)));
            self.idle_at = now + IDLE;
            let image_tail = self.image_room.tail().after(item.image);
            self.image_room.told(image_tail)?;
            self.items.pop_front();
            self.first += 1;
        }
        while self.landed.front().is_some_and(|&end| self.is_processed(end)) {
            self.landed.pop_front();
        }
        Ok(())
    }

    pub(super) fn is_processed(&self, end: Position) -> bool {
        // Of two positions the one that is less than half of all behind the other is the earlier.
        self.tail.since(end) < u64::MAX / 2
    }

    /// A look at the tail is over.
    fn looked(
        &mut self,
        link: &mut Link,
        now: Instant,
        epoch: usize,
        status: CallStatus,
    ) -> Result<(), SendError> {
        match status {
            CallStatus::Ok => {}
            AUTH => {
                let (at, count) = (self.ahead.at(), self.ahead.count());
                match &mut self.lost {
                    None => self.lose(now, epoch),
                    Some(lost) if epoch == lost.next(at, count) => {
                        lost.spent += now.since(lost.last).min(8 * SEARCH_MAX);
                        (lost.last, lost.step) = (now, lost.step + 1);
                    }
                    // It was under way before he began to look for the epoch.
                    Some(_) => {}
                }
                return Ok(());
            }
            status => {
                self.break_at_first(status);
                return Ok(());
            }
        }
        if self.lost.take().is_some() {
            self.found(link, epoch);
        }
        let told = Position::from_bits(self.sight.load(0).map_or(0, u64::from_le));
        // A tail that is read cannot be older than the one read before.
        if told != self.tail && self.is_processed(told) {
            let (told, tail) = (told.to_bits(), self.tail.to_bits());
            return Err(SendError::Malformed(Malformed::Tail { told, tail, head: tail }));
        }
        if told != self.tail {
            self.tail = told;
            self.look_wait = LOOK_MIN;
        }
        Ok(())
    }

    /// An op of an epoch was refused: another may be the present one, or somebody only says so.
    fn lose(&mut self, now: Instant, epoch: usize) {
        if epoch == self.ahead.at() && self.lost.is_none() {
            self.lost = Some(Lost { last: now, spent: Duration::ZERO, step: 0 });
            (self.look_at, self.look_wait) = (now, LOOK_MIN);
        }
    }

    /// This epoch is the present one.
    fn found(&mut self, link: &mut Link, epoch: usize) {
        if epoch == self.ahead.at() {
            return;
        }
        self.ahead.advance(epoch);
        // Under the old key nobody tells what became of it.
        if let Some((call, ..)) = self.reserving {
            link.cancel(call);
        }
        for item in &mut self.items {
            match item.stage {
                Stage::Placed(_) => item.stage = Stage::Waiting,
                Stage::Written(_, call, _) | Stage::Asked(.., call) => link.cancel(call),
                _ => {}
            }
        }
    }

    /// A FETCH_ADD is over.
    fn reserved(
        &mut self,
        now: Instant,
        count: usize,
        epoch: usize,
        outcome: &Outcome,
    ) -> Result<(), SendError> {
        let is_present = epoch == self.ahead.at();
        match (outcome.status, outcome.result) {
            (CallStatus::Ok, Some(at)) if is_present => {
                let mut position = Position::from_bits(at);
                if at % ALIGN != 0 || position != self.tail && self.is_processed(position) {
                    let tail = self.tail.to_bits();
                    return Err(SendError::Malformed(Malformed::Tail {
                        told: tail,
                        tail,
                        head: at,
                    }));
                }
                let is_waiting = |item: &&mut Item| item.stage == Stage::Waiting;
                for item in self.items.iter_mut().filter(is_waiting).take(count) {
                    item.stage = Stage::Placed(position);
                    position = position.after(F::footprint(item.len));
                }
            }
            (AUTH, _) => self.lose(now, epoch),
            // The reservation is of no use, or is a hole.
            (CallStatus::Ok | CallStatus::Unknown | CallStatus::Cancelled | NACK, _) => {}
            (_, _) if !is_present => {}
            (status, _) => self.break_at_first(status),
        }
        Ok(())
    }

    /// Handles the end of a message's call.
    fn over(&mut self, now: Instant, index: usize, outcome: &Outcome) {
        let at = self.ahead.at();
        let again = |position, epoch| {
            if epoch == at { Stage::Placed(position) } else { Stage::Waiting }
        };
        let stage = self.items[index].stage;
        let next = match (stage, outcome.status) {
            (Stage::Written(position, ..), CallStatus::Ok) => Stage::Landed(position),
            (Stage::Written(position, _, epoch), AUTH) => {
                self.lose(now, epoch);
                again(position, epoch)
            }
            (Stage::Written(position, _, epoch), NOT_READY | NACK | CallStatus::Cancelled) => {
                again(position, epoch)
            }
            (Stage::Written(position, _, epoch), CallStatus::Unknown) => match outcome.in_doubt {
                Some(name) => {
                    // Perhaps the epoch is over, and so nobody answered.
                    self.lose(now, at);
                    Stage::InDoubt(position, Doubt { name, epoch, asked: 0 })
                }
                None => Stage::Failed(CallStatus::Unknown),
            },
            // It was not applied, whatever else was the matter: what follows is in another epoch.
            (Stage::Written(.., epoch), _) if epoch != at => Stage::Waiting,
            (Stage::Asked(position, doubt, _), CallStatus::Ok) => match outcome.verdict {
                Some(Verdict::Applied) => Stage::Landed(position),
                Some(Verdict::NotApplied) => again(position, doubt.epoch),
                _ => Stage::Failed(CallStatus::Unknown),
            },
            // Perhaps it was asked in an epoch that is over.
            (Stage::Asked(position, doubt, _), _) if doubt.asked < ASKS => {
                self.lose(now, at);
                Stage::InDoubt(position, Doubt { asked: doubt.asked + 1, ..doubt })
            }
            (Stage::Asked(..), _) => Stage::Failed(CallStatus::Unknown),
            (_, status) => Stage::Failed(status),
        };
        let is_over = matches!(next, Stage::Landed(_) | Stage::Failed(_));
        self.items[index].stage = next;
        if let Stage::Failed(status) = next {
            self.break_at(index, status);
        } else if let Some(ended) = self.ended
            && !is_over
        {
            // Nothing is issued any longer.
            let status = match (ended, next) {
                (_, Stage::InDoubt(..)) => CallStatus::Unknown,
                _ => CallStatus::PredecessorFailed,
            };
            self.items[index].stage = Stage::Failed(status);
        }
    }
}
