//! Changes of roles between two whole hosts, step by step.

use core::{ops::Range, time::Duration};

use rma_core::service::Service;

use super::{
    hosts::{End, Fate, World},
    *,
};
use crate::config::StarConfigBuilder;

const SECOND: Duration = Duration::from_secs(1);

/// Bytes of each message, and where those of each host begin: SENDs, then RECVs.
const LEN: u32 = 48;
const RECVS: u64 = 8192;

/// Times of 10 us that a load goes on.
const TURNS: u32 = 8_000;

fn byte(host: usize, n: u64) -> u8 {
    (n * 2 + host as u64 + 1) as u8
}

fn recv(world: &mut World, host: usize, n: u64) {
    world.recv(host, 1000 + n, RECVS + n % 64 * u64::from(LEN), LEN);
}

fn send(world: &mut World, host: usize, n: u64) {
    let at = n % 64 * u64::from(LEN);
    let mr = world.ends[host].mr.clone();
    world.ends[host].fill(at, &[byte(host, n); LEN as usize]);
    let is_inline = n.is_multiple_of(3);
    let wr = |mr| {
        let wr = SendWr::send(n, Mr::slice(mr, at, LEN)).with_imm(n as u32);
        if is_inline { wr.inline() } else { wr }
    };
    world.send(host, wr, &mr);
}

/// A host posts SENDs and its peer RECVs, with these numbers.
fn post(world: &mut World, host: usize, numbers: Range<u64>) {
    for n in numbers {
        recv(world, 1 - host, n);
        send(world, host, n);
    }
}

/// All of these have come once, in order and whole, and their SENDs are done.
fn check(world: &mut World, numbers: Range<u64>) {
    let done = [0, 1].map(|host| world.done(host));
    for host in [0, 1] {
        let of = |wcs: &[(u64, WcStatus, u32, Option<u32>)], is_recv: bool| -> Vec<_> {
            wcs.iter().filter(|wc| (wc.0 >= 1000) == is_recv).copied().collect()
        };
        let sends = of(&done[host], false).into_iter().map(|wc| (wc.0, wc.1));
        assert!(sends.eq(numbers.clone().map(|n| (n, Success))), "host {host}: {done:?}");
        let recvs = numbers.clone().map(|n| (1000 + n, Success, LEN, Some(n as u32)));
        assert!(of(&done[1 - host], true).into_iter().eq(recvs), "host {host}: {done:?}");
        for n in numbers.clone() {
            let at = RECVS + n % 64 * u64::from(LEN);
            let bytes = world.ends[1 - host].bytes(at, LEN as usize);
            assert_eq!(bytes, vec![byte(host, n); LEN as usize], "message {n} of host {host}");
        }
    }
}

fn switch(world: &mut World, host: usize) {
    let (now, qp) = (world.now, world.qps[host]);
    world.ends[host].verbs.switch_role(now, qp).unwrap();
}

#[test]
fn a_connection_of_two_stateful_sides_has_no_roles_to_change() {
    let mut world = World::new(Role::Rc, 0, 0);
    for host in [0, 1] {
        let End { verbs, star, .. } = &mut world.ends[host];
        let qp = world.qps[host];
        assert_eq!(verbs.switch_role(world.now, qp), Err(SwitchError::BothStateful));
        assert!(!verbs.query_qp(qp).unwrap().is_switching);
        // Nor does an engine whose application asks all the same.
        verbs.portal.post(&Post::Switch { qp: qp.index, is_automatic: false }, None).unwrap();
        star.take_commands(world.now);
        assert_eq!(verbs.portal.poll(), Some(Report::NotSwitched { qp: qp.index }));
        post(&mut world, host, 0..4);
    }
    world.run(SECOND);
    for host in [0, 1] {
        post(&mut world, host, 4..8);
    }
    world.run(SECOND);
    check(&mut world, 0..8);
}

fn is_stateful(world: &World) -> [Option<bool>; 2] {
    [0, 1].map(|host| world.ends[host].verbs.query_qp(world.qps[host]).unwrap().is_stateful)
}

//= star#ours-switch
//= type=test
#[test]
fn roles_change_and_change_back_under_load_whoever_asks() {
    for (asks, loss) in [(0, 0), (1, 0), (0, 25), (1, 25)] {
        let mut world = World::new(Role::Stateful, loss, 3);
        for round in 0..6 {
            let numbers = round * 8..round * 8 + 8;
            let before = is_stateful(&world);
            for host in [0, 1] {
                post(&mut world, host, numbers.start..numbers.start + 4);
            }
            world.run(Duration::from_micros(7 * round));
            switch(&mut world, asks);
            for host in [0, 1] {
                post(&mut world, host, numbers.start + 4..numbers.end);
            }
            world.run(5 * SECOND);
            check(&mut world, numbers);
            let after = is_stateful(&world);
            assert_eq!(after[0].map(|it| !it), after[1]);
            // Nothing was lost, so it was done.
            assert!(loss > 0 || after == before.map(|it| it.map(|it| !it)), "round {round}");
            for host in [0, 1] {
                assert!(!world.ends[host].verbs.query_qp(world.qps[host]).unwrap().is_switching);
                assert_eq!(world.ends[host].verbs.strange_reports(), 0);
            }
        }
    }
}

/// Every frame of both eras is played again at each later point, and changes nothing.
#[test]
fn frames_recorded_before_a_switch_or_during_it_have_no_effect_later() {
    for every in [2, 7] {
        let mut world = World::new(Role::Stateful, 0, 0);
        world.replays = Some(every);
        for round in 0..3 {
            let numbers = round * 8..round * 8 + 8;
            for host in [0, 1] {
                post(&mut world, host, numbers.clone());
            }
            switch(&mut world, (round % 2) as usize);
            // With each answer to a recording another one comes: it never ends by itself.
            world.run(SECOND / 20);
            check(&mut world, numbers);
        }
        assert_eq!(is_stateful(&world), [Some(false), Some(true)], "after three");
    }
}

/// The longest time between two completions of both hosts that always have 8 messages each way
/// under way, while roles change `switches` times.
fn longest_gap(loss: u64, switches: u32) -> Duration {
    let mut world = World::new(Role::Stateful, loss, 11);
    let mut next = [0; 2];
    let (mut last, mut longest) = (world.now, 0);
    let mut changes = 0;
    let step = Duration::from_micros(10);
    for turn in 0..TURNS {
        for (host, next) in next.iter_mut().enumerate() {
            let done = world.done(host);
            assert!(done.iter().all(|wc| wc.1 == Success), "{done:?}");
            if !done.is_empty() {
                longest = longest.max(world.now.nanos_since(last));
                last = world.now;
            }
            let sent = done.iter().filter(|wc| wc.0 < 1000).count() as u64;
            let begun = if turn == 0 { 8 } else { sent };
            post(&mut world, host, *next..*next + begun);
            *next = (*next + begun) % 960;
        }
        let is_due = turn >= changes * TURNS / switches.max(1) && changes < switches;
        // One that frames of are lost may not be over yet.
        let info = world.ends[0].verbs.query_qp(world.qps[0]).unwrap();
        if is_due && !info.is_switching {
            let asks = usize::from(info.is_stateful == Some(false));
            changes +=
                u32::from(world.ends[asks].verbs.switch_role(world.now, world.qps[asks]).is_ok());
        }
        world.run(step);
    }
    assert!(2 * changes >= switches, "{changes}");
    assert_eq!(world.ends.iter().map(|end| end.verbs.stateful).sum::<u32>(), 1);
    Duration::from_nanos(longest)
}

//= star#ours-switch
//= type=test
#[test]
fn completions_go_on_while_roles_change() {
    // A frame is sent again after 20 ms.
    let rto = Duration::from_millis(20);
    let (without, with) = (longest_gap(0, 0), longest_gap(0, 4));
    println!("longest time without a completion: {without:?}, with switches {with:?}");
    assert!(with < Duration::from_millis(1), "some round trips of 10 us: {with:?}");
    for loss in [1, 4] {
        let (without, with) = (longest_gap(loss, 0), longest_gap(loss, 4));
        println!("{loss} of 256 frames lost: {without:?}, with switches {with:?}");
        assert!(with <= 3 * rto, "{with:?}, and {without:?} without");
    }
}

/// Either side is killed after each frame of a switch: what the other one has posted ends, once,
/// and what is done well there had been received.
#[test]
fn either_side_may_die_at_each_step_of_a_switch() {
    let mut switched = 0;
    for dies in [0, 1] {
        for frames in 0..40 {
            let mut world = World::new(Role::Stateful, 0, 0);
            for host in [0, 1] {
                post(&mut world, host, 0..6);
            }
            switch(&mut world, 0);
            world.kills = Some((dies, frames));
            let lives = 1 - dies;
            world.run(Duration::from_secs(90));
            if !world.ends[dies].is_dead {
                check(&mut world, 0..6);
                switched += 1;
                continue;
            }
            let done = [0, 1].map(|host| world.done(host));
            assert_eq!(done[lives].len(), 12, "after {frames} frames all ends: {:?}", done[lives]);
            let good = |host: usize, is_recv: bool| {
                let is_good =
                    |wc: &&(u64, WcStatus, _, _)| wc.1 == Success && (wc.0 >= 1000) == is_recv;
                done[host].iter().filter(is_good).count()
            };
            assert!(good(lives, false) <= good(dies, true), "{frames}: {done:?}");
            // The dead host did not look at the last of its completions.
            assert!(good(dies, false) <= good(lives, true), "{frames}: {done:?}");
            if world.state(lives) != Some(QpState::Ready) {
                // It had something left to do, and knows.
                assert_eq!(world.ends[lives].verbs.stateful, 0);
            }
        }
    }
    assert!(switched > 0, "the last of them come after the end of the switch");
}

/// A peer whose table is full says so, and all stays as it is; so does one that is asked without
/// need and has many connections.
#[test]
fn a_switch_that_comes_to_nothing_changes_nothing_and_another_may_succeed() {
    let mut world = World::new(Role::Stateful, 0, 0);
    world.ends[1].verbs.config.threshold = 0;
    world.ends[0].verbs.config.threshold = 0;
    world.ends[0].verbs.config.rebalances = true;
    for round in 0..3 {
        for host in [0, 1] {
            post(&mut world, host, round * 4..round * 4 + 4);
        }
        world.run(11 * SECOND);
        check(&mut world, round * 4..round * 4 + 4);
        assert_eq!(is_stateful(&world), [Some(true), Some(false)], "it was refused");
    }
    // It has room now, so it agrees; and it does not give the connection back.
    world.ends[1].verbs.config.threshold = 4;
    world.ends[1].verbs.config.rebalances = true;
    world.run(11 * SECOND);
    for host in [0, 1] {
        post(&mut world, host, 12..16);
    }
    world.run(22 * SECOND);
    check(&mut world, 12..16);
    assert_eq!(is_stateful(&world), [Some(false), Some(true)]);
    assert_eq!((world.ends[0].verbs.stateful, world.ends[1].verbs.stateful), (0, 1));
}

/// The kinds of STATE frames about a change of roles, as they are on the wire.
const SWITCH: u8 = 4;
const TRANSFER: u8 = 5;
const COMMIT: u8 = 6;
const ABORT: u8 = 7;

/// The flag of frames that the stateless side sends.
const OF_Z: u8 = 4;

/// The kind of a STATE frame, in clear.
fn kind_of(frame: &[u8]) -> Option<u8> {
    (frame[1] == 0x28).then(|| frame[40])
}

/// A network that loses the first so many frames of a kind of STATE.
fn losing(kind: u8, mut count: usize) -> Fate {
    Box::new(move |frame| {
        let is_lost = kind_of(frame) == Some(kind) && count > 0;
        count -= usize::from(is_lost);
        (!is_lost).then_some(Duration::ZERO)
    })
}

#[test]
fn whichever_word_about_a_switch_is_lost_it_is_said_again() {
    for kind in [SWITCH, TRANSFER, COMMIT] {
        for count in 1..4 {
            let mut world = World::new(Role::Stateful, 0, 0);
            world.fate = losing(kind, count);
            for host in [0, 1] {
                post(&mut world, host, 0..6);
            }
            switch(&mut world, 0);
            world.run(5 * SECOND);
            check(&mut world, 0..6);
            assert_eq!(is_stateful(&world), [Some(false), Some(true)], "{kind} lost {count} times");
        }
    }
}

/// In doubt the giver believes nobody but COMMIT and ABORT: not that the connection is gone, as it
/// is for its era. If neither comes, both end with errors, and neither goes on by itself.
#[test]
fn a_giver_that_never_hears_of_its_gift_ends_with_errors_as_does_its_peer() {
    let mut world = World::new(Role::Stateful, 0, 0);
    world.fate = losing(COMMIT, usize::MAX);
    switch(&mut world, 0);
    world.run(Duration::from_millis(1));
    assert_eq!(is_stateful(&world), [Some(true), Some(true)], "the one gives, the other takes");
    for host in [0, 1] {
        post(&mut world, host, 0..6);
    }
    world.run(SECOND);
    assert!(world.ends.iter().all(|end| end.done.is_empty()), "nobody works");
    world.run(60 * SECOND);
    for host in [0, 1] {
        assert_eq!(world.state(host), Some(QpState::Error));
        let done = world.done(host);
        assert_eq!(done.len(), 12, "each ends once: {done:?}");
        assert!(done.iter().all(|wc| wc.1 != Success), "{done:?}");
        assert_eq!(world.ends[host].star.stateful_connections(), 0);
    }
}

/// An answer to COMMIT that comes W after it was sent says nothing: who has given it may have
/// failed since.
#[test]
fn a_taker_of_a_connection_works_only_when_its_peer_knows_and_lately() {
    let mut world = World::new(Role::Stateful, 0, 0);
    let mut is_committed = false;
    world.fate = Box::new(move |frame| {
        is_committed |= kind_of(frame) == Some(COMMIT);
        // The frame that answers it.
        let is_ea = frame[1] == 0x23 && is_committed;
        Some(if is_ea { Duration::from_micros(16_001) } else { Duration::ZERO })
    });
    switch(&mut world, 0);
    world.run(Duration::from_millis(1));
    assert_eq!(is_stateful(&world), [Some(false), Some(true)]);
    for host in [0, 1] {
        post(&mut world, host, 0..6);
    }
    world.run(SECOND);
    assert!(world.ends.iter().all(|end| end.done.is_empty()), "nobody works");
    world.fate = losing(0, 0);
    world.run(5 * SECOND);
    check(&mut world, 0..6);
}

/// A peer without a row agrees, cannot take what comes, and says so: all goes on as before.
#[test]
fn a_side_without_a_row_aborts_and_the_other_resumes() {
    for lost in [0, 2] {
        let one = StarConfigBuilder::default().with(|it| it.connections = 1);
        let mut world = World::with(Role::Stateful, 0, 0, one);
        // The only row of the peer is another connection's.
        let other = Qp { index: 3, nonce: 0 };
        let now = world.now;
        let Verbs { portal, rows, .. } = &mut world.ends[1].verbs;
        let record = portal.memory().record(world.qps[1].index).unwrap();
        portal.set_record(other.index, &record);
        portal.post(&Post::Open { qp: other.index, is_stateful: true }, None).unwrap();
        rows[other.index as usize].phase = Phase::Opening;
        world.ends[1].star.take_commands(now);
        assert_eq!(world.ends[1].star.stateful_connections(), 1);
        world.fate = losing(ABORT, lost);
        for round in 0..2 {
            for host in [0, 1] {
                post(&mut world, host, round * 6..round * 6 + 6);
            }
            switch(&mut world, 0);
            world.run(5 * SECOND);
            check(&mut world, round * 6..round * 6 + 6);
            assert_eq!(is_stateful(&world), [Some(true), Some(false)]);
            let info = [0, 1].map(|host| world.ends[host].verbs.query_qp(world.qps[host]).unwrap());
            assert!(info.iter().all(|it| !it.is_switching && it.state == QpState::Ready));
        }
    }
}

/// A host that has posted more than its table of work requests has room for, as the stateless side
/// may, does not become the stateful one: its connection would end with the first that has no row.
#[test]
fn a_side_with_too_few_rows_for_its_posts_aborts_and_the_other_resumes() {
    let small = |it: &mut StarConfigBuilder| (it.connections, it.work_requests) = (1, 24);
    // A quarter is shared out, and two are kept for the peer.
    for (sends, switches) in [(6, true), (7, false)] {
        let mut world = World::with(Role::Stateful, 0, 0, StarConfigBuilder::default().with(small));
        (0..16).for_each(|n| recv(&mut world, 1, n));
        (0..sends).for_each(|n| send(&mut world, 1, n));
        world.run(SECOND / 100);
        switch(&mut world, 0);
        world.run(SECOND);
        let expected = if switches { [false, true] } else { [true, false] };
        assert_eq!(is_stateful(&world), expected.map(Some), "with {sends} SENDs");
        let info = [0, 1].map(|host| world.ends[host].verbs.query_qp(world.qps[host]).unwrap());
        assert!(info.iter().all(|it| !it.is_switching && it.state == QpState::Ready));
        // The posted work is done, either way.
        for n in 0..16 {
            if n >= sends {
                send(&mut world, 1, n);
            }
            recv(&mut world, 0, n);
            send(&mut world, 0, n);
            world.run(SECOND / 10);
        }
        check(&mut world, 0..16);
        assert!(world.ends.iter().all(|end| end.star.in_use() == (0, 0)), "no row is kept for it");
        // With less to take along there is room.
        switch(&mut world, usize::from(switches));
        world.run(SECOND);
        assert_eq!(is_stateful(&world), [false, true].map(|it| Some(it ^ switches)));
    }
}

/// A side that has agreed to a change of roles does not know whether its peer has heard that, and
/// waits for nothing.
#[test]
fn a_side_that_has_agreed_may_ask_when_its_peer_has_given_up() {
    let mut world = World::new(Role::Stateful, 0, 0);
    // The stateless side's word about it.
    world.fate = Box::new(|frame| {
        let is_word = kind_of(frame) == Some(SWITCH) && frame[2] & OF_Z != 0;
        (!is_word).then_some(Duration::ZERO)
    });
    switch(&mut world, 0);
    world.run(60 * SECOND);
    world.fate = losing(0, 0);
    assert_eq!(is_stateful(&world), [Some(true), Some(false)], "it has given up");
    for host in [0, 1] {
        assert!(!world.ends[host].verbs.query_qp(world.qps[host]).unwrap().is_switching);
    }
    switch(&mut world, 1);
    world.run(SECOND);
    assert_eq!(is_stateful(&world), [Some(false), Some(true)]);
}

/// The stateless side's wish is a question, and asked once: recorded and played later, when it
/// could come true, it changes nothing.
#[test]
fn a_wish_that_came_to_nothing_comes_to_nothing_when_it_comes_again() {
    let mut world = World::new(Role::Stateful, 0, 0);
    // No frame about a change goes through but the wish.
    world.fate = Box::new(|frame| (kind_of(frame) != Some(SWITCH)).then_some(Duration::ZERO));
    world.replays = Some(usize::MAX);
    switch(&mut world, 1);
    world.run(60 * SECOND);
    world.fate = losing(0, 0);
    let recorded = core::mem::take(&mut world.recorded);
    assert_eq!(recorded.iter().map(|it| (it.0, it.2[1])).next(), Some((0, 0x21)), "the wish");
    world.play(recorded);
    world.run(SECOND);
    assert_eq!(is_stateful(&world), [Some(true), Some(false)], "nobody has asked again");
    switch(&mut world, 1);
    world.run(SECOND);
    assert_eq!(is_stateful(&world), [Some(false), Some(true)]);
}
