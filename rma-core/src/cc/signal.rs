//! The part of a completion that a congestion window listens to (1RMA §6).
//!
//! Here, and nowhere else, is decided which failure counts on which window.

use super::Feedback;
use crate::op::OpStatus;

/// The signal that a window reacts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Congestion at the initiating NIC: `issue_delay` and DISPATCH_TIMEOUT.
    IssueDelay,
    /// Congestion of the network and the remote NIC: `remote_delay`, TIMEOUT and NACK.
    RemoteDelay,
    /// Both as one: `total_delay` and all three failures. The paper's baseline of figure 15c.
    TotalDelay,
}

/// The reading of a completion through a [`Signal`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reading {
    /// The op succeeded, with this delay in nanoseconds.
    Delay(f64),
    /// The op was refused at once, because a queue was too deep.
    Refused,
    /// The op was not done in time.
    TimedOut,
    /// Nothing about this window's kind of congestion.
    Nothing,
}

impl Signal {
    pub(super) fn read(self, feedback: &Feedback) -> Reading {
        match (feedback.status, self) {
            (OpStatus::Ok, Self::IssueDelay) => Reading::Delay(feedback.issue_delay_nanos as f64),
            //= 1rma#6-remote-window
            (OpStatus::Ok, Self::RemoteDelay) => {
                Reading::Delay(feedback.remote_delay_nanos() as f64)
            }
            //= 1rma#7.4-total-delay-only
            (OpStatus::Ok, Self::TotalDelay) => Reading::Delay(feedback.total_delay_nanos as f64),
            // A precise sign of local congestion: the local window reacts, and only it.
            //= 1rma#6-dispatch-timeout
            (OpStatus::DispatchTimeout, Self::IssueDelay | Self::TotalDelay) => Reading::TimedOut,
            //= 1rma#6-remote-failures
            (OpStatus::Timeout, Self::RemoteDelay | Self::TotalDelay) => Reading::TimedOut,
            (OpStatus::Nack, Self::RemoteDelay | Self::TotalDelay) => Reading::Refused,
            (OpStatus::DispatchTimeout, Self::RemoteDelay)
            | (OpStatus::Timeout | OpStatus::Nack, Self::IssueDelay) => Reading::Nothing,
            // Wrong keys, regions and commands are the caller's fault, and no measure of load; an
            // application that posts no receives is slow, and not its network.
            // Neither are their delays: nothing was transferred.
            (
                OpStatus::RemoteAuthenticationFailure
                | OpStatus::RemoteOutOfBounds
                | OpStatus::RemotePermissionDenied
                | OpStatus::InvalidCommand
                | OpStatus::RemoteNotReady,
                _,
            ) => Reading::Nothing,
        }
    }
}
