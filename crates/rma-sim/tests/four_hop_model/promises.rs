//! What must hold in every state, and what must be reached so that this says something.

use stateright::Property;

use crate::{
    initiator::{Outcome, Phase},
    model::State,
    script::{GRANULES_MAX, Op, Script},
};

/// Each is named by what it promises.
pub(crate) mod name {
    pub(crate) const P2: &str = "P2: no effect after a failure is reported, unless it is counted";
    pub(crate) const P2_FITTING: &str =
        "P2: no late effect at all while drift and pauses fit the guard";
    pub(crate) const P7_ONCE: &str = "P7: no granule is applied twice";
    pub(crate) const P7_OWN: &str = "P7: no data lands where another op's belongs";
    pub(crate) const P7_WHOLE: &str = "P7: what is reported OK has been applied completely";
    pub(crate) const P1_ONCE: &str = "P1: each op completes once";
    pub(crate) const P3: &str =
        "P3: debited is what solicited entries take that are not parked, and fits the window";
    pub(crate) const KEY_ALONE: &str = "Rekey: nothing is applied under a key that was replaced";
    pub(crate) const KEY_FORWARD: &str = "Rekey: a key that was replaced never returns";
    pub(crate) const FORGOTTEN: &str = "the model forgets no frame that could change anything";
}

type Condition = fn(&Script, &State) -> bool;

/// What holds always.
const ALWAYS: [(&str, Condition); 8] = [
    (name::P2, |_, state| !state.target.effects.late_in_silence),
    (name::P7_ONCE, |_, state| !state.target.effects.twice),
    (name::P7_OWN, |_, state| !state.target.effects.astray),
    (name::P7_WHOLE, |script, state| {
        ops(script, state).all(|op| op.outcome != Some(Outcome::Ok) || op.applied == op.op.all())
    }),
    (name::P1_ONCE, |_, state| !state.initiator.completed_twice),
    (name::P3, |script, state| {
        let debited = state.target.debited;
        debited == state.target.in_service(script) && debited <= script.window
    }),
    (name::KEY_ALONE, |_, state| !state.target.effects.under_old_key),
    (name::KEY_FORWARD, |_, state| !state.target.effects.key_returned),
];

/// What is possible in every script.
const SOMETIMES: [(&str, Condition); 5] = [
    ("all ops complete OK that can in one run", |script, state| {
        ops(script, state).filter(|op| op.outcome == Some(Outcome::Ok)).count() == script.ok
    }),
    ("an op times out after all of its data was applied", |script, state| {
        ops(script, state)
            .any(|op| op.outcome == Some(Outcome::Timeout) && op.applied == op.op.all())
    }),
    ("an op is refused while an entry of it is pending", |script, state| {
        let mut refused = (0u8..).zip(ops(script, state)).filter(|(_, op)| {
            matches!(op.outcome, Some(Outcome::Nack | Outcome::AuthenticationFailure))
        });
        refused.any(|(id, _)| state.target.entries.iter().flatten().any(|entry| entry.op == id))
    }),
    ("two entries of one op wait or are solicited", |_, state| {
        let [one, other] = state.target.entries;
        one.is_some_and(|one| other.is_some_and(|other| one.op == other.op))
    }),
    ("an entry is solicited whose op is over", |_, state| {
        state.target.entries.iter().flatten().any(|entry| {
            let outcome = state.initiator.outcomes[usize::from(entry.op)];
            entry.solicitation.is_some() && outcome.is_some()
        })
    }),
];

/// What is possible as well if the window is too small for two ops at once.
const SOMETIMES_PARKED: (&str, Condition) =
    ("data lands for an entry that is parked while another is solicited", |_, state| {
        let entries = || state.target.entries.iter().flatten();
        entries().any(|entry| entry.parked && entry.arrived != 0)
            && entries().any(|entry| entry.solicitation.is_some() && !entry.parked)
    });

/// What is possible as well if a slot has two ops.
const SOMETIMES_REUSE: (&str, Condition) =
    ("a slot that was used before waits for hop 4", |script, state| {
        state.initiator.slots.iter().any(|slot| {
            let earlier = &script.ops[..usize::from(slot.op)];
            matches!(slot.phase, Phase::Solicited { .. })
                && earlier.iter().any(|op| op.slot == script.op(slot.op).slot)
        })
    });

/// What is possible as well if a WRITE is among the ops.
const SOMETIMES_WRITE: (&str, Condition) =
    ("a WRITE times out when half of it was applied", |script, state| {
        ops(script, state).any(|op| {
            op.outcome == Some(Outcome::Timeout)
                && op.applied.count_ones() == 1
                && op.op.granules() == GRANULES_MAX
        })
    });

/// What is possible as well if a WRITE's key may be replaced under it.
const SOMETIMES_REKEY: (&str, Condition) =
    ("an op is refused after hop 2 as its key was replaced", |script, state| {
        ops(script, state)
            .any(|op| op.outcome == Some(Outcome::AuthenticationFailure) && op.applied != 0)
    });

/// An op and what became of it.
struct Seen {
    op: Op,
    outcome: Option<Outcome>,
    applied: u8,
}

fn ops<'a>(script: &'a Script, state: &'a State) -> impl Iterator<Item = Seen> {
    let seen = script.ops.iter().zip(state.initiator.outcomes).zip(state.target.effects.applied);
    seen.map(|((&op, outcome), applied)| Seen { op, outcome, applied })
}

/// All that is to be checked of `script`.
pub(crate) fn all(script: &Script) -> Vec<Property<Script>> {
    let always = |(name, condition)| Property::always(name, condition);
    let sometimes = |(name, condition)| Property::sometimes(name, condition);
    let mut all: Vec<_> = ALWAYS.into_iter().map(always).collect();
    all.extend(SOMETIMES.into_iter().map(sometimes));
    let reuse =
        (0..).zip(script.ops).any(|(id, op)| script.ops[..id].iter().any(|b| b.slot == op.slot));
    all.extend(reuse.then(|| sometimes(SOMETIMES_REUSE)));
    let narrow = script.window < 2 * GRANULES_MAX && script.solicitations > 1;
    all.extend(narrow.then(|| sometimes(SOMETIMES_PARKED)));
    let writes = script.ops.iter().any(|op| op.rekey_to.is_none());
    let outdated = script.ops.iter().any(|write| {
        let replaces = |op: &Op| op.rekey_to.is_some() && op.key == write.key;
        write.rekey_to.is_none() && script.ops.iter().any(replaces)
    });
    all.extend(writes.then(|| sometimes(SOMETIMES_WRITE)));
    all.extend(outdated.then(|| sometimes(SOMETIMES_REKEY)));
    if script.all_frames && script.may_forget_frames() {
        all.push(Property::always(name::FORGOTTEN, |script, state: &State| {
            script.dead_frames(state).all(|frame| script.after(state, frame) == *state)
        }));
    }
    if script.timing.fits() {
        all.push(Property::always(name::P2_FITTING, |_, state: &State| !state.target.effects.late));
    } else {
        let counted: Condition =
            |_, state| state.target.effects.late && state.target.effects.late_counted;
        all.push(Property::sometimes("a late effect is counted", counted));
    }
    all
}
