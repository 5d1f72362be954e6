//! A receive queue's rings, in one part of a mapping, so that the engine may be in another process.
//!
//! | offset in bytes | what | written by |
//! |---|---|---|
//! | 0 | [label](Label): kind `1RMArecv`, version 1, size: the entries of a ring | who formats it |
//! | 128 | [ring](rma_shm::spsc) of posts | application; the engine its `head` |
//! | behind it | ring of events | engine; the application its `head` |
//!
//! Both rings have as many entries as the queue has receives, rounded up to a power of two. The
//! bytes of the buffers are not here: they are a region's. A post is a line whose first word is the
//! number of a receive. Version 1 says how posts and events are encoded, too.

use std::sync::Arc;

use rma_shm::{Capacity, Label, LayoutError, LinesEach, Mapping, RingMemory};

use super::{QueueWatch, ReceiveQueue, ReceiveQueueLayout, ReceiveQueuePort};
use crate::{command::CommandSlotId, region::RegisteredRegion};

const POSTS: usize = Label::FOOTPRINT;

/// The memory that the two ends of a receive queue are made of. One side formats it in a mapping,
/// the other joins it there, and each makes its end.
#[derive(Clone, Debug)]
pub struct ReceiveQueueMemory {
    posts: RingMemory,
    events: RingMemory,
    layout: ReceiveQueueLayout,
}

/// The function that makes one ring, or finds it.
type PlaceRing = fn(&Arc<Mapping>, usize, Capacity) -> Result<RingMemory, LayoutError>;

impl ReceiveQueueMemory {
    /// The bytes that the rings of a queue take.
    #[must_use]
    pub const fn footprint(layout: ReceiveQueueLayout) -> usize {
        POSTS + 2 * RingMemory::footprint(Self::capacity(layout))
    }

    const fn capacity(layout: ReceiveQueueLayout) -> Capacity {
        Capacity::for_lines(layout.receives, LinesEach::One)
    }

    const fn label(layout: ReceiveQueueLayout) -> Label {
        let entries = Self::capacity(layout).get() as u64;
        Label { kind: *b"1RMArecv", version: 1, size: entries }
    }

    /// The rings of a queue whose two ends are in this process.
    ///
    /// # Panics
    /// Never: a mapping of the footprint has room.
    #[must_use]
    pub fn heap(layout: ReceiveQueueLayout) -> Self {
        let mapping = Arc::new(Mapping::heap(Self::footprint(layout)));
        Self::format(&mapping, layout).expect("a mapping of its footprint")
    }

    /// Makes the rings of a queue at the beginning of `mapping`, over whatever was there.
    ///
    /// # Errors
    /// If the mapping is shorter than [`ReceiveQueueMemory::footprint`].
    pub fn format(mapping: &Arc<Mapping>, layout: ReceiveQueueLayout) -> Result<Self, LayoutError> {
        Self::label(layout).format(mapping, 0, Self::footprint(layout), || {
            Self::place(mapping, layout, RingMemory::format)
        })
    }

    /// The rings of a queue that another process has formatted at the beginning of `mapping`. Both
    /// have agreed on the layout.
    ///
    /// # Errors
    /// If the mapping is shorter than [`ReceiveQueueMemory::footprint`], or there is no such queue.
    pub fn join(mapping: &Arc<Mapping>, layout: ReceiveQueueLayout) -> Result<Self, LayoutError> {
        Self::label(layout).check(mapping, 0, Self::footprint(layout))?;
        Self::place(mapping, layout, RingMemory::join)
    }

    fn place(
        mapping: &Arc<Mapping>,
        layout: ReceiveQueueLayout,
        ring: PlaceRing,
    ) -> Result<Self, LayoutError> {
        let capacity = Self::capacity(layout);
        Ok(Self {
            posts: ring(mapping, POSTS, capacity)?,
            events: ring(mapping, POSTS + RingMemory::footprint(capacity), capacity)?,
            layout,
        })
    }

    /// Returns the size of the queue.
    #[must_use]
    pub const fn layout(&self) -> ReceiveQueueLayout {
        self.layout
    }

    /// The ring of posts.
    #[must_use]
    pub const fn posts(&self) -> &RingMemory {
        &self.posts
    }

    /// The ring of events.
    #[must_use]
    pub const fn events(&self) -> &RingMemory {
        &self.events
    }

    /// Returns the fill of the queue, by what the memory says, for a caller that has neither end.
    /// The other sides may be writing meanwhile, or nonsense, so no number is larger than the
    /// number of receives.
    #[must_use]
    pub fn watch(&self) -> QueueWatch {
        let receives = usize::from(self.layout.receives());
        // Each post that is accepted leads to one event.
        let posted = self.posts.tail().wrapping_sub(self.events.tail()) as usize;
        let unread = self.events.tail().wrapping_sub(self.events.head()) as usize;
        QueueWatch { posted: posted.min(receives), unread: unread.min(receives) }
    }

    /// The application's end, once the queue is registered as `region`, whose memory its buffers
    /// are. Nothing is posted yet.
    #[must_use]
    pub fn into_application(self, region: RegisteredRegion) -> ReceiveQueue {
        let Self { posts, events, layout } = self;
        ReceiveQueue::new(layout, posts.into_producer(), events.into_consumer(), region)
    }

    /// The engine's end. Events wake the portal that has `portal`, a command slot; without one, who
    /// waits for events has to look.
    #[must_use]
    pub fn into_port(self, portal: Option<CommandSlotId>) -> ReceiveQueuePort {
        let Self { posts, events, layout } = self;
        ReceiveQueuePort::new(layout, posts.into_consumer(), events.into_producer(), portal)
    }
}
