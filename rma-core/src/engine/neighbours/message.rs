//! A frame in the lines of a ring between two engines, and the buffers that it is taken into.

use arrayvec::ArrayVec;
use rma_shm::{
    Line,
    spsc::{Consumer, Producer},
};

use crate::{
    addr::HostAddr,
    backend::{BATCH, LINK_LEN, RxFrame},
    port::{Port, SourcePort},
    wire::FRAME_LEN_MAX,
};

/// The kinds of message, in the first octet of the first line.
const FRAME: u8 = 1;
const WORD: u8 = 2;

/// Bits of the second octet of a frame's.
const IS_FIRST: u8 = 1;
const IS_PAID: u8 = 2;
const HAS_LINK: u8 = 4;

/// Octets of a line.
const LINE_LEN: usize = size_of::<Line>();

/// Octets of the longest frame, in whole lines.
const BUFFER_LEN: usize = FRAME_LEN_MAX.next_multiple_of(LINE_LEN);

/// How many lines a frame of so many octets takes.
pub(super) const fn lines(len: usize) -> usize {
    1 + len.div_ceil(LINE_LEN)
}

/// The line of a service's word, whose first octet the service leaves 0.
pub(super) const fn word(mut line: Line) -> Line {
    line.0[0] |= WORD as u64;
    line
}

/// Puts a frame into a ring that has room for it.
pub(super) fn push(ring: &mut Producer, frame: &RxFrame<'_>, is_paid: bool) {
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    let bits =
        bit(frame.is_first, IS_FIRST) | bit(is_paid, IS_PAID) | bit(frame.link.is_some(), HAS_LINK);
    let mut head = [0; LINE_LEN];
    let mut out = &mut head[..];
    let mut put = |octets: &[u8]| {
        let (to, rest) = core::mem::take(&mut out).split_at_mut(octets.len());
        to.copy_from_slice(octets);
        out = rest;
    };
    put(&[FRAME, bits]);
    put(&(frame.bytes.len() as u16).to_le_bytes());
    put(&frame.port.0.to_le_bytes());
    put(&frame.source_port.0.to_le_bytes());
    put(&(frame.reply_len_max.min(u16::MAX.into()) as u16).to_le_bytes());
    put(&frame.source.to_octets());
    put(&frame.destination.to_octets());
    put(frame.link.unwrap_or(&[0; LINK_LEN]));
    let mut push = |octets: &[u8; LINE_LEN]| {
        // There is room, and no room that was seen is lost.
        let _ = ring.push_unpublished(&line(octets));
    };
    push(&head);
    let (whole, rest) = frame.bytes.as_chunks::<LINE_LEN>();
    whole.iter().for_each(&mut push);
    if !rest.is_empty() {
        let mut last = [0; LINE_LEN];
        last[..rest.len()].copy_from_slice(rest);
        push(&last);
    }
}

fn line(octets: &[u8; LINE_LEN]) -> Line {
    let (words, _) = octets.as_chunks::<8>();
    Line(core::array::from_fn(|index| u64::from_le_bytes(words[index])))
}

fn octets(Line(words): &Line) -> [u8; LINE_LEN] {
    let mut octets = [0; LINE_LEN];
    let (chunks, _) = octets.as_chunks_mut::<8>();
    chunks.iter_mut().zip(words).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
    octets
}

/// The first line of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    octets: [u8; LINE_LEN],
}

impl Head {
    /// Octets of the frame: no more than a buffer has.
    fn len(&self) -> usize {
        usize::from(self.u16_at(2)).min(FRAME_LEN_MAX)
    }

    /// The lines of its octets, which follow it.
    pub(super) fn lines(&self) -> usize {
        lines(self.len()) - 1
    }

    const fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.octets[at], self.octets[at + 1]])
    }

    fn address_at(&self, at: usize) -> HostAddr {
        let octets = self.octets[at..at + 16].try_into().expect("sixteen");
        HostAddr::from_octets(octets)
    }

    const fn has(&self, bit: u8) -> bool {
        self.octets[1] & bit != 0
    }
}

/// A message that was taken out of a ring.
pub(super) enum Message {
    /// A frame of so many octets, into the next buffer.
    Frame { len: usize },
    /// A word of a service.
    Word(Line),
}

/// A frame that was taken out of a ring, in its buffer.
struct Arrival {
    head: Head,
    bytes: [u8; BUFFER_LEN],
}

/// The buffers for a batch of frames.
pub(super) struct Arrivals {
    frames: Box<[Arrival]>,
    used: usize,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        let empty = || Arrival { head: Head { octets: [0; _] }, bytes: [0; _] };
        Self { frames: (0..BATCH).map(|_| empty()).collect(), used: 0 }
    }

    /// Takes the next message out of `ring`, if all its lines are among those that were `fetched`,
    /// and if it has no more than so many octets. `begun` is one whose first line was taken before.
    pub(super) fn take(
        &mut self,
        ring: &mut Consumer,
        begun: &mut Option<Head>,
        fetched: &mut usize,
        octets_max: usize,
    ) -> Option<Message> {
        let head = if let Some(head) = *begun {
            head
        } else {
            let line = (*fetched > 0).then(|| ring.pop()).flatten()?;
            *fetched -= 1;
            if line.0[0] as u8 == WORD {
                return Some(Message::Word(line));
            }
            *begun.insert(Head { octets: octets(&line) })
        };
        let (lines, len) = (head.lines(), head.len());
        if len > octets_max {
            return None;
        }
        if *fetched < lines {
            *fetched = 0;
            return None;
        }
        let arrival = &mut self.frames[self.used];
        arrival.head = head;
        let (chunks, _) = arrival.bytes.as_chunks_mut::<LINE_LEN>();
        for chunk in &mut chunks[..lines] {
            *chunk = octets(&ring.pop()?);
        }
        *fetched -= lines;
        self.used += 1;
        *begun = None;
        Some(Message::Frame { len })
    }

    /// Hands over all frames, in order, as many at a time as belong together: `is_paid` of the
    /// first of them says that what its packet may be answered with is another engine's.
    pub(super) fn drain(&mut self, mut handle: impl FnMut(bool, &mut [RxFrame<'_>])) {
        let used = core::mem::take(&mut self.used);
        let mut is_next = true;
        let mut together: ArrayVec<RxFrame<'_>, BATCH> = ArrayVec::new();
        let mut is_paid = false;
        for Arrival { head, bytes } in &mut self.frames[..used] {
            let is_first = head.has(IS_FIRST);
            // Others came between, if it is not known what came before it.
            if head.has(IS_PAID) || (is_next && !is_first) {
                if !together.is_empty() {
                    handle(is_paid, &mut together);
                    together.clear();
                }
                is_paid = true;
            }
            is_next = false;
            together.push(RxFrame {
                source: head.address_at(10),
                destination: head.address_at(26),
                port: Port(head.u16_at(4)),
                source_port: SourcePort(head.u16_at(6)),
                reply_len_max: head.u16_at(8).into(),
                link: head.has(HAS_LINK).then(|| link_of(&head.octets)),
                is_first,
                is_handed_over: true,
                bytes: &mut bytes[..head.len()],
            });
        }
        if !together.is_empty() {
            handle(is_paid, &mut together);
        }
    }
}

fn link_of(octets: &[u8; LINE_LEN]) -> &[u8; LINK_LEN] {
    octets[42..42 + LINK_LEN].try_into().expect("as many")
}

impl core::fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Arrivals({} frames)", self.used)
    }
}
