//! A CommandExecutor with its host's clock: transfers of any size for applications, polled or
//! waited for. For futures there is a [`Client`](crate::Client).
//!
//! It is the protocol's [`CommandExecutor`] over a [`Portal`] and nothing else: what is added is
//! the time, and how a thread waits. It belongs to one thread at a time and may be sent to another.
//!
//! # What a drop leaves
//!
//! An executor that is dropped in the middle of a call forgets it. Ops that the NIC has taken go on
//! to their ends: the slots are the host's again when the last is over, and the memory lives as
//! long as its region is registered. Until then the bytes that those ops read into may change. A
//! [`Client`](crate::Client) has buffers that nobody gets before.

mod events;
mod recorded;
mod waiting;

use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    executor::{
        Call, CallError, CallId, CallStatus, CommandExecutor, ExecutorConfig, ExecutorConfigError,
        Outcome,
    },
    grant::Grant,
    op::{ClassOfService, OpType},
    time::{Clock, Instant},
};

use crate::{
    clock::TscClock,
    error::{TransferError, WaitError},
    gauges::{EVERY, ExecutorWatch, Told},
    idle::IdlePolicy,
    lease::PortalLease,
    portal::{Portal, WAIT},
    sleep::Sleep,
};

/// Transfers of any size over one portal. See the [module](rma_core::executor) that does it for who
/// goes next.
///
/// To poll: [`Transfers::submit`] a call, [`Transfers::poll`] often, and take what is over from
/// [`Transfers::poll_outcome`]. To wait: [`Transfers::read`] and [`Transfers::write`] for one at a
/// time (with [`TransferOptions`](crate::TransferOptions): [`Transfers::read_with`],
/// [`Transfers::write_with`]), [`Transfers::run`] for calls of several pieces,
/// [`Transfers::run_op`] for messages and atomics, [`Transfers::wait_any`] for several calls at
/// once. To wait for other things as well, in an event loop of your own:
/// [`Transfers::completion_fd`].
///
/// ```
#[doc = include_str!("../examples/transfer.rs")]
/// ```
#[derive(Debug)]
pub struct Transfers {
    inner: CommandExecutor,
    /// That of its portal, whose rings `inner` has.
    lease: PortalLease,
    clock: TscClock,
    pub(crate) idle: IdlePolicy,
    /// How many calls there can be.
    pub(crate) calls: u16,
    /// Outcomes that came while another call was waited for.
    over: VecDeque<Outcome>,
    pub(crate) told: Arc<Told>,
    /// When to tell the next time.
    tells_at: Instant,
    /// How many calls and ops under way it told of.
    told_of: (usize, usize),
}

impl Transfers {
    /// An executor over `portal`, of which nothing may be under way: one with settings of your own,
    /// or over the portal of a tenant. `Host::executor_config` of the
    /// crate `rma-xdp` has what suits the host.
    ///
    /// # Errors
    /// The first setting that cannot work, with its value and the rule.
    ///
    /// # Panics
    /// If an op of the portal is under way.
    pub fn new(portal: Portal, config: ExecutorConfig) -> Result<Self, ExecutorConfigError> {
        let (rings, lease) = portal.into_parts();
        let mut inner = CommandExecutor::new(rings, config)?;
        let told = Arc::new(Told::new(&mut inner));
        lease.executor_made(ExecutorWatch::new(&told));
        Ok(Self {
            inner,
            lease,
            clock: TscClock::new(),
            idle: WAIT,
            calls: config.calls,
            over: VecDeque::new(),
            told,
            tells_at: Instant::ZERO,
            told_of: (0, 0),
        })
    }

    /// Sets how this executor waits from now on: see [`Portal::set_idle`], whose default is that of
    /// executors.
    pub const fn set_idle(&mut self, idle: IdlePolicy) {
        self.idle = idle;
    }

    /// The time now, by the clock that deadlines of calls are compared with.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Takes a call. Its first ops are issued in the next [`Transfers::poll`].
    ///
    /// Until the call is over, the local bytes of a read may change at any moment, and those of a
    /// write must not.
    ///
    /// # Errors
    /// If the call cannot be right, or there is no room for it. Then nothing was issued.
    pub fn submit(&mut self, call: &Call<'_>) -> Result<CallId, CallError> {
        self.begin(|inner, now| inner.submit(now, call))
    }

    /// [`Transfers::fence`] and then [`Transfers::submit`]; but if the call is refused, there is no
    /// fence either.
    ///
    /// # Errors
    /// As [`Transfers::submit`].
    pub fn submit_fenced(&mut self, call: &Call<'_>) -> Result<CallId, CallError> {
        self.begin(|inner, now| inner.submit_fenced(now, call))
    }

    fn begin(
        &mut self,
        submit: impl FnOnce(&mut CommandExecutor, Instant) -> Result<CallId, CallError>,
    ) -> Result<CallId, CallError> {
        if self.calls() >= self.calls.into() {
            return Err(CallError::TooManyCalls { calls: self.calls });
        }
        let id = submit(&mut self.inner, self.clock.now())?;
        if self.calls() == 1 {
            // Nobody knows when it will be polled.
            self.told.tell_calls(1);
        }
        Ok(id)
    }

    /// See [`CommandExecutor::check`].
    ///
    /// # Errors
    /// As [`CommandExecutor::check`].
    pub fn check(&mut self, call: &Call<'_>) -> Result<(), CallError> {
        self.inner.check(call)
    }

    /// See [`CommandExecutor::class_of`].
    #[must_use]
    pub fn class_of(&self, call: &Call<'_>) -> ClassOfService {
        self.inner.class_of(call)
    }

    /// See [`CommandExecutor::fence`].
    pub fn fence(&mut self) {
        self.inner.fence();
    }

    /// See [`CommandExecutor::cancel`].
    pub fn cancel(&mut self, call: CallId) {
        self.inner.cancel(call);
    }

    /// Takes the completions that there are, and issues what may be issued. Returns how much there
    /// was to do. To be called whenever there may be a completion, and not later than
    /// [`Transfers::poll_timeout`] says.
    pub fn poll(&mut self) -> usize {
        let now = self.clock.now();
        let work = self.inner.poll(now);
        if now >= self.tells_at {
            self.tell();
            self.tells_at = now + EVERY;
        }
        work
    }

    /// Tells whoever watches the host how things are. Also to be called before a thread sleeps,
    /// which may be for long.
    pub(crate) fn tell(&mut self) {
        let calls = self.calls();
        self.told.tell(&mut self.inner, calls);
        self.told_of = (calls, self.inner.ops_outstanding());
    }

    /// [`Transfers::tell`], if something has begun or ended since: the thread that would tell
    /// sleeps.
    pub(crate) fn tell_news(&mut self) {
        if self.told_of != (self.calls(), self.inner.ops_outstanding()) {
            self.tell();
        }
    }

    /// Notes that an outcome was taken. An application that has no call left may well not poll for
    /// a long time.
    fn taken(&mut self) {
        if self.calls() > 0 {
            return;
        }
        match self.told_of {
            // Of its windows it has not told.
            (0, _) => self.told.tell_calls(0),
            _ => self.tell(),
        }
    }

    /// The outcome of a call that is over.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        let outcome = self.over.pop_front().or_else(|| self.inner.poll_outcome())?;
        self.taken();
        Some(outcome)
    }

    /// When [`Transfers::poll`] has something to do even if no completion comes, by
    /// [`Transfers::now`].
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
    pub const fn protocol(&self) -> &CommandExecutor {
        &self.inner
    }

    /// An error if waiting for the engine is of no use.
    pub(crate) fn ended(&self) -> Result<(), WaitError> {
        self.lease.ended()
    }

    /// Returns the sleep of the thread that waits for completions; `None` if the engine is inline.
    pub(crate) const fn sleep(&self) -> Option<&Sleep> {
        self.lease.sleep()
    }

    /// Whether there is no completion, and the engine lives.
    pub(crate) fn may_sleep(&self) -> bool {
        self.lease.may_sleep(self.inner.portal())
    }
}

/// Whether `grant` is for ops of this type: what a call does follows from its grants.
pub(crate) fn check_op_type(piece: usize, grant: &Grant, wanted: OpType) -> Result<(), CallError> {
    let granted = grant.op_type;
    if granted == wanted {
        return Ok(());
    }
    let error = rma_core::error::SubmitError::GrantForAnotherOpType { granted, wanted };
    Err(CallError::Submit { piece, error })
}

/// An error if not all bytes of a call were transferred.
pub(crate) fn done(outcome: Outcome) -> Result<(), TransferError> {
    well(outcome).map(drop)
}

/// An error if a call is not OK.
pub(crate) fn well(outcome: Outcome) -> Result<Outcome, TransferError> {
    match outcome.status {
        CallStatus::Ok => Ok(outcome),
        CallStatus::Unknown => Err(TransferError::Unknown(outcome.into())),
        _ => Err(TransferError::Failed(outcome.into())),
    }
}
