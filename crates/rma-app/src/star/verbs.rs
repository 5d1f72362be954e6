//! [`StarVerbs`]: the library of StaR with a clock, and with an engine that may end.

use core::{ptr, time::Duration};
use std::{os::fd::BorrowedFd, sync::Arc};

use rma_core::time::{Clock, Instant};
use rma_shm::Process;
use rma_star::library::{
    ConnectError, CqId, CreateError, PostError, Qp, QpConfig, QpInfo, QpState, RecvWr, SendWr,
    SwitchError, Verbs, VerbsMemory, Wc,
};

use super::memory::ProtectionDomain;
use crate::{
    clock::TscClock,
    error::WaitError,
    home::{Home, PortalTag},
    idle::IdlePolicy,
    life::Life,
    portal::WAIT,
    sleep::Sleep,
    wait::{At, Awaited, Look, Place, wait},
};

//= star#IV-C-verbs
/// The parts that a [`StarVerbs`] is made of.
#[derive(Debug)]
pub struct StarParts {
    /// The library, over the application's end of the portal. The engine has the other.
    pub verbs: Verbs,
    /// The tag of the portal.
    pub tag: PortalTag,
    /// The maker of the portal.
    pub home: Arc<dyn Home>,
    /// Whether the engine can still report anything.
    pub life: Life,
    /// The sleep of the thread that waits, if the engine's end of the portal has the
    /// [`Sleep::bell`] of it. `None` if the engine is inline.
    pub sleep: Option<Sleep>,
}

/// Tells the maker when the portal is dropped.
#[derive(Debug)]
struct StarLease {
    tag: PortalTag,
    home: Arc<dyn Home>,
    process: Process,
}

impl Drop for StarLease {
    fn drop(&mut self) {
        if self.process.is_this() {
            self.home.tag_returned(self.tag);
        }
    }
}

/// Queue pairs and completion queues of StaR over one portal: what verbs call a context. Used by
/// one thread at a time; may be sent to another.
///
/// When it is dropped, all its connections end, and so do its protection domains with what they
/// have. Its share of the host's tables is free again when nothing of its connections is on its way
/// any longer.
#[derive(Debug)]
pub struct StarVerbs {
    verbs: Verbs,
    /// After the library: nobody has the portal's number while that is there.
    lease: StarLease,
    life: Life,
    sleep: Option<Sleep>,
    /// Futures share it, and one of their threads at a time has the seat: that alone sleeps without
    /// having this.
    has_seat: bool,
    /// A thread that had this has slept.
    has_slept: bool,
    idle: IdlePolicy,
    clock: TscClock,
}

impl Drop for StarVerbs {
    /// Its host takes the portal back when it is asked for something next; peers hear of the end
    /// before that.
    fn drop(&mut self) {
        if self.life.check_process().is_ok() {
            self.verbs.close_all(self.clock.now());
        }
    }
}

impl StarVerbs {
    /// Puts it together, for the maker of the portal. Applications get theirs from a host.
    #[must_use]
    pub fn new(parts: StarParts) -> Self {
        let StarParts { verbs, tag, home, life, sleep } = parts;
        let lease = StarLease { tag, home, process: Process::this() };
        let clock = TscClock::new();
        let (has_seat, has_slept, idle) = (false, false, WAIT);
        Self { verbs, lease, life, sleep, has_seat, has_slept, idle, clock }
    }

    /// Returns the tag of its portal.
    #[must_use]
    pub const fn tag(&self) -> PortalTag {
        self.lease.tag
    }

    /// A completion queue for `capacity` completions, at least one: `ibv_create_cq`. It is there as
    /// long as this is.
    ///
    /// # Panics
    /// If there are 65,536 already.
    #[must_use]
    pub fn create_cq(&mut self, capacity: u32) -> CqId {
        self.verbs.create_cq(capacity)
    }

    /// A queue pair of a protection domain, whose memory it uses: `ibv_create_qp`.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_qp(
        &mut self,
        pd: &ProtectionDomain,
        send_cq: CqId,
        recv_cq: CqId,
        config: QpConfig,
    ) -> Result<Qp, CreateError> {
        self.life.check_process()?;
        self.verbs.create_qp(pd.id(), send_cq, recv_cq, config)
    }

    /// Returns the state of a queue pair, which says what it can do: `ibv_query_qp`. `None` once it
    /// is closed.
    #[must_use]
    pub fn state(&self, qp: Qp) -> Option<QpState> {
        self.verbs.state(qp)
    }

    /// Whether this host is the stateful side of a connection. `None` if that is not decided.
    #[must_use]
    pub fn is_stateful(&self, qp: Qp) -> Option<bool> {
        self.verbs.is_stateful(qp)
    }

    /// Whether both sides of a connection are stateful ([`Role::Rc`](rma_star::library::Role::Rc)).
    /// `None` if that is not decided.
    #[must_use]
    pub fn is_rc(&self, qp: Qp) -> Option<bool> {
        self.verbs.is_rc(qp)
    }

    /// Describes a queue pair: `ibv_query_qp`. `None` once it is closed.
    #[must_use]
    pub fn query_qp(&self, qp: Qp) -> Option<QpInfo> {
        self.verbs.query_qp(qp)
    }

    /// The two sides of a connection are to change roles, while it is in use: see
    /// [`Verbs::switch_role`]. [`StarVerbs::query_qp`] tells when they have.
    ///
    /// # Errors
    /// [`SwitchError`]. Nothing has happened then.
    pub fn switch_role(&mut self, qp: Qp) -> Result<(), SwitchError> {
        self.life.check_process()?;
        self.verbs.switch_role(self.clock.now(), qp)
    }

    /// The number of a queue pair at its host, as it is in completions: `qp_num`.
    #[must_use]
    pub fn qpn(&self, qp: Qp) -> Option<u32> {
        self.verbs.qpn(qp)
    }

    /// Posts a SEND, WRITE or READ: `ibv_post_send`. Its memory is the work request's until its
    /// completion comes.
    ///
    /// # Errors
    /// [`PostError`]. Nothing has happened then.
    pub fn post_send(&mut self, qp: Qp, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.life.check_process()?;
        self.verbs.post_send(self.clock.now(), qp, wr)
    }

    /// Posts a RECV: `ibv_post_recv`. The message may be shorter than its memory, and not longer.
    ///
    /// # Errors
    /// [`PostError`]. Nothing has happened then.
    pub fn post_recv(&mut self, qp: Qp, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.life.check_process()?;
        self.verbs.post_recv(self.clock.now(), qp, wr)
    }

    /// Takes what the engine has reported, and does what is due by time. Returns how many reports
    /// there were. All that waits does this.
    pub fn poll(&mut self) -> usize {
        self.verbs.poll(self.clock.now())
    }

    /// Moves completions into `wcs`, first those that came first: `ibv_poll_cq`. Returns how many;
    /// none also if there is no such queue. Takes what the engine has reported before.
    pub fn poll_cq(&mut self, cq: CqId, wcs: &mut [Wc]) -> usize {
        self.poll();
        self.verbs.poll_cq(cq, wcs)
    }

    /// Sets how [`StarVerbs::wait_cq`] and set-ups wait from now on. Default: they yield for 120
    /// µs, then sleep until the engine wakes them.
    pub const fn set_idle(&mut self, idle: IdlePolicy) {
        self.idle = idle;
    }

    /// Waits until a completion queue has completions, and moves them into `wcs`. Returns how many.
    /// Every work request completes, also when its peer is gone (S5); only a RECV may wait as long
    /// as its peer is there and sends nothing.
    ///
    /// # Errors
    /// If none can come: nothing that completes into the queue is outstanding, the engine is gone,
    /// or it is inline ([`StarVerbs::completions`] is for those).
    pub fn wait_cq(&mut self, cq: CqId, wcs: &mut [Wc]) -> Result<usize, WaitError> {
        let count = wait(self, None, |verbs| verbs.look_for(cq, wcs))?;
        Ok(count.unwrap_or(0))
    }

    /// The same for no longer than `timeout`: 0 if there is no completion by then.
    ///
    /// # Errors
    /// As [`StarVerbs::wait_cq`].
    pub fn wait_cq_timeout(
        &mut self,
        cq: CqId,
        wcs: &mut [Wc],
        timeout: Duration,
    ) -> Result<usize, WaitError> {
        let count = wait(self, Some(timeout), |verbs| verbs.look_for(cq, wcs))?;
        Ok(count.unwrap_or(0))
    }

    /// Returns the completions of [`StarVerbs::wait_cq`], to be waited for by whoever turns an
    /// inline engine (`InlineHost::wait` of the crate `rma-xdp`).
    pub fn completions(
        &mut self,
        cq: CqId,
        wcs: &mut [Wc],
    ) -> impl Awaited<Found = usize, Error = WaitError> {
        At { place: self, look: move |verbs: &mut Self| verbs.look_for(cq, wcs) }
    }

    fn look_for(&mut self, cq: CqId, wcs: &mut [Wc]) -> Result<Look<usize>, WaitError> {
        if wcs.is_empty() {
            return Ok(Look::Found(0));
        }
        let work = self.poll();
        if self.verbs.unpolled(cq) == 0 {
            return Err(WaitError::NothingOutstanding);
        }
        let count = self.verbs.poll_cq(cq, wcs);
        Ok(Look::of((count > 0).then_some(count), work))
    }

    /// This host connects: [`StarVerbs::poll_message`] has the first message of the set-up then.
    /// [`StarVerbs::connect_over`] does all of it.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, qp: Qp) -> Result<(), ConnectError> {
        self.life.check_process()?;
        self.verbs.connect(self.clock.now(), qp)
    }

    /// Takes a message of the peer's library, that came over a channel that keeps secrets and says
    /// who the peer is.
    ///
    /// # Errors
    /// [`ConnectError`]. Nothing has changed then.
    pub fn handle_message(&mut self, qp: Qp, octets: &[u8]) -> Result<(), ConnectError> {
        self.life.check_process()?;
        self.verbs.handle_message(self.clock.now(), qp, octets)
    }

    /// The next message to the peer's library, for a channel that keeps secrets: one of them has
    /// the connection's key. `None` if there is none now. Takes what the engine has reported
    /// before.
    #[must_use]
    pub fn poll_message(&mut self, qp: Qp) -> Option<Vec<u8>> {
        let now = self.clock.now();
        self.verbs.poll(now);
        self.verbs.poll_message(now, qp)
    }

    /// Ends a queue pair: `ibv_destroy_qp`. What is posted is flushed: its completions still come.
    pub fn close(&mut self, qp: Qp) {
        self.verbs.close(self.clock.now(), qp);
    }

    /// How many connections the host's other portals are the stateful side of, for the negotiation
    /// of roles. None, unless this is told.
    pub const fn note_stateful_elsewhere(&mut self, connections: u32) {
        self.verbs.note_stateful_elsewhere(connections);
    }

    /// Returns the memory that the library takes, in bytes (S4).
    #[must_use]
    pub fn memory(&self) -> VerbsMemory {
        self.verbs.memory()
    }

    /// A file descriptor that becomes readable when the engine has reported something, for
    /// applications with an event loop of their own: a completion channel. `None` if the engine is
    /// inline, or futures share this ([`AsyncVerbs`](super::AsyncVerbs)), which it wakes.
    ///
    /// It is readable only for those who have asked for it:
    ///
    /// 1. Poll completions until there are none.
    /// 2. [`StarVerbs::arm`]. If it returns `false`, go to 4.
    /// 3. Wait until the descriptor is readable, for no longer than [`StarVerbs::poll_timeout`].
    /// 4. [`StarVerbs::disarm`], and begin anew.
    ///
    /// It also becomes readable when the engine ends; waiting says so. Do not read from it.
    #[must_use]
    pub fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sleep.as_ref().filter(|_| !self.has_seat).map(Sleep::fd)
    }

    /// For how long nothing is due, unless the engine reports something. `None`: for ever.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.due().map(|at| at.since(self.now()))
    }

    /// Says that this thread is going to sleep on [`StarVerbs::completion_fd`], and looks once
    /// more: `false` if it must not, as there was something already, or never will be, as the
    /// engine has ended; or if there is no such descriptor.
    #[must_use = "whoever sleeps beside a completion that is there already sleeps for ever"]
    pub fn arm(&mut self) -> bool {
        !self.has_seat && self.prepare_sleep()
    }

    /// Says that this thread no longer sleeps, after [`StarVerbs::arm`].
    pub fn disarm(&mut self) {
        if !self.has_seat {
            self.end_sleep();
        }
    }

    fn prepare_sleep(&self) -> bool {
        let Some(sleep) = &self.sleep else { return false };
        sleep.prepare();
        self.may_sleep()
    }

    fn end_sleep(&self) {
        if let Some(sleep) = &self.sleep {
            sleep.end();
        }
    }

    /// From now on, futures share it.
    pub(crate) const fn share(&mut self) {
        self.has_seat = true;
    }

    /// Whether a thread that had this has slept since this was last asked.
    pub(crate) const fn take_slept(&mut self) -> bool {
        core::mem::replace(&mut self.has_slept, false)
    }

    /// Returns the sleep of the thread that waits; `None` if the engine is inline.
    pub(crate) const fn sleep(&self) -> Option<&Sleep> {
        self.sleep.as_ref()
    }

    /// Returns its idle policy.
    pub(crate) const fn idle(&self) -> IdlePolicy {
        self.idle
    }

    /// The time that [`StarVerbs::due`] is of.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// When something is due even if the engine reports nothing.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.verbs.poll_timeout()
    }

    /// How long a set-up may take.
    pub(super) const fn set_up_timeout(&self) -> Duration {
        self.verbs.set_up_timeout()
    }

    /// Whether [`StarVerbs::poll_message`] has a message.
    pub(super) fn has_message(&self, qp: Qp) -> bool {
        self.verbs.has_message(qp)
    }

    /// How many queue pairs have failed or been closed so far.
    pub(super) const fn ends(&self) -> u64 {
        self.verbs.ends()
    }

    /// Whether there is no report, and the engine lives.
    pub(crate) fn may_sleep(&self) -> bool {
        !self.verbs.has_report() && self.life.ended().is_ok()
    }

    /// An error if waiting for the engine is of no use.
    pub(crate) fn ended(&self) -> Result<(), WaitError> {
        self.life.ended()
    }
}

impl Place for StarVerbs {
    fn is_of(&self, home: &dyn Home) -> bool {
        ptr::addr_eq(Arc::as_ptr(&self.lease.home), home)
    }

    fn hopeless(&self) -> Result<(), WaitError> {
        self.life.ended()
    }

    fn looked_at(&self) -> Instant {
        self.clock.last()
    }

    fn next_at(&self) -> Option<Instant> {
        self.due()
    }

    fn idle(&self) -> IdlePolicy {
        self.idle
    }

    fn sleep(&mut self) -> Option<Sleep> {
        self.has_slept = true;
        self.sleep.clone()
    }
}
