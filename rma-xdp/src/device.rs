//! Which device carries a host's frames, and how it is opened.

use core::{fmt, time::Duration};

use rma_core::addr::{HostAddr, LocalAddresses};

use crate::{
    backend::AnyBackend,
    error::HostError,
    net::{Interface, NetMonitor},
    udp::{self, UdpBackend, UdpConfig},
    xdp::{self, XdpBackend, XdpConfig},
};

/// Which device carries a host's frames.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// AF_XDP sockets on a network interface.
    Xdp {
        /// The interface's name.
        interface: Box<str>,
        /// In which mode the steering program is attached.
        mode: xdp::Mode,
    },
    /// Kernel UDP sockets.
    Udp,
}

impl Device {
    /// AF_XDP on `interface`, in the best mode that works.
    #[must_use]
    pub fn xdp(interface: &str) -> Self {
        Self::Xdp { interface: interface.into(), mode: xdp::Mode::default() }
    }

    /// Kernel UDP sockets.
    #[must_use]
    pub const fn udp() -> Self {
        Self::Udp
    }

    pub(crate) fn open(self, wanted: &[HostAddr], port: u16) -> Result<OpenDevice, HostError> {
        match self {
            Self::Xdp { interface, mode } => open_xdp(&interface, mode, wanted, port),
            Self::Udp => open_udp(wanted, port),
        }
    }
}

/// A device that carries frames.
pub(crate) struct OpenDevice {
    pub(crate) backend: AnyBackend,
    pub(crate) addresses: LocalAddresses,
    pub(crate) info: DeviceInfo,
    pub(crate) keeper: DeviceKeeper,
}

/// What was opened, for people and for reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DeviceInfo {
    /// AF_XDP sockets.
    Xdp(xdp::Description),
    /// Kernel UDP sockets.
    Udp(udp::Description),
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xdp(xdp) => xdp.fmt(f),
            Self::Udp(udp) => udp.fmt(f),
        }
    }
}

/// What must live as long as the device, outside the engine: the thread that follows the kernel's routes
/// and neighbours.
#[derive(Debug)]
pub(crate) enum DeviceKeeper {
    Xdp(NetMonitor),
    Udp,
}

impl DeviceKeeper {
    pub(crate) fn resolve(
        &self,
        destination: HostAddr,
        timeout: Duration,
    ) -> Result<(), HostError> {
        match self {
            Self::Xdp(monitor) => {
                monitor.resolve(destination, timeout)?;
                Ok(())
            }
            // The kernel finds its way itself, at the first datagram.
            Self::Udp => Ok(()),
        }
    }

    /// Has the way to a host looked for that will soon be heard of. Does not wait.
    pub(crate) fn prepare(&self, destination: HostAddr) {
        match self {
            Self::Xdp(monitor) => monitor.prepare(destination),
            Self::Udp => {}
        }
    }
}

fn open_xdp(
    name: &str,
    mode: xdp::Mode,
    wanted: &[HostAddr],
    port: u16,
) -> Result<OpenDevice, HostError> {
    let monitor = NetMonitor::start(name)?;
    let addresses = if wanted.is_empty() {
        first_of_each_family(monitor.interface())
            .ok_or_else(|| HostError::NoAddress { interface: name.into() })?
    } else {
        at_most_one_of_each_family(wanted)?
    };
    let local: Vec<HostAddr> = addresses.iter().collect();
    let config = XdpConfig { mode, ..XdpConfig::new(name, port, &local) };
    let backend = XdpBackend::open(&config, monitor.table())?;
    let info = DeviceInfo::Xdp(backend.describe().clone());
    let keeper = DeviceKeeper::Xdp(monitor);
    Ok(OpenDevice { backend: AnyBackend::Xdp(backend), addresses, info, keeper })
}

fn open_udp(wanted: &[HostAddr], port: u16) -> Result<OpenDevice, HostError> {
    let addresses = at_most_one_of_each_family(wanted)?;
    let config = UdpConfig::new(addresses.iter().collect(), port);
    let backend = UdpBackend::open(&config)?;
    let info = DeviceInfo::Udp(backend.describe().clone());
    let keeper = DeviceKeeper::Udp;
    Ok(OpenDevice { backend: AnyBackend::Udp(backend), addresses, info, keeper })
}

fn at_most_one_of_each_family(wanted: &[HostAddr]) -> Result<LocalAddresses, HostError> {
    let mut addresses = LocalAddresses::default();
    for &second in wanted {
        if let Some(first) = addresses.insert(second) {
            let version = second.version();
            return Err(HostError::TwoAddresses { first, second, version });
        }
    }
    Ok(addresses)
}

/// The interface's addresses as the kernel lists them: its primary one of each family first. Link-local IPv6
/// addresses are left out: their names mean nothing on another link.
fn first_of_each_family(interface: &Interface) -> Option<LocalAddresses> {
    let mut addresses = LocalAddresses::default();
    let addresses_there = interface.addresses.iter().map(|there| there.address);
    for address in addresses_there.filter(|&address| !is_link_local(address)) {
        if addresses.toward(address).is_none() {
            addresses.insert(address);
        }
    }
    (!addresses.is_empty()).then_some(addresses)
}

fn is_link_local(address: HostAddr) -> bool {
    match address.ip() {
        core::net::IpAddr::V4(_) => false,
        core::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_addresses_of_one_family_are_refused() {
        let parse = |texts: &[&str]| -> Vec<HostAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let both = at_most_one_of_each_family(&parse(&["192.0.2.1", "2001:db8::1"])).unwrap();
        assert_eq!(both.iter().count(), 2);
        let error = at_most_one_of_each_family(&parse(&["192.0.2.1", "192.0.2.2"])).unwrap_err();
        assert!(error.to_string().contains("192.0.2.1 and 192.0.2.2"), "{error}");
    }
}
