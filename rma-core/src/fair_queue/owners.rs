//! Queues whose entries have owners, who take turns before initiators do.

use super::{Bucket, FairLinks, FairQueue, OWNERS};

/// A queue with lists of initiators for each of several owners. While the first one alone has
/// entries it is a [`FairQueue`].
///
/// Invariant: `len` entries are in all queues, and `used` has a bit for each of the others that has
/// any.
#[derive(Debug)]
pub struct OwnersQueue {
    first: FairQueue,
    others: Box<[FairQueue; OWNERS - 1]>,
    /// The others that have an entry: a bit each.
    used: u32,
    len: usize,
    /// The owner whose turn it is, or the next one after it that has an entry.
    turn: u32,
}

impl OwnersQueue {
    /// Bytes that a queue has allocated.
    pub(crate) const HEAP_LEN: usize = size_of::<[FairQueue; OWNERS - 1]>();

    /// A queue in which nobody waits.
    #[must_use]
    pub fn new() -> Self {
        let others = Box::new([const { FairQueue::new() }; OWNERS - 1]);
        Self { first: FairQueue::new(), others, used: 0, len: 0, turn: 0 }
    }

    /// How many entries wait.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    const fn of(&self, owner: usize) -> &FairQueue {
        if owner == 0 { &self.first } else { &self.others[owner - 1] }
    }

    const fn of_mut(&mut self, owner: usize) -> &mut FairQueue {
        if owner == 0 { &mut self.first } else { &mut self.others[owner - 1] }
    }

    /// The entry that has waited longest, no matter whose turn it is.
    #[must_use]
    #[inline]
    pub fn oldest(&self, links: &FairLinks) -> Option<u16> {
        if self.used == 0 { self.first.oldest(links) } else { self.oldest_of_all(links) }
    }

    #[cold]
    fn oldest_of_all(&self, links: &FairLinks) -> Option<u16> {
        let queues = self.others.iter().chain([&self.first]);
        let oldest = queues.filter_map(|it| it.oldest_of_used(links, self.first.arrivals));
        oldest.max_by_key(|&(age, _)| age).map(|(_, entry)| entry)
    }

    /// Puts `entry`, which is in no queue, at the end of the list of `bucket`.
    #[inline]
    pub fn push_back(&mut self, links: &mut FairLinks, bucket: Bucket, entry: u16) {
        self.len += 1;
        if bucket.owner() == 0 {
            self.first.push_back(links, bucket, entry);
        } else {
            self.push_back_of_other(links, bucket, entry);
        }
    }

    #[cold]
    fn push_back_of_other(&mut self, links: &mut FairLinks, bucket: Bucket, entry: u16) {
        let arrival = self.first.next_arrival();
        self.of_mut(bucket.owner()).push_arrived(links, bucket, entry, arrival);
        self.used |= 1 << (bucket.owner() - 1);
    }

    /// The owner whose turn it is. The first one if nobody waits.
    const fn whose_turn(&self) -> usize {
        let used = self.used << 1 | !self.first.is_empty() as u32;
        let from_turn = used >> self.turn << self.turn;
        let next = if from_turn == 0 { used } else { from_turn };
        if next == 0 { 0 } else { next.trailing_zeros() as usize }
    }

    /// The entry whose turn it is. That does not change before it leaves, whatever else comes: it
    /// can be served little by little.
    #[inline]
    pub fn front(&mut self) -> Option<u16> {
        if self.used > 0 {
            return self.front_of_any();
        }
        self.turn = 0;
        self.first.front()
    }

    #[cold]
    fn front_of_any(&mut self) -> Option<u16> {
        let owner = self.whose_turn();
        self.turn = owner as u32;
        self.of_mut(owner).front()
    }

    /// Takes the entry whose turn it is. The next turn is another owner's, if another has an entry,
    /// and of its own another list's.
    #[inline]
    pub fn pop_front(&mut self, links: &mut FairLinks) -> Option<u16> {
        if self.used > 0 {
            return self.pop_front_of_any(links);
        }
        let entry = self.first.pop_front(links)?;
        self.turn = 1;
        self.len -= 1;
        Some(entry)
    }

    #[cold]
    fn pop_front_of_any(&mut self, links: &mut FairLinks) -> Option<u16> {
        let owner = self.whose_turn();
        self.turn = (owner as u32 + 1) % OWNERS as u32;
        let entry = self.of_mut(owner).pop_front(links)?;
        self.note_gone(owner);
        Some(entry)
    }

    /// Takes `entry` out, which must be in this queue. No turn is used up by that.
    pub fn remove(&mut self, links: &mut FairLinks, entry: u16) {
        let owner = links.bucket_of(entry).owner();
        self.of_mut(owner).remove(links, entry);
        self.note_gone(owner);
    }

    /// An entry of `owner` has left.
    const fn note_gone(&mut self, owner: usize) {
        self.len -= 1;
        if owner > 0 && self.of(owner).is_empty() {
            self.used &= !(1 << (owner - 1));
        }
    }

    /// The owner that has most entries, and how many it has.
    fn longest(&self) -> (usize, usize) {
        let lens = (0..OWNERS).map(|owner| (owner, self.of(owner).len()));
        lens.max_by_key(|&(_, len)| len).unwrap_or_default()
    }

    /// The entry of one of `queues` that makes room for one more in the list of `bucket` of `own`,
    /// one of them. An owner that has less makes no room for one that has more; among the lists of
    /// one owner likewise. `None` if the new one would have most.
    #[must_use]
    pub fn who_makes_room(queues: &[Self], own: &Self, bucket: Bucket) -> Option<u16> {
        let owner = bucket.owner();
        let longest = queues.iter().map(|queue| (queue, queue.longest()));
        let (queue, (other, len)) = longest.max_by_key(|&(_, (_, len))| len)?;
        if other != owner && own.of(owner).len() < len {
            return queue.of(other).oldest_of_longest().map(|(entry, _)| entry);
        }
        let longest = queues.iter().filter_map(|queue| queue.of(owner).oldest_of_longest());
        let (entry, len) = longest.max_by_key(|&(_, len)| len)?;
        (own.of(owner).bucket_len(bucket) < len).then_some(entry)
    }
}

impl Default for OwnersQueue {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut OwnersQueue, links: &mut FairLinks) -> Vec<u16> {
        core::iter::from_fn(|| queue.pop_front(links)).collect()
    }

    #[test]
    fn owners_take_turns_before_initiators_do() {
        let (mut links, mut queue) = (FairLinks::new(243), OwnersQueue::new());
        for entry in 0..240 {
            queue.push_back(&mut links, Bucket(entry % 64).of_owner(3), entry);
        }
        for (entry, owner) in [(240, 2), (241, 2), (242, 0)] {
            queue.push_back(&mut links, Bucket(7).of_owner(owner), entry);
        }
        assert_eq!((queue.len(), queue.oldest(&links)), (243, Some(0)));
        let order = drain(&mut queue, &mut links);
        assert_eq!(order[..6], [242, 240, 0, 241, 1, 2]);
        assert_eq!((order.len(), queue.is_empty(), queue.front()), (243, true, None));
        assert_eq!(queue.oldest(&links), None);
    }

    #[test]
    fn a_turn_lasts_until_its_entry_has_left_whoever_else_comes() {
        let (mut links, mut queue) = (FairLinks::new(4), OwnersQueue::new());
        queue.push_back(&mut links, Bucket(7).of_owner(3), 0);
        assert_eq!(queue.pop_front(&mut links), Some(0));
        queue.push_back(&mut links, Bucket(20), 1);
        assert_eq!(queue.front(), Some(1));
        for (entry, owner) in [(2, 5), (3, 0)] {
            queue.push_back(&mut links, Bucket(7).of_owner(owner), entry);
            assert_eq!(queue.front(), Some(1));
        }
        assert_eq!(drain(&mut queue, &mut links), [1, 2, 3]);
    }

    #[test]
    fn an_owner_that_has_less_makes_no_room_for_one_that_has_more() {
        let (mut links, mut queue) = (FairLinks::new(16), OwnersQueue::new());
        for (entry, bucket, owner) in [(0, 1, 0), (1, 2, 0), (2, 2, 0), (3, 5, 1), (4, 5, 1)] {
            queue.push_back(&mut links, Bucket(bucket).of_owner(owner), entry);
        }
        let makes_room = |queue: &OwnersQueue, bucket, owner| {
            let bucket = Bucket(bucket).of_owner(owner);
            OwnersQueue::who_makes_room(core::slice::from_ref(queue), queue, bucket)
        };
        assert_eq!(makes_room(&queue, 9, 7), Some(1), "the longest list of who has most");
        assert_eq!(makes_room(&queue, 5, 1), Some(1), "it has less than the first");
        assert_eq!(makes_room(&queue, 9, 0), Some(1), "its own longest list");
        assert_eq!(makes_room(&queue, 2, 0), None, "it would have most");
        queue.remove(&mut links, 0);
        assert_eq!(makes_room(&queue, 5, 1), None, "both have two");
        assert_eq!(makes_room(&queue, 6, 1), Some(3));
    }
}
