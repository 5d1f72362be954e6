//! Send/recv, normal (§4.1): a queue for each sender, with a buffer for each message that it may
//! have under way or unprocessed.
//!
//! A SEND's immediate is its message's number: SENDs under way are applied in any order, into
//! whichever buffer is next, and the receiver hands messages out by number. It tells its sender the
//! tail, and posts a buffer again before that: so an honest sender never finds none posted, and
//! messages that come out of order cannot hold all of them while one before them is refused.

use rma_core::{
    executor::{CallId, OpCall},
    grant::Grant,
    op::OpType,
    portal::{Change, CommandPortal, Source},
    receive_queue::{Event, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};

use super::SendRecvConfig;
use crate::{
    close::opened,
    link::Link,
    numbered::{Carries, EventReceiver, NumberedSender, Opening, Parcel, Tells},
    registrar::Registrar,
    ring::{Malformed, Position, Record},
    sender::{SendError, refused},
    table::Kind,
    terms::{Half, OpenError},
};

/// The sender's end.
pub type Sender = NumberedSender<Sends>;

/// The receiver's end.
pub type Receiver = EventReceiver<Buffers>;

fn opening<E: core::error::Error>(config: SendRecvConfig) -> Result<Opening, OpenError<E>> {
    let (places, kind) = (config.places()?, Kind::SendRecvNormal);
    let SendRecvConfig { name, peer, .. } = config;
    Ok(Opening { kind, name, peer, places, option: 0 })
}

impl Sender {
    /// Opens a sender's end.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open<R: Registrar>(
        registrar: &mut R,
        config: SendRecvConfig,
    ) -> Result<Half<Self>, OpenError<R::Error>> {
        opened(registrar, |registrar| {
            let carrier = |grants: &[Grant]| Sends { grant: grants[0] };
            opening(config)?.sender(registrar, &[OpType::Send], carrier)
        })
    }
}

impl Receiver {
    /// Opens a receiver's end: a queue whose buffers are all posted.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open<R: Registrar>(
        registrar: &mut R,
        config: SendRecvConfig,
    ) -> Result<Half<Self>, OpenError<R::Error>> {
        opened(registrar, |registrar| {
            let opening = opening(config)?;
            let queue = opening.queue(registrar, config.len_max, Permissions::SEND)?;
            let grant = opening.grant(registrar, queue.region(), OpType::Send)?;
            let (tells, memory) = (Buffers(queue.layout()), queue.region().clone());
            opening.receiver(registrar, vec![grant], move |teller| {
                Self::new(tells, queue, (memory, opening.places), teller)
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
    fn carry<P: AsMut<CommandPortal>>(
        &self,
        link: &mut Link<P>,
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
