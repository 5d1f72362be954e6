//! Command slots that are free: ranges, as a portal's slots lie side by side.

use core::ops::Range;
use std::collections::BTreeMap;

/// Free ranges by their start, never adjacent.
#[derive(Debug, Default)]
pub(super) struct FreeSlots(BTreeMap<u16, u16>);

impl FreeSlots {
    pub(super) fn new(slots: Range<u16>) -> Self {
        let mut free = Self::default();
        free.give_back(slots);
        free
    }

    /// The most that lie side by side.
    pub(super) fn longest(&self) -> u16 {
        self.0.values().copied().max().unwrap_or(0)
    }

    /// Takes the first free range that is long enough.
    pub(super) fn take(&mut self, slots: u16) -> Option<Range<u16>> {
        let (&start, &len) = self.0.iter().find(|&(_, &len)| len >= slots)?;
        self.0.remove(&start);
        if len > slots {
            self.0.insert(start + slots, len - slots);
        }
        Some(start..start + slots)
    }

    pub(super) fn give_back(&mut self, slots: Range<u16>) {
        let Range { mut start, mut end } = slots;
        if start == end {
            return;
        }
        if let Some(after) = self.0.remove(&end) {
            end += after;
        }
        if let Some((&before, &len)) = self.0.range(..start).next_back()
            && before + len == start
        {
            start = before;
        }
        self.0.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_in_one_piece_in_whatever_order_they_are_returned() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut free = FreeSlots::new(0..10);
            let ranges = [3, 4, 3].map(|slots| free.take(slots).unwrap());
            assert_eq!((free.take(1), free.longest()), (None, 0));
            for index in order {
                free.give_back(ranges[index].clone());
            }
            assert_eq!(free.take(10), Some(0..10), "{order:?}");
        }
    }
}
