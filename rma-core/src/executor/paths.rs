//! The choice of the call that issues the next op: turns of paths, of classes of service, and of
//! calls.
//!
//! A path is one remote NIC in one direction: what a remote congestion window is for. It is *ready*
//! while it has calls with something to issue and nothing is known to forbid it. Ready paths wait
//! in a ring. One that may not issue leaves it, and returns when a completion opens its window,
//! when its time has come, or when ops of the throughput class may have slots again; then before
//! all others, as it has not had its turn.

use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::{
    cc::{RemoteWindowId, Window},
    index_list::{IndexList, Links},
    op::ClassOfService,
    time::Instant,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has nothing to issue.
    Idle,
    /// It is in the ring.
    Ready,
    /// Its window is full, or it has its share of the slots: it waits for a completion.
    Full,
    /// It waits for the time of its next op.
    Paced,
    /// It has ops of the throughput class alone, and these have all the slots that they may have.
    NoSlot,
    /// Its remote NIC is silent.
    Barred,
}

#[derive(Debug)]
struct Path {
    state: State,
    /// The class that is asked first.
    first: ClassOfService,
    /// The other class went before it, as the window had room for a small op only. Once is enough.
    passed_over: bool,
    /// Calls with something to issue, by class.
    calls: [IndexList; 2],
    /// The charge of ops under way on the window, in bytes.
    outstanding: u64,
    /// Ops of the throughput class under way.
    bulk: usize,
    /// Whether it is in the queue for slots of the throughput class.
    awaits_slot: bool,
    /// Its remote NIC is silent: no op is issued but probes.
    is_barred: bool,
    /// When the next op may be issued.
    next_at: Instant,
}

impl Path {
    const NEW: Self = Self {
        state: State::Idle,
        first: ClassOfService::Latency,
        passed_over: false,
        calls: [IndexList::new(), IndexList::new()],
        outstanding: 0,
        bulk: 0,
        awaits_slot: false,
        is_barred: false,
        next_at: Instant::ZERO,
    };

    fn has_calls(&self) -> bool {
        self.calls.iter().any(|calls| !calls.is_empty())
    }

    fn has(&self, class: ClassOfService) -> bool {
        !self.calls[class as usize].is_empty()
    }

    /// Whether it takes part in sharing the slots of the throughput class.
    fn is_bulk(&self) -> bool {
        self.bulk > 0 || !self.is_barred && self.has(ClassOfService::Throughput)
    }
}

/// The next action of a path.
pub(super) enum Turn {
    /// An op of this call may be issued.
    Issue(Issue),
    /// Nothing now. It will be ready when that changes.
    Nothing,
}

/// The next op of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    /// How many bytes it has.
    pub(super) len: u32,
    /// Whether the call has nothing to issue after it.
    pub(super) is_last: bool,
}

/// An op that may be issued. It must be: its call is out of its list if that was its last.
pub(super) struct Issue {
    pub(super) call: u16,
    /// The room that the op takes of the path's window.
    pub(super) charge: u32,
    /// The room that all ops of the path take of it, this one among them.
    pub(super) outstanding: u64,
}

#[derive(Debug)]
pub(super) struct Paths {
    paths: Vec<Path>,
    /// Of calls: each waits in one list of its path at most.
    links: Links,
    /// Whether a call is in a list.
    queued: Box<[bool]>,
    ready: VecDeque<u32>,
    paced: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Paths that wait for slots of the throughput class, in the order of their turns.
    without_slot: VecDeque<u32>,
    /// How many slots ops of the throughput class may have, how many they have, and of how many
    /// paths.
    bulk_slots: usize,
    bulk: usize,
    bulk_paths: usize,
}

impl Paths {
    /// No path yet: they come to be as they are used, at most `remotes`.
    pub(super) fn new(remotes: u32, calls: u16, slots: usize) -> Self {
        let remotes = remotes as usize;
        let reserved = if slots > 1 { (slots / RESERVED_PART).max(1) } else { 0 };
        Self {
            paths: Vec::with_capacity(remotes),
            links: Links::new(calls.into()),
            queued: vec![false; calls.into()].into(),
            ready: VecDeque::with_capacity(remotes),
            paced: BinaryHeap::with_capacity(remotes),
            without_slot: VecDeque::with_capacity(remotes),
            bulk_slots: slots - reserved,
            bulk: 0,
            bulk_paths: 0,
        }
    }

    /// The path of a remote window that nobody had before, or whose place was another's; to a
    /// remote NIC that is silent, or not.
    pub(super) fn begin(&mut self, id: RemoteWindowId, is_silent: bool) {
        let index = id.index();
        while self.paths.len() <= index {
            self.paths.push(Path::NEW);
        }
        let path = &mut self.paths[index];
        if path.state == State::Paced {
            self.paced.retain(|&Reverse((_, paced))| paced as usize != index);
        }
        // Nobody will return it to the ring for what the last one waited for.
        if matches!(path.state, State::Paced | State::Barred) {
            path.state = State::Idle;
        }
        path.next_at = Instant::ZERO;
        path.is_barred = is_silent;
    }

    /// The remote NIC of a path is silent: nothing is issued there but what [`Paths::probe`] says.
    pub(super) fn bar(&mut self, id: RemoteWindowId) {
        let path = &mut self.paths[id.index()];
        let was_bulk = path.is_bulk();
        path.is_barred = true;
        self.bulk_paths -= usize::from(was_bulk && !path.is_bulk());
    }

    /// The remote NIC of a path answers again.
    pub(super) fn unbar(&mut self, now: Instant, id: RemoteWindowId) {
        let path = &mut self.paths[id.index()];
        let was_bulk = path.is_bulk();
        path.is_barred = false;
        self.bulk_paths += usize::from(path.is_bulk() && !was_bulk);
        if path.state == State::Barred {
            // Time in which nothing might be issued is not saved up.
            path.next_at = path.next_at.max(now);
            path.state = State::Ready;
            self.ready.push_back(id.index() as u32);
        }
    }

    /// Whether the remote NIC of a path is silent.
    #[inline]
    pub(super) fn is_barred(&self, id: RemoteWindowId) -> bool {
        self.paths[id.index()].is_barred
    }

    /// The calls of a path that have something to issue.
    pub(super) fn calls(&self, id: RemoteWindowId) -> impl Iterator<Item = u16> {
        self.paths[id.index()].calls.iter().flat_map(|calls| calls.iter(&self.links))
    }

    /// Whether `call` has something to issue.
    pub(super) fn is_queued(&self, call: u16) -> bool {
        self.queued[usize::from(call)]
    }

    /// An op of `call`, on a path that is barred, whatever window, pace and slots of its class say:
    /// the caller has a slot for it.
    #[cold]
    pub(super) fn probe(
        &mut self,
        now: Instant,
        id: RemoteWindowId,
        window: &Window,
        class: ClassOfService,
        call: u16,
        next: Next,
    ) -> Issue {
        let was_bulk = self.paths[id.index()].is_bulk();
        let issue = self.take(now, id.index(), window, class, call, next);
        self.bulk_paths += usize::from(self.paths[id.index()].is_bulk() && !was_bulk);
        issue
    }

    /// `call` has something to issue.
    #[inline]
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        id: RemoteWindowId,
        class: ClassOfService,
        call: u16,
    ) {
        if core::mem::replace(&mut self.queued[usize::from(call)], true) {
            return;
        }
        let path = &mut self.paths[id.index()];
        let is_first = !path.has(class);
        let becomes_bulk =
            class == ClassOfService::Throughput && !path.is_barred && !path.is_bulk();
        path.calls[class as usize].push_back(&mut self.links, call);
        self.bulk_paths += usize::from(becomes_bulk);
        match path.state {
            State::Idle => {
                // Time in which there was nothing to issue is not saved up.
                path.next_at = path.next_at.max(now);
                path.state = State::Ready;
                self.ready.push_back(id.index() as u32);
            }
            // It has something now that needs no such slot, or may be small enough for what is left
            // of its window. Of those that wait for a slot it keeps its place.
            State::NoSlot | State::Full if class == ClassOfService::Latency && is_first => {
                path.state = State::Ready;
                self.ready.push_back(id.index() as u32);
            }
            State::Ready | State::Full | State::Paced | State::NoSlot | State::Barred => {}
        }
    }

    /// `call` has nothing to issue, or no more.
    pub(super) fn dequeue(&mut self, id: RemoteWindowId, class: ClassOfService, call: u16) {
        if core::mem::replace(&mut self.queued[usize::from(call)], false) {
            let path = &mut self.paths[id.index()];
            let was_bulk = path.is_bulk();
            path.calls[class as usize].remove(&mut self.links, call);
            self.bulk_paths -= usize::from(was_bulk && !path.is_bulk());
        }
    }

    /// An op is over that took `charge` of the window, which may have changed.
    #[inline]
    pub(super) fn on_completion(&mut self, id: RemoteWindowId, class: ClassOfService, charge: u32) {
        let path = &mut self.paths[id.index()];
        path.outstanding -= u64::from(charge);
        if class == ClassOfService::Throughput {
            path.bulk -= 1;
            self.bulk -= 1;
            self.bulk_paths -= usize::from(!path.is_bulk());
        }
        if path.state == State::Full {
            path.state = State::Ready;
            self.ready.push_back(id.index() as u32);
        }
    }

    /// Paths whose time has come are ready.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(&Reverse((at, path))) = self.paced.peek()
            && at <= now
        {
            self.paced.pop();
            self.paths[path as usize].state = State::Ready;
            self.ready.push_back(path);
        }
    }

    /// When the time of the next path comes.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.paced.peek().map(|&Reverse((at, _))| at)
    }

    /// The path whose turn it is. [`Paths::turn`] must follow.
    #[inline]
    pub(super) fn next(&mut self) -> Option<RemoteWindowId> {
        while self.bulk < self.bulk_slots
            && let Some(index) = self.without_slot.pop_front()
        {
            let path = &mut self.paths[index as usize];
            path.awaits_slot = false;
            if path.state == State::NoSlot {
                path.state = State::Ready;
                self.ready.push_front(index);
                break;
            }
        }
        self.ready.front().map(|&path| RemoteWindowId::from_index(path))
    }

    /// The turn of the path that is [`Paths::next`]. Its next one comes after those of all others.
    /// `next_of`: the next op of a call.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        window: &Window,
        next_of: impl Fn(u16) -> Next,
    ) -> Turn {
        let Some(index) = self.ready.pop_front() else { return Turn::Nothing };
        let path = &mut self.paths[index as usize];
        if !path.has_calls() {
            path.state = State::Idle;
            return Turn::Nothing;
        }
        if path.is_barred {
            path.state = State::Barred;
            return Turn::Nothing;
        }
        if path.next_at > now {
            path.state = State::Paced;
            self.paced.push(Reverse((path.next_at, index)));
            return Turn::Nothing;
        }
        let has_room = self.bulk < self.bulk_slots;
        if !has_room && !path.has(ClassOfService::Latency) {
            path.state = State::NoSlot;
            if !core::mem::replace(&mut path.awaits_slot, true) {
                self.without_slot.push_back(index);
            }
            return Turn::Nothing;
        }
        // Those of hosts that do not answer come back late: none has all, and all have equal
        // shares.
        let share = || {
            let most = self.bulk_slots - self.bulk_slots / 4;
            most.min(self.bulk_slots / self.bulk_paths.max(1)).max(1)
        };
        let may = |class| class == ClassOfService::Latency || has_room && path.bulk < share();
        let head = |class: ClassOfService| {
            let call = path.calls[class as usize].front().filter(|_| may(class))?;
            let next = next_of(call);
            window.admits(path.outstanding, next.len).then_some((class, call, next))
        };
        let first = path.first;
        let chosen = head(first).or_else(|| {
            // Room in the window is kept for the class that was passed over, if room is what it
            // lacks.
            let keeps = path.passed_over && path.has(first) && may(first);
            if keeps { None } else { head(first.other()) }
        });
        let Some((class, call, next)) = chosen else {
            path.state = State::Full;
            return Turn::Nothing;
        };
        // A class that could not go had no turn.
        path.passed_over = class != first && path.has(first);
        if !path.passed_over {
            path.first = class.other();
        }
        let issue = self.take(now, index as usize, window, class, call, next);
        self.ready.push_back(index);
        Turn::Issue(issue)
    }

    /// Takes the next op of `call` from its list, and notes what it takes of window, pace and
    /// slots.
    // It has two callers, and that for probes is seldom there: a call costs more.
    #[inline(always)]
    fn take(
        &mut self,
        now: Instant,
        index: usize,
        window: &Window,
        class: ClassOfService,
        call: u16,
        Next { len, is_last }: Next,
    ) -> Issue {
        let path = &mut self.paths[index];
        if class == ClassOfService::Throughput {
            path.bulk += 1;
            self.bulk += 1;
        }
        let charge = window.charge(len);
        path.outstanding += u64::from(charge);
        let outstanding = path.outstanding;
        let slack = window.rtt().best_nanos() as u64 / SLACK_PART;
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(slack));
        path.next_at = path.next_at.max(earliest).after_nanos(window.pacing_interval_nanos(len));
        // To the end of its list, if it has more.
        let calls = &mut path.calls[class as usize];
        calls.remove(&mut self.links, call);
        if is_last {
            self.queued[usize::from(call)] = false;
        } else {
            calls.push_back(&mut self.links, call);
        }
        Issue { call, charge, outstanding }
    }
}

/// The part of a round trip by which ops may be late and still keep their pace, as the
/// application's thread looks only now and then. Smaller: a thread that looks seldom falls behind
/// the window. Larger: it makes bursts.
const SLACK_PART: u64 = 2;

/// The part of the slots that ops of the throughput class leave free, at least one if there are
/// two. Smaller: bulk transfers have more slots. Larger: more small ops find one at once when hosts
/// do not answer.
pub(super) const RESERVED_PART: usize = 8;
