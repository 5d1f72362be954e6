//! One service, as a cache asks it: what is under way, and when the next request may go.
//!
//! It knows no keys. Invariants: one request at a time; a service that turns this client away, or
//! cannot be reached, is not asked before its time; regions for which notices were forged, however
//! many they are, take part of what this client may ask, and are asked about after all others that
//! somebody waits for. How often each of them is asked about, its ring says.

use core::time::Duration;

use rma_core::time::Instant;

use crate::{
    cache::ring_id::RingId,
    jitter::Jitter,
    limits::{FETCH_RETRY_MAX, FETCH_RETRY_MIN, SPURIOUS_EACH},
    message::reply::Refusal,
    ring::{GiveUp, Want},
};

/// The end of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// Each region has its answer. To so many it brought nothing new of keys that were refused.
    Answered { spurious: u32 },
    /// The service wants to be asked later.
    Later(Duration),
    /// Asked again, it would answer the same.
    Hopeless(GiveUp),
    /// Nothing came.
    Lost,
}

impl Ended {
    pub(super) const fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NotNow { retry } => Self::Later(*retry),
            Refusal::Wrong { .. } | Refusal::Version => Self::Hopeless(GiveUp::NotUnderstood),
            Refusal::CertificateEnded { seen } => {
                Self::Hopeless(GiveUp::CertificateEnded { seen: *seen })
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The number of the request that is under way, or of the last.
    number: u32,
    /// The rings that it is about.
    asked: Option<Vec<RingId>>,
    /// When there is something to ask.
    wake_at: Option<Instant>,
    /// Nothing is asked before.
    not_before: Instant,
    /// How often in a row nothing came.
    losses: u32,
    /// No keys that were suspected in vain before are asked about before.
    again_not_before: Instant,
    /// Whether an op was refused since anybody looked, under all keys that there were.
    is_refused: bool,
}

impl Asking {
    /// There will be something to ask.
    pub(super) fn wake(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |it| it.min(at)));
    }

    /// Keys were refused: their owner is there.
    pub(super) const fn refused(&mut self) {
        self.is_refused = true;
    }

    /// Whether they were, since this was last asked.
    pub(super) const fn take_refused(&mut self) -> bool {
        core::mem::replace(&mut self.is_refused, false)
    }

    /// There is nothing to ask.
    pub(super) const fn sleep(&mut self) {
        self.wake_at = None;
    }

    pub(super) fn may_ask(&self, now: Instant) -> bool {
        self.poll_timeout().is_some_and(|at| at <= now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let wake_at = self.wake_at.filter(|_| self.asked.is_none())?;
        Some(wake_at.max(self.not_before))
    }

    /// When what a ring wants from some time on may be asked.
    pub(super) fn may_ask_about(&self, want: Want, at: Instant) -> Instant {
        if want == Want::Again { at.max(self.again_not_before) } else { at }
    }

    pub(super) fn begin(&mut self, ids: Vec<RingId>) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.asked = Some(ids);
        self.number
    }

    /// Returns the rings that request `number` was about, if it is the one that is under way: it
    /// has ended.
    pub(super) fn asked(&mut self, number: u32) -> Option<Vec<RingId>> {
        if number == self.number { self.asked.take() } else { None }
    }

    /// The request under way no longer has an owner.
    pub(super) fn abandon(&mut self) {
        self.asked = None;
    }

    pub(super) fn end(&mut self, now: Instant, ended: Ended, jitter: &mut Jitter) {
        let losses = core::mem::take(&mut self.losses);
        match ended {
            Ended::Answered { spurious } => {
                let at = now + SPURIOUS_EACH * spurious;
                self.again_not_before = self.again_not_before.max(at);
            }
            Ended::Later(retry) => self.not_before = now + retry,
            Ended::Hopeless(_) | Ended::Lost => {
                self.losses = losses.saturating_add(1);
                let most = FETCH_RETRY_MIN * 2_u32.pow(losses.min(16));
                self.not_before = now + jitter.part_of(most.min(FETCH_RETRY_MAX));
            }
        }
    }
}
