//! Frames under way: sent, and neither answered nor dead (§III-C3: F sends again what is not
//! answered).
//!
//! A frame is found by the number that it carried and its answer gives back: its place here, and
//! which use of the place it is. So an answer is known to be of this very frame, and of this very
//! copy, before its tag is looked at; its tag covers the IV of the copy. But what completes a RECV
//! of Z carries the RECV's place in its queue instead, as Z's application is told that; it is
//! looked for among the frames of its connection.
//!
//! Only one copy is alive. The time to send again is longer than W, so an older copy has expired at
//! Z before there is another.
//!
//! Frames that were sent as often wait equally long. So they are in one list for each number of
//! tries, and the first of a list is the one that is due first.

use core::time::Duration;

use rma_core::{
    crypto::Iv,
    index_list::{IndexList, Links},
    time::Instant,
};

use super::slab::Slab;
use crate::{clock::ZTime, names::MrId};

/// What a frame is about.
#[derive(Debug)]
pub(super) enum What {
    /// A chunk of a transfer.
    Chunk {
        /// The work request that has the transfer.
        work: u16,
        offset: u32,
        len: u16,
        /// Whether it completes the RECV that it is for.
        completes: bool,
    },
    /// CQEs of these work requests of Z.
    Cqes {
        told: IndexList,
        /// Whether Z is to answer at once. If not, it answers when they have been sent again,
        /// unless its next WQEs say that it has them.
        wants_answer: bool,
    },
    /// A question for a rule.
    Ask { mr: MrId, number: u8 },
    /// Whether the connection is there.
    Probe,
}

/// A frame under way.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) connection: u16,
    pub(super) what: What,
    /// What it takes of the window.
    pub(super) charge: u32,
    /// How often it was sent again.
    pub(super) tries: u8,
    /// In RC, the peer has said that it has no RECV for it yet.
    pub(super) is_refused: bool,
    /// Its copy that is alive; `None` if it is to be sent again.
    pub(super) copy: Option<Copy>,
}

/// The copy of a frame that is alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) iv: Iv,
    pub(super) sent_at: Instant,
    pub(super) expiry: ZTime,
}

/// All frames under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    frames: Slab<Sent>,
    /// Which use of each place it is.
    uses: Box<[u16]>,
    /// Those of one connection that are to be sent again, or those that wait equally long.
    links: Links,
    waiting: Box<[IndexList]>,
    timeout: Duration,
}

impl UnderWay {
    /// Bytes that each frame takes.
    pub(super) const ENTRY_LEN: usize =
        Slab::<Sent>::ENTRY_LEN + size_of::<u16>() + Links::ENTRY_LEN;

    /// Room for so many frames, each of which is sent again `retries` times at most, first after
    /// `timeout`.
    pub(super) fn new(capacity: usize, retries: u8, timeout: Duration) -> Self {
        Self {
            frames: Slab::new(capacity),
            uses: vec![0; capacity].into(),
            links: Links::new(capacity),
            waiting: (0..=retries).map(|_| IndexList::new()).collect(),
            timeout,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.frames.capacity()
    }

    pub(super) fn has_room(&self) -> bool {
        self.frames.has_room()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The frame at a place.
    pub(super) fn at(&self, at: u16) -> &Sent {
        &self.frames[at]
    }

    /// The number that the frame at this place carries.
    pub(super) fn number(&self, at: u16) -> u32 {
        u32::from(self.uses[usize::from(at)]) << 16 | u32::from(at)
    }

    /// The place of the frame that carries this number, if it is under way.
    pub(super) fn find(&self, number: u32) -> Option<u16> {
        let at = number as u16;
        let _ = self.frames.get(at)?;
        (self.number(at) == number).then_some(at)
    }

    /// A new frame. It is not in any list until [`UnderWay::sent`].
    pub(super) fn add(&mut self, connection: u16, what: What, charge: u32) -> Option<u16> {
        self.frames.insert(Sent {
            connection,
            what,
            charge,
            tries: 0,
            is_refused: false,
            copy: None,
        })
    }

    /// The frame at this place, which is in no list, was sent.
    pub(super) fn sent(&mut self, at: u16, copy: Copy) {
        let frame = &mut self.frames[at];
        frame.copy = Some(copy);
        let list = usize::from(frame.tries).min(self.waiting.len() - 1);
        self.waiting[list].push_back(&mut self.links, at);
    }

    /// The frame is no more: answered, or given up. `again` is its connection's list of those to be
    /// sent again.
    pub(super) fn remove(&mut self, at: u16, again: &mut IndexList) -> Sent {
        self.unlist(at, again);
        self.uses[usize::from(at)] = self.uses[usize::from(at)].wrapping_add(1);
        self.frames.remove(at)
    }

    fn unlist(&mut self, at: u16, again: &mut IndexList) {
        let frame = &self.frames[at];
        let list = match frame.copy {
            Some(_) => &mut self.waiting[usize::from(frame.tries).min(self.waiting.len() - 1)],
            None => again,
        };
        list.remove(&mut self.links, at);
    }

    /// The frame, which waits for its answer, is to be sent again: its copy is dead. `false` if it
    /// was sent often enough.
    pub(super) fn send_again(&mut self, at: u16, again: &mut IndexList) -> bool {
        self.unlist(at, again);
        let frame = &mut self.frames[at];
        frame.copy = None;
        let may = usize::from(frame.tries) + 1 < self.waiting.len();
        frame.tries = frame.tries.saturating_add(1);
        again.push_back(&mut self.links, at);
        may
    }

    /// The peer has said that it has no RECV yet for the frame, which waits for its answer.
    pub(super) fn refused(&mut self, at: u16) {
        self.frames[at].is_refused = true;
    }

    /// A frame that was refused is to be sent again, which does not count.
    pub(super) fn send_once_more(&mut self, at: u16, again: &mut IndexList) {
        self.unlist(at, again);
        let frame = &mut self.frames[at];
        (frame.copy, frame.is_refused) = (None, false);
        again.push_back(&mut self.links, at);
    }

    /// Takes the first frame out of a connection's list of those to be sent again.
    pub(super) fn next_again(&mut self, again: &mut IndexList) -> Option<u16> {
        again.pop_front(&mut self.links)
    }

    /// Puts it back to the front of that list.
    pub(super) fn not_yet(&mut self, again: &mut IndexList, at: u16) {
        again.push_front(&mut self.links, at);
    }

    /// When the frame that is due first is due, and which it is.
    pub(super) fn first_due(&self) -> Option<(Instant, u16)> {
        let due = |(tries, list): (u32, &IndexList)| {
            let at = list.front()?;
            let wait = self.timeout.saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX));
            Some((self.frames[at].copy?.sent_at + wait, at))
        };
        (0..).zip(&self.waiting).filter_map(due).min()
    }
}

#[cfg(test)]
mod tests {
    use rma_core::crypto::EngineId;

    use super::*;
    use crate::names::Side;

    fn copy(nanos: u64) -> Copy {
        let iv = Iv::new(Side::Stateful.direction(), EngineId(0), nanos);
        Copy { iv, sent_at: Instant::from_nanos(nanos), expiry: ZTime(0) }
    }

    #[test]
    fn a_number_names_one_frame_and_no_later_one() {
        let mut frames = UnderWay::new(1, 2, Duration::from_nanos(10));
        let mut again = IndexList::new();
        let at = frames.add(0, What::Probe, 0).unwrap();
        frames.sent(at, copy(5));
        let number = frames.number(at);
        assert_eq!(frames.find(number), Some(at));
        assert_eq!(frames.find(number ^ 1 << 16), None);
        assert_eq!(frames.find(u32::MAX), None);
        assert!(!frames.has_room());
        let _ = frames.remove(at, &mut again);
        assert_eq!(frames.find(number), None);
        let at = frames.add(0, What::Probe, 0).unwrap();
        assert_eq!((frames.find(number), frames.find(frames.number(at))), (None, Some(at)));
    }

    #[test]
    fn frames_are_due_by_the_doubled_time_and_end_after_their_tries() {
        let mut frames = UnderWay::new(2, 1, Duration::from_nanos(10));
        let mut again = IndexList::new();
        let one = frames.add(0, What::Probe, 0).unwrap();
        frames.sent(one, copy(5));
        let two = frames.add(0, What::Probe, 0).unwrap();
        frames.sent(two, copy(7));
        assert_eq!(frames.first_due(), Some((Instant::from_nanos(15), one)));
        assert!(frames.send_again(one, &mut again));
        assert_eq!(frames.next_again(&mut again), Some(one));
        frames.sent(one, copy(15));
        assert_eq!(frames.first_due(), Some((Instant::from_nanos(17), two)));
        let _ = frames.remove(two, &mut again);
        assert_eq!(frames.first_due(), Some((Instant::from_nanos(35), one)));
        assert!(!frames.send_again(one, &mut again), "once is all");
        assert_eq!(frames.first_due(), None);
        let _ = frames.remove(one, &mut again);
        assert!(again.is_empty());
    }
}
