//! The requests of other threads to a client's loop, and their way there.
//!
//! An ask that the loop never takes is told so, by its slot.

use core::time::Duration;
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use rma_core::addr::{HostAddr, LocalAddresses};

use crate::{
    identity::SpiffeId,
    io::{
        client::{
            fetch::{self, Fetch, Slot},
            hindrance::Hindrance,
        },
        poller::Waker,
    },
    message::request::Request,
    secret::Octets,
};

/// A service that can be fetched from, of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId(usize);

impl SourceId {
    /// Its place among the services of its client.
    pub(super) const fn number(self) -> usize {
        self.0
    }
}

/// A handle for fetching: clones are of the same loop.
#[derive(Clone, Debug)]
pub struct Fetcher {
    pub(super) shared: Arc<Shared>,
}

impl Fetcher {
    /// A service at one of `addresses`, tried one after the other, which must be `expected`.
    ///
    /// # Panics
    /// If there is no address.
    #[must_use]
    pub fn source(&self, addresses: Vec<SocketAddr>, expected: SpiffeId) -> SourceId {
        assert!(!addresses.is_empty(), "a service has an address");
        self.shared.add(addresses, expected)
    }

    /// Asks a service, for no longer than `patience`. The connection is made from the address that
    /// keys are asked for, where that is this machine's own and a connection can be had from it: a
    /// service believes no other, unless a rule lists it.
    pub fn fetch(&self, source: SourceId, request: &Request, patience: Duration) -> Fetch {
        let (fetch, slot) = fetch::pair();
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let (message, from) = (request.encode(number), request.initiators);
        self.shared.push(Ask { source, number, message, from, patience, slot });
        fetch
    }

    /// There is a sign that this service is back: what waits for a connection to it waits no
    /// longer.
    pub(in crate::io) fn hurry(&self, source: SourceId) {
        let mut inbox = self.shared.lock();
        inbox.hurries.push(source);
        drop(inbox);
        self.shared.waker.wake();
    }

    /// How often a connection to this service has broken that had been open. Where a service takes
    /// leave of a client that rests, nothing has broken.
    #[must_use]
    pub fn lost(&self, source: SourceId) -> u64 {
        self.shared.seen(source, |it| it.lost).unwrap_or(0)
    }

    /// How many replies of this service were to other requests than the one that was waited for:
    /// they came late, or twice, and were left aside.
    #[must_use]
    pub fn unasked(&self, source: SourceId) -> u64 {
        self.shared.seen(source, |it| it.unasked).unwrap_or(0)
    }

    /// Returns the hindrance of connections to this service at present, and the address concerned.
    /// `None`: it is open, or nobody has wanted it yet.
    #[must_use]
    pub fn hindrance(&self, source: SourceId) -> Option<(SocketAddr, Hindrance)> {
        self.shared.seen(source, |it| it.hindrance.clone()).flatten()
    }

    /// At which of its addresses this service is asked.
    pub(in crate::io) fn address(&self, source: SourceId) -> SocketAddr {
        let inbox = self.shared.lock();
        inbox.sources[source.0].0[inbox.seen[source.0].address]
    }

    /// From which address this service was last connected to, as this machine sees it.
    #[must_use]
    pub fn connected_from(&self, source: SourceId) -> Option<HostAddr> {
        self.shared.seen(source, |it| it.from).flatten()
    }

    /// Ends the loop's wait.
    pub(in crate::io) fn wake(&self) {
        self.shared.waker.wake();
    }
}

/// The requests of other threads to a loop, and the state that it shows to them.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) waker: Waker,
    pub(super) stops: AtomicBool,
    /// The number of the next request, to whichever service.
    requests: AtomicU32,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) sources: Vec<(Vec<SocketAddr>, SpiffeId)>,
    /// Of those that the loop has not taken yet.
    pub(super) taken: usize,
    pub(super) asks: Vec<Ask>,
    /// Services to connect to at once.
    pub(super) hurries: Vec<SourceId>,
    pub(super) seen: Vec<Seen>,
    /// Whether there is no loop any longer.
    pub(super) is_closed: bool,
}

/// The state of a service that a loop shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) lost: u64,
    pub(super) unasked: u64,
    /// The index of the address that is tried, or connected.
    pub(super) address: usize,
    pub(super) hindrance: Option<(SocketAddr, Hindrance)>,
    /// From which address it was last connected.
    pub(super) from: Option<HostAddr>,
}

/// One fetch on its way to the loop.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) source: SourceId,
    pub(super) number: u32,
    pub(super) message: Octets,
    pub(super) from: LocalAddresses,
    pub(super) patience: Duration,
    pub(super) slot: Slot,
}

impl Shared {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            waker,
            stops: AtomicBool::new(false),
            requests: AtomicU32::new(1),
            inbox: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inbox> {
        // Nothing that could panic happens under this lock.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, addresses: Vec<SocketAddr>, expected: SpiffeId) -> SourceId {
        let mut inbox = self.lock();
        inbox.sources.push((addresses, expected));
        inbox.seen.push(Seen::default());
        SourceId(inbox.sources.len() - 1)
    }

    pub(super) fn push(&self, ask: Ask) {
        let mut inbox = self.lock();
        if inbox.is_closed {
            // Its slot tells who waits.
            drop(inbox);
            return drop(ask);
        }
        inbox.asks.push(ask);
        drop(inbox);
        self.waker.wake();
    }

    fn seen<T>(&self, source: SourceId, look: impl FnOnce(&Seen) -> T) -> Option<T> {
        self.lock().seen.get(source.0).map(look)
    }
}
