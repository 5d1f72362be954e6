//! A receiver's end, as the contract drives it: with the host of its node, where it takes back
//! what senders have reserved; one that claims messages, or reads them into the application's
//! memory.

use std::{collections::VecDeque, fmt::Debug, sync::Arc};

use rma_channel::{
    AnyInto, AnyReceiver, Claim, Claims, Close, DuplexReceiver, Link, Peer, ReceiveError,
    ReceiveHandle, ReceiveState, Receiver, RecoverError, Registered,
    read_slot::{indirect_read, indirect_read::OfferError},
    ring::Position,
};
use rma_core::{
    gate::Gate,
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

/// A message that an end has taken, and holds until it is given back.
#[derive(Debug)]
pub enum Taken {
    /// It is the channel's.
    Claimed(Claim),
    /// It was read to this place of the application's memory.
    Read {
        /// Offset in that memory, in bytes.
        offset: u64,
        /// Its bytes.
        len: usize,
    },
}

#[expect(clippy::len_without_is_empty, reason = "a message has a byte at least")]
impl Taken {
    /// Bytes of the message.
    pub const fn len(&self) -> usize {
        match self {
            Self::Claimed(claim) => claim.len(),
            Self::Read { len, .. } => *len,
        }
    }

    /// Returns the sender, if it is known.
    pub const fn sender(&self) -> Option<Peer> {
        match self {
            Self::Claimed(claim) => claim.sender(),
            Self::Read { .. } => None,
        }
    }

    /// Its place in the channel, if it has one of its own.
    pub const fn position(&self) -> Option<Position> {
        match self {
            Self::Claimed(claim) => Some(claim.position()),
            Self::Read { .. } => None,
        }
    }
}

/// A receiver's end of any kind.
pub trait End: Debug {
    /// Looks for what has come, and issues what is to be issued.
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError>;

    /// Takes the next message, if it has come.
    fn take(&mut self) -> Result<Option<Taken>, ReceiveError>;

    /// Copies bytes of a message from `offset`; returns how many.
    fn read(&self, taken: &Taken, offset: usize, bytes: &mut [u8]) -> usize;

    /// Gives a message back.
    fn free(&mut self, taken: Taken);

    /// Takes back what senders have reserved for too long, if it is time; says whether it did.
    fn recover(&mut self, it: &dyn Gate, now: Instant) -> Result<bool, ReceiveError>;

    /// Takes back what one sender has, who is no longer one.
    fn take_back(&mut self, it: &dyn Gate, from: Peer);

    /// When it has something to do, if nothing comes until then: by itself, or to recover.
    fn wake_at(&self) -> Option<Instant>;

    /// How many bytes senders have reserved beyond what has come without a gap.
    fn unfilled(&self) -> u64;

    /// How much of what was registered for it is memory of the application's, in bytes.
    fn lent_bytes(&self) -> u64;

    /// Gives back what was registered for it.
    fn close(&mut self, it: &dyn Gate);
}

/// A receiver. Most recover nothing.
pub trait Recovers: Receiver {
    /// As [`End::recover`].
    fn recover(&mut self, _: &dyn Gate, _: Instant) -> Result<bool, ReceiveError> {
        Ok(false)
    }

    /// As [`End::take_back`].
    fn take_back(&mut self, _: &dyn Gate, from: Peer) {
        panic!("what {from} has cannot be taken back: {self:?}")
    }

    /// As [`End::wake_at`].
    fn wake_at(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    /// As [`End::unfilled`].
    fn unfilled(&self) -> u64 {
        0
    }
}

impl<R: Recovers> End for R {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        Receiver::poll(self, link, now)
    }

    fn take(&mut self) -> Result<Option<Taken>, ReceiveError> {
        Ok(self.claim()?.map(Taken::Claimed))
    }

    fn read(&self, taken: &Taken, offset: usize, bytes: &mut [u8]) -> usize {
        match taken {
            Taken::Claimed(claim) => Claims::read(self, claim, offset, bytes),
            Taken::Read { .. } => panic!("{taken:?} is of another end"),
        }
    }

    fn free(&mut self, taken: Taken) {
        match taken {
            Taken::Claimed(claim) => Claims::free(self, claim),
            Taken::Read { .. } => panic!("{taken:?} is of another end"),
        }
    }

    fn recover(&mut self, it: &dyn Gate, now: Instant) -> Result<bool, ReceiveError> {
        Recovers::recover(self, it, now)
    }

    fn take_back(&mut self, it: &dyn Gate, from: Peer) {
        Recovers::take_back(self, it, from);
    }

    fn wake_at(&self) -> Option<Instant> {
        Recovers::wake_at(self)
    }

    fn unfilled(&self) -> u64 {
        Recovers::unfilled(self)
    }

    fn lent_bytes(&self) -> u64 {
        0
    }

    fn close(&mut self, it: &dyn Gate) {
        self.registered().give_back(it).unwrap();
    }
}

/// How many messages the application has places for into which they are read.
const PLACES: u64 = 4;

/// The byte in places where no message is.
const BLANK: u8 = 0xb1;

/// A receiver that reads messages into memory of the application's, and that application: it has
/// the next one read as soon as it has a place for it.
#[derive(Debug)]
pub struct Reads {
    into: AnyInto,
    memory: RegisteredRegion,
    /// How far apart places are.
    stride: u64,
    /// Places that are blank, and nothing is read to.
    free: Vec<u64>,
    /// The messages that are being read, in order.
    under_way: VecDeque<(ReceiveHandle, Taken)>,
    ended: Option<ReceiveError>,
}

impl Reads {
    /// Registers the application's memory, for messages of up to `len_max` bytes.
    pub fn new(into: AnyInto, host: &dyn Gate, len_max: u32) -> Self {
        // With something between them that nobody writes.
        let stride = u64::from(len_max).next_multiple_of(8) + 8;
        let memory = Arc::new(Region::new((PLACES * stride) as usize).unwrap());
        let key = host.key().unwrap();
        let registered = host.register(memory, key, Permissions::NONE, None);
        if registered.is_err() {
            into.close(host).unwrap();
            panic!("no room for the application's memory");
        }
        let memory = registered.unwrap();
        let free: Vec<u64> = (0..PLACES).map(|place| place * stride).collect();
        let (under_way, ended) = (VecDeque::new(), None);
        let it = Self { into, memory, stride, free, under_way, ended };
        it.free.iter().for_each(|&offset| it.blank(offset));
        it
    }

    fn blank(&self, offset: u64) {
        self.memory.write(offset, &vec![BLANK; self.stride as usize]).unwrap();
    }

    /// Checks that nothing of a place was written but the message in it.
    fn check_beside(&self, offset: u64, len: usize) {
        let mut beside = vec![0; self.stride as usize - len];
        self.memory.read(offset + len as u64, &mut beside).unwrap();
        assert!(beside.iter().all(|&byte| byte == BLANK), "written beside {len} bytes at {offset}");
    }
}

impl End for Reads {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let polled = self.into.poll(link, now);
        self.ended = self.ended.or(polled.err());
        while self.ended.is_none()
            && let Some(&offset) = self.free.last()
            && let Some(incoming) = self.into.incoming()
        {
            let len = incoming.len();
            assert!((1..=self.stride as usize - 8).contains(&len), "{len} bytes");
            assert_eq!(self.into.incoming().as_ref(), Some(&incoming), "until it is received");
            match self.into.receive_into(link, now, incoming, &self.memory, offset) {
                Ok(Some(handle)) => {
                    self.free.pop();
                    self.under_way.push_back((handle, Taken::Read { offset, len }));
                }
                Ok(None) => break,
                Err(error) => self.ended = Some(error),
            }
        }
        self.ended.map_or(Ok(()), Err)
    }

    fn take(&mut self) -> Result<Option<Taken>, ReceiveError> {
        let Some((handle, _)) = self.under_way.front() else {
            return self.ended.map_or(Ok(None), Err);
        };
        match self.into.test(*handle) {
            ReceiveState::Receiving => Ok(None),
            ReceiveState::Failed(error) => Err(error),
            ReceiveState::Received => {
                let taken = self.under_way.pop_front().map(|(_, taken)| taken);
                if let Some(Taken::Read { offset, len }) = taken {
                    self.check_beside(offset, len);
                }
                Ok(taken)
            }
        }
    }

    fn read(&self, taken: &Taken, from: usize, bytes: &mut [u8]) -> usize {
        let &Taken::Read { offset, len } = taken else { panic!("{taken:?} is of another end") };
        let count = bytes.len().min(len.saturating_sub(from));
        self.memory.read(offset + from as u64, &mut bytes[..count]).unwrap();
        count
    }

    fn free(&mut self, taken: Taken) {
        let Taken::Read { offset, len } = taken else { panic!("{taken:?} is of another end") };
        self.check_beside(offset, len);
        self.blank(offset);
        self.free.push(offset);
    }

    fn recover(&mut self, _: &dyn Gate, _: Instant) -> Result<bool, ReceiveError> {
        Ok(false)
    }

    fn take_back(&mut self, _: &dyn Gate, from: Peer) {
        panic!("nothing is lent to {from}");
    }

    fn wake_at(&self) -> Option<Instant> {
        self.into.poll_timeout()
    }

    fn unfilled(&self) -> u64 {
        0
    }

    fn lent_bytes(&self) -> u64 {
        PLACES * self.stride
    }

    fn close(&mut self, it: &dyn Gate) {
        self.into.registered().give_back(it).unwrap();
        it.deregister(&self.memory).unwrap();
    }
}

/// A receiver whose application says where in its memory each message must be written: it shares
/// its places out evenly.
#[derive(Debug)]
pub struct Offers {
    receiver: indirect_read::Receiver,
    /// The offsets of free places.
    free: Vec<u64>,
    /// How many places there are.
    places: u64,
}

impl Offers {
    /// `free` are all places there are.
    pub const fn new(receiver: indirect_read::Receiver, free: Vec<u64>) -> Self {
        let places = free.len() as u64;
        Self { receiver, free, places }
    }

    /// The receiver itself.
    pub const fn receiver(&mut self) -> &mut indirect_read::Receiver {
        &mut self.receiver
    }

    /// Offers what is free.
    fn offer(&mut self) {
        let share = self.places / (self.receiver.senders().count() as u64).max(1);
        let senders: Vec<_> = self.receiver.senders().collect();
        for sender in senders {
            for _ in sender.has..share {
                let Some(&offset) = self.free.last() else { return };
                match self.receiver.offer(sender.peer, offset) {
                    Ok(()) => self.free.pop(),
                    Err(OfferError::NoSender { .. } | OfferError::Full) => break,
                    Err(error) => panic!("{error}"),
                };
            }
        }
    }
}

impl Close for Offers {
    fn registered(&mut self) -> &mut Registered {
        self.receiver.registered()
    }
}

impl Claims for Offers {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        self.receiver.claim()
    }

    /// Reads the message at the place that the application knows.
    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        let (memory, place) = self.receiver.place(claim);
        assert_eq!((place.end - place.start) as usize, claim.len());
        let count = bytes.len().min(claim.len().saturating_sub(offset));
        memory.read(place.start + offset as u64, &mut bytes[..count]).unwrap();
        count
    }

    fn free(&mut self, claim: Claim) {
        self.free.push(self.receiver.place(&claim).1.start);
        Claims::free(&mut self.receiver, claim);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.receiver.poll_timeout()
    }
}

impl Receiver for Offers {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.offer();
        Receiver::poll(&mut self.receiver, link, now)
    }
}

impl Recovers for Offers {
    fn take_back(&mut self, it: &dyn Gate, from: Peer) {
        self.free.append(&mut self.receiver.take_back(it, from).unwrap());
    }
}

// These hosts refuse nothing.
impl Recovers for AnyReceiver {
    fn recover(&mut self, it: &dyn Gate, now: Instant) -> Result<bool, ReceiveError> {
        match self.poll_recovery(it, now) {
            Err(RecoverError::Receive(error)) => Err(error),
            done => Ok(done.unwrap()),
        }
    }

    fn take_back(&mut self, it: &dyn Gate, from: Peer) {
        self.take_back(it, from).unwrap();
    }

    fn wake_at(&self) -> Option<Instant> {
        self.recovery_timeout().or_else(|| self.poll_timeout())
    }

    fn unfilled(&self) -> u64 {
        self.unfilled()
    }
}

impl<R: Claims> Recovers for DuplexReceiver<R> where Self: Receiver {}
