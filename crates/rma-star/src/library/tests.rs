//! The library against an engine that is made by hand: what it reports, in any order, and what of
//! it makes no sense.

use std::{collections::VecDeque, sync::Arc};

use proptest::prelude::*;
use rma_core::{addr::HostAddr, time::Instant};
use rma_shm::Region;

use super::*;
use crate::{
    limits::MESSAGE_LEN_MAX,
    names::{MrId, Sequence, Taken},
    portal::{Post, Posted, QpState as WordState, QpWord, Report, StarPort, portal},
    verbs::{WcStatus, WqeOp},
};

mod engines;
mod hosts;
mod roles;
mod set_up;
mod timers;

const SLOTS: u32 = 16;
const QPS: u32 = 4;
const PD: PdId = PdId(7);
const MS: u64 = 1_000_000;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(1_000 * MS + millis * MS)
}

/// A library and the engine's end of its portal.
struct Host {
    verbs: Verbs,
    engine: StarPort,
    /// Work requests that were posted, but for those that were posted again.
    posted: VecDeque<Posted>,
    /// All else.
    others: VecDeque<Post>,
    /// How many were posted again.
    again: Vec<Posted>,
    /// The record of the connection that was opened last.
    opened: Option<QpRecord>,
    mr: Mr,
    cq: CqId,
}

impl Host {
    fn new(address: [u8; 4]) -> Self {
        Self::with(address, 256, VerbsConfig::default())
    }

    fn with(address: [u8; 4], capacity: u32, config: VerbsConfig) -> Self {
        let (application, engine) = portal(SLOTS, QPS).unwrap();
        let place = VerbsPlace::new(3, HostAddr::from(address), 1472);
        let mut verbs = Verbs::new(application, place, config);
        let cq = verbs.create_cq(capacity);
        let mr = Mr::new(MrId(5), PD, Arc::new(Region::new(4096).unwrap()), 64..1064);
        let (posted, others, again) = Default::default();
        Self { verbs, engine, posted, others, again, opened: None, mr, cq }
    }

    fn qp(&mut self, role: Role) -> Qp {
        let config = QpConfig { role, send_depth: 8, recv_depth: 8 };
        self.verbs.create_qp(PD, self.cq, self.cq, config).unwrap()
    }

    /// A queue pair whose connection is set up, as if with a peer.
    fn ready(&mut self, now: Instant, is_stateful: bool) -> Qp {
        let (own, others) = if is_stateful {
            (Role::Stateful, Role::Stateless)
        } else {
            (Role::Stateless, Role::Stateful)
        };
        let qp = self.qp(own);
        let mut peer = Self::new([192, 0, 2, 99]);
        let theirs = peer.qp(others);
        peer.verbs.connect(now, theirs).unwrap();
        set_up::connect(now, (&mut peer, theirs), (self, qp));
        assert_eq!(self.verbs.state(qp), Some(QpState::Ready));
        qp
    }

    /// The engine takes all posts.
    fn take_posts(&mut self) {
        while let Some((post, inline)) = self.engine.next_post() {
            self.engine.done();
            match post {
                Post::Wqe(posted) if posted.again => self.again.push(posted),
                Post::Wqe(posted) => {
                    assert_eq!(inline.is_some(), posted.inline_len > 0);
                    self.posted.push_back(posted);
                }
                other => self.others.push_back(other),
            }
        }
    }

    fn report(&mut self, now: Instant, report: &Report) {
        self.engine.report(report);
        self.verbs.poll(now);
    }

    /// Reports that a work request has ended.
    fn complete(&mut self, now: Instant, posted: &Posted, status: WcStatus) {
        let byte_len = posted.length;
        self.report(now, &completed(posted, status, byte_len));
    }

    fn wcs(&mut self) -> Vec<Wc> {
        let mut wcs = [Wc::EMPTY; 64];
        let count = self.verbs.poll_cq(self.cq, &mut wcs);
        wcs[..count].to_vec()
    }

    fn ids(&mut self) -> Vec<(u64, WcStatus)> {
        self.wcs().iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    fn send(&mut self, now: Instant, qp: Qp, wr_id: u64) -> Result<(), PostError> {
        let mr = self.mr.clone();
        self.verbs.post_send(now, qp, &SendWr::send(wr_id, mr.slice(0, 10)))
    }

    fn recv(&mut self, now: Instant, qp: Qp, wr_id: u64) -> Result<(), PostError> {
        let mr = self.mr.clone();
        self.verbs.post_recv(now, qp, &RecvWr { wr_id, sge: mr.slice(0, 100) })
    }

    fn posted(&mut self) -> Posted {
        self.take_posts();
        self.posted.pop_front().expect("something was posted")
    }

    /// The stateful side's acknowledgement comes.
    fn ea(&mut self, qp: Qp, send: u32, recv: u32) {
        self.engine.note_taken(qp.index, Taken { send: Sequence(send), recv: Sequence(recv) });
    }
}

fn completed(posted: &Posted, status: WcStatus, byte_len: u32) -> Report {
    let Posted { slot, generation, qp, sequence, op, .. } = *posted;
    let immediate = Some(42);
    let is_of_write = false;
    Report::Completed {
        slot,
        generation,
        qp,
        sequence,
        op,
        status,
        byte_len,
        immediate,
        is_of_write,
    }
}

use WcStatus::{Success, WrFlushErr};

//= star#ours-completion-order
//= type=test
#[test]
fn completions_come_in_posting_order_however_they_are_reported() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    for wr_id in 1..=3 {
        host.send(at(0), qp, wr_id).unwrap();
        host.recv(at(0), qp, 10 + wr_id).unwrap();
    }
    host.take_posts();
    let posted: Vec<_> = host.posted.drain(..).collect();
    let numbers: Vec<_> = posted.iter().map(|it| (it.op, it.sequence)).collect();
    use WqeOp::{Recv, Send};
    assert_eq!(numbers, [(Send, 0), (Recv, 0), (Send, 1), (Recv, 1), (Send, 2), (Recv, 2)]);
    for early in [2, 4] {
        host.complete(at(1), &posted[early], Success);
        assert_eq!(host.wcs(), []);
    }
    host.complete(at(1), &posted[1], Success);
    let [wc] = host.wcs()[..] else { panic!("one") };
    let qp_num = host.verbs.qpn(qp).unwrap();
    let expected = Wc {
        wr_id: 11,
        status: Success,
        opcode: Recv,
        byte_len: 100,
        imm: Some(42),
        is_of_write: false,
        qp_num,
    };
    assert_eq!(wc, expected);
    host.complete(at(1), &posted[0], Success);
    let wcs = host.wcs();
    assert_eq!(wcs.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(wcs.iter().all(|wc| wc.imm.is_none()), "a SEND's completion has no immediate");
    // A report that comes again, or of a slot that is free, means nothing.
    host.complete(at(1), &posted[0], Success);
    assert_eq!((host.wcs(), host.verbs.strange_reports()), (vec![], 1));
    // Nor does that of an earlier use of a slot.
    host.send(at(1), qp, 4).unwrap();
    let again = host.posted();
    let earlier = posted.iter().find(|it| it.slot == again.slot).expect("it was used before");
    host.complete(at(1), &Posted { generation: earlier.generation, ..again }, Success);
    assert_eq!((host.wcs(), host.verbs.strange_reports()), (vec![], 2));
    host.complete(at(1), &again, Success);
    assert_eq!(host.ids(), [(4, Success)]);
}

//= star#ours-failure-told-late
//= type=test
//= star#ours-completion-order
//= type=test
#[test]
fn a_failure_flushes_what_is_behind_it_when_all_that_was_sent_is_dead() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    for wr_id in 1..=4 {
        host.send(at(0), qp, wr_id).unwrap();
    }
    host.recv(at(0), qp, 9).unwrap();
    host.take_posts();
    let posted: Vec<_> = host.posted.drain(..).collect();
    host.complete(at(1), &posted[0], Success);
    host.complete(at(1), &posted[2], Success);
    host.complete(at(1), &posted[1], WcStatus::RemAccessErr);
    // Completions that came early behind the failure are flushed too.
    let expected = [(1, Success), (2, WcStatus::RemAccessErr), (3, WrFlushErr)];
    assert_eq!(host.ids(), expected);
    assert_eq!(host.verbs.state(qp), Some(QpState::Error));
    assert_eq!(host.send(at(1), qp, 5), Err(PostError::QpInError));
    host.take_posts();
    assert_eq!(host.others.pop_back(), Some(Post::Close { qp: qp.index }));
    host.report(at(2), &Report::Closed { qp: qp.index });
    host.verbs.poll(at(2 + 16));
    assert_eq!(host.wcs(), [], "what was sent may still land");
    assert!(host.verbs.poll_timeout().unwrap() <= at(2 + 20));
    host.verbs.poll(at(2 + 20));
    assert_eq!(host.ids(), [(4, WrFlushErr), (9, WrFlushErr)]);
    // Nothing of it comes again.
    host.report(at(30), &Report::Closed { qp: qp.index });
    host.complete(at(30), &posted[3], Success);
    assert_eq!((host.wcs(), host.verbs.strange_reports()), (vec![], 2));
}

#[test]
fn the_stateful_sides_engine_fails_and_flushes_and_the_library_closes() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), true);
    host.send(at(0), qp, 1).unwrap();
    host.recv(at(0), qp, 2).unwrap();
    assert_eq!(host.verbs.poll_timeout(), None, "its engine does all that is due");
    let (send, recv) = (host.posted(), host.posted());
    host.report(at(1), &Report::Failed { qp: qp.index, status: WcStatus::RetryExcErr });
    assert_eq!((host.verbs.state(qp), host.wcs()), (Some(QpState::Error), vec![]));
    host.complete(at(20), &recv, WrFlushErr);
    host.complete(at(20), &send, WcStatus::RetryExcErr);
    assert_eq!(host.ids(), [(2, WrFlushErr), (1, WcStatus::RetryExcErr)]);
    host.take_posts();
    assert_eq!(host.others.pop_back(), Some(Post::Close { qp: qp.index }));
    host.report(at(21), &Report::Closed { qp: qp.index });
    assert_eq!((host.wcs(), host.verbs.poll_timeout()), (vec![], None));
}

#[test]
fn a_closed_queue_pair_is_flushed_and_its_place_gets_another_name() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    host.send(at(0), qp, 1).unwrap();
    host.verbs.close(at(0), qp);
    host.verbs.close(at(0), qp);
    assert_eq!((host.verbs.state(qp), host.verbs.qpn(qp)), (None, None));
    assert_eq!(host.send(at(0), qp, 2), Err(PostError::NoSuchQp));
    host.take_posts();
    assert_eq!(host.others.iter().filter(|it| matches!(it, Post::Close { .. })).count(), 1);
    host.others.clear();
    host.report(at(0), &Report::Closed { qp: qp.index });
    host.verbs.poll(at(20));
    assert_eq!(host.ids(), [(1, WrFlushErr)]);
    let next = host.ready(at(20), false);
    assert_eq!((next.index, next.nonce), (qp.index, qp.nonce + 1));
    assert_eq!(host.send(at(20), qp, 3), Err(PostError::NoSuchQp));
    // One that was never connected is no engine's business.
    let unused = host.qp(Role::Auto);
    host.others.clear();
    host.verbs.close(at(20), unused);
    host.take_posts();
    assert_eq!(host.others.len(), 0);
    assert_eq!(host.qp(Role::Auto).index, unused.index);
}

#[test]
fn limits_are_errors_with_their_values_and_nothing_has_happened() {
    let mut host = Host::with([192, 0, 2, 1], 10, VerbsConfig::default());
    let early = host.qp(Role::Stateless);
    assert_eq!(host.send(at(0), early, 0), Err(PostError::NotReady));
    let qp = host.ready(at(0), false);
    let other = host.ready(at(0), false);
    let mr = host.mr.clone();
    let foreign = Mr::new(MrId(5), PdId(8), Arc::clone(mr.memory()), 0..100);
    let far = Remote { mr: MrId(1), offset: u64::MAX };
    let long = Mr::new(MrId(5), PD, Arc::clone(mr.memory()), 0..1 << 40);
    let (max, inline_max) = (MESSAGE_LEN_MAX, 64);
    for (wr, error) in [
        (
            SendWr::send(1, mr.slice(991, 10)),
            PostError::OutOfBounds { offset: 991, length: 10, len: 1000 },
        ),
        (
            SendWr::send(1, mr.slice(u64::MAX, 10)),
            PostError::OutOfBounds { offset: u64::MAX, length: 10, len: 1000 },
        ),
        (
            SendWr::write(1, mr.slice(0, 10), far),
            PostError::OutOfBounds { offset: u64::MAX, length: 10, len: u64::MAX },
        ),
        (SendWr::send(1, foreign.slice(0, 1)), PostError::NotInPd { of: PdId(8), qp: PD }),
        (SendWr::send(1, long.slice(0, max + 1)), PostError::TooLong { length: max + 1, max }),
        (
            SendWr::send(1, mr.slice(0, 65)).inline(),
            PostError::TooLong { length: 65, max: inline_max },
        ),
        (
            SendWr::send(1, long.slice(1 << 20, 5)).inline(),
            PostError::OutOfBounds { offset: 1 << 20, length: 5, len: 1 << 40 },
        ),
        (
            SendWr::read(1, mr.slice(0, 1), Remote::default()).inline(),
            PostError::NotOfOp { op: WqeOp::Read },
        ),
        (
            SendWr::read(1, mr.slice(0, 1), Remote::default()).with_imm(1),
            PostError::NotOfOp { op: WqeOp::Read },
        ),
    ] {
        assert_eq!(host.verbs.post_send(at(0), qp, &wr), Err(error));
    }
    for wr_id in 0..8 {
        host.send(at(0), qp, wr_id).unwrap();
    }
    assert_eq!(host.send(at(0), qp, 8), Err(PostError::QueueFull { depth: 8 }));
    host.recv(at(0), qp, 20).unwrap();
    host.recv(at(0), qp, 21).unwrap();
    assert_eq!(host.recv(at(0), other, 22), Err(PostError::CqFull { capacity: 10 }));
    host.take_posts();
    assert_eq!(host.posted.len(), 10, "what is refused is not posted");
    // A completion has its place until it is polled.
    let first = host.posted.pop_front().unwrap();
    host.complete(at(1), &first, Success);
    assert_eq!(host.recv(at(1), other, 22), Err(PostError::CqFull { capacity: 10 }));
    assert_eq!(host.ids(), [(0, Success)]);
    host.recv(at(1), other, 22).unwrap();
    // Slots are the portal's.
    let big = host.verbs.create_cq(100);
    host.cq = big;
    let third = host.ready(at(1), false);
    for wr_id in 0..6 {
        host.recv(at(1), third, wr_id).unwrap();
    }
    assert_eq!(host.recv(at(1), third, 9), Err(PostError::SlotsFull { slots: SLOTS }));
    assert_eq!(
        host.verbs.create_qp(PD, CqId(9), big, QpConfig::default()),
        Err(CreateError::NoSuchCq(CqId(9)))
    );
    let deep = QpConfig { send_depth: 0, ..QpConfig::default() };
    assert_eq!(
        host.verbs.create_qp(PD, big, big, deep),
        Err(CreateError::Depth { depth: 0, max: QpConfig::DEPTH_MAX })
    );
    assert_eq!(
        host.verbs.create_qp(PD, big, big, QpConfig::default()),
        Err(CreateError::TableFull { qps: QPS })
    );
}

#[test]
fn inline_data_and_all_else_of_a_work_request_reaches_the_engine() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), true);
    host.take_posts();
    let mr = host.mr.clone();
    mr.memory().copy_in(64 + 3, b"nine letters").unwrap();
    let remote = Remote { mr: MrId(77), offset: 1 << 33 };
    let wr = SendWr::send(1, mr.slice(3, 12)).with_imm(9).inline();
    host.verbs.post_send(at(0), qp, &wr).unwrap();
    let (Post::Wqe(posted), Some(line)) = host.engine.next_post().unwrap() else {
        panic!("a work request with its data")
    };
    host.engine.done();
    assert_eq!(&line.0.map(u64::to_le_bytes).as_flattened()[..13], b"nine letters\0");
    assert_eq!((posted.inline_len, posted.length, posted.immediate), (12, 12, Some(9)));
    host.verbs.post_send(at(0), qp, &SendWr::read(2, mr.slice(1, 0), remote)).unwrap();
    host.verbs.post_send(at(0), qp, &SendWr::write(3, mr.slice(0, 0), remote).inline()).unwrap();
    let (read, write) = (host.posted(), host.posted());
    let place = (read.op, read.mr, read.offset, read.remote_mr, read.remote_offset);
    assert_eq!(place, (WqeOp::Read, 5, 1, 77, 1 << 33));
    assert_eq!((write.op, write.inline_len, write.length), (WqeOp::Write, 0, 0));
}

#[test]
fn a_report_that_differs_from_its_post_is_a_failure() {
    type Wrong = fn(&mut Report);
    let wrongs: [(Wrong, WcStatus); 3] = [
        (|it| change(it, |(byte_len, ..)| *byte_len = 101), WcStatus::LocLenErr),
        (|it| change(it, |(_, op, ..)| *op = WqeOp::Send), WcStatus::RemOpErr),
        (
            |it| change(it, |(.., immediate, of_write)| (*immediate, *of_write) = (None, true)),
            WcStatus::RemOpErr,
        ),
    ];
    for (wrong, expected) in wrongs {
        let mut host = Host::new([192, 0, 2, 1]);
        let qp = host.ready(at(0), false);
        host.recv(at(0), qp, 1).unwrap();
        let posted = host.posted();
        let mut report = completed(&posted, Success, 100);
        wrong(&mut report);
        host.report(at(1), &report);
        let [wc] = host.wcs()[..] else { panic!("one") };
        assert_eq!((wc.status, wc.byte_len, wc.imm), (expected, 0, None));
        assert_eq!(host.verbs.state(qp), Some(QpState::Error));
    }
}

type Told<'a> = (&'a mut u32, &'a mut WqeOp, &'a mut Option<u32>, &'a mut bool);

fn change(report: &mut Report, with: fn(Told<'_>)) {
    if let Report::Completed { byte_len, op, immediate, is_of_write, .. } = report {
        with((byte_len, op, immediate, is_of_write));
    }
}

#[test]
fn a_write_may_have_more_bytes_than_the_recv_that_it_takes() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    host.recv(at(0), qp, 1).unwrap();
    host.recv(at(0), qp, 2).unwrap();
    for is_write in [true, false] {
        let posted = host.posted();
        let mut report = completed(&posted, Success, if is_write { 1 << 30 } else { 100 });
        if is_write {
            change(&mut report, |(.., of_write)| *of_write = true);
        }
        host.report(at(1), &report);
        let [wc] = host.wcs()[..] else { panic!("one") };
        assert_eq!((wc.status, wc.imm, wc.is_of_write), (Success, Some(42), is_write));
        assert_eq!(wc.byte_len, if is_write { 1 << 30 } else { 100 });
    }
}

#[test]
fn a_slot_whose_uses_are_used_up_rests() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), true);
    host.verbs.slots.use_up(0);
    for round in 0..3 {
        host.send(at(0), qp, round).unwrap();
        let posted = host.posted();
        let last = (posted.slot == 0).then_some(u32::MAX);
        assert_eq!((round == 0).then_some(posted.generation), last);
        host.complete(at(0), &posted, Success);
        assert_eq!(host.ids(), [(round, Success)]);
    }
}

/// S4: what is asked for is at most 128 bytes for a queue pair, and 64 for a work request.
#[test]
fn a_queue_pair_takes_128_bytes_and_a_work_request_64() {
    let host = Host::new([192, 0, 2, 1]);
    let memory = host.verbs.memory();
    assert_eq!((memory.per_qp, memory.per_work_request), (128, 64));
    let (more, _) = portal(1 << 12, 1 << 10).unwrap();
    let place = VerbsPlace::new(0, HostAddr::from([192, 0, 2, 1]), 1472);
    let more = Verbs::new(more, place, VerbsConfig::default()).memory();
    assert_eq!(VerbsMemory { rings: memory.rings, ..more }, memory, "whatever there is of them");
}

/// One thing that an application or an engine does.
#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Recv(usize),
    /// The engine takes all posts.
    Take,
    /// It reports one of those that it has taken.
    Complete(usize, WcStatus),
    /// It reports something that may make no sense.
    Garbage([u64; 8]),
    /// It has heard of a peer.
    Ea(usize),
    Poll(u64),
    PollCq,
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let status = prop_oneof![9 => Just(Success), 1 => prop::sample::select(WcStatus::ALL.to_vec())];
    let garbage = (1_u64..6, any::<[u8; 3]>(), 0_u64..6, any::<[u8; 6]>()).prop_map(
        |(kind, octets, qp, words)| {
            let [a, b, c] = octets.map(|it| u64::from(it % 5));
            let head = kind << 56 | a << 48 | b << 40 | c << 32 | qp;
            let [d, e, f, g, h, i] = words.map(|it| u64::from(it % 4));
            [head, d << 32 | e, f << 32 | g, h << 32 | i, 0, 0, 0, 0]
        },
    );
    prop_oneof![
        4 => (0..2_usize).prop_map(Step::Send),
        4 => (0..2_usize).prop_map(Step::Recv),
        4 => Just(Step::Take),
        8 => (any::<usize>(), status).prop_map(|(which, status)| Step::Complete(which, status)),
        1 => garbage.prop_map(Step::Garbage),
        2 => (0..2_usize).prop_map(Step::Ea),
        2 => (0_u64..400).prop_map(Step::Poll),
        3 => Just(Step::PollCq),
        1 => (0..8_usize).prop_map(Step::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Whatever is reported, and when: each completes once, in the order of its queue, and after
    /// one that failed only failures.
    #[test]
    fn each_work_request_completes_once_and_in_order(
        is_stateful in any::<[bool; 2]>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut host = Host::new([192, 0, 2, 1]);
        let mut millis = 0;
        let qps = is_stateful.map(|it| host.ready(at(0), it));
        let mut done: Vec<Wc> = Vec::new();
        let mut expected: [Vec<u64>; 4] = Default::default();
        let mut next = 0_u64;
        let mut taken: Vec<Posted> = Vec::new();
        for step in steps {
            let now = at(millis);
            match step {
                Step::Send(which) | Step::Recv(which) => {
                    let is_recv = matches!(step, Step::Recv(_));
                    let queue = which * 2 + usize::from(is_recv);
                    let wr_id = next << 2 | queue as u64;
                    let posted = if is_recv {
                        host.recv(now, qps[which], wr_id)
                    } else {
                        host.send(now, qps[which], wr_id)
                    };
                    if posted.is_ok() {
                        expected[queue].push(wr_id);
                        next += 1;
                    }
                }
                Step::Take => {
                    host.take_posts();
                    taken.extend(host.posted.drain(..));
                    answer_closes(&mut host, now);
                }
                Step::Complete(which, status) if !taken.is_empty() => {
                    let posted = taken.swap_remove(which % taken.len());
                    host.complete(now, &posted, status);
                }
                Step::Complete(..) => {}
                Step::Garbage(words) => {
                    if let Some(report) = Report::from_line(&rma_shm::Line(words)) {
                        host.report(now, &report);
                    }
                }
                Step::Ea(which) => host.ea(qps[which], 0, 0),
                Step::Poll(by) => {
                    millis += by;
                    host.verbs.poll(at(millis));
                }
                Step::PollCq => done.extend(host.wcs()),
                Step::Close(which) => {
                    if let Some(&qp) = qps.get(which) {
                        host.verbs.close(now, qp);
                    }
                }
            }
        }
        // Both end; then everything has completed.
        for qp in qps {
            host.verbs.close(at(millis), qp);
        }
        for _ in 0..3 {
            host.take_posts();
            answer_closes(&mut host, at(millis));
            millis += 100;
            host.verbs.poll(at(millis));
        }
        done.extend(host.wcs());
        for (queue, expected) in expected.iter().enumerate() {
            let given: Vec<_> = done.iter().filter(|wc| wc.wr_id & 3 == queue as u64).collect();
            let ids: Vec<_> = given.iter().map(|wc| wc.wr_id).collect();
            prop_assert_eq!(&ids, expected);
            let mut failed = given.iter().skip_while(|wc| wc.status == Success);
            prop_assert!(failed.all(|wc| wc.status != Success));
        }
        prop_assert_eq!(host.verbs.stateful, 0);
        prop_assert_eq!(host.verbs.poll_timeout(), None);
    }
}

/// The engine closes what it was told to close.
fn answer_closes(host: &mut Host, now: Instant) {
    while let Some(post) = host.others.pop_front() {
        if let Post::Close { qp } = post {
            host.report(now, &Report::Closed { qp });
        }
    }
}
