//! Blocks of pcapng that are written: those that are made, or changed. All others are copied.

use std::io::{self, Write};

use super::reader::{EPB_HEADER_LEN, PacketBlock, Stamp};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_TIME_RESOLUTION: u16 = 9;

/// The file that is written.
#[derive(Debug)]
pub(super) struct Out<W> {
    out: W,
    /// Units of a second, of records of classic pcap.
    units: u64,
}

/// Numbers in a byte order.
#[derive(Clone, Copy)]
struct Order {
    is_big: bool,
}

impl Order {
    const LITTLE: Self = Self { is_big: false };

    fn u32(self, value: u32) -> [u8; 4] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u16(self, value: u16) -> [u8; 2] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u16_of(self, octets: [u8; 2]) -> u16 {
        if self.is_big { u16::from_be_bytes(octets) } else { u16::from_le_bytes(octets) }
    }

    fn option(self, body: &mut Vec<u8>, code: u16, value: &[u8]) {
        let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
        body.extend(self.u16(code));
        body.extend(self.u16(len));
        body.extend_from_slice(&value[..usize::from(len)]);
        pad(body);
    }
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

impl<W: Write> Out<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out, units: 1_000_000 }
    }

    pub(super) fn verbatim(&mut self, raw: &[u8]) -> io::Result<()> {
        self.out.write_all(raw)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// A section with one interface, for the packets of a classic file.
    pub(super) fn begin(&mut self, link: u32, snap: u32, nanos: bool) -> io::Result<()> {
        let order = Order::LITTLE;
        self.units = if nanos { 1_000_000_000 } else { 1_000_000 };
        let mut section = order.u32(BYTE_ORDER).to_vec();
        section.extend([1, 0, 0, 0]);
        // The section's length is not told.
        section.extend([0xff; 8]);
        self.block(order, SECTION_HEADER, &section)?;
        let mut interface = order.u32(link).to_vec();
        interface.extend(order.u32(snap));
        order.option(&mut interface, OPTION_TIME_RESOLUTION, &[if nanos { 9 } else { 6 }]);
        interface.extend([0; 4]);
        self.block(order, INTERFACE, &interface)
    }

    /// A packet of a classic file.
    pub(super) fn packet(
        &mut self,
        stamp: &Stamp,
        packet: &PacketBlock,
        data: &[u8],
        comments: &[String],
    ) -> io::Result<()> {
        let order = Order::LITTLE;
        let time = u64::from(stamp.seconds) * self.units + u64::from(stamp.fraction);
        let mut body = Vec::with_capacity(EPB_HEADER_LEN + data.len());
        let words = [0, (time >> 32) as u32, time as u32, data.len() as u32, packet.wire_len];
        body.extend(words.into_iter().flat_map(|it| order.u32(it)));
        body.extend_from_slice(data);
        self.finish(order, body, &[], comments)
    }

    /// The packet of an enhanced packet block, with other octets and comments besides its own.
    pub(super) fn patched(
        &mut self,
        raw: &[u8],
        packet: &PacketBlock,
        data: &[u8],
        comments: &[String],
    ) -> io::Result<()> {
        let order = Order { is_big: packet.is_big };
        let mut body = raw[8..EPB_HEADER_LEN].to_vec();
        body.extend_from_slice(data);
        let options = raw.get(packet.data.end.next_multiple_of(4)..raw.len() - 4);
        let options = options.unwrap_or_default();
        self.finish(order, body, &own_options(order, options), comments)
    }

    fn finish(
        &mut self,
        order: Order,
        mut body: Vec<u8>,
        options: &[u8],
        comments: &[String],
    ) -> io::Result<()> {
        pad(&mut body);
        body.extend_from_slice(options);
        for comment in comments {
            order.option(&mut body, OPTION_COMMENT, comment.as_bytes());
        }
        if !options.is_empty() || !comments.is_empty() {
            body.extend([0; 4]);
        }
        self.block(order, ENHANCED_PACKET, &body)
    }

    fn block(&mut self, order: Order, kind: u32, body: &[u8]) -> io::Result<()> {
        let len = order.u32(body.len() as u32 + 12);
        self.out.write_all(&order.u32(kind))?;
        self.out.write_all(&len)?;
        self.out.write_all(body)?;
        self.out.write_all(&len)
    }
}

/// The options before the one that ends them, without comments that call octets plain: that is said
/// here alone, of what was opened.
fn own_options(order: Order, options: &[u8]) -> Vec<u8> {
    let (mut at, mut kept) = (0, Vec::new());
    while let Some(&[a, b, c, d]) = options[at..].first_chunk() {
        let (kind, len) = (order.u16_of([a, b]), usize::from(order.u16_of([c, d])));
        let Some(option) = options.get(at..at + 4 + len.next_multiple_of(4)) else { break };
        if kind == OPTION_END {
            break;
        }
        if kind != OPTION_COMMENT || !calls_plain(&option[4..4 + len]) {
            kept.extend_from_slice(option);
        }
        at += option.len();
    }
    kept
}

fn calls_plain(comment: &[u8]) -> bool {
    comment.starts_with(b"1rma") && comment.ends_with(b"plain")
}

/// Whether a block may hold such a comment.
pub(super) fn may_call_plain(raw: &[u8]) -> bool {
    raw.windows(5).any(|it| it == b"plain")
}
