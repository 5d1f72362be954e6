//! One change of a key: what must be done until the responder is known to go by it.
//!
//! It knows neither keys nor the catalog, only how the last step ended. Invariant: a swap is done
//! only when something came that was sealed under the new key, or the region's own host has said
//! so; and what [`Swap::may_hold`] denies has not taken effect and never will (P2).

use core::time::Duration;

use rma_core::{op::OpStatus, time::Instant};

use crate::{
    epoch::Epoch,
    evidence::Evidence,
    limits::{LATE, STEP_RETRY_MAX, STEP_RETRY_MIN},
    secret::RegionSecret,
};

/// The way of a rotator to the region's responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is on the region's own host, and asks that: the answer is known at once, or the same is
    /// asked again until it is.
    Host,
    /// By the op Rekey over the network, of which the outcome may be unknown (§5.2).
    //= 1rma#5.2-rekey
    Rekey,
}

/// A task for a rotation's driver.
#[derive(Debug)]
#[must_use]
pub enum Todo<'a> {
    /// Nothing before this time, or before something is told: then
    /// [`Rotation::handle_timeout`](super::Rotation::handle_timeout).
    Wait(Option<Instant>),
    /// Have the responder go by `secret`, by the rotation's [`Way`]. A Rekey goes under the key of
    /// epoch `under`, which the catalog derives.
    Rekey {
        /// The epoch that the responder is taken to be in.
        under: Epoch,
        /// The epoch that it shall be in.
        to: Epoch,
        /// The key of that.
        secret: &'a RegionSecret,
    },
    /// READ any byte of the region under the key of epoch `under`, to see if its responder goes by
    /// that. The region need not permit it: to be refused under a key proves as much.
    Probe {
        /// The epoch that it may be in.
        under: Epoch,
    },
}

/// An alarm about a rotation, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The epoch should have ended, and has not: its keys are good for longer than was told.
    Late {
        /// For how long.
        by: Duration,
    },
    /// Both keys were refused in turn: the owner has started again, or somebody forges refusals.
    /// The rotation goes on, until it is published anew.
    BothRefused,
    /// The region refuses to be rekeyed so. The rotation goes on, until somebody changes that.
    NotPermitted {
        /// The status of the Rekey.
        status: OpStatus,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Rekey,
    Probe,
}

/// The consequence of a step's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The responder goes by the new key.
    Done,
    /// There is another step to do, and perhaps people to be told.
    Again(Option<Alarm>),
}

/// How long a step that has come to nothing `waits` times waits for the next time.
pub(crate) fn retry_pause(waits: u32) -> Duration {
    (STEP_RETRY_MIN * 2_u32.pow(waits.min(16))).min(STEP_RETRY_MAX)
}

/// A change of a key that is under way.
#[derive(Debug)]
pub(super) struct Swap {
    way: Way,
    step: Step,
    /// When the step must be done.
    at: Instant,
    is_under_way: bool,
    /// Whether an earlier Rekey may have taken effect.
    is_unsettled: bool,
    /// Whether the last Rekey was refused as if under a wrong key.
    is_refused: bool,
    /// How often it has waited.
    waits: u32,
    /// When the epoch before was to end.
    due: Instant,
    is_told: bool,
}

impl Swap {
    /// A change that is to begin, of an epoch that ends at `due`.
    pub(super) const fn new(way: Way, now: Instant, due: Instant) -> Self {
        Self {
            way,
            step: Step::Rekey,
            at: now,
            is_under_way: false,
            is_unsettled: false,
            is_refused: false,
            waits: 0,
            due,
            is_told: false,
        }
    }

    /// A change that an earlier life of the service began, or did not: the responder is asked
    /// first which key it goes by.
    pub(super) const fn taken_up(way: Way, now: Instant) -> Self {
        Self { step: Step::Probe, is_unsettled: true, ..Self::new(way, now, now) }
    }

    /// Whether the responder may go by the new key.
    pub(super) const fn may_hold(&self) -> bool {
        self.is_unsettled || (self.is_under_way && matches!(self.step, Step::Rekey))
    }

    /// By how much the change is late, if it is.
    pub(super) fn late_by(&self, now: Instant) -> Option<Duration> {
        Some(now.since(self.due)).filter(|&it| it > LATE)
    }

    /// The alarm that it is late, once.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<Alarm> {
        let by = self.late_by(now).filter(|_| !self.is_told)?;
        self.is_told = true;
        Some(Alarm::Late { by })
    }

    /// The step to do now.
    pub(super) fn poll<'a>(
        &mut self,
        now: Instant,
        under: Epoch,
        to: Epoch,
        secret: &'a RegionSecret,
    ) -> Todo<'a> {
        let is_now = !self.is_under_way && self.at <= now;
        if !is_now {
            let step = Some(self.at).filter(|_| !self.is_under_way);
            let late = Some(self.due + LATE + Duration::from_nanos(1)).filter(|_| !self.is_told);
            return Todo::Wait([step, late].into_iter().flatten().min());
        }
        self.is_under_way = true;
        match self.step {
            Step::Rekey => Todo::Rekey { under, to, secret },
            Step::Probe => Todo::Probe { under: to },
        }
    }

    /// Takes the outcome of a Rekey. `None` if none is under way.
    pub(super) fn handle_rekey(&mut self, now: Instant, status: OpStatus) -> Option<After> {
        self.end(Step::Rekey)?;
        self.is_refused = status == OpStatus::RemoteAuthenticationFailure;
        Some(match (status, self.way, Evidence::of(status)) {
            (OpStatus::Ok, ..) => After::Done,
            // A refusal may be forged, or an earlier try's effect.
            (_, Way::Rekey, Evidence::Silence | Evidence::Refused) => {
                self.is_unsettled = true;
                self.go_on(Step::Probe, now)
            }
            (_, Way::Host, Evidence::Silence) => {
                self.is_unsettled = true;
                self.wait(Step::Rekey, now, None)
            }
            (OpStatus::Nack | OpStatus::DispatchTimeout, ..) | (_, Way::Host, _) => {
                self.wait(Step::Rekey, now, None)
            }
            _ => self.wait(Step::Rekey, now, Some(Alarm::NotPermitted { status })),
        })
    }

    /// Takes the outcome of a probe. `None` if none is under way.
    pub(super) fn handle_probe(&mut self, now: Instant, status: OpStatus) -> Option<After> {
        self.end(Step::Probe)?;
        Some(match Evidence::of(status) {
            Evidence::Holds => After::Done,
            Evidence::Refused if self.is_refused => {
                self.wait(Step::Rekey, now, Some(Alarm::BothRefused))
            }
            Evidence::Refused => self.go_on(Step::Rekey, now),
            Evidence::Silence | Evidence::Unsent => self.wait(Step::Probe, now, None),
        })
    }

    fn end(&mut self, step: Step) -> Option<()> {
        let is_it = self.is_under_way && self.step == step;
        is_it.then(|| self.is_under_way = false)
    }

    const fn go_on(&mut self, step: Step, now: Instant) -> After {
        (self.step, self.at) = (step, now);
        After::Again(None)
    }

    fn wait(&mut self, step: Step, now: Instant, alarm: Option<Alarm>) -> After {
        (self.step, self.at) = (step, now + retry_pause(self.waits));
        self.waits = self.waits.saturating_add(1);
        After::Again(alarm)
    }
}
