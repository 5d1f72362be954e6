//! Write slot, inlined bell (§4.2): one ordered WRITE of a message and its bell, which is the last
//! word of the slot; the message lies right before it.
//!
//! So the receiver knows where to look whatever the length, one op carries no more than the message
//! and a word, and what the bell says is there when the bell is.

use std::sync::Arc;

use rma_core::{
    executor::{CallId, Piece},
    gate::Gate,
    grant::Grant,
    op::OpType,
    time::Instant,
};
use rma_shm::Region;

use super::{
    BELL, SlotConfig, bell,
    polled::{Layout, Lies, Polled},
};
use crate::{
    close::opened,
    link::Link,
    numbered::{Carries, NumberedSender, Opening, Parcel, Places},
    ring::{Position, padded},
    sender::{SendError, refused},
    table::Kind,
    terms::{Half, OpenError},
};

/// The sender's end.
pub type Sender = NumberedSender<Whole>;

/// The receiver's end.
pub type Receiver = Polled<Inlined>;

fn opening(config: SlotConfig) -> Result<Opening, OpenError> {
    config.opening(Kind::WriteSlotInlined, BELL, 0)
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
            let carrier = move |grants: &[Grant]| Whole { grant: grants[0], places };
            opening.sender(host, &[OpType::Write], carrier)
        })
    }
}

impl Receiver {
    /// How much memory the slots take, in bytes.
    #[must_use]
    pub const fn memory_len(config: &SlotConfig) -> u64 {
        config.slots as u64 * config.stride(BELL)
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
            let memory = opening.register(host, memory, None)?;
            let grant = opening.grant(host, &memory, OpType::Write)?;
            opening.receiver(host, vec![grant], move |teller| {
                Self::new(memory.clone(), memory, opening.places, teller)
            })
        })
    }
}

/// A message goes with its bell.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    grant: Grant,
    places: Places,
}

impl Carries for Whole {
    const BEHIND: u64 = BELL;

    fn shift(&self, len: u32) -> u64 {
        padded(self.places.len_max) - padded(len)
    }

    //= channels#4.2-inlined
    fn carry(
        &self,
        link: &mut Link,
        now: Instant,
        &Parcel { number, len, region, offset }: &Parcel<'_>,
    ) -> Result<CallId, SendError> {
        // There is room behind the message.
        let _ = region.store(offset + padded(len), bell(number, len).to_le());
        let remote_offset = self.places.offset(number) + self.shift(len);
        let (grant, len) = (&self.grant, padded(len) + BELL);
        let piece = Piece { grant, remote_offset, local: region, local_offset: offset, len };
        link.submit_ordered(now, &piece).map_err(refused)
    }
}

/// The bell is the last word of its slot, and the message lies before it.
#[derive(Debug)]
pub struct Inlined;

impl Lies for Inlined {
    fn bell(&Layout(places): &Layout, number: Position) -> u64 {
        places.offset(number) + padded(places.len_max)
    }

    fn message(layout: &Layout, number: Position, len: u32) -> u64 {
        Self::bell(layout, number) - padded(len)
    }
}
