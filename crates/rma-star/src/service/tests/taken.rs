//! The further content of a CQEP: what the stateful side has taken, and whether it wants an EA.

use core::time::Duration;

use super::*;

/// A SEND of this host that is under way.
fn sent(scene: &mut Scene, slot: u32) -> Wqe {
    let posted = scene.wqe(WqeOp::Send, slot, 0, 64);
    scene.posted(Posted { sequence: slot, ..posted })
}

fn upto(send: u32, recv: u32) -> Taken {
    Taken { send: Sequence(send), recv: Sequence(recv) }
}

fn taken(scene: &Scene) -> (Taken, u8) {
    let memory = scene.application.memory();
    (memory.taken(1), memory.qp_word(1).heard)
}

//= star#III-B-ea
//= type=test
#[test]
fn a_cqep_says_what_is_taken_as_an_ea_does() {
    let mut scene = Scene::new();
    let wqe = sent(&mut scene, 0);
    let done = [cqe(&wqe, WqeOp::Send, 64)];
    let late = scene.cqep_that(true, (1, 4), &[Cqe::PROBE]);
    let cqep = scene.cqep_that(true, (1, 7), &done);
    for (frame, heard) in [(&cqep, 1), (&cqep, 2), (&late, 3)] {
        scene.receive(frame);
        assert_eq!(scene.answer_to(&wqe.key, frame), Answer::Done);
        assert_eq!(taken(&scene), (upto(1, 7), heard), "it never moves back");
    }
    // Sequences go round.
    for (send, recv) in [(0x4000_0000, 7), (0x8000_0000, 7), (0xffff_ffff, 7), (2, 8)] {
        let probe = scene.cqep_that(true, (send, recv), &[Cqe::PROBE]);
        scene.receive(&probe);
        assert_eq!(taken(&scene).0, upto(send, recv));
    }
}

#[test]
fn taken_places_are_noted_whatever_becomes_of_the_completions() {
    let mut scene = Scene::new();
    let wqe = sent(&mut scene, 0);
    let done = cqe(&wqe, WqeOp::Send, 64);
    // No such slot; then no room for the answer, as more GDs come than there are places: no effect.
    let nothing = scene.cqep_that(true, (1, 0), &[Cqe { slot: Slot(9_999), ..done }]);
    scene.receive(&nothing);
    assert_eq!(taken(&scene), (upto(1, 0), 1));
    while !scene.transmit().is_empty() {}
    for _ in 0..512 {
        let gd = scene.gd(&wqe, 0, 64);
        scene.receive(&gd);
    }
    let refused = scene.drops(StarDrop::NoRoom);
    let cqep = scene.cqep_that(true, (2, 0), &[done]);
    scene.receive(&cqep);
    assert_eq!((taken(&scene).0.send, scene.application.poll()), (Sequence(2), None));
    assert_eq!(scene.drops(StarDrop::NoRoom), refused + 1);
    // A late frame says nothing, nor does one of a connection that is over.
    scene.now = scene.now + Duration::from_micros(W);
    let in_time = scene.cqep_that(true, (3, 0), &[done]);
    scene.receive(&in_time);
    assert_eq!(taken(&scene).0.send, Sequence(3));
    let expired = scene.cqep_that(true, (4, 0), &[done]);
    scene.now = scene.now + Duration::from_micros(W);
    scene.receive(&expired);
    scene.application.post(&Post::Close { qp: 1 }, None).unwrap();
    scene.star.take_commands(scene.now);
    let closed = scene.cqep_that(true, (5, 0), &[done]);
    scene.receive(&closed);
    assert_eq!(taken(&scene).0.send, Sequence(3));
}

//= star#ours-one-answer
//= type=test
#[test]
fn a_cqep_that_wants_no_ea_has_one_only_if_something_is_wrong() {
    let mut scene = Scene::new();
    let wqe = sent(&mut scene, 0);
    let cqep = scene.cqep_that(false, (1, 0), &[cqe(&wqe, WqeOp::Send, 64)]);
    for is_first in [true, false] {
        scene.receive(&cqep);
        assert!(scene.transmit().is_empty(), "also where it comes again");
        assert_eq!(scene.application.poll().is_some(), is_first);
    }
    let expired = scene.cqep_that(false, (1, 0), &[cqe(&wqe, WqeOp::Send, 64)]);
    scene.now = scene.now + Duration::from_micros(W);
    scene.receive(&expired);
    assert_eq!(scene.answer_to(&wqe.key, &expired), Answer::Clock);
    let next = sent(&mut scene, 1);
    scene.application.post(&Post::Close { qp: 1 }, None).unwrap();
    scene.star.take_commands(scene.now);
    let gone = scene.cqep_that(false, (2, 0), &[cqe(&next, WqeOp::Send, 64)]);
    scene.receive(&gone);
    assert_eq!(scene.answer_to(&wqe.key, &gone), Answer::Gone);
}
