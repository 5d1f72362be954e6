//! FIFO lists of the entries of a fixed table: of slots that wait for dispatch, of ops in service,
//! and so on.
//!
//! The links live in one array beside the table, so lists have no memory of their own, and an entry
//! leaves the middle of a list in constant time. Invariant: an entry is in at most one of the lists
//! that share links.

/// No entry: the limits of tables keep this number free.
const NONE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u16,
    next: u16,
}

/// The links of all entries of one table.
#[derive(Debug)]
pub struct Links(Box<[Link]>);

impl Links {
    /// Bytes that each entry takes.
    pub const ENTRY_LEN: usize = size_of::<Link>();

    /// Those of a table of so many entries, at most 65,535, none of which is in a list.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self(vec![Link { previous: NONE, next: NONE }; entries].into_boxed_slice())
    }
}

/// One list.
#[derive(Debug)]
pub struct IndexList {
    head: u16,
    tail: u16,
    len: u16,
}

impl IndexList {
    /// A list without entries.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: NONE, tail: NONE, len: 0 }
    }

    /// Its first entry.
    #[must_use]
    pub fn front(&self) -> Option<u16> {
        (self.head != NONE).then_some(self.head)
    }

    /// Its entries, the first one first.
    pub fn iter(&self, links: &Links) -> impl Iterator<Item = u16> {
        let after = |&entry: &u16| {
            let next = links.0[usize::from(entry)].next;
            (next != NONE).then_some(next)
        };
        core::iter::successors(self.front(), after)
    }

    /// Whether it has no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// How many entries are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Puts `entry`, which is in no list, behind all others.
    #[inline]
    pub fn push_back(&mut self, links: &mut Links, entry: u16) {
        links.0[usize::from(entry)] = Link { previous: self.tail, next: NONE };
        match self.tail {
            NONE => self.head = entry,
            tail => links.0[usize::from(tail)].next = entry,
        }
        self.tail = entry;
        self.len += 1;
    }

    /// Puts `entry`, which is in no list, before all others.
    #[inline]
    pub fn push_front(&mut self, links: &mut Links, entry: u16) {
        links.0[usize::from(entry)] = Link { previous: NONE, next: self.head };
        match self.head {
            NONE => self.tail = entry,
            head => links.0[usize::from(head)].previous = entry,
        }
        self.head = entry;
        self.len += 1;
    }

    /// Takes the first entry out.
    #[inline]
    pub fn pop_front(&mut self, links: &mut Links) -> Option<u16> {
        let entry = self.front()?;
        // As `remove`, without a look at what was before.
        self.head = links.0[usize::from(entry)].next;
        match self.head {
            NONE => self.tail = NONE,
            next => links.0[usize::from(next)].previous = NONE,
        }
        self.len -= 1;
        Some(entry)
    }

    /// Takes `entry` out. It must be in this list.
    pub fn remove(&mut self, links: &mut Links, entry: u16) {
        let Link { previous, next } = links.0[usize::from(entry)];
        match previous {
            NONE => self.head = next,
            previous => links.0[usize::from(previous)].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => links.0[usize::from(next)].previous = previous,
        }
        self.len -= 1;
    }
}

impl Default for IndexList {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(list: &mut IndexList, links: &mut Links) -> Vec<u16> {
        core::iter::from_fn(|| list.pop_front(links)).collect()
    }

    #[test]
    fn entries_leave_in_the_order_in_which_they_came() {
        let (mut links, mut list) = (Links::new(8), IndexList::new());
        for slot in [3, 0, 7] {
            list.push_back(&mut links, slot);
        }
        assert_eq!(list.iter(&links).collect::<Vec<_>>(), [3, 0, 7]);
        assert_eq!(drain(&mut list, &mut links), [3, 0, 7]);
        assert_eq!((list.front(), list.iter(&links).count()), (None, 0));
    }

    #[test]
    fn an_entry_leaves_from_the_front_the_middle_and_the_end() {
        for gone in [1, 2, 3] {
            let (mut links, mut list) = (Links::new(4), IndexList::new());
            for slot in [1, 2, 3] {
                list.push_back(&mut links, slot);
            }
            list.remove(&mut links, gone);
            list.push_back(&mut links, 0);
            let left: Vec<u16> =
                [1, 2, 3].into_iter().filter(|&slot| slot != gone).chain([0]).collect();
            assert_eq!(list.len(), left.len());
            assert_eq!(drain(&mut list, &mut links), left);
            assert_eq!(list.len(), 0);
        }
    }
}
