//! A target's later word about an op that it records (not in the papers): the op's name, and what
//! became of it.

use crate::crypto::EngineId;

//= channels#2.5-name
/// A target's name for a recorded op: its solicitation's engine and counter, which no other frame
/// ever has (P4), and where the target keeps its record. So a name that is old names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpName {
    /// The engine of the target that solicited the op, and that knows what became of it.
    pub engine: EngineId,
    /// The counter of the solicitation.
    pub counter: u64,
    /// The number of the record: what stands for the pending write in the solicitation.
    pub number: u16,
}

/// A recorded request's news of an earlier op: its end is known, and its record may go. The engine
/// is the one that its number belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    /// The counter of its solicitation: not 0.
    pub counter: u64,
    /// The number of its record.
    pub number: u16,
}

impl From<OpName> for Done {
    fn from(OpName { counter, number, .. }: OpName) -> Self {
        Self { counter, number }
    }
}

/// The target's verdict on a recorded op. Final, whichever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// It was applied, once; its result is known.
    Applied = 1,
    /// It was not applied, and will not be.
    NotApplied = 2,
    /// The target knows nothing of it: its record is gone, or it never had one for this asker. The
    /// op may have been applied.
    Forgotten = 3,
}

impl Verdict {
    /// All verdicts, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Applied, Self::NotApplied, Self::Forgotten];

    /// The verdict that `code` stands for.
    #[must_use]
    pub const fn from_code(code: u16) -> Option<Self> {
        match code {
            1 => Some(Self::Applied),
            2 => Some(Self::NotApplied),
            3 => Some(Self::Forgotten),
            _ => None,
        }
    }

    /// The verdict's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "APPLIED",
            Self::NotApplied => "NOT_APPLIED",
            Self::Forgotten => "FORGOTTEN",
        }
    }
}

impl core::fmt::Display for Verdict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
