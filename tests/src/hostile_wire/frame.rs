//! Where a 1RMA frame lies in an Ethernet frame, and Ethernet frames around other payloads.

use core::ops::Range;

use rma_core::port::{Port, Ports, SourcePort};
use rma_xdp::xdp::packet::{self, Datagram, ETHERNET_LEN, Headers, IPV4_LEN, IPV6_LEN, UDP_LEN};

use crate::frames::{IPV4, IPV6, UDP, checksum};

/// Octet of the frame type in a 1RMA frame.
const FRAME_TYPE: usize = 1;
/// Octets of the sending engine's number.
const ENGINE: Range<usize> = 14..16;
/// Octets of the counter.
const COUNTER: Range<usize> = 20..28;

/// The 1RMA frame in an Ethernet frame; `None` if there is none.
#[must_use]
pub fn payload(frame: &[u8], port: u16) -> Option<Range<usize>> {
    parse(frame, port).map(|datagram| datagram.payload)
}

fn parse(frame: &[u8], port: u16) -> Option<Datagram> {
    let ports = Ports::new(&[Port(port)]).expect("hosts have a port");
    packet::parse(frame, &ports).ok()
}

/// The code of a 1RMA frame's type; `None` if the frame is another, or too short.
#[must_use]
pub fn frame_type(frame: &[u8], port: u16) -> Option<u8> {
    frame[payload(frame, port)?].get(FRAME_TYPE).copied()
}

/// Sender, engine and counter of a 1RMA frame, which with its direction are its IV; `None` if the
/// frame is another.
#[must_use]
pub fn sender_and_counter(frame: &[u8], port: u16) -> Option<([u8; 6], u16, u64)> {
    let octets = &frame[payload(frame, port)?];
    let sender = *frame[6..].first_chunk()?;
    let engine = u16::from_be_bytes(*octets.get(ENGINE)?.first_chunk()?);
    let counter = u64::from_be_bytes(*octets.get(COUNTER)?.first_chunk()?);
    Some((sender, engine, counter))
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
    let headers =
        Headers { source_mac, next_hop_mac, source, destination, source_port, port: Port(port) };
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
