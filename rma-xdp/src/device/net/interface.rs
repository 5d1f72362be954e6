//! The facts about one interface at one moment.
//!
//! Not followed when they change: that is the monitor's work. Nothing here comes from `/sys`, which
//! shows the namespace that it was mounted in, not the one the thread is in.

use std::{io, mem::size_of};

use rustix::{
    fd::AsRawFd,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};

use super::{
    error::NetError,
    netlink::{Delivered, InterfaceAddress, Link, Questions},
};

/// An Ethernet interface as it was when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// The name, as `ip link` shows it.
    pub name: Box<str>,
    /// The index, unique within the network namespace and never reused for long.
    pub index: u32,
    /// The hardware address.
    pub mac: [u8; 6],
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether the administrator has set it up.
    pub is_up: bool,
    /// Whether it is up and has carrier: frames would leave.
    pub is_running: bool,
    /// Its addresses in the kernel's order, IPv4 first.
    pub addresses: Vec<InterfaceAddress>,
    /// Receive queues that frames may arrive on now; at least 1.
    pub rx_queues: u32,
    /// Whether it belongs to a VRF: then routes are the VRF's, and only sockets that are bound to
    /// it use its addresses.
    pub in_vrf: bool,
}

impl Interface {
    /// Looks up the interface `name` in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetError::NoSuchInterface`], [`NetError::NotEthernet`], or [`NetError::Kernel`] if the
    /// kernel does not answer.
    pub fn open(name: &str) -> Result<Self, NetError> {
        let kernel = |doing, source| NetError::Kernel { doing, name: name.into(), source };
        let mut questions =
            Questions::open().map_err(|error| kernel("opening a netlink socket", error))?;
        Self::ask(&mut questions, name)
    }

    /// As [`Interface::open`], over a socket that is already there.
    pub(super) fn ask(questions: &mut Questions, name: &str) -> Result<Self, NetError> {
        let kernel = |doing, source| NetError::Kernel { doing, name: name.into(), source };
        // The kernel would take an empty name or an inner zero byte for something else.
        if name.is_empty() || name.contains('\0') {
            return Err(NetError::NoSuchInterface { name: name.into() });
        }
        let link = questions.link_by_name(name).map_err(|error| match error.raw_os_error() {
            // ERANGE: longer than any name can be.
            Some(libc::ENODEV | libc::ERANGE) => NetError::NoSuchInterface { name: name.into() },
            _ => kernel("asking for the link", error),
        })?;
        let mac = link.mac.ok_or_else(|| NetError::NotEthernet { name: name.into() })?;
        let addresses = questions
            .addresses(link.index)
            .map_err(|error| kernel("asking for the addresses", error))?;
        let rx_queues = rx_queues(&link);
        Ok(Self {
            name: link.name,
            index: link.index,
            mac,
            mtu: link.mtu,
            is_up: link.up,
            is_running: link.running,
            in_vrf: link.in_vrf,
            addresses,
            rx_queues,
        })
    }
}

/// The index of the interface that has `name`, among the names that it has.
///
/// # Errors
/// `ENODEV` if there is none, or what else the kernel says.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    // The kernel would take an empty name or an inner zero byte for something else.
    if name.is_empty() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    Ok(Questions::open()?.link_by_name(name)?.index)
}

/// Receive queues in use. The link message only tells how many the driver could have; drivers that
/// do not answer the finer question have all of them in use.
fn rx_queues(link: &Link) -> u32 {
    channels(&link.name).map_or(link.rx_queues, |it| it.receive).max(1)
}

/// Receive queues that the interface of this index could have at most, which every driver tells.
///
/// # Errors
/// The error of the kernel: there is no such interface, mostly.
pub(crate) fn rx_queues_max(index: u32) -> io::Result<u32> {
    Ok(Questions::open()?.link_by_index(index)?.rx_queues.max(1))
}

/// Returns the packet counts of the interface of this index.
///
/// # Errors
/// The error of the kernel: there is no such interface, mostly.
pub(crate) fn delivered(index: u32) -> io::Result<Delivered> {
    Questions::open()?.delivered(index)
}

/// `struct ethtool_channels`
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/ethtool.h>).
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

const _: () = assert!(size_of::<EthtoolChannels>() == 36);

/// How many queues a driver says are in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    /// Those that receive, at least one.
    pub(crate) receive: u32,
    /// Those that transmit, at least one.
    pub(crate) transmit: u32,
}

/// How many queues the driver says are in use. `name` is the interface's first
/// name, not another that it has.
///
/// # Errors
/// `EOPNOTSUPP` from a driver that does not tell, or what else the kernel says.
pub(crate) fn channels(name: &str) -> io::Result<Channels> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    let mut channels = EthtoolChannels { cmd: ETHTOOL_GCHANNELS, ..Default::default() };
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut channels).cast() },
    };
    // The last byte stays zero: the kernel wants a terminated name.
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the descriptor is open, it is owned by `socket`. SIOCETHTOOL reads and writes an
    // `ifreq`, and ETHTOOL_GCHANNELS an `ethtool_channels` behind its `ifru_data`: both are locals
    // of just these types, and nothing else refers to them during the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let EthtoolChannels { rx_count, tx_count, combined_count, .. } = channels;
    let in_use = |own: u32| own.saturating_add(combined_count).max(1);
    Ok(Channels { receive: in_use(rx_count), transmit: in_use(tx_count) })
}
