//! The treatment of calls with remote NICs that do not answer: which of them wait, which are
//! probes, which end. The states are in [`super::peers`].

use core::cmp::Reverse;

use super::{
    CommandExecutor,
    calls::{CallState, End, Kind},
    paths::Paths,
    peers::{Heard, Peer, SilentPeers},
    publishing::Publishing,
};
use crate::{cc::RemoteWindowId, op::OpStatus, time::Instant};

impl CommandExecutor {
    /// How many of the remote NICs that it has asked are silent: nothing has come from them since,
    /// and an op has timed out. They are no longer counted when they answer, or are forgotten as
    /// others need their places. Looks at each of them.
    #[must_use]
    pub fn silent_peers(&self) -> SilentPeers {
        self.peers.count()
    }

    /// Takes note of what the end of an op says about the remote NIC of `path`, unless that is what
    /// it said before.
    #[cold]
    pub(super) fn note(
        &mut self,
        now: Instant,
        path: RemoteWindowId,
        heard: Heard,
        was_probe: bool,
    ) {
        if was_probe {
            self.peers.end_probe(now, path, heard);
        }
        match heard {
            Heard::Return => {
                let (paths, halvings) = self.peers.revive(now, path, self.issued);
                for path in paths.into_iter().filter(|&path| path != RemoteWindowId::NONE) {
                    self.cc.on_return(path, now, halvings);
                    self.paths.unbar(now, path);
                }
            }
            Heard::Silence => {
                let paths = self.peers.of(path).paths;
                for path in paths.into_iter().filter(|&path| path != RemoteWindowId::NONE) {
                    self.paths.bar(path);
                }
            }
            Heard::Answer | Heard::Loss | Heard::PastSilence | Heard::Nothing => {}
        }
    }

    /// Whether a call stays with its remote NIC after an op that ended with `status`, if that was
    /// for silence; and how it ends if nothing is left of its policy.
    #[cold]
    pub(super) fn judge(
        &mut self,
        now: Instant,
        index: u16,
        heard: Heard,
        status: OpStatus,
    ) -> (bool, End) {
        let call = &mut self.calls[index];
        match heard {
            Heard::Silence => {
                let peer = self.peers.of(call.path);
                let stays = now < peer.gives_up_at(call.since, call.outlast);
                if stays || !peer.is_dead() {
                    return (stays, End::Failed(status));
                }
                call.note_silence(now, peer);
                (false, End::Silent)
            }
            Heard::PastSilence => (call.outlast > 0, End::Failed(status)),
            Heard::Answer | Heard::Return | Heard::Loss | Heard::Nothing => {
                (false, End::Failed(status))
            }
        }
    }

    /// A call begins whose remote NIC is silent: it is a probe, or waits, or is over.
    #[cold]
    pub(super) fn meet_silence(&mut self, now: Instant, index: u16) {
        let (path, outlast) = (self.calls[index].path, self.calls[index].outlast);
        let free = self.ops.len() - self.portal.outstanding();
        if self.peers.take_turn_at_once(now, path, index, free) {
            return;
        }
        let peer = self.peers.of(path);
        let gives_up_at = peer.gives_up_at(now, outlast);
        if peer.is_dead() && gives_up_at <= now {
            self.give_up(now, index);
            return;
        }
        let probe_at = self.peers.probe_at(peer).max(now);
        self.peers.wake_at(probe_at.min(gives_up_at));
    }

    /// Ends calls whose time with a silent remote NIC is over, and lets silent ones that others
    /// wait for have their turns to probe. Returns how many ended.
    #[inline]
    pub(super) fn attend(&mut self, now: Instant) -> usize {
        if self.peers.is_due(now) { self.attend_all(now) } else { 0 }
    }

    #[cold]
    fn attend_all(&mut self, now: Instant) -> usize {
        let mut ended = 0;
        let mut next: Option<Instant> = None;
        for place in 0..self.peers.silent() {
            let (id, _) = self.peers.nth_silent(place);
            self.peers.tires(now, id);
            let peer = self.peers.peer(id);
            let mut waiting = core::mem::take(&mut self.waiting);
            waiting.extend(waiting_calls(&self.paths, peer));
            let mut wants_probe = false;
            for index in waiting.drain(..) {
                let peer = self.peers.peer(id);
                let call = &self.calls[index];
                let gives_up_at = peer.gives_up_at(call.since, call.outlast);
                wants_probe |= self.peers.may_probe(now, peer, call.since, call.outlast);
                if !peer.is_dead() || peer.fresh() == Some(index) {
                } else if gives_up_at <= now {
                    self.give_up(now, index);
                    ended += 1;
                } else {
                    next = earlier(next, gives_up_at);
                }
            }
            self.waiting = waiting;
            let peer = self.peers.peer(id);
            match (peer.in_turn(), self.peers.probe_at(peer)) {
                (Some(since), _) => next = earlier(next, self.peers.tires_at(since)),
                (None, at) if wants_probe && at <= now => {
                    self.peers.take_turn(now, id);
                    next = earlier(next, self.peers.tires_at(now));
                }
                (None, at) if wants_probe => next = earlier(next, at),
                (None, _) => {}
            }
        }
        if let Some(next) = next {
            // A little late, so that calls that were submitted one after the other end together.
            self.peers.wake_at(next.max(now.after_nanos(self.peers.attend_every())));
        }
        ended
    }

    /// Issues probes, of which `free` slots are there. Returns how many.
    #[inline]
    pub(super) fn probe(&mut self, now: Instant, free: usize) -> usize {
        if self.peers.has_turns() { self.probe_all(now, free) } else { 0 }
    }

    #[cold]
    fn probe_all(&mut self, now: Instant, free: usize) -> usize {
        let mut issued = 0;
        while issued < free
            && let Some((id, fresh)) = self.peers.next_turn()
        {
            let Some(index) = self.next_probe(now, id, fresh) else { continue };
            let call = &self.calls[index];
            let window = self.cc.window(call.path);
            let issue = self.paths.probe(now, call.path, &window, call.class, index, call.next());
            self.peers.begin_probe(now, id);
            self.issue_op(now, &issue, true);
            issued += 1;
        }
        issued
    }

    /// The call whose next op is the probe of a silent remote NIC: a READ or a SETTLE if there is
    /// one, as these tell sooner and change nothing, and the one with the most time left.
    fn next_probe(&self, now: Instant, id: u32, fresh: Option<u16>) -> Option<u16> {
        let peer = self.peers.peer(id);
        let is_here =
            |&call: &u16| self.paths.is_queued(call) && peer.paths.contains(&self.calls[call].path);
        fresh.filter(is_here).or_else(|| {
            let may = |&call: &u16| {
                let CallState { since, outlast, .. } = self.calls[call];
                self.peers.may_probe(now, peer, since, outlast)
            };
            let order = |&call: &u16| {
                let CallState { kind, since, outlast, .. } = self.calls[call];
                let asks = self.calls[call].publishing().is_some_and(Publishing::is_settled);
                let reads = kind == Kind::Read || asks;
                (reads, peer.gives_up_at(since, outlast), Reverse(call))
            };
            waiting_calls(&self.paths, peer).filter(may).max_by_key(order)
        })
    }

    /// Its remote NIC has been silent for too long for this call.
    fn give_up(&mut self, now: Instant, index: u16) {
        let call = &mut self.calls[index];
        call.note_silence(now, self.peers.of(call.path));
        self.stop(index, End::Silent);
    }
}

/// The calls of both paths of `peer` that have something to issue.
fn waiting_calls(paths: &Paths, peer: &Peer) -> impl Iterator<Item = u16> {
    let there = peer.paths.into_iter().filter(|&path| path != RemoteWindowId::NONE);
    there.flat_map(|path| paths.calls(path))
}

fn earlier(one: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(one.map_or(other, |one| one.min(other)))
}
