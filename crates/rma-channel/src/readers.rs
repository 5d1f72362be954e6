//! The readers of a sender's memory, and each one's progress: the sender's side of read slots and
//! read rings (§4.5, §4.6, §6).
//!
//! Each reader has a *seat* at the sender: four words of a region of its own, which it may read and
//! write, and nobody else.
//!
//! ```text
//! | tail | freed | counts | start |
//! ```
//!
//! The reader writes its tail there, and the smallest tail of those who *count* frees memory. A
//! reader that has told nothing for a time, counted from when there was something to tell, no
//! longer counts, and the others go on. What else could one do: a reader that died would hold up
//! all others for ever. Nor can it be told, as the sender issues nothing; so it finds out by itself
//! (`reading.rs`), from the words that the sender stores in its seat, in this order:
//!
//! 1. `counts` becomes 0;
//! 2. `freed` becomes up to where memory may change from now on, before all that changes in it
//!    ([`Region::store_first`](rma_shm::Region::store_first)).
//!
//! Who reads memory, and after that `freed`, and finds that what it read is not below it, has read
//! what was sent.
//!
//! A seat is taken by the next reader under another key: what the last one has under way lands
//! nowhere. Nothing that a reader writes is believed: a tail that cannot be costs it its seat, and
//! nobody else anything.
//!
//! # Time
//!
//! The sender is told the time with each poll, and a reading may be old when it is used. So a time
//! begins with the first poll whose reading is later than that of the poll which saw why it begins.
//! It is never too short for the reader, whose own time begins when it issues its tail.

use core::{fmt, time::Duration};

use rma_core::{
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use crate::{
    close::Registered,
    flow,
    ring::{Position, WORD},
    terms::OpenError,
};

/// The offset of the first word of a seat, in bytes.
pub(crate) const TAIL: u64 = 0;
pub(crate) const FREED: u64 = WORD;
pub(crate) const COUNTS: u64 = 2 * WORD;
pub(crate) const START: u64 = 3 * WORD;
/// How many bytes a seat has.
const SEAT_LEN: usize = 4 * WORD as usize;

/// The most readers that a sender can have at a time.
pub const READERS_MAX: u16 = 64;

/// The tail of a reader of which nothing has been heard.
const UNHEARD: u64 = u64::MAX;

/// One of a sender's readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The peer that reads.
    pub peer: Peer,
    /// Up to where it has processed messages, as far as is known.
    pub tail: Position,
    /// Whether the sender waits for it.
    pub standing: Standing,
}

/// Whether a sender waits for a reader before it uses memory again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Counts,
    /// It does not: the reader has told nothing for too long.
    Silent,
    /// It does not: the reader told a tail that cannot be.
    Malformed {
        /// The number that it told.
        told: u64,
    },
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counts => f.write_str("counts"),
            Self::Silent => f.write_str("counts no more, as it told nothing for too long"),
            Self::Malformed { told } => write!(f, "counts no more, as it told {told:#x}"),
        }
    }
}

/// Since when there is something that a reader has not told.
#[derive(Clone, Copy, Debug)]
enum Silence {
    /// There is nothing.
    None,
    /// A poll with this reading of the clock has seen that there is something new.
    Seen(Instant),
    /// Since then, at the latest.
    Since(Instant),
}

#[derive(Debug)]
struct Seat {
    reader: Reader,
    words: RegisteredRegion,
    /// The tail that was last seen.
    heard: u64,
    silence: Silence,
}

/// A sender's readers.
#[derive(Debug)]
pub(crate) struct Readers {
    seats: Vec<Seat>,
    max: u16,
    timeout: Duration,
    /// Up to where all who count have processed messages.
    freed: Position,
}

impl Readers {
    /// None yet, of `max` at most, who count for `timeout` without a word.
    pub(crate) const fn new(max: u16, timeout: Duration) -> Self {
        Self { seats: Vec::new(), max, timeout, freed: Position::ZERO }
    }

    /// A seat for a reader of what is sent from `head` on: its number, and grants to read and to
    /// write it. What is new in it is `registered` for the sender.
    pub(crate) fn admit(
        &mut self,
        host: &dyn Gate,
        registered: &mut Registered,
        peer: Peer,
        head: Position,
    ) -> Result<(usize, [Grant; 2]), OpenError> {
        let free = self.seats.iter().position(|it| it.reader.standing != Standing::Counts);
        if free.is_none() && self.seats.len() >= self.max.into() {
            let (what, why) = ("the number of readers", "no more than the sender was opened for");
            return Err(OpenError::Settings { what, value: u64::from(self.max) + 1, why });
        }
        let (words, grants) = registered.keep(host, |host| {
            let words = match free {
                Some(index) => {
                    let words = self.seats[index].words.clone();
                    let key = host.key().map_err(OpenError::Host)?;
                    host.rekey(&words, key).map_err(OpenError::Host)?;
                    words
                }
                None => {
                    let permissions = Permissions::READ | Permissions::WRITE;
                    flow::region(host, Region::new(SEAT_LEN)?, permissions)?
                }
            };
            let grant = |op_type| host.grant(&words, peer, op_type).map_err(OpenError::Host);
            let grants = [grant(OpType::Read)?, grant(OpType::Write)?];
            Ok::<_, OpenError>((words, grants))
        })?;
        store(&words, TAIL, UNHEARD);
        store(&words, FREED, self.freed.to_bits());
        store(&words, START, head.to_bits());
        store(&words, COUNTS, 1);
        let reader = Reader { peer, tail: head, standing: Standing::Counts };
        let seat = Seat { reader, words, heard: UNHEARD, silence: Silence::None };
        let index = free.unwrap_or(self.seats.len());
        if index == self.seats.len() {
            self.seats.push(seat);
        } else {
            self.seats[index] = seat;
        }
        Ok((index, grants))
    }

    /// Looks at the tails, of what was sent up to `head`. Returns up to where memory is free, and
    /// has told it to all.
    pub(crate) fn poll(&mut self, now: Instant, head: Position) -> Position {
        let timeout = self.timeout;
        for seat in &mut self.seats {
            if seat.reader.standing == Standing::Counts {
                seat.look(now, head, timeout);
            }
        }
        self.free(head);
        self.freed
    }

    /// When a poll has something to do even if nothing is heard: it gives readers up.
    pub(crate) fn poll_timeout(&self, head: Position) -> Option<Instant> {
        let counting = self.seats.iter().filter(|it| it.reader.standing == Standing::Counts);
        counting.filter_map(|seat| seat.poll_timeout(head, self.timeout)).min()
    }

    pub(crate) fn counts(&self, index: usize) -> bool {
        self.seats.get(index).is_some_and(|it| it.reader.standing == Standing::Counts)
    }

    /// Up to where memory is free, as far as is known.
    pub(crate) const fn freed(&self) -> Position {
        self.freed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Reader> + '_ {
        self.seats.iter().map(|seat| seat.reader)
    }

    /// A reader's seat, for tests in which it is hostile.
    #[cfg(test)]
    pub(crate) fn words(&self, index: usize) -> RegisteredRegion {
        self.seats[index].words.clone()
    }

    //= channels#4.6-slow-reader
    fn free(&mut self, head: Position) {
        let since = |tail: Position| tail.since(self.freed);
        let counting = self.seats.iter().filter(|it| it.reader.standing == Standing::Counts);
        let tail = counting.map(|it| it.reader.tail).min_by_key(|&tail| since(tail));
        let tail = tail.unwrap_or(head);
        if tail == self.freed {
            return;
        }
        self.freed = tail;
        for seat in &self.seats {
            // The region is a seat.
            let _ = seat.words.memory().store_first(FREED, tail.to_bits().to_le());
        }
    }
}

impl Seat {
    fn look(&mut self, now: Instant, head: Position, timeout: Duration) {
        let word = self.words.load(TAIL).map_or(UNHEARD, u64::from_le);
        let Reader { tail, .. } = self.reader;
        if word != self.heard {
            let told = Position::from_bits(word);
            // A reader has one tail under way at a time, so it never goes back.
            if told.since(tail) > head.since(tail) {
                self.eject(Standing::Malformed { told: word });
                return;
            }
            (self.heard, self.reader.tail) = (word, told);
            self.silence = Silence::None;
        }
        if self.reader.tail == head {
            self.silence = Silence::None;
            return;
        }
        match self.silence {
            Silence::None => self.silence = Silence::Seen(now),
            Silence::Seen(seen) if now > seen => self.silence = Silence::Since(now),
            Silence::Since(since) if now.since(since) > timeout => self.eject(Standing::Silent),
            Silence::Seen(_) | Silence::Since(_) => {}
        }
    }

    fn poll_timeout(&self, head: Position, timeout: Duration) -> Option<Instant> {
        // Later than it must be, so that a reading then is later however coarse the clock is.
        let beyond = timeout / 64;
        match self.silence {
            _ if self.reader.tail == head => None,
            Silence::None => Some(Instant::ZERO),
            Silence::Seen(seen) => Some(seen + beyond),
            Silence::Since(since) => Some(since + timeout + beyond),
        }
    }

    fn eject(&mut self, standing: Standing) {
        self.reader.standing = standing;
        store(&self.words, COUNTS, 0);
    }
}

/// Stores into a seat, which has such a word.
fn store(words: &RegisteredRegion, offset: u64, value: u64) {
    let _ = words.store(offset, value.to_le());
}
