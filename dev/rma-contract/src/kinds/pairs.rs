//! Two channels in opposite directions, of one sender and one receiver each, that ride on each
//! other.

use rma_channel::{
    Kind, Peer,
    ring::RingLen,
    ring_buffer::{self, RingConfig, with_zeroing, without_zeroing},
    send_recv::{SendRecvConfig, normal},
    write_slot::{SlotConfig, detached_bell, immediate, inlined_bell},
};
use rma_sim::net::frame::NodeId;

use super::{super::hosts::Hosts, Ends, Settings, carried};

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

    fn ring(&self, peer: Peer) -> RingConfig {
        // The length of a record besides its message, and its padding.
        let len = self.room * u64::from(self.len_max + 16).next_multiple_of(64);
        let len = RingLen::new(len.next_power_of_two().max(RingLen::MIN)).unwrap();
        RingConfig::with_peer(peer).with(|it| {
            (it.name, it.len, it.len_max) = (self.name, len, self.len_max);
        })
    }
}

/// A function that opens two channels of a kind in opposite directions, which ride on each other.
/// `by` is what its senders are opened with besides.
macro_rules! duplex {
    ($name:ident, $of:path, $settings:ident $(, $by:expr)?) => {
        pub(super) fn $name(world: &mut dyn Hosts, _: Kind, it: &Settings) -> Ends {
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
