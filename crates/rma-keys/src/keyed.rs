//! Transfers whose keys change under them: a CommandExecutor that goes by the keys of a
//! [`GrantCache`], without I/O.
//!
//! A call names regions by their rings, and not by grants. When an op of it is refused as its key
//! has changed, the call goes on with *the bytes that are missing*, under the next grant and inside
//! its deadline. So the application sees a rotation as a delay. A write may be issued again, as an
//! op that was reported as failed changes nothing any more (P2). If that grant is of another
//! region, as the owner has started again or has published another under the name, the call begins
//! anew there: no transfer is put together from two regions.
//!
//! What it is not: it fetches nothing, that is the driver's with [`GrantCache::poll_fetch`]; and it
//! makes no call that publishes, as an op of that kind is not to be repeated blindly.
//!
//! Invariants: each call has one outcome, in whose coordinates each byte of it is transferred or
//! told as missing; a call waits for [`CALL_FETCHES`] fetches at most, and then must get on.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use rma_core::{
    addr::HostAddr,
    executor::{
        Call, CallError, CallId, CallStatus, CommandExecutor, Missing, Outcome, PIECES_MAX, Piece,
        RetryPolicy,
    },
    grant::Grant,
    op::{ClassOfService, OpStatus, OpType},
    region::{RegionId, RegisteredRegion},
    time::Instant,
};

use crate::{
    cache::{GrantCache, RingId},
    epoch::{Epoch, Life},
    limits::{CALL_FETCHES, KEYS_WAIT_MAX, SILENCE},
    ring::{GiveUp, KeyedGrant, Standing, Verdict},
};

/// A run of bytes that is one both in a remote region, which a ring stands for, and in a local one.
#[derive(Clone, Debug)]
pub struct KeyedPiece {
    /// The remote region.
    pub ring: RingId,
    /// The offset in the region, in bytes.
    pub remote_offset: u64,
    /// The region that a read's data lands in, or a write's comes from.
    pub local: RegisteredRegion,
    /// The offset in `local`, in bytes.
    pub local_offset: u64,
    /// How many bytes; at least one.
    pub len: u64,
}

/// One read or write, as [`Call`].
#[derive(Clone, Debug)]
pub struct KeyedCall {
    /// The type of its ops: READ or WRITE.
    pub op_type: OpType,
    /// The pieces to transfer. All regions are of one host.
    pub pieces: Vec<KeyedPiece>,
    /// As [`Call::class`].
    pub class: Option<ClassOfService>,
    /// As [`Call::retry`]; what is about keys aside.
    pub retry: RetryPolicy,
    /// When to give up, keys or no keys. `None`: as [`Call::deadline`] says, and after ten seconds
    /// without a key.
    pub deadline: Option<Instant>,
}

/// The name of a call of this executor. None comes twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyedCallId(u64);

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyedStatus {
    /// As a call of a [`CommandExecutor`] does.
    Ended(CallStatus),
    /// There is no key to go on with.
    GaveUp(GiveUp),
    /// A key has not come before the call's deadline. Which region of which service it is of, and
    /// what hinders that, says [`KeyCache::late`](crate::io::key_cache::KeyCache::late), or, where
    /// something else fetches, [`GrantCache::place`].
    Late {
        /// The ring of the key.
        ring: RingId,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The call cannot be right, which was known only when its regions were.
    Refused(CallError),
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct KeyedOutcome {
    /// Of which call.
    pub call: KeyedCallId,
    /// The status that it ended with.
    pub status: KeyedStatus,
    /// How many bytes were transferred, since it last began anew.
    pub bytes_done: u64,
    /// How often it went on under another grant.
    pub rekeyed: u32,
    /// The pieces that were not transferred, in the call's own pieces. Empty if the call is OK, and
    /// only then.
    pub missing: Vec<Missing>,
}

/// A part of a call that is not transferred, as far as is known.
#[derive(Clone, Debug)]
struct Part {
    /// Of which of the call's pieces, and where in that.
    of: (usize, u64),
    piece: KeyedPiece,
    tried: Option<OpStatus>,
}

/// A call that is not over.
#[derive(Debug)]
struct Running {
    call: KeyedCall,
    /// The parts: first those under way, in the order of the executor's call; then what waits.
    parts: Vec<Part>,
    /// The keys that the parts under way were asked under.
    under: Vec<Asked>,
    bytes_done: u64,
    persistence: Persistence,
    /// Since when it has waited for a key.
    waits_since: Instant,
}

impl Running {
    /// When it is given up while it waits.
    fn deadline(&self) -> Instant {
        self.call.deadline.unwrap_or(self.waits_since + KEYS_WAIT_MAX)
    }

    /// Begins anew with another region: all bytes are missing again.
    fn begin_anew(&mut self) {
        // The region in which a read's data lands has changed, whatever op is next.
        let tried = self.parts.iter().find_map(|part| part.tried);
        self.parts = parts_of(&self.call, tried);
        self.bytes_done = 0;
    }
}

/// A [`CommandExecutor`] whose calls outlast rotations.
///
/// It has the executor to itself. Its methods take the cache that its rings are of.
#[derive(Debug)]
pub struct KeyedExecutor {
    executor: CommandExecutor,
    running: BTreeMap<KeyedCallId, Running>,
    under_way: BTreeMap<CallId, KeyedCallId>,
    /// Calls that wait for a key, or for room.
    waiting: VecDeque<KeyedCallId>,
    over: VecDeque<KeyedOutcome>,
    last: u64,
}

impl KeyedExecutor {
    /// Over `executor`, of which nothing may be under way.
    ///
    /// # Panics
    /// If it has calls.
    pub fn new(executor: CommandExecutor) -> Self {
        assert_eq!(executor.calls(), 0, "it has the executor to itself");
        Self {
            executor,
            running: BTreeMap::new(),
            under_way: BTreeMap::new(),
            waiting: VecDeque::new(),
            over: VecDeque::new(),
            last: 0,
        }
    }

    /// The executor, to wait for its completions.
    pub const fn executor(&self) -> &CommandExecutor {
        &self.executor
    }

    /// Takes a call. What is wrong with it is told by its outcome.
    ///
    /// # Panics
    /// If a ring of it was released, now or before it is over.
    pub fn submit(&mut self, now: Instant, cache: &mut GrantCache, call: KeyedCall) -> KeyedCallId {
        self.last += 1;
        let id = KeyedCallId(self.last);
        let running = Running {
            parts: parts_of(&call, None),
            call,
            under: Vec::new(),
            bytes_done: 0,
            persistence: Persistence::default(),
            waits_since: now,
        };
        self.running.insert(id, running);
        self.issue(now, cache, id);
        id
    }

    /// Takes the completions that there are, issues what may be issued, and goes on with what waits
    /// for keys. Returns how much there was to do.
    pub fn poll(&mut self, now: Instant, cache: &mut GrantCache) -> usize {
        let work = self.executor.poll(now);
        self.take_outcomes(now, cache);
        // Each once: those that still wait go to the end.
        for _ in 0..self.waiting.len() {
            let Some(id) = self.waiting.pop_front() else { break };
            self.issue(now, cache, id);
        }
        // Ops that go on, at once.
        let more = self.executor.poll(now);
        self.take_outcomes(now, cache);
        work + more
    }

    fn take_outcomes(&mut self, now: Instant, cache: &mut GrantCache) {
        while let Some(outcome) = self.executor.poll_outcome() {
            if let Some(id) = self.under_way.remove(&outcome.call) {
                self.end(now, cache, id, &outcome);
            }
        }
    }

    /// When [`KeyedExecutor::poll`] has something to do if nothing comes, neither a completion nor
    /// a key.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.waiting.iter().filter_map(|id| self.running.get(id));
        let waits = waits.map(Running::deadline);
        waits.chain(self.executor.poll_timeout()).min()
    }

    /// The outcome of a call that is over.
    pub fn poll_outcome(&mut self) -> Option<KeyedOutcome> {
        self.over.pop_front()
    }

    /// Issues what is missing of a call, or has it wait.
    fn issue(&mut self, now: Instant, cache: &mut GrantCache, id: KeyedCallId) {
        let Some(running) = self.running.get_mut(&id) else { return };
        let (deadline, waited) = (running.deadline(), now.since(running.waits_since));
        let Running { call, parts, .. } = running;
        let first = &parts[..parts.len().min(PIECES_MAX)];
        let mut grants: Vec<KeyedGrant> = Vec::with_capacity(first.len());
        for part in first {
            match cache.standing(now, part.piece.ring) {
                Standing::Ready => {}
                Standing::Waiting if deadline <= now => {
                    let ring = part.piece.ring;
                    return self.finish(id, KeyedStatus::Late { ring, waited });
                }
                Standing::Waiting => return self.waiting.push_back(id),
                Standing::GaveUp(why) => return self.finish(id, KeyedStatus::GaveUp(why)),
            }
            match cache.grant(now, part.piece.ring, call.op_type) {
                Some(grant) => grants.push(grant),
                // The ring is for other ops.
                None => return self.finish(id, KeyedStatus::GaveUp(GiveUp::Denied)),
            }
        }
        let asked: Vec<Asked> = first
            .iter()
            .zip(&grants)
            .map(|(part, keyed)| Asked::of(part.piece.ring, keyed, part.piece.len))
            .collect();
        if running.persistence.begins_anew(&asked) {
            running.begin_anew();
            return self.issue(now, cache, id);
        }
        let pieces: Vec<Piece<'_>> = first
            .iter()
            .zip(&grants)
            .map(|(part, keyed)| Piece {
                grant: &keyed.grant,
                remote_offset: part.piece.remote_offset,
                local: &part.piece.local,
                local_offset: part.piece.local_offset,
                len: part.piece.len,
            })
            .collect();
        let of_call = Call::of(&pieces).with(|it| {
            (it.class, it.retry, it.deadline) = (call.class, call.retry, call.deadline);
        });
        match self.executor.submit(now, &of_call) {
            Ok(submitted) => {
                running.under = asked;
                self.under_way.insert(submitted, id);
            }
            Err(CallError::TooManyCalls { .. }) if running.deadline() > now => {
                self.waiting.push_back(id);
            }
            Err(error) => self.finish(id, KeyedStatus::Refused(error)),
        }
    }

    //= 1rma#5.2-reactive
    /// A call of the executor is over: what is missing goes on, or the whole is over.
    fn end(&mut self, now: Instant, cache: &mut GrantCache, id: KeyedCallId, outcome: &Outcome) {
        let Some(running) = self.running.get_mut(&id) else { return };
        running.bytes_done += outcome.bytes_done;
        let under = core::mem::take(&mut running.under);
        let rest = running.parts.split_off(under.len());
        let was = core::mem::take(&mut running.parts);
        let verdict = tell(now, cache, &under, outcome);
        running.parts = outcome.missing.iter().map(|missing| missing_of(&was, missing)).collect();
        running.parts.extend(rest);
        if running.parts.is_empty() {
            return self.finish(id, KeyedStatus::Ended(outcome.status));
        }
        let goes_on = running.persistence.goes_on(&under, outcome, verdict);
        running.waits_since = now;
        match goes_on {
            Ok(()) => self.issue(now, cache, id),
            Err(status) => self.finish(id, status),
        }
    }

    fn finish(&mut self, id: KeyedCallId, status: KeyedStatus) {
        let Some(Running { parts, bytes_done, persistence, .. }) = self.running.remove(&id) else {
            return;
        };
        let missing = parts.into_iter().map(|part| {
            let Part { of: (piece, offset), piece: KeyedPiece { len, .. }, tried } = part;
            Missing { piece, offset, len, tried }
        });
        let missing = Missing::in_order(missing.collect());
        let rekeyed = persistence.rekeyed;
        self.over.push_back(KeyedOutcome { call: id, status, bytes_done, rekeyed, missing });
    }
}

/// The key that one piece of a call was asked under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The ring of the key.
    pub ring: RingId,
    /// The epoch of the key.
    pub epoch: Epoch,
    /// How many bytes of the piece were asked for.
    pub len: u64,
    /// Of which host.
    pub responder: HostAddr,
    /// Of which of its regions.
    pub region: RegionId,
}

impl Asked {
    /// So many bytes, under this grant of that ring.
    #[must_use]
    pub const fn of(ring: RingId, keyed: &KeyedGrant, len: u64) -> Self {
        let KeyedGrant { grant: Grant { responder, region, .. }, epoch, .. } = *keyed;
        Self { ring, epoch, len, responder, region }
    }

    const fn home(&self) -> Home {
        Home { responder: self.responder, region: self.region, life: self.epoch.life }
    }
}

/// The memory that a ring stands for at a time. A host that starts again gives its RegionIds anew,
/// from the same number on, so the life of its service is part of it. A service that started again
/// alone looks the same, and costs a call that was under way its bytes once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Home {
    responder: HostAddr,
    region: RegionId,
    life: Life,
}

/// How often a call has gone on for the sake of keys, and with which regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persistence {
    /// How often, under another grant or the same.
    pub rekeyed: u32,
    /// How many fetches it has waited for since it last got on.
    fetches: u32,
    /// The homes of its transferred bytes, by ring, since it last began anew.
    homes: BTreeMap<RingId, Home>,
}

impl Persistence {
    /// Remembers with which regions bytes were transferred: those that were asked for and are not
    /// missing.
    pub fn remember(&mut self, asked: &[Asked], missing: &[Missing]) {
        for it in done(asked, missing) {
            self.homes.insert(asked[it].ring, asked[it].home());
        }
    }

    /// Whether a call that is to ask so has transferred bytes with another region in place of one
    /// of these. Then *all* of its bytes count as missing again: its regions are of one host, which
    /// has started again, most often. A mere change of a key is none of that.
    #[must_use]
    pub fn begins_anew(&mut self, asks: &[Asked]) -> bool {
        let is_another = |it: &Asked| self.homes.get(&it.ring).is_some_and(|was| *was != it.home());
        let begins_anew = asks.iter().any(|it| it.len > 0 && is_another(it));
        if begins_anew {
            self.homes.clear();
        }
        begins_anew
    }

    /// Whether a call goes on with what is missing, after an outcome of which the rings have said
    /// `verdict`.
    ///
    /// # Errors
    /// The error that it has ended with.
    pub fn goes_on(
        &mut self,
        asked: &[Asked],
        outcome: &Outcome,
        verdict: Verdict,
    ) -> Result<(), KeyedStatus> {
        self.remember(asked, &outcome.missing);
        if outcome.bytes_done > 0 {
            // It gets on: a long call may outlive many keys.
            self.fetches = 0;
        }
        match (outcome.status, verdict) {
            (CallStatus::Ok, _) => Ok(()),
            (CallStatus::Failed(_) | CallStatus::PeerSilent { .. }, Verdict::Retry) => {
                self.rekeyed += 1;
                Ok(())
            }
            (CallStatus::Failed(_) | CallStatus::PeerSilent { .. }, Verdict::Wait) => {
                self.rekeyed += 1;
                self.fetches += 1;
                let fetches = CALL_FETCHES;
                if self.fetches > fetches {
                    return Err(KeyedStatus::GaveUp(GiveUp::Fetches { fetches }));
                }
                Ok(())
            }
            (_, Verdict::GiveUp(why)) => Err(KeyedStatus::GaveUp(why)),
            (status, _) => Err(KeyedStatus::Ended(status)),
        }
    }
}

/// Tells the rings of a call's pieces how it ended, and what follows for the call: the worst of
/// what follows from any of them. The outcome counts in these pieces.
pub fn tell(now: Instant, cache: &mut GrantCache, asked: &[Asked], outcome: &Outcome) -> Verdict {
    let key_of = |i: usize| (asked[i].ring, asked[i].epoch);
    let mut told: Vec<(RingId, Epoch, OpStatus)> = Vec::new();
    // First what was transferred: a key that held at first may be refused later.
    let done = done(asked, &outcome.missing).map(|i| (key_of(i), OpStatus::Ok));
    let tried = outcome.missing.iter().filter_map(|it| Some((key_of(it.piece), it.tried?)));
    let mut verdict = Verdict::Pass;
    for ((ring, epoch), status) in done.chain(tried) {
        if told.contains(&(ring, epoch, status)) {
            continue;
        }
        told.push((ring, epoch, status));
        let is_silent = matches!(outcome.status, CallStatus::PeerSilent { .. });
        let times = if is_silent && status == OpStatus::Timeout { SILENCE } else { 1 };
        for _ in 0..times {
            verdict = worse(verdict, cache.on_outcome(now, ring, epoch, status));
        }
    }
    verdict
}

/// The pieces of which bytes were transferred.
fn done(asked: &[Asked], missing: &[Missing]) -> impl Iterator<Item = usize> {
    let mut left: Vec<u64> = asked.iter().map(|it| it.len).collect();
    for it in missing {
        left[it.piece] = left[it.piece].saturating_sub(it.len);
    }
    left.into_iter().enumerate().filter(|&(_, done)| done > 0).map(|(i, _)| i)
}

const fn worse(one: Verdict, other: Verdict) -> Verdict {
    match (one, other) {
        (Verdict::GiveUp(_), _) => one,
        (_, Verdict::GiveUp(_)) => other,
        (Verdict::Wait, _) | (_, Verdict::Wait) => Verdict::Wait,
        (Verdict::Retry, _) | (_, Verdict::Retry) => Verdict::Retry,
        (Verdict::Pass, Verdict::Pass) => Verdict::Pass,
    }
}

/// All of a call, as parts to transfer.
fn parts_of(call: &KeyedCall, tried: Option<OpStatus>) -> Vec<Part> {
    let pieces = call.pieces.iter().cloned().enumerate();
    pieces.map(|(i, piece)| Part { of: (i, 0), piece, tried }).collect()
}

fn missing_of(parts: &[Part], missing: &Missing) -> Part {
    let Part { of: (piece, offset), piece: whole, .. } = &parts[missing.piece];
    let part = KeyedPiece {
        remote_offset: whole.remote_offset + missing.offset,
        local_offset: whole.local_offset + missing.offset,
        len: missing.len,
        ..whole.clone()
    };
    Part { of: (*piece, offset + missing.offset), piece: part, tried: missing.tried }
}
