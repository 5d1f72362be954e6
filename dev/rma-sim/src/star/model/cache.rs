//! The cache of connections' state in a NIC, and the choice of the one to evict.

use std::collections::BTreeMap;

use super::time::Picos;
use crate::prng::Prng;

/// A NIC's memory for state: so many connections, and what a fetch from host memory costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheOptions {
    /// How many connections' state it holds, at least one.
    pub entries: u32,
    /// How long the pipeline stops for a state that is not there.
    pub penalty: Picos,
    /// The rule that chooses the state to evict.
    pub replacement: Replacement,
}

/// The rule that chooses the state to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// The one that was used the longest time ago.
    LeastRecentlyUsed,
    /// Any, drawn with this seed.
    Random(u64),
}

/// The states that are there. Never more than it has entries for.
#[derive(Clone, Debug)]
pub struct StateCache {
    options: CacheOptions,
    /// For each connection, its number in `by_age`; 0 if its state is not there.
    used: Vec<u64>,
    /// Connections whose state is there, the one that was used the longest time ago first.
    by_age: BTreeMap<u64, u32>,
    /// The same in no order, where chance replaces.
    there: Vec<u32>,
    uses: u64,
    misses: u64,
    prng: Prng,
}

impl StateCache {
    /// An empty one, for so many connections.
    #[must_use]
    pub fn new(options: CacheOptions, connections: u32) -> Self {
        let seed = match options.replacement {
            Replacement::LeastRecentlyUsed => 0,
            Replacement::Random(seed) => seed,
        };
        Self {
            options,
            used: vec![0; connections as usize],
            by_age: BTreeMap::new(),
            there: Vec::new(),
            uses: 0,
            misses: 0,
            prng: Prng::new(seed),
        }
    }

    /// Uses the state of `connection`. Returns for how long the pipeline stops.
    pub fn use_state(&mut self, connection: u32) -> Picos {
        self.uses += 1;
        let before = core::mem::replace(&mut self.used[connection as usize], self.uses);
        self.by_age.insert(self.uses, connection);
        if before != 0 {
            self.by_age.remove(&before);
            return Picos::ZERO;
        }
        self.misses += 1;
        let is_full = self.by_age.len() > self.options.entries as usize;
        let gone = match self.options.replacement {
            Replacement::LeastRecentlyUsed if is_full => {
                self.by_age.first_key_value().map(|(_, &oldest)| oldest)
            }
            Replacement::Random(_) if is_full => {
                let place = self.prng.below(self.there.len() as u64) as usize;
                Some(core::mem::replace(&mut self.there[place], connection))
            }
            Replacement::LeastRecentlyUsed => None,
            Replacement::Random(_) => {
                self.there.push(connection);
                None
            }
        };
        if let Some(gone) = gone {
            let age = core::mem::take(&mut self.used[gone as usize]);
            self.by_age.remove(&age);
        }
        self.options.penalty
    }

    /// Whether the state of `connection` is there.
    #[must_use]
    pub fn holds(&self, connection: u32) -> bool {
        self.used[connection as usize] != 0
    }

    /// How many uses found no state.
    #[must_use]
    pub const fn misses(&self) -> u64 {
        self.misses
    }
}
