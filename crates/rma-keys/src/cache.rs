//! The rings of one process: what it holds of all regions of all services, and when which service
//! is asked for what, without I/O.
//!
//! An application asks for a region of a [`Source`] by name, goes by the [`KeyedGrant`]s that
//! it is given, and says how its ops end. Whoever does the I/O takes requests from
//! [`GrantCache::poll_fetch`] to their services, and tells what came back.
//!
//! Invariants: the number of rings is bounded, and none is given up that somebody uses; a service
//! is asked one request at a time, with all that is wanted of it, whoever waits for it.

mod asking;
mod ring_id;

use std::collections::BTreeMap;

use rma_core::{
    op::{OpStatus, OpType},
    process::Forked,
    time::Instant,
};

use crate::{
    epoch::Epoch,
    jitter::Jitter,
    limits::{REGIONS_MAX, RINGS_MAX},
    message::{
        reply::Reply,
        request::{Request, Wanted},
    },
    name::RegionName,
    ops::OpSet,
    ring::{Holder, KeyRing, KeyedGrant, Learned, Standing, Verdict},
};
use asking::{Asking, Ended};
pub use ring_id::RingId;

/// One service of a cache: names of regions belong to it. Where it is and who it must be, knows who
/// does the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(u32);

/// A request to take to a service.
#[derive(Debug)]
pub struct Fetch {
    /// To which.
    pub source: Source,
    /// The number that links the request with its answer. It counts on from request to request of a
    /// service, and wraps after 2^32.
    pub number: u32,
    /// The request to send.
    pub request: Request,
}

/// The reason why there is no ring for a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// All rings are in use.
    #[error("{name} would be region {} of this cache; release others, or make a larger one", rings + 1)]
    Full {
        /// How many rings it has.
        rings: usize,
        /// The region that has no room.
        name: RegionName,
    },
    /// Keys are for at least one type of op.
    #[error("keys of {name} for no type of op; say what is to be done with it")]
    NoOps {
        /// The region.
        name: RegionName,
    },
    /// The cache is that of the process which this one was forked from.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Requests that were to be taken to a service.
    pub fetches: u64,
    /// Requests that ended without an answer, as their connection did.
    pub lost: u64,
    /// Replies to other requests than the one that was waited for: they came late, or twice.
    pub unasked: u64,
    /// Requests that the service turned away.
    pub refused: u64,
    /// Regions of which another key has come.
    pub renewed: u64,
    /// Regions whose keys were refused, of which the service knew no others: forged notices, most
    /// often.
    pub spurious: u64,
    /// Grants that were used beyond their time, as no others had come.
    pub expired: u64,
}

#[derive(Debug)]
struct Place {
    source: Source,
    name: RegionName,
    ops: OpSet,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    ring: KeyRing,
    users: u32,
}

/// The keys of one process.
#[derive(Debug)]
pub struct GrantCache {
    holder: Holder,
    sources: Vec<Asking>,
    rings: Vec<(u32, Option<Entry>)>,
    by_place: BTreeMap<(Source, RegionName, OpSet), RingId>,
    rings_max: usize,
    jitter: Jitter,
    counters: CacheCounters,
}

impl GrantCache {
    /// A cache without regions, for the keys of `holder`. `seed` is what random parts of waiting
    /// times begin with.
    #[must_use]
    pub const fn new(holder: Holder, seed: u64) -> Self {
        Self::with_rings(holder, seed, RINGS_MAX)
    }

    /// [`GrantCache::new`], for so many regions at most.
    #[must_use]
    pub const fn with_rings(holder: Holder, seed: u64, rings_max: usize) -> Self {
        Self {
            holder,
            sources: Vec::new(),
            rings: Vec::new(),
            by_place: BTreeMap::new(),
            rings_max,
            jitter: Jitter(seed),
            counters: CacheCounters {
                fetches: 0,
                lost: 0,
                unasked: 0,
                refused: 0,
                renewed: 0,
                spurious: 0,
                expired: 0,
            },
        }
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// The client whose keys it holds.
    #[must_use]
    pub const fn holder(&self) -> Holder {
        self.holder
    }

    /// Another service.
    pub fn source(&mut self) -> Source {
        self.sources.push(Asking::default());
        Source(self.sources.len() as u32 - 1)
    }

    /// A region of `source`, for ops of these types. Nothing is asked before somebody wants to use
    /// it. Whoever asks for the same again uses the same ring.
    ///
    /// # Errors
    /// If all rings are in use, or it is for no type of op.
    pub fn region(
        &mut self,
        source: Source,
        name: RegionName,
        ops: OpSet,
    ) -> Result<RingId, CacheError> {
        if ops.is_empty() {
            return Err(CacheError::NoOps { name });
        }
        let place = (source, name, ops);
        if let Some(&id) = self.by_place.get(&place) {
            self.entry_mut(id).expect("what is found by its place is there").users += 1;
            self.wake(id);
            return Ok(id);
        }
        let Some(index) = self.free() else {
            return Err(CacheError::Full { rings: self.rings_max, name: place.1 });
        };
        let seed = self.jitter.next();
        let (generation, entry) = &mut self.rings[index];
        let id = RingId { index: index as u32, generation: *generation };
        let (source, name, ops) = place.clone();
        let place_of = Place { source, name, ops };
        *entry = Some(Entry { place: place_of, ring: KeyRing::new(seed), users: 1 });
        self.by_place.insert(place, id);
        Ok(id)
    }

    /// Of which region of which service a ring has the keys. `None` if it was released, and another
    /// has its place.
    #[must_use]
    pub fn place(&self, id: RingId) -> Option<(Source, &RegionName)> {
        let Place { source, name, .. } = &self.entry(id)?.place;
        Some((*source, name))
    }

    /// Gives a ring back. Its keys are kept for whoever asks for the same region, and not renewed,
    /// until there is no room for another.
    pub fn release(&mut self, id: RingId) {
        if let Some(entry) = self.entry_mut(id) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    /// A place for a ring: a new one, or that of one which nobody uses.
    fn free(&mut self) -> Option<usize> {
        if self.rings.len() < self.rings_max {
            self.rings.push((0, None));
            return Some(self.rings.len() - 1);
        }
        let is_unused = |entry: &Option<Entry>| entry.as_ref().is_none_or(|it| it.users == 0);
        let index = self.rings.iter().position(|(_, entry)| is_unused(entry))?;
        let (generation, entry) = &mut self.rings[index];
        *generation = generation.wrapping_add(1);
        if let Some(Entry { place: Place { source, name, ops }, .. }) = entry.take() {
            self.by_place.remove(&(source, name, ops));
        }
        Some(index)
    }

    fn entry(&self, id: RingId) -> Option<&Entry> {
        let (generation, entry) = self.rings.get(id.index as usize)?;
        entry.as_ref().filter(|_| *generation == id.generation)
    }

    fn entry_mut(&mut self, id: RingId) -> Option<&mut Entry> {
        let (generation, entry) = self.rings.get_mut(id.index as usize)?;
        entry.as_mut().filter(|_| *generation == id.generation)
    }

    /// The grant to go by. Without one, see [`GrantCache::standing`].
    pub fn grant(&mut self, now: Instant, id: RingId, op_type: OpType) -> Option<KeyedGrant> {
        let grant = self.entry(id)?.ring.grant(op_type)?;
        self.counters.expired += u64::from(grant.expires <= now);
        Some(grant)
    }

    /// Whether there is a key to go by. Where there is none, it is fetched.
    ///
    /// # Panics
    /// If the ring was released, and another has its place.
    pub fn standing(&mut self, now: Instant, id: RingId) -> Standing {
        self.with_ring(id, |ring| ring.standing(now))
    }

    /// An op under the key of `epoch` has ended so: what is to become of it.
    ///
    /// # Panics
    /// As [`GrantCache::standing`].
    pub fn on_outcome(
        &mut self,
        now: Instant,
        id: RingId,
        epoch: Epoch,
        status: OpStatus,
    ) -> Verdict {
        let before = self.revision(id);
        let verdict = self.with_ring(id, |ring| ring.on_outcome(now, epoch, status));
        if status == OpStatus::RemoteAuthenticationFailure
            && verdict == Verdict::Wait
            && self.revision(id) != before
        {
            let (source, _) = self.place(id).expect("a ring that is used is there");
            self.sources[source.0 as usize].refused();
        }
        verdict
    }

    /// A service whose region has refused all keys that there are, as an owner does that has
    /// started again: a connection that is being waited for is worth a try now. Each such refusal
    /// is told once, and a ring has one between two answers of its service, forged or not.
    pub fn poll_refused(&mut self) -> Option<Source> {
        let at = self.sources.iter_mut().position(Asking::take_refused)?;
        Some(Source(at as u32))
    }

    /// Changes whenever [`GrantCache::grant`] or [`GrantCache::standing`] may answer something
    /// else, time aside.
    #[must_use]
    pub fn revision(&self, id: RingId) -> u64 {
        self.entry(id).map_or(u64::MAX, |it| it.ring.revision())
    }

    fn with_ring<R>(&mut self, id: RingId, act: impl FnOnce(&mut KeyRing) -> R) -> R {
        let entry = self.entry_mut(id).expect("a ring that is used is there");
        let result = act(&mut entry.ring);
        let (source, due) = (entry.place.source, entry.ring.due());
        if let Some((want, at)) = due {
            let asking = &mut self.sources[source.0 as usize];
            asking.wake(asking.may_ask_about(want, at));
        }
        result
    }

    /// A request to take to its service, if there is one. Its end is what
    /// [`GrantCache::handle_reply`] or [`GrantCache::handle_lost`] waits for; until then, nothing
    /// else is asked of that service.
    pub fn poll_fetch(&mut self, now: Instant) -> Option<Fetch> {
        (0..self.sources.len() as u32).find_map(|it| self.fetch_of(now, Source(it)))
    }

    fn fetch_of(&mut self, now: Instant, source: Source) -> Option<Fetch> {
        let asking = &mut self.sources[source.0 as usize];
        if !asking.may_ask(now) {
            return None;
        }
        let mut due = Vec::new();
        asking.sleep();
        for (index, (generation, entry)) in self.rings.iter().enumerate() {
            let Some(Entry { place, ring, users: 1.. }) = entry else { continue };
            let Some((want, at)) = ring.due() else { continue };
            if place.source == source {
                let may_ask_at = asking.may_ask_about(want, at);
                if may_ask_at <= now {
                    let id = RingId { index: index as u32, generation: *generation };
                    due.push((core::cmp::Reverse(want), at, id));
                } else {
                    asking.wake(may_ask_at);
                }
            }
        }
        if due.is_empty() {
            return None;
        }
        // The most urgent first, and of these who has waited longest.
        due.sort_unstable();
        if due.len() > REGIONS_MAX {
            due.truncate(REGIONS_MAX);
            asking.wake(now);
        }
        let ids: Vec<_> = due.into_iter().map(|(.., id)| id).collect();
        let number = asking.begin(ids.clone());
        let regions = ids.into_iter().map(|id| self.ask(id)).collect();
        self.counters.fetches += 1;
        let Holder { initiators, pid } = self.holder;
        Some(Fetch { source, number, request: Request { initiators, pid, regions } })
    }

    fn ask(&mut self, id: RingId) -> Wanted {
        let entry = self.entry_mut(id).expect("found a moment ago");
        entry.ring.ask();
        let Place { name, ops, .. } = &entry.place;
        Wanted { name: name.clone(), ops: *ops, have: entry.ring.have() }
    }

    /// Handles the reply of a service to request `number`. A late or repeated answer, to a request
    /// that is no longer waited for, is counted and changes nothing.
    pub fn handle_reply(&mut self, now: Instant, source: Source, number: u32, reply: Reply) {
        let Some(ids) = self.asked(source, number) else {
            self.counters.unasked += 1;
            return;
        };
        let ended = match reply {
            Reply::Answers(answers) if answers.len() == ids.len() => {
                let mut spurious = 0;
                for (id, answer) in ids.into_iter().zip(answers) {
                    let holder = self.holder;
                    let Some(entry) = self.entry_mut(id) else { continue };
                    let learned = entry.ring.handle_answer(now, answer, &holder);
                    self.counters.renewed += u64::from(learned == Learned::New);
                    spurious += u32::from(learned == Learned::Spurious);
                    self.wake(id);
                }
                self.counters.spurious += u64::from(spurious);
                Ended::Answered { spurious }
            }
            Reply::Answers(_) => return self.lose(now, source, ids),
            Reply::Refused(refusal) => {
                self.counters.refused += 1;
                let ended = Ended::of(&refusal);
                for id in ids {
                    let Some(entry) = self.entry_mut(id) else { continue };
                    match ended {
                        Ended::Hopeless(why) => drop(entry.ring.give_up(now, why)),
                        _ => entry.ring.unask(now),
                    }
                    self.wake(id);
                }
                ended
            }
        };
        self.sources[source.0 as usize].end(now, ended, &mut self.jitter);
    }

    /// A request has ended without an answer, as its connection did, or took too long.
    pub fn handle_lost(&mut self, now: Instant, source: Source, number: u32) {
        if let Some(ids) = self.asked(source, number) {
            self.lose(now, source, ids);
        }
    }

    fn lose(&mut self, now: Instant, source: Source, ids: Vec<RingId>) {
        self.counters.lost += 1;
        for id in ids {
            if let Some(entry) = self.entry_mut(id) {
                entry.ring.unask(now);
            }
            self.wake(id);
        }
        self.sources[source.0 as usize].end(now, Ended::Lost, &mut self.jitter);
    }

    /// The connection to a service has ended, with or without a request under way: the service may
    /// have started again, so what is held of its regions is checked.
    pub fn handle_disconnected(&mut self, now: Instant, source: Source) {
        for (_, entry) in &mut self.rings {
            if let Some(Entry { place, ring, .. }) = entry
                && place.source == source
            {
                ring.handle_lost(now);
            }
        }
        self.sources[source.0 as usize].wake(now);
    }

    /// The process has other names now: all keys are forgotten, and fetched anew where they are in
    /// use. Answers that are on their way are for who it was.
    pub fn rebind(&mut self, now: Instant, holder: Holder) {
        self.holder = holder;
        self.rings.iter_mut().filter_map(|(_, it)| it.as_mut()).for_each(|it| it.ring.forget());
        for asking in &mut self.sources {
            asking.abandon();
            asking.wake(now);
        }
    }

    /// When [`GrantCache::poll_fetch`] may have something, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sources.iter().filter_map(Asking::poll_timeout).min()
    }

    fn asked(&mut self, source: Source, number: u32) -> Option<Vec<RingId>> {
        self.sources.get_mut(source.0 as usize)?.asked(number)
    }

    fn wake(&mut self, id: RingId) {
        if self.entry(id).is_some() {
            self.with_ring(id, |_| ());
        }
    }
}
