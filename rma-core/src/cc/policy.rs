//! Congestion control of an application's own (not in the paper, which has it in software so that
//! it can change).
//!
//! Contract: a policy says how each window starts and reacts. The table of windows, the pace, and
//! the rule that the smaller window counts stay as they are.
//!
//! Invariant: whatever a policy's window answers, the executor sees a number within
//! [`CcConfigBuilder::cwnd_min`](super::CcConfigBuilder::cwnd_min) and
//! [`CcConfigBuilder::cwnd_max`](super::CcConfigBuilder::cwnd_max); and a window that has panicked
//! is not asked again.

use core::{
    fmt,
    hash::{Hash, Hasher},
};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{CcConfig, CongestionController, Feedback, Rtt};
use crate::{op::Moves, time::Instant};

/// An algorithm of congestion control that the application brings along, for
/// [`Algorithm::Own`](super::Algorithm::Own).
///
/// Its windows are boxes: one is allocated for the local NIC, and one whenever a remote NIC is new.
/// They react on the application's thread, once per completion, and should not block. (Those that
/// StaR is configured with react on the engine's.)
///
/// ```
/// use rma_core::{
///     cc::{Algorithm, CcConfig, CcConfigBuilder, CongestionController, Feedback, Policy, Rtt},
///     op::{Moves, OpStatus},
/// };
///
/// /// One op more for each that succeeds, and half of the window for any that does not.
/// #[derive(Debug)]
/// struct Halving(f64);
///
/// impl CongestionController for Halving {
///     fn on_completion(&mut self, feedback: &Feedback, _: Rtt) {
///         self.0 = if feedback.status == OpStatus::Ok { self.0 + 1.0 } else { self.0 / 2.0 };
///     }
///
///     fn cwnd(&self) -> f64 {
///         self.0
///     }
/// }
///
/// #[derive(Debug)]
/// struct AllHalve;
///
/// impl Policy for AllHalve {
///     fn name(&self) -> &'static str {
///         "halving"
///     }
///
///     fn local(&self, config: &CcConfig) -> Box<dyn CongestionController> {
///         Box::new(Halving(config.settings().cwnd_initial))
///     }
///
///     fn remote(&self, config: &CcConfig, _: Moves) -> Box<dyn CongestionController> {
///         self.local(config)
///     }
/// }
///
/// let mut builder = CcConfigBuilder::default();
/// builder.algorithm = Algorithm::Own(&AllHalve);
/// let config = builder.build()?;
/// assert_eq!(config.settings().algorithm.name(), "halving");
/// # Ok::<(), rma_core::cc::CcConfigError>(())
/// ```
pub trait Policy: fmt::Debug + Send + Sync {
    /// A short name. Two policies of one name are taken for the same.
    fn name(&self) -> &'static str;

    /// A new window for the local NIC. It should react to
    /// [`Feedback::issue_delay_nanos`] (§6).
    fn local(&self, config: &CcConfig) -> Box<dyn CongestionController>;

    /// A new window for one remote NIC, for ops whose data `moves` so. It should react to
    /// [`Feedback::remote_delay_nanos`] (§6).
    fn remote(&self, config: &CcConfig, moves: Moves) -> Box<dyn CongestionController>;

    /// Whether ops are spread over the round trip (§6), as the paper has it, or only where the
    /// window is below one op.
    fn is_paced(&self) -> bool {
        true
    }
}

impl PartialEq for dyn Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Policy {}

impl Hash for dyn Policy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// A window of a [`Policy`], and what it last answered.
#[derive(Debug)]
pub struct Own {
    /// `None` once it has panicked: the window stays as it was then.
    controller: Option<Box<dyn CongestionController>>,
    cwnd: f64,
    cwnd_min: f64,
    cwnd_max: f64,
}

impl Own {
    /// The window that `make` makes. One that panics makes none: the window stays as it begins.
    pub(super) fn new(
        config: &CcConfig,
        make: impl FnOnce() -> Box<dyn CongestionController>,
    ) -> Self {
        let settings = config.settings();
        let mut own = Self {
            controller: catch_unwind(AssertUnwindSafe(make)).ok(),
            cwnd: settings.cwnd_initial,
            cwnd_min: settings.cwnd_min,
            cwnd_max: settings.cwnd_max,
        };
        own.update(|_| {});
        own
    }

    /// Lets the controller react, and notes its window. Ops are accounted for on both sides of
    /// this, so a panic must not leave it: the hook has told of it.
    fn update(&mut self, react: impl FnOnce(&mut dyn CongestionController)) {
        let Some(controller) = &mut self.controller else { return };
        let reacted = catch_unwind(AssertUnwindSafe(|| {
            react(&mut **controller);
            controller.cwnd()
        }));
        match reacted {
            // Not a number says nothing.
            Ok(cwnd) if cwnd.is_nan() => {}
            Ok(cwnd) => self.cwnd = cwnd.clamp(self.cwnd_min, self.cwnd_max),
            Err(_) => self.controller = None,
        }
    }
}

impl CongestionController for Own {
    fn on_completion(&mut self, feedback: &Feedback, rtt: Rtt) {
        self.update(|it| it.on_completion(feedback, rtt));
    }

    fn on_completion_unused(&mut self, feedback: &Feedback, rtt: Rtt) {
        self.update(|it| it.on_completion_unused(feedback, rtt));
    }

    fn on_return(&mut self, now: Instant, factor: f64) {
        self.update(|it| it.on_return(now, factor));
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }
}
