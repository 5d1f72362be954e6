//! Work that is due by time (§III-C2: "the library sets a timer"; probes are ours).
//!
//! A queue pair has one timer. Of a stateless side with work requests it goes off after the repost
//! timeout if some may not have been taken, and otherwise after the probe interval. Then:
//!
//! | heard of the peer since it was set | all from before it was set are taken | |
//! |---|---|---|
//! | yes | yes | the timer is set anew |
//! | yes | no | those that are not taken are posted again |
//! | no | | they are, or if all are taken the oldest, to which the peer must answer |
//!
//! After so many times without hearing of the peer, the connection has failed. The peer is heard of
//! when an acknowledgement comes, which the engine counts in the [QP word](crate::portal::QpWord).

use core::time::Duration;

use rma_core::time::Instant;

use super::{
    Verbs,
    qp::{Flags, Phase, RECV, Row, SEND},
    slots::Queue,
};
use crate::{
    portal::{Post, Posted},
    verbs::WcStatus,
};

/// The most work requests of one queue that are posted again at a time: the peer takes them in
/// order, so if it is there the next ones follow a timeout later.
const AGAIN_MAX: usize = 32;

/// The sequences of each queue below which all is taken by the stateful side.
type Taken = [u32; 2];

impl Verbs {
    /// Does what is due at `now`.
    pub(super) fn do_what_is_due(&mut self, now: Instant) {
        self.wheel.advance(now);
        while let Some(index) = self.wheel.pop() {
            self.timer_is_due(now, index);
        }
    }

    /// Something was posted: sets the timer of a stateless side, unless it goes off before.
    pub(super) fn watch(&mut self, now: Instant, index: u32) {
        let row = &mut self.rows[index as usize];
        if !row.is_stateful() && self.wheel.arm_before(index, now, self.config.repost_timeout) {
            row.mark();
        }
    }

    /// How long a quiet connection is left alone: up to an eighth less, so that those that began
    /// together are not asked together.
    fn quiet_for(&self, index: u32, heard: u8) -> Duration {
        let spread = (index ^ u32::from(heard) << 16).wrapping_mul(0x9e37_79b9) >> 24;
        let interval = self.config.probe_interval;
        interval - interval / 8 * spread / 256
    }

    fn timer_is_due(&mut self, now: Instant, index: u32) {
        let row = &mut self.rows[index as usize];
        if row.flags.take(Flags::CLOSE_IS_DUE) {
            return self.tell_close(now, index);
        }
        match row.phase {
            Phase::Offered(_) | Phase::Agreed | Phase::Opening | Phase::Opened => {
                self.fail(now, index, WcStatus::RetryExcErr);
            }
            Phase::Introducing { tries } => self.introduce_again(now, index, tries),
            Phase::Ready { tries, heard } if !row.is_stateful() => {
                self.look_after(now, index, tries, heard);
            }
            Phase::Moving { is_asked: false } => self.move_on(now, index),
            Phase::Dying(cause) => self.end(index, cause),
            Phase::Free
            | Phase::Init(_)
            | Phase::Ready { .. }
            | Phase::Moving { is_asked: true }
            | Phase::Failing(_)
            | Phase::Over => {}
        }
    }

    //= star#III-C1-state
    /// Tells the stateful side the initial state once more, unless it has acknowledged it.
    fn introduce_again(&mut self, now: Instant, index: u32, tries: u8) {
        if self.is_heard(index) {
            return self.begin_work(now, index);
        }
        let longest = self.config.repost_timeout_max.max(self.config.repost_timeout);
        let most = self.config.set_up_timeout.as_nanos() / longest.as_nanos().max(1);
        let most = most.clamp(self.config.retries.into(), u8::MAX.into()) as u8;
        if tries >= most {
            return self.fail(now, index, WcStatus::RetryExcErr);
        }
        self.introduce(now, index, tries);
    }

    /// Tells the stateful side the initial state, for another time after `tries`.
    pub(super) fn introduce(&mut self, now: Instant, index: u32, tries: u8) {
        // Without room it is told later.
        let _ = self.portal.post(&Post::Introduce { qp: index }, None);
        self.row_mut(index).phase = Phase::Introducing { tries: tries.saturating_add(1) };
        self.wheel.arm(index, now, self.config.backoff(tries));
    }

    //= star#III-C2-repost
    //= star#ours-probe
    /// Looks after a connection of which this is the stateless side.
    fn look_after(&mut self, now: Instant, index: u32, tries: u8, heard: u8) {
        let (heard_now, taken) = (self.portal.memory().qp_word(index).heard, self.taken(index));
        let row = &mut self.rows[index as usize];
        let is_heard = heard_now != heard;
        if row.is_idle() {
            row.phase = Phase::Ready { tries: 0, heard: heard_now };
            return;
        }
        let marks = row.marks;
        let is_before_mark = |which: usize| {
            let behind = marks[which].wrapping_sub(taken[which] as u16).cast_signed();
            behind > 0 && taken[which] != row.queues[which].next
        };
        let is_late = is_before_mark(SEND) || is_before_mark(RECV);
        let all_taken = [SEND, RECV].map(|which| taken[which] == row.queues[which].next);
        row.mark();
        let tries = if is_heard { 0 } else { tries };
        if is_heard && !is_late {
            row.phase = Phase::Ready { tries, heard: heard_now };
            let delay = if all_taken == [true; 2] {
                self.quiet_for(index, heard_now)
            } else {
                self.config.repost_timeout
            };
            return self.wheel.arm(index, now, delay);
        }
        if tries >= self.config.retries {
            return self.fail(now, index, WcStatus::RetryExcErr);
        }
        let row = self.row_mut(index);
        row.phase = Phase::Ready { tries: tries + 1, heard: heard_now };
        let row = *row;
        if !self.post_again(&row, taken) {
            self.post_oldest(&row);
        }
        self.wheel.arm(index, now, self.config.backoff(tries + 1));
    }

    /// Returns the places below which the stateful side has taken each queue: what it has said, and
    /// what has completed.
    fn taken(&self, index: u32) -> Taken {
        let row: &Row = &self.rows[index as usize];
        let told = self.portal.memory().taken(index);
        let of = |queue: &Queue, told: u32| {
            let first = self.slots.first(queue).map_or(queue.next, |(_, first)| first.sequence);
            // Nobody can have taken what was not posted.
            let (after_first, before_next) = (
                told.wrapping_sub(first).cast_signed(),
                queue.next.wrapping_sub(told).cast_signed(),
            );
            if after_first > 0 && before_next >= 0 { told } else { first }
        };
        [of(&row.queues[SEND], told.send.0), of(&row.queues[RECV], told.recv.0)]
    }

    /// Posts again what is not taken. Whether there was something.
    fn post_again(&mut self, row: &Row, taken: Taken) -> bool {
        let mut posted = [const { None::<Posted> }; 2 * AGAIN_MAX];
        let mut count = 0;
        for which in [SEND, RECV] {
            let Some((_, first)) = self.slots.first(&row.queues[which]) else { continue };
            let not_taken = self.slots.iter(&row.queues[which]).filter(|(_, record)| {
                let is_taken = record.sequence.wrapping_sub(taken[which]).cast_signed() < 0;
                !is_taken && record.status().is_none()
            });
            for (slot, record) in not_taken.take(AGAIN_MAX) {
                posted[count] = Some(record.again(slot, first));
                count += 1;
            }
        }
        for posted in posted.into_iter().flatten() {
            // Without room it is posted later.
            let _ = self.portal.post(&Post::Wqe(posted), None);
        }
        count > 0
    }

    /// Asks the peer by what was posted first and is not complete: it has taken that, and says so.
    fn post_oldest(&mut self, row: &Row) {
        let oldest = [SEND, RECV].into_iter().find_map(|which| {
            let (slot, record) = self.slots.first(&row.queues[which])?;
            Some(record.again(slot, record))
        });
        if let Some(posted) = oldest {
            let _ = self.portal.post(&Post::Wqe(posted), None);
        }
    }
}
