//! Tables of fixed size, whose rows are found by their numbers.
//!
//! Invariant: nothing is allocated after [`Slab::new`].

use core::{
    fmt,
    ops::{Index, IndexMut},
};

/// A table of rows that are in use or free.
pub(super) struct Slab<T> {
    rows: Box<[Option<T>]>,
    free: Vec<u16>,
}

impl<T> Slab<T> {
    /// Bytes that each row takes.
    pub(super) const ENTRY_LEN: usize = size_of::<Option<T>>() + size_of::<u16>();

    /// A table of so many rows, at most 65,535, all of them free.
    pub(super) fn new(capacity: usize) -> Self {
        let rows = (0..capacity).map(|_| None).collect();
        Self { rows, free: (0..capacity as u16).rev().collect() }
    }

    /// Uses a row. `None` if all are in use; then `row` is dropped.
    pub(super) fn insert(&mut self, row: T) -> Option<u16> {
        let at = self.free.pop()?;
        debug_assert!(self.rows[usize::from(at)].is_none(), "a free row is free");
        self.rows[usize::from(at)] = Some(row);
        Some(at)
    }

    /// Frees a row that is in use.
    pub(super) fn remove(&mut self, at: u16) -> T {
        self.free.push(at);
        self.rows[usize::from(at)].take().expect("a row in use")
    }

    /// The row of a number that may come from anywhere.
    pub(super) fn get(&self, at: u16) -> Option<&T> {
        self.rows.get(usize::from(at))?.as_ref()
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn capacity(&self) -> usize {
        self.rows.len()
    }

    /// How many rows are in use.
    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }
}

impl<T> Index<u16> for Slab<T> {
    type Output = T;

    fn index(&self, at: u16) -> &T {
        self.rows[usize::from(at)].as_ref().expect("a row in use")
    }
}

impl<T> IndexMut<u16> for Slab<T> {
    fn index_mut(&mut self, at: u16) -> &mut T {
        self.rows[usize::from(at)].as_mut().expect("a row in use")
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab({} of {})", self.len(), self.capacity())
    }
}
