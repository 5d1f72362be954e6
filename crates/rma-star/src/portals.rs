//! The engine's ends of all portals: which of them are worth a look, which wait for a frame, and
//! whose application must be woken.
//!
//! Invariants: what a turn costs grows with the portals that are in use, not with those that there
//! are; a portal that waits for a frame is looked at in every turn; one that is closed is neither
//! looked at nor waits.

use core::ops::Range;
use std::collections::VecDeque;

use rma_core::{backend::BATCH, time::Instant, watch::Watch};

use crate::portal::{Report, StarPort};

/// The portals of an engine, by the numbers that are in QPNs.
#[derive(Debug)]
pub(crate) struct Portals {
    /// The numbers that they may have.
    numbers: Range<u16>,
    /// From the first number on.
    ports: Vec<Option<StarPort>>,
    /// The portals that are looked at.
    watch: Watch,
    /// Those that have posts, as of the turn's beginning. Empty between turns.
    busy: Vec<u16>,
    /// Those whose next post may be one that a frame is to tell of, each once: in turn.
    waiting: VecDeque<u16>,
    /// Those that were given reports in this turn and whose application may sleep. Empty between
    /// turns.
    given: Vec<u16>,
    /// Whether an application was given a report in this turn.
    reported: bool,
    /// Whether frames had to wait for that in the turn before.
    went_first: bool,
}

impl Portals {
    /// No portals, which may have these numbers.
    pub(crate) fn new(numbers: Range<u16>) -> Self {
        let most = numbers.len();
        Self {
            numbers,
            ports: Vec::with_capacity(most),
            watch: Watch::new(most),
            busy: Vec::with_capacity(most),
            waiting: VecDeque::with_capacity(most),
            given: Vec::with_capacity(most),
            reported: false,
            went_first: false,
        }
    }

    /// Serves a portal from now on. Returns its number; `None` if there are as many as there can
    /// be.
    pub(crate) fn attach(&mut self, port: StarPort) -> Option<u16> {
        let free = self.ports.iter().position(Option::is_none);
        let index = free.unwrap_or(self.ports.len());
        if index >= self.numbers.len() {
            return None;
        }
        if free.is_none() {
            self.ports.push(None);
        }
        let number = self.numbers.start + index as u16;
        self.watch.add(number, port.flag());
        self.ports[index] = Some(port);
        Some(number)
    }

    /// No further post of a portal is taken, nor one that waits for a frame. Whether that is new.
    pub(crate) fn close(&mut self, number: u16) -> bool {
        let index = self.index_of(number.into());
        let Self { ports, watch, waiting, .. } = self;
        let port = ports.get_mut(index).and_then(Option::as_mut);
        let Some(port) = port.filter(|port| !port.is_closed()) else { return false };
        watch.forget(number, port.flag());
        if port.set_waiting(false) {
            waiting.retain(|&waiting| waiting != number);
        }
        port.close();
        true
    }

    /// Serves a portal no more, which is [closed](Portals::close).
    pub(crate) fn detach(&mut self, number: u16) -> Option<StarPort> {
        let index = self.index_of(number.into());
        let port = self.ports.get_mut(index)?.take()?;
        self.watch.remove(number, port.flag(), number);
        self.given.retain(|&given| given != number);
        Some(port)
    }

    /// The place of a portal; of a number that no portal of this engine has, none.
    #[inline]
    const fn index_of(&self, number: u32) -> usize {
        number.wrapping_sub(self.numbers.start as u32) as usize
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&StarPort> {
        self.ports.get(self.index_of(number))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut StarPort> {
        let index = self.index_of(number);
        self.ports.get_mut(index)?.as_mut()
    }

    /// All that there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StarPort> {
        self.ports.iter().flatten()
    }

    /// A turn begins. Returns the portals that have posts; [`Portals::end_turn`] gets the list
    /// back.
    pub(crate) fn begin_turn(&mut self, now: Instant) -> Vec<u16> {
        let mut busy = core::mem::take(&mut self.busy);
        let Self { numbers, ports, watch, .. } = self;
        watch.notice(now);
        watch.look(now, &mut busy, |number| {
            let port = &ports[usize::from(number - numbers.start)];
            port.as_ref().is_some_and(|port| !port.is_idle())
        });
        for &number in &busy {
            if let Some(port) = self.get_mut(number.into()) {
                port.begin_turn();
            }
        }
        busy
    }

    /// Gives back the list of [`Portals::begin_turn`].
    pub(crate) fn end_turn(&mut self, mut busy: Vec<u16>) {
        busy.clear();
        self.busy = busy;
    }

    /// The next post of a portal waits for a frame that tells of it.
    pub(crate) fn wait(&mut self, number: u16) {
        if let Some(port) = self.get_mut(number.into())
            && port.set_waiting(true)
        {
            self.waiting.push_back(number);
        }
    }

    /// Takes out the portal that has waited longest for a frame.
    pub(crate) fn next_waiting(&mut self) -> Option<u16> {
        let number = self.waiting.pop_front()?;
        if let Some(port) = self.get_mut(number.into()) {
            port.set_waiting(false);
        }
        Some(number)
    }

    /// Whether a portal waits for a frame.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// About how many frames the portals that wait for one have posts for: 0 only if none waits.
    /// As many as they have lines, so that what can be sealed together is, and shares packets: the
    /// paper's RPC over 64 connections makes 1.4 times the calls.
    pub(crate) fn frames_waiting(&self) -> usize {
        let first = self.waiting.iter().take(BATCH).filter_map(|&number| self.get(number.into()));
        let lines = first.map(|port| port.posts_waiting().min(BATCH));
        lines.sum::<usize>().max(self.waiting.len())
    }

    /// Whether no portal has a post. Looks at the applications' memory.
    pub(crate) fn is_idle(&self) -> bool {
        self.watch.is_idle(|number| self.get(number.into()).is_none_or(StarPort::is_idle))
    }

    /// Reports to the application of a portal. `false` if it leaves no room for that: then it does
    /// not keep to the rules, and nothing was reported.
    #[inline]
    pub(crate) fn report(&mut self, number: u32, report: &Report) -> bool {
        let Some(port) = self.get_mut(number) else { return false };
        if !port.has_room_for(1) {
            return false;
        }
        if port.report(report) {
            self.given.push(number as u16);
        }
        self.reported = true;
        true
    }

    /// Whether an application was given something in this turn, and nothing had to wait for it in
    /// the turn before.
    pub(crate) const fn may_go_first(&self) -> bool {
        self.reported && !self.went_first
    }

    /// Wakes those that were given something. A turn is over.
    pub(crate) fn wake_sleepers(&mut self) {
        self.went_first = self.may_go_first();
        self.reported = false;
        while let Some(number) = self.given.pop() {
            if let Some(port) = self.get_mut(number.into()) {
                port.wake_sleeper();
            }
        }
    }
}
