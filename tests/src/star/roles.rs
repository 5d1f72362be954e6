//! The sides of a connection, as both agree at the beginning and change them later.
//!
//! Roles change again and again while SENDs, WRITEs and READs go both ways (S6): each message comes
//! once, in order and whole, whoever asks for the changes.
//!
//! Not here: a wire that loses and repeats, which is `hostile_wire::star`, and processes that are
//! killed, which is the test `stopped_engine`.
//!
//! Invariant: memory that nothing is under way to is zero, so whatever comes twice or late is seen.

use core::ops::Range;
use std::collections::VecDeque;

use rma_lab::evidence;
use rma_sim::prng::Prng;
use rma_xdp::{
    Host,
    star::{PostError, RecvWr, Role, SendWr, StarPortalConfig, SwitchError, Wc, WcStatus, WqeOp},
    time::{Clock, TscClock},
};

use super::{End, PATIENCE, both, connect, message, pair};

/// How often roles change, with each kind of asking.
const CHANGES: u32 = 24;

/// Work requests of a send queue that are under way at most, and RECVs that are ahead of them.
const DEPTH: u64 = 24;

/// Bytes between the places of work requests, which are at least two shorter.
const EACH: u64 = 6000;

/// The offsets in the lower half of what comes: of messages, WRITEs and READs.
const AREAS: [u64; 3] = [0, DEPTH * EACH, 2 * DEPTH * EACH];

/// Bytes that one end has to give, and that it has room for.
const HALF: u32 = (3 * DEPTH * EACH) as u32;

/// The side that asks for a change of roles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asks {
    Stateful,
    Stateless,
    /// At the same time.
    Both,
}

impl Asks {
    pub(crate) const ALL: [Self; 3] = [Self::Stateful, Self::Stateless, Self::Both];

    /// Whether a side is to ask that is the stateful one, or is not.
    pub(crate) const fn is_of(self, is_stateful: bool) -> bool {
        match self {
            Self::Stateful => is_stateful,
            Self::Stateless => !is_stateful,
            Self::Both => true,
        }
    }
}

/// Checks that an end without a wish gets the role that the other's wish leaves; of two such ends,
/// that of the host with fewer connections has the state if there are many, and both if there are
/// few.
pub(super) fn roles_that_are_negotiated(hosts: [&Host; 2]) {
    let stateful = |ends: &[End<'_>; 2]| {
        ends.each_ref().map(|end| end.verbs.is_stateful(end.qp).expect("it is connected"))
    };
    for (roles, expected) in [
        ([Role::Auto, Role::Auto], [true, true]),
        ([Role::Auto, Role::Rc], [true, true]),
        ([Role::Auto, Role::Stateless], [true, false]),
        ([Role::Stateful, Role::Auto], [true, false]),
    ] {
        assert_eq!(stateful(&pair(hosts, roles, 4096)), expected, "{roles:?}");
    }
    for busy in [0, 1] {
        let mut ends = [0, 1].map(|at: usize| End::new(hosts[at], Role::Auto, 4096, at as u64));
        ends[busy].verbs.note_stateful_elsewhere(2000);
        let [one, other] = &mut ends;
        connect(one, other);
        assert_eq!(stateful(&ends), [busy == 1, busy == 0]);
        let [one, other] = both(&mut ends, busy);
        message(one, other, 64, (100, Some(1), false));
    }
}

/// Between hosts of `star_with_a_small_table`: who has posted more than it would have room for as
/// the stateful side does not become that, and what is posted goes on. With less it does.
pub fn a_full_table_keeps_roles_as_they_are(hosts: [&Host; 2]) {
    const RECVS: u64 = 120;
    const LATER: u64 = 60;
    let mut ends = pair(hosts, [Role::Stateful, Role::Stateless], 16_384);
    for number in 0..RECVS {
        ends[1].post_recv(number, 64 + 64 * number, 64);
    }
    // Each library does its part when it is polled.
    let look = |ends: &mut [End<'_>; 2]| {
        ends.each_mut().map(|end| {
            end.verbs.poll();
            let info = end.verbs.query_qp(end.qp).expect("it is there");
            (info.is_stateful, info.is_switching)
        })
    };
    let roles = |first: bool| [(Some(first), false), (Some(!first), false)];
    ends[0].verbs.switch_role(ends[0].qp).expect("a connection that is ready");
    until("an answer", || !look(&mut ends)[0].1);
    assert_eq!(look(&mut ends), roles(true), "it has no room for {RECVS}");
    messages(&mut ends, 0..LATER);
    // The other side may accept later what it has refused once.
    ends[0].verbs.switch_role(ends[0].qp).expect("a connection that is ready");
    until("a change of roles", || look(&mut ends) == roles(false));
    messages(&mut ends, LATER..RECVS);
}

/// Messages of the first end to RECVs that the other has.
fn messages(ends: &mut [End<'_>; 2], numbers: Range<u64>) {
    let [one, other] = ends;
    for number in numbers {
        let (len, mr) = (number as u32 / 2, one.mr.clone());
        one.post_send(&SendWr::send(number, mr.slice(one.half() + number, len)));
        let mut wcs = [None; 2];
        // Both are polled: what finds no row is posted again by its library.
        until("a message", || {
            for (end, wc) in [&mut *one, &mut *other].into_iter().zip(&mut wcs) {
                let mut next = [Wc::EMPTY];
                if wc.is_none() && end.verbs.poll_cq(end.cq, &mut next) == 1 {
                    *wc = Some((next[0].wr_id, next[0].opcode, next[0].status, next[0].byte_len));
                }
            }
            wcs.iter().all(Option::is_some)
        });
        let done = [WqeOp::Send, WqeOp::Recv].map(|op| (number, op, WcStatus::Success, len));
        assert_eq!(wcs, done.map(Some));
        other.take(one.pattern, number, 64 + 64 * number, len);
    }
}

/// Calls `condition` until it holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = TscClock::new();
    while !condition() {
        assert!(clock.now().as_nanos() < PATIENCE.as_nanos() as u64, "never: {what}");
        std::thread::yield_now();
    }
}

/// Roles change under load, asked for by either side and by both at once; with room for all that is
/// posted, and with portals all of whose work requests are in use.
pub(super) fn roles_change_under_load(hosts: [&Host; 2]) {
    for (seed, asks) in (1..).zip(Asks::ALL) {
        for work_requests in [1024, 20] {
            let mut load = Load::new(hosts, work_requests, seed);
            load.run(asks);
            let [one, other] = load.sides.each_ref().map(|side| side.done);
            let (changes, full) = (load.changes, load.found_full);
            evidence::show(format_args!(
                "{asks:?} asked: roles of StaR changed {changes} times in {one} and {other} work \
                 requests, of {work_requests} at a time; {full} times there was no room for one"
            ));
            assert_eq!(full > 0, work_requests < 2 * DEPTH as u32, "what is to be seen was there");
        }
    }
}

/// Returns the op of a work request of a send queue, by its number.
const fn op_of(number: u64) -> WqeOp {
    match number % 4 {
        0 => WqeOp::Send,
        2 => WqeOp::Read,
        _ => WqeOp::Write,
    }
}

/// Its immediate, which also some SENDs have and half of the WRITEs.
fn immediate_of(number: u64) -> Option<u32> {
    (number % 4 == 1 || number.is_multiple_of(8)).then_some(!(number as u32))
}

fn takes_recv(number: u64) -> bool {
    op_of(number) == WqeOp::Send || immediate_of(number).is_some()
}

/// Some have more than a frame, some go inline, some have nothing.
const fn len_of(number: u64) -> u32 {
    (if number.is_multiple_of(5) { number % 65 } else { number * 331 % (EACH - 2) }) as u32
}

/// Returns the offset of its bytes in its giver's memory: each has others.
const fn source_of(number: u64) -> u64 {
    number * 97 % (HALF as u64 - EACH)
}

/// Returns the offset that they go to.
fn place_of(number: u64) -> u64 {
    let area = match op_of(number) {
        WqeOp::Write => 1,
        WqeOp::Read => 2,
        _ => 0,
    };
    AREAS[area] + number % DEPTH * EACH + 1
}

/// One side, its send queue, and the RECVs that it has for its peer's.
struct Side<'h> {
    end: End<'h>,
    /// The number of the next work request, and of those that are under way.
    next: u64,
    sent: VecDeque<u64>,
    /// The number of the peer's that comes next after those that a RECV is posted for.
    next_recv: u64,
    awaited: VecDeque<u64>,
    /// How many completions it has had.
    done: u64,
}

/// Both sides of a connection, at work.
struct Load<'h> {
    sides: [Side<'h>; 2],
    prng: Prng,
    /// The most work requests that a side has posted, and the most RECVs among them.
    work_requests: usize,
    recvs_max: usize,
    /// Whether each side was the stateful one after the last change.
    are_stateful: [bool; 2],
    changes: u32,
    /// How often there was no room for a work request.
    found_full: u64,
}

impl<'h> Load<'h> {
    fn new(hosts: [&'h Host; 2], work_requests: u32, seed: u64) -> Self {
        let config = StarPortalConfig::default().with(|it| it.work_requests = work_requests);
        let roles = [Role::Stateful, Role::Stateless];
        let mut ends =
            [0, 1].map(|at: usize| End::with(hosts[at], config, (roles[at], HALF, 5 + at as u64)));
        let [one, other] = &mut ends;
        connect(one, other);
        let sides = ends.map(|end| {
            let (sent, awaited) = Default::default();
            Side { end, next: 0, sent, next_recv: 0, awaited, done: 0 }
        });
        Self {
            sides,
            prng: Prng::new(seed),
            work_requests: work_requests as usize,
            recvs_max: (work_requests as usize / 2).min(DEPTH as usize),
            are_stateful: [true, false],
            changes: 0,
            found_full: 0,
        }
    }

    /// Works until roles have changed often enough, and sees all to its end.
    fn run(&mut self, asks: Asks) {
        let mut clock = TscClock::new();
        let (mut seen, mut asks_at) = (0, 0);
        while self.changes < CHANGES || !self.is_idle() {
            for at in [0, 1] {
                self.post_recvs(at);
                self.post_sends(at);
                self.take_completions(at);
            }
            self.note_roles();
            let done = self.sides.iter().map(|side| side.done).sum();
            if done == seen {
                let waited = clock.now().as_nanos();
                assert!(waited < PATIENCE.as_nanos() as u64, "no progress after {done}: {asks:?}");
                std::thread::yield_now();
                continue;
            }
            (seen, clock) = (done, TscClock::new());
            if self.changes < CHANGES && done >= asks_at {
                self.ask(asks);
                asks_at = done + self.prng.between(1, 3 * DEPTH);
            }
        }
        for Side { end, .. } in &self.sides {
            assert!(end.bytes(0, HALF).iter().all(|byte| *byte == 0), "nothing else came");
        }
    }

    fn is_idle(&self) -> bool {
        self.sides.iter().all(|side| side.sent.is_empty() && side.awaited.is_empty())
    }

    fn ask(&mut self, asks: Asks) {
        for Side { end, .. } in &mut self.sides {
            let is_stateful = end.verbs.is_stateful(end.qp).expect("it is connected");
            if asks.is_of(is_stateful) {
                let asked = end.verbs.switch_role(end.qp);
                assert!(matches!(asked, Ok(()) | Err(SwitchError::UnderWay)), "{asked:?}");
            }
        }
    }

    fn note_roles(&mut self) {
        let are_stateful =
            self.sides.each_ref().map(|Side { end, .. }| end.verbs.is_stateful(end.qp));
        // In the midst of a change each library says what it knows.
        if are_stateful == self.are_stateful.map(|it| Some(!it)) {
            self.are_stateful = self.are_stateful.map(|it| !it);
            self.changes += 1;
        }
    }

    /// Posts RECVs for what the peer sends: some before that is sent, some after it.
    fn post_recvs(&mut self, at: usize) {
        let is_over = self.changes >= CHANGES;
        let peers_next = self.sides[1 - at].next;
        let side = &mut self.sides[at];
        while side.awaited.len() < self.recvs_max && (is_over || self.prng.below(3) > 0) {
            let number = side.next_recv;
            let is_far = side.awaited.front().is_some_and(|first| number - first >= DEPTH);
            if is_far || (is_over && number >= peers_next) {
                return;
            }
            if takes_recv(number) {
                let (place, length) = match op_of(number) {
                    WqeOp::Send => (place_of(number), EACH as u32 - 2),
                    _ => (0, 0),
                };
                let sge = side.end.mr.slice(place, length);
                let wr = RecvWr { wr_id: number, sge };
                let posted = side.end.verbs.post_recv(side.end.qp, &wr);
                if !is_room(posted, &mut self.found_full) {
                    return;
                }
                side.awaited.push_back(number);
            }
            side.next_recv += 1;
        }
    }

    fn post_sends(&mut self, at: usize) {
        let is_over = self.changes >= CHANGES;
        let [one, other] = both(&mut self.sides, at);
        let (mr, remote) = (one.end.mr.clone(), &other.end.mr);
        // In the end, what RECVs wait for.
        while (one.sent.len() as u64) < DEPTH && (!is_over || one.next < other.next_recv) {
            // The last one that there is room for is a RECV: or both sides might wait for one.
            if one.awaited.is_empty() && one.sent.len() + 1 >= self.work_requests {
                return;
            }
            let (number, half) = (one.next, one.end.half());
            let (len, place) = (len_of(number), place_of(number));
            let mine = mr.slice(half + source_of(number), len);
            let wr = match op_of(number) {
                WqeOp::Send => SendWr::send(number, mine),
                WqeOp::Write => SendWr::write(number, mine, remote.remote(place)),
                _ => {
                    let remote = remote.remote(half + source_of(number));
                    SendWr::read(number, mr.slice(place, len), remote)
                }
            };
            let wr = immediate_of(number).map_or(wr, |imm| wr.with_imm(imm));
            let is_inline = len <= 64 && op_of(number) != WqeOp::Read;
            let wr = if is_inline { wr.inline() } else { wr };
            if !is_room(one.end.verbs.post_send(one.end.qp, &wr), &mut self.found_full) {
                return;
            }
            one.sent.push_back(number);
            one.next += 1;
        }
    }

    fn take_completions(&mut self, at: usize) {
        let [one, other] = both(&mut self.sides, at);
        let mut wcs = [Wc::EMPTY; 16];
        let count = one.end.verbs.poll_cq(one.end.cq, &mut wcs);
        one.done += count as u64;
        for wc in &wcs[..count] {
            let is_recv = wc.opcode.is_recv();
            let first = if is_recv { &mut one.awaited } else { &mut one.sent }.pop_front();
            assert_eq!((Some(wc.wr_id), wc.status), (first, WcStatus::Success), "{wc:?}");
            let (number, op, len) = (wc.wr_id, op_of(wc.wr_id), len_of(wc.wr_id));
            assert_eq!(wc.byte_len, len, "{wc:?}");
            let (place, source) = (place_of(number), source_of(number));
            if is_recv {
                let expected = (immediate_of(number), op == WqeOp::Write);
                assert_eq!((wc.imm, wc.is_of_write), expected, "{wc:?}");
            } else {
                assert_eq!(wc.opcode, op, "{wc:?}");
            }
            match (is_recv, op) {
                (true, WqeOp::Send) | (false, WqeOp::Read) => {
                    one.end.take(other.end.pattern, source, place, len);
                }
                (false, WqeOp::Write) => other.end.take(one.end.pattern, source, place, len),
                _ => {}
            }
        }
    }
}

/// Whether something was posted, and not too much is under way for it.
fn is_room(posted: Result<(), PostError>, found_full: &mut u64) -> bool {
    match posted {
        Ok(()) => true,
        Err(PostError::SlotsFull { .. }) => {
            *found_full += 1;
            false
        }
        Err(error) => panic!("a work request that makes sense: {error}"),
    }
}
