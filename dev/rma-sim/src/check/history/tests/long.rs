//! Histories as long as those of a swarm.

use rma_lab::evidence;

use super::*;
use crate::prng::Prng;

/// How many ops a long history has.
const OPS: u64 = 20_000;

/// An op of a long history, at whose moment the word held `before`.
#[derive(Clone, Copy, Debug)]
struct Turn {
    kind: Kind,
    before: u64,
    at: u64,
}

fn any_addition(prng: &mut Prng) -> Kind {
    add(prng.between(1, 1 << 32))
}

/// Simulates one word that many use at once: op n takes effect at event 10 n.
fn turns(prng: &mut Prng) -> Vec<Turn> {
    let mut value = 0;
    let mut turns = Vec::new();
    for number in 0..OPS {
        let new = (number + 1) << 47;
        let kind = match prng.below(10) {
            0 => Kind::Load,
            1 => Kind::Store { new },
            2 => swap(value ^ 1, new),
            3 | 4 => swap(value, new),
            _ => any_addition(prng),
        };
        turns.push(Turn { kind, before: value, at: 10 * number });
        value = kind.apply(value);
    }
    turns
}

/// Tells of them, each with up to some dozen others under way. One in sixteen clients does not know
/// what became of its op, and the same number of ops, which `others` makes, were not applied.
fn tell(turns: &[Turn], prng: &mut Prng, others: fn(&mut Prng) -> Kind) -> History {
    let mut history = History::new();
    history.add_word(WORD, 0);
    for (number, turn) in (0..).zip(turns) {
        let [begin, over] = [turn.at.saturating_sub(prng.below(100)), turn.at + prng.below(100)];
        let told = match turn.kind {
            Kind::Store { .. } => Outcome::Stored,
            _ => result(turn.before),
        };
        let (told, refused) = match prng.below(32) {
            0 | 1 => (Outcome::Unknown, None),
            2 => (told, Some(Outcome::NotApplied)),
            3 => (told, Some(Outcome::Unknown)),
            _ => (told, None),
        };
        history.invoke(id(2 * number), WORD, turn.kind, at(begin));
        history.respond(id(2 * number), told, at(over));
        if let Some(outcome) = refused {
            history.invoke(id(2 * number + 1), WORD, others(prng), at(begin));
            history.respond(id(2 * number + 1), outcome, at(over));
        }
    }
    history
}

#[test]
fn a_long_history_holds_and_does_not_with_any_result_but_the_right_one() {
    let mut prng = Prng::new(7);
    let turns = turns(&mut prng);
    let told = tell(&turns, &mut prng, any_addition);
    let checked = told.check().unwrap();
    assert_eq!((checked.searched, checked.under_way), (0, 0));
    assert!(checked.ops > OPS as usize && checked.unknown > 1000 && checked.not_applied > 500);
    let mut altered = 0;
    while altered < 20 {
        let mut wrong = told.clone();
        let index = prng.below(OPS) as usize;
        let op = &mut wrong.words.get_mut(&WORD).unwrap().ops[index];
        let Some(Outcome::Applied { before }) = &mut op.outcome else { continue };
        *before = before.wrapping_add(prng.between(1, 1 << 20));
        let found = wrong.check().unwrap_err();
        assert!(!matches!(*found, Violation::Undecided { .. }), "{found}");
        altered += 1;
    }
    evidence::show(format!(
        "a history of {} ops on a word, {} of unknown outcome: in order, and not so with each of \
         {altered} results altered",
        checked.ops, checked.unknown
    ));
}

#[test]
fn a_counter_whose_additions_are_all_alike_is_left_to_the_search_which_takes_some_thousand() {
    let mut prng = Prng::new(8);
    let turns: Vec<Turn> =
        (0..3000).map(|number| Turn { kind: add(1), before: number, at: 10 * number }).collect();
    let told = tell(&turns, &mut prng, |_| add(1));
    let checked = told.check().unwrap();
    assert!(checked.searched == 1 && checked.unknown > 100, "{checked:?}");
}
