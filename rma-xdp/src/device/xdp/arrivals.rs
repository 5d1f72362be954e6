//! The places of the next packets, before their descriptors tell.
//!
//! The kernel takes chunks in the order in which it was given them, and a chunk goes back to it in
//! the order in which it came. So chunks go round, and the next packet lies where the one lay that
//! came as many packets ago as there are chunks. That is asked for while its descriptor is on its
//! way: the other core has written both, and one after the other they take twice as long.
//!
//! A hint, not knowledge: where the order is another one, the lines asked for are of no use and no
//! harm. No byte is read here, as the chunk may still be the kernel's.

use rma_core::backend::BATCH;
use rma_shm::prefetch_expected;

/// Bytes that are asked for of each packet: the headers of a frame with little payload, and that.
/// More: lines that nobody has written, in vain. Less: the end of a small frame comes later.
const EXPECTED: usize = 192;

/// The order of the chunks of a receive ring.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Addresses of packets, in a ring: from `next` on those that are expected.
    addresses: Box<[usize]>,
    next: usize,
}

impl Arrivals {
    /// Of a ring with so many chunks.
    pub(super) fn new(chunks: usize) -> Self {
        Self { addresses: vec![0; chunks].into_boxed_slice(), next: 0 }
    }

    /// The next chunk is given to the kernel, or will be: this one.
    #[inline]
    pub(super) fn note(&mut self, chunk: &[u8]) {
        if let Some(address) = self.addresses.get_mut(self.next) {
            *address = chunk.as_ptr().addr();
        }
        self.next += 1;
        if self.next >= self.addresses.len() {
            self.next = 0;
        }
    }

    /// Asks for the beginnings of the next `count` packets, or a batch.
    #[inline]
    pub(super) fn prefetch(&self, count: usize) {
        self.expected(count.min(BATCH)).for_each(|address| prefetch_expected(address, EXPECTED));
    }

    #[inline]
    fn expected(&self, count: usize) -> impl Iterator<Item = usize> {
        let (before, from) = self.addresses.split_at(self.next);
        from.iter().chain(before).take(count).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_expected_where_they_came_as_many_packets_ago_as_there_are_chunks() {
        let chunks: Vec<[u8; 8]> = vec![[0; 8]; 3];
        let address = |chunk: usize| chunks[chunk].as_ptr().addr();
        let mut arrivals = Arrivals::new(chunks.len());
        let order = [2, 0, 1];
        order.iter().for_each(|&chunk| arrivals.note(&chunks[chunk]));
        for come in 0..7 {
            let expected: Vec<_> = arrivals.expected(2).collect();
            assert_eq!(expected, [address(order[come % 3]), address(order[(come + 1) % 3])]);
            arrivals.note(&chunks[order[come % 3]]);
        }
        // Another order is followed from then on.
        arrivals.note(&chunks[2]);
        assert_eq!(arrivals.expected(9).last(), Some(address(2)));
        assert_eq!(arrivals.expected(9).count(), 3, "no chunk twice");
    }
}
