//! The words that make a stateless engine's work happen once (ours; section 6 of
//! `docs/STAR-WIRE.md`).
//!
//! A *guard word* for each slot says which use of the slot is under way and for which QP; a *QP
//! word* for each QP says which connection it is of, and whether that is open. An engine that gets
//! a frame looks at both, and needs to know nothing else of the connection.
//!
//! Nothing here is ever aborted by itself: a work request is only given up together with its
//! connection, as in a reliable connection of verbs, where the QP goes to its error state. Closing
//! the QP word closes all slots of the connection at once, whatever their guard words say.

/// Bits of a QP's number in a guard word, and in a QPN.
const QP_BITS: u32 = 20;

/// Whether data may land for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardState {
    /// The slot has had no work request yet.
    Free,
    /// A work request is under way: the engine has sent it.
    Open,
    /// The last work request is complete: its CQE was given.
    Closed,
}

/// Bits of a connection's nonce in a guard word.
const NONCE_BITS: u32 = 10;

/// A guard word: one use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The use of the slot. Compared for equality only.
    pub generation: u32,
    /// The QP that the work request is of, below 2^20.
    pub qp: u32,
    /// The low 10 bits of the nonce of its connection. A slot stays open when its connection is
    /// closed; they keep the peer of the QP's next one from completing it. (A peer that waits for
    /// 2^10 connections could; the library reports nothing of a slot that is not in use.)
    pub nonce: u16,
    /// How far it is.
    pub state: GuardState,
}

impl Guard {
    /// The guard of a slot that was never used.
    pub const FREE: Self = Self { generation: 0, qp: 0, nonce: 0, state: GuardState::Free };

    /// Of the `generation`th use of a slot, by QP number `qp`, in the connection `nonce`.
    #[must_use]
    pub const fn new(generation: u32, qp: u32, nonce: u32, state: GuardState) -> Self {
        Self { generation, qp, nonce: (nonce & ((1 << NONCE_BITS) - 1)) as u16, state }
    }

    /// As a word.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        let state = match self.state {
            GuardState::Free => 0,
            GuardState::Open => 1,
            GuardState::Closed => 2,
        };
        (self.generation as u64) << 32
            | ((self.qp & ((1 << QP_BITS) - 1)) as u64) << 12
            | (self.nonce as u64 & ((1 << NONCE_BITS) - 1)) << 2
            | state
    }

    /// Of any word at all: the memory is the application's. What is no guard is a free slot's.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let state = match bits & 3 {
            1 => GuardState::Open,
            2 => GuardState::Closed,
            _ => return Self::FREE,
        };
        let qp = (bits >> 12) as u32 & ((1 << QP_BITS) - 1);
        let nonce = (bits >> 2) as u32 & ((1 << NONCE_BITS) - 1);
        Self::new((bits >> 32) as u32, qp, nonce, state)
    }

    /// Whether it is of this use of the slot, by this QP, in this connection.
    #[must_use]
    #[inline]
    pub const fn is_of(&self, generation: u32, qp: u32, nonce: u32) -> bool {
        let named = Self::new(generation, qp, nonce, self.state);
        self.generation == named.generation && self.qp == named.qp && self.nonce == named.nonce
    }
}

/// Whether a connection is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// No frame of any connection of this QP has effect.
    Closed,
    /// Frames of the connection that the word names have.
    Open,
    /// This host is the stateful side, and has given the connection away: of the one that the word
    /// names only the frame has effect that says that the peer has taken it.
    Expected,
}

/// The first word of a QP: which connection it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpWord {
    /// The connection: which use of this QPN.
    pub nonce: u32,
    /// The era of its roles.
    pub era: u16,
    /// Counts authentic acknowledgements of this connection that came, modulo 256: how the library
    /// learns that a probe was answered.
    pub heard: u8,
    /// Whether it is open.
    pub state: QpState,
}

impl QpWord {
    /// The word of a QP that has no connection.
    pub const CLOSED: Self = Self { nonce: 0, era: 0, heard: 0, state: QpState::Closed };

    /// As a word.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        let state = match self.state {
            QpState::Closed => 0,
            QpState::Open => 1,
            QpState::Expected => 2,
        };
        (self.nonce as u64) << 32 | (self.era as u64) << 16 | (self.heard as u64) << 8 | state
    }

    /// Of any word at all. What says nothing that there is is closed.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let state = match bits & 0xff {
            1 => QpState::Open,
            2 => QpState::Expected,
            _ => QpState::Closed,
        };
        Self {
            nonce: (bits >> 32) as u32,
            era: (bits >> 16) as u16,
            heard: (bits >> 8) as u8,
            state,
        }
    }

    /// Whether it names the connection with this nonce, in this era, and is in this state.
    #[must_use]
    #[inline]
    pub const fn is(&self, state: QpState, nonce: u32, era: u16) -> bool {
        self.state as u8 == state as u8 && self.nonce == nonce && self.era == era
    }

    /// Whether it is open for the connection with this nonce, in this era.
    #[must_use]
    #[inline]
    pub const fn is_open_for(&self, nonce: u32, era: u16) -> bool {
        self.is(QpState::Open, nonce, era)
    }
}

/// The verdict on an authentic frame for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its work request is under way: it has effect.
    Open,
    /// Its work request is complete, or was and the slot has another since: it has no effect, and
    /// its sender is told that it has been done.
    Done,
    /// Its connection is closed: it has no effect, and its sender is told so.
    Gone,
}

impl Verdict {
    /// Returns the verdict on a frame that names this use of a slot of QP number `qp`, in the
    /// connection `nonce` and `era`.
    #[must_use]
    pub const fn of(
        guard: Guard,
        qp_word: QpWord,
        generation: u32,
        qp: u32,
        nonce: u32,
        era: u16,
    ) -> Self {
        let is_named = guard.is_of(generation, qp, nonce);
        let is_connected = qp_word.is_open_for(nonce, era);
        match guard.state {
            // Complete is complete, whatever has become of the connection: the CQE was given.
            GuardState::Closed if is_named => Self::Done,
            _ if !is_connected => Self::Gone,
            GuardState::Open if is_named => Self::Open,
            _ => Self::Done,
        }
    }
}
