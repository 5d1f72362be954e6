//! The host that last spoke another version of the wire format: whoever operates the hosts must
//! find it, and nothing can be answered to it.
//!
//! One thread notes and any may look. A look that meets a note in the making is repeated: the notes
//! are between two numbers, which are equal only when they belong together.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use crate::addr::HostAddr;

/// A frame of another version of the wire format: where it said that it came from. Nothing about it
/// is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherVersion {
    /// The source of its packet.
    pub host: HostAddr,
    /// Its version, which is the octet that every frame of every version begins with.
    pub version: u8,
}

impl OtherVersion {
    pub(super) const fn new(host: HostAddr, version: u8) -> Self {
        Self { host, version }
    }
}

/// The last one.
#[derive(Debug, Default)]
pub(super) struct OtherVersionCell {
    /// 0: there was none. Odd: the words are being written.
    changes: AtomicU64,
    words: [AtomicU64; 3],
}

/// How often a look is repeated. A note takes a few nanoseconds, and is made only when it differs
/// from the last.
const LOOKS: u32 = 1_000;

impl OtherVersionCell {
    /// For the engine thread alone.
    #[cold]
    pub(super) fn note(&self, seen: OtherVersion) {
        let words = words(seen);
        let changes = self.changes.load(Relaxed);
        if changes > 0 && self.words.each_ref().map(|word| word.load(Relaxed)) == words {
            return;
        }
        self.changes.store(changes + 1, Relaxed);
        fence(Release);
        self.words.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
        self.changes.store(changes + 2, Release);
    }

    /// The last that was noted; `None` if there was none, or others come so fast that none could be
    /// read.
    pub(super) fn load(&self) -> Option<OtherVersion> {
        (0..LOOKS).find_map(|_| self.look())
    }

    fn look(&self) -> Option<OtherVersion> {
        let changes = self.changes.load(Acquire);
        let [high, low, version] = self.words.each_ref().map(|word| word.load(Relaxed));
        fence(Acquire);
        // By this look's own reading: what is noted after it was not seen.
        let is_whole =
            changes > 0 && changes.is_multiple_of(2) && self.changes.load(Relaxed) == changes;
        let host =
            HostAddr::from_octets(((u128::from(high) << 64) | u128::from(low)).to_be_bytes());
        is_whole.then_some(OtherVersion { host, version: version as u8 })
    }
}

const fn words(OtherVersion { host, version }: OtherVersion) -> [u64; 3] {
    let bits = u128::from_be_bytes(host.to_octets());
    [(bits >> 64) as u64, bits as u64, version as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_told_and_nothing_before_the_first() {
        let cell = OtherVersionCell::default();
        assert_eq!(cell.load(), None);
        for (text, version) in
            [("192.0.2.1", 1), ("2001:db8::1", 255), ("2001:db8::1", 0), ("0.0.0.0", 0)]
        {
            let seen = OtherVersion::new(text.parse().unwrap(), version);
            cell.note(seen);
            cell.note(seen);
            assert_eq!(cell.load(), Some(seen));
        }
        assert_eq!(cell.changes.load(Relaxed), 8, "what is known already is not written again");
    }

    #[test]
    fn a_reader_while_another_is_noted_sees_one_of_the_two_whole() {
        let cell = OtherVersionCell::default();
        let both = [(0, 1), (u8::MAX, 3)]
            .map(|(octet, version)| OtherVersion::new(HostAddr::from_octets([octet; 16]), version));
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let seen = core::iter::from_fn(|| Some(cell.load()));
                // Until both have been seen, and then some.
                let mut counts = [0_u32; 2];
                for seen in seen.flatten() {
                    let which = both.iter().position(|it| *it == seen);
                    counts[which.unwrap_or_else(|| panic!("a mixture: {seen:?}"))] += 1;
                    if counts.iter().all(|&count| count > 100) {
                        return;
                    }
                }
            });
            for seen in both.iter().cycle() {
                cell.note(*seen);
                if looking.is_finished() {
                    break;
                }
            }
        });
    }
}
