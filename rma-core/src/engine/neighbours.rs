//! Frames on their way from the engine that received them to the engine of the same host that they
//! are for (not in the paper, whose NIC is one).
//!
//! A NIC's receive side spreads packets over queues by a hash that knows nothing of engines. Most
//! answers come right, as an engine sends from ports whose answers come to it; what does not is put
//! into a ring for its owner ([`Service::owner_of`]), as it came. Nothing in it is believed before
//! its owner has opened it. There is a ring for each ordered pair of engines, a flag in the
//! receiver's word that there is something in it, and the receiver's doorbell.
//!
//! | message | lines |
//! |---|---|
//! | a frame | one for what [`RxFrame`] says of its packet, and its octets |
//! | a word of a service: 1RMA's news that a record may go | one |
//!
//! Invariants:
//!
//! * A turn fetches frames, then takes the new keys that other engines have put, and then handles
//!   what it fetched ([`KeyRings`](crate::nic::KeyRings) says why).
//! * While frames of its own wait, an engine takes no more than half of what a turn may receive
//!   from its rings, in messages and in octets.
//! * A ring without room loses a frame, which is counted, and keeps room for words.
//! * A packet whose frames end at two engines has one notice to a stranger at most (P10): whoever
//!   has its first frame may send it, and all others count it as sent.
//! * No message has a time in it: two engines' clocks have nothing to do with each other.

mod message;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrayvec::ArrayVec;
use rma_shm::{
    Flags,
    spsc::{Consumer, Producer, ring},
};

use crate::{
    backend::{BATCH, RxFrame},
    crypto::EngineId,
    seat::{FIRST_KEY_BIT, Seat, Word, pairs},
    service::Service,
    tally::Tally,
    time::{Clock, Instant},
};
use message::{Arrivals, Head, Message};

/// Lines of a ring for frames. Larger: more of a burst for another engine finds room. Smaller: less
/// memory, of which there is one for each ordered pair of engines.
const LINES: usize = 1024;

/// Lines of a ring that frames leave to words.
const LINES_FOR_WORDS: usize = 64;

/// For how many turns in a row a ring may be found empty before it is not looked into any more.
/// Larger: more looks in vain. Smaller: a sender has to raise its flag more often, which takes the
/// word's cache line from all engines that look at it.
const EMPTY_LOOKS: u16 = 1000;

/// Counts of the frames that an engine hands over to others, and takes over from them.
#[derive(Debug, Default)]
pub struct HandOvers {
    given: Tally,
    lost: Tally,
    taken: Tally,
}

impl HandOvers {
    /// Frames that came here and were for another engine, and were given to it.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.given.load()
    }

    /// Frames and words that were for another engine, and lost, as its ring had no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load()
    }

    /// Frames that came to other engines and were for this one.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load()
    }
}

/// The most that a turn takes out of the rings: another engine's flood must not delay this one's
/// own frames.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub(super) messages: usize,
    /// Of frames. Those of the longest at least.
    pub(super) octets: usize,
}

/// The ring to another engine.
#[derive(Debug)]
struct Out {
    engine: EngineId,
    ring: Producer,
    to: Seat,
    /// Whether there is something in it that the engine was not told of.
    is_untold: bool,
}

/// The ring from another engine.
#[derive(Debug)]
struct From {
    /// Its flag.
    bit: u32,
    ring: Consumer,
    /// The beginning of a message whose other lines have not all come.
    head: Option<Head>,
    /// How many lines of it this turn may take.
    fetched: usize,
    watch: Watched,
}

impl From {
    /// Whether there is nothing to take, by the flags that are up. What was not told yet comes with
    /// news, or never, where its engine has ended meanwhile: so does the rest of a message that has
    /// begun.
    fn is_idle(&self, raised: u64) -> bool {
        if self.watch == Watched::No {
            return raised >> self.bit & 1 == 0;
        }
        let rest = self.head.as_ref().map_or(1, Head::lines);
        self.ring.len() < rest
    }
}

/// Whether a ring is looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    /// Not before its flag is up.
    No,
    /// In each turn; and how often in a row it was empty.
    Empty(u16),
    /// Once more, as its flag was taken down.
    Once,
}

/// The other engines of a host, as one of them reaches them.
#[derive(Debug)]
pub struct Neighbours {
    engine: EngineId,
    /// This engine's flag at the others.
    bit: u32,
    out: Vec<Out>,
    from: Vec<From>,
    /// This engine's own word.
    news: Flags,
    /// The ring that is looked into first.
    first: usize,
    arrivals: Arrivals,
    /// The engine that has the first frame of the packet that is taken apart.
    first_owner: EngineId,
    counts: Arc<HandOvers>,
}

impl Neighbours {
    /// The ends of engines that are reached at `seats`, in their order. At most 32.
    #[must_use]
    pub fn connect(seats: &[Seat]) -> Vec<Self> {
        let mut all: Vec<Self> = (0..seats.len() as u16)
            .zip(seats)
            .map(|(index, seat)| Self {
                engine: EngineId(index),
                bit: index.into(),
                out: Vec::new(),
                from: Vec::new(),
                news: seat.news.clone(),
                first: 0,
                arrivals: Arrivals::new(),
                first_owner: EngineId(index),
                counts: Arc::default(),
            })
            .collect();
        for (from, to) in pairs(seats.len()) {
            let (producer, consumer) = ring(LINES).expect("a power of two");
            let (engine, seat) = (EngineId(to as u16), seats[to].clone());
            all[from].out.push(Out { engine, ring: producer, to: seat, is_untold: false });
            let (bit, watch) = (from as u32, Watched::No);
            all[to].from.push(From { bit, ring: consumer, head: None, fetched: 0, watch });
        }
        all
    }

    /// Counts of what was handed over.
    #[must_use]
    pub const fn counts(&self) -> &Arc<HandOvers> {
        &self.counts
    }

    /// Whether nothing waits in a ring, also no key. Looks again: the thread that is about to sleep
    /// asks.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let raised = self.news.raised();
        raised >> FIRST_KEY_BIT == 0 && self.from.iter().all(|from| from.is_idle(raised))
    }

    /// Has the service handle those of a batch of frames that are for this engine, and gives the
    /// others to their owners.
    pub fn deliver(
        &mut self,
        service: &mut impl Service,
        now: Instant,
        clock: &impl Clock,
        batch: &mut ArrayVec<RxFrame<'_>, BATCH>,
    ) {
        let mut own: ArrayVec<RxFrame<'_>, BATCH> = ArrayVec::new();
        for frame in batch.drain(..) {
            let owner = service.owner_of(&frame).unwrap_or(self.engine);
            if frame.is_first {
                self.first_owner = owner;
            }
            let is_paid = owner != self.first_owner;
            if owner != self.engine {
                self.give(owner, &frame, is_paid);
                continue;
            }
            if is_paid {
                handle(service, now, clock, &mut own);
                service.note_paid();
            }
            own.push(frame);
        }
        handle(service, now, clock, &mut own);
        self.send_words(service);
    }

    /// Puts a frame into the ring of its owner.
    fn give(&mut self, owner: EngineId, frame: &RxFrame<'_>, is_paid: bool) {
        let Some(out) = self.out.iter_mut().find(|out| out.engine == owner) else { return };
        let lines = message::lines(frame.bytes.len());
        if out.to.has_ended() || !out.ring.has_room_for(lines + LINES_FOR_WORDS) {
            self.counts.lost.add(1);
            return;
        }
        message::push(&mut out.ring, frame, is_paid);
        out.is_untold = true;
        self.counts.given.add(1);
    }

    fn send_words(&mut self, service: &mut impl Service) {
        while let Some(Word { to, line }) = service.poll_word() {
            let out = self.out.iter_mut().find(|out| out.engine == to && !out.to.has_ended());
            let Some(out) = out else { continue };
            match out.ring.push_unpublished(&message::word(line)) {
                Ok(()) => out.is_untold = true,
                Err(_full) => self.counts.lost.add(1),
            }
        }
    }

    /// Tells other engines of what was put into their rings.
    #[inline]
    pub fn publish(&mut self) {
        for out in &mut self.out {
            if core::mem::take(&mut out.is_untold) {
                out.ring.publish();
                out.to.tell(self.bit);
            }
        }
    }

    /// Has the service handle what other engines have put into this one's rings, as far as `share`
    /// goes. Returns how many messages there were.
    pub fn receive(
        &mut self,
        service: &mut impl Service,
        now: Instant,
        clock: &impl Clock,
        share: Share,
    ) -> usize {
        if !self.fetch() {
            return 0;
        }
        service.take_keys();
        let (mut left, count) = (share, self.from.len());
        for index in (self.first..count).chain(0..self.first) {
            while left.messages > 0 && self.from[index].fetched > 0 {
                let taken = self.take_batch(index, service, now, clock, &mut left);
                // Of each batch: the service has room for no more.
                self.send_words(service);
                if taken == 0 {
                    break;
                }
            }
        }
        self.first = (self.first + 1) % count;
        share.messages - left.messages
    }

    /// Sees how much there is in each ring. Returns whether there is anything.
    #[inline]
    fn fetch(&mut self) -> bool {
        let raised = self.news.raised();
        let mut any = false;
        for from in &mut self.from {
            if raised >> from.bit & 1 == 1 && from.watch == Watched::No {
                from.watch = Watched::Empty(0);
            }
            if from.watch == Watched::No {
                continue;
            }
            from.fetched = from.ring.len();
            if from.fetched > 0 {
                (from.watch, any) = (Watched::Empty(0), true);
                continue;
            }
            from.watch = match from.watch {
                Watched::Empty(EMPTY_LOOKS) => {
                    // What comes from now on raises it again; what has come is found next time.
                    self.news.lower(from.bit);
                    Watched::Once
                }
                Watched::Empty(looks) => Watched::Empty(looks + 1),
                Watched::Once | Watched::No => Watched::No,
            };
        }
        any
    }

    /// Takes some messages out of one ring, of what is left to take. Returns how many.
    fn take_batch(
        &mut self,
        index: usize,
        service: &mut impl Service,
        now: Instant,
        clock: &impl Clock,
        left: &mut Share,
    ) -> usize {
        let Self { from, arrivals, counts, .. } = self;
        let from = &mut from[index];
        let mut taken = 0;
        while taken < left.messages.min(BATCH)
            && let Some(message) =
                arrivals.take(&mut from.ring, &mut from.head, &mut from.fetched, left.octets)
        {
            taken += 1;
            match message {
                Message::Word(line) => service.handle_word(&line),
                Message::Frame { len } => {
                    left.octets -= len;
                    counts.taken.add(1);
                }
            }
        }
        left.messages -= taken;
        arrivals.drain(|is_paid, frames| {
            if is_paid {
                service.note_paid();
            }
            service.handle_frames(now, clock, frames);
        });
        taken
    }
}

/// Has the service handle frames, if there are some.
#[inline]
fn handle(
    service: &mut impl Service,
    now: Instant,
    clock: &impl Clock,
    frames: &mut ArrayVec<RxFrame<'_>, BATCH>,
) {
    if !frames.is_empty() {
        service.handle_frames(now, clock, frames);
        frames.clear();
    }
}
