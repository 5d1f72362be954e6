//! The treatment of bytes from the kernel, whatever they are.

use netlink_packet_core::ErrorMessage;

use super::*;

fn bytes(payload: NetlinkPayload<RouteNetlinkMessage>) -> Vec<u8> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// One message of each kind that the kernel sends us, with the attributes we read.
fn samples() -> Vec<Vec<u8>> {
    let mut link = LinkMessage::default();
    link.header.index = 7;
    link.header.link_layer_type = LinkLayerType::Ether;
    link.attributes = vec![
        LinkAttribute::IfName("rma0".into()),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
        LinkAttribute::Mtu(1500),
        LinkAttribute::NumRxQueues(2),
    ];
    let mut address = AddressMessage::default();
    address.header.family = AddressFamily::Inet6;
    address.header.index = 7;
    address.attributes = vec![
        AddressAttribute::Address("fd00::1".parse().unwrap()),
        AddressAttribute::Flags(AddressFlags::Permanent),
    ];
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.kind = RouteType::Unicast;
    route.attributes = vec![
        RouteAttribute::Oif(7),
        RouteAttribute::Gateway(RouteAddress::Inet([192, 0, 2, 2].into())),
        RouteAttribute::PrefSource(RouteAddress::Inet([192, 0, 2, 1].into())),
        RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400)]),
    ];
    let mut neighbour = neighbour_message(7, "192.0.2.2".parse().unwrap());
    neighbour.header.state = NeighbourState::Stale;
    neighbour.attributes.push(NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 2]));
    [
        RouteNetlinkMessage::NewLink(link),
        RouteNetlinkMessage::NewAddress(address),
        RouteNetlinkMessage::NewRoute(route),
        RouteNetlinkMessage::NewNeighbour(neighbour.clone()),
        RouteNetlinkMessage::DelNeighbour(neighbour),
    ]
    .into_iter()
    .map(|message| bytes(NetlinkPayload::InnerMessage(message)))
    .chain([bytes(NetlinkPayload::Error(ErrorMessage::default()))])
    .collect()
}

/// Runs everything that looks at received bytes.
fn digest(datagram: &[u8]) -> usize {
    let mut understood = 0;
    for message in messages(datagram) {
        let Ok(message) = message else { break };
        understood += 1;
        let _ = to_news(&message);
        let NetlinkPayload::InnerMessage(message) = message.payload else { continue };
        let _ = to_address(&message, 7);
        match message {
            RouteNetlinkMessage::NewLink(link) => drop(to_link(&link)),
            RouteNetlinkMessage::NewRoute(route) => {
                let _ = to_route(&route);
            }
            RouteNetlinkMessage::NewNeighbour(neighbour) => {
                let _ = to_neighbour(&neighbour);
            }
            _ => {}
        }
    }
    understood
}

#[test]
fn messages_cut_off_at_any_byte_do_not_panic() {
    let datagram = samples().concat();
    assert_eq!(digest(&datagram), samples().len());
    for length in 0..datagram.len() {
        digest(&datagram[..length]);
    }
}

#[test]
fn messages_with_any_one_byte_changed_do_not_panic() {
    for mut sample in samples() {
        for index in 0..sample.len() {
            let original = sample[index];
            for value in 0..=255 {
                sample[index] = value;
                digest(&sample);
            }
            sample[index] = original;
        }
    }
}

#[test]
fn a_message_that_is_not_understood_ends_the_datagram_with_an_error() {
    let mut datagram = samples().concat();
    // The length of the first message: shorter than its own header.
    datagram[0] = 3;
    assert!(messages(&datagram).next().unwrap().is_err());
    assert_eq!(messages(&datagram).count(), 1);
}

#[test]
fn only_valid_entries_give_a_hardware_address() {
    let mac = Some([2, 0, 0, 0, 0, 1]);
    for state in [
        NeighbourState::Reachable,
        NeighbourState::Stale,
        NeighbourState::Delay,
        NeighbourState::Probe,
        NeighbourState::Noarp,
        NeighbourState::Permanent,
    ] {
        assert_eq!(Neighbour { state, mac }.usable(), mac, "{state:?}");
    }
    for state in [NeighbourState::None, NeighbourState::Incomplete, NeighbourState::Failed] {
        assert_eq!(Neighbour { state, mac }.usable(), None, "{state:?}");
    }
}

#[test]
fn an_answer_to_an_earlier_question_is_not_taken() {
    // Two unprivileged questions of which the first answer is never read.
    let mut questions = Questions::open().unwrap();
    let mut message = LinkMessage::default();
    message.header.index = 1;
    let mut stale = NetlinkMessage::new(
        NetlinkHeader::default(),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::GetRoute(RouteMessage::default())),
    );
    stale.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    stale.header.sequence_number = 12345;
    stale.finalize();
    let mut bytes = vec![0; stale.buffer_len()];
    stale.serialize(&mut bytes);
    let kernel = SocketAddrNetlink::new(0, 0);
    net::sendto(&questions.socket, &bytes, SendFlags::empty(), &kernel).unwrap();
    assert_eq!(&*questions.link(message).unwrap().name, "lo");
}
