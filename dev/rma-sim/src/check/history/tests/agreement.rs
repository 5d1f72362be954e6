//! Three judges, one verdict.

use core::cell::Cell;

use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestRunner},
};
use rma_lab::evidence;

use super::{
    drafts::{Draft, Values, alter, alterations, record, simulate, steps},
    judges::by_stateright,
    *,
};

/// How many histories were judged, and how.
#[derive(Debug, Default)]
struct Tally {
    judged: Cell<u32>,
    ordered: Cell<u32>,
    by_values: Cell<u32>,
}

fn count(cell: &Cell<u32>, whether: bool) {
    cell.set(cell.get() + u32::from(whether));
}

impl Tally {
    /// Has all judge. Whether there is an order, and whether its values told.
    fn judge(&self, drafts: &[Draft]) -> Result<(bool, bool), TestCaseError> {
        let history = record(drafts);
        let searched = history.check_by_search(usize::MAX);
        let is_ordered = searched.is_ok();
        prop_assert_eq!(by_stateright(drafts), is_ordered, "stateright, and {:?}", searched);
        let ops = &history.words[&WORD].ops;
        let chained = chain::check(WORD, 0, ops);
        let by_values = chained != Ok(Verdict::Undetermined);
        if by_values {
            prop_assert_eq!(chained.is_ok(), is_ordered, "{:?}, and {:?}", chained, searched);
        }
        prop_assert_eq!(history.check().is_ok(), is_ordered);
        count(&self.judged, true);
        count(&self.ordered, is_ordered);
        count(&self.by_values, by_values);
        Ok((is_ordered, by_values))
    }
}

/// Judges random histories of up to seven ops of `values`, as a word gave them and altered.
fn compare(values: Values, cases: u32) -> Tally {
    let tally = Tally::default();
    let config = Config { cases, source_file: Some(file!()), ..Config::default() };
    let outcome =
        TestRunner::new(config).run(&(steps(7), alterations()), |(steps, alterations)| {
            let mut drafts = simulate(&steps, values);
            let (is_ordered, by_values) = tally.judge(&drafts)?;
            prop_assert!(is_ordered, "one word gave this");
            prop_assert!(by_values || values != Values::Unique, "its values tell");
            alter(&mut drafts, &alterations);
            let (_, by_values) = tally.judge(&drafts)?;
            prop_assert!(by_values || values != Values::Unique, "its values tell");
            Ok(())
        });
    if let Err(found) = outcome {
        panic!("{found}");
    }
    let [judged, ordered, by_values] =
        [&tally.judged, &tally.ordered, &tally.by_values].map(Cell::get);
    evidence::show(format!(
        "histories of atomics, {values:?} values: three checkers agree on {judged}, \
         {ordered} of them in order, {by_values} judged by values"
    ));
    tally
}

#[test]
fn checkers_agree_on_histories_of_unique_values() {
    let tally = compare(Values::Unique, 4000);
    assert!(tally.ordered.get() < tally.judged.get() * 9 / 10, "many are altered: {tally:?}");
}

#[test]
fn checkers_agree_on_histories_of_additions_with_equal_sums() {
    let tally = compare(Values::Sums, 4000);
    assert!(tally.by_values.get() > tally.judged.get() / 2, "values tell of most: {tally:?}");
    assert!(tally.by_values < tally.judged, "not of all: {tally:?}");
}

#[test]
fn checkers_agree_on_histories_of_values_that_repeat() {
    let tally = compare(Values::Few, 4000);
    assert!(tally.ordered.get() < tally.judged.get() * 9 / 10, "many are altered: {tally:?}");
    assert!(tally.by_values.get() < tally.judged.get() * 9 / 10, "not by values: {tally:?}");
}
