//! Fetches from services: one thread for all of them, or a loop that an application turns itself.
//!
//! A service is known by its addresses and by the identity that is expected there. A connection to
//! it is made when something is fetched, kept while it is used, and made again when it breaks:
//! after a random time, of 200 ms at most at first and 10 s at last, so that a service that comes
//! back is not overrun. A [`Fetch`] is waited for by a thread, or as a future on any executor. It
//! ends in its time, with what hindered it.

pub(in crate::io) mod backoff;
mod fetch;
mod fetcher;
mod hindrance;
mod source;
mod turns;

use std::{io, sync::atomic::Ordering};

use rma_core::process::Worker;

pub use fetch::{Fetch, FetchError};
pub use fetcher::{Fetcher, SourceId};
pub use hindrance::Hindrance;
pub use turns::ClientLoop;

use crate::io::clock;

/// A client on a thread of its own. It ends when this is dropped, and with it what is under way.
#[derive(Debug)]
pub struct Client {
    fetcher: Fetcher,
    thread: Option<Worker>,
}

impl Client {
    /// Starts a thread that turns `turns`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(turns: ClientLoop) -> io::Result<Self> {
        let fetcher = turns.fetcher();
        let run = move || {
            let mut turns = turns;
            while !turns.fetcher().shared.stops.load(Ordering::Acquire) {
                turns.wait(clock::now().boot);
                turns.turn(clock::now());
            }
        };
        let thread = Worker::start("rma-keys-client", run)?;
        Ok(Self { fetcher, thread: Some(thread) })
    }

    /// Returns the fetcher.
    #[must_use]
    pub const fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.is_ours()
        {
            self.fetcher.shared.stops.store(true, Ordering::Release);
            self.fetcher.shared.waker.wake();
            // Its panic, or a handler's, has been shown; it is not made another one here.
            thread.join();
        }
    }
}
