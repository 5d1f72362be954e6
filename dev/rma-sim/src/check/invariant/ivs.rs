//! P4: which counters each sender has used, over all its lives.
//!
//! K_d binds both hosts, and the rest of an IV is the sender's engine, the direction and the
//! counter. So if no address uses (engine, direction, counter) twice, no (K_d, IV) pair is used
//! twice.

use std::collections::BTreeMap;

use rma_core::addr::HostAddr;

#[derive(Debug, Default)]
pub(super) struct FreshIvs {
    used: BTreeMap<(HostAddr, u16, u8), Numbers>,
}

impl FreshIvs {
    /// Remembers an IV. Returns false if it was used before.
    pub(super) fn insert(
        &mut self,
        sender: HostAddr,
        engine: u16,
        direction: u8,
        counter: u64,
    ) -> bool {
        self.used.entry((sender, engine, direction)).or_default().insert(counter)
    }
}

/// A set of numbers that mostly ascend.
#[derive(Debug, Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    fn insert(&mut self, number: u64) -> bool {
        if self.0.last().is_none_or(|&last| last < number) {
            self.0.push(number);
            return true;
        }
        match self.0.binary_search(&number) {
            Ok(_) => false,
            Err(place) => {
                self.0.insert(place, number);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn a_number_is_new_once_in_whatever_order_they_come() {
        let (mut numbers, mut oracle) = (Numbers::default(), std::collections::BTreeSet::new());
        let mut prng = Prng::new(1);
        for _ in 0..1000 {
            let number = prng.below(500);
            assert_eq!(numbers.insert(number), oracle.insert(number));
        }
    }

    #[test]
    fn senders_engines_and_directions_count_apart() {
        let [a, b] = [1, 2].map(|host| HostAddr::from([192, 0, 2, host]));
        let mut ivs = FreshIvs::default();
        assert!(ivs.insert(a, 0, 0, 7) && ivs.insert(b, 0, 0, 7));
        assert!(ivs.insert(a, 1, 0, 7) && ivs.insert(a, 0, 1, 7));
        assert!(!ivs.insert(a, 0, 0, 7));
    }
}
