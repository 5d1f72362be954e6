//! How much may be moved in one go (not in the paper).

/// A number of bytes that frames may use up. The first frame always may; a next one, if one like the last would fit.
#[derive(Clone, Copy, Debug)]
pub struct Quantum {
    len: usize,
    used: usize,
    last: usize,
}

impl Quantum {
    /// `len` bytes, none of them used.
    #[must_use]
    pub const fn new(len: usize) -> Self {
        Self { len, used: 0, last: 0 }
    }

    /// As long as frames are alike, no more than one.
    #[must_use]
    pub const fn one_frame() -> Self {
        Self::new(0)
    }

    /// Whether one more frame may go.
    #[must_use]
    pub const fn admits(&self) -> bool {
        self.used == 0 || self.used + self.last <= self.len
    }

    /// A frame of `len` bytes went.
    pub const fn take(&mut self, len: usize) {
        self.used += len;
        self.last = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_frame_always_goes_and_others_if_they_fit() {
        for (len, frame, count) in
            [(0, 100, 1), (4096, 3312, 1), (4096, 1472, 2), (4096, 112, 36), (4096, 4096, 1)]
        {
            let mut quantum = Quantum::new(len);
            let mut went = 0;
            while quantum.admits() {
                quantum.take(frame);
                went += 1;
            }
            assert_eq!(went, count, "{frame} of {len}");
        }
    }
}
