//! The kinds of channels: how each is opened, and its properties before that. Each kind is one row
//! of [`ROWS`] and one function; all tests run over all rows.
//!
//! | module | whose functions |
//! |---|---|
//! | `any` | all kinds, as [`Kind::open`] opens them |
//! | `lent` | senders that are lent places in the application's memory: 17 |
//! | `pairs` | two channels that ride on each other: 1, 4 to 6, 8 to 11 |

use rma_channel::{Kind, Sender, Terms};
use rma_sim::net::frame::NodeId;

use super::{end::End, hosts::Hosts};

// Whoever includes this file by its path finds them in the same place.
#[path = "kinds/any.rs"]
mod any;
#[path = "kinds/lent.rs"]
mod lent;
#[path = "kinds/pairs.rs"]
mod pairs;

/// The settings that a channel is opened with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The application's name for it.
    pub name: u64,
    /// The nodes of its senders: one, unless the kind is for several.
    pub senders: Vec<NodeId>,
    /// The nodes of its receivers: one, unless the kind is for several.
    pub receivers: Vec<NodeId>,
    /// The longest message.
    pub len_max: u32,
    /// How many of the longest messages there is room for at least: slots, receives, or a part of a
    /// ring.
    pub room: u64,
}

/// A channel's ends, and where they are.
#[derive(Debug)]
pub struct Ends {
    /// The senders, and the nodes that they are on.
    pub senders: Vec<(NodeId, Box<dyn Sender>)>,
    /// The receivers, and the nodes that they are on.
    pub receivers: Vec<(NodeId, Box<dyn End>)>,
}

/// One kind.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The kind that channels of this row are.
    pub kind: Kind,
    /// Opens a channel.
    pub open: Open,
    /// How many senders one channel may have.
    pub senders: usize,
    /// How many receivers one channel may have.
    pub receivers: usize,
    /// The shortest message that it takes, in bytes.
    pub shortest: u32,
    /// The largest `len_max` that it can be opened with; where there is no such limit, several ops'
    /// worth.
    pub longest: u32,
    /// Whether a sender is told what is processed. Otherwise a message ends by being accepted.
    pub is_told: bool,
    /// Of kinds whose messages lie in the sender's memory until receivers have read them, and so
    /// are accepted before they have come to anybody: how a channel is opened whose receivers read
    /// into memory of the application's.
    pub into: Option<Open>,
    /// Whether it reads beyond bells, so that messages come sooner than the table says.
    pub prefetches: bool,
    /// Whether messages of all senders come in one order, that of their places: one that is
    /// accepted is in the receiver's memory, and comes when all before it are there, too.
    pub has_places: bool,
    /// Whether the receiver lends buffers to senders, and can take them back.
    pub lends: bool,
    /// Whether it is two channels in opposite directions that ride on each other: of a sender and a
    /// receiver each, in the order of the channels.
    pub is_duplex: bool,
}

/// Several ends, where a kind may have any number.
pub const MANY: usize = 4;

/// All kinds that there are, in the order of Table 2.
pub const ROWS: &[Row] = &[
    pair(Kind::SendRecvNormal, any::open),
    Row { senders: MANY, is_told: false, ..pair(Kind::SendRecvShared, any::open) },
    Row {
        senders: MANY,
        shortest: 8,
        longest: 8,
        is_told: false,
        ..pair(Kind::SendRecvBufferless, any::open)
    },
    Row { longest: 10_000, ..pair(Kind::WriteSlotDetached, any::open) },
    Row { longest: 10_000, ..pair(Kind::WriteSlotDetached, any::open_waking) },
    Row { longest: 10_000, ..pair(Kind::WriteSlotInlined, any::open) },
    Row { longest: 10_000, ..pair(Kind::WriteSlotImmediate, any::open) },
    Row {
        senders: MANY,
        longest: 10_000,
        is_told: false,
        ..pair(Kind::WriteSlotReserve, any::open)
    },
    Row { longest: 10_000, ..pair(Kind::RingDetached, any::open) },
    Row { longest: 10_000, ..pair(Kind::RingImmediate, any::open) },
    Row { longest: 10_000, ..pair(Kind::RingWithZeroing, any::open) },
    Row { longest: 10_000, ..pair(Kind::RingWithoutZeroing, any::open) },
    Row { senders: MANY, ..pair(Kind::SharedRingImmediate, any::open) },
    Row {
        senders: MANY,
        longest: 4080,
        has_places: true,
        ..pair(Kind::SharedRingWithZeroing, any::open)
    },
    broadcast(Kind::ReadSlotDetached),
    broadcast(Kind::ReadSlotInlined),
    broadcast(Kind::ReadSlotNotify),
    lends(any::open),
    lends(lent::open_offered),
    broadcast(Kind::ReadRingDetached),
    broadcast(Kind::ReadRingInlined),
    Row { open: any::open_ahead, prefetches: true, ..broadcast(Kind::ReadRingInlined) },
    broadcast(Kind::ReadRingNotify),
];

/// Kinds that are tried as duplex channels as well: all that can.
pub const DUPLEX: &[Row] = &[
    both_ways(Kind::SendRecvNormal, pairs::duplex_send_recv, 4096 - 8),
    both_ways(Kind::WriteSlotDetached, pairs::duplex_slot_detached, 10_000),
    both_ways(Kind::WriteSlotInlined, pairs::duplex_slot_inlined, 10_000),
    both_ways(Kind::WriteSlotImmediate, pairs::duplex_slot_immediate, 10_000),
    both_ways(Kind::RingDetached, pairs::duplex_ring_detached, 10_000),
    both_ways(Kind::RingImmediate, pairs::duplex_ring_immediate, 10_000),
    both_ways(Kind::RingWithZeroing, pairs::duplex_ring_with_zeroing, 10_000),
    both_ways(Kind::RingWithoutZeroing, pairs::duplex_ring_without_zeroing, 10_000),
];

/// Two channels of a kind that ride on each other.
const fn both_ways(kind: Kind, open: Open, longest: u32) -> Row {
    Row { longest, is_duplex: true, ..pair(kind, open) }
}

type Open = fn(&mut dyn Hosts, Kind, &Settings) -> Ends;

/// A kind with one sender whose memory any number of receivers read, into images or into memory of
/// the application's.
const fn broadcast(kind: Kind) -> Row {
    Row { receivers: MANY, longest: 10_000, into: Some(any::open_into), ..pair(kind, any::open) }
}

/// The kind whose receiver lends buffers.
const fn lends(open: Open) -> Row {
    let one = pair(Kind::ReadSlotIndirect, open);
    Row { senders: MANY, longest: 10_000, is_told: false, lends: true, ..one }
}

/// A kind with one sender and one receiver, for messages of one op at most.
const fn pair(kind: Kind, open: Open) -> Row {
    Row {
        kind,
        open,
        senders: 1,
        receivers: 1,
        shortest: 1,
        longest: 4096,
        is_told: true,
        into: None,
        prefetches: false,
        has_places: false,
        lends: false,
        is_duplex: false,
    }
}

/// The kinds to be tried: all, or the one that RMA_CHANNEL_KIND names.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    let only = std::env::var("RMA_CHANNEL_KIND").ok();
    ROWS.iter()
        .chain(DUPLEX)
        .filter(move |row| only.as_ref().is_none_or(|only| *only == (row.kind as u8).to_string()))
}

impl Row {
    /// The same kind with receivers that read into memory of the application's, if it has such.
    pub fn reading(&self) -> Option<Self> {
        self.into.map(|open| Self { open, prefetches: false, ..*self })
    }

    /// Returns the settings of a channel whose ends are on nodes of their own, senders first: two
    /// ends, or as many as it may have if `many`. And how many nodes that takes.
    pub fn settings(&self, len_max: u32, room: u64, many: bool) -> (Settings, u16) {
        if self.is_duplex {
            let nodes = [NodeId(0), NodeId(1)];
            let (senders, receivers) = (nodes.to_vec(), nodes.into_iter().rev().collect());
            return (Settings { name: 7, senders, receivers, len_max, room }, 2);
        }
        let (senders, receivers) = if many { (self.senders, self.receivers) } else { (1, 1) };
        let nodes = (senders + receivers) as u16;
        let (from, to) = (0..senders as u16, senders as u16..nodes);
        let (senders, receivers) = (from.map(NodeId).collect(), to.map(NodeId).collect());
        (Settings { name: 7, senders, receivers, len_max, room }, nodes)
    }
}

/// Terms as they come out of what carried them.
fn carried(terms: &Terms) -> Terms {
    Terms::from_bytes(&terms.to_bytes()).unwrap()
}
