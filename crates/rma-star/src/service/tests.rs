//! The stateless side, against a stateful side made by hand: what a frame does that is right, and
//! that nothing else does anything.

use std::sync::Arc;

use rma_core::{
    addr::HostAddr,
    backend::{RxFrame, RxPacket, TxFrame},
    crypto::{CounterBlock, EngineId},
    limits::TAG_LEN,
    nic::TenantIndex,
    port::{Port, SourcePort},
    quantum::Quantum,
    service::Service,
    time::Instant,
};
use rma_crypto::{OpenJob, SealJob, Text};
use rma_shm::{Line, Region};

mod attacks;
mod portals;
mod scene;
mod taken;

use super::Star;
use crate::{
    aad,
    config::{Framing, STATEFUL_PORT, STATELESS_PORT, StarConfigBuilder, StarPlace},
    counters::{StarDrop, StarEvent},
    keys::{FrameKey, PdKey},
    mr_table::Access,
    names::{ConnectionName, Era, Generation, MrId, Nonce, Qpn, Sequence, Side, Slot, Taken},
    portal::{Post, Posted, QpRecord, Report, StarPortal, portal},
    tables::z_time,
    verbs::{WcStatus, WqeOp},
    wire::{
        Answer, Cqe, Cqep, EaOfF, EaOfZ, FrameView, Gd, Guide, Header, KeyPhase, Rd, Rule, State,
        StateKind, Wqe,
        data::{GDA_HEADER_LEN, GUIDE_HEADER_LEN},
        entries::CQE_LEN,
        state::STATE_HEADER_LEN,
        told::{self, ASK_LEN},
        work::{TAKEN_LEN, WORK_HEADER_LEN},
    },
};
use scene::{F, NONCE, QPN_F, Scene, TENANT, W, Z, address, cqe};

//= star#III-C2-wqep
//= type=test
#[test]
fn a_post_is_told_with_the_key_of_just_this_span_and_not_kept() {
    let mut scene = Scene::new();
    let first = scene.wqe(WqeOp::Recv, 2, 64, 100);
    let inline = Posted { inline_len: 5, length: 5, slot: 3, ..scene.wqe(WqeOp::Send, 3, 0, 5) };
    scene.application.post(&Post::Wqe(first), None).unwrap();
    let data = Line([u64::from_le_bytes(*b"hello\0\0\0"); 8]);
    scene.application.post(&Post::Wqe(inline), Some(&data)).unwrap();
    let key = scene.key;
    let told = scene.sent(&key, None);
    let FrameView::Wqep(wqep) = told.view else { panic!("{:?}", told.view) };
    let wqes: Vec<_> = wqep.claims().wqes(&told.payload).map(Result::unwrap).collect();
    assert_eq!(wqes.len(), 2);
    let (recv, send) = (&wqes[0].0, &wqes[1].0);
    assert_eq!((recv.slot, recv.mr, recv.mr_offset, recv.len), (Slot(2), scene.mr, 64, 100));
    assert_eq!((send.slot, wqes[1].1), (Slot(3), &b"hello"[..]));
    assert_ne!(recv.key, send.key);
    assert!(scene.transmit().is_empty() && !scene.star.wants_transmit());
    // Once more only if it is asked for.
    scene.application.post(&Post::Wqe(first), None).unwrap();
    assert!(scene.transmit().is_empty());
    assert_eq!(scene.star.counters().events(StarEvent::PostRefused), 1);
    let again = scene.posted(Posted { again: true, ..first });
    assert_eq!(again.key, recv.key);
}

#[test]
fn a_post_that_may_not_be_is_reported_and_told_to_nobody() {
    let mut scene = Scene::new();
    let sound = scene.wqe(WqeOp::Recv, 0, 0, 64);
    for (posted, status) in [
        (Posted { mr: scene.mr.0 ^ 1, ..sound }, WcStatus::LocProtErr),
        (Posted { offset: 1 << 16, ..sound }, WcStatus::LocProtErr),
        (Posted { length: u32::MAX, ..sound }, WcStatus::LocQpOpErr),
        (Posted { inline_len: 9, length: 9, ..sound }, WcStatus::LocQpOpErr),
        (Posted { qp: 0, ..sound }, WcStatus::WrFlushErr),
    ] {
        let inline = (posted.inline_len > 0).then_some(&Line([0; 8]));
        scene.application.post(&Post::Wqe(posted), inline).unwrap();
        assert!(scene.transmit().is_empty());
        let report = scene.application.poll();
        assert!(
            matches!(report, Some(Report::Completed { status: it, .. }) if it == status),
            "{report:?} of {posted:?}"
        );
    }
    scene.application.post(&Post::Wqe(Posted { slot: 8, ..sound }), None).unwrap();
    assert!(scene.transmit().is_empty() && scene.application.poll().is_none());
    assert_eq!(scene.star.counters().events(StarEvent::PostRefused), 1);
}

//= star#III-C3-receiving
//= type=test
//= star#ours-guard-word
//= type=test
//= star#III-C4-cqep
//= type=test
#[test]
fn data_lands_while_its_work_request_is_open_and_its_completion_is_given_once() {
    let mut scene = Scene::new();
    let recv = scene.wqe(WqeOp::Recv, 2, 640, 200);
    let wqe = scene.posted(recv);
    let second = scene.rd(&wqe, 64, &[2; 50]);
    let first = scene.rd(&wqe, 0, &[1; 64]);
    for rd in [&second, &first, &first] {
        scene.receive(rd);
        assert_eq!(scene.answer_to(&wqe.key, rd), Answer::Done);
    }
    assert_eq!(scene.read(640, 115), [vec![1; 64], vec![2; 50], vec![0]].concat());
    let cqep = scene.cqep(&[cqe(&wqe, WqeOp::Recv, 114)]);
    let expected = Report::Completed {
        slot: 2,
        generation: 1,
        qp: 1,
        sequence: 0,
        op: WqeOp::Recv,
        status: WcStatus::Success,
        byte_len: 114,
        immediate: None,
        is_of_write: false,
    };
    for report in [Some(expected), None, None] {
        scene.receive(&cqep);
        assert_eq!(scene.answer_to(&wqe.key, &cqep), Answer::Done);
        assert_eq!(scene.application.poll(), report);
    }
    // The buffer is the application's again.
    scene.memory.copy_in(640, &[7; 115]).unwrap();
    let late = scene.rd(&wqe, 0, &[9; 64]);
    for rd in [&first, &late] {
        scene.receive(rd);
        assert_eq!(scene.answer_to(&wqe.key, rd), Answer::Done);
    }
    assert_eq!(scene.read(640, 115), [7; 115]);
    // And once the slot has another work request, of other bytes, the old frames are nothing.
    let next = Posted { generation: 2, sequence: 1, ..recv };
    scene.posted(next);
    scene.receive(&late);
    assert_eq!(scene.answer_to(&wqe.key, &late), Answer::Done);
    assert_eq!(scene.read(640, 115), [7; 115]);
}

//= star#III-C3-sending
//= type=test
#[test]
fn data_is_fetched_as_it_is_when_the_answer_is_written() {
    let mut scene = Scene::new();
    scene.memory.copy_in(100, &[3; 80]).unwrap();
    let send = scene.wqe(WqeOp::Send, 1, 100, 80);
    let wqe = scene.posted(send);
    let gd = scene.gd(&wqe, 64, 16);
    scene.receive(&gd);
    scene.memory.copy_in(164, &[4; 16]).unwrap();
    let gda = scene.sent(&wqe.key, Some(&gd));
    assert_eq!((gda.view.header_len(), gda.payload), (GDA_HEADER_LEN, vec![4; 16]));
    // Asked for, and then closed before the answer is written.
    let gd = scene.gd(&wqe, 0, 64);
    scene.receive(&gd);
    scene.application.post(&Post::Close { qp: 1 }, None).unwrap();
    assert_eq!(scene.answer_to(&wqe.key, &gd), Answer::Gone);
}

//= star#ours-guard-word
//= type=test
//= star#ours-answers
//= type=test
#[test]
fn a_connection_that_is_closed_takes_nothing_more() {
    let mut scene = Scene::new();
    let recv = scene.wqe(WqeOp::Recv, 2, 0, 64);
    let wqe = scene.posted(recv);
    scene.application.post(&Post::Close { qp: 1 }, None).unwrap();
    scene.star.take_commands(scene.now);
    assert_eq!(scene.application.poll(), Some(Report::Closed { qp: 1 }));
    let (rd, cqep) = (scene.rd(&wqe, 0, &[1; 64]), scene.cqep(&[cqe(&wqe, WqeOp::Recv, 64)]));
    for frame in [&rd, &cqep] {
        scene.receive(frame);
        assert_eq!(scene.answer_to(&wqe.key, frame), Answer::Gone);
    }
    assert_eq!((scene.read(0, 64), scene.application.poll()), (vec![0; 64], None));
    assert_eq!(scene.star.counters().events(StarEvent::Gone), 2);
}

#[test]
fn a_key_opens_its_own_span_alone() {
    let mut scene = Scene::new();
    let recv = scene.wqe(WqeOp::Recv, 2, 640, 64);
    let wqe = scene.posted(recv);
    for other in [
        Wqe { mr_offset: 641, ..wqe },
        Wqe { len: 128, ..wqe },
        Wqe { slot: Slot(3), ..wqe },
        Wqe { generation: Generation(2), ..wqe },
        Wqe { mr: MrId(wqe.mr.0 ^ 1), ..wqe },
        Wqe { key: scene.key, ..wqe },
    ] {
        let rd = scene.rd(&other, 0, &[1; 64]);
        scene.receive(&rd);
        assert!(scene.transmit().is_empty(), "{other:?}");
    }
    let rd = scene.rd(&wqe, 0, &[1; 64]);
    for at in 0..rd.len() {
        let mut changed = rd.clone();
        changed[at] ^= 1 << (at % 8);
        scene.receive(&changed);
    }
    scene.receive_from([192, 0, 2, 3], STATELESS_PORT, &rd);
    scene.receive_from(F, STATEFUL_PORT, &rd);
    assert!(scene.transmit().is_empty());
    assert!(scene.read(0, 1 << 16).iter().all(|&byte| byte == 0));
    scene.receive(&rd);
    assert_eq!(scene.answer_to(&wqe.key, &rd), Answer::Done);
}

//= star#ours-answers
//= type=test
#[test]
fn a_frame_that_has_expired_has_no_effect_and_is_told_the_time() {
    let mut scene = Scene::new();
    let recv = scene.wqe(WqeOp::Recv, 2, 0, 64);
    let wqe = scene.posted(recv);
    let rd = scene.rd(&wqe, 0, &[1; 64]);
    let came = scene.now;
    for micros in [W, W + 1] {
        scene.now = Instant::from_nanos(came.as_nanos() + micros * 1_000);
        scene.receive(&rd);
        assert_eq!(scene.answer_to(&wqe.key, &rd), Answer::Clock);
    }
    // One that expires too far ahead.
    scene.now = Instant::from_nanos(came.as_nanos() - 1_000);
    scene.receive(&rd);
    assert_eq!(scene.answer_to(&wqe.key, &rd), Answer::Clock);
    assert_eq!(scene.read(0, 64), [0; 64]);
    // 71 minutes later the 32 bits are the same, and the tag is wrong.
    scene.now = Instant::from_nanos(came.as_nanos() + (1 << 32) * 1_000);
    scene.receive(&rd);
    assert!(scene.transmit().is_empty());
    assert_eq!(scene.drops(StarDrop::Unauthenticated), 1);
}

//= star#ours-replay-filter
//= type=test
//= star#III-D1-rules
//= type=test
//= star#ours-answers
//= type=test
#[test]
fn a_write_lands_once_where_its_rule_allows_it() {
    let mut scene = Scene::new();
    let mr = scene.mr;
    let rule = scene.rule(mr);
    assert_eq!((rule.mr, rule.len), (mr, 1 << 16));
    let (write_key, read_key) = (rule.write.unwrap(), rule.read.unwrap());
    assert_ne!(write_key, read_key);
    let write = scene.write(&write_key, mr, 32, &[1; 64]);
    scene.receive(&write);
    assert_eq!(scene.answer_to(&write_key, &write), Answer::Done);
    assert_eq!(scene.read(32, 64), [1; 64]);
    scene.memory.copy_in(32, &[7; 64]).unwrap();
    scene.receive(&write);
    assert!(scene.transmit().is_empty());
    assert_eq!((scene.drops(StarDrop::Again), scene.read(32, 64)), (1, vec![7; 64]));
    // Not by the key of READs, not beyond the region, and not once it is deregistered.
    let by_read_key = scene.write(&read_key, mr, 32, &[1; 64]);
    scene.receive(&by_read_key);
    assert!(scene.transmit().is_empty());
    let beyond = scene.write(&write_key, mr, (1 << 16) - 63, &[1; 64]);
    scene.receive(&beyond);
    assert_eq!(scene.answer_to(&write_key, &beyond), Answer::Denied);
    scene.star.dereg_mr(0, mr).unwrap();
    let after = scene.write(&write_key, mr, 32, &[1; 64]);
    scene.receive(&after);
    assert_eq!(scene.answer_to(&write_key, &after), Answer::Denied);
    assert_eq!(scene.read(32, 64), [7; 64]);
}

//= star#ours-answers
//= type=test
#[test]
fn a_write_that_cannot_be_remembered_does_not_land_until_there_is_room() {
    let settings = StarConfigBuilder { filter_entries: 16, ..StarConfigBuilder::default() };
    let mut scene = Scene::with(settings);
    let mr = scene.mr;
    let key = scene.rule(mr).write.unwrap();
    let answer_to_write = |scene: &mut Scene, byte: u8| {
        let write = scene.write(&key, mr, 0, &[byte; 64]);
        scene.receive(&write);
        scene.answer_to(&key, &write)
    };
    for byte in 0..16 {
        assert_eq!(answer_to_write(&mut scene, byte), Answer::Done, "{byte}");
    }
    assert_eq!(answer_to_write(&mut scene, 16), Answer::Busy);
    assert_eq!(scene.read(0, 64), [15; 64]);
    // Those before are dead.
    scene.now = scene.now + core::time::Duration::from_micros(2 * W);
    assert_eq!(answer_to_write(&mut scene, 16), Answer::Done);
    assert_eq!(scene.read(0, 64), [16; 64]);
}

#[test]
fn places_taken_by_the_stateful_side_are_noted_where_the_library_looks() {
    let mut scene = Scene::new();
    let header = scene.header();
    let mut octets = [0; WORK_HEADER_LEN];
    EaOfF { header, state_number: 0, state_parts: 0 }.emit(&mut octets);
    let taken = Taken { send: Sequence(3), recv: Sequence(8) };
    let payload: [u8; TAKEN_LEN] = taken.to_octets();
    let key = scene.key;
    let ea = scene.seal(&key, &octets, &payload);
    scene.receive(&ea);
    let memory = scene.application.memory();
    assert_eq!(memory.taken(1), taken);
    assert_eq!((memory.qp_word(1).heard, memory.qp_word(0).heard), (1, 0));
    assert!(scene.transmit().is_empty());
    // The next connection of the QP begins anew.
    for post in [Post::Close { qp: 1 }, Post::Open { qp: 1, is_stateful: false }] {
        scene.application.post(&post, None).unwrap();
    }
    scene.star.take_commands(scene.now);
    assert_eq!(scene.application.memory().taken(1), Taken::default());
}

#[test]
fn a_frame_without_room_for_its_answer_has_no_effect() {
    let mut scene = Scene::new();
    let recv = scene.wqe(WqeOp::Recv, 2, 0, 64);
    let wqe = scene.posted(recv);
    // All of one host's share of the answers: as many as half of the 512 that are free then.
    for _ in 0..171 {
        let rd = scene.rd(&wqe, 0, &[1; 64]);
        scene.receive(&rd);
    }
    assert_eq!(scene.drops(StarDrop::NoRoom), 0);
    scene.memory.copy_in(0, &[7; 64]).unwrap();
    let (rd, cqep) = (scene.rd(&wqe, 0, &[9; 64]), scene.cqep(&[cqe(&wqe, WqeOp::Recv, 64)]));
    scene.receive(&rd);
    scene.receive(&cqep);
    assert_eq!((scene.read(0, 64), scene.application.poll()), (vec![7; 64], None));
    assert_eq!(scene.drops(StarDrop::NoRoom), 2);
    while !scene.transmit().is_empty() {}
    scene.receive(&cqep);
    assert!(scene.application.poll().is_some());
}

#[test]
fn tables_of_stateless_processing_do_not_depend_on_connections() {
    let scene = Scene::new();
    let memory = scene.star.stateless_memory();
    let (application, port) = portal(1 << 12, 1 << 12).unwrap();
    let mut star = scene.star;
    star.attach(port).unwrap();
    assert_eq!(star.stateless_memory(), memory);
    assert!(application.memory().qps() == 1 << 12);
}

#[test]
fn work_requests_of_one_connection_share_a_frame_but_not_in_the_papers_sequence() {
    for (framing, frames) in [(Framing::Fused, 1), (Framing::Faithful, 3)] {
        let mut scene = Scene::with(StarConfigBuilder { framing, ..Default::default() });
        for slot in 0..3 {
            let recv = scene.wqe(WqeOp::Recv, slot, u64::from(slot) * 64, 64);
            scene.application.post(&Post::Wqe(recv), None).unwrap();
        }
        let told = scene.transmit();
        let count = |frame: &Vec<u8>| match FrameView::parse(frame).unwrap() {
            FrameView::Wqep(wqep) => wqep.claims().count,
            view => panic!("{view:?}"),
        };
        assert_eq!(told.len(), frames);
        assert_eq!(told.iter().map(count).sum::<u8>(), 3);
    }
}

#[test]
fn an_rd_that_ends_a_message_completes_its_recv_and_is_answered_by_an_ea() {
    let mut scene = Scene::new();
    for (slot, message) in [(1, &[5; 20][..]), (2, &[])] {
        // A RECV of no bytes has no memory.
        let mr = if message.is_empty() { 0 } else { scene.mr.0 };
        let recv = scene.wqe(WqeOp::Recv, slot, 0, message.len() as u32);
        let wqe = scene.posted(Posted { mr, ..recv });
        let guide = scene.guide(&wqe, WqeOp::Recv, (0, message.len() as u16));
        let mut header = [0; GUIDE_HEADER_LEN];
        Rd { guide, wants_answer: false, completes: true }.emit(&mut header);
        let rd = scene.seal(&wqe.key, &header, message);
        for report in [true, false] {
            scene.receive(&rd);
            assert_eq!(scene.answer_to(&wqe.key, &rd), Answer::Done);
            let reported = scene.application.poll();
            assert_eq!(reported.is_some(), report);
            if let Some(Report::Completed { slot: of, byte_len, status, .. }) = reported {
                assert_eq!((of, byte_len), (slot, message.len() as u32));
                assert_eq!(status, WcStatus::Success);
            }
        }
        assert_eq!(scene.read(0, message.len()), message);
    }
}

#[test]
fn frames_that_come_together_are_answered_by_one_ea() {
    let mut scene = Scene::new();
    let mut frames = Vec::new();
    for slot in 0..3 {
        let recv = scene.wqe(WqeOp::Recv, slot, 0, 64);
        let wqe = scene.posted(recv);
        frames.push(scene.cqep(&[cqe(&wqe, WqeOp::Recv, 0)]));
    }
    let packets = frames.iter_mut().map(|bytes| RxPacket {
        source: address(F),
        destination: address(Z),
        port: STATELESS_PORT,
        source_port: SourcePort::FIRST,
        reply_len_max: 4096,
        link: None,
        bytes,
    });
    let mut batch: Vec<_> = packets.map(RxFrame::alone).collect();
    let now = scene.now;
    scene.star.handle_frames(now, &now, &mut batch);
    let key = scene.key;
    let ea = scene.sent(&key, None);
    let entries: Vec<_> = EaOfZ::entries(&ea.payload).map(Result::unwrap).collect();
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|it| (it.taken, it.answer) == (1, Answer::Done)));
    assert_eq!(core::iter::from_fn(|| scene.application.poll()).count(), 3);
}

#[test]
fn a_connection_whose_frames_a_batch_ends_between_is_answered_by_one_ea() {
    let mut scene = Scene::new();
    let rds = [1, 2].map(|slot| {
        let recv = scene.wqe(WqeOp::Recv, slot, 0, 20);
        let wqe = scene.posted(recv);
        let guide = scene.guide(&wqe, WqeOp::Recv, (0, 20));
        let mut header = [0; GUIDE_HEADER_LEN];
        Rd { guide, wants_answer: false, completes: true }.emit(&mut header);
        scene.seal(&wqe.key, &header, &[5; 20])
    });
    let key = scene.key;
    let answers_of = |scene: &mut Scene| {
        let ea = scene.sent(&key, None);
        EaOfZ::entries(&ea.payload).map(|it| it.unwrap().answer).collect::<Vec<_>>()
    };
    rds.iter().for_each(|rd| scene.receive(rd));
    assert_eq!(answers_of(&mut scene), [Answer::Done; 2]);
    // The next one answers frames that come when it has been written.
    for rd in &rds {
        scene.receive(rd);
        assert_eq!(answers_of(&mut scene), [Answer::Done]);
    }
}

/// Answers tell how long they have waited here, for the stateful side of many hosts.
#[test]
fn answers_say_for_how_long_they_have_waited() {
    let mut scene = Scene::new();
    let recv = scene.wqe(WqeOp::Recv, 2, 640, 200);
    let wqe = scene.posted(recv);
    for (micros, told) in [(0, 0), (37, 37), (70_000, u16::MAX)] {
        let rd = scene.rd(&wqe, 0, &[1; 64]);
        scene.receive(&rd);
        scene.now = scene.now + core::time::Duration::from_micros(micros);
        let FrameView::Rda(rda) = scene.sent(&wqe.key, Some(&rd)).view else { panic!("an RDA") };
        assert_eq!(rda.claims().0.delay_micros, told);
        let cqep = scene.cqep(&[Cqe::PROBE]);
        scene.receive(&cqep);
        scene.now = scene.now + core::time::Duration::from_micros(micros);
        let key = scene.key;
        let FrameView::EaOfZ(ea) = scene.sent(&key, None).view else { panic!("an EA") };
        assert_eq!(ea.claims().delay_micros, told);
    }
}

/// Whatever addresses peers have: the table of windows is never fuller than that of connections.
#[test]
fn a_connection_too_many_is_refused_and_counted() {
    let mut scene = Scene::with(StarConfigBuilder::default().with(|it| it.connections = 1));
    let (pd, now) = (scene.connection.pd.0, scene.now);
    scene.application.post(&Post::Close { qp: 1 }, None).unwrap();
    let mut told = Vec::new();
    // The first is refused for another reason, and holds no window of its peer's.
    let tries = [
        (0, 8, Post::OpenRc { qp: 0, connects: true }),
        (0, 9, Post::Open { qp: 0, is_stateful: true }),
        (1, 10, Post::Open { qp: 1, is_stateful: true }),
    ];
    for (qp, peer, post) in tries {
        let is_rc = matches!(post, Post::OpenRc { .. });
        let record = QpRecord {
            peer: address([192, 0, 2, peer]),
            pd: pd + u32::from(is_rc),
            local_pd: pd,
            z_clock: 0,
            peer_qpn: QPN_F,
            nonce: NONCE,
            era: 1,
            packet_len_max: 1472,
            key: [0; 16],
        };
        scene.application.set_record(qp, &record);
        scene.application.post(&post, None).unwrap();
        scene.star.take_commands(now);
    }
    while let Some(report) = scene.application.poll() {
        if let Report::Opened { qp, status, .. } = report {
            told.push((qp, status));
        }
    }
    let (wrong, full) = (WcStatus::LocProtErr, WcStatus::GeneralErr);
    assert_eq!(told, [(0, wrong), (0, WcStatus::Success), (1, full)]);
    assert_eq!(scene.star.counters().events(StarEvent::OpenRefused), 2);
}
