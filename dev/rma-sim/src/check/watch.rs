//! Checks of a run: all of them, or those that figures need.

use super::{invariant::Checker, light::Light, violation::Violation};
use crate::net::{sim::Sim, trace::Seen};

/// The promises that are checked in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// All of [`invariant`](super::invariant), after each event.
    #[default]
    Every,
    /// Those of [`light`](super::light): each command is taken once and ends once, in time, with
    /// the delay that its node's clock says, and at the end NICs have counted the same ends. Tests
    /// compare two scenes and a workload with runs under all checks: the same to the bit.
    Light,
}

impl core::fmt::Display for Checks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Every => "every promise checked after every event",
            Self::Light => "each command ends once, in time, and outcomes add up",
        })
    }
}

/// Whoever looks at a run.
#[derive(Debug)]
pub enum Watch {
    /// As [`Checks::Every`].
    Every(Box<Checker>),
    /// As [`Checks::Light`].
    Light(Light),
}

impl Watch {
    /// Of a simulation that has not begun.
    #[must_use]
    pub fn new(sim: &Sim, checks: Checks) -> Self {
        match checks {
            Checks::Every => Self::Every(Box::new(Checker::new(sim))),
            Checks::Light => Self::Light(Light::new(sim)),
        }
    }

    /// Takes in one thing that happened.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub fn take(&mut self, sim: &Sim, seen: &Seen) -> Result<(), Violation> {
        match self {
            Self::Every(checker) => checker.take(sim, seen),
            Self::Light(light) => light.take(sim, seen),
        }
    }

    /// Checks what must hold between events, when all that happened has been taken in.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check(&mut self, sim: &Sim) -> Result<(), Violation> {
        match self {
            Self::Every(checker) => checker.check(sim),
            Self::Light(_) => Ok(()),
        }
    }

    /// Checks what must hold at the end of a run, whatever is under way.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check_end(&mut self, sim: &Sim) -> Result<(), Violation> {
        match self {
            Self::Every(checker) => checker.check(sim),
            Self::Light(light) => light.check_end(sim),
        }
    }
}
