//! Errors of opening an AF_XDP backend. There is one variant and one constructor for each cause:
//! each names the thing, the value and the next step.
//!
//! Errors here are for people and for start-up. What goes wrong with a frame later is a counter
//! ([`super::counters`]).

use std::{error::Error, io, net::IpAddr};

use arrayvec::ArrayString;
use rma_core::port::PortsError;
use rma_shm::{Shortage, Told};

use super::{
    broken::Broken,
    capabilities::Capabilities,
    occupant::{AttachedProgram, Process},
};

/// The reason why [`super::XdpBackend::open`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// Nobody can listen on these ports.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// A configuration field breaks a rule.
    #[error("{field} is {value}, but {rule}")]
    Config {
        /// The field of [`super::XdpConfig`].
        field: &'static str,
        /// Its value.
        value: u64,
        /// The rule.
        rule: &'static str,
    },
    /// No local address was configured.
    #[error(
        "no local address is configured for interface {interface}: give at least one of those that `ip addr show {interface}` lists"
    )]
    NoLocalAddress {
        /// The interface.
        interface: Box<str>,
    },
    /// No interface has this name.
    #[error(
        "there is no interface named {interface:?} in this network namespace: `ip link` lists them"
    )]
    UnknownInterface {
        /// The name.
        interface: Box<str>,
    },
    /// The interface is administratively down.
    #[error("interface {interface} is down: `ip link set {interface} up`")]
    InterfaceDown {
        /// The interface.
        interface: Box<str>,
    },
    /// The MTU is below what IP itself demands of a link.
    #[error(
        "interface {interface} has MTU {mtu}, but IPv{version} needs at least {minimum}: `ip link set {interface} mtu 1500`"
    )]
    MtuTooSmall {
        /// The interface.
        interface: Box<str>,
        /// Its MTU in bytes.
        mtu: u32,
        /// The IP version that needs more.
        version: u8,
        /// The least that is accepted.
        minimum: u32,
    },
    /// A packet of the MTU needs several buffers, and the kernel or driver does not do that.
    #[error(
        "interface {interface} has MTU {mtu}; above {limit} AF_XDP needs multi-buffer support, which this kernel (6.6 or newer) or driver lacks ({source}): `ip link set {interface} mtu {limit}`"
    )]
    MultiBuffer {
        /// The interface.
        interface: Box<str>,
        /// Its MTU in bytes.
        mtu: u32,
        /// The largest MTU that works with one buffer.
        limit: u32,
        /// The error of the kernel.
        source: io::Error,
    },
    /// Zero-copy was asked for, and cannot be had.
    #[error(
        "interface {interface}: zero-copy was asked for, and {reason} ({source}); native mode alone does not insist on it"
    )]
    ZeroCopy {
        /// The interface.
        interface: Box<str>,
        /// The reason.
        reason: Refusal,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The process lacks capabilities.
    #[error(
        "interface {interface}: {action} is not permitted: this process lacks {missing}; run it as root, or give its program all that AF_XDP needs: `sudo setcap {} PROGRAM`",
        Capabilities::NEEDED.as_setcap()
    )]
    MissingCapability {
        /// The interface.
        interface: Box<str>,
        /// The action that was refused.
        action: &'static str,
        /// The capabilities that it lacks of all that AF_XDP needs.
        missing: Capabilities,
    },
    /// The kernel refused, and it is not for a capability.
    #[error(
        "interface {interface}: {action} is not permitted, though this process has {} ({source}): a container, a user namespace or a security module forbids it; run it outside of that",
        Capabilities::NEEDED
    )]
    Forbidden {
        /// The interface.
        interface: Box<str>,
        /// The action that was refused.
        action: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// An XDP program is on the interface already: another instance, or somebody else's.
    #[error(
        "interface {interface} already has an XDP program attached{}",
        program.as_ref().map_or_else(
            || format!(": `ip -d link show dev {interface}` names it; stop what attached it"),
            |program| format!(" {program}"),
        )
    )]
    ProgramAttached {
        /// The interface.
        interface: Box<str>,
        /// The program, where the kernel tells.
        program: Option<AttachedProgram>,
    },
    /// An XDP program is on an interface that lies on top of this one: a VLAN of it, the bridge
    /// that it is a port of. Then the kernel takes none here.
    #[error(
        "interface {interface} takes no XDP program while an interface on top of it has one: {}",
        program.as_ref().map_or_else(
            || format!(
                "none is in this network namespace, so look into those to which interfaces on top of {interface} were moved: `ip -all netns exec ip -d link show` shows programs as prog/xdp"
            ),
            |program| format!("{} {program}", program.interface),
        )
    )]
    ProgramOnTop {
        /// The interface.
        interface: Box<str>,
        /// The program, if its interface is in this network namespace.
        program: Option<AttachedProgram>,
    },
    /// Neither native nor generic XDP is possible.
    #[error(
        "interface {interface} takes XDP in neither mode: native: {native}; generic: {generic}; is it an Ethernet interface?"
    )]
    AttachFailed {
        /// The interface.
        interface: Box<str>,
        /// The reason why native mode failed, or that it was not asked for.
        native: Refusal,
        /// The reason why generic mode failed, or that it was not asked for.
        generic: Refusal,
    },
    /// Native mode was asked for on a bond.
    #[error(
        "interface {interface} is a bond: in native mode the steering program runs on the ports of the bond, and the kernel drops what it redirects there to a socket of {interface}; ask for generic mode, or for none, which is generic mode on a bond"
    )]
    NativeOnBond {
        /// The interface.
        interface: Box<str>,
    },
    /// The kernel did not load the steering program.
    #[error(
        "the steering program for interface {interface} did not load: {source}; Linux 5.18 or newer is needed"
    )]
    SteeringProgram {
        /// The interface.
        interface: Box<str>,
        /// The error of aya or of the kernel's verifier.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The UDP port is taken, so frames for us would be taken from another, or the other way round.
    #[error(
        "UDP port {port} on {address} is in use by another instance or service: `ss -ulpn 'sport = :{port}'` names it; stop it or choose another port"
    )]
    PortInUse {
        /// The port.
        port: u16,
        /// The address.
        address: IpAddr,
    },
    /// A configured local address is not on this machine, or not usable yet.
    #[error(
        "{address} cannot be used as a local address on interface {interface} ({source}): `ip addr show {interface}` lists the addresses; a tentative one is usable after a second"
    )]
    LocalAddress {
        /// The interface.
        interface: Box<str>,
        /// The address.
        address: IpAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// Another AF_XDP socket is bound to the queue.
    #[error(
        "receive queue {queue} of interface {interface} is in use by another AF_XDP socket{}",
        holder.as_ref().map_or_else(
            || ": stop the program that owns it, which was not found among the processes that this one sees".into(),
            Process::as_owner,
        )
    )]
    QueueInUse {
        /// The interface.
        interface: Box<str>,
        /// The queue.
        queue: u32,
        /// The process that has the socket, where that can be seen.
        holder: Option<Process>,
    },
    /// Each engine needs a queue of its own, to receive on and to transmit on.
    #[error(
        "interface {interface} has {receive} receive and {transmit} transmit queue(s), and each of {engines} engines needs one of both: `ethtool -L {interface} combined {engines}`, or `ethtool -L {interface} rx {engines} tx {engines}`, gives it as many if `ethtool -l {interface}` shows that it can have them; else ask for fewer engines"
    )]
    TooFewQueues {
        /// The interface.
        interface: Box<str>,
        /// Its receive queues.
        receive: u32,
        /// Its transmit queues.
        transmit: u32,
        /// The host's engines.
        engines: u32,
    },
    /// UMEM could not be mapped or registered.
    #[error(
        "interface {interface}: {bytes} bytes of UMEM could not be had: {}; or lower chunk_count",
        Told::of(source)
    )]
    UmemAllocation {
        /// The interface.
        interface: Box<str>,
        /// How much was asked for.
        bytes: u64,
        /// The error of the kernel.
        source: io::Error,
    },
    /// UMEM is locked memory, and there is a limit to it.
    #[error(
        "interface {interface}: {bytes} bytes of UMEM exceed the limit for locked memory, and this process lacks {}: run it as root, or give its program all that AF_XDP needs: `sudo setcap {} PROGRAM`; or raise the limit: `ulimit -l unlimited`",
        Capabilities::LOCKED_MEMORY, Capabilities::NEEDED.as_setcap()
    )]
    UmemLockedMemory {
        /// The interface.
        interface: Box<str>,
        /// How much was asked for.
        bytes: u64,
    },
    /// A limit of this process was met.
    #[error("interface {interface}: {call} failed: {source}; {shortage}")]
    Shortage {
        /// The interface.
        interface: Box<str>,
        /// The call.
        call: &'static str,
        /// The limit.
        shortage: Shortage,
        /// The error of the kernel or a library.
        source: io::Error,
    },
    /// A system call failed for a reason that has no variant of its own.
    #[error("interface {interface}: {call} failed: {source}")]
    System {
        /// The interface.
        interface: Box<str>,
        /// The call.
        call: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// The name of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceName(ArrayString<{ libc::IFNAMSIZ }>);

impl InterfaceName {
    /// As the kernel has it: none is longer.
    pub(super) fn new(name: &str) -> Self {
        Self(ArrayString::from(name).unwrap_or_default())
    }
}

impl core::fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why a mode or feature is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The kernel refused a call, with this error number.
    Errno {
        /// The call.
        call: &'static str,
        /// The error number.
        errno: i32,
    },
    /// The driver does not offer it.
    Driver,
    /// The driver offers it, and not here: its device, the machine or a setting lacks something.
    DriverHere,
    /// The driver does not offer it, or not here; the kernel does not tell which.
    DriverUntold,
    /// The driver's zero-copy takes packets of one buffer, and the MTU needs several.
    OneBuffer {
        /// The interface.
        interface: InterfaceName,
        /// The largest MTU that works with one.
        limit: u32,
    },
    /// The driver's is known to lose all frames.
    KnownBroken(Broken),
    /// Frames got lost in it.
    Mute,
    /// The configuration declines it.
    Declined,
    /// The configuration did not ask for it.
    NotWanted,
    /// There is none in generic mode, whatever the driver.
    GenericMode,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Errno { call, errno } => {
                write!(f, "{call}: {}", io::Error::from_raw_os_error(*errno))
            }
            Self::Driver => f.write_str("the driver does not offer it"),
            Self::DriverHere => f.write_str("the driver offers it and refuses it here"),
            Self::DriverUntold => f.write_str(
                "the driver does not offer it, or refuses it here (Linux 6.3 and newer tell which)",
            ),
            Self::OneBuffer { interface, limit } => write!(
                f,
                "the driver's takes packets of one buffer only: \
                 `ip link set {interface} mtu {limit}`"
            ),
            Self::KnownBroken(Broken { driver, mended: None }) => {
                write!(f, "declined, as that of driver {driver} is known to lose all frames")
            }
            Self::KnownBroken(Broken { driver, mended: Some(release) }) => write!(
                f,
                "declined, as that of driver {driver} is known to lose all frames before Linux \
                 {release}"
            ),
            Self::Mute => f.write_str("given up, as the device was mute with it"),
            Self::Declined => f.write_str("declined by the settings"),
            Self::NotWanted => f.write_str("not asked for"),
            Self::GenericMode => f.write_str("generic XDP has none"),
        }
    }
}

/// The call by which the kernel says what it has not: a queue, or a mode.
pub(super) const BIND: &str = "binding an AF_XDP socket";

impl XdpError {
    /// A failed system call, by its error number.
    pub(crate) fn from_call(interface: &str, call: &'static str, source: io::Error) -> Self {
        if let Some(shortage) = Shortage::of(&source) {
            return Self::Shortage { interface: interface.into(), call, shortage, source };
        }
        let interface = interface.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                let missing = Capabilities::missing();
                if missing.is_empty() {
                    Self::Forbidden { interface, action: call, source }
                } else {
                    Self::MissingCapability { interface, action: call, missing }
                }
            }
            Some(libc::ENODEV | libc::ENXIO) => Self::UnknownInterface { interface },
            _ => Self::System { interface, call, source },
        }
    }

    /// Fewer queues than engines.
    pub(super) fn too_few_queues(
        interface: &str,
        receive: u32,
        transmit: u32,
        engines: u32,
    ) -> Self {
        Self::TooFewQueues { interface: interface.into(), receive, transmit, engines }
    }

    /// The error number, if it was one receive queue that could not be had.
    pub(super) fn queue_errno(&self) -> Option<i32> {
        match self {
            Self::QueueInUse { .. } => Some(libc::EBUSY),
            Self::UmemLockedMemory { .. } => Some(libc::ENOBUFS),
            // Of a library that met a limit the number may be lost.
            Self::Shortage { source, .. } => source.raw_os_error().or(Some(libc::EMFILE)),
            Self::UmemAllocation { source, .. }
            | Self::System { source, .. }
            | Self::ZeroCopy { source, .. }
            | Self::MultiBuffer { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// A thread that could not be started.
    pub(crate) fn from_thread(interface: &str, call: &'static str, source: io::Error) -> Self {
        let interface = interface.into();
        match Shortage::of_thread(&source) {
            Some(shortage) => Self::Shortage { interface, call, shortage, source },
            None => Self::System { interface, call, source },
        }
    }

    /// A failed call of a library, if a limit of this process is why.
    pub(crate) fn of_library(
        interface: &str,
        call: &'static str,
        source: &io::Error,
    ) -> Option<Self> {
        let shortage = Shortage::of_library(source)?;
        let source = source
            .raw_os_error()
            .map_or_else(|| io::Error::other(source.to_string()), io::Error::from_raw_os_error);
        Some(Self::Shortage { interface: interface.into(), call, shortage, source })
    }

    /// A UMEM of so many bytes that could not be had.
    pub(crate) fn from_umem(interface: &str, bytes: u64, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::from_call(interface, "registering a UMEM", source)
            }
            // See `Umem::register`.
            Some(libc::ENOBUFS) => Self::UmemLockedMemory { interface: interface.into(), bytes },
            _ => Self::UmemAllocation { interface: interface.into(), bytes, source },
        }
    }

    /// A socket that could not be bound to `queue`.
    pub(crate) fn from_bind(interface: &str, queue: u32, source: io::Error) -> Self {
        if source.raw_os_error() == Some(libc::EBUSY) {
            return Self::QueueInUse { interface: interface.into(), queue, holder: None };
        }
        Self::from_call(interface, BIND, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(errno: i32) -> XdpError {
        XdpError::from_call("eth9", "a call", io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn a_refused_permission_names_what_is_missing_and_what_to_do() {
        let error = XdpError::MissingCapability {
            interface: "eth9".into(),
            action: "a call",
            missing: Capabilities::LOCKED_MEMORY,
        };
        let text = error.to_string();
        assert!(
            text.contains(
                "interface eth9: a call is not permitted: this process lacks CAP_IPC_LOCK;"
            )
        );
        let setcap = "setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock+ep PROGRAM";
        assert!(text.contains(setcap), "{text}");
    }

    #[test]
    fn a_limit_of_the_process_is_named_with_how_to_raise_it() {
        for (errno, named) in [(libc::EMFILE, "ulimit -n"), (libc::ENFILE, "fs.file-max")] {
            let text = from(errno).to_string();
            assert!(text.contains(named), "{text}");
        }
        let busy = io::Error::from_raw_os_error(libc::EAGAIN);
        let text = XdpError::from_thread("eth9", "starting a thread", busy).to_string();
        assert!(text.contains("ulimit -u"), "{text}");
    }

    #[test]
    fn a_vanished_interface_is_an_unknown_interface() {
        assert!(matches!(from(libc::ENODEV), XdpError::UnknownInterface { .. }));
    }

    #[test]
    fn an_attached_program_that_is_unknown_is_said_how_to_find() {
        let interface = "eth9".into();
        let attached = XdpError::ProgramAttached { interface, program: None }.to_string();
        assert!(attached.contains("attached: `ip -d link show dev eth9` names it"), "{attached}");
        let interface = "eth9".into();
        let on_top = XdpError::ProgramOnTop { interface, program: None }.to_string();
        assert!(on_top.contains("on top of eth9 were moved"), "{on_top}");
    }

    #[test]
    fn the_owner_of_a_queue_is_named_where_it_is_known() {
        let text = |holder| {
            XdpError::QueueInUse { interface: "eth9".into(), queue: 3, holder }.to_string()
        };
        assert!(text(None).contains("receive queue 3 of interface eth9 is in use"));
        assert!(text(None).contains("which was not found"));
    }
}
