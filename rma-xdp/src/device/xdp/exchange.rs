//! The exchange of shares of an attachment between one backend, which an engine drives, and the
//! thread that follows the interface.
//!
//! One at a time: the follower offers a share, or none, and offers nothing more until it has got
//! back what was there before. So there is room for everything, and nothing is made or dropped on
//! the engine's thread. It does not wait: an engine that stands still holds up nobody else.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::OnceLock,
    thread::{self, Thread},
};

use crossbeam_queue::ArrayQueue;
use rma_app::event_fd::EventFd;
use rma_core::portal::Wake;

use super::share::Share;

/// The present or last share.
pub(super) type Attached = Option<Box<Share>>;

/// The place through which one share at a time goes from the follower to the backend, and another
/// one back.
#[derive(Debug)]
pub(super) struct Exchange {
    offered: ArrayQueue<Attached>,
    returned: ArrayQueue<Attached>,
    /// Wakes an engine that sleeps.
    wake: EventFd,
    follower: OnceLock<Thread>,
}

impl Exchange {
    pub(super) fn new() -> io::Result<Self> {
        let (offered, returned) = (ArrayQueue::new(1), ArrayQueue::new(1));
        Ok(Self { offered, returned, wake: EventFd::open()?, follower: OnceLock::new() })
    }

    /// The follower's side: the calling thread is the one to be woken.
    pub(super) fn followed_by_this_thread(&self) {
        // A second one would be a second follower of one backend: there is none.
        let _ = self.follower.set(thread::current());
    }

    /// The follower's side: has `next` taken in place of what the backend has. Once, until
    /// [`Exchange::returned`] gives that, or [`Exchange::retract`] this.
    pub(super) fn offer(&self, next: Attached) {
        self.offered.push(next).expect("what was offered before was taken");
        self.wake.wake();
    }

    /// The follower's side: what the backend had before it took what was offered. `None` if it has
    /// not, yet.
    pub(super) fn returned(&self) -> Option<Attached> {
        let last = self.returned.pop()?;
        // Here and not where it is taken: an engine that does not sleep may take it before it is
        // woken for it, and would find itself woken for nothing from then on.
        self.wake.drain();
        Some(last)
    }

    /// The follower's side: takes back what was offered. `None` if the backend has taken it.
    pub(super) fn retract(&self) -> Option<Attached> {
        let offered = self.offered.pop()?;
        self.wake.drain();
        Some(offered)
    }

    /// The backend's side: whether something is offered.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.offered.is_empty()
    }

    /// The backend's side: takes what is offered for `attached`.
    pub(super) fn swap(&self, attached: &mut Attached) {
        let Some(next) = self.offered.pop() else { return };
        let last = core::mem::replace(attached, next);
        self.returned.push(last).expect("what was returned before was taken");
        self.wake_follower();
    }

    /// Has the follower look at the interface.
    pub(super) fn wake_follower(&self) {
        if let Some(thread) = self.follower.get() {
            thread.unpark();
        }
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        io::Errno,
    };

    use super::*;

    #[test]
    fn an_offer_is_taken_by_the_engine_or_taken_back_and_keeps_nobody_awake() {
        let exchange = Exchange::new().unwrap();
        let is_readable = || {
            let mut fds = [PollFd::new(&exchange, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
        };
        exchange.offer(None);
        assert!(exchange.is_waiting() && is_readable() && exchange.returned().is_none());
        assert!(exchange.retract().is_some_and(|it| it.is_none()));
        assert!(!exchange.is_waiting() && !is_readable(), "the engine sleeps on");
        exchange.offer(None);
        exchange.swap(&mut None);
        assert!(exchange.retract().is_none(), "it is the engine's");
        assert!(exchange.returned().is_some() && !is_readable());
    }

    #[test]
    fn an_exchanged_attachment_keeps_no_engine_awake() {
        let (exchange, done) = (Exchange::new().unwrap(), AtomicBool::new(false));
        let is_readable = || -> Result<bool, Errno> {
            let mut fds = [PollFd::new(&exchange, PollFlags::IN)];
            Ok(poll(&mut fds, Some(&Timespec::default()))? > 0)
        };
        thread::scope(|scope| {
            let engine = scope.spawn(|| {
                let mut attached = None;
                // One that does not sleep takes what is offered before it is woken for it.
                while !done.load(Relaxed) {
                    if exchange.is_waiting() {
                        exchange.swap(&mut attached);
                    }
                    thread::yield_now();
                }
            });
            exchange.followed_by_this_thread();
            let left = (0..20_000).filter(|_| {
                exchange.offer(None);
                while exchange.returned().is_none() {
                    thread::park();
                }
                is_readable().unwrap()
            });
            let left = left.count();
            done.store(true, Relaxed);
            engine.join().unwrap();
            assert_eq!(left, 0, "of 20000 exchanges");
        });
    }
}
