//! Attacks: applications that write whatever they like, and peers that have real keys. None of them
//! stops the engine, holds it up, or does anything to others.

use super::*;

/// Posts of one portal that may come to nothing in one turn.
const IDLE_POSTS: u32 = 32;

/// Attaches another portal, and opens its QP 0.
fn neighbour(scene: &mut Scene) -> StarPortal {
    let (mut application, mut port) = portal(8, 2).unwrap();
    port.set_tenant(TENANT);
    let number = scene.star.attach(port).unwrap();
    let pd = scene.star.alloc_pd(number, &PdKey::from_bytes([8; 16])).unwrap();
    let record = QpRecord { pd: pd.0, ..scene.application.memory().record(1).unwrap() };
    application.set_record(0, &record);
    application.post(&Post::Open { qp: 0, is_stateful: false }, None).unwrap();
    scene.star.take_commands(scene.now);
    assert!(matches!(application.poll(), Some(Report::Opened { status: WcStatus::Success, .. })));
    application
}

/// An inline SEND of one octet.
fn inline_send(scene: &Scene, slot: u32, qp: u32) -> Posted {
    Posted { inline_len: 1, qp, ..scene.wqe(WqeOp::Send, slot, 0, 1) }
}

#[test]
fn a_work_request_that_is_posted_again_must_make_sense_again() {
    let mut scene = Scene::new();
    let sound = inline_send(&scene, 1, 1);
    let data = Line([7; 8]);
    scene.application.post(&Post::Wqe(sound), Some(&data)).unwrap();
    assert_eq!(scene.transmit().len(), 1);
    let again = Posted { again: true, ..sound };
    for nonsense in [
        Posted { inline_len: 255, ..again },
        Posted { inline_len: 65, length: 65, ..again },
        Posted { inline_len: 8, length: 9, ..again },
        Posted { op: WqeOp::Recv, ..again },
        Posted { inline_len: 0, length: u32::MAX, ..again },
        Posted { offset: u64::MAX, ..again },
        Posted { op: WqeOp::Write, remote_offset: u64::MAX, ..again },
    ] {
        let inline = (nonsense.inline_len > 0).then_some(&data);
        scene.application.post(&Post::Wqe(nonsense), inline).unwrap();
        assert!(scene.transmit().is_empty(), "{nonsense:?}");
    }
    assert!(scene.application.poll().is_none());
    scene.application.post(&Post::Wqe(again), Some(&data)).unwrap();
    assert_eq!(scene.transmit().len(), 1);
}

/// Each kind of post that comes to nothing, in a ring that is full of it.
#[test]
fn posts_that_come_to_nothing_are_counted_out_each_turn_and_hold_up_nobody() {
    let posts: [fn(&Scene) -> Post; 4] = [
        |scene| Post::Wqe(Posted { slot: 9_999, ..inline_send(scene, 0, 0) }),
        |scene| Post::Wqe(Posted { again: true, ..inline_send(scene, 3, 1) }),
        |scene| Post::Wqe(scene.wqe(WqeOp::Recv, 0, u64::MAX, 9)),
        |_| Post::Introduce { qp: 77 },
    ];
    for (number, post) in posts.iter().enumerate() {
        let mut scene = Scene::new();
        let (mut flooder, port) = portal(1 << 10, 1).unwrap();
        scene.star.attach(port).unwrap();
        let mut neighbour = neighbour(&mut scene);
        let (post, data) = (post(&scene), Line([0; 8]));
        let inline = Post::has_second(&post.to_line()).then_some(&data);
        while flooder.post(&post, inline).is_ok() {}
        let ring = flooder.memory().posts.clone();
        let flood = ring.tail();
        assert!(flood >= 1 << 11);
        let honest = inline_send(&scene, 2, 0);
        neighbour.post(&Post::Wqe(honest), Some(&data)).unwrap();
        assert_eq!(scene.transmit().len(), 1, "post {number}");
        assert!((1..=3 * IDLE_POSTS).contains(&ring.head()), "post {number}: {}", ring.head());
        // Nor is any of it forgotten.
        (0..flood / IDLE_POSTS).for_each(|_| assert!(scene.transmit().is_empty()));
        assert!(scene.star.is_idle());
    }
}

#[test]
fn lines_that_say_nothing_are_counted_out_each_turn() {
    let mut scene = Scene::new();
    let (flooder, port) = portal(1 << 10, 1).unwrap();
    scene.star.attach(port).unwrap();
    let mut neighbour = neighbour(&mut scene);
    let ring = flooder.memory().posts.clone();
    (0..2048).for_each(|line| ring.set_line(line, &Line([u64::MAX; 8])));
    ring.set_tail(2048);
    let data = Line([0; 8]);
    let honest = inline_send(&scene, 2, 0);
    neighbour.post(&Post::Wqe(honest), Some(&data)).unwrap();
    assert_eq!(scene.transmit().len(), 1);
    assert!((1..=2 * IDLE_POSTS).contains(&ring.head()), "{} taken", ring.head());
    assert!(!scene.star.is_idle());
    (0..2048 / IDLE_POSTS).for_each(|_| assert!(scene.transmit().is_empty()));
    assert!(scene.star.is_idle());
}

#[test]
fn places_taken_of_one_connection_are_not_taken_of_the_next_one() {
    let mut scene = Scene::new();
    let header = scene.header();
    let mut octets = [0; WORK_HEADER_LEN];
    EaOfF { header, state_number: 0, state_parts: 0 }.emit(&mut octets);
    let taken = Taken { send: Sequence(1_000), recv: Sequence(7) };
    let payload: [u8; TAKEN_LEN] = taken.to_octets();
    let key = scene.key;
    let ea = scene.seal(&key, &octets, &payload);
    scene.receive(&ea);
    assert_eq!(scene.application.memory().taken(1), taken);
    scene.application.post(&Post::Close { qp: 1 }, None).unwrap();
    let record = scene.application.memory().record(1).unwrap();
    scene.application.set_record(1, &QpRecord { nonce: NONCE + 1, ..record });
    scene.application.post(&Post::Open { qp: 1, is_stateful: false }, None).unwrap();
    scene.star.take_commands(scene.now);
    assert_eq!(scene.application.memory().taken(1), Taken::default());
    // Nor does an acknowledgement of the old one come to the new one.
    scene.receive(&ea);
    assert_eq!(scene.application.memory().taken(1), Taken::default());
    assert_eq!(scene.drops(StarDrop::LateOrUnsolicited), 1);
}

#[test]
fn a_portal_that_comes_after_another_has_nothing_of_it() {
    let mut scene = Scene::new();
    let record = scene.application.memory().record(1).unwrap();
    let number = scene.connection.qpn_z.portal() as u16;
    scene.star.detach(scene.now, number).unwrap();
    let (mut next, port) = portal(8, 2).unwrap();
    assert_eq!(scene.star.attach(port), Some(number));
    next.set_record(1, &record);
    next.post(&Post::Open { qp: 1, is_stateful: false }, None).unwrap();
    scene.star.take_commands(scene.now);
    let clock = z_time(scene.now).0;
    let (status, key, valid_micros) = (WcStatus::LocQpOpErr, [0; 16], W as u32);
    let refused = Report::Opened { qp: 1, status, key, clock, valid_micros };
    assert_eq!(next.poll(), Some(refused));
}

#[test]
fn no_memory_is_registered_in_a_domain_that_there_is_not() {
    let mut scene = Scene::new();
    let pd = scene.connection.pd;
    scene.star.dealloc_pd(0, pd).unwrap();
    let refused = scene.star.reg_mr(0, pd, Arc::clone(&scene.memory), 0..64, Access::REMOTE_READ);
    assert_eq!(refused, Err(crate::mr_table::MrError::NoSuchPd(pd)));
}

/// The application has its engine make keys for spans of memory that is not its own: with inline
/// data, whose memory region means nothing, and by posting something else again.
#[test]
fn a_key_of_ones_own_domain_opens_no_memory_of_another() {
    let mut scene = Scene::new();
    let (other, port) = portal(8, 2).unwrap();
    let number = scene.star.attach(port).unwrap();
    let pd = scene.star.alloc_pd(number, &PdKey::from_bytes([8; 16])).unwrap();
    let memory = Arc::new(Region::new(1 << 12).unwrap());
    memory.copy_in(0, &[5; 64]).unwrap();
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = scene.star.reg_mr(number, pd, Arc::clone(&memory), 0..1 << 12, all).unwrap();
    let posted = Posted { mr: mr.0, inline_len: 64, length: 64, ..inline_send(&scene, 1, 1) };
    scene.application.post(&Post::Wqe(posted), Some(&Line([0; 8]))).unwrap();
    let key = scene.key;
    let told = scene.sent(&key, None);
    let FrameView::Wqep(wqep) = told.view else { panic!("{:?}", told.view) };
    let inline = wqep.claims().wqes(&told.payload).next().unwrap().unwrap().0;
    let recv = scene.posted(Posted { op: WqeOp::Recv, again: true, inline_len: 0, ..posted });
    assert_eq!((inline.mr, recv.mr), (mr, mr));
    let (gd, rd) = (scene.gd(&inline, 0, 64), scene.rd(&recv, 0, &[9; 64]));
    for (frame, wqe) in [(&gd, &inline), (&rd, &recv)] {
        scene.receive(frame);
        assert_eq!(scene.answer_to(&wqe.key, frame), Answer::Denied);
    }
    let mut octets = [0; 64];
    memory.copy_out(0, &mut octets).unwrap();
    assert_eq!(
        (octets, other.memory().qp_word(1).state),
        ([5; 64], crate::portal::QpState::Closed)
    );
}

#[test]
fn memory_domain_and_portal_may_go_while_answers_wait() {
    let gone: [fn(&mut Scene); 3] = [
        |scene| drop(scene.star.dereg_mr(0, scene.mr).unwrap()),
        |scene| scene.star.dealloc_pd(0, scene.connection.pd).unwrap(),
        |scene| {
            let portal = scene.connection.qpn_z.portal() as u16;
            drop(scene.star.detach(scene.now, portal).unwrap());
        },
    ];
    for (number, go) in gone.iter().enumerate() {
        let mut scene = Scene::new();
        scene.memory.copy_in(0, &[6; 64]).unwrap();
        let (send, recv) = (scene.wqe(WqeOp::Send, 1, 0, 64), scene.wqe(WqeOp::Recv, 2, 64, 64));
        let (send, recv) = (scene.posted(send), scene.posted(recv));
        let gd = scene.gd(&send, 0, 64);
        let guide = scene.guide(&recv, WqeOp::Recv, (0, 64));
        let mut header = [0; GUIDE_HEADER_LEN];
        Rd { guide, wants_answer: false, completes: true }.emit(&mut header);
        let rd = scene.seal(&recv.key, &header, &[1; 64]);
        let ask = ask(&mut scene);
        [&gd, &rd, &ask].into_iter().for_each(|frame| scene.receive(frame));
        go(&mut scene);
        let sent = scene.transmit();
        assert!(!scene.star.wants_transmit());
        // Whatever is still answered has nothing of the memory.
        let gda =
            sent.iter().find(|frame| matches!(FrameView::parse(frame).unwrap(), FrameView::Gda(_)));
        if let Some(gda) = gda {
            let opened = scene.open(&send.key, gda, Some(&gd));
            let FrameView::Gda(gda) = opened.view else { panic!("it is one") };
            assert!(matches!(gda.claims().answer.answer, Answer::Denied | Answer::Gone));
            assert!(opened.payload.is_empty(), "{number}");
        }
    }
}

/// A question for the rule of the memory region.
fn ask(scene: &mut Scene) -> Vec<u8> {
    let header = scene.header();
    let (sender, kind, payload_len) = (Side::Stateful, StateKind::Ask, ASK_LEN as u16);
    let state = State { header, sender, kind, number: 1, part: 0, of: 1, payload_len };
    let mut octets = [0; STATE_HEADER_LEN];
    state.emit(&mut octets);
    let (key, mr) = (scene.key, scene.mr);
    scene.seal(&key, &octets, &told::ask(mr))
}

/// Random batches of frames of a peer with real keys, of which those answers that wait leave now
/// and then, and connections that close and open between them. Each frame is answered at most once,
/// and nothing of the table of answers is lost.
#[test]
fn answers_that_come_and_go_leave_the_table_whole() {
    for seed in 0..32_u64 {
        let mut scene = Scene::new();
        let (send, recv) = (scene.wqe(WqeOp::Send, 1, 0, 64), scene.wqe(WqeOp::Recv, 2, 64, 64));
        let (send, recv) = (scene.posted(send), scene.posted(recv));
        let secret = rma_core::fair_queue::BucketSecret::from_bytes([seed as u8; 16]);
        for step in 0..60 {
            let dice = secret.hash(step);
            let mut frames: Vec<Vec<u8>> = (0..dice % 17)
                .map(|at| match secret.hash(dice ^ at) % 5 {
                    0 | 1 => scene.gd(&send, 0, 64),
                    2 => scene.rd(&recv, 0, &[1; 64]),
                    3 => scene.cqep(&[cqe(&send, WqeOp::Send, 64); 2]),
                    _ => ask(&mut scene),
                })
                .collect();
            let packets = frames.iter_mut().map(|bytes| RxPacket {
                source: address(F),
                destination: address(Z),
                port: STATELESS_PORT,
                source_port: SourcePort::FIRST,
                reply_len_max: if dice.is_multiple_of(7) { 60 } else { 4096 },
                link: None,
                bytes,
            });
            let mut batch: Vec<_> = packets.map(RxFrame::alone).collect();
            let now = scene.now;
            scene.star.handle_frames(now, &now, &mut batch);
            if (dice >> 8).is_multiple_of(5) {
                let post = Post::Close { qp: 1 };
                scene.application.post(&post, None).unwrap();
            }
            if (dice >> 16).is_multiple_of(3) {
                scene.transmit();
            }
            if (dice >> 24).is_multiple_of(5) {
                let post = Post::Open { qp: 1, is_stateful: false };
                scene.application.post(&post, None).unwrap();
            }
            while scene.application.poll().is_some() {}
        }
        while !scene.transmit().is_empty() {}
        while scene.application.poll().is_some() {}
        let before = scene.drops(StarDrop::NoRoom);
        for _ in 0..64 {
            let gd = scene.gd(&send, 0, 64);
            scene.now = Instant::from_nanos(scene.now.as_nanos() + W * 2_000);
            // Expired, and so answered whatever has become of its work request.
            scene.receive(&gd);
        }
        assert_eq!(scene.drops(StarDrop::NoRoom), before);
        let answers: usize = (0..8).map(|_| scene.transmit().len()).sum();
        assert_eq!(answers, 64, "seed {seed}");
    }
}

#[test]
fn a_portal_takes_its_stateful_connections_along() {
    let mut scene = Scene::new();
    let number = scene.connection.qpn_z.portal() as u16;
    let record = scene.application.memory().record(1).unwrap();
    let record = QpRecord { peer_qpn: scene.connection.qpn_z.to_bits(), ..record };
    scene.application.set_record(0, &record);
    scene.application.post(&Post::Open { qp: 0, is_stateful: true }, None).unwrap();
    scene.star.take_commands(scene.now);
    assert_eq!(scene.star.stateful_connections(), 1);
    // It has sent nothing, so nothing has to die before.
    assert!(scene.star.detach(scene.now, number).is_some());
    assert_eq!(scene.star.stateful_connections(), 0);
}

#[test]
fn a_portal_cannot_speak_for_anothers_domain_or_memory() {
    use crate::{mr_table::MrError, pd_table::PdError};
    let mut scene = Scene::new();
    let (_, port) = portal(8, 2).unwrap();
    let other = scene.star.attach(port).unwrap();
    let (pd, mr, span) = (scene.connection.pd, scene.mr, 0..64);
    let own = scene.connection.qpn_z.portal() as u16;
    let read = Access::REMOTE_READ;
    let memory = Arc::clone(&scene.memory);
    let star = &mut scene.star;
    let refused = star.reg_mr(other, pd, Arc::clone(&memory), span.clone(), read);
    assert_eq!(refused, Err(MrError::NoSuchPd(pd)));
    assert_eq!(star.bind_mw(other, mr, span.clone(), read), Err(MrError::NoSuchMr(mr)));
    assert_eq!(star.dereg_mr(other, mr).unwrap_err(), MrError::NoSuchMr(mr));
    assert_eq!(star.dealloc_pd(other, pd), Err(PdError::NoSuchPd(pd)));
    // It is all as before.
    let window = star.bind_mw(own, mr, span.clone(), read).unwrap();
    assert_eq!(star.dereg_mr(other, window).unwrap_err(), MrError::NoSuchMr(window));
    star.dereg_mr(own, window).unwrap();
    star.reg_mr(own, pd, memory, span, read).unwrap();
    star.dealloc_pd(own, pd).unwrap();
}

//= star#ours-name-of-64-bits
//= type=test
/// A tenant that registers and deregisters for ever takes nothing from others, and its peers' keys
/// open nothing that came later.
#[test]
fn a_key_of_a_region_opens_none_that_has_its_number_again() {
    let settings = StarConfigBuilder { mrs: 2, ..StarConfigBuilder::default() };
    let mut scene = Scene::with(settings);
    let pd = scene.connection.pd;
    let register = |scene: &mut Scene| {
        let memory = Arc::clone(&scene.memory);
        scene.star.reg_mr(0, pd, memory, 0..4096, Access::REMOTE_WRITE).unwrap()
    };
    let first = register(&mut scene);
    let rule = scene.rule(first);
    let key = rule.write.unwrap();
    scene.star.dereg_mr(0, first).unwrap();
    let mut again = register(&mut scene);
    let mut uses = 1_u32;
    while again != first {
        if uses.is_power_of_two() {
            let old = scene.write(&key, first, 0, &[9; 64]);
            scene.receive(&old);
            assert_eq!(scene.answer_to(&key, &old), Answer::Denied, "after {uses} uses");
        }
        scene.star.dereg_mr(0, again).unwrap();
        again = register(&mut scene);
        uses += 1;
    }
    assert_eq!(uses, u32::from(u16::MAX), "the number has come again");
    let old = scene.write(&key, first, 0, &[9; 64]);
    scene.receive(&old);
    assert!(scene.transmit().is_empty());
    assert_eq!((scene.drops(StarDrop::Unauthenticated), scene.read(0, 64)), (1, vec![0; 64]));
    let rule = scene.rule(first);
    let key = rule.write.unwrap();
    let write = scene.write(&key, first, 0, &[7; 64]);
    scene.receive(&write);
    assert_eq!((scene.answer_to(&key, &write), scene.read(0, 64)), (Answer::Done, vec![7; 64]));
}
