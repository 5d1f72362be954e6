//! A keeper on a thread of its own.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::Ordering,
    sync::{Arc, PoisonError},
};

use rma_core::{gate::Gate, process::Worker};

use crate::{
    io::{
        clock,
        keeper::{
            Keeper,
            turns::{KeeperLoop, Shared},
        },
        server::{ServerCounters, ServerShared},
    },
    time::Now,
};

/// A keeper's thread. It ends when this is dropped: the regions keep the keys that they have, and
/// nobody is given any.
#[derive(Debug)]
pub struct KeeperThread {
    shared: Shared,
    server: Arc<ServerShared>,
    address: SocketAddr,
    thread: Option<Worker>,
}

impl KeeperThread {
    /// Starts a thread that turns `turns`, with the host of its regions.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(turns: KeeperLoop, host: Arc<dyn Gate + Send + Sync>) -> io::Result<Self> {
        let (shared, server) = (turns.shared.clone(), turns.turns.shared());
        let address = turns.address();
        let run = move || {
            let mut turns = turns;
            while !turns.turns.shared().stops.load(Ordering::Acquire) {
                turns.wait(clock::now().boot);
                turns.turn(clock::now(), &*host);
            }
        };
        let thread = Worker::start("rma-keys-keeper", run)?;
        Ok(Self { shared, server, address, thread: Some(thread) })
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters of its connections.
    #[must_use]
    pub fn connections(&self) -> ServerCounters {
        *self.server.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the keeper now, which all clients wait for. The thread learns of what
    /// has come of it.
    pub fn with<T>(&self, act: impl FnOnce(Now, &mut Keeper) -> T) -> T {
        let done = act(clock::now(), &mut self.shared.lock());
        self.server.waker.wake();
        done
    }
}

impl Drop for KeeperThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.is_ours()
        {
            self.server.stops.store(true, Ordering::Release);
            self.server.waker.wake();
            // Its panic, or a handler's, has been shown; it is not made another one here.
            thread.join();
        }
    }
}
