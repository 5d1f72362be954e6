//! A story of two NICs, A and B, told step by step in the numbering of `rma_fuzz_bodies::nic`.
//!
//! A step is an octet that says what happens, and the octets that it takes. Unless a method says
//! otherwise, A does it.

/// The shape of the two NICs: shape, dispatch timeout, timeout, window, MTU.
pub(crate) type Shape = [u8; 5];

/// The shape of most stories: IPv4, and room for every frame.
pub(crate) const SHAPE: Shape = [0b0100, 20, 40, 64, 168];

const ISSUE: u8 = 0;
const LINE: u8 = 2;
const TRANSMIT: u8 = 3;
const DELIVER: u8 = 5;
const CHANGED: u8 = 7;
const PACKET: u8 = 8;
const INVENTED: u8 = 9;
const ASTRAY: u8 = 10;
const PASS: u8 = 11;
const COMPLETE: u8 = 13;
const RENEW: u8 = 14;
const MTU: u8 = 15;
/// Before a step: the engine that takes the next frame is stopped in the midst of it.
const STOPPED: u8 = 0x10;
/// Recorded ops, and what belongs to them.
const ORDERED: u8 = 0x20;
const SEND: u8 = 0x21;
const IMM: u8 = 0x22;
const NOTIFY: u8 = 0x23;
const SWAP: u8 = 0x24;
const ADD: u8 = 0x25;
const POST: u8 = 0x27;
const EVENTS: u8 = 0x28;
const GARBAGE: u8 = 0x29;
const SETTLE: u8 = 0x2a;
const LINES: u8 = 0x2c;
const REKEY_RECORDED: u8 = 0x2e;
/// In a step: B does it.
const B: u8 = 0x80;
/// Flags of an issued command that make it a write or a rekey.
const WRITE: u8 = 0x40;
const REKEY: u8 = 0x60;

/// The story so far.
pub(crate) struct Story(Vec<u8>);

impl Story {
    /// Two NICs of the usual shape.
    pub(crate) fn new() -> Self {
        Self::of(SHAPE)
    }

    /// Two NICs of this shape.
    pub(crate) fn of(shape: Shape) -> Self {
        Self(shape.to_vec())
    }

    /// The input that tells the story.
    pub(crate) fn told(self) -> Vec<u8> {
        self.0
    }

    fn step(mut self, octets: &[u8]) -> Self {
        self.0.extend_from_slice(octets);
        self
    }

    fn issue(self, flags: u8, slot: u8, size: u16, rest: u16) -> Self {
        let ([s0, s1], [r0, r1]) = (size.to_be_bytes(), rest.to_be_bytes());
        self.step(&[ISSUE, flags, slot, s0, s1, r0, r1])
    }

    /// A read is issued.
    pub(crate) fn read(self, flags: u8, slot: u8, size: u16, offset: u16) -> Self {
        self.issue(flags, slot, size, offset)
    }

    /// A write is issued.
    pub(crate) fn write(self, flags: u8, slot: u8, size: u16) -> Self {
        self.issue(WRITE | flags, slot, size, 0)
    }

    /// A rekey is issued.
    pub(crate) fn rekey(self, flags: u8, slot: u8, key: u16) -> Self {
        self.issue(REKEY | flags, slot, 0, key)
    }

    /// A recorded op of some kind is issued: 0 ordered WRITE, 1 SEND, 2 WRITE_WITH_IMM, 3 NOTIFY, 4
    /// COMPARE_SWAP, 5 FETCH_ADD.
    pub(crate) fn recorded(self, kind: u8, flags: u8, slot: u8, size: u16) -> Self {
        let step = [ORDERED, SEND, IMM, NOTIFY, SWAP, ADD][usize::from(kind)];
        let [s0, s1] = (size - 1).to_be_bytes();
        let story = self.step(&[step, flags, slot, s0, s1]);
        if step == SWAP { story.step(&[0, 0, 0, 1]) } else { story }
    }

    /// B posts all receives.
    pub(crate) fn b_posts(self) -> Self {
        self.step(&[B | POST])
    }

    /// B posts what makes no sense.
    pub(crate) fn b_posts_garbage(self, numbers: &[u8]) -> Self {
        let story = self.step(&[B | GARBAGE, numbers.len() as u8]);
        numbers.iter().fold(story, |story, &number| story.step(&[0, number]))
    }

    /// B takes its events.
    pub(crate) fn b_takes_events(self) -> Self {
        self.step(&[B | EVENTS])
    }

    /// The op of the last solicitation is asked about, as of one type: 0 WRITE, 1 SEND, 2
    /// WRITE_WITH_IMM, 3 NOTIFY, 4 COMPARE_SWAP, 5 FETCH_ADD.
    pub(crate) fn settle(self, op_type: u8, slot: u8) -> Self {
        self.step(&[SETTLE, 0, op_type, slot])
    }

    /// Two lines of a command are issued, with a word of one of them changed; or the first alone.
    pub(crate) fn lines(self, slot: u8, which: u8, word: u8, by: [u8; 3]) -> Self {
        self.step(&[LINES, slot, which, word]).step(&by)
    }

    /// B's words (0) or its queue (1) get another key.
    pub(crate) fn b_rekeys(self, key: u8, which: u8) -> Self {
        self.step(&[B | REKEY_RECORDED, key, which])
    }

    /// 64 octets are issued, whatever they say.
    pub(crate) fn line(self, octets: [u8; 64]) -> Self {
        self.step(&[LINE]).step(&octets)
    }

    /// A frame is sent and lies on the wire.
    pub(crate) fn sends(self) -> Self {
        self.step(&[TRANSMIT])
    }

    /// B sends a frame, which lies on the wire.
    pub(crate) fn b_sends(self) -> Self {
        self.step(&[B | TRANSMIT])
    }

    /// One of the frames on the wire is delivered, by its place among them.
    pub(crate) fn deliver(self, place: u8) -> Self {
        self.step(&[DELIVER, place])
    }

    /// So many frames go from A to B.
    pub(crate) fn serve(self, frames: usize) -> Self {
        (0..frames).fold(self, |story, _| story.sends().deliver(0))
    }

    /// So many frames go from B to A.
    pub(crate) fn answer(self, frames: usize) -> Self {
        (0..frames).fold(self, |story, _| story.b_sends().deliver(0))
    }

    /// The four hops of a mutation whose data takes so many frames, and its completion.
    pub(crate) fn four_hops(self, frames: usize) -> Self {
        self.serve(1).answer(1).serve(frames).answer(1).complete()
    }

    /// A completion is taken.
    pub(crate) fn complete(self) -> Self {
        self.step(&[COMPLETE])
    }

    /// A frame is delivered while the engine that takes it is stopped.
    pub(crate) fn deliver_stopped(self, [high, low]: [u8; 2], place: u8) -> Self {
        self.step(&[STOPPED | DELIVER, high, low, place])
    }

    /// Time passes: an amount of two octets, and its unit.
    pub(crate) fn pass(self, [high, low]: [u8; 2], unit: u8) -> Self {
        self.step(&[PASS, high, low, unit])
    }

    /// A frame on the wire is changed.
    pub(crate) fn changed(self, how: &[u8]) -> Self {
        self.step(&[CHANGED]).step(how)
    }

    /// The last frame that was sent arrives in a packet with so many more of those that go its way:
    /// how it is changed, where in two octets, and by what.
    pub(crate) fn packet(self, more: u8, how: &[u8]) -> Self {
        self.step(&[PACKET, more]).step(how)
    }

    /// A frame of one type arrives that nobody sent, all zeros.
    pub(crate) fn invented(self, frame_type: u8, len: u8) -> Self {
        self.step(&[INVENTED, frame_type, len]).step(&vec![0; len.into()])
    }

    /// The same at B.
    pub(crate) fn invented_at_b(self, frame_type: u8, len: u8) -> Self {
        self.step(&[B | INVENTED, frame_type, len]).step(&vec![0; len.into()])
    }

    /// A frame on the wire arrives with other addresses.
    pub(crate) fn astray(self, place: u8, how: u8) -> Self {
        self.step(&[ASTRAY, place, how])
    }

    /// A's region is changed.
    pub(crate) fn renew(self, how: u8) -> Self {
        self.step(&[RENEW, how])
    }

    /// B's region is changed.
    pub(crate) fn b_renews(self, how: u8) -> Self {
        self.step(&[B | RENEW, how])
    }

    /// The path's MTU changes.
    pub(crate) fn mtu(self, mtu: u8) -> Self {
        self.step(&[MTU, mtu])
    }
}
