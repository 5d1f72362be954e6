//! The tap of a backend: copies of its packets, and of what its services said of their frames, into
//! a bounded ring that another thread empties.
//!
//! A tap is made and freed by whoever captures, and changes hands in a [`TapSlot`] between turns.
//! The engine never waits for it: what the ring has no room for is counted.
//!
//! A record is a head line, its octets, and, of packets that came, a later record with the fates of
//! the frames of all packets of a burst. A packet is copied before its frames are opened in place.

#![cfg_attr(
    not(any(feature = "xdp", test)),
    expect(dead_code, reason = "of packets that have their headers, which AF_XDP alone gives")
)]

use core::{
    mem,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
};
use std::sync::Arc;

use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use rma_app::TscClock;
use rma_core::{
    addr::HostAddr,
    backend::{BATCH, RxPacket},
    capture::{
        Direction, Fate, Told, Verdicts,
        headers::{self, Envelope},
    },
    packet::FRAMES_MAX,
    port::{Port, SourcePort},
    time::Clock,
};
use rma_shm::{
    Line,
    spsc::{CAPACITY_MAX, Consumer, Full, Producer, ring},
};
use rustix::time::{ClockId, clock_gettime};

const LINE_LEN: usize = size_of::<Line>();

/// Fates of a line: pairs of a packet's place in its burst, and a code.
const FATES_A_LINE: usize = LINE_LEN / 2;

/// The most fates of a burst: each frame, and an end that is none.
const FATES_MAX: usize = BATCH * (FRAMES_MAX + 1);

/// Lines that are kept for the fates of packets whose records have been written.
const LINES_FOR_FATES: usize = 1 + FATES_MAX.div_ceil(FATES_A_LINE);

/// The kinds of record, in the first octet of its head.
const WHOLE: u8 = 1;
const PAYLOAD: u8 = 2;
const FATES: u8 = 3;
const GONE: u8 = 4;
const BACK: u8 = 5;

/// Of a packet that was received, as its number of frames: its fates follow.
const RECEIVED: u8 = u8::MAX;

/// The engine's end.
#[derive(Debug)]
pub(crate) struct Tap {
    ring: Producer,
    verdicts: Arc<Verdicts>,
    clock: TscClock,
    /// When the clock was made, in nanoseconds since 1970.
    epoch: u64,
    snap: usize,
    /// Packets since the last record that there was no room for.
    missed: u64,
    counts: Arc<TapCounts>,
    /// The packets of a burst that are being handled.
    pending: ArrayVec<Pending, BATCH>,
    fates: ArrayVec<[u8; 2], FATES_MAX>,
    /// The last news of the interface.
    is_there: Option<bool>,
}

/// Nanoseconds since 1970, UTC.
pub(crate) fn wall_nanos() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Counts of a tap.
#[derive(Debug, Default)]
pub(crate) struct TapCounts {
    pub(crate) seen: AtomicU64,
    pub(crate) missed: AtomicU64,
}

/// A packet that is being handled.
#[derive(Clone, Copy, Debug)]
struct Pending {
    start: usize,
    len: usize,
    has_record: bool,
    /// Whether the device has dropped it.
    is_refused: bool,
}

/// A packet, but for its octets.
#[derive(Clone, Copy)]
struct Head {
    kind: u8,
    frames: u8,
    queue: u16,
    /// Its length on the wire.
    len: usize,
    /// How many of its octets follow.
    kept: usize,
    source: HostAddr,
    destination: HostAddr,
    source_port: SourcePort,
    port: Port,
}

impl Head {
    const fn whole(queue: usize, frames: u8, len: usize) -> Self {
        let nobody = HostAddr::from_octets([0; 16]);
        Self {
            kind: WHOLE,
            frames,
            queue: queue as u16,
            len,
            kept: 0,
            source: nobody,
            destination: nobody,
            source_port: SourcePort(0),
            port: Port(0),
        }
    }

    fn lines(self) -> usize {
        1 + usize::from(self.kind == PAYLOAD) + self.kept.div_ceil(LINE_LEN)
    }
}

impl Tap {
    /// A tap that keeps the first `snap` octets of each packet, and its other end.
    pub(crate) fn new(snap: usize) -> (Box<Self>, TapReader) {
        Self::with_lines(snap, CAPACITY_MAX)
    }

    fn with_lines(snap: usize, lines: usize) -> (Box<Self>, TapReader) {
        let (producer, consumer) = ring(lines).expect("a power of two within the limit");
        let counts = Arc::<TapCounts>::default();
        let clock = TscClock::new();
        let tap = Self {
            ring: producer,
            verdicts: Arc::default(),
            epoch: wall_nanos().wrapping_sub(clock.now().as_nanos()),
            clock,
            snap,
            missed: 0,
            counts: counts.clone(),
            pending: ArrayVec::new(),
            fates: ArrayVec::new(),
            is_there: None,
        };
        (Box::new(tap), TapReader::new(consumer, snap, counts))
    }

    /// The place for services to tell fates.
    pub(crate) const fn verdicts(&self) -> &Arc<Verdicts> {
        &self.verdicts
    }

    /// A packet has come on the queue of this place among the engine's, and is about to be handled.
    #[cold]
    pub(crate) fn came(&mut self, queue: usize, packet: &[u8]) {
        let kept = packet.len().min(self.snap);
        let head = Head { kept, ..Head::whole(queue, RECEIVED, packet.len()) };
        let has_record = self.put(head, |line| put_octets(line, &packet[..kept]));
        self.pend(packet, has_record);
    }

    /// The packet that came last is not handed on.
    #[cold]
    pub(crate) fn refused(&mut self) {
        if let Some(last) = self.pending.last_mut() {
            last.is_refused = true;
        }
    }

    /// Packets whose headers the kernel has are about to be handled.
    #[cold]
    pub(crate) fn came_without_headers(&mut self, packets: &[RxPacket<'_>]) {
        for packet in packets {
            let head = Head {
                source: packet.source,
                destination: packet.destination,
                source_port: packet.source_port,
                port: packet.port,
                ..self.payload(RECEIVED, packet.bytes.len(), packet.source)
            };
            let has_record = self.put(head, |line| put_octets(line, &packet.bytes[..head.kept]));
            self.pend(packet.bytes, has_record);
        }
    }

    /// All packets that came since this was called last have been handled.
    #[cold]
    pub(crate) fn handled(&mut self) {
        let Self { verdicts, pending, fates, .. } = self;
        fates.clear();
        sort_out(verdicts, pending, fates);
        pending.clear();
        verdicts.clear();
        // There is room: it was kept when the packets were written.
        let mut head = Line::ZERO;
        head.0[0] = FATES.into();
        head.0[1] = fates.len() as u64;
        let _ = self.ring.push_unpublished(&head);
        for fates in self.fates.chunks(FATES_A_LINE) {
            put_octets(&mut |line| ignore(self.ring.push_unpublished(line)), fates.as_flattened());
        }
        self.ring.publish();
    }

    /// A packet of so many frames has been given to the device.
    #[cold]
    pub(crate) fn left(&mut self, packet: &[u8], frames: usize) {
        let kept = packet.len().min(self.snap);
        let head = Head { kept, ..Head::whole(0, frames as u8, packet.len()) };
        self.put(head, |line| put_octets(line, &packet[..kept]));
        self.ring.publish();
    }

    /// The same, of one whose headers are written elsewhere, between two ports, and whose octets
    /// lie in several places.
    #[cold]
    pub(crate) fn left_without_headers<'a>(
        &mut self,
        [source, destination]: [HostAddr; 2],
        [source_port, port]: [u16; 2],
        frames: usize,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
    ) {
        let len = parts.clone().map(<[u8]>::len).sum();
        let (source_port, port) = (SourcePort(source_port), Port(port));
        let head = Head {
            source,
            destination,
            source_port,
            port,
            ..self.payload(frames as u8, len, source)
        };
        self.put(head, |line| put_parts(line, parts, head.kept));
        self.ring.publish();
    }

    /// The interface has gone away, or is back.
    #[cold]
    pub(crate) fn interface_is(&mut self, there: bool) {
        if self.is_there.replace(there) == Some(there) {
            return;
        }
        let mut head = Line::ZERO;
        head.0[0] = if there { BACK } else { GONE }.into();
        // With the room that is kept for fates there is always some, or there is nobody who reads.
        let _ = self.ring.push(&head);
    }

    fn payload(&self, frames: u8, len: usize, source: HostAddr) -> Head {
        let headers_len = headers::headers_len(source.is_ipv4());
        let kept = len.min(self.snap.saturating_sub(headers_len));
        Head { kind: PAYLOAD, kept, ..Head::whole(0, frames, len + headers_len) }
    }

    /// Writes a record, if there is room.
    fn put(&mut self, head: Head, octets: impl FnOnce(&mut dyn FnMut(&Line))) -> bool {
        self.counts.seen.fetch_add(1, Relaxed);
        if !self.ring.has_room_for(head.lines() + LINES_FOR_FATES) {
            self.missed += 1;
            self.counts.missed.fetch_add(1, Relaxed);
            return false;
        }
        let at = self.epoch.wrapping_add(self.clock.now().as_nanos());
        let (source_port, port) = (u64::from(head.source_port.0), u64::from(head.port.0));
        let first = u64::from(head.kind)
            | u64::from(head.frames) << 8
            | u64::from(head.queue) << 16
            | source_port << 32
            | port << 48;
        let missed = mem::take(&mut self.missed);
        let lens = head.len as u64 | (head.kept as u64) << 32;
        // There is room for all of it.
        let mut push = |line: &Line| ignore(self.ring.push_unpublished(line));
        push(&Line([first, at, lens, missed, 0, 0, 0, 0]));
        if head.kind == PAYLOAD {
            let mut addresses = [0; 32];
            addresses[..16].copy_from_slice(&head.source.to_octets());
            addresses[16..].copy_from_slice(&head.destination.to_octets());
            put_octets(&mut push, &addresses);
        }
        octets(&mut push);
        true
    }

    fn pend(&mut self, packet: &[u8], has_record: bool) {
        if self.pending.is_empty() {
            self.verdicts.clear();
        }
        let (start, len) = (packet.as_ptr().addr(), packet.len());
        // A burst has no more.
        let _ = self.pending.try_push(Pending { start, len, has_record, is_refused: false });
    }
}

/// Finds out which of the packets each fate is of.
fn sort_out(verdicts: &Verdicts, pending: &[Pending], fates: &mut ArrayVec<[u8; 2], FATES_MAX>) {
    // Packets are taken apart in the order in which they came, and the end of one is told before
    // the next.
    let mut tail = None;
    let mut ends = verdicts.all().filter_map(|told| match told {
        Told::Packet { frames, rest } => Some((frames, rest, tail.take())),
        Told::Tail(fate) => {
            tail = Some(fate);
            None
        }
        Told::Frame { .. } => None,
    });
    let mut place = 0;
    for packet in pending {
        if packet.is_refused {
            place += u8::from(packet.has_record);
            continue;
        }
        let (frames, rest, tail) = ends.next().unwrap_or((0, Fate::Elsewhere, None));
        if !packet.has_record {
            continue;
        }
        let mut its: ArrayVec<(usize, usize, Fate), { FRAMES_MAX + 1 }> = ArrayVec::new();
        for told in verdicts.all() {
            if let Told::Frame { at, len, fate } = told
                && (packet.start..packet.start + packet.len).contains(&at)
            {
                let _ = its.try_push((at, len, fate));
            }
        }
        its.sort_unstable_by_key(|&(at, ..)| at);
        let told = its.len() + usize::from(tail.is_some());
        // What nobody here has told of is another engine's, and lies where there is a gap.
        let mut untold = frames.saturating_sub(told);
        let mut put = |fate: Fate| {
            let _ = fates.try_push([place, fate.code()]);
        };
        let mut end = its.first().map(|&(at, ..)| at);
        for &(at, len, fate) in &its {
            if end != Some(at) {
                (0..mem::take(&mut untold)).for_each(|_| put(rest));
            }
            put(fate);
            end = Some(at + len);
        }
        (0..untold).for_each(|_| put(rest));
        tail.into_iter().for_each(put);
        place += 1;
    }
}

/// There is room, as was asked before, so nothing is refused.
fn ignore(_pushed: Result<(), Full>) {}

fn put_octets(push: &mut dyn FnMut(&Line), octets: &[u8]) {
    put_parts(push, core::iter::once(octets), octets.len());
}

/// Pushes the first `most` octets of `parts`, one behind the other.
fn put_parts<'a>(
    push: &mut dyn FnMut(&Line),
    parts: impl Iterator<Item = &'a [u8]>,
    mut most: usize,
) {
    let (mut line, mut used) = ([0; LINE_LEN], 0);
    for part in parts {
        let mut rest = &part[..part.len().min(most)];
        most -= rest.len();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(LINE_LEN - used));
            line[used..used + now.len()].copy_from_slice(now);
            (used, rest) = (used + now.len(), later);
            if used == LINE_LEN {
                push(&line_of(&line));
                used = 0;
            }
        }
    }
    if used > 0 {
        line[used..].fill(0);
        push(&line_of(&line));
    }
}

fn line_of(octets: &[u8; LINE_LEN]) -> Line {
    let (words, _) = octets.as_chunks::<8>();
    Line(core::array::from_fn(|index| u64::from_le_bytes(words[index])))
}

/// A packet as it was captured.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Nanoseconds since 1970.
    pub(crate) at: u64,
    pub(crate) is_in: bool,
    /// The place of its queue among the engine's.
    pub(crate) queue: usize,
    /// Its octets from the Ethernet header on, as far as they were kept.
    pub(crate) octets: Vec<u8>,
    /// Its length on the wire.
    pub(crate) len: usize,
    pub(crate) missed: u64,
    pub(crate) fates: Vec<u8>,
    /// News of the interface before it: `true` if it is back.
    pub(crate) news: Vec<bool>,
}

impl Record {
    pub(crate) const fn direction(&self) -> Direction {
        if self.is_in { Direction::In } else { Direction::Out }
    }
}

/// The other end. Records are used again: nothing is allocated for a packet in the long run.
#[derive(Debug)]
pub(crate) struct TapReader {
    ring: Consumer,
    snap: usize,
    pub(crate) counts: Arc<TapCounts>,
    /// Records, of which the first `whole` are whole.
    records: Vec<Record>,
    used: usize,
    whole: usize,
    state: Reading,
    /// Octets that have been read of the record that is being read.
    octets: Vec<u8>,
    news: Vec<bool>,
}

/// The part of a record that is read next.
#[derive(Clone, Copy, Debug)]
enum Reading {
    Head,
    /// So many octets, of the packet with this head.
    Octets(Line, usize),
    /// So many octets of fates.
    Fates(usize),
}

impl TapReader {
    fn new(ring: Consumer, snap: usize, counts: Arc<TapCounts>) -> Self {
        Self {
            ring,
            snap,
            counts,
            records: Vec::new(),
            used: 0,
            whole: 0,
            state: Reading::Head,
            octets: Vec::new(),
            news: Vec::new(),
        }
    }

    /// Reads what there is, at most so many records. Returns those that are whole.
    pub(crate) fn read(&mut self, most: usize) -> &[Record] {
        self.records[..self.used].rotate_left(self.whole);
        self.used -= mem::take(&mut self.whole);
        while self.whole < most
            && let Some(line) = self.ring.pop()
        {
            self.take(&line);
        }
        &self.records[..self.whole]
    }

    /// News of the interface behind all records.
    pub(crate) fn last_news(&mut self) -> Vec<bool> {
        mem::take(&mut self.news)
    }

    fn take(&mut self, line: &Line) {
        let (octets, left) = (
            &mut self.octets,
            match &mut self.state {
                Reading::Head => return self.begin(line),
                Reading::Octets(_, left) | Reading::Fates(left) => left,
            },
        );
        let count = LINE_LEN.min(*left);
        *left -= count;
        line.0.iter().for_each(|word| octets.extend_from_slice(&word.to_le_bytes()));
        octets.truncate(octets.len() - (LINE_LEN - count));
        if *left == 0 {
            self.end();
        }
    }

    fn begin(&mut self, line: &Line) {
        self.octets.clear();
        let Line([first, second, lens, ..]) = *line;
        let kept = (lens >> 32) as usize;
        match first as u8 {
            WHOLE => self.state = Reading::Octets(*line, kept),
            // Addresses, filled up to a line, are before them.
            PAYLOAD => self.state = Reading::Octets(*line, LINE_LEN + kept),
            FATES => self.state = Reading::Fates(second as usize * 2),
            kind => return self.news.push(kind == BACK),
        }
        if let Reading::Octets(_, 0) | Reading::Fates(0) = self.state {
            self.end();
        }
    }

    fn end(&mut self) {
        match mem::replace(&mut self.state, Reading::Head) {
            Reading::Octets(head, _) => self.end_packet(head),
            Reading::Fates(_) => {
                for &[place, fate] in self.octets.as_chunks::<2>().0 {
                    let at = self.whole + usize::from(place);
                    if let Some(record) = self.records[..self.used].get_mut(at) {
                        record.fates.push(fate);
                    }
                }
                self.whole = self.used;
            }
            Reading::Head => {}
        }
    }

    fn end_packet(&mut self, Line([first, at, lens, missed, ..]): Line) {
        if self.used == self.records.len() {
            self.records.push(Record::default());
        }
        let record = &mut self.records[self.used];
        self.used += 1;
        let frames = (first >> 8) as u8;
        (record.at, record.missed) = (at, missed);
        record.queue = (first >> 16) as u16 as usize;
        record.len = lens as u32 as usize;
        record.is_in = frames == RECEIVED;
        record.fates.clear();
        record.news.clear();
        record.news.append(&mut self.news);
        record.octets.clear();
        if first as u8 == PAYLOAD {
            let address = |at: usize| {
                let octets = self.octets[at..at + 16].try_into().expect("sixteen");
                HostAddr::from_octets(octets)
            };
            let (source, destination) = (address(0), address(16));
            let payload = &self.octets[LINE_LEN..];
            let len = record.len - headers::headers_len(source.is_ipv4());
            let (source_port, port) = ((first >> 32) as u16, (first >> 48) as u16);
            let (source_port, port) = (SourcePort(source_port), Port(port));
            let macs = [[2, 0, 0, 0, 0, 0]; 2];
            let envelope = Envelope { source, destination, source_port, port, macs, len };
            let all = (payload.len() == len).then_some(payload);
            headers::append(&mut record.octets, &envelope, all);
            record.octets.extend_from_slice(payload);
            record.octets.truncate(self.snap);
        } else {
            record.octets.extend_from_slice(&self.octets);
        }
        if !record.is_in {
            record.fates.resize(frames.into(), Fate::Sent.code());
            self.whole = self.used;
        }
    }
}

/// The place by which taps change hands between whoever captures and an engine. One at a time is
/// offered.
#[derive(Debug)]
pub(crate) struct TapSlot {
    offered: ArrayQueue<Option<Box<Tap>>>,
    returned: ArrayQueue<Box<Tap>>,
    has_ended: AtomicBool,
}

impl TapSlot {
    pub(crate) fn new() -> Self {
        let (offered, returned) = (ArrayQueue::new(1), ArrayQueue::new(1));
        Self { offered, returned, has_ended: AtomicBool::new(false) }
    }

    /// Has the engine take this tap, or none, in place of the one that it has.
    pub(crate) fn offer(&self, tap: Option<Box<Tap>>) {
        drop(self.returned.pop());
        drop(self.offered.force_push(tap));
    }

    /// Whether the engine has taken what was offered last, or never will.
    pub(crate) fn is_taken(&self) -> bool {
        self.offered.is_empty() || self.has_ended()
    }

    /// Whether the engine is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    /// Frees what the engine has given back.
    pub(crate) fn free(&self) {
        drop(self.returned.pop());
        if self.has_ended() {
            drop(self.offered.pop());
        }
    }
}

/// An engine's side of a slot.
#[derive(Debug)]
pub(crate) struct TapEnd(pub(crate) Arc<TapSlot>);

impl TapEnd {
    /// The offer, if there is one, and if the last tap that was returned has been freed.
    #[inline]
    pub(crate) fn take(&self) -> Option<Option<Box<Tap>>> {
        if self.0.offered.is_empty() || self.0.returned.is_full() {
            return None;
        }
        self.0.offered.pop()
    }

    /// Gives back a tap, for whoever made it to free.
    pub(crate) fn give_back(&self, tap: Box<Tap>) {
        // There was room.
        let _ = self.0.returned.push(tap);
    }
}

impl Drop for TapEnd {
    fn drop(&mut self) {
        self.0.has_ended.store(true, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rma_core::error::DropReason;

    const HERE: HostAddr = HostAddr::from_octets([1; 16]);

    fn burst(tap: &mut Tap, packets: &mut [Vec<u8>], tell: impl FnOnce(&Verdicts, &[usize])) {
        let places: Vec<usize> = packets.iter().map(|it| it.as_ptr().addr()).collect();
        for packet in packets.iter() {
            tap.came(0, packet);
        }
        tell(&tap.verdicts.clone(), &places);
        packets.iter_mut().for_each(|packet| packet.fill(0));
        tap.handled();
    }

    fn fates(record: &Record) -> Vec<Fate> {
        record.fates.iter().map(|&code| Fate::from_code(code).unwrap()).collect()
    }

    #[test]
    fn fates_come_to_the_frames_that_they_are_of_whatever_order_they_were_told_in() {
        let (mut tap, mut reader) = Tap::new(64);
        let mut packets = [vec![1; 100], vec![2; 60], vec![3; 50], vec![4; 40]];
        let dropped = Fate::Dropped(DropReason::RequestUnauthenticated);
        let tail = Fate::Dropped(DropReason::Length);
        burst(&mut tap, &mut packets, |verdicts, places| {
            let frame = |packet: usize, at, len, fate| {
                verdicts.tell(Told::Frame { at: places[packet] + at, len, fate });
            };
            verdicts.tell(Told::Packet { frames: 3, rest: Fate::Elsewhere });
            frame(1, 20, 40, Fate::Taken);
            verdicts.tell(Told::Tail(tail));
            verdicts.tell(Told::Packet { frames: 2, rest: Fate::Elsewhere });
            verdicts.tell(Told::Packet { frames: 2, rest: Fate::Star });
            verdicts.tell(Told::Packet { frames: 2, rest: Fate::Elsewhere });
            // The second frame of the first packet went to another engine.
            frame(0, 80, 20, dropped);
            frame(0, 10, 30, Fate::Taken);
            frame(3, 0, 20, Fate::Taken);
        });
        tap.left(&[9; 70], 2);
        let read = reader.read(100);
        assert_eq!(read.len(), 5);
        assert_eq!(fates(&read[0]), [Fate::Taken, Fate::Elsewhere, dropped]);
        assert_eq!(fates(&read[1]), [Fate::Taken, tail]);
        assert_eq!(fates(&read[2]), [Fate::Star; 2]);
        assert_eq!(fates(&read[3]), [Fate::Taken, Fate::Elsewhere]);
        assert_eq!(fates(&read[4]), [Fate::Sent; 2]);
        assert_eq!((read[0].len, &*read[0].octets), (100, &[1; 64][..]), "as it came, and cut");
        assert_eq!((read[1].len, &*read[1].octets), (60, &[2; 60][..]));
        assert!(read[0].is_in && !read[4].is_in);
        assert!(read.is_sorted_by_key(|it| it.at));
        assert!(reader.read(100).is_empty(), "each once");
    }

    #[test]
    fn a_packet_that_the_device_drops_has_no_frames() {
        let (mut tap, mut reader) = Tap::new(0);
        for packet in [[1; 20], [2; 20]] {
            tap.came(0, &packet);
            tap.refused();
        }
        tap.handled();
        tap.interface_is(false);
        tap.interface_is(true);
        tap.left_without_headers([HERE; 2], [7; 2], 1, [&[5; 30][..], &[6; 30]].into_iter());
        let read = reader.read(100);
        assert_eq!(read.len(), 3);
        assert!(read[..2].iter().all(|it| it.fates.is_empty() && it.octets.is_empty()));
        assert_eq!(read[2].len, 60 + headers::headers_len(false));
        assert_eq!(read[2].news, [false, true]);
        tap.interface_is(false);
        assert!(reader.read(100).is_empty());
        assert_eq!(reader.last_news(), [false]);
    }

    #[test]
    fn packets_that_a_full_ring_has_no_room_for_are_counted_and_told_with_the_next_one() {
        let (mut tap, mut reader) = Tap::with_lines(128, 64);
        for _ in 0..1000 {
            burst(&mut tap, &mut [vec![7; 128]], |verdicts, places| {
                verdicts.tell(Told::Packet { frames: 1, rest: Fate::Elsewhere });
                verdicts.tell(Told::Frame { at: places[0], len: 128, fate: Fate::Taken });
            });
        }
        let counts = tap.counts.clone();
        let kept = reader.read(usize::MAX).len() as u64;
        let missed = counts.missed.load(Relaxed);
        assert_eq!((kept + missed, counts.seen.load(Relaxed)), (1000, 1000));
        assert!(kept > 0 && missed > 900, "{kept} kept");
        tap.left(&[8; 40], 1);
        let after = reader.read(usize::MAX);
        assert_eq!((after.len(), after[0].missed), (1, missed));
        tap.left(&[8; 40], 1);
        assert_eq!(reader.read(usize::MAX)[0].missed, 0);
    }

    #[test]
    fn payload_in_several_pieces_is_read_back_behind_headers_of_its_addresses() {
        for (snap, kept) in [(SNAP, 42 + 150), (100, 100), (42, 42), (10, 10), (0, 0)] {
            let (mut tap, mut reader) = Tap::new(snap);
            let ways = [[192, 0, 2, 1], [192, 0, 2, 2]].map(HostAddr::from);
            let parts = [vec![1; 70], vec![2; 1], vec![3; 79]];
            let octets = parts.iter().map(|it| &**it);
            tap.left_without_headers(ways, [10_472; 2], 3, octets);
            let read = reader.read(1);
            assert_eq!((read[0].len, read[0].octets.len()), (42 + 150, kept), "snap {snap}");
            if snap == SNAP {
                let whole = &read[0].octets;
                assert_eq!(whole[26..34], [192, 0, 2, 1, 192, 0, 2, 2]);
                assert_eq!(whole[42..], parts.concat());
            }
        }
    }

    const SNAP: usize = 65_535;
}
