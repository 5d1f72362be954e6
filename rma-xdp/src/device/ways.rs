//! A host's knowledge of the ways to others, and of its own addresses, for people and for metrics.
//!
//! Written by the thread that follows the kernel, read by whoever asks. Engines have no part in it.

use core::fmt;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rma_core::addr::HostAddr;

use super::search::Finding;

/// The way to a host carries less than the device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NarrowPath {
    /// The host.
    pub peer: HostAddr,
    /// The longest packet that the way carries, IP header included, in bytes: what a route or a
    /// router says, or what was found by losses, and then perhaps somewhat more.
    pub mtu: u32,
    /// The size that the device carries.
    pub device_mtu: u32,
}

impl fmt::Display for NarrowPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, mtu, device_mtu } = self;
        write!(
            f,
            "the path to {peer} carries packets of {mtu} bytes, and the device {device_mtu}: ops \
             take more frames; `tracepath -n {peer}` shows where"
        )
    }
}

/// An address of a host, and whether the machine has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressStatus {
    /// The address that the host was opened with.
    pub address: HostAddr,
    /// Whether it is an address of this machine, and usable. While it is not, nobody reaches the
    /// host by it.
    pub is_there: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    narrow: Mutex<BTreeMap<HostAddr, NarrowPath>>,
    addresses: Mutex<Vec<AddressStatus>>,
}

impl Ways {
    /// The ways that carry less than the device.
    pub(crate) fn narrow(&self) -> Vec<NarrowPath> {
        lock(&self.narrow).values().copied().collect()
    }

    /// The host's addresses.
    pub(crate) fn addresses(&self) -> Vec<AddressStatus> {
        lock(&self.addresses).clone()
    }

    /// Whether the host has the address and the machine does not.
    #[cfg(feature = "xdp")]
    pub(super) fn is_gone(&self, address: HostAddr) -> bool {
        lock(&self.addresses).iter().any(|it| it.address == address && !it.is_there)
    }

    pub(super) fn has_narrow(&self) -> bool {
        !lock(&self.narrow).is_empty()
    }

    pub(super) fn set_narrow(&self, peer: HostAddr, narrow: Option<NarrowPath>) {
        let mut all = lock(&self.narrow);
        let before = match narrow {
            Some(narrow) => all.insert(peer, narrow),
            None => all.remove(&peer),
        };
        if let Some(NarrowPath { mtu, device_mtu, .. }) = narrow.filter(|_| before != narrow) {
            tracing::info!(%peer, mtu, device_mtu, "the path carries less than the device");
        }
    }

    /// Logs what has been found out about a way.
    pub(super) fn found(&self, peer: HostAddr, finding: Finding, device_mtu: u32) {
        match finding {
            Finding::Narrow { mtu } => tracing::warn!(
                %peer,
                mtu,
                device_mtu,
                "the path carries less than the device: longer packets are lost on it"
            ),
            Finding::Wide => {
                tracing::info!(%peer, device_mtu, "the path carries long packets again");
            }
        }
    }

    /// Takes and logs whether an address of the host is there; `interface` is the one that it is
    /// looked for on, if there is one.
    pub(super) fn tell_address(&self, address: HostAddr, is_there: bool, interface: Option<&str>) {
        let mut addresses = lock(&self.addresses);
        let was_there = match addresses.iter_mut().find(|it| it.address == address) {
            Some(known) => core::mem::replace(&mut known.is_there, is_there),
            None => {
                addresses.push(AddressStatus { address, is_there });
                true
            }
        };
        match (was_there, is_there) {
            (true, false) => tracing::warn!(
                %address,
                interface,
                "the host's address is not one of this machine any more: nobody reaches it by that"
            ),
            (false, true) => tracing::warn!(%address, interface, "the host's address is back"),
            _ => {}
        }
    }
}

/// Nothing is written in parts.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
