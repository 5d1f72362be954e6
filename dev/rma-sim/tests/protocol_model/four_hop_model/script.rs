//! The space that is explored: the ops of a run, the clocks, the bounds, and the flaw if there is
//! one.
//!
//! A script holds no state: it says how large the world is, not what happens in it.

use core::mem::discriminant;

/// Ops in a script, at most.
pub(crate) const OPS_MAX: usize = 3;
/// Command slots of the initiator, at most.
pub(crate) const SLOTS_MAX: usize = 2;
/// Hops 2 that the target sends in a run, at most.
pub(crate) const SOLICITATIONS_MAX: usize = 4;
/// Entries of the pending-write table, at most.
pub(crate) const ENTRIES_MAX: usize = 2;
/// Granules of an op, at most: one for each frame of its data.
pub(crate) const GRANULES_MAX: u8 = 2;
/// Outcome records of the target, at most.
pub(crate) const RECORDS_MAX: usize = 3;
/// Keys that a SETTLE may be sealed under, at most.
pub(crate) const SETTLE_KEYS_MAX: u8 = 2;

/// An op, by its place in the script. It stands for IV1, and for the tag of the request.
pub(crate) type OpId = u8;
/// A hop 2, by its number in the run. It stands for IV2.
pub(crate) type SolicitationId = u8;
/// A K_r, by its number. No two ever are the same.
pub(crate) type Key = u8;

/// The key of the region as it was registered.
pub(crate) const FIRST_KEY: Key = 0;

/// The change that a mutation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes, as they come: two frames. There is no record of it.
    Write,
    /// The region's key. There is no record of it.
    Rekey(Key),
    /// The bytes of a message that shows itself to a poller: one frame, all or nothing.
    OrderedWrite,
    /// A message for whoever has posted a receive: two frames, all or nothing.
    Send,
    /// Adds to the word a bit that no other op adds, so that the sum tells who has added.
    FetchAdd,
    /// Sets the word if it is as expected.
    CompareSwap { expected: u8, new: u8 },
}

impl Kind {
    /// Whether its hop 4 brings the word before.
    pub(crate) const fn has_result(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap { .. })
    }
}

/// A mutation that the initiator is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    /// Ops of one slot come one after another; slots work side by side.
    pub(crate) slot: u8,
    /// The K_r that its K_d was derived from.
    pub(crate) key: Key,
    pub(crate) kind: Kind,
    /// The earlier op whose record its request gives back. It waits until that one's end is known.
    pub(crate) done: Option<OpId>,
    /// The earlier op whose message this one brings again. It is not issued unless the executor's
    /// rule says so.
    pub(crate) repeats: Option<OpId>,
}

impl Op {
    pub(crate) const fn new(slot: u8, key: Key, kind: Kind) -> Self {
        Self { slot, key, kind, done: None, repeats: None }
    }

    pub(crate) const fn write(slot: u8, key: Key) -> Self {
        Self::new(slot, key, Kind::Write)
    }

    pub(crate) const fn rekey(slot: u8, key: Key, to: Key) -> Self {
        Self::new(slot, key, Kind::Rekey(to))
    }

    pub(crate) const fn done(self, op: OpId) -> Self {
        Self { done: Some(op), ..self }
    }

    pub(crate) const fn repeats(self, op: OpId) -> Self {
        Self { repeats: Some(op), ..self }
    }

    /// The new key, if it is a Rekey.
    pub(crate) const fn rekey_to(self) -> Option<Key> {
        match self.kind {
            Kind::Rekey(to) => Some(to),
            _ => None,
        }
    }

    /// Whether the target keeps a record of how it ended; then it is all or nothing.
    pub(crate) const fn is_recorded(self) -> bool {
        !matches!(self.kind, Kind::Write | Kind::Rekey(_))
    }

    /// Whether it consumes a posted receive.
    pub(crate) const fn takes_post(self) -> bool {
        matches!(self.kind, Kind::Send)
    }

    /// Its granules, a frame for each; at the same time what it debits.
    pub(crate) const fn granules(self) -> u8 {
        match self.kind {
            Kind::Write | Kind::Send => GRANULES_MAX,
            Kind::Rekey(_) | Kind::OrderedWrite | Kind::FetchAdd | Kind::CompareSwap { .. } => 1,
        }
    }

    /// `arrived` when all of it has.
    pub(crate) const fn all(self) -> u8 {
        (1 << self.granules()) - 1
    }

    /// Whether both ops have the same K_d: it follows from K_r and op type, as all else is the same
    /// here.
    pub(crate) fn same_key(self, other: Self) -> bool {
        self.key == other.key && self.same_type(other)
    }

    pub(crate) fn same_type(self, other: Self) -> bool {
        discriminant(&self.kind) == discriminant(&other.kind)
    }
}

/// Times in ticks. A tick is any unit in which the configured times are whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// T_i, which hop 1 claims.
    pub(crate) initiator_timeout: u8,
    /// T_r, after which the target lets go of a mutation.
    pub(crate) target_timeout: u8,
    /// The time by which the target's deadline is earlier than its limit.
    pub(crate) guard: u8,
    /// By how much the initiator's clock may gain on the target's, counted from any moment.
    pub(crate) drift_max: u8,
    /// How long the target may be stopped between its look at the clock and the copy, or the copy
    /// and the next look; `None` for as long as it pleases.
    pub(crate) pause_max: Option<u8>,
    /// How long the target keeps the record of an op that it has applied, from the commit on.
    pub(crate) retention: u8,
}

impl Timing {
    /// As short as can be with a guard that covers a drift of one tick and a pause of one.
    pub(crate) const FITTING: Self = Self {
        initiator_timeout: 3,
        target_timeout: 3,
        guard: 2,
        drift_max: 1,
        pause_max: Some(1),
        retention: 4,
    };

    /// Whether nothing can be late: drift and pause together are covered by the guard.
    pub(crate) const fn fits(self) -> bool {
        match self.pause_max {
            Some(pause) => pause + self.drift_max <= self.guard,
            None => false,
        }
    }
}

/// A part of the protocol that a flawed script leaves out or does otherwise. Each flaw breaks a
/// promise; tests show which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// On hop 2 the initiator's timeout stays what it was.
    TimeoutNotReset,
    /// Hop 2 is stamped with the reading that the turn began with.
    StaleStamp,
    /// A failure notice ends an op whose data has been sent.
    NoticeAfterHopTwo,
    /// Every hop 2 of an op is answered, not the first alone.
    EveryHopTwoAnswered,
    /// Hop 2 is not curried with IV1.
    HopTwoNotBound,
    /// Hop 3 is not curried with IV2.
    HopThreeNotBound,
    /// Hop 4 is not curried with IV2.
    HopFourNotBound,
    /// The target counts frames of data, and does not mark which have come.
    NoArrivalBits,
    /// Data of an op whose entry was given to another is taken as if that were still its own.
    LandsInAnothersEntry,
    /// The target does not look at the clock before the copy.
    NoCheckBeforeCopy,
    /// The target does not look at the clock after the copy.
    NoLookAfterCopy,
    /// A copy counts as late from the limit on, as if no clock ever gained on another.
    LateOnlyPastTheLimit,
    /// The deadline counts from the first data, not from hop 2.
    DeadlineFromHopThree,
    /// The limit is the target's own timeout, whatever the initiator claimed.
    ClaimedTimeoutIgnored,
    /// Hop 4 completes an op that is over.
    HopFourAfterTheEnd,
    /// Pending writes do not remember the key's revision.
    RevisionUnchecked,
    /// Hop 4 is sent before the last copy.
    AcknowledgedBeforeCopy,
    /// An entry that ends because of a Rekey is not refunded.
    RefusedWithoutRefund,
    /// A commit is not held against the key's revision; the first data of the op is.
    CommitsOldRevision,
    /// `reached` is told from some time after hop 2 on.
    ReachedToldTooLate,
    /// SETTLE answers that the op was not applied, and its entry waits for data as before.
    SettleLeavesEntry,
    /// An entry that SETTLE ends keeps its window and its post.
    SettledWithoutGivingBack,
    /// SETTLE looks at the record of its number, whichever op that is of by now.
    SettleIgnoresCounter,
    /// SETTLE answers that what has no record was not applied.
    AbsenceIsNotApplied,
    /// The answer to a SETTLE is not curried with the request's IV.
    SettlementNotBound,
    /// A held record is taken where none is free.
    RecordTakenWhileHeld,
    /// Data finds its entry without its record, and the commit is noted in whatever record has the
    /// number.
    CommitIgnoresCounter,
    /// A message whose op ended in TIMEOUT is sent again, reached or not.
    RepeatedBlindly,
    /// A post is bound by the request.
    PostBoundAtHopOne,
}

/// A world to explore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) ops: &'static [Op],
    /// How many of them can complete OK in one run: keys exclude each other.
    pub(crate) ok: usize,
    pub(crate) timing: Timing,
    /// Entries of the pending-write table.
    pub(crate) entries: u8,
    /// The target's solicitation window, in granules.
    pub(crate) window: u8,
    /// Hops 2 that the target sends in a run.
    pub(crate) solicitations: u8,
    /// Outcome records.
    pub(crate) records: u8,
    /// Receives that the target's application has posted.
    pub(crate) posts: u8,
    /// Whether the initiator may ask by SETTLE about an op that is not over.
    pub(crate) cancels: bool,
    /// The key that the target's own driver may set, once.
    pub(crate) driver_key: Option<Key>,
    /// Whether the initiator may restart, once, and start its generations anew.
    pub(crate) initiator_restarts: bool,
    /// Whether the target may restart, once, with the region under its key.
    pub(crate) target_restarts: bool,
    /// Whether frames stay in the network that will be dropped whenever they are delivered.
    pub(crate) all_frames: bool,
    /// The flaws; nothing as designed.
    pub(crate) flaws: &'static [Flaw],
}

impl Script {
    pub(crate) fn op(&self, op: OpId) -> Op {
        self.ops[usize::from(op)]
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaws.contains(&flaw)
    }

    /// Whether a Rekey may replace the first key.
    pub(crate) fn replaces_keys(&self) -> bool {
        self.ops.iter().any(|op| op.rekey_to().is_some()) || self.driver_key.is_some()
    }

    /// Whether a later op says that this one is done.
    pub(crate) fn is_done(&self, op: OpId) -> bool {
        self.ops.iter().any(|later| later.done == Some(op))
    }

    /// Whether an op is recorded.
    pub(crate) fn keeps_records(&self) -> bool {
        self.ops.iter().any(|op| op.is_recorded())
    }

    /// How long after hop 2 the target's limit is.
    fn limit(&self) -> u8 {
        let Timing { initiator_timeout, target_timeout, .. } = self.timing;
        if self.has(Flaw::ClaimedTimeoutIgnored) {
            target_timeout
        } else {
            target_timeout.min(initiator_timeout)
        }
    }

    /// How long after hop 2 the target takes no more data.
    pub(crate) fn deadline(&self) -> u8 {
        self.limit() - self.timing.guard
    }

    /// How long after hop 2 a copy counts as late: from here on the initiator may have timed out.
    pub(crate) fn late_from(&self) -> u8 {
        if self.has(Flaw::LateOnlyPastTheLimit) {
            self.limit()
        } else {
            self.limit() - self.timing.drift_max
        }
    }

    /// The age at which an entry looks the same as at any later one.
    pub(crate) fn age_max(&self) -> u8 {
        self.late_from().max(self.deadline())
    }

    /// Without something, and with every frame.
    pub(crate) const fn without(self, flaws: &'static [Flaw]) -> Self {
        Self { all_frames: true, flaws, ..self }
    }
}
