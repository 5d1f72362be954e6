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

mod issuing;
mod outcomes;

use core::{marker::PhantomData, ops::Range, time::Duration};
use std::collections::VecDeque;

use rma_core::{
    executor::{CallId, CallStatus},
    gate::Gate,
    op::OpStatus,
    outcome::OpName,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::Form;
use crate::{
    close::{Registered, gives_back, opened},
    epochs::Ahead,
    flow,
    link::Link,
    ring::{Position, RingLen, Room, WORD, padded},
    sender::{
        self, Outgoing, SendError, SendHandle, SendRegion, SendState, checked_len, checked_place,
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

/// The status of a call whose key is not the present one.
const AUTH: CallStatus = CallStatus::Failed(OpStatus::RemoteAuthenticationFailure);

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
    /// The target's name for it.
    name: OpName,
    /// In which epoch it was issued.
    epoch: usize,
    /// How often its target has been asked in vain.
    asked: u8,
}

#[derive(Debug)]
struct Item {
    region: RegisteredRegion,
    /// The offset of the message there.
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
    /// Returns the epoch to try next, of those from `at` on, before `count`: every other time the
    /// one that comes after, and between them all in turn.
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
    /// The index of this sender at the receiver.
    index: u16,
    search_for: Duration,
    /// Circular: from where messages are written that are copied.
    image: RegisteredRegion,
    image_room: Room,
    /// A word: what was read of the tail.
    sight: RegisteredRegion,
    /// The messages that were sent and have not landed with all before them.
    items: VecDeque<Item>,
    /// The number of the first of them.
    first: u64,
    /// The ends of the messages that have landed and are not known to be processed, by number from
    /// `first` back.
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
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl<F: Form> SharedSender<F> {
    /// Makes a sender's end of what the receiver has told: terms for this process, and for one end.
    ///
    /// # Errors
    /// If they are not terms of such a channel for this process, or the host has no room.
    pub fn join(host: &dyn Gate, terms: &Terms) -> Result<Self, OpenError> {
        opened(host, |host| {
            let grants = terms.epochs_for(host.identity(), F::KIND, Side::Sender, F::NEEDS)?;
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
            let image = flow::region(host, image, Permissions::NONE)?;
            let sight = flow::region(host, Region::new(WORD as usize)?, Permissions::NONE)?;
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

    /// Returns the image and the grant, with which a test forges messages.
    #[cfg(test)]
    pub(super) fn image_and_grant(&self) -> (RegisteredRegion, rma_core::grant::Grant) {
        (self.image.clone(), *self.ahead.grant(super::MESSAGE))
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

    /// Takes a message that stands in memory.
    fn push(&mut self, link: &mut Link, now: Instant, item: Item) -> Result<SendHandle, SendError> {
        if self.items.is_empty() {
            self.quiet_at = now + QUIET;
        }
        self.items.push_back(item);
        let number = self.first + self.items.len() as u64 - 1;
        self.issue_or_wait(link, now)?;
        Ok(SendHandle(Position::from_bits(number)))
    }
}

gives_back!(SharedSender<F: Form>);

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

impl<F: Form> sender::Sender for SharedSender<F> {
    /// The message goes with those that gather while places are reserved. After
    /// [`SendError::Call`] it is among those that wait, and the link is asked again with each poll.
    fn send(
        &mut self,
        link: &mut Link,
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

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        let taken = self.take(link, now);
        if let Err(error) = taken {
            self.end(error, CallStatus::PredecessorFailed);
        }
        self.issue_or_wait(link, now)?;
        self.check()
    }
}

impl<F: Form> SendRegion for SharedSender<F> {
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let (before, behind) = F::BESIDE;
        let len = checked_place(region, &range, before, behind, self.len_max)?;
        self.check()?;
        if self.items.len() >= self.window {
            return Err(SendError::Full);
        }
        let (region, offset, image, stage) = (region.clone(), range.start, 0, Stage::Waiting);
        self.push(link, now, Item { region, offset, len, image, stage })
    }
}
