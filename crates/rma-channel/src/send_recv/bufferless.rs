//! Send/recv, bufferless (§4.1): a word of 64 bits, which travels as the immediate of a NOTIFY. No
//! memory is written, and none is registered: the queue's receives have no buffers.
//!
//! One queue for all senders, as [`shared`](super::shared): the event says who has sent. A receive
//! is posted again when its word is taken, so what is kept back holds none, and as many words as
//! there are receives can have come and not been taken.

use rma_core::{
    executor::OpCall,
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    portal::Change,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::Permissions,
    time::Instant,
};

use super::{checked_count, one_by_one::OneByOne};
use crate::{
    close::{Registered, gives_back, opened},
    link::Link,
    receiver::{self, Blocking, Claim, Claims, ReceiveError},
    ring::{Position, Record, WORD},
    sender::{self, Outgoing, SendError, SendHandle, SendState, checked_len, refused},
    table::Kind,
    terms::{Agreed, OpenError, Side, Terms},
};

/// How long each message is, in bytes.
pub const LEN: u32 = WORD as u32;

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
    /// Opens the receiver's end, with a `name` that the application has for it: a queue of so many
    /// receives, all posted; 1 to
    /// [`RECEIVES_MAX`](rma_core::limits::RECEIVES_MAX).
    ///
    /// # Errors
    /// If there cannot be so many, or the host has no room.
    pub fn open(host: &dyn Gate, name: u64, receives: u16) -> Result<Self, OpenError> {
        opened(host, |host| {
            checked_count("the number of receives", receives)?;
            let layout = ReceiveQueueLayout::new(receives, 0)?;
            let queue = host.receive_queue(layout, Permissions::NOTIFY).map_err(OpenError::Host)?;
            let numbers = [receives.into(), LEN.into(), 0];
            let agreed = Agreed { kind: Kind::SendRecvBufferless, name, numbers };
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
        let grant = host.grant(self.queue.region(), peer, OpType::Notify);
        Ok(Terms::new(self.agreed, Side::Receiver, vec![grant.map_err(OpenError::Host)?]))
    }

    /// The word of a message of this receiver.
    #[must_use]
    pub const fn word(&self, claim: &Claim) -> u64 {
        claim.record.offset
    }
}

gives_back!(Receiver);

impl Claims for Receiver {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        let Some(event) = self.queue.poll() else { return Ok(None) };
        // It was polled just now.
        let _ = self.queue.post(event.receive);
        let position = self.next;
        self.next = position.after(1);
        let from = Some(Peer { address: event.initiator, pid: event.pid });
        // There is no memory that it would lie in: where it would begin is the word itself.
        let record = Record { position, offset: event.immediate, len: LEN };
        Ok(Some(Claim { record, from }))
    }

    /// The word, little-endian.
    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        let word = self.word(claim).to_le_bytes();
        let rest = word.get(offset..).unwrap_or(&[]);
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        len
    }

    /// There is nothing to do: a message that was taken holds nothing.
    fn free(&mut self, _: Claim) {}

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
    words: OneByOne<u64>,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl Sender {
    /// Opens a sender's end, with the terms that the receiver made for it. Up to `waiting` words
    /// are under way, or wait for that.
    ///
    /// # Errors
    /// If those are not terms of such a channel.
    pub fn join(host: &dyn Gate, terms: &Terms, waiting: u16) -> Result<Self, OpenError> {
        checked_count("the number of words that wait", waiting)?;
        let (us, kind) = (host.identity(), Kind::SendRecvBufferless);
        let grant = terms.epochs_for(us, kind, Side::Sender, &[OpType::Notify])?[0];
        Ok(Self::new(grant, waiting))
    }

    fn new(grant: Grant, waiting: u16) -> Self {
        Self { grant, words: OneByOne::new(waiting), registered: Registered::default() }
    }

    /// Sends a word. Nothing is copied.
    ///
    /// # Errors
    /// If there is no room, or a word before it has failed. Then nothing was taken.
    pub fn notify(
        &mut self,
        link: &mut Link,
        now: Instant,
        word: u64,
    ) -> Result<SendHandle, SendError> {
        let number = self.words.next()?;
        self.words.add(word);
        if let Err(error) = self.issue(link, now) {
            self.words.remove_last();
            return Err(error);
        }
        Ok(SendHandle(number))
    }

    fn issue(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        let Self { grant, words, .. } = self;
        //= channels#4.1-bufferless
        words.poll(link, |link, &immediate| {
            let call = OpCall::of(grant, Change::Notify { immediate });
            link.submit_op(now, &call).map_err(refused)
        })
    }
}

gives_back!(Sender);

impl Outgoing for Sender {
    fn len_max(&self) -> u32 {
        LEN
    }

    /// A word that is accepted stays so: nobody tells what is processed.
    fn test(&self, handle: SendHandle) -> SendState {
        self.words.test(handle)
    }
}

impl sender::Sender for Sender {
    /// Sends a word, little-endian: a message has 8 bytes.
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        checked_len(message.len(), LEN)?;
        let Ok(word) = message.try_into() else {
            return Err(SendError::NotAWord { len: message.len(), needed: LEN });
        };
        self.notify(link, now, u64::from_le_bytes(word))
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.issue(link, now)
    }
}
