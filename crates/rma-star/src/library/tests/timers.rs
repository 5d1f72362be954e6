//! Work that is due by time, in virtual time.

use super::*;

/// Polls every millisecond, with an engine that takes all posts. Returns when something was posted
/// again, and what.
fn run(host: &mut Host, millis: core::ops::Range<u64>) -> Vec<(u64, Vec<u64>)> {
    let mut again = Vec::new();
    for at_millis in millis {
        host.verbs.poll(at(at_millis));
        host.take_posts();
        if !host.again.is_empty() {
            let posted = host.again.drain(..).map(|it| u64::from(it.sequence)).collect();
            again.push((at_millis, posted));
        }
    }
    again
}

//= star#III-C2-repost
//= type=test
#[test]
fn a_post_that_is_not_taken_is_repeated_later_and_later_until_the_connection_has_failed() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    host.send(at(0), qp, 1).unwrap();
    host.recv(at(0), qp, 2).unwrap();
    let again = run(&mut host, 0..5000);
    let times: Vec<_> = again.iter().map(|(at, _)| *at).collect();
    // 20 ms, doubling to 320 ms, and a tick each.
    let due: [u64; 7] = [20, 60, 140, 300, 620, 940, 1260];
    assert_eq!(times.len(), due.len(), "{times:?}");
    for (time, due) in times.iter().zip(due) {
        assert!((due..=due + 20).contains(time), "{times:?}");
    }
    assert!(again.iter().all(|(_, posted)| posted[..] == [0, 0]), "{again:?}");
    assert_eq!(host.verbs.state(qp), Some(QpState::Error));
    assert_eq!(host.wcs(), [], "its engine has not closed it yet");
    host.report(at(5000), &Report::Closed { qp: qp.index });
    run(&mut host, 5000..5020);
    assert_eq!(host.ids(), [(1, WcStatus::RetryExcErr), (2, WrFlushErr)]);
}

#[test]
fn only_what_is_not_taken_is_posted_again_with_all_that_it_was() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    let mr = host.mr.clone();
    let remote = Remote { mr: MrId(9), offset: 70 };
    host.send(at(0), qp, 0).unwrap();
    let wr = SendWr::read(1, mr.slice(4, 8), remote);
    host.verbs.post_send(at(0), qp, &wr).unwrap();
    let wr = SendWr::send(2, mr.slice(5, 6)).with_imm(7).inline();
    host.verbs.post_send(at(0), qp, &wr).unwrap();
    host.take_posts();
    let posted: Vec<_> = host.posted.drain(..).collect();
    host.ea(qp, 1, 0);
    // When the timer was set, only the first was there, and that is taken.
    assert_eq!(run(&mut host, 0..30), []);
    host.verbs.poll(at(50));
    host.take_posts();
    let again: Vec<_> = host.again.drain(..).collect();
    let expected =
        [Posted { again: true, ..posted[1] }, Posted { again: true, inline_len: 0, ..posted[2] }];
    assert_eq!(again, expected);
    // The peer is there: the count of attempts begins anew, and they are posted again all the same.
    for round in 1..40 {
        host.ea(qp, 1, 0);
        host.verbs.poll(at(50 + 50 * round));
        host.take_posts();
    }
    assert_eq!((host.verbs.state(qp), host.again.len()), (Some(QpState::Ready), 2 * 39));
}

#[test]
fn a_peer_that_takes_everything_at_once_is_asked_for_nothing_twice() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    for millis in 0..500 {
        host.send(at(millis), qp, millis).unwrap();
        assert_eq!(run(&mut host, millis..millis + 1), []);
        let posted = host.posted();
        host.ea(qp, millis as u32 + 1, 0);
        host.complete(at(millis), &posted, Success);
        assert_eq!(host.ids(), [(millis, Success)]);
    }
    assert_eq!(run(&mut host, 500..600), []);
    assert_eq!(host.verbs.poll_timeout(), None, "nothing is outstanding");
}

//= star#ours-probe
//= type=test
#[test]
fn a_quiet_peer_is_asked_and_one_that_is_gone_ends_the_connection() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    host.recv(at(0), qp, 1).unwrap();
    host.take_posts();
    host.ea(qp, 0, 1);
    let mut asked = Vec::new();
    for millis in 0..40_000 {
        for (at, posted) in run(&mut host, millis..millis + 1) {
            asked.push(at);
            assert_eq!(posted, [0]);
            // It answers twice, and then is gone.
            if asked.len() <= 2 {
                host.ea(qp, 0, 1);
            }
        }
    }
    assert_eq!(asked.len(), 2 + 7, "{asked:?}");
    for pair in asked[..3].windows(2) {
        assert!((8_700..=10_200).contains(&(pair[1] - pair[0])), "{asked:?}");
    }
    assert_eq!(host.verbs.state(qp), Some(QpState::Error));
}

#[test]
fn an_engine_that_stands_still_stalls_only_what_is_posted() {
    let mut host = Host::new([192, 0, 2, 1]);
    let qp = host.ready(at(0), false);
    for wr_id in 0..8 {
        host.send(at(0), qp, wr_id).unwrap();
    }
    for millis in 0..3000 {
        host.verbs.poll(at(millis));
    }
    assert_eq!(host.verbs.state(qp), Some(QpState::Error), "nothing was heard of the peer");
    // The ring is full of what was posted again: the engine is told later that this is over.
    host.take_posts();
    host.verbs.poll(at(3100));
    host.take_posts();
    let closes = host.others.iter().filter(|it| matches!(it, Post::Close { .. })).count();
    assert_eq!(closes, 1);
    host.report(at(3100), &Report::Closed { qp: qp.index });
    host.verbs.poll(at(3200));
    assert_eq!(host.wcs().len(), 8);
}
