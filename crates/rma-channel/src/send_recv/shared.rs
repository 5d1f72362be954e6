//! Send/recv, shared receive (§4.1): one queue for all senders, so that memory at the receiver does
//! not grow with their number; nor does anything else there, as nothing is kept by sender.
//!
//! An event says who has sent, authenticated: [`Claim::sender`]. How a sender keeps order, and what
//! it does where no receive is posted, is told in [`send_recv`](super).

use core::ops::Range;

use rma_core::{
    executor::OpCall,
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    portal::Change,
    receive_queue::{Receive, ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};

use super::{SharedConfig, checked_count, checked_len_max, one_by_one::OneByOne};
use crate::{
    close::{Registered, gives_back, opened},
    image::{Image, Lying},
    link::Link,
    receiver::{self, Blocking, Claim, Claims, ReceiveError, read},
    ring::{Position, Record, padded},
    sender::{self, Outgoing, SendError, SendHandle, SendRegion, SendState, checked_len, refused},
    table::Kind,
    terms::{Agreed, OpenError, Side, Terms},
};

/// The receiver's end, which all senders share.
#[derive(Debug)]
pub struct Receiver {
    queue: ReceiveQueue,
    agreed: Agreed,
    /// How many messages were handed out.
    next: Position,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl Receiver {
    /// Opens the receiver's end: a queue whose buffers are all posted.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: SharedConfig) -> Result<Self, OpenError> {
        opened(host, |host| {
            let SharedConfig { name, receives, len_max } = config;
            checked_count("the number of receives", receives)?;
            checked_len_max(len_max)?;
            let layout = ReceiveQueueLayout::new(receives, len_max)?;
            let queue = host.receive_queue(layout, Permissions::SEND).map_err(OpenError::Host)?;
            let numbers = [receives.into(), len_max.into(), 0];
            let agreed = Agreed { kind: Kind::SendRecvShared, name, numbers };
            Ok(Self::new(queue, agreed))
        })
    }

    fn new(mut queue: ReceiveQueue, agreed: Agreed) -> Self {
        queue.post_all();
        Self { queue, agreed, next: Position::ZERO, registered: Registered::default() }
    }

    /// Admits `peer` as a sender, and returns the terms to send to it.
    ///
    /// # Errors
    /// If the host makes no grant for it.
    pub fn admit(&self, host: &dyn Gate, peer: Peer) -> Result<Terms, OpenError> {
        let grant = host.grant(self.queue.region(), peer, OpType::Send);
        Ok(Terms::new(self.agreed, Side::Receiver, vec![grant.map_err(OpenError::Host)?]))
    }
}

gives_back!(Receiver);

impl Claims for Receiver {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        let Some(event) = self.queue.poll() else { return Ok(None) };
        let (position, len) = (self.next, event.len);
        self.next = position.after(1);
        let offset = self.queue.layout().offset_of(event.receive);
        let from = Some(Peer { address: event.initiator, pid: event.pid });
        Ok(Some(Claim { record: Record { position, offset, len }, from }))
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        read(self.queue.region(), &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        let stride = padded(self.queue.layout().buffer_len());
        // The event's number of the receive.
        let _ = self.queue.post(Receive((claim.record.offset / stride) as u16));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl receiver::Receiver for Receiver {
    /// There is nothing to do.
    fn poll(&mut self, _: &mut Link, _: Instant) -> Result<(), ReceiveError> {
        Ok(())
    }
}

impl Blocking for Receiver {
    fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }
}

/// A sender's end.
#[derive(Debug)]
pub struct Sender {
    grant: Grant,
    /// Of messages that wait.
    image: Image,
    messages: OneByOne<Lying>,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl Sender {
    /// Opens a sender's end, with the terms that the receiver made for it. Up to `waiting` messages
    /// are under way, or wait for that.
    ///
    /// # Errors
    /// If those are not terms of such a channel, or the host has no room.
    pub fn join(host: &dyn Gate, terms: &Terms, waiting: u16) -> Result<Self, OpenError> {
        opened(host, |host| {
            checked_count("the number of messages that wait", waiting)?;
            let (us, kind) = (host.identity(), Kind::SendRecvShared);
            let grant = terms.epochs_for(us, kind, Side::Sender, &[OpType::Send])?[0];
            let [_, len_max, _] = terms.agreed().numbers;
            let len_max = u32::try_from(len_max).unwrap_or(0);
            checked_len_max(len_max)?;
            let image = Image::open(host, waiting, len_max)?;
            let (messages, registered) = (OneByOne::new(waiting), Registered::default());
            Ok(Self { grant, image, messages, registered })
        })
    }

    fn issue(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        let Self { grant, image, messages, .. } = self;
        messages.poll(link, |link, lying| {
            let message = image.source(lying);
            //= channels#4.1-shared
            let change = Change::Send { message, immediate: 0 };
            link.submit_op(now, &OpCall::of(grant, change)).map_err(refused)
        })
    }

    /// A message waits, and is issued if none is under way.
    fn add(
        &mut self,
        link: &mut Link,
        now: Instant,
        number: Position,
        lying: Lying,
    ) -> Result<SendHandle, SendError> {
        self.messages.add(lying);
        if let Err(error) = self.issue(link, now) {
            self.messages.remove_last();
            return Err(error);
        }
        Ok(SendHandle(number))
    }
}

gives_back!(Sender);

impl Outgoing for Sender {
    fn len_max(&self) -> u32 {
        self.image.len_max()
    }

    /// A message that is accepted stays so: nobody tells what is processed.
    fn test(&self, handle: SendHandle) -> SendState {
        self.messages.test(handle)
    }
}

impl sender::Sender for Sender {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        checked_len(message.len(), self.len_max())?;
        let number = self.messages.next()?;
        let lying = self.image.copy(number, message);
        let sent = self.add(link, now, number, lying)?;
        link.count_copied(message.len());
        Ok(sent)
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.issue(link, now)
    }
}

impl SendRegion for Sender {
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let lying = self.image.at(region, &range)?;
        let number = self.messages.next()?;
        self.add(link, now, number, lying)
    }
}
