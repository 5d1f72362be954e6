//! Which hosts receive over kernel UDP sockets too: to those alone runs of packets go as one.
//!
//! Between virtual interfaces (veth, the taps of virtual machines) the kernel cuts a run apart only
//! for who needs it, and generic XDP is not asked: an AF_XDP host behind one would get the run as
//! one packet, and drop it. The source port tells the two apart: that of a kernel socket of ours is
//! the service's, that of an AF_XDP host is another, or is by chance the same for one op.
//!
//! It is a guess: nothing is authenticated here. Who forges a source address can make a host's
//! frames go one by one, or, behind such an interface, be lost as one until its next true packet.

use std::net::IpAddr;

use rma_core::addr::HostAddr;

/// How many hosts are remembered. Two that share an entry push each other out, and frames to the
/// one that was pushed out go one by one.
const ENTRIES: usize = 1024;

/// The hosts whose last datagram came from a kernel UDP socket, as far as they are remembered.
#[derive(Debug)]
pub(super) struct Peers(Box<[Option<HostAddr>; ENTRIES]>);

impl Peers {
    pub(super) fn new() -> Self {
        Self(Box::new([None; ENTRIES]))
    }

    /// Whether the last datagram of this host came from a kernel UDP socket.
    pub(super) fn has(&self, host: HostAddr) -> bool {
        self.0[entry(host)] == Some(host)
    }

    /// A datagram of this host has come: from a kernel UDP socket, or not.
    pub(super) fn note(&mut self, host: HostAddr, is_kernel: bool) {
        let entry = &mut self.0[entry(host)];
        if is_kernel {
            *entry = Some(host);
        } else if *entry == Some(host) {
            *entry = None;
        }
    }
}

/// Where a host is remembered.
const fn entry(host: HostAddr) -> usize {
    let bits = match host.ip() {
        IpAddr::V4(v4) => v4.to_bits() as u64,
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 ^ (v6.to_bits() as u64).rotate_left(32),
    };
    let mixed = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - ENTRIES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_datagram_of_a_host_counts_and_others_forget_nothing() {
        let mut peers = Peers::new();
        let hosts: Vec<HostAddr> = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"]
            .map(|text| text.parse().unwrap())
            .into();
        for (noted, &host) in hosts.iter().enumerate() {
            assert!(!peers.has(host));
            peers.note(host, true);
            assert!(hosts.iter().take(noted + 1).all(|&earlier| peers.has(earlier)));
        }
        peers.note(hosts[1], false);
        let known: Vec<bool> = hosts.iter().map(|&host| peers.has(host)).collect();
        assert_eq!(known, [true, false, true, true]);
    }

    #[test]
    fn who_shares_an_entry_is_not_taken_for_the_other() {
        let mut peers = Peers::new();
        let host = |number: u32| HostAddr::from(IpAddr::from(number.to_be_bytes()));
        let other = (2..100_000).map(host).find(|&it| entry(it) == entry(host(1))).unwrap();
        peers.note(host(1), true);
        assert!(!peers.has(other));
        peers.note(other, false);
        assert!(peers.has(host(1)));
        peers.note(other, true);
        assert!(peers.has(other) && !peers.has(host(1)));
    }
}
