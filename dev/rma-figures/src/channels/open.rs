//! Opening a channel of each kind, with one sender and one receiver.

use core::{fmt, time::Duration};

use rma_bench::error::PairError;
use rma_xdp::{
    channel::{
        Close, Half, Kind, OpenError, Peer, Receiver, Sender,
        read_ring::{self, ReadRingConfig, ReaderConfig},
        read_slot::{
            self, ReadSlotConfig,
            indirect_read::{self, IndirectConfig},
        },
        ring::RingLen,
        ring_buffer::{self, RingConfig, with_zeroing, without_zeroing},
        send_recv::{SendRecvConfig, SharedConfig, bufferless, normal, shared},
        shared_ring::{self, SharedRingConfig},
        write_slot::{
            SlotConfig, detached_bell, immediate, inlined_bell,
            reserve_slot::{self, ReserveConfig},
        },
    },
    gate::Gate,
};

use crate::error::FigureError;

/// A sender and its receiver.
pub(super) type Ends = (Box<dyn Sender + Send>, Box<dyn Receiver + Send>);

/// The settings that a channel is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The kind, one of twenty. There is one sender and one receiver, even if the kind permits
    /// more.
    pub kind: Kind,
    /// The longest message, in bytes.
    pub len_max: u32,
    /// Bytes of a ring; as many slots or receives as hold so much.
    pub room: u64,
    /// How many ops the sender's link has under way at most.
    pub slots: u16,
}

impl Shape {
    /// For messages of 64 B.
    #[must_use]
    pub const fn small(kind: Kind, slots: u16) -> Self {
        Self { kind, len_max: 64, room: 1 << 18, slots }
    }
}

/// Makes the error of a channel that does not do what it should.
pub(super) fn failed(kind: Kind) -> impl Fn(&dyn fmt::Display) -> PairError {
    move |why| FigureError::Channel { kind, why: why.to_string() }.into()
}

/// Opens both ends of a channel. `peers` are the sender and the receiver.
pub(super) fn open(
    shape: Shape,
    from: &dyn Gate,
    to: &dyn Gate,
    peers: [Peer; 2],
) -> Result<Ends, PairError> {
    let Shape { kind, len_max, room, .. } = shape;
    let [here, there] = peers;
    let failed = failed(kind);
    let failed = |error: &dyn fmt::Display| failed(error);
    let len = RingLen::new(room.next_power_of_two()).map_err(|error| failed(&error))?;
    let ring = |peer| RingConfig::with_peer(peer).with(|it| (it.len_max, it.len) = (len_max, len));
    let count = (room / u64::from(len_max).next_multiple_of(64)).clamp(2, 1024) as u16;
    let count = 1 << count.ilog2();
    let slots =
        |peer| SlotConfig::with_peer(peer).with(|it| (it.slots, it.len_max) = (count, len_max));
    let receives = |peer| {
        SendRecvConfig::with_peer(peer).with(|it| (it.receives, it.len_max) = (count, len_max))
    };
    let read_ring = ReadRingConfig::default().with(|it| (it.len_max, it.len) = (len_max, len));
    let read_slots = ReadSlotConfig::default().with(|it| {
        (it.slots, it.len_max) = (count.min(128), len_max);
        it.copies = u32::from(it.slots) * len_max.next_multiple_of(8);
    });
    let looks = ReaderConfig::default().with(|it| it.every = Duration::ZERO);
    // Two ends that each are told what the other has to say.
    macro_rules! ends {
        ($of:ident, $config:expr) => {
            connect(
                kind,
                $of::Sender::open(from, $config(there)),
                $of::Receiver::open(to, $config(here)),
            )
        };
    }
    // A receiver that senders join; `mut` if it has to change to admit them.
    macro_rules! gathered {
        ($($change:ident)?; $of:ident, $config:expr $(, $waiting:expr)?) => {{
            let receiver = $of::Receiver::open(to, $config);
            let $($change)? receiver = receiver.map_err(|error| failed(&error))?;
            let terms = receiver.admit(to, here).map_err(|error| failed(&error))?;
            let sender = $of::Sender::join(from, &terms $(, $waiting)?);
            boxed(sender.map_err(|error| failed(&error))?, receiver)
        }};
    }
    // A sender that receivers join.
    macro_rules! read {
        ($family:ident::$of:ident, $config:expr) => {{
            let sender = $family::$of::Sender::open(from, $config);
            let mut sender = sender.map_err(|error| failed(&error))?;
            let terms = sender.admit(from, there).map_err(|error| failed(&error))?;
            let receiver = $family::$of::Receiver::join(to, looks, &terms);
            boxed(sender, receiver.map_err(|error| failed(&error))?)
        }};
    }
    // The same, of receivers that have something to say.
    macro_rules! told {
        ($family:ident, $config:expr) => {{
            let sender = $family::notify_receiver::Sender::open(from, $config);
            let mut sender = sender.map_err(|error| failed(&error))?;
            let half = sender.admit(from, there).map_err(|error| failed(&error))?;
            let joined = $family::notify_receiver::Receiver::join(to, looks, here, half.terms());
            let (receiver, terms) = joined.map_err(|error| failed(&error))?;
            sender.accept(half, &terms).map_err(|error| failed(&error))?;
            boxed(sender, receiver)
        }};
    }
    Ok(match kind {
        Kind::SendRecvNormal => return ends!(normal, receives),
        Kind::SendRecvShared => {
            let config =
                SharedConfig::DEFAULT.with(|it| (it.receives, it.len_max) = (count, len_max));
            gathered!(; shared, config, count)
        }
        Kind::SendRecvBufferless => {
            let receiver = bufferless::Receiver::open(to, 0, count);
            let receiver = receiver.map_err(|error| failed(&error))?;
            let terms = receiver.admit(to, here).map_err(|error| failed(&error))?;
            let sender = bufferless::Sender::join(from, &terms, count);
            boxed(sender.map_err(|error| failed(&error))?, receiver)
        }
        Kind::WriteSlotDetached => {
            let bell = detached_bell::Bell::Word;
            let sender = detached_bell::Sender::open(from, slots(there), bell);
            return connect(kind, sender, detached_bell::Receiver::open(to, slots(here)));
        }
        Kind::WriteSlotInlined => return ends!(inlined_bell, slots),
        Kind::WriteSlotImmediate => return ends!(immediate, slots),
        Kind::WriteSlotReserve => {
            let config = ReserveConfig::new().with(|it| (it.slots, it.len_max) = (count, len_max));
            gathered!(; reserve_slot, config, count)
        }
        Kind::RingDetached => {
            use ring_buffer::detached_bell;
            return ends!(detached_bell, ring);
        }
        Kind::RingImmediate => {
            use ring_buffer::immediate;
            return ends!(immediate, ring);
        }
        Kind::RingWithZeroing => return ends!(with_zeroing, ring),
        Kind::RingWithoutZeroing => return ends!(without_zeroing, ring),
        Kind::SharedRingImmediate | Kind::SharedRingWithZeroing => {
            let config = SharedRingConfig::new().with(|it| (it.len, it.len_max) = (len, len_max));
            if kind == Kind::SharedRingImmediate {
                use shared_ring::immediate;
                gathered!(mut; immediate, config)
            } else {
                use shared_ring::with_zeroing;
                gathered!(mut; with_zeroing, config)
            }
        }
        Kind::ReadSlotDetached => read!(read_slot::detached_bell, read_slots),
        Kind::ReadSlotInlined => read!(read_slot::inlined_bell, read_slots),
        Kind::ReadSlotNotify => told!(read_slot, read_slots),
        Kind::ReadSlotIndirect => {
            let config = IndirectConfig::default()
                .with(|it| (it.buffers, it.senders, it.len_max) = (count, 1, len_max));
            let receiver = indirect_read::Receiver::open(to, config);
            let mut receiver = receiver.map_err(|error| failed(&error))?;
            let half = receiver.admit(to, here).map_err(|error| failed(&error))?;
            let joined = indirect_read::Sender::join(from, 0, there, half.terms());
            let (sender, terms) = joined.map_err(|error| failed(&error))?;
            receiver.accept(half, &terms).map_err(|error| failed(&error))?;
            boxed(sender, receiver)
        }
        Kind::ReadRingDetached => read!(read_ring::detached_bell, read_ring),
        Kind::ReadRingInlined => read!(read_ring::inlined_bell, read_ring),
        Kind::ReadRingNotify => told!(read_ring, read_ring),
    })
}

fn boxed<S: Sender + Send + 'static, R: Receiver + Send + 'static>(sender: S, receiver: R) -> Ends {
    (Box::new(sender), Box::new(receiver))
}

fn connect<S, R>(
    kind: Kind,
    sender: Result<Half<S>, OpenError>,
    receiver: Result<Half<R>, OpenError>,
) -> Result<Ends, PairError>
where
    S: Sender + Close + Send + 'static,
    R: Receiver + Close + Send + 'static,
{
    let (sender, receiver) = both(kind, sender, receiver)?;
    Ok(boxed(sender, receiver))
}

/// Both ends, once each has the other's terms.
pub(super) fn both<S: Close, R: Close>(
    kind: Kind,
    sender: Result<Half<S>, OpenError>,
    receiver: Result<Half<R>, OpenError>,
) -> Result<(S, R), PairError> {
    let failed = failed(kind);
    let sender = sender.map_err(|error| failed(&error))?;
    let receiver = receiver.map_err(|error| failed(&error))?;
    let (to, from) = (receiver.terms().clone(), sender.terms().clone());
    let sender = sender.connect(&to).map_err(|error| failed(&error))?;
    let receiver = receiver.connect(&from).map_err(|error| failed(&error))?;
    Ok((sender, receiver))
}
