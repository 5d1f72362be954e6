//! The expected content of a region that is written to, kept beside it and compared with it byte by
//! byte.

use rma_xdp::RegisteredRegion;

/// The bytes that a region should hold, from some offset on.
#[derive(Clone, Debug)]
pub struct Model {
    offset: u64,
    bytes: Vec<u8>,
}

impl Model {
    /// A region that holds `bytes`.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self { offset: 0, bytes }
    }

    /// A region that holds `bytes` from `offset` on.
    #[must_use]
    pub const fn at(offset: u64, bytes: Vec<u8>) -> Self {
        Self { offset, bytes }
    }

    /// The place of `offset` of the region in the model.
    fn start(&self, offset: u64) -> usize {
        let from = offset.checked_sub(self.offset).expect("not before the model");
        usize::try_from(from).expect("inside the model")
    }

    /// How many bytes of the region are modelled.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether nothing is modelled.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A write has landed.
    ///
    /// # Panics
    /// If it reaches outside the model.
    pub fn apply(&mut self, offset: u64, bytes: &[u8]) {
        let start = self.start(offset);
        self.bytes[start..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Copies what the region should hold from `offset` on into `bytes`, as far as it is modelled.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let held = self.bytes.get(self.start(offset)..).unwrap_or_default();
        bytes.iter_mut().zip(held).for_each(|(to, from)| *to = *from);
    }

    /// Returns the first place from `offset` on where `bytes` differ from the model; `None` if
    /// nowhere.
    ///
    /// # Panics
    /// If they reach outside the model.
    #[must_use]
    pub fn first_difference(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let expected = &self.bytes[self.start(offset)..][..bytes.len()];
        if expected == bytes {
            return None;
        }
        let at = expected.iter().zip(bytes).position(|(a, b)| a != b);
        at.map(|at| offset + at as u64)
    }

    /// Returns the first place where `region` differs from the model; `None` if nowhere.
    ///
    /// # Panics
    /// If the region is shorter than the model.
    #[must_use]
    pub fn first_difference_in(&self, region: &RegisteredRegion) -> Option<u64> {
        let mut found = vec![0; self.bytes.len()];
        region.read(self.offset, &mut found).expect("the region is as long as its model");
        self.first_difference(self.offset, &found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_from_what_was_written_is_found_where_it_is() {
        let mut model = Model::new(vec![0; 100]);
        model.apply(40, &[1, 2, 3]);
        assert_eq!(model.first_difference(39, &[0, 1, 2, 3, 0]), None);
        assert_eq!(model.first_difference(40, &[1, 2, 4]), Some(42));
        assert_eq!(model.first_difference(43, &[3]), Some(43));
    }
}
