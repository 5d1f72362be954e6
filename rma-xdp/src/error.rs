//! Errors of a host.

use core::time::Duration;

use rma_app::{BufferPoolError, StartError, WaitError};
use rma_core::{
    addr::HostAddr, error::RegionError, executor::ExecutorConfigError, gate::Refused,
    nic::ConfigError,
};
use rma_shm::{Forked, Told};
#[cfg(feature = "star")]
use rma_star::config::StarConfigError;
use thiserror::Error;

#[cfg(feature = "xdp")]
use crate::device::{
    net::{NetError, PathError},
    xdp::XdpError,
};
#[cfg(feature = "star")]
use crate::star::error::StarError;
use crate::{
    device::{engines::Engines, udp::UdpError},
    driver::tenant::AllocationError,
    iv_blocks::CounterError,
};

/// The reason why a host could not be opened, or could not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostError {
    /// The AF_XDP device could not be opened.
    #[cfg(feature = "xdp")]
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The UDP sockets could not be opened.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// The kernel could not be asked about an interface.
    #[cfg(feature = "xdp")]
    #[error(transparent)]
    Net(#[from] NetError),
    /// There is no way to a destination.
    #[cfg(feature = "xdp")]
    #[error(transparent)]
    Path(#[from] PathError),
    /// The message counter has no values that are certain to be fresh.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// The key log that the environment names cannot be written.
    #[cfg(feature = "keylog")]
    #[error(transparent)]
    KeyLog(#[from] crate::keylog::KeyLogError),
    /// A setting of the NIC cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A setting of StaR cannot work.
    #[cfg(feature = "star")]
    #[error(transparent)]
    StarConfig(#[from] StarConfigError),
    /// A region could not be registered, or is not.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The memory for a region could not be had.
    #[error(transparent)]
    Memory(#[from] rma_shm::MemoryError),
    /// The driver's policy did not allow an allocation.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// A setting of the CommandExecutor cannot work.
    #[error(transparent)]
    Transfers(#[from] ExecutorConfigError),
    /// A pool of buffers cannot have this shape.
    #[error(transparent)]
    BufferPool(#[from] BufferPoolError),
    /// StaR did not do what it was asked.
    #[cfg(feature = "star")]
    #[error(transparent)]
    Star(#[from] StarError),
    /// Nothing would come of waiting.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A host cannot have so many engines.
    #[error(
        "{engines} engines were asked for; a host has 1 to {}: ask for one of these, or for one for each queue",
        crate::device::engines::ENGINES_MAX
    )]
    Engines {
        /// How many were asked for.
        engines: Engines,
    },
    /// Over UDP there is one socket, so one engine.
    #[error(
        "{engines} engines were asked for, and a host over UDP has one: open it over AF_XDP, on an interface, or ask for one"
    )]
    OneEngineOverUdp {
        /// How many were asked for.
        engines: u32,
    },
    /// Whoever turns an inline engine is one thread.
    #[error(
        "{engines} engines were asked for, and an inline host has one, which its caller turns: open it as a Host, or ask for one"
    )]
    OneEngineInline {
        /// How many were asked for.
        engines: u32,
    },
    /// Each engine is pinned to a core of its own, if to any.
    #[error(
        "{cores} core(s) were named for {engines} engines: name as many, each once, or none at all"
    )]
    Cores {
        /// How many different ones were named.
        cores: usize,
        /// How many engines there are.
        engines: usize,
    },
    /// More than one address of one family was configured.
    #[error(
        "{first} and {second} are both IPv{version} addresses; a host has at most one of each family"
    )]
    TwoAddresses {
        /// One of them.
        first: HostAddr,
        /// The other.
        second: HostAddr,
        /// Their family: 4 or 6.
        version: u8,
    },
    /// The interface has no address that could be the host's.
    #[error(
        "interface {interface} has no usable address; add one: ip addr add ADDRESS/PREFIX dev {interface}"
    )]
    NoAddress {
        /// The interface.
        interface: Box<str>,
    },
    /// The interface is a port of another, which has the addresses.
    #[error(
        "interface {interface} has no address of its own, as a port of {master}, which has {address}: open {master}"
    )]
    PortWithoutAddress {
        /// The interface.
        interface: Box<str>,
        /// The bridge or bond.
        master: Box<str>,
        /// Its address.
        address: HostAddr,
    },
    /// No other host reaches a loopback address.
    #[error(
        "{address} is a loopback address, and frames to it never leave this machine: give one of those that `ip addr show dev {interface}` lists, or open a host over UDP (HostConfig::udp; of rma-bench: --udp {address})"
    )]
    LoopbackAddress {
        /// The address.
        address: HostAddr,
        /// The interface.
        interface: Box<str>,
    },
    /// The address is another interface's, which frames to it come in on.
    #[error(
        "{address} is an address of interface {other}, and frames to it come in there, not on {interface}: open {other}, or give one of those that `ip addr show dev {interface}` lists"
    )]
    AddressElsewhere {
        /// The address.
        address: HostAddr,
        /// The interface.
        interface: Box<str>,
        /// The one that has it.
        other: Box<str>,
    },
    /// The address is not usable yet, or never will be.
    #[error(
        "address {address} of interface {interface} is tentative: duplicate address detection has not ended, or has found \
         another machine with it (dadfailed); see `ip addr show dev {interface}`"
    )]
    TentativeAddress {
        /// The interface.
        interface: Box<str>,
        /// The address.
        address: HostAddr,
    },
    /// The interface has no address but one that means something on its link only.
    #[error(
        "interface {interface} has a link-local address alone, which is good for hosts on its link: choose it with \
         --address {address}%{interface}, or add one: ip addr add ADDRESS/PREFIX dev {interface}"
    )]
    LinkLocalAlone {
        /// The interface.
        interface: Box<str>,
        /// The address.
        address: HostAddr,
    },
    /// A grant was asked for an initiator of a family that this host has no address of.
    #[error(
        "this host has no IPv{version} address; use the initiator's other address, or add one here"
    )]
    NoAddressOfFamily {
        /// The family: 4 or 6.
        version: u8,
    },
    /// The operating system has no such core, or does not let this process run there.
    #[error(
        "the engine cannot be pinned to core {core}: this process may use {}; choose one of these, or give it others with \
         `taskset --cpu-list`", cores(.available)
    )]
    NoSuchCore {
        /// The refused core.
        core: usize,
        /// The cores that the process may use, in ascending order.
        available: Box<[usize]>,
    },
    /// The system refused something that the host needs.
    #[error("{what}: {}", Told::of_thread(source))]
    System {
        /// The request.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The host is that of the process which this one was forked from.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The engine thread is gone: it panicked. A bug.
    #[error("the engine thread has ended; this is a bug, its panic message says where")]
    EngineGone,
    /// The engine did not answer. Its thread is not being scheduled.
    #[error(
        "the engine thread has not answered for {waited:?}; is its core busy with something of higher priority?{}",
        if *is_under_way { " It has taken up what it was asked, and will do it then" } else { "" }
    )]
    EngineStuck {
        /// For how long.
        waited: Duration,
        /// Whether an engine has taken up what it was asked: then [`rekey`](crate::Host::rekey) is
        /// under way, and will be done, unless it is followed by another. Everything else that is
        /// asked of a host is undone again.
        is_under_way: bool,
    },
}

impl HostError {
    /// Whether an engine can be pinned to `core`, as far as the operating system lets this process
    /// run there.
    ///
    /// # Errors
    /// [`HostError::NoSuchCore`].
    pub fn check_core(core: usize) -> Result<(), Self> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let mut available: Box<[usize]> = cores.into_iter().map(|core| core.id).collect();
        available.sort_unstable();
        if available.contains(&core) { Ok(()) } else { Err(Self::NoSuchCore { core, available }) }
    }
}

/// Cores as `taskset` shows them: "core 3", "cores 0-3,8".
fn cores(available: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &core in available {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => ranges.push((core, core)),
        }
    }
    let text = |&(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let texts: Vec<String> = ranges.iter().map(text).collect();
    match available {
        [] => "none that the system tells of".to_owned(),
        [_] => format!("core {}", texts.join(",")),
        _ => format!("cores {}", texts.join(",")),
    }
}

impl From<HostError> for Refused {
    fn from(error: HostError) -> Self {
        let is_under_way = matches!(error, HostError::EngineStuck { is_under_way: true, .. });
        Self::new(error).with_under_way(is_under_way)
    }
}

impl From<StartError> for HostError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Wait(error) => Self::Wait(error),
            StartError::Thread(source) => {
                Self::System { what: "starting a client's thread", source }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_cannot_be_had_is_refused_with_those_that_can() {
        let text = |available: &[usize]| {
            HostError::NoSuchCore { core: 7, available: available.into() }.to_string()
        };
        assert!(text(&[0, 1]).contains("core 7: this process may use cores 0-1; choose one"));
        assert!(text(&[0, 1, 2, 4, 8, 9]).contains("may use cores 0-2,4,8-9;"));
        assert!(text(&[3]).contains("may use core 3;"));
        assert!(matches!(HostError::check_core(99_999), Err(HostError::NoSuchCore { .. })));
    }
}
