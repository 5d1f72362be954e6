//! Wrong histories are found and named; the checkers agree on random ones.

mod agreement;
mod drafts;
mod judges;
mod long;

use rma_core::{region::RegionId, time::Instant};

use super::*;
use crate::net::frame::NodeId;

const WORD: Word = Word { target: NodeId(1), region: RegionId::from_bits(5), offset: 0x40 };

/// Event `event` of a run, at a time of its own.
fn at(event: u64) -> Moment {
    Moment { at: Instant::from_nanos(100 * event), event }
}

fn id(number: u64) -> OpId {
    OpId { client: NodeId(0), number }
}

const fn add(addend: u64) -> Kind {
    Kind::FetchAdd { addend }
}

const fn swap(expected: u64, new: u64) -> Kind {
    Kind::CompareSwap { expected, new }
}

const fn result(before: u64) -> Outcome {
    Outcome::Applied { before }
}

/// The history of a word that began with 0. The name of an op is its place.
fn history(ops: &[(Kind, u64, Outcome, u64)]) -> History {
    let mut history = History::new();
    history.add_word(WORD, 0);
    for (number, &(kind, invoked, outcome, over)) in (0..).zip(ops) {
        history.invoke(id(number), WORD, kind, at(invoked));
        history.respond(id(number), outcome, at(over));
    }
    history
}

/// Returns the violation of the history. The search must find something as well.
fn violation(history: &History) -> Violation {
    let found = *history.check().unwrap_err();
    assert!(!found.to_string().contains('\n') && found.to_string().starts_with("word 0x40 of "));
    let searched = history.check_by_search(1000);
    assert!(matches!(*searched.unwrap_err(), Violation::NoOrder { .. }), "{found}");
    found
}

/// That it holds, by all checkers. How many words the fast one left to the search.
fn searched(history: &History) -> usize {
    history.check_by_search(1000).unwrap();
    history.check().unwrap().searched
}

/// The report omits later ops, in order or not, and keeps those under way.
#[test]
fn the_report_of_a_broken_word_ends_where_it_broke() {
    let ops = [
        (add(1), 0, result(0), 1),
        (add(2), 2, result(0), 3),
        (add(4), 2, result(3), 9),
        (add(8), 5, Outcome::NotApplied, 6),
        (Kind::Load, 7, result(0x77), 8),
    ];
    let history = history(&ops);
    let broken = history.shortest(violation(&history));
    let numbers: Vec<u64> = broken.ops.iter().map(|op| op.id.number).collect();
    assert_eq!((broken.initial, numbers), (0, vec![0, 1, 2]));
    assert!(matches!(broken.violation, Violation::Fork { .. } | Violation::Order { .. }));
    let text = broken.to_string();
    let (first, rest) = text.split_once('\n').expect("several lines");
    assert_eq!(first, broken.violation.to_string());
    assert!(rest.starts_with("It held 0x0 at first, and then came\n  op 0 of n0"), "{rest}");
    assert!(rest.ends_with("under way)"), "{rest}");
}

#[test]
fn ops_that_overlap_may_come_in_either_order_and_unknown_ones_where_they_are_needed() {
    let mixed = [
        (add(1), 0, result(4), 9),
        (add(4), 1, result(0), 9),
        (add(16), 2, Outcome::Unknown, 8),
        (add(64), 2, Outcome::Unknown, 8),
        (swap(21, 1 << 32), 3, result(21), 10),
        (swap(1 << 32, 2 << 32), 11, Outcome::Unknown, 12),
        (swap(7, 3 << 32), 11, Outcome::NotApplied, 12),
        (swap(7, 3 << 32), 11, result(2 << 32), 12),
        (Kind::Load, 13, result(2 << 32), 13),
    ];
    let history = history(&mixed);
    assert_eq!(searched(&history), 0);
    let checked = Checked { words: 1, ops: 9, not_applied: 1, unknown: 3, ..Checked::default() };
    assert_eq!(history.check(), Ok(checked));
}

#[test]
fn words_are_judged_apart_and_the_first_that_fails_is_named() {
    let other = Word { offset: 0x38, ..WORD };
    let mut history = history(&[(add(1), 0, result(0), 1), (add(2), 2, result(1), 3)]);
    history.add_word(other, 7);
    history.invoke(id(2), other, Kind::Load, at(4));
    let checked = Checked { words: 2, ops: 3, under_way: 1, ..Checked::default() };
    assert_eq!(history.check(), Ok(checked));
    history.respond(id(2), result(6), at(5));
    let found = history.check().unwrap_err();
    assert_eq!(
        found.to_string(),
        "word 0x38 of region 0x5 of n1: op 2 of n0 (LOAD, invoked at 400 ns (event 4), \
         result 0x6 by 500 ns (event 5)) saw 0x6, and nobody can have put it there"
    );
}

#[test]
fn a_fetch_add_that_was_applied_twice_is_found() {
    let found = violation(&history(&[
        (add(1), 0, result(0), 1),
        (add(4), 2, result(1), 3),
        (add(2), 4, result(9), 5),
    ]));
    let Violation::Gap { from: 5, to: 9, suspicion: Suspicion::Twice(op), .. } = found else {
        panic!("{found}");
    };
    assert_eq!(op.id, id(1));
    // Also if its outcome was unknown, and once explains an earlier value.
    let found = violation(&history(&[
        (add(4), 0, Outcome::Unknown, 9),
        (add(1), 2, result(4), 3),
        (Kind::Load, 4, result(9), 5),
    ]));
    assert!(matches!(found, Violation::Gap { suspicion: Suspicion::Twice(_), .. }), "{found}");
}

#[test]
fn a_fetch_add_that_was_lost_is_found() {
    let twice = violation(&history(&[(add(1), 0, result(0), 5), (add(2), 0, result(0), 5)]));
    assert!(matches!(twice, Violation::Fork { value: 0, .. }), "{twice}");
    let unseen = violation(&history(&[(add(1), 0, result(0), 1), (Kind::Load, 2, result(0), 3)]));
    let Violation::Order { first, then, .. } = unseen else { panic!("{unseen}") };
    assert_eq!((first.id, then.id), (id(1), id(0)));
}

#[test]
fn an_op_that_was_applied_after_its_timeout_is_found() {
    let added = violation(&history(&[
        (add(4), 0, Outcome::Unknown, 1),
        (Kind::Load, 2, result(0), 3),
        (Kind::Load, 4, result(4), 5),
    ]));
    let Violation::Gap { from: 0, to: 4, suspicion: Suspicion::Late(op), .. } = added else {
        panic!("{added}");
    };
    assert_eq!(op.id, id(0));
    let swapped = violation(&history(&[
        (swap(0, 1 << 32), 0, Outcome::Unknown, 1),
        (Kind::Load, 2, result(0), 3),
        (Kind::Load, 4, result(1 << 32), 5),
    ]));
    let Violation::Order { first, then, .. } = swapped else { panic!("{swapped}") };
    assert_eq!((first.id, then.id), (id(1), id(0)));
}

#[test]
fn an_op_may_be_late_that_its_target_has_counted_and_no_other() {
    let late = [
        (add(4), 0, Outcome::Unknown, 1),
        (Kind::Load, 2, result(0), 3),
        (Kind::Load, 4, result(4), 5),
    ];
    let mut excused = history(&late);
    excused.excuse(id(0), at(2));
    assert_eq!(searched(&excused), 0);
    let mut too_early = history(&late);
    too_early.excuse(id(1), at(4));
    violation(&too_early);
}

#[test]
fn a_settled_op_took_effect_before_its_timeout() {
    let unknown = [(add(4), 0, Outcome::Unknown, 3), (Kind::Load, 4, result(4), 5)];
    let mut right = history(&unknown);
    right.settle(id(0), result(0));
    assert_eq!(searched(&right), 0);
    let mut wrong_result = history(&unknown);
    wrong_result.settle(id(0), result(1));
    violation(&wrong_result);
    let mut wrong_verdict = history(&unknown);
    wrong_verdict.settle(id(0), Outcome::NotApplied);
    let found = violation(&wrong_verdict);
    assert!(matches!(found, Violation::Gap { suspicion: Suspicion::NotApplied(_), .. }), "{found}");
    let mut forgotten = history(&unknown);
    forgotten.settle(id(0), Outcome::Unknown);
    assert_eq!(searched(&forgotten), 0);
}

#[test]
fn a_result_from_the_future_is_found() {
    let found = violation(&history(&[(Kind::Load, 0, result(1), 1), (add(1), 2, result(0), 3)]));
    let Violation::Order { first, then, .. } = found else { panic!("{found}") };
    assert_eq!((first.id, then.id), (id(1), id(0)));
    let unknown =
        violation(&history(&[(Kind::Load, 0, result(1), 1), (add(1), 2, Outcome::Unknown, 3)]));
    assert!(matches!(unknown, Violation::Gap { suspicion: Suspicion::Early(_), .. }), "{unknown}");
}

#[test]
fn a_stale_result_is_found() {
    let found = violation(&history(&[
        (swap(0, 1 << 32), 0, result(0), 1),
        (swap(1 << 32, 2 << 32), 2, result(1 << 32), 3),
        (swap(9, 9 << 32), 4, result(1 << 32), 5),
    ]));
    let Violation::Order { first, then, .. } = found else { panic!("{found}") };
    assert_eq!((first.id, then.id), (id(2), id(1)));
}

#[test]
fn an_op_that_was_applied_though_it_was_not_is_found() {
    let added =
        violation(&history(&[(add(4), 0, Outcome::NotApplied, 1), (add(1), 2, result(4), 3)]));
    assert!(matches!(added, Violation::Gap { suspicion: Suspicion::NotApplied(_), .. }), "{added}");
    for kind in [swap(0, 1 << 32), Kind::Store { new: 1 << 32 }] {
        let put = violation(&history(&[
            (kind, 0, Outcome::NotApplied, 1),
            (add(1), 2, result(1 << 32), 3),
        ]));
        let Violation::Alien { suspicion: Suspicion::NotApplied(op), .. } = put else {
            panic!("{put}");
        };
        assert_eq!(op.id, id(0));
    }
}

#[test]
fn a_value_that_was_stepped_over_or_left_behind_is_found() {
    let stepped = violation(&history(&[(add(4), 0, result(0), 9), (Kind::Load, 0, result(3), 9)]));
    assert!(matches!(stepped, Violation::Passed { value: 3, .. }), "{stepped}");
    let left = violation(&history(&[
        (swap(0, 1 << 32), 0, result(0), 9),
        (add(1), 0, result(1), 9),
        (add(1), 0, Outcome::Unknown, 9),
    ]));
    assert!(matches!(left, Violation::Passed { value: 1, .. }), "{left}");
}

#[test]
fn swaps_that_only_explain_each_other_are_found() {
    let circle = [
        (swap(1 << 32, 2 << 32), 0, Outcome::Unknown, 9),
        (swap(2 << 32, 1 << 32), 0, Outcome::Unknown, 9),
        (Kind::Load, 0, result(1 << 32), 9),
    ];
    let found = violation(&history(&circle));
    assert!(matches!(found, Violation::Alien { .. }), "{found}");
}

#[test]
fn stores_without_an_order_are_found() {
    let store = |value: u64| Kind::Store { new: value << 32 };
    let load = |value: u64, at| (Kind::Load, at, result(value << 32), at);
    let stored = |loads: [u64; 4]| {
        let mut ops = vec![(store(1), 0, Outcome::Stored, 9), (store(2), 0, Outcome::Unknown, 9)];
        ops.extend(loads.into_iter().zip(3..).map(|(value, at)| load(value, at)));
        history(&ops)
    };
    for holds in [[0, 1, 1, 2], [0, 2, 2, 1], [1, 1, 1, 1], [0, 0, 2, 2]] {
        assert_eq!(searched(&stored(holds)), 0, "{holds:?}");
    }
    for fails in [[0, 1, 2, 1], [2, 1, 1, 2]] {
        let found = violation(&stored(fails));
        assert!(matches!(found, Violation::Interleaved { .. }), "{fails:?}: {found}");
    }
    let found = violation(&stored([1, 0, 2, 2]));
    assert!(matches!(found, Violation::Order { .. }), "{found}");
}

#[test]
fn values_that_repeat_are_left_to_the_search_and_it_says_when_it_gives_up() {
    let lock = |round: u64| {
        let take = (swap(0, 1), 2 * round, result(0), 2 * round + 3);
        [take, (Kind::Store { new: 0 }, 2 * round, Outcome::Stored, 2 * round + 3)]
    };
    let history = history(&(0..20).flat_map(lock).collect::<Vec<_>>());
    assert_eq!(searched(&history), 1);
    let found = *history.check_by_search(3).unwrap_err();
    assert_eq!(found, Violation::Undecided { word: WORD, ops: 40, states: 3 });
}

#[test]
fn unknown_additions_are_told_apart_by_their_sums_and_else_by_the_search() {
    let ops = |addends: [u64; 4], seen: [u64; 2]| {
        let unknown = addends.map(|it| (add(it), 0, Outcome::Unknown, 9));
        let seen = [4, 6].into_iter().zip(seen);
        let loads = seen.map(|(at, value)| (Kind::Load, at, result(value), at));
        history(&unknown.into_iter().chain(loads).collect::<Vec<_>>())
    };
    assert_eq!(searched(&ops([1, 2, 4, 8], [6, 7])), 0);
    assert_eq!(searched(&ops([1, 2, 3, 8], [3, 4])), 0, "1 fills the second gap, so not the first");
    assert_eq!(searched(&ops([1, 2, 3, 5], [5, 6])), 1, "5, or 2 and 3");
    assert_eq!(searched(&ops([1, 2, 2, 8], [2, 11])), 1, "either 2");
    assert_eq!(searched(&ops([1, 1, 1, 9], [3, 12])), 0, "what is left fills the rest");
    violation(&ops([1, 2, 4, 8], [6, 9]));
}

/// Harnesses are code as well.
#[test]
#[should_panic(expected = "cannot end with")]
fn a_store_has_no_result() {
    history(&[(Kind::Store { new: 1 }, 0, result(0), 1)]);
}
