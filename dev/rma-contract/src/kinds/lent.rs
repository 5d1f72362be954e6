//! A receiver that lends its senders places in the application's memory, which that offers one by
//! one.

use std::sync::Arc;

use rma_channel::{
    Kind, Sender,
    read_slot::indirect_read::{self, IndirectConfig},
};
use rma_shm::Region;
use rma_sim::net::frame::NodeId;

use super::{
    super::{end::Offers, hosts::Hosts},
    Ends, Settings, carried,
};

/// As many places as there is to be room, and one for each sender at least.
pub(super) fn open_offered(world: &mut dyn Hosts, _: Kind, it: &Settings) -> Ends {
    let (count, room) = (it.senders.len() as u16, it.room as u16);
    let config = IndirectConfig::default().with(|config| {
        (config.name, config.len_max, config.lent) = (it.name, it.len_max, room);
        (config.senders, config.buffers) = (count, count.max(room));
    });
    let len = config.memory_len();
    let memory = Arc::new(Region::new(len as usize).unwrap());
    let home = it.receivers[0];
    let us = world.peer(home);
    let receiver =
        indirect_read::Receiver::open_unlent(&*world.gate(home), config, memory).unwrap();
    let step = len / u64::from(config.buffers);
    let mut end = Offers::new(receiver, (0..len).step_by(step as usize).collect());
    let mut senders: Vec<(NodeId, Box<dyn Sender>)> = Vec::new();
    for &node in &it.senders {
        let peer = world.peer(node);
        let half = end.receiver().admit(&*world.gate(home), peer).unwrap();
        let told = carried(half.terms());
        let joined = indirect_read::Sender::join(&*world.gate(node), it.name, us, &told);
        let (sender, terms) = joined.unwrap();
        end.receiver().accept(half, &carried(&terms)).unwrap();
        senders.push((node, Box::new(sender)));
    }
    Ends { senders, receivers: vec![(home, Box::new(end))] }
}
