//! How much is measured, and over how much memory: what every measurement agrees on, below them
//! all.

/// Bytes of the region that ops are measured in, to compare them with a floor whose frames are in
/// the cache too. Ops all over a large region wait for the responder's memory as well.
pub const WARM: u64 = 64 << 10;

/// UDP payload of a frame of 64 bytes with its headers.
pub const SMALL: usize = 22;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Of each kind, in all.
    pub count: u64,
    /// In how many rounds.
    pub rounds: u64,
}

impl Amount {
    /// How many in a round: for nothing, to warm up, and measured.
    pub(crate) const fn of_round(&self, round: u64) -> (u64, u64) {
        let count = self.count / self.rounds + if round < self.count % self.rounds { 1 } else { 0 };
        (count / 10 + 100, count)
    }
}
