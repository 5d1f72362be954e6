//! Which call issues the next op: turns of paths, of classes of service, and of calls.
//!
//! A path is one remote NIC in one direction: what a remote congestion window is for. It is *ready* while it has
//! calls with something to issue and neither its window nor its pace is known to forbid it. Ready paths wait in a
//! ring. One that may not issue leaves it, and returns when a completion opens its window, or when its time has come.

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
    /// Its window is full: it waits for a completion.
    Full,
    /// It waits for the time of its next op.
    Paced,
}

#[derive(Debug)]
struct Path {
    state: State,
    /// Which class is asked first.
    first: ClassOfService,
    /// Calls with something to issue, by class.
    calls: [IndexList; 2],
    /// What ops under way take of the window, in bytes.
    outstanding: u64,
    /// When the next op may be issued.
    next_at: Instant,
}

impl Path {
    fn has_calls(&self) -> bool {
        self.calls.iter().any(|calls| !calls.is_empty())
    }
}

/// What a path may do.
pub(super) enum Turn {
    /// An op of this call may be issued.
    Issue(Issue),
    /// Of its calls, all are of the throughput class, and the free slots are not for those.
    NoSlot,
    /// Nothing now. It will be ready when that changes.
    Nothing,
}

/// An op that may be issued.
pub(super) struct Issue {
    pub(super) call: u16,
    /// What the op takes of the path's window.
    pub(super) charge: u32,
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
}

impl Paths {
    /// No path yet: they come to be as they are used, at most `remotes`.
    pub(super) fn new(remotes: u32, calls: u16) -> Self {
        let remotes = remotes as usize;
        Self {
            paths: Vec::with_capacity(remotes),
            links: Links::new(calls.into()),
            queued: vec![false; calls.into()].into(),
            ready: VecDeque::with_capacity(remotes),
            paced: BinaryHeap::with_capacity(remotes),
        }
    }

    fn path(&mut self, id: RemoteWindowId) -> &mut Path {
        &mut self.paths[id.index()]
    }

    /// `call` has something to issue.
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        id: RemoteWindowId,
        class: ClassOfService,
        call: u16,
    ) {
        while self.paths.len() <= id.index() {
            self.paths.push(Path {
                state: State::Idle,
                first: ClassOfService::Latency,
                calls: [IndexList::new(), IndexList::new()],
                outstanding: 0,
                next_at: Instant::ZERO,
            });
        }
        if core::mem::replace(&mut self.queued[usize::from(call)], true) {
            return;
        }
        let path = &mut self.paths[id.index()];
        path.calls[class as usize].push_back(&mut self.links, call);
        if path.state == State::Idle {
            // Time in which there was nothing to issue is not saved up.
            path.next_at = path.next_at.max(now);
            path.state = State::Ready;
            self.ready.push_back(id.index() as u32);
        }
    }

    /// `call` has nothing to issue, or no more.
    pub(super) fn dequeue(&mut self, id: RemoteWindowId, class: ClassOfService, call: u16) {
        if core::mem::replace(&mut self.queued[usize::from(call)], false) {
            let path = &mut self.paths[id.index()];
            path.calls[class as usize].remove(&mut self.links, call);
        }
    }

    /// An op is over that took `charge` of the window, which may have changed.
    pub(super) fn on_completion(&mut self, id: RemoteWindowId, charge: u32) {
        let path = self.path(id);
        path.outstanding -= u64::from(charge);
        if path.state == State::Full {
            path.state = State::Ready;
            self.ready.push_back(id.index() as u32);
        }
    }

    /// The time of paths may have come.
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

    /// The path whose turn it is. [`Paths::turn`] is to follow.
    pub(super) fn next(&self) -> Option<RemoteWindowId> {
        self.ready.front().map(|&path| RemoteWindowId::from_index(path))
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The turn of the path that is [`Paths::next`]. Its next one comes after those of all others.
    ///
    /// `bulk`: whether ops of the throughput class may be issued. `len`: how many bytes the next op of a call has,
    /// and whether it has another after that.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        window: &Window,
        bulk: bool,
        next_len: impl Fn(u16) -> u32,
    ) -> Turn {
        let Some(index) = self.ready.pop_front() else { return Turn::Nothing };
        let path = &mut self.paths[index as usize];
        if !path.has_calls() {
            path.state = State::Idle;
            return Turn::Nothing;
        }
        if path.next_at > now {
            path.state = State::Paced;
            self.paced.push(Reverse((path.next_at, index)));
            return Turn::Nothing;
        }
        let classes = [path.first, path.first.other()];
        let may = |class: &ClassOfService| {
            (bulk || *class == ClassOfService::Latency) && !path.calls[*class as usize].is_empty()
        };
        let Some(class) = classes.into_iter().find(may) else {
            self.ready.push_back(index);
            return Turn::NoSlot;
        };
        let call = path.calls[class as usize].front().expect("it is not empty");
        let len = next_len(call);
        if !window.admits(path.outstanding, len) {
            path.state = State::Full;
            return Turn::Nothing;
        }
        path.first = class.other();
        let charge = window.charge(len);
        path.outstanding += u64::from(charge);
        let slack = window.rtt().nanos() as u64 / SLACK_PART;
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(slack));
        path.next_at = path.next_at.max(earliest).after_nanos(window.pacing_interval_nanos(len));
        // To the end of its list.
        path.calls[class as usize].remove(&mut self.links, call);
        path.calls[class as usize].push_back(&mut self.links, call);
        self.ready.push_back(index);
        Turn::Issue(Issue { call, charge })
    }
}

/// What part of a round trip ops may be late by and still keep their pace, as the application's thread looks only now
/// and then. Smaller: a thread that looks seldom falls behind the window. Larger: it makes bursts.
const SLACK_PART: u64 = 2;
