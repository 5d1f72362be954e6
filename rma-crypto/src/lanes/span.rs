//! A payload that is read in one place and written in the same or another.
//!
//! In place, source and destination are the same octets, which two Rust references may not be. So this holds
//! pointers, and hands out one short-lived reference at a time: reads borrow the span, writes borrow it exclusively,
//! and every one of them is checked against the length.

use core::marker::PhantomData;

use super::isa::Block;
use crate::job::Text;

/// Source and destination of one payload.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    from: *const u8,
    to: *mut u8,
    len: usize,
    _text: PhantomData<(&'a [u8], &'a mut [u8])>,
}

/// Which side of a span holds the ciphertext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Opening: it is read.
    From,
    /// Sealing: it has been written.
    To,
}

impl<'a> Span<'a> {
    /// No octets.
    #[inline(always)]
    pub(crate) const fn empty() -> Self {
        let nowhere = core::ptr::NonNull::dangling().as_ptr();
        Self { from: nowhere, to: nowhere, len: 0, _text: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn new<'t: 'a>(text: &'a mut Text<'t>) -> Self {
        let (from, to) = text.parts();
        let (len, to) = (to.len(), to.as_mut_ptr());
        // `Text` has checked that the source, if there is one, is as long.
        Self { from: from.map_or(to.cast_const(), <[u8]>::as_ptr), to, len, _text: PhantomData }
    }

    #[inline(always)]
    const fn side(&self, side: Side) -> *const u8 {
        match side {
            Side::From => self.from,
            Side::To => self.to.cast_const(),
        }
    }

    /// `N` blocks at `offset`, in octets.
    #[inline(always)]
    pub(crate) fn blocks<const N: usize>(&self, side: Side, offset: usize) -> &[Block; N] {
        assert!(offset <= self.len && N * 16 <= self.len - offset, "inside the payload");
        let from = self.side(side).wrapping_add(offset);
        // SAFETY: `offset` and the blocks lie inside the text that `self` borrows (checked above), any octets are valid
        // blocks, and nobody writes there while the result borrows `self`.
        unsafe { &*from.cast() }
    }

    /// `N` blocks of the destination at `offset`, in octets.
    #[inline(always)]
    pub(crate) fn blocks_mut<const N: usize>(&mut self, offset: usize) -> &mut [Block; N] {
        assert!(offset <= self.len && N * 16 <= self.len - offset, "inside the payload");
        let to = self.to.wrapping_add(offset);
        // SAFETY: as in `blocks`; and the destination is borrowed exclusively by `self`, and `self` by the result.
        unsafe { &mut *to.cast() }
    }

    /// What follows `offset`, less than a block, with zeros after it.
    #[inline(always)]
    pub(crate) fn rest(&self, side: Side, offset: usize) -> Block {
        assert!(offset <= self.len, "inside the payload");
        let from = self.side(side).wrapping_add(offset);
        // SAFETY: as in `blocks`, up to the end of the payload.
        let rest = unsafe { core::slice::from_raw_parts(from, self.len - offset) };
        padded(rest)
    }

    /// Writes the begin of `block` to the destination from `offset` up to the payload's end, less than a block away.
    #[inline(always)]
    pub(crate) fn write_rest(&mut self, offset: usize, block: &Block) {
        assert!(offset <= self.len && self.len - offset <= block.len(), "inside the payload");
        let to = self.to.wrapping_add(offset);
        // SAFETY: as in `blocks_mut`, up to the end of the payload.
        let rest = unsafe { core::slice::from_raw_parts_mut(to, self.len - offset) };
        for (to, from) in rest.iter_mut().zip(block) {
            *to = *from;
        }
    }
}

/// At most 16 octets, with zeros after them. The branches are on the length alone.
#[inline(always)]
pub(crate) fn padded(octets: &[u8]) -> Block {
    let len = octets.len();
    let (low, high) = if let Some(whole) = octets.first_chunk::<16>() {
        return *whole;
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
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_keeps_the_octets_and_adds_zeros() {
        let octets: Vec<u8> = (1..=16).collect();
        for len in 0..=16 {
            let mut expected = [0; 16];
            expected[..len].copy_from_slice(&octets[..len]);
            assert_eq!(padded(&octets[..len]), expected, "{len} octets");
        }
    }

    #[test]
    fn a_span_reads_and_writes_no_further_than_its_payload() {
        let from: Vec<u8> = (0..35).collect();
        let mut to = [0xff; 35];
        let mut text = Text::from_to(&from, &mut to).unwrap();
        let mut span = Span::new(&mut text);
        let block = span.blocks::<1>(Side::From, 16)[0];
        span.blocks_mut::<1>(0)[0] = block;
        let rest = span.rest(Side::From, 32);
        span.write_rest(32, &rest);
        assert_eq!(
            (&to[..16], &to[16..32], &to[32..]),
            (&from[16..32], &[0xff; 16][..], &from[32..])
        );
    }

    #[test]
    fn in_place_both_sides_are_the_same() {
        let mut octets: Vec<u8> = (0..16).collect();
        let mut text = Text::in_place(&mut octets);
        let mut span = Span::new(&mut text);
        span.blocks_mut::<1>(0)[0][3] = 77;
        assert_eq!(span.blocks::<1>(Side::From, 0), span.blocks::<1>(Side::To, 0));
        assert_eq!(octets[3], 77);
    }

    #[test]
    #[should_panic(expected = "inside the payload")]
    fn a_block_beyond_the_end_is_refused() {
        let mut octets = [0; 31];
        let mut text = Text::in_place(&mut octets);
        let _ = Span::new(&mut text).blocks::<1>(Side::From, 16);
    }
}
