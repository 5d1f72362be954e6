//! Initialization vectors that never repeat under one key (1RMA Appendix A).
//!
//! IV = sender part ‖ counter. The sender part is one octet of direction, a zero octet and the
//! engine's number; K_d already binds the two hosts, so direction and engine name the sender. The
//! counter ascends over all frames that the engine ever seals.

/// Octets of an IV.
pub const IV_LEN: usize = 12;

/// The one of a K_d's two parties that sealed a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// By the initiator.
    ToResponder = 0,
    /// By the responder.
    ToInitiator = 1,
}

/// The number of an engine on its host: several engines share the host's address, and each counts
/// for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EngineId(pub u16);

/// An initialization vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iv([u8; IV_LEN]);

impl Iv {
    /// The IV of no frame.
    pub(crate) const NONE: Self = Self([0; IV_LEN]);

    /// The IV of frame number `counter` of an engine.
    //= 1rma#A-iv-counter-and-sender
    #[must_use]
    pub const fn new(direction: Direction, engine: EngineId, counter: u64) -> Self {
        // As eight and four octets, which is how AES-GCM loads them: a load from several stores
        // waits for them.
        let head = (direction as u64) << 56 | (engine.0 as u64) << 32 | counter >> 32;
        let [h0, h1, h2, h3, h4, h5, h6, h7] = head.to_be_bytes();
        let [t0, t1, t2, t3] = (counter as u32).to_be_bytes();
        Self([h0, h1, h2, h3, h4, h5, h6, h7, t0, t1, t2, t3])
    }

    /// The counter of the frame that has this IV.
    #[must_use]
    pub const fn counter(&self) -> u64 {
        let [_, _, _, _, counter @ ..] = self.0;
        u64::from_be_bytes(counter)
    }

    /// The IV's octets.
    #[must_use]
    pub const fn octets(&self) -> &[u8; IV_LEN] {
        &self.0
    }
}

/// A range of counter values that belongs to one engine alone: from `first` up to, but not
/// including, `end`.
///
/// Neither `Copy` nor `Clone`: an engine that gives its block away cannot count in it any longer.
/// The caller that makes one vouches for it: no other block of this sender, before or after, on
/// whatever thread or in whatever process, may share a value with it.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct CounterBlock {
    first: u64,
    end: u64,
}

impl CounterBlock {
    /// The values from `first` up to, but not including, `end`. None if `end` is not above `first`.
    pub const fn new(first: u64, end: u64) -> Self {
        Self { first, end }
    }

    /// The first value.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The first value above the block.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// How many values there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    /// Whether there is no value.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As many blocks as there are to be `parts`, of as many values each as can be, the lower ones
    /// first.
    #[must_use]
    pub fn parts(self, parts: u16) -> Vec<Self> {
        let (each, parts) = (self.len() / u64::from(parts.max(1)), u64::from(parts));
        (0..parts)
            .map(|it| Self::new(self.first + it * each, self.first + (it + 1) * each))
            .collect()
    }

    /// Two blocks of half of the values each, the lower ones first.
    pub const fn halves(self) -> (Self, Self) {
        let middle = self.first + self.len() / 2;
        (Self::new(self.first, middle), Self::new(middle, self.end))
    }
}

/// The ascending message counter of one engine.
///
/// It counts in blocks that were reserved for it, so that no restart, crash or step of the clock
/// makes it repeat a value: what it may use is gone for all others before it begins. There is room
/// for the block in use and the one after it. Without a block there is no value, and nothing may be
/// sealed.
#[derive(Debug)]
pub struct IvCounter {
    /// The rest of the block in use.
    block: CounterBlock,
    /// The block after that.
    spare: Option<CounterBlock>,
    /// With as many values left, the block in use is half used up.
    half: u64,
}

impl IvCounter {
    /// A counter of the values of `block`.
    #[must_use]
    pub const fn new(block: CounterBlock) -> Self {
        let half = block.len() / 2;
        Self { block, spare: None, half }
    }

    /// The next value. `None` if all blocks are used up.
    pub const fn next(&mut self) -> Option<u64> {
        if self.block.is_empty() {
            let Some(block) = self.spare.take() else { return None };
            self.half = block.len() / 2;
            self.block = block;
        }
        let value = self.block.first;
        self.block.first += 1;
        Some(value)
    }

    /// Gives the counter the block to go on with.
    ///
    /// # Errors
    /// The block comes back if there is no room for it, if it has no value, or if it does not lie
    /// above what the counter has had: it might repeat a value.
    pub fn add(&mut self, block: CounterBlock) -> Result<(), CounterBlock> {
        if self.spare.is_some() || block.is_empty() || block.first < self.block.end {
            return Err(block);
        }
        self.spare = Some(block);
        Ok(())
    }

    /// Whether it is time for a further block: there is room, and the present one is half used up.
    #[must_use]
    pub const fn wants_block(&self) -> bool {
        self.spare.is_none() && self.block.len() <= self.half
    }

    /// How many values are left.
    #[must_use]
    pub const fn left(&self) -> u64 {
        let spare = match &self.spare {
            Some(block) => block.len(),
            None => 0,
        };
        // Blocks do not overlap, so there are not more values than a `u64` can count.
        self.block.len() + spare
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= 1rma#A-iv-counter-and-sender
    //= type=test
    #[test]
    fn direction_engine_and_counter_each_change_the_iv() {
        let base = Iv::new(Direction::ToResponder, EngineId(1), 2);
        assert_eq!(base.octets(), &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_ne!(base, Iv::new(Direction::ToInitiator, EngineId(1), 2));
        assert_ne!(base, Iv::new(Direction::ToResponder, EngineId(2), 2));
        assert_ne!(base, Iv::new(Direction::ToResponder, EngineId(1), 3));
    }

    #[test]
    fn the_halves_of_a_block_share_no_value_and_lose_none() {
        for (first, middle, end) in [(4, 6, 8), (4, 5, 7), (4, 4, 5), (4, 4, 4)] {
            let expected = (CounterBlock::new(first, middle), CounterBlock::new(middle, end));
            assert_eq!(CounterBlock::new(first, end).halves(), expected);
        }
    }

    #[test]
    fn the_counter_ascends_through_its_blocks_and_then_has_no_value() {
        let mut counter = IvCounter::new(CounterBlock::new(41, 43));
        counter.add(CounterBlock::new(50, 52)).unwrap();
        assert_eq!(counter.left(), 4);
        let values: Vec<_> = core::iter::from_fn(|| counter.next()).collect();
        assert_eq!(values, [41, 42, 50, 51]);
        assert_eq!((counter.next(), counter.left()), (None, 0));
        counter.add(CounterBlock::new(52, 53)).unwrap();
        assert_eq!((counter.next(), counter.next()), (Some(52), None));
    }

    #[test]
    fn the_counter_does_not_wrap() {
        let mut counter = IvCounter::new(CounterBlock::new(u64::MAX - 1, u64::MAX));
        assert_eq!((counter.next(), counter.next()), (Some(u64::MAX - 1), None));
        let backwards = IvCounter::new(CounterBlock::new(2, 1)).next();
        assert_eq!(backwards, None);
    }

    #[test]
    fn a_block_is_wanted_once_the_present_one_is_half_used_up() {
        let mut counter = IvCounter::new(CounterBlock::new(0, 4));
        let mut wants = || {
            let _ = counter.next();
            counter.wants_block()
        };
        assert_eq!([wants(), wants(), wants()], [false, true, true]);
        counter.add(CounterBlock::new(4, 8)).unwrap();
        assert!(!counter.wants_block(), "there is no room for a third");
        assert_eq!((counter.next(), counter.next()), (Some(3), Some(4)));
        assert!(!counter.wants_block(), "the next one has just begun");
        assert_eq!(counter.next(), Some(5));
        assert!(counter.wants_block());
    }

    #[test]
    fn a_block_that_might_repeat_a_value_is_refused() {
        let mut counter = IvCounter::new(CounterBlock::new(10, 20));
        for (first, end) in [(0, 10), (10, 20), (19, 30), (30, 30), (30, 29)] {
            let back = counter.add(CounterBlock::new(first, end)).unwrap_err();
            assert_eq!((back.first(), back.end()), (first, end));
        }
        counter.add(CounterBlock::new(20, 30)).unwrap();
        let _ = counter.add(CounterBlock::new(30, 40)).unwrap_err();
        assert_eq!(counter.left(), 20);
    }
}
