//! A sender that has one op under way: the next goes when that is done, so they come in order
//! wherever they go, and nobody there has to know of it.

use std::collections::VecDeque;

use rma_core::{
    executor::{CallId, CallStatus},
    op::OpStatus,
};

use crate::{
    link::Link,
    ring::Position,
    sender::{SendError, SendHandle, SendState},
};

/// Messages that wait, the first of which may be under way, up to a number of them.
#[derive(Debug)]
pub(super) struct OneByOne<T> {
    capacity: usize,
    waiting: VecDeque<T>,
    /// The number of the first that waits.
    first: Position,
    /// The call under way for the first.
    call: Option<CallId>,
    /// The status of the first, if it was not delivered, or nobody knows.
    broken: Option<CallStatus>,
}

impl<T> OneByOne<T> {
    pub(super) fn new(capacity: u16) -> Self {
        let (waiting, first) = (VecDeque::new(), Position::ZERO);
        Self { capacity: capacity as usize, waiting, first, call: None, broken: None }
    }

    /// Whether one more may wait: its number.
    pub(super) fn next(&self) -> Result<Position, SendError> {
        self.check()?;
        if self.waiting.len() == self.capacity {
            return Err(SendError::Full);
        }
        Ok(self.first.after(self.waiting.len() as u64))
    }

    /// The message whose number was given waits.
    pub(super) fn add(&mut self, message: T) {
        self.waiting.push_back(message);
    }

    /// The last that was added is not to be sent. It is not under way.
    pub(super) fn remove_last(&mut self) {
        self.waiting.pop_back();
    }

    fn check(&self) -> Result<(), SendError> {
        match self.broken {
            Some(status) => Err(SendError::Broken { handle: SendHandle(self.first), status }),
            None => Ok(()),
        }
    }

    /// Takes what became of the first, and issues the next.
    pub(super) fn poll(
        &mut self,
        link: &mut Link,
        issue: impl FnOnce(&mut Link, &T) -> Result<CallId, SendError>,
    ) -> Result<(), SendError> {
        if let Some(outcome) = self.call.and_then(|call| link.take(call)) {
            self.call = None;
            match outcome.status {
                CallStatus::Ok => {
                    self.waiting.pop_front();
                    self.first = self.first.after(1);
                }
                // It was not applied: it is offered again, as to a ring that is full.
                CallStatus::Failed(OpStatus::RemoteNotReady) => {}
                status => self.broken = Some(status),
            }
        }
        self.check()?;
        if self.call.is_none()
            && let Some(message) = self.waiting.front()
        {
            match issue(link, message) {
                Ok(call) => self.call = Some(call),
                // Others of the link are over sooner or later.
                Err(SendError::Full) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the state of a message.
    pub(super) fn test(&self, handle: SendHandle) -> SendState {
        let ahead = handle.0.since(self.first);
        if ahead >= self.waiting.len() as u64 {
            return SendState::Accepted;
        }
        match self.broken {
            None => SendState::Sending,
            Some(status) if ahead == 0 => SendState::Failed(status),
            Some(_) => SendState::Failed(CallStatus::PredecessorFailed),
        }
    }
}
