//! Recorded ops (ordered WRITE, SEND, atomics), outcome records, SETTLE and posts: what is explored
//! of them, and which flaws are found.

use crate::four_hop_model::{
    WRITES, breaks, breaks_alone, explore,
    promises::name,
    script::{Flaw, Kind, Op, Script, Timing},
};

const ADD: Op = Op::new(0, 0, Kind::FetchAdd);
const SWAP: Op = Op::new(1, 0, Kind::CompareSwap { expected: 0, new: 8 });
const SEND: Op = Op::new(0, 0, Kind::Send);
const ORDERED_WRITE: Op = Op::new(0, 0, Kind::OrderedWrite);

/// Records that are soon given up, which matters only where they are taken again.
const SHORT: Timing = Timing { retention: 1, ..Timing::FITTING };

/// Two FETCH_ADDs through one slot, one after the other, and a record for each hop 2.
const ADDS: Script = Script { ops: &[ADD, ADD], solicitations: 2, records: 2, ..WRITES };

/// A FETCH_ADD beside a COMPARE_SWAP, which swaps if it comes first.
const ADD_AND_SWAP: Script = Script { ops: &[ADD, SWAP], timing: SHORT, ..ADDS };

/// The target may be stopped for any time before and after a commit.
const PAUSES: Script = Script { timing: Timing { pause_max: None, ..Timing::FITTING }, ..ADDS };

/// Clocks differ by as much as they please, so that data may land long after a TIMEOUT.
const DRIFT: Script = Script { timing: Timing { guard: 0, drift_max: 2, ..SHORT }, ..ADDS };

/// The initiator asks about ops that are under way.
const CANCELS: Script = Script { cancels: true, timing: SHORT, ..ADDS };

/// One record for all.
const ONE_RECORD: Script = Script { records: 1, solicitations: 3, ..ADDS };

/// One record, which is soon forgotten, for fewer hops 2.
const SCARCE: Script = Script { timing: SHORT, solicitations: 2, ..ONE_RECORD };

/// The second op says that the first is done.
const DONE: Script = Script { ops: &[ADD, ADD.done(0)], ..ONE_RECORD };

/// The target forgets all that it knew.
const RESTART: Script = Script { target_restarts: true, ..ADDS };

/// A Rekey beside an op under the old key: SETTLE may come under either.
const REKEY_AND_ADD: Script = Script { ops: &[ADD, Op::rekey(1, 0, 1)], ..ADDS };
const REKEY_AND_SEND: Script =
    Script { ops: &[SEND, Op::rekey(1, 0, 1)], posts: 1, timing: SHORT, ..ADDS };

/// Two SENDs, and a post for one.
const SENDS: Script = Script { ops: &[SEND, SEND], ok: 1, posts: 1, ..ADDS };

/// A message, and the same again if the executor's rule says so.
const MESSAGE: Script = Script { ops: &[ORDERED_WRITE, ORDERED_WRITE.repeats(0)], ok: 1, ..ADDS };

#[test]
fn atomics_are_applied_once_and_settle_says_so_or_that_they_never_will_be() {
    explore("two FETCH_ADDs", ADDS, 100_000);
    explore("FETCH_ADD and COMPARE_SWAP", ADD_AND_SWAP, 380_000);
}

#[test]
fn verdicts_hold_however_long_the_target_is_stopped_and_however_clocks_drift() {
    explore("two FETCH_ADDs, long pauses", PAUSES, 240_000);
    explore("two FETCH_ADDs, drift beyond the guard", DRIFT, 400_000);
}

#[test]
fn a_settle_of_an_op_that_is_under_way_ends_it_or_finds_it_applied() {
    explore("two FETCH_ADDs, cancelled", CANCELS, 250_000);
}

#[test]
fn with_one_record_for_all_verdicts_are_right_or_forgotten() {
    explore("two FETCH_ADDs, one record", ONE_RECORD, 300_000);
}

#[test]
fn a_record_is_given_back_by_the_next_request_of_who_knows() {
    explore("two FETCH_ADDs, done", DONE, 200_000);
}

#[test]
fn a_target_that_has_restarted_forgets_and_does_not_lie() {
    explore("two FETCH_ADDs, restart", RESTART, 300_000);
}

#[test]
fn a_send_beside_a_rekey_is_settled_under_the_next_key() {
    explore("SEND and Rekey", REKEY_AND_SEND, 400_000);
}

#[test]
fn sends_share_a_post_and_none_is_lost_or_consumed_twice() {
    explore("two SENDs, one post", SENDS, 120_000);
}

#[test]
fn a_message_that_is_repeated_by_the_rule_is_published_once() {
    explore("a message, repeated", MESSAGE, 65_000);
}

#[test]
fn settles_that_the_model_forgets_change_nothing() {
    explore("two FETCH_ADDs, all frames", Script { all_frames: true, ..ADDS }, 350_000);
}

#[test]
fn a_settle_that_leaves_the_entry_says_not_applied_of_what_is_applied_later() {
    breaks(DRIFT.without(&[Flaw::SettleLeavesEntry]), name::NOT_APPLIED);
    breaks(CANCELS.without(&[Flaw::SettleLeavesEntry]), name::NOT_APPLIED);
}

#[test]
fn an_entry_that_settle_ends_gives_back_its_window_and_its_post() {
    breaks(ADDS.without(&[Flaw::SettledWithoutGivingBack]), name::P3);
    breaks(SENDS.without(&[Flaw::SettledWithoutGivingBack]), name::POSTS);
}

#[test]
fn a_settle_that_does_not_compare_the_counter_tells_what_became_of_another_op() {
    breaks(SCARCE.without(&[Flaw::SettleIgnoresCounter]), name::NOT_APPLIED);
    breaks(SCARCE.without(&[Flaw::SettleIgnoresCounter]), name::APPLIED);
}

#[test]
fn a_settlement_that_is_not_bound_to_its_request_is_taken_for_that_of_another_op() {
    breaks(ADDS.without(&[Flaw::SettlementNotBound]), name::NOT_APPLIED);
    breaks(ADDS.without(&[Flaw::SettlementNotBound]), name::APPLIED);
}

#[test]
fn an_absent_record_says_nothing() {
    breaks(SCARCE.without(&[Flaw::AbsenceIsNotApplied]), name::NOT_APPLIED);
    breaks(RESTART.without(&[Flaw::AbsenceIsNotApplied]), name::NOT_APPLIED);
}

#[test]
fn a_record_that_is_taken_while_it_is_held_forgets_and_does_not_lie() {
    let flaws = &[Flaw::RecordTakenWhileHeld];
    breaks_alone(Script { flaws, solicitations: 2, ..ONE_RECORD }, name::RETAINED);
}

#[test]
fn a_record_that_is_taken_while_it_is_held_lies_if_the_commit_does_not_compare_the_counter() {
    let flaws = &[Flaw::RecordTakenWhileHeld, Flaw::CommitIgnoresCounter];
    let ops = &[ADD, Op { slot: 1, ..ADD }];
    breaks(Script { ops, ..SCARCE }.without(flaws), name::APPLIED);
}

#[test]
fn a_timeout_that_learns_of_hop_2_too_late_calls_unreached_what_is_applied() {
    breaks(WRITES.without(&[Flaw::ReachedToldTooLate]), name::UNREACHED);
    breaks(ADDS.without(&[Flaw::ReachedToldTooLate]), name::UNREACHED);
    breaks(MESSAGE.without(&[Flaw::ReachedToldTooLate]), name::MESSAGE_ONCE);
}

#[test]
fn a_publishing_op_that_is_repeated_blindly_publishes_its_message_twice() {
    breaks(MESSAGE.without(&[Flaw::RepeatedBlindly]), name::MESSAGE_ONCE);
}

#[test]
fn an_answer_to_every_hop_2_makes_settle_ask_about_another_one() {
    breaks(ADDS.without(&[Flaw::EveryHopTwoAnswered]), name::NOT_APPLIED);
    breaks(ADDS.without(&[Flaw::EveryHopTwoAnswered]), name::P7_ONCE);
}

#[test]
fn a_commit_on_an_old_revision_applies_under_the_old_key() {
    breaks(REKEY_AND_ADD.without(&[Flaw::RevisionUnchecked]), name::KEY_ALONE);
    breaks(REKEY_AND_SEND.without(&[Flaw::CommitsOldRevision]), name::KEY_ALONE);
}

#[test]
fn posts_that_are_bound_at_hop_1_are_held_by_replays_and_an_honest_send_is_refused() {
    breaks(SENDS.without(&[Flaw::PostBoundAtHopOne]), name::NOT_READY);
}
