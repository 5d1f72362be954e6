//! Connections both of whose sides are stateful: what is other than with a stateless side.

use core::time::Duration;

use super::{
    deeds::{DEEDS, Deed, begin, check, faithful, fused},
    pair::{Pair, QP, Wr},
};
use crate::{
    counters::{StarDrop, StarEvent},
    portal::{Post, Report},
    verbs::{WcStatus, WqeOp},
};

const MS: Duration = Duration::from_millis(1);
const SUCCESS: Option<WcStatus> = Some(WcStatus::Success);

fn wr(len: u32) -> Wr {
    Wr { here: 0, len, ..Wr::default() }
}

/// WQEP, CQEP, EA, RD, RDA, GD, GDA, STATE.
fn counts(pair: &Pair) -> [u32; 8] {
    [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]
        .map(|frame_type| pair.sent.get(&frame_type).copied().unwrap_or(0))
}

#[test]
fn a_message_is_one_frame_and_its_acknowledgement_in_both_directions() {
    for settings in [faithful(), fused()] {
        for (deed, expected) in [
            (Deed::ZSend, [0, 0, 1, 1, 0, 0, 0, 0]),
            (Deed::FSend, [0, 0, 1, 1, 0, 0, 0, 0]),
            (Deed::ZWrite, [0, 0, 1, 1, 0, 0, 0, 0]),
            (Deed::FWrite, [0, 0, 1, 1, 0, 0, 0, 0]),
            (Deed::ZRead, [0, 0, 0, 0, 0, 1, 1, 0]),
            (Deed::FRead, [0, 0, 0, 0, 0, 1, 1, 0]),
        ] {
            let mut pair = Pair::of(settings, true);
            let begun = begin(&mut pair, deed, (64, 32), None);
            pair.run_for(5 * MS);
            check(&pair, &begun);
            assert_eq!(counts(&pair), expected, "{deed:?}");
        }
        // An immediate goes by a frame of its own.
        let mut pair = Pair::of(settings, true);
        let begun = begin(&mut pair, Deed::FSend, (64, 32), Some(7));
        pair.run_for(5 * MS);
        check(&pair, &begun);
        assert_eq!(counts(&pair), [0, 1, 2, 1, 0, 0, 0, 0]);
    }
}

//= star#ours-rc-once
//= type=test
#[test]
fn a_message_waits_for_its_recv_and_goes_at_once_when_it_is_there() {
    for immediate in [None, Some(3)] {
        for len in [0, 40, 4000] {
            let mut pair = Pair::of(fused(), true);
            let sends: Vec<_> =
                (0..3).map(|_| pair.f.post(WqeOp::Send, Wr { immediate, ..wr(len) })).collect();
            // Longer than the retries of a frame that nobody answers.
            pair.run_for(Duration::from_secs(8));
            assert!(sends.iter().all(|&send| pair.f.status(send).is_none()), "they wait");
            for send in sends {
                let recv = pair.z.post(WqeOp::Recv, wr(len + 9));
                pair.run_for(MS / 10);
                let ends = (pair.z.status(recv), pair.f.status(send));
                assert_eq!(ends, (SUCCESS, SUCCESS), "{immediate:?} {len}");
                assert_eq!(pair.z.ended[&recv].1, len);
            }
        }
    }
}

#[test]
fn a_message_for_which_there_is_never_a_recv_fails() {
    let mut pair = Pair::of(fused(), true);
    let back = pair.f.post(WqeOp::Recv, wr(100));
    let sends = [pair.f.post(WqeOp::Send, wr(10)), pair.f.post(WqeOp::Send, wr(20))];
    pair.run_for(Duration::from_millis(10_300));
    assert_eq!(pair.f.status(sends[0]), Some(WcStatus::RnrRetryExcErr));
    assert_eq!(pair.f.status(sends[1]), Some(WcStatus::WrFlushErr));
    assert_eq!(pair.f.status(back), Some(WcStatus::WrFlushErr));
    let failed = Report::Failed { qp: QP, status: WcStatus::RnrRetryExcErr };
    assert_eq!(pair.f.told, [failed]);
}

#[test]
fn a_message_that_is_too_long_fails_on_both_sides_and_those_before_it_do_not() {
    for lost in 0..6 {
        let mut pair = Pair::of(fused(), true);
        let mut number = 0;
        pair.fate = Box::new(move |_| {
            number += 1;
            if number == lost { vec![] } else { vec![Duration::from_micros(5)] }
        });
        let recvs: Vec<_> = (0..3).map(|_| pair.z.post(WqeOp::Recv, wr(100))).collect();
        let sends: Vec<_> =
            [90, 101, 10].map(|len| pair.f.post(WqeOp::Send, wr(len))).into_iter().collect();
        let back = pair.z.post(WqeOp::Send, wr(10));
        pair.run_for(Duration::from_secs(1));
        use WcStatus::{LocLenErr, RemInvReqErr, Success, WrFlushErr};
        let of = |statuses: [Option<WcStatus>; 3]| statuses.map(|status| status.unwrap());
        let [z0, z1, z2] = of([0, 1, 2].map(|it| pair.z.status(recvs[it])));
        let [f0, f1, f2] = of([0, 1, 2].map(|it| pair.f.status(sends[it])));
        assert_eq!(([z0, z1, f0, f1], lost), ([Success, LocLenErr, Success, RemInvReqErr], lost));
        // The one behind it may have landed before; its library flushes it all the same.
        assert!(f2 != Success || z2 == Success, "{lost}: {z2:?} {f2:?}");
        assert_eq!(pair.z.status(back), Some(WrFlushErr));
        assert!(pair.z.told.contains(&Report::Failed { qp: QP, status: LocLenErr }));
    }
}

#[test]
fn a_recv_whose_memory_is_gone_ends_the_connection_at_both_sides() {
    let mut pair = Pair::of(fused(), true);
    let recv = pair.z.post(WqeOp::Recv, wr(100));
    pair.run_for(MS);
    pair.star.dereg_mr(0, pair.z.mr).unwrap();
    let send = pair.f.post(WqeOp::Send, wr(10));
    pair.run_for(100 * MS);
    assert_eq!(pair.z.status(recv), Some(WcStatus::LocProtErr));
    assert_eq!(pair.f.status(send), Some(WcStatus::RemOpErr));
}

//= star#IV-B3-checked-on-arrival
//= type=test
#[test]
fn memory_that_a_peer_does_not_share_is_not_touched() {
    for op in [WqeOp::Write, WqeOp::Read] {
        let beyond = Wr { len: 100, there: (1 << 20) - 99, ..Wr::default() };
        let mut pair = Pair::of(fused(), true);
        let (z_mr, f_mr) = (pair.z.mr, pair.f.mr);
        let slot = pair.f.post(op, Wr { remote: Some(z_mr), ..beyond });
        let after = pair.f.post(op, Wr { remote: Some(z_mr), there: 0, ..beyond });
        pair.run_for(100 * MS);
        assert_eq!(pair.f.status(slot), Some(WcStatus::RemAccessErr), "{op:?}");
        assert_eq!(pair.f.status(after), Some(WcStatus::WrFlushErr), "{op:?}");
        let mut pair = Pair::of(fused(), true);
        let slot = pair.z.post(op, Wr { remote: Some(f_mr), ..beyond });
        pair.run_for(100 * MS);
        assert_eq!(pair.z.status(slot), Some(WcStatus::RemAccessErr), "{op:?}");
        // Deregistered after it was used.
        let mut pair = Pair::of(fused(), true);
        let shared = Wr { remote: Some(z_mr), ..wr(100) };
        let slot = pair.f.post(op, shared);
        pair.run_for(10 * MS);
        assert_eq!(pair.f.status(slot), SUCCESS, "{op:?}");
        pair.star.dereg_mr(0, pair.z.mr).unwrap();
        let slot = pair.f.post(op, shared);
        pair.run_for(100 * MS);
        assert_eq!(pair.f.status(slot), Some(WcStatus::RemAccessErr), "{op:?}");
    }
}

#[test]
fn a_dead_peer_ends_everything_at_either_side() {
    for dies_z in [true, false] {
        for deed in DEEDS {
            let mut pair = Pair::of(fused(), true);
            pair.fate = Box::new(move |packet| {
                // Nothing comes from whoever is dead.
                if packet.to_z == dies_z { vec![Duration::from_micros(5)] } else { vec![] }
            });
            let alive = if dies_z { &mut pair.f } else { &mut pair.z };
            let recv = alive.post(WqeOp::Recv, wr(100));
            let _ = begin(&mut pair, deed, (128, 3000), None);
            pair.run_for(Duration::from_secs(40));
            let alive = if dies_z { &pair.f } else { &pair.z };
            assert!(alive.open.is_empty(), "{:?}", alive.open);
            assert_ne!(alive.status(recv), None);
        }
    }
}

#[test]
fn a_peer_that_has_closed_is_noticed_and_nothing_of_it_has_effect_any_more() {
    let mut pair = Pair::of(fused(), true);
    let recv = pair.z.post(WqeOp::Recv, wr(100));
    pair.run_for(MS);
    pair.z.command(Post::Close { qp: QP });
    pair.run_for(MS);
    assert_eq!(pair.z.status(recv), Some(WcStatus::WrFlushErr));
    pair.f.fill(0, &[7; 100]);
    let remote = Some(pair.z.mr);
    let send = pair.f.post(WqeOp::Send, wr(100));
    let write = pair.f.post(WqeOp::Write, Wr { remote, ..wr(100) });
    pair.run_for(Duration::from_secs(10));
    let ends = [send, write].map(|slot| pair.f.status(slot));
    assert!(ends.iter().all(|end| end.is_some_and(|end| end != WcStatus::Success)), "{ends:?}");
    assert_eq!(pair.z.bytes(0, 100), [0; 100]);
    assert_eq!(pair.star.stateful_connections(), 0);
}

//= star#ours-rc-once
//= type=test
#[test]
fn a_write_that_comes_again_after_it_is_done_does_not_land() {
    let mut pair = Pair::of(fused(), true);
    let delay = |packet: &super::pair::Packet| {
        let late = if packet.frame_type() == 0x24 { vec![10 * MS] } else { vec![] };
        [vec![Duration::from_micros(5)], late].concat()
    };
    pair.fate = Box::new(delay);
    let begun = begin(&mut pair, Deed::FWrite, (64, 1000), None);
    pair.run_for(MS);
    check(&pair, &begun);
    pair.z.fill(64, &[1; 1000]);
    pair.run_for(15 * MS);
    assert_eq!(pair.z.bytes(64, 1000), [1; 1000]);
    assert_eq!(pair.star.counters().drops(StarDrop::Again), 1);
}

//= star#III-E1-both-on-one-nic
//= type=test
#[test]
fn connections_of_both_kinds_share_an_engine() {
    let mut pair = Pair::of(fused(), true);
    pair.connect(4);
    pair.connect_rc(5);
    let mut begun = Vec::new();
    for round in 0..36 {
        let qp = QP + round % 3;
        (pair.z.qp, pair.f.qp) = (qp, qp);
        let deed = DEEDS[round as usize / 3 % DEEDS.len()];
        begun.push(begin(&mut pair, deed, (u64::from(round) * 8000, 7000), None));
    }
    pair.run_to_the_end(100 * MS);
    begun.iter().for_each(|begun| check(&pair, begun));
    assert_eq!(pair.f_host.counters.events(StarEvent::Retransmit), 0);
    assert_eq!(pair.f_host.stateful.in_use(), (0, 0));
}
