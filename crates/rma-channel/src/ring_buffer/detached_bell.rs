//! Ring buffer, detached bell (§4.3): messages go by plain WRITEs, in parallel and in any order,
//! and then the head, in a word of the receiver's elsewhere.
//!
//! The paper needs messages in order, so that the bell arrives after what it tells of. Ops here
//! have no order, so the sender waits until the bytes are there, a round trip, and then sets the
//! bell: one ordered WRITE for all that has landed, whatever has gathered by then, and one at a
//! time. So a message alone takes two ops, and many take little more than one each.
//!
//! What is sent where it lies needs a word before it, for its length.

use rma_core::{
    executor::{Call, CallError, CallId, OpCall, Piece},
    gate::Gate,
    grant::Grant,
    op::OpType,
    portal::{Change, Source},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{
    RingConfig, RingReceiver, SenderParts, circular, open_receiver, open_sender,
    sender::{Carries, Each, RingSender},
};
use crate::{
    close::opened,
    flow,
    link::Link,
    ring::{
        Position, WORD,
        detached::{Reader, first_word, footprint},
    },
    sender::{SendError, refused},
    sending::Sending,
    table::Kind,
    terms::{Half, OpenError},
};

/// The receiver's end.
pub type Receiver = RingReceiver<Reader>;

impl Receiver {
    /// Opens a receiver's end: a ring that is empty, and its bell.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let RingConfig { peer, len, len_max, .. } = config;
            config.check(footprint(len_max))?;
            let ring = circular(host, len, Permissions::WRITE)?;
            let bell = flow::region(host, Region::new(WORD as usize)?, Permissions::WRITE)?;
            let grant = |region| host.grant(region, peer, OpType::Write);
            let grants = [grant(&ring), grant(&bell)].into_iter().collect::<Result<_, _>>();
            let reader = Reader::new(ring, bell, len, len_max);
            let grants = grants.map_err(OpenError::Host)?;
            open_receiver(host, config, Kind::RingDetached, reader, grants)
        })
    }
}

/// The sender's end.
pub type Sender = RingSender<Each<InTwo>>;

//= channels#4.3-detached
/// Messages that go by plain WRITEs, and their bell by another.
#[derive(Debug)]
pub struct InTwo {
    /// For WRITE of the bell.
    bell: Grant,
    /// A word of this host, which the bell is set from.
    word: RegisteredRegion,
    /// The bell that is under way, and the head that it tells.
    ringing: Option<(CallId, Position)>,
}

impl Sender {
    /// Opens a sender's end: a ring that is empty.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            config.check(footprint(config.len_max))?;
            let word = flow::region(host, Region::new(WORD as usize)?, Permissions::NONE)?;
            let kind = Kind::RingDetached;
            open_sender(host, config, kind, &[OpType::Write; 2], move |parts, grants| {
                Each::new(parts, InTwo { bell: grants[0], word, ringing: None })
            })
        })
    }
}

impl Carries for InTwo {
    /// A word for the length.
    const BESIDE: (u64, u64) = (WORD, 0);
    const FOOTPRINT: fn(u32) -> u64 = footprint;
    const IS_WHOLE: bool = false;

    fn carry(
        &self,
        parts: &SenderParts,
        link: &mut Link,
        now: Instant,
        position: Position,
        Source { region: local, offset, len }: Source<'_>,
    ) -> Result<CallId, CallError> {
        let local_offset = offset - WORD;
        let _ = local.store(local_offset, first_word(parts.len, position, len));
        let (grant, remote_offset) = (&parts.grant, parts.len.offset(position));
        let len = WORD + u64::from(len);
        link.submit(now, &Call::of(&[Piece { grant, remote_offset, local, local_offset, len }]))
    }

    fn rung(&mut self, link: &mut Link, sending: &mut Sending) {
        if let Some((call, head)) = self.ringing
            && let Some(outcome) = link.take(call)
        {
            self.ringing = None;
            sending.rung(head, outcome.status);
        }
    }

    /// Sets the bell to what has landed, unless one is under way.
    fn ring(&mut self, link: &mut Link, now: Instant, sending: &Sending) -> Result<(), SendError> {
        let Some(head) = sending.landed().filter(|_| self.ringing.is_none()) else {
            return Ok(());
        };
        // Only this end stores there, and no bell is under way.
        let _ = self.word.store(0, head.to_bits().to_le());
        let source = Source { region: &self.word, offset: 0, len: WORD as u32 };
        let change = Change::OrderedWrite { remote_offset: 0, source };
        match link.submit_op(now, &OpCall::of(&self.bell, change)).map_err(refused) {
            Ok(call) => self.ringing = Some((call, head)),
            // Others of the link are over sooner or later.
            Err(SendError::Full) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
