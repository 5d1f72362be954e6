//! The client's side of a number of rotations: one loop that issues, turns the engine, and looks
//! what has come.

use std::{collections::VecDeque, io::Write as _, net::TcpStream};

use rand::{Rng, rngs::StdRng};
use rma_xdp::{Grant, OpStatus, RegionKey, crypto::random_region_key, time::Clock};

use super::{
    By, Mailbox, NextGrant, OTHER, Party, READER, REGION_LEN, ROTATION, Rotations, TURNS_PER_LOOK,
    fetched,
};
use crate::{
    client::Client, error::PairError, failures::Failures, interrupt::Interrupt, timeline::Event,
};

/// Events that are kept of each rotation: some ops before it, and what follows.
const EVENTS: usize = 64;

/// Ops of the reader after it has recovered, before the next rotation is prepared.
const AFTER: u32 = 4;

/// The state of a run of rotations.
pub(super) struct Run<'a> {
    pub(super) client: &'a mut Client,
    pub(super) reader: &'a mut Party,
    pub(super) rotator: &'a mut Party,
    pub(super) other: &'a mut Party,
    pub(super) client_end: &'a mut TcpStream,
    pub(super) mailbox: &'a Mailbox,
    pub(super) random: &'a mut StdRng,
    pub(super) rotations: Rotations,
}

/// How far one rotation has come.
struct Progress {
    key: RegionKey,
    /// The grants under it.
    next: Grant,
    next_rekey: Grant,
    /// Reads, then turns, before it begins: at any moment of a read, not always at the same.
    reads_before: u32,
    turns_before: u32,
    /// When it began.
    began: Option<u64>,
    rotated: bool,
    /// When the first op that failed was issued, and the first that then succeeded.
    failed_at: Option<u64>,
    recovered_at: Option<u64>,
    reads_after: u32,
    /// Whether the next grant has been asked for.
    fetching: bool,
    /// Whether the reader has it.
    moved: bool,
    /// Failures in a row.
    failures: Failures,
    events: VecDeque<Event>,
}

impl Progress {
    fn note(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl Run<'_> {
    pub(super) fn all(mut self, count: u64, interrupt: &Interrupt) -> Result<Rotations, PairError> {
        for _ in 0..count {
            if interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
            self.one()?;
        }
        while self.reader.is_busy() || self.other.is_busy() {
            self.client.host.turn();
            let clock = &self.client.clock;
            let _ = (self.reader.poll(clock, READER), self.other.poll(clock, OTHER));
        }
        Ok(self.rotations)
    }

    /// One rotation, from some reads before it to some reads after it.
    fn one(&mut self) -> Result<(), PairError> {
        let key = random_region_key()?;
        let mut progress = Progress {
            key,
            next: self.reader.grant.under(&key),
            next_rekey: self.rotator.grant.under(&key),
            reads_before: self.random.random_range(8..32),
            turns_before: self.random.random_range(0..64),
            began: None,
            rotated: false,
            failed_at: None,
            recovered_at: None,
            reads_after: 0,
            fetching: false,
            moved: false,
            failures: Failures::default(),
            events: VecDeque::with_capacity(EVENTS),
        };
        let mut turns = 0_u32;
        while !progress.rotated || progress.reads_after < AFTER {
            self.issue(&mut progress)?;
            self.client.host.turn();
            turns = turns.wrapping_add(1);
            self.look_at_readers(&mut progress)?;
            if progress.fetching
                && turns.is_multiple_of(TURNS_PER_LOOK)
                && let Some(key) = fetched(self.client_end)?
            {
                self.reader.grant.key = key;
                (progress.fetching, progress.moved) = (false, true);
            }
            self.look_at_rotation(&mut progress)?;
        }
        self.rotator.grant = progress.next_rekey;
        if let (Some(failed_at), Some(recovered_at)) = (progress.failed_at, progress.recovered_at) {
            let gap = recovered_at - failed_at;
            self.rotations.gaps.record_nanos(gap);
            self.rotations.histories.push((gap, progress.events.into()));
        }
        Ok(())
    }

    fn issue(&mut self, progress: &mut Progress) -> Result<(), PairError> {
        let mut place = || self.random.random_range(0..REGION_LEN as u64 / 64);
        if !self.reader.is_busy() && !progress.fetching {
            self.reader.read(self.client, place())?;
        }
        if !self.other.is_busy() {
            self.other.read(self.client, place())?;
        }
        if progress.began.is_some() || progress.reads_before > 0 {
            return Ok(());
        }
        if progress.turns_before > 0 {
            progress.turns_before -= 1;
            return Ok(());
        }
        let now = self.client.clock.now().as_nanos();
        progress.began = Some(now);
        match self.rotations.by {
            By::Host => self.mailbox.put(progress.key),
            By::RekeyOp => {
                self.rotator.issued = now;
                self.rotator.portal.rekey(&self.rotator.grant, progress.key)?;
            }
        }
        Ok(())
    }

    fn look_at_readers(&mut self, progress: &mut Progress) -> Result<(), PairError> {
        let Self { client, reader, other, rotations, .. } = self;
        if let Some((status, event)) = reader.poll(&client.clock, READER) {
            progress.note(event);
            if status == OpStatus::Ok {
                progress.failures.ok(client.clock.now());
                progress.reads_before = progress.reads_before.saturating_sub(1);
                rotations.reads.record_nanos(event.to - event.from);
                if progress.moved {
                    progress.recovered_at.get_or_insert(event.from);
                    progress.reads_after += 1;
                } else {
                    // Whatever failed, the old key still works: that was not the rotation.
                    progress.failed_at = None;
                }
            } else {
                progress.failures.count(status, client.clock.now())?;
                rotations.failed += 1;
                let refused = status == OpStatus::RemoteAuthenticationFailure;
                rotations.failed_otherwise += u64::from(!refused);
                // Before it begins there can be an op from the time of the last, if that had to be
                // repeated.
                if progress.began.is_some() {
                    progress.failed_at.get_or_insert(event.from);
                    if refused && rotations.next_grant == NextGrant::Beforehand {
                        (reader.grant, progress.moved) = (progress.next, true);
                    } else if refused {
                        progress.fetching = true;
                        self.client_end.write_all(&[1])?;
                    }
                }
            }
        }
        if let Some((status, event)) = other.poll(&client.clock, OTHER) {
            progress.note(event);
            rotations.other_ops += 1;
            rotations.other_failed += u64::from(status != OpStatus::Ok);
            rotations.other_refused += u64::from(status == OpStatus::RemoteAuthenticationFailure);
        }
        Ok(())
    }

    fn look_at_rotation(&mut self, progress: &mut Progress) -> Result<(), PairError> {
        let Some(from) = progress.began.filter(|_| !progress.rotated) else { return Ok(()) };
        match self.rotations.by {
            By::Host => {
                progress.rotated = !self.mailbox.is_full();
                if progress.rotated {
                    let to = self.client.clock.now().as_nanos();
                    progress.note(Event { row: ROTATION, from, to, ok: true });
                }
            }
            By::RekeyOp => {
                let Some((status, event)) = self.rotator.poll(&self.client.clock, ROTATION) else {
                    return Ok(());
                };
                progress.note(event);
                progress.rotated = status == OpStatus::Ok;
                if !progress.rotated {
                    progress.failures.count(status, self.client.clock.now())?;
                    if status == OpStatus::RemoteAuthenticationFailure {
                        // It was not known whether the key had been installed. It has: once more
                        // does no harm.
                        self.rotator.grant = progress.next_rekey;
                    }
                    self.rotator.issued = event.to;
                    self.rotator.portal.rekey(&self.rotator.grant, progress.key)?;
                }
            }
        }
        Ok(())
    }
}
