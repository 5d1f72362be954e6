//! A channel of any kind, opened in the same way: for programs that choose the kind when they run.
//!
//! One end is opened alone: the receiver, or the sender if receivers read its memory
//! ([`Kind::home`]). That gives a [`Half`] with terms for its first peer, who [joins](Kind::join)
//! with them and answers with terms of its own; with those the half becomes an end. A kind for many
//! [admits](Any::admit) others in the same way, at any time.
//!
//! Ends of any kind send and receive as others do, by one more call through a table. What a kind
//! cannot do is an error that names it, where the type of that kind would not have the method.
//!
//! ```
//! use rma_channel::{
//!     AnyReceiver, AnySender, ChannelConfig, Claims as _, Kind, Link, Peer, Receiver as _,
//!     Sender as _, Terms,
//!     choose::{Least, Need, choose},
//! };
//! use rma_core::{gate::Gate, time::Instant};
//!
//! type Error = Box<dyn std::error::Error>;
//!
//! /// Both programs choose alike, and take the same settings.
//! fn chosen() -> Result<(Kind, ChannelConfig), Error> {
//!     let choices = choose(&[Need::VariableSize, Need::Blocking], Least::Latency);
//!     let best = choices.kinds.first().ok_or("no kind has both")?;
//!     Ok((best.kind, ChannelConfig::new(1000, 64)))
//! }
//!
//! /// The program that receives, at the home of such a kind. `swap` sends terms to the other side,
//! /// over something that keeps secrets, and returns the answer.
//! fn open(host: &dyn Gate, from: Peer, swap: impl Fn(&Terms) -> Terms) -> Result<AnyReceiver, Error> {
//!     let (kind, config) = chosen()?;
//!     let half = kind.open(host, &config, from)?;
//!     let answer = swap(half.terms());
//!     Ok(half.connect(&answer)?.into_receiver().ok_or("its home is its sender")?)
//! }
//!
//! /// The program that sends, once it has terms, and the answer to them.
//! fn join(host: &dyn Gate, to: Peer, terms: &Terms) -> Result<(AnySender, Terms), Error> {
//!     let (kind, config) = chosen()?;
//!     let (end, answer) = kind.join(host, &config, to, terms)?;
//!     Ok((end.into_sender().ok_or("its home is its sender")?, answer))
//! }
//!
//! /// Sends a message. `Channels` of the crate `rma-app` does this, and waits for room.
//! fn send(sender: &mut AnySender, link: &mut Link, now: Instant) -> Result<(), Error> {
//!     link.poll(now);
//!     sender.poll(link, now)?;
//!     sender.send(link, now, b"a message")?;
//!     link.poll(now); // it leaves
//!     Ok(())
//! }
//!
//! /// Takes the next message, if it has come. `Channels::recv_every` does this, and waits for one.
//! fn receive(
//!     receiver: &mut AnyReceiver,
//!     link: &mut Link,
//!     now: Instant,
//! ) -> Result<Option<Vec<u8>>, Error> {
//!     link.poll(now);
//!     receiver.poll(link, now)?;
//!     let message = receiver.receive()?.map(|message| message.to_vec()); // given back
//!     link.poll(now);
//!     Ok(message)
//! }
//! ```

use rma_core::{
    gate::{Gate, Peer},
    receive_queue::ReceiveQueue,
    time::Instant,
};
use thiserror::Error;

use self::{
    end::End,
    ends::{ReceiverEnd, SenderEnd},
};
use crate::{
    close::{Close, Registered, opened, opened_with},
    link::Link,
    read_ring,
    read_slot::{self, indirect_read},
    receiver::{Claim, Claims, ReceiveError, ReceiveInto, Receiver, RecoverError},
    ring_buffer,
    send_recv::{bufferless, normal, shared},
    sender::{Outgoing, SendError, SendHandle, SendState, Sender},
    shared_ring,
    table::Kind,
    terms::{Admitted, Agreed, Half, OpenError, Side, Terms, TermsError},
    write_slot::{self, reserve_slot},
};

mod config;
pub mod end;
pub mod ends;

pub use config::ChannelConfig;

/// An end of a channel of some kind.
#[derive(Debug)]
pub struct Any<E: ?Sized> {
    kind: Kind,
    end: Box<E>,
}

/// A sender's end of any kind.
pub type AnySender = Any<dyn SenderEnd>;

/// A receiver's end of any kind.
pub type AnyReceiver = Any<dyn ReceiverEnd>;

/// An end of either side.
#[derive(Debug)]
pub enum AnyEnd {
    /// It sends.
    Sender(AnySender),
    /// It receives.
    Receiver(AnyReceiver),
}

/// The reason why a channel of some kind was not opened.
#[derive(Debug, Error)]
#[error("{kind}: {why}")]
pub struct KindError {
    /// The kind of channel.
    pub kind: Kind,
    /// The reason.
    #[source]
    pub why: OpenError,
}

/// A receiver of any kind that reads messages into the application's memory.
pub type AnyInto = Box<dyn ReceiveInto + Send>;

impl Kind {
    /// The side that is opened alone, and admits the other.
    #[must_use]
    pub const fn home(self) -> Side {
        if self.ours().is_read() { Side::Sender } else { Side::Receiver }
    }

    /// Opens the end at its [home](Kind::home), for `peer` as the first at the other end. The half
    /// has the terms that the peer [joins](Kind::join) with, and becomes an end with its answer.
    ///
    /// # Errors
    /// If the kind cannot be like that, or the host has no room.
    pub fn open(
        self,
        host: &dyn Gate,
        config: &ChannelConfig,
        peer: Peer,
    ) -> Result<Half<AnyEnd>, KindError> {
        let half = opened(host, |host| (self.row(config).open)(host, config, peer));
        half.map_err(|why| KindError { kind: self, why })
    }

    /// Opens an end at the other side, of the `terms` that `home` has told, and the answer that
    /// home needs. `config` is what home was opened with.
    ///
    /// # Errors
    /// If those are not terms of such a channel for this end, or the host has no room.
    pub fn join(
        self,
        host: &dyn Gate,
        config: &ChannelConfig,
        home: Peer,
        terms: &Terms,
    ) -> Result<(AnyEnd, Terms), KindError> {
        let joined = opened_with(host, |host| (self.row(config).join)(host, config, home, terms));
        joined.map_err(|why| KindError { kind: self, why })
    }

    /// The same for a receiver that reads messages into the application's memory.
    ///
    /// # Errors
    /// As [`Kind::join`], and if receivers of this kind do not read.
    pub fn join_into(
        self,
        host: &dyn Gate,
        config: &ChannelConfig,
        home: Peer,
        terms: &Terms,
    ) -> Result<(AnyInto, Terms), KindError> {
        let joined = self.row(config).into.ok_or(OpenError::ReadsNothing);
        let joined =
            joined.and_then(|into| opened_with(host, |host| into(host, config, home, terms)));
        joined.map_err(|why| KindError { kind: self, why })
    }
}

impl<E: End + ?Sized> Any<E> {
    /// The kind of channel.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Admits one more peer, which joins with the terms of this half and answers.
    ///
    /// # Errors
    /// If the kind has one sender and one receiver, there are as many peers as there can be, or the
    /// host has no room.
    pub fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, KindError> {
        self.end.admit(host, peer).map_err(|why| KindError { kind: self.kind, why })
    }

    /// Takes in a peer that was admitted, and has answered.
    ///
    /// # Errors
    /// If that is not its answer, or the half is of a channel of another kind.
    pub fn accept(&mut self, half: Half<Admitted>, answer: &Terms) -> Result<(), TermsError> {
        let theirs = half.terms().agreed();
        if theirs.kind != self.kind {
            return Err(TermsError::Disagree {
                theirs,
                ours: Agreed { kind: self.kind, ..theirs },
            });
        }
        self.end.seat(half.complete(answer)?);
        Ok(())
    }

    /// The queue of events that wake whoever sleeps: for messages, or for a sender's buffers.
    /// `None`: this end is polled.
    #[must_use]
    pub fn events(&self) -> Option<&ReceiveQueue> {
        self.end.events()
    }

    /// Takes back the places that senders have reserved and do not use, if it is time and the kind
    /// has such; says whether it did. To be called again and again.
    ///
    /// # Errors
    /// If what came cannot be, or the host refuses.
    pub fn poll_recovery(&mut self, host: &dyn Gate, now: Instant) -> Result<bool, RecoverError> {
        self.end.poll_recovery(host, now)
    }

    /// When [`Any::poll_recovery`] has something to do, if nothing comes until then.
    #[must_use]
    pub fn recovery_timeout(&self) -> Option<Instant> {
        self.end.recovery_timeout()
    }

    /// Takes back the buffers and grants of one sender, who is out then.
    ///
    /// # Errors
    /// If the kind lends no buffers, or the host refuses: it must be tried again then.
    pub fn take_back(&mut self, host: &dyn Gate, from: Peer) -> Result<(), RecoverError> {
        self.end.take_back(host, from)
    }

    /// How many bytes senders have reserved beyond what has come without a gap, if they reserve.
    #[must_use]
    pub fn unfilled(&self) -> u64 {
        self.end.unfilled()
    }
}

impl<E: End + ?Sized> Close for Any<E> {
    fn registered(&mut self) -> &mut Registered {
        self.end.registered()
    }
}

impl Outgoing for AnySender {
    fn len_max(&self) -> u32 {
        self.end.len_max()
    }

    fn beside(&self) -> (u64, u64) {
        self.end.beside()
    }

    fn test(&self, handle: SendHandle) -> SendState {
        self.end.test(handle)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.end.poll_timeout()
    }
}

impl Sender for AnySender {
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        self.end.send(link, now, message)
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.end.poll(link, now)
    }
}

impl Claims for AnyReceiver {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        self.end.claim()
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        self.end.read(claim, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        self.end.free(claim);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.end.poll_timeout()
    }
}

impl Receiver for AnyReceiver {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.end.poll(link, now)
    }
}

impl AnyEnd {
    fn sender<S: SenderEnd + 'static>(kind: Kind, end: S) -> Self {
        Self::Sender(Any { kind, end: Box::new(end) })
    }

    fn receiver<R: ReceiverEnd + 'static>(kind: Kind, end: R) -> Self {
        Self::Receiver(Any { kind, end: Box::new(end) })
    }

    /// The sender's end, if it is one.
    #[must_use]
    pub fn into_sender(self) -> Option<AnySender> {
        if let Self::Sender(end) = self { Some(end) } else { None }
    }

    /// The receiver's end, if it is one.
    #[must_use]
    pub fn into_receiver(self) -> Option<AnyReceiver> {
        if let Self::Receiver(end) = self { Some(end) } else { None }
    }
}

impl Close for AnyEnd {
    fn registered(&mut self) -> &mut Registered {
        match self {
            Self::Sender(end) => end.registered(),
            Self::Receiver(end) => end.registered(),
        }
    }
}

type Opens = fn(&dyn Gate, &ChannelConfig, Peer) -> Result<Half<AnyEnd>, OpenError>;
type Joins<E> = fn(&dyn Gate, &ChannelConfig, Peer, &Terms) -> Result<(E, Terms), OpenError>;

/// The calls by which ends of a kind are opened.
struct Row {
    open: Opens,
    join: Joins<AnyEnd>,
    /// Of receivers that read into the application's memory.
    into: Option<Joins<AnyInto>>,
}

/// One sender and one receiver: each is opened with the same settings. `by`: what a sender is told
/// besides.
macro_rules! pair {
    ($of:path, $receiver:ident, $settings:ident $(, $by:ident)?) => {{
        use $of as of;
        Row {
            open: |host, it, peer| {
                let half = of::$receiver::open(host, it.$settings(peer))?;
                let kind = half.terms().agreed().kind;
                Ok(half.map(move |end| AnyEnd::receiver(kind, end)))
            },
            join: |host, it, home, terms| {
                let half = of::Sender::open(host, it.$settings(home) $(, of::Bell::$by)?)?;
                let answer = half.terms().clone();
                Ok((AnyEnd::sender(answer.agreed().kind, half.connect(terms)?), answer))
            },
            into: None,
        }
    }};
}

/// A receiver that senders share: `open` opens it, and `join` a sender of its terms.
macro_rules! gathered {
    ($open:expr, $join:expr) => {
        Row {
            open: |host, it, peer| first(host, $open(host, it)?, peer, AnyEnd::receiver),
            join: |host, it, _, terms| {
                let theirs = terms.agreed();
                if theirs.name != it.name {
                    let ours = Agreed { name: it.name, ..theirs };
                    return Err(TermsError::Disagree { theirs, ours }.into());
                }
                let sender = AnyEnd::sender(theirs.kind, $join(host, it, terms)?);
                Ok((sender, terms.answer()))
            },
            into: None,
        }
    };
}

/// A sender whose memory receivers read. They look by themselves, or are `told` where their answer
/// says.
macro_rules! read {
    ($of:path, $settings:ident $(, $is_variable:expr)?) => {{
        use $of as of;
        Row {
            open: |host, it, peer| {
                first(host, of::Sender::open(host, it.$settings($($is_variable)?))?, peer, AnyEnd::sender)
            },
            join: |host, it, _, terms| {
                let end = of::Receiver::join(host, it.reader(), terms)?;
                Ok((AnyEnd::receiver(terms.agreed().kind, end), terms.answer()))
            },
            into: Some(|host, it, _, terms| {
                Ok((Box::new(of::Into::join(host, it.reader(), terms)?), terms.answer()))
            }),
        }
    }};
    (told $of:path, $settings:ident $(, $is_variable:expr)?) => {{
        use $of as of;
        Row {
            join: |host, it, home, terms| {
                let (end, answer) = of::Receiver::join(host, it.reader(), home, terms)?;
                Ok((AnyEnd::receiver(terms.agreed().kind, end), answer))
            },
            into: Some(|host, it, home, terms| {
                let (end, answer) = of::Into::join(host, it.reader(), home, terms)?;
                Ok((Box::new(end), answer))
            }),
            open: |host, it, peer| {
                first(host, of::Sender::open(host, it.$settings($($is_variable)?))?, peer, AnyEnd::sender)
            },
        }
    }};
}

impl Kind {
    const fn row(self, config: &ChannelConfig) -> Row {
        use indirect_read as lent;
        match self {
            Self::SendRecvNormal => pair!(normal, Receiver, send_recv),
            Self::SendRecvShared => gathered!(
                |host, it: &ChannelConfig| shared::Receiver::open(host, it.shared()),
                |host, it: &ChannelConfig, terms| shared::Sender::join(host, terms, it.messages)
            ),
            Self::SendRecvBufferless => gathered!(
                |host, it: &ChannelConfig| bufferless::Receiver::open(host, it.name, it.messages),
                |host, it: &ChannelConfig, terms| bufferless::Sender::join(
                    host,
                    terms,
                    it.messages
                )
            ),
            Self::WriteSlotDetached if config.wakes => {
                pair!(write_slot::detached_bell, WakingReceiver, slots, Event)
            }
            Self::WriteSlotDetached => {
                pair!(write_slot::detached_bell, Receiver, slots, Word)
            }
            Self::WriteSlotInlined => pair!(write_slot::inlined_bell, Receiver, slots),
            Self::WriteSlotImmediate => pair!(write_slot::immediate, Receiver, slots),
            Self::WriteSlotReserve => gathered!(
                |host, it: &ChannelConfig| reserve_slot::Receiver::open(host, it.reserve()),
                |host, it: &ChannelConfig, terms| {
                    reserve_slot::Sender::join(host, terms, it.messages)
                }
            ),
            Self::RingDetached => pair!(ring_buffer::detached_bell, Receiver, ring),
            Self::RingImmediate => pair!(ring_buffer::immediate, Receiver, ring),
            Self::RingWithZeroing => pair!(ring_buffer::with_zeroing, Receiver, ring),
            Self::RingWithoutZeroing => pair!(ring_buffer::without_zeroing, Receiver, ring),
            Self::SharedRingImmediate => gathered!(
                |host, it: &ChannelConfig| {
                    shared_ring::immediate::Receiver::open(host, it.shared_ring())
                },
                |host, _, terms| shared_ring::immediate::Sender::join(host, terms)
            ),
            Self::SharedRingWithZeroing => gathered!(
                |host, it: &ChannelConfig| {
                    shared_ring::with_zeroing::Receiver::open(host, it.shared_ring())
                },
                |host, _, terms| shared_ring::with_zeroing::Sender::join(host, terms)
            ),
            Self::ReadSlotDetached => read!(read_slot::detached_bell, read_slots, true),
            Self::ReadSlotInlined => read!(read_slot::inlined_bell, read_slots, false),
            Self::ReadSlotNotify => read!(told read_slot::notify_receiver, read_slots, true),
            Self::ReadSlotIndirect => Row {
                open: |host, it, peer| {
                    let receiver = lent::Receiver::open(host, it.indirect())?;
                    first(host, receiver, peer, AnyEnd::receiver)
                },
                join: |host, it, home, terms| {
                    let (sender, answer) = lent::Sender::join(host, it.name, home, terms)?;
                    Ok((AnyEnd::sender(answer.agreed().kind, sender), answer))
                },
                into: None,
            },
            Self::ReadRingDetached => read!(read_ring::detached_bell, read_ring),
            Self::ReadRingInlined => read!(read_ring::inlined_bell, read_ring),
            Self::ReadRingNotify => read!(told read_ring::notify_receiver, read_ring),
        }
    }
}

/// The half of an end that was opened alone, for its first peer.
fn first<E: End + Send + 'static>(
    host: &dyn Gate,
    mut end: E,
    peer: Peer,
    any: fn(Kind, E) -> AnyEnd,
) -> Result<Half<AnyEnd>, OpenError> {
    let half = end.admit(host, peer)?;
    let kind = half.terms().agreed().kind;
    Ok(half.map(move |admitted| {
        end.seat(admitted);
        any(kind, end)
    }))
}
