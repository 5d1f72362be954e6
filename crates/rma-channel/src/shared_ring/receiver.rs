//! The receiver's end of a shared ring.

use core::fmt;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use rma_core::{
    gate::{Gate, Peer},
    receive_queue::ReceiveQueue,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{
    CONTROL, CONTROL_LEN, FETCH_ADD, Form, Found, HEAD, MESSAGE, READ, RING, SharedRingConfig, TAIL,
};
use crate::{
    close::{Registered, gives_back, opened},
    epochs::Epochs,
    link::Link,
    receiver::{self, Claim, Claims, ReceiveError, Receiver},
    ring::{Malformed, Position, Record, RingLen, zero},
    terms::{OpenError, Side, Terms},
};

/// The receiver's knowledge of its ring while it looks for messages.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct View<'a> {
    pub(crate) ring: &'a RegisteredRegion,
    pub(crate) len: RingLen,
    pub(crate) len_max: u32,
    /// Up to where messages are processed.
    pub(crate) tail: Position,
    /// Up to where messages have come.
    pub(crate) frontier: Position,
    /// The region of the head.
    pub(crate) control: &'a RegisteredRegion,
}

impl View<'_> {
    /// Up to where places are reserved, as whoever may reserve has left it. To be asked for when a
    /// message has been seen: before that its place may not have been reserved.
    pub(crate) fn head(&self) -> Position {
        // The word is native, as atomics are; the two words of the region are there.
        Position::from_bits(self.control.load(HEAD).unwrap_or(0))
    }
}

/// A receiver's search for messages.
pub trait Finds: fmt::Debug + Send + Sized + 'static {
    /// The senders' form.
    type Form: Form;
    /// Whether free memory is zero.
    const ZEROES: bool;

    /// Opens the means to find messages, and returns them with the rights of others on the ring.
    #[doc(hidden)]
    fn open(host: &dyn Gate, len: RingLen) -> Result<(Self, Permissions), OpenError>;

    /// The queue that the ring's events come in.
    #[doc(hidden)]
    fn queue(&self) -> Option<&ReceiveQueue>;

    /// The next message that has come.
    #[doc(hidden)]
    fn find(&mut self, view: &View<'_>) -> Result<Option<Found>, Malformed>;

    /// The message that is at a position, of which nobody has told. Nobody writes meanwhile.
    #[doc(hidden)]
    fn scan(&mut self, view: &View<'_>, position: Position) -> Result<Option<Found>, Malformed>;
}

/// A message that has come and lies in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landed {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) is_free: bool,
}

/// A message of an earlier epoch.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) bytes: Box<[u8]>,
    /// Whether one before it is missing.
    pub(super) is_early: bool,
}

/// How far a recovery has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovering {
    /// The recovery of a hole that could be filled: its place, and when it was first seen.
    pub(super) since: Option<(Position, Instant)>,
    /// The ring is in order, and nobody can use it.
    pub(super) done: Option<Recovery>,
}

/// The result of a recovery, which begins another epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How many epochs there were before the present one.
    pub epoch: u64,
    /// How many runs of bytes were reserved and not written.
    pub holes: u64,
    /// How many bytes those were.
    pub skipped: u64,
    /// How many messages were copied out of the ring.
    pub saved: u64,
}

/// A sender: a few words.
#[derive(Debug)]
pub(super) struct Known {
    peer: Peer,
    /// The number of the message that is handed out next.
    next: u32,
    /// Those behind it that have come: their numbers, and where they are. Empty but after a
    /// recovery, or where events come in any order.
    early: BTreeMap<u32, Position>,
}

/// The receiver's end of a shared ring.
#[derive(Debug)]
pub struct SharedReceiver<F: Finds> {
    pub(crate) finds: F,
    pub(super) config: SharedRingConfig,
    pub(super) epochs: Epochs<2>,
    pub(super) tail: Position,
    pub(super) frontier: Position,
    /// The messages that lie in the ring from the tail on, by the position where each begins.
    pub(super) landed: BTreeMap<Position, Landed>,
    /// The messages that earlier epochs have left, by the position where each began.
    pub(super) saved: BTreeMap<Position, Saved>,
    /// The messages to hand out, in this order, with their senders.
    ready: VecDeque<(Position, u32, Option<Peer>)>,
    senders: Vec<Known>,
    malformed: Option<Malformed>,
    pub(super) recovering: Recovering,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl<F: Finds> SharedReceiver<F> {
    /// Opens a shared ring, which is empty and has no senders.
    ///
    /// # Errors
    /// If a setting cannot work, or the host has no room.
    pub fn open(host: &dyn Gate, config: SharedRingConfig) -> Result<Self, OpenError> {
        opened(host, |host| {
            config.check::<F::Form>()?;
            let (finds, permissions) = F::open(host, config.len)?;
            let epochs = Epochs::open(host, config.epochs.into(), |host, keys| {
                let control = Arc::new(Region::new(CONTROL_LEN)?);
                let ring = Arc::new(Region::circular(config.len.get() as usize)?);
                let of_control = Permissions::READ | Permissions::ATOMIC;
                let control = host.register(control, keys[CONTROL], of_control, None);
                let ring = host.register(ring, keys[RING], permissions, finds.queue());
                Ok([control.map_err(OpenError::Host)?, ring.map_err(OpenError::Host)?])
            })?;
            Ok(Self {
                finds,
                config,
                epochs,
                tail: Position::ZERO,
                frontier: Position::ZERO,
                landed: BTreeMap::new(),
                saved: BTreeMap::new(),
                ready: VecDeque::new(),
                senders: Vec::new(),
                malformed: None,
                recovering: Recovering::default(),
                registered: Registered::default(),
            })
        })
    }

    /// Lets a sender in. Returns his terms, for one sender's end: who wants another, or a new one,
    /// needs terms of its own. Nothing is registered for it.
    ///
    /// # Errors
    /// If there have been 65,536, or the host refuses.
    pub fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Terms, OpenError> {
        let count = self.senders.len();
        let Ok(sender) = u16::try_from(count) else {
            let why = "a shared ring has 65,536 at most, with those that are gone; open it anew";
            return Err(OpenError::Settings { what: "the sender", value: count as u64, why });
        };
        let mut each = [(CONTROL, F::Form::NEEDS[FETCH_ADD]); 3];
        each[READ].1 = F::Form::NEEDS[READ];
        each[MESSAGE] = (RING, F::Form::NEEDS[MESSAGE]);
        let grants = self.epochs.grants(host, peer, &each).map_err(OpenError::Host)?;
        self.senders.push(Known { peer, next: 0, early: BTreeMap::new() });
        Ok(Terms::new(self.config.agreed(F::Form::KIND, sender), Side::Receiver, grants))
    }

    /// Up to where messages were processed, or taken over by a recovery.
    #[must_use]
    pub const fn tail(&self) -> Position {
        self.tail
    }

    /// How many bytes senders have reserved from the first place on that is not written yet. If it
    /// is not 0 there is a hole, which may be filled at any moment; with zeroing all that is behind
    /// it waits.
    #[must_use]
    pub fn unfilled(&self) -> u64 {
        self.head().since(self.frontier)
    }

    /// How many epochs there were before the present one.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epochs.epoch()
    }

    /// The region of the head and the tail.
    pub(super) const fn control(&self) -> &RegisteredRegion {
        &self.epochs.regions()[CONTROL]
    }

    /// The memory that messages are written into.
    pub(super) const fn ring(&self) -> &RegisteredRegion {
        &self.epochs.regions()[RING]
    }

    /// Up to where places are reserved. Not believed: it is compared with what can be.
    pub(super) fn head(&self) -> Position {
        // The word is native, as atomics are; the two words of the region are there.
        Position::from_bits(self.control().load(HEAD).unwrap_or(0))
    }

    /// Looks at the ring through what it is found by.
    pub(super) fn with_view<T>(&mut self, look: impl FnOnce(&mut F, &View<'_>) -> T) -> T {
        let SharedRingConfig { len, len_max, .. } = self.config;
        let Self { finds, epochs, tail, frontier, .. } = self;
        let ([control, ring], tail, frontier) = (epochs.regions(), *tail, *frontier);
        look(finds, &View { ring, len, len_max, tail, frontier, control })
    }

    /// Takes what has come.
    pub(super) fn look(&mut self) -> Result<(), Malformed> {
        while self.malformed.is_none() {
            let found = self.with_view(|finds, view| finds.find(view));
            match found {
                Ok(Some(found)) => drop(self.take_in(found)),
                Ok(None) => break,
                Err(malformed) => self.malformed = Some(malformed),
            }
        }
        self.malformed.map_or(Ok(()), Err)
    }

    /// Takes a message in, if it can be.
    pub(super) fn take_in(&mut self, found: Found) -> Result<(), Malformed> {
        let Found { position, offset, len, number, from, .. } = found;
        if !self.fits(&found) {
            let (len, immediate) = (found.len, u64::from(number) << 32 | u64::from(found.sender));
            let malformed = Malformed::Place { offset, len, immediate };
            return Err(*self.malformed.insert(malformed));
        }
        self.landed.insert(position, Landed { offset, len, is_free: false });
        while let Some(landed) = self.landed.get(&self.frontier) {
            self.frontier = self.frontier.after(F::Form::footprint(landed.len));
        }
        let Known { next, early, .. } = &mut self.senders[usize::from(found.sender)];
        if *next != number {
            early.insert(number, position);
            return Ok(());
        }
        self.ready.push_back((position, len, from));
        *next = next.wrapping_add(1);
        while let Some(position) = early.remove(next) {
            *next = next.wrapping_add(1);
            let saved = self.saved.get_mut(&position);
            let len = match saved {
                Some(saved) => {
                    saved.is_early = false;
                    saved.bytes.len() as u32
                }
                None => self.landed.get(&position).map_or(0, |landed| landed.len),
            };
            self.ready.push_back((position, len, from));
        }
        Ok(())
    }

    /// Whether there can be such a message: nobody's place, of a sender that there is, who may have
    /// sent one with that number.
    fn fits(&self, found: &Found) -> bool {
        let &Found { position, len, sender, number, from, .. } = found;
        let end = position.after(F::Form::footprint(len));
        let before = self.landed.range(..=position).next_back();
        let behind = self.landed.range(position..).next();
        let is_free = position >= self.frontier
            && before.is_none_or(|(at, it)| at.after(F::Form::footprint(it.len)) <= position)
            && behind.is_none_or(|(&at, _)| end <= at);
        let known = self.senders.get(usize::from(sender));
        let may_be = known.is_some_and(|known| {
            let beyond = number.wrapping_sub(known.next);
            beyond < self.config.window.into()
                && !known.early.contains_key(&number)
                && from.is_none_or(|from| from == known.peer)
        });
        is_free && may_be
    }

    /// Whether what lies at `position` has been handed out or waits for that: or else it waits for
    /// one before it.
    pub(super) fn is_early(&self, position: Position) -> bool {
        self.senders.iter().any(|known| known.early.values().any(|&at| at == position))
    }

    /// The tail is told by being there.
    pub(super) fn store_tail(&self) {
        let _ = self.control().store(TAIL, self.tail.to_bits().to_le());
    }
}

gives_back!(SharedReceiver<F: Finds>);

impl<F: Finds> Claims for SharedReceiver<F> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        let looked = if self.ready.is_empty() { self.look() } else { Ok(()) };
        let Some((position, len, from)) = self.ready.pop_front() else {
            // Messages that came before it was handed out.
            return looked.map(|()| None).map_err(ReceiveError::Malformed);
        };
        let offset = self.landed.get(&position).map_or(0, |landed| landed.offset);
        Ok(Some(Claim { record: Record { position, offset, len }, from }))
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        let Some(saved) = self.saved.get(&claim.record.position) else {
            return receiver::read(self.ring(), &claim.record, offset, bytes);
        };
        let rest = saved.bytes.get(offset..).unwrap_or(&[]);
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        len
    }

    /// Nothing: a hole is [`SharedReceiver::recovery_timeout`]'s.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn free(&mut self, claim: Claim) {
        let position = claim.record.position;
        if self.saved.remove(&position).is_some() {
            return;
        }
        let Some(landed) = self.landed.get_mut(&position) else { return };
        landed.is_free = true;
        let len = landed.len;
        if F::ZEROES {
            let at = self.config.len.offset(position);
            zero(self.ring(), at, F::Form::footprint(len));
        }
        let before = self.tail;
        while let Some(first) = self.landed.first_entry()
            && first.get().is_free
            && *first.key() == self.tail
        {
            self.tail = self.tail.after(F::Form::footprint(first.remove().len));
        }
        if self.tail != before {
            self.store_tail();
        }
    }
}

impl<F: Finds> Receiver for SharedReceiver<F> {
    /// Looks for holes. Nothing is issued: the tail is where senders read it.
    fn poll(&mut self, _: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.look()?;
        self.watch(now);
        Ok(())
    }
}
