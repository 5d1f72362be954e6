//! Tables are full of what never ends, or not for long: everybody else gets on all the same.

use core::time::Duration;

use super::{
    deeds::{DEEDS, Deed, begin, check, fused},
    pair::{Pair, QP, Wr},
};
use crate::{config::StarConfigBuilder, counters::StarDrop, names::Qpn, verbs::WqeOp};

const SECOND: Duration = Duration::from_secs(1);

/// A pair with so many connections, and a table of 64 work requests at F.
fn pair(connections: u32) -> Pair {
    let table = |it: &mut StarConfigBuilder| (it.connections, it.work_requests) = (4, 64);
    let mut pair = Pair::new(fused().with(table));
    (QP + 1..QP + connections).for_each(|qp| pair.connect(qp));
    pair
}

/// Z posts more RECVs to a connection than the table has rows, and F never sends anything to them.
fn post_useless_recvs(pair: &mut Pair, qp: u32) {
    pair.z.qp = qp;
    for _ in 0..100 {
        pair.z.post(WqeOp::Recv, Wr { len: 8, ..Wr::default() });
    }
    pair.run_for(SECOND / 10);
    assert!(pair.f_host.counters.drops(StarDrop::NoRoom) > 0, "the table is full for it");
}

#[test]
fn a_z_that_posts_many_recvs_can_still_send() {
    let mut pair = pair(1);
    post_useless_recvs(&mut pair, QP);
    for round in 0..8 {
        for deed in [Deed::ZSend, Deed::ZWrite, Deed::ZRead] {
            let begun = begin(&mut pair, deed, (1000 * round, 500), None);
            pair.run_for(SECOND / 5);
            check(&pair, &begun);
        }
    }
}

#[test]
fn connections_whose_recvs_never_end_keep_no_other_from_working() {
    let mut pair = pair(4);
    (QP..QP + 3).for_each(|qp| post_useless_recvs(&mut pair, qp));
    (pair.z.qp, pair.f.qp) = (QP + 3, QP + 3);
    for round in 0..4 {
        for deed in DEEDS {
            let begun = begin(&mut pair, deed, (1000 * round, 500), None);
            pair.run_for(SECOND / 5);
            check(&pair, &begun);
        }
    }
    // And what it posts together comes in turn.
    let begun = [(Deed::ZSend, 0), (Deed::FSend, 5_000)].map(|(deed, base)| {
        [1, 2, 3, 4].map(|at| begin(&mut pair, deed, (10_000 * at + base, 1500), None))
    });
    pair.run_for(SECOND);
    begun.iter().flatten().for_each(|begun| check(&pair, begun));
}

/// A peer dies with so much under way to it, on so many connections, that the table of frames under
/// way has no room for all of it. That stays until it was sent often enough.
#[test]
fn frames_under_way_to_a_dead_peer_hold_up_no_other() {
    for (is_event, count) in [(true, 8), (false, 8), (true, 1), (false, 1)] {
        let table = |it: &mut StarConfigBuilder| {
            (it.connections, it.work_requests, it.frames_under_way) = (16, 4096, 64);
        };
        let mut pair = Pair::new(fused().with(table));
        (QP + 1..QP + count).for_each(|qp| pair.connect(qp));
        let other = QP + count;
        pair.connect_v6(other);
        for qp in QP..other {
            (pair.z.qp, pair.f.qp) = (qp, qp);
            let begun = begin(&mut pair, Deed::FSend, (0, 8), None);
            pair.run_for(SECOND / 100);
            check(&pair, &begun);
        }
        pair.fate = Box::new(|packet| {
            let is_lost = packet.to_z && !packet.is_v6;
            if is_lost { vec![] } else { vec![Duration::from_micros(5)] }
        });
        // Faults come by one by one, or what must be told were told together.
        for _ in 0..80 {
            for qp in QP..other {
                (pair.z.qp, pair.f.qp) = (qp, qp);
                if is_event {
                    pair.f.post(WqeOp::Recv, Wr::default());
                    pair.z.post(WqeOp::Send, Wr::default());
                } else {
                    pair.z.post(WqeOp::Recv, Wr { len: 8, ..Wr::default() });
                    pair.f.post(WqeOp::Send, Wr { len: 8, ..Wr::default() });
                }
            }
            pair.run_for(Duration::from_micros(100));
        }
        let (_, under_way) = pair.f_host.stateful.in_use();
        assert!(under_way >= 32, "{under_way} to who is dead, {is_event} {count}");
        (pair.z.qp, pair.f.qp) = (other, other);
        for round in 0..4 {
            for deed in DEEDS {
                let begun = begin(&mut pair, deed, (10_000 * round, 5000), None);
                pair.run_for(Duration::from_millis(5));
                check(&pair, &begun);
            }
        }
        assert!(pair.f_host.stateful.in_use().1 >= 32, "they are still");
    }
}

/// A peer dies and starts again: what is sent to its last life is not authentic to it, and not
/// answered, however often that is sent again.
#[test]
fn new_connections_to_a_peer_that_is_back_do_not_wait_for_those_that_died_with_it() {
    let mut pair = Pair::new(fused().with(|it| it.connections = 16));
    let (dead, new) = (QP..QP + 8, QP + 8);
    (QP + 1..new).for_each(|qp| pair.connect(qp));
    let is_dead = dead.clone();
    pair.fate = Box::new(move |packet| {
        let qpn = u32::from_be_bytes(packet.bytes[8..12].try_into().unwrap());
        let mut dead = is_dead.clone();
        let is_lost = packet.to_z && dead.any(|qp| qpn == Qpn::new(0, qp).unwrap().to_bits());
        if is_lost { vec![] } else { vec![Duration::from_micros(5)] }
    });
    for qp in dead {
        pair.f.qp = qp;
        let (here, there, remote) = (0, 0, Some(pair.z.mr));
        for _ in 0..4 {
            pair.f.post(WqeOp::Write, Wr { here, there, remote, len: 8192, ..Wr::default() });
        }
    }
    // Twice the time to send again, and once more twice that.
    pair.run_for(SECOND / 5);
    pair.connect(new);
    (pair.z.qp, pair.f.qp) = (new, new);
    for round in 0..4 {
        for deed in DEEDS {
            let begun = begin(&mut pair, deed, (10_000 * (round + 1), 5000), None);
            pair.run_for(Duration::from_millis(10));
            check(&pair, &begun);
        }
    }
    assert!(pair.f_host.stateful.in_use().1 >= 8, "the dead ones' are still sent");
}
