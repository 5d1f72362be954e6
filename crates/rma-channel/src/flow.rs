//! Flow control of a ring: the receiver writes its tail into a word of the sender's, the newest
//! value only and one write at a time.
//!
//! It is a plain WRITE, as one aligned word lands whole, and to write it twice changes nothing: one
//! that fails is made good by the next, as a later tail says all that an earlier one says. What is
//! told may be old, and never wrong.

use core::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};
use std::sync::Arc;

use rma_core::{
    executor::{Call, CallError, CallId, CallStatus, Piece},
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    receive_queue::ReceiveQueue,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use crate::{
    link::{Link, if_room},
    ring::{Position, WORD},
    terms::OpenError,
};

/// A word of this host's, zero, that `peer` may write: where a sender is told the tail.
pub(crate) fn tail_word(
    host: &dyn Gate,
    peer: Peer,
) -> Result<(RegisteredRegion, Grant), OpenError> {
    let word = region(host, Region::new(WORD as usize)?, Permissions::WRITE)?;
    let grant = host.grant(&word, peer, OpType::Write).map_err(OpenError::Host)?;
    Ok((word, grant))
}

/// Memory of an end, under a key of its own.
pub(crate) fn region(
    host: &dyn Gate,
    memory: impl Into<Arc<Region>>,
    permissions: Permissions,
) -> Result<RegisteredRegion, OpenError> {
    let key = host.key().map_err(OpenError::Host)?;
    host.register(memory.into(), key, permissions, None).map_err(OpenError::Host)
}

/// How long a receiver that has processed all there is waits for more before it tells its tail:
/// what comes meanwhile is told with it. A receiver that told each message at once had a WRITE
/// under way for every message of a sender that sends one at a time, and took three times as long
/// for one.
const LULL: Duration = Duration::from_micros(100);

/// How long a receiver whose tail rides on a message waits for word that this was processed, before
/// it tells the tail by itself: the other end may be taking no messages. Longer: who waits for room
/// there, and for nothing else, waits for longer. Shorter: a request that is worked on for so long
/// costs a WRITE.
const RIDE_MAX: Duration = Duration::from_millis(1);

/// The messages that the two ends of a duplex channel on one host have for each other. Each may be
/// in a thread of its own: a tail is sent along after all that was read of what is before it.
#[derive(Debug, Default)]
pub(crate) struct Rides {
    /// Up to where this host has processed what came.
    tail: AtomicU64,
    /// The newest tail that a message of this host carries.
    ridden: AtomicU64,
    /// The newest one that is known to have come to the other host.
    confirmed: AtomicU64,
    /// The tail that the newest message of the other host carried.
    heard: AtomicU64,
}

impl Rides {
    pub(crate) fn tail(&self) -> Position {
        Position::from_bits(self.tail.load(Acquire))
    }

    pub(crate) fn processed(&self, tail: Position) {
        self.tail.store(tail.to_bits(), Release);
    }

    pub(crate) fn ridden(&self) -> Position {
        Position::from_bits(self.ridden.load(Relaxed))
    }

    pub(crate) fn rode(&self, tail: Position) {
        self.ridden.store(tail.to_bits(), Relaxed);
    }

    pub(crate) fn confirm(&self, tail: Position) {
        self.confirmed.store(tail.to_bits(), Relaxed);
    }

    pub(crate) fn heard(&self) -> Position {
        Position::from_bits(self.heard.load(Relaxed))
    }

    pub(crate) fn hear(&self, tail: Position) {
        self.heard.store(tail.to_bits(), Relaxed);
    }
}

/// The later of two positions that are no later than `tail`.
const fn later(a: Position, b: Position, tail: Position) -> Position {
    if tail.since(a) < tail.since(b) { a } else { b }
}

/// Memory of an end, under a key of its own, whose WRITE_WITH_IMMs make events in `queue`.
pub(crate) fn region_with_events(
    host: &dyn Gate,
    memory: Region,
    permissions: Permissions,
    queue: &ReceiveQueue,
) -> Result<RegisteredRegion, OpenError> {
    let key = host.key().map_err(OpenError::Host)?;
    let region = host.register(Arc::new(memory), key, permissions, Some(queue));
    region.map_err(OpenError::Host)
}

/// The receiver's end: what tells the tail.
#[derive(Debug)]
pub(crate) struct Teller {
    /// For a WRITE of the sender's word.
    grant: Grant,
    /// A word of this host's, which the tail is sent from.
    word: RegisteredRegion,
    /// How much may be processed before the sender is told at once.
    every: u64,
    /// The position that was told, as far as is known.
    told: Position,
    /// The position that is being told, and the time since when.
    telling: Option<(CallId, Position, Instant)>,
    /// When the last one that was told was issued.
    issued: Option<Instant>,
    /// Whether the next tail is told at once, whatever it is.
    must: bool,
    /// All up to here is processed, and from when on there was nothing else.
    quiet: Option<(Position, Instant)>,
    /// Of a duplex channel: what rides.
    rides: Option<Arc<Rides>>,
    /// The position told when a tail rode that is not known to have come, and the time since when.
    riding: Option<(Position, Instant)>,
}

impl Teller {
    /// Makes a teller that tells an eighth of `capacity` at once: with a half, a sender that fills
    /// the ring waits for the one while the receiver waits for the other. `word` is a word of this
    /// host's.
    pub(crate) const fn new(grant: Grant, word: RegisteredRegion, capacity: u64) -> Self {
        Self {
            grant,
            word,
            every: capacity / 8,
            told: Position::ZERO,
            telling: None,
            issued: None,
            must: false,
            quiet: None,
            rides: None,
            riding: None,
        }
    }

    /// The same, who tells the first tail at once, whatever it is: the sender has not heard of this
    /// receiver.
    pub(crate) fn unheard(self) -> Self {
        Self { must: true, ..self }
    }

    /// Its tail rides on messages from now on.
    pub(crate) fn ride(&mut self, rides: Arc<Rides>) {
        self.rides = Some(rides);
    }

    /// Tells `tail` at once with the next poll, if it is news.
    pub(crate) fn hurry(&mut self, tail: Position) {
        self.must |= tail != self.told;
    }

    /// Returns the position told last, and when its op was issued; `None` if nothing was.
    pub(crate) fn told(&self) -> Option<(Position, Instant)> {
        self.issued.map(|issued| (self.told, issued))
    }

    /// When a tail must be told even if nothing comes.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let quiet = self.quiet.map(|(_, since)| since + LULL);
        let riding = self.riding.map(|(_, since)| since + RIDE_MAX);
        quiet.into_iter().chain(riding).min().filter(|_| self.telling.is_none())
    }

    /// The word that a tail is told from.
    pub(crate) fn word(host: &dyn Gate) -> Result<RegisteredRegion, OpenError> {
        region(host, Region::new(WORD as usize)?, Permissions::NONE)
    }

    /// Tells `tail` if it is time. `is_all`: nothing that has come is left to be processed.
    /// Returns how the last attempt failed, if it did; it is made again.
    pub(crate) fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        tail: Position,
        is_all: bool,
    ) -> Result<Option<CallStatus>, CallError> {
        let mut failed = None;
        if let Some((call, position, issued)) = self.telling {
            let Some(outcome) = link.take(call) else { return Ok(None) };
            self.telling = None;
            match outcome.status {
                CallStatus::Ok => {
                    self.told = later(position, self.told, tail);
                    (self.issued, self.must) = (Some(issued), false);
                }
                status => failed = Some(status),
            }
        }
        let news = tail.since(self.look_at_rides(now, tail));
        if news == 0 || !is_all {
            self.quiet = None;
        } else if self.quiet.is_none_or(|(at, _)| at != tail) {
            self.quiet = Some((tail, now));
        }
        let is_quiet = self.quiet.is_some_and(|(_, since)| now >= since + LULL);
        let is_late = self.riding.is_some_and(|(_, since)| now >= since + RIDE_MAX);
        if self.must || is_late || news > 0 && (news >= self.every || is_quiet) {
            // Only this end stores there, and no write is under way.
            let _ = self.word.store(0, tail.to_bits().to_le());
            let (grant, local) = (&self.grant, &self.word);
            let word = Piece { grant, remote_offset: 0, local, local_offset: 0, len: WORD };
            if let Some(call) = if_room(link.submit(now, &Call::of(&[word])))? {
                (self.telling, self.quiet, self.riding) = (Some((call, tail, now)), None, None);
            }
        }
        Ok(failed)
    }

    /// Takes what is known of tails that ride. Returns up to where no more has to be told, as it
    /// was, or rides.
    fn look_at_rides(&mut self, now: Instant, tail: Position) -> Position {
        let Some(rides) = &self.rides else { return self.told };
        let (ridden, confirmed) =
            (rides.ridden(), Position::from_bits(rides.confirmed.load(Relaxed)));
        self.told = later(confirmed, self.told, tail);
        let said = later(ridden, self.told, tail);
        if said == self.told {
            self.riding = None;
        } else if self.riding.is_none_or(|(told, _)| told != self.told) {
            self.riding = Some((self.told, now));
        }
        said
    }
}
