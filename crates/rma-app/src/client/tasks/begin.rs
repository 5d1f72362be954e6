//! The beginning of futures' calls: at once, or when there is a place.

use core::mem;

use rma_core::{
    executor::{CallError, CallId},
    op::ClassOfService,
    time::Instant,
};

use super::{InLine, State, Task, TaskId};
use crate::{buffer::Bufs, client::order::Order, error::TransferError, polling::shared::After};

/// The state of a new future.
enum Begun {
    Call {
        call: CallId,
        class: ClassOfService,
    },
    /// There is no place for it.
    Waits {
        class: ClassOfService,
    },
}

impl State {
    /// Submits the call of a new future, or has it wait for a place. The buffers come back if it is
    /// refused.
    pub(in crate::client) fn begin(
        &mut self,
        order: Order,
        bufs: Bufs,
    ) -> Result<TaskId, Box<(TransferError, Bufs)>> {
        if let Some(gone) = self.seat.gone {
            return Err(Box::new((gone.into(), bufs)));
        }
        let deadline = order.options.timeout.map(|timeout| self.executor.now() + timeout);
        match self.begin_or_wait(&order, &bufs, deadline) {
            Ok(Begun::Call { call, class }) => {
                self.places.take(class);
                let id = self.put(Task::Waiting { call, class, bufs, waker: None });
                self.by_call[call.index()] = id;
                Ok(TaskId(id))
            }
            Ok(Begun::Waits { class }) => {
                if order.fenced {
                    self.line.fence();
                }
                let id = self.put(Task::Free);
                let ticket = self.line.push(id, class, deadline);
                let it = InLine { ticket, class, order, deadline, bufs, waker: None };
                self.tasks[id as usize] = Task::InLine(Box::new(it));
                self.tell_waiting();
                Ok(TaskId(id))
            }
            Err(error) => Err(Box::new((error, bufs))),
        }
    }

    fn begin_or_wait(
        &mut self,
        order: &Order,
        bufs: &Bufs,
        deadline: Option<Instant>,
    ) -> Result<Begun, TransferError> {
        let Self { executor, line, places, .. } = self;
        let begun = order.with_request(bufs, deadline, |request| {
            let class = request.class(executor);
            if !places.admits(class) || !line.lets_pass(class, order.fenced) {
                request.check(executor)?;
                return Ok(Begun::Waits { class });
            }
            if line.passes_fence() {
                executor.fence();
            }
            let submitted = if order.fenced {
                request.submit_fenced(executor)
            } else {
                request.submit(executor)
            };
            match submitted {
                Ok(call) => Ok(Begun::Call { call, class }),
                // There are no places of another kind. Some call has each, and ends.
                Err(CallError::TooManyRemotes(_)) if places.taken() > 0 => {
                    Ok(Begun::Waits { class })
                }
                Err(error) => Err(error),
            }
        })?;
        let (calls, waiting) = (places.taken(), line.len());
        match begun {
            Begun::Waits { .. } if order.or_full || waiting >= self.waiting_max => {
                Err(TransferError::Full { calls, waiting })
            }
            begun => Ok(begun),
        }
    }

    /// Submits the calls of those who wait, as far as there are places. Returns how many that were.
    pub(super) fn admit(&mut self, after: &mut After) -> usize {
        let mut admitted = 0;
        while let Some(next) = self.line.next(self.places) {
            let task = &mut self.tasks[next.task as usize];
            let it = match mem::replace(task, Task::Free) {
                Task::InLine(it) => it,
                other => unreachable!("it is in the line: {other:?}"),
            };
            if next.is_fenced {
                self.executor.fence();
            }
            let executor = &mut self.executor;
            let begun =
                it.order.with_request(&it.bufs, it.deadline, |request| request.submit(executor));
            if let Err(CallError::TooManyRemotes(_)) = begun
                && self.places.taken() > 0
            {
                *task = Task::InLine(it);
                break;
            }
            self.line.serve(&next);
            let InLine { class, bufs, waker, .. } = *it;
            *task = match begun {
                Ok(call) => {
                    self.places.take(class);
                    self.by_call[call.index()] = next.task;
                    Task::Waiting { call, class, bufs, waker }
                }
                Err(error) => {
                    after.wakers.extend(waker);
                    Task::Over { result: Err(error.into()), bufs }
                }
            };
            admitted += 1;
        }
        self.tell_waiting();
        admitted
    }

    /// Ends those whose time is over before there was a place. Returns how many that were.
    pub(super) fn expire(&mut self, after: &mut After) -> usize {
        let mut expired = 0;
        if self.line.first_deadline().is_some() {
            let now = self.executor.now();
            while let Some(id) = self.line.expire(now) {
                let task = &mut self.tasks[id as usize];
                let InLine { order, bufs, waker, .. } = match mem::replace(task, Task::Free) {
                    Task::InLine(it) => *it,
                    other => unreachable!("it was in the line: {other:?}"),
                };
                let outcome = order.with_request(&bufs, None, |request| Ok(request.expired()));
                *task = Task::Over { result: outcome.map_err(TransferError::from), bufs };
                after.wakers.extend(waker);
                expired += 1;
            }
        }
        expired
    }

    pub(super) fn tell_waiting(&self) {
        self.executor.told.tell_transfers_waiting(self.line.len());
    }

    fn put(&mut self, task: Task) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.tasks[id as usize] = task;
                id
            }
            None => {
                self.tasks.push(task);
                self.tasks.len() as u32 - 1
            }
        }
    }
}
