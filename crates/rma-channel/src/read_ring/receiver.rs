//! The receiver's end of a read ring: an image of the ring, into which READs land.
//!
//! Positions follow one another: processed ≤ taken ≤ believed ≤ landed ≤ asked for ≤ known of.
//! What is before *known* is in the sender's ring; what is between *landed* and *asked* is under
//! way; and *believed* is as `Reading` says. The image is as long as the ring, and nothing lands
//! in it where something stands that is not processed.

use core::time::Duration;
use std::collections::VecDeque;

use rma_core::{
    executor::{CallId, CallStatus, Piece},
    gate::Gate,
    grant::Grant,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{
    ReadRingConfig, ReaderConfig,
    records::{bell, capacity, footprint},
};
use crate::{
    close::{Registered, gives_back},
    flow,
    into::Fault,
    link::Link,
    reading::{Reading, ReadingMemory, is_passing, submit},
    receiver::{Claim, Claims, Ended, ReceiveError, Receiver, read},
    ring::{Held, Malformed, Position, Record, RingLen, WORD},
    table::Kind,
    terms::{Agreed, Needs, OpenError, Side, Terms},
};

/// A receiver's copy of a ring.
#[derive(Debug)]
pub(crate) struct Image {
    /// For READ of the sender's ring.
    pub(crate) grant: Grant,
    /// As long as the ring.
    pub(crate) memory: RegisteredRegion,
    pub(crate) ring: RingLen,
    pub(crate) len_max: u32,
    /// How many bytes messages may use up.
    pub(crate) capacity: u64,
}

impl Image {
    /// Returns the piece that reads `len` bytes from `from` on.
    pub(crate) const fn piece(&self, from: Position, len: u64) -> Piece<'_> {
        let at = self.ring.offset(from);
        let (grant, local) = (&self.grant, &self.memory);
        Piece { grant, remote_offset: at, local, local_offset: at, len }
    }
}

/// The position of a receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// Up to where it knows of messages.
    pub(crate) known: Position,
    /// Up to where it has processed them.
    pub(crate) tail: Position,
}

impl At {
    /// Whether messages may go up to `head`, which is not before what is known.
    pub(crate) const fn can_be(&self, head: Position, capacity: u64) -> bool {
        let (known, head) = (self.known.since(self.tail), head.since(self.tail));
        known <= head && head <= capacity && head % WORD == 0
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// Nothing that is new. The look was issued then.
    Nothing(Instant),
    /// Messages up to `known`, of which what is before `whole` has landed.
    Known { known: Position, whole: Position },
}

/// The way in which a receiver learns of messages.
pub(crate) trait Look: core::fmt::Debug {
    /// Whether there are looks that find nothing.
    const ASKS: bool = true;

    /// Takes the result of a look, if something was or a look is over.
    fn take(&mut self, link: &mut Link, image: &Image, at: At) -> Result<Option<Found>, Fault>;

    /// When a look must be made, if not at once.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Looks, if it is time and all that is known of has been asked for.
    fn begin(
        &mut self,
        link: &mut Link,
        now: Instant,
        image: &Image,
        at: At,
    ) -> Result<(), ReceiveError>;
}

/// When looks are made.
#[derive(Debug)]
pub(crate) struct Pace {
    every: Duration,
    /// The look that is under way, and since when.
    call: Option<(CallId, Instant)>,
    next: Instant,
}

impl Pace {
    pub(crate) const fn new(every: Duration) -> Self {
        Self { every, call: None, next: Instant::ZERO }
    }

    /// Whether a look must be made now.
    pub(crate) fn is_time(&self, now: Instant) -> bool {
        self.call.is_none() && now >= self.next
    }

    pub(crate) fn began(&mut self, call: Option<CallId>, now: Instant) {
        self.call = call.map(|call| (call, now));
    }

    /// When a look must be made, if there are pauses between them.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (self.call.is_none() && !self.every.is_zero()).then_some(self.next)
    }

    /// When the look was issued that is over now.
    pub(crate) fn take(&mut self, link: &mut Link) -> Result<Option<Instant>, Fault> {
        let Some((call, issued)) = self.call else { return Ok(None) };
        let Some(outcome) = link.take(call) else { return Ok(None) };
        self.call = None;
        match outcome.status {
            CallStatus::Ok => Ok(Some(issued)),
            status if is_passing(status) => Ok(None),
            status => Err(Fault::Ended(status)),
        }
    }

    /// A look found nothing, or something.
    pub(crate) fn found(&mut self, issued: Instant, is_something: bool) {
        self.next = if is_something { issued } else { issued + self.every };
    }
}

/// A part of the ring that was asked for.
#[derive(Clone, Copy, Debug)]
struct Body {
    from: Position,
    end: Position,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// It came with a look.
    Landed,
    UnderWay(CallId),
    /// The READ failed in passing, or has not been issued.
    Due,
}

/// The receiver's end, however it learns of messages.
#[derive(Debug)]
#[expect(private_bounds, reason = "the three kinds of looks are all there are")]
pub struct RingReceiver<L: Look> {
    pub(super) look: L,
    image: Image,
    reading: Reading,
    held: Held,
    is_begun: bool,
    tail: Position,
    next: Position,
    asked: Position,
    known: Position,
    /// The bodies that were asked for and have not landed, in order.
    bodies: VecDeque<Body>,
    /// Whether the last look has found nothing.
    is_idle: bool,
    /// Whether what it has found last may be one message, and the look before had found nothing.
    is_alone: bool,
    /// All that it gives back when it is closed.
    registered: Registered,
    /// The error that it has reported, if any.
    told: Ended,
}

/// The means by which a receiver joins: which grants of the terms there are besides seat and ring.
pub(super) struct Joining<'a> {
    pub(super) config: ReaderConfig,
    pub(super) terms: &'a Terms,
    pub(super) kind: Kind,
    /// Of all.
    pub(super) grants: &'static [rma_core::op::OpType],
}

impl Joining<'_> {
    /// Checks and returns the ring's settings, the agreed terms and the grants.
    pub(super) fn check(
        &self,
        host: &dyn Gate,
    ) -> Result<(ReadRingConfig, Agreed, Vec<Grant>), OpenError> {
        let Agreed { numbers, .. } = self.terms.agreed();
        let agreed = Agreed { kind: self.kind, name: self.config.name, numbers };
        let (us, side, grants) = (host.identity(), Side::Receiver, self.grants);
        let grants = Needs { us, agreed, side, grants }.check(self.terms)?.to_vec();
        let ring = ReadRingConfig::from_agreed(&agreed)?;
        if self.config.prefetch > ring.prefetch {
            let why = "no more than the sender was opened for";
            let value = self.config.prefetch.into();
            return Err(OpenError::Settings { what: "prefetching", value, why });
        }
        Ok((ring, agreed, grants))
    }
}

/// Makes the receiver's parts of a ring, part of which lands in `memory`, and of its sender.
/// `grants`: to read and write its seat, and to read the ring.
pub(super) fn parts(
    host: &dyn Gate,
    config: ReadRingConfig,
    grants: &[Grant],
    memory: Region,
) -> Result<(Image, Reading), OpenError> {
    let ReadRingConfig { len, len_max, prefetch, reader_timeout, .. } = config;
    let memory = flow::region(host, memory, Permissions::NONE)?;
    let capacity = capacity(len, prefetch);
    let image = Image { grant: grants[2], memory, ring: len, len_max, capacity };
    let seat = ReadingMemory::open(host)?;
    let reading = Reading::new(seat, [grants[0], grants[1]], reader_timeout, capacity);
    Ok((image, reading))
}

#[expect(private_bounds, reason = "the three kinds of looks are all there are")]
impl<L: Look> RingReceiver<L> {
    /// A receiver with these grants: to read and write its seat, and to read the ring.
    pub(super) fn join_with(
        host: &dyn Gate,
        config: ReadRingConfig,
        grants: &[Grant],
        look: L,
    ) -> Result<Self, OpenError> {
        let memory = Region::circular(config.len.get() as usize)?;
        let (image, reading) = parts(host, config, grants, memory)?;
        Ok(Self::new(image, reading, look))
    }

    pub(super) fn new(image: Image, reading: Reading, look: L) -> Self {
        let zero = Position::ZERO;
        let (tail, next, asked, known) = (zero, zero, zero, zero);
        let (held, bodies) = (Held::default(), VecDeque::new());
        Self {
            look,
            image,
            reading,
            held,
            is_begun: false,
            tail,
            next,
            asked,
            known,
            bodies,
            is_idle: true,
            is_alone: false,
            registered: Registered::default(),
            told: Ended::default(),
        }
    }

    /// Up to where messages were processed.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.tail
    }

    const fn at(&self) -> At {
        At { known: self.known, tail: self.tail }
    }

    /// Begins where the seat says.
    fn begin(&mut self) {
        if self.is_begun {
            return;
        }
        if let Some(start) = self.reading.start() {
            self.is_begun = true;
            (self.tail, self.next, self.asked, self.known) = (start, start, start, start);
        }
    }

    fn take_bodies(&mut self, link: &mut Link) {
        while let Some(body) = self.bodies.front_mut() {
            match body.state {
                State::Landed => {}
                State::Due => return,
                State::UnderWay(call) => {
                    let Some(outcome) = link.take(call) else { return };
                    if is_passing(outcome.status) {
                        body.state = State::Due;
                        return;
                    }
                    if outcome.status != CallStatus::Ok {
                        return self.reading.fail(outcome.status);
                    }
                }
            }
            self.reading.land(body.end);
            self.bodies.pop_front();
        }
    }

    fn take_look(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        match self.look.take(link, &self.image, self.at()) {
            Ok(None) => {}
            Ok(Some(Found::Nothing(issued))) => {
                self.is_idle = true;
                self.reading.found_nothing(self.known, issued, now);
            }
            Ok(Some(Found::Known { known, whole })) => {
                let is_one = known.since(self.known) <= footprint(self.image.len_max);
                self.is_alone = self.is_idle && is_one;
                self.is_idle = false;
                if whole != self.known {
                    let (from, state) = (self.known, State::Landed);
                    self.bodies.push_back(Body { from, end: whole, state });
                    self.asked = whole;
                }
                self.known = known;
            }
            Err(fault) => return fault.tell(&mut self.reading, now),
        }
        Ok(())
    }

    /// Asks for what is known of and not asked for, and looks for more, if that is not to wait.
    fn ask(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        if self.asked != self.known {
            let (from, end) = (self.asked, self.known);
            self.bodies.push_back(Body { from, end, state: State::Due });
            self.asked = end;
        }
        for body in &mut self.bodies {
            if let State::Due = body.state {
                let piece = self.image.piece(body.from, body.end.since(body.from));
                let Some(call) = submit(link, now, &piece)? else { return Ok(()) };
                body.state = State::UnderWay(call);
            }
        }
        if self.waits() {
            return Ok(());
        }
        self.look.begin(link, now, &self.image, self.at())
    }

    /// Whether a message that came alone is under way, which the next look would hold up. With a
    /// look beside it 64 B took 1.2 times as long as the READs of its bell and of itself, without
    /// 1.09. Where looks find message after message they go beside: a receiver that waited for each
    /// got a quarter less, unless it prefetched.
    fn waits(&self) -> bool {
        self.is_alone && !self.bodies.is_empty()
    }
}

gives_back!(RingReceiver<L: Look>);

#[expect(private_bounds, reason = "the three kinds of looks are all there are")]
impl<L: Look> RingReceiver<L> {
    /// The next message, if it is there and believed.
    fn take(&mut self) -> Result<Option<Claim>, ReceiveError> {
        let (position, believed) = (self.next, self.reading.believed());
        if !self.is_begun || position == believed {
            return self.reading.ended().map_or(Ok(None), Err);
        }
        let Image { memory, ring, len_max, .. } = &self.image;
        // Nothing lands there any longer, so what cannot be stays so.
        let len = bell(memory, *ring, *len_max, position)?;
        let cannot_be = Malformed::Head { told: 0, from: position.to_bits() };
        let len = len.ok_or(cannot_be)?;
        let end = position.after(footprint(len));
        if end.since(position) > self.known.since(position) {
            let told = self.known.to_bits();
            return Err(Malformed::Head { told, from: position.to_bits() }.into());
        }
        if end.since(position) > believed.since(position) {
            return self.reading.ended().map_or(Ok(None), Err);
        }
        self.held.take(position, footprint(len));
        self.next = end;
        let record = Record { position, offset: ring.offset(position) + WORD, len };
        Ok(Some(Claim { record, from: None }))
    }
}

impl<L: Look> Claims for RingReceiver<L> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        self.told.check()?;
        let taken = self.take();
        self.told.keep(taken)
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        read(&self.image.memory, &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        self.tail = self.tail.after(self.held.give_back(claim.record.position));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let look = self.look.poll_timeout();
        let look = look.filter(|_| self.reading.goes_on() && !self.waits());
        self.reading.poll_timeout().into_iter().chain(look).min()
    }
}

impl<L: Look> Receiver for RingReceiver<L> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.begin();
        if self.is_begun {
            self.take_bodies(link);
            self.take_look(link, now)?;
            // The data of a look has landed if nothing before it is under way.
            self.take_bodies(link);
        }
        let is_all = (self.is_idle || !L::ASKS) && self.tail == self.known;
        let polled = self.reading.poll(link, now, self.tail, is_all);
        self.begin();
        if self.reading.goes_on() {
            self.ask(link, now)?;
        }
        polled
    }
}
