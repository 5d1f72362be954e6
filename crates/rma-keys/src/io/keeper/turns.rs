//! A keeper that answers connections: the loop of a service, around which keys are changed.

use core::time::Duration;
use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rma_core::{gate::Gate, time::Instant};

use crate::{
    io::{
        keeper::Keeper,
        server::{Beside, Handler, Limits, ServerCounters, ServerLoop, StartError},
    },
    peer::Peer,
    secret::Octets,
    time::Now,
    tls::directory::CredentialsFrom,
};

/// How many connections are served before keys are looked at again. More, and a key that is due to
/// change waits for all their handshakes; fewer, and the clock is read for each.
const CONNECTIONS_PER_TURN: usize = 16;

/// A keeper that several hold: the loop, and who publishes.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Keeper>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Keeper> {
        // Whoever panicked under this lock has been shown; the service goes on.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Shared {
    fn handle(&mut self, now: Now, peer: &Peer, message: &[u8]) -> Octets {
        self.lock().handle(now, peer, message)
    }

    fn poll(&mut self, _: Now) -> Option<Instant> {
        self.lock().poll_timeout()
    }
}

/// A keeper's loop.
#[derive(Debug)]
pub struct KeeperLoop {
    pub(super) turns: ServerLoop<Shared>,
    pub(super) shared: Shared,
}

impl KeeperLoop {
    /// A loop that accepts connections from `listener`, as whoever the credentials are of.
    ///
    /// # Errors
    /// As [`ServerLoop::from_directory`], or as [`ServerLoop::new`] if they are in memory.
    pub fn new(
        listener: TcpListener,
        credentials: &CredentialsFrom,
        keeper: Keeper,
        limits: Limits,
    ) -> Result<Self, StartError> {
        let shared = Shared(Arc::new(Mutex::new(keeper)));
        let handler = shared.clone();
        let turns = match credentials {
            CredentialsFrom::Directory(path) => {
                ServerLoop::from_directory(listener, path, handler, limits)?
            }
            CredentialsFrom::Memory(it) => ServerLoop::new(listener, it, handler, limits)?,
        };
        Ok(Self { turns, shared })
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.turns.address()
    }

    /// Returns the counters of its connections.
    #[must_use]
    pub const fn connections(&self) -> ServerCounters {
        self.turns.counters()
    }

    /// The keeper. The loop waits meanwhile.
    pub fn keeper(&mut self) -> MutexGuard<'_, Keeper> {
        self.shared.lock()
    }

    /// Waits until there is something to do, or it is time to.
    pub fn wait(&mut self, now: Instant) {
        self.turns.wait(now);
    }

    /// The same, for no longer than `most`.
    pub fn wait_for(&mut self, now: Instant, most: Duration) {
        self.turns.wait_for(now, most);
    }

    /// Does what can be done now, and never waits but for `host`.
    pub fn turn(&mut self, now: Now, host: &dyn Gate) {
        self.turn_beside(now, host, &mut ());
    }

    /// The same, with somebody who answers what is no key message.
    pub fn turn_beside(&mut self, now: Now, host: &dyn Gate, beside: &mut dyn Beside) {
        self.shared.lock().handle_timeout(now, host);
        self.turns.turn_beside(now, CONNECTIONS_PER_TURN, beside);
        self.shared.lock().prepare(host);
    }
}
