//! Many portals on one engine: a turn looks into those that are in use, and none of them can keep
//! it from the others.

use rma_core::portal::{Flag, FlagLender};

use super::*;
use crate::{portal::StarPort, service::POSTS};

/// A portal whose ends have a flag.
fn flagged(flag: &Flag) -> (StarPortal, StarPort) {
    let (mut application, mut engine) = portal(8, 2).unwrap();
    application.set_flag(flag.clone());
    engine.set_flag(flag.clone());
    (application, engine)
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A post that is answered at once, whatever there is.
const OPEN: Post = Post::Open { qp: 0, is_stateful: false };

fn is_answered(application: &mut StarPortal) -> bool {
    matches!(application.poll(), Some(Report::Opened { qp: 0, .. }))
}

fn star() -> Star {
    let config = StarConfigBuilder::default().build(StarPlace::at(address(Z))).unwrap();
    Star::new(config, CounterBlock::new(0, u64::MAX))
}

#[test]
fn a_portal_that_is_quiet_is_looked_into_when_its_flag_goes_up_and_not_before() {
    let (mut star, mut lender) = (star(), FlagLender::new());
    let flags: Vec<_> = (0..130).map(|_| lender.lend()).collect();
    let mut applications = Vec::new();
    for flag in &flags {
        let (application, engine) = flagged(flag);
        star.attach(engine).unwrap();
        applications.push(application);
    }
    for turn in 0..100 {
        assert_eq!(star.take_commands(at(turn)), 0);
    }
    assert!(star.is_idle());
    // One that pushes without its flag is not seen: nobody looks.
    let silent = applications[70].memory().clone();
    StarPortal::new(silent, None).post(&OPEN, None).unwrap();
    assert_eq!(star.take_commands(at(100)), 0);
    flags[70].raise();
    assert!(!star.is_idle());
    assert_eq!(star.take_commands(at(101)), 1);
    assert!(is_answered(&mut applications[70]));
    // The others are as they were.
    for (number, application) in applications.iter_mut().enumerate().filter(|(at, _)| *at != 70) {
        application.post(&OPEN, None).unwrap();
        assert_eq!(star.take_commands(at(102)), 1, "portal {number}");
        assert!(is_answered(application));
    }
}

#[test]
fn a_portal_without_a_flag_and_one_that_has_anothers_number_are_served() {
    let (mut star, mut lender) = (star(), FlagLender::new());
    let (flag, other) = (lender.lend(), lender.lend());
    let (_, engine) = flagged(&flag);
    let number = star.attach(engine).unwrap();
    let (mut flagless, engine) = portal(8, 2).unwrap();
    star.attach(engine).unwrap();
    for turn in 0..100 {
        star.take_commands(at(turn));
    }
    assert!(star.detach(at(100), number).is_some());
    let (mut next, engine) = flagged(&other);
    assert_eq!(star.attach(engine), Some(number));
    for turn in 100..200 {
        star.take_commands(at(turn));
    }
    flag.raise();
    assert!(star.is_idle(), "a flag that is nobody's");
    next.post(&OPEN, None).unwrap();
    flagless.post(&OPEN, None).unwrap();
    assert_eq!(star.take_commands(at(201)), 2);
    assert!(is_answered(&mut next) && is_answered(&mut flagless));
}

#[test]
fn portals_that_post_without_end_do_not_keep_a_turn_from_the_others() {
    let (mut star, mut lender) = (star(), FlagLender::new());
    let mut floods = Vec::new();
    for _ in 0..3 {
        let (application, engine) = flagged(&lender.lend());
        star.attach(engine).unwrap();
        floods.push(application);
    }
    let (mut last, engine) = flagged(&lender.lend());
    star.attach(engine).unwrap();
    for turn in 0..50 {
        for flood in &mut floods {
            while flood.post(&Post::Introduce { qp: 9 }, None).is_ok() {}
        }
        last.post(&OPEN, None).unwrap();
        assert!(star.take_commands(at(turn)) <= 3 * 32 + 1);
        assert!(is_answered(&mut last));
        let mut bytes = vec![0; 1472];
        let mut frame = [TxFrame::new(&mut bytes)];
        let sent = star.poll_transmits(at(turn), &mut frame, &mut Quantum::new(1 << 16));
        assert_eq!((sent, star.wants_transmit()), (0, false), "it is not asked for ever");
    }
}

#[test]
fn a_turn_takes_so_many_posts_of_a_tenant_and_those_of_another_all_the_same() {
    let mut star = star();
    let mut attach = |tenant| {
        let (application, mut engine) = portal(8, 2).unwrap();
        engine.set_tenant(TenantIndex::of(tenant));
        star.attach(engine).unwrap();
        application
    };
    let mut many: Vec<_> = (0..40).map(|_| attach(1)).collect();
    let mut other = attach(2);
    for application in &mut many {
        while application.post(&OPEN, None).is_ok() {}
    }
    other.post(&OPEN, None).unwrap();
    assert_eq!(star.take_commands(at(0)), POSTS.all / 2 + 1);
    assert!(is_answered(&mut other));
    assert_eq!(star.take_commands(at(1)), POSTS.all);
    assert!(many.iter_mut().all(is_answered), "each has had its turn");
}

#[test]
fn an_answer_that_waits_for_a_frame_is_sent_however_late_there_is_room() {
    let mut scene = Scene::new();
    for slot in 0..3 {
        let posted = scene.wqe(WqeOp::Recv, slot, 0, 64);
        scene.application.post(&Post::Wqe(posted), None).unwrap();
    }
    for _ in 0..100 {
        scene.now = scene.now + core::time::Duration::from_millis(1);
        assert_eq!(scene.star.take_commands(scene.now), 0);
        assert!(scene.star.wants_transmit());
    }
    assert_eq!(scene.transmit().len(), 1);
    assert!(!scene.star.wants_transmit() && scene.star.is_idle());
}

/// An application that posts without end fills no table that others need (P12).
#[test]
fn a_greedy_portal_leaves_the_others_their_share_of_work_requests() {
    let settings = StarConfigBuilder::default().with(|it| {
        (it.connections, it.work_requests) = (4, 64);
    });
    let config = settings.build(StarPlace::at(address(Z))).unwrap();
    let mut star = Star::new(config, CounterBlock::new(0, u64::MAX));
    let mut applications = Vec::new();
    for connections in [2, 1, 1] {
        let (mut application, mut port) = portal(256, 2).unwrap();
        port.set_stateful_max(connections);
        let number = star.attach(port).unwrap();
        let pd = star.alloc_pd(number, &PdKey::from_bytes([9; 16])).unwrap();
        for qp in 0..connections {
            let record = QpRecord {
                peer: address(F),
                pd: 1,
                local_pd: pd.0,
                z_clock: 0,
                peer_qpn: QPN_F,
                nonce: NONCE,
                era: 0,
                packet_len_max: 1472,
                key: [0; 16],
            };
            application.set_record(qp, &record);
            application.post(&Post::Open { qp, is_stateful: true }, None).unwrap();
        }
        applications.push(application);
    }
    // RECVs of no octets, which nobody ever takes.
    let recvs = |application: &mut StarPortal, qp: u32, slots: core::ops::Range<u32>| {
        for (sequence, slot) in (0..).zip(slots) {
            let recv = Posted {
                slot,
                generation: 1,
                qp,
                sequence,
                open_before: sequence as u16,
                op: WqeOp::Recv,
                again: false,
                is_moved: false,
                immediate: None,
                inline_len: 0,
                mr: 0,
                offset: 0,
                length: 0,
                remote_mr: 0,
                remote_offset: 0,
            };
            application.post(&Post::Wqe(recv), None).unwrap();
        }
    };
    let take = |star: &mut Star| while star.take_commands(at(1)) > 0 {};
    take(&mut star);
    let refused = |application: &mut StarPortal| {
        let reports = core::iter::from_fn(|| application.poll());
        reports.filter(|it| matches!(it, Report::Completed { .. })).count()
    };
    // Its own 8, and half of the 40 that are common.
    recvs(&mut applications[0], 0, 0..28);
    take(&mut star);
    assert_eq!(refused(&mut applications[0]), 0);
    // The next one is too much, and ends its connection.
    recvs(&mut applications[0], 1, 28..60);
    take(&mut star);
    assert_eq!(refused(&mut applications[0]), 32);
    // The others have their share, whatever it has.
    for honest in [1, 2] {
        recvs(&mut applications[honest], 0, 0..4);
        take(&mut star);
        assert_eq!(refused(&mut applications[honest]), 0, "{honest}");
    }
}

/// The ports that frames go to that are sent now.
fn sent_to(scene: &mut Scene) -> Vec<Port> {
    let mut buffers = vec![[0; 1472]; 4];
    let mut frames: Vec<_> = buffers.iter_mut().map(|it| TxFrame::new(it)).collect();
    let sent = scene.star.poll_transmits(scene.now, &mut frames, &mut Quantum::new(1 << 16));
    let sent = frames[..sent].iter().map(|it| it.transmit.unwrap());
    sent.inspect(|it| assert_eq!(it.tenant, TENANT)).map(|it| it.port).collect()
}

/// Its application goes on posting, and would open a connection anew as soon as one has ended.
#[test]
fn a_portal_that_is_being_closed_takes_no_further_post_and_ends_each_once() {
    let mut scene = Scene::new();
    let number = scene.connection.qpn_z.portal() as u16;
    let record = scene.application.memory().record(1).unwrap();
    let stateful = Post::Open { qp: 0, is_stateful: true };
    scene.application.set_record(0, &record);
    scene.application.post(&stateful, None).unwrap();
    scene.application.post(&Post::Introduce { qp: 0 }, None).unwrap();
    let recv = Posted { qp: 0, ..scene.wqe(WqeOp::Recv, 1, 0, 64) };
    scene.application.post(&Post::Wqe(recv), None).unwrap();
    assert_eq!(scene.star.take_commands(scene.now), 3);
    // A frame of it is under way, so it takes until that is dead. A post of the other connection
    // waits for a frame.
    assert_eq!(sent_to(&mut scene), [STATELESS_PORT]);
    let waits = Post::Wqe(scene.wqe(WqeOp::Recv, 2, 64, 64));
    scene.application.post(&waits, None).unwrap();
    scene.star.take_commands(scene.now);
    assert!(scene.star.wants_transmit());
    assert!(scene.star.detach(scene.now, number).is_none(), "a frame is under way");
    // The peers of both are told that they end; what waited for a frame is told to nobody.
    assert_eq!(sent_to(&mut scene), [STATEFUL_PORT, STATELESS_PORT]);
    for _ in 0..2 {
        [waits, stateful].iter().for_each(|post| scene.application.post(post, None).unwrap());
        assert_eq!(scene.star.take_commands(scene.now), 0);
        assert!(scene.star.is_idle() && !scene.star.wants_transmit());
        scene.now = Instant::from_nanos(scene.now.as_nanos() + 2 * W * 1_000);
        scene.star.handle_timeout(scene.now);
    }
    assert!(scene.star.detach(scene.now, number).is_some(), "all that was sent is dead");
    assert!(scene.star.detach(scene.now, number).is_none(), "it is gone");
    assert_eq!((scene.star.stateful_connections(), scene.star.in_use()), (0, (0, 0)));
    let reports: Vec<_> = core::iter::from_fn(|| scene.application.poll()).collect();
    let ends = reports.iter().filter(|it| matches!(it, Report::Completed { .. }));
    assert!(ends.eq([&recv.refused(WcStatus::WrFlushErr)]), "{reports:?}");
    assert_eq!(reports.last(), Some(&Report::Closed { qp: 0 }));
    // Who comes next has its number and nothing of what it left.
    let (mut next, port) = portal(8, 2).unwrap();
    assert_eq!(scene.star.attach(port), Some(number));
    next.post(&OPEN, None).unwrap();
    assert_eq!(scene.star.take_commands(scene.now), 1);
    assert!(is_answered(&mut next));
}

/// Its QP words are memory that its application shares, and may write to.
#[test]
fn a_portal_that_is_being_closed_has_its_queue_pairs_looked_at_once() {
    let mut scene = Scene::new();
    let number = scene.connection.qpn_z.portal() as u16;
    let record = scene.application.memory().record(1).unwrap();
    scene.application.set_record(0, &record);
    scene.application.post(&Post::Open { qp: 0, is_stateful: true }, None).unwrap();
    scene.application.post(&Post::Introduce { qp: 0 }, None).unwrap();
    assert_eq!(scene.star.take_commands(scene.now), 2);
    assert_eq!(sent_to(&mut scene), [STATELESS_PORT]);
    let open = scene.application.memory().qp_word(1);
    assert!(scene.star.detach(scene.now, number).is_none(), "a frame is under way");
    assert_eq!(sent_to(&mut scene), [STATEFUL_PORT, STATELESS_PORT]);
    for _ in 0..3 {
        StarPort::new(scene.application.memory().clone()).set_qp_word(1, open);
        assert!(scene.star.detach(scene.now, number).is_none());
        assert_eq!(sent_to(&mut scene), [], "its peer was told");
    }
}
