//! Finds rows of a table by numbers that say nothing of their places: connections by their QPNs,
//! frames under way by their counters.
//!
//! A hash table without rows of its own: lists of rows, one for each value of a hash of their
//! numbers. The hash multiplies by a secret, so nobody who chooses numbers, or which of them to
//! leave under way, can know which meet. Whoever looks compares: a list has rows with other numbers
//! too.
//!
//! Invariants: a row is in it once at most; nothing is allocated after [`RowIndex::new`].

use rma_core::index_list::{IndexList, Links};

/// Rows by their numbers.
#[derive(Debug)]
pub(super) struct RowIndex {
    lists: Box<[IndexList]>,
    links: Links,
    /// Odd: then numbers that differ meet with a chance of two in as many as there are lists, over
    /// all factors (multiply-shift; Dietzfelbinger et al., 1997).
    factor: u64,
    shift: u32,
}

impl RowIndex {
    /// Bytes that each row takes at most.
    pub(super) const ENTRY_LEN: usize = Links::ENTRY_LEN + 2 * size_of::<IndexList>();

    /// For the rows of a table of so many, none of which is in it.
    pub(super) fn new(rows: usize, secret: u64) -> Self {
        let lists = rows.next_power_of_two().max(2);
        Self {
            lists: (0..lists).map(|_| IndexList::new()).collect(),
            links: Links::new(rows),
            factor: secret | 1,
            shift: u64::BITS - lists.trailing_zeros(),
        }
    }

    const fn list_of(&self, number: u64) -> usize {
        (number.wrapping_mul(self.factor) >> self.shift) as usize
    }

    /// Adds a row, which is not in it, under a number.
    #[inline]
    pub(super) fn add(&mut self, number: u64, row: u16) {
        let list = self.list_of(number);
        self.lists[list].push_back(&mut self.links, row);
    }

    /// Takes out a row that is in it under this number.
    #[inline]
    pub(super) fn remove(&mut self, number: u64, row: u16) {
        let list = self.list_of(number);
        self.lists[list].remove(&mut self.links, row);
    }

    /// Rows among which are all that have this number.
    #[inline]
    pub(super) fn rows(&self, number: u64) -> impl Iterator<Item = u16> {
        self.lists[self.list_of(number)].iter(&self.links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: u16 = 4096;

    /// The longest list with a full table.
    fn longest(secret: u64, number_of: impl Fn(u64) -> u64) -> usize {
        let mut index = RowIndex::new(ROWS.into(), secret);
        (0..ROWS).for_each(|row| index.add(number_of(row.into()), row));
        for row in 0..ROWS {
            let number = number_of(row.into());
            assert!(index.rows(number).any(|it| it == row));
        }
        let longest = index.lists.iter().map(IndexList::len).max().unwrap();
        (0..ROWS).for_each(|row| index.remove(number_of(row.into()), row));
        assert!(index.lists.iter().all(IndexList::is_empty));
        longest
    }

    #[test]
    fn numbers_in_a_row_or_at_any_distance_spread_over_the_lists() {
        for secret in [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0x2545_f491_4f6c_dd1d] {
            for distance in [1, 2, 64, 1000, 1 << 12, 1 << 20, 1 << 32, (1 << 32) + 1, 987_643] {
                let longest = longest(secret, |row| (1 << 40) + row * distance);
                assert!(longest <= 32, "{longest} for {distance}");
            }
        }
    }

    #[test]
    fn a_table_of_one_row_finds_it() {
        let mut index = RowIndex::new(1, 0);
        index.add(u64::MAX, 0);
        assert_eq!(index.rows(u64::MAX).next(), Some(0));
        index.remove(u64::MAX, 0);
        assert_eq!(index.rows(u64::MAX).next(), None);
    }
}
