//! One sender and one receiver: send/recv, write slots, rings; and two such channels that ride on
//! each other.

use rma_channel::{
    Half, OpenError, Peer, Sender,
    ring_buffer::{self, with_zeroing, without_zeroing},
    send_recv::{SendRecvConfig, normal},
    write_slot::{SlotConfig, detached_bell, immediate, inlined_bell},
};
use rma_sim::net::frame::NodeId;

use super::{
    super::{end::Recovers, hosts::Hosts},
    Ends, Settings, carried,
};

impl Settings {
    /// The sender of a channel of two ends, then its receiver: where each is, and who is its peer.
    fn both(&self, world: &dyn Hosts) -> [(NodeId, Peer); 2] {
        let (from, to) = (self.senders[0], self.receivers[0]);
        [(from, world.peer(to)), (to, world.peer(from))]
    }

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

/// Both ends of a channel that has two, once each has the other's terms, carried over as bytes.
fn connect<S: Sender + 'static, R: Recovers + 'static>(
    settings: &Settings,
    sender: Result<Half<S>, OpenError>,
    receiver: Result<Half<R>, OpenError>,
) -> Ends {
    let (sender, receiver) = (sender.unwrap(), receiver.unwrap());
    let (to, from) = (carried(receiver.terms()), carried(sender.terms()));
    let (sender, receiver) = (sender.connect(&to).unwrap(), receiver.connect(&from).unwrap());
    Ends {
        senders: vec![(settings.senders[0], Box::new(sender))],
        receivers: vec![(settings.receivers[0], Box::new(receiver))],
    }
}

pub(super) fn send_recv_normal(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use normal::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.send_recv(receiver));
    let from = Receiver::open(&*world.gate(there), it.send_recv(sender));
    connect(it, to, from)
}

pub(super) fn write_slot_detached(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use detached_bell::{Bell, Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.slots(receiver), Bell::Word);
    let from = Receiver::open(&*world.gate(there), it.slots(sender));
    connect(it, to, from)
}

pub(super) fn write_slot_waking(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use detached_bell::{Bell, Sender, WakingReceiver};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.slots(receiver), Bell::Event);
    let from = WakingReceiver::open(&*world.gate(there), it.slots(sender));
    connect(it, to, from)
}

pub(super) fn write_slot_inlined(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use inlined_bell::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.slots(receiver));
    let from = Receiver::open(&*world.gate(there), it.slots(sender));
    connect(it, to, from)
}

pub(super) fn write_slot_immediate(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use immediate::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.slots(receiver));
    let from = Receiver::open(&*world.gate(there), it.slots(sender));
    connect(it, to, from)
}

pub(super) fn ring_detached(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use ring_buffer::detached_bell::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.ring(receiver));
    let from = Receiver::open(&*world.gate(there), it.ring(sender));
    connect(it, to, from)
}

pub(super) fn ring_immediate(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use ring_buffer::immediate::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.ring(receiver));
    let from = Receiver::open(&*world.gate(there), it.ring(sender));
    connect(it, to, from)
}

pub(super) fn ring_with_zeroing(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use with_zeroing::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.ring(receiver));
    let from = Receiver::open(&*world.gate(there), it.ring(sender));
    connect(it, to, from)
}

pub(super) fn ring_without_zeroing(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use without_zeroing::{Receiver, Sender};
    let [(here, receiver), (there, sender)] = it.both(world);
    let to = Sender::open(&*world.gate(here), it.ring(receiver));
    let from = Receiver::open(&*world.gate(there), it.ring(sender));
    connect(it, to, from)
}

/// A function that opens two channels of a kind in opposite directions, which ride on each other.
/// `by` is what its senders are opened with besides.
macro_rules! duplex {
    ($name:ident, $of:path, $settings:ident $(, $by:expr)?) => {
        pub(super) fn $name(world: &mut dyn Hosts, it: &Settings) -> Ends {
            use $of::{Receiver, Sender};
            let [(here, at_there), (there, at_here)] = it.both(world);
            // A riding tail takes a word of each message.
            let it = Settings { len_max: it.len_max + 8, ..it.clone() };
            let to_there = it.$settings(at_there);
            let to_here = it.$settings(at_here);
            let sender = Sender::open(&*world.gate(here), to_there $(, $by)?);
            let receiver = Receiver::open(&*world.gate(here), to_there);
            let (sender, receiver) = (sender.unwrap(), receiver.unwrap());
            let other_sender = Sender::open(&*world.gate(there), to_here $(, $by)?);
            let other_receiver = Receiver::open(&*world.gate(there), to_here);
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
