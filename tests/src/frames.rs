//! Ethernet frames for tests: builders from the inside out, and a table of frames with their
//! verdicts.
//!
//! The table says what the steering program does with each frame; a parser in userspace must be
//! tested against the same rows. Not here: 1RMA payloads; the program never looks at them.
//!
//! Invariant: every length and checksum that a builder writes is true. A fixture that lies starts
//! from a true frame and says so in its row ([`Case::honest`]).

/// The UDP port of 1RMA in the fixtures. Its two bytes differ, so that a swapped one is another
/// port.
pub const PORT: u16 = 0x1a2b;
/// The source port of the fixtures.
pub const SOURCE_PORT: u16 = 0xc0de;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of a VLAN tag.
pub const VLAN: u16 = 0x8100;
/// EtherType of a provider's VLAN tag (802.1ad).
pub const PROVIDER_VLAN: u16 = 0x88a8;

/// IP protocol: IPv6 hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// IP protocol: ICMP.
pub const ICMP: u8 = 1;
/// IP protocol: TCP.
pub const TCP: u8 = 6;
/// IP protocol: UDP.
pub const UDP: u8 = 17;
/// IP protocol: IPv6 routing header.
pub const ROUTING: u8 = 43;
/// IP protocol: IPv6 fragment header.
pub const FRAGMENT: u8 = 44;
/// IP protocol: encapsulating security payload.
pub const ESP: u8 = 50;
/// IP protocol: authentication header.
pub const AH: u8 = 51;
/// IP protocol: ICMPv6.
pub const ICMPV6: u8 = 58;
/// IP protocol: IPv6 destination options.
pub const DESTINATION: u8 = 60;

/// IPv4 flag: do not fragment.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4 flag: more fragments follow.
pub const MORE_FRAGMENTS: u16 = 0x2000;

/// Length of an Ethernet header without tags.
pub const ETHERNET_LEN: usize = 14;
/// Length of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Length of the fixed IPv6 header.
pub const IPV6_LEN: usize = 40;
/// Length of a UDP header.
pub const UDP_LEN: usize = 8;

const SOURCE_V4: [u8; 4] = [192, 0, 2, 1];
/// The destination of our fixtures.
pub const DESTINATION_V4: [u8; 4] = [192, 0, 2, 2];
/// 2001:db8::1 and ::2, of the documentation prefix as the IPv4 ones are.
const SOURCE_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The same over IPv6.
pub const DESTINATION_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// One frame and what becomes of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// The distinguishing feature of the frame; unique in the table.
    pub name: String,
    /// The frame, from its destination MAC address on, without a frame check sequence.
    pub bytes: Vec<u8>,
    /// Whether the steering program gives it to the socket of its queue, if there is one.
    pub redirected: bool,
    /// The bytes in front of the UDP payload; 0 if the frame is not redirected. A prefix of the
    /// frame is redirected exactly if it is at least this long.
    pub headers_len: usize,
    /// Whether every length and checksum in it is true. The steering program does not ask; a
    /// receiver must.
    pub honest: bool,
}

/// The IP version that a UDP checksum covers the addresses of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4, with addresses of 4 octets.
    V4,
    /// IPv6, with addresses of 16 octets.
    V6,
}

/// An Ethernet frame; `tags` are the EtherTypes of its VLAN tags, the outermost first.
#[must_use]
pub fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01];
    for (tag, vid) in tags.iter().zip(100_u16..) {
        frame.extend(tag.to_be_bytes());
        frame.extend(vid.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// An IPv4 packet. `options` are padded to whole words; `fragment` holds the flags and the fragment
/// offset.
#[must_use]
pub fn ipv4(protocol: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let len = IPV4_LEN + options.len().next_multiple_of(4);
    assert!(len <= 60, "an IPv4 header has room for 40 bytes of options");
    let total = u16::try_from(len + payload.len()).expect("a fixture fits an IPv4 packet");
    let ihl = u8::try_from(len / 4).expect("at most 15");
    let mut packet = vec![0x40 | ihl, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0x12, 0x34]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(SOURCE_V4);
    packet.extend(DESTINATION_V4);
    packet.extend(options);
    packet.resize(len, 0);
    let sum = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// An IPv6 packet whose fixed header names `next`.
#[must_use]
pub fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).expect("a fixture fits an IPv6 packet");
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(SOURCE_V6);
    packet.extend(DESTINATION_V6);
    packet.extend(payload);
    packet
}

/// An IPv6 packet with extension headers: their kinds and lengths in units of 8 bytes (1 to 256).
#[must_use]
pub fn ipv6_with_extensions(kinds: &[(u8, usize)], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut next = protocol;
    let mut chain = payload.to_vec();
    for &(kind, units) in kinds.iter().rev() {
        chain = [extension(kind, next, units), chain].concat();
        next = kind;
    }
    ipv6(next, &chain)
}

fn extension(kind: u8, next: u8, units: usize) -> Vec<u8> {
    let more = u8::try_from(units - 1).expect("1 to 256 units");
    let mut header = vec![next, more];
    match kind {
        // Padding options up to the end: PadN holds at most 255 bytes.
        HOP_BY_HOP | DESTINATION => {
            while header.len() < units * 8 {
                match (units * 8 - header.len()).min(257) {
                    1 => header.push(0),
                    room => {
                        header.extend([1, u8::try_from(room - 2).expect("at most 255")]);
                        header.resize(header.len() + room - 2, 0);
                    }
                }
            }
        }
        // An experimental type, no segments left: every receiver takes it (RFC 8200, 4.4).
        ROUTING => header.extend([253, 0]),
        _ => {}
    }
    header.resize(units * 8, 0);
    header
}

/// A UDP datagram with a true checksum between the fixtures' addresses.
#[must_use]
pub fn udp(version: Version, source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(UDP_LEN + payload.len()).expect("a fixture fits a datagram");
    let mut datagram = Vec::with_capacity(usize::from(len));
    for field in [source, destination, len, 0] {
        datagram.extend(field.to_be_bytes());
    }
    datagram.extend(payload);
    let sum = transport_checksum(version, UDP, &datagram);
    // A sum of zero is sent as its other form: zero says that there is none (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// A TCP SYN with a true checksum.
#[must_use]
pub fn tcp(version: Version, source: u16, destination: u16) -> Vec<u8> {
    let mut segment = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    let sum = transport_checksum(version, TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// An ICMP message with a true checksum; `body` follows the four bytes of its header.
#[must_use]
pub fn icmp(version: Version, kind: u8, code: u8, body: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0][..], body].concat();
    let sum = match version {
        Version::V4 => checksum(&[&message]),
        Version::V6 => transport_checksum(version, ICMPV6, &message),
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// An ARP request for the fixtures' destination.
#[must_use]
pub fn arp() -> Vec<u8> {
    let mut request = vec![0, 1, 0x08, 0, 6, 4, 0, 1, 0x02, 0, 0, 0, 0, 0x01];
    request.extend(SOURCE_V4);
    request.extend([0; 6]);
    request.extend(DESTINATION_V4);
    request
}

/// The checksum of a transport protocol over its pseudo-header and `segment`; 0 if `segment` holds
/// a true one.
#[must_use]
pub fn transport_checksum(version: Version, protocol: u8, segment: &[u8]) -> u16 {
    let len = u32::try_from(segment.len()).expect("a fixture fits a packet").to_be_bytes();
    let (source, destination) = match version {
        Version::V4 => (&SOURCE_V4[..], &DESTINATION_V4[..]),
        Version::V6 => (&SOURCE_V6[..], &DESTINATION_V6[..]),
    };
    checksum(&[source, destination, &len, &[0, 0, 0, protocol], segment])
}

/// The Internet checksum (RFC 1071); 0 over bytes that hold a true one. Each part but the last has
/// even length.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).expect("folded twice")
}

/// The table.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut table = Table::default();
    ours(&mut table);
    ours_with_lies(&mut table);
    other_ports(&mut table);
    other_addresses(&mut table);
    other_link_layers(&mut table);
    other_ipv4(&mut table);
    other_ipv6(&mut table);
    table.0
}

const PAYLOAD: &[u8] = b"what follows the UDP header";

#[derive(Debug, Default)]
struct Table(Vec<Case>);

impl Table {
    fn redirected(&mut self, name: impl Into<String>, bytes: Vec<u8>) {
        let headers_len = bytes.len() - PAYLOAD.len();
        self.row(name, bytes, headers_len, true);
    }

    fn passed(&mut self, name: impl Into<String>, bytes: Vec<u8>) {
        self.row(name, bytes, 0, true);
    }

    fn row(&mut self, name: impl Into<String>, bytes: Vec<u8>, headers_len: usize, honest: bool) {
        let redirected = headers_len > 0;
        self.0.push(Case { name: name.into(), bytes, redirected, headers_len, honest });
    }
}

fn ours_v4() -> Vec<u8> {
    udp(Version::V4, SOURCE_PORT, PORT, PAYLOAD)
}

fn ours_v6() -> Vec<u8> {
    udp(Version::V6, SOURCE_PORT, PORT, PAYLOAD)
}

fn ours(table: &mut Table) {
    let v4 = ipv4(UDP, &[], DONT_FRAGMENT, &ours_v4());
    let v6 = ipv6(UDP, &ours_v6());
    for tags in [
        &[][..],
        &[VLAN],
        &[PROVIDER_VLAN],
        &[PROVIDER_VLAN, VLAN],
        &[VLAN, VLAN],
        &[VLAN, PROVIDER_VLAN],
        &[PROVIDER_VLAN, PROVIDER_VLAN],
    ] {
        table.redirected(format!("IPv4, tags {tags:04x?}"), ethernet(tags, IPV4, &v4));
        table.redirected(format!("IPv6, tags {tags:04x?}"), ethernet(tags, IPV6, &v6));
    }
    for (name, flags) in [("may be fragmented", 0), ("with the reserved flag", 0x8000)] {
        let packet = ipv4(UDP, &[], flags, &ours_v4());
        table.redirected(format!("IPv4 that {name}"), ethernet(&[], IPV4, &packet));
    }
    for ihl in 6..=15 {
        // No-operation options.
        let packet = ipv4(UDP, &vec![1; (ihl - 5) * 4], DONT_FRAGMENT, &ours_v4());
        table.redirected(format!("IPv4, IHL {ihl}"), ethernet(&[], IPV4, &packet));
    }
    let tagged = ipv4(UDP, &[1; 40], DONT_FRAGMENT, &ours_v4());
    table.redirected("IPv4, IHL 15, two tags", ethernet(&[PROVIDER_VLAN, VLAN], IPV4, &tagged));

    for chain in [
        &[(HOP_BY_HOP, 1)][..],
        &[(ROUTING, 1)],
        &[(DESTINATION, 1)],
        &[(DESTINATION, 256)],
        &[(HOP_BY_HOP, 1), (ROUTING, 3)],
        &[(HOP_BY_HOP, 2), (DESTINATION, 1), (ROUTING, 3)],
        &[(HOP_BY_HOP, 1), (DESTINATION, 2), (ROUTING, 3), (DESTINATION, 4)],
    ] {
        let packet = ipv6_with_extensions(chain, UDP, &ours_v6());
        table.redirected(format!("IPv6, extensions {chain:?}"), ethernet(&[], IPV6, &packet));
    }

    let mut empty = ethernet(&[], IPV4, &ipv4(UDP, &[], 0, &udp(Version::V4, 1, PORT, &[])));
    let headers_len = empty.len();
    table.row("IPv4 without payload", empty.clone(), headers_len, true);
    empty.resize(60, 0);
    table.row("IPv4 without payload, padded to 60 bytes", empty, headers_len, true);
    let from = ipv4(UDP, &[], 0, &udp(Version::V4, PORT, PORT, PAYLOAD));
    table.redirected("IPv4 from our port to our port", ethernet(&[], IPV4, &from));
    let mut multicast = ethernet(&[], IPV4, &v4);
    multicast[..6].copy_from_slice(&[0xff; 6]);
    table.redirected("IPv4 to the broadcast MAC address", multicast);
}

/// Ours, but a length or checksum lies: for the receiver to count.
fn ours_with_lies(table: &mut Table) {
    let mut lie = |name: &str, ethertype: u16, offset: usize, tell: fn(u16) -> u16| {
        let packet = match ethertype {
            IPV4 => ipv4(UDP, &[], DONT_FRAGMENT, &ours_v4()),
            _ => ipv6(UDP, &ours_v6()),
        };
        let mut bytes = ethernet(&[], ethertype, &packet);
        let field = &mut bytes[offset..offset + 2];
        let value = tell(u16::from_be_bytes([field[0], field[1]]));
        field.copy_from_slice(&value.to_be_bytes());
        let headers_len = bytes.len() - PAYLOAD.len();
        table.row(name, bytes, headers_len, false);
    };
    // Offsets in a frame without tags, options or extensions.
    let (v4, v6) = (ETHERNET_LEN + IPV4_LEN, ETHERNET_LEN + IPV6_LEN);
    lie("IPv4, UDP length 0", IPV4, v4 + 4, |_| 0);
    lie("IPv4, UDP length below its header", IPV4, v4 + 4, |_| 7);
    lie("IPv4, UDP length one short", IPV4, v4 + 4, |len| len - 1);
    lie("IPv4, UDP length one long", IPV4, v4 + 4, |len| len + 1);
    lie("IPv4, UDP length 65535", IPV4, v4 + 4, |_| 0xffff);
    lie("IPv4, wrong UDP checksum", IPV4, v4 + 6, |sum| sum ^ 0x0101);
    lie("IPv4, wrong header checksum", IPV4, ETHERNET_LEN + 10, |sum| sum ^ 0x0101);
    lie("IPv4, total length 0", IPV4, ETHERNET_LEN + 2, |_| 0);
    lie("IPv4, total length one long", IPV4, ETHERNET_LEN + 2, |len| len + 1);
    lie("IPv4, total length 65535", IPV4, ETHERNET_LEN + 2, |_| 0xffff);
    lie("IPv6, UDP length 0", IPV6, v6 + 4, |_| 0);
    lie("IPv6, UDP length one long", IPV6, v6 + 4, |len| len + 1);
    lie("IPv6, UDP length 65535", IPV6, v6 + 4, |_| 0xffff);
    lie("IPv6, no UDP checksum", IPV6, v6 + 6, |_| 0);
    lie("IPv6, payload length 0", IPV6, ETHERNET_LEN + 4, |_| 0);
    lie("IPv6, payload length one long", IPV6, ETHERNET_LEN + 4, |len| len + 1);
    lie("IPv6, payload length 65535", IPV6, ETHERNET_LEN + 4, |_| 0xffff);
}

fn other_ports(table: &mut Table) {
    for (name, source, destination) in [
        ("our port as the source alone", PORT, SOURCE_PORT),
        ("our port with its bytes swapped", SOURCE_PORT, PORT.swap_bytes()),
        ("the port below", SOURCE_PORT, PORT - 1),
        ("the port above", SOURCE_PORT, PORT + 1),
        ("a port with our low byte", SOURCE_PORT, PORT ^ 0x0100),
        ("port 0", SOURCE_PORT, 0),
        ("port 0 from port 0", 0, 0),
    ] {
        let v4 = ipv4(UDP, &[], DONT_FRAGMENT, &udp(Version::V4, source, destination, PAYLOAD));
        table.passed(format!("IPv4, {name}"), ethernet(&[], IPV4, &v4));
        let v6 = ipv6(UDP, &udp(Version::V6, source, destination, PAYLOAD));
        table.passed(format!("IPv6, {name}"), ethernet(&[], IPV6, &v6));
    }
}

/// To our port, and somebody else's address: whoever shares the interface. Their checksums are
/// those of frames to us.
fn other_addresses(table: &mut Table) {
    let v4 = ethernet(&[], IPV4, &ipv4(UDP, &[], DONT_FRAGMENT, &ours_v4()));
    let v6 = ethernet(&[], IPV6, &ipv6(UDP, &ours_v6()));
    let mut to = |name: String, frame: &[u8], at: usize, octets: &[u8]| {
        let mut bytes = frame.to_vec();
        bytes[at..at + octets.len()].copy_from_slice(octets);
        table.row(name, bytes, 0, false);
    };
    // The offset of the destination in a frame without tags.
    let (at_v4, at_v6) = (ETHERNET_LEN + 16, ETHERNET_LEN + 24);
    for (octet, &ours) in DESTINATION_V4.iter().enumerate() {
        to(format!("IPv4, another address by octet {octet}"), &v4, at_v4 + octet, &[ours ^ 1]);
    }
    for (octet, &ours) in DESTINATION_V6.iter().enumerate() {
        to(format!("IPv6, another address by octet {octet}"), &v6, at_v6 + octet, &[ours ^ 1]);
    }
    for (name, octets) in [
        ("no address", [0; 4]),
        ("all hosts", [255; 4]),
        ("a group", [224, 0, 0, 251]),
        ("the source", SOURCE_V4),
    ] {
        to(format!("IPv4 to {name}"), &v4, at_v4, &octets);
    }
    let mut mapped = [0; 16];
    mapped[10..12].fill(0xff);
    mapped[12..].copy_from_slice(&DESTINATION_V4);
    let mut group = DESTINATION_V6;
    group[..2].copy_from_slice(&[0xff, 0x02]);
    for (name, octets) in
        [("no address", [0; 16]), ("a group", group), ("our IPv4 address", mapped)]
    {
        to(format!("IPv6 to {name}"), &v6, at_v6, &octets);
    }
}

fn other_link_layers(table: &mut Table) {
    let v4 = ipv4(UDP, &[], DONT_FRAGMENT, &ours_v4());
    let v6 = ipv6(UDP, &ours_v6());
    for tag in [VLAN, PROVIDER_VLAN] {
        table.passed(format!("IPv4, three {tag:04x} tags"), ethernet(&[tag; 3], IPV4, &v4));
        table.passed(format!("IPv6, three {tag:04x} tags"), ethernet(&[tag; 3], IPV6, &v6));
        table.passed(format!("one {tag:04x} tag and ARP"), ethernet(&[tag], ARP, &arp()));
    }
    table.passed("a tag that is not a VLAN's", ethernet(&[0x9100], IPV4, &v4));
    table.passed("ARP", ethernet(&[], ARP, &arp()));
    table.passed("a length for an EtherType (802.3)", ethernet(&[], 0x0045, &v4));
    table.passed("MPLS", ethernet(&[], 0x8847, &[&[0, 0, 1, 64][..], &v4].concat()));
    table.passed("IPv4 under the EtherType of IPv6", ethernet(&[], IPV6, &v4));
    table.passed("IPv6 under the EtherType of IPv4", ethernet(&[], IPV4, &v6));
    let mut swapped = ethernet(&[], IPV4.swap_bytes(), &v4);
    table.passed("an EtherType with its bytes swapped", swapped.clone());
    swapped.truncate(ETHERNET_LEN);
    table.passed("an Ethernet header alone", swapped);
}

fn other_ipv4(table: &mut Table) {
    for (name, fragment) in [
        ("first fragment", MORE_FRAGMENTS),
        ("first fragment that must not be one", MORE_FRAGMENTS | DONT_FRAGMENT),
        ("middle fragment", MORE_FRAGMENTS | 185),
        ("last fragment", 185),
        ("last fragment, largest offset", 0x1fff),
    ] {
        let packet = ipv4(UDP, &[], fragment, &ours_v4());
        table.passed(format!("IPv4, {name}"), ethernet(&[], IPV4, &packet));
    }
    for bit in 0..13 {
        let packet = ipv4(UDP, &[], 1 << bit, &ours_v4());
        table.passed(format!("IPv4, fragment offset bit {bit}"), ethernet(&[], IPV4, &packet));
    }
    for ihl in 0..5 {
        let mut bytes = ethernet(&[], IPV4, &ipv4(UDP, &[], 0, &ours_v4()));
        let header = &mut bytes[ETHERNET_LEN..];
        header[0] = 0x40 | ihl;
        // Our port where a reader that believes this length looks for one.
        let port = usize::from(ihl) * 4 + 2;
        header[port..port + 2].copy_from_slice(&PORT.to_be_bytes());
        table.row(format!("IPv4, IHL {ihl}"), bytes, 0, false);
    }
    for version in [0, 5, 6, 15] {
        let mut bytes = ethernet(&[], IPV4, &ipv4(UDP, &[], 0, &ours_v4()));
        bytes[ETHERNET_LEN] = version << 4 | 5;
        table.row(format!("IPv4 that says version {version}"), bytes, 0, false);
    }
    let mut beyond = ethernet(&[], IPV4, &ipv4(UDP, &[], 0, &udp(Version::V4, 1, PORT, &[])));
    beyond[ETHERNET_LEN] = 0x4f;
    table.row("IPv4, IHL past the end of the frame", beyond, 0, false);
    // The octets that would be a UDP header if there were no options.
    let decoy = ipv4(UDP, &ours_v4()[..8], 0, &udp(Version::V4, 1, PORT ^ 1, PAYLOAD));
    table.passed("IPv4, our port among the options", ethernet(&[], IPV4, &decoy));

    let v4 = |protocol: u8, payload: &[u8]| ethernet(&[], IPV4, &ipv4(protocol, &[], 0, payload));
    table.passed("TCP over IPv4 to our port", v4(TCP, &tcp(Version::V4, SOURCE_PORT, PORT)));
    table.passed("ICMP echo", v4(ICMP, &icmp(Version::V4, 8, 0, &[0, 1, 0, 1, 7, 7])));
    let quote = [&[0; 4][..], &ipv4(UDP, &[], 0, &ours_v4())[..28]].concat();
    table.passed("ICMP port unreachable, quoting ours", v4(ICMP, &icmp(Version::V4, 3, 3, &quote)));
    table.passed("our IPv4 inside IPv4", v4(4, &ipv4(UDP, &[], 0, &ours_v4())));
    table.passed("our IPv6 inside IPv4", v4(41, &ipv6(UDP, &ours_v6())));
    for protocol in [0, 2, 16, 18, 33, 47, ESP, AH, 132, 136, 255] {
        table.passed(format!("IPv4, protocol {protocol}"), v4(protocol, &ours_v4()));
    }
}

fn other_ipv6(table: &mut Table) {
    let v6 = |chain: &[(u8, usize)], protocol: u8, payload: &[u8]| {
        ethernet(&[], IPV6, &ipv6_with_extensions(chain, protocol, payload))
    };
    let segment = tcp(Version::V6, SOURCE_PORT, PORT);
    table.passed("TCP over IPv6 to our port", v6(&[], TCP, &segment));
    table.passed("TCP behind an extension to our port", v6(&[(DESTINATION, 1)], TCP, &segment));
    let solicitation = icmp(Version::V6, 135, 0, &[&[0; 4][..], &DESTINATION_V6].concat());
    table.passed("ICMPv6 neighbour solicitation", v6(&[], ICMPV6, &solicitation));
    let fragment = |offset_and_more: u16| {
        let header = [UDP, 0, (offset_and_more >> 8) as u8, offset_and_more as u8, 0, 0, 0, 1];
        ethernet(&[], IPV6, &ipv6(FRAGMENT, &[&header[..], &ours_v6()].concat()))
    };
    table.passed("IPv6, first fragment", fragment(1));
    table.passed("IPv6, last fragment", fragment(0x0100));
    table.passed("IPv6, a fragment that is the whole packet", fragment(0));
    // Each is followed by what would be ours if the header were of a kind that is walked over.
    for (name, kind) in
        [("AH", AH), ("ESP", ESP), ("mobility", 135), ("no next header", 59), ("unknown", 253)]
    {
        table.passed(format!("IPv6, {name}"), v6(&[(kind, 1)], UDP, &ours_v6()));
        let behind = v6(&[(HOP_BY_HOP, 1), (kind, 1)], UDP, &ours_v6());
        table.passed(format!("IPv6, {name} behind hop-by-hop"), behind);
    }
    let five = v6(&[(DESTINATION, 1); 5], UDP, &ours_v6());
    table.passed("IPv6, five extensions", five);
    let mut beyond = v6(&[(DESTINATION, 1)], UDP, &ours_v6());
    beyond[ETHERNET_LEN + IPV6_LEN + 1] = 255;
    table.row("IPv6, extension past the end of the frame", beyond, 0, false);
    for version in [0, 4, 7] {
        let mut bytes = v6(&[], UDP, &ours_v6());
        bytes[ETHERNET_LEN] = version << 4;
        table.row(format!("IPv6 that says version {version}"), bytes, 0, false);
    }
    table.passed("our IPv6 inside IPv6", v6(&[], 41, &ipv6(UDP, &ours_v6())));
    table.passed("our IPv4 inside IPv6", v6(&[], 4, &ipv4(UDP, &[], 0, &ours_v4())));
}
