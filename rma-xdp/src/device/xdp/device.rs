//! The facts that an attachment must know about the interface itself: its name, up or down, driver,
//! queues.
//!
//! It is the interface of an index: names change hands. Asked by `ioctl` of the calling thread's
//! network namespace. `/sys/class/net` would not do: it shows the namespace that it was mounted in,
//! which is another one for a thread that changed its own.

use std::{
    ffi::c_ulong,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice::index_to_name};

use super::error::XdpError;
use crate::device::net::{Channels, channels, rx_queues_max};

/// `ETHTOOL_GDRVINFO`: which driver it is
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/ethtool.h>).
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
pub(super) struct Device {
    /// Its name just now.
    pub(super) name: Box<str>,
    pub(super) index: u32,
    socket: OwnedFd,
}

/// How many receive queues there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RxQueues {
    /// As the driver tells.
    Exactly(u32),
    /// The driver does not tell; no more than these.
    AtMost(u32),
}

impl RxQueues {
    /// How many to try to have.
    pub(super) fn most(self) -> u32 {
        match self {
            Self::Exactly(queues) | Self::AtMost(queues) => queues,
        }
    }
}

/// How many queues there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queues {
    pub(super) receive: RxQueues,
    /// `None` if the driver does not tell.
    transmit: Option<u32>,
}

impl Queues {
    /// How many can certainly both receive and transmit.
    pub(super) fn pairs(self) -> u32 {
        match self.receive {
            RxQueues::Exactly(receive) => self.transmit.map_or(receive, |it| it.min(receive)),
            RxQueues::AtMost(_) => 1,
        }
    }

    /// Whether each engine may have one to receive on and one to transmit on.
    pub(super) fn suffice(self, interface: &str, engines: u32) -> Result<(), XdpError> {
        let receive = self.receive.most();
        let transmit = self.transmit.unwrap_or(receive);
        if engines <= receive.min(transmit) {
            return Ok(());
        }
        Err(XdpError::too_few_queues(interface, receive, transmit, engines))
    }
}

impl Device {
    /// The interface of this index, whether up or down. `last_name` is what errors call it if it
    /// has none.
    pub(super) fn open(index: u32, last_name: &str) -> Result<Self, XdpError> {
        let system = |call| {
            move |errno: rustix::io::Errno| XdpError::from_call(last_name, call, errno.into())
        };
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(system("making a socket"))?;
        let name = index_to_name(&socket, index).map_err(system("asking for its name"))?;
        Ok(Self { name: name.into(), index, socket })
    }

    /// Whether its administrator has set it up.
    pub(super) fn is_up(&self) -> Result<bool, XdpError> {
        // SIOCGIFFLAGS writes the flags, a short integer, into the union.
        let request =
            self.ioctl(libc::SIOCGIFFLAGS, libc::__c_anonymous_ifr_ifru { ifru_flags: 0 });
        let request = request
            .map_err(|error| XdpError::from_call(&self.name, "asking for its flags", error))?;
        // SAFETY: every bit pattern is a short integer, and the union was written as one above.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(i32::from(flags) & libc::IFF_UP != 0)
    }

    /// The numbers of its queues, as they are just now.
    pub(super) fn queues(&self) -> Result<Queues, XdpError> {
        if let Ok(Channels { receive, transmit }) = channels(&self.name) {
            return Ok(Queues { receive: RxQueues::Exactly(receive), transmit: Some(transmit) });
        }
        let receive = self.rx_queues_max().map(RxQueues::AtMost)?;
        Ok(Queues { receive, transmit: None })
    }

    /// How many receive queues it could have.
    pub(super) fn rx_queues_max(&self) -> Result<u32, XdpError> {
        rx_queues_max(self.index)
            .map_err(|error| XdpError::from_call(&self.name, "asking for its queues", error))
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
        for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(self.name.bytes()) {
            *to = from as _;
        }
        // SAFETY: `request` has the layout that both codes expect, its name is ended by a zero (the
        // kernel's names are shorter than the field), and it lives across the call; so does what
        // its pointer names for SIOCETHTOOL, the caller's `DriverInfo`, which is as large as the
        // command in it writes.
        let rc = unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, &raw mut request) };
        if rc == 0 { Ok(request) } else { Err(io::Error::last_os_error()) }
    }
}
