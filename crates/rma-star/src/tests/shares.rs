//! The table of work requests is full of what never ends: everybody else gets on all the same.

use core::time::Duration;

use super::{
    deeds::{DEEDS, Deed, begin, check, fused},
    pair::{Pair, QP, Wr},
};
use crate::{config::StarConfigBuilder, counters::Drop, verbs::WqeOp};

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
    assert!(pair.f_host.counters.drops(Drop::NoRoom) > 0, "the table is full for it");
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
