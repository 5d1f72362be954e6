//! What senders do whose receivers tell a tail: they keep what they have sent until that is
//! processed.

use std::collections::VecDeque;

use rma_core::{
    executor::{CallId, CallStatus},
    portal::CommandPortal,
    region::RegisteredRegion,
};

use crate::{
    link::Link,
    ring::{Position, Room},
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

/// What goes as one: a message, or a run of them.
#[derive(Debug)]
struct Sent {
    /// Where it begins.
    position: Position,
    /// Where what comes next begins.
    end: Position,
    stage: Stage,
    /// What is under way of it.
    call: Option<CallId>,
    /// What is under way of its bytes, if `call` is its bell and comes after them.
    bytes: Option<CallId>,
    /// How it ended.
    status: Option<CallStatus>,
}

impl Sent {
    const fn new((position, end): (Position, Position), stage: Stage, call: CallId) -> Self {
        Self { position, end, stage, call: Some(call), bytes: None, status: None }
    }

    /// Takes what became of it, if that is news.
    fn poll<P: AsMut<CommandPortal>>(&mut self, link: &mut Link<P>) {
        if let Some(outcome) = self.bytes.and_then(|call| link.take(call)) {
            self.bytes = None;
            // The bell only says that it came after what failed.
            self.status = Some(outcome.status).filter(|&status| status != CallStatus::Ok);
        }
        let Some(outcome) = self.call.and_then(|call| link.take(call)) else { return };
        self.call = None;
        match (outcome.status, self.stage) {
            (CallStatus::Ok, Stage::Bytes) => self.stage = Stage::Ready,
            (status, _) => self.status = self.status.or(Some(status)),
        }
    }

    /// Whether all of it is over: nothing of it is under way.
    const fn is_over(&self) -> bool {
        self.status.is_some() && self.call.is_none() && self.bytes.is_none()
    }

    /// Whether all of its bytes have landed, but perhaps the bell; or it has failed.
    fn has_landed(&self) -> bool {
        matches!(self.stage, Stage::Ready | Stage::Bell) || self.status.is_some()
    }
}

/// What was sent and is not processed yet, in the order of positions.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    sent: VecDeque<Sent>,
    /// The first that was not published.
    broken: Option<(Position, CallStatus)>,
}

impl Sending {
    /// What lies from `position` to `end` is published by `call`.
    pub(crate) fn publish(&mut self, extent: (Position, Position), call: CallId) {
        self.sent.push_back(Sent::new(extent, Stage::Whole, call));
    }

    /// What lies from `position` to `end` is under way by `bytes`, and its bell by `bell`, which
    /// comes after those.
    pub(crate) fn publish_after(
        &mut self,
        extent: (Position, Position),
        bytes: CallId,
        bell: CallId,
    ) {
        let sent = Sent::new(extent, Stage::Bell, bell);
        self.sent.push_back(Sent { bytes: Some(bytes), ..sent });
    }

    /// What lies from `position` to `end` is under way by `call`, but for the bell, which is to
    /// follow.
    pub(crate) fn begin(&mut self, extent: (Position, Position), call: CallId) {
        self.sent.push_back(Sent::new(extent, Stage::Bytes, call));
    }

    /// The first whose bell may be issued: its bytes have landed, and those before it.
    pub(crate) fn ready(&self) -> Option<Position> {
        let mut before = true;
        for sent in &self.sent {
            if sent.stage == Stage::Ready && sent.status.is_none() && before {
                return Some(sent.position);
            }
            before = sent.has_landed();
        }
        None
    }

    /// The bell of what begins at `position` is under way.
    pub(crate) fn ring(&mut self, position: Position, call: CallId) {
        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.position == position) {
            (sent.stage, sent.call) = (Stage::Bell, Some(call));
        }
    }

    /// How many are not over.
    pub(crate) fn under_way(&self) -> usize {
        self.sent.iter().filter(|sent| !sent.is_over()).count()
    }

    /// Whether more may be sent.
    pub(crate) fn check(&self) -> Result<(), SendError> {
        match self.broken {
            Some((position, status)) => {
                Err(SendError::Broken { handle: SendHandle(position), status })
            }
            None => Ok(()),
        }
    }

    /// Takes what became of calls, and the tail that stands in `word`. An error if that cannot be,
    /// or one was not published.
    pub(crate) fn poll<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        word: &RegisteredRegion,
        room: &mut Room,
    ) -> Result<(), SendError> {
        self.sent.iter_mut().for_each(|sent| sent.poll(link));
        // A word of this host, which the receiver writes: not believed, but by `told`.
        let told = Position::from_bits(word.load(0).map_or(0, u64::from_le));
        // Bytes that are under way must not change, whatever the receiver has seen of them.
        let changeable = self.sent.iter().find(|sent| !sent.is_over());
        let changeable = changeable.map_or(room.head(), |sent| sent.position);
        let (told, behind) = (room.newest(told)?, room.tail());
        let tail = if told.since(behind) < changeable.since(behind) { told } else { changeable };
        room.told(tail)?;
        while let Some(sent) = self.sent.front()
            && sent.end.since(behind) <= tail.since(behind)
            && sent.is_over()
        {
            self.sent.pop_front();
        }
        let failed = |sent: &Sent| match sent.status {
            Some(CallStatus::Ok) | None => None,
            Some(status) => Some((sent.position, status)),
        };
        // One that nobody knew of is known to have come once it is processed.
        self.broken = self.sent.iter().find_map(failed);
        self.check()
    }

    /// What became of the message at `position`.
    pub(crate) fn test(&self, position: Position, room: &Room) -> SendState {
        let since = |at: Position| at.since(room.tail());
        if since(position) >= room.head().since(room.tail()) {
            return SendState::Processed;
        }
        // The tail may be within what is sent, so where that begins says nothing; and behind all of
        // it is what only gathers.
        let found = self.sent.iter().find(|sent| since(position) < since(sent.end));
        match found.and_then(|sent| sent.status) {
            Some(CallStatus::Ok) => SendState::Accepted,
            Some(status) => SendState::Failed(status),
            None => SendState::Sending,
        }
    }
}
