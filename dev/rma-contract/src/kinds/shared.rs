//! A receiver that senders share: send/recv through one queue, slots that are reserved, shared
//! rings.

use rma_channel::{
    Peer, Sender, Terms,
    send_recv::{SharedConfig, bufferless, shared},
    shared_ring::{
        self, SharedRingConfig,
        receiver::{Finds, SharedReceiver},
        sender::SharedSender,
    },
    write_slot::reserve_slot,
};
use rma_core::{gate::Gate, nic::Timing};
use rma_sim::net::frame::NodeId;

use super::{
    super::{end::Recovers, hosts::Hosts},
    Ends, Settings, carried,
};

/// The ends of a channel whose receiver is shared, for senders that `join` with its terms.
fn gather<R: Recovers + 'static, S: Sender + 'static>(
    world: &mut dyn Hosts,
    it: &Settings,
    mut receiver: R,
    admit: impl Fn(&mut R, &dyn Gate, Peer) -> Terms,
    join: impl Fn(&dyn Gate, &Terms) -> S,
) -> Ends {
    let home = it.receivers[0];
    let sender = |&node: &NodeId| -> (NodeId, Box<dyn Sender>) {
        let peer = world.peer(node);
        let terms = carried(&admit(&mut receiver, &*world.gate(home), peer));
        (node, Box::new(join(&*world.gate(node), &terms)))
    };
    let senders = it.senders.iter().map(sender).collect();
    Ends { senders, receivers: vec![(home, Box::new(receiver))] }
}

pub(super) fn send_recv_shared(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use shared::{Receiver, Sender};
    let config = SharedConfig::DEFAULT.with(|config| {
        (config.name, config.receives, config.len_max) = (it.name, it.room as u16, it.len_max);
    });
    let receiver = Receiver::open(&*world.gate(it.receivers[0]), config).unwrap();
    let join = |host: &dyn Gate, terms: &Terms| Sender::join(host, terms, it.room as u16).unwrap();
    let admit =
        |receiver: &mut Receiver, host: &dyn Gate, peer| receiver.admit(host, peer).unwrap();
    gather(world, it, receiver, admit, join)
}

pub(super) fn send_recv_bufferless(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use bufferless::{Receiver, Sender};
    let home = it.receivers[0];
    let receiver = Receiver::open(&*world.gate(home), it.name, it.room as u16).unwrap();
    let join = |host: &dyn Gate, terms: &Terms| Sender::join(host, terms, it.room as u16).unwrap();
    let admit =
        |receiver: &mut Receiver, host: &dyn Gate, peer| receiver.admit(host, peer).unwrap();
    gather(world, it, receiver, admit, join)
}

pub(super) fn write_slot_reserve(world: &mut dyn Hosts, it: &Settings) -> Ends {
    use reserve_slot::{Receiver, ReserveConfig, Sender};
    let timing = world.timing();
    let config = ReserveConfig::new().with(|config| {
        (config.name, config.slots, config.len_max) = (it.name, it.room as u16, it.len_max);
        config.hole_timeout =
            ReserveConfig::hole_timeout_min(timing.dispatch_timeout, timing.timeout);
    });
    let receiver = Receiver::open(&*world.gate(it.receivers[0]), config).unwrap();
    let join = |host: &dyn Gate, terms: &Terms| Sender::join(host, terms, it.room as u16).unwrap();
    let admit =
        |receiver: &mut Receiver, host: &dyn Gate, peer| receiver.admit(host, peer).unwrap();
    gather(world, it, receiver, admit, join)
}

pub(super) fn shared_ring_immediate(world: &mut dyn Hosts, it: &Settings) -> Ends {
    gather_ring::<shared_ring::immediate::Events>(world, it)
}

pub(super) fn shared_ring_with_zeroing(world: &mut dyn Hosts, it: &Settings) -> Ends {
    gather_ring::<shared_ring::with_zeroing::Records>(world, it)
}

fn gather_ring<F: Finds>(world: &mut dyn Hosts, it: &Settings) -> Ends {
    let len = it.ring(world.peer(it.receivers[0])).len;
    let Timing { dispatch_timeout, timeout, .. } = world.timing();
    let config = SharedRingConfig::new().with(|config| {
        (config.name, config.len, config.len_max) = (it.name, len, it.len_max);
        (config.dispatch_timeout, config.timeout) = (dispatch_timeout, timeout);
        config.hole_timeout = SharedRingConfig::hole_timeout_min(dispatch_timeout, timeout);
    });
    let home = it.receivers[0];
    let receiver = SharedReceiver::<F>::open(&*world.gate(home), config).unwrap();
    let join = |host: &dyn Gate, terms: &Terms| SharedSender::<F::Form>::join(host, terms).unwrap();
    let admit = |receiver: &mut SharedReceiver<F>, host: &dyn Gate, peer| {
        receiver.admit(host, peer).unwrap()
    };
    gather(world, it, receiver, admit, join)
}
