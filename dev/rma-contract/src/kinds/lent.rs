//! A receiver that lends its senders buffers: indirect reads.

use std::sync::Arc;

use rma_channel::{
    Sender,
    read_slot::indirect_read::{self, IndirectConfig},
};
use rma_shm::Region;
use rma_sim::net::frame::NodeId;

use super::{
    super::{
        end::{End, Offers},
        hosts::Hosts,
    },
    Ends, Settings, carried,
};

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
pub(super) fn read_slot_indirect(world: &mut dyn Hosts, it: &Settings) -> Ends {
    let home = it.receivers[0];
    let receiver = indirect_read::Receiver::open(&*world.gate(home), it.indirect()).unwrap();
    lend(world, it, receiver, |receiver| receiver)
}

/// Places in the application's memory, which it offers one by one.
pub(super) fn read_slot_offered(world: &mut dyn Hosts, it: &Settings) -> Ends {
    let config = it.indirect();
    let len = config.memory_len();
    let memory = Arc::new(Region::new(len as usize).unwrap());
    let home = it.receivers[0];
    let receiver =
        indirect_read::Receiver::open_unlent(&*world.gate(home), config, memory).unwrap();
    let step = len / u64::from(config.buffers);
    let places = (0..len).step_by(step as usize).collect();
    lend(world, it, Offers::new(receiver, places), Offers::receiver)
}

/// The senders that a receiver lends buffers to.
fn lend<E: End + 'static>(
    world: &mut dyn Hosts,
    it: &Settings,
    mut end: E,
    receiver: impl Fn(&mut E) -> &mut indirect_read::Receiver,
) -> Ends {
    let home = it.receivers[0];
    let us = world.peer(home);
    let mut senders: Vec<(NodeId, Box<dyn Sender>)> = Vec::new();
    for &node in &it.senders {
        let peer = world.peer(node);
        let half = receiver(&mut end).admit(&*world.gate(home), peer).unwrap();
        let told = carried(half.terms());
        let joined = indirect_read::Sender::join(&*world.gate(node), it.name, us, &told);
        let (sender, terms) = joined.unwrap();
        receiver(&mut end).accept(half, &carried(&terms)).unwrap();
        senders.push((node, Box::new(sender)));
    }
    Ends { senders, receivers: vec![(home, Box::new(end))] }
}
