//! The common part of all futures of calls: an order that is submitted when it is first polled, and
//! given up when it is dropped.

use core::{
    mem,
    task::{Context, Poll},
};
use std::sync::Arc;

use rma_core::executor::Outcome;

use super::{
    order::{Order, What},
    remaining::missing_in_whole,
    tasks::{State, TaskId},
};
use crate::{
    buffer::Bufs,
    error::{TransferError, WaitError},
    polling::handle::Handle,
};

/// A call of a future.
#[derive(Debug)]
pub(super) struct Pending {
    handle: Arc<Handle<State>>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    New {
        order: Box<Order>,
        bufs: Bufs,
    },
    Submitted {
        task: TaskId,
        /// The outcome of the only call, as in [`What::Transfer`].
        only: Option<Arc<Outcome>>,
    },
    Done,
}

impl Pending {
    pub(super) fn new(handle: Arc<Handle<State>>, order: Order, bufs: Bufs) -> Self {
        Self { handle, phase: Phase::New { order: Box::new(order), bufs } }
    }

    /// Changes the order, unless it was submitted.
    pub(super) fn with(&mut self, set: impl FnOnce(&mut Order)) {
        if let Phase::New { order, .. } = &mut self.phase {
            set(order);
        }
    }

    /// Returns the outcome of the call, in the numbers of all that the application has asked for,
    /// and its buffers.
    pub(super) fn poll(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<(Result<Outcome, TransferError>, Bufs)> {
        let Self { handle, phase } = self;
        if let Err(forked) = handle.shared().check_process()
            && let Phase::New { .. } = phase
            && let Phase::New { bufs, .. } = mem::replace(phase, Phase::Done)
        {
            return Poll::Ready((Err(WaitError::from(forked).into()), bufs));
        }
        let Ok(polled) = handle.shared().with(|state, after| {
            let (task, only) = match mem::replace(phase, Phase::Done) {
                Phase::New { order, bufs } => {
                    let only = match &order.what {
                        What::Transfer { only, .. } => only.clone(),
                        What::Op { .. } | What::Settle { .. } => None,
                    };
                    match state.begin(*order, bufs) {
                        Ok(task) => (task, only),
                        Err(refused) => {
                            let (error, bufs) = *refused;
                            return Poll::Ready((Err(error), bufs));
                        }
                    }
                }
                Phase::Submitted { task, only } => (task, only),
                Phase::Done => panic!("a future is not polled after its end"),
            };
            *phase = Phase::Submitted { task, only };
            state.poll_task(task, context, after)
        }) else {
            // Begun by the parent, which has the buffers: it is over there alone.
            return Poll::Pending;
        };
        polled.map(|(result, bufs)| {
            let result = match mem::replace(phase, Phase::Done) {
                Phase::Submitted { only: Some(only), .. } => result.map(|it| Outcome {
                    missing: missing_in_whole(&only.missing, it.missing),
                    ..it
                }),
                _ => result,
            };
            (result, bufs)
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Phase::Submitted { task, .. } = self.phase {
            self.handle.shared().with_own(|state, after| state.abandon(task, after));
        }
    }
}
