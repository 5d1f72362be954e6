//! One get at one server, without I/O: which bytes to read next, and what those that came say.
//!
//! A get reads the key's bucket, then the record that its entry names. If either was torn, or the
//! record is another's as a put was faster, it begins again with the bucket, and gives up after a
//! few times: another server may be luckier. Invariant: a value that it gives has passed the checks
//! of [`crate::layout`], under the key that was asked for.

use core::ops::Range;

use crate::layout::{BUCKET_LEN, Found, RECORD_LEN_MAX, Tag, find, value_of};

/// How often a get begins again at one server. More, and a key that is put all the time is asked
/// for all the time; fewer, and one put may send a get to another server.
pub const TORN_MAX: u32 = 3;

/// The place to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A bucket of the index.
    Bucket {
        /// The offset.
        offset: u64,
    },
    /// A record of the values.
    Record {
        /// The offset.
        offset: u64,
        /// How long it is.
        len: usize,
        /// Of which version it is to be.
        version: u64,
    },
}

impl Read {
    /// How many bytes that is.
    #[must_use]
    pub const fn size(&self) -> usize {
        match *self {
            Self::Bucket { .. } => BUCKET_LEN,
            Self::Record { len, .. } => len,
        }
    }
}

/// The next step of a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These bytes must be read.
    Read(Read),
    /// The value is there, in this place of the bytes that came.
    Hit {
        /// The range in them.
        value: Range<usize>,
        /// Its version.
        version: u64,
    },
    /// The server does not have it.
    Miss,
    /// It was torn each time.
    Torn,
}

/// A get at one server.
#[derive(Clone, Debug)]
pub struct Lookup<'a> {
    key: &'a [u8],
    tag: Tag,
    bucket: u64,
    reads: Read,
    torn: u32,
}

impl<'a> Lookup<'a> {
    /// Of `key`, in an index of so many octets.
    #[must_use]
    pub fn new(key: &'a [u8], index_len: u64) -> Self {
        let tag = Tag::of(key);
        let bucket = tag.bucket(index_len);
        Self { key, tag, bucket, reads: Read::Bucket { offset: bucket }, torn: 0 }
    }

    /// Returns the place to read now.
    #[must_use]
    pub const fn reads(&self) -> Read {
        self.reads
    }

    /// How often it found something torn.
    #[must_use]
    pub const fn torn(&self) -> u32 {
        self.torn
    }

    /// Takes the bytes that were to be read.
    pub fn take(&mut self, bytes: &[u8]) -> Next {
        match self.reads {
            Read::Bucket { .. } => match find(bytes, self.tag) {
                Found::Nothing => Next::Miss,
                // Checks of 64 bits let a torn entry pass once in 2^64 times; it shall not panic.
                Found::At(entry) if entry.len as usize <= RECORD_LEN_MAX => {
                    let (offset, version) = (entry.offset, entry.version);
                    self.reads = Read::Record { offset, len: entry.len as usize, version };
                    Next::Read(self.reads)
                }
                Found::At(_) | Found::Torn => self.again(),
            },
            Read::Record { version, .. } => match value_of(bytes, self.key, version) {
                Some(value) => Next::Hit { value, version },
                None => self.again(),
            },
        }
    }

    fn again(&mut self) -> Next {
        self.torn += 1;
        if self.torn > TORN_MAX {
            return Next::Torn;
        }
        self.reads = Read::Bucket { offset: self.bucket };
        Next::Read(self.reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Entry, record};

    const INDEX_LEN: u64 = 4 * BUCKET_LEN as u64;

    fn bucket(entry: Entry) -> Vec<u8> {
        let mut bytes: Vec<u8> = entry.words().iter().flat_map(|it| it.to_le_bytes()).collect();
        bytes.resize(BUCKET_LEN, 0);
        bytes
    }

    #[test]
    fn a_get_reads_a_bucket_and_then_the_record_that_it_names() {
        let octets = record(b"key", b"value", 3);
        let len = octets.len();
        let entry = Entry { tag: Tag::of(b"key"), offset: 640, len: len as u32, version: 3 };
        let mut lookup = Lookup::new(b"key", INDEX_LEN);
        assert_eq!(lookup.reads(), Read::Bucket { offset: Tag::of(b"key").bucket(INDEX_LEN) });
        let next = lookup.take(&bucket(entry));
        assert_eq!(next, Next::Read(Read::Record { offset: 640, len, version: 3 }));
        let hit = Next::Hit { value: len - 5..len, version: 3 };
        assert_eq!(lookup.take(&octets), hit);
        assert_eq!(lookup.torn(), 0);
        assert_eq!(Lookup::new(b"other", INDEX_LEN).take(&bucket(entry)), Next::Miss);
    }

    #[test]
    fn a_record_that_a_put_has_replaced_is_looked_up_again_and_given_up_some_time() {
        let newer = record(b"key", b"newer", 4);
        let entry = Entry { tag: Tag::of(b"key"), offset: 0, len: newer.len() as u32, version: 3 };
        let mut lookup = Lookup::new(b"key", INDEX_LEN);
        let first = lookup.reads();
        for _ in 0..TORN_MAX {
            assert!(matches!(lookup.take(&bucket(entry)), Next::Read(Read::Record { .. })));
            assert_eq!(lookup.take(&newer), Next::Read(first));
        }
        assert!(matches!(lookup.take(&bucket(entry)), Next::Read(Read::Record { .. })));
        assert_eq!(lookup.take(&newer), Next::Torn);
    }

    #[test]
    fn an_entry_whose_words_do_not_go_together_is_read_again() {
        let entry = Entry { tag: Tag::of(b"key"), offset: 0, len: 64, version: 3 };
        let mut torn = bucket(entry);
        torn[16] ^= 1;
        let mut lookup = Lookup::new(b"key", INDEX_LEN);
        assert_eq!(lookup.take(&torn), Next::Read(lookup.reads()));
        assert!(matches!(lookup.take(&bucket(entry)), Next::Read(Read::Record { .. })));
        assert_eq!(lookup.torn(), 1);
    }
}
