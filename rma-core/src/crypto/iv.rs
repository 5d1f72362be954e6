//! Initialization vectors that never repeat under one key (1RMA Appendix A).
//!
//! IV = sender part ‖ counter. The sender part is one octet of direction, a zero octet and the engine's
//! number; K_d already binds the two hosts, so direction and engine name the sender. The counter ascends
//! over all frames that the engine ever seals.

/// Octets of an IV.
pub const IV_LEN: usize = 12;

/// Which of the two parties to a K_d sealed a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// By the initiator.
    ToResponder = 0,
    /// By the responder.
    ToInitiator = 1,
}

/// The number of an engine on its host: several engines share the host's address, and each counts for
/// itself.
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
        let [e0, e1] = engine.0.to_be_bytes();
        let [c0, c1, c2, c3, c4, c5, c6, c7] = counter.to_be_bytes();
        Self([direction as u8, 0, e0, e1, c0, c1, c2, c3, c4, c5, c6, c7])
    }

    /// The IV with these octets.
    #[cfg(test)]
    pub(super) const fn from_octets(octets: [u8; IV_LEN]) -> Self {
        Self(octets)
    }

    /// The IV's octets.
    #[must_use]
    pub const fn octets(&self) -> &[u8; IV_LEN] {
        &self.0
    }
}

/// The ascending message counter of one engine.
///
/// A restarted engine must start above every value used before. The host starts it at the wall clock in
/// nanoseconds: an engine seals far fewer than one frame a nanosecond, so the clock stays ahead, as long
/// as it is not set back by more than the time since the last start.
#[derive(Debug)]
pub struct IvCounter(u64);

impl IvCounter {
    /// A counter whose first value is `first`.
    #[must_use]
    pub const fn starting_at(first: u64) -> Self {
        Self(first)
    }

    /// The next value.
    ///
    /// # Panics
    /// When 2^64 values are used up: repeating one would break the key. From a start at the wall clock
    /// that is centuries away.
    pub const fn next(&mut self) -> u64 {
        let value = self.0;
        self.0 = value.checked_add(1).expect("the message counter never wraps");
        value
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
    fn the_counter_ascends() {
        let mut counter = IvCounter::starting_at(41);
        assert_eq!([counter.next(), counter.next()], [41, 42]);
    }

    #[test]
    #[should_panic(expected = "never wraps")]
    fn the_counter_does_not_wrap() {
        let mut counter = IvCounter::starting_at(u64::MAX);
        let _ = counter.next();
    }
}
