//! One sender whose memory receivers read: read slots and read rings.

use rma_channel::{
    ReceiveInto, Sender,
    read_ring::{self, ReadRingConfig, ReaderConfig},
    read_slot::{self, ReadSlotConfig},
    ring::RingLen,
};
use rma_core::gate::Gate;
use rma_sim::net::frame::NodeId;

use super::{
    super::{
        end::{End, Reads},
        hosts::Hosts,
    },
    Ends, MANY, Settings, carried,
};

/// How many bytes receivers read beyond bells, if they do.
const PREFETCH: u32 = 500;

impl Settings {
    fn read_ring(&self, world: &dyn Hosts) -> ReadRingConfig {
        self.read_ring_with(world, 0)
    }

    /// With room to read ahead.
    fn read_ring_ahead(&self, world: &dyn Hosts) -> ReadRingConfig {
        self.read_ring_with(world, PREFETCH)
    }

    fn read_ring_with(&self, world: &dyn Hosts, prefetch: u32) -> ReadRingConfig {
        // What a record has besides its message, and what stays zero beyond the newest.
        let len = self.room * u64::from(self.len_max + 16) + u64::from(prefetch) + 16;
        let len = len.next_power_of_two().max(RingLen::MIN);
        ReadRingConfig::default().with(|it| {
            (it.name, it.len, it.len_max) = (self.name, RingLen::new(len).unwrap(), self.len_max);
            (it.prefetch, it.readers) = (prefetch, MANY as u16);
            it.reader_timeout = world.reader_timeout();
        })
    }

    fn reader(&self, world: &dyn Hosts, prefetch: u32) -> ReaderConfig {
        let every = world.look_every();
        ReaderConfig::new()
            .with(|it| (it.name, it.prefetch, it.every) = (self.name, prefetch, every))
    }

    fn read_slots(&self, world: &dyn Hosts, slots: u64) -> ReadSlotConfig {
        let copies = self.room as u32 * self.len_max.next_multiple_of(8);
        ReadSlotConfig::default().with(|it| {
            (it.name, it.slots, it.len_max) = (self.name, slots as u16, self.len_max);
            (it.copies, it.readers) = (copies, MANY as u16);
            it.reader_timeout = world.reader_timeout();
        })
    }

    /// Twice as many bells as there is room for the longest messages.
    fn read_slots_by_len(&self, world: &dyn Hosts) -> ReadSlotConfig {
        self.read_slots(world, 2 * self.room)
    }

    /// As many bells as there is room for messages.
    fn read_slots_alike(&self, world: &dyn Hosts) -> ReadSlotConfig {
        self.read_slots(world, self.room)
    }
}

/// One sender, and as many receivers as there are to be: how the sender is opened, and how each
/// receiver joins it.
fn read<S: Sender + 'static>(
    world: &mut dyn Hosts,
    it: &Settings,
    open: impl FnOnce(&mut dyn Hosts, NodeId) -> S,
    mut join: impl FnMut(&mut dyn Hosts, &mut S, [NodeId; 2]) -> Box<dyn End>,
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
        $(pub(super) fn $name(world: &mut dyn Hosts, it: &Settings) -> Ends {
            use $receiver as Reader;
            use $sender as Sender;
            let open = |world: &mut dyn Hosts, from| {
                let config = $settings(it, world);
                Sender::open(&*world.gate(from), config).unwrap()
            };
            read(world, it, open, |world, sender: &mut Sender, [from, to]| {
                let (peer, config) = (world.peer(to), it.reader(world, $prefetch));
                let terms = sender.admit(&*world.gate(from), peer).unwrap();
                let host = &*world.gate(to);
                let reader = Reader::join(host, config, &carried(&terms)).unwrap();
                $end(reader, host, it)
            })
        })*
    };
    (told $sender:path, $settings:expr, $([$name:ident, $receiver:path, $end:expr]),*) => {
        $(pub(super) fn $name(world: &mut dyn Hosts, it: &Settings) -> Ends {
            use $receiver as Reader;
            use $sender as Sender;
            let open = |world: &mut dyn Hosts, from| {
                let config = $settings(it, world);
                Sender::open(&*world.gate(from), config).unwrap()
            };
            read(world, it, open, |world, sender: &mut Sender, [from, to]| {
                let [us, peer] = [from, to].map(|node| world.peer(node));
                let config = it.reader(world, 0);
                let half = sender.admit(&*world.gate(from), peer).unwrap();
                let told = carried(half.terms());
                let host = &*world.gate(to);
                let (reader, terms) = Reader::join(host, config, us, &told).unwrap();
                let reader = $end(reader, host, it);
                sender.accept(half, &carried(&terms)).unwrap();
                reader
            })
        })*
    };
}

/// A receiver that has memory of its own for messages.
fn claims(reader: impl End + 'static, _: &dyn Gate, _: &Settings) -> Box<dyn End> {
    Box::new(reader)
}

/// A receiver that reads into the application's.
fn reads<I: ReceiveInto + 'static>(into: I, host: &dyn Gate, it: &Settings) -> Box<dyn End> {
    Box::new(Reads::new(into, host, it.len_max))
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
