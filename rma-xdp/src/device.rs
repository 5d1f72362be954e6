//! The device that carries a host's frames, and its opening.

/// Does something with the tap in a place, if there is one. Nothing is built without the feature.
macro_rules! tapped {
    ($place:expr, $tap:ident => $does:expr) => {
        #[cfg(feature = "capture")]
        if let Some($tap) = &mut $place {
            $does;
        }
    };
}

mod address;
pub(crate) mod backend;
pub(crate) mod engines;
pub(crate) mod metrics;
pub(crate) mod monotonic;
pub mod net;
pub(crate) mod paths;
mod search;
pub(crate) mod status;
#[cfg(feature = "capture")]
pub(crate) mod tap;
pub(crate) mod traffic;
pub mod udp;
pub(crate) mod ways;
#[cfg(feature = "xdp")]
pub mod xdp;

#[doc(inline)]
pub use rma_core::{
    addr::LocalAddresses,
    port::{PORTS_MAX, Port, Ports, PortsError},
};

pub use self::{
    engines::{ENGINES_MAX, Engines},
    status::{InterfaceState, InterfaceStatus},
    traffic::{Dscp, NoDscp, TrafficClasses},
    ways::{AddressStatus, NarrowPath},
};

use core::{fmt, time::Duration};
use std::sync::Arc;

use rma_core::addr::HostAddr;

use self::{
    backend::AnyBackend,
    metrics::DeviceWatch,
    udp::{BatchingInUse, Keeper, UdpBackend, UdpBatching, UdpConfig, UdpCounters},
    ways::Ways,
};
#[cfg(feature = "xdp")]
use self::{
    net::{Interface, InterfaceAddress, NetMonitor},
    xdp::{Follower, XdpBackend, XdpConfig},
};
use crate::error::HostError;

/// The device that carries a host's frames.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// AF_XDP sockets on a network interface.
    #[cfg(feature = "xdp")]
    #[non_exhaustive]
    Xdp {
        /// The interface's name.
        interface: Box<str>,
        /// In which mode the steering program is attached.
        mode: xdp::Mode,
    },
    /// Kernel UDP sockets.
    #[non_exhaustive]
    Udp {
        /// The kernel's ways to move several datagrams at once that are used, where it has them.
        batching: UdpBatching,
    },
}

impl Device {
    /// AF_XDP on `interface`, in the faster mode that works: see [`xdp::Mode::Auto`].
    #[cfg(feature = "xdp")]
    #[must_use]
    pub fn xdp(interface: &str) -> Self {
        Self::Xdp { interface: interface.into(), mode: xdp::Mode::default() }
    }

    /// The same, with the steering program attached in `mode`. Changes nothing of other devices.
    #[cfg(feature = "xdp")]
    #[must_use]
    pub fn in_mode(mut self, wanted: xdp::Mode) -> Self {
        if let Self::Xdp { mode, .. } = &mut self {
            *mode = wanted;
        }
        self
    }

    /// Kernel UDP sockets, with all that the kernel has to move several datagrams at once.
    #[must_use]
    pub const fn udp() -> Self {
        Self::Udp { batching: UdpBatching::ALL }
    }

    /// The same, with no more than what `wanted` says of that. Changes nothing of other devices.
    #[must_use]
    pub fn with_batching(self, wanted: UdpBatching) -> Self {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp { .. } => self,
            Self::Udp { .. } => Self::Udp { batching: wanted },
        }
    }

    /// Opens it for so many engines, with a backend for each.
    pub(crate) fn open(
        self,
        wanted: &[HostAddr],
        ports: &[Port],
        engines: Engines,
        traffic: TrafficClasses,
    ) -> Result<OpenDevice, HostError> {
        if !engines.can_be() {
            return Err(HostError::Engines { engines });
        }
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp { interface, mode } => {
                let config = XdpConfig::new(&interface, ports, &[]);
                let set = |it: &mut XdpConfig| {
                    (it.mode, it.engines, it.traffic) = (mode, engines, traffic);
                };
                open_xdp(config.with(set), wanted)
            }
            Self::Udp { batching } => match engines {
                Engines::One | Engines::PerQueue | Engines::Count(1) => {
                    let config = UdpConfig::new(Vec::new(), ports);
                    let set = |it: &mut UdpConfig| (it.batching, it.traffic) = (batching, traffic);
                    open_udp(config.with(set), wanted)
                }
                Engines::Count(engines) => Err(HostError::OneEngineOverUdp { engines }),
            },
        }
    }
}

/// A device that carries frames.
pub(crate) struct OpenDevice {
    /// One for each engine.
    pub(crate) backends: Vec<AnyBackend>,
    pub(crate) addresses: LocalAddresses,
    pub(crate) info: DeviceInfo,
    pub(crate) keeper: DeviceKeeper,
}

/// The description of the opened device, for people and for reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DeviceInfo {
    /// AF_XDP sockets.
    #[cfg(feature = "xdp")]
    Xdp(xdp::Description),
    /// Kernel UDP sockets.
    Udp(udp::Description),
}

impl DeviceInfo {
    /// Names the receive queues of these numbers, or what there is in their place.
    #[cfg(feature = "capture")]
    pub(crate) fn queue_names(&self, queues: &[u32]) -> Vec<String> {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => {
                queues.iter().map(|queue| format!("{} queue {queue}", xdp.interface)).collect()
            }
            Self::Udp(_) => {
                let _ = queues;
                vec!["udp".to_owned()]
            }
        }
    }

    /// Lists the receive queues of an engine, of so many.
    pub(crate) fn queues_of(&self, engine: u16, engines: u16) -> Vec<u32> {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => {
                engines::queues_of(engine.into(), engines.into(), xdp.queues).collect()
            }
            Self::Udp(_) => {
                let _ = (engine, engines);
                Vec::new()
            }
        }
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(xdp) => xdp.fmt(f),
            Self::Udp(udp) => udp.fmt(f),
        }
    }
}

/// The parts that must live as long as the device, outside the engine: the threads that follow the
/// kernel's routes and neighbours, and the interface itself.
#[derive(Debug)]
pub(crate) enum DeviceKeeper {
    // The follower is dropped first: it reads what the monitor writes.
    #[cfg(feature = "xdp")]
    Xdp(Follower, NetMonitor),
    Udp(BatchingInUse, Arc<UdpCounters>, Keeper),
}

impl DeviceKeeper {
    /// Returns the watch over the device.
    pub(crate) fn watch(&self) -> DeviceWatch {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(follower, monitor) => {
                DeviceWatch::Xdp(follower.watch(), monitor.ways().clone())
            }
            Self::Udp(_, counters, keeper) => {
                DeviceWatch::Udp(counters.clone(), keeper.ways().clone())
            }
        }
    }

    /// Returns the known ways to other hosts, and the host's addresses.
    pub(crate) fn ways(&self) -> &Arc<Ways> {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(_, monitor) => monitor.ways(),
            Self::Udp(_, _, keeper) => keeper.ways(),
        }
    }

    /// Returns the state of the interface. `None` over UDP: the kernel's sockets have none of their
    /// own.
    pub(crate) fn interface(&self) -> Option<InterfaceStatus> {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(follower, _) => Some(follower.watch().status()),
            Self::Udp(..) => None,
        }
    }

    /// Lists the features that fell back to a slower way.
    pub(crate) fn fallbacks(&self) -> Vec<String> {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(follower, _) => {
                let fallbacks = follower.watch().description().fallbacks;
                fallbacks.iter().map(ToString::to_string).collect()
            }
            Self::Udp(batching, counters, _) => batching.fallbacks(counters).collect(),
        }
    }

    #[cfg_attr(not(feature = "xdp"), expect(unused_variables, reason = "for AF_XDP alone"))]
    pub(crate) fn resolve(
        &self,
        destination: HostAddr,
        timeout: Duration,
    ) -> Result<(), HostError> {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(_, monitor) => {
                monitor.resolve(destination, timeout)?;
                Ok(())
            }
            // The kernel finds its way itself, at the first datagram; what that carries is asked.
            Self::Udp(_, _, keeper) => {
                keeper.resolve(destination);
                Ok(())
            }
        }
    }

    /// Has the way to a host looked for that will soon be heard of. Does not wait.
    pub(crate) fn prepare(&self, destination: HostAddr) {
        match self {
            #[cfg(feature = "xdp")]
            Self::Xdp(_, monitor) => monitor.prepare(destination),
            Self::Udp(_, _, keeper) => keeper.prepare(destination),
        }
    }
}

#[cfg(feature = "xdp")]
fn open_xdp(config: XdpConfig, wanted: &[HostAddr]) -> Result<OpenDevice, HostError> {
    let name = &*config.interface;
    let monitor = NetMonitor::start(name)?;
    let interface = monitor.interface();
    let chosen = match wanted {
        [] => own_addresses(interface)?,
        wanted => at_most_one_of_each_family(wanted)?,
    };
    wanted.iter().try_for_each(|&address| reaches(interface, address))?;
    let mut addresses = LocalAddresses::default();
    for address in chosen.iter() {
        if address::wait_until_usable(address, Some(interface.index)) {
            addresses.insert(address);
        } else if wanted.is_empty() && chosen.iter().count() > 1 {
            tracing::warn!(%address, "tentative, or another machine has it: not used");
        } else {
            return Err(HostError::TentativeAddress { interface: name.into(), address });
        }
    }
    if addresses.is_empty() {
        let address = chosen.iter().next().expect("there is one at least");
        return Err(HostError::TentativeAddress { interface: name.into(), address });
    }
    monitor.send_from(addresses);
    let config = config.with(|it| it.local_addresses = addresses.iter().collect());
    let backends = XdpBackend::open_each(&config, &monitor.table())?;
    let follower = Follower::start(&config, &backends)?;
    let info = DeviceInfo::Xdp(follower.watch().description());
    let keeper = DeviceKeeper::Xdp(follower, monitor);
    let backends = backends.into_iter().map(AnyBackend::Xdp).collect();
    Ok(OpenDevice { backends, addresses, info, keeper })
}

fn open_udp(config: UdpConfig, wanted: &[HostAddr]) -> Result<OpenDevice, HostError> {
    let addresses = at_most_one_of_each_family(wanted)?;
    let config = config.with(|it| it.addresses = addresses.iter().collect());
    let mut backend = UdpBackend::open(&config)?;
    let info = DeviceInfo::Udp(backend.describe().clone());
    let (batching, counters) = (backend.describe().batching, backend.counters().clone());
    let keeper = backend.keep().map_err(|source| {
        let what = "starting the thread that follows the ways to other hosts";
        HostError::System { what, source }
    })?;
    let keeper = DeviceKeeper::Udp(batching, counters, keeper);
    Ok(OpenDevice { backends: vec![AnyBackend::Udp(backend)], addresses, info, keeper })
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

/// The interface's addresses: the best of each family. Tentative ones are among them: they will be
/// usable soon. Link-local IPv6 addresses are left out: their names mean nothing on another link.
#[cfg(feature = "xdp")]
fn own_addresses(interface: &Interface) -> Result<LocalAddresses, HostError> {
    let mut addresses = LocalAddresses::default();
    let mut there = interface.addresses.clone();
    there.retain(|it| !it.has_failed && !is_link_local(it.address));
    // The kernel's order among equals: the primary one first.
    there.sort_by_key(|it| (it.is_deprecated, it.is_temporary));
    for InterfaceAddress { address, .. } in there {
        if addresses.toward(address).is_none() {
            addresses.insert(address);
        }
    }
    if !addresses.is_empty() {
        return Ok(addresses);
    }
    let name = || interface.name.clone();
    let mut rest = interface.addresses.iter();
    Err(match rest.find(|it| it.has_failed) {
        Some(it) => HostError::TentativeAddress { interface: name(), address: it.address },
        None => match interface.addresses.first() {
            Some(it) => HostError::LinkLocalAlone { interface: name(), address: it.address },
            None => no_address(interface),
        },
    })
}

#[cfg(feature = "xdp")]
fn no_address(interface: &Interface) -> HostError {
    // A kernel that does not answer leaves it at that.
    let (name, master) = (interface.name.clone(), net::master_of(interface.index));
    match master.unwrap_or_default() {
        Some(net::Master { name: master, address }) => {
            HostError::PortWithoutAddress { interface: name, master, address }
        }
        None => HostError::NoAddress { interface: name },
    }
}

/// Whether frames to `address` may come in on the interface.
#[cfg(feature = "xdp")]
fn reaches(interface: &Interface, address: HostAddr) -> Result<(), HostError> {
    let name = || interface.name.clone();
    if address.ip().is_loopback() {
        return Err(HostError::LoopbackAddress { address, interface: name() });
    }
    // A kernel that does not answer is one that forbids nothing.
    match net::elsewhere(address, interface.index).unwrap_or_default() {
        Some(other) => Err(HostError::AddressElsewhere { address, interface: name(), other }),
        None => Ok(()),
    }
}

#[cfg(feature = "xdp")]
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
