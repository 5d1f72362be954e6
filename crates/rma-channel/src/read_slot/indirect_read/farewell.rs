//! A sender that is out is told so: or else one that had no buffer would wait for one for ever.
//!
//! It is a courtesy, and nothing waits for it: who is out can do nothing, whether it knows or not.
//! So what fails is told again, and no longer than a refusal is tried again
//! ([`IndirectConfig::patience`](super::offers::IndirectConfig::patience)), as whoever is put out
//! is most often dead. What comes twice is no news.

use core::time::Duration;

use rma_core::{
    executor::{CallId, CallStatus, OpCall},
    grant::Grant,
    portal::Change,
    time::Instant,
};

use super::offers::{Again, Offer};
use crate::link::{Link, if_room};

/// A sender that was put out, and may not know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Farewell {
    /// For NOTIFY.
    grant: Grant,
    call: Option<CallId>,
    again: Option<Again>,
}

impl Farewell {
    pub(super) const fn new(grant: Grant) -> Self {
        Self { grant, call: None, again: None }
    }

    /// When it is told again, if nothing of it is under way.
    pub(super) fn at(&self) -> Option<Instant> {
        self.again.filter(|_| self.call.is_none()).map(|it| it.at)
    }

    /// Tells it, if that is due. Returns whether there is more to do.
    //= channels#4.5-indirect
    pub(super) fn tell(&mut self, link: &mut Link, now: Instant, patience: Duration) -> bool {
        if let Some(call) = self.call {
            let Some(outcome) = link.take(call) else { return true };
            self.call = None;
            let again = Again::refused(self.again, now);
            self.again = Some(again);
            if outcome.status == CallStatus::Ok || again.is_over(now, patience) {
                return false;
            }
        }
        if self.again.is_some_and(|it| now < it.at) {
            return true;
        }
        let change = Change::Notify { immediate: Offer::NO_MORE.to_word() };
        match if_room(link.submit_op(now, &OpCall::of(&self.grant, change))) {
            Ok(Some(call)) => self.call = Some(call),
            Ok(None) => self.again = Some(Again::refused(self.again, now)),
            // It cannot be told by this link.
            Err(_) => return false,
        }
        true
    }
}
