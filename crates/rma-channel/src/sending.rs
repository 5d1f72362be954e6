//! Senders whose receivers report a tail: they keep what they have sent until that is processed.

use std::{collections::VecDeque, ops::Range};

use rma_core::{
    executor::{CallId, CallStatus},
    region::RegisteredRegion,
};

use crate::{
    link::Link,
    ring::{Malformed, Position, Room},
    sender::{SendError, SendHandle, SendState},
};

/// How far something that is sent has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its bytes are under way, but for the bell.
    Bytes,
    /// They have landed, and the bell has not been issued.
    Ready,
    /// Its bell is under way, or over.
    Bell,
    /// All of it is under way in one op, or over.
    Whole,
}

/// A unit of sending: a message, or a run of them.
#[derive(Debug)]
struct Sent {
    /// The position at which it begins.
    position: Position,
    /// The position at which the next one begins.
    end: Position,
    stage: Stage,
    /// The call under way for it.
    call: Option<CallId>,
    /// The call under way for its bytes, if `call` is its bell and comes after them.
    bytes: Option<CallId>,
    /// The status that it ended with.
    status: Option<CallStatus>,
}

impl Sent {
    /// A call of it has ended so.
    fn ended(&mut self, call: CallId, status: CallStatus) {
        if self.bytes == Some(call) {
            self.bytes = None;
            if status != CallStatus::Ok {
                // The bell only says that it came after what failed.
                self.status = Some(status);
            }
            return;
        }
        self.call = None;
        match (status, self.stage) {
            (CallStatus::Ok, Stage::Bytes) => self.stage = Stage::Ready,
            (status, _) => self.status = self.status.or(Some(status)),
        }
    }

    /// Whether all of it is over: nothing of it is under way.
    const fn is_over(&self) -> bool {
        self.status.is_some() && self.call.is_none() && self.bytes.is_none()
    }

    /// Whether all of its bytes have landed, but perhaps the bell; or it has failed.
    const fn has_landed(&self) -> bool {
        matches!(self.stage, Stage::Ready | Stage::Bell) || self.status.is_some()
    }

    /// Returns the status of its failure, if it was not published, or nobody knows.
    const fn failed(&self) -> Option<CallStatus> {
        match self.status {
            Some(CallStatus::Ok) | None => None,
            failed => failed,
        }
    }
}

/// The messages that were sent and are not processed yet, in the order of positions.
///
/// Each outcome costs the same, however much is under way: a call's number leads to what it is of.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    sent: VecDeque<Sent>,
    /// How many were taken off the front of `sent` since the beginning.
    gone: u64,
    /// By [`CallId::index`]: which of those ever sent it is of, if `Sent::call` says so too.
    of_call: Vec<u64>,
    /// How many are not over.
    under_way: usize,
    /// How many were not published, as far as is known.
    failed: usize,
    /// All before this one of those ever sent are over.
    first_open: u64,
    /// A tail was told that cannot be.
    malformed: Option<Malformed>,
    /// A tail that was told by other means than the word.
    heard: Position,
}

impl Sending {
    /// Notes that `call` publishes the bytes from `position` to `end`.
    pub(crate) fn publish(&mut self, extent: Range<Position>, call: CallId) {
        self.push(extent, Stage::Whole, call, None);
    }

    /// Notes that `bytes` carries what lies from `position` to `end`, and that `bell` carries its
    /// bell, after those.
    pub(crate) fn publish_after(&mut self, extent: Range<Position>, bytes: CallId, bell: CallId) {
        self.push(extent, Stage::Bell, bell, Some(bytes));
    }

    /// Notes that `call` carries the bytes from `position` to `end` without the bell, which
    /// follows.
    pub(crate) fn begin(&mut self, extent: Range<Position>, call: CallId) {
        self.push(extent, Stage::Bytes, call, None);
    }

    fn push(&mut self, extent: Range<Position>, stage: Stage, call: CallId, bytes: Option<CallId>) {
        let number = self.gone + self.sent.len() as u64;
        for call in bytes.into_iter().chain([call]) {
            self.name(call, number);
        }
        let Range { start: position, end } = extent;
        self.sent.push_back(Sent { position, end, stage, call: Some(call), bytes, status: None });
        self.under_way += 1;
    }

    fn name(&mut self, call: CallId, number: u64) {
        if call.index() >= self.of_call.len() {
            self.of_call.resize(call.index() + 1, 0);
        }
        self.of_call[call.index()] = number;
    }

    /// Returns the index in `sent` of the unit that `call` is of.
    fn index_of(&self, call: CallId) -> Option<usize> {
        let number = *self.of_call.get(call.index())?;
        let index = usize::try_from(number.checked_sub(self.gone)?).ok()?;
        let sent = self.sent.get(index)?;
        (sent.call == Some(call) || sent.bytes == Some(call)).then_some(index)
    }

    /// The first whose bell may be issued: its bytes have landed, and those before it.
    pub(crate) fn ready(&self) -> Option<Position> {
        let open = self.first_open.saturating_sub(self.gone) as usize;
        let mut before = true;
        for sent in self.sent.iter().skip(open) {
            if sent.stage == Stage::Ready && sent.status.is_none() && before {
                return Some(sent.position);
            }
            before = sent.has_landed();
        }
        None
    }

    /// The bell of what begins at `position` is under way.
    pub(crate) fn ring(&mut self, position: Position, call: CallId) {
        let index = self.sent.iter().position(|sent| sent.position == position);
        if let Some(index) = index {
            let sent = &mut self.sent[index];
            (sent.stage, sent.call) = (Stage::Bell, Some(call));
            self.name(call, self.gone + index as u64);
        }
    }

    /// Up to where all has landed and waits for a bell that covers it. `None` if nothing does, or
    /// something before it has failed.
    pub(crate) fn landed(&self) -> Option<Position> {
        // A failed unit is over, and must not be passed.
        let over = self.first_open.saturating_sub(self.gone) as usize;
        let open = if self.failed == 0 { over } else { 0 };
        let is_rung = |sent: &&Sent| sent.status == Some(CallStatus::Ok);
        let waiting = self.sent.iter().skip(open).skip_while(is_rung);
        let is_ready = |sent: &&Sent| sent.stage == Stage::Ready && sent.status.is_none();
        waiting.take_while(is_ready).last().map(|sent| sent.end)
    }

    /// The bell that covers all that has landed up to `end` is over.
    pub(crate) fn rung(&mut self, end: Position, status: CallStatus) {
        let open = self.first_open.saturating_sub(self.gone) as usize;
        let waiting = self.sent.iter_mut().skip(open).filter(|sent| sent.status.is_none());
        for sent in waiting {
            (sent.stage, sent.status) = (Stage::Bell, Some(status));
            self.under_way -= 1;
            self.failed += usize::from(status != CallStatus::Ok);
            if sent.end == end {
                break;
            }
        }
    }

    /// The receiver is said to have processed what was sent up to `tail`. It is believed no more
    /// than its word.
    pub(crate) const fn hear(&mut self, tail: Position) {
        self.heard = tail;
    }

    /// How many are not processed yet, or not over.
    pub(crate) fn count(&self) -> usize {
        self.sent.len()
    }

    /// How many are not over.
    pub(crate) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether more may be sent.
    pub(crate) fn check(&self) -> Result<(), SendError> {
        if let Some(malformed) = self.malformed {
            return Err(malformed.into());
        }
        if self.failed == 0 {
            return Ok(());
        }
        let failed = self.sent.iter().find_map(|sent| Some((sent.position, sent.failed()?)));
        failed.map_or(Ok(()), |(position, status)| {
            Err(SendError::Broken { handle: SendHandle(position), status })
        })
    }

    /// Takes what became of calls, and the tail that stands in `word`. An error if that cannot be,
    /// or one was not published.
    pub(crate) fn poll(
        &mut self,
        link: &mut Link,
        word: &RegisteredRegion,
        room: &mut Room,
    ) -> Result<(), SendError> {
        while let Some(outcome) = link.take_of(|call| self.index_of(call).is_some()) {
            let Some(index) = self.index_of(outcome.call) else { break };
            let sent = &mut self.sent[index];
            let had_failed = sent.failed().is_some();
            sent.ended(outcome.call, outcome.status);
            self.under_way -= usize::from(sent.is_over());
            self.failed += usize::from(sent.failed().is_some() && !had_failed);
        }
        let open = self.first_open.saturating_sub(self.gone) as usize;
        let over = self.sent.iter().skip(open).take_while(|sent| sent.is_over()).count();
        self.first_open = self.gone + (open + over) as u64;
        // A word of this host, which the receiver writes: not believed, but by `told`.
        let told = Position::from_bits(word.load(0).map_or(0, u64::from_le));
        // Bytes that are under way must not change, whatever the receiver has seen of them.
        let changeable = self.sent.get(open + over).map_or(room.head(), |sent| sent.position);
        if self.malformed.is_none() {
            self.malformed = room.newest(told).and(room.newest(self.heard)).err();
        }
        if let Some(malformed) = self.malformed {
            return Err(malformed.into());
        }
        let (told, heard, behind) = (room.newest(told)?, room.newest(self.heard)?, room.tail());
        let told = if told.since(behind) < heard.since(behind) { heard } else { told };
        let tail = if told.since(behind) < changeable.since(behind) { told } else { changeable };
        room.told(tail)?;
        while let Some(sent) = self.sent.front()
            && sent.end.since(behind) <= tail.since(behind)
            && sent.is_over()
        {
            // One that nobody knew of is known to have come once it is processed.
            self.failed -= usize::from(sent.failed().is_some());
            self.gone += 1;
            self.sent.pop_front();
        }
        self.check()
    }

    /// Returns the state of the message at `position`.
    pub(crate) fn test(&self, position: Position, room: &Room) -> SendState {
        let since = |at: Position| at.since(room.tail());
        if since(position) >= room.head().since(room.tail()) {
            return SendState::Processed;
        }
        // The tail may be within what is sent, so where that begins says nothing; and behind all of
        // it is what only gathers.
        let found = self.sent.partition_point(|sent| since(sent.end) <= since(position));
        match self.sent.get(found).and_then(|sent| sent.status) {
            Some(CallStatus::Ok) => SendState::Accepted,
            Some(status) => SendState::Failed(status),
            None => SendState::Sending,
        }
    }
}
