//! The places of the hosts.

use rma_core::addr::HostAddr;

/// Octets of the longest packet.
pub(super) const PACKET_LEN: usize = 1472;

/// The address of a host, by its number.
pub(super) fn address(host: usize) -> HostAddr {
    HostAddr::from([192, 0, 2, 1 + host as u8])
}
