//! The role switch during a connection, explored: who tracks the work requests of a connection
//! gives them to its peer, while messages are under way.
//!
//! It shows that the *protocol* keeps S6 (a switch loses and doubles nothing: each work request has
//! one tracker at any time), S3 (exactly once, in order) and S2 (no late effect) across a switch,
//! and that a switch ends. How a work request is worked on within an era is the other model's;
//! here it has as many steps as a switch can come between.
//!
//! The protocol. The stateful side *gives*, the stateless side *takes*; from and to RC, where both
//! are stateful and each tracks its own, a side gives its own or takes its own.
//! 1. The leader sends SWITCH with a number above every number tried; the taker accepts, or
//!    refuses. Where the taker leads, SWITCH tells the giver to begin.
//! 2. The giver starts nothing new.
//! 3. It sends TRANSFER, in parts. From the last on it is in doubt until COMMIT or ABORT comes; if
//!    neither does, the connection ends with errors.
//! 4. The taker takes back its guards and its QP word, enters the row, and sends COMMIT until it is
//!    answered. Before it takes the guards back it may send ABORT instead.
//! 5. The giver takes COMMIT once: its row goes, and it posts what is unfinished with its old
//!    sequences, under the key of the era that begins.
//!
//! | model | protocol | remark |
//! |---|---|---|
//! | `script::Number` | number of an attempt, and of the era that it begins | |
//! | `network::Frame` | what the tag vouches for | the attacker's network: lost, doubled, late, in any order, for ever. Frames about a switch are never too old, which is more than their expiry allows |
//! | `Work::Gda` | GD and GDA | a GD has no effect but its GDA; the guard is looked at as the GDA is made |
//! | `Work::Rd`, `Work::Rda` | one frame for all bytes of a message | what a part of a message would show, another message shows |
//! | `Work::Wqep` | each copy of it, and its EA | posted again by a timer: here it is on its way for as long as the era lasts |
//! | `Side::complete` | the WQE's record in the library, and the CQE | WCs are given in order, so a CQE that comes early waits |
//! | `Row` | the stateful side's row | |
//! | `Guards`, `State::complete` | guard words, QP word | no slots and generations: a guard is its work request's. What has no guard (a WRITE of the stateful side) has the QP word, which is closed with them |
//! | `Action::AwaitDead` | W after the last frame | only what was not answered is dead: copies of what was may come still |
//! | `Action::SendPart` | TRANSFER in two parts, one for each flow of messages | sent again in any order |
//! | `Action::TakeGuards`, `Action::Enter` | the engine's command; the library | the process may die in between |
//! | `Action::End` | `T_dead`, or the peer is known to be gone | not before whatever it sent, and could still do something, is dead; of a stateless side W after its engine's abort |
//! | `Action::Die` | the process is killed | who comes back has no key, and can send nothing that is taken |
//! | `Action::Cancel`, `Action::Abort`, `Action::Refuse` | timers, no row free, the application | at any time |
//! | `Effects`, `has_failed` | nothing | what only an observer of both sides can know |
//!
//! Beyond these steps a switch needs, as the mistakes below show:
//! - The taker remembers the highest number that it has seen, whatever became of it.
//! - TRANSFER is of one moment: the giver takes no answers from its *first* part on.
//! - ABORT comes before the guards are taken back, or never.
//! - The taker's row is TRANSFER *and* what its own guards say, which may be more.
//! - The taker completes nothing on the word of TRANSFER until its COMMIT is answered, and the
//!   answer counts only less than W after that COMMIT was sent. Otherwise a giver that has ended in
//!   doubt has told its application that a SEND has failed, and then it is received.
//!
//! And it does not need, as the last test shows: that the giver waits until what it sent is
//! answered or dead, if in doubt it takes nothing but COMMIT and ABORT, "gone" included; and that
//! the stateless side holds new posts back.

mod handover;
mod model;
mod network;
mod promises;
mod script;
mod side;
mod work;

use std::collections::HashMap;

use stateright::Model;

use crate::star_model::{breaks, explore};
use promises::name;
use script::{Flaw, Script, Trackers, Who};

/// A is stateful and tracks all.
const A: Trackers = Trackers::One(Who::A);
/// B is stateful and tracks all.
const B: Trackers = Trackers::One(Who::B);
/// Each tracks its own: RC.
const BOTH: Trackers = Trackers::Both;

/// One switch of roles that nothing hinders, with two messages each way.
const SWAP: Script = Script {
    messages: [2, 2],
    path: &[A, B],
    leader: Who::A,
    attempts: 1,
    refuses: false,
    aborts: false,
    cancels: false,
    deaths: false,
    ends: false,
    all_frames: false,
    flaws: &[],
};

/// Attempts that may fail, and another.
const AGAIN: Script = Script { attempts: 2, refuses: true, aborts: true, cancels: true, ..SWAP };

/// Sides that may die, or give up a peer that lives.
const DEATHS: Script = Script { deaths: true, ends: true, ..SWAP };

/// Both, with a message less.
const ALL: Script = Script { messages: [2, 1], deaths: true, ends: true, ..AGAIN };

/// Two messages of the giver, and attempts that may fail.
const SENDS: Script = Script { messages: [2, 0], ..AGAIN };

/// A message of the giver, which may end in doubt.
const DOUBT: Script = Script { messages: [1, 0], ..DEATHS };

/// The roles that follow one another.
const fn path(path: &'static [Trackers], script: Script) -> Script {
    Script { path, attempts: script.attempts + path.len() as u8 - 2, ..script }
}

/// Shows that every run comes to an end: no state comes again. So where no step is left only when
/// all is done, all is done in the end.
fn is_finite(script: Script) {
    let mut is_on_path = HashMap::new();
    let mut path: Vec<_> = script.init_states().into_iter().map(|it| (it, None)).collect();
    while let Some((state, next)) = path.last_mut() {
        let next = next.get_or_insert_with(|| {
            is_on_path.insert(*state, true);
            script.next_states(state)
        });
        match next.pop() {
            Some(after) => match is_on_path.get(&after) {
                Some(&comes_again) => assert!(!comes_again, "{after:?} comes again"),
                None => path.push((after, None)),
            },
            None => {
                is_on_path.insert(*state, false);
                path.pop();
            }
        }
    }
    assert!(is_on_path.len() > 1000, "{} states", is_on_path.len());
}

#[test]
fn without_faults_a_switch_ends_and_each_message_comes_once() {
    explore("a switch of roles", SWAP, 40_000);
    explore("from stateless to RC", path(&[A, BOTH], SWAP), 20_000);
    explore("from RC, the leader gives", path(&[BOTH, B], SWAP), 9_000);
    explore("from RC, the leader takes", path(&[BOTH, A], SWAP), 8_000);
}

#[test]
fn attempts_that_fail_change_nothing_and_another_may_succeed() {
    explore("a switch of roles, tried twice", AGAIN, 700_000);
}

#[test]
fn either_side_may_die_or_give_up_at_any_step() {
    explore("a switch of roles, deaths", DEATHS, 70_000);
    explore("a switch of roles, tried twice, deaths", ALL, 150_000);
}

#[test]
fn to_rc_and_from_rc_either_side_may_die_or_give_up_at_any_step() {
    explore("from stateless to RC, tried twice, deaths", path(&[A, BOTH], ALL), 100_000);
    let all = Script { messages: [2, 2], ..ALL };
    explore("from RC, the leader gives, tried twice, deaths", path(&[BOTH, B], all), 60_000);
    explore("from RC, the leader takes, tried twice, deaths", path(&[BOTH, A], all), 60_000);
}

#[test]
fn a_switch_after_a_switch_knows_nothing_of_frames_of_the_first() {
    let script = Script { messages: [2, 1], ..AGAIN };
    explore("roles switched and back", path(&[A, B, A], script), 300_000);
    explore("roles switched over RC", path(&[A, BOTH, B], script), 300_000);
    explore("to RC and back", path(&[A, BOTH, A], script), 300_000);
}

#[test]
fn frames_that_the_model_forgets_change_nothing() {
    let all_frames = |script| Script { all_frames: true, ..script };
    explore("a switch of roles, tried twice, all frames", all_frames(SENDS), 100_000);
    let script = Script { messages: [1, 1], ..DEATHS };
    explore("a switch of roles, deaths, all frames", all_frames(script), 8_000);
    let script = path(&[A, BOTH, B], Script { messages: [1, 1], ..SWAP });
    explore("roles switched over RC, all frames", all_frames(script), 13_000);
}

#[test]
fn every_run_comes_to_an_end() {
    let script = Script { messages: [1, 1], ..ALL };
    is_finite(script);
    is_finite(Script { all_frames: true, ..script });
    is_finite(path(&[A, BOTH, B], Script { messages: [1, 1], ..AGAIN }));
}

/// Shows that a mistake breaks a promise.
fn mistake(script: Script, flaws: &'static [Flaw], promise: &'static str) {
    breaks(flaws, script.without(flaws), promise);
}

#[test]
fn a_side_that_resumes_out_of_doubt_has_a_peer_that_tracks_the_same() {
    mistake(SENDS, &[Flaw::ResumesOutOfDoubt], name::S6_ONE);
}

#[test]
fn a_commit_taken_twice_completes_a_work_request_twice() {
    mistake(SENDS, &[Flaw::CommitTakenTwice], name::S3_ONCE);
}

#[test]
fn a_side_that_has_not_drained_and_believes_that_all_is_gone_ends_for_nothing() {
    mistake(SENDS, &[Flaw::NotDrained, Flaw::GoneBelievedInDoubt], name::LIVES);
}

#[test]
fn guards_left_open_let_the_old_era_into_a_buffer_that_is_back() {
    mistake(SENDS, &[Flaw::GuardsLeftOpen], name::S2);
    mistake(SENDS, &[Flaw::GuardsLeftOpen, Flaw::NotDrained], name::S3_ONCE);
}

#[test]
fn new_sequences_receive_a_message_twice() {
    mistake(SENDS, &[Flaw::NewSequences], name::S3_OWN);
}

#[test]
fn a_number_used_again_takes_a_late_transfer_or_abort_for_its_own() {
    mistake(SENDS, &[Flaw::TransferOfNumberUsedAgain], name::S6_ONE);
    mistake(SENDS, &[Flaw::AbortOfNumberUsedAgain], name::S6_ONE);
}

#[test]
fn a_taker_that_forgets_numbers_takes_an_attempt_that_it_aborted() {
    mistake(SENDS, &[Flaw::LastNotKept], name::S6_ONE);
}

#[test]
fn a_transfer_of_two_moments_leaves_a_gap_that_nobody_fills() {
    mistake(SENDS, &[Flaw::AnswersTakenBetweenParts], name::ENDS);
}

#[test]
fn an_abort_without_guards_leaves_an_era_in_which_nothing_comes() {
    mistake(SENDS, &[Flaw::AbortAfterGuards], name::ENDS);
}

#[test]
fn a_row_without_the_guards_completes_a_receive_twice() {
    mistake(SENDS, &[Flaw::GuardsNotAsked], name::S3_ONCE);
}

#[test]
fn completing_before_commit_is_answered_or_on_an_old_answer_comes_late() {
    mistake(DOUBT, &[Flaw::CompletesUnanswered], name::S2);
    mistake(DOUBT, &[Flaw::AnswerNotTimed], name::S2);
}

#[test]
fn a_side_that_believes_nothing_in_doubt_need_not_drain_nor_hold_posts_back() {
    let small = Script { messages: [1, 1], ..ALL };
    for script in [SENDS, small] {
        explore("not drained", script.without(&[Flaw::NotDrained]), 40_000);
        explore("gone believed", script.without(&[Flaw::GoneBelievedInDoubt]), 100_000);
        explore("posts not held back", script.without(&[Flaw::PostsNotHeldBack]), 100_000);
    }
    for (way, floor) in [(&[A, BOTH, B], 30_000), (&[A, BOTH, A], 30_000), (&[A, B, A], 30_000)] {
        let script = path(way, Script { messages: [1, 1], ..DEATHS });
        explore("not drained, two switches", script.without(&[Flaw::NotDrained]), floor);
    }
}
