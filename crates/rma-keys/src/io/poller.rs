//! A poller of sockets by `epoll(7)`, and the means to wake its thread.
//!
//! Sockets are known by numbers of their owner's. What is ready and is not taken is told again.

use core::time::Duration;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, Timespec, epoll, eventfd},
    io::{Errno, read, write},
};

/// The number of what wakes.
const WAKE: u64 = u64::MAX;

/// How many sockets one wait tells of; the others are told of by the next.
const EVENTS_MAX: usize = 256;

/// Sockets that are waited for.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    waker: Waker,
}

/// Ends a wait from any thread.
#[derive(Clone, Debug)]
pub(super) struct Waker(Arc<OwnedFd>);

/// The readiness that a socket is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    Nothing,
    Read,
    Write,
}

impl Interest {
    const fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Nothing => epoll::EventFlags::empty(),
            Self::Read => epoll::EventFlags::IN,
            Self::Write => epoll::EventFlags::OUT,
        }
    }
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let poller = Self { epoll, waker: Waker(Arc::new(waker)) };
        poller.add(&*poller.waker.0, WAKE, Interest::Read)?;
        Ok(poller)
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(super) fn add(&self, socket: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(key), interest.flags())?)
    }

    pub(super) fn modify(&self, socket: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(key), interest.flags())?)
    }

    /// Waits for sockets to become ready, no longer than `most`, and gives their numbers.
    pub(super) fn wait(&self, most: Duration) -> io::Result<Vec<u64>> {
        let timeout = Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        let mut events = Vec::with_capacity(EVENTS_MAX);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let keys: Vec<u64> = events.iter().map(|it: &epoll::Event| it.data.u64()).collect();
        if keys.contains(&WAKE) {
            // It is level that matters, not how often.
            _ = read(&*self.waker.0, &mut [0; 8]);
        }
        Ok(keys.into_iter().filter(|&key| key != WAKE).collect())
    }
}

impl Waker {
    pub(super) fn wake(&self) {
        // Full is awake.
        _ = write(&*self.0, &1_u64.to_ne_bytes());
    }
}
