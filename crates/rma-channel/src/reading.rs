//! The state that a reader of a sender's memory may trust: the reader's side of read slots and read
//! rings (§4.5, §4.6), of which [`readers`](crate::readers) is the sender's.
//!
//! A reader READs bodies where it knows of messages, tells its tail, and has to find out by itself
//! when the sender has not waited for it: a body may have been overwritten before it was read, and
//! nothing in it says so. So a body that has *landed* is *believed* only
//!
//! - while this reader *trusts* that it counts: it came before a time after the issue of the last
//!   tail that was done, which is the sender's own time less a 64th, for clocks that differ and for
//!   readings of them that are old; or
//! - if, after it had landed, a READ of its seat has found `freed` not beyond what is believed.
//!
//! Trust that is lost stays lost, as a tail that is told late is done as well as any, and renews
//! nothing. It comes back with a READ of the seat that says that this reader counts, issued after a
//! new tail was done: the sender's time began no earlier than that tail was issued. A look for
//! messages that finds none while all has been told also renews trust that is there: when the look
//! was issued there was nothing to tell.
//!
//! Without trust the seat is also asked now and then if nothing comes, as whoever is given up by a
//! sender that notifies hears nothing more.
//!
//! What cannot be is [`Malformed`] only if it was read while this reader counted. Else it may be
//! what is left of it after others went on: then the seat is asked first.

use core::time::Duration;

use rma_core::{
    executor::{Call, CallId, CallStatus, Piece},
    gate::Gate,
    grant::Grant,
    op::OpStatus,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use crate::{
    flow::{self, Teller},
    link::{Link, if_room},
    readers::{COUNTS, FREED, START},
    receiver::ReceiveError,
    ring::{Malformed, Position, WORD},
    terms::OpenError,
};

/// The length of the words that are read of a seat: `freed` first, whether it counts after that.
const WORDS: u64 = 3 * WORD;

/// Whether a reader trusts that its sender waits for it.
#[derive(Clone, Copy, Debug)]
struct Trust {
    limit: Duration,
    /// When the last op was issued that renewed it; `None` if it is lost.
    since: Option<Instant>,
}

impl Trust {
    /// Whether what has come by `now` was not overwritten. If not it is lost.
    fn holds(&mut self, now: Instant) -> bool {
        self.since = self.since.filter(|&since| now.since(since) < self.limit);
        self.since.is_some()
    }

    /// An op that was issued then, and is done by `now`, renews it, if it holds.
    fn renew(&mut self, issued: Instant, now: Instant) {
        if self.holds(now) {
            self.since = self.since.max(Some(issued));
        }
    }
}

/// A READ of the seat that is under way.
#[derive(Clone, Copy, Debug)]
struct Check {
    call: CallId,
    /// The position that had landed when it was issued.
    landed: Position,
    /// When the last tail that was done then had been issued.
    told: Option<Instant>,
    /// Whether something that cannot be had been read by then.
    is_suspect: bool,
}

/// A reader's progress and its belief about the writer.
#[derive(Debug)]
pub(crate) struct Reading {
    /// To read the seat.
    seat: Grant,
    /// The region in which it lands: [freed, counts, start].
    words: RegisteredRegion,
    teller: Teller,
    trust: Trust,
    check: Option<Check>,
    /// When the last tail had been issued that a check has come after.
    checked: Option<Instant>,
    /// When the seat was asked last.
    asked: Instant,
    /// Whether the seat has said where to begin.
    is_begun: bool,
    landed: Position,
    believed: Position,
    suspect: Option<Malformed>,
    ended: Option<ReceiveError>,
}

/// This host's memory of a [`Reading`].
#[derive(Debug)]
pub(crate) struct ReadingMemory {
    words: RegisteredRegion,
    tail: RegisteredRegion,
}

impl ReadingMemory {
    pub(crate) fn open(host: &dyn Gate) -> Result<Self, OpenError> {
        let words = flow::region(host, Region::new(WORDS as usize)?, Permissions::NONE)?;
        Ok(Self { words, tail: Teller::word(host)? })
    }
}

impl Reading {
    /// Of a seat, with grants to read and to write it, at a sender that waits `timeout` and has
    /// room for `capacity`.
    pub(crate) fn new(
        memory: ReadingMemory,
        [read, write]: [Grant; 2],
        timeout: Duration,
        capacity: u64,
    ) -> Self {
        let ReadingMemory { words, tail } = memory;
        Self {
            seat: read,
            words,
            teller: Teller::new(write, tail, capacity).unheard(),
            trust: Trust { limit: timeout - timeout / 64, since: None },
            check: None,
            checked: None,
            asked: Instant::ZERO,
            is_begun: false,
            landed: Position::ZERO,
            believed: Position::ZERO,
            suspect: None,
            ended: None,
        }
    }

    /// Returns the position at which this reader begins, once it is known.
    pub(crate) fn start(&self) -> Option<Position> {
        self.is_begun.then_some(self.landed)
    }

    /// Notes that everything before `landed` has come.
    pub(crate) fn land(&mut self, landed: Position) {
        self.landed = landed;
    }

    /// Up to where all is believed.
    pub(crate) const fn believed(&self) -> Position {
        self.believed
    }

    /// Returns the reason why there is no more, once what is believed has been taken.
    pub(crate) const fn ended(&self) -> Option<ReceiveError> {
        self.ended
    }

    /// When there is something to do even if nothing comes.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let last = self.trust.since.map_or(self.asked, |since| since.max(self.asked));
        let quiet = self.check.is_none().then(|| last + self.trust.limit);
        self.teller.poll_timeout().into_iter().chain(quiet).min().filter(|_| self.ended.is_none())
    }

    /// Whether more must be read.
    pub(crate) const fn goes_on(&self) -> bool {
        self.is_begun && self.ended.is_none() && self.suspect.is_none()
    }

    /// A READ failed for good.
    pub(crate) fn fail(&mut self, status: CallStatus) {
        self.ended = self.ended.or(Some(ReceiveError::Broken { status }));
    }

    /// Notes that the data read by `now` is malformed.
    pub(crate) fn suspect(&mut self, malformed: Malformed, now: Instant) {
        if self.trust.holds(now) {
            self.ended = self.ended.or(Some(malformed.into()));
        } else {
            self.suspect = self.suspect.or(Some(malformed));
        }
    }

    /// A look that was issued then found nothing beyond `known`.
    pub(crate) fn found_nothing(&mut self, known: Position, issued: Instant, now: Instant) {
        if self.teller.told().is_some_and(|(told, _)| told == known) {
            self.trust.renew(issued, now);
        }
    }

    /// Tells the tail if it is time, and asks the seat where there is no trust. `is_all`: nothing
    /// that has come is left to be processed, and no more is known of.
    pub(crate) fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        tail: Position,
        is_all: bool,
    ) -> Result<(), ReceiveError> {
        let was_begun = self.is_begun;
        self.take_check(link, tail);
        if self.is_begun && self.ended.is_none() {
            let tail = if was_begun { tail } else { self.landed };
            self.tell(link, now, tail, is_all)?;
        }
        if self.trust.holds(now) {
            self.believed = self.landed;
            if let Some(malformed) = self.suspect.take() {
                // It was read before the check that has brought trust back, or while that is there.
                self.ended = self.ended.or(Some(malformed.into()));
            }
        } else if self.ended.is_none() && self.check.is_none() && self.is_in_question(now) {
            self.ask(link, now)?;
        }
        self.ended.map_or(Ok(()), Err)
    }

    fn is_in_question(&self, now: Instant) -> bool {
        // A reader that hears nothing may have been given up.
        let is_quiet = now.since(self.asked) >= self.trust.limit;
        let is_news = self.teller.told().map(|(_, issued)| issued) > self.checked;
        !self.is_begun
            || self.believed != self.landed
            || self.suspect.is_some()
            || is_news
            || is_quiet
    }

    fn tell(
        &mut self,
        link: &mut Link,
        now: Instant,
        tail: Position,
        is_all: bool,
    ) -> Result<(), ReceiveError> {
        let before = self.teller.told();
        // A slow reader reports its tail before its timeout, so that it is not taken for dead.
        let is_due = before.is_some_and(|(_, issued)| now.since(issued) >= self.trust.limit / 4);
        // A failed report is repeated.
        if is_due {
            self.teller.hurry(tail);
        }
        self.teller.poll(link, now, tail, is_all)?;
        if let Some((_, issued)) = self.teller.told()
            && self.teller.told() != before
        {
            self.trust.renew(issued, now);
        }
        Ok(())
    }

    fn ask(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let (grant, local) = (&self.seat, &self.words);
        let piece = Piece { grant, remote_offset: FREED, local, local_offset: 0, len: WORDS };
        if let Some(call) = submit(link, now, &piece)? {
            let told = self.teller.told().map(|(_, issued)| issued);
            let (landed, is_suspect) = (self.landed, self.suspect.is_some());
            self.check = Some(Check { call, landed, told, is_suspect });
            self.asked = now;
        }
        Ok(())
    }

    fn take_check(&mut self, link: &mut Link, tail: Position) {
        let Some(Check { call, landed, told, is_suspect }) = self.check else { return };
        let Some(outcome) = link.take(call) else { return };
        self.check = None;
        let ejected = ReceiveError::Ejected { position: tail.to_bits() };
        match outcome.status {
            CallStatus::Ok => {}
            // The seat is somebody else's by now, or of nobody.
            CallStatus::Failed(OpStatus::RemoteAuthenticationFailure) => {
                self.ended = self.ended.or(Some(ejected));
                return;
            }
            // It is asked again.
            status if is_passing(status) => return,
            status => return self.fail(status),
        }
        let word = |at: u64| self.words.load(at - FREED).map_or(0, u64::from_le);
        let (freed, counts) = (Position::from_bits(word(FREED)), word(COUNTS) == 1);
        if !self.is_begun {
            let start = Position::from_bits(word(START));
            (self.landed, self.believed, self.is_begun) = (start, start, true);
        } else if self.believed.since(freed) > u64::MAX / 2 {
            self.ended = self.ended.or(Some(ejected));
            return;
        } else {
            self.believed = landed;
        }
        if !counts {
            self.ended = self.ended.or(Some(ejected));
            return;
        }
        if let Some(malformed) = self.suspect.filter(|_| is_suspect) {
            self.ended = self.ended.or(Some(malformed.into()));
        }
        (self.checked, self.trust.since) = (told.max(self.checked), self.trust.since.max(told));
    }
}

/// Whether a READ that ended so must be issued again: nothing has come of it, and nothing says that
/// it would be so for ever.
pub(crate) const fn is_passing(status: CallStatus) -> bool {
    match status {
        CallStatus::Failed(status) => {
            matches!(status, OpStatus::Nack | OpStatus::Timeout | OpStatus::DispatchTimeout)
        }
        CallStatus::PeerSilent { .. } | CallStatus::DeadlineExceeded => true,
        _ => false,
    }
}

/// Issues a READ; `None` if the link has no room for it now.
pub(crate) fn submit(
    link: &mut Link,
    now: Instant,
    piece: &Piece<'_>,
) -> Result<Option<CallId>, ReceiveError> {
    Ok(if_room(link.submit(now, &Call::of(core::slice::from_ref(piece))))?)
}
