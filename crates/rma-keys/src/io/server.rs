//! A service that accepts connections: one thread, or a loop that an application turns itself.
//!
//! It lets in whom [`crate::tls`] lets in, within [`Limits`], and has each message answered by a
//! [`Handler`]. One connection's misuse ends that connection, is counted under its reason, and
//! takes nothing from the others.

mod admission;
mod beside;
#[cfg(test)]
mod cold_clients;
mod connection;
mod counters;
mod handler;
mod reason;
mod turns;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use rma_core::process::Worker;

pub use admission::Places;
pub use beside::Beside;
pub use connection::Times;
pub use counters::{Limits, ServerCounters};
pub use handler::{Answers, Handler};
pub use reason::EndReason;
pub use turns::{ServerLoop, StartError};

pub(in crate::io) use counters::Shared as ServerShared;

use crate::io::clock;
use counters::Shared;

/// A service on a thread of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<Worker>,
}

impl Server {
    /// Starts a thread that turns `turns`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start<H: Handler + Send + 'static>(turns: ServerLoop<H>) -> io::Result<Self> {
        let (shared, address) = (turns.shared(), turns.address());
        let run = move || {
            let mut turns = turns;
            while !turns.shared().stops.load(Ordering::Acquire) {
                turns.wait(clock::now().boot);
                turns.turn(clock::now());
            }
        };
        let thread = Worker::start("rma-keys-server", run)?;
        Ok(Self { shared, address, thread: Some(thread) })
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters of its connections.
    #[must_use]
    pub fn counters(&self) -> ServerCounters {
        *self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.is_ours()
        {
            self.shared.stops.store(true, Ordering::Release);
            self.shared.waker.wake();
            // Its panic, or a handler's, has been shown; it is not made another one here.
            thread.join();
        }
    }
}
