//! The fates of frames, their codes and names.

use core::fmt;

use crate::error::DropReason;

/// The fate of a frame, received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was received and taken.
    Taken,
    /// It was received and dropped.
    Dropped(DropReason),
    /// It was received for another engine of the host.
    Elsewhere,
    /// It was received for StaR.
    Star,
    /// It was sent.
    Sent,
}

impl Fate {
    /// Its code in one octet.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Taken => 0,
            Self::Elsewhere => 1,
            Self::Star => 2,
            Self::Sent => 3,
            Self::Dropped(reason) => 4 + reason as u8,
        }
    }

    /// The fate of this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Taken),
            1 => Some(Self::Elsewhere),
            2 => Some(Self::Star),
            3 => Some(Self::Sent),
            dropped => DropReason::ALL.get(usize::from(dropped - 4)).copied().map(Self::Dropped),
        }
    }
}

impl From<Result<(), DropReason>> for Fate {
    fn from(handled: Result<(), DropReason>) -> Self {
        handled.map_or_else(Self::Dropped, |()| Self::Taken)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("ok"),
            Self::Elsewhere => f.write_str("elsewhere"),
            Self::Star => f.write_str("star"),
            Self::Sent => f.write_str("sent"),
            Self::Dropped(reason) => write!(f, "drop={reason:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fate_has_a_code_of_its_own_and_a_name() {
        let dropped = DropReason::ALL.into_iter().map(Fate::Dropped);
        let others = [Fate::Taken, Fate::Elsewhere, Fate::Star, Fate::Sent];
        for fate in others.into_iter().chain(dropped) {
            assert_eq!(Fate::from_code(fate.code()), Some(fate));
        }
        assert_eq!(Fate::from_code(u8::MAX), None);
        let name = Fate::from(Err(DropReason::RequestUnauthenticated)).to_string();
        assert_eq!(name, "drop=RequestUnauthenticated");
    }
}
