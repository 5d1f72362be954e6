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

use core::time::Duration;
use std::{collections::VecDeque, os::fd::BorrowedFd, sync::Arc};

use rma_core::{
    executor::{
        Call, CallError, CallId, CallStatus, CommandExecutor, ExecutorConfig, ExecutorConfigError,
        Outcome, Piece,
    },
    grant::Grant,
    op::{ClassOfService, OpType},
    region::RegisteredRegion,
    time::{Clock, Instant},
};

use crate::{
    clock::TscClock,
    error::{TransferError, WaitError},
    gauges::{EVERY, ExecutorWatch, Told},
    home::Home,
    idle::{Idle, IdlePolicy, IdleTracker},
    lease::PortalLease,
    options::TransferOptions,
    portal::{Portal, WAIT},
    sleep::Sleep,
};

/// Transfers of any size over one portal. See the [module](rma_core::executor) that does it for who
/// goes next.
///
/// To poll: [`Executor::submit`] a call, [`Executor::poll`] often, and take what is over from
/// [`Executor::poll_outcome`]. To wait: [`Executor::read`] and [`Executor::write`] for one transfer
/// at a time (with [`TransferOptions`]: [`Executor::read_with`], [`Executor::write_with`]),
/// [`Executor::run`] for calls of several pieces, [`Executor::wait_any`] for several calls at once.
/// To wait for other things as well, in an event loop of your own: [`Executor::completion_fd`].
///
/// ```
#[doc = include_str!("../examples/transfer.rs")]
/// ```
#[derive(Debug)]
pub struct Executor {
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

/// Turns an inline engine.
pub(crate) type Turn<'a> = &'a mut dyn FnMut() -> usize;

impl Executor {
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

    /// How this executor waits from now on: see [`Portal::set_idle`], whose default is that of
    /// executors.
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
    /// Until the call is over, the local bytes of a read may change at any moment, and those of a
    /// write must not.
    ///
    /// # Errors
    /// If the call cannot be right, or there is no room for it. Then nothing was issued.
    pub fn submit(&mut self, call: &Call<'_>) -> Result<CallId, CallError> {
        self.begin(call, CommandExecutor::submit)
    }

    /// [`Executor::fence`] and then [`Executor::submit`]; but if the call is refused, there is no
    /// fence either.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    pub fn submit_fenced(&mut self, call: &Call<'_>) -> Result<CallId, CallError> {
        self.begin(call, CommandExecutor::submit_fenced)
    }

    fn begin(
        &mut self,
        call: &Call<'_>,
        submit: fn(&mut CommandExecutor, Instant, &Call<'_>) -> Result<CallId, CallError>,
    ) -> Result<CallId, CallError> {
        if self.calls() >= self.calls.into() {
            return Err(CallError::TooManyCalls { calls: self.calls });
        }
        let id = submit(&mut self.inner, self.clock.now(), call)?;
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
    /// [`Executor::poll_timeout`] says.
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

    /// [`Executor::tell`], if something has begun or ended since: the thread that would tell
    /// sleeps.
    pub(crate) fn tell_news(&mut self) {
        if self.told_of != (self.calls(), self.inner.ops_outstanding()) {
            self.tell();
        }
    }

    /// An outcome was taken. Who has no call may not be polled for long.
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

    /// When [`Executor::poll`] has something to do even if no completion comes, by
    /// [`Executor::now`].
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

    /// Reads `len` bytes at `remote_offset` of the granted region into `sink` at `offset`, and
    /// waits until they are there.
    ///
    /// # Errors
    /// [`TransferError::Refused`] if the transfer cannot be right, [`TransferError::Failed`] if not
    /// all bytes came, with what is missing, and [`TransferError::Unfinished`] if the engine is
    /// gone or inline.
    pub fn read(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        sink: &RegisteredRegion,
        offset: u64,
        len: u64,
    ) -> Result<(), TransferError> {
        self.read_with(grant, remote_offset, sink, offset, len, TransferOptions::new())
    }

    /// [`Executor::read`] with a class of service, a retry policy or a timeout of its own.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use rma_xdp::{Host, HostConfig, OpType, Permissions, RetryPolicy, TransferError, TransferOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = Host::open(HostConfig::udp([127, 0, 0, 18]))?;
    /// # let host = Host::open(HostConfig::udp([127, 0, 0, 19]))?;
    /// # let region = server.register(4096, Permissions::READ)?;
    /// # let grant = server.grant(&region, [127, 0, 0, 19].into(), host.pid(), OpType::Read)?;
    /// # let local = host.register(4096, Permissions::NONE)?;
    /// # let mut executor = host.executor(16)?;
    /// let hasty = TransferOptions::new().retry(RetryPolicy::NONE).timeout(Duration::from_secs(1));
    /// match executor.read_with(&grant, 0, &local, 0, 4096, hasty) {
    ///     Ok(()) => {}
    ///     Err(TransferError::Failed(outcome)) => println!("missing: {:?}", outcome.missing),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Executor::read`].
    pub fn read_with(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        sink: &RegisteredRegion,
        offset: u64,
        len: u64,
        options: TransferOptions,
    ) -> Result<(), TransferError> {
        let piece = Piece { grant, remote_offset, local: sink, local_offset: offset, len };
        self.transfer(OpType::Read, piece, options)
    }

    /// Writes `len` bytes of `source` at `offset` to `remote_offset` of the granted region, and
    /// waits until they are there. They must not change meanwhile.
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
        self.write_with(grant, remote_offset, source, offset, len, TransferOptions::new())
    }

    /// [`Executor::write`] with a class of service, a retry policy or a timeout of its own.
    ///
    /// # Errors
    /// As [`Executor::read`].
    pub fn write_with(
        &mut self,
        grant: &Grant,
        remote_offset: u64,
        source: &RegisteredRegion,
        offset: u64,
        len: u64,
        options: TransferOptions,
    ) -> Result<(), TransferError> {
        let piece = Piece { grant, remote_offset, local: source, local_offset: offset, len };
        self.transfer(OpType::Write, piece, options)
    }

    fn transfer(
        &mut self,
        wanted: OpType,
        piece: Piece<'_>,
        options: TransferOptions,
    ) -> Result<(), TransferError> {
        check_op_type(0, piece.grant, wanted)?;
        let TransferOptions { class, retry, timeout } = options;
        let deadline = timeout.map(|timeout| self.now() + timeout);
        let pieces = [piece];
        let mut call = Call::of(&pieces);
        (call.class, call.retry, call.deadline) = (class, retry, deadline);
        done(self.run(&call)?)
    }

    /// Submits a call and waits until it is over. Other calls go on meanwhile, and their outcomes
    /// are kept.
    ///
    /// # Errors
    /// [`TransferError::Refused`] and [`TransferError::Unfinished`]. How the transfer went is in
    /// the outcome.
    pub fn run(&mut self, call: &Call<'_>) -> Result<Outcome, TransferError> {
        self.run_with(call, None)
    }

    /// Waits until any call is over: spins, then sleeps, as [`Executor::set_idle`] says.
    ///
    /// # Errors
    /// If none can be: there is no call, the engine is gone, or it is inline and so does nothing
    /// while this thread waits (`InlineHost::wait_any` of the crate `rma-xdp` is for those).
    pub fn wait_any(&mut self) -> Result<Outcome, WaitError> {
        self.wait_with(None, None)
    }

    /// Waits until any call is over, for no longer than `timeout`: `None` if there is none by then.
    /// The calls go on.
    ///
    /// # Errors
    /// As [`Executor::wait_any`].
    pub fn wait_any_timeout(&mut self, timeout: Duration) -> Result<Option<Outcome>, WaitError> {
        let until = self.now() + timeout;
        self.wait_until(None, None, Some(until))
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
            self.lease.ended()?;
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
        engine: Option<Turn<'_>>,
    ) -> Result<Outcome, WaitError> {
        let outcome = self.wait_until(call, engine, None)?;
        Ok(outcome.expect("only a time that comes ends a wait without one"))
    }

    fn wait_until(
        &mut self,
        call: Option<CallId>,
        mut engine: Option<Turn<'_>>,
        until: Option<Instant>,
    ) -> Result<Option<Outcome>, WaitError> {
        let mut idle = IdleTracker::new(self.idle);
        loop {
            // Looked at first: completions given before the engine ended are still there.
            let ended = if engine.is_some() { Ok(()) } else { self.lease.ended() };
            let work = self.poll();
            if let Some(outcome) = self.take(call) {
                return Ok(Some(outcome));
            }
            if self.inner.calls() == 0 {
                return Err(WaitError::NothingOutstanding);
            }
            ended?;
            if until.is_some_and(|until| self.now() >= until) {
                return Ok(None);
            }
            match &mut engine {
                Some(turn) => {
                    turn();
                }
                None if work > 0 => idle.busy(),
                None => self.rest(&mut idle, until),
            }
        }
    }

    /// There was nothing to do: waits a little, or for the next event, or `until` that time.
    fn rest(&mut self, idle: &mut IdleTracker, until: Option<Instant>) {
        let now = self.now();
        match idle.idle(now) {
            Idle::Spin => core::hint::spin_loop(),
            Idle::Yield => std::thread::yield_now(),
            Idle::Sleep => {
                self.tell();
                let until = [self.poll_timeout(), until].into_iter().flatten().min();
                self.lease.sleep_for(self.inner.portal(), until.map(|at| at.since(now)));
            }
        }
    }

    /// A file descriptor that becomes readable when there is a completion for [`Executor::poll`],
    /// for applications with an event loop of their own. `None` if the engine is inline. It is
    /// [`Portal::completion_fd`], with two differences: time matters as well, and what is over is
    /// in [`Executor::poll_outcome`].
    ///
    /// 1. [`Executor::poll`], and take outcomes, until there is nothing to do.
    ///    [`Executor::wait_any_timeout`] with no time does both, and says so if nothing will come
    ///    any more. Without a call there is nothing to be armed for: submit one, or wait for
    ///    whatever else, without the descriptor.
    /// 2. [`Executor::arm`]. If it returns `false`, go to 4.
    /// 3. Wait until the descriptor is readable (level-triggered is fine), beside whatever else,
    ///    but not longer than until [`Executor::poll_timeout`]: ops that are paced, and deadlines
    ///    of calls, come with no completion. Nothing may be submitted meanwhile.
    /// 4. [`Executor::disarm`], and begin anew.
    ///
    /// It also becomes readable when the engine ends. Do not read from it.
    ///
    /// ```no_run
    /// # use core::time::Duration;
    /// # fn wait_for_fd_or(_: std::os::fd::BorrowedFd<'_>, _: Option<Duration>) {}
    /// # fn event_loop(executor: &mut rma_xdp::Executor) -> Result<(), rma_xdp::WaitError> {
    /// while executor.calls() > 0 {
    ///     if let Some(outcome) = executor.wait_any_timeout(Duration::ZERO)? {
    ///         println!("{}", outcome.status);
    ///         continue;
    ///     }
    ///     if executor.arm() {
    ///         let fd = executor.completion_fd().expect("its engine has a thread");
    ///         let timeout = executor.poll_timeout().map(|at| at.since(executor.now()));
    ///         wait_for_fd_or(fd, timeout); // epoll_wait, poll, …
    ///     }
    ///     executor.disarm();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        self.lease.fd()
    }

    /// Says that this thread is going to sleep on [`Executor::completion_fd`], and looks once more:
    /// `false` if it must not, as there is something to do already, or nothing will come: there is
    /// no call, or the engine has ended or is inline.
    #[must_use = "whoever sleeps beside a completion that is there already sleeps for ever"]
    pub fn arm(&mut self) -> bool {
        while let Some(outcome) = self.inner.poll_outcome() {
            self.over.push_back(outcome);
        }
        let Some(sleep) = self.lease.sleep() else { return false };
        sleep.prepare();
        let is_due = self.poll_timeout().is_some_and(|at| at <= self.now());
        let sleeps = self.over.is_empty() && self.inner.calls() > 0 && !is_due && self.may_sleep();
        if sleeps {
            self.tell();
        }
        sleeps
    }

    /// Says that this thread sleeps no more, after [`Executor::arm`]. The descriptor is not
    /// readable any longer.
    pub fn disarm(&mut self) {
        if let Some(sleep) = self.lease.sleep() {
            sleep.end();
        }
    }

    /// The outcome of `call`, or of any, if it is over. Keeps those of others.
    fn take(&mut self, call: Option<CallId>) -> Option<Outcome> {
        let Some(call) = call else { return self.poll_outcome() };
        while let Some(outcome) = self.inner.poll_outcome() {
            self.over.push_back(outcome);
        }
        let place = self.over.iter().position(|outcome| outcome.call == call)?;
        let outcome = self.over.remove(place);
        self.taken();
        outcome
    }

    /// Whether its portal was made by whoever this is the home of.
    pub(crate) fn is_of(&self, home: &dyn Home) -> bool {
        self.lease.is_of(home)
    }

    /// An error if waiting for the engine is of no use.
    pub(crate) fn ended(&self) -> Result<(), WaitError> {
        self.lease.ended()
    }

    /// How the thread that waits for completions sleeps; `None` if the engine is inline.
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
    match outcome.status {
        CallStatus::Ok => Ok(()),
        _ => Err(TransferError::Failed(outcome)),
    }
}
