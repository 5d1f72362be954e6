//! Waiting for calls of [`Transfers`]: one, any of several, or in an event loop of one's own.
//!
//! A thread that waits polls; outcomes of other calls that it meets are kept for whoever asks for
//! them.

use core::time::Duration;
use std::os::fd::BorrowedFd;

use rma_core::{
    executor::{Call, CallError, CallId, OpCall, Outcome, Piece},
    grant::Grant,
    op::OpType,
    region::RegisteredRegion,
    time::Instant,
};

use super::{Transfers, check_op_type, done};
use crate::{
    error::{TransferError, WaitError},
    home::Home,
    idle::IdlePolicy,
    options::TransferOptions,
    sleep::Sleep,
    wait::{At, Awaited, Look, Place, wait},
};

impl Transfers {
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

    /// [`Transfers::read`] with a class of service, a retry policy or a timeout of its own.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use rma_xdp::{
    /// #     Host, HostConfig, OpType, Permissions, TransferError,
    /// #     transfer::{RetryPolicy, TransferOptions},
    /// # };
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = Host::open(HostConfig::udp([127, 0, 0, 18]))?;
    /// # let host = Host::open(HostConfig::udp([127, 0, 0, 19]))?;
    /// # let region = server.register(4096, Permissions::READ)?;
    /// # let grant = server.grant(&region, [127, 0, 0, 19].into(), host.pid(), OpType::Read)?;
    /// # let local = host.register(4096, Permissions::NONE)?;
    /// # let mut executor = host.transfers(16)?;
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
    /// As [`Transfers::read`].
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
    /// As [`Transfers::read`].
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

    /// [`Transfers::write`] with a class of service, a retry policy or a timeout of its own.
    ///
    /// # Errors
    /// As [`Transfers::read`].
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
        self.submit_and_wait(|executor| executor.submit(call))
    }

    /// Submits a call of one recorded op and waits until it is over: [`Transfers::submit_op`].
    /// Other calls go on meanwhile, and their outcomes are kept.
    ///
    /// # Errors
    /// As [`Transfers::run`].
    pub fn run_op(&mut self, call: &OpCall<'_>) -> Result<Outcome, TransferError> {
        self.submit_and_wait(|executor| executor.submit_op(call))
    }

    /// Waits until any call is over: spins, then sleeps, as [`Transfers::set_idle`] says.
    ///
    /// # Errors
    /// If none can be: there is no call, the engine is gone, or it is inline and so does nothing
    /// while this thread waits (`InlineHost::wait` of the crate `rma-xdp` is for those).
    pub fn wait_any(&mut self) -> Result<Outcome, WaitError> {
        let outcome = wait(self, None, Awaited::look)?;
        Ok(outcome.expect("only a time that comes ends a wait without one"))
    }

    /// Waits until any call is over, for no longer than `timeout`: `None` if there is none by then.
    /// The calls go on.
    ///
    /// # Errors
    /// As [`Transfers::wait_any`].
    pub fn wait_any_timeout(&mut self, timeout: Duration) -> Result<Option<Outcome>, WaitError> {
        wait(self, Some(timeout), Awaited::look)
    }

    /// Waits until `call` is over. The outcomes of others that are over before are kept.
    ///
    /// # Errors
    /// As [`Transfers::wait_any`]; also if the outcome of the call was taken before.
    pub fn wait(&mut self, call: CallId) -> Result<Outcome, WaitError> {
        let outcome = wait(self, None, |executor| executor.look_for(Some(call)))?;
        Ok(outcome.expect("only a time that comes ends a wait without one"))
    }

    /// Returns the outcome of `call`, to be waited for by whoever turns an inline engine
    /// (`InlineHost::wait` of the crate `rma-xdp`). The outcomes of others that are over before are
    /// kept.
    pub fn outcome_of(&mut self, call: CallId) -> impl Awaited<Found = Outcome, Error = WaitError> {
        At { place: self, look: move |executor: &mut Self| executor.look_for(Some(call)) }
    }

    pub(super) fn submit_and_wait(
        &mut self,
        submit: impl FnOnce(&mut Self) -> Result<CallId, CallError>,
    ) -> Result<Outcome, TransferError> {
        // Before there is a call that nobody would end.
        self.lease.ended()?;
        let id = submit(self)?;
        let waited = self.wait(id);
        if waited.is_err() {
            self.cancel(id);
        }
        Ok(waited?)
    }

    /// Looks whether `call`, or any, is over.
    fn look_for(&mut self, call: Option<CallId>) -> Result<Look<Outcome>, WaitError> {
        let work = self.poll();
        let outcome = self.take(call);
        if outcome.is_none() && self.inner.calls() == 0 {
            return Err(WaitError::NothingOutstanding);
        }
        Ok(Look::of(outcome, work))
    }

    /// A file descriptor that becomes readable when there is a completion for [`Transfers::poll`],
    /// for applications with an event loop of their own. `None` if the engine is inline. It is
    /// [`Portal::completion_fd`](crate::Portal::completion_fd), with two differences: time matters
    /// as well, and what is over is in [`Transfers::poll_outcome`].
    ///
    /// 1. [`Transfers::poll`], and take outcomes, until there is nothing to do.
    ///    [`Transfers::wait_any_timeout`] with no time does both, and says so if nothing will come
    ///    any longer. Without a call there is nothing to be armed for: submit one, or wait for
    ///    whatever else, without the descriptor.
    /// 2. [`Transfers::arm`]. If it returns `false`, go to 4.
    /// 3. Wait until the descriptor is readable (level-triggered is fine), beside whatever else,
    ///    but not longer than until [`Transfers::poll_timeout`]: ops that are paced, and deadlines
    ///    of calls, come with no completion. Nothing may be submitted meanwhile.
    /// 4. [`Transfers::disarm`], and begin anew.
    ///
    /// It also becomes readable when the engine ends. Do not read from it.
    ///
    /// ```no_run
    /// # use core::time::Duration;
    /// # fn wait_for_fd_or(_: std::os::fd::BorrowedFd<'_>, _: Option<Duration>) {}
    /// # fn event_loop(executor: &mut rma_xdp::Transfers) -> Result<(), rma_xdp::WaitError> {
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

    /// Says that this thread is going to sleep on [`Transfers::completion_fd`], and looks once
    /// more: `false` if it must not, as there is something to do already, or nothing will come:
    /// there is no call, or the engine has ended or is inline.
    #[must_use = "whoever sleeps beside a completion that is there already sleeps for ever"]
    pub fn arm(&mut self) -> bool {
        self.arm_unless(|| false) && self.inner.calls() > 0
    }

    /// [`Transfers::arm`], though there may be no call. `has_news`: whether there is something else
    /// that the engine rings for.
    pub(super) fn arm_unless(&mut self, has_news: impl Fn() -> bool) -> bool {
        while let Some(outcome) = self.inner.poll_outcome() {
            self.over.push_back(outcome);
        }
        let Some(sleep) = self.lease.sleep() else { return false };
        sleep.prepare();
        let is_due = self.poll_timeout().is_some_and(|at| at <= self.now());
        let sleeps = self.over.is_empty() && !is_due && !has_news() && self.may_sleep();
        if sleeps {
            self.tell();
        }
        sleeps
    }

    /// Says that this thread no longer sleeps, after [`Transfers::arm`]. The descriptor is no
    /// longer readable.
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
}

/// The outcome of any of its calls.
impl Awaited for Transfers {
    type Found = Outcome;
    type Error = WaitError;

    fn is_of(&self, home: &dyn Home) -> bool {
        self.lease.is_of(home)
    }

    fn look(&mut self) -> Result<Look<Outcome>, WaitError> {
        self.look_for(None)
    }
}

impl Place for Transfers {
    fn is_of(&self, home: &dyn Home) -> bool {
        self.lease.is_of(home)
    }

    fn hopeless(&self) -> Result<(), WaitError> {
        self.lease.ended()
    }

    fn looked_at(&self) -> Instant {
        self.clock.last()
    }

    fn next_at(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn idle(&self) -> IdlePolicy {
        self.idle
    }

    fn sleep(&mut self) -> Option<Sleep> {
        self.tell();
        self.lease.sleep().cloned()
    }
}
