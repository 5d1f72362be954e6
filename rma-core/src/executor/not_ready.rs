//! Ops that found no receive posted (not in the paper). Of those that have one place to go to, a
//! queue of one remote NIC, one *asks*: it is issued again and again, with back-off. The others
//! stand in line, those that were refused first in front. When the one that asks has got in, or
//! ended otherwise, the next ones of the line are issued.
//!
//! So who has waited longest gets the next receive, or nearly: an op that is new is issued once
//! before it stands in line, and executors do not know each other. For those all ask about equally
//! often while the receiver goes on: with a back-off that grows on, who has just got in would ask
//! often, and whoever has waited would ask seldom. Only a receiver that stands still is asked less
//! and less, until an op has waited for long.
//!
//! Invariant: whoever stands in line has somebody in front of it who asks or is under way, or a
//! poll is due; and in any case its time ends.

use core::{cmp::Reverse, time::Duration};
use std::collections::VecDeque;

use super::{
    CommandExecutor,
    call::CallId,
    calls::{Calls, End, Phase},
};
use crate::{cc::RemoteWindowId, op::OpStatus, region::RegionId, time::Instant};

/// The first wait of an op that asks, in nanoseconds; each further one is twice as long. Shorter: a
/// slow receiver is asked more often. Longer: a receive that is posted just then is found later.
const MIN: u64 = 20_000;

/// The longest such wait while the receiver goes on, in nanoseconds. Shorter: it is asked more
/// often. Longer: who has just got in, and waits for [`MIN`], gets in before the others more often.
const MAX_WHILE_MOVING: u64 = 100_000;

/// The longest such wait at a receiver that stands still, in nanoseconds. Shorter: that is asked
/// more often. Longer: when it goes on, it waits.
const MAX: u64 = 5_000_000;

/// The same once an op has waited for [`LONG`].
const MAX_OF_LONG: u64 = 1_000_000;

/// After how long an op asks a receiver more often again that seems to stand still: it may go on
/// for others alone. Shorter: one that stands still is asked more often. Longer: ops of other
/// executors get in before it for longer.
const LONG: Duration = Duration::from_millis(100);

/// For how long a receiver goes on after an op has got in. Longer: one that stands still is asked
/// often for longer. Shorter: one that is slow seems to stand still.
const MOVING: Duration = Duration::from_millis(20);

/// How many of the line are issued when an op has got in: more receives may be posted. More: more
/// are refused, and stand in line again. With one, a line would go on at one op a round trip.
const FOLLOWERS: usize = 2;

/// The place where ops are refused: what receives are posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    path: RemoteWindowId,
    region: RegionId,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    place: Place,
    /// The call that asks.
    by: Option<CallId>,
    /// How often that was refused since it asks.
    times: u32,
    /// When an op got in last.
    got_in: Option<Instant>,
}

impl Asked {
    /// Whether the receiver goes on, as far as is known here.
    fn is_moving(&self, now: Instant) -> bool {
        self.got_in.is_some_and(|at| now.since(at) < MOVING)
    }
}

/// The places where ops were refused, and those that stand in line there.
#[derive(Debug)]
pub(super) struct NotReady {
    asked: Vec<Asked>,
    line: VecDeque<(Place, CallId)>,
    /// Somebody was given up who may have asked.
    is_left: bool,
}

/// Since when an op is refused, and until when it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    since: Instant,
    until: Instant,
    /// Whether it is woken at the end of that.
    is_expected: bool,
}

impl NotReady {
    pub(super) fn new(calls: u16) -> Self {
        let line = VecDeque::with_capacity(calls.into());
        Self { asked: Vec::new(), line, is_left: false }
    }

    /// Returns the state of a place, from now on if nothing was.
    fn of(&mut self, place: Place, now: Instant) -> &mut Asked {
        let at = self.asked.iter().position(|it| it.place == place);
        let at = at.unwrap_or_else(|| {
            let Self { asked, line, .. } = &mut *self;
            // Not one where others still stand in line: nobody would have them follow.
            let has_line = |place| line.iter().any(|(its, _)| *its == place);
            asked.retain(|it| it.by.is_some() || it.is_moving(now) || has_line(it.place));
            self.asked.push(Asked { place, by: None, times: 0, got_in: None });
            self.asked.len() - 1
        });
        &mut self.asked[at]
    }

    /// An op that may have asked is given up: the next poll looks whether others wait for it.
    pub(super) const fn leave(&mut self) {
        self.is_left = true;
    }

    /// Stands in line, in front if it did before.
    fn line_up(&mut self, calls: &Calls, place: Place, call: CallId, again: bool) {
        if self.line.len() == self.line.capacity() {
            self.line.retain(|(_, call)| waits(calls, *call));
        }
        if again {
            self.line.push_front((place, call));
        } else {
            self.line.push_back((place, call));
        }
    }

    /// The next one of a place that is still in line.
    fn next(&mut self, calls: &Calls, place: Place) -> Option<CallId> {
        while let Some(at) = self.line.iter().position(|(its, _)| *its == place) {
            let (_, call) = self.line.remove(at)?;
            if waits(calls, call) {
                return Some(call);
            }
        }
        None
    }
}

/// Whether a call's op rests.
fn waits(calls: &Calls, call: CallId) -> bool {
    calls.is_current(call) && calls[call.index].publishing().is_some_and(|it| it.rests)
}

/// Whether a call's op is offered to its target, or will be, and not given up.
fn asks(calls: &Calls, call: CallId) -> bool {
    let is_offered = || {
        let call = &calls[call.index];
        let is_active = call.phase == Phase::Active && call.end.is_none();
        is_active && call.publishing().is_some_and(|it| it.is_offered())
    };
    calls.is_current(call) && is_offered()
}

impl CommandExecutor {
    fn place_of(&mut self, index: u16) -> Place {
        let call = &mut self.calls[index];
        Place { path: call.path, region: call.publishing_mut().region }
    }

    /// No receive was posted: another attempt later, if there is time. No window hears of it.
    pub(super) fn back_off(&mut self, now: Instant, index: u16) {
        let (place, id) = (self.place_of(index), self.calls.id(index));
        let call = &mut self.calls[index];
        let is_given_up = call.end.is_some();
        let publishing = call.publishing_mut();
        publishing.wait();
        let until = now.after_nanos(publishing.not_ready);
        let is_first = publishing.refused.is_none();
        let first = Refused { since: now, until, is_expected: false };
        let &mut Refused { since, until, .. } = publishing.refused.get_or_insert(first);
        if is_given_up || now >= until {
            call.end.get_or_insert(End::Failed(OpStatus::RemoteNotReady));
            self.settle(index);
            self.follow_refused(now, place, id, 1);
            return;
        }
        let asked = self.not_ready.of(place, now);
        if asked.by.is_some_and(|by| by != id && asks(&self.calls, by)) {
            self.not_ready.line_up(&self.calls, place, id, !is_first);
            self.expect_end(index, until);
            return;
        }
        if asked.by.replace(id) != Some(id) {
            asked.times = 0;
        }
        let most = if asked.is_moving(now) {
            MAX_WHILE_MOVING
        } else if now.since(since) < LONG {
            MAX
        } else {
            MAX_OF_LONG
        };
        let wait = MIN.checked_shl(asked.times).map_or(most, |wait| wait.min(most));
        asked.times = (asked.times + 1).min(u64::BITS / 2);
        self.rest(now.after_nanos(wait).min(until), index);
    }

    /// One that stands in line is woken when its time is over, if not before.
    fn expect_end(&mut self, index: u16, until: Instant) {
        let publishing = self.calls[index].publishing_mut();
        let refused = publishing.refused.as_mut().expect("it was refused");
        if core::mem::replace(&mut refused.is_expected, true) {
            publishing.rests = true;
        } else {
            self.rest(until, index);
        }
    }

    /// An attempt of a call has ended, and was not refused: those that stand in line behind it are
    /// next.
    #[inline]
    pub(super) fn let_others_in(&mut self, now: Instant, index: u16, got_in: bool) {
        if !self.not_ready.asked.is_empty() {
            self.let_all_in(now, index, got_in);
        }
    }

    #[cold]
    fn let_all_in(&mut self, now: Instant, index: u16, got_in: bool) {
        let (place, id) = (self.place_of(index), self.calls.id(index));
        let Some(asked) = self.not_ready.asked.iter_mut().find(|it| it.place == place) else {
            return;
        };
        if got_in {
            asked.got_in = Some(now);
        }
        self.follow_refused(now, place, id, if got_in { FOLLOWERS } else { 1 });
    }

    /// Unless another one asks at a place than `id`, which has ended: issues the next ones of its
    /// line.
    fn follow_refused(&mut self, now: Instant, place: Place, id: CallId, most: usize) {
        let Some(asked) = self.not_ready.asked.iter_mut().find(|it| it.place == place) else {
            return;
        };
        if asked.by.is_some_and(|by| by != id && asks(&self.calls, by)) {
            return;
        }
        self.issue_next(now, place, most);
    }

    /// Issues the next ones in line at a place at which nobody asks any longer.
    fn issue_next(&mut self, now: Instant, place: Place, most: usize) {
        if let Some(asked) = self.not_ready.asked.iter_mut().find(|it| it.place == place) {
            asked.by = None;
        }
        for _ in 0..most {
            let Some(next) = self.not_ready.next(&self.calls, place) else { return };
            self.calls[next.index].publishing_mut().rests = false;
            self.enqueue_publishing(now, next.index);
        }
    }

    /// Has an op wait for its time.
    pub(super) fn rest(&mut self, at: Instant, index: u16) {
        self.calls[index].publishing_mut().rests = true;
        let id = self.calls.id(index);
        let Self { resting, calls, .. } = self;
        if resting.len() == resting.capacity() {
            resting.retain(|Reverse((_, call))| calls.is_current(*call));
        }
        resting.push(Reverse((at, id)));
    }

    /// Those whose time has come have their turns. Returns how many.
    #[inline]
    pub(super) fn wake_resting(&mut self, now: Instant) -> usize {
        if self.resting.is_empty() { 0 } else { self.wake_all_resting(now) }
    }

    #[cold]
    fn wake_all_resting(&mut self, now: Instant) -> usize {
        if core::mem::take(&mut self.not_ready.is_left) {
            for at in 0..self.not_ready.asked.len() {
                let Asked { place, by, .. } = self.not_ready.asked[at];
                // Without one that asks, those that were to follow may be given up.
                if by.is_none_or(|by| !asks(&self.calls, by)) {
                    self.issue_next(now, place, 1);
                }
            }
        }
        let mut woken = 0;
        while let Some(&Reverse((at, id))) = self.resting.peek()
            && at <= now
        {
            self.resting.pop();
            if waits(&self.calls, id) {
                self.calls[id.index].publishing_mut().rests = false;
                self.enqueue_publishing(now, id.index);
                woken += 1;
            }
        }
        woken
    }
}
