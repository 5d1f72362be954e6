//! The client's side as one: regions by name, whose keys are fetched, renewed and checked by a
//! thread, or by a loop that an application turns itself.
//!
//! A [`GrantCache`] says what must be fetched, a [`ClientLoop`] fetches it. Here the one is told
//! what the other brought, and tasks are woken that wait for a key. Nothing is asked of a service
//! before somebody wants to use a region of it.
//!
//! Invariants: who waits is woken when there is a key, when it is known that there is none, or when
//! its time is over; a wait that is dropped leaves nothing behind; the cache's lock is never held
//! while a waker runs.

mod region;
mod state;

use core::time::Duration;
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rma_core::{
    process::{Forked, Process, Worker},
    time::Instant,
};

pub use region::{Addresses, KeyedRegion, NoKey, Ready};

use crate::{
    cache::{CacheCounters, CacheError, GrantCache, RingId, Source},
    identity::SpiffeId,
    io::{
        client::{ClientLoop, Fetcher},
        clock,
        server::StartError,
    },
    name::RegionName,
    ops::OpSet,
    ring::Holder,
    time::Now,
    tls::directory::CredentialsFrom,
};
use state::State;

/// The keys of one process: clones are of the same cache. Its thread ends with the last of them and
/// of its regions.
#[derive(Clone, Debug)]
pub struct KeyCache {
    owner: Arc<Owner>,
}

/// A cache, and the thread that it has to itself, if it has.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    thread: OnceLock<Worker>,
}

#[derive(Debug)]
struct Shared {
    fetcher: Fetcher,
    stops: AtomicBool,
    state: Mutex<State>,
    /// In a child that was forked nobody turns the cache, and a thread of the parent's may hold the
    /// lock, for ever.
    process: Process,
}

impl Shared {
    fn lock(&self) -> Result<MutexGuard<'_, State>, Forked> {
        self.process.check()?;
        // Whoever panicked under this lock was wrong about a ring; the others go on.
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does something with the state, and has fetched what is wanted then.
    fn with<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> Result<T, Forked> {
        let now = clock::now().boot;
        let mut state = self.lock()?;
        let result = act(&mut state, now);
        state.fetch(now, &self.fetcher);
        let is_sooner = state.is_sooner();
        let wakers = state.wakers(now);
        drop(state);
        if is_sooner {
            self.fetcher.wake();
        }
        wakers.into_iter().for_each(core::task::Waker::wake);
        Ok(result)
    }

    /// Takes what has come. Says when it wants to be called again at the latest.
    fn turn(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock().ok()?;
        state.take(now, &self.fetcher);
        state.fetch(now, &self.fetcher);
        let wakers = state.wakers(now);
        let until = state.sleep();
        drop(state);
        wakers.into_iter().for_each(core::task::Waker::wake);
        until
    }
}

/// A thread that turns a cache. When it goes, those who wait are told that nothing will come.
#[derive(Debug)]
struct Turner(Arc<Shared>);

impl Drop for Turner {
    fn drop(&mut self) {
        let Ok(mut state) = self.0.lock() else { return };
        state.has_ended = true;
        let wakers = state.wakers(Instant::ZERO);
        drop(state);
        wakers.into_iter().for_each(core::task::Waker::wake);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.shared.process.is_this() {
            return;
        }
        self.shared.stops.store(true, Ordering::Release);
        self.shared.fetcher.wake();
        let is_other = |it: &Worker| it.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // Its panic has been shown; it is not made another one here.
            thread.join();
        }
    }
}

impl KeyCache {
    /// A cache for the keys of `holder`, with a thread that fetches as whoever the credentials are
    /// of. Those in a directory are read anew when they change.
    ///
    /// # Errors
    /// If the credentials are not in order, or there can be no thread.
    pub fn start(
        holder: Holder,
        credentials: impl Into<CredentialsFrom>,
    ) -> Result<Self, StartError> {
        let turns = KeyCacheLoop::new(holder, credentials)?;
        let KeyCacheLoop { mut client, grants, turner, .. } = turns;
        let run = move || {
            let Turner(shared) = &turner;
            let mut until = None;
            while !shared.stops.load(Ordering::Acquire) {
                client.wait_until(clock::now().boot, until);
                let now = clock::now();
                client.turn(now);
                until = shared.turn(now.boot);
            }
        };
        let thread = Worker::start("rma-keys-grants", run).map_err(StartError::Thread)?;
        grants.owner.thread.set(thread).expect("it has no thread yet");
        Ok(grants)
    }

    /// A service at one of `addresses`, tried one after the other, which must be `expected`. Names
    /// of regions belong to it. Nothing is asked of it yet.
    ///
    /// # Errors
    /// If the cache is the parent's of this process ([`CacheError::Forked`]).
    ///
    /// # Panics
    /// If there is no address.
    pub fn source(
        &self,
        addresses: Vec<SocketAddr>,
        expected: SpiffeId,
    ) -> Result<Source, CacheError> {
        let shared = &self.owner.shared;
        let mut state = shared.lock()?;
        let id = shared.fetcher.source(addresses, expected.clone());
        Ok(state.source(id, expected))
    }

    /// A region of `source`, for ops of these types: a client that may not have all of them is
    /// given none. Nothing is asked before it is used. Whoever asks for the same again uses the
    /// same keys.
    ///
    /// # Errors
    /// If the cache holds as many regions as it may, it is for no type of op, or the cache is the
    /// parent's of this process.
    ///
    /// # Panics
    /// If `source` is another cache's.
    pub fn region(
        &self,
        source: Source,
        name: RegionName,
        ops: OpSet,
    ) -> Result<KeyedRegion, CacheError> {
        let (of_region, shared) = (name.clone(), &self.owner.shared);
        let (ring, service) = shared.with(|state, _| state.region(source, name, ops))??;
        Ok(KeyedRegion::new(self.clone(), ring, of_region, service))
    }

    /// Does something with the cache, by the time now: for a
    /// [`KeyedExecutor`](crate::keyed::KeyedExecutor) over it, and others who poll. All who use it
    /// wait meanwhile.
    ///
    /// # Errors
    /// If the cache is the parent's of this process.
    pub fn with_cache<T>(
        &self,
        act: impl FnOnce(&mut GrantCache, Instant) -> T,
    ) -> Result<T, Forked> {
        self.owner.shared.with(|state, now| act(&mut state.cache, now))
    }

    /// The error of a call that had no key of a ring's region after `waited`
    /// ([`KeyedStatus::Late`](crate::keyed::KeyedStatus::Late)): it names the region, its service,
    /// the address that was tried, and what hinders answers from there.
    ///
    /// # Panics
    /// If the ring was released, and another has its place.
    #[must_use]
    pub fn late(&self, ring: RingId, waited: Duration) -> NoKey {
        let shared = &self.owner.shared;
        let state = match shared.lock() {
            Ok(state) => state,
            Err(forked) => return forked.into(),
        };
        let place = state.cache.place(ring).expect("a ring that is used is there");
        let (source, region) = (place.0, place.1.clone());
        let (service, why) = state.hindrance(source, &shared.fetcher);
        NoKey::Late { region, service, waited, why: Box::new(why) }
    }

    /// Returns the addresses that keys of a ring's region are asked for, and where the connection
    /// to its service comes from.
    fn addresses(&self, ring: RingId) -> Result<Addresses, Forked> {
        let shared = &self.owner.shared;
        let state = shared.lock()?;
        let place = state.cache.place(ring);
        let connected_from = place.and_then(|it| state.connected_from(it.0, &shared.fetcher));
        Ok(Addresses { asked_for: state.cache.holder().initiators, connected_from })
    }

    /// The process has other names now: all keys are forgotten, and fetched anew where they are in
    /// use.
    ///
    /// # Errors
    /// If the cache is the parent's of this process.
    pub fn rebind(&self, holder: Holder) -> Result<(), Forked> {
        self.with_cache(|cache, now| cache.rebind(now, holder))
    }

    /// Returns its counters; in a child that was forked all are 0.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        let shared = &self.owner.shared;
        shared.lock().map(|state| state.counters(&shared.fetcher)).unwrap_or_default()
    }

    /// Whether two are of the same cache.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner.shared, &other.owner.shared)
    }
}

/// A cache whose fetches go on when, and only when, an application turns it.
#[derive(Debug)]
pub struct KeyCacheLoop {
    client: ClientLoop,
    grants: KeyCache,
    turner: Turner,
    until: Option<Instant>,
}

impl KeyCacheLoop {
    /// As [`KeyCache::start`], without a thread.
    ///
    /// # Errors
    /// If the credentials are not in order.
    pub fn new(
        holder: Holder,
        credentials: impl Into<CredentialsFrom>,
    ) -> Result<Self, StartError> {
        let seed = super::random::octets().map_err(StartError::Random)?;
        let cache = GrantCache::new(holder, u64::from_ne_bytes(seed));
        let client = match credentials.into() {
            CredentialsFrom::Directory(path) => ClientLoop::from_directory(&path)?,
            CredentialsFrom::Memory(credentials) => ClientLoop::new(credentials)?,
        };
        let (fetcher, stops) = (client.fetcher(), AtomicBool::new(false));
        let (state, process) = (Mutex::new(State::new(cache)), Process::this());
        let shared = Arc::new(Shared { fetcher, stops, state, process });
        let turner = Turner(Arc::clone(&shared));
        let grants = KeyCache { owner: Arc::new(Owner { shared, thread: OnceLock::new() }) };
        Ok(Self { client, grants, turner, until: None })
    }

    /// The cache.
    #[must_use]
    pub const fn key_cache(&self) -> &KeyCache {
        &self.grants
    }

    /// Waits until there is something to do, no longer than `most`. An application that has other
    /// things to do turns it now and then instead.
    pub fn wait(&mut self, most: Duration) {
        let now = clock::now().boot;
        let until = self.until.into_iter().chain([now + most]).min();
        self.client.wait_until(now, until);
    }

    /// Does what can be done now, and never waits.
    pub fn turn(&mut self) {
        let now: Now = clock::now();
        self.client.turn(now);
        self.until = self.turner.0.turn(now.boot);
    }
}
