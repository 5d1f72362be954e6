//! Packets that we write are packets that we read; everything else is an error, never a panic.

use proptest::prelude::*;

use super::*;

const PORT: Port = Port(4791);

fn ports() -> Ports {
    Ports::new(&[Port(9), PORT]).unwrap()
}

fn headers(version: u8) -> Headers {
    let (source, destination) = match version {
        4 => ("192.0.2.1", "192.0.2.2"),
        _ => ("2001:db8::1", "2001:db8::2"),
    };
    Headers {
        source_mac: [2, 0, 0, 0, 0, 1],
        next_hop_mac: [2, 0, 0, 0, 0, 2],
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port: SourcePort(0xffff),
        port: PORT,
        dscp: Dscp::default(),
    }
}

fn packet(version: u8, payload: &[u8]) -> Vec<u8> {
    let headers = headers(version);
    let mut packet = vec![0xee; Headers::len_for(headers.destination)];
    packet.extend_from_slice(payload);
    headers.write(&mut packet);
    packet
}

/// `extra` bytes put in at `at`.
fn insert(packet: &[u8], at: usize, extra: &[u8]) -> Vec<u8> {
    [&packet[..at], extra, &packet[at..]].concat()
}

fn add_to_length(packet: &mut [u8], at: usize, more: u16) {
    let old = u16::from_be_bytes([packet[at], packet[at + 1]]);
    packet[at..at + 2].copy_from_slice(&(old + more).to_be_bytes());
}

/// The checksum as RFC 1071 describes it, word by word.
fn checksum_is_right(bytes: &[u8]) -> bool {
    let mut total = 0_u32;
    for pair in bytes.chunks(2) {
        total += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total == 0xffff
}

fn pseudo_header(packet: &[u8]) -> Vec<u8> {
    let ip = &packet[ETHERNET_LEN..];
    let udp_len = u32::from(u16::from_be_bytes([ip[4], ip[5]]));
    [&ip[8..40], &udp_len.to_be_bytes(), &[0, 0, 0, PROTOCOL_UDP]].concat()
}

#[test]
fn an_ipv4_packet_is_written_as_the_rfcs_say() {
    let packet = packet(4, &[0xab; 3]);
    assert_eq!(packet[..6], [2, 0, 0, 0, 0, 2]);
    assert_eq!(packet[6..12], [2, 0, 0, 0, 0, 1]);
    assert_eq!(packet[12..14], ETHERTYPE_IPV4);
    assert_eq!(packet[14], 0x45);
    assert_eq!(packet[16..18], [0, 31]);
    assert_eq!(packet[20..22], [0x40, 0], "don't fragment");
    assert_eq!(packet[22..24], [64, 17]);
    assert!(checksum_is_right(&packet[14..34]));
    assert_eq!(packet[34..42], [0xff, 0xff, 0x12, 0xb7, 0, 11, 0, 0]);
}

#[test]
fn an_ipv6_packet_has_a_checksum_and_it_is_right() {
    for len in 0..40 {
        let payload: Vec<u8> = (0..len).map(|i: u8| i.wrapping_mul(37)).collect();
        let packet = packet(6, &payload);
        assert_eq!(packet[14..18], [0x60, 0, 0, 0]);
        assert_eq!(packet[20..22], [17, 64]);
        let covered = [pseudo_header(&packet), packet[54..].to_vec()].concat();
        assert!(checksum_is_right(&covered), "payload of {len} bytes");
        assert_ne!(packet[60..62], [0, 0]);
    }
}

//= 1rma#6-own-traffic-class
//= type=test
#[test]
fn a_packet_carries_its_traffic_class() {
    for value in [0, 1, 10, 46, 63] {
        let dscp = Dscp::new(value).unwrap();
        let [v4, v6] = [4, 6].map(|version| {
            let headers = Headers { dscp, ..headers(version) };
            let mut packet = vec![0xee; Headers::len_for(headers.destination) + 3];
            headers.write(&mut packet);
            parse(&packet, &ports()).unwrap();
            packet
        });
        assert_eq!(v4[15], value << 2);
        assert!(checksum_is_right(&v4[14..34]));
        assert_eq!([v6[14], v6[15]], [0x60 | value >> 2, value << 6]);
    }
    assert_eq!(Dscp::new(64), None);
}

#[test]
fn a_checksum_of_zero_is_sent_as_all_ones_over_ipv6() {
    // Two payload bytes equal to the checksum of the packet with zeros there make it zero.
    let zeros = packet(6, &[0, 0]);
    let packet = packet(6, &zeros[60..62]);
    assert_eq!(packet[60..62], [0xff, 0xff]);
}

#[test]
fn ethernet_padding_is_cut_off() {
    for version in [4, 6] {
        let mut padded = packet(version, b"abc");
        padded.resize(padded.len() + 20, 0);
        let datagram = parse(&padded, &ports()).unwrap();
        assert_eq!(&padded[datagram.payload], b"abc");
    }
}

#[test]
fn up_to_two_vlan_tags_are_skipped() {
    let plain = packet(4, b"abc");
    let one = insert(&plain, 12, &[0x81, 0, 0, 7]);
    let two = insert(&one, 12, &[0x88, 0xa8, 0, 9]);
    let three = insert(&two, 12, &[0x88, 0xa8, 0, 9]);
    for tagged in [&one, &two] {
        let datagram = parse(tagged, &ports()).unwrap();
        assert_eq!(&tagged[datagram.payload], b"abc");
    }
    assert_eq!(parse(&three, &ports()), Err(PacketError::EtherType));
}

#[test]
fn ipv4_options_are_skipped_up_to_the_longest_header() {
    for words in 0..=10_u8 {
        let mut packet = insert(&packet(4, b"abc"), 34, &vec![1; usize::from(words) * 4]);
        packet[14] = 0x45 + words;
        add_to_length(&mut packet, 16, u16::from(words) * 4);
        let datagram = parse(&packet, &ports()).unwrap();
        assert_eq!(&packet[datagram.payload], b"abc");
    }
}

#[test]
fn up_to_four_ipv6_extension_headers_are_skipped() {
    let mut packet = packet(6, b"abc");
    for count in 1..=5 {
        // In front of the ones that are there; the last names UDP.
        let following = packet[20];
        packet = insert(&packet, 54, &[following, 0, 1, 4, 0, 0, 0, 0]);
        packet[20] = [EXTENSION_DESTINATION, EXTENSION_ROUTING, EXTENSION_HOP_BY_HOP][count % 3];
        add_to_length(&mut packet, 18, 8);
        let got = parse(&packet, &ports());
        if count <= EXTENSIONS_MAX {
            assert_eq!(&packet[got.unwrap().payload], b"abc");
        } else {
            assert_eq!(got, Err(PacketError::Protocol));
        }
    }
}

#[test]
fn each_way_of_being_wrong_has_its_own_error() {
    let wrong = |version: u8, change: fn(&mut [u8])| {
        let mut packet = packet(version, &[7; 40]);
        change(&mut packet);
        parse(&packet, &ports()).unwrap_err()
    };
    assert_eq!(wrong(4, |p| p[13] = 6), PacketError::EtherType);
    assert_eq!(wrong(4, |p| p[14] = 0x44), PacketError::IpHeader);
    assert_eq!(wrong(4, |p| p[14] = 0x65), PacketError::IpHeader);
    assert_eq!(wrong(6, |p| p[14] = 0x40), PacketError::IpHeader);
    assert_eq!(wrong(4, |p| p[20] = 0x20), PacketError::Fragment);
    assert_eq!(wrong(4, |p| p[21] = 1), PacketError::Fragment);
    assert_eq!(wrong(4, |p| p[23] = 6), PacketError::Protocol);
    assert_eq!(wrong(6, |p| p[20] = 44), PacketError::Protocol);
    assert_eq!(wrong(4, |p| p[37] ^= 1), PacketError::Port);
    assert_eq!(wrong(4, |p| p[16] = 0xff), PacketError::IpLength);
    assert_eq!(wrong(4, |p| p[17] = 21), PacketError::UdpLength);
    assert_eq!(wrong(4, |p| p[17] = 19), PacketError::IpLength);
    assert_eq!(wrong(6, |p| p[18] = 0xff), PacketError::IpLength);
    assert_eq!(wrong(6, |p| p[19] = 7), PacketError::UdpLength);
    assert_eq!(wrong(4, |p| p[39] = 7), PacketError::UdpLength);
    assert_eq!(wrong(4, |p| p[38] = 1), PacketError::UdpLength);
    assert_eq!(
        wrong(6, |p| {
            p[22..32].fill(0);
            p[32..34].fill(0xff);
        }),
        PacketError::MappedAddress
    );
}

#[test]
fn a_packet_cut_anywhere_is_an_error() {
    for version in [4, 6] {
        let packet = packet(version, b"abcdef");
        for len in 0..packet.len() {
            assert!(parse(&packet[..len], &ports()).is_err(), "IPv{version} cut to {len}");
        }
    }
}

proptest! {
    #[test]
    fn written_headers_are_read_back(
        version in prop_oneof![Just(4_u8), Just(6)],
        payload in proptest::collection::vec(any::<u8>(), 0..9000),
        source_port in any::<u16>(),
    ) {
        let headers = Headers { source_port: SourcePort(source_port), ..headers(version) };
        let mut packet = vec![0; Headers::len_for(headers.destination)];
        packet.extend_from_slice(&payload);
        headers.write(&mut packet);
        let datagram = parse(&packet, &ports()).unwrap();
        prop_assert_eq!(datagram.source, headers.source);
        prop_assert_eq!(datagram.destination, headers.destination);
        prop_assert_eq!(&packet[datagram.payload], &payload[..]);
    }

    #[test]
    fn headers_before_pieces_are_those_before_the_whole(
        version in prop_oneof![Just(4_u8), Just(6)],
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..9),
    ) {
        let whole = packet(version, &pieces.concat());
        let headers = headers(version);
        let mut chunk = vec![0xee; 100];
        let len = headers.write_before(&mut chunk, || pieces.iter().map(Vec::as_slice));
        prop_assert_eq!(&chunk[..len], &whole[..len]);
        prop_assert_eq!(&chunk[len..], &vec![0xee; 100 - len]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), port in any::<u16>()) {
        if let Ok(datagram) = parse(&bytes, &Ports::new(&[Port(port.max(1))]).unwrap()) {
            prop_assert!(bytes.get(datagram.payload).is_some());
        }
    }

    #[test]
    fn a_damaged_packet_never_panics(
        version in prop_oneof![Just(4_u8), Just(6)],
        at in 0_usize..70,
        value in any::<u8>(),
        len in 0_usize..120,
    ) {
        let mut packet = packet(version, &[9; 20]);
        packet.resize(len, 0);
        if let Some(byte) = packet.get_mut(at) {
            *byte = value;
        }
        if let Ok(datagram) = parse(&packet, &ports()) {
            prop_assert!(packet.get(datagram.payload).is_some());
        }
    }
}
