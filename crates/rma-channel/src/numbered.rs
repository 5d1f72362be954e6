//! Messages that are numbered and take one of so many equal places each, in turn: sends with
//! credits (§4.1), and write slots (§4.2).
//!
//! Message k has place k mod `places` at its sender and, where the receiver has places too, there.
//! So a short message uses up as much as a long one. Any number of messages are under way, in any
//! order, as ops have none: the receiver goes by numbers. It tells its sender the tail, the number
//! up to which messages are processed; the sender uses no place whose message is not.
//!
//! What each channel has of its own is how a message is carried ([`Carries`]), and what tells its
//! receiver of it: an event ([`Tells`]) or a word that is polled
//! ([`Polled`](crate::write_slot::polled::Polled)).

use std::sync::Arc;

use rma_core::{
    gate::{Gate, Identity, Peer},
    grant::Grant,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

use crate::{
    close::Close,
    flow::{self, Teller},
    table::Kind,
    terms::{Agreed, Half, Needs, OpenError, Side},
};

mod places;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use places::Places;
pub use receiver::{EventReceiver, Tells};
pub use sender::{Carries, NumberedSender, Parcel};

/// The settings that an end of such a channel is opened with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) kind: Kind,
    /// The application's name for the channel.
    pub(crate) name: u64,
    /// The peer at the other end.
    pub(crate) peer: Peer,
    pub(crate) places: Places,
    /// The further option that both ends have to agree on.
    pub(crate) option: u64,
}

impl Opening {
    const fn needs(&self, us: Identity, side: Side, grants: &'static [OpType]) -> Needs {
        let Self { kind, name, places, option, .. } = *self;
        let numbers = [places.count as u64, places.len_max as u64, option];
        Needs { us, agreed: Agreed { kind, name, numbers }, side, grants }
    }

    /// Opens a sender's end, which needs `grants` and makes its carrier of them.
    pub(crate) fn sender<C: Carries + 'static>(
        self,
        host: &dyn Gate,
        grants: &'static [OpType],
        carrier: impl FnOnce(&[Grant]) -> C + Send + 'static,
    ) -> Result<Half<NumberedSender<C>>, OpenError> {
        let Self { peer, places, .. } = self;
        let image = flow::region(host, Region::new(places.len() as usize)?, NONE)?;
        let (tail, grant) = flow::tail_word(host, peer)?;
        let needs = self.needs(host.identity(), Side::Sender, grants);
        Ok(Half::new(needs, vec![grant], move |grants| {
            NumberedSender::new(carrier(grants), places, image, tail)
        }))
    }

    /// Opens a receiver's end, which gives `grants` and is made of what tells its tail.
    pub(crate) fn receiver<E: Close>(
        self,
        host: &dyn Gate,
        grants: Vec<Grant>,
        finish: impl FnOnce(Teller) -> E + Send + 'static,
    ) -> Result<Half<E>, OpenError> {
        let word = Teller::word(host)?;
        let needs = self.needs(host.identity(), Side::Receiver, &[OpType::Write]);
        let capacity = self.places.count.into();
        Ok(Half::new(needs, grants, move |grants| finish(Teller::new(grants[0], word, capacity))))
    }

    /// A queue with a receive for each place, with buffers of `buffer_len` bytes: of this channel
    /// alone, and posted, so that a message of an honest sender finds a receive.
    pub(crate) fn queue(
        &self,
        host: &dyn Gate,
        buffer_len: u32,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, OpenError> {
        let layout = ReceiveQueueLayout::new(self.places.count, buffer_len)?;
        let mut queue = host.receive_queue(layout, permissions).map_err(OpenError::Host)?;
        queue.post_all();
        Ok(queue)
    }

    /// Registers `memory`, which the places are in, for WRITEs and perhaps events.
    pub(crate) fn register(
        &self,
        host: &dyn Gate,
        memory: Arc<Region>,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, OpenError> {
        let (value, needed) = (memory.len() as u64, self.places.len());
        if value < needed {
            let (what, why) = ("the memory of slots, in bytes,", "ask the settings for its length");
            return Err(OpenError::Settings { what, value, why });
        }
        let permissions = match events {
            Some(_) => Permissions::WRITE | Permissions::NOTIFY,
            None => Permissions::WRITE,
        };
        let key = host.key().map_err(OpenError::Host)?;
        host.register(memory, key, permissions, events).map_err(OpenError::Host)
    }

    /// Makes the grant that the other end needs for ops of `op_type` on `region`.
    pub(crate) fn grant(
        &self,
        host: &dyn Gate,
        region: &RegisteredRegion,
        op_type: OpType,
    ) -> Result<Grant, OpenError> {
        host.grant(region, self.peer, op_type).map_err(OpenError::Host)
    }
}

/// Memory that nobody else may use.
const NONE: Permissions = Permissions::NONE;
