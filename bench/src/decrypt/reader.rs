//! Captures, read block by block: pcapng and pcap, of either byte order.

use core::ops::Range;
use std::fs::File;

use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader, traits::PcapReaderIterator};

/// Octets of a buffer, to begin with: most blocks fit.
const BUFFER_LEN: usize = 1 << 18;
/// The longest block that is read. Longer: a capture that is no longer one.
const BLOCK_MAX: usize = 1 << 26;
/// Octets of an enhanced packet block before its packet.
pub(super) const EPB_HEADER_LEN: usize = 28;
/// Octets of a record of classic pcap before its packet.
const RECORD_HEADER_LEN: usize = 16;

/// A capture that is read.
pub(super) struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    buffer_len: usize,
    is_big: bool,
    /// The link type of each interface of the section.
    links: Vec<u32>,
    cut: Option<String>,
}

impl core::fmt::Debug for Capture {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Capture(at {})", self.reader.consumed())
    }
}

/// A block, in the buffer.
#[derive(Debug)]
pub(super) struct Found {
    len: usize,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// To be copied as it is.
    Verbatim,
    /// The header of a classic file.
    PcapHeader {
        link: u32,
        snap: u32,
        nanos: bool,
    },
    Packet(PacketBlock),
}

/// A packet.
#[derive(Clone, Debug)]
pub(super) struct PacketBlock {
    pub(super) link: u32,
    /// The octets of the block that are the packet.
    pub(super) data: Range<usize>,
    /// Octets that it had on the wire.
    pub(super) wire_len: u32,
    pub(super) is_big: bool,
    /// Whether the block can have a comment.
    pub(super) takes_comment: bool,
    /// Its time, of a classic record, which is no block yet.
    pub(super) stamp: Option<Stamp>,
}

/// The time of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) seconds: u32,
    pub(super) fraction: u32,
}

impl Capture {
    /// Opens a capture. `None` if it is none.
    pub(super) fn open(file: File) -> Option<Self> {
        let reader = create_reader(BUFFER_LEN, file).ok()?;
        let links = Vec::new();
        Some(Self { reader, buffer_len: BUFFER_LEN, is_big: false, links, cut: None })
    }

    /// Says where the capture ended early, if it did.
    pub(super) fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// The next block. `None` at the end of the capture, and where it is none any longer.
    pub(super) fn next(&mut self) -> Option<Found> {
        loop {
            let problem = match self.reader.next() {
                Ok((len, block)) => {
                    let kind = kind_of(&block, &mut self.links, &mut self.is_big);
                    return Some(Found { len, kind });
                }
                Err(PcapError::Eof) => return None,
                Err(PcapError::Incomplete(_)) => Problem::Short,
                Err(PcapError::BufferTooSmall) => Problem::Long,
                Err(PcapError::UnexpectedEof) => Problem::Cut,
                Err(_) => Problem::NoBlock,
            };
            let problem = match problem {
                Problem::Short if self.refill() => continue,
                Problem::Long if self.buffer_len < BLOCK_MAX && self.grow() => continue,
                Problem::Short => "cannot be read further",
                Problem::Long => "has a block that is too long",
                Problem::Cut => "ends inside a block",
                Problem::NoBlock => "has octets that are no block",
            };
            let (at, left) = (self.reader.consumed(), self.reader.data().len());
            if left == 0 {
                return None;
            }
            self.cut = Some(format!("{problem}, at octet {at}: what is from there on is left out"));
            return None;
        }
    }

    fn refill(&mut self) -> bool {
        self.reader.refill().is_ok()
    }

    fn grow(&mut self) -> bool {
        self.buffer_len *= 2;
        self.reader.grow(self.buffer_len) && self.refill()
    }

    /// The octets of a block.
    pub(super) fn raw(&self, block: &Found) -> &[u8] {
        &self.reader.data()[..block.len]
    }

    /// Goes on behind a block.
    pub(super) fn consume(&mut self, block: &Found) {
        self.reader.consume(block.len);
    }
}

/// The reason why there is no next block in the buffer.
enum Problem {
    Short,
    Long,
    Cut,
    NoBlock,
}

fn kind_of(block: &PcapBlockOwned<'_>, links: &mut Vec<u32>, is_big: &mut bool) -> Kind {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            // The upper bits say what is behind a packet.
            let link = header.network.0.cast_unsigned() & 0xffff;
            *links = vec![link];
            let nanos = header.is_nanosecond_precision();
            Kind::PcapHeader { link, snap: header.snaplen, nanos }
        }
        PcapBlockOwned::Legacy(record) => Kind::Packet(PacketBlock {
            link: links.first().copied().unwrap_or(u32::MAX),
            data: RECORD_HEADER_LEN..RECORD_HEADER_LEN + record.data.len(),
            wire_len: record.origlen,
            is_big: false,
            takes_comment: true,
            stamp: Some(Stamp { seconds: record.ts_sec, fraction: record.ts_usec }),
        }),
        PcapBlockOwned::NG(Block::SectionHeader(header)) => {
            *is_big = header.big_endian();
            links.clear();
            Kind::Verbatim
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            links.push(interface.linktype.0.cast_unsigned());
            Kind::Verbatim
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => Kind::Packet(PacketBlock {
            link: links.get(packet.if_id as usize).copied().unwrap_or(u32::MAX),
            data: EPB_HEADER_LEN..EPB_HEADER_LEN + (packet.caplen as usize).min(packet.data.len()),
            wire_len: packet.origlen,
            is_big: *is_big,
            takes_comment: true,
            stamp: None,
        }),
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => Kind::Packet(PacketBlock {
            link: links.first().copied().unwrap_or(u32::MAX),
            data: 12..12 + (packet.origlen as usize).min(packet.data.len()),
            wire_len: packet.origlen,
            is_big: *is_big,
            takes_comment: false,
            stamp: None,
        }),
        PcapBlockOwned::NG(_) => Kind::Verbatim,
    }
}
