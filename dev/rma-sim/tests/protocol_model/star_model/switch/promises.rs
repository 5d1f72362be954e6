//! The conditions that hold in every state, and the states that must be reached so that this says
//! something.

use stateright::{Model, Property};

use super::{
    script::{Messages, Script, Trackers, Who},
    side::{Life, Phase, Side, State},
};

/// Each is named by what it promises.
pub(crate) mod name {
    pub(crate) const S2: &str = "S2: after its WC nothing of a work request changes anything";
    pub(crate) const S3_ORDER: &str = "S3: a SEND that is OK has given its RECV, and all before it";
    pub(crate) const S3_ONCE: &str = "S3: no work request has two WCs";
    pub(crate) const S3_OWN: &str = "S3: each RECV has the bytes of its own SEND";
    pub(crate) const S6_ONE: &str = "S6: no work request has two trackers";
    pub(crate) const S6_SOME: &str = "S6: no work request is without a tracker";
    pub(crate) const LIVES: &str = "nobody gives up a peer that lives, unless nothing comes of it";
    pub(crate) const ENDS: &str =
        "no step is left only when all is complete, and no switch is open";
    pub(crate) const FORGOTTEN: &str = "the model forgets no frame that could change anything";
}

type Condition = fn(&Script, &State) -> bool;

/// The conditions that hold always.
const ALWAYS: [(&str, Condition); 8] = [
    (name::S2, |_, state| !state.effects.late),
    (name::S3_ONCE, |_, state| !state.effects.twice),
    (name::S3_OWN, |_, state| !state.effects.astray),
    (name::S3_ORDER, |_, state| {
        Who::ALL.into_iter().all(|flow| {
            let [sent, received] =
                [flow, flow.other()].map(|who| state.sides[who].complete[flow].run());
            sent <= received
        })
    }),
    (name::S6_ONE, |script, state| {
        let [a, b] = state.sides.0;
        !both_live(state)
            || Who::ALL
                .into_iter()
                .all(|owner| !(a.tracks(script, Who::A, owner) && b.tracks(script, Who::B, owner)))
    }),
    (name::S6_SOME, |script, state| {
        let [a, b] = state.sides.0;
        !both_live(state)
            || Who::ALL
                .into_iter()
                .all(|owner| a.holds(script, Who::A, owner) || b.holds(script, Who::B, owner))
    }),
    (name::LIVES, |script, state| {
        let lives = state.sides.0.map(|side| side.life);
        script.ends || !lives.contains(&Life::Ended) || lives.contains(&Life::Dead)
    }),
    (name::ENDS, |script, state| is_settled(script, state) || has_next(script, state)),
];

/// The states that are possible in every script.
const SOMETIMES: [(&str, Condition); 3] = [
    ("all is complete, and all switches are done", |script, state| {
        let last = script.path.len() - 1;
        let done = state.sides.0.iter().all(|side| usize::from(side.stage) == last);
        done && both_live(state) && is_settled(script, state)
    }),
    ("a switch is done before any message is under way", |_, state| {
        let begun = state.sides.0.iter().any(|side| {
            side.row.known.0.iter().chain(&side.complete.0).any(|messages| !messages.is_empty())
        });
        state.sides.0.iter().all(|side| side.stage > 0) && both_live(state) && !begun
    }),
    ("a switch is done when a message has landed and its SEND is not complete", |_, state| {
        let waits = |side: &Side| {
            let landed = |who: Who| side.row.done[who].without(side.row.answered[who]);
            Who::ALL.into_iter().any(|flow| !landed(flow).is_empty())
        };
        let entered = |side: &&Side| matches!(side.phase, Phase::Unanswered(_));
        state.sides.0.iter().filter(entered).any(waits)
    }),
];

/// The states that are also possible if one side tracks all at first, and has more than a message
/// to send.
const SOMETIMES_GUARDED: [(&str, Condition); 2] = [
    ("a RECV is complete by the taker's guard, and not by TRANSFER", |_, state| {
        receives_at_taking(state).any(|(mine, told)| !mine.without(told).is_empty())
    }),
    ("a RECV is complete by the taker's guard, and not the one before", |_, state| {
        receives_at_taking(state).any(|(mine, _)| mine != mine.in_order())
    }),
];

/// A state that is also possible if attempts may fail.
const SOMETIMES_AGAIN: (&str, Condition) =
    ("a switch is done after an attempt that failed", |_, state| {
        state.sides.0.iter().all(|side| side.stage > 0 && side.era > side.stage) && both_live(state)
    });

/// The states that are also possible if a side may die.
const SOMETIMES_DEAD: [(&str, Condition); 3] = [
    ("the taker is dead, and the giver in doubt", |_, state| {
        has_sides(state, |side| matches!(side.phase, Phase::InDoubt(_)), Life::Dead)
    }),
    ("the giver is dead, and the taker has the guards", |_, state| {
        has_sides(state, |side| matches!(side.phase, Phase::HasGuards { .. }), Life::Dead)
    }),
    ("the giver is dead, and the taker has entered the row", |_, state| {
        has_sides(state, |side| matches!(side.phase, Phase::Unanswered(_)), Life::Dead)
    }),
];

/// The states that are also possible if a side may end the connection.
const SOMETIMES_ENDED: [(&str, Condition); 2] = [
    ("the giver has ended in doubt, and the taker has the guards", |_, state| {
        has_sides(state, |side| matches!(side.phase, Phase::HasGuards { .. }), Life::Ended)
    }),
    ("the taker has ended, and the giver takes its COMMIT", |_, state| {
        has_sides(state, |side| side.stage > 0, Life::Ended)
            && state.sides.0.iter().all(|side| side.stage > 0)
    }),
];

/// Whether one side is as `this` says and lives, and the other is as `that` says.
fn has_sides(state: &State, this: fn(&Side) -> bool, that: Life) -> bool {
    let [a, b] = &state.sides.0;
    let is = |one: &Side, other: &Side| one.life == Life::Live && this(one) && other.life == that;
    is(a, b) || is(b, a)
}

/// RECVs that are complete at a taker whose guards were taken back: by these, and by TRANSFER.
fn receives_at_taking(state: &State) -> impl Iterator<Item = (Messages, Messages)> {
    Who::ALL.into_iter().filter_map(|who| {
        let side = &state.sides[who];
        let Phase::HasGuards { parts, .. } = side.phase else { return None };
        let flow = who.other();
        let told = state.network.attempt(parts[flow]).parts[flow].complete;
        Some((side.complete[flow], told))
    })
}

fn both_live(state: &State) -> bool {
    state.sides.0.iter().all(|side| side.life == Life::Live)
}

/// Whether all is complete and no switch is open; or the connection has ended.
fn is_settled(script: &Script, state: &State) -> bool {
    let [a, b] = state.sides.0;
    if !both_live(state) {
        return a.life != Life::Live && b.life != Life::Live;
    }
    let all = Who::ALL.map(|flow| script.messages(flow));
    let is_complete = [a, b].iter().all(|side| side.complete.0 == all);
    let is_idle = [a, b].iter().all(|side| side.phase == Phase::Idle);
    is_complete && is_idle && a.era == b.era
}

/// Whether there is a step that changes anything.
fn has_next(script: &Script, state: &State) -> bool {
    let mut actions = Vec::new();
    script.actions(state, &mut actions);
    actions.into_iter().any(|action| script.next_state(state, action).is_some())
}

/// All that must be checked of `script`.
pub(crate) fn all(script: &Script) -> Vec<Property<Script>> {
    let mut all: Vec<_> =
        ALWAYS.into_iter().map(|(name, condition)| Property::always(name, condition)).collect();
    let sometimes = |(name, condition)| Property::sometimes(name, condition);
    all.extend(SOMETIMES.into_iter().map(sometimes));
    let fails = script.attempts > 1 && (script.refuses || script.aborts || script.cancels);
    let guarded = script.trackers(0) == Trackers::One(Who::A) && script.messages[0] > 1;
    all.extend(SOMETIMES_GUARDED.into_iter().filter(|_| guarded).map(sometimes));
    all.extend(fails.then(|| sometimes(SOMETIMES_AGAIN)));
    all.extend(SOMETIMES_DEAD.into_iter().filter(|_| script.deaths).map(sometimes));
    all.extend(SOMETIMES_ENDED.into_iter().filter(|_| script.ends).map(sometimes));
    if script.all_frames && script.flaws.is_empty() {
        all.push(Property::always(name::FORGOTTEN, |script, state: &State| {
            let before = script.without_dead_frames(state);
            script
                .dead_frames(state)
                .all(|frame| script.without_dead_frames(&script.after(state, frame)) == before)
        }));
    }
    all
}
