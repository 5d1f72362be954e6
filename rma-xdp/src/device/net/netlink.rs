//! Questions to the kernel over rtnetlink, and news from it.
//!
//! Blocking sockets for a control thread; messages are encoded and decoded by
//! `netlink-packet-route`. Not a general netlink client: only what paths need.
//!
//! Invariant: an answer is only taken for the question with the same sequence number, so a question
//! that timed out cannot be answered late in place of the next one.

use std::{io, net::IpAddr, time::Duration};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
    link::{InfoPortKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage},
    neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
    },
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType, RouteVia,
    },
};
use rma_core::addr::HostAddr;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::{
        self, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, sockopt,
    },
};

/// The kernel answers at once; this only ends a wait that would otherwise never end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The kernel never sends a longer datagram to a reader that offers this much
/// (<https://github.com/torvalds/linux/blob/v6.12/net/netlink/af_netlink.c>, `netlink_dump`).
const DATAGRAM_MAX: usize = 64 * 1024;

/// Room for news that come faster than they are read, in bytes. When it is exceeded the kernel says
/// so and everything is asked again, so a smaller value costs work, not correctness.
const NEWS_BUFFER: usize = 1 << 20;

/// `IFLA_ALT_IFNAME`: names that are longer than the classic 15 bytes.
const IFLA_ALT_IFNAME: u16 = 53;
const IFNAME_MAX: usize = 15;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: Box<str>,
    pub(super) mac: Option<[u8; 6]>,
    pub(super) mtu: u32,
    /// Set up by its administrator.
    pub(super) up: bool,
    /// Up, and with carrier.
    pub(super) running: bool,
    pub(super) rx_queues: u32,
    /// Whether it belongs to a VRF, which has routes of its own.
    pub(super) in_vrf: bool,
}

/// Frames of one of our addresses to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// The address of ours; `None` while it is not known.
    pub(super) source: Option<HostAddr>,
    pub(super) destination: HostAddr,
    /// Index of the interface that they leave by.
    pub(super) interface: u32,
    /// Whether they leave by it whatever other interfaces there are, as those of a socket that is
    /// bound to it do.
    pub(super) is_bound: bool,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// The address that the kernel answers for.
    pub address: HostAddr,
    /// Length of its network's prefix, in bits.
    pub prefix_length: u8,
    /// Whether duplicate address detection is under way: it is not usable yet.
    pub is_tentative: bool,
    /// Whether another machine has it: it never will be.
    pub has_failed: bool,
    /// Whether its time is nearly over: the kernel does not choose it for what is new.
    pub is_deprecated: bool,
    /// Whether it is one that changes, for privacy.
    pub is_temporary: bool,
}

/// The packets that came to an interface, by its own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Those that it delivered.
    pub(crate) packets: u64,
    /// Those that it dropped, as it had no buffer for them.
    pub(crate) without_buffer: u64,
}

/// An answer to "how would you send there".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) kind: RouteKind,
    /// Index of the interface that it leaves by.
    pub(super) interface: u32,
    /// The gateway; `None` when the destination is on the link.
    pub(super) gateway: Option<IpAddr>,
    pub(super) source: Option<IpAddr>,
    /// From the route itself or from path MTU discovery.
    pub(super) mtu: Option<u32>,
}

/// The kind of a destination's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteKind {
    Unicast,
    /// An address of this host.
    Local,
    /// Broadcast, multicast, anycast: no single host.
    NotUnicast,
    /// A route that says "do not".
    Forbidden,
}

/// A neighbour entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) state: NeighbourState,
    pub(super) mac: Option<[u8; 6]>,
}

impl Neighbour {
    /// The hardware address, if the kernel itself would use it: `NUD_VALID`. A stale one is valid:
    /// it was confirmed once, and nothing spoke against it since.
    pub(super) fn usable(self) -> Option<[u8; 6]> {
        match self.state {
            NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Noarp
            | NeighbourState::Permanent => self.mac,
            _ => None,
        }
    }
}

/// Something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// An interface, by index.
    Link(u32),
    /// An interface, by index, has left this network namespace: one of the same index that is there
    /// now is another, or has come back.
    LinkGone(u32),
    /// The entry of this address on this interface.
    Neighbour(u32, IpAddr),
    /// A route, a rule or an address: any path may differ now.
    Routes,
    /// Some news were lost or not understood: anything may differ now.
    Anything,
}

/// A socket for questions.
#[derive(Debug)]
pub(super) struct Questions {
    socket: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl Questions {
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket(0, SocketFlags::CLOEXEC)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; DATAGRAM_MAX].into() })
    }

    /// The interface of that name. `ErrorKind::NotFound` or `ENODEV` if there is none.
    pub(super) fn link_by_name(&mut self, name: &str) -> io::Result<Link> {
        let attribute = if name.len() <= IFNAME_MAX {
            LinkAttribute::IfName(name.to_owned())
        } else {
            let mut bytes = name.as_bytes().to_vec();
            bytes.push(0);
            LinkAttribute::Other(DefaultNla::new(IFLA_ALT_IFNAME, bytes))
        };
        let mut message = LinkMessage::default();
        message.attributes.push(attribute);
        self.link(message)
    }

    /// The interface of that index.
    pub(super) fn link_by_index(&mut self, index: u32) -> io::Result<Link> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.link(message)
    }

    fn link(&mut self, message: LinkMessage) -> io::Result<Link> {
        self.link_message(message).map(|answer| to_link(&answer))
    }

    /// Returns the packet counts of the interface of that index.
    pub(super) fn delivered(&mut self, index: u32) -> io::Result<Delivered> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        to_delivered(&self.link_message(message)?).ok_or_else(no_answer)
    }

    fn link_message(&mut self, message: LinkMessage) -> io::Result<LinkMessage> {
        match self.ask(RouteNetlinkMessage::GetLink(message), 0)?.pop() {
            Some(RouteNetlinkMessage::NewLink(message)) => Ok(message),
            _ => Err(no_answer()),
        }
    }

    /// The addresses of an interface.
    pub(super) fn addresses(&mut self, interface: u32) -> io::Result<Vec<InterfaceAddress>> {
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.ask(question, NLM_F_DUMP)?;
        Ok(answers.iter().filter_map(|answer| to_address(answer, interface)).collect())
    }

    /// Asks for the kernel's route of a flow from a UDP socket of ours.
    pub(super) fn route(&mut self, flow: Flow) -> io::Result<Route> {
        Ok(to_route(&self.get_route(flow, RouteFlags::empty())?))
    }

    /// Length of the prefix of the route that [`Questions::route`] follows: fails where there is
    /// none. That itself does not: given an interface, the kernel's IPv4 look-up treats a
    /// destination without any route as on the link.
    pub(super) fn route_prefix(&mut self, flow: Flow) -> io::Result<u8> {
        let route = self.get_route(flow, RouteFlags::FibMatch)?;
        Ok(route.header.destination_prefix_length)
    }

    fn get_route(&mut self, flow: Flow, flags: RouteFlags) -> io::Result<RouteMessage> {
        let Flow { source, destination, interface, is_bound } = flow;
        let mut message = RouteMessage::default();
        let prefix_len = if destination.is_ipv4() { 32 } else { 128 };
        message.header.address_family = family(destination.ip());
        message.header.flags = flags;
        message.header.destination_prefix_length = prefix_len;
        message.attributes.push(RouteAttribute::Destination(destination.ip().into()));
        if let Some(source) = source {
            message.header.source_prefix_length = prefix_len;
            message.attributes.push(RouteAttribute::Source(source.ip().into()));
        }
        if is_bound {
            message.attributes.push(RouteAttribute::Oif(interface));
        }
        message.attributes.push(RouteAttribute::IpProto(libc::IPPROTO_UDP as u8));
        match self.ask(RouteNetlinkMessage::GetRoute(message), 0)?.pop() {
            Some(RouteNetlinkMessage::NewRoute(message)) => Ok(message),
            _ => Err(no_answer()),
        }
    }

    /// The kernel's entry for a neighbour, if it has one.
    pub(super) fn neighbour(
        &mut self,
        interface: u32,
        address: IpAddr,
    ) -> io::Result<Option<Neighbour>> {
        let question = RouteNetlinkMessage::GetNeighbour(neighbour_message(interface, address));
        match self.ask(question, 0) {
            Ok(mut answers) => match answers.pop() {
                Some(RouteNetlinkMessage::NewNeighbour(message)) => {
                    Ok(Some(to_neighbour(&message)))
                }
                _ => Err(no_answer()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells the kernel that we are about to send to a neighbour: an unknown one is resolved, a
    /// stale one is probed after the kernel's usual delay, a reachable or permanent one is left as
    /// it is. Needs `CAP_NET_ADMIN`.
    pub(super) fn use_neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        let mut message = neighbour_message(interface, address);
        message.header.flags = NeighbourFlags::Use;
        let question = RouteNetlinkMessage::NewNeighbour(message);
        self.ask(question, NLM_F_CREATE | NLM_F_ACK).map(drop)
    }

    /// Sends one question and gathers its answer: until the end of a dump, or the acknowledgement
    /// that was asked for, or the first message.
    pub(super) fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        net::send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answers = Vec::new();
        loop {
            let (length, _) = rustix::io::retry_on_intr(|| {
                net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())
            })?;
            for message in messages(&self.buffer[..length]) {
                let message = message?;
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    _ => {}
                }
            }
            if flags & (NLM_F_DUMP | NLM_F_ACK) == 0 && !answers.is_empty() {
                return Ok(answers);
            }
        }
    }
}

/// A socket for news about links, neighbours, routes and addresses.
#[derive(Debug)]
pub(super) struct NewsSocket {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl NewsSocket {
    pub(super) fn open() -> io::Result<Self> {
        /// Multicast groups by number, `RTNLGRP_*`: link, neighbour, then address, route and rule
        /// of IPv4 and of IPv6.
        const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];
        let mask = GROUPS.iter().fold(0, |mask, group| mask | 1 << (group - 1));
        let socket = socket(mask, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        sockopt::set_socket_recv_buffer_size(&socket, NEWS_BUFFER)?;
        Ok(Self { socket, buffer: vec![0; DATAGRAM_MAX].into() })
    }

    /// Hands all news that have arrived to `on_news`; does not wait for more.
    pub(super) fn read(&mut self, mut on_news: impl FnMut(News)) -> io::Result<()> {
        loop {
            match net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => {
                    for message in messages(&self.buffer[..length]) {
                        if let Some(news) = message.map_or(Some(News::Anything), |m| to_news(&m)) {
                            on_news(news);
                        }
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                // The kernel dropped news because the buffer was full.
                Err(rustix::io::Errno::NOBUFS) => on_news(News::Anything),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for NewsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn socket(groups: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = net::AddressFamily::NETLINK;
    // No protocol means NETLINK_ROUTE, which is number 0.
    let socket = net::socket_with(family, SocketType::RAW, flags, None)?;
    net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// The messages of one datagram. Ends at the first that is cut off or not understood, with an
/// error.
fn messages(
    mut bytes: &[u8],
) -> impl Iterator<Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let message = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
            Ok(message) => message,
            Err(error) => {
                bytes = &[];
                return Some(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
        };
        // Messages are padded to four bytes; the last one need not be.
        let length = (message.header.length as usize).next_multiple_of(4).max(16);
        bytes = bytes.get(length..).unwrap_or_default();
        Some(Ok(message))
    })
}

fn to_news(message: &NetlinkMessage<RouteNetlinkMessage>) -> Option<News> {
    let NetlinkPayload::InnerMessage(message) = &message.payload else { return None };
    Some(match message {
        RouteNetlinkMessage::NewLink(link) => News::Link(link.header.index),
        // Of the family of bridges it says that an interface has left its bridge, and no more.
        RouteNetlinkMessage::DelLink(link) => match link.header.interface_family {
            AddressFamily::Unspec => News::LinkGone(link.header.index),
            _ => News::Link(link.header.index),
        },
        RouteNetlinkMessage::NewNeighbour(entry) | RouteNetlinkMessage::DelNeighbour(entry) => {
            News::Neighbour(entry.header.ifindex, neighbour_address(entry)?)
        }
        _ => News::Routes,
    })
}

fn to_link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: Box::default(),
        mac: None,
        mtu: 0,
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        rx_queues: 1,
        in_vrf: false,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name.as_str().into(),
            // The loopback interface has six octets too, and no use for them.
            LinkAttribute::Address(mac)
                if message.header.link_layer_type == LinkLayerType::Ether =>
            {
                link.mac = mac.as_slice().try_into().ok();
            }
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::NumRxQueues(queues) => link.rx_queues = *queues,
            LinkAttribute::LinkInfo(infos) => {
                link.in_vrf = infos.contains(&LinkInfo::PortKind(InfoPortKind::Vrf));
            }
            _ => {}
        }
    }
    link
}

fn to_delivered(message: &LinkMessage) -> Option<Delivered> {
    message.attributes.iter().find_map(|attribute| {
        let LinkAttribute::Stats64(counted) = attribute else { return None };
        // Drivers differ in which of these they count by.
        let lost = [counted.rx_fifo_errors, counted.rx_missed_errors, counted.rx_over_errors];
        let without_buffer = lost.into_iter().fold(0, u64::wrapping_add);
        Some(Delivered { packets: counted.rx_packets, without_buffer })
    })
}

fn to_address(answer: &RouteNetlinkMessage, interface: u32) -> Option<InterfaceAddress> {
    let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
    if message.header.index != interface {
        return None;
    }
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            // The peer's address on a point-to-point link, else ours.
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    // An address that is used before its detection ends is no longer tentative for a socket.
    let is_tentative =
        flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
    Some(InterfaceAddress {
        address: local.or(address)?.into(),
        prefix_length: message.header.prefix_len,
        is_tentative,
        has_failed: flags.contains(AddressFlags::Dadfailed),
        is_deprecated: flags.contains(AddressFlags::Deprecated),
        // A secondary address of IPv4 has the same flag.
        is_temporary: flags.contains(AddressFlags::Secondary)
            && message.header.family == AddressFamily::Inet6,
    })
}

fn to_route(message: &RouteMessage) -> Route {
    let mut route = Route {
        kind: match message.header.kind {
            RouteType::Unicast => RouteKind::Unicast,
            RouteType::Local => RouteKind::Local,
            RouteType::Broadcast | RouteType::Multicast | RouteType::Anycast => {
                RouteKind::NotUnicast
            }
            _ => RouteKind::Forbidden,
        },
        interface: 0,
        gateway: None,
        source: None,
        mtu: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.interface = *index,
            RouteAttribute::Gateway(address) => route.gateway = to_ip(address),
            // An IPv4 route through a gateway with an IPv6 address.
            RouteAttribute::Via(RouteVia::Inet(address)) => route.gateway = Some((*address).into()),
            RouteAttribute::Via(RouteVia::Inet6(address)) => {
                route.gateway = Some((*address).into());
            }
            RouteAttribute::PrefSource(address) => route.source = to_ip(address),
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    route
}

fn to_neighbour(message: &NeighbourMessage) -> Neighbour {
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(mac) => mac.as_slice().try_into().ok(),
        _ => None,
    });
    Neighbour { state: message.header.state, mac }
}

fn neighbour_message(interface: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = interface;
    message.attributes.push(NeighbourAttribute::Destination(match address {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    }));
    message
}

fn neighbour_address(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some((*v4).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    })
}

fn to_ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn no_answer() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests;
