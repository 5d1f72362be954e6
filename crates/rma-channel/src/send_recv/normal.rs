//! Send/recv, normal (§4.1): a queue for each sender, with a buffer for each message that it may
//! have under way or unprocessed.
//!
//! A SEND's immediate is its message's number: SENDs under way are applied in any order, into
//! whichever buffer is next, and the receiver hands messages out by number. It tells its sender the
//! tail, and posts a buffer again before that: so an honest sender never finds none posted, and
//! messages that come out of order cannot hold all of them while one before them is refused.

use rma_core::{
    executor::{CallId, OpCall},
    gate::Gate,
    grant::Grant,
    op::OpType,
    portal::{Change, Source},
    receive_queue::{Event, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};

use super::SendRecvConfig;
use crate::{
    close::opened,
    link::Link,
    numbered::{Carries, EventReceiver, NumberedSender, Opening, Parcel, Tells},
    ring::{Malformed, Position, Record},
    sender::{SendError, refused},
    table::Kind,
    terms::{Half, OpenError},
};

/// The sender's end.
pub type Sender = NumberedSender<Sends>;

/// The receiver's end.
pub type Receiver = EventReceiver<Buffers>;

fn opening(config: SendRecvConfig) -> Result<Opening, OpenError> {
    let (places, kind) = (config.places()?, Kind::SendRecvNormal);
    let SendRecvConfig { name, peer, .. } = config;
    Ok(Opening { kind, name, peer, places, option: 0 })
}

impl Sender {
    /// Opens a sender's end.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: SendRecvConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let carrier = |grants: &[Grant]| Sends { grant: grants[0] };
            opening(config)?.sender(host, &[OpType::Send], carrier)
        })
    }
}

impl Receiver {
    /// Opens a receiver's end: a queue whose buffers are all posted.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: SendRecvConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let opening = opening(config)?;
            let queue = opening.queue(host, config.len_max, Permissions::SEND)?;
            let grant = opening.grant(host, queue.region(), OpType::Send)?;
            let (tells, memory) = (Buffers(queue.layout()), queue.region().clone());
            opening.receiver(host, vec![grant], move |teller| {
                Self::new(tells, queue, memory, opening.places, teller)
            })
        })
    }
}

/// A message is a SEND, and its number the immediate.
#[derive(Clone, Copy, Debug)]
pub struct Sends {
    grant: Grant,
}

impl Carries for Sends {
    //= channels#4.1-normal
    fn carry(
        &self,
        link: &mut Link,
        now: Instant,
        &Parcel { number, len, region, offset }: &Parcel<'_>,
    ) -> Result<CallId, SendError> {
        let message = Source { region, offset, len };
        let change = Change::Send { message, immediate: number.to_bits() };
        link.submit_op(now, &OpCall::of(&self.grant, change)).map_err(refused)
    }
}

/// A message lies in the buffer of its receive, and its number is the immediate.
#[derive(Clone, Copy, Debug)]
pub struct Buffers(ReceiveQueueLayout);

impl Tells for Buffers {
    const KEEPS_RECEIVE: bool = true;

    fn message(
        &self,
        event: &Event,
        _: Position,
        _: &RegisteredRegion,
    ) -> Result<Record, Malformed> {
        let position = Position::from_bits(event.immediate);
        Ok(Record { position, offset: self.0.offset_of(event.receive), len: event.len })
    }
}
