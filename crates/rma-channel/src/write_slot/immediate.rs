//! Write slot, immediate (§4.2, "IMM-based"): one WRITE_WITH_IMM of a message, whose event tells
//! where it lies and how long it is. Its immediate is the message's number.
//!
//! Receives have no buffers, and are posted again as soon as their events are taken: a message that
//! has come out of order waits in its slot.

use std::sync::Arc;

use rma_core::{
    executor::{CallId, Piece},
    gate::Gate,
    grant::Grant,
    op::OpType,
    receive_queue::Event,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::SlotConfig;
use crate::{
    close::opened,
    link::Link,
    numbered::{Carries, EventReceiver, NumberedSender, Opening, Parcel, Places, Tells},
    ring::{Malformed, Position, Record},
    sender::{SendError, refused},
    table::Kind,
    terms::{Half, OpenError},
};

/// The sender's end.
pub type Sender = NumberedSender<Immediates>;

/// The receiver's end.
pub type Receiver = EventReceiver<Slots>;

fn opening(config: SlotConfig) -> Result<Opening, OpenError> {
    config.opening(Kind::WriteSlotImmediate, 0, 0)
}

impl Sender {
    /// Opens a sender's end.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: SlotConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let opening = opening(config)?;
            let places = opening.places;
            let needs = &[OpType::WriteWithImm, OpType::Write];
            opening.sender(host, needs, move |grants| Immediates {
                last: grants[0],
                others: grants[1],
                places,
            })
        })
    }
}

impl Receiver {
    /// How much memory the slots take, in bytes.
    #[must_use]
    pub const fn memory_len(config: &SlotConfig) -> u64 {
        config.slots as u64 * config.stride(0)
    }

    /// Opens a receiver's end: slots that are empty, in memory of their own.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: SlotConfig) -> Result<Half<Self>, OpenError> {
        let memory = Region::new(Self::memory_len(&config) as usize)?;
        Self::open_in(host, config, Arc::new(memory))
    }

    /// The same in the application's memory, from its beginning on. Other ends may not use it.
    ///
    /// # Errors
    /// As [`Receiver::open`], and if the memory is shorter than [`Receiver::memory_len`].
    pub fn open_in(
        host: &dyn Gate,
        config: SlotConfig,
        memory: Arc<Region>,
    ) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let opening = opening(config)?;
            let queue = opening.queue(host, 0, Permissions::NONE)?;
            let memory = opening.register(host, memory, Some(&queue))?;
            let grant = |op_type| opening.grant(host, &memory, op_type);
            let grants: Result<_, _> =
                [OpType::WriteWithImm, OpType::Write].map(grant).into_iter().collect();
            let slots = Slots(opening.places);
            opening.receiver(host, grants?, move |teller| {
                Self::new(slots, queue, memory, slots.0, teller)
            })
        })
    }
}

/// A message's last op is a WRITE_WITH_IMM; those before it, if one cannot carry it, are WRITEs.
#[derive(Clone, Copy, Debug)]
pub struct Immediates {
    last: Grant,
    others: Grant,
    places: Places,
}

impl Carries for Immediates {
    //= channels#4.2-immediate
    fn carry(
        &self,
        link: &mut Link,
        now: Instant,
        &Parcel { number, len, region, offset }: &Parcel<'_>,
    ) -> Result<CallId, SendError> {
        let Self { last, others: grant, places } = self;
        let (remote_offset, len) = (places.offset(number), len.into());
        let piece = Piece { grant, remote_offset, local: region, local_offset: offset, len };
        link.submit_with_imm(now, &piece, last, number.to_bits()).map_err(refused)
    }
}

/// A message lies in its slot, from the beginning to where the event's bytes end. (The event is of
/// the last of several ops.)
#[derive(Clone, Copy, Debug)]
pub struct Slots(Places);

impl Tells for Slots {
    const KEEPS_RECEIVE: bool = false;

    fn message(
        &self,
        event: &Event,
        _: Position,
        region: &RegisteredRegion,
    ) -> Result<Record, Malformed> {
        let &Event { immediate, region_offset, len, .. } = event;
        let position = Position::from_bits(immediate);
        let (offset, end) = (self.0.offset(position), region_offset.saturating_add(len.into()));
        let whole = end.saturating_sub(offset);
        let is_message = event.region == region.id()
            && region_offset >= offset
            && (1..=u64::from(self.0.len_max)).contains(&whole);
        if !is_message {
            return Err(Malformed::Event { immediate, end, len });
        }
        Ok(Record { position, offset, len: whole as u32 })
    }
}
