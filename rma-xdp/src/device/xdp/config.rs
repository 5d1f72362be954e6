//! The settings of an AF_XDP backend, and the rules for it.

use std::num::NonZeroU32;

use rma_core::{
    addr::HostAddr,
    port::{Port, Ports},
};

use super::error::XdpError;
use crate::device::{engines::Engines, traffic::TrafficClasses};

/// Descriptors in a ring: at least a batch, at most what the kernel accepts without high-order
/// memory.
const RING_MIN: u32 = 64;
const RING_MAX: u32 = 1 << 15;
/// Chunks of a queue: enough for the largest packet on both sides; 256 MiB at most.
const CHUNK_COUNT_MIN: u32 = 64;
const CHUNK_COUNT_MAX: u32 = 1 << 16;

/// The place in the receive path where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before the kernel spends memory on the packet.
    Native,
    /// In the network stack, for drivers without XDP, and for those that are faster so.
    Generic,
}

impl core::fmt::Display for AttachMode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// In which mode the steering program may be attached, and whether the driver may work on the UMEM
/// itself (zero-copy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The faster one: generic on veth, native with all other drivers; or the other, where that is
    /// refused. On a bond generic, as native mode receives nothing there. Which one it is, and why,
    /// is reported ([`ModeReason`](super::ModeReason)). A host changes from generic to native, and
    /// says so, if it sees that frames get lost in generic mode.
    #[default]
    Auto,
    /// Native only: in the driver, or not at all. On a bond that is an error. As with
    /// [`Mode::Auto`], zero-copy is taken where the driver has it and is not known to lose frames
    /// so, and given up where it is seen to.
    Native,
    /// Native only, and without zero-copy.
    NativeCopy,
    /// Native only, and with zero-copy or not at all: also where it is known to lose frames, or
    /// seen to.
    NativeZeroCopy,
    /// Generic only, also where the driver has XDP.
    Generic,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 5] =
        [Self::Auto, Self::Native, Self::NativeCopy, Self::NativeZeroCopy, Self::Generic];

    /// Its name, as people type it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::NativeCopy => "native-copy",
            Self::NativeZeroCopy => "native-zc",
            Self::Generic => "generic",
        }
    }
}

/// The settings that an [`super::XdpBackend`] is opened with.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct XdpConfig {
    /// The interface, in the calling thread's network namespace.
    pub interface: Box<str>,
    /// The UDP ports of the deployment, one for each service: at least one, and at most
    /// [`PORTS_MAX`](rma_core::port::PORTS_MAX).
    pub ports: Vec<Port>,
    /// This host's addresses on the interface, at most one of each family. Frames to others are
    /// left to the kernel.
    pub local_addresses: Vec<HostAddr>,
    /// In which mode the steering program may be attached.
    pub mode: Mode,
    /// How many backends share the receive queues, one for each engine.
    pub engines: Engines,
    /// The DSCP of what is sent.
    pub traffic: TrafficClasses,
    /// Size of each queue's receive ring: a power of two, 64 to 32768. Smaller: frames are lost
    /// when the engine is descheduled for longer than that many frames last. Larger: the memory
    /// that frames go through no longer fits into the cache.
    pub rx_ring: u32,
    /// Size of the completion ring, the most chunks that can be on their way: a power of two, 64
    /// to 32768.
    pub tx_ring: u32,
    /// Chunks of 4096 bytes for each queue that transmits, one of each engine: 64 to 65536. Half of
    /// them, at most `tx_ring`, transmit; the others, at most `rx_ring`, receive. Other queues get
    /// the latter only.
    pub chunk_count: u32,
    /// Let the kernel busy-poll the device inside our system calls, for at most this many
    /// microseconds. `None` leaves it to interrupts. Of use on real devices only.
    pub busy_poll_us: Option<NonZeroU32>,
}

impl XdpConfig {
    /// The defaults: the faster mode, rings of 2048 for receiving and 1024 for transmitting.
    pub fn new(interface: &str, ports: &[Port], local_addresses: &[HostAddr]) -> Self {
        Self {
            interface: interface.into(),
            ports: ports.to_vec(),
            local_addresses: local_addresses.to_vec(),
            mode: Mode::Auto,
            engines: Engines::One,
            traffic: TrafficClasses::default(),
            rx_ring: 2048,
            tx_ring: 1024,
            chunk_count: 3072,
            busy_poll_us: None,
        }
    }

    /// How many chunks transmit.
    pub(super) fn tx_chunks(&self) -> u32 {
        self.tx_ring.min(self.chunk_count / 2)
    }

    /// How many chunks of each queue receive.
    pub(super) fn rx_chunks(&self) -> u32 {
        self.rx_ring.min(self.chunk_count - self.tx_chunks())
    }

    /// The ports, checked.
    pub(super) fn ports(&self) -> Result<Ports, XdpError> {
        Ok(Ports::new(&self.ports)?)
    }

    /// Checks every field. Returns the ports.
    pub(super) fn check(&self) -> Result<Ports, XdpError> {
        let wrong = |field, value: u32, rule| {
            Err(XdpError::Config { field, value: u64::from(value), rule })
        };
        let is_ring = |size: u32| size.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&size);
        let ring_rule = "a ring must be a power of two from 64 to 32768";
        let ports = self.ports()?;
        if !is_ring(self.rx_ring) {
            return wrong("rx_ring", self.rx_ring, ring_rule);
        }
        if !is_ring(self.tx_ring) {
            return wrong("tx_ring", self.tx_ring, ring_rule);
        }
        if !(CHUNK_COUNT_MIN..=CHUNK_COUNT_MAX).contains(&self.chunk_count) {
            return wrong("chunk_count", self.chunk_count, "it must be from 64 to 65536");
        }
        if !self.engines.can_be() {
            let Engines::Count(engines) = self.engines else { unreachable!("others can be") };
            return wrong("engines", engines, "a host has 1 to 32");
        }
        if self.local_addresses.is_empty() {
            return Err(XdpError::NoLocalAddress { interface: self.interface.clone() });
        }
        let of_v4 = self.local_addresses.iter().filter(|address| address.is_ipv4()).count();
        let most = of_v4.max(self.local_addresses.len() - of_v4);
        if most > 1 {
            return wrong("local_addresses", most as u32, "a host has at most one of each family");
        }
        Ok(ports)
    }
}

rma_core::settings!(XdpConfig);

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> XdpConfig {
        XdpConfig::new("eth9", &[Port(4791)], &["192.0.2.1".parse().unwrap()])
    }

    #[test]
    fn the_defaults_are_valid_and_use_every_chunk() {
        let config = config();
        config.check().unwrap();
        assert_eq!(config.rx_chunks() + config.tx_chunks(), config.chunk_count);
    }

    #[test]
    fn each_rule_names_its_field() {
        let field = |change: fn(&mut XdpConfig)| {
            let mut config = config();
            change(&mut config);
            match config.check().unwrap_err() {
                XdpError::Config { field, .. } => field,
                other => panic!("{other}"),
            }
        };
        assert_eq!(field(|c| c.rx_ring = 100), "rx_ring");
        assert_eq!(field(|c| c.rx_ring = 32), "rx_ring");
        assert_eq!(field(|c| c.tx_ring = 1 << 16), "tx_ring");
        assert_eq!(field(|c| c.chunk_count = 63), "chunk_count");
        assert_eq!(field(|c| c.engines = Engines::Count(0)), "engines");
        assert_eq!(field(|c| c.engines = Engines::Count(33)), "engines");
        assert_eq!(
            field(|c| c.local_addresses.push("192.0.2.2".parse().unwrap())),
            "local_addresses"
        );
    }

    #[test]
    fn ports_that_nobody_can_listen_on_are_refused() {
        let text = |ports: &[u16]| {
            let ports = ports.iter().copied().map(Port).collect();
            XdpConfig { ports, ..config() }.check().unwrap_err().to_string()
        };
        assert!(text(&[]).contains("no UDP port"));
        assert!(text(&[0]).contains("UDP port 0"));
        assert!(text(&[7, 8, 7]).contains("UDP port 7 is named twice"));
        assert!(text(&[1, 2, 3, 4, 5, 6, 7, 8, 9]).contains("8 at most"));
    }

    #[test]
    fn a_backend_without_an_address_is_refused() {
        let config = XdpConfig::new("eth9", &[Port(4791)], &[]);
        assert!(matches!(config.check(), Err(XdpError::NoLocalAddress { .. })));
    }

    #[test]
    fn chunks_never_outnumber_their_ring() {
        for (rx_ring, tx_ring, chunk_count) in [(64, 64, 65536), (32768, 64, 64), (64, 32768, 64)] {
            let config = XdpConfig { rx_ring, tx_ring, chunk_count, ..config() };
            config.check().unwrap();
            assert!(config.rx_chunks() <= rx_ring && config.rx_chunks() > 0);
            assert!(config.tx_chunks() <= tx_ring && config.tx_chunks() > 0);
        }
    }
}
