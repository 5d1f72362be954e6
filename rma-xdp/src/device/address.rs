//! Whether an address is this machine's, which device has it, and how a socket is bound to it: as
//! the kernel says, which knows of virtual interfaces, of addresses that are announced elsewhere,
//! and of VRFs.

use core::{
    ffi::{CStr, c_int},
    ptr,
    time::Duration,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rma_core::addr::HostAddr;
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, sockopt},
};

use super::{monotonic::monotonic, udp::option::set_option};

/// How long an address may take to become usable, when a host is opened: duplicate address
/// detection takes a second or two, and five more with `dad_transmits` at 5. Longer: one that is
/// never usable is told later.
const USABLE_AFTER: Duration = Duration::from_secs(8);

/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(20);

/// `SO_BINDTOIFINDEX`
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/socket.h>).
const SO_BINDTOIFINDEX: c_int = 62;

/// A UDP socket of the address's family, bound to nothing.
pub(super) fn unbound(address: HostAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if !address.is_ipv4() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// Binds `socket` to `address`. Link-local addresses mean one on `interface`.
pub(super) fn bind(
    socket: impl AsFd,
    address: HostAddr,
    port: u16,
    interface: Option<u32>,
) -> Result<(), Errno> {
    let name = match address.ip() {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, interface.unwrap_or(0)))
        }
        ip => SocketAddr::new(ip, port),
    };
    rustix::net::bind(socket, &name)
}

/// Binds `socket` as [`bind`] does; and to the interface as well, if a VRF hides the address from
/// sockets that are not.
pub(super) fn bind_also_in_vrf(
    socket: impl AsFd,
    address: HostAddr,
    port: u16,
    interface: Option<u32>,
) -> Result<(), Errno> {
    let bound = bind(&socket, address, port, interface);
    if bound != Err(Errno::ADDRNOTAVAIL) {
        return bound;
    }
    // All interfaces are asked for that alone.
    match interface.or_else(|| Some(device_with(address)?.index)) {
        Some(index) if is_behind(address, index) => {
            bind_to_interface(socket.as_fd(), index)?;
            bind(&socket, address, port, interface)
        }
        _ => bound,
    }
}

/// Whether sockets that are bound to the interface may use `address`.
fn is_behind(address: HostAddr, index: u32) -> bool {
    let bound = || {
        let probe = unbound(address)?;
        bind_to_interface(probe.as_fd(), index)?;
        bind(&probe, address, 0, Some(index))
    };
    bound().is_ok()
}

fn bind_to_interface(socket: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX, index as c_int)
}

/// Whether this machine has `address`, and sockets may use it: a tentative one is not usable yet.
/// `interface`: the index of the one that a VRF may hide it behind, or that a link-local one is on.
pub(super) fn is_usable(address: HostAddr, interface: Option<u32>) -> io::Result<bool> {
    let socket = unbound(address)?;
    match bind_also_in_vrf(&socket, address, 0, interface) {
        Ok(()) => Ok(!is_nonlocal_allowed(address) || is_own(address)),
        Err(Errno::ADDRNOTAVAIL | Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until `address` can be used, if an interface has it and it cannot be used yet. Returns
/// false if it was waited for in vain: it is still tentative, or another machine has it too.
pub(super) fn wait_until_usable(address: HostAddr, interface: Option<u32>) -> bool {
    let give_up = monotonic() + USABLE_AFTER;
    let mut told = false;
    loop {
        // An address that cannot be asked about fails when it is used.
        if is_usable(address, interface).unwrap_or(true) || device_with(address).is_none() {
            return true;
        }
        if monotonic() >= give_up {
            return false;
        }
        if !core::mem::replace(&mut told, true) {
            tracing::info!(%address, "waiting for an address that is tentative");
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Whether sockets may be bound to addresses that the machine does not have.
fn is_nonlocal_allowed(address: HostAddr) -> bool {
    let version = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let setting = format!("/proc/sys/net/{version}/ip_nonlocal_bind");
    std::fs::read_to_string(setting).is_ok_and(|text| text.trim() != "0")
}

/// Whether the kernel sends from `address` what is for `address`. A UDP `connect` sends nothing.
fn is_own(address: HostAddr) -> bool {
    let own = || {
        let socket = unbound(address).ok()?;
        rustix::net::connect(&socket, &SocketAddr::new(address.ip(), 9)).ok()?;
        SocketAddr::try_from(rustix::net::getsockname(&socket).ok()?).ok()
    };
    own().is_some_and(|it| it.ip() == address.ip())
}

/// A network interface that has an address.
#[derive(Clone, Debug)]
struct Device {
    index: u32,
    mtu: u32,
    is_loopback: bool,
    address: HostAddr,
}

/// The interface that has `address`.
fn device_with(address: HostAddr) -> Option<Device> {
    devices().into_iter().find(|device| device.address == address)
}

/// The MTU of the device that frames from `address` leave by: that of the interface which has it.
/// If that is loopback, as of a service whose address is announced by routing, or there is none,
/// the smallest of those that may carry its frames. `None` if nothing tells.
pub(super) fn device_mtu(address: HostAddr) -> Option<u32> {
    let devices = devices();
    let mut of_loopback = devices.iter().filter(|device| device.is_loopback);
    if address.ip().is_loopback() {
        return of_loopback.next().map(|device| device.mtu);
    }
    let own = devices.iter().find(|device| device.address == address && !device.is_loopback);
    let others = devices.iter().filter(|device| !device.is_loopback);
    own.map(|device| device.mtu).or_else(|| others.map(|device| device.mtu).min())
}

/// The interfaces that are up, once for each address. None if the kernel does not say.
fn devices() -> Vec<Device> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the pointer is written, and read below only if the call says that it was.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut devices = Vec::new();
    let mut next = list;
    // SAFETY: it is null, or an entry of the list that getifaddrs made, which is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        devices.extend(device(entry));
    }
    // SAFETY: the list is the one that getifaddrs made, and nothing refers to it any longer.
    unsafe { libc::freeifaddrs(list) };
    devices
}

fn device(entry: &libc::ifaddrs) -> Option<Device> {
    if entry.ifa_flags & libc::IFF_UP as u32 == 0 {
        return None;
    }
    // SAFETY: an entry's address is null or points to a socket address, as long as the list lives.
    let family = c_int::from(unsafe { entry.ifa_addr.as_ref() }?.sa_family);
    let ip: IpAddr = match family {
        libc::AF_INET => {
            // SAFETY: an address of this family is of this type, aligned as glibc and musl do.
            let name = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Ipv4Addr::from_bits(u32::from_be(name.sin_addr.s_addr)).into()
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Ipv6Addr::from(name.sin6_addr.s6_addr).into()
        }
        _ => return None,
    };
    // SAFETY: each entry has a name, ended by a zero, that lives as long as the list.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) };
    // Aliases are named after their interface, with a colon.
    let name = name.to_str().ok()?.split(':').next()?;
    let socket = unbound(HostAddr::from(ip)).ok()?;
    Some(Device {
        index: rustix::net::netdevice::name_to_index(&socket, name).ok()?,
        mtu: mtu_of(&socket, name)?,
        is_loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
        address: ip.into(),
    })
}

fn mtu_of(socket: &OwnedFd, name: &str) -> Option<u32> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_mtu: 0 },
    };
    // The last byte stays zero: the kernel wants a terminated name.
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the descriptor is open, it is borrowed. SIOCGIFMTU reads the name and writes the MTU
    // of an `ifreq`, which is a local that nothing else refers to.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    // SAFETY: every bit pattern is an integer, and the union was written as one above.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    (rc == 0).then_some(mtu).and_then(|mtu| u32::try_from(mtu).ok())
}

/// The MTU of the way that the kernel would send by from `source` to `destination`: of the device,
/// of the route, or as a router said. A UDP `connect` looks up a route and sends nothing.
pub(super) fn path_mtu(source: HostAddr, destination: HostAddr) -> Option<u32> {
    let socket = unbound(source).ok()?;
    bind_also_in_vrf(&socket, source, 0, None).ok()?;
    rustix::net::connect(&socket, &SocketAddr::new(destination.ip(), 9)).ok()?;
    let mtu = match source.is_ipv4() {
        true => sockopt::ip_mtu(&socket),
        false => sockopt::ipv6_mtu(&socket),
    };
    mtu.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_there_and_others_are_not() {
        for (address, is_there) in [("127.0.0.7", true), ("::1", true), ("192.0.2.77", false)] {
            let address = address.parse().unwrap();
            assert_eq!(is_usable(address, None).unwrap(), is_there, "{address}");
        }
    }

    #[test]
    fn the_mtu_of_loopback_is_not_that_of_an_address_that_only_lies_there() {
        let loopback = device_mtu([127, 0, 0, 9].into()).unwrap();
        // No IPv4 packet is longer.
        let longest = loopback.min(65_535);
        assert_eq!(path_mtu([127, 0, 0, 9].into(), [127, 0, 0, 1].into()), Some(longest));
        let elsewhere: Vec<u32> =
            devices().iter().filter(|it| !it.is_loopback).map(|it| it.mtu).collect();
        assert_eq!(device_mtu("192.0.2.77".parse().unwrap()), elsewhere.into_iter().min());
    }
}
