//! The hosts that receive over kernel UDP sockets too: to those alone runs of packets go as one.
//!
//! Between virtual interfaces (veth, the taps of virtual machines) the kernel cuts a run apart only
//! for whoever needs it, and generic XDP is not asked: an AF_XDP host behind one would get the run
//! as one packet, and drop it. The source port tells the two apart: that of a kernel socket of ours
//! is the service's, that of an AF_XDP host is another, or is by chance the same for one turn.
//!
//! It is a guess: nothing is authenticated here. Whoever forges a host's address as the source can
//! make packets to that host go one by one; or, if it is an AF_XDP host behind such an interface,
//! be lost as one. That ends with the host's next true packet, and after `CREDIT` packets at the
//! latest, so that the host gets packets, and is heard of, again.

use std::net::IpAddr;

use rma_core::addr::HostAddr;

/// How many hosts are remembered. Two that share an entry push each other out, and frames to the
/// one that was pushed out go one by one.
const ENTRIES: usize = 1024;

/// How many packets a datagram pays for: those that go to its host before its next one may go as
/// one. Larger: forged ones cost their victims more. Smaller: answers to requests for much go one
/// by one. 32 requests of 4 KiB ask for 96 packets at an MTU of 1500.
pub(super) const CREDIT: u16 = 256;

/// The hosts whose last datagram came from a kernel UDP socket, as far as they are remembered, and
/// how many packets may still go to each.
#[derive(Debug)]
pub(super) struct Peers(Box<[Option<(HostAddr, u16)>; ENTRIES]>);

impl Peers {
    pub(super) fn new() -> Self {
        Self(Box::new([None; ENTRIES]))
    }

    /// A packet goes to this host. Whether it may go as one with others: its last datagram came
    /// from a kernel UDP socket, not many packets ago.
    pub(super) fn spend(&mut self, host: HostAddr) -> bool {
        match &mut self.0[entry(host)] {
            Some((known, left)) if *known == host => {
                let had = *left;
                *left = had.saturating_sub(1);
                had > 0
            }
            _ => false,
        }
    }

    /// A datagram of this host has come: from a kernel UDP socket, or not.
    pub(super) fn note(&mut self, host: HostAddr, is_kernel: bool) {
        let entry = &mut self.0[entry(host)];
        if is_kernel {
            *entry = Some((host, CREDIT));
        } else if entry.is_some_and(|(known, _)| known == host) {
            *entry = None;
        }
    }
}

/// Returns the index at which a host is remembered.
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
            assert!(!peers.spend(host));
            peers.note(host, true);
            assert!(hosts.iter().take(noted + 1).all(|&earlier| peers.spend(earlier)));
        }
        peers.note(hosts[1], false);
        let known: Vec<bool> = hosts.iter().map(|&host| peers.spend(host)).collect();
        assert_eq!(known, [true, false, true, true]);
    }

    #[test]
    fn hosts_that_share_an_entry_are_not_taken_for_each_other() {
        let mut peers = Peers::new();
        let host = |number: u32| HostAddr::from(IpAddr::from(number.to_be_bytes()));
        let other = (2..100_000).map(host).find(|&it| entry(it) == entry(host(1))).unwrap();
        peers.note(host(1), true);
        assert!(!peers.spend(other));
        peers.note(other, false);
        assert!(peers.spend(host(1)));
        peers.note(other, true);
        assert!(peers.spend(other) && !peers.spend(host(1)));
    }

    #[test]
    fn a_datagram_pays_for_so_many_packets_and_no_more_than_one_does() {
        let mut peers = Peers::new();
        let host = HostAddr::from([192, 0, 2, 1]);
        let paid = |peers: &mut Peers| (0..1_000).filter(|_| peers.spend(host)).count();
        assert_eq!(paid(&mut peers), 0);
        for datagrams in [1, 2, 5] {
            (0..datagrams).for_each(|_| peers.note(host, true));
            assert_eq!(paid(&mut peers), usize::from(CREDIT), "{datagrams}");
        }
    }
}
