//! The store of a server: its two regions, and how a put changes them while clients read.
//!
//! A put writes its record into a cell that nobody reads, then the entry's words, which lead to it.
//! What the entry led to before rests until no READ that was told of it can be under way any
//! longer. The store knows neither who puts nor who reads; time is an argument.
//!
//! Invariants: what an entry leads to is a whole record, or is about to be replaced; the entry of a
//! key stays at its place in its bucket until it is gone.

use core::time::Duration;

use rma_core::{region::RegisteredRegion, time::Instant};

use crate::{
    layout::{
        BUCKET_LEN, ENTRIES, ENTRY_LEN, Entry, KEY_LEN_MAX, Tag, VALUE_LEN_MAX, record, record_len,
    },
    slabs::Slabs,
};

/// An index and values, and what is free of them.
#[derive(Debug)]
pub struct Store {
    index: RegisteredRegion,
    values: RegisteredRegion,
    slabs: Slabs,
    counters: StoreCounters,
}

/// The counters of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Values that were put.
    pub puts: u64,
    /// Puts that came later than one of a higher version.
    pub stale: u64,
    /// Values that had to go for others.
    pub evicted: u64,
    /// Puts for which no cell was free.
    pub full: u64,
}

/// The result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stored {
    /// Gets find it from now on.
    Yes,
    /// The key has a value of the same version, or of a higher one.
    Stale,
}

/// The reason why nothing was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// Key or value are too long, or there is no key.
    #[error(
        "a key of {key_len} octets and a value of {value_len}; keys have 1 to {KEY_LEN_MAX}, values at most {VALUE_LEN_MAX}"
    )]
    Length {
        /// The key's length in octets.
        key_len: usize,
        /// The value's length in octets.
        value_len: usize,
    },
    /// All cells of this size are in use or rest. What the key had is gone, as it is too old.
    #[error("no room for {len} octets now; give the server more memory, or put more slowly")]
    Full {
        /// The record's length in octets.
        len: usize,
    },
}

impl Store {
    /// An empty store in these regions, which nobody else writes. Cells rest for `rests`: twice the
    /// bound of a READ ([P1](rma_core::nic::Timing::bound)) of the clients.
    ///
    /// # Panics
    /// If the index has no room for a bucket, or is longer than a store can tell apart.
    #[must_use]
    pub fn new(index: RegisteredRegion, values: RegisteredRegion, rests: Duration) -> Self {
        assert!(index.len() >= BUCKET_LEN as u64, "an index has at least one bucket");
        assert!(values.len() < 1 << 40, "an entry says where in 40 bits");
        let slabs = Slabs::new(values.len(), rests);
        Self { index, values, slabs, counters: StoreCounters::default() }
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> StoreCounters {
        self.counters
    }

    /// Puts a value, unless the key has one of this version or of a higher one.
    ///
    /// # Errors
    /// If it is too long, or there is no room.
    pub fn put(
        &mut self,
        now: Instant,
        key: &[u8],
        value: &[u8],
        version: u64,
    ) -> Result<Stored, PutError> {
        let (key_len, value_len) = (key.len(), value.len());
        if key_len == 0 || key_len > KEY_LEN_MAX || value_len > VALUE_LEN_MAX {
            return Err(PutError::Length { key_len, value_len });
        }
        let (tag, len) = (Tag::of(key), record_len(key, value));
        let (at, old) = self.place(tag);
        if old.tag == tag && !old.is_empty() && old.version >= version {
            self.counters.stale += 1;
            return Ok(Stored::Stale);
        }
        let Some(offset) = self.slabs.take(now, len, tag) else {
            self.counters.full += 1;
            if old.tag == tag {
                self.change(now, at, old, Entry::default());
            }
            return Err(PutError::Full { len });
        };
        let octets = record(key, value, version);
        self.values.write(offset, &octets).expect("a cell is within the values");
        self.change(now, at, old, Entry { tag, offset, len: len as u32, version });
        self.counters.puts += 1;
        self.counters.evicted += u64::from(!old.is_empty() && old.tag != tag);
        while let Some((tag, offset)) = self.slabs.excess(len) {
            let (at, old) = self.place(tag);
            debug_assert_eq!((old.tag, old.offset), (tag, offset), "a cell in use has its entry");
            self.change(now, at, old, Entry::default());
            self.counters.evicted += 1;
        }
        Ok(Stored::Yes)
    }

    /// Returns the place for the entry of `tag`, and what is there: its own, or nothing, or the
    /// value that has not been put for longest.
    fn place(&self, tag: Tag) -> (u64, Entry) {
        let bucket = tag.bucket(self.index.len());
        let entries = (0..ENTRIES).map(|i| {
            let at = bucket + (i * ENTRY_LEN) as u64;
            let word = |i: u64| self.index.load(at + 8 * i).expect("a bucket is within the index");
            let entry = Entry::from_words([0, 1, 2, 3].map(word));
            (at, entry.expect("only the store writes the index"))
        });
        // An entry in which nothing is has version 0.
        let rank = |(_, it): &(u64, Entry)| (it.is_empty() || it.tag != tag, it.version);
        entries.min_by_key(rank).expect("a bucket has entries")
    }

    fn change(&mut self, now: Instant, at: u64, old: Entry, new: Entry) {
        for (word, i) in new.words().into_iter().zip(0..) {
            self.index.store(at + 8 * i, word).expect("a bucket is within the index");
        }
        if !old.is_empty() {
            self.slabs.give_back(now, old.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};
    use std::{sync::Arc, thread};

    use rma_core::region::{NicTag, RegionId};
    use rma_shm::Region;

    use super::*;
    use crate::{
        lookup::{Lookup, Next, Read},
        slabs::SLAB_LEN,
    };

    fn region(len: u64) -> RegisteredRegion {
        let memory = Arc::new(Region::new(len as usize).unwrap());
        RegisteredRegion::new(RegionId::from_bits(1), memory, NicTag(1))
    }

    fn store(buckets: u64, slabs: u64, rests: Duration) -> Store {
        Store::new(region(buckets * BUCKET_LEN as u64), region(slabs * SLAB_LEN), rests)
    }

    /// A get as clients do it, and how often it found something torn.
    fn get(
        index: &RegisteredRegion,
        values: &RegisteredRegion,
        key: &[u8],
    ) -> (Option<(Vec<u8>, u64)>, u32) {
        let mut lookup = Lookup::new(key, index.len());
        loop {
            let (region, offset) = match lookup.reads() {
                Read::Bucket { offset } => (index, offset),
                Read::Record { offset, .. } => (values, offset),
            };
            let mut bytes = vec![0; lookup.reads().size()];
            region.read(offset, &mut bytes).unwrap();
            match lookup.take(&bytes) {
                Next::Read(_) => {}
                Next::Hit { value, version } => {
                    return (Some((bytes[value].to_vec(), version)), lookup.torn());
                }
                Next::Miss | Next::Torn => return (None, lookup.torn()),
            }
        }
    }

    fn of(store: &Store, key: &str) -> Option<Vec<u8>> {
        get(&store.index, &store.values, key.as_bytes()).0.map(|it| it.0)
    }

    #[test]
    fn the_last_version_wins_whichever_comes_last() {
        let mut store = store(4, 4, Duration::ZERO);
        let now = Instant::ZERO;
        assert_eq!(store.put(now, b"a", b"two", 2), Ok(Stored::Yes));
        assert_eq!(store.put(now, b"a", b"one", 1), Ok(Stored::Stale));
        assert_eq!(store.put(now, b"a", b"again", 2), Ok(Stored::Stale));
        assert_eq!(of(&store, "a"), Some(b"two".to_vec()));
        assert_eq!(store.put(now, b"a", b"", 3), Ok(Stored::Yes));
        assert_eq!((of(&store, "a"), of(&store, "b")), (Some(Vec::new()), None));
        let wrong = store.put(now, b"", b"x", 1);
        assert_eq!(wrong, Err(PutError::Length { key_len: 0, value_len: 1 }));
        let counted = StoreCounters { puts: 2, stale: 2, ..StoreCounters::default() };
        assert_eq!(store.counters(), counted);
    }

    #[test]
    fn a_full_bucket_gives_up_what_was_put_first() {
        let mut store = store(1, 8, Duration::ZERO);
        for version in 1..=9_u64 {
            let key = format!("key {version}");
            assert_eq!(store.put(Instant::ZERO, key.as_bytes(), b"x", version), Ok(Stored::Yes));
        }
        let there = (1..=9).map(|it| of(&store, &format!("key {it}")).is_some());
        assert_eq!(there.collect::<Vec<_>>(), [vec![false], vec![true; 8]].concat());
        assert_eq!(store.counters().evicted, 1);
    }

    #[test]
    fn values_go_before_memory_runs_out_and_a_put_that_finds_none_leaves_nothing_old() {
        let mut store = store(64, 1, Duration::from_secs(1));
        let value = [7; VALUE_LEN_MAX];
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        assert_eq!(store.put(at(0), b"a", &value, 1), Ok(Stored::Yes));
        // Of two cells one must be spare.
        assert_eq!(store.put(at(0), b"b", &value, 2), Ok(Stored::Yes));
        assert_eq!(store.counters().evicted, 1);
        let full = PutError::Full { len: record_len(b"b", &value) };
        assert_eq!(store.put(at(0), b"b", &value, 3), Err(full), "a's cell rests");
        assert_eq!((of(&store, "a"), of(&store, "b")), (None, None));
        assert_eq!(store.put(at(1000), b"b", &value, 3), Ok(Stored::Yes));
        assert_eq!(of(&store, "b").map(|it| it.len()), Some(VALUE_LEN_MAX));
    }

    #[test]
    fn gets_beside_puts_give_whole_values_of_their_version_or_none() {
        // Cells are reused at once, so that gets find them changed under their hands.
        let mut store = store(2, 6, Duration::ZERO);
        let (index, values) = (store.index.clone(), store.values.clone());
        let keys: Vec<Vec<u8>> = (0..4_u8).map(|it| vec![b'k', it]).collect();
        let value = |version: u64| vec![version as u8; 40 + version as usize % 7 * 300];
        let stops = AtomicBool::new(false);
        let (hits, torn) = thread::scope(|scope| {
            let readers = [0, 1].map(|_| {
                scope.spawn(|| {
                    let (mut hits, mut torn) = (0_u64, 0_u64);
                    while !stops.load(Ordering::Relaxed) {
                        for key in &keys {
                            let (got, was_torn) = get(&index, &values, key);
                            torn += u64::from(was_torn);
                            let Some((bytes, version)) = got else { continue };
                            assert_eq!(bytes, value(version), "version {version}");
                            hits += 1;
                        }
                    }
                    (hits, torn)
                })
            });
            let mut put = |version: u64| {
                let key = &keys[version as usize % keys.len()];
                store.put(Instant::ZERO, key, &value(version), version)
            };
            let refused = (1..100_000).find(|&version| put(version) != Ok(Stored::Yes));
            stops.store(true, Ordering::Relaxed);
            assert_eq!(refused, None, "a version");
            let seen = readers.map(|it| it.join().unwrap());
            (seen[0].0 + seen[1].0, seen[0].1 + seen[1].1)
        });
        for key in &keys {
            assert!(get(&index, &values, key).0.is_some(), "and when the puts are over, all");
        }
        rma_lab::evidence::show(format_args!(
            "{hits} gets of the cache beside 100,000 puts, {torn} times torn, none wrong"
        ));
    }
}
