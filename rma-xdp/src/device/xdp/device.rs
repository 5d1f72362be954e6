//! What start-up must know about the interface itself: index, up or down, driver, receive queues.
//!
//! Asked by `ioctl` of the calling thread's network namespace. `/sys/class/net` would not do: it
//! shows the namespace that it was mounted in, which is another one for a thread that changed its
//! own.

use std::{
    ffi::c_ulong,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::error::{Refusal, XdpError};
use crate::device::net::rx_queues_max;

/// `ETHTOOL_GCHANNELS`: how many queues of each kind there are
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/ethtool.h>).
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `ETHTOOL_GDRVINFO`: which driver it is. In the same header.
const ETHTOOL_GDRVINFO: u32 = 0x03;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    /// Ended by a zero.
    driver: [u8; 32],
    /// Versions, places, lengths: of no interest here.
    others: [u8; 160],
}

const _: () = assert!(size_of::<DriverInfo>() == 196);

/// An interface of the calling thread's network namespace.
#[derive(Debug)]
pub(super) struct Device<'a> {
    name: &'a str,
    /// Its index.
    pub(super) index: u32,
    socket: OwnedFd,
}

impl<'a> Device<'a> {
    /// Looks `name` up and checks that the interface is up.
    pub(super) fn open(name: &'a str) -> Result<Self, XdpError> {
        let system =
            |call| move |errno: rustix::io::Errno| XdpError::from_call(name, call, errno.into());
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(system("making a socket"))?;
        let unknown = || XdpError::UnknownInterface { interface: name.into() };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(unknown());
        }
        let index = rustix::net::netdevice::name_to_index(socket.as_fd(), name)
            .map_err(system("looking up the interface"))?;
        let device = Self { name, index, socket };
        // SIOCGIFFLAGS writes the flags, a short integer, into the union.
        let request =
            device.ioctl(libc::SIOCGIFFLAGS, libc::__c_anonymous_ifr_ifru { ifru_flags: 0 });
        let request =
            request.map_err(|error| XdpError::from_call(name, "asking for its flags", error))?;
        // SAFETY: every bit pattern is a short integer, and the union was written as one above.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        if i32::from(flags) & libc::IFF_UP == 0 {
            return Err(XdpError::InterfaceDown { interface: name.into() });
        }
        Ok(device)
    }

    /// The number of receive queues, or why the driver does not tell. Many that have just one do
    /// not, nor those of interfaces that have ports (`has_ports`); of these the kernel knows it.
    pub(super) fn rx_queues(&self, has_ports: bool) -> Result<u32, Refusal> {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        let data = (&raw mut channels).cast();
        match self.ioctl(libc::SIOCETHTOOL, libc::__c_anonymous_ifr_ifru { ifru_data: data }) {
            Ok(_) => Ok((channels.rx + channels.combined).max(1)),
            Err(error) => match rx_queues_max(self.index) {
                Ok(max) if max == 1 || has_ports => Ok(max),
                _ => Err(Refusal::Errno {
                    call: "ETHTOOL_GCHANNELS",
                    errno: error.raw_os_error().unwrap_or_default(),
                }),
            },
        }
    }

    /// The driver's name, as `ethtool -i` shows it. `None` if it has none, as bridges and loopback
    /// in old kernels, or one that is no text.
    pub(super) fn driver(&self) -> Option<Box<str>> {
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], others: [0; 160] };
        let data = (&raw mut info).cast();
        self.ioctl(libc::SIOCETHTOOL, libc::__c_anonymous_ifr_ifru { ifru_data: data }).ok()?;
        let name = info.driver.split(|&byte| byte == 0).next().unwrap_or_default();
        str::from_utf8(name).ok().filter(|name| !name.is_empty()).map(Into::into)
    }

    fn ioctl(&self, code: c_ulong, union: libc::__c_anonymous_ifr_ifru) -> io::Result<libc::ifreq> {
        let mut request = libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: union };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as _;
        }
        // SAFETY: `request` has the layout that both codes expect, its name is ended by a zero (the
        // length was checked in `open`), and it lives across the call; so does what its pointer
        // names for SIOCETHTOOL, a `Channels` or a `DriverInfo` of the caller, which is as large as
        // the command in it writes.
        let rc = unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, &raw mut request) };
        if rc == 0 { Ok(request) } else { Err(io::Error::last_os_error()) }
    }
}
