//! The ways to move several datagrams with one call: which are asked for, and which there are.

use std::{fmt, io, os::fd::BorrowedFd};

use rustix::io::Errno;

use super::{
    counters::UdpCounters,
    option::{recvmmsg_is_there, sendmmsg_is_there, set_option},
};

/// The kernel's ways to move several datagrams at once that a host over UDP uses, where the kernel
/// has them. All of them by default; each that is off costs a system call, or a way through the
/// kernel's network stack, for each datagram. Off is for measuring, and for a kernel or a device
/// that does one of them wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct UdpBatching {
    /// Several datagrams are received with one call (`recvmmsg`).
    pub recvmmsg: bool,
    /// Several datagrams are sent with one call (`sendmmsg`).
    pub sendmmsg: bool,
    /// Datagrams of one length to one destination go through the kernel as one, and are cut apart
    /// where they leave (`UDP_SEGMENT`).
    pub gso: bool,
    /// Datagrams of one length from one source may come up as one (`UDP_GRO`). Costs a megabyte of
    /// memory.
    pub gro: bool,
}

impl UdpBatching {
    /// None of them: a system call for each datagram.
    pub const NONE: Self = Self { recvmmsg: false, sendmmsg: false, gso: false, gro: false };
    /// All of them, which is the default.
    pub const ALL: Self = Self { recvmmsg: true, sendmmsg: true, gso: true, gro: true };
}

impl Default for UdpBatching {
    fn default() -> Self {
        Self::ALL
    }
}

rma_core::settings!(UdpBatching);

/// One of the ways to move several datagrams at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mechanism {
    /// Several datagrams are received by one call: [`UdpBatching::recvmmsg`].
    Recvmmsg,
    /// Several packets are sent by one call: [`UdpBatching::sendmmsg`].
    Sendmmsg,
    /// Packets of one length are sent as one: [`UdpBatching::gso`].
    Gso,
    /// Datagrams of one length are received as one: [`UdpBatching::gro`].
    Gro,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recvmmsg => "recvmmsg",
            Self::Sendmmsg => "sendmmsg",
            Self::Gso => "GSO",
            Self::Gro => "GRO",
        })
    }
}

/// Whether a way to move several datagrams at once is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Use {
    /// It is.
    Used,
    /// Not, as the configuration says so.
    NotAskedFor,
    /// Not, as the kernel refuses it with this error number.
    Refused(i32),
}

impl Use {
    const fn is_used(self) -> bool {
        matches!(self, Self::Used)
    }

    /// Decides from `wanted` and the kernel's answer, which is asked if it is, make of it.
    fn of(wanted: bool, ask: impl FnOnce() -> Result<(), Errno>) -> Self {
        match wanted.then(ask) {
            None => Self::NotAskedFor,
            Some(Ok(())) => Self::Used,
            Some(Err(errno)) => Self::Refused(errno.raw_os_error()),
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Used => f.write_str("used"),
            Self::NotAskedFor => f.write_str("not asked for"),
            Self::Refused(errno) => io::Error::from_raw_os_error(errno).fmt(f),
        }
    }
}

/// The ways to move several datagrams at once that are in use, and the reasons why others are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchingInUse {
    uses: [(Mechanism, Use); 4],
}

impl BatchingInUse {
    /// Asks the kernel for what is `wanted`, on a socket that has just been made; from then on that
    /// socket receives by GRO, if that is used.
    pub(super) fn ask(fd: BorrowedFd<'_>, wanted: UdpBatching) -> Self {
        let UdpBatching { recvmmsg, sendmmsg, gso, gro } = wanted;
        let option = |name, value| move || set_option(fd, libc::SOL_UDP, name, value);
        Self {
            uses: [
                (Mechanism::Recvmmsg, Use::of(recvmmsg, || recvmmsg_is_there(fd))),
                (Mechanism::Sendmmsg, Use::of(sendmmsg, || sendmmsg_is_there(fd))),
                // A length of 0 changes nothing: each send names its own.
                (Mechanism::Gso, Use::of(gso, option(libc::UDP_SEGMENT, 0))),
                (Mechanism::Gro, Use::of(gro, option(libc::UDP_GRO, 1))),
            ],
        }
    }

    /// Returns the ways that both kinds of socket have, if `self` is one's and `other` the other's.
    pub(super) fn and(self, other: Self) -> Self {
        let mut both = self;
        for ((_, of_self), (_, of_other)) in both.uses.iter_mut().zip(other.uses) {
            if of_self.is_used() {
                *of_self = of_other;
            }
        }
        both
    }

    /// Whether `mechanism` is in use, or why not.
    ///
    /// # Panics
    /// Never: there is an entry for each.
    #[must_use]
    pub fn of(&self, mechanism: Mechanism) -> Use {
        let found = self.uses.iter().find(|(named, _)| *named == mechanism);
        found.expect("each mechanism has an entry").1
    }

    /// Whether `mechanism` is in use.
    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        self.of(mechanism).is_used()
    }

    /// Lists the ways that are not in use, and those that the kernel has refused since, each as a
    /// sentence of a report.
    pub(crate) fn fallbacks(&self, counters: &UdpCounters) -> impl Iterator<Item = String> {
        let unused = self.uses.iter().filter(|(_, used)| !used.is_used());
        let unused = unused
            .map(|(mechanism, why)| format!("single datagrams instead of {mechanism}: {why}"));
        let refused = counters.tx_gso_refused.load();
        let refused = (refused > 0).then(|| {
            format!("single datagrams instead of GSO at times: the kernel refused {refused} sends")
        });
        unused.chain(refused)
    }
}

impl fmt::Display for BatchingInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (mechanism, used)) in self.uses.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match used {
                Use::Used => write!(f, "{comma}{mechanism}")?,
                why => write!(f, "{comma}no {mechanism} ({why})")?,
            }
        }
        Ok(())
    }
}
