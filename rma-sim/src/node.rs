//! A host of the simulated network: a shipped [`Nic`] behind a device of some rate and MTU.

use std::sync::Arc;

use rma_core::{
    backend::{RxFrame, Transmit},
    command::{Command, Completion},
    error::{CommandError, DropReason},
    nic::{ConfigError, Nic, NicConfigBuilder, ReceiveLenMax},
    time::Instant,
};

use crate::link::serialization;

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
}

/// Octets of IP and UDP headers before a frame.
#[must_use]
pub const fn ip_udp_len(ipv4: bool) -> usize {
    if ipv4 { 20 + 8 } else { 40 + 8 }
}

/// Octets that Ethernet adds on the wire: header, checksum, preamble and gap.
const ETHERNET_LEN: usize = 14 + 4 + 8 + 12;

/// A host. Not public: a simulation shows it as its NIC.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) nic: Nic,
    mtu: usize,
    rate: u64,
    /// When the device can take the next frame.
    device_free_at: Instant,
    /// Whether an event at `device_free_at` is scheduled.
    pub(crate) wake_scheduled: bool,
    tx: Box<[u8]>,
    rx: Vec<u8>,
}

/// A frame that a device has begun to send.
pub(crate) struct Sent {
    pub(crate) transmit: Transmit,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) wire_len: usize,
    /// When the last byte has left the device.
    pub(crate) left_at: Instant,
}

impl Node {
    pub(crate) fn new(options: &NodeOptions) -> Result<Self, ConfigError> {
        let mtu = usize::from(options.mtu);
        let receive_len_max = ReceiveLenMax::of_mtu(mtu);
        let config = NicConfigBuilder { receive_len_max, ..options.nic }.build()?;
        Ok(Self {
            nic: Nic::new(config),
            mtu,
            rate: options.rate,
            device_free_at: Instant::ZERO,
            wake_scheduled: false,
            tx: vec![0; receive_len_max.ipv4].into(),
            rx: Vec::with_capacity(mtu),
        })
    }

    pub(crate) fn handle_command(
        &mut self,
        now: Instant,
        command: Command,
    ) -> Result<(), CommandError> {
        self.nic.handle_command(now, command)
    }

    /// Receives `bytes`, which the NIC may change in its own copy.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        self.rx.clear();
        self.rx.extend_from_slice(bytes);
        let frame = RxFrame {
            source: transmit.source,
            destination: transmit.destination,
            reply_len_max: self.mtu - ip_udp_len(transmit.source.is_ipv4()),
            bytes: &mut self.rx,
        };
        self.nic.handle_frame(now, frame)
    }

    /// The next frame, if the device is free and the NIC has one.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Sent> {
        if now < self.device_free_at {
            return None;
        }
        let transmit = self.nic.poll_transmit(now, &mut self.tx)?;
        let bytes: Arc<[u8]> = self.tx[..transmit.len].into();
        let wire_len = transmit.len + ip_udp_len(transmit.source.is_ipv4()) + ETHERNET_LEN;
        self.device_free_at = now + serialization(self.rate, wire_len as u64);
        Some(Sent { transmit, bytes, wire_len, left_at: self.device_free_at })
    }

    /// When the device can take the next frame, if that is later than `now`.
    pub(crate) fn busy_until(&self, now: Instant) -> Option<Instant> {
        (self.device_free_at > now).then_some(self.device_free_at)
    }

    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        self.nic.poll_completion()
    }
}
