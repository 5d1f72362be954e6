//! Receivers that READ messages into the application's own memory: read slots and read rings with
//! zero-copy on receive (§4.5, §4.6, §6).
//!
//! Such a receiver finds out where messages are, and how long; the application says where they go.
//! What was read is *received* once it is believed ([`Reading`]); then its tail passes it. Of its
//! own it has a few words, so its memory does not grow with messages or senders.

use core::fmt;
use std::collections::VecDeque;

use rma_core::{
    executor::{CallId, CallStatus, Piece},
    grant::Grant,
    region::RegisteredRegion,
    time::Instant,
};

use crate::{
    close::{Registered, gives_back},
    link::Link,
    reading::{Reading, is_passing, submit},
    receiver::{Incoming, ReceiveError, ReceiveHandle, ReceiveInto, ReceiveState},
    ring::{Malformed, Position},
};

/// A message that is known of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) position: Position,
    /// The position of the next one.
    pub(crate) end: Position,
    /// The offset in the sender's region.
    pub(crate) remote_offset: u64,
    pub(crate) len: u32,
    /// Whether it has landed in its place: in the place that was given for the look.
    pub(crate) landed: bool,
}

/// A look that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It found malformed input.
    Malformed(Malformed),
    /// It ended so.
    Ended(CallStatus),
    /// It could not be issued.
    Refused(ReceiveError),
}

impl Fault {
    /// Tells the reader the meaning of the fault.
    pub(crate) fn tell(self, reading: &mut Reading, now: Instant) -> Result<(), ReceiveError> {
        match self {
            Self::Malformed(malformed) => reading.suspect(malformed, now),
            Self::Ended(status) => reading.fail(status),
            Self::Refused(error) => return Err(error),
        }
        Ok(())
    }
}

impl From<ReceiveError> for Fault {
    fn from(error: ReceiveError) -> Self {
        Self::Refused(error)
    }
}

/// A receiver's search for messages, one after the other.
pub(crate) trait Finds: fmt::Debug {
    /// Whether there are looks that find nothing.
    const ASKS: bool = true;

    /// Messages begin here.
    fn begin(&mut self, start: Position);

    /// Tells where the next message is going to be received, if there is a place for it: a look
    /// that fetches a message with its bell may have it land there.
    fn land(&mut self, _: Option<(&RegisteredRegion, u64)>) {}

    /// When to look again, if not at once.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Takes what has been found, and looks again if it is time. What is before `tail` has been
    /// processed. Returns when a look was issued that has found nothing.
    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        tail: Position,
        found: &mut VecDeque<Found>,
    ) -> Result<Option<Instant>, Fault>;
}

/// A message that is being read.
#[derive(Debug)]
struct Body {
    found: Found,
    /// The region that it goes to.
    region: RegisteredRegion,
    offset: u64,
    /// `None`: the READ failed in passing, and must be issued again.
    call: Option<CallId>,
}

/// The end of a receiver that reads into the application's memory, however it finds messages.
#[derive(Debug)]
#[expect(private_bounds, reason = "all ways to find messages are in this crate")]
pub struct IntoReceiver<F: Finds> {
    pub(crate) finds: F,
    /// For READ of the sender's region.
    grant: Grant,
    reading: Reading,
    is_begun: bool,
    found: VecDeque<Found>,
    /// The messages that are being read, in order.
    bodies: VecDeque<Body>,
    /// The end of the messages asked for, and of those known.
    asked: Position,
    known: Position,
    is_idle: bool,
    /// All that it gives back when it is closed.
    pub(crate) registered: Registered,
}

#[expect(private_bounds, reason = "all ways to find messages are in this crate")]
impl<F: Finds> IntoReceiver<F> {
    pub(crate) fn new(finds: F, grant: Grant, reading: Reading) -> Self {
        let (found, bodies, zero) = (VecDeque::new(), VecDeque::new(), Position::ZERO);
        Self {
            finds,
            grant,
            reading,
            is_begun: false,
            found,
            bodies,
            asked: zero,
            known: zero,
            is_idle: true,
            registered: Registered::default(),
        }
    }

    /// Up to where messages were received.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.reading.believed()
    }

    /// Returns the state of a message.
    pub(crate) fn state(&self, handle: ReceiveHandle) -> ReceiveState {
        let tail = self.tail();
        if tail != handle.0 && tail.since(handle.0) < u64::MAX / 2 {
            return ReceiveState::Received;
        }
        self.reading.ended().map_or(ReceiveState::Receiving, ReceiveState::Failed)
    }

    /// When [`ReceiveInto::poll`] has something to do even if nothing comes.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let look = self.finds.poll_timeout().filter(|_| self.reading.goes_on());
        self.reading.poll_timeout().into_iter().chain(look).min()
    }

    fn begin(&mut self) {
        if !self.is_begun
            && let Some(start) = self.reading.start()
        {
            self.is_begun = true;
            (self.asked, self.known) = (start, start);
            self.finds.begin(start);
        }
    }

    fn take(&mut self, link: &mut Link) {
        while let Some(body) = self.bodies.front_mut() {
            if body.found.landed {
                self.reading.land(body.found.end);
                self.bodies.pop_front();
                continue;
            }
            let Some(outcome) = body.call.and_then(|call| link.take(call)) else { return };
            body.call = None;
            if is_passing(outcome.status) {
                return;
            }
            if outcome.status != CallStatus::Ok {
                return self.reading.fail(outcome.status);
            }
            self.reading.land(body.found.end);
            self.bodies.pop_front();
        }
    }

    /// Issues again what failed in passing.
    fn ask_again(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let is_due = |body: &&mut Body| body.call.is_none() && !body.found.landed;
        for body in self.bodies.iter_mut().filter(is_due) {
            body.call = ask(link, now, &self.grant, &body.found, &body.region, body.offset)?;
        }
        Ok(())
    }

    fn find(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let tail = self.tail();
        match self.finds.poll(link, now, tail, &mut self.found) {
            Ok(issued) => {
                let known = self.found.back().map_or(self.asked, |it| it.end);
                self.is_idle = known == self.known && (issued.is_some() || self.is_idle);
                self.known = known;
                if let Some(issued) = issued {
                    self.reading.found_nothing(known, issued, now);
                }
                Ok(())
            }
            Err(fault) => fault.tell(&mut self.reading, now),
        }
    }
}

gives_back!(IntoReceiver<F: Finds>);

impl<F: Finds> ReceiveInto for IntoReceiver<F> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.begin();
        if self.is_begun {
            self.take(link);
        }
        let mut polled = Ok(());
        // The reader reports what it believes now; nothing else may come.
        for _ in 0..2 {
            let tail = self.tail();
            let is_all = (self.is_idle || !F::ASKS) && tail == self.known;
            polled = self.reading.poll(link, now, tail, is_all);
            if polled.is_err() || self.tail() == tail {
                break;
            }
        }
        self.begin();
        if self.reading.goes_on() {
            self.ask_again(link, now)?;
            self.find(link, now)?;
        }
        polled?;
        self.reading.ended().map_or(Ok(()), Err)
    }

    fn incoming(&mut self) -> Option<Incoming> {
        let Found { position, len, .. } = *self.found.front()?;
        self.reading.goes_on().then_some(Incoming { position, len })
    }

    fn receive_into(
        &mut self,
        link: &mut Link,
        now: Instant,
        incoming: Incoming,
        region: &RegisteredRegion,
        offset: u64,
    ) -> Result<Option<ReceiveHandle>, ReceiveError> {
        let next = self.found.front().filter(|it| it.position == incoming.position);
        let Some(&found) = next else {
            // It is being received.
            return self.reading.ended().map_or(Ok(None), Err);
        };
        let mut call = None;
        if !found.landed {
            call = ask(link, now, &self.grant, &found, region, offset)?;
            if call.is_none() {
                return Ok(None);
            }
        }
        self.found.pop_front();
        self.asked = found.end;
        self.bodies.push_back(Body { found, region: region.clone(), offset, call });
        Ok(Some(ReceiveHandle(found.position)))
    }

    fn test(&self, handle: ReceiveHandle) -> ReceiveState {
        self.state(handle)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}

/// Issues the READ of a message to a place of the application's.
fn ask(
    link: &mut Link,
    now: Instant,
    grant: &Grant,
    found: &Found,
    local: &RegisteredRegion,
    local_offset: u64,
) -> Result<Option<CallId>, ReceiveError> {
    let (remote_offset, len) = (found.remote_offset, found.len.into());
    submit(link, now, &Piece { grant, remote_offset, local, local_offset, len })
}
