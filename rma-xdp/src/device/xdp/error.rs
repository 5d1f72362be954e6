//! Why an AF_XDP backend could not be opened. One variant and one constructor for each cause: each
//! names the thing, the value and the next step.
//!
//! Errors here are for people and for start-up. What goes wrong with a frame later is a counter
//! ([`super::counters`]).

use std::{error::Error, io, net::IpAddr};

use arrayvec::ArrayString;
use rma_core::port::PortsError;

use super::{broken::Broken, capabilities::Capabilities};

/// Why [`super::XdpBackend::open`] failed.
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
        /// What must hold.
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
        /// What the kernel said.
        source: io::Error,
    },
    /// Zero-copy was asked for, and cannot be had.
    #[error(
        "interface {interface}: zero-copy was asked for, and {reason} ({source}); native mode alone does not insist on it"
    )]
    ZeroCopy {
        /// The interface.
        interface: Box<str>,
        /// Why not.
        reason: Refusal,
        /// What the kernel said.
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
        /// What was refused.
        action: &'static str,
        /// What it lacks of all that AF_XDP needs.
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
        /// What was refused.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// An XDP program is on the interface already: another instance, or somebody else's.
    #[error(
        "interface {interface} already has an XDP program attached{}: stop the instance that owns it, or detach it with `ip link set {interface} xdp off`",
        program.as_ref().map(|program| format!(" (id {}, name {:?})", program.id, program.name)).unwrap_or_default()
    )]
    ProgramAttached {
        /// The interface.
        interface: Box<str>,
        /// The program, where the kernel tells.
        program: Option<AttachedProgram>,
    },
    /// Neither native nor generic XDP is possible.
    #[error(
        "interface {interface} takes XDP in neither mode: native: {native}; generic: {generic}; is it an Ethernet interface?"
    )]
    AttachFailed {
        /// The interface.
        interface: Box<str>,
        /// Why native mode failed, or that it was not asked for.
        native: Refusal,
        /// Why generic mode failed, or that it was not asked for.
        generic: Refusal,
    },
    /// The kernel did not load the steering program.
    #[error(
        "the steering program for interface {interface} did not load: {source}; Linux 5.18 or newer is needed"
    )]
    SteeringProgram {
        /// The interface.
        interface: Box<str>,
        /// What aya or the kernel's verifier said.
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
        /// What the kernel said.
        source: io::Error,
    },
    /// Another AF_XDP socket is bound to the queue.
    #[error(
        "receive queue {queue} of interface {interface} is in use by another AF_XDP socket: stop the program that owns it"
    )]
    QueueInUse {
        /// The interface.
        interface: Box<str>,
        /// The queue.
        queue: u32,
    },
    /// UMEM could not be mapped or registered.
    #[error(
        "interface {interface}: {bytes} bytes of UMEM could not be had ({source}): lower chunk_count"
    )]
    UmemAllocation {
        /// The interface.
        interface: Box<str>,
        /// How much was asked for.
        bytes: u64,
        /// What the kernel said.
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
    /// A system call failed for a reason that has no variant of its own.
    #[error("interface {interface}: {call} failed: {source}")]
    System {
        /// The interface.
        interface: Box<str>,
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The XDP program that is on an interface already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// Its id, as `bpftool prog` shows it.
    pub id: u32,
    /// Its name, empty if the kernel does not tell.
    pub name: Box<str>,
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

/// Why a mode or feature is not in use.
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

impl XdpError {
    /// A failed system call, by its error number.
    pub(crate) fn from_call(interface: &str, call: &'static str, source: io::Error) -> Self {
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

    /// A failed creation of a UMEM of so many bytes.
    pub(crate) fn from_umem(
        interface: &str,
        bytes: u64,
        error: &xsk_rs::umem::UmemCreateError,
    ) -> Self {
        let source = cause(error);
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::from_call(interface, "creating an AF_XDP socket", source)
            }
            // The kernel's answer to locked memory beyond the limit:
            // xdp_umem_account_pages,
            // https://github.com/torvalds/linux/blob/v6.12/net/xdp/xdp_umem.c
            Some(libc::ENOBUFS) => Self::UmemLockedMemory { interface: interface.into(), bytes },
            _ => Self::UmemAllocation { interface: interface.into(), bytes, source },
        }
    }

    /// A failed creation of a socket on `queue`.
    pub(crate) fn from_socket(
        interface: &str,
        queue: u32,
        error: &xsk_rs::socket::SocketCreateError,
    ) -> Self {
        let source = cause(error);
        match source.raw_os_error() {
            Some(libc::EBUSY) => Self::QueueInUse { interface: interface.into(), queue },
            _ => Self::from_call(interface, "binding an AF_XDP socket", source),
        }
    }
}

/// The error of the system call behind an error of xsk-rs. It has one wherever the kernel failed;
/// the others are broken promises of libxdp.
fn cause(error: &(dyn Error + 'static)) -> io::Error {
    match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(io) => {
            io.raw_os_error().map_or_else(|| io.kind().into(), io::Error::from_raw_os_error)
        }
        None => io::Error::other("libxdp returned an incomplete socket"),
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
    fn a_vanished_interface_is_an_unknown_interface() {
        assert!(matches!(from(libc::ENODEV), XdpError::UnknownInterface { .. }));
    }

    #[test]
    fn an_attached_program_is_named_where_it_is_known() {
        let unknown = XdpError::ProgramAttached { interface: "eth9".into(), program: None };
        assert!(unknown.to_string().contains("already has an XDP program attached: stop"));
        let program = Some(AttachedProgram { id: 7, name: "rma_steer".into() });
        let known = XdpError::ProgramAttached { interface: "eth9".into(), program };
        assert!(known.to_string().contains("(id 7, name \"rma_steer\")"));
    }
}
