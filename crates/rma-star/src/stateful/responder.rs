//! The further state of a connection whose sides are both stateful: reliable connections as they
//! are elsewhere (RC; §III-C1's "normal RDMA").
//!
//! Such a connection is two halves, one each way, each with names and a key of its own. In each one
//! side asks, as the stateful side of StaR does, and the other answers: what it would say if it
//! were Z. It is not, and so needs nothing of what Z does by words in memory: it knows its RECVs,
//! and which frames have had their effect.
//!
//! Invariants: no number of an RD is taken twice; replies are in the list of one connection, which
//! has no more than [`REPLIES_MAX`]. Nothing is allocated after [`Replies::new`].

use rma_core::{
    crypto::Iv,
    index_list::{IndexList, Links},
    time::Instant,
};

use super::slab::Slab;
use crate::{
    keys::FrameKey,
    names::ConnectionName,
    wire::{Answer, EaEntry, Guide},
};

/// The most replies of one connection that wait for the device.
pub(super) const REPLIES_MAX: usize = 64;

/// One connection's part.
#[derive(Debug)]
pub(super) struct Responder {
    /// The names of the half in which the peer asks: this host's QP is in Z's place.
    pub(super) name: ConnectionName,
    /// The key of that half.
    pub(super) key: FrameKey,
    /// The number of the next RD to the peer.
    pub(super) next_number: u32,
    /// The place of the peer's RECV that the next message to it goes to.
    pub(super) next_recv: u32,
    /// The RDs of the peer that were taken.
    pub(super) taken: Numbers,
    /// Below this place the peer was told that there is no RECV: it wants to know when there is.
    pub(super) awaited: u32,
    pub(super) replies: IndexList,
    /// Once the connection has ended: below which place all RECVs are complete, and what the peer
    /// is told of the message to that one, however often it asks.
    pub(super) ended: Option<(u32, Answer)>,
}

impl Responder {
    pub(super) const fn new(name: ConnectionName, key: FrameKey) -> Self {
        Self {
            name,
            key,
            next_number: 0,
            next_recv: 0,
            taken: Numbers { next: 0, before: u128::MAX },
            awaited: 0,
            replies: IndexList::new(),
            ended: None,
        }
    }
}

/// Numbers modulo 2^32 that were taken: of the last 128 it is known which, and all before them are
/// as good as taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// One more than the highest that was taken.
    next: u32,
    /// Those below it, the nearest in the lowest bit.
    before: u128,
}

impl Numbers {
    /// Whether this one was not taken.
    pub(super) const fn is_fresh(self, number: u32) -> bool {
        let back = self.next.wrapping_sub(number);
        let is_ahead = back.cast_signed() <= 0;
        is_ahead || (back <= u128::BITS && self.before >> (back - 1) & 1 == 0)
    }

    /// Takes one that is fresh.
    pub(super) fn take(&mut self, number: u32) {
        let back = self.next.wrapping_sub(number);
        if back.cast_signed() > 0 {
            self.before |= 1_u128.checked_shl(back - 1).unwrap_or(0);
            return;
        }
        // As many as the highest moves on, at least one.
        let ahead = back.wrapping_neg() + 1;
        self.before = self.before.checked_shl(ahead).unwrap_or(0) | 1;
        self.next = number.wrapping_add(1);
    }
}

/// The content of an answer to a frame of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// An entry of an EA.
    Ea(EaEntry),
    /// A GDA to the GD of this guide and IV, with the data unless the answer is another.
    Data {
        /// The guide to the data that is asked for.
        guide: Guide,
        /// The IV of the GD.
        answered: Iv,
        /// The answer.
        answer: Answer,
    },
}

/// A reply that waits for the device, and when the frame came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) what: What,
    pub(super) came_at: Instant,
}

/// The replies of all connections.
#[derive(Debug)]
pub(super) struct Replies {
    rows: Slab<Reply>,
    links: Links,
}

impl Replies {
    /// Bytes that each reply takes.
    pub(super) const ENTRY_LEN: usize = Slab::<Reply>::ENTRY_LEN + Links::ENTRY_LEN;

    /// Room for so many.
    pub(super) fn new(capacity: usize) -> Self {
        Self { rows: Slab::new(capacity), links: Links::new(capacity) }
    }

    pub(super) fn capacity(&self) -> usize {
        self.rows.capacity()
    }

    /// Whether another reply has room in a connection's list.
    pub(super) fn has_room(&self, list: &IndexList) -> bool {
        self.rows.has_room() && list.len() < REPLIES_MAX
    }

    /// Puts a reply, which has room, behind the others of a connection.
    pub(super) fn push(&mut self, list: &mut IndexList, reply: Reply) {
        if let Some(at) = self.rows.insert(reply) {
            list.push_back(&mut self.links, at);
        }
    }

    /// The first reply of a connection.
    pub(super) fn front(&self, list: &IndexList) -> Option<&Reply> {
        list.front().map(|at| &self.rows[at])
    }

    /// Takes the first reply of a connection.
    pub(super) fn pop(&mut self, list: &mut IndexList) -> Option<Reply> {
        let at = list.pop_front(&mut self.links)?;
        Some(self.rows.remove(at))
    }

    /// Forgets all replies of a connection.
    pub(super) fn clear(&mut self, list: &mut IndexList) {
        while self.pop(list).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the set of all that were taken.
        #[test]
        fn each_number_is_taken_once_whatever_their_order(
            start in prop_oneof![Just(0_u32), Just(u32::MAX - 100), any::<u32>()],
            steps in prop::collection::vec(-150_i32..60, 1..300),
        ) {
            let mut numbers = Numbers { next: start, before: u128::MAX };
            let mut all = HashSet::new();
            let mut highest = start.wrapping_sub(1);
            for step in steps {
                let number = highest.wrapping_add_signed(step);
                let back = highest.wrapping_sub(number).cast_signed();
                let is_before = number.wrapping_sub(start).cast_signed() < 0;
                let expected = !is_before && back < 128 && !all.contains(&number);
                prop_assert_eq!(numbers.is_fresh(number), expected, "{} {:?}", number, numbers);
                if expected {
                    numbers.take(number);
                    all.insert(number);
                    prop_assert!(!numbers.is_fresh(number));
                    highest = if back < 0 { number } else { highest };
                }
            }
        }
    }
}
