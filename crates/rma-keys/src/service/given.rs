//! One region that a client may have: the keys that it gets, how long they are good for, and when
//! it is to ask again.
//!
//! Lifetimes are durations from now: no clock of the client's is compared with ours.

use core::time::Duration;

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    crypto::KeyBinding,
    time::Instant,
};

use crate::{
    audit::{Asked, What},
    catalog::{Entry, EpochKey, Term},
    jitter::Jitter,
    limits::{LIFETIME_MAX, REFRESH_MIN},
    message::reply::{Answer, EpochKeys, Granted},
    policy::Place,
};

/// How long a client waits at least that asks about an epoch whose rotator is late.
const LATE_REFRESH: Duration = Duration::from_millis(100);

/// A region that is given, to whom, and for how long at most.
pub(super) struct Given<'a> {
    pub(super) now: Instant,
    pub(super) entry: &'a Entry,
    pub(super) responders: LocalAddresses,
    pub(super) initiator: HostAddr,
    pub(super) asked: Asked,
    pub(super) lifetime: Duration,
    pub(super) rule: Option<Place>,
}

impl Given<'_> {
    /// How long a key is good for: as long as its epoch, and not longer than its rule.
    pub(super) fn left(&self, key: &EpochKey) -> Duration {
        let most = self.lifetime.min(LIFETIME_MAX);
        key.term().ends_at.since(self.now).min(most)
    }

    pub(super) fn current(self, refresh: Duration) -> (Answer, What) {
        let latest = self.entry.latest();
        let (epoch, lifetime) = (latest.epoch(), self.left(latest));
        let Self { asked, initiator, rule, .. } = self;
        let what = What::Current { asked, initiator, epoch, lifetime, rule };
        (Answer::Current { lifetime, refresh }, what)
    }

    pub(super) fn granted(self, refresh: Duration) -> (Answer, What) {
        let (region, present) = (self.entry.region(), self.entry.present());
        let responder = self.responders.toward(self.initiator);
        let responder = responder.expect("of a family that both have");
        let granted = Granted {
            responder,
            region: region.id,
            region_len: region.len,
            present: self.keys(present, responder),
            refresh,
            next: self.entry.next().map(|next| self.keys(next, responder)),
        };
        let what = What::Granted {
            initiator: self.initiator,
            epoch: present.epoch(),
            next: self.entry.next().map(EpochKey::epoch),
            lifetime: self.left(self.entry.latest()),
            rule: self.rule,
            asked: self.asked,
        };
        (Answer::Granted(granted), what)
    }

    /// K_d of one epoch, for each type of op.
    fn keys(&self, key: &EpochKey, responder: HostAddr) -> EpochKeys {
        let ops = self.asked.ops;
        let mut keys = Vec::with_capacity(ops.len());
        for op_type in ops.iter() {
            let (initiator, pid) = (self.initiator, self.asked.pid);
            let binding = KeyBinding { initiator, responder, pid, op_type };
            keys.push((op_type, key.derive(&binding)));
        }
        EpochKeys { epoch: key.epoch(), lifetime: self.left(key), keys }
    }

    /// When a client that has all keys is to ask again: when the key after the latest will have
    /// been announced, and a random part of the time in which that one waits for its turn.
    pub(super) fn refresh(&self, jitter: &mut Jitter) -> Duration {
        let latest = self.entry.latest();
        let left = self.left(latest);
        if left.is_zero() {
            return LATE_REFRESH + jitter.part_of(9 * LATE_REFRESH);
        }
        let Term { announce_at, ends_at } = latest.term();
        let from = announce_at.max(self.now);
        let spread = ends_at.since(from) * 4 / 5;
        let refresh = from.since(self.now) + jitter.part_of(spread);
        refresh.min(left).max(REFRESH_MIN)
    }
}
