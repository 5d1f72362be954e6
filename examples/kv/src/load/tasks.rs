//! Many futures at once on one thread, which sleeps when none can go on.
//!
//! An application has an executor of its own. This one is as small as one can be, so that the
//! example needs none. Invariant: a future is polled once for each time that it is woken or more.

use core::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    task::Wake,
    thread::{self, Thread},
};

/// Futures that are not over. The thread that makes it is the one that turns it.
#[derive(Debug)]
pub struct Tasks<F> {
    tasks: Vec<Option<Pin<Box<F>>>>,
    free: Vec<usize>,
    woken: Arc<Woken>,
}

/// The tasks that can go on, and the thread to tell.
#[derive(Debug)]
struct Woken {
    tasks: Mutex<Vec<usize>>,
    thread: Thread,
}

struct WakeOne {
    task: usize,
    woken: Arc<Woken>,
}

impl Wake for WakeOne {
    fn wake(self: Arc<Self>) {
        self.woken.push(self.task);
        self.woken.thread.unpark();
    }
}

impl Woken {
    fn push(&self, task: usize) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    fn take(&self) -> Vec<usize> {
        core::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F: Future> Tasks<F> {
    /// None yet, of this thread.
    #[must_use]
    pub fn new() -> Self {
        let woken = Woken { tasks: Mutex::default(), thread: thread::current() };
        Self { tasks: Vec::new(), free: Vec::new(), woken: Arc::new(woken) }
    }

    /// How many are not over.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// Whether all are over.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins with another one, at the next turn.
    pub fn push(&mut self, future: F) {
        let task = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        });
        self.tasks[task] = Some(Box::pin(future));
        self.woken.push(task);
    }

    /// Polls those that can go on. Returns what those came to that are over.
    pub fn turn(&mut self) -> Vec<F::Output> {
        let mut over = Vec::new();
        for task in self.woken.take() {
            let Some(future) = &mut self.tasks[task] else { continue };
            let waker = Waker::from(Arc::new(WakeOne { task, woken: Arc::clone(&self.woken) }));
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.tasks[task] = None;
                self.free.push(task);
                over.push(output);
            }
        }
        over
    }

    /// Sleeps until one can go on, no longer than `most`.
    pub fn wait(&self, most: Duration) {
        let is_idle = self.woken.tasks.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if is_idle {
            thread::park_timeout(most);
        }
    }
}

impl<F: Future> Default for Tasks<F> {
    fn default() -> Self {
        Self::new()
    }
}
