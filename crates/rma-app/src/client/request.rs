//! A client's request to its executor: a transfer, one recorded op, or what became of one.

use rma_core::{
    executor::{Call, CallError, CallId, CallStatus, OpCall, Outcome},
    grant::Grant,
    op::ClassOfService,
    outcome::OpName,
    time::Instant,
};

use crate::transfers::Transfers;

/// A call of any kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    Transfer(&'a Call<'a>),
    Op(&'a OpCall<'a>),
    Settle { grant: &'a Grant, name: OpName, deadline: Option<Instant> },
}

impl Request<'_> {
    /// With which class of service it would be.
    pub(super) fn class(self, executor: &Transfers) -> ClassOfService {
        match self {
            Self::Transfer(call) => executor.class_of(call),
            Self::Op(call) => call.class,
            Self::Settle { .. } => ClassOfService::Latency,
        }
    }

    /// Whether it can be right.
    pub(super) fn check(self, executor: &mut Transfers) -> Result<(), CallError> {
        match self {
            Self::Transfer(call) => executor.check(call),
            Self::Op(call) => executor.check_op(call),
            Self::Settle { grant, .. } => executor.check_settle(grant),
        }
    }

    pub(super) fn submit(self, executor: &mut Transfers) -> Result<CallId, CallError> {
        match self {
            Self::Transfer(call) => executor.submit(call),
            Self::Op(call) => executor.submit_op(call),
            Self::Settle { grant, name, deadline } => executor.submit_settle(grant, name, deadline),
        }
    }

    /// A fence, and then the call; neither if it is refused.
    pub(super) fn submit_fenced(self, executor: &mut Transfers) -> Result<CallId, CallError> {
        match self {
            Self::Transfer(call) => executor.submit_fenced(call),
            Self::Op(call) => executor.submit_op_fenced(call),
            Self::Settle { grant, name, deadline } => {
                executor.submit_settle_fenced(grant, name, deadline)
            }
        }
    }

    /// Returns the outcome of a request whose time was over before there was a place.
    pub(super) fn expired(self) -> Outcome {
        let status = CallStatus::DeadlineExceeded;
        match self {
            Self::Transfer(call) => Outcome::not_begun(call, status),
            Self::Op(call) => Outcome::op_not_begun(call, status),
            Self::Settle { grant, name, .. } => Outcome::settle_not_begun(grant, name),
        }
    }
}
