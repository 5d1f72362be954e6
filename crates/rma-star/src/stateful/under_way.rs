//! Frames under way: sent, and neither answered nor dead (§III-C3: F sends again what is not
//! answered).
//!
//! A frame is found by the number that it carried and its answer gives back: its place here, and
//! which use of the place it is. So an answer is known to be of this very frame, and of this very
//! copy, before its tag is looked at; its tag covers the IV of the copy. But what completes a RECV
//! of Z carries the RECV's place in its queue instead, as Z's application is told that; and an EA
//! names frames by their counters. By both a frame is found as well, at a cost that does not grow
//! with what is under way: who has no keys can make this host look for frames that there are not.
//!
//! Only one copy is alive. The time to send again is longer than W, so an older copy has expired at
//! Z before there is another.
//!
//! Frames that were sent as often wait about equally long: longer by none to seven parts of 32, by
//! a keyed hash of the copy's counter. Or those that were lost together, as they met before a table
//! that was full, would meet there again. Each number of tries and each such part has a list, whose
//! first frame is the one that is due first.

use core::time::Duration;

use rma_core::{
    crypto::Iv,
    fair_queue::BucketSecret,
    index_list::{IndexList, Links},
    time::Instant,
};

use super::{paths::Charge, row_index::RowIndex, slab::Slab};
use crate::{
    clock::ZTime,
    config::{SPREAD_MAX, SPREAD_PARTS, StarConfigBuilder},
    names::{MrId, Sequence},
};

/// The subject of a frame.
#[derive(Debug)]
pub(super) enum What {
    /// A chunk of a transfer.
    Chunk {
        /// The work request that has the transfer.
        work: u16,
        offset: u32,
        len: u16,
        /// The place of the RECV that it completes, in its queue.
        completes: Option<Sequence>,
    },
    /// CQEs of these work requests of Z.
    Cqes {
        told: IndexList,
        /// Whether Z is to answer at once. If not, it answers when they have been sent again,
        /// unless its next WQEs say that it has them.
        wants_answer: bool,
    },
    /// A question for initial state.
    Greeting,
    /// A question for a rule.
    Ask { mr: MrId, number: u8 },
    /// Whether the connection is there.
    Probe,
    /// Whether roles may change.
    Switch,
    /// The connection, handed over.
    Transfer,
    /// That it was taken over.
    Commit,
}

/// A frame under way.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) connection: u16,
    pub(super) what: What,
    /// The room that a chunk takes of its path's window.
    pub(super) charge: Charge,
    /// How often it was sent again.
    pub(super) tries: u8,
    /// In RC, the peer has said that it has no RECV for it yet.
    pub(super) is_refused: bool,
    /// Its copy that is alive; `None` if it must be sent again.
    pub(super) copy: Option<Copy>,
}

impl Sent {
    /// The place of the RECV that it completes.
    const fn completes(&self) -> Option<Sequence> {
        match self.what {
            What::Chunk { completes, .. } => completes,
            _ => None,
        }
    }
}

/// Returns the number by which a frame that completes a RECV is found.
fn recv_number(connection: u16, Sequence(place): Sequence) -> u64 {
    u64::from(connection) << 32 | u64::from(place)
}

/// The copy of a frame that is alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) iv: Iv,
    pub(super) sent_at: Instant,
    pub(super) expiry: ZTime,
}

/// How many waits there are for one number of tries.
const SPREAD: usize = SPREAD_MAX as usize + 1;

/// Frames that have been sent so many times.
#[derive(Debug, Default)]
struct Tried {
    /// By how many parts longer they wait.
    lists: [IndexList; SPREAD],
    /// The lists that are not empty: a bit each.
    used: u8,
}

/// All frames under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    frames: Slab<Sent>,
    /// The use of each place.
    uses: Box<[u16]>,
    /// Those of one connection to send again, or those that wait equally long.
    links: Links,
    /// Those with a live copy, by its counter.
    by_counter: RowIndex,
    /// Those that complete a RECV, by their connection and its place.
    by_recv: RowIndex,
    waiting: Box<[Tried]>,
    timeout: Duration,
    /// Nothing is due before, or at all: most turns need not look.
    not_before: Option<Instant>,
    /// The salt by which counters are spread, so that hosts do not spread theirs alike.
    salt: u64,
    /// How often a frame was looked at.
    #[cfg(test)]
    looks: core::cell::Cell<usize>,
}

impl UnderWay {
    /// Bytes that each frame takes.
    pub(super) const ENTRY_LEN: usize =
        Slab::<Sent>::ENTRY_LEN + size_of::<u16>() + Links::ENTRY_LEN + 2 * RowIndex::ENTRY_LEN;

    /// Room for so many frames, which are sent again as often and after such times as the settings
    /// say.
    pub(super) fn new(capacity: usize, settings: &StarConfigBuilder, secret: BucketSecret) -> Self {
        Self {
            frames: Slab::new(capacity),
            uses: vec![0; capacity].into(),
            links: Links::new(capacity),
            by_counter: RowIndex::new(capacity, secret.hash(1)),
            by_recv: RowIndex::new(capacity, secret.hash(2)),
            waiting: (0..=settings.retries).map(|_| Tried::default()).collect(),
            timeout: settings.retransmit_timeout,
            not_before: None,
            salt: secret.hash(0),
            #[cfg(test)]
            looks: core::cell::Cell::default(),
        }
    }

    /// By how many parts longer this copy waits for its answer.
    const fn spread(&self, copy: &Copy) -> usize {
        let mixed = (copy.iv.counter() ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % SPREAD
    }

    /// Returns the list of a frame whose live copy is this one: after how many tries, and how much
    /// longer.
    fn place_of(&self, at: u16, copy: &Copy) -> (usize, usize) {
        let tries = usize::from(self.frames[at].tries).min(self.waiting.len() - 1);
        (tries, self.spread(copy))
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

    /// How often frames were looked at since this was asked last.
    #[cfg(test)]
    pub(super) fn looks(&self) -> usize {
        self.looks.take()
    }

    /// The frame at a place.
    pub(super) fn at(&self, at: u16) -> &Sent {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
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

    /// The frame of a connection whose live copy has this counter.
    pub(super) fn find_copy(&self, connection: u16, counter: u64) -> Option<(u16, Copy)> {
        self.by_counter.rows(counter).find_map(|at| {
            let sent = self.at(at);
            let copy = sent.copy.filter(|copy| copy.iv.counter() == counter)?;
            (sent.connection == connection).then_some((at, copy))
        })
    }

    /// The frame of a connection that completes the RECV at this place of its queue.
    pub(super) fn find_completing(&self, connection: u16, place: Sequence) -> Option<u16> {
        let mut rows = self.by_recv.rows(recv_number(connection, place));
        rows.find(|&at| {
            let sent = self.at(at);
            sent.connection == connection && sent.completes() == Some(place)
        })
    }

    /// A new frame. It is not in any list until [`UnderWay::sent`].
    pub(super) fn add(&mut self, connection: u16, what: What, charge: Charge) -> Option<u16> {
        let sent = Sent { connection, what, charge, tries: 0, is_refused: false, copy: None };
        let completes = sent.completes();
        let at = self.frames.insert(sent)?;
        if let Some(place) = completes {
            self.by_recv.add(recv_number(connection, place), at);
        }
        Some(at)
    }

    /// Takes the frame's charge on its path's window, which is nothing from now on.
    pub(super) fn take_charge(&mut self, at: u16) -> Charge {
        core::mem::take(&mut self.frames[at].charge)
    }

    /// The frame at this place, which is in no list, was sent.
    pub(super) fn sent(&mut self, at: u16, copy: Copy) {
        let (tries, spread) = self.place_of(at, &copy);
        let due = copy.sent_at + self.wait(tries, spread);
        self.not_before = Some(self.not_before.map_or(due, |before| before.min(due)));
        self.frames[at].copy = Some(copy);
        self.by_counter.add(copy.iv.counter(), at);
        let Tried { lists, used } = &mut self.waiting[tries];
        lists[spread].push_back(&mut self.links, at);
        *used |= 1 << spread;
    }

    /// The frame is no more: answered, or given up. `again` is its connection's list of those to be
    /// sent again.
    pub(super) fn remove(&mut self, at: u16, again: &mut IndexList) -> Sent {
        self.unlist(at, again);
        self.uses[usize::from(at)] = self.uses[usize::from(at)].wrapping_add(1);
        let sent = self.frames.remove(at);
        if let Some(place) = sent.completes() {
            self.by_recv.remove(recv_number(sent.connection, place), at);
        }
        sent
    }

    fn unlist(&mut self, at: u16, again: &mut IndexList) {
        let Some(copy) = self.frames[at].copy else {
            return again.remove(&mut self.links, at);
        };
        self.by_counter.remove(copy.iv.counter(), at);
        let (tries, spread) = self.place_of(at, &copy);
        let Tried { lists, used } = &mut self.waiting[tries];
        lists[spread].remove(&mut self.links, at);
        *used &= !(u8::from(lists[spread].is_empty()) << spread);
    }

    /// The frame, which waits for its answer, must be sent again: its copy is dead. `false` if it
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

    /// A frame that was refused must be sent again, which does not count.
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

    /// How long a copy waits for its answer, after so many tries.
    fn wait(&self, tries: usize, spread: usize) -> Duration {
        let wait = self.timeout.saturating_mul(1_u32.checked_shl(tries as u32).unwrap_or(u32::MAX));
        wait + wait / SPREAD_PARTS * spread as u32
    }

    /// Whether no frame is due at any time.
    #[inline]
    pub(super) const fn is_still(&self) -> bool {
        self.not_before.is_none()
    }

    /// The frame that is due first, if it is due now.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<u16> {
        if self.not_before? > now {
            return None;
        }
        let first = self.first_due();
        self.not_before = first.map(|(due, _)| due);
        first.filter(|&(due, _)| due <= now).map(|(_, at)| at)
    }

    /// When the frame that is due first is due, and which it is.
    pub(super) fn first_due(&self) -> Option<(Instant, u16)> {
        let mut first = None;
        for (tries, Tried { lists, used }) in (0..).zip(&self.waiting) {
            let mut left = *used;
            while left != 0 {
                let spread = left.trailing_zeros();
                left &= left - 1;
                let at = lists[spread as usize].front()?;
                let due = self.frames[at].copy?.sent_at + self.wait(tries, spread as usize);
                if first.is_none_or(|first| (due, at) < first) {
                    first = Some((due, at));
                }
            }
        }
        first
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

    fn frames(capacity: usize, retries: u8, secret: u8) -> UnderWay {
        let timeout = Duration::from_nanos(3200);
        let default = StarConfigBuilder::default();
        let settings = StarConfigBuilder { retries, retransmit_timeout: timeout, ..default };
        UnderWay::new(capacity, &settings, BucketSecret::from_bytes([secret; 16]))
    }

    fn add(frames: &mut UnderWay) -> u16 {
        frames.add(0, What::Probe, Charge::default()).unwrap()
    }

    #[test]
    fn a_number_names_one_frame_and_no_later_one() {
        let mut frames = frames(1, 2, 0);
        let mut again = IndexList::new();
        let at = add(&mut frames);
        frames.sent(at, copy(5));
        let number = frames.number(at);
        assert_eq!(frames.find(number), Some(at));
        assert_eq!(frames.find(number ^ 1 << 16), None);
        assert_eq!(frames.find(u32::MAX), None);
        assert!(!frames.has_room());
        let _ = frames.remove(at, &mut again);
        assert_eq!(frames.find(number), None);
        let at = add(&mut frames);
        assert_eq!((frames.find(number), frames.find(frames.number(at))), (None, Some(at)));
    }

    /// When frames are due that were sent together, after the time that the first wait takes at
    /// least.
    fn dues(secret: u8) -> Vec<u64> {
        let mut frames = frames(64, 1, secret);
        let mut again = IndexList::new();
        for nanos in 0..64 {
            let at = add(&mut frames);
            frames.sent(at, copy(nanos));
        }
        let mut dues = Vec::new();
        for tries in [1, 2] {
            for _ in 0..64 {
                let (due, at) = frames.first_due().unwrap();
                let wait = due.nanos_since(frames.at(at).copy.unwrap().sent_at);
                assert!((3200 * tries..=3200 * tries * 39 / 32).contains(&wait), "{wait}");
                assert!(
                    dues.last().is_none_or(|&last| last <= due.as_nanos()),
                    "the first is first"
                );
                dues.push(due.as_nanos());
                assert_eq!(frames.send_again(at, &mut again), tries == 1, "once is all");
            }
            let mut now = 5000;
            while tries == 1
                && let Some(at) = frames.next_again(&mut again)
            {
                now += 1;
                frames.sent(at, copy(now));
            }
        }
        assert_eq!(frames.first_due(), None);
        while let Some(at) = again.front() {
            let _ = frames.remove(at, &mut again);
        }
        assert_eq!(frames.len(), 0);
        dues
    }

    #[test]
    fn frames_are_due_by_the_doubled_time_but_not_together_and_end_after_their_tries() {
        let (one, other) = (dues(1), dues(2));
        assert_ne!(one, other, "hosts do not spread theirs alike");
        for dues in [one, other] {
            let within = dues.iter().filter(|&&due| due < dues[0] + 350).count();
            assert!(within < 48, "{within} of 64 are due with the first");
        }
    }
}
