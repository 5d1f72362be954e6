//! The bytes that may be under way to each peer, and whose turn it is (ours: the paper paces
//! nothing).
//!
//! A *path* is the address of a peer and a way that data moves. All connections to the peer share
//! the path's congestion window, that of 1RMA ([`rma_core::cc`]), and so many stateful sides share
//! one stateless side as initiators of 1RMA share a NIC. The clock is the round trip of a chunk
//! from when it is written until its answer is here: waiting in the network, before the peer's
//! engine and for its answer are all in it, as in the remote delay of 1RMA. What waits before this
//! host's device has not been written yet, so there is no local delay.
//!
//! Connections that have a chunk to send wait in the list of its path, and take turns: each sends
//! one chunk, or several small ones, so that these are answered together, and so that what the
//! peer's application posts for them is together in its queue. A path is ready while it has one and
//! its window is open. Windows below one op are paced by time.
//!
//! A chunk counts until it is answered, its connection ends, or it is lost for the second time; but
//! what is sent again waits for no window: connections to a peer that is gone would wait for each
//! other, and none would end in time (S1). Their timers are what keeps such frames apart. A chunk
//! that is not answered in time cuts the window, those that were under way together with it once.
//! One that is lost a third time cuts nothing: if it went on to count, a peer that has started
//! again would get nothing for as long as what is sent to its last life.
//! EAs, CQEPs, questions and probes count nowhere: they are as few as what the peer has posted, and
//! asked at any time they end what is dead.
//!
//! Invariants: there are as many windows as connections can hold, so peers' addresses never fill
//! the table; nothing is allocated after [`Paths::new`].

use core::{cmp::Reverse, time::Duration};
use std::collections::BinaryHeap;

use rma_core::{
    addr::HostAddr,
    cc::{CcConfig, CongestionControl, Feedback, RemoteWindowId},
    index_list::{IndexList, Links},
    op::OpStatus,
    packet::SMALL,
    time::Instant,
};

use super::work::Way;

/// Both ways, each at its own place in what there is for both.
pub(super) const WAYS: [Way; 2] = [Way::Push, Way::Pull];

/// The part of a round trip by which chunks may be late and still keep their pace, as an engine
/// looks only now and then. Smaller: an engine with much to do falls behind the window. Larger: it
/// makes bursts.
const SLACK_PART: u64 = 2;

/// The place of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nobody has a chunk for it, or its window is closed.
    Idle,
    /// In the list of those that may send.
    Ready,
    /// Its next chunk may go at some time.
    Paced,
}

/// One path.
#[derive(Debug)]
struct Path {
    id: RemoteWindowId,
    way: Way,
    /// The charge of its chunks under way, in bytes.
    outstanding: u64,
    /// When the next chunk may go, by the pace.
    next_at: Instant,
    /// When its window was last cut by a loss.
    cut_at: Option<Instant>,
    /// Octets that the first connection has sent in its turn.
    in_turn: usize,
    /// Connections that have a chunk for it.
    connections: IndexList,
    place: Place,
}

/// A chunk under way, as its path has counted it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Charge {
    /// The bytes that it takes of the window.
    pub(super) bytes: u32,
    /// The charge of all chunks of the path when it was sent, itself among them.
    outstanding: u32,
}

/// The fate of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) status: OpStatus,
    pub(super) len: u16,
    /// When its copy was sent that this is about.
    pub(super) sent_at: Instant,
    pub(super) charge: Charge,
}

//= star#ours-congestion-control
/// All paths.
#[derive(Debug)]
pub(super) struct Paths {
    cc: CongestionControl,
    /// By the places of their windows. Grows to its capacity, and never shrinks.
    paths: Vec<Path>,
    /// By way, of connections.
    links: [Links; 2],
    ready: IndexList,
    ready_links: Links,
    /// The paths that are paced, by when their next chunk may go.
    paced: BinaryHeap<Reverse<(Instant, u16)>>,
}

impl Paths {
    /// Bytes that each connection takes.
    pub(super) const ENTRY_LEN: usize = 2 * CongestionControl::WINDOW_LEN
        + 2 * size_of::<Path>()
        + 4 * Links::ENTRY_LEN
        + 2 * size_of::<Reverse<(Instant, u16)>>();

    /// For so many connections, with as many windows as `config` says.
    pub(super) fn new(config: CcConfig, connections: usize) -> Self {
        let windows = config.settings().remotes as usize;
        Self {
            cc: CongestionControl::new(config),
            paths: Vec::with_capacity(windows),
            links: WAYS.map(|_| Links::new(connections)),
            ready: IndexList::new(),
            ready_links: Links::new(windows),
            paced: BinaryHeap::with_capacity(windows),
        }
    }

    /// The paths to a peer, by way, for one more connection. `None` if there are too many peers.
    pub(super) fn hold(&mut self, peer: HostAddr) -> Option<[RemoteWindowId; 2]> {
        let push = self.hold_one(peer, Way::Push)?;
        let Some(pull) = self.hold_one(peer, Way::Pull) else {
            self.cc.release(push);
            return None;
        };
        Some([push, pull])
    }

    fn hold_one(&mut self, peer: HostAddr, way: Way) -> Option<RemoteWindowId> {
        let held = self.cc.hold(peer, way.moves()).ok()?;
        let id = held.id;
        match self.paths.get_mut(id.index()) {
            None => self.paths.push(Path {
                id,
                way,
                outstanding: 0,
                next_at: Instant::ZERO,
                cut_at: None,
                in_turn: 0,
                connections: IndexList::new(),
                place: Place::Idle,
            }),
            // Another peer's before. Where it is, and its pace, do no harm.
            Some(path) if held.is_new => (path.way, path.cut_at) = (way, None),
            Some(_) => {}
        }
        Some(id)
    }

    /// A connection that had these is no more. Their windows are remembered while there is room.
    pub(super) fn release(&mut self, held: [RemoteWindowId; 2]) {
        held.into_iter().for_each(|id| self.cc.release(id));
    }

    /// A connection, which is not in the list of the path, has a chunk for it.
    pub(super) fn join(&mut self, id: RemoteWindowId, way: Way, connection: u16) {
        let path = &mut self.paths[id.index()];
        path.connections.push_back(&mut self.links[way as usize], connection);
        self.wake(id);
    }

    /// A connection, which is in the list of the path, has none any longer.
    pub(super) fn leave(&mut self, id: RemoteWindowId, way: Way, connection: u16) {
        let path = &mut self.paths[id.index()];
        path.connections.remove(&mut self.links[way as usize], connection);
    }

    /// Readies a path that somebody has a chunk for, if its window is open.
    fn wake(&mut self, id: RemoteWindowId) {
        let is_open = self.admits(id, 1);
        let path = &mut self.paths[id.index()];
        if is_open && path.place == Place::Idle && !path.connections.is_empty() {
            path.place = Place::Ready;
            self.ready.push_back(&mut self.ready_links, id.index() as u16);
        }
    }

    /// Whether a chunk of so many bytes may be sent beside what is under way.
    pub(super) fn admits(&self, id: RemoteWindowId, len: u32) -> bool {
        self.cc.window(id).admits(self.paths[id.index()].outstanding, len)
    }

    /// The connection whose turn it is to send a chunk.
    pub(super) fn next(&mut self, now: Instant) -> Option<(RemoteWindowId, u16)> {
        while let Some(at) = self.ready.front() {
            let path = &mut self.paths[usize::from(at)];
            match path.connections.front() {
                Some(connection) if path.next_at <= now => return Some((path.id, connection)),
                Some(_) => {
                    path.place = Place::Paced;
                    self.paced.push(Reverse((path.next_at, at)));
                }
                None => path.place = Place::Idle,
            }
            self.ready.pop_front(&mut self.ready_links);
        }
        None
    }

    /// The next chunk of the path that is first does not fit into its window: it waits for answers.
    pub(super) fn wait(&mut self) {
        if let Some(at) = self.ready.pop_front(&mut self.ready_links) {
            self.paths[usize::from(at)].place = Place::Idle;
        }
    }

    /// Gives the turn of the path that is first to its next connection that `may` send. `false` if
    /// none may: then it is the next path's turn.
    pub(super) fn pass(&mut self, id: RemoteWindowId, may: impl Fn(u16) -> bool) -> bool {
        let path = &mut self.paths[id.index()];
        let links = &mut self.links[path.way as usize];
        path.in_turn = 0;
        for _ in 0..path.connections.len() {
            if path.connections.front().is_some_and(&may) {
                return true;
            }
            if let Some(connection) = path.connections.pop_front(links) {
                path.connections.push_back(links, connection);
            }
        }
        if let Some(at) = self.ready.pop_front(&mut self.ready_links) {
            self.ready.push_back(&mut self.ready_links, at);
        }
        false
    }

    /// How many paths are ready.
    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// The connections of the paths that are ready.
    pub(super) fn ready_connections(&self) -> impl Iterator<Item = u16> {
        self.ready.iter(&self.ready_links).flat_map(|at| {
            let path = &self.paths[usize::from(at)];
            path.connections.iter(&self.links[path.way as usize])
        })
    }

    /// The first connection of the path that is first sends a chunk of so many bytes.
    pub(super) fn send(&mut self, id: RemoteWindowId, len: u32, now: Instant) -> Charge {
        let window = self.cc.window(id);
        let path = &mut self.paths[id.index()];
        let bytes = window.charge(len);
        path.outstanding += u64::from(bytes);
        let slack = window.rtt().best_nanos() as u64 / SLACK_PART;
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(slack));
        let interval = Duration::from_nanos(window.pacing_interval_nanos(len));
        path.next_at = path.next_at.max(earliest) + interval;
        Charge { bytes, outstanding: u32::try_from(path.outstanding).unwrap_or(u32::MAX) }
    }

    /// The first connection of the path that is first has sent a frame of so many octets, and has
    /// more chunks: whether its turn goes on.
    pub(super) fn goes_on(&mut self, id: RemoteWindowId, frame_len: usize) -> bool {
        let path = &mut self.paths[id.index()];
        path.in_turn += frame_len;
        path.in_turn < SMALL
    }

    /// The path that is first, and its first connection, have had their turn. Whether that one
    /// `has_more` chunks for it.
    pub(super) fn end_turn(&mut self, id: RemoteWindowId, way: Way, has_more: bool) {
        let (path, links) = (&mut self.paths[id.index()], &mut self.links[way as usize]);
        path.in_turn = 0;
        if let Some(connection) = path.connections.pop_front(links)
            && has_more
        {
            path.connections.push_back(links, connection);
        }
        self.wait();
        self.wake(id);
    }

    /// Notes the fate of a copy of a chunk.
    pub(super) fn note(&mut self, id: RemoteWindowId, now: Instant, outcome: &Outcome) {
        let &Outcome { status, len, sent_at, charge } = outcome;
        let path = &mut self.paths[id.index()];
        if status == OpStatus::Timeout {
            // A frame sent before the window was cut says nothing about the present window.
            if path.cut_at.is_some_and(|cut_at| sent_at < cut_at) {
                return;
            }
            path.cut_at = Some(now);
        }
        let feedback = Feedback {
            now,
            op_size: len.into(),
            status,
            issue_delay_nanos: 0,
            total_delay_nanos: now.nanos_since(sent_at),
        };
        self.cc.on_completion(id, &feedback, charge.outstanding.into());
    }

    /// A chunk is no longer under way.
    pub(super) fn free(&mut self, id: RemoteWindowId, charge: Charge) {
        self.paths[id.index()].outstanding -= u64::from(charge.bytes);
        self.wake(id);
    }

    /// The paths that are ready, by their first connections and how many these are.
    pub(super) fn ready(&self) -> impl Iterator<Item = (RemoteWindowId, u16, usize)> {
        self.ready.iter(&self.ready_links).filter_map(|at| {
            let path = &self.paths[usize::from(at)];
            Some((path.id, path.connections.front()?, path.connections.len()))
        })
    }

    /// When [`Paths::handle_timeout`] has work next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.paced.peek().map(|Reverse((at, _))| *at)
    }

    /// Readies the paths whose next chunk may go now.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while self.poll_timeout().is_some_and(|at| at <= now) {
            let Some(Reverse((_, at))) = self.paced.pop() else { return };
            let path = &mut self.paths[usize::from(at)];
            path.place = Place::Idle;
            let id = path.id;
            self.wake(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use rma_core::cc::CcConfigBuilder;

    use super::*;

    const LEN: u32 = 4096;

    /// Paths with windows of two ops, to so many peers at most.
    fn paths(peers: u32) -> Paths {
        let settings = CcConfigBuilder::default().with(|cc| {
            cc.algorithm = rma_core::cc::Algorithm::Swift;
            (cc.cwnd_initial, cc.cwnd_min, cc.remotes) = (2.0, 0.01, 2 * peers);
        });
        Paths::new(settings.build().unwrap(), 8)
    }

    fn peer(number: u8) -> HostAddr {
        [192, 0, 2, number].into()
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// Sends what may be sent of connections that have no end of chunks: whose they are.
    fn send_all(paths: &mut Paths, now: Instant) -> Vec<(u16, Charge)> {
        let mut sent = Vec::new();
        while let Some((id, connection)) = paths.next(now) {
            if !paths.admits(id, LEN) {
                paths.wait();
                continue;
            }
            sent.push((connection, paths.send(id, LEN, now)));
            paths.end_turn(id, Way::Push, true);
        }
        sent
    }

    fn outcome(status: OpStatus, sent_at: Instant, charge: Charge) -> Outcome {
        Outcome { status, len: LEN as u16, sent_at, charge }
    }

    #[test]
    fn connections_to_one_peer_share_its_window_and_take_turns() {
        let mut paths = paths(2);
        let [one, other] = [1, 2].map(|number| paths.hold(peer(number)).unwrap()[0]);
        assert_eq!(paths.hold(peer(1)).unwrap()[0], one);
        for connection in [3, 4, 5] {
            paths.join(one, Way::Push, connection);
        }
        paths.join(other, Way::Push, 6);
        let sent: Vec<_> = send_all(&mut paths, at(0)).iter().map(|it| it.0).collect();
        assert_eq!(sent, [3, 6, 4, 6], "two ops for each peer, whoever has them");
        // Answers that took too long: the window is what it was, and no more.
        let charge = Charge { bytes: LEN, outstanding: LEN };
        let mut turns = Vec::new();
        for micros in 1..=6 {
            paths.free(one, charge);
            turns.extend(send_all(&mut paths, at(micros)).iter().map(|it| it.0));
        }
        assert_eq!(turns, [5, 3, 4, 5, 3, 4]);
        paths.leave(one, Way::Push, 4);
        paths.free(one, charge);
        paths.free(one, charge);
        let sent: Vec<_> = send_all(&mut paths, at(9)).iter().map(|it| it.0).collect();
        assert_eq!(sent, [5, 3]);
    }

    #[test]
    fn small_chunks_of_a_connection_go_together_and_then_it_is_the_next_ones_turn() {
        let mut paths = paths(1);
        let id = paths.hold(peer(1)).unwrap()[0];
        [3, 4].iter().for_each(|&connection| paths.join(id, Way::Push, connection));
        let mut sent = Vec::new();
        for _ in 0..10 {
            let (_, connection) = paths.next(at(0)).unwrap();
            let charge = paths.send(id, 32, at(0));
            paths.free(id, charge);
            sent.push(connection);
            if !paths.goes_on(id, SMALL / 4) {
                paths.end_turn(id, Way::Push, true);
            }
        }
        assert_eq!(sent, [3, 3, 3, 3, 4, 4, 4, 4, 3, 3]);
        // Whoever has no more leaves the rest of its turn to nobody.
        paths.end_turn(id, Way::Push, false);
        let next: Vec<_> = (0..5)
            .map(|_| {
                let (_, connection) = paths.next(at(0)).unwrap();
                if !paths.goes_on(id, SMALL / 4) {
                    paths.end_turn(id, Way::Push, true);
                }
                connection
            })
            .collect();
        assert_eq!(next, [4; 5]);
    }

    #[test]
    fn losses_together_cut_the_window_once_and_small_windows_are_paced() {
        let mut paths = paths(1);
        let id = paths.hold(peer(1)).unwrap()[0];
        paths.join(id, Way::Push, 0);
        let mut now = 0;
        let mut cwnd = paths.cc.remote_cwnd(id);
        for _ in 0..4 {
            let sent_at = at(now);
            let sent = send_all(&mut paths, sent_at);
            assert!(!sent.is_empty());
            for &(_, charge) in &sent {
                paths.note(id, at(now + 1000), &outcome(OpStatus::Timeout, sent_at, charge));
            }
            let cut = paths.cc.remote_cwnd(id);
            assert_eq!(cut, cwnd / 2.0, "of {} lost together", sent.len());
            cwnd = cut;
            sent.iter().for_each(|&(_, charge)| paths.free(id, charge));
            now += 2000;
        }
        let (_, charge) = send_all(&mut paths, at(now))[0];
        paths.free(id, charge);
        assert!(send_all(&mut paths, at(now)).is_empty(), "one op in eight round trips");
        let next = paths.poll_timeout().expect("its time comes");
        assert!(next.nanos_since(at(now)) > 10_000, "{next:?}");
        paths.handle_timeout(next);
        assert_eq!(send_all(&mut paths, next).len(), 1);
    }

    #[test]
    fn an_answer_in_time_opens_the_window_and_peers_without_end_do_not_fill_the_table() {
        let mut paths = paths(1);
        let held = paths.hold(peer(1)).unwrap();
        paths.join(held[0], Way::Push, 0);
        for _ in 0..16 {
            for (_, charge) in send_all(&mut paths, at(0)) {
                paths.note(held[0], at(5), &outcome(OpStatus::Ok, at(0), charge));
                paths.free(held[0], charge);
            }
        }
        assert!(paths.cc.remote_cwnd(held[0]) > 8.0);
        assert!(paths.hold(peer(2)).is_none(), "the only place is held");
        paths.leave(held[0], Way::Push, 0);
        paths.release(held);
        let (capacity, paced) = (paths.paths.capacity(), paths.paced.capacity());
        for number in 0..=255 {
            let held = paths.hold(peer(number)).unwrap();
            paths.release(held);
        }
        assert_eq!((paths.paths.capacity(), paths.paced.capacity()), (capacity, paced));
    }
}
