//! Channels of all kinds, as a program opens one that has chosen its kind.

use rma_channel::{AnyEnd, ChannelConfig, Kind, Terms, terms::Side};
use rma_sim::net::frame::NodeId;

use super::{
    super::{end::Reads, hosts::Hosts},
    Ends, MANY, Settings, carried,
};

/// How many bytes receivers read beyond bells, if they do.
const PREFETCH: u32 = 500;

impl Settings {
    fn config(&self, world: &dyn Hosts, kind: Kind) -> ChannelConfig {
        let peers = if kind.ours().is_read() { MANY } else { self.senders.len() };
        ChannelConfig::new(self.len_max, self.room as u16).with(|it| {
            (it.name, it.peers) = (self.name, peers as u16);
            let timing = world.timing();
            (it.dispatch_timeout, it.timeout) = (timing.dispatch_timeout, timing.timeout);
            (it.reader_timeout, it.every) = (world.reader_timeout(), world.look_every());
        })
    }
}

pub(super) fn open(world: &mut dyn Hosts, kind: Kind, it: &Settings) -> Ends {
    let config = it.config(world, kind);
    open_with(world, kind, it, config, false)
}

/// With bells that are events.
pub(super) fn open_waking(world: &mut dyn Hosts, kind: Kind, it: &Settings) -> Ends {
    let config = it.config(world, kind).with(|it| it.wakes = true);
    open_with(world, kind, it, config, false)
}

/// With room to read ahead.
pub(super) fn open_ahead(world: &mut dyn Hosts, kind: Kind, it: &Settings) -> Ends {
    let config = it.config(world, kind).with(|it| it.prefetch = PREFETCH);
    open_with(world, kind, it, config, false)
}

/// With receivers that read into the application's memory.
pub(super) fn open_into(world: &mut dyn Hosts, kind: Kind, it: &Settings) -> Ends {
    let config = it.config(world, kind);
    open_with(world, kind, it, config, true)
}

/// The end at home, and all that join it.
fn open_with(
    world: &mut dyn Hosts,
    kind: Kind,
    it: &Settings,
    config: ChannelConfig,
    into: bool,
) -> Ends {
    let (home, guests) = match kind.home() {
        Side::Sender => (it.senders[0], &it.receivers),
        Side::Receiver => (it.receivers[0], &it.senders),
    };
    let us = world.peer(home);
    let mut ends = Ends { senders: Vec::new(), receivers: Vec::new() };
    let mut join = |world: &mut dyn Hosts, node: NodeId, terms: &Terms| {
        let (host, terms) = (&*world.gate(node), &carried(terms));
        let answer = if into {
            let (reader, answer) = kind.join_into(host, &config, us, terms).unwrap();
            ends.receivers.push((node, Box::new(Reads::new(reader, host, it.len_max))));
            answer
        } else {
            let (end, answer) = kind.join(host, &config, us, terms).unwrap();
            ends.push(node, end);
            answer
        };
        carried(&answer)
    };
    let peer = world.peer(guests[0]);
    let half = kind.open(&*world.gate(home), &config, peer).unwrap();
    let answer = join(world, guests[0], half.terms());
    let mut end = half.connect(&answer).unwrap();
    for &node in &guests[1..] {
        let peer = world.peer(node);
        let half = match &mut end {
            AnyEnd::Sender(end) => end.admit(&*world.gate(home), peer),
            AnyEnd::Receiver(end) => end.admit(&*world.gate(home), peer),
        };
        let half = half.unwrap();
        let answer = join(world, node, half.terms());
        let accepted = match &mut end {
            AnyEnd::Sender(end) => end.accept(half, &answer),
            AnyEnd::Receiver(end) => end.accept(half, &answer),
        };
        accepted.unwrap();
    }
    ends.push(home, end);
    ends
}

impl Ends {
    fn push(&mut self, node: NodeId, end: AnyEnd) {
        match end {
            AnyEnd::Sender(end) => self.senders.push((node, Box::new(end))),
            AnyEnd::Receiver(end) => self.receivers.push((node, Box::new(end))),
        }
    }
}
