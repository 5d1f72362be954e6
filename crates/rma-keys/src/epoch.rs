//! Epochs: the numbers of a region's keys. Not in the paper, which has no numbers for keys.
//!
//! Numbers are ordered within one life of a service only, and ascend, though not by ones. A service
//! that starts begins another life with 8 random octets: with numbers alone, one that was started
//! again would take the holder of its earlier epoch 1 for somebody who is up to date.

use core::fmt;

/// How long the name of a life is, in octets.
pub const LIFE_LEN: usize = 8;

/// One life of a service: 8 octets that were drawn when it started.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Life(pub [u8; LIFE_LEN]);

/// Names one key of one region, and shows nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The life of the service that made the key.
    pub life: Life,
    /// Ascends within a life.
    pub number: u64,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.life, self.number)
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
