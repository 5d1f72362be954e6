//! The application's end of a receive queue: posting receives, and taking events.

use rma_shm::{Consumer, Line, Producer};

use super::{Event, Receive, ReceiveQueueLayout};
use crate::{
    error::ReceiveQueueError,
    op::OpType,
    region::{RegionId, RegisteredRegion},
};

/// A receive queue, as its application has it. Used by one thread at a time.
///
/// Nothing can come before receives are posted; each event gives one back, to be posted again once
/// its bytes have been read.
#[derive(Debug)]
pub struct ReceiveQueue {
    layout: ReceiveQueueLayout,
    posts: Producer,
    events: Consumer,
    /// By receive: whether it is posted.
    posted: Box<[bool]>,
    region: RegisteredRegion,
}

impl ReceiveQueue {
    pub(super) fn new(
        layout: ReceiveQueueLayout,
        posts: Producer,
        events: Consumer,
        region: RegisteredRegion,
    ) -> Self {
        let posted = vec![false; layout.receives.into()].into();
        Self { layout, posts, events, posted, region }
    }

    /// The queue's name: what grants for SEND and NOTIFY are made for, and what a region names that
    /// takes WRITE_WITH_IMM.
    #[must_use]
    pub const fn id(&self) -> RegionId {
        self.region.id()
    }

    /// How large the queue is.
    #[must_use]
    pub const fn layout(&self) -> ReceiveQueueLayout {
        self.layout
    }

    /// The memory of the buffers, registered as the queue.
    #[must_use]
    pub const fn region(&self) -> &RegisteredRegion {
        &self.region
    }

    /// How many receives are posted whose events have not been polled.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.posted.iter().filter(|&&posted| posted).count()
    }

    /// Posts a receive: the next op may consume it. Until its event, its buffer may change at any
    /// moment.
    ///
    /// # Errors
    /// If there is no such receive, or it is posted already. Then nothing was posted.
    pub fn post(&mut self, receive: Receive) -> Result<(), ReceiveQueueError> {
        let Receive(number) = receive;
        let receives = self.layout.receives;
        let posted = self.posted.get_mut(usize::from(number));
        let posted = posted.ok_or(ReceiveQueueError::NoSuchReceive { number, receives })?;
        if core::mem::replace(posted, true) {
            return Err(ReceiveQueueError::PostedAlready { number });
        }
        let pushed = self.posts.push(&Line([number.into(), 0, 0, 0, 0, 0, 0, 0]));
        pushed.expect("the ring has an entry for every receive");
        Ok(())
    }

    /// Posts every receive that is not posted.
    pub fn post_all(&mut self) {
        for number in 0..self.layout.receives {
            // The only error: it is posted already.
            let _ = self.post(Receive(number));
        }
    }

    /// Whether [`ReceiveQueue::poll`] has an event to take. Always looks at what the engine has
    /// written, so a thread may ask it between
    /// [`Doorbell::prepare_sleep`](rma_shm::Doorbell::prepare_sleep) and its sleep.
    #[must_use]
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event, if there is one. Its receive may be posted again.
    #[must_use]
    pub fn poll(&mut self) -> Option<Event> {
        loop {
            // Of a broken engine nothing worse comes than that events are missing.
            if let Some(event) = Event::from_line(&self.events.pop()?)
                && let Some(posted) = self.posted.get_mut(usize::from(event.receive.0))
                && core::mem::take(posted)
            {
                return Some(event);
            }
        }
    }

    /// Copies the message of a SEND out of its buffer, into the beginning of `bytes`. Before the
    /// receive is posted again.
    ///
    /// # Errors
    /// If the event is not a SEND's, or `bytes` is shorter than the message; then it is unchanged.
    pub fn read(&self, event: &Event, bytes: &mut [u8]) -> Result<(), ReceiveQueueError> {
        let (len, room) = (event.len, bytes.len());
        if event.op_type != OpType::Send {
            return Err(ReceiveQueueError::NoMessage { op_type: event.op_type });
        }
        let too_short = ReceiveQueueError::TooShort { len, room };
        let bytes = bytes.get_mut(..len as usize).ok_or(too_short)?;
        let offset = self.layout.offset_of(event.receive);
        self.region.read(offset, bytes).or(Err(too_short))
    }
}
