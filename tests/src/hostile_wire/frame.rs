//! The packet of 1RMA in an Ethernet frame, and its frames in the packet; and Ethernet frames
//! around other packets.

use core::ops::Range;

use rma_core::{
    packet::FRAMES_MAX,
    port::{Port, Ports, SourcePort},
    wire,
};
use rma_xdp::device::{
    Dscp,
    xdp::packet::{self, Datagram, ETHERNET_LEN, Headers, IPV4_LEN, IPV6_LEN, UDP_LEN},
};

use crate::frames::{IPV4, IPV6, UDP, checksum};

/// Octet of the frame type in a 1RMA frame.
const FRAME_TYPE: usize = 1;
/// Octets of the sending engine's number.
const ENGINE: Range<usize> = 14..16;
/// Octets of the counter.
const COUNTER: Range<usize> = 20..28;

/// The packet of 1RMA in an Ethernet frame; `None` if there is none.
#[must_use]
pub fn payload(frame: &[u8], port: u16) -> Option<Range<usize>> {
    parse(frame, port).map(|datagram| datagram.payload)
}

/// The frames of a packet, as a receiver finds them, and what is behind them.
#[must_use]
pub fn split(packet: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut frames, mut rest) = (Vec::new(), packet);
    while frames.len() < FRAMES_MAX
        && let Ok(len) = wire::frame_len(rest)
    {
        let (frame, behind) = rest.split_at(len);
        frames.push(frame.to_vec());
        rest = behind;
    }
    (frames, rest.to_vec())
}

/// The frames of 1RMA in an Ethernet frame; none if it is another.
#[must_use]
pub fn frames(frame: &[u8], port: u16) -> Vec<Vec<u8>> {
    payload(frame, port).map_or_else(Vec::new, |packet| split(&frame[packet]).0)
}

fn parse(frame: &[u8], port: u16) -> Option<Datagram> {
    let ports = Ports::new(&[Port(port)]).expect("hosts have a port");
    packet::parse(frame, &ports).ok()
}

/// The code of each 1RMA frame's type that is in an Ethernet frame.
#[must_use]
pub fn frame_types(frame: &[u8], port: u16) -> Vec<u8> {
    frames(frame, port).iter().map(|frame| frame[FRAME_TYPE]).collect()
}

/// Sender, engine and counter of each 1RMA frame that is in an Ethernet frame. With the frame's
/// direction they are its IV.
#[must_use]
pub fn senders_and_counters(frame: &[u8], port: u16) -> Vec<([u8; 6], u16, u64)> {
    let sender = *frame[6..].first_chunk().expect("an Ethernet header");
    let of = |octets: &Vec<u8>| {
        let engine = *octets[ENGINE].first_chunk().expect("two octets");
        let counter = *octets[COUNTER].first_chunk().expect("eight octets");
        (sender, u16::from_be_bytes(engine), u64::from_be_bytes(counter))
    };
    frames(frame, port).iter().map(of).collect()
}

/// Between the same hosts, the same way, another payload: with true lengths and a checksum that a
/// receiver takes.
///
/// # Panics
/// If `like` is no frame to `port`.
#[must_use]
pub fn around(like: &[u8], port: u16, source_port: SourcePort, payload: &[u8]) -> Vec<u8> {
    wrap(like, port, source_port, payload, false)
}

/// As [`around`], the other way: from the receiver of `like` to its sender.
///
/// # Panics
/// If `like` is no frame to `port`.
#[must_use]
pub fn back(like: &[u8], port: u16, source_port: SourcePort, payload: &[u8]) -> Vec<u8> {
    wrap(like, port, source_port, payload, true)
}

fn wrap(like: &[u8], port: u16, source_port: SourcePort, payload: &[u8], turned: bool) -> Vec<u8> {
    let Datagram { source, destination, .. } = parse(like, port).expect("a frame that came by");
    let [next_hop_mac, source_mac] = [0, 6].map(|at| *like[at..].first_chunk().expect("14 octets"));
    let headers = Headers {
        source_mac,
        next_hop_mac,
        source,
        destination,
        source_port,
        port: Port(port),
        dscp: Dscp::default(),
    };
    let headers = if turned {
        Headers {
            source_mac: next_hop_mac,
            next_hop_mac: source_mac,
            source: destination,
            destination: source,
            ..headers
        }
    } else {
        headers
    };
    let len = Headers::len_for(source);
    let mut frame = vec![0; len + payload.len()];
    frame[len..].copy_from_slice(payload);
    headers.write(&mut frame);
    frame
}

/// Writes the true UDP checksum where there is one at all: what a kernel leaves to its device, a
/// veth pair does not do, and the far kernel would not believe a frame that has been through a
/// packet socket.
pub fn complete_checksum(frame: &mut [u8]) {
    let Some([high, low]) = frame.get(ETHERNET_LEN - 2..ETHERNET_LEN) else { return };
    let ip = ETHERNET_LEN;
    let (protocol, addresses, udp) = match u16::from_be_bytes([*high, *low]) {
        IPV4 if frame.len() >= ip + IPV4_LEN => {
            let len = usize::from(frame[ip] & 0x0f) * 4;
            (frame[ip + 9], ip + 12..ip + 20, ip + len)
        }
        IPV6 if frame.len() >= ip + IPV6_LEN => (frame[ip + 6], ip + 8..ip + 40, ip + IPV6_LEN),
        _ => return,
    };
    if protocol != UDP || frame.len() < udp + UDP_LEN {
        return;
    }
    let len = usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]));
    let field = udp + 6..udp + 8;
    if frame.len() < udp + len || len < UDP_LEN || frame[field.clone()] == [0, 0] {
        return;
    }
    frame[field.clone()].fill(0);
    let pseudo = [0, protocol, (len >> 8) as u8, len as u8];
    let sum = match checksum(&[&frame[addresses], &pseudo, &frame[udp..udp + len]]) {
        0 => 0xffff,
        sum => sum,
    };
    frame[field].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames;

    #[test]
    fn a_packet_is_taken_apart_and_what_is_behind_its_frames_is_kept() {
        let mut notice = vec![0; 48];
        notice[..2].copy_from_slice(&[wire::VERSION, 3]);
        let many = notice.repeat(FRAMES_MAX + 1);
        for (packet, count, behind) in [
            (&[][..], 0, &[][..]),
            (&notice, 1, &[]),
            (&many[..100], 2, &notice[..4]),
            (&many, FRAMES_MAX, &notice),
        ] {
            let (frames, rest) = split(packet);
            assert_eq!(frames, vec![notice.clone(); count]);
            assert_eq!(rest, behind);
        }
    }

    #[test]
    fn a_partial_checksum_is_completed_and_a_missing_one_left_out() {
        for (version, ethertype) in [(frames::Version::V4, IPV4), (frames::Version::V6, IPV6)] {
            let datagram = frames::udp(version, 7, frames::PORT, b"odd");
            let packet = match version {
                frames::Version::V4 => frames::ipv4(UDP, &[], 0, &datagram),
                frames::Version::V6 => frames::ipv6(UDP, &datagram),
            };
            let honest = frames::ethernet(&[], ethertype, &packet);
            let field = honest.len() - 5..honest.len() - 3;
            let mut frame = honest.clone();
            frame[field.clone()].copy_from_slice(&[1, 2]);
            complete_checksum(&mut frame);
            assert_eq!(frame, honest);
            frame[field.clone()].fill(0);
            complete_checksum(&mut frame);
            assert_eq!(frame[field], [0, 0]);
        }
    }

    #[test]
    fn a_frame_around_another_payload_is_one_that_a_host_takes() {
        let datagram = frames::udp(frames::Version::V6, 7, frames::PORT, b"first");
        let like = frames::ethernet(&[], IPV6, &frames::ipv6(UDP, &datagram));
        let from = SourcePort(3);
        for (frame, turned) in [
            (around(&like, frames::PORT, from, b"other payload"), false),
            (back(&like, frames::PORT, from, b"other payload"), true),
        ] {
            let [was, is] = [&like, &frame].map(|frame| parse(frame, frames::PORT));
            let (was, is) = (was.expect("like"), is.expect("made"));
            assert_eq!(
                (is.source == was.destination, is.destination == was.source),
                (turned, turned)
            );
            assert_eq!(frame[is.payload], *b"other payload");
            let mut completed = frame.clone();
            complete_checksum(&mut completed);
            assert_eq!(completed, frame, "its checksum was right already");
        }
    }
}
