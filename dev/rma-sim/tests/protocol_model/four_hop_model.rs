//! The four hops of mutations, and SETTLE, explored: every order of every step of an initiator, a
//! target, their two clocks and a network that belongs to an attacker, within small bounds.
//!
//! It is a model, not shipped code: it shows that the *protocol* keeps P2 (no late effect) and P7
//! (once), what a Rekey promises, and that what SETTLE says of a recorded op is true and stays so.
//! That the code follows the protocol is the simulator's to show; the table says where each part of
//! the model is to be found in `rma-core/src/nic`. Whoever changes one changes the other.
//!
//! | model | code | remark |
//! |---|---|---|
//! | `script::Op`, `OpId` | `security.rs`: `RequestSeal` of a mutation's request | an op has one request, so its name stands for IV1 and for the request's tag |
//! | `initiator::Slot`, `Phase`, `generation` | `initiator.rs`: `Slot`, `State`; `initiator/mutation.rs`: `Solicited` | |
//! | `Action::Issue` | `initiator.rs`: `poll_request` | a mutation takes none of the initiator's window |
//! | `Action::TimeOut`, `may_time_out` | `initiator.rs`: `handle_timeout` | before hop 2 at any time, which is more than T_i allows; after it no sooner than T_i after the stamp |
//! | `receive_solicitation`: `first`, `bound` | `initiator/mutation.rs`: `handle_solicitation`; `security.rs`: `open_solicitation` | the fresh stamp is the step itself: a frame that waits in a queue is still on its way |
//! | `Frame::Data` | `initiator/mutation.rs`: `poll_data`; `security.rs`: `seal_data` | all at once, and then at the network's mercy |
//! | `receive_acknowledgement` | `initiator/mutation.rs`: `handle_acknowledgement`; `security.rs`: `open_acknowledgement` | |
//! | `receive_notice`: `in_time` | `initiator.rs`: `handle_failure` | |
//! | `Frame::AuthenticationFailure` | `security.rs`: `seal_failure` under the reserved key | deliverable as soon as the request was sent: who has seen that can forge it |
//! | `target::Entry` | `responder/mutations/pending.rs`: `Pending` | the model takes the lowest free index, so that one is used again as soon as can be |
//! | `receive_request` | `responder/admission.rs`; `responder/mutations.rs`: `is_full`, `push` | every copy of a request makes an entry, also those that `has_come` would drop |
//! | `Action::Solicit`, `may_solicit` | `responder/mutations.rs`: `poll_transmit` | in any order, not by class and arrival; a granule stands for half of 4 KiB; no reads share the window |
//! | `Action::Park`, `may_park` | `responder/mutations.rs`: `park` | at any time while another wants room, which is more than the code does |
//! | `receive_request`: `parked` | `responder/mutations.rs`: `place_for` | any that is parked, not the one that was parked first |
//! | `Action::Shed`, `Action::Forget` | `responder/mutations.rs`: `handle_timeout`, `next_in_time` | at any time, which is more than the code does |
//! | `receive_data`: `header`, `bound`, `repeated` | `responder/mutations/pending.rs`: `is_of`; `responder/mutations.rs`: `handle_data`; `security.rs`: `open_data` | |
//! | `Entry::revision`, `is_outdated`, `Action::Refuse` | `region_table.rs`: `get_at`; `responder/admission.rs`: `refuse` | before hop 2 |
//! | `discard` | `responder/mutations/pending.rs`: `land` | after it |
//! | `Script::deadline`, the look at the clock in `receive_data` | `responder/mutations/pending.rs`: `deadline_nanos`, `GUARD_PART` | |
//! | `Action::Copy`, ticks before it | `responder/mutations/pending.rs`: `apply`; `region_table.rs`: `rekey` | ticks: the engine was descheduled |
//! | `Action::LookAgain`, `Script::late_from` | `responder/mutations/pending.rs`: `given_up_nanos`, `DRIFT_PART`; `counters.rs`: `late_effects` | |
//! | `Target::debited` | `solicitation_window.rs` | |
//! | `Action::DriverRekey` | `region_table.rs`: `rekey` | between two steps of the engine, as it runs on its thread |
//! | `Action::RestartInitiator`, `Action::RestartTarget` | a new `Nic` | generations start anew, IVs do not (P4); the target registers under the key that it has |
//! | `Slot::reached`, `Name` | `initiator.rs`: `complete`; `command/completion.rs`: `Ending` | |
//! | `Op::is_recorded`, `stage` | `responder/mutations/recorded.rs`: `land_recorded` | of the ordered ops, `OrderedWrite` stands for all that come in one frame, `Send` for those in several |
//! | `commit`, `complete` | `responder/mutations/recorded.rs`: `commit`; `responder/mutations.rs`: `answer` | hop 4 is sent as the entry ends; if it waits, it is still on its way |
//! | `Records::place`, `reserve` | `responder/records.rs`: `next`, `reserve` | of those that were taken before the lowest, not the one that is free longest |
//! | `Action::Shed` of a recorded op | `responder/mutations.rs`: `poll_transmit`, where `next` finds no record | at any time, so the half that one row may have is not modelled |
//! | `Records::conclude` | `responder/records.rs`: `applied`, `ended` | |
//! | `Op::done`, `Records::release` | `responder/mutations/recorded.rs`: `note_done`; `responder/records.rs`: `release` | |
//! | `Action::Expire`, `Timing::retention` | `responder/records.rs`: `expire`, `RETENTION` | in ticks from the commit; at any time once nobody has to ask |
//! | `index_of_data` | `responder/records.rs`: `entry_of` | |
//! | `bind_post`, `ReceiveQueue` | `responder/mutations/recorded.rs`: `bind_receive`, `end_recorded`; `responder/recorded.rs`: `look_for_receive`; `receive_queue/port.rs` | the application posts nothing more |
//! | `settle::requests`, `settle::receive` | `initiator/recorded.rs`: `handle_settlement` | asked again at any time, and an answer to any of these requests is taken |
//! | `settle::answer` | `responder/mutations/recorded.rs`: `settle`; `responder/records.rs`: `ask` | the answer waits nowhere but in the network |
//! | `may_repeat` | software: when a publishing op may be sent again | |
//! | `Effects` | nothing | what only an observer of both sides can know |
//!
//! Assumed, not shown: AEAD cannot be forged, IVs are fresh (P4), and the two clocks run at rates
//! whose difference over one timeout stays within the guard's share for drift. A clock that stands
//! still while the other runs (a suspended machine, unless the clock counts that time) is outside
//! of it. What SETTLE says needs no clock: it is shown for drift beyond the guard as well.
//!
//! What SETTLE does not promise: a record whose op was not applied is free at once, and forgets as
//! soon as it is taken again. Only with a record for each hop 2 is nothing forgotten within
//! retention and one life; with fewer, only what was applied is not. FORGOTTEN says nothing.
//!
//! How much is explored: the default takes seconds. `RMA_MODEL=large` adds a tick to all timeouts
//! and one more hop 2 to each run; `RMA_MODEL=frames` keeps every frame deliverable for ever, where
//! the default forgets those that nobody takes any more (and a test shows that these change
//! nothing): `RMA_MODEL=large cargo test -p rma-sim --release --test protocol_model four_hop --
//! --nocapture`. These take minutes and some GB of memory.

mod effects;
mod initiator;
mod model;
mod network;
mod promises;
mod receive_queue;
mod recorded;
mod records;
mod script;
mod settle;
mod target;

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::env;

use rma_lab::evidence;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::four_hop_model::{
    promises::name,
    script::{Flaw, Op, SOLICITATIONS_MAX, Script, Timing},
};

/// Two WRITEs through one slot, with window for both at once and for duplicates of either.
const WRITES: Script = Script {
    ops: &[Op::write(0, 0), Op::write(0, 0)],
    ok: 2,
    timing: Timing::FITTING,
    entries: 2,
    window: 4,
    solicitations: 3,
    records: 0,
    posts: 0,
    cancels: false,
    driver_key: None,
    initiator_restarts: false,
    target_restarts: false,
    all_frames: false,
    flaws: &[],
};

/// The target may be stopped for any time before and after a copy.
const LONG_PAUSES: Timing = Timing { pause_max: None, ..Timing::FITTING };

/// Both sides may restart, and the initiator's second op then has the generation of its first.
const RESTARTS: Script =
    Script { initiator_restarts: true, target_restarts: true, solicitations: 2, ..WRITES };

/// A Rekey beside a WRITE under the old key.
const REKEY_AND_WRITE: Script =
    Script { ops: &[Op::rekey(0, 0, 1), Op::write(1, 0)], ok: 2, ..WRITES };

/// A Rekey beside a WRITE under the new key.
const REKEY_AND_NEXT_WRITE: Script =
    Script { ops: &[Op::rekey(0, 0, 1), Op::write(1, 1)], ok: 2, ..WRITES };

/// A Rekey, a WRITE under the old key beside it, and one under the new key.
const REKEY_BETWEEN_WRITES: Script = Script {
    ops: &[Op::rekey(0, 0, 1), Op::write(1, 0), Op::write(1, 1)],
    ok: 2,
    solicitations: 2,
    ..WRITES
};

/// Two Rekeys under one key, and the driver with a third.
const RIVAL_REKEYS: Script = Script {
    ops: &[Op::rekey(0, 0, 1), Op::rekey(1, 0, 2)],
    ok: 1,
    driver_key: Some(3),
    solicitations: 2,
    ..WRITES
};

/// A Rekey after another, through one slot.
const TWO_REKEYS: Script =
    Script { ops: &[Op::rekey(0, 0, 1), Op::rekey(0, 1, 2)], ok: 2, solicitations: 4, ..WRITES };

/// The bounds that the environment asks for.
fn bounded(script: Script) -> Script {
    match env::var("RMA_MODEL").as_deref() {
        Err(_) => script,
        Ok("frames") => Script { all_frames: true, ..script },
        Ok("large") => {
            let timing = Timing {
                initiator_timeout: script.timing.initiator_timeout + 1,
                target_timeout: script.timing.target_timeout + 1,
                ..script.timing
            };
            let solicitations = SOLICITATIONS_MAX.min(usize::from(script.solicitations) + 1) as u8;
            Script { timing, solicitations, ..script }
        }
        Ok(other) => panic!("RMA_MODEL={other:?}: it is large or frames, or not set"),
    }
}

/// Explores all that `script` allows, and holds each state against the promises. A model that has
/// become smaller by accident stays below the `floor` of unique states.
fn explore(what: &str, script: Script, floor: usize) {
    static EXPLORED: AtomicUsize = AtomicUsize::new(0);
    let checker = bounded(script).checker().spawn_bfs().join();
    let states = checker.unique_state_count();
    let explored = EXPLORED.fetch_add(states, Relaxed) + states;
    evidence::show(format_args!(
        "model of the four hops, {what}: {states} unique states, {} steps, depth {}; {explored} states up to now",
        checker.state_count(),
        checker.max_depth()
    ));
    checker.assert_properties();
    assert!(states >= floor, "{what}: {states} unique states, fewer than {floor}");
}

/// Shows that `script`, which has flaws, breaks a promise, and how.
fn breaks(script: Script, promise: &'static str) {
    let found = HasDiscoveries::AnyOf([promise].into());
    let checker = script.checker().finish_when(found).spawn_bfs().join();
    let steps = checker.assert_any_discovery(promise).into_actions();
    println!("{:?}, {promise}:", script.flaws);
    steps.iter().for_each(|step| println!("    {step:?}"));
}

/// Shows that `script`, which has flaws, breaks a promise, and no other.
fn breaks_alone(script: Script, promise: &'static str) {
    let checker = script.checker().spawn_bfs().join();
    let always = script.properties().into_iter().filter(|it| it.expectation == Expectation::Always);
    let broken: Vec<_> =
        always.map(|it| it.name).filter(|name| checker.discovery(name).is_some()).collect();
    assert_eq!(broken, [promise], "{:?}", script.flaws);
}

#[test]
fn writes_are_applied_once_and_never_late_while_pauses_fit_the_guard() {
    explore("two writes", WRITES, 500_000);
}

#[test]
fn writes_that_land_late_are_counted_however_long_the_target_is_stopped() {
    explore("two writes, long pauses", Script { timing: LONG_PAUSES, ..WRITES }, 900_000);
}

#[test]
fn writes_that_wait_for_window_keep_all_promises() {
    explore("two writes, narrow window", Script { window: 3, ..WRITES }, 700_000);
}

#[test]
fn data_that_lands_when_its_entry_was_given_away_goes_astray_and_breaks_p2() {
    let script = Script { window: 3, ..WRITES };
    breaks(script.without(&[Flaw::LandsInAnothersEntry]), name::P7_OWN);
    breaks(script.without(&[Flaw::LandsInAnothersEntry]), name::P2_FITTING);
}

#[test]
fn either_side_may_have_the_shorter_timeout() {
    let script = Script { solicitations: 2, ..WRITES };
    let timing = Timing { initiator_timeout: 4, ..Timing::FITTING };
    explore("the target's timeout is shorter", Script { timing, ..script }, 100_000);
    let timing = Timing { target_timeout: 4, ..Timing::FITTING };
    explore("the initiator's timeout is shorter", Script { timing, ..script }, 90_000);
}

#[test]
fn frames_of_a_life_before_a_restart_change_nothing_in_the_next() {
    explore("two writes, restarts", RESTARTS, 900_000);
}

#[test]
fn a_rekey_beside_a_write_leaves_nothing_to_the_old_key() {
    explore("rekey and write", REKEY_AND_WRITE, 2_500_000);
}

#[test]
fn after_a_rekey_ops_under_the_new_key_work_and_old_frames_do_not() {
    explore("rekey and next write", REKEY_AND_NEXT_WRITE, 250_000);
    explore("rekey between writes", REKEY_BETWEEN_WRITES, 500_000);
}

#[test]
fn a_rekey_after_a_rekey_is_not_undone_by_replays() {
    explore("two rekeys", TWO_REKEYS, 80_000);
    let script = Script { timing: LONG_PAUSES, ..TWO_REKEYS };
    explore("two rekeys, long pauses", script, 100_000);
}

#[test]
fn of_rekeys_under_one_key_only_one_takes_effect_be_it_the_driver_s() {
    explore("rival rekeys", RIVAL_REKEYS, 200_000);
}

#[test]
fn frames_that_the_model_forgets_change_nothing() {
    explore(
        "two writes, all frames",
        Script { all_frames: true, solicitations: 2, ..WRITES },
        200_000,
    );
    explore("two rekeys, all frames", Script { all_frames: true, ..TWO_REKEYS }, 350_000);
}

#[test]
fn a_guard_that_does_not_cover_drift_and_pause_lets_effects_be_late_but_not_in_silence() {
    let timing = Timing { guard: 1, ..Timing::FITTING };
    explore("a guard too small", Script { timing, solicitations: 2, ..WRITES }, 150_000);
}

#[test]
fn counting_from_the_limit_would_do_if_clocks_did_not_drift() {
    let timing = Timing { drift_max: 0, ..LONG_PAUSES };
    let script =
        Script { timing, solicitations: 2, flaws: &[Flaw::LateOnlyPastTheLimit], ..WRITES };
    explore("no drift, counted from the limit", script, 250_000);
}

#[test]
fn a_timeout_that_hop_2_does_not_reset_breaks_p2() {
    breaks(WRITES.without(&[Flaw::TimeoutNotReset]), name::P2);
}

#[test]
fn a_stamp_of_hop_2_older_than_hop_2_breaks_p2() {
    breaks(WRITES.without(&[Flaw::StaleStamp]), name::P2);
}

#[test]
fn a_failure_notice_taken_after_hop_2_breaks_p2() {
    breaks(WRITES.without(&[Flaw::NoticeAfterHopTwo]), name::P2);
}

#[test]
fn no_look_at_the_clock_before_the_copy_breaks_p2() {
    breaks(WRITES.without(&[Flaw::NoCheckBeforeCopy]), name::P2_FITTING);
}

#[test]
fn no_look_at_the_clock_after_the_copy_breaks_p2_in_silence() {
    let script = Script { timing: LONG_PAUSES, ..WRITES };
    breaks(script.without(&[Flaw::NoLookAfterCopy]), name::P2);
}

#[test]
fn counting_late_effects_from_the_limit_breaks_p2_in_silence_if_clocks_drift() {
    let script = Script { timing: LONG_PAUSES, ..WRITES };
    breaks(script.without(&[Flaw::LateOnlyPastTheLimit]), name::P2);
}

#[test]
fn a_deadline_that_counts_from_hop_3_breaks_p2() {
    breaks(WRITES.without(&[Flaw::DeadlineFromHopThree]), name::P2);
}

#[test]
fn a_limit_that_ignores_the_initiator_s_timeout_breaks_p2() {
    let timing = Timing { target_timeout: 4, ..Timing::FITTING };
    breaks(Script { timing, ..WRITES }.without(&[Flaw::ClaimedTimeoutIgnored]), name::P2);
}

#[test]
fn an_answer_to_every_hop_2_applies_data_twice() {
    breaks(WRITES.without(&[Flaw::EveryHopTwoAnswered]), name::P7_ONCE);
}

#[test]
fn data_that_is_not_bound_to_hop_2_can_be_replayed() {
    breaks(WRITES.without(&[Flaw::HopThreeNotBound]), name::P7_ONCE);
}

#[test]
fn without_arrival_bits_data_is_applied_twice_and_half_an_op_is_ok() {
    breaks(WRITES.without(&[Flaw::NoArrivalBits]), name::P7_ONCE);
    breaks(WRITES.without(&[Flaw::NoArrivalBits]), name::P7_WHOLE);
}

#[test]
fn a_hop_2_that_is_not_bound_to_hop_1_leads_data_astray_after_a_restart() {
    breaks(RESTARTS.without(&[Flaw::HopTwoNotBound]), name::P7_OWN);
}

#[test]
fn a_hop_4_that_is_not_bound_to_hop_2_completes_another_op_after_a_restart() {
    breaks(RESTARTS.without(&[Flaw::HopFourNotBound]), name::P7_WHOLE);
}

#[test]
fn a_hop_4_sent_before_the_last_copy_is_ok_for_half_an_op() {
    breaks(WRITES.without(&[Flaw::AcknowledgedBeforeCopy]), name::P7_WHOLE);
}

#[test]
fn a_hop_4_taken_after_the_end_completes_an_op_twice() {
    breaks(WRITES.without(&[Flaw::HopFourAfterTheEnd]), name::P1_ONCE);
}

#[test]
fn a_revision_that_is_not_checked_leaves_data_to_the_old_key() {
    breaks(REKEY_AND_WRITE.without(&[Flaw::RevisionUnchecked]), name::KEY_ALONE);
}

#[test]
fn an_unchecked_revision_and_an_answer_to_every_hop_2_bring_an_old_key_back() {
    let flaws = &[Flaw::RevisionUnchecked, Flaw::EveryHopTwoAnswered];
    breaks(TWO_REKEYS.without(flaws), name::KEY_FORWARD);
}

#[test]
fn an_entry_that_a_rekey_ends_without_refund_is_a_hole_in_the_window() {
    breaks(REKEY_AND_WRITE.without(&[Flaw::RefusedWithoutRefund]), name::P3);
}
