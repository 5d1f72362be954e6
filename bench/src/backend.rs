//! The way in which a host's frames are carried, as people ask for it: AF_XDP in one of its modes,
//! or kernel UDP.
//!
//! `auto` falls back to kernel UDP where AF_XDP is not allowed, or the interface is not Ethernet,
//! and says so. All others fail instead. Not here: the modes between which AF_XDP chooses
//! ([`mode`](crate::mode)).

use core::net::{IpAddr, SocketAddr};
use std::io;

use clap::{Args, ValueEnum};
use rma_xdp::{
    HostAddr, HostConfig, HostError,
    device::{
        Device, TrafficClasses,
        net::NetError,
        xdp::{Mode, XdpError},
    },
};

use crate::route::{address_of, interface_toward, interface_with};

/// A backend, as people type it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// AF_XDP as it suits the driver, or else kernel UDP.
    #[default]
    Auto,
    /// AF_XDP as it suits the driver.
    Xdp,
    /// AF_XDP in the driver.
    XdpNative,
    /// AF_XDP in the network stack.
    XdpGeneric,
    /// AF_XDP in the driver with zero-copy, even where that is known to lose frames.
    XdpZc,
    /// AF_XDP in the driver without zero-copy.
    XdpCopy,
    /// Kernel UDP sockets, which need no privileges.
    Udp,
}

impl Backend {
    const fn mode(self) -> Mode {
        match self {
            Self::Auto | Self::Xdp | Self::Udp => Mode::Auto,
            Self::XdpNative => Mode::Native,
            Self::XdpGeneric => Mode::Generic,
            Self::XdpZc => Mode::NativeZeroCopy,
            Self::XdpCopy => Mode::NativeCopy,
        }
    }
}

/// The device that carries the frames.
#[derive(Args, Clone, Debug, Default)]
pub struct DeviceArgs {
    /// Use AF_XDP on this network interface. Needs root. Default for those who measure: the one
    /// that the kernel reaches SERVER by.
    #[arg(long, value_name = "NAME", conflicts_with = "udp")]
    pub interface: Option<String>,
    /// Use kernel UDP sockets, bound to this address of this host.
    #[arg(long, value_name = "ADDRESS")]
    pub udp: Option<HostAddr>,
    /// The way in which frames are carried. auto: AF_XDP as it suits the driver, or kernel UDP
    /// where AF_XDP is not allowed. All others fail if they cannot be had; xdp-native in the
    /// driver, with zero-copy where that works; xdp-generic in the network stack.
    #[arg(long, value_enum, default_value_t, value_name = "BACKEND")]
    pub(crate) backend: Backend,
    /// The DSCP of the packets that are sent, 0 to 63; or one for the latency and one for the
    /// throughput class, as 46/10. Default: none.
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<TrafficClasses>,
}

/// An error about the device that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The host could not be opened.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No device is named.
    #[error("no device: give --interface NAME for AF_XDP, or --udp with an address of this host")]
    NoDevice,
    /// Kernel UDP was asked for, and something else.
    #[error("--udp is kernel UDP, and --backend {backend} is not: leave out one of them")]
    UdpByAnother {
        /// The backend.
        backend: String,
    },
    /// No device is named, and the kernel knows none.
    #[error(
        "the interface toward {server} is not known: {why}; give --interface NAME, or --udp with an address of this host"
    )]
    NoWay {
        /// The server.
        server: SocketAddr,
        /// The error of the system.
        why: io::Error,
    },
}

/// The place that frames leave from, before it is known by which backend.
#[derive(Clone, Debug)]
struct Place {
    /// The interface, unless an address alone was given.
    interface: Option<String>,
    /// The address toward the server, if that decided on the interface.
    own: Option<IpAddr>,
}

impl DeviceArgs {
    /// Opens a host, on the interface toward `server` if no device is named. `open` makes it of a
    /// configuration of the device alone. Says on standard error what it fell back from.
    pub(crate) fn open<H>(
        &self,
        server: Option<SocketAddr>,
        has_address: bool,
        open: impl Fn(HostConfig) -> Result<H, HostError>,
    ) -> Result<H, DeviceError> {
        let open = |it: HostConfig| open(it.with(|it| it.traffic = self.dscp.unwrap_or_default()));
        let backend = self.backend;
        if let Some(address) = self.udp {
            if !matches!(backend, Backend::Auto | Backend::Udp) {
                return Err(DeviceError::UdpByAnother { backend: name(backend) });
            }
            return Ok(open(HostConfig::udp(address))?);
        }
        let place = self.place(server)?;
        let over_udp = || {
            let address = place.own.or_else(|| address_of(place.interface.as_deref()?));
            let address = address.ok_or(DeviceError::NoDevice)?;
            Ok(open(HostConfig::udp(HostAddr::from(address)))?)
        };
        if backend == Backend::Udp {
            return over_udp();
        }
        let interface = place.interface.as_deref().ok_or(DeviceError::NoDevice)?;
        let device = Device::xdp(interface).in_mode(backend.mode());
        let config = HostConfig::xdp(interface).with(|it| {
            it.device = device;
            if let Some(own) = place.own.filter(|_| !has_address) {
                it.addresses.push(own.into());
            }
        });
        match open(config) {
            Err(why) if backend == Backend::Auto && udp_may_work(&why) => {
                let opened = over_udp();
                if let Err(DeviceError::Host(HostError::OneEngineOverUdp { .. })) = opened {
                    return Err(why.into());
                }
                eprintln!("rma-bench: fallback: kernel UDP, as AF_XDP cannot be had: {why}");
                opened
            }
            opened => Ok(opened?),
        }
    }

    /// The interface that frames leave by, as far as that is known before it is opened.
    pub(crate) fn interface_toward(&self, server: Option<SocketAddr>) -> Option<String> {
        match self.udp {
            Some(address) => interface_with(address.ip()),
            None => self.place(server).ok()?.interface,
        }
    }

    fn place(&self, server: Option<SocketAddr>) -> Result<Place, DeviceError> {
        if self.interface.is_some() {
            return Ok(Place { interface: self.interface.clone(), own: None });
        }
        let server = server.ok_or(DeviceError::NoDevice)?;
        let toward = interface_toward(server);
        let (name, own) = toward.map_err(|why| DeviceError::NoWay { server, why })?;
        Ok(Place { interface: Some(name), own: Some(own) })
    }
}

/// Whether kernel UDP may work where AF_XDP ends with this.
const fn udp_may_work(error: &HostError) -> bool {
    use XdpError::{Forbidden, MissingCapability};
    matches!(
        error,
        HostError::Xdp(MissingCapability { .. } | Forbidden { .. })
            | HostError::Net(NetError::NotEthernet { .. })
    )
}

fn name(backend: Backend) -> String {
    backend.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned())
}
