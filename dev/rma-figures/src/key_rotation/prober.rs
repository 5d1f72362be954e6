//! One client: it reads 64 bytes again and again, each time under the grant that its keys tell, and
//! turns its connection to the service itself while it waits for a key.

use std::collections::VecDeque;

use rma_bench::{error::PairError, failures::Failures};
use rma_core::time::Instant;
use rma_keys::{epoch::Epoch, ring::Verdict};
use rma_xdp::{OpStatus, Portal, RegisteredRegion, time::Clock};

use super::{
    history::{Deed, What},
    keys::Keys,
    scene::{Rotations, SIZE},
};

/// Deeds that are kept from before a rotation.
const BEFORE: usize = 16;

/// Deeds that are kept of a rotation. Those who are back first read on while the last one fetches.
const DEEDS: usize = 1024;

pub(super) struct Prober {
    pub(super) keys: Keys,
    portal: Portal,
    at: At,
    /// The region in which its data lands.
    sink: RegisteredRegion,
    /// The epoch of its last read that succeeded.
    pub(super) proven: u64,
    /// When its first op that failed was issued, if none has succeeded since; and how long it has
    /// waited for fetches since.
    failed: Option<(Instant, u64)>,
    failures: Failures,
    pub(super) deeds: VecDeque<Deed>,
}

/// The event that it waits for.
#[derive(Clone, Copy)]
enum At {
    /// Nothing: it may read.
    Idle,
    /// Its read under the key of an epoch, and since when.
    Reading(Epoch, Instant),
    /// A key, and since when.
    Waiting(Instant),
}

impl Prober {
    pub(super) fn new(keys: Keys, portal: Portal, sink: RegisteredRegion) -> Self {
        let deeds = VecDeque::with_capacity(DEEDS);
        let (at, failures) = (At::Idle, Failures::default());
        Self { keys, portal, at, sink, proven: 0, failed: None, failures, deeds }
    }

    pub(super) const fn is_reading(&self) -> bool {
        matches!(self.at, At::Reading(..))
    }

    /// Whether its read is under the key of this epoch or an earlier one.
    pub(super) fn reads_under(&self, number: u64) -> bool {
        matches!(self.at, At::Reading(epoch, _) if epoch.number <= number)
    }

    /// Issues the next read at `place`, if none is under way and there is a key.
    pub(super) fn issue(&mut self, clock: &impl Clock, place: u64) -> Result<(), PairError> {
        if !matches!(self.at, At::Idle) {
            return Ok(());
        }
        let now = clock.now();
        let Some(keyed) = self.keys.grant(now)? else {
            self.at = At::Waiting(now);
            return Ok(());
        };
        self.portal.read(&keyed.grant, place * u64::from(SIZE), &self.sink, 0, SIZE)?;
        self.at = At::Reading(keyed.epoch, now);
        Ok(())
    }

    /// Takes the completion of its read, if it is there. Returns the number of the epoch whose key
    /// was refused, if it now waits for another.
    pub(super) fn poll(
        &mut self,
        clock: &impl Clock,
        (rotations, row): (&mut Rotations, usize),
        all_probe: bool,
    ) -> Result<Option<u64>, PairError> {
        let At::Reading(epoch, issued) = self.at else { return Ok(None) };
        let Some(completion) = self.portal.poll() else { return Ok(None) };
        let (status, now) = (completion.status, clock.now());
        self.at = At::Idle;
        let what = if status == OpStatus::Ok { What::Read } else { What::Refused };
        self.note(Deed { row, what, from: issued, to: now });
        let verdict = self.keys.cache.on_outcome(now, self.keys.ring, epoch, status);
        if status == OpStatus::Ok {
            self.failures.ok(now);
            self.proven = epoch.number;
            if all_probe {
                rotations.reads.record(now.since(issued));
            }
            if let Some((since, fetching)) = self.failed.take() {
                let gap = issued.nanos_since(since);
                rotations.gaps.record_nanos(gap);
                rotations.extra.record_nanos(gap.saturating_sub(fetching));
            }
            return Ok(None);
        }
        if status == OpStatus::RemoteAuthenticationFailure {
            // It is over when both sides have the new key. How many ops that takes, a busy machine
            // decides.
            self.failures.count_passing(status, now)?;
            rotations.refused += 1;
            self.failed.get_or_insert((issued, 0));
        } else {
            self.failures.count(status, now)?;
            rotations.failed_otherwise += 1;
        }
        match verdict {
            Verdict::Pass | Verdict::Retry => Ok(None),
            Verdict::GiveUp(why) => Err(why.into()),
            Verdict::Wait => {
                self.at = At::Waiting(now);
                Ok(Some(epoch.number))
            }
        }
    }

    /// Asks the service what there is to ask, and turns the connection. Returns whether a fetch is
    /// still under way.
    pub(super) fn turn(
        &mut self,
        clock: &impl Clock,
        (rotations, row): (&mut Rotations, usize),
    ) -> Result<bool, PairError> {
        self.keys.ask(clock.now());
        if !self.keys.turn(|| clock.now())? {
            return Ok(self.keys.is_fetching());
        }
        if let At::Waiting(from) = self.at {
            let to = clock.now();
            self.note(Deed { row, what: What::Fetch, from, to });
            rotations.fetching.record(to.since(from));
            if let Some((_, fetching)) = &mut self.failed {
                *fetching += to.nanos_since(from);
            }
            self.at = At::Idle;
        }
        Ok(false)
    }

    /// Forgets what it did before the last rotation.
    pub(super) fn begin(&mut self) {
        let before = self.deeds.len().saturating_sub(BEFORE);
        self.deeds.drain(..before);
    }

    fn note(&mut self, deed: Deed) {
        if self.deeds.len() < DEEDS {
            self.deeds.push_back(deed);
        }
    }
}
