//! Shared ring buffer, IMM-based (§4.4): FETCH_ADD, and one WRITE_WITH_IMM. The receiver hands
//! messages out as their events come: a slow sender holds up nobody but himself.
//!
//! The paper's immediate is the place. Here the event says where its op wrote, and who did, which
//! is authenticated; there is one place in the ring at a time that is there. So the immediate has
//! what puts a sender's messages in order:
//!
//! ```text
//! | number u32 | 0 u16 | sender u16 |
//! ```
//!
//! The ring's queue has a receive for each place, 32,768 at most. In a ring of more than 2 MiB it
//! may come to it that a sender finds none: he tries again.

use rma_core::{
    gate::{Gate, Peer},
    limits::{OP_SIZE_MAX, RECEIVES_MAX},
    op::OpType,
    portal::{Change, Placement, Source},
    receive_queue::{Event, ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};

use super::{
    ALIGN, Form, Found, Place,
    receiver::{Finds, SharedReceiver, View},
    sender::SharedSender,
};
use crate::{
    receiver::Blocking,
    ring::{Malformed, Position, RingLen},
    table::Kind,
    terms::OpenError,
};

/// The receiver's end.
pub type Receiver = SharedReceiver<Events>;

/// A sender's end.
pub type Sender = SharedSender<WithImmediate>;

impl Blocking for Receiver {
    fn queue(&self) -> &ReceiveQueue {
        &self.finds.queue
    }
}

//= channels#4.4-immediate
/// Messages that events tell of.
#[derive(Clone, Copy, Debug)]
pub struct WithImmediate;

impl Form for WithImmediate {
    const KIND: Kind = Kind::SharedRingImmediate;
    const NEEDS: &'static [OpType] = &[OpType::FetchAdd, OpType::Read, OpType::WriteWithImm];
    const LEN_MAX: u32 = OP_SIZE_MAX;
    const BESIDE: (u64, u64) = (0, 0);

    fn footprint(len: u32) -> u64 {
        u64::from(len).next_multiple_of(ALIGN)
    }

    fn change(place: Place, region: &RegisteredRegion, offset: u64) -> Change<'_> {
        let Place { ring, position, len, sender, number } = place;
        let immediate = u64::from(number) << 32 | u64::from(sender);
        let (source, placement) = (Source { region, offset, len }, Placement::Any);
        let remote_offset = ring.offset(position);
        Change::WriteWithImm { remote_offset, source, immediate, placement }
    }
}

/// Takes events.
#[derive(Debug)]
pub struct Events {
    queue: ReceiveQueue,
}

impl Events {
    /// Returns the message that an event tells of, if there can be such a message.
    fn found(view: &View<'_>, event: &Event) -> Option<Found> {
        let View { ring, len: ring_len, len_max, tail, .. } = *view;
        let Event { len, immediate, initiator: address, pid, region_offset: offset, .. } = *event;
        // The only position from the tail on that is there.
        let beyond = offset.wrapping_sub(ring_len.offset(tail)) & (ring_len.get() - 1);
        let (position, end) = (tail.after(beyond), beyond + WithImmediate::footprint(len));
        let fits = event.region == ring.id()
            && offset < ring_len.get()
            && offset % ALIGN == 0
            && 0 < len
            && len <= len_max
            && end <= ring_len.get()
            && end <= view.head().since(tail);
        let is_tag = immediate >> 16 & 0xffff == 0;
        let (sender, number) = (immediate as u16, (immediate >> 32) as u32);
        let from = Some(Peer { address, pid });
        (fits && is_tag).then_some(Found { position, offset, len, sender, number, from })
    }
}

impl Finds for Events {
    type Form = WithImmediate;
    const ZEROES: bool = false;

    fn find(&mut self, view: &View<'_>) -> Result<Option<Found>, Malformed> {
        let Some(event) = self.queue.poll() else { return Ok(None) };
        // It is not posted, as its event has just been taken.
        let _ = self.queue.post(event.receive);
        let Event { region_offset: offset, len, immediate, .. } = event;
        let malformed = Malformed::Place { offset, len, immediate };
        Self::found(view, &event).map(Some).ok_or(malformed)
    }

    fn scan(&mut self, _: &View<'_>, _: Position) -> Result<Option<Found>, Malformed> {
        // Events have told of all that is there.
        Ok(None)
    }

    fn open(host: &dyn Gate, len: RingLen) -> Result<(Self, Permissions), OpenError> {
        let receives = (len.get() / ALIGN).min(RECEIVES_MAX.into()) as u16;
        let layout = ReceiveQueueLayout::new(receives, 0)?;
        let queue = host.receive_queue(layout, Permissions::NONE);
        let mut queue = queue.map_err(OpenError::Host)?;
        queue.post_all();
        Ok((Self { queue }, Permissions::WRITE | Permissions::NOTIFY))
    }

    fn queue(&self) -> Option<&ReceiveQueue> {
        Some(&self.queue)
    }
}
