//! A frame's shape: which of its blocks are done how.
//!
//! ```text
//! AAD                       payload                                        lengths
//! |----|----|--|            |----|----|====================|----|-|        |----|
//!            rest            head      bulk                     rest
//! ```
//!
//! Head: whole blocks that are done with one frame in each lane. Bulk: a multiple of what the bulk
//! loop takes at once, perhaps nothing. A rest is less than a block. A frame without bulk is hashed
//! with one frame in each lane up to the lengths; with bulk, up to the end of the head, and `bulk`
//! does what follows.

/// Lengths, in octets. Public: nothing in here depends on what the octets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) aad: usize,
    pub(super) text: usize,
    /// Of the text, what the bulk loop does.
    pub(super) bulk: usize,
}

/// One block of what is hashed with a frame in each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A whole block of AAD at an offset.
    Aad(usize),
    /// The rest of the AAD, from an offset.
    AadRest(usize),
    /// A whole block of the head at an offset.
    Head(usize),
    /// The rest of the text, from an offset.
    TextRest(usize),
    /// The block with the lengths.
    Lengths,
}

impl Shape {
    /// Of no frame at all.
    pub(super) const NOTHING: Self = Self { aad: 0, text: 0, bulk: 0 };

    /// Of a text of `text` octets the bulk loop does a multiple of `chunk`, if there are at least
    /// `bulk_min`.
    #[inline(always)]
    pub(super) const fn new(aad: usize, text: usize, chunk: usize, bulk_min: usize) -> Self {
        let bulk = if text < bulk_min { 0 } else { text / chunk * chunk };
        Self { aad, text, bulk }
    }

    /// Octets of the AAD before its rest.
    #[inline(always)]
    pub(super) const fn aad_whole(self) -> usize {
        self.aad / 16 * 16
    }

    /// Octets of the head.
    #[inline(always)]
    pub(super) const fn head(self) -> usize {
        (self.text - self.bulk) / 16 * 16
    }

    /// Octets of the text before its rest.
    #[inline(always)]
    pub(super) const fn text_whole(self) -> usize {
        self.text / 16 * 16
    }

    /// Whether the AAD ends in a block that is not whole.
    #[inline(always)]
    pub(super) const fn has_aad_rest(self) -> bool {
        !self.aad.is_multiple_of(16)
    }

    /// Whether the text ends in a block that is not whole.
    #[inline(always)]
    pub(super) const fn has_text_rest(self) -> bool {
        !self.text.is_multiple_of(16)
    }

    /// How many blocks are hashed with a frame in each lane.
    #[inline(always)]
    pub(super) const fn hashed(self) -> usize {
        let to_head = self.aad.div_ceil(16) + self.head() / 16;
        if self.bulk > 0 { to_head } else { to_head + self.has_text_rest() as usize + 1 }
    }

    /// The block number `index` of those.
    #[inline(always)]
    pub(super) const fn part(self, index: usize) -> Part {
        let offset = index * 16;
        if offset < self.aad_whole() {
            return Part::Aad(offset);
        }
        if offset < self.aad {
            return Part::AadRest(offset);
        }
        let offset = offset - self.aad.next_multiple_of(16);
        if offset < self.head() {
            Part::Head(offset)
        } else if offset == self.head() && self.has_text_rest() {
            Part::TextRest(offset)
        } else {
            Part::Lengths
        }
    }

    /// The block with the lengths: both in bits, the AAD's first, high octets first. Little-endian,
    /// as vectors are made.
    #[inline(always)]
    pub(super) const fn lengths(self) -> u128 {
        let (aad, text) = (self.aad as u64 * 8, self.text as u64 * 8);
        aad.swap_bytes() as u128 | (text.swap_bytes() as u128) << 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_its_part_in_order() {
        use Part::*;
        let parts = |aad, text, bulk_min| {
            let shape = Shape::new(aad, text, 256, bulk_min);
            (0..shape.hashed()).map(|index| shape.part(index)).collect::<Vec<_>>()
        };
        assert_eq!(parts(0, 0, 256), [Lengths]);
        assert_eq!(parts(40, 0, 256), [Aad(0), Aad(16), AadRest(32), Lengths]);
        assert_eq!(parts(16, 33, 256), [Aad(0), Head(0), Head(16), TextRest(32), Lengths]);
        assert_eq!(parts(1, 256, 512).len(), 1 + 16 + 1);
        assert_eq!(parts(1, 256, 256), [AadRest(0)]);
        assert_eq!(parts(0, 256 + 17, 256), [Head(0)]);
    }

    #[test]
    fn lengths_are_in_bits_with_high_octets_first() {
        let lengths = Shape::new(40, 4096, 256, 256).lengths().to_le_bytes();
        assert_eq!(lengths, [0, 0, 0, 0, 0, 0, 1, 64, 0, 0, 0, 0, 0, 0, 128, 0]);
    }
}
