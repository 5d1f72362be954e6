//! Recovery of a shared ring from a sender that died, or sleeps, with a place that he has reserved
//! (not in the paper, whose transports cannot: who wakes up writes into another's message).
//!
//! A *hole* is at the frontier, up to where messages have come, if places are reserved beyond it.
//! Once there is room for the longest message there, a sender that lives fills it in time
//! ([`SharedRingConfig::hole_timeout_min`]): he waits for no room. If it is there for
//! [`SharedRingConfig::hole_timeout`] all the same, counted from when the receiver first sees it,
//! the receiver ends the epoch:
//!
//! 1. The regions get keys that nobody has, C first. Nothing lands any longer, the head stands
//!    still, and each reservation has been used in whole or never will be.
//! 2. What is there is copied out of the ring: messages that were not handed out, and those that
//!    the application still holds, whose claims stay good. With zeroing the next record is behind a
//!    hole of zeros, at a multiple of 64; otherwise events have told.
//! 3. The ring is zeroed if it has to be, the tail is set to the head, and the regions get the keys
//!    of the next epoch.
//!
//! Senders find out by themselves, and send what was not applied again, in places that they reserve
//! anew: nothing of theirs is lost or doubled. What was behind a message that is sent again waits
//! for it: the receiver hands out by number. Of a sender who died in between such messages stay, no
//! more than his window.
//!
//! What was copied is processed for its sender, as its place is free, though the application may
//! not have taken it yet; it is lost if the receiver dies before.
//!
//! What is copied takes memory: a recovery waits until the application has taken and given back
//! enough of what the one before left it, so that it never has more than the ring and what recovery
//! copies of it once.
//!
//! # The bound
//!
//! From when the receiver sees the hole, with room, until another sender who has something to send
//! knows the next epoch, and reserves there:
//!
//! | at most | for |
//! |---|---|
//! | `hole_timeout` | what lives, and is slow |
//! | what the application takes | the next [`SharedReceiver::poll_recovery`], which copies what is in the ring, and has four Rekeys done at the own host |
//! | [`SEARCH_MAX`](super::sender::SEARCH_MAX) | a sender who waits for room has just looked at the tail, and looks again then |
//! | two round trips | that READ, which is refused, and one that is not |
//!
//! Who has something else under way, or begins it, learns sooner that the epoch is over, as it is
//! refused: within seven hops, which is less where a hop takes less than a millisecond. If the
//! receiver is stopped between the Rekeys a sender may have looked in vain meanwhile, and looks
//! every other time for the next epoch: `SEARCH_MAX` counts twice then. The reservation itself, and
//! room for what follows, take what they ever take. Whoever slept longer than the epochs that he
//! has grants for needs new terms.

use rma_core::{gate::Gate, time::Instant};

#[cfg(doc)]
use super::SharedRingConfig;
use super::{
    ALIGN, Form,
    receiver::{Finds, Recovery, Saved, SharedReceiver},
};
use crate::{
    receiver::{ReceiveError, RecoverError},
    ring::{Malformed, zero},
};

impl<F: Finds> SharedReceiver<F> {
    /// Notes since when there is a hole that a sender who lives would fill.
    pub(super) fn watch(&mut self, now: Instant) {
        let (len, frontier) = (self.config.len.get(), self.frontier);
        let longest = F::Form::footprint(self.config.len_max);
        let is_hole = self.head() != frontier;
        let has_room = frontier.since(self.tail) + longest <= len;
        self.recovering.since = match self.recovering.since {
            _ if !is_hole || !has_room => None,
            Some((at, since)) if at == frontier => Some((at, since)),
            _ => Some((frontier, now)),
        };
    }

    /// When [`SharedReceiver::poll_recovery`] has something to do, if nothing comes and nothing is
    /// given back until then.
    #[must_use]
    pub fn recovery_timeout(&self) -> Option<Instant> {
        let (_, since) = self.recovering.since?;
        self.can_save().then_some(since + self.config.hole_timeout)
    }

    /// Takes back what was reserved and is not used, if it is time: says so if it did. To be called
    /// again and again. Messages that are held stay.
    ///
    /// # Errors
    /// If the ring has what cannot be, or the host refuses.
    pub fn poll_recovery(
        &mut self,
        host: &dyn Gate,
        now: Instant,
    ) -> Result<Option<Recovery>, RecoverError> {
        if self.recovering.done.is_none() {
            self.look().map_err(ReceiveError::from)?;
            self.watch(now);
            let is_time = self.recovery_timeout().is_some_and(|at| at <= now);
            if !is_time {
                return Ok(None);
            }
            self.epochs.fence(host).map_err(RecoverError::Host)?;
            // Messages that came just before the fence.
            self.look().map_err(ReceiveError::from)?;
            self.recovering.done = Some(self.take_over().map_err(ReceiveError::from)?);
        }
        self.epochs.resume(host).map_err(RecoverError::Host)?;
        self.recovering.since = None;
        let epoch = self.epochs.epoch();
        Ok(self.recovering.done.take().map(|done| Recovery { epoch, ..done }))
    }

    /// Whether what earlier recoveries have left is less than a ring.
    fn can_save(&self) -> bool {
        let due = self.saved.values().filter(|saved| !saved.is_early);
        due.map(|saved| saved.bytes.len() as u64).sum::<u64>() < self.config.len.get()
    }

    /// Empties the ring, into which nobody writes.
    //= channels#3.4-recovery
    fn take_over(&mut self) -> Result<Recovery, Malformed> {
        let (head, tail, len) = (self.head(), self.tail, self.config.len.get());
        if head.to_bits() % ALIGN != 0 {
            let (told, head) = (head.to_bits(), self.frontier.to_bits());
            return Err(Malformed::UsedUp { told, head, end: tail.after(len).to_bits() });
        }
        let mut done = Recovery { epoch: 0, holes: 0, skipped: 0, saved: 0 };
        // Beyond that nobody had room.
        let end = head.since(tail).min(len);
        let (mut at, mut is_hole) = (tail, false);
        while at.since(tail) < end {
            if !self.landed.contains_key(&at)
                && let Some(found) = self.with_view(|finds, view| finds.scan(view, at))?
            {
                self.take_in(found)?;
            }
            if let Some(landed) = self.landed.get(&at) {
                at = at.after(F::Form::footprint(landed.len));
                is_hole = false;
            } else {
                at = at.after(ALIGN);
                done.holes += u64::from(!is_hole);
                done.skipped += ALIGN;
                is_hole = true;
            }
        }
        for (position, landed) in core::mem::take(&mut self.landed) {
            if landed.is_free {
                continue;
            }
            let mut bytes = vec![0; landed.len as usize];
            // It was found there.
            let _ = self.ring().read(landed.offset, &mut bytes);
            let is_early = self.is_early(position);
            self.saved.insert(position, Saved { bytes: bytes.into(), is_early });
            done.saved += 1;
        }
        if F::ZEROES {
            zero(self.ring(), self.config.len.offset(tail), end);
        }
        (self.tail, self.frontier) = (head, head);
        self.store_tail();
        Ok(done)
    }
}
