//! How a channel of each kind is opened, and what is to be known of it before. Each kind is one
//! row of [`ROWS`] and one function; all tests run over all rows.

use core::fmt::Debug;
use std::sync::Arc;

use rma_channel::{
    Half, Kind, OpenError, Peer, ReceiveInto, Sender, Terms,
    read_ring::{self, ReadRingConfig, ReaderConfig},
    read_slot::{
        self, ReadSlotConfig,
        indirect_read::{self, IndirectConfig},
    },
    ring::RingLen,
    ring_buffer::{self, RingConfig, with_zeroing, without_zeroing},
    send_recv::{SendRecvConfig, SharedConfig, bufferless, normal, shared},
    shared_ring::{
        self, SharedRingConfig,
        receiver::{Finds, SharedReceiver},
        sender::SharedSender,
    },
    write_slot::{SlotConfig, detached_bell, immediate, inlined_bell, reserve_slot},
};
use rma_shm::Region;
use rma_sim::net::frame::NodeId;

use super::{
    end::{End, Offers, Reads, Recovers},
    world::{NodeRegistrar, World},
};

/// What a channel is opened with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The application's name for it.
    pub(crate) name: u64,
    /// Where its senders are: one, unless the kind is for several.
    pub(crate) senders: Vec<NodeId>,
    /// Where its receivers are: one, unless the kind is for several.
    pub(crate) receivers: Vec<NodeId>,
    /// The longest message.
    pub(crate) len_max: u32,
    /// How many of the longest messages there is room for at least: slots, receives, or a part of a
    /// ring.
    pub(crate) room: u64,
}

/// A channel's ends, and where they are.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) senders: Vec<(NodeId, Box<dyn Sender>)>,
    pub(crate) receivers: Vec<(NodeId, Box<dyn End>)>,
}

/// One kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) open: fn(&mut World, &Settings) -> Ends,
    /// How many senders one channel may have.
    pub(crate) senders: usize,
    /// How many receivers one channel may have.
    pub(crate) receivers: usize,
    /// The shortest message that it takes, in bytes.
    pub(crate) shortest: u32,
    /// What `len_max` it can be opened with at most; where there is no such limit, several ops'
    /// worth.
    pub(crate) longest: u32,
    /// Whether a sender is told what is processed. Otherwise a message ends by being accepted.
    pub(crate) is_told: bool,
    /// Of kinds whose messages lie in the sender's memory until receivers have read them, and so
    /// are accepted before they have come to anybody: how a channel is opened whose receivers read
    /// into memory of the application's.
    pub(crate) into: Option<Open>,
    /// Whether it reads beyond bells, so that messages come sooner than the table says.
    pub(crate) prefetches: bool,
    /// Whether messages of all senders come in one order, that of their places: one that is
    /// accepted is in the receiver's memory, and comes when all before it are there, too.
    pub(crate) has_places: bool,
    /// Whether the receiver lends buffers to senders, and can take them back.
    pub(crate) lends: bool,
    /// Whether it is two channels in opposite directions that ride on each other: of a sender and a
    /// receiver each, in the order of the channels.
    pub(crate) is_duplex: bool,
}

/// How many bytes receivers read beyond bells, if they do.
const PREFETCH: u32 = 500;

/// Several ends, where a kind may have any number.
pub(crate) const MANY: usize = 4;

/// All kinds that there are, in the order of Table 2.
pub(crate) const ROWS: &[Row] = &[
    pair(Kind::SendRecvNormal, send_recv_normal),
    Row { senders: MANY, is_told: false, ..pair(Kind::SendRecvShared, send_recv_shared) },
    Row {
        senders: MANY,
        shortest: 8,
        longest: 8,
        is_told: false,
        ..pair(Kind::SendRecvBufferless, send_recv_bufferless)
    },
    Row { longest: 10_000, ..pair(Kind::WriteSlotDetached, write_slot_detached) },
    Row { longest: 10_000, ..pair(Kind::WriteSlotDetached, write_slot_waking) },
    Row { longest: 10_000, ..pair(Kind::WriteSlotInlined, write_slot_inlined) },
    Row { longest: 10_000, ..pair(Kind::WriteSlotImmediate, write_slot_immediate) },
    Row {
        senders: MANY,
        longest: 10_000,
        is_told: false,
        ..pair(Kind::WriteSlotReserve, write_slot_reserve)
    },
    Row { longest: 10_000, ..pair(Kind::RingDetached, ring_detached) },
    Row { longest: 10_000, ..pair(Kind::RingImmediate, ring_immediate) },
    Row { longest: 10_000, ..pair(Kind::RingWithZeroing, ring_with_zeroing) },
    Row { longest: 10_000, ..pair(Kind::RingWithoutZeroing, ring_without_zeroing) },
    Row { senders: MANY, ..pair(Kind::SharedRingImmediate, shared_ring_immediate) },
    Row {
        senders: MANY,
        longest: 4080,
        has_places: true,
        ..pair(Kind::SharedRingWithZeroing, shared_ring_with_zeroing)
    },
    broadcast(Kind::ReadSlotDetached, [read_slot_detached, read_slot_detached_into]),
    broadcast(Kind::ReadSlotInlined, [read_slot_inlined, read_slot_inlined_into]),
    broadcast(Kind::ReadSlotNotify, [read_slot_notify, read_slot_notify_into]),
    Row {
        senders: MANY,
        longest: 10_000,
        is_told: false,
        lends: true,
        ..pair(Kind::ReadSlotIndirect, read_slot_indirect)
    },
    Row {
        senders: MANY,
        longest: 10_000,
        is_told: false,
        lends: true,
        ..pair(Kind::ReadSlotIndirect, read_slot_offered)
    },
    broadcast(Kind::ReadRingDetached, [read_ring_detached, read_ring_detached_into]),
    broadcast(Kind::ReadRingInlined, [read_ring_inlined, read_ring_inlined_into]),
    Row {
        prefetches: true,
        ..broadcast(Kind::ReadRingInlined, [read_ring_prefetched, read_ring_inlined_into])
    },
    broadcast(Kind::ReadRingNotify, [read_ring_notify, read_ring_notify_into]),
];

/// Kinds that are tried as duplex channels as well: all that can.
pub(crate) const DUPLEX: &[Row] = &[
    both_ways(Kind::SendRecvNormal, duplex_send_recv, 4096 - 8),
    both_ways(Kind::WriteSlotDetached, duplex_slot_detached, 10_000),
    both_ways(Kind::WriteSlotInlined, duplex_slot_inlined, 10_000),
    both_ways(Kind::WriteSlotImmediate, duplex_slot_immediate, 10_000),
    both_ways(Kind::RingDetached, duplex_ring_detached, 10_000),
    both_ways(Kind::RingImmediate, duplex_ring_immediate, 10_000),
    both_ways(Kind::RingWithZeroing, duplex_ring_with_zeroing, 10_000),
    both_ways(Kind::RingWithoutZeroing, duplex_ring_without_zeroing, 10_000),
];

/// Two channels of a kind that ride on each other.
const fn both_ways(kind: Kind, open: Open, longest: u32) -> Row {
    Row { longest, is_duplex: true, ..pair(kind, open) }
}

type Open = fn(&mut World, &Settings) -> Ends;

/// A kind with one sender whose memory any number of receivers read, into images or into memory of
/// the application's.
const fn broadcast(kind: Kind, [open, into]: [Open; 2]) -> Row {
    Row { receivers: MANY, longest: 10_000, into: Some(into), ..pair(kind, open) }
}

/// A kind with one sender and one receiver, for messages of one op at most.
const fn pair(kind: Kind, open: fn(&mut World, &Settings) -> Ends) -> Row {
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
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    let only = std::env::var("RMA_CHANNEL_KIND").ok();
    ROWS.iter()
        .chain(DUPLEX)
        .filter(move |row| only.as_ref().is_none_or(|only| *only == (row.kind as u8).to_string()))
}

impl Row {
    /// The same kind with receivers that read into memory of the application's, if it has such.
    pub(crate) fn reading(&self) -> Option<Self> {
        self.into.map(|open| Self { open, prefetches: false, ..*self })
    }

    /// What a channel is opened with whose ends are on nodes of their own, senders first: two ends,
    /// or as many as it may have if `many`. And how many nodes that takes.
    pub(crate) fn settings(&self, len_max: u32, room: u64, many: bool) -> (Settings, u16) {
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

impl Settings {
    /// The sender of a channel of two ends, then its receiver: where each is, and who is its peer.
    fn both(&self, world: &World) -> [(NodeId, Peer); 2] {
        let (from, to) = (self.senders[0], self.receivers[0]);
        [(from, world.peer(to)), (to, world.peer(from))]
    }

    fn ring(&self, peer: Peer) -> RingConfig {
        // What a record has besides its message, and what it is padded to.
        let len = self.room * u64::from(self.len_max + 16).next_multiple_of(64);
        let len = RingLen::new(len.next_power_of_two().max(RingLen::MIN)).unwrap();
        RingConfig::with_peer(peer).with(|it| {
            (it.name, it.len, it.len_max) = (self.name, len, self.len_max);
        })
    }
}

/// The ends of a channel whose receiver is shared, for senders that `join` with its terms.
fn gather<R: Recovers + 'static, S: Sender + 'static>(
    world: &mut World,
    it: &Settings,
    mut receiver: R,
    admit: impl Fn(&mut R, &mut NodeRegistrar<'_>, Peer) -> Terms,
    join: impl Fn(&mut NodeRegistrar<'_>, &Terms) -> S,
) -> Ends {
    let home = it.receivers[0];
    let sender = |&node: &NodeId| -> (NodeId, Box<dyn Sender>) {
        let peer = world.peer(node);
        let terms = carried(&admit(&mut receiver, &mut world.registrar(home), peer));
        (node, Box::new(join(&mut world.registrar(node), &terms)))
    };
    let senders = it.senders.iter().map(sender).collect();
    Ends { senders, receivers: vec![(home, Box::new(receiver))] }
}

/// Both ends of a channel that has two, once each has the other's terms, carried over as bytes.
fn connect<S: Sender + 'static, R: Recovers + 'static, E: core::error::Error>(
    settings: &Settings,
    sender: Result<Half<S>, OpenError<E>>,
    receiver: Result<Half<R>, OpenError<E>>,
) -> Ends {
    let (sender, receiver) = (sender.unwrap(), receiver.unwrap());
    let (to, from) = (carried(receiver.terms()), carried(sender.terms()));
    let (sender, receiver) = (sender.connect(&to).unwrap(), receiver.connect(&from).unwrap());
    Ends {
        senders: vec![(settings.senders[0], Box::new(sender))],
        receivers: vec![(settings.receivers[0], Box::new(receiver))],
    }
}

/// A function that opens two channels of a kind in opposite directions, which ride on each other.
/// `by` is what its senders are opened with besides.
macro_rules! duplex {
    ($name:ident, $of:path, $settings:ident $(, $by:expr)?) => {
        fn $name(world: &mut World, it: &Settings) -> Ends {
            use $of::{Receiver, Sender};
            let [(here, at_there), (there, at_here)] = it.both(world);
            // What rides takes a word of each message.
            let it = Settings { len_max: it.len_max + 8, ..it.clone() };
            let to_there = it.$settings(at_there);
            let to_here = it.$settings(at_here);
            let sender = Sender::open(&mut world.registrar(here), to_there $(, $by)?);
            let receiver = Receiver::open(&mut world.registrar(here), to_there);
            let (sender, receiver) = (sender.unwrap(), receiver.unwrap());
            let other_sender = Sender::open(&mut world.registrar(there), to_here $(, $by)?);
            let other_receiver = Receiver::open(&mut world.registrar(there), to_here);
            let (other_sender, other_receiver) = (other_sender.unwrap(), other_receiver.unwrap());
            let to = [carried(other_receiver.terms()), carried(receiver.terms())];
            let from = [carried(sender.terms()), carried(other_sender.terms())];
            let [there_from, here_from] =
                [other_receiver.connect(&from[0]), receiver.connect(&from[1])];
            let [here_to, there_to] = [sender.connect(&to[0]), other_sender.connect(&to[1])];
            let (sender, receiver) = rma_channel::duplex(here_to.unwrap(), here_from.unwrap());
            let (other_sender, other_receiver) =
                rma_channel::duplex(there_to.unwrap(), there_from.unwrap());
            Ends {
                senders: vec![(here, Box::new(sender)), (there, Box::new(other_sender))],
                receivers: vec![(there, Box::new(other_receiver)), (here, Box::new(receiver))],
            }
        }
    };
}

duplex!(duplex_send_recv, normal, send_recv);
duplex!(duplex_slot_detached, detached_bell, slots, detached_bell::Bell::Word);
duplex!(duplex_slot_inlined, inlined_bell, slots);
duplex!(duplex_slot_immediate, immediate, slots);
duplex!(duplex_ring_detached, ring_buffer::detached_bell, ring);
duplex!(duplex_ring_immediate, ring_buffer::immediate, ring);
duplex!(duplex_ring_with_zeroing, with_zeroing, ring);
duplex!(duplex_ring_without_zeroing, without_zeroing, ring);

/// Terms as they come out of what carried them.
fn carried(terms: &Terms) -> Terms {
    Terms::from_bytes(&terms.to_bytes()).unwrap()
}

impl Settings {
    fn send_recv(&self, peer: Peer) -> SendRecvConfig {
        SendRecvConfig::with_peer(peer).with(|it| {
            (it.name, it.receives, it.len_max) = (self.name, self.room as u16, self.len_max);
        })
    }

    fn slots(&self, peer: Peer) -> SlotConfig {
        SlotConfig::with_peer(peer).with(|it| {
            (it.name, it.slots, it.len_max) = (self.name, self.room as u16, self.len_max);
        })
    }
}

fn send_recv_normal(world: &mut World, it: &Settings) -> Ends {
    use normal::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.send_recv(receiver));
    let from = Receiver::open(&mut world.registrar(there), it.send_recv(sender));
    connect(it, to, from)
}

fn send_recv_shared(world: &mut World, it: &Settings) -> Ends {
    use shared::{Receiver, Sender};
    let config = SharedConfig::DEFAULT.with(|config| {
        (config.name, config.receives, config.len_max) = (it.name, it.room as u16, it.len_max);
    });
    let receiver = Receiver::open(&mut world.registrar(it.receivers[0]), config).unwrap();
    let join = |registrar: &mut NodeRegistrar<'_>, terms: &Terms| {
        Sender::join(registrar, terms, it.room as u16).unwrap()
    };
    let admit = |receiver: &mut Receiver, registrar: &mut NodeRegistrar<'_>, peer| {
        receiver.admit(registrar, peer).unwrap()
    };
    gather(world, it, receiver, admit, join)
}

fn send_recv_bufferless(world: &mut World, it: &Settings) -> Ends {
    use bufferless::{Receiver, Sender};
    let home = &mut world.registrar(it.receivers[0]);
    let receiver = Receiver::open(home, it.name, it.room as u16).unwrap();
    let join = |registrar: &mut NodeRegistrar<'_>, terms: &Terms| {
        Sender::join(registrar, terms, it.room as u16).unwrap()
    };
    let admit = |receiver: &mut Receiver, registrar: &mut NodeRegistrar<'_>, peer| {
        receiver.admit(registrar, peer).unwrap()
    };
    gather(world, it, receiver, admit, join)
}

fn write_slot_detached(world: &mut World, it: &Settings) -> Ends {
    use detached_bell::{Bell, Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.slots(receiver), Bell::Word);
    let from = Receiver::open(&mut world.registrar(there), it.slots(sender));
    connect(it, to, from)
}

fn write_slot_waking(world: &mut World, it: &Settings) -> Ends {
    use detached_bell::{Bell, Sender, WakingReceiver};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.slots(receiver), Bell::Event);
    let from = WakingReceiver::open(&mut world.registrar(there), it.slots(sender));
    connect(it, to, from)
}

fn write_slot_inlined(world: &mut World, it: &Settings) -> Ends {
    use inlined_bell::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.slots(receiver));
    let from = Receiver::open(&mut world.registrar(there), it.slots(sender));
    connect(it, to, from)
}

fn write_slot_immediate(world: &mut World, it: &Settings) -> Ends {
    use immediate::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.slots(receiver));
    let from = Receiver::open(&mut world.registrar(there), it.slots(sender));
    connect(it, to, from)
}

fn write_slot_reserve(world: &mut World, it: &Settings) -> Ends {
    use reserve_slot::{Receiver, ReserveConfig, Sender};
    let timing = world.timing();
    let config = ReserveConfig::new().with(|config| {
        (config.name, config.slots, config.len_max) = (it.name, it.room as u16, it.len_max);
        config.hole_timeout =
            ReserveConfig::hole_timeout_min(timing.dispatch_timeout, timing.timeout);
    });
    let receiver = Receiver::open(&mut world.registrar(it.receivers[0]), config).unwrap();
    let join = |registrar: &mut NodeRegistrar<'_>, terms: &Terms| {
        Sender::join(registrar, terms, it.room as u16).unwrap()
    };
    let admit = |receiver: &mut Receiver, registrar: &mut NodeRegistrar<'_>, peer| {
        receiver.admit(registrar, peer).unwrap()
    };
    gather(world, it, receiver, admit, join)
}

fn ring_detached(world: &mut World, it: &Settings) -> Ends {
    use ring_buffer::detached_bell::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.ring(receiver));
    let from = Receiver::open(&mut world.registrar(there), it.ring(sender));
    connect(it, to, from)
}

fn ring_immediate(world: &mut World, it: &Settings) -> Ends {
    use ring_buffer::immediate::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.ring(receiver));
    let from = Receiver::open(&mut world.registrar(there), it.ring(sender));
    connect(it, to, from)
}

fn ring_with_zeroing(world: &mut World, it: &Settings) -> Ends {
    use with_zeroing::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.ring(receiver));
    let from = Receiver::open(&mut world.registrar(there), it.ring(sender));
    connect(it, to, from)
}

fn ring_without_zeroing(world: &mut World, it: &Settings) -> Ends {
    use without_zeroing::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&mut world.registrar(here), it.ring(receiver));
    let from = Receiver::open(&mut world.registrar(there), it.ring(sender));
    connect(it, to, from)
}

fn shared_ring_immediate(world: &mut World, it: &Settings) -> Ends {
    gather_ring::<shared_ring::immediate::Events>(world, it)
}

fn shared_ring_with_zeroing(world: &mut World, it: &Settings) -> Ends {
    gather_ring::<shared_ring::with_zeroing::Records>(world, it)
}

fn gather_ring<F: Finds>(world: &mut World, it: &Settings) -> Ends {
    let len = it.ring(world.peer(it.receivers[0])).len;
    let (dispatch_timeout, timeout) = world.timeouts();
    let config = SharedRingConfig::new().with(|config| {
        (config.name, config.len, config.len_max) = (it.name, len, it.len_max);
        (config.dispatch_timeout, config.timeout) = (dispatch_timeout, timeout);
        config.hole_timeout = SharedRingConfig::hole_timeout_min(dispatch_timeout, timeout);
    });
    let home = &mut world.registrar(it.receivers[0]);
    let receiver = SharedReceiver::<F>::open(home, config).unwrap();
    let join = |registrar: &mut NodeRegistrar<'_>, terms: &Terms| {
        SharedSender::<F::Form>::join(registrar, terms).unwrap()
    };
    let admit = |receiver: &mut SharedReceiver<F>, registrar: &mut NodeRegistrar<'_>, peer| {
        receiver.admit(registrar, peer).unwrap()
    };
    gather(world, it, receiver, admit, join)
}

impl Settings {
    fn read_ring(&self, world: &World) -> ReadRingConfig {
        self.read_ring_with(world, 0)
    }

    /// With room to read ahead.
    fn read_ring_ahead(&self, world: &World) -> ReadRingConfig {
        self.read_ring_with(world, PREFETCH)
    }

    fn read_ring_with(&self, world: &World, prefetch: u32) -> ReadRingConfig {
        // What a record has besides its message, and what stays zero beyond the newest.
        let len = self.room * u64::from(self.len_max + 16) + u64::from(prefetch) + 16;
        let len = len.next_power_of_two().max(RingLen::MIN);
        ReadRingConfig::default().with(|it| {
            (it.name, it.len, it.len_max) = (self.name, RingLen::new(len).unwrap(), self.len_max);
            (it.prefetch, it.readers) = (prefetch, MANY as u16);
            it.reader_timeout = world.reader_timeout();
        })
    }

    fn reader(&self, world: &World, prefetch: u32) -> ReaderConfig {
        let every = world.look_every();
        ReaderConfig::new()
            .with(|it| (it.name, it.prefetch, it.every) = (self.name, prefetch, every))
    }
}

impl Settings {
    fn read_slots(&self, world: &World, slots: u64) -> ReadSlotConfig {
        let copies = self.room as u32 * self.len_max.next_multiple_of(8);
        ReadSlotConfig::default().with(|it| {
            (it.name, it.slots, it.len_max) = (self.name, slots as u16, self.len_max);
            (it.copies, it.readers) = (copies, MANY as u16);
            it.reader_timeout = world.reader_timeout();
        })
    }

    /// Twice as many bells as there is room for the longest messages.
    fn read_slots_by_len(&self, world: &World) -> ReadSlotConfig {
        self.read_slots(world, 2 * self.room)
    }

    /// As many bells as there is room for messages.
    fn read_slots_alike(&self, world: &World) -> ReadSlotConfig {
        self.read_slots(world, self.room)
    }
}

/// One sender, and as many receivers as there are to be: how the sender is opened, and how each
/// receiver joins it.
fn read<S: Sender + 'static>(
    world: &mut World,
    it: &Settings,
    open: impl FnOnce(&mut World, NodeId) -> S,
    mut join: impl FnMut(&mut World, &mut S, [NodeId; 2]) -> Box<dyn End>,
) -> Ends {
    let from = it.senders[0];
    let mut sender = open(world, from);
    let receivers = it.receivers.iter().map(|&to| (to, join(world, &mut sender, [from, to])));
    let receivers = receivers.collect();
    Ends { senders: vec![(from, Box::new(sender))], receivers }
}

/// Functions that open a kind whose receivers read: two of one sender, by which of its receivers.
/// `told` is one that is told of messages, and so tells terms as well.
macro_rules! readers {
    (
        $sender:path, $settings:expr, $prefetch:expr,
        $([$name:ident, $receiver:path, $end:expr]),*
    ) => {
        $(fn $name(world: &mut World, it: &Settings) -> Ends {
            use $receiver as Reader;
            use $sender as Sender;
            let open = |world: &mut World, from| {
                let config = $settings(it, world);
                Sender::open(&mut world.registrar(from), config).unwrap()
            };
            read(world, it, open, |world, sender: &mut Sender, [from, to]| {
                let (peer, config) = (world.peer(to), it.reader(world, $prefetch));
                let terms = sender.admit(&mut world.registrar(from), peer).unwrap();
                let registrar = &mut world.registrar(to);
                let reader = Reader::join(registrar, config, &carried(&terms)).unwrap();
                $end(reader, registrar, it)
            })
        })*
    };
    (told $sender:path, $settings:expr, $([$name:ident, $receiver:path, $end:expr]),*) => {
        $(fn $name(world: &mut World, it: &Settings) -> Ends {
            use $receiver as Reader;
            use $sender as Sender;
            let open = |world: &mut World, from| {
                let config = $settings(it, world);
                Sender::open(&mut world.registrar(from), config).unwrap()
            };
            read(world, it, open, |world, sender: &mut Sender, [from, to]| {
                let [us, peer] = [from, to].map(|node| world.peer(node));
                let config = it.reader(world, 0);
                let half = sender.admit(&mut world.registrar(from), peer).unwrap();
                let told = (us, &carried(half.terms()));
                let registrar = &mut world.registrar(to);
                let (reader, terms) = Reader::join(registrar, config, told).unwrap();
                let reader = $end(reader, registrar, it);
                sender.accept(half, &carried(&terms)).unwrap();
                reader
            })
        })*
    };
}

/// A receiver that has memory of its own for messages.
fn claims(reader: impl End + 'static, _: &mut NodeRegistrar<'_>, _: &Settings) -> Box<dyn End> {
    Box::new(reader)
}

/// A receiver that reads into the application's.
fn reads<I: ReceiveInto + 'static>(
    into: I,
    registrar: &mut NodeRegistrar<'_>,
    it: &Settings,
) -> Box<dyn End> {
    Box::new(Reads::new(into, registrar, it.len_max))
}

readers! {
    read_slot::detached_bell::Sender, Settings::read_slots_by_len, 0,
    [read_slot_detached, read_slot::detached_bell::Receiver, claims],
    [read_slot_detached_into, read_slot::detached_bell::Into, reads]
}

readers! {
    read_slot::inlined_bell::Sender, Settings::read_slots_alike, 0,
    [read_slot_inlined, read_slot::inlined_bell::Receiver, claims],
    [read_slot_inlined_into, read_slot::inlined_bell::Into, reads]
}

readers! {
    told read_slot::notify_receiver::Sender, Settings::read_slots_by_len,
    [read_slot_notify, read_slot::notify_receiver::Receiver, claims],
    [read_slot_notify_into, read_slot::notify_receiver::Into, reads]
}

readers! {
    read_ring::detached_bell::Sender, Settings::read_ring, 0,
    [read_ring_detached, read_ring::detached_bell::Receiver, claims],
    [read_ring_detached_into, read_ring::detached_bell::Into, reads]
}

readers! {
    read_ring::inlined_bell::Sender, Settings::read_ring, 0,
    [read_ring_inlined, read_ring::inlined_bell::Receiver, claims],
    [read_ring_inlined_into, read_ring::inlined_bell::Into, reads]
}

readers! {
    read_ring::inlined_bell::Sender, Settings::read_ring_ahead, PREFETCH,
    [read_ring_prefetched, read_ring::inlined_bell::Receiver, claims]
}

readers! {
    told read_ring::notify_receiver::Sender, Settings::read_ring,
    [read_ring_notify, read_ring::notify_receiver::Receiver, claims],
    [read_ring_notify_into, read_ring::notify_receiver::Into, reads]
}

impl Settings {
    /// A pool of as many buffers as there is to be room, and one for each sender at least.
    fn indirect(&self) -> IndirectConfig {
        let (senders, room) = (self.senders.len() as u16, self.room as u16);
        IndirectConfig::default().with(|config| {
            (config.name, config.len_max, config.lent) = (self.name, self.len_max, room);
            (config.senders, config.buffers) = (senders, senders.max(room));
        })
    }
}

/// Buffers of a channel's pool. Who has something to send is told only what later offers tell.
fn read_slot_indirect(world: &mut World, it: &Settings) -> Ends {
    let home = &mut world.registrar(it.receivers[0]);
    let receiver = indirect_read::Receiver::open(home, it.indirect()).unwrap();
    lend(world, it, receiver, |receiver| receiver)
}

/// Places in the application's memory, which it offers one by one.
fn read_slot_offered(world: &mut World, it: &Settings) -> Ends {
    let config = it.indirect();
    let len = config.memory_len();
    let memory = Arc::new(Region::new(len as usize).unwrap());
    let home = &mut world.registrar(it.receivers[0]);
    let receiver = indirect_read::Receiver::open_unlent(home, config, memory).unwrap();
    let step = len / u64::from(config.buffers);
    let places = (0..len).step_by(step as usize).collect();
    lend(world, it, Offers::new(receiver, places), Offers::receiver)
}

/// The senders that a receiver lends buffers to.
fn lend<E: End + 'static>(
    world: &mut World,
    it: &Settings,
    mut end: E,
    receiver: impl Fn(&mut E) -> &mut indirect_read::Receiver,
) -> Ends {
    let home = it.receivers[0];
    let us = world.peer(home);
    let mut senders: Vec<(NodeId, Box<dyn Sender>)> = Vec::new();
    for &node in &it.senders {
        let peer = world.peer(node);
        let half = receiver(&mut end).admit(&mut world.registrar(home), peer).unwrap();
        let told = (us, &carried(half.terms()));
        let joined = indirect_read::Sender::join(&mut world.registrar(node), it.name, told);
        let (sender, terms) = joined.unwrap();
        receiver(&mut end).accept(half, &carried(&terms)).unwrap();
        senders.push((node, Box::new(sender)));
    }
    Ends { senders, receivers: vec![(home, Box::new(end))] }
}
