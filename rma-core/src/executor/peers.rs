//! The remote NICs that answer, and those that do not (not in the paper).
//!
//! Congestion is answered within round trips. A remote NIC of which *nothing* comes in a whole
//! timeout, thousands of round trips, has no queue that a smaller window would drain: it is gone,
//! or the way to it is. So the TIMEOUT of an op after which no other was answered, a *silent* one,
//! moves no window. It changes a state, which the two directions share:
//!
//! | state | begins with | ops | queued calls |
//! |---|---|---|---|
//! | healthy | an answer | as windows, pace and turns have it | wait for these |
//! | suspect | a silent TIMEOUT | a probe at once, a further one every [`PROBE_EVERY`] | wait |
//! | dead | the fourth silent TIMEOUT, that of a probe, or no slot for a probe in a timeout | probes as above | end when `outlast` is over |
//! | probing | a probe of a dead one is issued | as above | as above |
//!
//! A *probe* is the next op of a call that waits, or of one that is submitted just then: without
//! calls nothing is sent. Probes of all remote NICs together have a part of the slots, in turns
//! ([`PROBES_PART`]), so that a rack that is gone does not hold the executor.
//!
//! Every completion is an answer but TIMEOUT, DISPATCH_TIMEOUT and INVALID_COMMAND: also NACK and
//! failed authentication. After one of these the remote NIC is healthy at once, with the windows
//! that it had, halved ([`Peers::revive`]).
//!
//! This module knows states and times; what they mean for calls and paths is in `silence`.
//!
//! Invariant: each path is of one peer; a peer is in `silent` exactly while it is not healthy.

use std::collections::VecDeque;

use super::paths::RESERVED_PART;
use crate::{
    cc::RemoteWindowId,
    op::{Moves, OpStatus},
    time::Instant,
};

/// How many silent TIMEOUTs in a row make a remote NIC dead, if none of them is a probe's. Fewer: a
/// burst of loss that hits all that is under way to a remote NIC ends calls that another op would
/// have saved. More: with few ops under way it takes a probe, which is one timeout more.
const SILENT_TIMEOUTS: u32 = 4;

/// How much later than the last probe the next one begins, in parts of four of the NIC's timeout,
/// and at most in nanoseconds. A probe lives for a timeout, so with three quarters one is always
/// under way, and a remote NIC that pauses finds one in its queue when it goes on. Shorter: probes
/// of dead remote NICs hold more slots. Longer: it is noticed later that a remote NIC is back.
const PROBE_EVERY: u64 = 3;
const PROBE_EVERY_MAX: u64 = 250_000_000;

/// How long before its time is over a call may be a probe at the latest, in parts of eight of the
/// NIC's timeout. Shorter: a call ends later for having been one; with a quarter, one that outlasts
/// 2 1/4 timeouts takes three, and what the engine needs besides. Longer: after a pause of two
/// timeouts no call is left that may ask.
const PROBE_MARGIN: u64 = 3;

/// The part of the slots that probes may have, at least one: what bulk transfers leave free.
/// Smaller: calls of a rack that is gone take more slots from hosts that are there. Larger: each of
/// its hosts is asked less often.
const PROBES_PART: usize = RESERVED_PART;

/// Deaths so close to each other, in nanoseconds, halve the windows once more each: a path that is
/// silent as it is congested gets an ever smaller start.
const DEATHS_TOGETHER: u64 = 10_000_000_000;

/// Of a remote NIC from which nothing has come for this part of a timeout, no TIMEOUT is
/// congestion. Smaller: a loss that is followed by nothing else cuts a window. Larger: a host that
/// dies leaves windows behind that are cut.
const QUIET_PART: u64 = 2;

/// The most halvings: then every window is at one op.
const HALVINGS_MAX: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Healthy,
    Suspect,
    /// With probes under way: probing.
    Dead,
}

/// One remote NIC.
#[derive(Debug)]
pub(super) struct Peer {
    /// By the way that data moves; [`RemoteWindowId::NONE`] if there is no such path.
    pub(super) paths: [RemoteWindowId; 2],
    state: State,
    /// The last op that it has answered, by the executor's count: what was issued before was lost
    /// alone, if it was.
    answered: u64,
    /// When its last answer was seen.
    answered_at: Instant,
    /// The first op that was issued after the last silence, in which ops may have been lost whose
    /// timeouts come later.
    returned: u64,
    /// When the op was issued whose TIMEOUT was the first of this silence.
    silent_since: Instant,
    /// How many ops have timed out since.
    tried: u32,
    /// When the last probe of this silence was issued.
    probed_at: Option<Instant>,
    /// How many are under way.
    probes: u16,
    /// Since when it waits for its turn to probe.
    in_turn: Option<Instant>,
    /// The call that was submitted when a probe was due: it is the probe.
    fresh: Option<u16>,
    /// How often it has died, not longer than [`DEATHS_TOGETHER`] after the time before; and when
    /// it did last.
    deaths: u32,
    died_at: Instant,
}

impl Peer {
    const NEW: Self = Self {
        paths: [RemoteWindowId::NONE; 2],
        state: State::Healthy,
        answered: 0,
        answered_at: Instant::ZERO,
        returned: 0,
        silent_since: Instant::ZERO,
        tried: 0,
        probed_at: None,
        probes: 0,
        in_turn: None,
        fresh: None,
        deaths: 0,
        died_at: Instant::ZERO,
    };

    pub(super) fn is_silent(&self) -> bool {
        self.state != State::Healthy
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// For how long it has been silent, in nanoseconds, and how many ops have timed out.
    pub(super) const fn silence(&self, now: Instant) -> (u64, u32) {
        (now.nanos_since(self.silent_since), self.tried)
    }

    /// When a call's time with a silent remote NIC is over: `outlast` nanoseconds after the silence
    /// began, or after `since`, when the call had its last success or began.
    pub(super) fn gives_up_at(&self, since: Instant, outlast: u64) -> Instant {
        self.silent_since.max(since).after_nanos(outlast)
    }

    /// Since when it waits for its turn to probe.
    pub(super) const fn in_turn(&self) -> Option<Instant> {
        self.in_turn
    }

    /// The call that the executor probes with next, if there is one.
    pub(super) const fn fresh(&self) -> Option<u16> {
        self.fresh
    }

    fn die(&mut self, now: Instant) {
        if self.state == State::Dead {
            return;
        }
        self.state = State::Dead;
        let is_near = self.deaths > 0 && now.nanos_since(self.died_at) < DEATHS_TOGETHER;
        self.deaths = if is_near { self.deaths + 1 } else { 1 };
        self.died_at = now;
    }
}

/// How many remote NICs do not answer, of those that an executor has asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SilentPeers {
    /// Suspects: an op has timed out, and nothing has come since it was issued. Calls wait for a
    /// probe.
    pub suspect: usize,
    /// Dead ones, without those that follow: calls end with
    /// [`PeerSilent`](super::CallStatus::PeerSilent).
    pub dead: usize,
    /// Dead ones that are being probed.
    pub probing: usize,
}

/// The news of a completion about its remote NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It answers.
    Answer,
    /// It answers again.
    Return,
    /// It answers other ops: this one was lost.
    Loss,
    /// It does not answer.
    Silence,
    /// It did not answer around the time when this op was lost: it has been quiet since, or it was
    /// silent then.
    PastSilence,
    /// The op never got there.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Peers {
    peers: Vec<Peer>,
    /// Places of peers of which no path is left.
    unused: Vec<u32>,
    /// The peer of each path.
    of: Vec<u32>,
    /// Those that are not healthy.
    silent: Vec<u32>,
    /// Silent ones with a probe to issue, in turns.
    turns: VecDeque<u32>,
    probes: usize,
    probes_max: usize,
    /// When calls of silent peers must be looked at; `None`: when something happens.
    wake_at: Option<Instant>,
    /// The NIC's timeout, in nanoseconds.
    timeout: u64,
}

/// The path is of no peer yet.
const NONE: u32 = u32::MAX;

impl Peers {
    /// No peer yet: they come to be as they are used. `timeout`: the NIC's, in nanoseconds.
    pub(super) fn new(remotes: u32, slots: usize, timeout: u64) -> Self {
        let remotes = remotes as usize;
        Self {
            peers: Vec::with_capacity(remotes),
            unused: Vec::with_capacity(remotes),
            of: Vec::with_capacity(remotes),
            silent: Vec::with_capacity(remotes),
            turns: VecDeque::with_capacity(remotes),
            probes: 0,
            probes_max: (slots / PROBES_PART).max(1),
            wake_at: None,
            timeout,
        }
    }

    /// Takes note of a path that is new or was another's. `twin` is that to the same remote NIC in
    /// the other way. Whether the remote NIC is silent.
    pub(super) fn begin(
        &mut self,
        path: RemoteWindowId,
        moves: Moves,
        twin: Option<RemoteWindowId>,
    ) -> bool {
        if self.of.len() <= path.index() {
            self.of.resize(path.index() + 1, NONE);
        }
        self.leave(path);
        let id = match twin {
            Some(twin) => self.of[twin.index()],
            None => self.unused.pop().unwrap_or_else(|| {
                self.peers.push(Peer::NEW);
                self.peers.len() as u32 - 1
            }),
        };
        self.of[path.index()] = id;
        let peer = &mut self.peers[id as usize];
        peer.paths[moves as usize] = path;
        peer.is_silent()
    }

    /// The path is forgotten, and its peer with the last of its paths.
    fn leave(&mut self, path: RemoteWindowId) {
        let id = core::mem::replace(&mut self.of[path.index()], NONE);
        let Some(peer) = self.peers.get_mut(id as usize) else { return };
        for it in peer.paths.iter_mut().filter(|it| **it == path) {
            *it = RemoteWindowId::NONE;
        }
        if peer.paths == [RemoteWindowId::NONE; 2] {
            self.forget_silence(id);
            self.peers[id as usize] = Peer::NEW;
            self.unused.push(id);
        }
    }

    /// Takes a peer out of all lists of silent ones.
    fn forget_silence(&mut self, id: u32) {
        if self.peers[id as usize].is_silent() {
            self.silent.retain(|&it| it != id);
            self.turns.retain(|&it| it != id);
        }
    }

    #[inline]
    pub(super) fn of(&self, path: RemoteWindowId) -> &Peer {
        &self.peers[self.of[path.index()] as usize]
    }

    /// Learns from the end of an op that was `issued` then on `path`, with this `number` among all
    /// ops.
    #[inline]
    pub(super) fn hear(
        &mut self,
        now: Instant,
        path: RemoteWindowId,
        status: OpStatus,
        number: u64,
        issued: Instant,
    ) -> Heard {
        let peer = &mut self.peers[self.of[path.index()] as usize];
        match status {
            OpStatus::Timeout => self.hear_timeout(now, path, number, issued),
            OpStatus::DispatchTimeout | OpStatus::InvalidCommand => Heard::Nothing,
            OpStatus::Ok
            | OpStatus::RemoteAuthenticationFailure
            | OpStatus::Nack
            | OpStatus::RemoteOutOfBounds
            | OpStatus::RemotePermissionDenied
            | OpStatus::RemoteNotReady => {
                peer.answered = peer.answered.max(number);
                peer.answered_at = now;
                if peer.is_silent() { Heard::Return } else { Heard::Answer }
            }
        }
    }

    #[cold]
    fn hear_timeout(
        &mut self,
        now: Instant,
        path: RemoteWindowId,
        number: u64,
        issued: Instant,
    ) -> Heard {
        let id = self.of[path.index()];
        let peer = &mut self.peers[id as usize];
        if number < peer.returned {
            return Heard::PastSilence;
        }
        if number < peer.answered {
            // Its last answers overtook those that were lost with it.
            let is_quiet = now.nanos_since(peer.answered_at) >= self.timeout / QUIET_PART;
            return if is_quiet { Heard::PastSilence } else { Heard::Loss };
        }
        if !peer.is_silent() {
            (peer.state, peer.silent_since, peer.tried) = (State::Suspect, issued, 0);
            self.silent.push(id);
        }
        peer.tried = peer.tried.saturating_add(1);
        if peer.tried >= SILENT_TIMEOUTS {
            peer.die(now);
        }
        self.wake_at(now);
        Heard::Silence
    }

    /// A probe is over, and said this.
    pub(super) fn end_probe(&mut self, now: Instant, path: RemoteWindowId, heard: Heard) {
        self.probes -= 1;
        let peer = &mut self.peers[self.of[path.index()] as usize];
        peer.probes -= 1;
        if !peer.is_silent() {
            return;
        }
        match heard {
            Heard::Silence => peer.die(now),
            // As if it had not been.
            _ => peer.probed_at = None,
        }
        self.wake_at(now);
    }

    /// The peer of `path` answers again: it is healthy. Its paths, and how often their windows must
    /// be halved. `next`: the number of the next op that will be issued.
    pub(super) fn revive(
        &mut self,
        now: Instant,
        path: RemoteWindowId,
        next: u64,
    ) -> ([RemoteWindowId; 2], u32) {
        let id = self.of[path.index()];
        self.forget_silence(id);
        let peer = &mut self.peers[id as usize];
        (peer.state, peer.returned) = (State::Healthy, next);
        (peer.probed_at, peer.in_turn, peer.fresh) = (None, None, None);
        let is_near = now.nanos_since(peer.died_at) < DEATHS_TOGETHER;
        let deaths = if is_near { peer.deaths } else { 0 };
        (peer.paths, deaths.clamp(1, HALVINGS_MAX))
    }

    /// Has the calls of silent peers looked at, not later than at this time.
    pub(super) fn wake_at(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }

    /// Whether that time has come; then there is no such time any longer.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.wake_at.is_some_and(|at| at <= now);
        if is_due {
            self.wake_at = None;
        }
        is_due
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.wake_at
    }

    /// The least time between two looks at the calls of silent peers that nothing has happened to,
    /// in nanoseconds. Each looks at all of them: so none ends much later than its time, and
    /// looking is no work.
    pub(super) const fn attend_every(&self) -> u64 {
        self.timeout / 32
    }

    /// How many peers are silent, and each of them.
    pub(super) fn silent(&self) -> usize {
        self.silent.len()
    }

    pub(super) fn nth_silent(&self, place: usize) -> (u32, &Peer) {
        let id = self.silent[place];
        (id, &self.peers[id as usize])
    }

    /// The NIC's timeout, in nanoseconds.
    pub(super) const fn timeout(&self) -> u64 {
        self.timeout
    }

    /// When the next probe of `peer` is due.
    pub(super) fn probe_at(&self, peer: &Peer) -> Instant {
        let every = (self.timeout / 4 * PROBE_EVERY).min(PROBE_EVERY_MAX);
        peer.probed_at.map_or(Instant::ZERO, |at| at.after_nanos(every))
    }

    /// Whether a call with such an `outlast`, which had its last success or began at `since`, may
    /// be a probe of `peer`. Not one whose time is nearly over, so that none ends much later for
    /// having been one; but the first one of a suspicion is what the first call would have issued
    /// anyway.
    pub(super) fn may_probe(
        &self,
        now: Instant,
        peer: &Peer,
        since: Instant,
        outlast: u64,
    ) -> bool {
        let is_first = peer.state == State::Suspect && peer.probed_at.is_none();
        let margin = outlast.min(self.timeout / 8 * PROBE_MARGIN);
        is_first || now.after_nanos(margin) <= peer.gives_up_at(since, outlast)
    }

    /// A suspect has waited for its turn for a timeout: it is dead.
    pub(super) fn tires(&mut self, now: Instant, id: u32) {
        let peer = &mut self.peers[id as usize];
        let is_tired = |since: Instant| now.nanos_since(since) >= self.timeout;
        if peer.state == State::Suspect && peer.in_turn.is_some_and(is_tired) {
            peer.die(now);
        }
    }

    /// When [`Peers::tires`] must be asked of a peer that waits for its turn since then.
    pub(super) const fn tires_at(&self, since: Instant) -> Instant {
        since.after_nanos(self.timeout)
    }

    /// Has a silent peer wait for its turn to probe.
    pub(super) fn take_turn(&mut self, now: Instant, id: u32) {
        let peer = &mut self.peers[id as usize];
        if peer.in_turn.is_none() {
            peer.in_turn = Some(now);
            self.turns.push_back(id);
        }
    }

    /// Lets a call that begins now, on a path of a silent peer, be its probe: if one is due, and is
    /// certain to be issued with the next ops, of which `free` can be. Whether it is.
    pub(super) fn take_turn_at_once(
        &mut self,
        now: Instant,
        path: RemoteWindowId,
        call: u16,
        free: usize,
    ) -> bool {
        let room = free.min(self.probes_max - self.probes.min(self.probes_max));
        let id = self.of[path.index()];
        let peer = &self.peers[id as usize];
        if peer.in_turn.is_some() || self.probe_at(peer) > now || self.turns.len() >= room {
            return false;
        }
        self.take_turn(now, id);
        self.peers[id as usize].fresh = Some(call);
        true
    }

    /// Whether a silent peer waits for its turn to probe.
    pub(super) fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The next silent peer whose turn it is to probe, if there may be a probe.
    /// [`Peers::begin_probe`] must follow, if there is a call for it.
    pub(super) fn next_turn(&mut self) -> Option<(u32, Option<u16>)> {
        if self.probes >= self.probes_max {
            return None;
        }
        let id = self.turns.pop_front()?;
        let peer = &mut self.peers[id as usize];
        peer.in_turn = None;
        Some((id, peer.fresh.take()))
    }

    pub(super) fn peer(&self, id: u32) -> &Peer {
        &self.peers[id as usize]
    }

    /// A probe is issued.
    pub(super) fn begin_probe(&mut self, now: Instant, id: u32) {
        self.probes += 1;
        let peer = &mut self.peers[id as usize];
        peer.probes += 1;
        peer.probed_at = Some(now);
        let next = self.probe_at(&self.peers[id as usize]);
        self.wake_at(next);
    }

    /// How many there are in each state.
    pub(super) fn count(&self) -> SilentPeers {
        let mut count = SilentPeers::default();
        for &id in &self.silent {
            let peer = &self.peers[id as usize];
            *match (peer.state, peer.probes) {
                (State::Dead, 0) => &mut count.dead,
                (State::Dead, _) => &mut count.probing,
                (State::Suspect | State::Healthy, _) => &mut count.suspect,
            } += 1;
        }
        count
    }
}
