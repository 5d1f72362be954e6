//! Shared ring buffer, inlined bell with zeroing (§4.4): FETCH_ADD, and one ordered WRITE of a
//! record; the receiver takes records in the order of their places, and zeroes them.
//!
//! ```text
//! position, a multiple of 64
//! | length u16 | sender u16 | lap u32 | message, padded to words | position + 1, u32 | number u32 |
//! ```
//!
//! Free memory is zero, and a record is one op, so it is there whole or not at all; its last word
//! lands last. Who sent it is not authenticated: any sender could have written it.

use rma_core::{
    gate::Gate,
    op::OpType,
    portal::{Change, Source},
    receive_queue::ReceiveQueue,
    region::{Permissions, RegisteredRegion},
};

use super::{
    Form, Found, Place,
    receiver::{Finds, SharedReceiver, View},
    sender::SharedSender,
};
use crate::{
    ring::{Malformed, Position, RingLen, WORD, padded, word_at, zeroing},
    table::Kind,
    terms::OpenError,
};

/// The receiver's end.
pub type Receiver = SharedReceiver<Records>;

/// A sender's end.
pub type Sender = SharedSender<Record>;

//= channels#4.4-with-zeroing
/// Messages that are records.
#[derive(Clone, Copy, Debug)]
pub struct Record;

/// The words before and behind a message.
const fn words(ring: RingLen, position: Position, len: u32, sender: u16, number: u32) -> [u64; 2] {
    let first = len as u64 | (sender as u64) << 16 | (ring.lap(position) as u64) << 32;
    let last = (position.to_bits() as u32 | 1) as u64 | (number as u64) << 32;
    [first, last]
}

impl Form for Record {
    const KIND: Kind = Kind::SharedRingWithZeroing;
    const NEEDS: &'static [OpType] = &[OpType::FetchAdd, OpType::Read, OpType::Write];
    const LEN_MAX: u32 = 4080;
    const BESIDE: (u64, u64) = (WORD, WORD);

    fn footprint(len: u32) -> u64 {
        zeroing::footprint(len)
    }

    fn change(place: Place, region: &RegisteredRegion, offset: u64) -> Change<'_> {
        let Place { ring, position, len, sender, number } = place;
        let (start, end) = (offset - WORD, offset + padded(len));
        let [first, last] = words(ring, position, len, sender, number);
        // The place was checked, or is in the image.
        let _ = region.store(start, first.to_le());
        let message_end = offset + u64::from(len);
        let _ = region.write(message_end, &[0; WORD as usize][..(end - message_end) as usize]);
        let _ = region.store(end, last.to_le());
        let source = Source { region, offset: start, len: (end + WORD - start) as u32 };
        Change::OrderedWrite { remote_offset: ring.offset(position), source }
    }
}

/// Finds records in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Records;

impl Records {
    /// The record at a position, if it is whole.
    fn at(view: &View<'_>, position: Position) -> Result<Option<Found>, Malformed> {
        let View { ring, len: ring_len, len_max, tail, .. } = *view;
        let at = ring_len.offset(position);
        let first = word_at(ring, at);
        if first == 0 {
            return Ok(None);
        }
        let (len, sender, lap) = (first as u16, (first >> 16) as u16, ring_len.lap(position));
        let (len, offset) = (u32::from(len), at + WORD);
        let error = Malformed::Record { position: position.to_bits(), head: first, len_max, lap };
        let end = position.after(zeroing::footprint(len)).since(tail);
        let fits =
            0 < len && len <= len_max && end <= ring_len.get() && end <= view.head().since(tail);
        if !fits || (first >> 32) as u32 != lap {
            return Err(error);
        }
        let last = word_at(ring, offset + padded(len));
        if last as u32 != position.to_bits() as u32 | 1 {
            return if last == 0 { Ok(None) } else { Err(error) };
        }
        let number = (last >> 32) as u32;
        Ok(Some(Found { position, offset, len, sender, number, from: None }))
    }
}

impl Finds for Records {
    type Form = Record;
    const ZEROES: bool = true;

    fn find(&mut self, view: &View<'_>) -> Result<Option<Found>, Malformed> {
        // Of a full ring the oldest record begins here.
        let is_full = view.frontier.since(view.tail) == view.len.get();
        if is_full { Ok(None) } else { Self::at(view, view.frontier) }
    }

    fn scan(&mut self, view: &View<'_>, position: Position) -> Result<Option<Found>, Malformed> {
        Self::at(view, position)
    }

    fn open(_: &dyn Gate, _: RingLen) -> Result<(Self, Permissions), OpenError> {
        Ok((Self, Permissions::WRITE))
    }

    fn queue(&self) -> Option<&ReceiveQueue> {
        None
    }
}
