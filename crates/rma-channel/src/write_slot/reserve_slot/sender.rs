//! A sender's end of shared slots.

use core::{ops::Range, time::Duration};
use std::collections::VecDeque;

use rma_core::{
    executor::{CallId, CallStatus, OpCall, Piece},
    gate::Gate,
    op::OpStatus,
    portal::{Change, Source},
    region::RegisteredRegion,
    time::Instant,
};

use super::slots::{BITS, LAST, NEEDS, OTHERS, Slots, TAKE, bit};
use crate::{
    close::{Registered, gives_back, opened},
    epochs::Ahead,
    image::{Image, Lying},
    link::Link,
    ring::Position,
    sender::{self, Outgoing, SendError, SendHandle, SendRegion, SendState, checked_len, refused},
    table::Kind,
    terms::{OpenError, Side, Terms},
};

/// The longest wait until a sender that found all slots taken looks again. Longer: he notices later
/// that one is free. Shorter: the receiver's NIC is asked more often while none is.
const LOOK_MAX: Duration = Duration::from_millis(2);

/// The first such wait.
const LOOK_MIN: Duration = Duration::from_micros(20);

/// The longest wait until a sender that was refused looks for the present epoch again. Longer: he
/// goes on later after a recovery.
pub const SEARCH_MAX: Duration = Duration::from_millis(5);

/// For how many times the time after which slots are taken back a sender looks for the present
/// epoch, until he takes the receiver for gone.
const SEARCHES: u32 = 4;

/// How many tries for a slot may fail on end, as others were quicker, until a sender waits.
const MISSES: u32 = 4;

/// A COMPARE_SWAP that is under way.
#[derive(Clone, Copy, Debug)]
struct Swap {
    call: CallId,
    word: u16,
    /// The expected value of the word.
    guess: u64,
    /// The slot that it takes; none if it only looks.
    takes: Option<u16>,
    epoch: usize,
}

/// A slot that is taken, in its epoch.
#[derive(Clone, Copy, Debug)]
struct Taken {
    slot: u16,
    epoch: usize,
}

/// A sender that was refused, and looks for the present epoch.
#[derive(Clone, Copy, Debug)]
struct Lost {
    since: Instant,
    /// How many epochs were tried in vain.
    tries: usize,
}

/// A sender's end.
#[derive(Debug)]
pub struct Sender {
    ahead: Ahead,
    slots: Slots,
    /// Of messages that wait.
    image: Image,
    /// Messages that wait, or the first of which is under way.
    waiting: VecDeque<Lying>,
    /// The number of the first that waits.
    first: Position,
    /// The call under way for the first, and its slot.
    write: Option<(CallId, Taken)>,
    swap: Option<Swap>,
    /// Slots that have no message yet, the next first.
    taken: VecDeque<Taken>,
    /// By word: what it is thought to be.
    guesses: Box<[u64]>,
    /// The word that is looked at first.
    word: u16,
    /// Not before this is a slot looked for.
    not_before: Instant,
    wait: Duration,
    misses: u32,
    lost: Option<Lost>,
    search_for: Duration,
    /// The status because of which there are no more slots: the first that is not under way has
    /// failed, once those before it are over.
    no_slot: Option<CallStatus>,
    /// The status because of which the first was not delivered, or nobody knows.
    broken: Option<CallStatus>,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl Sender {
    /// Opens a sender's end, with the terms that the receiver made for it. Up to `waiting` messages
    /// are under way, or wait for that: 1 to 32768.
    ///
    /// # Errors
    /// If those are not terms of such a channel, or the host has no room.
    pub fn join(host: &dyn Gate, terms: &Terms, waiting: u16) -> Result<Self, OpenError> {
        opened(host, |host| {
            let (us, kind) = (host.identity(), Kind::WriteSlotReserve);
            let grants = terms.epochs_for(us, kind, Side::Sender, NEEDS)?.to_vec();
            let [count, len_max, micros] = terms.agreed().numbers;
            let slots = Slots::checked(count, len_max)?;
            let places = Slots::checked(waiting.into(), len_max)?;
            let image = Image::open(host, places.count, places.len_max)?;
            Ok(Self {
                ahead: Ahead::new(grants, NEEDS.len()),
                slots,
                image,
                waiting: VecDeque::new(),
                first: Position::ZERO,
                write: None,
                swap: None,
                taken: VecDeque::new(),
                guesses: (0..slots.words()).map(|word| slots.none(word)).collect(),
                // So that not all begin with the same.
                word: (us.pid.0 % u32::from(slots.words())) as u16,
                not_before: Instant::ZERO,
                wait: LOOK_MIN,
                misses: 0,
                lost: None,
                search_for: Duration::from_micros(micros).saturating_mul(SEARCHES),
                no_slot: None,
                broken: None,
                registered: Registered::default(),
            })
        })
    }

    fn check(&self) -> Result<(), SendError> {
        match self.broken {
            Some(status) => Err(SendError::Broken { handle: SendHandle(self.first), status }),
            None => Ok(()),
        }
    }

    /// The number of the next message, if there is room for it to wait.
    fn next(&self) -> Result<Position, SendError> {
        self.check()?;
        if self.waiting.len() == self.image.places() {
            return Err(SendError::Full);
        }
        Ok(self.first.after(self.waiting.len() as u64))
    }

    /// A message waits.
    fn add(
        &mut self,
        link: &mut Link,
        now: Instant,
        number: Position,
        message: Lying,
    ) -> Result<SendHandle, SendError> {
        self.waiting.push_back(message);
        if let Err(error) = self.issue(link, now) {
            // None of its ops was issued, or else there is no error.
            self.waiting.pop_back();
            return Err(error);
        }
        Ok(SendHandle(number))
    }

    /// Whether a message has no slot, and it is its turn to get one: of those that are not under
    /// way, only the first.
    fn needs_slot(&self) -> bool {
        let begun = usize::from(self.write.is_some());
        self.lost.is_some() || self.taken.is_empty() && self.waiting.len() > begun
    }

    /// An op was refused: there is another epoch, or somebody has forged it. `looked`: it was to
    /// find out.
    fn refuse(&mut self, now: Instant, looked: bool) {
        let epochs = self.ahead.count() - self.ahead.at();
        let lost = self.lost.get_or_insert(Lost { since: now, tries: 0 });
        lost.tries += usize::from(looked);
        // Whoever was stopped for long has not looked for long.
        if now.since(lost.since) > self.search_for && lost.tries > 2 * epochs {
            let status = CallStatus::Failed(OpStatus::RemoteAuthenticationFailure);
            self.no_slot.get_or_insert(status);
        }
        if looked && lost.tries >= epochs {
            self.back_off(now, SEARCH_MAX);
        }
    }

    /// Returns the index of the epoch to try: of one who was refused the next, those after it, and
    /// then that which he had, over and over.
    fn epoch(&self) -> usize {
        let (at, count) = (self.ahead.at(), self.ahead.count());
        match self.lost {
            None => at,
            Some(Lost { tries, .. }) => at + (tries + 1) % (count - at),
        }
    }

    fn back_off(&mut self, now: Instant, longest: Duration) {
        self.not_before = now + self.wait.min(longest);
        self.wait = (self.wait * 2).min(longest);
    }

    /// Takes what became of the WRITE.
    fn end_write(&mut self, now: Instant, status: CallStatus, taken: Taken) {
        self.write = None;
        match status {
            CallStatus::Ok => {
                self.waiting.pop_front();
                self.first = self.first.after(1);
                // If the receiver is quick, the slot is free when it is thought of next.
                let (word, bit) = bit(taken.slot);
                self.guesses[usize::from(word)] &= !bit;
            }
            // It was not applied, and the slot may be ours still.
            CallStatus::Failed(OpStatus::RemoteAuthenticationFailure) => {
                self.taken.push_front(taken);
                self.refuse(now, false);
            }
            CallStatus::Failed(OpStatus::RemoteNotReady) => self.taken.push_front(taken),
            status => self.broken = Some(status),
        }
    }

    /// Takes what became of the COMPARE_SWAP.
    fn end_swap(&mut self, now: Instant, status: CallStatus, found: Option<u64>, swap: Swap) {
        let Swap { word, guess, takes, epoch, .. } = swap;
        self.swap = None;
        match (status, found) {
            (CallStatus::Ok, Some(found)) => {
                // It is the present epoch, and what was taken in others is void. (A slot that was
                // taken tells nothing: that may have been just before its epoch ended.)
                if takes.is_none() && self.lost.take().is_some() {
                    self.ahead.advance(epoch);
                    self.taken.retain(|taken| taken.epoch == epoch);
                    (self.wait, self.not_before) = (LOOK_MIN, now);
                }
                self.guesses[usize::from(word)] = found;
                match takes {
                    Some(slot) if found == guess => {
                        self.guesses[usize::from(word)] |= bit(slot).1;
                        self.taken.push_back(Taken { slot, epoch });
                        (self.wait, self.misses) = (LOOK_MIN, 0);
                    }
                    Some(_) => {
                        self.misses += 1;
                        if self.misses.is_multiple_of(MISSES) {
                            self.back_off(now, LOOK_MAX);
                        }
                    }
                    None if self.free().is_none() => self.back_off(now, LOOK_MAX),
                    None => {}
                }
            }
            (CallStatus::Failed(OpStatus::RemoteAuthenticationFailure), _) => {
                // One that was under way before he began to look is no look.
                let looked = takes.is_none() && self.lost.is_some() && epoch == self.epoch();
                self.refuse(now, looked);
            }
            // The receiver's NIC has had no record to spare for long: nothing was applied.
            (CallStatus::Failed(OpStatus::Nack), _) => self.back_off(now, LOOK_MAX),
            // If it took a slot, the receiver takes that back, as any that is not used.
            (CallStatus::Ok | CallStatus::Unknown, _) => self.back_off(now, LOOK_MAX),
            (status, _) => _ = self.no_slot.get_or_insert(status),
        }
    }

    /// A slot that is thought to be free.
    fn free(&self) -> Option<u16> {
        let words = self.slots.words();
        let words = (0..words).map(|ahead| (self.word + ahead) % words);
        words.into_iter().find_map(|word| {
            let free = !self.guesses[usize::from(word)];
            (free != 0).then(|| word * BITS + free.trailing_zeros() as u16)
        })
    }

    /// Issues what is due: the first message, if it has a slot, and a COMPARE_SWAP, for one slot
    /// ahead at most.
    fn issue(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.check()?;
        if self.write.is_none()
            && self.lost.is_none()
            && let Some(message) = self.waiting.front()
            && let Some(&taken) = self.taken.front()
        {
            let Source { region: local, offset: local_offset, len } = self.image.source(message);
            let remote_offset = u64::from(taken.slot) * self.slots.stride();
            // A taken slot is of the present epoch, as far as is known.
            let (last, grant) = (self.ahead.grant(LAST), self.ahead.grant(OTHERS));
            let piece = Piece { grant, remote_offset, local, local_offset, len: len.into() };
            let immediate = self.first.to_bits();
            match link.submit_with_imm(now, &piece, last, immediate).map_err(refused) {
                Ok(call) => {
                    self.taken.pop_front();
                    self.write = Some((call, taken));
                }
                // Others of the link are over sooner or later.
                Err(SendError::Full) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let may_look = self.swap.is_none() && self.no_slot.is_none() && now >= self.not_before;
        if may_look && self.needs_slot() {
            self.issue_swap(link, now)?;
        }
        Ok(())
    }

    /// Issues a COMPARE_SWAP that takes a slot, or one that changes nothing: to look whether one
    /// is free, or which epoch it is.
    fn issue_swap(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        let takes = if self.lost.is_some() { None } else { self.free() };
        let word = takes.map_or(self.word, |slot| bit(slot).0);
        let guess = self.guesses[usize::from(word)];
        let new = takes.map_or(guess, |slot| guess | bit(slot).1);
        let epoch = self.epoch();
        let remote_offset = self.slots.offset(word);
        let change = Change::CompareSwap { remote_offset, expected: guess, new };
        let call = OpCall::of(self.ahead.grant_in(epoch, TAKE), change);
        match link.submit_op(now, &call).map_err(refused) {
            Ok(call) => {
                self.swap = Some(Swap { call, word, guess, takes, epoch });
                if takes.is_none() {
                    self.word = (self.word + 1) % self.slots.words();
                }
                Ok(())
            }
            // Others of the link are over sooner or later.
            Err(SendError::Full) => {
                self.not_before = now + LOOK_MIN;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

gives_back!(Sender);

impl Outgoing for Sender {
    fn len_max(&self) -> u32 {
        self.slots.len_max
    }

    /// A message that is accepted stays so: nobody tells what is processed.
    fn test(&self, handle: SendHandle) -> SendState {
        let ahead = handle.0.since(self.first);
        if ahead >= self.waiting.len() as u64 {
            return SendState::Accepted;
        }
        match self.broken {
            None => SendState::Sending,
            Some(status) if ahead == 0 => SendState::Failed(status),
            Some(_) => SendState::Failed(CallStatus::PredecessorFailed),
        }
    }

    /// When it looks for a slot again, if it waits for that.
    fn poll_timeout(&self) -> Option<Instant> {
        let can_look = self.broken.or(self.no_slot).is_none() && self.swap.is_none();
        (can_look && self.needs_slot()).then_some(self.not_before)
    }
}

impl sender::Sender for Sender {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        checked_len(message.len(), self.len_max())?;
        let number = self.next()?;
        let lying = self.image.copy(number, message);
        let sent = self.add(link, now, number, lying)?;
        link.count_copied(message.len());
        Ok(sent)
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        if let Some((call, taken)) = self.write
            && let Some(outcome) = link.take(call)
        {
            self.end_write(now, outcome.status, taken);
        }
        if let Some(swap) = self.swap
            && let Some(outcome) = link.take(swap.call)
        {
            self.end_swap(now, outcome.status, outcome.result, swap);
        }
        if self.write.is_none() && (self.taken.is_empty() || self.lost.is_some()) {
            self.broken = self.broken.or(self.no_slot);
        }
        self.issue(link, now)
    }
}

impl SendRegion for Sender {
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let lying = self.image.at(region, &range)?;
        let number = self.next()?;
        self.add(link, now, number, lying)
    }
}
