//! P4: which counters each sender has used, over all its lives.
//!
//! K_d binds both hosts, and the rest of an IV is the sender's engine, the direction and the
//! counter. An engine has one counter for both directions. So if no address uses (engine, counter)
//! twice, no (K_d, IV) pair is used twice; and as counters ascend, all that were used are a few
//! ranges.

use std::collections::BTreeMap;

use rma_core::addr::HostAddr;

#[derive(Debug, Default)]
pub(super) struct FreshIvs {
    used: BTreeMap<(HostAddr, u16), Numbers>,
}

impl FreshIvs {
    /// Remembers an IV. Returns false if it was used before.
    pub(super) fn insert(&mut self, sender: HostAddr, engine: u16, counter: u64) -> bool {
        self.used.entry((sender, engine)).or_default().insert(counter)
    }
}

/// A set of numbers that mostly ascend: the first and the last of each range.
#[derive(Debug, Default)]
struct Numbers(BTreeMap<u64, u64>);

impl Numbers {
    fn insert(&mut self, number: u64) -> bool {
        let next = number.checked_add(1);
        if let Some((_, last)) = self.0.range_mut(..=number).next_back() {
            if number <= *last {
                return false;
            }
            if number == *last + 1 {
                *last = number;
                // As a rule nothing follows.
                if let Some(end) = next.and_then(|next| self.0.remove(&next)) {
                    self.0.range_mut(..=number).next_back().into_iter().for_each(|it| *it.1 = end);
                }
                return true;
            }
        }
        let last = next.and_then(|next| self.0.remove(&next)).unwrap_or(number);
        self.0.insert(number, last);
        true
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
        let gaps = (0..500).filter(|it| oracle.contains(it) && !oracle.contains(&(it + 1)));
        assert_eq!(numbers.0.len(), gaps.count(), "ranges that meet are one");
        assert!(numbers.insert(u64::MAX) && !numbers.insert(u64::MAX));
    }

    #[test]
    fn senders_and_engines_count_apart() {
        let [a, b] = [1, 2].map(|host| HostAddr::from([192, 0, 2, host]));
        let mut ivs = FreshIvs::default();
        assert!(ivs.insert(a, 0, 7) && ivs.insert(b, 0, 7) && ivs.insert(a, 1, 7));
        assert!(!ivs.insert(a, 0, 7));
    }
}
