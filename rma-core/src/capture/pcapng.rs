//! Blocks of a pcapng file (draft-ietf-opsawg-pcapng). Nothing is allocated for a packet once the
//! buffer has grown.

use core::fmt::{self, Write};

use super::fate::Fate;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// "The byte order of the numbers that follow".
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;

/// Codes of options. The first two are of every block.
const END: u16 = 0;
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;
const DROP_COUNT: u16 = 4;
const RECEIVED: u16 = 4;
const DROPPED: u16 = 5;

/// 10 to the minus this of a second.
const NANOSECONDS: u8 = 9;

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It was received.
    In,
    /// It was sent.
    Out,
}

/// A packet that was captured.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// The number of its interface, in the order in which these were described.
    pub interface: u32,
    /// Nanoseconds since 1970, UTC.
    pub at: u64,
    /// Whether it came or went.
    pub direction: Direction,
    /// Its first octets, from the Ethernet header on.
    pub octets: &'a [u8],
    /// Its length in octets.
    pub len: usize,
    /// Packets that were missed between the one before and this.
    pub missed: u64,
}

/// A comment on a packet.
#[derive(Clone, Copy, Debug)]
pub enum Comment<'a> {
    /// A frame's fate.
    Frame {
        /// Its place in the packet, from 0.
        index: usize,
        /// How many frames the packet has.
        of: usize,
        /// The fate.
        fate: Fate,
    },
    /// A remark in words.
    Text(&'a str),
}

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { index, of, fate } => write!(f, "1rma {}/{of} {fate}", index + 1),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The blocks of a section, appended to a buffer that whoever writes the file empties.
#[derive(Debug)]
pub struct Blocks(Vec<u8>);

impl Blocks {
    /// A section, written by this program.
    #[must_use]
    pub fn new(application: &str) -> Self {
        let mut blocks = Self(Vec::new());
        blocks.block(SECTION_HEADER, |it| {
            it.u32(BYTE_ORDER);
            // The version of the format, 1.0, and a length that is not known.
            it.u32(1);
            it.u64(u64::MAX);
            it.option(APPLICATION, application.as_bytes());
            it.end_of_options();
        });
        blocks
    }

    /// The octets so far: whole blocks.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Forgets the octets so far, and keeps their memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Describes the next interface, whose packets are cut to `snap` octets.
    pub fn interface(&mut self, name: &str, snap: usize) {
        self.block(INTERFACE_DESCRIPTION, |it| {
            it.u32(ETHERNET.into());
            it.u32(snap as u32);
            it.option(NAME, name.as_bytes());
            it.option(TIME_RESOLUTION, &[NANOSECONDS]);
            it.end_of_options();
        });
    }

    /// Adds a packet.
    pub fn packet<'c>(
        &mut self,
        packet: &Captured<'_>,
        comments: impl IntoIterator<Item = Comment<'c>>,
    ) {
        let &Captured { interface, at, direction, octets, len, missed } = packet;
        self.block(ENHANCED_PACKET, |it| {
            it.u32(interface);
            it.time(at);
            it.u32(octets.len() as u32);
            it.u32(len as u32);
            it.0.extend_from_slice(octets);
            it.pad();
            comments.into_iter().for_each(|comment| it.comment(comment));
            let flags: u32 = match direction {
                Direction::In => 1,
                Direction::Out => 2,
            };
            it.option(FLAGS, &flags.to_le_bytes());
            if missed > 0 {
                it.option(DROP_COUNT, &missed.to_le_bytes());
            }
            it.end_of_options();
        });
    }

    /// Adds the statistics of an interface at this time: packets that were seen, and how many of
    /// them were missed.
    pub fn statistics<'c>(
        &mut self,
        interface: u32,
        at: u64,
        [seen, missed]: [u64; 2],
        comments: impl IntoIterator<Item = Comment<'c>>,
    ) {
        self.block(INTERFACE_STATISTICS, |it| {
            it.u32(interface);
            it.time(at);
            comments.into_iter().for_each(|comment| it.comment(comment));
            it.option(RECEIVED, &seen.to_le_bytes());
            it.option(DROPPED, &missed.to_le_bytes());
            it.end_of_options();
        });
    }

    fn block(&mut self, kind: u32, content: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.u32(kind);
        self.u32(0);
        content(self);
        let len = (self.0.len() - start + 4) as u32;
        self.0[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
        self.u32(len);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A time: the upper half first, whatever the byte order.
    fn time(&mut self, nanos: u64) {
        self.u32((nanos >> 32) as u32);
        self.u32(nanos as u32);
    }

    fn pad(&mut self) {
        // Blocks begin at multiples of four, also the first in the buffer.
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u32(u32::from(code) | (value.len() as u32) << 16);
        self.0.extend_from_slice(value);
        self.pad();
    }

    fn comment(&mut self, comment: Comment<'_>) {
        let start = self.0.len();
        self.u32(COMMENT.into());
        // Writing to memory does not fail.
        let _ = write!(self, "{comment}");
        let len = (self.0.len() - start - 4) as u16;
        self.0[start + 2..start + 4].copy_from_slice(&len.to_le_bytes());
        self.pad();
    }

    fn end_of_options(&mut self) {
        self.u32(END.into());
    }
}

impl Write for Blocks {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
