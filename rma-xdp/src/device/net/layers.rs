//! All interfaces of a network namespace at one moment: which lies on which, and what XDP programs
//! they have.
//!
//! Asked for when a host is opened, and when an interface cannot be used, to say what is in the
//! way. Nothing follows it.

use std::{io, net::IpAddr};

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp},
};
use rma_core::addr::HostAddr;

use super::netlink::Questions;

/// An interface among others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) index: u32,
    pub(crate) name: Box<str>,
    /// The bridge, bond or VRF that it is a port of.
    pub(crate) master: Option<u32>,
    /// The interface that it was made on, as a VLAN is.
    lower: Option<u32>,
    /// Frames come in there for hardware addresses: it is no loopback, dummy or VRF, whose IP
    /// addresses are the whole machine's.
    has_neighbours: bool,
    /// The ids of its XDP programs: in the driver, in the network stack, on the device.
    pub(crate) programs: Programs,
}

/// The XDP programs of an interface, by where they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Programs {
    pub(crate) native: Option<u32>,
    pub(crate) generic: Option<u32>,
    pub(crate) offloaded: Option<u32>,
}

impl Layer {
    /// Whether it lies directly on `below`.
    pub(crate) fn is_on(&self, below: &Self) -> bool {
        self.lower == Some(below.index) || below.master == Some(self.index)
    }
}

/// The interfaces of the calling thread's network namespace.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn layers() -> io::Result<Vec<Layer>> {
    let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let answers = Questions::open()?.ask(question, NLM_F_DUMP)?;
    let layer = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewLink(link) => Some(to_layer(link)),
        _ => None,
    };
    Ok(answers.iter().filter_map(layer).collect())
}

/// The other interface that has `address`, and that frames to it come in on: not those on top of
/// `here`, nor those whose addresses are the whole machine's. `None` if the address is on `here`.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn elsewhere(address: HostAddr, here: u32) -> io::Result<Option<Box<str>>> {
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = Questions::open()?.ask(question, NLM_F_DUMP)?;
    let owner = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewAddress(message) if is_of(message, address.ip()) => {
            Some(message.header.index)
        }
        _ => None,
    };
    let owners: Vec<u32> = answers.iter().filter_map(owner).collect();
    if owners.contains(&here) {
        return Ok(None);
    }
    let layers = layers()?;
    let Some(own) = layers.iter().find(|layer| layer.index == here) else { return Ok(None) };
    let is_other =
        |layer: &&Layer| owners.contains(&layer.index) && layer.has_neighbours && !layer.is_on(own);
    Ok(layers.iter().find(is_other).map(|layer| layer.name.clone()))
}

/// A bridge or the like that an interface is a port of, and that has addresses in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) name: Box<str>,
    pub(crate) address: HostAddr,
}

/// Returns the master that the interface of this index is a port of, if the master has an address.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn master_of(index: u32) -> io::Result<Option<Master>> {
    let layers = layers()?;
    let find = |index| layers.iter().find(|layer| layer.index == index);
    let Some(master) = find(index).and_then(|own| find(own.master?)) else { return Ok(None) };
    // The ports of a VRF have addresses of their own.
    if !master.has_neighbours {
        return Ok(None);
    }
    let addresses = Questions::open()?.addresses(master.index)?;
    let first = addresses.into_iter().next();
    Ok(first.map(|it| Master { name: master.name.clone(), address: it.address }))
}

fn is_of(message: &AddressMessage, ip: IpAddr) -> bool {
    // On a point-to-point link `Address` is the peer's, and `Local` is ours.
    let local = |it: &AddressAttribute| matches!(it, AddressAttribute::Local(_));
    let has_local = message.attributes.iter().any(local);
    message.attributes.iter().any(|attribute| match attribute {
        AddressAttribute::Local(it) => *it == ip,
        AddressAttribute::Address(it) => !has_local && *it == ip,
        _ => false,
    })
}

fn to_layer(link: &LinkMessage) -> Layer {
    let has_neighbours = !link.header.flags.intersects(LinkFlags::Loopback | LinkFlags::Noarp);
    let mut layer = Layer { index: link.header.index, has_neighbours, ..Layer::default() };
    // The interface that it was made on may be in another namespace, where the index means another.
    // Of a pair it is the other end, which lies beside it.
    let mut elsewhere = false;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => layer.name = name.as_str().into(),
            LinkAttribute::Controller(master) => layer.master = Some(*master),
            LinkAttribute::Link(lower) => layer.lower = Some(*lower),
            LinkAttribute::LinkNetNsId(_) => elsewhere = true,
            LinkAttribute::LinkInfo(infos) => {
                let pairs = [InfoKind::Veth, InfoKind::Netkit].map(LinkInfo::Kind);
                elsewhere |= pairs.iter().any(|kind| infos.contains(kind));
            }
            LinkAttribute::Xdp(attributes) => layer.programs = to_programs(attributes),
            _ => {}
        }
    }
    layer.lower = layer.lower.filter(|_| !elsewhere);
    layer
}

fn to_programs(attributes: &[LinkXdp]) -> Programs {
    let mut programs = Programs::default();
    for attribute in attributes {
        match attribute {
            LinkXdp::DrvProgId(id) => programs.native = Some(*id),
            LinkXdp::SkbProgId(id) => programs.generic = Some(*id),
            LinkXdp::HwProgId(id) => programs.offloaded = Some(*id),
            _ => {}
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, attributes: Vec<LinkAttribute>) -> Layer {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = attributes;
        to_layer(&message)
    }

    #[test]
    fn vlans_lie_on_their_interface_and_bridges_on_their_ports_and_nothing_on_a_veths_other_end() {
        let kind = |kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        let port = link(2, vec![LinkAttribute::Controller(7)]);
        let vlan = link(3, vec![LinkAttribute::Link(2), kind(InfoKind::Vlan)]);
        let bridge = link(7, vec![kind(InfoKind::Bridge)]);
        assert!(vlan.is_on(&port) && bridge.is_on(&port));
        assert!(!port.is_on(&vlan) && !port.is_on(&bridge) && !vlan.is_on(&bridge));
        let peer = link(4, vec![LinkAttribute::Link(2), kind(InfoKind::Veth)]);
        let of_another_namespace =
            link(5, vec![LinkAttribute::Link(2), LinkAttribute::LinkNetNsId(0)]);
        assert!(!peer.is_on(&port) && !of_another_namespace.is_on(&port));
    }

    #[test]
    fn programs_are_told_by_where_they_run() {
        let xdp = |it: Vec<LinkXdp>| link(2, vec![LinkAttribute::Xdp(it)]).programs;
        assert_eq!(xdp(vec![]), Programs::default());
        let both = xdp(vec![LinkXdp::DrvProgId(5), LinkXdp::HwProgId(6)]);
        assert_eq!((both.native, both.generic, both.offloaded), (Some(5), None, Some(6)));
        let generic = xdp(vec![LinkXdp::ProgId(9), LinkXdp::SkbProgId(9)]);
        assert_eq!((generic.native, generic.generic), (None, Some(9)));
    }

    #[test]
    fn the_kernel_tells_of_loopback() {
        let layers = layers().unwrap();
        assert!(layers.iter().any(|layer| (layer.index, &*layer.name) == (1, "lo")), "{layers:?}");
    }
}
