//! The application's end of a receive queue: posting receives, and taking events.

use core::num::NonZeroU64;

use rma_shm::{Consumer, Full, Line, Producer};

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
///
/// The engine's memory is not trusted: an event of a receive that is not posted, or that the engine
/// has not taken out of the ring, is passed over and counted ([`ReceiveQueue::impossible`]).
#[derive(Debug)]
pub struct ReceiveQueue {
    layout: ReceiveQueueLayout,
    posts: Producer,
    events: Consumer,
    /// By receive: which post of all it is, from 1 on, if it is posted.
    posted: Box<[Option<NonZeroU64>]>,
    /// How many posts there have been.
    pushed: u64,
    /// How many of them the engine had taken when that was last looked at.
    taken_seen: u64,
    /// Events that made no sense.
    refused: u64,
    region: RegisteredRegion,
}

impl ReceiveQueue {
    pub(super) fn new(
        layout: ReceiveQueueLayout,
        posts: Producer,
        events: Consumer,
        region: RegisteredRegion,
    ) -> Self {
        let posted = vec![None; layout.receives.into()].into();
        Self { layout, posts, events, posted, pushed: 0, taken_seen: 0, refused: 0, region }
    }

    /// The queue's name: what grants for SEND and NOTIFY are made for, and what a region names that
    /// takes WRITE_WITH_IMM.
    #[must_use]
    pub const fn id(&self) -> RegionId {
        self.region.id()
    }

    /// Returns the size of the queue.
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
        self.posted.iter().flatten().count()
    }

    /// Posts a receive: the next op may consume it. Until its event, its buffer may change at any
    /// moment.
    ///
    /// # Errors
    /// If there is no such receive, or it is posted already, or the engine is broken and leaves no
    /// room for it. Then nothing was posted.
    pub fn post(&mut self, receive: Receive) -> Result<(), ReceiveQueueError> {
        let Receive(number) = receive;
        let receives = self.layout.receives;
        let posted = self.posted.get_mut(usize::from(number));
        let posted = posted.ok_or(ReceiveQueueError::NoSuchReceive { number, receives })?;
        if posted.is_some() {
            return Err(ReceiveQueueError::PostedAlready { number });
        }
        let pushed = self.posts.push(&Line([number.into(), 0, 0, 0, 0, 0, 0, 0]));
        pushed.map_err(|Full| ReceiveQueueError::ReceivesNotTaken { number })?;
        self.pushed += 1;
        *posted = NonZeroU64::new(self.pushed);
        Ok(())
    }

    /// Posts every receive that is not posted.
    pub fn post_all(&mut self) {
        for number in 0..self.layout.receives {
            // It is posted already, or the engine is broken.
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
            let event = Event::from_line(&self.events.pop()?);
            // Of a broken engine nothing worse comes than that events are missing.
            match event.filter(|event| self.is_over(event.receive)) {
                Some(event) => return Some(event),
                None => self.refused += 1,
            }
        }
    }

    /// Whether `receive` is posted and the engine has taken it. It is posted no longer.
    fn is_over(&mut self, Receive(number): Receive) -> bool {
        let Some(posted) = self.posted.get_mut(usize::from(number)) else { return false };
        let Some(post) = posted.map(NonZeroU64::get) else { return false };
        if post > self.taken_seen {
            self.taken_seen = self.pushed.saturating_sub(self.posts.len() as u64);
        }
        let is_taken = post <= self.taken_seen;
        if is_taken {
            *posted = None;
        }
        is_taken
    }

    /// How often the engine's memory said what cannot be: events that made no sense, and indexes of
    /// rings. Not 0: the engine is broken.
    #[must_use]
    pub fn impossible(&self) -> u64 {
        self.refused + self.posts.impossible_indexes() + self.events.impossible_indexes()
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
