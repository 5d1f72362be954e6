//! Congestion control (1RMA §6): from what completions say to how many bytes may be outstanding,
//! and how fast.
//!
//! All of it runs on the initiating side, in software, on an application's thread. The paper's NIC
//! only measures: each completion has an `issue_delay`, which shows congestion at the local NIC,
//! and a `total_delay`; the difference, `remote_delay`, shows congestion of the network and of the
//! remote NIC. Two kinds of congestion window (CWND) react to them separately: one for the local
//! NIC, and one for each remote NIC and way that data moves. The more restrictive of the two rules.
//!
//! [`CongestionControl`] holds the windows of one CommandExecutor. Per op it is asked once, for a
//! [`Window`], and told once, with a [`Feedback`]:
//!
//! ```
//! use rma_core::{
//!     cc::{CcConfigBuilder, CongestionControl, Feedback},
//!     op::{Moves, OpStatus},
//!     time::Instant,
//! };
//!
//! let mut cc = CongestionControl::new(CcConfigBuilder::default().build()?);
//! // Once for a transfer, or for as long as ops go there.
//! let remote = cc.hold("192.0.2.7".parse()?, Moves::In)?.id;
//! // Before each op. The executor counts what is outstanding, and keeps the interval between ops.
//! let outstanding = 0;
//! let window = cc.window(remote);
//! assert!(window.admits(outstanding, 4096));
//! let outstanding = outstanding + u64::from(window.charge(4096));
//! let _next_op_after_nanos = window.pacing_interval_nanos(4096);
//! // After each completion.
//! cc.on_completion(remote, &Feedback {
//!     now: Instant::from_nanos(5_000),
//!     op_size: 4096,
//!     status: OpStatus::Ok,
//!     issue_delay_nanos: 200,
//!     total_delay_nanos: 5_000,
//! }, outstanding);
//! cc.release(remote);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Units
//!
//! A CWND counts ops of the size that transfers are cut into (OpSize in the paper), as an `f64`:
//! windows below one op are needed (the next op then waits for several round trips), increments are
//! fractions of an op, and nothing overflows. Only `+ - * /`, `sqrt` and comparisons are applied,
//! whose rounding IEEE 754 fixes, so a run repeats exactly on every machine. What is outstanding is
//! counted in bytes, as an integer: sums must not drift.
//!
//! # What this is not
//!
//! It sends nothing, holds nothing back and reads no clock: time is an argument, and to obey is the
//! executor's part. The NIC knows nothing of it. Solicitation (§4.1) bounds an incast in the
//! meantime.
//!
//! Invariants: every CWND stays within the configured limits and is never NaN, whatever the
//! feedback; nothing is allocated after [`CongestionControl::new`].

mod aimd;
mod config;
mod fixed;
mod policy;
mod rtt;
mod signal;
mod swift;
mod table;
#[cfg(test)]
mod tests;
mod window;

use core::fmt;

pub use aimd::Aimd;
pub use config::{Algorithm, CcConfig, CcConfigBuilder, CcConfigError, SwiftParameters};
pub use fixed::Fixed;
pub use policy::{Own, Policy};
pub use rtt::Rtt;
pub use signal::Signal;
pub use swift::Swift;
pub use table::{AllHeld, CongestionControl, Held, RemoteWindowId};
pub use window::{OpCharge, Window};

use crate::{command::Completion, op::OpStatus, time::Instant};

/// The congestion signals of one completion (§4.5, §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// When the completion was seen. Should not go backwards; if it does, the only harm is a
    /// decrease that is left out.
    pub now: Instant,
    /// The op's size in bytes.
    pub op_size: u32,
    /// The status that the op ended with.
    pub status: OpStatus,
    /// How long the op waited to enter service, in nanoseconds.
    pub issue_delay_nanos: u64,
    /// How long the op took in all, in nanoseconds. Not below `issue_delay_nanos`.
    pub total_delay_nanos: u64,
}

impl Feedback {
    /// Makes the feedback of `completion`, of an op of `op_size` bytes, at `now`.
    #[must_use]
    pub const fn of(completion: &Completion, op_size: u32, now: Instant) -> Self {
        let (issue_delay_nanos, total_delay_nanos) = completion.delays_nanos();
        Self { now, op_size, status: completion.status, issue_delay_nanos, total_delay_nanos }
    }

    /// The share of the network and of the remote NIC in the delay, in nanoseconds (§6).
    //= 1rma#6-remote-delay
    #[must_use]
    pub const fn remote_delay_nanos(&self) -> u64 {
        self.total_delay_nanos.saturating_sub(self.issue_delay_nanos)
    }
}

/// One congestion window: how it reacts to completions.
///
/// What a deployment would change lives behind this trait; who holds which windows, and that the
/// smaller rules, does not. Implementations read no clock, allocate nothing and log nothing.
pub trait CongestionController: fmt::Debug + Send {
    /// Reacts to one completion. `rtt` is the round-trip time to the op's remote NIC, `feedback`
    /// included.
    fn on_completion(&mut self, feedback: &Feedback, rtt: Rtt);

    /// Reacts to one completion of a window of which less than half was used. The window must not
    /// grow: that nothing was congested says nothing about it. By default an op that succeeded
    /// changes nothing, and another one what it always changes.
    fn on_completion_unused(&mut self, feedback: &Feedback, rtt: Rtt) {
        if feedback.status != OpStatus::Ok {
            self.on_completion(feedback, rtt);
        }
    }

    /// The remote NIC answers again after a silence: leaves `factor` of the window, but no less
    /// than one op if it is above that. A decrease like any other: the next one is a round trip
    /// later at the earliest. By default nothing changes.
    fn on_return(&mut self, now: Instant, factor: f64) {
        let _ = (now, factor);
    }

    /// The window, in ops; below one, ops are further than a round trip apart. Finite and above
    /// zero.
    fn cwnd(&self) -> f64;
}

/// Any of the controllers, by value: windows lie side by side in one table, and those of this crate
/// are reached without a pointer.
#[derive(Debug)]
pub enum Controller {
    /// Algorithm 1 and its kin.
    Aimd(Aimd),
    /// Swift, which paces by a target delay.
    Swift(Swift),
    /// No control: a window that stays as it is.
    Fixed(Fixed),
    /// One of the application's own.
    Own(Own),
}

/// The window that `factor` leaves of `cwnd` when a remote NIC answers again.
fn after_return(cwnd: f64, factor: f64) -> f64 {
    (factor * cwnd).max(cwnd.min(1.0))
}

impl CongestionController for Controller {
    fn on_completion(&mut self, feedback: &Feedback, rtt: Rtt) {
        match self {
            Self::Aimd(aimd) => aimd.on_completion(feedback, rtt),
            Self::Swift(swift) => swift.on_completion(feedback, rtt),
            Self::Fixed(fixed) => fixed.on_completion(feedback, rtt),
            Self::Own(own) => own.on_completion(feedback, rtt),
        }
    }

    fn on_completion_unused(&mut self, feedback: &Feedback, rtt: Rtt) {
        match self {
            Self::Aimd(aimd) => aimd.on_completion_unused(feedback, rtt),
            Self::Swift(swift) => swift.on_completion_unused(feedback, rtt),
            Self::Fixed(fixed) => fixed.on_completion_unused(feedback, rtt),
            Self::Own(own) => own.on_completion_unused(feedback, rtt),
        }
    }

    fn on_return(&mut self, now: Instant, factor: f64) {
        match self {
            Self::Aimd(aimd) => aimd.on_return(now, factor),
            Self::Swift(swift) => swift.on_return(now, factor),
            Self::Fixed(fixed) => fixed.on_return(now, factor),
            Self::Own(own) => own.on_return(now, factor),
        }
    }

    fn cwnd(&self) -> f64 {
        match self {
            Self::Aimd(aimd) => aimd.cwnd(),
            Self::Swift(swift) => swift.cwnd(),
            Self::Fixed(fixed) => fixed.cwnd(),
            Self::Own(own) => own.cwnd(),
        }
    }
}

/// When a window was last decreased: it may be again when a round-trip time has passed, and the
/// completions show what the last decrease has done.
#[derive(Clone, Copy, Debug, Default)]
struct LastDecrease(Option<Instant>);

impl LastDecrease {
    /// Whether there was no decrease in the last RTT time.
    ///
    /// What an op that succeeded says is about the queue that it joined. So it must have been
    /// issued when that of the last decrease had drained, which took about as long as this op has
    /// waited: the round trip is its own, and its `issue_delay` once more. The smoothed `rtt` is
    /// too short for that when a queue is new, and one queue would be answered twice.
    //= 1rma#6-one-decrease-a-round-trip
    fn is_an_rtt_ago(self, feedback: &Feedback, rtt: Rtt) -> bool {
        let own = match feedback.status {
            OpStatus::Ok => feedback.total_delay_nanos.saturating_add(feedback.issue_delay_nanos),
            // A timeout measures its timer.
            _ => 0,
        };
        let rtt = rtt.nanos().max(own as f64);
        self.0.is_none_or(|last| feedback.now.nanos_since(last) as f64 >= rtt)
    }
}
