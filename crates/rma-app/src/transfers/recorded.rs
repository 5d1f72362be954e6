//! Calls of one recorded op among [`Transfers`], and what became of an op that was left in doubt
//! (not in the paper).

use rma_core::{
    executor::{CallError, CallId, OpCall},
    grant::Grant,
    outcome::OpName,
    time::Instant,
};

use super::{Transfers, well};
use crate::{error::TransferError, settlement::Settlement};

impl Transfers {
    /// Takes a call of one recorded op: SEND, NOTIFY, WRITE_WITH_IMM, an ordered WRITE or an atomic
    /// (not in the paper). It is issued in the next [`Transfers::poll`], and never repeated while
    /// it may have been applied: see [`RetryPolicy`](rma_core::executor::RetryPolicy).
    ///
    /// # Errors
    /// As [`Transfers::submit`].
    pub fn submit_op(&mut self, call: &OpCall<'_>) -> Result<CallId, CallError> {
        self.begin(|inner, now| inner.submit_op(now, call))
    }

    /// [`Transfers::fence`] and then [`Transfers::submit_op`]; but if the call is refused, there is
    /// no fence either.
    ///
    /// # Errors
    /// As [`Transfers::submit`].
    pub fn submit_op_fenced(&mut self, call: &OpCall<'_>) -> Result<CallId, CallError> {
        self.begin(|inner, now| inner.submit_op_fenced(now, call))
    }

    /// Takes a call that asks what became of the op that an outcome left in doubt: see
    /// [`CommandExecutor::submit_settle`](rma_core::executor::CommandExecutor::submit_settle).
    ///
    /// # Errors
    /// As [`Transfers::submit`].
    pub fn submit_settle(
        &mut self,
        grant: &Grant,
        name: OpName,
        deadline: Option<Instant>,
    ) -> Result<CallId, CallError> {
        self.begin(|inner, now| inner.submit_settle(now, grant, name, deadline))
    }

    /// [`Transfers::fence`] and then [`Transfers::submit_settle`]; but if the call is refused,
    /// there is no fence either.
    ///
    /// # Errors
    /// As [`Transfers::submit`].
    pub fn submit_settle_fenced(
        &mut self,
        grant: &Grant,
        name: OpName,
        deadline: Option<Instant>,
    ) -> Result<CallId, CallError> {
        self.begin(|inner, now| inner.submit_settle_fenced(now, grant, name, deadline))
    }

    /// Asks what became of the op that its target calls `name`, which an outcome left
    /// [in doubt](rma_core::executor::Outcome::in_doubt), and waits for the answer. `grant` is one
    /// for the region and type of that op, under the region's present key. Other calls go on
    /// meanwhile, and their outcomes are kept.
    ///
    /// # Errors
    /// [`TransferError::Unknown`] if its target has not answered within four timeouts: the op is as
    /// much in doubt as before, and may be asked about again. [`TransferError::Refused`] and
    /// [`TransferError::Unfinished`] as of [`Transfers::run_op`].
    pub fn settle(&mut self, grant: &Grant, name: OpName) -> Result<Settlement, TransferError> {
        let outcome = self.submit_and_wait(|it| it.submit_settle(grant, name, None))?;
        well(outcome).map(Settlement::of)
    }

    /// See [`CommandExecutor::check_op`](rma_core::executor::CommandExecutor::check_op).
    ///
    /// # Errors
    /// As [`CommandExecutor::check_op`](rma_core::executor::CommandExecutor::check_op).
    pub fn check_op(&mut self, call: &OpCall<'_>) -> Result<(), CallError> {
        self.inner.check_op(call).map(drop)
    }

    /// See [`CommandExecutor::check_settle`](rma_core::executor::CommandExecutor::check_settle).
    ///
    /// # Errors
    /// As [`CommandExecutor::check_settle`](rma_core::executor::CommandExecutor::check_settle).
    pub fn check_settle(&mut self, grant: &Grant) -> Result<(), CallError> {
        self.inner.check_settle(grant)
    }
}
