//! Write slot, detached bell (§4.2): a WRITE of a message, and after it one of its bell, which lies
//! elsewhere: so memory of slots is messages and nothing else.
//!
//! Ops have no order: the bell's is held until the message has landed, which is a round trip more
//! than other kinds take. Of slots the others are the better choice, unless bells must be together
//! (one word for each slot, eight in a line), or messages to be written by ops without a record.
//!
//! The bell may be an event instead of a word ([`Bell::Event`]), a NOTIFY: then who waits for
//! messages is woken.

use std::sync::Arc;

use rma_core::{
    executor::{Call, CallId, OpCall, Piece},
    gate::Gate,
    grant::Grant,
    op::OpType,
    portal::{Change, Source},
    receive_queue::Event,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{
    BELL, SlotConfig, bell,
    polled::{Layout, Lies, Polled},
    rung,
};
use crate::{
    close::opened,
    flow,
    link::Link,
    numbered::{Carries, EventReceiver, NumberedSender, Opening, Parcel, Places, Tells},
    ring::{Malformed, Position, Record},
    sender::{SendError, refused},
    table::Kind,
    terms::{Half, OpenError},
};

/// The form of a bell. Both ends have to agree on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bell {
    /// A word for each slot, which the receiver polls: [`Receiver`].
    #[default]
    Word,
    /// An event, which wakes the receiver: [`WakingReceiver`].
    Event,
}

/// The sender's end.
pub type Sender = NumberedSender<InTwo>;

/// The receiver's end, with bells that are polled.
pub type Receiver = Polled<Detached>;

/// The receiver's end, with bells that wake.
pub type WakingReceiver = EventReceiver<Bells>;

fn opening(config: SlotConfig, by: Bell) -> Result<Opening, OpenError> {
    config.opening(Kind::WriteSlotDetached, 0, by as u64)
}

/// The memory of bells: a word for each slot.
fn bells(
    host: &dyn Gate,
    places: Places,
    permissions: Permissions,
) -> Result<RegisteredRegion, OpenError> {
    let len = u64::from(places.count) * BELL;
    flow::region(host, Region::new(len as usize)?, permissions)
}

impl Sender {
    /// Opens a sender's end.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: SlotConfig, by: Bell) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let opening = opening(config, by)?;
            let places = opening.places;
            let bells = bells(host, places, Permissions::NONE)?;
            let needs: &'static [OpType] = match by {
                Bell::Word => &[OpType::Write, OpType::Write],
                Bell::Event => &[OpType::Write, OpType::Notify],
            };
            opening.sender(host, needs, move |grants| InTwo {
                message: grants[0],
                bell: grants[1],
                by,
                places,
                bells,
            })
        })
    }
}

/// How much memory the slots of a receiver's end take, in bytes; bells are elsewhere.
#[must_use]
pub const fn memory_len(config: &SlotConfig) -> u64 {
    config.slots as u64 * config.stride(0)
}

impl Receiver {
    /// Opens a receiver's end: slots that are empty, in memory of their own.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: SlotConfig) -> Result<Half<Self>, OpenError> {
        let memory = Region::new(memory_len(&config) as usize)?;
        Self::open_in(host, config, Arc::new(memory))
    }

    /// The same in the application's memory, from its beginning on. Other ends may not use it.
    ///
    /// # Errors
    /// As [`Receiver::open`], and if the memory is shorter than [`memory_len`].
    pub fn open_in(
        host: &dyn Gate,
        config: SlotConfig,
        memory: Arc<Region>,
    ) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let opening = opening(config, Bell::Word)?;
            let memory = opening.register(host, memory, None)?;
            let bells = bells(host, opening.places, Permissions::WRITE)?;
            let grants = vec![
                opening.grant(host, &memory, OpType::Write)?,
                opening.grant(host, &bells, OpType::Write)?,
            ];
            opening.receiver(host, grants, move |teller| {
                Self::new(memory, bells, opening.places, teller)
            })
        })
    }
}

impl WakingReceiver {
    /// Opens a receiver's end: slots that are empty, in memory of their own.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: SlotConfig) -> Result<Half<Self>, OpenError> {
        let memory = Region::new(memory_len(&config) as usize)?;
        Self::open_in(host, config, Arc::new(memory))
    }

    /// The same in the application's memory, from its beginning on. Other ends may not use it.
    ///
    /// # Errors
    /// As [`WakingReceiver::open`], and if the memory is shorter than [`memory_len`].
    pub fn open_in(
        host: &dyn Gate,
        config: SlotConfig,
        memory: Arc<Region>,
    ) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let opening = opening(config, Bell::Event)?;
            let queue = opening.queue(host, 0, Permissions::NOTIFY)?;
            let memory = opening.register(host, memory, None)?;
            let grants = vec![
                opening.grant(host, &memory, OpType::Write)?,
                opening.grant(host, queue.region(), OpType::Notify)?,
            ];
            let places = opening.places;
            opening.receiver(host, grants, move |teller| {
                Self::new(Bells(places), queue, memory, places, teller)
            })
        })
    }
}

/// A message goes by itself, and its bell after it.
#[derive(Clone, Debug)]
pub struct InTwo {
    message: Grant,
    bell: Grant,
    by: Bell,
    places: Places,
    /// By slot: the bell of its message, which words are written from.
    bells: RegisteredRegion,
}

impl Carries for InTwo {
    fn carry(
        &self,
        link: &mut Link,
        now: Instant,
        &Parcel { number, len, region, offset }: &Parcel<'_>,
    ) -> Result<CallId, SendError> {
        // The message before it in this slot is processed, so its bell has been read.
        let _ = self.bells.store(self.places.index(number) * BELL, bell(number, len).to_le());
        let remote_offset = self.places.offset(number);
        let (grant, local, local_offset) = (&self.message, region, offset);
        let piece = Piece { grant, remote_offset, local, local_offset, len: len.into() };
        link.submit(now, &Call::of(&[piece])).map_err(refused)
    }

    //= channels#4.2-detached
    fn ring(
        &self,
        link: &mut Link,
        now: Instant,
        number: Position,
        after: Option<CallId>,
    ) -> Option<Result<CallId, SendError>> {
        let offset = self.places.index(number) * BELL;
        let change = match self.by {
            Bell::Word => {
                let source = Source { region: &self.bells, offset, len: BELL as u32 };
                Change::OrderedWrite { remote_offset: offset, source }
            }
            Bell::Event => {
                Change::Notify { immediate: self.bells.load(offset).map_or(0, u64::from_le) }
            }
        };
        let call = OpCall::of(&self.bell, change).with(|it| it.after = [after, None]);
        Some(link.submit_op(now, &call).map_err(refused))
    }
}

/// A bell lies apart from the slots, and a message at the beginning of its slot.
#[derive(Debug)]
pub struct Detached;

impl Lies for Detached {
    fn bell(&Layout(places): &Layout, number: Position) -> u64 {
        places.index(number) * BELL
    }

    fn message(&Layout(places): &Layout, number: Position, _: u32) -> u64 {
        places.offset(number)
    }
}

/// The immediate is a bell.
#[derive(Clone, Copy, Debug)]
pub struct Bells(Places);

impl Tells for Bells {
    const KEEPS_RECEIVE: bool = false;

    fn message(
        &self,
        event: &Event,
        next: Position,
        _: &RegisteredRegion,
    ) -> Result<Record, Malformed> {
        let (position, len) = rung(event.immediate, next, self.0.len_max)?;
        Ok(Record { position, offset: self.0.offset(position), len })
    }
}
