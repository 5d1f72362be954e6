//! Links to a switch whose ports many share, and loss; the heap of events.

use core::time::Duration;
use std::collections::BTreeMap;

use rma_core::{addr::HostAddr, port::Port, time::Instant};

use super::options::Options;
use crate::{
    net::{
        frame::{NodeId, wire_len},
        queue::{Queue, QueueOptions},
        switch::Switch,
    },
    prng::{Chance, Prng},
};

/// A packet on its way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) port: Port,
    pub(super) bytes: Vec<u8>,
}

/// An event of the simulation.
#[derive(Debug)]
pub(super) enum Event {
    /// A packet is at the switch.
    AtSwitch(Packet),
    /// A packet is at its host.
    Arrival(Packet),
    /// A message of a set-up is at a host, for one end of a connection.
    Message { connection: usize, end: usize, octets: Vec<u8> },
    /// A host's engine and application look around.
    Turn(u16),
}

#[derive(Debug)]
pub(super) struct Network {
    prng: Prng,
    /// None while connections are made.
    pub(super) loss: Chance,
    hop: Duration,
    rate: u64,
    /// From each host to the switch.
    links: Vec<Queue>,
    switch: Switch,
    events: BTreeMap<(Instant, u64), Event>,
    scheduled: u64,
    pub(super) sent: u64,
    /// By chance, and at ports.
    pub(super) lost: [u64; 2],
    /// The most bytes that waited before the link to host 0.
    pub(super) queued_max: u64,
}

/// The number of a host's address in its network.
pub(super) fn address(host: u16) -> HostAddr {
    let [high, low] = host.to_be_bytes();
    HostAddr::from([10, 1, high, low])
}

/// The host of an address.
pub(super) const fn host_of(address: HostAddr) -> u16 {
    let octets = address.to_octets();
    u16::from_be_bytes([octets[14], octets[15]])
}

impl Network {
    pub(super) fn new(options: &Options) -> Self {
        let hosts = usize::from(options.clients) + 1;
        let link = QueueOptions { rate: options.rate, len: u64::MAX };
        let port = QueueOptions { rate: options.rate, len: options.port_len };
        Self {
            prng: Prng::new(options.seed).fork(1),
            loss: Chance::ppm(0),
            hop: options.hop,
            rate: options.rate,
            links: vec![Queue::new(link); hosts],
            switch: Switch::new(port, hosts),
            events: BTreeMap::new(),
            scheduled: 0,
            sent: 0,
            lost: [0; 2],
            queued_max: 0,
        }
    }

    pub(super) fn schedule(&mut self, at: Instant, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }

    /// The next event, not after `end`.
    pub(super) fn next(&mut self, end: Instant) -> Option<(Instant, Event)> {
        let first = self.events.first_entry()?;
        let at = first.key().0;
        (at <= end).then(|| (at, first.remove()))
    }

    /// A host sends a packet.
    pub(super) fn send(&mut self, now: Instant, packet: Packet) {
        self.sent += 1;
        let len = wire_len(packet.bytes.len(), true) as u64;
        if let Some(left) = self.links[usize::from(packet.from)].take(now, len) {
            self.schedule(left + self.hop, Event::AtSwitch(packet));
        }
    }

    /// A packet is at the switch.
    pub(super) fn forward(&mut self, now: Instant, packet: Packet) {
        if self.prng.chance(self.loss) {
            self.lost[0] += 1;
            return;
        }
        let len = wire_len(packet.bytes.len(), true);
        let Some(left) = self.switch.take(now, NodeId(packet.to), len) else {
            self.lost[1] += 1;
            return;
        };
        if packet.to == 0 {
            let queued = u128::from(left.nanos_since(now)) * u128::from(self.rate) / 1_000_000_000;
            self.queued_max = self.queued_max.max(queued as u64);
        }
        self.schedule(left + self.hop, Event::Arrival(packet));
    }
}
