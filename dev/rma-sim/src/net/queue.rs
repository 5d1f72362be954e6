//! A drop-tail queue before something that has a rate: a cable, or an output port of a switch.

use core::time::Duration;

use rma_core::time::Instant;

/// How much may wait, and how fast it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Bytes a second, headers included; at least 1. The largest number: nothing waits.
    pub rate: u64,
    /// How many bytes may wait, with what is leaving; frames beyond it are lost.
    pub len: u64,
}

/// A queue. Frames leave in the order in which they came.
#[derive(Clone, Debug)]
pub struct Queue {
    options: QueueOptions,
    /// When the last byte that was taken so far has left.
    busy_until: Instant,
    longest: u64,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub const fn new(options: QueueOptions) -> Self {
        Self { options, busy_until: Instant::ZERO, longest: 0 }
    }

    /// Takes a frame of `wire_len` bytes at `now`, which never goes backwards. Returns when its
    /// last byte has left; `None` if there is no room.
    pub fn take(&mut self, now: Instant, wire_len: u64) -> Option<Instant> {
        let QueueOptions { rate, len } = self.options;
        let backlog = bytes_in(rate, self.busy_until.nanos_since(now));
        if backlog + wire_len > len {
            return None;
        }
        self.longest = self.longest.max(backlog + wire_len);
        self.busy_until = self.busy_until.max(now) + serialization(rate, wire_len);
        Some(self.busy_until)
    }

    /// The most bytes that waited so far, with what was leaving.
    #[must_use]
    pub const fn longest(&self) -> u64 {
        self.longest
    }
}

/// How long `bytes` take at `rate` bytes a second, rounded up to nanoseconds. At the highest rate
/// they take no time.
#[must_use]
pub fn serialization(rate: u64, bytes: u64) -> Duration {
    if rate == u64::MAX {
        return Duration::ZERO;
    }
    let rate = rate.max(1);
    let nanos = match bytes.checked_mul(1_000_000_000) {
        Some(product) => product.div_ceil(rate),
        None => u64::try_from((u128::from(bytes) * 1_000_000_000).div_ceil(rate.into()))
            .unwrap_or(u64::MAX),
    };
    Duration::from_nanos(nanos)
}

fn bytes_in(rate: u64, nanos: u64) -> u64 {
    if nanos == 0 {
        return 0;
    }
    let bytes = u128::from(rate) * u128::from(nanos) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_the_tail_and_what_has_left_makes_room() {
        let mut queue = Queue::new(QueueOptions { rate: 1_000_000, len: 1000 });
        let mut take = |micros: u64| queue.take(Instant::from_nanos(micros * 1000), 100);
        let left: Vec<_> = (0..20).filter_map(|_| take(0)).map(Instant::as_nanos).collect();
        assert_eq!(left, (1..=10).map(|frame| frame * 100_000).collect::<Vec<_>>());
        assert_eq!(take(99), None);
        assert_eq!(take(100), Some(Instant::from_nanos(1_100_000)));
        assert_eq!(take(5_000), Some(Instant::from_nanos(5_100_000)), "idle meanwhile");
        assert_eq!(queue.longest(), 1000);
    }

    #[test]
    fn serialization_rounds_up_and_saturates() {
        assert_eq!(serialization(3, 1).as_nanos(), 333_333_334);
        assert_eq!(serialization(0, u64::MAX), Duration::from_nanos(u64::MAX));
        assert_eq!(serialization(u64::MAX - 1, u64::MAX), Duration::from_nanos(1_000_000_001));
        assert_eq!(serialization(u64::MAX, u64::MAX), Duration::ZERO);
    }
}
