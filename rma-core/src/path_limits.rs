//! How long frames may be on the way to each host, as far as a NIC asks and tells (not in the
//! paper).
//!
//! A device has one MTU, and the way to a host behind routers may carry less. Whoever drives a NIC
//! may know more of it: [`PathLimits`]. The NIC asks before it says how long the frames of an
//! answer may be, and tells how its ops ended, since a router that drops what is too long without a
//! word shows in nothing else.
//!
//! Nothing is kept here, and nothing in the NIC for any peer.

use core::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use std::sync::Arc;

use crate::addr::HostAddr;

/// The known limits of the ways to other hosts. No method waits or allocates.
pub trait PathLimits: fmt::Debug + Send + Sync {
    /// The longest packet that the way to and from `peer` carries, in octets of UDP payload, as far
    /// as it is known. `None`: as long as the device's.
    fn packet_len_max(&self, peer: HostAddr) -> Option<usize>;

    /// An op with `peer` was OK whose frames may have had `len` octets, as of one that is lost.
    fn arrived(&self, peer: HostAddr, len: usize);

    /// An op with `peer` ended with TIMEOUT. Its frames that may have been lost have at most `len`
    /// octets.
    fn lost(&self, peer: HostAddr, len: usize);
}

/// A NIC's part of the path limits.
#[derive(Clone, Debug)]
pub struct Paths {
    watching: Arc<AtomicBool>,
    limits: Arc<dyn PathLimits>,
}

impl Paths {
    /// Those of `limits`, who is asked, and told of what arrives, while `watching` says so: nobody
    /// need pay for that whose ways all carry what the device does.
    #[must_use]
    pub fn new(watching: Arc<AtomicBool>, limits: Arc<dyn PathLimits>) -> Self {
        Self { watching, limits }
    }

    /// See [`PathLimits::packet_len_max`].
    #[inline]
    pub(crate) fn packet_len_max(&self, peer: HostAddr) -> Option<usize> {
        if !self.watching.load(Relaxed) {
            return None;
        }
        self.limits.packet_len_max(peer)
    }

    /// See [`PathLimits::arrived`].
    #[inline]
    pub(crate) fn arrived(&self, peer: HostAddr, len: impl FnOnce() -> usize) {
        if self.watching.load(Relaxed) {
            self.limits.arrived(peer, len());
        }
    }

    /// See [`PathLimits::lost`].
    #[cold]
    pub(crate) fn lost(&self, peer: HostAddr, len: usize) {
        self.limits.lost(peer, len);
    }
}
