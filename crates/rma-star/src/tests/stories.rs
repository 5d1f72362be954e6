//! Stories of one connection: what is posted is done, once, whatever the network does.

use core::time::Duration;
use std::{cell::RefCell, rc::Rc};

use super::{
    deeds::{DEEDS, Deed, begin, check, faithful, fused, pattern},
    pair::{Packet, Pair, QP, Wr},
};
use crate::{
    config::StarConfigBuilder,
    counters::StarEvent,
    portal::{Post, Report},
    verbs::{WcStatus, WqeOp},
};

const MS: Duration = Duration::from_millis(1);
const LATENCY: Duration = Duration::from_micros(5);

/// Both framings of StaR, and connections both of whose sides are stateful.
const MODES: [(fn() -> StarConfigBuilder, bool); 3] =
    [(faithful, false), (fused, false), (fused, true)];

#[test]
fn every_deed_is_done_in_both_framings_whatever_its_length() {
    for (settings, is_rc) in MODES {
        let mut pair = Pair::of(settings(), is_rc);
        let mut at = 0;
        for deed in DEEDS {
            for len in [0, 1, 63, 64, 65, 1400, 1401, 5000, 40_000] {
                for immediate in [None, Some(len + 1)] {
                    if immediate.is_some() && matches!(deed, Deed::ZRead | Deed::FRead) {
                        continue;
                    }
                    let begun = begin(&mut pair, deed, (at, len), immediate);
                    pair.run_to_the_end(100 * MS);
                    check(&pair, &begun);
                    at = (at + u64::from(len) + 77) % 900_000;
                }
            }
        }
        assert_eq!(pair.f_host.counters.events(StarEvent::Retransmit), 0);
    }
}

//= star#III-B-wqep
//= type=test
//= star#III-B-cqep
//= type=test
//= star#III-B-ea
//= type=test
//= star#III-B-rd
//= type=test
//= star#III-B-rda
//= type=test
//= star#III-B-gd
//= type=test
//= star#III-B-gda
//= type=test
#[test]
fn the_frames_of_the_papers_sequences_are_sent_and_no_others() {
    // WQEP, CQEP, EA, RD, RDA, GD, GDA.
    let counts = |pair: &Pair| {
        [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27]
            .map(|frame_type| pair.sent.get(&frame_type).copied().unwrap_or(0))
    };
    for (deed, expected) in [
        (Deed::ZSend, [1, 1, 2, 0, 0, 1, 1]),
        (Deed::FSend, [1, 1, 2, 1, 1, 0, 0]),
        (Deed::ZRead, [1, 1, 2, 1, 1, 0, 0]),
        (Deed::ZWrite, [1, 1, 2, 0, 0, 1, 1]),
        (Deed::FWrite, [0, 0, 0, 1, 1, 0, 0]),
        (Deed::FRead, [0, 0, 0, 0, 0, 1, 1]),
    ] {
        let mut pair = Pair::new(faithful());
        let begun = begin(&mut pair, deed, (64, 32), None);
        pair.run_for(5 * MS);
        check(&pair, &begun);
        assert_eq!(counts(&pair), expected, "{deed:?}");
    }
    // Fused, the completion of a RECV comes with its data.
    let mut pair = Pair::new(fused());
    let begun = begin(&mut pair, Deed::FSend, (64, 32), None);
    pair.run_for(5 * MS);
    check(&pair, &begun);
    assert_eq!(counts(&pair), [1, 0, 1, 1, 1, 0, 0]);
}

#[test]
fn a_rule_is_asked_for_once() {
    let mut pair = Pair::new(fused());
    for at in [0, 1000, 2000] {
        let begun = begin(&mut pair, Deed::FWrite, (at, 100), None);
        pair.run_to_the_end(10 * MS);
        check(&pair, &begun);
        assert_eq!(pair.sent[&0x28], 2, "a question and its answer");
    }
}

/// Every frame of a deed is lost once, or doubled, or comes late.
#[test]
fn whichever_frame_is_lost_or_doubled_the_deed_is_done_once() {
    for (settings, is_rc) in MODES {
        for deed in DEEDS {
            for number in 0..12 {
                for copies in [0, 2] {
                    let mut pair = Pair::of(settings(), is_rc);
                    let mut count = 0;
                    pair.fate = Box::new(move |_| {
                        count += 1;
                        let copies = if count - 1 == number { copies } else { 1 };
                        (0..copies).map(|copy| LATENCY * (1 + copy * 300)).collect()
                    });
                    let begun = begin(&mut pair, deed, (128, 3000), None);
                    pair.run_to_the_end(500 * MS);
                    check(&pair, &begun);
                }
            }
        }
    }
}

#[test]
fn a_message_waits_for_its_recv_and_fails_if_that_never_comes() {
    for deed in [Deed::ZSend, Deed::FSend] {
        let mut pair = Pair::new(fused());
        let wr = Wr { here: 0, len: 100, ..Wr::default() };
        let (sends, recvs) = match deed {
            Deed::ZSend => (&mut pair.z, &mut pair.f),
            _ => (&mut pair.f, &mut pair.z),
        };
        let _ = recvs;
        let first = sends.post(WqeOp::Send, wr);
        pair.run_for(Duration::from_secs(5));
        let (sends, recvs) = match deed {
            Deed::ZSend => (&pair.z, &mut pair.f),
            _ => (&pair.f, &mut pair.z),
        };
        assert_eq!(sends.status(first), None, "it waits");
        recvs.post(WqeOp::Recv, wr);
        pair.run_for(100 * MS);
        let sends = if deed == Deed::ZSend { &mut pair.z } else { &mut pair.f };
        assert_eq!(sends.status(first), Some(WcStatus::Success));
        let second = sends.post(WqeOp::Send, wr);
        pair.run_for(Duration::from_secs(11));
        let sends = if deed == Deed::ZSend { &pair.z } else { &pair.f };
        assert_eq!(sends.status(second), Some(WcStatus::RnrRetryExcErr), "{deed:?}");
        assert!(matches!(pair.f.told[..], [Report::Failed { .. }]));
    }
}

#[test]
fn a_message_that_is_too_long_fails_on_both_sides() {
    let long = Wr { here: 0, len: 101, ..Wr::default() };
    let short = Wr { here: 0, len: 100, ..Wr::default() };
    let mut pair = Pair::new(fused());
    let recv = pair.f.post(WqeOp::Recv, short);
    let send = pair.z.post(WqeOp::Send, long);
    pair.run_for(100 * MS);
    assert_eq!(pair.f.status(recv), Some(WcStatus::LocLenErr));
    assert_eq!(pair.z.status(send), Some(WcStatus::RemInvReqErr));
    let mut pair = Pair::new(fused());
    let recv = pair.z.post(WqeOp::Recv, short);
    let send = pair.f.post(WqeOp::Send, long);
    pair.run_for(100 * MS);
    assert_eq!(pair.z.status(recv), Some(WcStatus::LocLenErr));
    assert_eq!(pair.f.status(send), Some(WcStatus::RemInvReqErr));
    assert_eq!(pair.f.told, [Report::Failed { qp: QP, status: WcStatus::LocLenErr }]);
}

#[test]
fn messages_before_one_that_is_too_long_do_not_fail_with_it_whichever_frame_is_lost() {
    let wr = |len| Wr { here: 0, len, ..Wr::default() };
    for (is_of_f, lost) in [true, false].into_iter().flat_map(|it| (0..8).map(move |n| (it, n))) {
        let mut pair = Pair::new(fused());
        let mut number = 0;
        pair.fate = Box::new(move |_| {
            number += 1;
            if number == lost { vec![] } else { vec![LATENCY] }
        });
        let (recvs, sends) = if is_of_f {
            (
                [100; 3].map(|len| pair.z.post(WqeOp::Recv, wr(len))),
                [90, 100, 101].map(|len| pair.f.post(WqeOp::Send, wr(len))),
            )
        } else {
            (
                [100; 3].map(|len| pair.f.post(WqeOp::Recv, wr(len))),
                [90, 100, 101].map(|len| pair.z.post(WqeOp::Send, wr(len))),
            )
        };
        pair.run_for(Duration::from_secs(1));
        let status_of = |is_of_f: bool, slot: u32| {
            if is_of_f { pair.f.status(slot) } else { pair.z.status(slot) }.unwrap()
        };
        use WcStatus::{LocLenErr, RemInvReqErr, Success};
        let taken = recvs.map(|recv| status_of(!is_of_f, recv));
        assert_eq!(taken, [Success, Success, LocLenErr], "{is_of_f} {lost}");
        let sent = sends.map(|send| status_of(is_of_f, send));
        assert_eq!(sent, [Success, Success, RemInvReqErr], "{is_of_f} {lost}");
    }
}

#[test]
fn memory_that_a_peer_does_not_share_is_not_touched() {
    for op in [WqeOp::Write, WqeOp::Read] {
        let mut pair = Pair::new(fused());
        let beyond = Wr { here: 0, len: 100, there: (1 << 20) - 99, ..Wr::default() };
        let remote = Some(pair.z.mr);
        let slot = pair.f.post(op, Wr { remote, ..beyond });
        let after = pair.f.post(op, Wr { remote, there: 0, ..beyond });
        pair.run_for(100 * MS);
        assert_eq!(pair.f.status(slot), Some(WcStatus::RemAccessErr), "{op:?}");
        assert_eq!(pair.f.status(after), Some(WcStatus::WrFlushErr), "{op:?}");
        let mut pair = Pair::new(fused());
        let remote = Some(pair.f.mr);
        let slot = pair.z.post(op, Wr { remote, ..beyond });
        pair.run_for(100 * MS);
        assert_eq!(pair.z.status(slot), Some(WcStatus::RemAccessErr), "{op:?}");
        // Deregistered after the rule was learnt.
        let mut pair = Pair::new(fused());
        let wr = Wr { here: 0, len: 100, remote: Some(pair.z.mr), ..Wr::default() };
        let slot = pair.f.post(op, wr);
        pair.run_for(10 * MS);
        assert_eq!(pair.f.status(slot), Some(WcStatus::Success), "{op:?}");
        pair.star.dereg_mr(0, pair.z.mr).unwrap();
        let slot = pair.f.post(op, wr);
        pair.run_for(100 * MS);
        assert_eq!(pair.f.status(slot), Some(WcStatus::RemAccessErr), "{op:?}");
    }
}

#[test]
fn a_work_request_that_makes_no_sense_is_refused_at_once() {
    let mut pair = Pair::new(fused());
    let recv = pair.f.post(WqeOp::Recv, Wr { here: 0, len: 8, ..Wr::default() });
    let bad = pair.f.post(WqeOp::Send, Wr { here: 1 << 20, len: 1, ..Wr::default() });
    pair.run_for(100 * MS);
    assert_eq!(pair.f.status(bad), Some(WcStatus::LocProtErr));
    assert_eq!(pair.f.status(recv), Some(WcStatus::WrFlushErr));
    let late = pair.f.post(WqeOp::Recv, Wr { here: 0, len: 8, ..Wr::default() });
    pair.f.command(Post::Close { qp: QP });
    pair.run_for(MS);
    assert_eq!(pair.f.status(late), Some(WcStatus::WrFlushErr));
    assert_eq!(pair.f.told.last(), Some(&Report::Closed { qp: QP }));
    assert!(!pair.f_host.stateful.is_stateful(0, QP));
    assert_eq!((pair.f_host.stateful.len(), pair.f_host.stateful.in_use()), (0, (0, 0)));
}

#[test]
fn a_failure_is_reported_only_when_every_frame_is_dead() {
    let mut pair = Pair::new(fused());
    pair.z.post(WqeOp::Recv, Wr { here: 0, len: 100, ..Wr::default() });
    pair.run_for(MS);
    pair.fate = Box::new(|_| vec![]);
    let send = pair.f.post(WqeOp::Send, Wr { here: 0, len: 100, ..Wr::default() });
    let mut last_sent = pair.now;
    let mut frames = pair.sent.get(&0x24).copied();
    while pair.f.status(send).is_none() {
        pair.run_for(MS);
        if pair.sent.get(&0x24).copied() != frames {
            frames = pair.sent.get(&0x24).copied();
            last_sent = pair.now;
        }
        assert!(pair.now.since(last_sent) < Duration::from_secs(10), "never");
    }
    assert_eq!(pair.f.status(send), Some(WcStatus::RetryExcErr));
    assert_eq!(frames, Some(8), "once, and seven times again");
    assert!(pair.now.since(last_sent) >= 16 * MS);
    assert_eq!(pair.f.told, [Report::Failed { qp: QP, status: WcStatus::RetryExcErr }]);
}

#[test]
fn a_recv_outlives_no_peer() {
    let mut pair = Pair::new(fused());
    let recv = pair.f.post(WqeOp::Recv, Wr { here: 0, len: 100, ..Wr::default() });
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.f.status(recv), None, "probes are answered");
    pair.fate = Box::new(|packet| if packet.to_z { vec![] } else { vec![LATENCY] });
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.f.status(recv), Some(WcStatus::WrFlushErr));
}

#[test]
fn a_connection_that_z_has_closed_ends() {
    let mut pair = Pair::new(fused());
    pair.z.post(WqeOp::Recv, Wr { here: 0, len: 100, ..Wr::default() });
    pair.run_for(MS);
    // Nobody tells F.
    pair.fate = Box::new(|packet| if packet.to_z { vec![LATENCY] } else { vec![] });
    pair.z.command(Post::Close { qp: QP });
    pair.run_for(MS);
    pair.fate = Box::new(|_| vec![LATENCY]);
    let send = pair.f.post(WqeOp::Send, Wr { here: 0, len: 100, ..Wr::default() });
    pair.run_for(100 * MS);
    assert_eq!(pair.f.status(send), Some(WcStatus::WrFlushErr));
    assert_eq!(pair.f.told, [Report::Failed { qp: QP, status: WcStatus::RemOpErr }]);
}

#[test]
fn after_a_long_idle_time_work_goes_on() {
    for is_rc in [false, true] {
        let mut pair = Pair::of(fused(), is_rc);
        for deed in DEEDS {
            // The bound of Z's clock is behind by more than W.
            pair.run_for(Duration::from_secs(3600));
            let begun = begin(&mut pair, deed, (128, 3000), None);
            // Z says what time it is, and nobody waits to send again.
            pair.run_for(MS);
            check(&pair, &begun);
        }
    }
}

#[test]
fn inline_data_lands_and_only_from_a_connection_that_is_there() {
    for is_late in [false, true] {
        let mut pair = Pair::new(fused());
        let wr = Wr { here: 500, len: 40, inline: Some(0xab), ..Wr::default() };
        let send = pair.z.post(WqeOp::Send, wr);
        if is_late {
            // Its RECV comes when it is old, so F asks.
            pair.run_for(Duration::from_secs(1));
        }
        let recv = pair.f.post(WqeOp::Recv, Wr { here: 0, len: 64, ..Wr::default() });
        let back = pair.f.post(WqeOp::Send, wr);
        pair.z.post(WqeOp::Recv, Wr { here: 0, len: 64, ..Wr::default() });
        pair.run_to_the_end(100 * MS);
        assert_eq!(pair.f.status(recv), Some(WcStatus::Success));
        assert_eq!(pair.z.status(send), Some(WcStatus::Success));
        assert_eq!(pair.f.status(back), Some(WcStatus::Success));
        assert_eq!(pair.f.bytes(0, 40), [0xab; 40]);
        assert_eq!(pair.z.bytes(0, 40), [0xab; 40]);
        assert_eq!(pair.sent.get(&0x26), None, "nothing is asked for");
    }
    let mut pair = Pair::new(fused());
    let wr = Wr { here: 500, len: 40, inline: Some(0xab), ..Wr::default() };
    pair.z.post(WqeOp::Send, wr);
    pair.run_for(Duration::from_secs(1));
    pair.z.command(Post::Close { qp: QP });
    pair.run_for(100 * MS);
    let recv = pair.f.post(WqeOp::Recv, Wr { here: 0, len: 64, ..Wr::default() });
    pair.run_for(100 * MS);
    assert_eq!(pair.f.status(recv), Some(WcStatus::WrFlushErr));
    assert_eq!(pair.f.bytes(0, 40), [0; 40]);
}

#[test]
fn frames_that_come_again_at_any_time_change_nothing() {
    for is_rc in [false, true] {
        let mut pair = Pair::of(fused(), is_rc);
        let seen: Rc<RefCell<Vec<Packet>>> = Rc::default();
        let record = Rc::clone(&seen);
        pair.fate = Box::new(move |packet| {
            record.borrow_mut().push(packet.clone());
            vec![LATENCY]
        });
        for (number, deed) in (0..).zip(DEEDS) {
            let begun = begin(&mut pair, deed, (number * 4000, 3000), None);
            pair.run_to_the_end(100 * MS);
            check(&pair, &begun);
        }
        pair.f.fill(0, &[0x55; 30_000]);
        pair.z.fill(0, &[0x66; 30_000]);
        let (z_ended, f_ended) = (pair.z.ended.len(), pair.f.ended.len());
        for wait in [Duration::ZERO, 30 * MS, Duration::from_secs(4295)] {
            pair.run_for(wait);
            for packet in seen.take() {
                pair.replay(packet);
            }
            pair.run_for(MS);
        }
        assert_eq!((pair.z.ended.len(), pair.f.ended.len()), (z_ended, f_ended));
        assert_eq!(pair.f.bytes(0, 30_000), [0x55; 30_000]);
        assert_eq!(pair.z.bytes(0, 30_000), [0x66; 30_000]);
    }
}

#[test]
fn tables_that_are_small_slow_down_and_lose_nothing() {
    let mut settings = fused();
    (settings.work_requests, settings.frames_under_way, settings.connections) = (8, 2, 1);
    for is_rc in [false, true] {
        let mut pair = Pair::of(settings, is_rc);
        let memory = pair.f_host.stateful.memory();
        for round in 0..20 {
            let deed = DEEDS[round % DEEDS.len()];
            let begun = begin(&mut pair, deed, (round as u64 * 8000, 7000), None);
            pair.run_to_the_end(500 * MS);
            check(&pair, &begun);
        }
        assert_eq!(pair.f_host.stateful.memory(), memory);
    }
}

#[test]
fn connections_that_share_small_tables_all_get_on() {
    let mut settings = fused();
    (settings.work_requests, settings.frames_under_way, settings.connections) = (64, 2, 4);
    let mut pair = Pair::new(settings);
    (4..7).for_each(|qp| pair.connect(qp));
    let mut begun = Vec::new();
    for round in 0..24 {
        let qp = QP + round % 4;
        (pair.z.qp, pair.f.qp) = (qp, qp);
        let deed = DEEDS[round as usize % DEEDS.len()];
        begun.push(begin(&mut pair, deed, (u64::from(round) * 8000, 7000), None));
    }
    pair.run_to_the_end(100 * MS);
    begun.iter().for_each(|begun| check(&pair, begun));
    assert_eq!(pair.f_host.counters.events(StarEvent::Retransmit), 0, "none was forgotten");
}

#[test]
fn writes_land_in_the_order_in_which_they_were_posted() {
    for (lost, is_rc) in (0..8).map(|it| (it / 2, it % 2 == 1)) {
        let mut pair = Pair::of(fused(), is_rc);
        let mut data = 0;
        pair.fate = Box::new(move |packet| {
            let is_data = matches!(packet.frame_type(), 0x24 | 0x26);
            data += u32::from(is_data);
            if is_data && data - 1 == lost { vec![] } else { vec![LATENCY] }
        });
        pair.f.fill(0, &pattern(1000, 1));
        pair.f.fill(1000, &pattern(1000, 2));
        let remote = Some(pair.z.mr);
        for here in [0, 1000] {
            pair.f.post(WqeOp::Write, Wr { here, len: 1000, remote, there: 5000, ..Wr::default() });
        }
        pair.f
            .post(WqeOp::Read, Wr { here: 3000, len: 1000, remote, there: 5000, ..Wr::default() });
        pair.run_to_the_end(200 * MS);
        assert_eq!(pair.z.bytes(5000, 1000), pattern(1000, 2));
        assert_eq!(pair.f.bytes(3000, 1000), pattern(1000, 2));
    }
}

#[test]
fn data_that_comes_later_than_w_after_it_was_asked_for_does_not_land() {
    for is_rc in [false, true] {
        let mut pair = Pair::of(fused(), is_rc);
        let mut is_first = true;
        pair.fate = Box::new(move |packet| {
            let is_late = packet.frame_type() == 0x27 && core::mem::take(&mut is_first);
            vec![if is_late { 17 * MS } else { LATENCY }]
        });
        // Data that F asks for.
        let deed = if is_rc { Deed::FRead } else { Deed::ZSend };
        let begun = begin(&mut pair, deed, (64, 1000), None);
        pair.run_for(19 * MS);
        assert_eq!(pair.f.bytes(64, 1000), [0; 1000]);
        pair.run_to_the_end(100 * MS);
        check(&pair, &begun);
        assert_eq!(pair.f_host.counters.events(StarEvent::Retransmit), 1);
    }
}

#[test]
fn after_a_flush_nothing_of_it_has_effect() {
    for is_rc in [false, true] {
        let mut pair = Pair::of(fused(), is_rc);
        let begun = begin(&mut pair, Deed::FWrite, (0, 10), None);
        pair.run_for(MS);
        check(&pair, &begun);
        let delay = Duration::from_micros(15_500);
        pair.fate = Box::new(move |packet| vec![if packet.to_z { delay } else { LATENCY }]);
        let write = begin(&mut pair, Deed::FWrite, (1000, 10), None).f_slot.unwrap();
        pair.run_for(MS);
        pair.f.command(Post::Close { qp: QP });
        while pair.f.status(write).is_none() {
            pair.run_for(MS / 10);
        }
        assert_eq!(pair.f.status(write), Some(WcStatus::WrFlushErr));
        pair.z.fill(1000, &[0; 10]);
        pair.run_for(100 * MS);
        assert_eq!(pair.z.bytes(1000, 10), [0; 10], "a copy was on its way");
        assert_eq!(pair.f.told, [Report::Closed { qp: QP }]);
    }
}

#[test]
fn one_frame_acknowledges_data_that_comes_together() {
    let mut pair = Pair::new(fused());
    let begun = begin(&mut pair, Deed::FSend, (0, 40_000), None);
    pair.run_for(5 * MS);
    check(&pair, &begun);
    let count = |frame_type| pair.sent.get(&frame_type).copied().unwrap_or(0);
    let (rds, rdas, eas) = (count(0x24), count(0x25), count(0x23));
    assert!(rds >= 28 && 2 * (rdas + eas) < rds, "{rds} RDs, {rdas} RDAs, {eas} EAs");
}

//= star#ours-close
//= type=test
#[test]
fn z_is_told_at_once_that_f_has_ended_the_connection_and_needs_it_not() {
    let failed = Report::Failed { qp: QP, status: WcStatus::WrFlushErr };
    for is_lost in [false, true] {
        let mut pair = Pair::new(fused());
        let wr = Wr { here: 0, len: 8, ..Wr::default() };
        pair.z.post(WqeOp::Recv, wr);
        let f_recv = pair.f.post(WqeOp::Recv, wr);
        pair.run_for(5 * MS);
        let state = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&state);
        pair.fate = Box::new(move |packet| {
            if packet.frame_type() != 0x28 {
                return vec![LATENCY];
            }
            seen.borrow_mut().push(packet.clone());
            if is_lost { vec![] } else { vec![LATENCY] }
        });
        pair.f.command(Post::Close { qp: QP });
        pair.run_for(20 * MS);
        assert_eq!(pair.f.told, [Report::Closed { qp: QP }]);
        assert_eq!(pair.f.status(f_recv), Some(WcStatus::WrFlushErr));
        assert_eq!(pair.z.told.contains(&failed), !is_lost);
        let [close]: [Packet; 1] = state.take().try_into().expect("it is told once");
        if is_lost {
            // It comes late, and has expired.
            pair.replay(close);
            pair.run_for(MS);
            assert!(!pair.z.told.contains(&failed));
        } else {
            // It comes again, and says nothing more.
            pair.replay(close);
            pair.run_for(MS);
            assert_eq!(pair.z.told.iter().filter(|it| **it == failed).count(), 1);
        }
        // The next connection of the QP is none of its business.
        assert_eq!(pair.f_host.stateful.in_use(), (0, 0));
    }
}

/// A side that is idle, or waits for a message, hears of the end in the time of a frame.
//= star#ours-close
//= type=test
#[test]
fn f_is_told_at_once_that_its_peer_has_ended_the_connection_and_needs_it_not() {
    for (is_rc, is_lost) in [(false, false), (false, true), (true, false), (true, true)] {
        for recvs in 0..2 {
            let mut pair = Pair::of(fused(), is_rc);
            let wr = Wr { here: 0, len: 8, ..Wr::default() };
            let recvs: Vec<_> = (0..recvs).map(|_| pair.f.post(WqeOp::Recv, wr)).collect();
            pair.run_for(5 * MS);
            pair.fate = Box::new(move |_| if is_lost { vec![] } else { vec![LATENCY] });
            pair.sent.clear();
            pair.z.command(Post::Close { qp: QP });
            pair.run_for(2 * LATENCY);
            let failed = Report::Failed { qp: QP, status: WcStatus::WrFlushErr };
            assert_eq!(pair.f.told.contains(&failed), !is_lost, "{is_rc}");
            pair.run_for(20 * MS);
            let flushed = recvs.iter().all(|&it| pair.f.status(it) == Some(WcStatus::WrFlushErr));
            assert!(flushed || is_lost, "{is_rc}");
            assert_eq!(pair.sent, [(0x28, 1)].into(), "it is told once, and not answered");
            // A lost frame is found out as before.
            pair.fate = Box::new(|_| vec![LATENCY]);
            pair.f.post(WqeOp::Send, wr);
            pair.run_for(Duration::from_secs(20));
            assert!(pair.f.open.is_empty(), "{is_rc}");
        }
    }
}

/// A message that has landed is not reported as failed because its receiver ends the connection
/// then, also if that comes before the answer.
#[test]
fn work_done_before_the_end_is_reported_as_done() {
    for is_rc in [false, true] {
        let mut pair = Pair::of(fused(), is_rc);
        let wr = Wr { here: 0, len: 8, ..Wr::default() };
        let recv = pair.z.post(WqeOp::Recv, wr);
        pair.run_for(5 * MS);
        // The answer is overtaken.
        pair.fate = Box::new(|packet| {
            let is_close = packet.frame_type() == 0x28;
            vec![if packet.to_z || is_close { LATENCY } else { 10 * LATENCY }]
        });
        let send = pair.f.post(WqeOp::Send, wr);
        pair.run_for(2 * LATENCY);
        assert_eq!(pair.z.status(recv), Some(WcStatus::Success));
        pair.z.command(Post::Close { qp: QP });
        pair.run_for(5 * LATENCY);
        assert_eq!((pair.f.status(send), &pair.f.told[..]), (None, &[][..]), "{is_rc}");
        pair.run_for(20 * LATENCY);
        assert_eq!(pair.f.status(send), Some(WcStatus::Success), "{is_rc}");
        assert_eq!(pair.f.told, [Report::Failed { qp: QP, status: WcStatus::WrFlushErr }]);
    }
}
