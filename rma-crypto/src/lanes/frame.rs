//! One frame of a group, and its shape: which of its blocks are done how.
//!
//! ```text
//! AAD                       payload                                        lengths
//! |----|----|--|            |----|----|====================|----|-|        |----|
//!  short      aad rest       head      bulk                     rest
//! ```
//!
//! Head: whole blocks that are done with one frame in each lane. Bulk: a multiple of what the bulk loop takes at once,
//! perhaps nothing. The rest is less than a block. A frame without bulk is hashed in one go up to the lengths; with
//! bulk, up to the end of the head, and `bulk` does what follows.

use super::{
    isa::Block,
    span::{Side, Span, padded},
};
use crate::{
    job::{IV_LEN, JobKey, OpenJob, SealJob},
    key::Key,
};

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
    /// The rest of the AAD.
    AadRest,
    /// A whole block of the head at an offset.
    Head(usize),
    /// The rest of the text.
    TextRest,
    /// The block with the lengths.
    Lengths,
}

impl Shape {
    /// Of a text of `text` octets the bulk loop does a multiple of `chunk`, if there are at least `bulk_min`.
    #[inline(always)]
    pub(super) const fn new(aad: usize, text: usize, chunk: usize, bulk_min: usize) -> Self {
        let bulk = if text < bulk_min { 0 } else { text / chunk * chunk };
        Self { aad, text, bulk }
    }

    /// Octets of the head.
    #[inline(always)]
    pub(super) const fn head(self) -> usize {
        (self.text - self.bulk) / 16 * 16
    }

    /// Octets of the text before its rest.
    #[inline(always)]
    pub(super) const fn whole(self) -> usize {
        self.text / 16 * 16
    }

    /// Whether the text ends in a block that is not whole.
    #[inline(always)]
    pub(super) const fn has_rest(self) -> bool {
        !self.text.is_multiple_of(16)
    }

    /// How many blocks are hashed with a frame in each lane.
    #[inline(always)]
    pub(super) const fn hashed(self) -> usize {
        let to_head = self.aad.div_ceil(16) + self.head() / 16;
        if self.bulk > 0 { to_head } else { to_head + self.has_rest() as usize + 1 }
    }

    /// The block number `index` of those.
    #[inline(always)]
    pub(super) const fn part(self, index: usize) -> Part {
        let offset = index * 16;
        if offset + 16 <= self.aad {
            return Part::Aad(offset);
        }
        if offset < self.aad {
            return Part::AadRest;
        }
        let offset = offset - self.aad.next_multiple_of(16);
        if offset < self.head() {
            Part::Head(offset)
        } else if offset == self.head() && self.has_rest() {
            Part::TextRest
        } else {
            Part::Lengths
        }
    }
}

/// One frame of a group.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) key: JobKey<'a>,
    pub(super) shape: Shape,
    pub(super) span: Span<'a>,
    aad: &'a [u8],
    aad_rest: Block,
    /// The rest of the ciphertext.
    pub(super) text_rest: Block,
    lengths: Block,
    /// The IV, followed by block number 1: J_0 of the specification.
    pub(super) first_counter: Block,
}

impl<'a> Frame<'a> {
    #[inline(always)]
    pub(super) fn of_seal(job: &'a mut SealJob<'_>, chunk: usize, bulk_min: usize) -> Self {
        let shape = Shape::new(job.aad.len(), job.text.len(), chunk, bulk_min);
        Self::new(job.key, job.aad, &job.iv, Span::new(&mut job.text), shape)
    }

    #[inline(always)]
    pub(super) fn of_open(job: &'a mut OpenJob<'_>, chunk: usize, bulk_min: usize) -> Self {
        let shape = Shape::new(job.aad.len(), job.text.len(), chunk, bulk_min);
        let mut frame = Self::new(job.key, job.aad, &job.iv, Span::new(&mut job.text), shape);
        if shape.has_rest() {
            frame.text_rest = frame.span.rest(Side::From, shape.whole());
        }
        frame
    }

    /// No frame: what a lane holds that has none.
    #[inline(always)]
    pub(super) const fn nothing() -> Self {
        static NO_KEY: Key = Key::from_bytes([0; 16]);
        Self {
            key: JobKey::Fresh(&NO_KEY),
            shape: Shape { aad: 0, text: 0, bulk: 0 },
            span: Span::empty(),
            aad: &[],
            aad_rest: [0; 16],
            text_rest: [0; 16],
            lengths: [0; 16],
            first_counter: [0; 16],
        }
    }

    #[inline(always)]
    fn new(
        key: JobKey<'a>,
        aad: &'a [u8],
        iv: &[u8; IV_LEN],
        span: Span<'a>,
        shape: Shape,
    ) -> Self {
        let bits = (shape.aad as u128 * 8) << 64 | shape.text as u128 * 8;
        Self {
            key,
            shape,
            span,
            aad,
            aad_rest: padded(&aad[aad.len() / 16 * 16..]),
            text_rest: [0; 16],
            lengths: bits.to_be_bytes(),
            first_counter: counter(iv, 1),
        }
    }

    /// The counter block of the text's rest.
    #[inline(always)]
    pub(super) fn rest_counter(&self) -> Block {
        let iv = self.first_counter.first_chunk().expect("an IV is shorter than a block");
        // Block number 1 is the tag's, so the text begins with 2.
        counter(iv, 2 + (self.shape.text / 16) as u32)
    }

    /// A block of what is hashed.
    #[inline(always)]
    pub(super) fn block(&self, side: Side, part: Part) -> &Block {
        match part {
            Part::Aad(offset) => {
                self.aad[offset..].first_chunk().expect("`Shape::part` names whole blocks")
            }
            Part::AadRest => &self.aad_rest,
            Part::Head(offset) => &self.span.blocks::<1>(side, offset)[0],
            Part::TextRest => &self.text_rest,
            Part::Lengths => &self.lengths,
        }
    }
}

/// IV and block number, as AES gets them.
#[inline(always)]
fn counter(iv: &[u8; IV_LEN], number: u32) -> Block {
    let mut block = [0; 16];
    block[..IV_LEN].copy_from_slice(iv);
    block[IV_LEN..].copy_from_slice(&number.to_be_bytes());
    block
}

impl Frame<'_> {
    /// The counter of the frame's lengths block, for the bulk loop's end.
    #[inline(always)]
    pub(super) const fn lengths(&self) -> &Block {
        &self.lengths
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
        assert_eq!(parts(40, 0, 256), [Aad(0), Aad(16), AadRest, Lengths]);
        assert_eq!(parts(16, 33, 256), [Aad(0), Head(0), Head(16), TextRest, Lengths]);
        assert_eq!(parts(1, 256, 512).len(), 1 + 16 + 1);
        assert_eq!(parts(1, 256, 256), [AadRest]);
        assert_eq!(parts(0, 256 + 17, 256), [Head(0)]);
    }
}
