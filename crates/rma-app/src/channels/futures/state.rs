//! The state that all ends of a link and their futures share: the link, and the ends, each behind a
//! lock of its own, which is taken under that of the state and never around it.

use core::fmt;
use std::sync::Arc;

use rma_channel::Link;
use rma_core::time::{Clock as _, Instant};

use crate::{
    channels::{Channels, LOOK},
    clock::TscClock,
    error::WaitError,
    idle::IdlePolicy,
    lease::PortalLease,
    polling::shared::{After, Polled, Seat},
};

/// An end of a channel, whichever kind it is of.
pub(super) trait End: fmt::Debug + Send + Sync {
    /// Does what is due, and notes who can go on. `gone`: why nothing more will come than what is
    /// there. Returns how much there was to do.
    fn tend(
        &self,
        link: &mut Link,
        now: Instant,
        gone: Option<WaitError>,
        after: &mut After,
    ) -> usize;

    /// When it has something to do even if nothing comes.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether somebody waits for what only memory tells of.
    fn waits_for_memory(&self) -> bool {
        false
    }

    /// Whether there is an event that somebody waits for.
    fn has_news(&self) -> bool {
        false
    }

    /// Whether nobody has it any longer, and it has nothing of anybody's.
    fn is_over(&self) -> bool;
}

#[derive(Debug)]
pub(super) struct State {
    // Dropped in this order.
    ends: Vec<Arc<dyn End>>,
    link: Link,
    lease: PortalLease,
    clock: TscClock,
    idle: IdlePolicy,
    /// When all ends were tended last.
    tended: Instant,
    /// Whether there was nothing to do when the link was polled last. If there was, an end has yet
    /// to be told what has become of its calls, and nothing rings for that any longer.
    is_settled: bool,
    seat: Seat,
}

impl State {
    pub(super) fn new(channels: Channels) -> Self {
        let Channels { link, lease, clock, idle } = channels;
        let (ends, tended, seat) = (Vec::new(), Instant::ZERO, Seat::default());
        Self { ends, link, lease, clock, idle, tended, is_settled: true, seat }
    }

    /// The link, and the time.
    pub(super) fn link(&mut self) -> (&mut Link, Instant) {
        let now = self.clock.now();
        (&mut self.link, now)
    }

    /// Issues what an end has just begun, after all were tended.
    pub(super) fn issue(&mut self, now: Instant) -> usize {
        let work = self.link.poll(now);
        self.is_settled &= work == 0;
        work
    }

    /// Tends this end, too, from now on.
    pub(super) fn add(&mut self, end: Arc<dyn End>) {
        self.ends.push(end);
    }
}

impl Polled for State {
    fn turn(&mut self, after: &mut After) -> usize {
        // Looked at first: what came before the engine ended is still there.
        if let Err(gone) = self.lease.ended()
            && gone.is_for_good()
        {
            self.seat.gone = Some(gone);
        }
        let now = self.clock.now();
        let mut work = self.link.poll(now);
        self.is_settled = work == 0;
        for end in &self.ends {
            work += end.tend(&mut self.link, now, self.seat.gone, after);
        }
        work += self.issue(now);
        self.ends.retain(|end| !end.is_over());
        self.tended = now;
        self.stop_if_done(after);
        work
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let looks = self.ends.iter().any(|end| end.waits_for_memory());
        let look = looks.then(|| self.tended + LOOK);
        let ends = self.ends.iter().filter_map(|end| end.poll_timeout());
        ends.chain(look).chain(self.link.poll_timeout()).min()
    }

    fn may_sleep(&self) -> bool {
        let portal = self.link.executor().portal();
        let is_settled = self.is_settled && self.lease.may_sleep(portal);
        is_settled && !self.ends.iter().any(|end| end.has_news())
    }

    /// Once all handles are gone: whether an end has a buffer.
    fn is_busy(&self) -> bool {
        !self.ends.is_empty()
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn idle(&self) -> IdlePolicy {
        self.idle
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn seat_mut(&mut self) -> &mut Seat {
        &mut self.seat
    }
}
