//! The layout of a server's two regions, octet by octet, and the check that it is whole.
//!
//! The *index* is an array of buckets, each with eight entries of four words; the *values* are
//! records, each somewhere. A key's hash says in which bucket its entry is, the entry says where
//! its record is. Numbers are in the byte order of the hosts, all of which are little-endian.
//!
//! A READ sees each aligned word whole, and promises nothing more: entries and records may be torn
//! by a put. So both hold a check over all else in them, and whoever has read one compares it.
//! Invariant: bytes that pass are what some put has written, whole.

use core::ops::Range;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// How many entries a bucket has. More, and a get reads more; fewer, and keys that meet in a bucket
/// put each other out while there is room elsewhere.
pub const ENTRIES: usize = 8;

/// How long an entry is, in octets.
pub const ENTRY_LEN: usize = 32;

/// How long a bucket is, in octets: one READ.
pub const BUCKET_LEN: usize = ENTRIES * ENTRY_LEN;

/// The length of a record's header before its key, in octets.
const HEADER_LEN: usize = 24;

/// The longest key in octets.
pub const KEY_LEN_MAX: usize = 256;

/// The longest value in octets.
pub const VALUE_LEN_MAX: usize = 64 << 10;

/// The longest record in octets.
pub const RECORD_LEN_MAX: usize = HEADER_LEN + KEY_LEN_MAX + VALUE_LEN_MAX;

/// A key's hash: in which bucket it is, by which servers, and what its entry is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

impl Tag {
    /// The hash of `key`.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    /// Returns the offset of its bucket, in an index of so many octets.
    #[must_use]
    pub const fn bucket(self, index_len: u64) -> u64 {
        let buckets = index_len / BUCKET_LEN as u64;
        ((self.0 as u128 * buckets as u128) >> 64) as u64 * BUCKET_LEN as u64
    }
}

/// One entry of a bucket. All zeros: nothing is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The tag of the key.
    pub tag: Tag,
    /// The offset of its record in the values, below 2^40.
    pub offset: u64,
    /// How long its record is, below 2^24.
    pub len: u32,
    /// The version of the value.
    pub version: u64,
}

impl Default for Tag {
    /// That of an entry in which nothing is.
    fn default() -> Self {
        Self(0)
    }
}

impl Entry {
    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The four words, the last of which is the check of the others.
    #[must_use]
    pub fn words(&self) -> [u64; 4] {
        if self.is_empty() {
            return [0; 4];
        }
        let place = self.offset << 24 | u64::from(self.len);
        [self.tag.0, place, self.version, check([self.tag.0, place, self.version])]
    }

    /// The entry that these words are, if they go together.
    #[must_use]
    pub fn from_words([tag, place, version, told]: [u64; 4]) -> Option<Self> {
        let len = (place & 0xff_ffff) as u32;
        let entry = Self { tag: Tag(tag), offset: place >> 24, len, version };
        let is_whole = if place == 0 { tag == 0 } else { told == check([tag, place, version]) };
        is_whole.then_some(entry)
    }
}

fn check(words: [u64; 3]) -> u64 {
    let mut hash = Xxh3::new();
    words.iter().for_each(|word| hash.update(&word.to_le_bytes()));
    hash.digest()
}

/// The result of looking up a key in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its record is there.
    At(Entry),
    /// It has no entry.
    Nothing,
    /// It has one that a put was changing.
    Torn,
}

/// Looks for `tag` in the octets of its bucket.
#[must_use]
pub fn find(bucket: &[u8], tag: Tag) -> Found {
    for octets in bucket.chunks_exact(ENTRY_LEN) {
        let mut words = [0; 4];
        for (word, octets) in words.iter_mut().zip(octets.chunks_exact(8)) {
            *word = u64::from_le_bytes(octets.try_into().expect("a word has eight octets"));
        }
        if words[0] != tag.0 {
            continue;
        }
        return match Entry::from_words(words) {
            Some(entry) if entry.is_empty() => continue,
            Some(entry) => Found::At(entry),
            None => Found::Torn,
        };
    }
    Found::Nothing
}

/// How long the record of this key and value is.
#[must_use]
pub const fn record_len(key: &[u8], value: &[u8]) -> usize {
    HEADER_LEN + key.len() + value.len()
}

/// A record: its check, its version, how long key and value are, and both.
#[must_use]
pub fn record(key: &[u8], value: &[u8], version: u64) -> Vec<u8> {
    let mut octets = vec![0; 8];
    octets.reserve_exact(record_len(key, value) - 8);
    octets.extend(version.to_le_bytes());
    octets.extend((key.len() as u32).to_le_bytes());
    octets.extend((value.len() as u32).to_le_bytes());
    octets.extend(key);
    octets.extend(value);
    let check = xxh3_64(&octets[8..]);
    octets[..8].copy_from_slice(&check.to_le_bytes());
    octets
}

/// Returns the range of the value in a record's octets, if they are whole, and are the record of
/// this key and version.
#[must_use]
pub fn value_of(octets: &[u8], key: &[u8], version: u64) -> Option<Range<usize>> {
    let (check, rest) = octets.split_first_chunk()?;
    let (of, lengths) = rest.split_first_chunk()?;
    let (key_len, lengths) = lengths.split_first_chunk()?;
    let (value_len, body) = lengths.split_first_chunk()?;
    let key_len = u32::from_le_bytes(*key_len) as usize;
    let value_len = u32::from_le_bytes(*value_len) as usize;
    let is_it = u64::from_le_bytes(*check) == xxh3_64(rest)
        && u64::from_le_bytes(*of) == version
        && body.len() == key_len.checked_add(value_len)?
        && &body[..key_len] == key;
    is_it.then(|| octets.len() - value_len..octets.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(words: [u64; 4]) -> Vec<u8> {
        words.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    #[test]
    fn an_entry_of_words_that_do_not_go_together_is_torn() {
        let tag = Tag::of(b"key");
        let old = Entry { tag, offset: 4096, len: 100, version: 7 };
        let new = Entry { offset: 1 << 39, len: 0xff_ffff, version: 8, ..old };
        for mix in 0..16_usize {
            let pick = |i: usize| if mix >> i & 1 == 0 { old.words()[i] } else { new.words()[i] };
            let mut bucket = octets([5, 1 << 24 | 9, 1, 1]);
            bucket.extend(octets([0, 1, 2, 3].map(pick)));
            bucket.resize(BUCKET_LEN, 0);
            let expected = match mix {
                // The tag is the same in both.
                0 | 1 => Found::At(old),
                14 | 15 => Found::At(new),
                _ => Found::Torn,
            };
            assert_eq!(find(&bucket, tag), expected, "{mix:#b}");
        }
        assert_eq!(find(&octets(Entry::default().words()), Tag(0)), Found::Nothing);
        assert_eq!(find(&[0; BUCKET_LEN], tag), Found::Nothing);
    }

    #[test]
    fn a_record_with_any_octet_changed_is_none() {
        let whole = record(b"key", b"a value", 9);
        assert_eq!(whole.len(), record_len(b"key", b"a value"));
        let at = value_of(&whole, b"key", 9).unwrap();
        assert_eq!(&whole[at], b"a value");
        assert_eq!(value_of(&whole, b"key", 8), None, "of another version");
        assert_eq!(value_of(&whole, b"kez", 9), None, "of another key");
        for at in 0..whole.len() {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            assert_eq!(value_of(&torn, b"key", 9), None, "octet {at}");
            assert_eq!(value_of(&whole[..at], b"key", 9), None, "cut at {at}");
        }
    }

    #[test]
    fn keys_spread_over_all_buckets() {
        let mut seen = [0; 16];
        for number in 0..1600_u32 {
            let at = Tag::of(&number.to_le_bytes()).bucket(16 * BUCKET_LEN as u64);
            seen[at as usize / BUCKET_LEN] += 1;
        }
        assert!(seen.iter().all(|&it| it > 50), "{seen:?}");
    }
}
