//! Registered-region memory: bytes that remote hosts read and write while the application uses
//! them.
//!
//! It knows offsets and lengths only. Region ids, keys and permissions are `rma-core`'s.
//!
//! # The memory model, once
//!
//! A remote write lands whenever the network pleases, also while the application or another engine
//! reads the same bytes. A reference (`&[u8]`) into such memory would be undefined behaviour
//! however careful the protocol is, so none is ever made: bytes go in and out by copies.
//!
//! A region is an array of 8-byte atomic words, and *every* access to it is an atomic access to one
//! whole, aligned word, relaxed unless said otherwise. Where a copy begins or ends inside a word,
//! reading loads the whole word and uses a part; writing merges the new bytes into the word by
//! compare-and-exchange, so that a concurrent write to the neighbouring bytes is not undone.
//! (Byte-sized stores at the edges would save two locked instructions per copy that is not aligned,
//! but racing atomic accesses of different sizes to the same bytes are outside [what the language
//! defines](https://doc.rust-lang.org/1.92.0/std/sync/atomic/index.html).) So within one process
//! nothing here is formally open.
//!
//! The middle of a copy of 256 bytes or more goes by moves of two words, where the processor
//! promises that it sees and shows each of the two whole: then such a move is two relaxed accesses
//! (`wide.rs` says whose promise that is). The first word of a copy and the last are always
//! accesses of their own, the first before all others and the last after them.
//!
//! # Order
//!
//! There is none between the words of [`Region::copy_in`], nor between copies: 1RMA promises no
//! order between ops. What is in order, for messages in memory, is not in the 1RMA paper:
//!
//! - **Copies out.** [`Region::copy_out`] loads the word in which it begins before all others, with
//!   Acquire, and the word in which it ends after all others, with Acquire and after an Acquire
//!   fence. (Copies of less than 256 bytes load each word with Acquire.) So copies that one thread
//!   makes one after the other, in ascending order, are in order as a whole: all frames of one READ
//!   are read as if by one copy. Whoever stores data and then, with Release, a word in front of it
//!   (a *bell*), knows that a READ that begins at the bell and finds it finds the data, too.
//! - **Copies in whose last word counts.** [`Region::copy_in_ordered`] stores its last word last,
//!   with Release. Whoever loads that word with Acquire, and finds what the copy stored, sees the
//!   whole copy. So a message may end with the word that says that it is there.
//! - **Words.** [`Region::load_acquire`] and [`Region::store_release`] are for those who poll such
//!   words and ring such bells; [`Region::compare_exchange`] and [`Region::fetch_add`] change a
//!   word in one step with the look at it. The engine and the application may use all of them on
//!   the same words.
//!
//! A copy out is no snapshot. For one, the writer has to go the other way: it stores a number that
//! it has not used before behind the data, makes a Release fence, stores the data, and stores the
//! number in front of it with Release. A READ of all of it that finds the two equal has found the
//! data whole.
//!
//! On x86-64 order is free: loads and stores have it anyway, and only the compiler is told. A copy
//! out of less than 256 bytes is the same instructions as without order, a longer one has two more.
//!
//! What follows for users:
//!
//! - Each aligned 8-byte word is read and written whole. Larger copies can be torn at word
//!   boundaries by a concurrent write. An application that needs a consistent larger value puts a
//!   version or a checksum into it, waits for the completion before reading, or uses the order
//!   above.
//! - Nothing else is ordered. A completion travels through a [`ring`](crate::spsc),
//!   whose Release and Acquire make the bytes that the engine copied before it visible to the
//!   thread that took it out.
//!
//! # What it costs
//!
//! In ns, best tenths on an Intel Xeon with AVX-512, other work on its second thread, against
//! `copy_from_slice` on plain memory; out of the region into a frame, and in; *before* is word by
//! word, as it still goes elsewhere than on x86-64 with AVX:
//!
//! | bytes, in a region of | plain | out before | out | in before | in |
//! |---|---|---|---|---|---|
//! | 64, 32 KiB | 18 | 19 | 19 | 9 | 9 |
//! | 1440, 32 KiB | 58 | 92 | 80 | 78 | 59 |
//! | 3264, 32 KiB | 134 | 207 | 174 | 181 | 127 |
//! | 4096, 32 KiB | 147 | 251 | 196 | 205 | 141 |
//! | 4096, 1 MiB | 153 | 204 | 162 | 155 | 126 |
//! | 4096, 16 MiB, out of the third-level cache | 329 | 350 | 284 | 321 | 309 |
//! | 4096, 1 GiB, out of memory | 695 | 945 | 869 | 828 | 764 |
//!
//! The alignment of the caller's buffer makes no difference worth a column, nor does an offset that
//! is not aligned when bytes go out. When they go in, each end that is not aligned costs a locked
//! instruction, 8 ns or so.
//!
//! # Circular regions
//!
//! In a circular region ([`Region::circular`], [`Region::into_circular`]) what comes after the last
//! byte is the first: an offset means the byte at *offset modulo length*. So a message in a ring
//! buffer never has to be cut at the end of the ring, and one op reads or writes it whole, wherever
//! it begins. Not in the 1RMA paper; "Efficient RDMA communication protocols", section 4, maps the
//! ring twice, side by side. (To the language those would be two memories, and one engine would use
//! both addresses of a word. As nobody has a reference into a region, nothing would be gained.)
//!
//! - Two lengths must be told apart. [`Region::len`] is how many bytes there are: what is
//!   allocated, and what quotas and metrics count. [`Region::reach`] is where offsets end: `len` of
//!   a plain region, twice that of a circular one. Checks of bounds ask [`Region::holds`].
//! - An access lies in the region if it ends at `reach` at the latest and has at most `len` bytes:
//!   a longer one would meet itself, and is [`OutOfBounds`].
//! - A copy that crosses the end is two copies, the one before the end first. So all that is said
//!   under *Order* holds for it as a whole: of a copy out the word in which it begins is first and
//!   the word in which it ends last; of [`Region::copy_in_ordered`] the last word is last.
//! - `len` is a multiple of 64, so no word and no cache line lies across the end.
//! - All kinds of memory can be circular: it is how offsets are read and not how bytes are kept. A
//!   process that maps another one's memory has to say it for itself.
//! - It costs plain regions nothing: the check of bounds is theirs, and what fails it goes on in
//!   `circular.rs`.
//!
//! # Pages
//!
//! The memory is aligned to pages, and zeroed unless it has a content already. All pages are
//! touched when the region is made, so the engine thread never takes a first-touch fault.
//!
//! # Which memory
//!
//! | made by | what it is | who else has it | if somebody takes it away |
//! |---|---|---|---|
//! | [`Region::new`] | ordinary memory, with huge pages where the kernel gives them | nobody | nobody can |
//! | [`Region::huge_pages`] | reserved huge pages | nobody | nobody can |
//! | [`Region::memfd`] | shared memory | who is given [`Region::fd`] | sealed against shrinking; by a hole: zeros and page faults |
//! | [`Region::map_memfd`] | the same, made by another process | that process, and who it gives it to | as above; refused unless it is sealed |
//! | [`Region::load_file`] | a copy of a file | nobody | nobody can |
//! | [`Region::map_file`] | a file | who may open the file, or has opened it | **SIGBUS: the process is killed** |
//!
//! The kernel answers an access to a page that is no longer there with SIGBUS, and no check
//! beforehand helps, as the page may go right after it. So memory that others can shrink is refused
//! where the kernel can promise that nobody does (seals), and where it cannot, for files, what is
//! left of the hazard is told at [`Region::map_file`].
//!
//! The seal does not forbid holes (`fallocate` with `FALLOC_FL_PUNCH_HOLE`). A process that has the
//! descriptor can so make bytes zero, and make the next access to them, also the engine's, take a
//! page fault and a new page; where there is none to be had, under strict overcommit or a cgroup's
//! limit, the process is killed. So an application should share memory only with processes that it
//! trusts with its availability.

use crate::{
    error::MemoryError,
    mapping::{Mapping, WORD, checked_len},
    prefetch::prefetch_line,
    sync::{Ordering, RegionWord, fence},
    wide,
};
use std::fmt;

mod circular;
mod mapped;
mod words;

pub use words::WordError;

/// Words of a cache line, for prefetching.
const LINE_WORDS: usize = 64 / WORD;

/// The bytes named do not all lie in the region. None was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} do not lie in a region of {region_len} bytes")]
pub struct OutOfBounds {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Size of the region in bytes. In a circular one accesses may end at twice that.
    pub region_len: u64,
}

/// The kind of memory that a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Ordinary memory of this process: [`Region::new`], [`Region::load_file`].
    Ordinary,
    /// Huge pages that were reserved beforehand: [`Region::huge_pages`].
    HugePages(HugePageSize),
    /// Shared memory without a name: [`Region::memfd`], [`Region::map_memfd`].
    Memfd,
    /// A file: [`Region::map_file`].
    File,
}

/// The size of a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePageSize {
    /// 2 MiB.
    TwoMiB,
    /// 1 GiB.
    OneGiB,
}

/// Page-aligned memory that many threads copy in and out of at once. See the [module](self) for
/// what concurrent copies may see, and for the kinds of memory.
pub struct Region {
    mapping: Mapping,
    /// In bytes; the rest of the last page is never copied out.
    len: usize,
    /// Whether the first byte comes after the last.
    is_circular: bool,
    /// In place of the mapping's words, which are never loom's.
    #[cfg(loom)]
    modelled: Box<[RegionWord]>,
}

impl Region {
    /// Allocates `len` bytes of zeros and touches every page. Slow on purpose (some 0.5 ms per
    /// MiB): call it at start-up.
    ///
    /// Whether the machine has that much memory to spare is the kernel's judgement: where it
    /// overcommits, touching the pages may still bring in the out-of-memory killer.
    ///
    /// # Errors
    ///
    /// See [`MemoryError`]: zero bytes, more than `isize::MAX`, or no memory.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        Ok(Self::over(Mapping::pages(checked_len(len)?)?, len))
    }

    /// A region of the first `len` bytes of `mapping`.
    fn over(mapping: Mapping, len: usize) -> Self {
        Self {
            mapping,
            len,
            is_circular: false,
            #[cfg(loom)]
            modelled: (0..len.div_ceil(WORD)).map(|_| RegionWord::new(0)).collect(),
        }
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.mapping.backing()
    }

    /// Size in bytes, as asked for: how many there are. Offsets of a circular region go further, up
    /// to its [`reach`](Region::reach).
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no region is empty: `new` refuses it")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies `bytes` into the region, beginning at `offset`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if not all of them fit; then nothing is copied. Zero bytes fit at every
    /// offset up to the end.
    #[inline]
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let Some(start) = self.start_of(offset, bytes.len()) else {
            return self.copy_in_around(offset, bytes);
        };
        let (mut first, skip) = (start / WORD, start % WORD);
        let words = self.words();
        let mut bytes = bytes;
        if skip != 0 && !bytes.is_empty() {
            let (edge, rest) = bytes.split_at(bytes.len().min(WORD - skip));
            merge(&words[first], skip, edge);
            bytes = rest;
            first += 1;
        }
        let (whole, edge) = bytes.as_chunks::<WORD>();
        put(&words[first..][..whole.len()], whole);
        if !edge.is_empty() {
            merge(&words[first + whole.len()], 0, edge);
        }
        Ok(())
    }

    /// Asks for the cache lines of `len` bytes at `offset`, so that a copy out soon afterwards
    /// finds them. Bytes that are not there are not asked for.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: usize) {
        let Some(start) = self.start_of(offset, len) else {
            return self.prefetch_around(offset, len);
        };
        let words = self.words();
        let last = (start + len).div_ceil(WORD).min(words.len());
        for line in words[start / WORD..last].chunks(LINE_WORDS) {
            prefetch_line((&raw const line[0]).cast());
        }
    }

    /// Fills `bytes` with what the region holds from `offset` on. The word in which they begin is
    /// read first and the word in which they end last, also among the copies that this thread makes
    /// before and after (see *Order* in the [module](self)).
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if the region ends before; then `bytes` is left alone. Zero bytes can be
    /// read at every offset up to the end.
    //= channels#2.3-ordered-reading
    #[inline]
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let Some(start) = self.start_of(offset, bytes.len()) else {
            return self.copy_out_around(offset, bytes);
        };
        let (mut first, skip) = (start / WORD, start % WORD);
        let words = self.words();
        let mut bytes = bytes;
        if skip != 0 && !bytes.is_empty() {
            let (edge, rest) = bytes.split_at_mut(bytes.len().min(WORD - skip));
            extract(&words[first], skip, edge);
            bytes = rest;
            first += 1;
        }
        let (whole, edge) = bytes.as_chunks_mut::<WORD>();
        get(&words[first..][..whole.len()], whole);
        if !edge.is_empty() {
            extract(&words[first + whole.len()], 0, edge);
        }
        Ok(())
    }

    /// `offset`, if all of `offset..offset + len` lies before the region's end: the only check of a
    /// plain region, and of a circular one the first.
    #[inline]
    fn start_of(&self, offset: u64, len: usize) -> Option<usize> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len as u64 => Some(offset as usize),
            _ => None,
        }
    }

    #[cfg(not(loom))]
    fn words(&self) -> &[RegionWord] {
        self.mapping.words()
    }

    #[cfg(loom)]
    fn words(&self) -> &[RegionWord] {
        &self.modelled
    }
}

/// Words of which those in the middle are copied by wide moves; fewer are not worth it. Loom cannot
/// walk through the orders of so many.
const WIDE_MIN: usize = if cfg!(loom) { 4 } else { 4 * wide::CHUNK };

/// Writes `bytes` into as many words.
#[inline]
fn put(words: &[RegionWord], bytes: &[[u8; WORD]]) {
    if words.len() < WIDE_MIN {
        put_single(words, bytes);
    } else {
        put_wide(words, bytes);
    }
}

/// Fills `bytes` with as many words: the first before all that this thread loads later, the last
/// after all that it has loaded before.
#[inline]
fn get(words: &[RegionWord], bytes: &mut [[u8; WORD]]) {
    if words.len() < WIDE_MIN {
        get_in_turn(words, bytes);
    } else {
        get_wide(words, bytes);
    }
}

/// As [`put`], by a store for each word.
#[inline]
fn put_single(words: &[RegionWord], bytes: &[[u8; WORD]]) {
    for (word, bytes) in words.iter().zip(bytes) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

/// As [`get`], by a load for each word, in its turn: before all that is loaded later.
#[inline]
fn get_in_turn(words: &[RegionWord], bytes: &mut [[u8; WORD]]) {
    for (word, bytes) in words.iter().zip(bytes) {
        *bytes = word.load(Ordering::Acquire).to_ne_bytes();
    }
}

/// As [`put`], by wide moves in the middle. The first word and the last are single stores, the
/// first before all others and the last after them.
#[inline(never)]
fn put_wide(words: &[RegionWord], bytes: &[[u8; WORD]]) {
    let (start, last) = middle(words);
    put_single(&words[..start], &bytes[..start]);
    let end = start + wide::copy_in(&words[start..last], &bytes[start..last]);
    put_single(&words[end..], &bytes[end..]);
}

/// As [`get`], by wide moves in the middle. The first word and the last are single loads, in their
/// turn.
#[inline(never)]
fn get_wide(words: &[RegionWord], bytes: &mut [[u8; WORD]]) {
    let (start, last) = middle(words);
    get_in_turn(&words[..start], &mut bytes[..start]);
    let end = start + wide::copy_out(&words[start..last], &mut bytes[start..last]);
    for (word, bytes) in words[end..last].iter().zip(&mut bytes[end..last]) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    fence(Ordering::Acquire);
    get_in_turn(&words[last..], &mut bytes[last..]);
}

/// Returns the range for wide moves: from after the first word to the last word, before which they
/// end.
fn middle(words: &[RegionWord]) -> (usize, usize) {
    let last = words.len() - 1;
    (1 + wide::before(&words[1..last]), last)
}

/// Writes `bytes` into `word`, from its byte `at` on, and keeps its other bytes, also those that
/// someone else writes meanwhile. Ends at the first try unless someone does.
fn merge(word: &RegionWord, at: usize, bytes: &[u8]) {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let mut new = old.to_ne_bytes();
        new[at..at + bytes.len()].copy_from_slice(bytes);
        let new = u64::from_ne_bytes(new);
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(current) => old = current,
        }
    }
}

/// Reads the bytes of `word` from byte `at` on, before all that is loaded later.
fn extract(word: &RegionWord, at: usize, bytes: &mut [u8]) {
    bytes.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes()[at..at + bytes.len()]);
}

impl fmt::Debug for Region {
    /// Not the bytes: they are the application's, and may change under our eyes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len)
            .field("is_circular", &self.is_circular)
            .field("backing", &self.backing())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
