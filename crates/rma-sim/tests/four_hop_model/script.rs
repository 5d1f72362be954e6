//! What is explored: the ops of a run, the clocks, the bounds, and the flaw if there is one.
//!
//! A script holds no state: it says how large the world is, not what happens in it.

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

/// An op, by its place in the script. It stands for IV1, and for the tag of the request.
pub(crate) type OpId = u8;
/// A hop 2, by its number in the run. It stands for IV2.
pub(crate) type SolicitationId = u8;
/// A K_r, by its number. No two ever are the same.
pub(crate) type Key = u8;

/// The key of the region as it was registered.
pub(crate) const FIRST_KEY: Key = 0;

/// A mutation that the initiator is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    /// Ops of one slot come one after another; slots work side by side.
    pub(crate) slot: u8,
    /// The K_r that its K_d was derived from.
    pub(crate) key: Key,
    /// The new key, if it is a Rekey. Otherwise it is a WRITE of two frames.
    pub(crate) rekey_to: Option<Key>,
}

impl Op {
    pub(crate) const fn write(slot: u8, key: Key) -> Self {
        Self { slot, key, rekey_to: None }
    }

    pub(crate) const fn rekey(slot: u8, key: Key, to: Key) -> Self {
        Self { slot, key, rekey_to: Some(to) }
    }

    /// Its granules, a frame for each; at the same time what it debits.
    pub(crate) const fn granules(self) -> u8 {
        if self.rekey_to.is_some() { 1 } else { GRANULES_MAX }
    }

    /// `arrived` when all of it has.
    pub(crate) const fn all(self) -> u8 {
        (1 << self.granules()) - 1
    }

    /// Whether both ops have the same K_d: it follows from K_r and op type, as all else is the same
    /// here.
    pub(crate) const fn same_key(self, other: Self) -> bool {
        self.key == other.key && self.rekey_to.is_some() == other.rekey_to.is_some()
    }
}

/// Times in ticks. A tick is any unit in which the configured times are whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// T_i, which hop 1 claims.
    pub(crate) initiator_timeout: u8,
    /// T_r, after which the target lets go of a mutation.
    pub(crate) target_timeout: u8,
    /// What the target's deadline is earlier than its limit.
    pub(crate) guard: u8,
    /// By how much the initiator's clock may gain on the target's, counted from any moment.
    pub(crate) drift_max: u8,
    /// How long the target may be stopped between its look at the clock and the copy, or the copy
    /// and the next look; `None` for as long as it pleases.
    pub(crate) pause_max: Option<u8>,
}

impl Timing {
    /// As short as can be with a guard that covers a drift of one tick and a pause of one.
    pub(crate) const FITTING: Self = Self {
        initiator_timeout: 3,
        target_timeout: 3,
        guard: 2,
        drift_max: 1,
        pause_max: Some(1),
    };

    /// Whether nothing can be late: drift and pause together are covered by the guard.
    pub(crate) const fn fits(self) -> bool {
        match self.pause_max {
            Some(pause) => pause + self.drift_max <= self.guard,
            None => false,
        }
    }
}

/// What the protocol could have done without, or done otherwise. Each breaks a promise; tests show
/// which.
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
    /// The key that the target's own driver may set, once.
    pub(crate) driver_key: Option<Key>,
    /// Whether the initiator may restart, once, and start its generations anew.
    pub(crate) initiator_restarts: bool,
    /// Whether the target may restart, once, with the region under its key.
    pub(crate) target_restarts: bool,
    /// Whether frames stay in the network that will be dropped whenever they are delivered.
    pub(crate) all_frames: bool,
    /// What it lacks; nothing as designed.
    pub(crate) flaws: &'static [Flaw],
}

impl Script {
    pub(crate) fn op(&self, op: OpId) -> Op {
        self.ops[usize::from(op)]
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaws.contains(&flaw)
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
