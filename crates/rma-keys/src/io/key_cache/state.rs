//! The state that the clones of one cache share: the cache, its requests under way, and its
//! waiters.

use core::{task::Waker, time::Duration};
use std::collections::BTreeMap;

use rma_core::{addr::HostAddr, time::Instant};

use crate::{
    cache::{CacheCounters, CacheError, Fetch, GrantCache, RingId, Source},
    identity::SpiffeId,
    io::client::{self, FetchError, Fetcher, Hindrance, SourceId},
    message::reply::{Refusal, Reply},
    name::RegionName,
    ops::OpSet,
    ring::Standing,
};

/// How long a fetch may take. Meanwhile connections are tried again and again; and whoever waits
/// for a key is told what hinders them. Longer, and nothing is gained; shorter, and a cache's own
/// pauses come on top of those between connections.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct State {
    pub(super) cache: GrantCache,
    /// By the number of [`Source`]: they are made together.
    services: Vec<(Source, Service)>,
    under_way: Vec<(Source, u32, client::Fetch)>,
    waiters: BTreeMap<u64, Waiter>,
    last_ticket: u64,
    /// Until when its thread sleeps, if nothing happens.
    sleeps_until: Option<Instant>,
    /// Nobody fetches any longer.
    pub(super) has_ended: bool,
}

#[derive(Debug)]
struct Service {
    id: SourceId,
    expected: SpiffeId,
    /// How many of its broken connections the cache was told of.
    lost: u64,
    /// The last answer that was no reply, or that asks not to be asked now.
    refused: Option<FetchError>,
}

/// A task that waits for a ring.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ring: RingId,
    pub(super) until: Instant,
    /// Taken when it was woken.
    pub(super) waker: Option<Waker>,
}

impl State {
    pub(super) const fn new(cache: GrantCache) -> Self {
        Self {
            cache,
            services: Vec::new(),
            under_way: Vec::new(),
            waiters: BTreeMap::new(),
            last_ticket: 0,
            sleeps_until: None,
            has_ended: false,
        }
    }

    pub(super) fn source(&mut self, id: SourceId, expected: SpiffeId) -> Source {
        let source = self.cache.source();
        let service = Service { id, expected, lost: 0, refused: None };
        self.services.push((source, service));
        source
    }

    fn service(&self, source: Source) -> &Service {
        let found = self.services.iter().find(|it| it.0 == source);
        &found.expect("a source is used with the cache that gave it").1
    }

    fn service_mut(&mut self, source: Source) -> &mut Service {
        let found = self.services.iter_mut().find(|it| it.0 == source);
        &mut found.expect("a source is used with the cache that gave it").1
    }

    pub(super) fn region(
        &mut self,
        source: Source,
        name: RegionName,
        ops: OpSet,
    ) -> Result<(RingId, SpiffeId), CacheError> {
        let expected = self.service(source).expected.clone();
        Ok((self.cache.region(source, name, ops)?, expected))
    }

    /// Returns the counters of the cache, with those of replies that never reached it.
    pub(super) fn counters(&self, fetcher: &Fetcher) -> CacheCounters {
        let mut counters = self.cache.counters();
        counters.unasked += self.services.iter().map(|(_, it)| fetcher.unasked(it.id)).sum::<u64>();
        counters
    }

    /// Returns the identity of a service, and the hindrance of its answers.
    pub(super) fn hindrance(&self, source: Source, fetcher: &Fetcher) -> (SpiffeId, FetchError) {
        let Service { id, expected, refused, .. } = self.service(source);
        let unanswered =
            |(address, why)| FetchError::Unanswered { expected: expected.clone(), address, why };
        let hindered = fetcher.hindrance(*id).map(unanswered);
        let why = hindered.or_else(|| refused.clone());
        let silent = || unanswered((fetcher.address(*id), Hindrance::Silent));
        (expected.clone(), why.unwrap_or_else(silent))
    }

    /// Returns the address that the connection to a service comes from.
    pub(super) fn connected_from(&self, source: Source, fetcher: &Fetcher) -> Option<HostAddr> {
        fetcher.connected_from(self.service(source).id)
    }

    /// Takes what has come.
    pub(super) fn take(&mut self, now: Instant, fetcher: &Fetcher) {
        for (source, mut service) in core::mem::take(&mut self.services) {
            let lost = fetcher.lost(service.id);
            if core::mem::replace(&mut service.lost, lost) < lost {
                self.cache.handle_disconnected(now, source);
            }
            self.services.push((source, service));
        }
        for (source, number, mut fetch) in core::mem::take(&mut self.under_way) {
            match fetch.take() {
                None => self.under_way.push((source, number, fetch)),
                Some(Ok(reply)) => {
                    let service = self.service_mut(source);
                    service.refused = match reply {
                        Reply::Refused(Refusal::NotNow { retry }) => Some(FetchError::NotNow {
                            expected: service.expected.clone(),
                            address: fetcher.address(service.id),
                            retry,
                        }),
                        _ => None,
                    };
                    self.cache.handle_reply(now, source, number, reply);
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "no keys were fetched");
                    let is_nonsense = matches!(error, FetchError::Malformed { .. });
                    self.service_mut(source).refused = is_nonsense.then_some(error);
                    self.cache.handle_lost(now, source, number);
                }
            }
        }
    }

    /// Has fetched what is wanted.
    pub(super) fn fetch(&mut self, now: Instant, fetcher: &Fetcher) {
        while let Some(Fetch { source, number, request }) = self.cache.poll_fetch(now) {
            let id = self.service(source).id;
            self.under_way.push((source, number, fetcher.fetch(id, &request, PATIENCE)));
        }
        while let Some(source) = self.cache.poll_refused() {
            fetcher.hurry(self.service(source).id);
        }
    }

    /// Those who can go on: to be woken without the lock.
    pub(super) fn wakers(&mut self, now: Instant) -> Vec<Waker> {
        let has_ended = self.has_ended;
        let Self { cache, waiters, .. } = self;
        let is_over = |it: &Waiter, cache: &mut GrantCache| {
            has_ended || it.until <= now || cache.standing(now, it.ring) != Standing::Waiting
        };
        let waiting = waiters.values_mut().filter(|it| it.waker.is_some());
        waiting.filter_map(|it| is_over(it, cache).then(|| it.waker.take()).flatten()).collect()
    }

    /// The task of `ticket` waits, or of a new one. Returns its ticket, and what must be dropped
    /// without the lock.
    pub(super) fn wait(&mut self, ticket: Option<u64>, waiter: Waiter) -> (u64, Option<Waiter>) {
        let ticket = ticket.unwrap_or_else(|| {
            self.last_ticket += 1;
            self.last_ticket
        });
        (ticket, self.waiters.insert(ticket, waiter))
    }

    pub(super) fn stop_waiting(&mut self, ticket: u64) -> Option<Waiter> {
        self.waiters.remove(&ticket)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let waiters = self.waiters.values().filter(|it| it.waker.is_some()).map(|it| it.until);
        waiters.chain(self.cache.poll_timeout()).min()
    }

    /// Its thread is going to sleep. Returns until when.
    pub(super) fn sleep(&mut self) -> Option<Instant> {
        self.sleeps_until = self.poll_timeout();
        self.sleeps_until
    }

    /// Whether its thread would sleep too long now. Told once.
    pub(super) fn is_sooner(&mut self) -> bool {
        let timeout = self.poll_timeout();
        let is_sooner = timeout.is_some_and(|at| self.sleeps_until.is_none_or(|it| at < it));
        if is_sooner {
            self.sleeps_until = timeout;
        }
        is_sooner
    }
}
