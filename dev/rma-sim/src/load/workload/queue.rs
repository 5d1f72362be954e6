//! A host's receive queue, and the application that has it: what it posts and when, and what events
//! it must find.
//!
//! Each op that was applied and consumes a receive leaves one event, in the order in which they
//! were applied, with its fields and bytes; nothing else leaves one. A receive that is posted is
//! consumed by one op, or still posted.

use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    addr::Pid,
    limits::WORD_LEN,
    nic::RegionEntry,
    receive_queue::{Event, ReceiveQueueLayout, ReceiveQueueMemory},
    region::Permissions,
    time::Instant,
};
use rma_shm::{Consumer, Line, Producer, Region};

use super::rows::{Row, register};
use crate::{
    check::violation::Violation,
    net::{frame::NodeId, sim::Sim},
    prng::{Chance, Prng},
};

/// The habit of its application where ops may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// It posts what it can, and reads all events.
    Prompt,
    /// It posts and reads one now and then.
    Slow,
    /// As that, and posts what makes no sense as well: receives that there are not, or twice.
    Garbage,
    /// It never posts anything.
    Dead,
}

/// An event that must come.
#[derive(Debug)]
pub(super) struct Awaited {
    /// All its fields but which receive it consumes, and when.
    pub(super) event: Event,
    /// When, by the clock of its host: not before, and not after.
    pub(super) at: [Instant; 2],
    /// A SEND's message.
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) row: Row,
    permissions: Permissions,
    layout: ReceiveQueueLayout,
    memory: Arc<Region>,
    ends: Option<(Producer, Consumer)>,
    /// By receive: whether it is posted, and its event has not been read.
    posted: Vec<bool>,
    /// By receive: whether it may have been posted twice. If so, the second post may be taken once
    /// the first has been consumed: then another op gets it, over a message that nobody has read.
    twice: Vec<bool>,
    /// The ops that were applied and have not been read.
    awaited: VecDeque<Awaited>,
    habit: Habit,
    /// Since it was registered, posts were made that make no sense.
    has_garbage: bool,
}

impl Queue {
    /// A queue that may be used as `permissions` say besides.
    pub(super) fn new(prng: &mut Prng, permissions: Permissions) -> Self {
        let receives = prng.choose(&[1, 4, 16, 16]);
        let buffer_len = prng.choose(&[0, 100, 1024, 4096, 4096]);
        let layout = ReceiveQueueLayout::new(receives, buffer_len).expect("small ones");
        let row = Row::new(prng);
        let memory = Region::new(layout.memory_len()).expect("a few KiB");
        Self {
            row,
            permissions,
            layout,
            memory: Arc::new(memory),
            ends: None,
            posted: vec![false; receives.into()],
            twice: vec![false; receives.into()],
            awaited: VecDeque::new(),
            has_garbage: false,
            habit: prng.choose(&[
                Habit::Prompt,
                Habit::Prompt,
                Habit::Slow,
                Habit::Slow,
                Habit::Garbage,
                Habit::Dead,
            ]),
        }
    }

    pub(super) const fn layout(&self) -> ReceiveQueueLayout {
        self.layout
    }

    /// Whether an op may find no receive though all are posted that can be, and so many ops are
    /// under way at most: what makes no sense may have filled the ring of posts.
    pub(super) fn may_lack_receives(&self, ops: usize) -> bool {
        self.has_garbage || usize::from(self.layout.receives()) < ops
    }

    /// Registers it with fresh rings.
    pub(super) fn register(&mut self, sim: &mut Sim, node: NodeId, home: usize) {
        let rings = ReceiveQueueMemory::heap(self.layout);
        let permissions = Permissions::SEND | Permissions::NOTIFY | self.permissions;
        let (memory, key) = (self.memory.clone(), &self.row.key_bytes);
        let entry = |is_home| {
            if is_home {
                let port = rings.clone().into_port(None);
                RegionEntry::receive_queue(port, memory.clone(), key, permissions, Pid(1))
            } else {
                // A SETTLE of an op of an earlier life may come there.
                RegionEntry::new(memory.clone(), key, permissions, Pid(1))
            }
        };
        self.row.id = register(sim, node, home, entry);
        let ends = (rings.posts().clone().into_producer(), rings.events().clone().into_consumer());
        self.ends = Some(ends);
        self.posted.fill(false);
        self.twice.fill(false);
        self.has_garbage = false;
        self.awaited.clear();
    }

    /// Tends the queue as its application does where ops may fail.
    pub(super) fn tend(&mut self, node: NodeId, prng: &mut Prng) -> Result<(), Violation> {
        let is_awake = prng.chance(Chance::ppm(300_000));
        match self.habit {
            Habit::Prompt => self.serve(node),
            _ if !is_awake => Ok(()),
            Habit::Slow => {
                self.post(1);
                self.poll(node, 1)
            }
            Habit::Garbage => {
                let receives = u64::from(self.layout.receives());
                let any = prng.below(receives);
                let number = prng.choose(&[receives, 1 << 16, u64::MAX, any, any]);
                if self.push(number) && number == any {
                    self.twice[any as usize] = true;
                }
                self.has_garbage = true;
                self.post(1);
                self.poll(node, 1)
            }
            Habit::Dead => self.poll(node, 1),
        }
    }

    /// Reads all events and posts all receives.
    pub(super) fn serve(&mut self, node: NodeId) -> Result<(), Violation> {
        self.poll(node, usize::MAX)?;
        self.post(usize::MAX);
        Ok(())
    }

    /// Posts up to `most` receives that are not posted.
    fn post(&mut self, most: usize) {
        let mut left = most;
        for receive in 0..self.posted.len() {
            if left > 0 && !self.posted[receive] && self.push(receive as u64) {
                self.posted[receive] = true;
                left -= 1;
            }
        }
    }

    /// Whether the ring of posts has taken `number`.
    fn push(&mut self, number: u64) -> bool {
        let Some((posts, _)) = &mut self.ends else { return false };
        posts.push(&Line([number, 0, 0, 0, 0, 0, 0, 0])).is_ok()
    }

    /// Reads up to `most` events, and checks them.
    pub(super) fn poll(&mut self, node: NodeId, most: usize) -> Result<(), Violation> {
        let Some((_, events)) = &mut self.ends else { return Ok(()) };
        let wrong = Violation::Event { node, events: self.awaited.len() };
        for _ in 0..most {
            let Some(line) = events.pop() else { break };
            let event = Event::from_line(&line).ok_or(wrong)?;
            let Awaited { event: right, at, bytes } = self.awaited.pop_front().ok_or(wrong)?;
            let right = Event { receive: event.receive, at: event.at, ..right };
            let receive = usize::from(event.receive.0);
            let posted = self.posted.get_mut(receive).ok_or(wrong)?;
            let in_time = at[0] <= event.at && event.at <= at[1];
            let was_posted = core::mem::take(posted) || self.twice[receive];
            if event != right || !in_time || !was_posted {
                return Err(wrong);
            }
            if self.twice[receive] {
                continue;
            }
            let stride = (self.layout.buffer_len() as usize).next_multiple_of(WORD_LEN);
            let start = usize::from(event.receive.0) * stride;
            let mut message = vec![0; bytes.len()];
            self.memory.copy_out(start as u64, &mut message).map_err(|_short| wrong)?;
            if message != bytes {
                return Err(wrong);
            }
        }
        Ok(())
    }

    /// Checks that there is an event for each op that was applied, and no other.
    pub(super) fn check_rest(&mut self, node: NodeId) -> Result<(), Violation> {
        self.poll(node, usize::MAX)?;
        let events = self.awaited.len();
        if events == 0 { Ok(()) } else { Err(Violation::Event { node, events }) }
    }

    /// An op was applied that consumes a receive.
    pub(super) fn applied(&mut self, awaited: Awaited) {
        self.awaited.push_back(awaited);
    }

    /// An op was refused for want of a receive, while at most so many were bound to others.
    pub(super) fn check_refusal(&self, node: NodeId, bound: usize) -> Result<(), Violation> {
        let unread = self.awaited.len();
        let certain = self.posted.iter().zip(&self.twice).filter(|&(&it, &twice)| it && !twice);
        let posted = certain.count().saturating_sub(unread);
        let entries = usize::from(self.layout.receives()).next_power_of_two();
        if posted > bound && unread + bound < entries {
            return Err(Violation::NotReady { node, posted, bound });
        }
        Ok(())
    }
}
