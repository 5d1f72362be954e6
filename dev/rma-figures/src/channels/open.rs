//! Opening a channel of each kind, with one sender and one receiver.

use core::fmt;

use rma_bench::error::PairError;
use rma_xdp::{
    channel::{
        AnyEnd, AnyReceiver, AnySender, ChannelConfig, Close, Half, Kind, KindError, OpenError,
        Peer, Terms, ring::RingLen, terms::Side,
    },
    gate::Gate,
};

use crate::error::FigureError;

/// A sender and its receiver.
pub(super) type Ends = (AnySender, AnyReceiver);

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
    let failed = failed(kind);
    let ring = RingLen::new(room.next_power_of_two()).map_err(|error| failed(&error))?;
    let count = (room / u64::from(len_max).next_multiple_of(64)).clamp(2, 1024) as u16;
    let config = ChannelConfig::new(len_max, 1 << count.ilog2()).with(|it| it.ring = Some(ring));
    let ((home, us), (guest, peer)) = match kind.home() {
        Side::Sender => ((from, peers[0]), (to, peers[1])),
        Side::Receiver => ((to, peers[1]), (from, peers[0])),
    };
    let half = kind.open(home, &config, peer).map_err(|error| failed(&error.why))?;
    let joined = kind.join(guest, &config, us, half.terms());
    both_ends(half, joined, &failed)
}

/// Both ends of a channel, of which one was opened first and the other has joined.
pub(super) fn both_ends(
    half: Half<AnyEnd>,
    joined: Result<(AnyEnd, Terms), KindError>,
    failed: &dyn Fn(&dyn fmt::Display) -> PairError,
) -> Result<Ends, PairError> {
    let (joined, answer) = joined.map_err(|error| failed(&error.why))?;
    match (half.connect(&answer).map_err(|error| failed(&error))?, joined) {
        (AnyEnd::Sender(sender), AnyEnd::Receiver(receiver))
        | (AnyEnd::Receiver(receiver), AnyEnd::Sender(sender)) => Ok((sender, receiver)),
        _ => Err(failed(&"both of its ends are of one side")),
    }
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
