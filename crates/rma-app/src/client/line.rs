//! The line of transfers that wait for a place among a client's calls: which is next.
//!
//! First come, first served in each class of service, and the two classes take turns, as they do
//! wherever ops wait. A transfer of the throughput class does not get the last places, which
//! [`Places`] counts: a small read waits for another small one then, and not for the end of a bulk
//! transfer.
//!
//! Invariant: no transfer passes a fence. While one waits that came before it, none goes that came
//! after it.

use std::collections::BTreeMap;

use rma_core::{op::ClassOfService, time::Instant};

/// Those who wait, by the numbers of their tasks.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Of each class, by [`Ticket::number`].
    waiting: [BTreeMap<u64, Waiting>; ClassOfService::ALL.len()],
    /// Of those who will not wait for ever: when, and the rest of the ticket.
    deadlines: BTreeMap<(Instant, u64), ClassOfService>,
    /// The number of the next ticket.
    next: u64,
    /// How many fences there were.
    fences: u64,
    /// How many of them were before the last who went.
    passed: u64,
    /// The class of the last who went.
    served: ClassOfService,
}

/// The place of one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    class: ClassOfService,
    /// Its place in the line: each ticket has a higher one than those before it.
    number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: u32,
    deadline: Option<Instant>,
    /// How many fences were before it.
    fences: u64,
}

/// The transfer that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) ticket: Ticket,
    pub(super) task: u32,
    /// There is a fence between it and the last who went.
    pub(super) is_fenced: bool,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.waiting.iter().map(BTreeMap::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.iter().all(BTreeMap::is_empty)
    }

    /// Whether one who comes now may go past those who wait, if there is a place for its class: if
    /// they wait for places of the other class, and no fence parts it from them.
    pub(super) fn lets_pass(&self, class: ClassOfService, is_fenced: bool) -> bool {
        let parted = || is_fenced || self.first_fences() != Some(self.fences);
        self.is_empty() || (self.waiting[class as usize].is_empty() && !parted())
    }

    /// The last of its class from now on.
    pub(super) fn push(
        &mut self,
        task: u32,
        class: ClassOfService,
        deadline: Option<Instant>,
    ) -> Ticket {
        let number = self.next;
        self.next += 1;
        let waiting = Waiting { task, deadline, fences: self.fences };
        self.waiting[class as usize].insert(number, waiting);
        self.deadlines.extend(deadline.map(|at| ((at, number), class)));
        Ticket { class, number }
    }

    /// From now on, a transfer that comes waits for those that are here.
    pub(super) const fn fence(&mut self) {
        self.fences += 1;
    }

    /// The transfer that is next, of the classes that there are places for, if any. It stays in the
    /// line.
    pub(super) fn next(&self, places: Places) -> Option<Next> {
        let fences = self.first_fences()?;
        let first = |class: ClassOfService| {
            let (&number, it) = self.waiting[class as usize].first_key_value()?;
            let may_go = it.fences == fences && places.admits(class);
            let is_fenced = fences != self.passed;
            may_go.then_some(Next { ticket: Ticket { class, number }, task: it.task, is_fenced })
        };
        first(self.served.other()).or_else(|| first(self.served))
    }

    /// Its turn has come.
    pub(super) fn serve(&mut self, next: &Next) {
        let Ticket { class, .. } = next.ticket;
        let it = self.leave(next.ticket);
        (self.served, self.passed) = (class, it.fences);
    }

    /// It no longer waits.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        self.leave(ticket);
    }

    /// When the first of those who wait gives up.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes one out whose time is over.
    pub(super) fn expire(&mut self, now: Instant) -> Option<u32> {
        let (&(at, number), &class) = self.deadlines.first_key_value()?;
        (at <= now).then(|| self.leave(Ticket { class, number }).task)
    }

    /// Whether there is a fence between the last who went and one who goes now without waiting.
    pub(super) const fn passes_fence(&mut self) -> bool {
        core::mem::replace(&mut self.passed, self.fences) != self.fences
    }

    /// Nobody waits any longer.
    pub(super) fn clear(&mut self) {
        self.waiting.iter_mut().for_each(BTreeMap::clear);
        self.deadlines.clear();
    }

    fn leave(&mut self, Ticket { class, number }: Ticket) -> Waiting {
        let it = self.waiting[class as usize].remove(&number).expect("it waits");
        if let Some(at) = it.deadline {
            self.deadlines.remove(&(at, number));
        }
        it
    }

    /// How many fences were before those who may go first.
    fn first_fences(&self) -> Option<u64> {
        let firsts = self.waiting.iter().filter_map(BTreeMap::first_key_value);
        firsts.map(|(_, it)| it.fences).min()
    }
}

/// How many calls there can be, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    calls: usize,
    /// How many of them may be of the throughput class.
    throughput_max: usize,
    taken: [usize; ClassOfService::ALL.len()],
}

impl Places {
    /// The part that calls of the throughput class leave free, at least one place if there are two:
    /// as ops of that class do with command slots. Smaller: small transfers wait longer beside
    /// large ones. Larger: fewer large ones at once.
    const LEFT_FREE: usize = 8;

    pub(super) fn new(calls: u16) -> Self {
        let calls = usize::from(calls);
        let left_free = if calls < 2 { 0 } else { (calls / Self::LEFT_FREE).max(1) };
        Self { calls, throughput_max: calls - left_free, taken: [0; ClassOfService::ALL.len()] }
    }

    pub(super) const fn admits(&self, class: ClassOfService) -> bool {
        let is_free = self.taken() < self.calls;
        match class {
            ClassOfService::Latency => is_free,
            ClassOfService::Throughput => {
                is_free && self.taken[class as usize] < self.throughput_max
            }
        }
    }

    pub(super) const fn take(&mut self, class: ClassOfService) {
        self.taken[class as usize] += 1;
    }

    pub(super) const fn give_back(&mut self, class: ClassOfService) {
        self.taken[class as usize] -= 1;
    }

    /// How many calls there are.
    pub(super) const fn taken(&self) -> usize {
        let [latency, throughput] = self.taken;
        latency + throughput
    }
}

#[cfg(test)]
mod tests;
