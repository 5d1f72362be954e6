//! Duplex channels: two channels in opposite directions between two hosts, of which each carries
//! the other's acknowledgements (§3: who asks and is answered needs two).
//!
//! A message has a word before it, which says up to where its sender has processed what came the
//! other way. So who answers what it is asked tells no tail by itself: a request and its answer are
//! two ops, where tails that are told by themselves make four of them.
//!
//! ```text
//! a message of one channel:   | tail of the other, 8 bytes | the message |
//! ```
//!
//! [`duplex`] makes of the two ends that a host has, a sender and a receiver, two that ride on each
//! other. The host at the other end has to do the same. Messages are 8 bytes shorter than those
//! that the channels were opened for. What is sent from where it lies needs room for a word more
//! before it ([`Outgoing::beside`]).
//!
//! # When nothing rides
//!
//! A receiver whose tail has not been sent along is silent for no longer than any: it tells an
//! eighth at once, and the rest after a lull. One that was sent along counts as told as soon as the
//! message that carries it is processed at the other end, and until then if that takes no longer
//! than a millisecond: or else it is told by itself after all, as nobody may be taking messages
//! there. So two hosts that both wait for room go on, as long as each polls its receiver meanwhile:
//! who tends nothing but its sender tells no tail.
//!
//! What a word says is believed no more than a tail that is told by itself: one that cannot be is
//! [`Malformed`], and one that is older than what is known changes nothing.

use core::ops::Range;
use std::{collections::VecDeque, sync::Arc};

use rma_core::{receive_queue::ReceiveQueue, region::RegisteredRegion, time::Instant};

use crate::{
    close::{Close, Registered},
    flow::Rides,
    link::Link,
    receiver::{Blocking, Claim, Claims, ReceiveError, Receiver},
    ring::{Malformed, Position, Record, WORD},
    sender::{
        Outgoing, SendError, SendHandle, SendRegion, SendState, Sender, checked_len, checked_place,
    },
};

/// How many bytes of a channel's messages are the word that rides.
const RIDE: u32 = WORD as u32;

/// A sender that can be told a tail by other means than its word.
pub(crate) trait Hears: Outgoing {
    /// The receiver is said to have processed what was sent up to `tail`.
    fn hear(&mut self, tail: Position);
}

/// A receiver whose tail can be told by other means than its own.
pub(crate) trait Tails: Claims {
    /// Up to where it has processed what came.
    fn tail(&self) -> Position;

    /// Its tail rides from now on.
    fn ride(&mut self, rides: Arc<Rides>);
}

/// The ends of two channels that a host has: the sender of one and the receiver of the other, which
/// ride on each other from now on, as those at the other end do. Nothing has been sent.
///
/// ```
/// use rma_channel::{
///     Claims, DuplexReceiver, DuplexSender, Link, Receiver as _, Sender as _, duplex,
///     ring_buffer::immediate::{Receiver, Sender},
/// };
/// use rma_core::time::Instant;
///
/// type Ends = (DuplexSender<Sender>, DuplexReceiver<Receiver>);
///
/// /// What a host has that answers; the one that asks makes its own two ends the same way.
/// fn ends(answers: Sender, questions: Receiver) -> Ends {
///     duplex(answers, questions)
/// }
///
/// /// Answers a question, if one has come. To be called again and again.
/// fn tend(
///     (answers, questions): &mut Ends,
///     link: &mut Link,
///     now: Instant,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     link.poll(now);
///     answers.poll(link, now)?;
///     let question = questions.receive()?.map(|message| message.to_vec()); // given back
///     if let Some(question) = question {
///         // This says that the question is processed, too.
///         answers.send(link, now, &question.to_ascii_uppercase())?;
///     }
///     questions.poll(link, now)?;
///     link.poll(now);
///     Ok(())
/// }
/// ```
#[must_use]
#[expect(private_bounds, reason = "all kinds whose senders are told a tail are in this crate")]
pub fn duplex<S: Hears, R: Tails>(
    sender: S,
    mut receiver: R,
) -> (DuplexSender<S>, DuplexReceiver<R>) {
    let rides = Arc::<Rides>::default();
    receiver.ride(Arc::clone(&rides));
    let (riding, whole) = (VecDeque::new(), Vec::new());
    let sender = DuplexSender { sender, rides: Arc::clone(&rides), riding, whole };
    (sender, DuplexReceiver { receiver, rides, malformed: None })
}

/// A sender's end, whose messages carry tails.
#[derive(Debug)]
pub struct DuplexSender<S> {
    sender: S,
    rides: Arc<Rides>,
    /// The messages that carry a newer tail than all before them, and that is not known to be
    /// processed.
    riding: VecDeque<(SendHandle, Position)>,
    /// A message and what is before it.
    whole: Vec<u8>,
}

impl<S: Outgoing> DuplexSender<S> {
    /// A message carries `tail`.
    fn sent(&mut self, handle: SendHandle, tail: Position) {
        if self.rides.ridden() != tail {
            self.rides.rode(tail);
            self.riding.push_back((handle, tail));
        }
    }

    /// Sees which tails have come to the other end.
    fn confirm(&mut self) {
        while let Some(&(handle, tail)) = self.riding.front()
            && self.sender.test(handle) == SendState::Processed
        {
            self.rides.confirm(tail);
            self.riding.pop_front();
        }
    }
}

impl<S: Close> Close for DuplexSender<S> {
    fn registered(&mut self) -> &mut Registered {
        self.sender.registered()
    }
}

impl<S: Outgoing> Outgoing for DuplexSender<S> {
    fn len_max(&self) -> u32 {
        self.sender.len_max().saturating_sub(RIDE)
    }

    fn beside(&self) -> (u64, u64) {
        let (before, behind) = self.sender.beside();
        (before + WORD, behind)
    }

    fn test(&self, handle: SendHandle) -> SendState {
        self.sender.test(handle)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }
}

impl<S: Hears + Sender> Sender for DuplexSender<S> {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        checked_len(message.len(), self.len_max())?;
        //= channels#6-acknowledgements-ride
        let tail = self.rides.tail();
        self.whole.clear();
        self.whole.extend(tail.to_bits().to_le_bytes());
        self.whole.extend(message);
        let handle = self.sender.send(link, now, &self.whole)?;
        self.sent(handle, tail);
        Ok(handle)
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.sender.hear(self.rides.heard());
        let polled = self.sender.poll(link, now);
        self.confirm();
        polled
    }
}

impl<S: Hears + SendRegion> SendRegion for DuplexSender<S> {
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let (before, behind) = self.beside();
        checked_place(region, &range, before, behind, self.len_max())?;
        let (tail, start) = (self.rides.tail(), range.start - WORD);
        // The place was checked.
        let _ = region.store(start, tail.to_bits().to_le());
        let handle = self.sender.send_region(link, now, region, start..range.end)?;
        self.sent(handle, tail);
        Ok(handle)
    }
}

/// A receiver's end, of whose messages each tells the sender a tail.
#[derive(Debug)]
pub struct DuplexReceiver<R> {
    receiver: R,
    rides: Arc<Rides>,
    /// The malformed input that came.
    malformed: Option<Malformed>,
}

/// A claim as it is without what rides, or with it again.
const fn moved(claim: Claim, by: i32) -> Claim {
    let Claim { record: Record { position, offset, len }, from } = claim;
    let offset = offset.wrapping_add_signed(by as i64);
    Claim { record: Record { position, offset, len: len.wrapping_add_signed(-by) }, from }
}

impl<R: Close> Close for DuplexReceiver<R> {
    fn registered(&mut self) -> &mut Registered {
        self.receiver.registered()
    }
}

impl<R: Tails> Claims for DuplexReceiver<R> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        if let Some(malformed) = self.malformed {
            return Err(malformed.into());
        }
        let Some(claim) = self.receiver.claim()? else { return Ok(None) };
        if claim.record.len <= RIDE {
            let malformed = Malformed::Ride { len: claim.record.len };
            self.malformed = Some(malformed);
            return Err(malformed.into());
        }
        let mut word = [0; RIDE as usize];
        self.receiver.read(&claim, 0, &mut word);
        self.rides.hear(Position::from_bits(u64::from_le_bytes(word)));
        Ok(Some(moved(claim, RIDE as i32)))
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        self.receiver.read(claim, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        self.receiver.free(moved(claim, -(RIDE as i32)));
        self.rides.processed(self.receiver.tail());
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.receiver.poll_timeout()
    }
}

impl<R: Tails + Receiver> Receiver for DuplexReceiver<R> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.receiver.poll(link, now)
    }
}

impl<R: Tails + Blocking> Blocking for DuplexReceiver<R> {
    fn queue(&self) -> &ReceiveQueue {
        self.receiver.queue()
    }
}
