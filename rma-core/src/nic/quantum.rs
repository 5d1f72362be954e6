//! How much may be sent in one go (not in the paper).

use crate::op::ClassOfService;

/// A number of bytes that frames may use up. The first frame may always go, however long it is; a
/// later one may go if a frame as long as the one before it would still fit.
#[derive(Clone, Copy, Debug)]
pub struct Quantum {
    left: usize,
    bulk_min: usize,
    last: Option<usize>,
}

impl Quantum {
    /// `len` bytes, none of them used.
    #[must_use]
    pub const fn new(len: usize) -> Self {
        Self { left: len, bulk_min: 0, last: None }
    }

    /// The same, where a frame of the throughput class uses up a quarter at least, however short it
    /// is: what it costs besides its bytes holds up ops of the latency class too.
    #[must_use]
    pub const fn beside_latency(len: usize) -> Self {
        Self { bulk_min: len / 4, ..Self::new(len) }
    }

    /// As long as frames are alike, no more than one.
    #[must_use]
    pub const fn one_frame() -> Self {
        Self::new(0)
    }

    /// Whether one more frame may go.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.last.is_none_or(|last| last <= self.left)
    }

    /// A frame of `class` went, of `len` bytes.
    pub fn take(&mut self, class: ClassOfService, len: usize) {
        let min = if class == ClassOfService::Throughput { self.bulk_min } else { 0 };
        let used = len.max(min);
        self.left = self.left.saturating_sub(used);
        self.last = Some(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(mut quantum: Quantum, class: ClassOfService, frame: usize) -> usize {
        let mut went = 0;
        while quantum.admits() {
            quantum.take(class, frame);
            went += 1;
        }
        went
    }

    #[test]
    fn a_first_frame_always_goes_and_others_if_they_fit() {
        for (len, frame, expected) in
            [(0, 100, 1), (4096, 3312, 1), (4096, 1472, 2), (4096, 112, 36), (4096, 4096, 1)]
        {
            let (quantum, beside) = (Quantum::new(len), Quantum::beside_latency(len));
            for class in ClassOfService::ALL {
                assert_eq!(count(quantum, class, frame), expected, "{frame} of {len}");
            }
            assert_eq!(count(beside, ClassOfService::Latency, frame), expected, "{frame} of {len}");
            let bulk = count(beside, ClassOfService::Throughput, frame);
            assert_eq!(bulk, expected.min(4), "{frame} of {len}");
        }
    }
}
