//! The faults of packets on the wire, their chances, and their counts.

use core::{fmt, time::Duration};

use rma_sim::prng::{Chance, Prng};

/// A fault that the forwarder may add when a frame comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Fault {
    /// The frame is not delivered.
    Drop,
    /// It is delivered a little later, after others that were behind it.
    Delay,
    /// It is delivered much later: when its op is about to end, or long over.
    Hold,
    /// It is delivered twice.
    Duplicate,
    /// Bits of it change, or its end is cut off. Lengths and checksums stay as they were.
    Corrupt,
    /// A frame that was seen before is delivered again.
    Replay,
    /// A frame that was seen before is delivered to its sender.
    Reflect,
    /// A frame is delivered that no host has sent.
    Forge,
    /// The sender of a request gets a refusal under the reserved key, made from what the wire has
    /// seen.
    Refuse,
    /// It is another packet of its frames, and perhaps of a forged one: cut, or with a frame twice,
    /// at another place, left out, of another version or of a length that it does not have.
    Repack,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Drop,
        Self::Delay,
        Self::Hold,
        Self::Duplicate,
        Self::Corrupt,
        Self::Replay,
        Self::Reflect,
        Self::Forge,
        Self::Refuse,
        Self::Repack,
    ];
}

/// The chance of each fault, for each frame.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    chances: [Chance; Fault::ALL.len()],
    /// The longest delay of [`Fault::Delay`].
    pub delay_max: Duration,
    /// The longest delay of [`Fault::Hold`]; the shortest is an eighth of it.
    pub hold_max: Duration,
}

impl Faults {
    /// A good wire.
    pub const NONE: Self = Self {
        chances: [Chance::NEVER; Fault::ALL.len()],
        delay_max: Duration::ZERO,
        hold_max: Duration::ZERO,
    };

    /// Every fault, each with a chance of its own, from 0.5 % to `percent` of the frames.
    #[must_use]
    pub fn drawn(prng: &mut Prng, percent: u32) -> Self {
        let chances = Fault::ALL
            .map(|_| Chance::ppm(prng.between(5_000, u64::from(percent) * 10_000) as u32));
        Self {
            chances,
            delay_max: Duration::from_micros(prng.between(100, 5_000)),
            hold_max: Duration::from_millis(prng.between(60, 200)),
        }
    }

    /// The same, with another chance for one of them.
    #[must_use]
    pub const fn with(mut self, fault: Fault, chance: Chance) -> Self {
        self.chances[fault as usize] = chance;
        self
    }

    /// Returns the chance of `fault`.
    #[must_use]
    pub const fn chance(&self, fault: Fault) -> Chance {
        self.chances[fault as usize]
    }

    /// Whether one of `faults` may happen.
    #[must_use]
    pub fn any(&self, faults: &[Fault]) -> bool {
        faults.iter().any(|&fault| !self.chance(fault).is_never())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in Fault::ALL {
            write!(f, "{fault:?} {}, ", self.chance(fault))?;
        }
        write!(f, "delays to {:?}, {:?}", self.delay_max, self.hold_max)
    }
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    faults: [u64; Fault::ALL.len()],
    /// Frames of 1RMA that hosts have sent.
    pub seen: u64,
    /// Other frames, all delivered as they were.
    pub passed: u64,
    /// Frames that the kernel had no room for.
    pub no_room: u64,
}

impl Tally {
    pub(super) const fn count(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// How often `fault` happened.
    #[must_use]
    pub const fn of(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// # Panics
    /// If a fault that `faults` has a chance for never happened.
    pub fn assert_each_happened(&self, faults: &Faults) {
        for fault in Fault::ALL {
            let happened = faults.chance(fault).is_never() || self.of(fault) > 0;
            assert!(happened, "{fault:?} had a chance of {} and never happened: {self}", {
                faults.chance(fault)
            });
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, passed, no_room, .. } = self;
        write!(f, "{seen} frames of 1RMA, {passed} others, {no_room} without room;")?;
        for fault in Fault::ALL {
            write!(f, " {fault:?} {}", self.of(fault))?;
        }
        Ok(())
    }
}
