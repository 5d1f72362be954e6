//! How many engines a host has, and which of an interface's queues each of them has.

use core::fmt;

/// The most engines of a host.
pub const ENGINES_MAX: u32 = 32;

/// How many engines a host has. Each has receive queues, memory and counters of its own; outside
/// they are one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engines {
    /// One, with all receive queues.
    #[default]
    One,
    /// One for each receive queue that can be transmitted on as well, when the host is opened; 32
    /// at most. One where the driver does not tell how many there are.
    PerQueue,
    /// So many, 1 to 32, that each receive queue has one; an engine may have several queues.
    Count(u32),
}

impl Engines {
    /// The number of engines for an interface with so many queues of each kind.
    #[cfg(feature = "xdp")]
    pub(crate) fn number(self, queues: u32) -> u32 {
        match self {
            Self::One => 1,
            Self::PerQueue => queues.clamp(1, ENGINES_MAX),
            Self::Count(engines) => engines,
        }
    }

    /// Whether a host can have so many, whatever its device.
    pub(crate) fn can_be(self) -> bool {
        !matches!(self, Self::Count(engines) if !(1..=ENGINES_MAX).contains(&engines))
    }
}

impl fmt::Display for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("1"),
            Self::PerQueue => f.write_str("one for each queue"),
            Self::Count(engines) => engines.fmt(f),
        }
    }
}

/// The queues of an engine: of `queues` those whose numbers leave its own when they are divided by
/// the number of `engines`.
#[cfg(feature = "xdp")]
pub(crate) fn queues_of(engine: u32, engines: u32, queues: u32) -> impl Iterator<Item = u32> {
    (engine..queues).step_by(engines as usize)
}

#[cfg(all(test, feature = "xdp"))]
mod tests {
    use super::*;

    #[test]
    fn each_queue_is_one_engines_and_each_engine_begins_with_the_queue_of_its_number() {
        for engines in 1..=ENGINES_MAX {
            for queues in engines..70 {
                let mut all: Vec<u32> = Vec::new();
                for engine in 0..engines {
                    let own: Vec<u32> = queues_of(engine, engines, queues).collect();
                    assert_eq!(own.first(), Some(&engine), "it transmits on it");
                    assert!(own.iter().all(|queue| queue % engines == engine));
                    all.extend(own);
                }
                all.sort_unstable();
                assert!(all.into_iter().eq(0..queues), "{engines} engines, {queues} queues");
            }
        }
        assert_eq!(queues_of(0, 1, 4).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(queues_of(3, 4, 3).next(), None, "fewer queues than engines");
    }

    #[test]
    fn a_number_of_engines_follows_from_the_queues_only_where_that_is_asked_for() {
        for queues in [1, 4, 32, 33, 128] {
            assert_eq!(Engines::One.number(queues), 1);
            assert_eq!(Engines::PerQueue.number(queues), queues.min(32));
            assert_eq!(Engines::Count(3).number(queues), 3);
        }
        assert!([1, 32].iter().all(|&engines| Engines::Count(engines).can_be()));
        assert!([0, 33].iter().all(|&engines| !Engines::Count(engines).can_be()));
        assert!(Engines::One.can_be() && Engines::PerQueue.can_be());
    }
}
