//! The seeded pattern that a served region holds, so that whoever knows the seed can check every
//! byte.

use rma_core::region::RegisteredRegion;

/// Bytes that follow from a seed and their place alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

/// Bytes written or checked at once.
const STEP: usize = 64 << 10;

impl Pattern {
    /// The pattern of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The seed that the bytes follow from.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Writes the pattern's bytes from `offset` on into `out`.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let mut word = 0;
        let mut bytes = [0; 8];
        for (place, byte) in (offset..).zip(out) {
            if place / 8 != word || place == offset {
                word = place / 8;
                bytes = self.word(word).to_le_bytes();
            }
            *byte = bytes[(place % 8) as usize];
        }
    }

    /// Returns the first place from `offset` on where `bytes` differ from the pattern's; `None` if
    /// nowhere.
    #[must_use]
    pub fn first_difference(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; STEP];
        for (step, bytes) in bytes.chunks(STEP).enumerate() {
            let start = offset + (step * STEP) as u64;
            let expected = &mut expected[..bytes.len()];
            self.fill(start, expected);
            if expected != bytes {
                let at = expected.iter().zip(bytes).position(|(a, b)| a != b);
                return at.map(|at| start + at as u64);
            }
        }
        None
    }

    /// Fills a whole region.
    ///
    /// # Panics
    /// Never: the bounds are the region's own.
    pub fn fill_region(&self, region: &RegisteredRegion) {
        let mut bytes = [0; STEP];
        let mut offset = 0;
        while offset < region.len() {
            let len = (region.len() - offset).min(STEP as u64) as usize;
            self.fill(offset, &mut bytes[..len]);
            region.write(offset, &bytes[..len]).expect("inside the region");
            offset += len as u64;
        }
    }

    /// A mixing function in the manner of SplitMix64: neighbours have nothing in common.
    const fn word(&self, index: u64) -> u64 {
        let mut x = self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_pattern_is_the_same_wherever_it_is_begun() {
        let pattern = Pattern::new(7);
        let mut whole = [0; 100];
        pattern.fill(1000, &mut whole);
        for start in 0..100 {
            let mut part = vec![0; 100 - start];
            pattern.fill(1000 + start as u64, &mut part);
            assert_eq!(part, whole[start..]);
        }
    }

    #[test]
    fn a_difference_is_found_where_it_is() {
        let pattern = Pattern::new(7);
        let mut bytes = vec![0; 3 * STEP];
        pattern.fill(5, &mut bytes);
        assert_eq!(pattern.first_difference(5, &bytes), None);
        assert_ne!(pattern.first_difference(6, &bytes), None);
        assert_ne!(Pattern::new(8).first_difference(5, &bytes), None);
        bytes[2 * STEP + 9] ^= 1;
        assert_eq!(pattern.first_difference(5, &bytes), Some(5 + 2 * STEP as u64 + 9));
    }
}
