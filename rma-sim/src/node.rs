//! A host of the simulated network: a shipped [`Nic`] behind a device of some rate and MTU, with a clock of
//! its own, which can be stopped.
//!
//! Everything here takes true time; the NIC is only ever told what its node's clock shows.

use core::{cell::Cell, time::Duration};
use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    backend::{RxFrame, Transmit},
    command::{Command, Completion},
    error::{CommandError, DropReason},
    nic::{ConfigError, Nic, NicConfigBuilder, ReceiveLenMax},
    time::{Clock, Instant},
};

use crate::{
    clock::{ClockOptions, LocalClock},
    queue::serialization,
    trace::Frame,
};

/// The number of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u16);

impl NodeId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl core::fmt::Display for NodeId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// What a node is made of.
#[derive(Clone, Copy, Debug)]
pub struct NodeOptions {
    /// The NIC's settings; `receive_len_max` is set from `mtu`.
    pub nic: NicConfigBuilder,
    /// The device's MTU: the largest IP packet that it sends and receives.
    pub mtu: u16,
    /// The device's rate of sending, in bytes a second; at least 1. While it sends one frame the NIC gives
    /// it no other, so inbound queues fill as they do in front of a real device.
    pub rate: u64,
    /// How many frames the device holds for an engine that does not run; further ones are lost.
    pub receive_ring: u32,
    /// The node's clock.
    pub clock: ClockOptions,
}

/// Octets of IP and UDP headers before a frame.
#[must_use]
pub const fn ip_udp_len(ipv4: bool) -> usize {
    if ipv4 { 20 + 8 } else { 40 + 8 }
}

/// Octets that Ethernet adds on the wire: header, checksum, preamble and gap.
const ETHERNET_LEN: usize = 14 + 4 + 8 + 12;

/// Octets that a frame of `len` takes on the wire.
#[must_use]
pub const fn wire_len(len: usize, ipv4: bool) -> usize {
    len + ip_udp_len(ipv4) + ETHERNET_LEN
}

/// Whether a node's software runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It does.
    Running,
    /// It is stopped, as by SIGSTOP or a busy scheduler. Its device goes on.
    Paused,
    /// It is gone, and all its state with it.
    Down,
}

/// A copy of a frame that has come to a node, or is on its way there.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) frame: Arc<Frame>,
    /// What arrives, if that is not what was sent.
    pub(crate) altered: Option<Arc<[u8]>>,
    pub(crate) extra: bool,
}

/// What became of a frame, and what the NIC counted meanwhile.
pub(crate) struct Handled {
    pub(crate) result: Result<(), DropReason>,
    /// A late effect.
    pub(crate) counted_late: bool,
    /// A request that it had accepted, and refuses to make room for this one.
    pub(crate) pushed_out: bool,
}

/// How long a node is stopped while it handles a frame, and how often its clock is read before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    pub(crate) length: Duration,
    pub(crate) readings_before: u32,
}

/// The clock of a node that is stopped between two readings.
struct Readings {
    before: Instant,
    after: Instant,
    left: Cell<u32>,
}

impl Clock for Readings {
    fn now(&self) -> Instant {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                self.before
            }
            None => self.after,
        }
    }
}

/// A host. Not public: a simulation shows it as its NIC.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) nic: Nic,
    pub(crate) clock: LocalClock,
    pub(crate) condition: Condition,
    /// Whether solicitations are lost on their way to its software.
    pub(crate) is_silent: bool,
    /// Which of all pauses its last one was.
    pub(crate) pause: u64,
    /// When it was resumed last.
    pub(crate) resumed_at: Option<Instant>,
    /// What has arrived while the node was paused.
    pub(crate) ring: VecDeque<Arrival>,
    ring_len: usize,
    mtu: usize,
    rate: u64,
    /// When the device can take the next frame.
    device_free_at: Instant,
    /// Whether an event at `device_free_at` is scheduled.
    pub(crate) wake_scheduled: bool,
    /// When the NIC has something to expire; `None` while the node does not run.
    pub(crate) timeout_at: Option<Instant>,
    tx: Box<[u8]>,
    rx: Vec<u8>,
}

/// A frame that a device has begun to send.
pub(crate) struct Sent {
    pub(crate) transmit: Transmit,
    pub(crate) bytes: Box<[u8]>,
    /// When the last byte has left the device.
    pub(crate) left_at: Instant,
}

impl Node {
    /// A node that starts at true time `now`.
    pub(crate) fn new(now: Instant, options: &NodeOptions) -> Result<Self, ConfigError> {
        let mtu = usize::from(options.mtu);
        let receive_len_max = ReceiveLenMax::of_mtu(mtu);
        let config = options.nic.with(|it| it.receive_len_max = receive_len_max).build()?;
        Ok(Self {
            nic: Nic::new(config),
            clock: LocalClock::new(now, options.clock),
            condition: Condition::Running,
            is_silent: false,
            pause: 0,
            resumed_at: None,
            ring: VecDeque::new(),
            ring_len: options.receive_ring as usize,
            mtu,
            rate: options.rate,
            device_free_at: now,
            wake_scheduled: false,
            timeout_at: None,
            tx: vec![0; receive_len_max.ipv4].into(),
            rx: Vec::with_capacity(mtu),
        })
    }

    pub(crate) fn handle_command(
        &mut self,
        now: Instant,
        command: Command,
    ) -> Result<(), CommandError> {
        self.nic.handle_command(self.clock.show(now), command)
    }

    /// Holds a frame until the node runs again. Gives it back if the ring is full.
    pub(crate) fn hold(&mut self, arrival: Arrival) -> Result<(), Arrival> {
        if self.ring.len() >= self.ring_len {
            return Err(arrival);
        }
        self.ring.push_back(arrival);
        Ok(())
    }

    /// Receives a frame, which the NIC may change in its own copy. The node is stopped for a while as `stall`
    /// says, in the midst of it.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        stall: Stall,
    ) -> Handled {
        let Arrival { frame, altered, .. } = arrival;
        self.rx.clear();
        self.rx.extend_from_slice(altered.as_deref().unwrap_or(&frame.bytes));
        let Transmit { source, destination, .. } = frame.transmit;
        let reply_len_max = self.mtu - ip_udp_len(source.is_ipv4());
        let received =
            RxFrame { source, destination, reply_len_max, link: None, bytes: &mut self.rx };
        let before = self.clock.show(now);
        let after = self.clock.show(now + stall.length);
        let readings = Readings { before, after, left: Cell::new(stall.readings_before) };
        let counters = self.nic.counters().clone();
        let (late_effects, pushed_out) = (counters.late_effects(), counters.pushed_out());
        let result = self.nic.handle_frame(before, &readings, received);
        Handled {
            result,
            counted_late: counters.late_effects() > late_effects,
            pushed_out: counters.pushed_out() > pushed_out,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.nic.handle_timeout(self.clock.show(now));
    }

    /// The next frame, if the device is free and the NIC has one.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Sent> {
        if now < self.device_free_at {
            return None;
        }
        let transmit = self.nic.poll_transmit(self.clock.show(now), &mut self.tx)?;
        let bytes: Box<[u8]> = self.tx[..transmit.len].into();
        let wire_len = wire_len(transmit.len, transmit.source.is_ipv4());
        self.device_free_at = now + serialization(self.rate, wire_len as u64);
        Some(Sent { transmit, bytes, left_at: self.device_free_at })
    }

    /// When the device can take the next frame, if that is later than `now`.
    pub(crate) fn busy_until(&self, now: Instant) -> Option<Instant> {
        (self.device_free_at > now).then_some(self.device_free_at)
    }

    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        self.nic.poll_completion()
    }

    /// Looks when the NIC wants to be woken. Returns false if that should have been before now.
    pub(crate) fn set_timeout(&mut self, now: Instant) -> bool {
        let timeout = self.nic.poll_timeout();
        self.timeout_at = timeout.map(|local| self.clock.when(local));
        timeout.is_none_or(|local| local > self.clock.show(now))
    }
}
