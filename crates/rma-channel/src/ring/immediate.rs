//! Messages without records: where they are and how long is said by the event of the op that
//! publishes them (the paper's §4.3, IMM-based).
//!
//! A message takes as much of the ring as it has bytes, in whole words. The immediate has its
//! length and where it begins:
//!
//! ```text
//! | position modulo 2^32 | length u32 |
//! ```
//!
//! and the event itself says where its op wrote, which must be where the message ends. Ops have no
//! order and neither have events, so they are put in order by position. Each event takes a receive
//! without a buffer, which is posted again as soon as the event is read.
//!
//! Invariant: messages that have come and were not taken do not overlap, and lie between the next
//! one and where the ring is full.

use std::collections::BTreeMap;

use rma_core::{
    receive_queue::{Event, ReceiveQueue},
    region::RegisteredRegion,
};

use super::{Malformed, Position, Reads, Record, RingLen, Taking, padded};

/// How many bytes of the ring a message of `len` bytes uses up.
#[must_use]
pub const fn footprint(len: u32) -> u64 {
    padded(len)
}

/// Encodes the event of a message of `len` bytes at `position`.
pub(crate) const fn immediate(position: Position, len: u32) -> u64 {
    position.to_bits() << u32::BITS | len as u64
}

/// The receiver's end of a ring.
#[derive(Debug)]
pub struct Reader {
    taking: Taking,
    queue: ReceiveQueue,
    /// The messages that have come and were not taken, by position, with their lengths in bytes.
    come: BTreeMap<Position, u32>,
    /// The malformed input that came.
    malformed: Option<Malformed>,
}

impl Reader {
    /// Of a ring that is empty, for messages of up to `len_max` bytes. `ring` is circular and `len`
    /// bytes long; its events are in `queue`, which has no buffers, and all of whose receives are
    /// posted here.
    #[must_use]
    pub fn new(
        ring: RegisteredRegion,
        mut queue: ReceiveQueue,
        len: RingLen,
        len_max: u32,
    ) -> Self {
        queue.post_all();
        let taking = Taking::new(ring, len, len_max);
        Self { taking, queue, come: BTreeMap::new(), malformed: None }
    }

    /// The queue that events come in: to wait for them.
    #[must_use]
    pub const fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }

    /// Takes the events that there are.
    fn look(&mut self) -> Result<(), Malformed> {
        while self.malformed.is_none()
            && let Some(event) = self.queue.poll()
        {
            // It is not posted, as its event has just been taken.
            let _ = self.queue.post(event.receive);
            match self.place(&event) {
                Some((position, len)) => {
                    self.come.insert(position, len);
                }
                None => {
                    let Event { region_offset: offset, len, immediate, .. } = event;
                    self.malformed = Some(Malformed::Place { offset, len, immediate });
                }
            }
        }
        self.malformed.map_or(Ok(()), Err)
    }

    /// Returns the position and length of an event's message, if there can be one.
    fn place(&self, event: &Event) -> Option<(Position, u32)> {
        let Taking { len: ring, len_max, next, tail, .. } = self.taking;
        let (len, at) = (event.immediate as u32, (event.immediate >> u32::BITS) as u32);
        let beyond = at.wrapping_sub(next.to_bits() as u32);
        let position = next.after(beyond.into());
        let end = position.after(footprint(len));
        let fits = event.region == self.taking.ring.id()
            && 0 < len
            && len <= len_max
            && u64::from(beyond) + next.since(tail) + footprint(len) <= ring.get();
        // The op that publishes writes the last bytes.
        let ends_at = event.region_offset.wrapping_add(event.len.into()) & (ring.get() - 1);
        let is_there = event.len <= len && ends_at == ring.offset(position.after(len.into()));
        let before = self.come.range(..=position).next_back();
        let behind = self.come.range(position..).next();
        let is_free = before.is_none_or(|(at, &len)| at.after(footprint(len)) <= position)
            && behind.is_none_or(|(&at, _)| end <= at);
        (fits && is_there && is_free).then_some((position, len))
    }
}

impl Reads for Reader {
    fn taking(&self) -> &Taking {
        &self.taking
    }

    fn taking_mut(&mut self) -> &mut Taking {
        &mut self.taking
    }

    fn poll(&mut self) -> Result<Option<Record>, Malformed> {
        self.look()?;
        let position = self.taking.next;
        let Some(len) = self.come.remove(&position) else { return Ok(None) };
        let offset = self.taking.len.offset(position);
        Ok(Some(self.taking.take(footprint(len), offset, len)))
    }

    fn has_next(&self) -> bool {
        self.queue.has_event() || self.come.contains_key(&self.taking.next)
    }
}
