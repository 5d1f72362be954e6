//! The engine's end of a receive queue. It believes nothing that the application's end says.

use rma_shm::{Consumer, Producer};

use super::{Event, Receive, ReceiveQueueLayout};
use crate::command::CommandSlotId;

/// How many posts that make no sense are taken out of the ring at a time. More: an application that
/// fills its ring with garbage takes more of a turn. Fewer: it is longer without receives, which is
/// its own affair.
const GARBAGE_MAX: usize = 32;

/// The engine's end of a receive queue.
///
/// Invariant: a receive is posted at most once (`posted`); it is then in the ring, in `ready`, or
/// bound to an op that is under way, and for each that is bound the ring of events has room.
#[derive(Debug)]
pub struct ReceiveQueuePort {
    layout: ReceiveQueueLayout,
    posts: Consumer,
    events: Producer,
    /// A bit for each receive that was posted, and whose event has not been published.
    posted: Box<[u64]>,
    /// Posts that were taken out of the ring and are bound to nothing, the next one last.
    ready: Vec<Receive>,
    /// How many are bound.
    bound: usize,
    /// Posts that made no sense.
    refused: u64,
    portal: Option<CommandSlotId>,
    /// Whether events have been published since the portal was last looked after.
    pub(crate) rung: bool,
}

/// The fill of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueWatch {
    /// Receives that are posted and whose events have not been published.
    pub posted: usize,
    /// Events that the application has not read.
    pub unread: usize,
}

impl ReceiveQueuePort {
    pub(super) fn new(
        layout: ReceiveQueueLayout,
        posts: Consumer,
        events: Producer,
        portal: Option<CommandSlotId>,
    ) -> Self {
        let receives = usize::from(layout.receives);
        Self {
            layout,
            posts,
            events,
            posted: vec![0; receives.div_ceil(u64::BITS as usize)].into(),
            ready: Vec::with_capacity(receives),
            bound: 0,
            refused: 0,
            portal,
            rung: false,
        }
    }

    /// Returns the size of the queue.
    #[must_use]
    pub const fn layout(&self) -> ReceiveQueueLayout {
        self.layout
    }

    /// The portal whose application is woken by events, by one of its slots.
    pub(crate) const fn portal(&self) -> Option<CommandSlotId> {
        self.portal
    }

    /// Events wake the portal that has `portal` from now on.
    pub(crate) const fn bind(&mut self, portal: Option<CommandSlotId>) {
        self.portal = portal;
    }

    /// Returns the fill of the queue. Looks at the other side's memory.
    #[must_use]
    pub fn watch(&self) -> QueueWatch {
        let posted = self.ready.len() + self.bound + self.posts.len();
        QueueWatch { posted, unread: self.events.len() }
    }

    /// Whether a receive can be taken. It stays there, whatever the application does, until it is
    /// taken.
    pub(crate) fn has_receive(&mut self) -> bool {
        self.has_room_for_event() && self.has_ready()
    }

    /// A receive for an op: it is bound to it until [`ReceiveQueuePort::put_back`] or
    /// [`ReceiveQueuePort::publish`].
    pub(crate) fn take(&mut self) -> Option<Receive> {
        if !self.has_receive() {
            return None;
        }
        let receive = self.ready.pop()?;
        self.bound += 1;
        Some(receive)
    }

    //= channels#2.2-comes-back
    /// The op that `receive` was bound to came to nothing: the next op gets it.
    pub(crate) fn put_back(&mut self, receive: Receive) {
        self.bound -= 1;
        self.ready.push(receive);
    }

    /// Publishes the event of an op, and so consumes the receive that was bound to it. From now on
    /// the application sees the event, and all that was copied before it.
    pub(crate) fn publish(&mut self, event: &Event) {
        let (word, bit) = Self::place(event.receive);
        self.posted[word] &= !bit;
        self.bound -= 1;
        let pushed = self.events.push(&event.to_line());
        debug_assert!(pushed.is_ok(), "room that was seen stays");
    }

    /// How many posts made no sense since the last call.
    pub(crate) const fn refused(&mut self) -> u64 {
        core::mem::replace(&mut self.refused, 0)
    }

    //= channels#2.2-room-for-events
    /// Whether one more event has room, besides those of the receives that are bound.
    fn has_room_for_event(&mut self) -> bool {
        self.events.has_room_for(self.bound + 1)
    }

    /// Whether a post is at hand, or one could be taken out of the ring.
    fn has_ready(&mut self) -> bool {
        for _ in 0..GARBAGE_MAX {
            if !self.ready.is_empty() {
                return true;
            }
            let Some(line) = self.posts.pop() else { return false };
            match self.accept(line.0[0]) {
                Some(receive) => self.ready.push(receive),
                None => self.refused += 1,
            }
        }
        !self.ready.is_empty()
    }

    //= channels#2.2-hostile-posts
    /// The receive that a post names, if there is such a one and it is not posted.
    fn accept(&mut self, number: u64) -> Option<Receive> {
        let number = u16::try_from(number).ok().filter(|&it| it < self.layout.receives)?;
        let receive = Receive(number);
        let (word, bit) = Self::place(receive);
        let posted = &mut self.posted[word];
        if *posted & bit != 0 {
            return None;
        }
        *posted |= bit;
        Some(receive)
    }

    /// Returns the word and the bit of a receive.
    const fn place(Receive(number): Receive) -> (usize, u64) {
        ((number / u64::BITS as u16) as usize, 1 << (number % u64::BITS as u16))
    }
}

#[cfg(test)]
impl ReceiveQueuePort {
    /// Checks that what is posted is at hand or bound, each once. Returns how many are bound.
    pub(crate) fn assert_consistent(&self) -> usize {
        let posted: u32 = self.posted.iter().map(|word| word.count_ones()).sum();
        assert_eq!(posted as usize, self.ready.len() + self.bound);
        let ready: std::collections::BTreeSet<_> = self.ready.iter().collect();
        assert_eq!(ready.len(), self.ready.len(), "each once");
        assert!(self.bound + self.events.len() <= self.events.capacity(), "events have room");
        assert_eq!(
            self.ready.capacity(),
            usize::from(self.layout.receives),
            "nothing was allocated"
        );
        self.bound
    }
}
