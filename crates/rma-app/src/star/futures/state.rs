//! The state that futures of one [`AsyncVerbs`](super::AsyncVerbs) share: the library, and the
//! buffers of work requests that are not over.
//!
//! Invariant: the buffer of a work request stays here until its completion has come, or the engine
//! has ended. What its future does meanwhile, and whether it still exists, changes nothing.

use core::{
    mem,
    task::{Context, Poll, Waker},
};
use std::sync::Arc;

use rma_core::time::Instant;
use rma_star::{
    library::{CqId, PostError, Qp, QpState, RecvWr, Remote, SendWr, Wc},
    verbs::{WcStatus, WqeOp},
};

use super::{error::WorkError, watches::Watches};
use crate::{
    buffer::{Bufs, RegionBuf},
    idle::IdlePolicy,
    polling::shared::{After, Polled, Seat},
    star::{memory::MemoryRegion, verbs::StarVerbs},
};

/// Completions taken at a time.
const BATCH: usize = 16;

/// A request of a future that waits to be posted.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) qp: Qp,
    pub(super) op: WqeOp,
    pub(super) remote: Remote,
    pub(super) immediate: Option<u32>,
    pub(super) is_inline: bool,
    /// Whether it waits for a place in its queues.
    pub(super) waits: bool,
    /// The memory that the buffers lie in.
    pub(super) mr: MemoryRegion,
}

/// A work request of a future.
#[derive(Debug)]
enum Task {
    Free,
    /// It is not over. Without a waker while its future is being polled.
    Waiting {
        qp: Qp,
        buf: RegionBuf,
        waker: Option<Waker>,
    },
    /// It is not over, and its future was dropped.
    Abandoned {
        qp: Qp,
        buf: RegionBuf,
    },
    /// Its future has not been told.
    Over(Result<Wc, WorkError>, RegionBuf),
}

/// A task, by its place: also what its work request is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskId(u32);

#[derive(Debug)]
pub(super) struct State {
    verbs: StarVerbs,
    cq: CqId,
    /// As many as there have been at once.
    tasks: Vec<Task>,
    free: Vec<u32>,
    /// How many are not over.
    outstanding: usize,
    watches: Watches,
    /// Futures that wait for a place in a queue. All are woken when a work request is over.
    waiting: Vec<Waker>,
    seat: Seat,
}

impl State {
    pub(super) fn new(mut verbs: StarVerbs, cq: CqId) -> Self {
        verbs.share();
        let (tasks, free, watches) = (Vec::new(), Vec::new(), Watches::default());
        let (waiting, seat) = (Vec::new(), Seat::default());
        Self { verbs, cq, tasks, free, outstanding: 0, watches, waiting, seat }
    }

    /// For the application to do something with the library.
    pub(super) const fn lend<'a>(&'a mut self, after: &'a mut After) -> Lent<'a> {
        Lent { state: self, after }
    }

    /// A set-up of a queue pair watches that, until `until`; or somebody else does, for its end.
    pub(super) fn watch(&mut self, qp: Qp, until: Option<Instant>) -> u64 {
        self.watches.add(qp, until)
    }

    /// Whether a queue pair is closed or has failed, or nobody would tell.
    pub(super) fn is_over(&self, qp: Qp) -> bool {
        self.seat.gone.is_some() || matches!(self.verbs.state(qp), None | Some(QpState::Error))
    }

    /// See [`Watches::renew`].
    pub(super) fn renew_watch(
        &mut self,
        number: u64,
        context: &Context<'_>,
        after: &mut After,
    ) -> bool {
        self.watches.renew(&self.verbs, number, context, after)
    }

    pub(super) fn end_watch(&mut self, number: u64, after: &mut After) {
        self.watches.end(number, after);
    }

    /// Posts what a future wants. The buffer goes back if that is refused.
    pub(super) fn post(
        &mut self,
        order: &Order,
        buf: RegionBuf,
    ) -> Result<TaskId, (WorkError, RegionBuf)> {
        if let Some(gone) = self.seat.gone {
            return Err((gone.into(), buf));
        }
        let place = self.free.last().copied().unwrap_or(self.tasks.len() as u32);
        if let Err(error) = self.try_post(order, &buf, place.into()) {
            return Err((error, buf));
        }
        let task = Task::Waiting { qp: order.qp, buf, waker: None };
        match self.free.pop() {
            Some(free) => self.tasks[free as usize] = task,
            None => self.tasks.push(task),
        }
        self.outstanding += 1;
        Ok(TaskId(place))
    }

    /// Whether what was refused so may be posted when a work request is over: then the future with
    /// this `context` is woken.
    pub(super) fn wait_for_place(&mut self, error: WorkError, context: &Context<'_>) -> bool {
        let is_full = matches!(
            error,
            WorkError::Refused(
                PostError::QueueFull { .. }
                    | PostError::CqFull { .. }
                    | PostError::SlotsFull { .. }
            )
        );
        let waits = is_full && self.outstanding > 0;
        if waits {
            self.waiting.retain(|waker| !waker.will_wake(context.waker()));
            self.waiting.push(context.waker().clone());
        }
        waits
    }

    fn try_post(&mut self, order: &Order, buf: &RegionBuf, wr_id: u64) -> Result<(), WorkError> {
        let Order { qp, op, remote, immediate, is_inline, ref mr, .. } = *order;
        let source = buf.source();
        let offset = source.offset.checked_sub(mr.start());
        let is_same = Arc::ptr_eq(source.region.memory(), mr.memory());
        let offset = offset.filter(|_| is_same).ok_or(WorkError::OtherMemory)?;
        let sge = mr.slice(offset, source.len);
        if op.is_recv() {
            return Ok(self.verbs.post_recv(qp, &RecvWr { wr_id, sge })?);
        }
        let wr = match op {
            WqeOp::Write => SendWr::write(wr_id, sge, remote),
            WqeOp::Read => SendWr::read(wr_id, sge, remote),
            WqeOp::Send | WqeOp::Recv => SendWr::send(wr_id, sge),
        };
        let wr = immediate.map_or(wr, |immediate| wr.with_imm(immediate));
        Ok(self.verbs.post_send(qp, &if is_inline { wr.inline() } else { wr })?)
    }

    /// The end of a task; or its future must be woken then. Polls meanwhile.
    pub(super) fn poll_task(
        &mut self,
        TaskId(id): TaskId,
        context: &Context<'_>,
        after: &mut After,
    ) -> Poll<(Result<Wc, WorkError>, RegionBuf)> {
        // A future that is being polled need not be woken.
        if let Task::Waiting { waker, .. } = &mut self.tasks[id as usize] {
            after.unused.extend(waker.take());
        }
        self.turn(after);
        let task = &mut self.tasks[id as usize];
        if let Task::Waiting { waker, .. } = task {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match mem::replace(task, Task::Free) {
            Task::Over(result, buf) => {
                self.free.push(id);
                Poll::Ready((result, buf))
            }
            other => unreachable!("its future exists: {other:?}"),
        }
    }

    /// The future of a task is gone.
    pub(super) fn abandon(&mut self, TaskId(id): TaskId, after: &mut After) {
        let task = &mut self.tasks[id as usize];
        match mem::replace(task, Task::Free) {
            Task::Waiting { qp, buf, waker } => {
                *task = Task::Abandoned { qp, buf };
                after.unused.extend(waker);
            }
            Task::Over(_, buf) => {
                self.free.push(id);
                after.buffers.push(Bufs::One(buf));
            }
            other => unreachable!("its future existed: {other:?}"),
        }
    }

    /// The work request of a task is over, or will never be. What the application has posted itself
    /// has none.
    fn end(&mut self, id: u32, result: Result<Wc, WorkError>, after: &mut After) {
        let Some(task) = self.tasks.get_mut(id as usize) else { return };
        match mem::replace(task, Task::Free) {
            Task::Waiting { mut buf, waker, .. } => {
                if let Ok(Wc { opcode: WqeOp::Recv, byte_len, is_of_write: false, .. }) = result {
                    buf.set_len((byte_len as usize).min(buf.len()));
                }
                *task = Task::Over(result, buf);
                after.wakers.extend(waker);
            }
            Task::Abandoned { buf, .. } => {
                self.free.push(id);
                after.buffers.push(Bufs::One(buf));
            }
            other => {
                *task = other;
                return;
            }
        }
        self.outstanding -= 1;
        after.wakers.append(&mut self.waiting);
    }
}

/// The library in the application's hands. When it is dropped, also by a panic, what was reported
/// meanwhile is taken, for which a thread may be asleep.
pub(super) struct Lent<'a> {
    state: &'a mut State,
    after: &'a mut After,
}

impl Lent<'_> {
    pub(super) const fn verbs(&mut self) -> &mut StarVerbs {
        &mut self.state.verbs
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.state.seat.is_robbed |= self.state.verbs.take_slept();
        self.state.turn(self.after);
    }
}

impl Polled for State {
    fn turn(&mut self, after: &mut After) -> usize {
        // Looked at first: what was reported before the engine ended is still there.
        let ended = self.verbs.ended();
        let mut work = self.verbs.poll();
        let mut wcs = [Wc::EMPTY; BATCH];
        loop {
            let count = self.verbs.poll_cq(self.cq, &mut wcs);
            for wc in &wcs[..count] {
                let result = match wc.status {
                    WcStatus::Success => Ok(*wc),
                    status => Err(WorkError::Failed(status)),
                };
                if let Ok(id) = u32::try_from(wc.wr_id) {
                    self.end(id, result, after);
                }
            }
            work += count;
            if count < BATCH {
                break;
            }
        }
        if let (Err(gone), None) = (ended, self.seat.gone)
            && gone.is_for_good()
        {
            // Nobody writes to the buffers any longer.
            self.seat.gone = Some(gone);
            for id in 0..self.tasks.len() as u32 {
                self.end(id, Err(gone.into()), after);
            }
        }
        self.watches.wake(&self.verbs, self.seat.gone.is_some(), after);
        self.stop_if_done(after);
        work
    }

    /// A RECV would be waited for as long as the peer lives: so that is flushed as well.
    fn close(&mut self, after: &mut After) {
        self.seat.closing = true;
        for task in &self.tasks {
            if let Task::Waiting { qp, .. } | Task::Abandoned { qp, .. } = task {
                self.verbs.close(*qp);
            }
        }
        self.turn(after);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.verbs.due(), self.watches.poll_timeout()].into_iter().flatten().min()
    }

    fn may_sleep(&self) -> bool {
        self.verbs.may_sleep()
    }

    fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    fn now(&self) -> Instant {
        self.verbs.now()
    }

    fn idle(&self) -> IdlePolicy {
        self.verbs.idle()
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn seat_mut(&mut self) -> &mut Seat {
        &mut self.seat
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Only if nobody can wait for them: an inline engine, or no thread could be started. They
        // stay out of their pools for good.
        if self.seat.gone.is_none() {
            for task in self.tasks.drain(..) {
                if let Task::Waiting { buf, .. } | Task::Abandoned { buf, .. } = task {
                    mem::forget(buf);
                }
            }
        }
    }
}
