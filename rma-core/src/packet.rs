//! Packets: the payloads of UDP datagrams, each of 1 to [`FRAMES_MAX`] frames one behind the other
//! (not in the paper, whose NIC sends a packet for each frame).
//!
//! A packet costs a software NIC more than the frames in it do, so what goes to one host in one
//! turn shares packets. The rule is section 1.1 of `docs/WIRE.md`: frames may share exactly if
//! their packets' headers would be equal. [`Frames`] takes a received packet apart; [`Packets`]
//! says which of the frames that a turn has written share one. Devices, simulator and tests use
//! the same two.
//!
//! Nothing in here looks into a frame but for its length, which its service tells, and nothing
//! waits: what a turn has is what shares. Each frame is sealed, opened, refused and counted by
//! itself, whatever it came with.
//!
//! Invariants: a walk never goes beyond the end of its packet and always forward; a plan has each
//! frame once, in a packet that is no longer than its path and its receiver take.

pub mod sizes;
#[cfg(test)]
mod tests;

use crate::{
    addr::HostAddr,
    backend::{LINK_LEN, RxFrame, RxPacket, Transmit, TxFrame},
    error::DropReason,
    op::ClassOfService,
    port::{Port, SourcePort},
};
use arrayvec::ArrayVec;

/// The most frames that a packet may have. Larger: a little less for each. Smaller: what a receiver
/// is given at once takes less time (P9).
pub const FRAMES_MAX: usize = 32;

/// The longest frame, in octets, that is worth moving behind another: moving one costs less than a
/// tenth of a packet then. Also how much of the throughput class a frame of the latency class lets
/// go before it in its own packet.
pub const SMALL: usize = 512;

/// How many of the packets that were begun last may still be joined. Larger: hosts that are written
/// to in turns share more. Smaller: fewer looks at a frame that finds none.
const OPEN_MAX: usize = 4;

/// The end of a packet that no more frames can be found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The reason why no more frames are found. It counts as one frame that was dropped for it.
    pub reason: DropReason,
    /// How many octets there are.
    pub octets: usize,
    /// The first of them, which is the version if that is the reason. 0 if there is none.
    pub first: u8,
    /// The source address of the packet.
    pub source: HostAddr,
}

/// The frames of a received packet, in their order.
#[derive(Debug)]
pub struct Frames<'a> {
    source: HostAddr,
    destination: HostAddr,
    port: Port,
    source_port: SourcePort,
    reply_len_max: usize,
    link: Option<&'a [u8; LINK_LEN]>,
    /// The octets that have not been walked yet. `None`: the walk is over.
    rest: Option<&'a mut [u8]>,
    /// How many frames there were before.
    count: usize,
}

impl<'a> Frames<'a> {
    /// Those of `packet`.
    #[inline]
    pub const fn of(packet: &'a mut RxPacket<'_>) -> Self {
        Self {
            source: packet.source,
            destination: packet.destination,
            port: packet.port,
            source_port: packet.source_port,
            reply_len_max: packet.reply_len_max,
            link: packet.link,
            rest: Some(&mut *packet.bytes),
            count: 0,
        }
    }

    /// The next frame, as long as `frame_len` says of the octets that it begins with. A tail is the
    /// last: what is in it cannot be told apart. A packet of no octets is a tail of none.
    #[inline]
    pub fn next(
        &mut self,
        frame_len: impl FnOnce(&[u8]) -> Result<usize, DropReason>,
    ) -> Option<Result<RxFrame<'a>, Tail>> {
        let rest = self.rest.take()?;
        let octets = rest.len();
        let (first, source) = (rest.first().copied().unwrap_or_default(), self.source);
        let tail = |reason| Some(Err(Tail { reason, octets, first, source }));
        if self.count == FRAMES_MAX {
            return tail(DropReason::TooManyFrames);
        }
        let len = match frame_len(rest) {
            Ok(len) if 0 < len && len <= octets => len,
            Ok(_) => return tail(DropReason::Length),
            Err(reason) => return tail(reason),
        };
        let (bytes, rest) = rest.split_at_mut(len);
        if !rest.is_empty() {
            self.rest = Some(rest);
        }
        let is_first = self.count == 0;
        self.count += 1;
        Some(Ok(RxFrame {
            source: self.source,
            destination: self.destination,
            port: self.port,
            source_port: self.source_port,
            reply_len_max: self.reply_len_max,
            link: self.link,
            is_first,
            is_handed_over: false,
            bytes,
        }))
    }
}

/// A packet to send: which frames are in it, by their places in the list that was planned.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    first: u8,
    last: u8,
    frames: u8,
    len: usize,
    /// How long it may be, and from what length on it takes no more. Known once a second frame
    /// asks.
    room: Option<Room>,
    /// Octets of the throughput class.
    bulk: usize,
}

/// How much a packet takes, in octets.
#[derive(Clone, Copy, Debug)]
struct Room {
    most: usize,
    /// The fill.
    full: usize,
}

impl Packet {
    /// Its first frame, whose [`Transmit`] is the packet's.
    #[must_use]
    pub const fn first(&self) -> usize {
        self.first as usize
    }

    /// How many frames it has.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.frames as usize
    }

    /// How many octets they have together.
    #[must_use]
    pub const fn octets(&self) -> usize {
        self.len
    }
}

/// The grouping of frames that were written together into packets. Made once and reused, because it
/// is longer than most lists of frames.
#[derive(Debug)]
pub struct Packets {
    packets: ArrayVec<Packet, FRAMES_MAX>,
    /// Of each frame, which comes behind it in its packet.
    behind: [u8; FRAMES_MAX],
    /// Frames that may not begin a packet and have found none.
    unpaid: usize,
    /// Whether frames of different classes of service share no packet.
    classes_apart: bool,
}

/// No frame.
const NONE: u8 = u8::MAX;

impl Packets {
    /// No packet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            packets: ArrayVec::new_const(),
            behind: [NONE; FRAMES_MAX],
            unpaid: 0,
            classes_apart: false,
        }
    }

    /// The same, where frames of different classes of service share no packet: the network treats
    /// their packets differently.
    #[must_use]
    pub const fn with_classes_apart(mut self, classes_apart: bool) -> Self {
        self.classes_apart = classes_apart;
        self
    }

    /// Puts `frames` into packets, at most [`FRAMES_MAX`] of them: those that hold nothing to send
    /// into none. Frames of more than `movable` octets begin a packet each. `len_max` tells how
    /// long a packet may be that a frame begins: what its path and the device take, and its buffer,
    /// if others must be moved into that. It is asked only where two could share.
    ///
    /// What goes to one host goes in as few packets as can be, and those are about equally long.
    /// Where as many ops are under way as two packets have frames, a host has one to work at while
    /// its peer works at the other: with 32 requests in packets of 16 and 16 in place of 25 and 7,
    /// when 1452 octets were the limit, `read64_rate_over_floor` was 2.35 in place of 1.88.
    ///
    /// # Panics
    /// If there are more.
    #[inline]
    pub fn plan(
        &mut self,
        frames: &[TxFrame<'_>],
        movable: usize,
        mut len_max: impl FnMut(&Transmit, &TxFrame<'_>) -> usize,
    ) {
        assert!(frames.len() <= FRAMES_MAX, "{} frames are planned together", frames.len());
        self.packets.clear();
        self.unpaid = 0;
        for (index, frame) in frames.iter().enumerate() {
            let Some(transmit) = &frame.transmit else { continue };
            self.behind[index] = NONE;
            let may_join = transmit.len <= movable && !self.packets.is_empty();
            if may_join && self.join(index, transmit, frames, movable, &mut len_max) {
                continue;
            }
            if !transmit.opens_packet {
                self.unpaid += 1;
                continue;
            }
            let bulk = if transmit.class == ClassOfService::Throughput { transmit.len } else { 0 };
            let (first, len) = (index as u8, transmit.len);
            self.packets.push(Packet { first, last: first, frames: 1, len, room: None, bulk });
        }
    }

    /// Puts frame `index` into one of the packets that were begun last, if it fits one.
    #[inline]
    fn join(
        &mut self,
        index: usize,
        transmit: &Transmit,
        frames: &[TxFrame<'_>],
        movable: usize,
        len_max: &mut impl FnMut(&Transmit, &TxFrame<'_>) -> usize,
    ) -> bool {
        for packet in self.packets.iter_mut().rev().take(OPEN_MAX) {
            let head = &frames[packet.first()];
            let Some(of_head) = &head.transmit else { continue };
            let waits = transmit.class == ClassOfService::Latency && packet.bulk > SMALL;
            if packet.frames() == FRAMES_MAX
                || waits
                || self.classes_apart && of_head.class != transmit.class
                || !shares(of_head, head, transmit, &frames[index])
            {
                continue;
            }
            let first = packet.first();
            let room = packet.room.get_or_insert_with(|| {
                let most = len_max(of_head, head).min(of_head.packet_len_max.into());
                Room { most, full: share(&frames[first..], movable, most) }
            });
            let len = packet.len + transmit.len;
            let most = room.most.min(transmit.packet_len_max.into());
            if packet.len >= room.full || len > most {
                continue;
            }
            room.most = most;
            self.behind[usize::from(packet.last)] = index as u8;
            (packet.last, packet.len) = (index as u8, len);
            packet.frames += 1;
            if transmit.class == ClassOfService::Throughput {
                packet.bulk += transmit.len;
            }
            return true;
        }
        false
    }

    /// The packets, in the order of their first frames.
    #[must_use]
    pub fn list(&self) -> &[Packet] {
        &self.packets
    }

    /// The frames of `packet`, in their order.
    pub fn frames_of(&self, packet: &Packet) -> impl Iterator<Item = usize> + Clone {
        let mut next = packet.first;
        core::iter::from_fn(move || {
            let index = usize::from(next);
            next = *self.behind.get(index)?;
            Some(index)
        })
    }

    /// How many frames were left out: they may not begin a packet, and there was none to join.
    #[must_use]
    pub const fn unpaid(&self) -> usize {
        self.unpaid
    }

    /// Moves the frames of `packet` behind its first one, into whose buffer they fit. What is
    /// behind a frame for its way back ([`Transmit::link_behind`]) is behind the last then.
    #[inline]
    pub fn gather(&self, packet: &Packet, frames: &mut [TxFrame<'_>]) {
        if packet.frames == 1 {
            return;
        }
        self.move_behind(packet, frames);
    }

    #[inline(never)]
    fn move_behind(&self, packet: &Packet, frames: &mut [TxFrame<'_>]) {
        let mut end = 0;
        for index in self.frames_of(packet) {
            let Some(transmit) = frames[index].transmit else { continue };
            if index != packet.first() {
                let link = if transmit.link_behind { LINK_LEN } else { 0 };
                let (before, from) = frames.split_at_mut(index);
                let to = &mut before[packet.first()].bytes[end..end + transmit.len + link];
                to.copy_from_slice(&from[0].bytes[..transmit.len + link]);
            }
            end += transmit.len;
        }
    }
}

impl Default for Packets {
    fn default() -> Self {
        Self::new()
    }
}

/// How long packets are that the first of `frames` and those that may be in one packet with it go
/// in, if they go in as few of at most `most` octets as can be, and in equal ones.
fn share(frames: &[TxFrame<'_>], movable: usize, most: usize) -> usize {
    let Some((head, others)) = frames.split_first() else { return most };
    let Some(of_head) = &head.transmit else { return most };
    let share = others.iter().filter_map(|frame| {
        let transmit = frame.transmit.as_ref().filter(|it| it.len <= movable)?;
        shares(of_head, head, transmit, frame).then_some(transmit.len)
    });
    let len = of_head.len + share.sum::<usize>();
    len.div_ceil(len.div_ceil(most.max(1)).max(1))
}

/// Whether a frame may be in the packet that `head` begins: the packets of both would have the same
/// headers, and go the same way where there is no path.
#[inline]
fn shares(
    of_head: &Transmit,
    head: &TxFrame<'_>,
    transmit: &Transmit,
    frame: &TxFrame<'_>,
) -> bool {
    let envelope = |it: &Transmit| {
        (it.destination, it.source, it.port, it.source_port, it.may_resolve, it.link_behind)
    };
    envelope(of_head) == envelope(transmit)
        && (!transmit.link_behind || link_of(of_head, head) == link_of(transmit, frame))
}

/// Returns the link behind a frame for its way back.
fn link_of<'f>(transmit: &Transmit, frame: &'f TxFrame<'_>) -> Option<&'f [u8; LINK_LEN]> {
    frame.bytes.get(transmit.len..)?.first_chunk()
}
