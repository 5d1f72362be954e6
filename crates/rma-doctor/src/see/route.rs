//! Interfaces, addresses and counters, over rtnetlink.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
    link::{
        InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp,
        XdpAttached,
    },
};
use rustix::{
    fd::OwnedFd,
    net::{
        self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        sockopt::{self, Timeout},
    },
};

use crate::snapshot::{Address, Interface, Link, Losses, Program, Seen};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const DATAGRAM_MAX: usize = 64 * 1024;

/// The interface of that name, or all that have an address and are not loopback.
pub(super) fn look(wanted: Option<&str>) -> io::Result<Vec<Interface>> {
    let socket = open()?;
    let links = links(&socket)?;
    let mut addresses = addresses(&socket)?;
    let described = links.iter().filter(|it| match wanted {
        Some(name) => names(it).any(|it| it == name),
        None => {
            !it.header.flags.contains(LinkFlags::Loopback)
                && addresses.contains_key(&it.header.index)
        }
    });
    let chosen: Vec<(u32, Interface)> =
        described.map(|it| (it.header.index, describe(it, &links))).collect();
    let mut found = Vec::new();
    for (index, interface) in chosen {
        let addresses = Seen::Value(addresses.remove(&index).unwrap_or_default());
        found.push(Interface { addresses, ..interface });
    }
    match wanted {
        Some(name) if found.is_empty() => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no interface named {name:?} here: `ip link` lists them"),
        )),
        _ => Ok(found),
    }
}

/// Reads the counters again.
pub(super) fn look_again(interfaces: &mut [Interface]) {
    let links = open().and_then(|it| links(&it));
    let losses: Seen<BTreeMap<u32, Losses>> = links
        .map(|it| it.iter().filter_map(|it| Some((it.header.index, losses(it)?))).collect())
        .into();
    for interface in interfaces {
        let index = interface.link.get().map(|it| it.index);
        let (Seen::Value([before, _]), Ok(index)) = (interface.losses.clone(), index) else {
            continue;
        };
        interface.losses = match losses.get() {
            Ok(all) => match all.get(&index) {
                Some(after) => Seen::Value([before, *after]),
                None => Seen::unseen("the interface has gone while it was looked at"),
            },
            Err(why) => Seen::Unseen(why),
        };
    }
}

fn names(link: &LinkMessage) -> impl Iterator<Item = &str> {
    link.attributes.iter().flat_map(|it| match it {
        LinkAttribute::IfName(name) => vec![name.as_str()],
        LinkAttribute::PropList(properties) => properties
            .iter()
            .filter_map(|it| match it {
                netlink_packet_route::link::Prop::AltIfName(name) => Some(name.as_str()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    })
}

fn kind(link: &LinkMessage) -> Option<&InfoKind> {
    link.attributes.iter().find_map(|it| match it {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|it| match it {
            LinkInfo::Kind(kind) => Some(kind),
            _ => None,
        }),
        _ => None,
    })
}

fn below(link: &LinkMessage) -> Option<u32> {
    // The peer of a veth has an index that may be of another namespace.
    let is_pair = matches!(kind(link), Some(InfoKind::Veth | InfoKind::Netkit));
    link.attributes.iter().find_map(|it| match it {
        LinkAttribute::Link(index) if !is_pair => Some(*index),
        _ => None,
    })
}

fn describe(link: &LinkMessage, all: &[LinkMessage]) -> Interface {
    let index = link.header.index;
    let flags = link.header.flags;
    let of = |index: u32| all.iter().find(|it| it.header.index == index);
    let name_of = |link: &LinkMessage| names(link).next().unwrap_or_default().to_owned();
    let is_vlan = |it: &LinkMessage| kind(it) == Some(&InfoKind::Vlan) && below(it) == Some(index);
    let mut seen = Link {
        index,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        ethernet: link.header.link_layer_type == LinkLayerType::Ether,
        kind: kind(link).map(ToString::to_string),
        below: below(link).and_then(of).map(name_of),
        has_vlans: all.iter().any(is_vlan),
        rx_queues: 1,
        tx_queues: 1,
        ..Link::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => seen.mtu = *mtu,
            LinkAttribute::NumRxQueues(queues) => seen.rx_queues = *queues,
            LinkAttribute::NumTxQueues(queues) => seen.tx_queues = *queues,
            LinkAttribute::Controller(above) => {
                let above = of(*above);
                seen.above = above.map(name_of);
                seen.above_kind = above.and_then(kind).map(ToString::to_string);
            }
            LinkAttribute::Xdp(parts) => seen.program = program(parts),
            _ => {}
        }
    }
    let losses = match losses(link) {
        Some(losses) => Seen::Value([losses; 2]),
        None => Seen::unseen("the kernel sent no counters"),
    };
    Interface { name: name_of(link), link: Seen::Value(seen), losses, ..Interface::default() }
}

fn program(parts: &[LinkXdp]) -> Option<Program> {
    let mut program = Program::default();
    for part in parts {
        match part {
            LinkXdp::Attached(XdpAttached::None) => return None,
            LinkXdp::Attached(XdpAttached::Driver) => program.place = "xdpdrv".into(),
            LinkXdp::Attached(XdpAttached::SocketBuffer) => program.place = "xdpgeneric".into(),
            LinkXdp::Attached(XdpAttached::Hardware) => program.place = "xdpoffload".into(),
            LinkXdp::Attached(_) => program.place = "xdp".into(),
            LinkXdp::ProgId(id) => program.id = *id,
            _ => {}
        }
    }
    // The message is there for every interface, and says so if there is none.
    (!program.place.is_empty()).then_some(program)
}

fn losses(link: &LinkMessage) -> Option<Losses> {
    link.attributes.iter().find_map(|it| match it {
        LinkAttribute::Stats64(it) => Some(Losses {
            missed: it.rx_missed_errors,
            fifo: it.rx_fifo_errors,
            over: it.rx_over_errors,
            dropped: it.rx_dropped,
        }),
        _ => None,
    })
}

fn links(socket: &OwnedFd) -> io::Result<Vec<LinkMessage>> {
    let answers = dump(socket, RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let link = |it| match it {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(link).collect())
}

fn addresses(socket: &OwnedFd) -> io::Result<BTreeMap<u32, Vec<Address>>> {
    let answers = dump(socket, RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let mut addresses: BTreeMap<u32, Vec<Address>> = BTreeMap::new();
    for answer in answers {
        let RouteNetlinkMessage::NewAddress(message) = answer else { continue };
        let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        let mut all = BTreeSet::new();
        for attribute in &message.attributes {
            match attribute {
                // The peer's on a point-to-point link: then ours is there as well.
                AddressAttribute::Address(ip) => _ = all.insert((1, ip.to_string())),
                AddressAttribute::Local(ip) => _ = all.insert((0, ip.to_string())),
                AddressAttribute::Flags(flag) => flags = *flag,
                _ => {}
            }
        }
        let Some((_, address)) = all.into_iter().next() else { continue };
        let tentative =
            flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
        let duplicate = flags.contains(AddressFlags::Dadfailed);
        let address = Address { address, tentative, duplicate };
        addresses.entry(message.header.index).or_default().push(address);
    }
    Ok(addresses)
}

fn open() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    // No protocol means NETLINK_ROUTE, which is number 0.
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    Ok(socket)
}

fn dump(socket: &OwnedFd, question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    net::send(socket, &bytes, SendFlags::empty())?;
    let (mut answers, mut buffer) = (Vec::new(), vec![0; DATAGRAM_MAX]);
    loop {
        let received =
            rustix::io::retry_on_intr(|| net::recv(socket, &mut buffer[..], RecvFlags::empty()));
        let mut rest = buffer.get(..received?.0).unwrap_or_default();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let length = (message.header.length as usize).next_multiple_of(4).max(16);
            rest = rest.get(length..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                _ => {}
            }
        }
    }
}
