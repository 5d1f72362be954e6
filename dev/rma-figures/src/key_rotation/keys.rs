//! One process's keys of one region: what it holds, and its connection to the service, which it
//! turns itself.
//!
//! [`GrantCache`] decides what is fetched and when; here it is taken to the service and back.

use core::time::Duration;
use std::net::SocketAddr;

use rma_bench::error::PairError;
use rma_core::time::Instant;
use rma_keys::{
    cache::{GrantCache, RingId, Source},
    io::{
        client::{ClientLoop, Fetch, SourceId},
        clock,
    },
    name::RegionName,
    ops::OpSet,
    ring::{Holder, KeyedGrant, Standing},
    tls::credentials::Credentials,
};
use rma_xdp::OpType;

use crate::key_service::SERVER;

/// How long a fetch may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The keys of a process.
pub(super) struct Keys {
    pub(super) cache: GrantCache,
    source: Source,
    pub(super) ring: RingId,
    turns: ClientLoop,
    service: SourceId,
    fetch: Option<UnderWay>,
}

struct UnderWay {
    fetch: Fetch,
    number: u32,
}

impl Keys {
    /// Keys for READ of the region `name`, of which none are there yet.
    pub(super) fn open(
        credentials: &Credentials,
        address: SocketAddr,
        name: RegionName,
        (holder, seed): (Holder, u64),
    ) -> Result<Self, PairError> {
        let turns = ClientLoop::new(credentials.clone())?;
        let expected = SERVER.parse().expect("an identity");
        let service = turns.fetcher().source(vec![address], expected);
        let (cache, source, ring) = cache(holder, seed, name);
        Ok(Self { cache, source, ring, turns, service, fetch: None })
    }

    /// Forgets all keys, for those of another region of the same service.
    pub(super) fn turn_to(&mut self, name: RegionName, (holder, seed): (Holder, u64)) {
        (self.cache, self.source, self.ring) = cache(holder, seed, name);
        self.fetch = None;
    }

    /// The grant to go by, if there is one.
    ///
    /// # Errors
    /// If there will be none.
    pub(super) fn grant(&mut self, now: Instant) -> Result<Option<KeyedGrant>, PairError> {
        match self.cache.standing(now, self.ring) {
            Standing::Ready => Ok(self.cache.grant(now, self.ring, OpType::Read)),
            Standing::Waiting => Ok(None),
            Standing::GaveUp(why) => Err(why.into()),
        }
    }

    pub(super) const fn is_fetching(&self) -> bool {
        self.fetch.is_some()
    }

    /// Asks the service, if there is something to ask. Returns whether a fetch is under way.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        if self.fetch.is_none()
            && let Some(fetch) = self.cache.poll_fetch(now)
        {
            let number = fetch.number;
            let fetch = self.turns.fetcher().fetch(self.service, &fetch.request, PATIENCE);
            self.fetch = Some(UnderWay { fetch, number });
        }
        self.fetch.is_some()
    }

    /// Turns the connection, and takes what has come. Returns whether a fetch is over.
    ///
    /// # Errors
    /// If it brought nothing.
    pub(super) fn turn(&mut self, now: impl Fn() -> Instant) -> Result<bool, PairError> {
        self.turns.turn(clock::now());
        let Some(under_way) = &mut self.fetch else { return Ok(false) };
        let Some(outcome) = under_way.fetch.take() else { return Ok(false) };
        let number = under_way.number;
        self.fetch = None;
        self.cache.handle_reply(now(), self.source, number, outcome?);
        Ok(true)
    }
}

fn cache(holder: Holder, seed: u64, name: RegionName) -> (GrantCache, Source, RingId) {
    let mut cache = GrantCache::new(holder, seed);
    let source = cache.source();
    let ops = OpSet::NONE.with(OpType::Read);
    let ring = cache.region(source, name, ops).expect("there is room");
    (cache, source, ring)
}
