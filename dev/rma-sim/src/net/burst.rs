//! The packets that a node takes from its device: the shipped walk over each of them, and the sent
//! frame behind each found one.
//!
//! A packet may have been damaged, so that frames in it are found elsewhere than they were put, or
//! not at all. A frame is known by where it begins.

use std::sync::Arc;

use rma_core::{
    backend::{RxFrame, RxPacket},
    error::DropReason,
    packet::{Frames, Tail},
    region::RegionId,
    wire::{self, FrameView},
};

use crate::net::{
    frame::{Frame, Packet},
    trace::Landing,
};

/// A copy of a packet that has come to a node, or is on its way there.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) packet: Arc<Packet>,
    /// The octets that arrive, if they are not those that were sent.
    pub(crate) altered: Option<Arc<[u8]>>,
    pub(crate) extra: bool,
}

/// The result of a frame, and the NIC's counts meanwhile.
#[derive(Debug)]
pub(crate) struct Handled {
    pub(crate) result: Result<(), DropReason>,
    /// A late effect.
    pub(crate) counted_late: bool,
    /// A request that it had accepted, and refuses to make room for this one.
    pub(crate) pushed_out: bool,
    /// The node was stopped in the midst of it, or before.
    pub(crate) is_stalled: bool,
}

/// A finding of a node, in order: a packet, then what is in it.
#[derive(Debug)]
pub(crate) enum Came {
    /// A packet begins.
    Packet(Arrival),
    /// A frame, which the NIC was given.
    Frame {
        frame: Arc<Frame>,
        /// The octets that it was given, if they are not those that were sent.
        altered: Option<Arc<[u8]>>,
        /// Whether the link made this copy, or the damage.
        extra: bool,
        landing: Landing,
        handled: Handled,
    },
    /// A frame that was put into the ring of another engine, or found no room there.
    Given { frame: Arc<Frame>, extra: bool, is_lost: bool },
    /// A new key of a region, from another engine.
    Key(RegionId),
    /// The end of a packet that no more frames can be found in.
    Tail { packet: Arc<Packet>, tail: Tail },
    /// A frame that the NIC was not given.
    Missed { frame: Arc<Frame>, extra: bool },
}

/// Frames for a NIC, from packets that live as long.
pub(crate) struct Burst<'a> {
    pub(crate) frames: Vec<RxFrame<'a>>,
    pub(crate) tails: Vec<Tail>,
    pub(crate) came: Vec<Came>,
    /// The index in `came` of each frame.
    pub(crate) places: Vec<usize>,
}

impl<'a> Burst<'a> {
    pub(crate) const fn new() -> Self {
        Self { frames: Vec::new(), tails: Vec::new(), came: Vec::new(), places: Vec::new() }
    }

    /// Takes apart the packet that `arrival` is, which `octets` has a copy of. A node that is
    /// silent takes no solicitations.
    pub(crate) fn take_apart(
        &mut self,
        arrival: Arrival,
        octets: &'a mut RxPacket<'_>,
        is_silent: bool,
        landing: Landing,
    ) {
        let (packet, extra) = (arrival.packet.clone(), arrival.extra);
        self.came.push(Came::Packet(arrival));
        let (mut walk, mut at, mut start) = (Frames::of(octets), 0, 0);
        // Frames that were sent and have not been found yet, and where they begin.
        let sent = packet.frames.iter().map(|frame| {
            let begins = start;
            start += frame.bytes.len();
            (begins, frame)
        });
        let mut sent = sent.peekable();
        while let Some(found) = walk.next(wire::frame_len) {
            let found = match found {
                Ok(found) => found,
                Err(tail) => {
                    self.tails.push(tail);
                    self.came.push(Came::Tail { packet: packet.clone(), tail });
                    break;
                }
            };
            // They are within the one that was found before.
            while let Some((_, frame)) = sent.next_if(|&(begins, _)| begins < at) {
                self.came.push(Came::Missed { frame: frame.clone(), extra });
            }
            let was_sent = sent.next_if(|&(begins, _)| begins == at);
            at += found.bytes.len();
            let last = || packet.frames.last().expect("a packet has frames");
            let (frame, extra) = match was_sent {
                Some((_, frame)) => (frame.clone(), extra),
                // The damage has made one that nobody sent.
                None => (last().clone(), true),
            };
            let is_solicitation =
                || matches!(FrameView::parse(&frame.bytes), Ok(FrameView::Solicitation(_)));
            if is_silent && is_solicitation() {
                self.came.push(Came::Missed { frame, extra });
                continue;
            }
            let altered = (*found.bytes != *frame.bytes).then(|| Arc::from(&*found.bytes));
            self.places.push(self.came.len());
            self.frames.push(found);
            let handled = Handled::NONE;
            self.came.push(Came::Frame { frame, altered, extra, landing, handled });
        }
        self.came.extend(sent.map(|(_, frame)| Came::Missed { frame: frame.clone(), extra }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::frame::NodeId;
    use rma_core::{
        addr::{HostAddr, Pid},
        backend::Transmit,
        command::CommandSlotId,
        error::DropReason,
        op::ClassOfService,
        port::Port,
        region::RegionId,
        time::Instant,
        wire::{Header, Solicitation, SolicitedData, mutation},
    };

    const PAYLOAD_LEN: u16 = 100;

    fn header() -> Header {
        Header {
            class: ClassOfService::Throughput,
            pid: Pid(1),
            region: RegionId::from_bits(5),
            slot: CommandSlotId(0),
            generation: 1,
            engine: Default::default(),
            counter: 7,
        }
    }

    /// A packet of solicited data, a solicitation, and data again.
    fn packet() -> Packet {
        let data = |fill: u8| {
            let mut out = vec![fill; mutation::DATA_OVERHEAD + usize::from(PAYLOAD_LEN)];
            let (header, payload_len) = (header(), PAYLOAD_LEN);
            SolicitedData { header, pending: 0, op_offset: 0, payload_len }
                .emit(out.first_chunk_mut().expect("it is longer"));
            out
        };
        let mut solicitation = vec![3; mutation::SOLICITATION_LEN];
        Solicitation { header: header(), pending: 0, payload_len_max: 64 }
            .emit(solicitation.first_chunk_mut().expect("it is longer"));
        let (from, to) = (NodeId(0), Some(NodeId(1)));
        let ends = [1, 2].map(|host| HostAddr::from([192, 0, 2, host]));
        let of = |len| Transmit::new(ends, Port::ONE_RMA, ClassOfService::Throughput, len);
        let all = [data(1), solicitation, data(2)];
        let frame = |(number, bytes): (u64, &Vec<u8>)| {
            let (transmit, bytes) = (of(bytes.len()), bytes[..].into());
            Arc::new(Frame { number, from, to, transmit, bytes, berth: None })
        };
        let frames = (0..).zip(&all).map(frame).collect();
        let bytes: Box<[u8]> = all.concat().into();
        Packet { number: 0, from, to, transmit: of(bytes.len()), frames, bytes }
    }

    /// How many frames a NIC is given; the numbers of those that came, and whether they were
    /// changed; those of frames that it was not given; and what was no frame.
    type Found = (usize, Vec<(u64, bool)>, Vec<u64>, Vec<Tail>);

    /// Returns the frames found in [`packet`], of which `damage` is done to a copy.
    fn found(damage: impl FnOnce(&mut Vec<u8>), is_silent: bool) -> Found {
        let packet = Arc::new(packet());
        let mut copy = packet.bytes.to_vec();
        damage(&mut copy);
        let altered = Some(copy.clone().into());
        let arrival = Arrival { packet: packet.clone(), altered, extra: false };
        let Transmit { source, destination, port, source_port, .. } = packet.transmit;
        let (reply_len_max, link, bytes) = (1000, None, &mut copy[..]);
        let mut octets =
            RxPacket { source, destination, port, source_port, reply_len_max, link, bytes };
        let mut burst = Burst::new();
        let landing = Landing { copy: 0, at: Instant::ZERO };
        burst.take_apart(arrival, &mut octets, is_silent, landing);
        let (mut came, mut missed) = (Vec::new(), Vec::new());
        for it in &burst.came {
            match it {
                Came::Frame { frame, altered, .. } => came.push((frame.number, altered.is_some())),
                Came::Missed { frame, .. } => missed.push(frame.number),
                Came::Packet(_) | Came::Tail { .. } => {}
                Came::Given { .. } | Came::Key(_) => panic!("there is one engine"),
            }
        }
        (burst.frames.len(), came, missed, burst.tails)
    }

    #[test]
    fn an_honest_packet_is_all_its_frames_and_a_silent_node_takes_no_solicitation() {
        let all = vec![(0, false), (1, false), (2, false)];
        assert_eq!(found(|_| (), false), (3, all.clone(), vec![], vec![]));
        assert_eq!(found(|_| (), true), (2, vec![all[0], all[2]], vec![1], vec![]));
    }

    #[test]
    fn damage_to_a_frame_is_its_own_unless_it_is_to_its_length() {
        let own = vec![(0, true), (1, false), (2, false)];
        assert_eq!(found(|copy| copy[60] ^= 1, false), (3, own, vec![], vec![]));
        // One octet less: what follows is no frame.
        let (given, came, missed, tails) = found(|copy| copy[31] -= 1, false);
        assert_eq!((given, came, missed), (1, vec![(0, true)], vec![1, 2]));
        let octets = 1 + packet().frames[1..].iter().map(|it| it.bytes.len()).sum::<usize>();
        assert_eq!(tails.len(), 1);
        assert_eq!((tails[0].reason, tails[0].octets), (DropReason::Version, octets));
        // So many more that it ends where the solicitation does.
        let more = mutation::SOLICITATION_LEN as u8;
        let (given, came, missed, tails) = found(|copy| copy[31] += more, false);
        assert_eq!((given, came), (2, vec![(0, true), (2, false)]));
        assert_eq!((missed, tails), (vec![1], vec![]));
        // The last of them: what comes before is served.
        let at = packet().bytes.len() - packet().frames[2].bytes.len() + 30;
        let (given, came, missed, tails) = found(|copy| copy[at] ^= 0x40, false);
        assert_eq!((given, came), (2, vec![(0, false), (1, false)]));
        assert_eq!((missed, tails.len()), (vec![2], 1));
    }

    #[test]
    fn a_frame_that_only_damage_has_made_is_shown_as_a_changed_copy_of_the_last() {
        // Shorter, and behind it what looks like a solicitation.
        let cut = mutation::SOLICITATION_LEN;
        let damage = |copy: &mut Vec<u8>| {
            let end = mutation::DATA_OVERHEAD + usize::from(PAYLOAD_LEN);
            copy[31] -= cut as u8;
            copy.copy_within(end..end + cut, end - cut);
        };
        let (given, came, missed, tails) = found(damage, false);
        assert_eq!(given, 4);
        assert_eq!(came, [(0, true), (2, true), (1, false), (2, false)]);
        assert!(missed.is_empty() && tails.is_empty());
    }
}
