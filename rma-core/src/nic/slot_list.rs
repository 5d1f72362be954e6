//! FIFO lists of command slots: of one class waiting for dispatch, or of all ops in service.
//!
//! The links live in one array beside the slots, so lists have no memory of their own, and a slot leaves
//! the middle of a list in constant time. Invariant: a slot is in at most one list.

use crate::command::CommandSlotId;

/// No slot: [`crate::limits::COMMAND_SLOTS_MAX`] keeps this number free.
const NONE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u16,
    next: u16,
}

/// The links of all slots of one table.
#[derive(Debug)]
pub(super) struct Links(Box<[Link]>);

impl Links {
    pub(super) fn new(slots: usize) -> Self {
        Self(vec![Link { previous: NONE, next: NONE }; slots].into_boxed_slice())
    }
}

/// One list.
#[derive(Debug)]
pub(super) struct SlotList {
    head: u16,
    tail: u16,
}

impl SlotList {
    pub(super) const fn new() -> Self {
        Self { head: NONE, tail: NONE }
    }

    pub(super) fn front(&self) -> Option<CommandSlotId> {
        (self.head != NONE).then_some(CommandSlotId(self.head))
    }

    pub(super) fn push_back(&mut self, links: &mut Links, slot: CommandSlotId) {
        links.0[slot.index()] = Link { previous: self.tail, next: NONE };
        match self.tail {
            NONE => self.head = slot.0,
            tail => links.0[usize::from(tail)].next = slot.0,
        }
        self.tail = slot.0;
    }

    /// Takes `slot` out. It must be in this list.
    pub(super) fn remove(&mut self, links: &mut Links, slot: CommandSlotId) {
        let Link { previous, next } = links.0[slot.index()];
        match previous {
            NONE => self.head = next,
            previous => links.0[usize::from(previous)].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => links.0[usize::from(next)].previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(list: &mut SlotList, links: &mut Links) -> Vec<u16> {
        core::iter::from_fn(|| {
            let slot = list.front()?;
            list.remove(links, slot);
            Some(slot.0)
        })
        .collect()
    }

    #[test]
    fn slots_leave_in_the_order_in_which_they_came() {
        let (mut links, mut list) = (Links::new(8), SlotList::new());
        for slot in [3, 0, 7] {
            list.push_back(&mut links, CommandSlotId(slot));
        }
        assert_eq!(drain(&mut list, &mut links), [3, 0, 7]);
        assert_eq!(list.front(), None);
    }

    #[test]
    fn a_slot_leaves_from_the_front_the_middle_and_the_end() {
        for gone in [1, 2, 3] {
            let (mut links, mut list) = (Links::new(4), SlotList::new());
            for slot in [1, 2, 3] {
                list.push_back(&mut links, CommandSlotId(slot));
            }
            list.remove(&mut links, CommandSlotId(gone));
            list.push_back(&mut links, CommandSlotId(0));
            let left: Vec<u16> =
                [1, 2, 3].into_iter().filter(|&slot| slot != gone).chain([0]).collect();
            assert_eq!(drain(&mut list, &mut links), left);
        }
    }
}
