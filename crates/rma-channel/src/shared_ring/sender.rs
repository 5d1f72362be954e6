//! A sender's end of a shared ring.
//!
//! What becomes of a message:
//!
//! | stage | next |
//! |---|---|
//! | waiting | has a place, by a FETCH_ADD for all that waits |
//! | has a place | is written, once there is room at it |
//! | is written | has landed; has a place, if it was not applied; is in doubt |
//! | in doubt | as its target says, who is asked under the present epoch |
//! | has landed | is known to be processed, once the tail is seen behind it |
//!
//! When the epoch is over, all that has not landed waits again, as soon as nothing of the old epoch
//! is under way: so places stay in the order of messages. A FETCH_ADD of which nobody knows is made
//! again: what it may have reserved is a hole, as any.

use core::{marker::PhantomData, ops::Range, time::Duration};
use std::collections::VecDeque;

use rma_core::{
    executor::{Call, CallError, CallId, CallStatus, OpCall, Outcome, Piece},
    op::OpStatus,
    outcome::{OpName, Verdict},
    portal::{Change, CommandPortal},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{FETCH_ADD, Form, HEAD, LOOK_MAX, MESSAGE, Place, READ, TAIL};
use crate::{
    close::{Close, Registered, opened},
    epochs::Ahead,
    flow,
    link::Link,
    registrar::Registrar,
    ring::{Malformed, Position, RingLen, Room, WORD, padded},
    sender::{
        self, Outgoing, SendError, SendHandle, SendRegion, SendState, checked_len, checked_place,
        refused,
    },
    terms::{Agreed, OpenError, Side, Terms, TermsError},
};

/// The first wait from one look at the tail to the next. Shorter: the receiver's NIC is asked more
/// often. Longer: room is noticed later.
const LOOK_MIN: Duration = Duration::from_micros(20);

/// How long nothing of what is under way may end until a sender looks whether the epoch has. (An op
/// whose answer was lost is asked about under the old key, in vain, until its target has forgotten
/// it.) Shorter: a READ more often while the receiver does not answer. Longer: he may not learn
/// what became of such an op.
const QUIET: Duration = Duration::from_millis(10);

/// How long after his last message has landed a sender looks what was processed. Shorter: he asks
/// in vain more often. Longer: it is known later.
const IDLE: Duration = Duration::from_millis(1);

/// The longest wait until a sender that has lost the epoch looks for it again. Longer: he goes on
/// later after a recovery.
pub const SEARCH_MAX: Duration = Duration::from_millis(5);

/// For how many times the time of a hole a sender looks for the epoch. Fewer: he gives a receiver
/// up that was only stopped for a while. More: he says later that he needs new terms.
const SEARCHES: u32 = 4;

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Placed(Position),
    /// Under way, in an epoch.
    Written(Position, CallId, usize),
    /// It may have been applied.
    InDoubt(Position, Doubt),
    /// The same, and its target is asked.
    Asked(Position, Doubt, CallId),
    Landed(Position),
    Failed(CallStatus),
}

/// An op that may have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Doubt {
    /// What its target calls it.
    name: OpName,
    /// In which epoch it was issued.
    epoch: usize,
    /// How often its target has been asked in vain.
    asked: u8,
}

#[derive(Debug)]
struct Item {
    region: RegisteredRegion,
    /// Where the message begins there.
    offset: u64,
    len: u32,
    /// How many bytes of the image it takes.
    image: u64,
    stage: Stage,
}

/// A look at the tail, for which of the epochs.
type Look = (CallId, usize);

/// A sender who does not know the epoch.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// When he last began to look, and for how long he has looked. What he slept does not count.
    last: Instant,
    spent: Duration,
    /// How often he has looked in vain.
    step: usize,
}

impl Lost {
    /// Which epoch is tried next, of those from `at` on, before `count`: every other time the one
    /// that comes after, and between them all in turn.
    const fn next(self, at: usize, count: usize) -> usize {
        let behind = count - at;
        let beyond = if self.step.is_multiple_of(2) { 1 } else { self.step / 2 };
        at + beyond % behind
    }
}

/// A sender's end of a shared ring.
#[derive(Debug)]
pub struct SharedSender<F: Form> {
    ahead: Ahead,
    len: RingLen,
    len_max: u32,
    window: usize,
    /// Which sender this is, to the receiver.
    index: u16,
    search_for: Duration,
    /// Circular: from where messages are written that are copied.
    image: RegisteredRegion,
    image_room: Room,
    /// A word: what was read of the tail.
    sight: RegisteredRegion,
    /// What was sent and has not landed with all before it.
    items: VecDeque<Item>,
    /// The number of the first of them.
    first: u64,
    /// What has landed and is not known to be processed: numbers from `first` back, and where each
    /// ends.
    landed: VecDeque<Position>,
    /// A FETCH_ADD that is under way, for how many messages, and in which epoch.
    reserving: Option<(CallId, usize, usize)>,
    tail: Position,
    looking: Option<Look>,
    /// When the next look may be, and how long to wait after that.
    look_at: Instant,
    look_wait: Duration,
    /// Before that he does not look for want of something else to do.
    idle_at: Instant,
    /// Nothing has ended for so long that he looks whether the epoch has.
    quiet_at: Instant,
    lost: Option<Lost>,
    ended: Option<SendError>,
    form: PhantomData<F>,
    /// For [`Close`].
    registered: Registered,
}

impl<F: Form> SharedSender<F> {
    /// Makes a sender's end of what the receiver has told: terms for this process, and for one end.
    ///
    /// # Errors
    /// If they are not terms of such a channel for this process, or the host has no room.
    pub fn join<R: Registrar>(
        registrar: &mut R,
        terms: &Terms,
    ) -> Result<Self, OpenError<R::Error>> {
        opened(registrar, |registrar| {
            let grants = terms.epochs_for(registrar.peer(), (F::KIND, Side::Sender), F::NEEDS)?;
            let ahead = Ahead::new(grants.to_vec(), F::NEEDS.len());
            let Agreed { numbers: [len, sizes, sender], .. } = terms.agreed();
            let (len_max, window) = (sizes as u32, (sizes >> 32) as usize);
            let ring = RingLen::new(len).ok().filter(|ring| {
                let fits =
                    0 < len_max && len_max <= F::LEN_MAX && F::footprint(len_max) <= ring.get();
                fits && 0 < window && window <= usize::from(u16::MAX)
            });
            let garbage =
                TermsError::Garbage { len: terms.to_bytes().len(), why: "no ring is so long" };
            let ring = ring.ok_or(garbage)?;
            let image = Region::circular(ring.get() as usize)?;
            let image = flow::region(registrar, image, Permissions::NONE)?;
            let sight = flow::region(registrar, Region::new(WORD as usize)?, Permissions::NONE)?;
            Ok(Self {
                ahead,
                len: ring,
                len_max,
                window,
                index: sender as u16,
                search_for: Duration::from_micros(sender >> 16).saturating_mul(SEARCHES),
                image,
                image_room: Room::new(ring.get()),
                sight,
                items: VecDeque::new(),
                first: 0,
                landed: VecDeque::new(),
                reserving: None,
                tail: Position::ZERO,
                looking: None,
                look_at: Instant::ZERO,
                look_wait: LOOK_MIN,
                idle_at: Instant::ZERO,
                quiet_at: Instant::ZERO,
                lost: None,
                ended: None,
                form: PhantomData,
                registered: Registered::default(),
            })
        })
    }

    /// Up to where the receiver has processed messages of all senders, as far as is known.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.tail
    }

    /// What a test lies with.
    #[cfg(test)]
    pub(super) fn image_and_grant(&self) -> (RegisteredRegion, rma_core::grant::Grant) {
        (self.image.clone(), *self.ahead.grant(MESSAGE))
    }

    /// Whether more may be sent.
    fn check(&self) -> Result<(), SendError> {
        self.ended.map_or(Ok(()), Err)
    }

    /// Nothing more is issued: what has not been cannot be received.
    fn end(&mut self, error: SendError, status: CallStatus) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(error);
        for item in &mut self.items {
            if matches!(item.stage, Stage::Waiting | Stage::Placed(_) | Stage::InDoubt(..)) {
                item.stage = Stage::Failed(match item.stage {
                    Stage::InDoubt(..) => CallStatus::Unknown,
                    _ => status,
                });
            }
        }
    }

    /// An op without which messages that wait cannot go on ended so. While others are under way
    /// that is not the end: what becomes of them is known first, and what waits is tried again.
    fn break_at_first(&mut self, status: CallStatus) {
        let is_under_way =
            |item: &Item| matches!(item.stage, Stage::Written(..) | Stage::Asked(..));
        let waits = |item: &Item| !matches!(item.stage, Stage::Landed(_) | Stage::Failed(_));
        let Some(index) = self.items.iter().position(waits) else { return };
        if self.items.iter().any(is_under_way) {
            return;
        }
        let status = match self.items[index].stage {
            Stage::InDoubt(..) => CallStatus::Unknown,
            _ => status,
        };
        self.items[index].stage = Stage::Failed(status);
        self.break_at(index, status);
    }

    fn break_at(&mut self, index: usize, status: CallStatus) {
        let handle = SendHandle(Position::from_bits(self.first + index as u64));
        self.end(SendError::Broken { handle, status }, CallStatus::PredecessorFailed);
    }

    /// Takes what became of all that is under way.
    fn take<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
    ) -> Result<(), SendError> {
        if let Some((call, epoch)) = self.looking
            && let Some(outcome) = link.take(call)
        {
            self.looking = None;
            self.looked(link, now, (epoch, outcome.status))?;
        }
        if let Some((call, count, epoch)) = self.reserving
            && let Some(outcome) = link.take(call)
        {
            self.reserving = None;
            self.quiet_at = now + QUIET;
            self.reserved(now, (count, epoch), &outcome)?;
        }
        for index in 0..self.items.len() {
            let call = match self.items[index].stage {
                Stage::Written(_, call, _) | Stage::Asked(.., call) => call,
                _ => continue,
            };
            if let Some(outcome) = link.take(call) {
                self.quiet_at = now + QUIET;
                self.over(now, index, &outcome);
            }
        }
        while let Some(item) = self.items.front()
            && let Stage::Landed(position) = item.stage
        {
            self.landed.push_back(position.after(F::footprint(item.len)));
            self.idle_at = now + IDLE;
            let image_tail = self.image_room.tail().after(item.image);
            self.image_room.told(image_tail)?;
            self.items.pop_front();
            self.first += 1;
        }
        while self.landed.front().is_some_and(|&end| self.is_processed(end)) {
            self.landed.pop_front();
        }
        Ok(())
    }

    fn is_processed(&self, end: Position) -> bool {
        // Of two positions the one that is less than half of all behind the other is the earlier.
        self.tail.since(end) < u64::MAX / 2
    }

    /// A look at the tail is over.
    fn looked<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        (epoch, status): (usize, CallStatus),
    ) -> Result<(), SendError> {
        match status {
            CallStatus::Ok => {}
            AUTH if self.lost.is_some() => {
                if let Some(lost) = &mut self.lost {
                    lost.spent += now.since(lost.last).min(8 * SEARCH_MAX);
                    (lost.last, lost.step) = (now, lost.step + 1);
                }
                return Ok(());
            }
            AUTH => {
                self.lose(now, epoch);
                return Ok(());
            }
            status => {
                self.break_at_first(status);
                return Ok(());
            }
        }
        if self.lost.take().is_some() {
            self.found(link, epoch);
        }
        let told = Position::from_bits(self.sight.load(0).map_or(0, u64::from_le));
        // What is read cannot be older than what was read before.
        if told != self.tail && self.is_processed(told) {
            let (told, tail) = (told.to_bits(), self.tail.to_bits());
            return Err(SendError::Malformed(Malformed::Tail { told, tail, head: tail }));
        }
        if told != self.tail {
            self.tail = told;
            self.look_wait = LOOK_MIN;
        }
        Ok(())
    }

    /// An op of an epoch was refused: another may be the present one, or somebody only says so.
    fn lose(&mut self, now: Instant, epoch: usize) {
        if epoch == self.ahead.at() && self.lost.is_none() {
            self.lost = Some(Lost { last: now, spent: Duration::ZERO, step: 0 });
            (self.look_at, self.look_wait) = (now, LOOK_MIN);
        }
    }

    /// This epoch is the present one.
    fn found<P: AsMut<CommandPortal>>(&mut self, link: &mut Link<P>, epoch: usize) {
        if epoch == self.ahead.at() {
            return;
        }
        self.ahead.advance(epoch);
        // Under the old key nobody tells what became of it.
        if let Some((call, ..)) = self.reserving {
            link.cancel(call);
        }
        for item in &mut self.items {
            match item.stage {
                Stage::Placed(_) => item.stage = Stage::Waiting,
                Stage::Written(_, call, _) | Stage::Asked(.., call) => link.cancel(call),
                _ => {}
            }
        }
    }

    /// A FETCH_ADD is over.
    fn reserved(
        &mut self,
        now: Instant,
        (count, epoch): (usize, usize),
        outcome: &Outcome,
    ) -> Result<(), SendError> {
        let is_present = epoch == self.ahead.at();
        match (outcome.status, outcome.result) {
            (CallStatus::Ok, Some(at)) if is_present => {
                let mut position = Position::from_bits(at);
                if at % super::ALIGN != 0 || position != self.tail && self.is_processed(position) {
                    let tail = self.tail.to_bits();
                    return Err(SendError::Malformed(Malformed::Tail {
                        told: tail,
                        tail,
                        head: at,
                    }));
                }
                let is_waiting = |item: &&mut Item| item.stage == Stage::Waiting;
                for item in self.items.iter_mut().filter(is_waiting).take(count) {
                    item.stage = Stage::Placed(position);
                    position = position.after(F::footprint(item.len));
                }
            }
            (AUTH, _) => self.lose(now, epoch),
            // What was reserved is of no use, or is a hole.
            (CallStatus::Ok | CallStatus::Unknown | CallStatus::Cancelled | NACK, _) => {}
            (_, _) if !is_present => {}
            (status, _) => self.break_at_first(status),
        }
        Ok(())
    }

    /// What is under way of a message is over.
    fn over(&mut self, now: Instant, index: usize, outcome: &Outcome) {
        let at = self.ahead.at();
        let again = |position, epoch| {
            if epoch == at { Stage::Placed(position) } else { Stage::Waiting }
        };
        let stage = self.items[index].stage;
        let next = match (stage, outcome.status) {
            (Stage::Written(position, ..), CallStatus::Ok) => Stage::Landed(position),
            (Stage::Written(position, _, epoch), AUTH) => {
                self.lose(now, epoch);
                again(position, epoch)
            }
            (Stage::Written(position, _, epoch), NOT_READY | NACK | CallStatus::Cancelled) => {
                again(position, epoch)
            }
            (Stage::Written(position, _, epoch), CallStatus::Unknown) => match outcome.in_doubt {
                Some(name) => {
                    // Perhaps the epoch is over, and so nobody answered.
                    self.lose(now, at);
                    Stage::InDoubt(position, Doubt { name, epoch, asked: 0 })
                }
                None => Stage::Failed(CallStatus::Unknown),
            },
            // It was not applied, whatever else was the matter: what follows is in another epoch.
            (Stage::Written(.., epoch), _) if epoch != at => Stage::Waiting,
            (Stage::Asked(position, doubt, _), CallStatus::Ok) => match outcome.verdict {
                Some(Verdict::Applied) => Stage::Landed(position),
                Some(Verdict::NotApplied) => again(position, doubt.epoch),
                _ => Stage::Failed(CallStatus::Unknown),
            },
            // Perhaps it was asked in an epoch that is over.
            (Stage::Asked(position, doubt, _), _) if doubt.asked < ASKS => {
                self.lose(now, at);
                Stage::InDoubt(position, Doubt { asked: doubt.asked + 1, ..doubt })
            }
            (Stage::Asked(..), _) => Stage::Failed(CallStatus::Unknown),
            (_, status) => Stage::Failed(status),
        };
        let is_over = matches!(next, Stage::Landed(_) | Stage::Failed(_));
        self.items[index].stage = next;
        if let Stage::Failed(status) = next {
            self.break_at(index, status);
        } else if let Some(ended) = self.ended
            && !is_over
        {
            // Nothing is issued any more.
            let status = match (ended, next) {
                (_, Stage::InDoubt(..)) => CallStatus::Unknown,
                _ => CallStatus::PredecessorFailed,
            };
            self.items[index].stage = Stage::Failed(status);
        }
    }

    /// Issues what may be issued; what the link has no room for now goes with a later poll.
    fn issue_or_wait<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
    ) -> Result<(), SendError> {
        match self.issue(link, now).map_err(refused) {
            Err(SendError::Full) => {
                let again = now + LOOK_MIN;
                (self.look_at, self.quiet_at) = (self.look_at.max(again), self.quiet_at.max(again));
                self.idle_at = self.idle_at.max(again);
                Ok(())
            }
            issued => issued,
        }
    }

    /// Issues what may be issued, until the link has no room.
    fn issue<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
    ) -> Result<(), CallError> {
        if self.ended.is_some() {
            return Ok(());
        }
        if let Some(lost) = self.lost {
            // All have been tried twice, and for long enough.
            let tries = 4 * (self.ahead.count() - self.ahead.at());
            if lost.spent > self.search_for && lost.step >= tries {
                let error = SendError::Revoked { epochs: self.ahead.count() };
                self.end(error, AUTH);
                return Ok(());
            }
            let epoch = lost.next(self.ahead.at(), self.ahead.count());
            return self.look(link, now, epoch);
        }
        let mut is_full = false;
        for index in 0..self.items.len() {
            match self.items[index].stage {
                Stage::Placed(position) => is_full |= !self.write(link, now, (index, position))?,
                Stage::InDoubt(position, doubt) => {
                    let call = link.submit_settle(now, self.ahead.grant(MESSAGE), doubt.name)?;
                    self.items[index].stage = Stage::Asked(position, doubt, call);
                }
                _ => {}
            }
        }
        let is_idle = self.items.is_empty() && self.reserving.is_none();
        if is_full || is_idle && !self.landed.is_empty() && now >= self.idle_at {
            self.look(link, now, self.ahead.at())?;
        }
        if !is_full {
            self.reserve(link, now)?;
        }
        if now >= self.quiet_at && !is_idle {
            self.quiet_at = now + QUIET;
            self.look(link, now, self.ahead.at())?;
        }
        Ok(())
    }

    /// Writes a message, if there is room for it.
    fn write<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        (index, position): (usize, Position),
    ) -> Result<bool, CallError> {
        let Item { region, offset, len, .. } = &self.items[index];
        let (len, end) = (*len, position.after(F::footprint(*len)));
        if end.since(self.tail) > self.len.get() {
            return Ok(false);
        }
        let number = (self.first + index as u64) as u32;
        let place = Place { ring: self.len, position, len, sender: self.index, number };
        let change = F::change(place, region, *offset);
        let call = link.submit_op(now, &OpCall::of(self.ahead.grant(MESSAGE), change))?;
        self.items[index].stage = Stage::Written(position, call, self.ahead.at());
        Ok(true)
    }

    /// Looks at the tail, by the grant for an epoch, unless it is too soon.
    fn look<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        epoch: usize,
    ) -> Result<(), CallError> {
        if self.looking.is_some() || now < self.look_at {
            return Ok(());
        }
        let (grant, local) = (self.ahead.grant_in(epoch, READ), &self.sight);
        let word = Piece { grant, remote_offset: TAIL, local, local_offset: 0, len: WORD };
        self.looking = Some((link.submit(now, &Call::of(&[word]))?, epoch));
        self.look_at = now + self.look_wait;
        self.look_wait = (self.look_wait * 2).min(LOOK_MAX.min(SEARCH_MAX));
        Ok(())
    }

    /// Reserves places for what waits, unless a reservation is under way, or something of an epoch
    /// that is over.
    fn reserve<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
    ) -> Result<(), CallError> {
        let at = self.ahead.at();
        let is_old = |item: &Item| match item.stage {
            Stage::Written(.., epoch) => epoch != at,
            Stage::InDoubt(..) | Stage::Asked(..) => true,
            _ => false,
        };
        if self.reserving.is_some() || self.items.iter().any(is_old) {
            return Ok(());
        }
        let waiting = self.items.iter().filter(|item| item.stage == Stage::Waiting);
        let (mut count, mut addend) = (0, 0);
        for item in waiting {
            let more = F::footprint(item.len);
            if count > 0 && addend + more > self.len.get() / 2 {
                break;
            }
            (count, addend) = (count + 1, addend + more);
        }
        if count > 0 {
            let change = Change::FetchAdd { remote_offset: HEAD, addend };
            let call = link.submit_op(now, &OpCall::of(self.ahead.grant(FETCH_ADD), change))?;
            self.reserving = Some((call, count, at));
        }
        Ok(())
    }

    /// Takes a message that stands in memory.
    fn push<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        item: Item,
    ) -> Result<SendHandle, SendError> {
        if self.items.is_empty() {
            self.quiet_at = now + QUIET;
        }
        self.items.push_back(item);
        let number = self.first + self.items.len() as u64 - 1;
        self.issue_or_wait(link, now)?;
        Ok(SendHandle(Position::from_bits(number)))
    }
}

/// How often a target is asked in vain about an op until it stays unknown. More: another epoch may
/// come in between. Fewer: a target that is gone is known to be sooner.
const ASKS: u8 = 3;

/// How a call ends whose key is not the present one.
const AUTH: CallStatus = CallStatus::Failed(OpStatus::RemoteAuthenticationFailure);

/// How a call ends that found no receive for too long. It was not applied.
const NOT_READY: CallStatus = CallStatus::Failed(OpStatus::RemoteNotReady);

/// How a call ends whose target had no record to spare for too long. It was not applied.
const NACK: CallStatus = CallStatus::Failed(OpStatus::Nack);

impl<F: Form> Close for SharedSender<F> {
    fn registered(&mut self) -> &mut Registered {
        &mut self.registered
    }
}

impl<F: Form> Outgoing for SharedSender<F> {
    fn len_max(&self) -> u32 {
        self.len_max
    }

    fn beside(&self) -> (u64, u64) {
        F::BESIDE
    }

    /// When to look: at the tail, or for the epoch.
    fn poll_timeout(&self) -> Option<Instant> {
        if self.ended.is_some() || self.looking.is_some() {
            return None;
        }
        let is_idle = self.items.is_empty() && self.reserving.is_none();
        let is_placed = |item: &Item| matches!(item.stage, Stage::Placed(_));
        if self.lost.is_some() || self.items.iter().any(is_placed) {
            Some(self.look_at)
        } else if !is_idle {
            Some(self.quiet_at.max(self.look_at))
        } else if !self.landed.is_empty() {
            Some(self.idle_at.max(self.look_at))
        } else {
            None
        }
    }

    fn test(&self, handle: SendHandle) -> SendState {
        let number = handle.0.to_bits();
        let landed = self.landed.len() as u64;
        match number.checked_sub(self.first) {
            None if number + landed < self.first => SendState::Processed,
            None => SendState::Accepted,
            Some(index) => match self.items.get(index as usize).map(|item| item.stage) {
                Some(Stage::Landed(_)) => SendState::Accepted,
                Some(Stage::Failed(status)) => SendState::Failed(status),
                _ => SendState::Sending,
            },
        }
    }
}

impl<F: Form, P: AsMut<CommandPortal>> sender::Sender<P> for SharedSender<F> {
    /// The message goes with those that gather while places are reserved. After
    /// [`SendError::Call`] it is among those that wait, and the link is asked again with each poll.
    fn send(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let len = checked_len(message.len(), self.len_max)?;
        self.check()?;
        // As in the ring, so that words beside the message have their places.
        let (before, behind) = F::BESIDE;
        let image = before + padded(len) + behind;
        let is_full = self.items.len() >= self.window;
        let at = if is_full { None } else { self.image_room.take(image) };
        let at = at.ok_or(SendError::Full)?;
        let offset = self.len.offset(at) + before;
        // The image is as long as the ring: or else nothing is written, and the call is refused.
        let _ = self.image.write(offset, message);
        link.count_copied(message.len());
        let (region, stage) = (self.image.clone(), Stage::Waiting);
        self.push(link, now, Item { region, offset, len, image, stage })
    }

    fn poll(&mut self, link: &mut Link<P>, now: Instant) -> Result<(), SendError> {
        let taken = self.take(link, now);
        if let Err(error) = taken {
            self.end(error, CallStatus::PredecessorFailed);
        }
        self.issue_or_wait(link, now)?;
        self.check()
    }
}

impl<F: Form, P: AsMut<CommandPortal>> SendRegion<P> for SharedSender<F> {
    fn send_region(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let len = checked_place(region, &range, F::BESIDE, self.len_max)?;
        self.check()?;
        if self.items.len() >= self.window {
            return Err(SendError::Full);
        }
        let (region, offset, image, stage) = (region.clone(), range.start, 0, Stage::Waiting);
        self.push(link, now, Item { region, offset, len, image, stage })
    }
}
