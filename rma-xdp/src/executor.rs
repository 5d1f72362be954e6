//! A CommandExecutor with its host's clock: transfers of any size for applications, polled or waited for. For futures
//! there is a [`Client`].
//!
//! It is the protocol's [`CommandExecutor`] over a [`Portal`] and nothing else: what is added is the time, and how a
//! thread waits. It belongs to one thread at a time and may be sent to another.
//!
//! # What a drop leaves
//!
//! An executor that is dropped in the middle of a call forgets it. Ops that the NIC has taken go on to their ends: the
//! slots are the host's again when the last is over, and the memory lives as long as its region is registered. Until
//! then the bytes that those ops read into may change. A [`Client`] has buffers that nobody gets before.

mod buffer;
mod client;
mod seat;
mod tasks;

use std::collections::VecDeque;

pub(crate) use buffer::region_len;
pub use buffer::{Acquire, BufferPool, BufferPoolError, RegionBuf};
pub use client::{Client, Poller, Transfer};

use rma_core::{
    executor::{
        Call, CallError, CallId, CallStatus, CommandExecutor, ExecutorConfig, ExecutorConfigError,
        Outcome, Piece,
    },
    grant::Grant,
    op::OpType,
    region::RegisteredRegion,
    time::{Clock, Instant},
};

use crate::{
    clock::TscClock,
    error::{TransferError, WaitError},
    idle::{Idle, IdlePolicy, IdleTracker},
    portal::{Portal, WAIT},
};

/// Transfers of any size over one portal. See the [module](rma_core::executor) that does it for who goes next.
///
/// To poll: [`Executor::submit`] a call, [`Executor::poll`] often, and take what is over from
/// [`Executor::poll_outcome`]. To wait: [`Executor::read`] and [`Executor::write`] for one transfer at a time,
/// [`Executor::run`] for calls with a policy of their own, [`Executor::wait_any`] for several calls at once.
///
/// ```
#[doc = include_str!("../examples/transfer.rs")]
/// ```
#[derive(Debug)]
pub struct Executor {
    inner: CommandExecutor<Portal>,
    clock: TscClock,
    idle: IdlePolicy,
    /// How many calls there can be.
    calls: u16,
    /// Outcomes that came while another call was waited for.
    over: VecDeque<Outcome>,
}

/// Turns an inline engine.
pub(crate) type Turn<'a> = &'a mut dyn FnMut() -> usize;

impl Executor {
    /// An executor over `portal`, of which nothing may be under way: one with settings of your own, or over the portal
    /// of a tenant. [`Host::executor_config`](crate::Host::executor_config) has what suits the host.
    ///
    /// # Errors
    /// The first setting that cannot work, with its value and the rule.
    ///
    /// # Panics
    /// If an op of the portal is under way.
    pub fn new(portal: Portal, config: ExecutorConfig) -> Result<Self, ExecutorConfigError> {
        Ok(Self {
            inner: CommandExecutor::new(portal, config)?,
            clock: TscClock::new(),
            idle: WAIT,
            calls: config.calls,
            over: VecDeque::new(),
        })
    }

    /// How this executor waits from now on: see [`Portal::set_idle`], whose default is that of executors.
    pub const fn set_idle(&mut self, idle: IdlePolicy) {
        self.idle = idle;
    }

    /// The time now, by the clock that deadlines of calls are compared with.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Takes a call. Its first ops are issued in the next [`Executor::poll`].
    ///
    /// Until the call is over, the local bytes of a read may change at any moment, and those of a write must not.
    ///
    /// # Errors
    /// If the call cannot be right, or there is no room for it. Then nothing was issued.
    pub fn submit(&mut self, call: &Call<'_>) -> Result<CallId, CallError> {
        if self.calls() >= self.calls.into() {
            return Err(CallError::TooManyCalls { calls: self.calls });
        }
        self.inner.submit(self.clock.now(), call)
    }

    /// See [`CommandExecutor::fence`].
    pub fn fence(&mut self) {
        self.inner.fence();
    }

    /// See [`CommandExecutor::cancel`].
    pub fn cancel(&mut self, call: CallId) {
        self.inner.cancel(call);
    }

    /// Takes the completions that there are, and issues what may be issued. Returns how much there was to do. To be
    /// called whenever there may be a completion, and not later than [`Executor::poll_timeout`] says.
    pub fn poll(&mut self) -> usize {
        self.inner.poll(self.clock.now())
    }

    /// The outcome of a call that is over.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.over.pop_front().or_else(|| self.inner.poll_outcome())
    }

    /// When [`Executor::poll`] has something to do even if no completion comes, by [`Executor::now`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    /// How many calls are not over, or their outcomes have not been taken.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.inner.calls() + self.over.len()
    }

    /// The protocol's part, to look at its windows and its portal.
    #[must_use]
    pub const fn protocol(&self) -> &CommandExecutor<Portal> {
        &self.inner
    }

    /// Reads `len` bytes at `remote_offset` of the granted region into `sink` at `offset`, and waits until they are
    /// there.
    ///
    /// # Errors
    /// [`TransferError::Refused`] if the transfer cannot be right, [`TransferError::Failed`] if not all bytes came,
    /// with what is missing, and [`TransferError::Unfinished`] if the engine is gone or inline.
    pub fn read(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        sink: &RegisteredRegion,
        offset: u64,
        len: u64,
    ) -> Result<(), TransferError> {
        let piece = Piece { grant, remote_offset, local: sink, local_offset: offset, len };
        self.transfer(OpType::Read, piece)
    }

    /// Writes `len` bytes of `source` at `offset` to `remote_offset` of the granted region, and waits until they are
    /// there. They must not change meanwhile.
    ///
    /// # Errors
    /// As [`Executor::read`].
    pub fn write(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        source: &RegisteredRegion,
        offset: u64,
        len: u64,
    ) -> Result<(), TransferError> {
        let piece = Piece { grant, remote_offset, local: source, local_offset: offset, len };
        self.transfer(OpType::Write, piece)
    }

    fn transfer(&mut self, wanted: OpType, piece: Piece<'_>) -> Result<(), TransferError> {
        check_op_type(piece.grant, wanted)?;
        done(self.run(&Call::of(&[piece]))?)
    }

    /// Submits a call and waits until it is over. Other calls go on meanwhile, and their outcomes are kept.
    ///
    /// # Errors
    /// [`TransferError::Refused`] and [`TransferError::Unfinished`]. How the transfer went is in the outcome.
    pub fn run(&mut self, call: &Call<'_>) -> Result<Outcome, TransferError> {
        self.run_with(call, None)
    }

    /// Waits until any call is over: spins, then sleeps, as [`Executor::set_idle`] says.
    ///
    /// # Errors
    /// If none can be: there is no call, the engine is gone, or it is inline and so does nothing while this thread
    /// waits ([`crate::InlineHost::wait_any`] is for those).
    pub fn wait_any(&mut self) -> Result<Outcome, WaitError> {
        self.wait_with(None, None)
    }

    /// Waits until `call` is over. The outcomes of others that are over before are kept.
    ///
    /// # Errors
    /// As [`Executor::wait_any`]; also if the outcome of the call was taken before.
    pub fn wait(&mut self, call: CallId) -> Result<Outcome, WaitError> {
        self.wait_with(Some(call), None)
    }

    pub(crate) fn run_with(
        &mut self,
        call: &Call<'_>,
        engine: Option<Turn<'_>>,
    ) -> Result<Outcome, TransferError> {
        if engine.is_none() {
            // Before there is a call that nobody would end.
            self.portal().ended()?;
        }
        let id = self.submit(call)?;
        let waited = self.wait_with(Some(id), engine);
        if waited.is_err() {
            self.cancel(id);
        }
        Ok(waited?)
    }

    /// `engine` turns the engine, if it is an inline one.
    pub(crate) fn wait_with(
        &mut self,
        call: Option<CallId>,
        mut engine: Option<Turn<'_>>,
    ) -> Result<Outcome, WaitError> {
        let mut idle = IdleTracker::new(self.idle);
        loop {
            // Looked at first: completions given before the engine ended are still there.
            let ended = if engine.is_some() { Ok(()) } else { self.portal().ended() };
            let work = self.poll();
            if let Some(outcome) = self.take(call) {
                return Ok(outcome);
            }
            if self.inner.calls() == 0 {
                return Err(WaitError::NothingOutstanding);
            }
            ended?;
            match &mut engine {
                Some(turn) => {
                    turn();
                }
                None if work > 0 => idle.busy(),
                None => self.rest(&mut idle),
            }
        }
    }

    /// There was nothing to do: waits a little, or for the next event.
    fn rest(&self, idle: &mut IdleTracker) {
        let now = self.now();
        match idle.idle(now) {
            Idle::Spin => core::hint::spin_loop(),
            Idle::Yield => std::thread::yield_now(),
            Idle::Sleep => self.portal().sleep_for(self.poll_timeout().map(|at| at.since(now))),
        }
    }

    /// The outcome of `call`, or of any, if it is over. Keeps those of others.
    fn take(&mut self, call: Option<CallId>) -> Option<Outcome> {
        let Some(call) = call else { return self.poll_outcome() };
        if let Some(place) = self.over.iter().position(|outcome| outcome.call == call) {
            return self.over.remove(place);
        }
        while let Some(outcome) = self.inner.poll_outcome() {
            if outcome.call == call {
                return Some(outcome);
            }
            self.over.push_back(outcome);
        }
        None
    }

    pub(crate) const fn portal(&self) -> &Portal {
        self.inner.portal()
    }
}

/// Whether `grant` is for ops of this type: what a call does follows from its grants.
fn check_op_type(grant: &Grant, wanted: OpType) -> Result<(), CallError> {
    let granted = grant.op_type;
    if granted == wanted {
        return Ok(());
    }
    let error = rma_core::error::SubmitError::GrantForAnotherOpType { granted, wanted };
    Err(CallError::Submit { piece: 0, error })
}

/// An error if not all bytes of a call were transferred.
fn done(outcome: Outcome) -> Result<(), TransferError> {
    match outcome.status {
        CallStatus::Ok => Ok(()),
        _ => Err(TransferError::Failed(outcome)),
    }
}
