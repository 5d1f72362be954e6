//! The way back over the link by which a packet came: for notices to hosts that there is no path to
//! (not in the paper).
//!
//! A host that has just started knows no paths, and looks for none on behalf of strangers. Whoever
//! still has a grant of its last life should hear that it is void, and not wait for a timeout. So a
//! notice may go back by the hardware addresses of the packet that it answers, with the same VLAN
//! tags. Nothing is learnt from them, and nothing but notices goes by them: whoever forges them has
//! 48 octets sent, over the link that he is on himself, to an address that he could have sent more
//! to.
//!
//! Invariant: nothing goes to a group address, to nobody, or to ourselves; and only packets that
//! were sent to our own address are answered so, not what a switch has flooded.

use rma_core::backend::LINK_LEN;

use super::packet::{
    ETHERTYPE_PROVIDER_VLAN, ETHERTYPE_VLAN, MAC_LEN, VLAN_TAG_LEN, VLAN_TAGS_MAX,
};

/// The bit of a hardware address's first octet that says that it names a group: broadcast is one.
const GROUP: u8 = 1;
/// The bits of a VLAN tag's second word that name the VLAN; the rest is priority, which nobody may
/// borrow.
const VLAN_ID: u16 = 0x0fff;
/// Two hardware addresses.
const MACS_LEN: usize = 2 * MAC_LEN;

const _: () = assert!(LINK_LEN == MACS_LEN + VLAN_TAGS_MAX * VLAN_TAG_LEN);

/// The link header of an answer, without the EtherType of what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkReturn {
    octets: [u8; LINK_LEN],
    len: usize,
}

/// The reason why no answer goes back by a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoReturn {
    /// The packet was for another hardware address.
    NotOurs,
    /// Its source is a group, nobody, or we.
    Source,
}

impl LinkReturn {
    /// The way back for a packet that began with `link`, at an interface whose hardware address is
    /// `own`.
    pub(super) fn of(link: &[u8; LINK_LEN], own: [u8; MAC_LEN]) -> Result<Self, NoReturn> {
        let (destination, source) = (&link[..MAC_LEN], &link[MAC_LEN..MACS_LEN]);
        if destination != own {
            return Err(NoReturn::NotOurs);
        }
        if source[0] & GROUP != 0 || source == [0; MAC_LEN] || source == own {
            return Err(NoReturn::Source);
        }
        let mut octets = [0; LINK_LEN];
        octets[..MAC_LEN].copy_from_slice(source);
        octets[MAC_LEN..MACS_LEN].copy_from_slice(&own);
        let mut len = MACS_LEN;
        for tag in link[MACS_LEN..].chunks_exact(VLAN_TAG_LEN) {
            let &[kind0, kind1, id0, id1] = tag else { break };
            let kind = [kind0, kind1];
            if kind != ETHERTYPE_VLAN && kind != ETHERTYPE_PROVIDER_VLAN {
                break;
            }
            let [id0, id1] = (u16::from_be_bytes([id0, id1]) & VLAN_ID).to_be_bytes();
            octets[len..len + VLAN_TAG_LEN].copy_from_slice(&[kind0, kind1, id0, id1]);
            len += VLAN_TAG_LEN;
        }
        Ok(Self { octets, len })
    }

    /// Hardware addresses and tags: what comes before the EtherType.
    pub(super) fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    /// How much longer the headers are than those without tags.
    pub(super) const fn tags_len(&self) -> usize {
        self.len - MACS_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn link(destination: [u8; 6], source: [u8; 6], rest: [u8; 8]) -> [u8; LINK_LEN] {
        let mut link = [0; LINK_LEN];
        link[..6].copy_from_slice(&destination);
        link[6..12].copy_from_slice(&source);
        link[12..].copy_from_slice(&rest);
        link
    }

    fn back(rest: [u8; 8]) -> Vec<u8> {
        LinkReturn::of(&link(OWN, PEER, rest), OWN).unwrap().octets().to_vec()
    }

    #[test]
    fn addresses_are_swapped_and_tags_kept_without_their_priority() {
        let macs = [PEER, OWN].concat();
        // IPv4 and IPv6 follow.
        assert_eq!(back([8, 0, 0x45, 0, 0, 84, 0, 0]), macs);
        assert_eq!(back([0x86, 0xdd, 0x60, 0, 0, 0, 0, 56]), macs);
        let one = back([0x81, 0, 0xff, 0xfe, 8, 0, 0x45, 0]);
        assert_eq!(one, [&macs[..], &[0x81, 0, 0x0f, 0xfe]].concat());
        let two = back([0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 9]);
        assert_eq!(two, [&macs[..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9]].concat());
        assert_eq!(LinkReturn::of(&link(OWN, PEER, [0; 8]), OWN).unwrap().tags_len(), 0);
    }

    #[test]
    fn nothing_goes_to_a_group_to_nobody_or_to_ourselves() {
        for source in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [3, 0, 0, 0, 0, 2], [0; 6], OWN] {
            let back = LinkReturn::of(&link(OWN, source, [8, 0, 0, 0, 0, 0, 0, 0]), OWN);
            assert_eq!(back, Err(NoReturn::Source), "{source:x?}");
        }
    }

    #[test]
    fn a_packet_not_sent_to_us_alone_is_not_answered_so() {
        for destination in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]] {
            let back = LinkReturn::of(&link(destination, PEER, [0; 8]), OWN);
            assert_eq!(back, Err(NoReturn::NotOurs), "{destination:x?}");
        }
    }
}
