//! A frame's payload: read in one place, and written in the same or another.
//!
//! In place, source and destination are the same octets, which two Rust references may not be. So
//! [`Text`] holds pointers, and hands out one short-lived reference at a time: reads borrow the
//! text, writes borrow it exclusively, and every one of them is checked against the length.

use core::{fmt, marker::PhantomData};

#[cfg(target_arch = "x86_64")]
use crate::lanes::Block;

/// The place that a frame's payload is read from, and the place that it is written to: the same
/// place, or another of the same length.
pub struct Text<'a> {
    /// The same as `to`, or disjoint from it.
    from: *const u8,
    to: *mut u8,
    len: usize,
    _borrowed: PhantomData<(&'a [u8], &'a mut [u8])>,
}

// SAFETY: a text is a shared and an exclusive reference to octets, both of which may be sent.
unsafe impl Send for Text<'_> {}

// SAFETY: behind a shared reference a text is only read, as what it is made of.
unsafe impl Sync for Text<'_> {}

/// Source and destination differ in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the source has {from} octets and the destination {to}: both must be as long as the payload"
)]
pub struct UnequalLengths {
    /// Octets of the source.
    pub from: usize,
    /// Octets of the destination.
    pub to: usize,
}

/// The side of a text that holds the ciphertext.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Opening: it is read.
    From,
    /// Sealing: it has been written.
    To,
}

impl<'a> Text<'a> {
    /// No payload at all.
    #[must_use]
    pub const fn empty() -> Self {
        Self::in_place(&mut [])
    }

    /// The payload is replaced where it is.
    #[must_use]
    pub const fn in_place(text: &'a mut [u8]) -> Self {
        let to = text.as_mut_ptr();
        Self { from: to.cast_const(), to, len: text.len(), _borrowed: PhantomData }
    }

    /// The payload is read from one place and written to another.
    ///
    /// # Errors
    /// If the two differ in length.
    pub const fn from_to(from: &'a [u8], to: &'a mut [u8]) -> Result<Self, UnequalLengths> {
        if from.len() != to.len() {
            return Err(UnequalLengths { from: from.len(), to: to.len() });
        }
        let (from, len) = (from.as_ptr(), from.len());
        Ok(Self { from, to: to.as_mut_ptr(), len, _borrowed: PhantomData })
    }

    /// Octets of the payload.
    #[inline(always)]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no payload.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The source, if it is another place, and the destination.
    pub fn parts(&mut self) -> (Option<&[u8]>, &mut [u8]) {
        let from = (self.from != self.to.cast_const()).then(|| {
            // SAFETY: the source was lent as a shared slice of this length, for longer than `self`
            // is borrowed; what begins elsewhere than the destination is disjoint from it, as both
            // were lent at the same time.
            unsafe { core::slice::from_raw_parts(self.from, self.len) }
        });
        // SAFETY: the destination was lent as an exclusive slice of this length, and is lent on for
        // as long as `self` is borrowed exclusively.
        let to = unsafe { core::slice::from_raw_parts_mut(self.to, self.len) };
        (from, to)
    }
}

#[cfg(target_arch = "x86_64")]
impl Text<'_> {
    /// The same text, for a while. Where it is kept by value, the compiler knows that what is
    /// written to the payload does not change where the payload is.
    #[inline(always)]
    pub(crate) const fn lend(&mut self) -> Text<'_> {
        Text { from: self.from, to: self.to, len: self.len, _borrowed: PhantomData }
    }

    /// All octets of one side.
    #[inline(always)]
    pub(crate) const fn side(&self, side: Side) -> &[u8] {
        let from = match side {
            Side::From => self.from,
            Side::To => self.to.cast_const(),
        };
        // SAFETY: both sides were lent for longer than `self` is borrowed, with this length; and
        // nobody writes to them while the result borrows `self`.
        unsafe { core::slice::from_raw_parts(from, self.len) }
    }

    /// `N` blocks of the destination at `offset`, in octets.
    #[inline(always)]
    pub(crate) fn blocks_mut<const N: usize>(&mut self, offset: usize) -> &mut [Block; N] {
        assert!(offset <= self.len && N * 16 <= self.len - offset, "inside the payload");
        let to = self.to.wrapping_add(offset);
        // SAFETY: `offset` and the blocks lie inside the destination (checked above), which was
        // lent exclusively to `self`, and is lent on for as long as `self` is borrowed exclusively.
        // Any octets are valid blocks.
        unsafe { &mut *to.cast() }
    }

    /// Writes the begin of `block`, its first octet lowest, to the destination from `offset` up to
    /// the payload's end, at most a block away.
    #[inline(always)]
    pub(crate) fn write_rest(&mut self, offset: usize, block: u128) {
        let block: Block = block.to_le_bytes();
        let rest = &mut self.parts().1[offset..];
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

/// `N` blocks of `octets` at `offset`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn blocks<const N: usize>(octets: &[u8], offset: usize) -> &[Block; N] {
    assert!(offset <= octets.len() && N * 16 <= octets.len() - offset, "inside the payload");
    let from = octets.as_ptr().wrapping_add(offset);
    // SAFETY: `offset` and the blocks lie inside the octets (checked above), and any octets are
    // valid blocks.
    unsafe { &*from.cast() }
}

impl fmt::Debug for Text<'_> {
    /// The length only: before sealing and after opening, the octets are somebody's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_in_place = self.from == self.to.cast_const();
        let place = if is_in_place { "in place" } else { "from one place to another" };
        write!(f, "Text({} octets, {place})", self.len)
    }
}

/// At most 16 octets as a little-endian number. The branches are on the length alone.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn padded(octets: &[u8]) -> u128 {
    let len = octets.len();
    let (low, high) = if let Some(whole) = octets.first_chunk::<16>() {
        return u128::from_le_bytes(*whole);
    } else if let (Some(low), Some(last)) = (octets.first_chunk(), octets.last_chunk()) {
        // The last eight octets, without those that are among the first eight.
        let high = u64::from_le_bytes(*last).unbounded_shr(8 * (16 - len as u32));
        (u64::from_le_bytes(*low), high)
    } else if let (Some(low), Some(last)) = (octets.first_chunk(), octets.last_chunk()) {
        let (low, last) = (u32::from_le_bytes(*low), u32::from_le_bytes(*last));
        let high = u64::from(last).unbounded_shr(8 * (8 - len as u32)) << 32;
        (u64::from(low) | high, 0)
    } else if let (Some(first), Some(last)) = (octets.first(), octets.last()) {
        // One to three octets: some of these are the same octet twice, at the same place.
        let middle = u64::from(octets[len / 2]) << (8 * (len / 2));
        (u64::from(*first) | middle | u64::from(*last) << (8 * (len - 1)), 0)
    } else {
        (0, 0)
    };
    u128::from(low) | u128::from(high) << 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_and_destination_must_have_one_length() {
        assert_eq!(
            Text::from_to(&[0; 3], &mut [0; 4]).unwrap_err(),
            UnequalLengths { from: 3, to: 4 }
        );
        assert_eq!(Text::from_to(&[0; 4], &mut [0; 4]).unwrap().len(), 4);
    }

    #[test]
    fn debug_output_shows_no_payload() {
        let text = format!("{:?}", Text::in_place(&mut [0x5a; 4]));
        assert_eq!(text, "Text(4 octets, in place)");
    }

    #[test]
    fn parts_are_what_was_lent() {
        let (from, mut to) = ([1; 5], [2; 5]);
        let mut text = Text::from_to(&from, &mut to).unwrap();
        assert_eq!(text.parts(), (Some(&[1; 5][..]), &mut [2; 5][..]));
        let mut text = Text::in_place(&mut to);
        assert_eq!(text.parts(), (None, &mut [2; 5][..]));
    }

    #[cfg(target_arch = "x86_64")]
    mod by_blocks {
        use super::*;

        #[test]
        fn padding_keeps_the_octets_and_adds_zeros() {
            let octets: Vec<u8> = (1..=16).collect();
            for len in 0..=16 {
                let mut expected = [0; 16];
                expected[..len].copy_from_slice(&octets[..len]);
                assert_eq!(padded(&octets[..len]).to_le_bytes(), expected, "{len} octets");
            }
        }

        #[test]
        fn nothing_is_read_or_written_beyond_the_payload() {
            let from: Vec<u8> = (0..35).collect();
            let mut to = [0xff; 35];
            let mut text = Text::from_to(&from, &mut to).unwrap();
            let block = blocks::<1>(text.side(Side::From), 16)[0];
            text.blocks_mut::<1>(0)[0] = block;
            let rest = padded(&text.side(Side::From)[32..]);
            text.write_rest(32, rest);
            let expected = (&from[16..32], &[0xff; 16][..], &from[32..]);
            assert_eq!((&to[..16], &to[16..32], &to[32..]), expected);
        }

        #[test]
        fn in_place_both_sides_are_the_same() {
            let mut octets: Vec<u8> = (0..16).collect();
            let mut text = Text::in_place(&mut octets);
            text.blocks_mut::<1>(0)[0][3] = 77;
            assert_eq!(text.side(Side::From), text.side(Side::To));
            assert_eq!(text.lend().side(Side::From)[3], 77);
            assert_eq!(octets[3], 77);
        }

        #[test]
        #[should_panic(expected = "inside the payload")]
        fn a_block_beyond_the_end_is_refused() {
            let _ = blocks::<1>(&[0; 31], 16);
        }
    }
}
