//! One service, as a cache asks it: what is under way, and when the next request may go.
//!
//! It knows no keys. Invariants: one request at a time; a service that turns this client away, or
//! cannot be reached, is not asked before its time; forged notices make no more requests than one
//! each [`SPURIOUS_MIN`], and fewer the longer they come.

use core::time::Duration;

use rma_core::time::Instant;

use crate::{
    cache::ring_id::RingId,
    jitter::Jitter,
    limits::{FETCH_RETRY_MAX, FETCH_RETRY_MIN, SPURIOUS_HALVED, SPURIOUS_MAX, SPURIOUS_MIN},
    message::reply::Refusal,
    ring::{GiveUp, Want},
};

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// Each region has its answer. Spurious if one brought nothing new of keys that were refused.
    Answered { is_spurious: bool },
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
    /// What it is about.
    asked: Option<Vec<RingId>>,
    /// When there is something to ask.
    wake_at: Option<Instant>,
    /// Nothing is asked before.
    not_before: Instant,
    /// How often in a row nothing came.
    losses: u32,
    /// When the last spurious answer came, and how long no suspect keys are asked about after it.
    spurious: Option<(Instant, Duration)>,
}

impl Asking {
    /// There will be something to ask.
    pub(super) fn wake(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |it| it.min(at)));
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
    pub(super) fn may_ask_about(&self, (want, at): (Want, Instant)) -> Instant {
        match (want, self.spurious) {
            (Want::Suspect, Some((since, wait))) => at.max(since + wait),
            _ => at,
        }
    }

    pub(super) fn begin(&mut self, ids: Vec<RingId>) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.asked = Some(ids);
        self.number
    }

    /// What request `number` was about, if it is the one that is under way: it has ended.
    pub(super) fn asked(&mut self, number: u32) -> Option<Vec<RingId>> {
        if number == self.number { self.asked.take() } else { None }
    }

    /// The request under way is nobody's any more.
    pub(super) fn abandon(&mut self) {
        self.asked = None;
    }

    pub(super) fn end(&mut self, now: Instant, ended: Ended, jitter: &mut Jitter) {
        let losses = core::mem::take(&mut self.losses);
        match ended {
            Ended::Answered { is_spurious: false } => {}
            Ended::Answered { is_spurious: true } => self.spurious = Some((now, self.wait(now))),
            Ended::Later(retry) => self.not_before = now + retry,
            Ended::Hopeless(_) | Ended::Lost => {
                self.losses = losses.saturating_add(1);
                let most = FETCH_RETRY_MIN * 2_u32.pow(losses.min(16));
                self.not_before = now + jitter.part_of(most.min(FETCH_RETRY_MAX));
            }
        }
    }

    /// How long to wait after another spurious answer: twice as long as after the one before,
    /// halved for each time that has passed without.
    fn wait(&self, now: Instant) -> Duration {
        let Some((at, wait)) = self.spurious else { return SPURIOUS_MIN };
        let times = now.since(at).as_nanos() / SPURIOUS_HALVED.as_nanos();
        let wait = wait * 2 / 2_u32.pow(times.min(16) as u32);
        wait.clamp(SPURIOUS_MIN, SPURIOUS_MAX)
    }
}
