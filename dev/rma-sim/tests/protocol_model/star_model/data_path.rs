//! The data path: work requests of both sides, with every frame lost, doubled, late and replayed,
//! either side giving up or restarting at any step, and slots and QPs used again.
//!
//! A *job* is a pair of work requests of the same place in their queues: a SEND and its RECV, or a
//! WRITE alone. Z knows guard words, QP words, a filter and its own library's records; F knows what
//! came and what it sent. Neither sees what [`promises::Seen`] has seen, which the promises are
//! about: S1 (bounded), S2 (no late effect), S3 (exactly once, in order) and S5 (authorised).
//!
//! **A step** is a frame sent or received with all that follows from it at once at that side, or
//! one report of a library. A frame that waits in a queue is still on its way. Z's look at guard,
//! clock and memory is one step with the copy: what a pause between them does is what the model of
//! the four hops is about.
//!
//! **Time** is not counted. That a frame is too old for its receiver looks to both sides as if it
//! had been lost, so age matters only where somebody relies on it, and there it is a step:
//!
//! | step | waits until | and then |
//! |---|---|---|
//! | F reports a failure | every copy that it sent for the WR is dead | the network has none of them |
//! | F waits for a WRITE, to report it or to let what follows go | every copy without RDA is dead | the same |
//! | Z's library reports failures | W has passed since the abort | GDs sent before the abort, and WQEPs, are too old for F |
//!
//! So each wait takes as long as the slowest clock wants, and no longer than the rule says. That
//! F's bounds of Z's clock are right, and W (1 + d) longer than F's window, is arithmetic, and is
//! not shown here. Timers run out when they please: either side gives a connection up at any time.
//!
//! **No step undoes another**, so every run ends. S1 says that every WR has ended where it does:
//! with frames, with some and with none. Where nobody gives up, all are OK.
//!
//! | model | remark |
//! |---|---|
//! | [`network::Frame`] | its job stands for the key, its copy for IV and expiry. What is sealed under a key of a connection before a restart of Z is not authentic |
//! | `Frame::YoungWqep` | a WQEP while its inline data may land. Z's library posts it again at any time: the frame stays |
//! | `Frame::KnowingWqep` | one whose *open before* is 0; others say less, and nothing is lost if F learns later |
//! | EA of a WQEP, or a CQEP that says the same, REFUSAL, "gone" | none: they change timers, or end a connection, which may happen at any time |
//! | `script.quiet` | a CQEP without A, whose EA is a WQEP to come; then one with A. As nothing else is repaired by F alone, it may be lost for good |
//! | several entries in a WQEP or CQEP, one EA for several frames | none: they are as frames that come one after another |
//! | [`stateless::Guard`] | the job is slot, generation, op and QP. Generations are compared for equality only |
//! | `stateless::look` | the table of guards |
//! | `Word::Aborted` | what an abort makes of an open guard: any word that is not open would do |
//! | [`stateless::Qp`] | open, or not: nonce and era are the connection's name |
//! | `Action::Complete` | the library takes a CQE from the completion ring, and tells |
//! | RECVs of F | all posted from the beginning: one that is not is a WQEP that comes later |
//! | `script.fused` | RD with C, whose RDA is the EA; otherwise RD, and CQEP when all RDs are answered |
//! | [`script::Mistake`] | each a rule that is left out, and a test says which promise breaks |
//!
//! Not modelled: READs (Z's is an RD and a CQEP, as for a RECV; F's changes nothing at Z), rotation
//! of K_p, the role switch, which is the other model of this binary, and lists that are full (what
//! does not fit is dropped before it has effect, which is loss).

mod model;
mod network;
mod promises;
mod script;
mod stateful;
mod stateless;

use self::{
    promises::name,
    script::{Job, Kind, Mistake, Script},
};
use super::{breaks, explore};

const INLINE: Kind = Kind::SendOfZ { inline: true };
const FETCHED: Kind = Kind::SendOfZ { inline: false };

/// Two SENDs of F, each to its RECV in a slot of its own: RD, then CQEP.
const SENDS_OF_F: Script = Script {
    jobs: &[Job::new(Kind::SendOfF, 0), Job::new(Kind::SendOfF, 1)],
    fused: false,
    quiet: false,
    chunks: 1,
    copies: 1,
    gives_up: true,
    f_restarts: false,
    z_restarts: false,
    hostile: None,
    one_qp: false,
    receives_at_once: false,
    all_frames: false,
    mistake: None,
};

/// The same, and each frame twice.
const SENDS_OF_F_AGAIN: Script = Script { copies: 2, ..SENDS_OF_F };

/// Two SENDs of F, to RECVs that share a slot: the second is posted when the first is complete.
const SHARED_SLOT: Script = Script {
    jobs: &[Job::new(Kind::SendOfF, 0), Job::new(Kind::SendOfF, 0)],
    copies: 2,
    ..SENDS_OF_F
};

/// A SEND of F, and one of the connection that has the slot when the first has left it.
const NEXT_CONNECTION: Script = Script {
    jobs: &[Job::new(Kind::SendOfF, 0), Job::new(Kind::SendOfF, 0).of_next()],
    copies: 2,
    ..SENDS_OF_F
};

/// Two SENDs of Z.
const SENDS_OF_Z: Script =
    Script { jobs: &[Job::new(FETCHED, 0), Job::new(FETCHED, 1)], copies: 2, ..SENDS_OF_F };

/// A WRITE and a SEND of Z.
const WRITE_AND_SEND_OF_Z: Script =
    Script { jobs: &[Job::new(Kind::WriteOfZ, 0), Job::new(FETCHED, 1)], ..SENDS_OF_Z };

/// Two SENDs of Z, whose WQEPs have the data as well.
const INLINES_OF_Z: Script =
    Script { jobs: &[Job::new(INLINE, 0), Job::new(INLINE, 1)], ..SENDS_OF_Z };

/// Two WRITEs of F.
const WRITES_OF_F: Script = Script {
    jobs: &[Job::new(Kind::WriteOfF, 0), Job::new(Kind::WriteOfF, 0)],
    copies: 2,
    ..SENDS_OF_F
};

/// A WRITE of F, and a SEND that says so.
const WRITE_AND_SEND_OF_F: Script =
    Script { jobs: &[Job::new(Kind::WriteOfF, 0), Job::new(Kind::SendOfF, 0)], ..WRITES_OF_F };

/// A WRITE and two SENDs of F, and two SENDs of Z, one of them inline.
const BOTH_WAYS: Script = Script {
    jobs: &[
        Job::new(Kind::WriteOfF, 0),
        Job::new(Kind::SendOfF, 0),
        Job::new(Kind::SendOfF, 0),
        Job::new(FETCHED, 1),
        Job::new(INLINE, 1),
    ],
    ..SENDS_OF_F
};

/// A message each way, and one after either side has restarted.
const RESTARTS: Script = Script {
    jobs: &[Job::new(Kind::SendOfF, 0), Job::new(INLINE, 1), Job::new(Kind::SendOfF, 0).of_next()],
    f_restarts: true,
    z_restarts: true,
    ..SENDS_OF_F
};

/// A hostile F with an MR and a RECV, and an honest one beside it.
const HOSTILE: Script = Script {
    jobs: &[
        Job::new(Kind::WriteOfF, 0),
        Job::new(Kind::SendOfF, 0),
        Job::new(Kind::SendOfF, 1).of_next(),
    ],
    hostile: Some(0),
    ..SENDS_OF_F
};

/// A QP that was an honest F's, and is a hostile one's then.
const HOSTILE_NEXT: Script = Script {
    jobs: &[Job::new(Kind::SendOfF, 0), Job::new(FETCHED, 1), Job::new(Kind::SendOfF, 0).of_next()],
    one_qp: true,
    hostile: Some(1),
    ..SENDS_OF_F
};

fn fused(script: Script) -> Script {
    Script { fused: true, ..script }
}

fn quiet(script: Script) -> Script {
    Script { quiet: true, ..script }
}

/// Nobody gives up.
fn calm(script: Script) -> Script {
    Script { gives_up: false, ..script }
}

#[test]
fn sends_of_f_are_told_once_in_order_and_never_late() {
    explore("two SENDs of F", SENDS_OF_F, 870);
    explore("two SENDs of F, each frame twice", SENDS_OF_F_AGAIN, 33_000);
    explore("two SENDs of F, fused", fused(SENDS_OF_F_AGAIN), 1600);
    explore("two SENDs of F of two chunks", Script { chunks: 2, ..SENDS_OF_F }, 4800);
    explore(
        "two SENDs of F of two chunks, fused",
        Script { chunks: 2, ..fused(SENDS_OF_F_AGAIN) },
        39_000,
    );
}

#[test]
fn a_slot_may_be_used_again_as_soon_as_its_wqe_is_over() {
    explore("a slot twice", SHARED_SLOT, 15_000);
    explore("a slot twice, fused", fused(SHARED_SLOT), 890);
    explore("a slot of two connections", NEXT_CONNECTION, 190_000);
    explore("a slot of two connections, fused", fused(NEXT_CONNECTION), 9500);
    explore(
        "a slot of two connections of one QP",
        Script { one_qp: true, ..NEXT_CONNECTION },
        51_000,
    );
}

#[test]
fn sends_of_z_are_told_once_in_order_and_never_late() {
    explore("two SENDs of Z", SENDS_OF_Z, 4900);
    explore("two SENDs of Z of two chunks", Script { chunks: 2, copies: 1, ..SENDS_OF_Z }, 3700);
    explore("two SENDs of Z, inline", INLINES_OF_Z, 8500);
    explore("a WRITE and a SEND of Z", WRITE_AND_SEND_OF_Z, 4700);
}

#[test]
fn a_cqep_that_wants_no_ea_is_told_once_however_it_is_lost() {
    explore("quiet: two SENDs of Z", quiet(SENDS_OF_Z), 4400);
    explore("quiet: two SENDs of Z, inline", quiet(INLINES_OF_Z), 7300);
    explore("quiet: a WRITE and a SEND of Z", quiet(WRITE_AND_SEND_OF_Z), 4200);
    explore("quiet: both ways, fused", quiet(fused(BOTH_WAYS)), 31_000);
    explore("quiet, calm: two SENDs of Z", calm(quiet(SENDS_OF_Z)), 970);
    explore("quiet, calm: two SENDs of Z, inline", calm(quiet(INLINES_OF_Z)), 1900);
    let all = Script { all_frames: true, ..quiet(WRITE_AND_SEND_OF_Z) };
    explore("quiet, all frames: a WRITE and a SEND of Z", all, 38_000);
}

#[test]
fn writes_of_f_land_in_order_and_never_late() {
    explore("two WRITEs of F", WRITES_OF_F, 1500);
    explore("a WRITE and a SEND of F", WRITE_AND_SEND_OF_F, 8100);
    explore("a WRITE and a SEND of F, fused", fused(WRITE_AND_SEND_OF_F), 1800);
}

#[test]
fn both_ways_together_no_promise_is_broken() {
    explore("both ways", BOTH_WAYS, 61_000);
    explore("both ways, fused", fused(BOTH_WAYS), 36_000);
}

#[test]
fn either_side_may_restart_at_any_step() {
    explore("restarts", RESTARTS, 510_000);
    explore("restarts, fused", fused(RESTARTS), 240_000);
}

#[test]
fn a_hostile_f_reaches_nothing_but_what_is_its_own() {
    explore("hostile F", HOSTILE, 1700);
    explore("hostile F, fused", fused(HOSTILE), 1100);
    explore("hostile F on a QP that was another's", HOSTILE_NEXT, 4300);
}

#[test]
fn recvs_may_be_reported_right_after_the_abort() {
    let at_once = |script: Script| Script { receives_at_once: true, ..script };
    explore("RECVs at once", at_once(SENDS_OF_F), 1100);
    explore("RECVs at once, a slot of two connections", at_once(NEXT_CONNECTION), 190_000);
    explore("RECVs at once, both ways", at_once(fused(BOTH_WAYS)), 45_000);
}

#[test]
fn answered_copies_of_a_write_need_not_be_awaited() {
    let mistake = Some(Mistake::AnsweredNotAwaited);
    explore("answered WRITEs", Script { mistake, ..WRITES_OF_F }, 1500);
}

#[test]
fn where_nobody_gives_up_all_is_ok() {
    explore("calm: two SENDs of F", calm(SENDS_OF_F_AGAIN), 7500);
    explore("calm: a slot twice", calm(SHARED_SLOT), 3700);
    explore("calm: two SENDs of Z", calm(INLINES_OF_Z), 2300);
    explore("calm: a WRITE and a SEND of F", calm(fused(WRITE_AND_SEND_OF_F)), 130);
    explore("calm: both ways", calm(fused(BOTH_WAYS)), 1200);
}

#[test]
fn frames_that_the_model_forgets_change_nothing() {
    let all = |script: Script| Script { all_frames: true, ..script };
    explore("all frames, two SENDs of F", all(SENDS_OF_F), 870);
    explore("all frames, a slot of two connections", all(fused(NEXT_CONNECTION)), 16_000);
    explore("all frames, two SENDs of Z", all(Script { copies: 1, ..INLINES_OF_Z }), 1100);
    explore("all frames, a WRITE and a SEND of F", all(fused(WRITE_AND_SEND_OF_F)), 2200);
}

/// Shows that a mistake breaks a promise, and how.
fn fails(script: Script, mistake: Mistake, promise: &'static str) {
    breaks(mistake, script.with(mistake), promise);
}

#[test]
fn without_a_guard_late_frames_take_effect() {
    fails(SENDS_OF_F, Mistake::NoGuard, name::S2);
    fails(SENDS_OF_F, Mistake::NoGuard, name::S1_ONCE);
    fails(SENDS_OF_Z, Mistake::NoGuard, name::S2);
    fails(SENDS_OF_F, Mistake::NoGuard, name::S5);
}

#[test]
fn without_a_qp_word_an_idle_f_is_told_that_a_lost_send_is_done() {
    fails(NEXT_CONNECTION, Mistake::NoQpWord, name::S3_OK);
    fails(fused(NEXT_CONNECTION), Mistake::NoQpWord, name::S3_OK);
}

#[test]
fn a_guard_without_its_qp_lets_a_hostile_f_complete_the_wqes_of_others() {
    fails(HOSTILE, Mistake::GuardWithoutQp, name::S5);
}

#[test]
fn guards_that_an_abort_leaves_open_are_the_next_connection_s_to_close() {
    let mistake = Mistake::SlotsNotAborted;
    fails(HOSTILE_NEXT, mistake, name::S5);
    // As long as every F is honest, the QP word would do.
    let honest = |script: Script| Script { mistake: Some(mistake), ..script };
    explore("guards left open, a slot of two connections", honest(NEXT_CONNECTION), 190_000);
    explore("guards left open, both ways", honest(fused(BOTH_WAYS)), 36_000);
}

#[test]
fn wcs_in_the_order_of_their_cqes_are_out_of_order() {
    fails(SENDS_OF_F, Mistake::WcsNotBySequence, name::S3_ORDER);
    fails(fused(SENDS_OF_F), Mistake::WcsNotBySequence, name::S3_ORDER);
}

#[test]
fn a_guard_closed_after_its_cqe_gives_another() {
    fails(SENDS_OF_F, Mistake::CloseAfterCqe, name::S1_ONCE);
    fails(SENDS_OF_F, Mistake::CloseAfterCqe, name::S2);
}

#[test]
fn without_a_window_a_gda_lands_after_z_has_reported() {
    fails(SENDS_OF_Z, Mistake::NoGdaWindow, name::S2);
}

#[test]
fn a_cqep_that_is_taken_for_answered_may_never_be_told() {
    for mistake in [Mistake::QuietIsAnswered, Mistake::WqepsSayAll] {
        fails(calm(quiet(SENDS_OF_Z)), mistake, name::S1_CALM);
        fails(calm(quiet(INLINES_OF_Z)), mistake, name::S1_CALM);
    }
}

#[test]
fn a_recv_that_completes_after_its_data_has_landed_may_be_late() {
    fails(SENDS_OF_Z, Mistake::CompletesLater, name::S2);
}

#[test]
fn data_that_is_read_without_a_second_look_may_be_another_s() {
    fails(SENDS_OF_Z, Mistake::NoSecondLook, name::S5);
}

#[test]
fn inline_data_of_an_old_wqep_lands_after_z_has_reported() {
    fails(INLINES_OF_Z, Mistake::InlineNotFresh, name::S2);
}

#[test]
fn a_z_that_does_not_wait_after_the_abort_reports_too_soon() {
    fails(SENDS_OF_Z, Mistake::NoWaitAfterAbort, name::S2);
    fails(INLINES_OF_Z, Mistake::NoWaitAfterAbort, name::S2);
}

#[test]
fn answered_copies_take_effect_again_if_f_does_not_wait_for_them() {
    fails(SENDS_OF_F, Mistake::AnsweredNotAwaited, name::S2);
    fails(Script { chunks: 2, ..fused(SENDS_OF_F) }, Mistake::AnsweredNotAwaited, name::S2);
}

#[test]
fn copies_that_are_alive_take_effect_if_f_does_not_wait_for_them() {
    fails(SENDS_OF_F, Mistake::NoWaitForDead, name::S2);
    fails(WRITES_OF_F, Mistake::NoWaitForDead, name::S2);
}

#[test]
fn without_a_sequence_a_wqep_is_taken_twice_and_out_of_order() {
    fails(SENDS_OF_F, Mistake::NoWqepSequence, name::S3_OK);
    fails(SENDS_OF_F, Mistake::NoWqepSequence, name::S3_ORDER);
    fails(SENDS_OF_Z, Mistake::NoWqepSequence, name::S3_ONCE);
}

#[test]
fn an_rda_that_is_not_bound_to_its_copy_hides_one_that_is_alive() {
    fails(WRITES_OF_F, Mistake::RdaNotBound, name::S2);
}

#[test]
fn without_a_filter_a_write_lands_again() {
    fails(WRITES_OF_F, Mistake::NoFilter, name::S2);
}

#[test]
fn a_copy_that_was_refused_as_busy_may_land_later() {
    fails(WRITES_OF_F, Mistake::BusyIsAnAnswer, name::S2);
}

#[test]
fn an_ok_before_the_ea_is_said_of_recvs_that_fail() {
    fails(SENDS_OF_F, Mistake::OkBeforeEa, name::S3_OK);
}

#[test]
fn c_before_the_other_chunks_are_answered_completes_half_a_message() {
    fails(Script { chunks: 2, ..fused(SENDS_OF_F) }, Mistake::CompletesBeforeData, name::S3_WHOLE);
}

#[test]
fn a_write_that_is_answered_lands_again_after_what_follows_it() {
    fails(WRITE_AND_SEND_OF_F, Mistake::CompletesBeforeWrite, name::S3_WRITES);
    fails(WRITE_AND_SEND_OF_F, Mistake::AnsweredIsSettled, name::S3_WRITES);
    fails(WRITES_OF_F, Mistake::AnsweredIsSettled, name::S3_WRITES);
    fails(fused(WRITE_AND_SEND_OF_F), Mistake::AnsweredIsSettled, name::S3_WRITES);
}

#[test]
fn without_the_row_of_its_mr_a_write_lands_where_nothing_is_shared() {
    fails(WRITES_OF_F, Mistake::NoRow, name::S5);
    fails(HOSTILE, Mistake::NoRow, name::S5);
}
