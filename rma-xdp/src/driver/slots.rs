//! Command slots that are free: ranges, as a portal's slots lie side by side, and are all of one
//! NIC's.

use core::ops::Range;
use std::collections::BTreeMap;

/// Free ranges, never adjacent but where another NIC's slots begin.
#[derive(Debug)]
pub(super) struct FreeSlots {
    /// Their lengths by their starts.
    ranges: BTreeMap<u16, u16>,
    /// The first slot of each NIC.
    borders: Box<[u16]>,
    /// How many slots the NIC has that has most.
    largest: u16,
}

impl FreeSlots {
    /// All of some ranges, which are a NIC's each.
    pub(super) fn new(nics: impl IntoIterator<Item = Range<u16>>) -> Self {
        let nics: Vec<Range<u16>> = nics.into_iter().collect();
        let borders = nics.iter().map(|slots| slots.start).collect();
        let largest = nics.iter().map(|slots| slots.end - slots.start).max().unwrap_or(0);
        let mut free = Self { ranges: BTreeMap::new(), borders, largest };
        nics.into_iter().for_each(|slots| free.give_back(slots));
        free
    }

    /// The most that a range can have, if none is in use.
    pub(super) const fn largest(&self) -> u16 {
        self.largest
    }

    /// The most that lie side by side.
    pub(super) fn longest(&self) -> u16 {
        self.longest_of(|_| true)
    }

    /// The most that lie side by side of those that `may` be had.
    pub(super) fn longest_of(&self, may: impl Fn(u16) -> bool) -> u16 {
        let ranges = self.ranges.iter().filter(|&(&start, _)| may(start));
        ranges.map(|(_, &len)| len).max().unwrap_or(0)
    }

    /// Takes a range that is long enough: the first of the NIC that has the most free slots, among
    /// those whose slots `may` be had.
    pub(super) fn take(&mut self, slots: u16, may: impl Fn(u16) -> bool) -> Option<Range<u16>> {
        let nic = |start: u16| self.borders.partition_point(|&border| border <= start);
        let free = |of: usize| -> u32 {
            let its = self.ranges.iter().filter(|&(&start, _)| nic(start) == of);
            its.map(|(_, &len)| u32::from(len)).sum()
        };
        let long = self.ranges.iter().filter(|&(&start, &len)| len >= slots && may(start));
        let (start, len) = long
            .map(|(&start, &len)| (start, len))
            .min_by_key(|&(start, _)| (core::cmp::Reverse(free(nic(start))), start))?;
        self.ranges.remove(&start);
        if len > slots {
            self.ranges.insert(start + slots, len - slots);
        }
        Some(start..start + slots)
    }

    pub(super) fn give_back(&mut self, slots: Range<u16>) {
        let Range { mut start, mut end } = slots;
        if start == end {
            return;
        }
        if !self.borders.contains(&end)
            && let Some(after) = self.ranges.remove(&end)
        {
            end += after;
        }
        if !self.borders.contains(&start)
            && let Some((&before, &len)) = self.ranges.range(..start).next_back()
            && before + len == start
        {
            start = before;
        }
        self.ranges.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_in_one_piece_in_whatever_order_they_are_returned() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut free = FreeSlots::new(core::iter::once(0..10));
            let ranges = [3, 4, 3].map(|slots| free.take(slots, |_| true).unwrap());
            assert_eq!((free.take(1, |_| true), free.longest()), (None, 0));
            for index in order {
                free.give_back(ranges[index].clone());
            }
            assert_eq!(free.take(10, |_| true), Some(0..10), "{order:?}");
        }
    }

    #[test]
    fn no_range_has_slots_of_two_nics() {
        let mut free = FreeSlots::new([0..4, 4..10]);
        assert_eq!((free.longest(), free.take(7, |_| true)), (6, None));
        // From the NIC with the most free slots.
        let ranges = [3, 1, 5, 1].map(|slots| free.take(slots, |_| true));
        assert_eq!(ranges, [Some(4..7), Some(0..1), None, Some(1..2)]);
        let ranges: Vec<_> = ranges.into_iter().flatten().collect();
        assert_eq!(free.take(1, |slot| slot < 4), Some(2..3), "where it may be had");
        free.give_back(2..3);
        ranges.into_iter().for_each(|slots| free.give_back(slots));
        assert_eq!((free.take(6, |_| true), free.take(4, |_| true)), (Some(4..10), Some(0..4)));
    }
}
