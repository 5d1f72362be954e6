//! Queues in which initiators take turns (not in the paper).
//!
//! An initiator that asks this NIC for much at once makes a long list of its own and delays nobody
//! else. There is no state by peer (P5): initiators are spread over [`BUCKETS`] lists by a keyed
//! hash of their address, and a queue takes from the lists in turns. Within a list it is first
//! come, first served. An initiator that has a list for itself has at least one turn in
//! [`BUCKETS`], whatever the others do; those that share one share its turns. Nobody can choose an
//! address that shares another's list, as the hash is keyed with a secret.
//!
//! Who owns what is asked for may be as many initiators as it likes, with keys of its own making.
//! So there are queues with *owners*, who take turns before initiators do:
//! [`OwnersQueue`](owners::OwnersQueue).
//!
//! Invariant: an entry is in at most one of the queues that share links, and in exactly one list of
//! it.

pub mod owners;

use core::fmt;

use crate::{
    addr::HostAddr,
    index_list::{IndexList, Links},
};

/// Lists of one queue. More: an attacker needs more addresses to share everybody's list. Fewer: a
/// smaller queue. As many as a word has bits, so that the next list with an entry is found at once.
pub const BUCKETS: usize = u64::BITS as usize;

/// For how many owners a queue with owners has lists. More: more memory. Fewer: more owners share
/// one's turns.
pub const OWNERS: usize = 16;

/// The secret by which this host spreads initiators over lists, drawn anew at each start. An
/// attacker who knows it can find addresses that share a list with another's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BucketSecret([u64; 2]);

impl BucketSecret {
    /// The secret that these octets are.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let bits = u128::from_le_bytes(bytes);
        Self([bits as u64, (bits >> 64) as u64])
    }

    /// Returns the list that the ops of `initiator` wait in. Of an IPv6 address the /64 counts: one
    /// host has as many addresses of it as it likes.
    #[must_use]
    pub const fn bucket_of(self, initiator: HostAddr) -> Bucket {
        Bucket((self.hash(initiator.host_bits()) % BUCKETS as u64) as u16)
    }

    /// A number that nobody can foretell who does not know the secret, always the same for the same
    /// word.
    #[must_use]
    #[inline]
    pub const fn hash(self, word: u64) -> u64 {
        sip_hash(self.0, word)
    }
}

/// Shows only that there is one.
impl fmt::Debug for BucketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BucketSecret(..)")
    }
}

/// SipHash-1-3 of the eight octets of `word` (Aumasson and Bernstein, 2012): a hash that tells
/// nothing of its key, also to whoever sees which words meet.
const fn sip_hash([k0, k1]: [u64; 2], word: u64) -> u64 {
    const fn round([a, b, c, d]: [u64; 4]) -> [u64; 4] {
        let (a, c) = (a.wrapping_add(b), c.wrapping_add(d));
        let (b, d) = (b.rotate_left(13) ^ a, d.rotate_left(16) ^ c);
        let (a, c) = (a.rotate_left(32).wrapping_add(d), c.wrapping_add(b));
        [a, b.rotate_left(17) ^ c, c.rotate_left(32), d.rotate_left(21) ^ a]
    }
    const fn take(mut state: [u64; 4], word: u64) -> [u64; 4] {
        state[3] ^= word;
        state = round(state);
        state[0] ^= word;
        state
    }
    let state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The last word has the length in octets on top.
    let mut state = take(take(state, word), 8 << 56);
    state[2] ^= 0xff;
    let [a, b, c, d] = round(round(round(state)));
    a ^ b ^ c ^ d
}

/// One of the lists of a queue: of which owner, and of which initiators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket(u16);

impl Bucket {
    /// The first list of the first owner.
    pub const FIRST: Self = Self(0);

    /// Returns its index among an owner's lists: below [`BUCKETS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize % BUCKETS
    }

    /// The list for the same initiators of owner number `owner`, modulo [`OWNERS`].
    #[must_use]
    pub const fn of_owner(self, owner: usize) -> Self {
        Self((owner % OWNERS * BUCKETS + self.index()) as u16)
    }

    const fn owner(self) -> usize {
        self.0 as usize / BUCKETS
    }
}

/// The links of all entries of one table. Queues over the same table may share them.
#[derive(Debug)]
pub struct FairLinks {
    lists: Links,
    /// The number of a waiting entry's arrival at its queue. Numbers come again after 2^32: should
    /// one ever wait as long, it is only found later that it has.
    arrivals: Box<[u32]>,
    /// The list of a waiting entry.
    buckets: Box<[Bucket]>,
}

impl FairLinks {
    /// Bytes that each entry takes.
    pub const ENTRY_LEN: usize = Links::ENTRY_LEN + size_of::<u32>() + size_of::<Bucket>();

    /// Those of a table of so many entries, none of which waits.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self {
            lists: Links::new(entries),
            arrivals: vec![0; entries].into_boxed_slice(),
            buckets: vec![Bucket::FIRST; entries].into_boxed_slice(),
        }
    }

    /// Returns the list that `entry` was put into last.
    pub fn bucket_of(&self, entry: u16) -> Bucket {
        self.buckets[usize::from(entry)]
    }
}

//= 1rma#4.3-inbound-fifos
//= type=deviation
/// One queue.
#[derive(Debug)]
pub struct FairQueue {
    lists: [IndexList; BUCKETS],
    /// The lists that have an entry: a bit each.
    used: u64,
    /// The list whose turn it is, or the next one after it that has an entry.
    turn: u32,
    /// How many entries wait, and how many have come.
    len: usize,
    arrivals: u32,
}

impl FairQueue {
    /// A queue in which nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self { lists: [const { IndexList::new() }; BUCKETS], used: 0, turn: 0, len: 0, arrivals: 0 }
    }

    /// How many entries wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many entries wait in one list.
    pub fn bucket_len(&self, bucket: Bucket) -> usize {
        self.lists[bucket.index()].len()
    }

    /// The entry that has waited longest, no matter whose turn it is: the first of some list. A
    /// list of all would be known at once, and cost each entry more than that.
    #[inline]
    pub fn oldest(&self, links: &FairLinks) -> Option<u16> {
        if self.used == 0 {
            None
        } else {
            self.oldest_of_used(links, self.arrivals).map(|(_, it)| it)
        }
    }

    /// The entry that has waited longest, and how many have come since, of so many arrivals.
    fn oldest_of_used(&self, links: &FairLinks, arrivals: u32) -> Option<(u32, u16)> {
        let (mut used, mut oldest) = (self.used, None);
        while used != 0 {
            let first = self.lists[used.trailing_zeros() as usize].front()?;
            let age = arrivals.wrapping_sub(links.arrivals[usize::from(first)]);
            if oldest.is_none_or(|(oldest, _)| age > oldest) {
                oldest = Some((age, first));
            }
            used &= used - 1;
        }
        oldest
    }

    /// The entry that has waited longest in the longest list, and how long that list is: this entry
    /// makes room where there is none. Of lists of one length it is the one that waits longest for
    /// its turn.
    pub fn oldest_of_longest(&self) -> Option<(u16, usize)> {
        let (mut used, mut longest, mut most) = (self.used.rotate_right(self.turn), 0, 0);
        while used != 0 {
            let list = (used.trailing_zeros() + self.turn) as usize % BUCKETS;
            if self.lists[list].len() >= most {
                (longest, most) = (list, self.lists[list].len());
            }
            used &= used - 1;
        }
        Some((self.lists[longest].front()?, most))
    }

    /// Puts `entry`, which is in no queue, at the end of the list of `bucket`.
    #[inline]
    pub fn push_back(&mut self, links: &mut FairLinks, bucket: Bucket, entry: u16) {
        let arrival = self.next_arrival();
        self.push_arrived(links, bucket, entry, arrival);
    }

    #[inline]
    const fn next_arrival(&mut self) -> u32 {
        let arrival = self.arrivals;
        self.arrivals = arrival.wrapping_add(1);
        arrival
    }

    /// As [`FairQueue::push_back`], of an entry with the number of its arrival.
    #[inline]
    fn push_arrived(&mut self, links: &mut FairLinks, bucket: Bucket, entry: u16, arrival: u32) {
        links.buckets[usize::from(entry)] = bucket;
        self.lists[bucket.index()].push_back(&mut links.lists, entry);
        links.arrivals[usize::from(entry)] = arrival;
        self.len += 1;
        self.used |= 1 << bucket.index();
    }

    /// The entry whose turn it is. That does not change before it leaves, whatever else comes: it
    /// can be served little by little.
    pub fn front(&mut self) -> Option<u16> {
        if self.used == 0 {
            return None;
        }
        self.turn = (self.used.rotate_right(self.turn).trailing_zeros() + self.turn) % u64::BITS;
        self.lists[self.turn as usize].front()
    }

    /// Takes the entry whose turn it is. The next turn is another list's, if another has an entry.
    #[inline]
    pub fn pop_front(&mut self, links: &mut FairLinks) -> Option<u16> {
        // Seldom: a caller that asked for the front before has found the list whose turn it is.
        if self.lists[self.turn as usize].is_empty() {
            self.front()?;
        }
        let list = &mut self.lists[self.turn as usize];
        let entry = list.pop_front(&mut links.lists)?;
        if list.is_empty() {
            self.used &= !(1 << self.turn);
        }
        self.len -= 1;
        self.turn = (self.turn + 1) % u64::BITS;
        Some(entry)
    }

    /// Takes `entry` out, which must be in this queue. No turn is used up by that.
    pub fn remove(&mut self, links: &mut FairLinks, entry: u16) {
        let bucket = links.bucket_of(entry);
        let list = &mut self.lists[bucket.index()];
        list.remove(&mut links.lists, entry);
        if list.is_empty() {
            self.used &= !(1 << bucket.index());
        }
        self.len -= 1;
    }
}

impl Default for FairQueue {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queue(buckets: &[u16]) -> (FairLinks, FairQueue) {
        let (mut links, mut queue) = (FairLinks::new(buckets.len()), FairQueue::new());
        for (entry, &bucket) in (0..).zip(buckets) {
            queue.push_back(&mut links, Bucket(bucket), entry);
        }
        (links, queue)
    }

    fn drain(queue: &mut FairQueue, links: &mut FairLinks) -> Vec<u16> {
        core::iter::from_fn(|| queue.pop_front(links)).collect()
    }

    //= 1rma#4.3-inbound-fifos
    //= type=test
    #[test]
    fn lists_take_turns_and_each_keeps_its_order() {
        let (mut links, mut queue) = queue(&[9, 9, 9, 63, 0, 63]);
        assert_eq!((queue.len(), queue.bucket_len(Bucket(9))), (6, 3));
        assert_eq!(drain(&mut queue, &mut links), [4, 0, 3, 1, 5, 2]);
        assert!(queue.is_empty());
        assert_eq!((queue.len(), queue.front(), queue.oldest(&links)), (0, None, None));
    }

    #[test]
    fn a_single_request_waits_for_one_entry_of_each_other_list_at_most() {
        for (busy, expected) in [(0, 0), (4, 0), (6, 1), (63, 0), (5, 99)] {
            let (mut links, mut queue) = (FairLinks::new(101), FairQueue::new());
            (0..100).for_each(|entry| queue.push_back(&mut links, Bucket(busy), entry));
            queue.pop_front(&mut links);
            if busy == 6 {
                assert_eq!(queue.front(), Some(1), "it is the next one's turn already");
            }
            queue.push_back(&mut links, Bucket(5), 100);
            let before = drain(&mut queue, &mut links).iter().position(|&entry| entry == 100);
            assert_eq!(before, Some(expected), "beside list {busy}");
        }
    }

    #[test]
    fn a_turn_lasts_until_its_entry_has_left() {
        let (mut links, mut queue) = (FairLinks::new(3), FairQueue::new());
        queue.push_back(&mut links, Bucket(20), 0);
        assert_eq!(queue.front(), Some(0));
        queue.push_back(&mut links, Bucket(7), 1);
        queue.push_back(&mut links, Bucket(20), 2);
        assert_eq!(queue.front(), Some(0), "a list before it has an entry now");
        assert_eq!(drain(&mut queue, &mut links), [0, 1, 2]);
    }

    #[test]
    fn the_longest_list_makes_room_with_its_oldest_entry() {
        let (mut links, mut queue) = queue(&[3, 8, 8, 3, 8]);
        assert_eq!(queue.oldest_of_longest(), Some((1, 3)));
        queue.remove(&mut links, 1);
        // Two lists of two: the one whose turn comes last.
        assert_eq!(queue.oldest_of_longest(), Some((2, 2)));
        assert_eq!(queue.pop_front(&mut links), Some(0));
        assert_eq!(queue.oldest_of_longest(), Some((2, 2)));
        assert_eq!(queue.oldest(&links), Some(2));
        assert_eq!(FairQueue::new().oldest_of_longest(), None);
    }

    #[test]
    fn hosts_of_one_ipv6_network_share_a_list_and_other_hosts_are_spread() {
        let secret = BucketSecret::from_bytes([7; 16]);
        let bucket = |text: &str| secret.bucket_of(text.parse().unwrap());
        assert_eq!(bucket("2001:db8:1:2::1"), bucket("2001:db8:1:2:ffff::9"));
        let mut lens = [0_u32; BUCKETS];
        for host in 0..6_400_u16 {
            let [high, low] = host.to_be_bytes();
            lens[secret.bucket_of([10, 1, high, low].into()).index()] += 1;
        }
        assert!(lens.iter().all(|len| (50..=150).contains(len)), "100 each, about: {lens:?}");
    }

    #[test]
    fn the_secret_decides_who_shares_a_list() {
        let of = |secret: u8, host: u8| {
            BucketSecret::from_bytes([secret; 16]).bucket_of([192, 0, 2, host].into())
        };
        let meet = |secret| (1..200).filter(|&host| of(secret, host) == of(secret, 0)).count();
        let others: Vec<_> = (1..200).filter(|&host| of(1, host) == of(1, 0)).collect();
        assert!(others.iter().filter(|&&host| of(2, host) == of(2, 0)).count() < others.len());
        assert!((0..20).map(meet).sum::<usize>() < 2 * 20 * 199 / BUCKETS);
        assert_eq!(format!("{:?}", BucketSecret::from_bytes([9; 16])), "BucketSecret(..)");
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // The standard library's hash of eight octets under zero keys.
        assert_eq!(sip_hash([0, 0], 0x0706_0504_0302_0100), 0xead4_11e6_7ebe_2eea);
        assert_eq!(sip_hash([0, 0], 0), 0xbd60_acb6_58c7_9e45);
    }

    proptest! {
        /// Against a model that looks at everything: lists as vectors, and the turn as a number.
        #[test]
        fn a_queue_is_what_a_plain_model_of_it_is(
            steps in prop::collection::vec((0_u8..4, 0_u16..64, any::<prop::sample::Index>()), 1..200),
        ) {
            let (mut links, mut queue) = (FairLinks::new(32), FairQueue::new());
            let mut free: Vec<u16> = (0..32).collect();
            let mut model: Vec<(u16, u16)> = Vec::new();
            let mut turn = 0;
            for (step, bucket, index) in steps {
                let next = (0..64).map(|i| (turn + i) % 64).find_map(|list| {
                    model.iter().position(|&(it, _)| it == list)
                });
                match step {
                    0 | 1 => if let Some(entry) = free.pop() {
                        queue.push_back(&mut links, Bucket(bucket), entry);
                        model.push((bucket, entry));
                    },
                    2 => {
                        let taken = next.map(|at| model.remove(at));
                        prop_assert_eq!(queue.pop_front(&mut links), taken.map(|it| it.1));
                        if let Some((list, entry)) = taken {
                            turn = (list + 1) % 64;
                            free.push(entry);
                        }
                    }
                    _ => if !model.is_empty() {
                        let (_, entry) = model.remove(index.index(model.len()));
                        queue.remove(&mut links, entry);
                        free.push(entry);
                    },
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                prop_assert_eq!(queue.oldest(&links), model.first().map(|it| it.1));
                let len = |list| model.iter().filter(|it| it.0 == list).count();
                let longest = (0..64).map(len).max().filter(|&len| len > 0);
                prop_assert_eq!(queue.oldest_of_longest().map(|it| it.1), longest);
                prop_assert_eq!(queue.bucket_len(Bucket(bucket)), len(bucket));
            }
        }
    }
}
