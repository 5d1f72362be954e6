//! Cables of one length and a switch with a queue for each host, as the other networks of this
//! crate have them.

use core::time::Duration;

use rma_core::{limits::OP_SIZE_MAX, time::Instant};

use super::{
    constants::{Constant, Constants},
    outcome::Packets,
};
use crate::{
    flows::traffic::{Framing, Traffic},
    net::{
        frame::NodeId,
        queue::{QueueOptions, serialization},
        switch::Switch,
    },
    prng::{Chance, Prng},
};

/// The fate of packets between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricOptions {
    /// The room that a port of the switch has for packets that wait.
    pub ports: Ports,
    /// A packet is lost on its way, whatever the ports do.
    pub loss: Chance,
}

/// The room that a port of the switch has for packets that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// It has room for all. Nobody is paused, so this is a better network than pause frames make.
    Lossless,
    /// It drops those for which [`Constant::PortLen`] leaves no room.
    DropTail,
}

impl FabricOptions {
    /// A network that loses nothing.
    pub const LOSSLESS: Self = Self { ports: Ports::Lossless, loss: Chance::NEVER };

    /// Whether it may lose a packet.
    pub(super) fn loses(self) -> bool {
        self.ports == Ports::DropTail || !self.loss.is_never()
    }
}

#[derive(Debug)]
pub(super) struct Fabric {
    rate: u64,
    delay: Duration,
    switch: Switch,
    loss: Chance,
    prng: Prng,
    pub(super) packets: Packets,
}

impl Fabric {
    /// A network in which an idle 4 KiB read takes [`Constant::RoundTrip`], if its links are fast
    /// enough for that.
    pub(super) fn new(
        options: FabricOptions,
        constants: &Constants,
        traffic: &Traffic,
        request_len: u32,
        seed: u64,
    ) -> Self {
        let (rate, framing) = (traffic.rate, traffic.framing);
        let len = match options.ports {
            Ports::Lossless => u64::MAX,
            Ports::DropTail => constants.get(Constant::PortLen) as u64,
        };
        let sending = serialization(rate, request_len.into()) * 2 + idle_response(rate, framing);
        Self {
            rate,
            delay: constants.time(Constant::RoundTrip).saturating_sub(sending) / 2,
            switch: Switch::new(QueueOptions { rate, len }, traffic.hosts as usize),
            loss: options.loss,
            prng: Prng::new(seed).fork(0xfab),
            packets: Packets::default(),
        }
    }

    /// How long a packet takes to leave a device.
    pub(super) fn sending(&self, wire_len: u32) -> Duration {
        serialization(self.rate, wire_len.into())
    }

    /// When a packet of which the last byte leaves its device at `left` is at the switch.
    pub(super) fn at_switch(&mut self, left: Instant) -> Instant {
        self.packets.sent += 1;
        left + self.delay
    }

    /// Takes a packet at the switch. Returns when `to` has all of it; `None` if it is lost.
    pub(super) fn cross(&mut self, now: Instant, to: u16, wire_len: u32) -> Option<Instant> {
        let is_lost = self.prng.chance(self.loss);
        let arrives =
            if is_lost { None } else { self.switch.take(now, NodeId(to), wire_len as usize) };
        match arrives {
            Some(_) => self.packets.arrived += 1,
            None => self.packets.lost += 1,
        }
        arrives
    }
}

/// How long the response of an idle 4 KiB read is on the way through a device and a port: all of
/// it through the first, and its last packet through the second.
fn idle_response(rate: u64, framing: Framing) -> Duration {
    let before =
        u64::from(OP_SIZE_MAX - 1) / u64::from(framing.payload) * u64::from(framing.payload);
    let last = framing.wire_bytes(u64::from(OP_SIZE_MAX) - before);
    let all = framing.wire_bytes(OP_SIZE_MAX.into());
    serialization(rate, all) + serialization(rate, last)
}
