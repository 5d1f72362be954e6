//! The conditions that hold in every state, and the states that must be reached so that this says
//! something.

use stateright::Property;

use crate::four_hop_model::{
    initiator::{Outcome, Phase},
    model::State,
    network::{Frame, Status},
    receive_queue::Post,
    records,
    script::{GRANULES_MAX, Kind, Op, OpId, Script},
    settle::{self, Verdict},
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
    pub(crate) const UNREACHED: &str = "TIMEOUT before hop 2: nothing of the op is ever applied";
    pub(crate) const REFUSED: &str = "recorded: what is refused is never applied";
    pub(crate) const RESULT: &str = "recorded: each result is the word right before the op";
    pub(crate) const APPLIED: &str = "SETTLE: APPLIED is said only of what was applied";
    pub(crate) const NOT_APPLIED: &str =
        "SETTLE: NOT_APPLIED, and the op never is, before or after";
    pub(crate) const RETAINED: &str =
        "SETTLE: what was applied is not forgotten within retention and one life";
    pub(crate) const NEVER_FORGOTTEN: &str =
        "SETTLE: with a record for each hop 2 nothing is forgotten within retention and one life";
    pub(crate) const RESERVED: &str = "records: one is reserved for each entry that is solicited";
    pub(crate) const MESSAGE_ONCE: &str = "executor: no message is published twice";
    pub(crate) const POSTS: &str = "posts: each is posted, bound or consumed, and consumed once";
    pub(crate) const NOT_READY: &str =
        "posts: REMOTE_NOT_READY is said only if each is consumed, or bound by data that came";
    pub(crate) const FORGOTTEN: &str = "the model forgets no frame that could change anything";
}

type Condition = fn(&Script, &State) -> bool;

/// The conditions that hold always.
const ALWAYS: [(&str, Condition); 9] = [
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
    (name::UNREACHED, |script, state| {
        let unreached = Some(Outcome::Timeout { reached: false });
        ops(script, state).all(|op| op.outcome != unreached || op.applied == 0)
    }),
];

/// The further conditions that hold of recorded ops.
const ALWAYS_RECORDED: [(&str, Condition); 9] = [
    (name::REFUSED, |script, state| {
        ops(script, state).all(|op| !is_refused(op.outcome) || op.applied == 0)
    }),
    (name::RESULT, |_, state| !state.target.effects.wrong_result),
    (name::APPLIED, |script, state| {
        ops(script, state)
            .all(|op| op.verdict != Some(Verdict::Applied) || op.applied == op.op.all())
    }),
    (name::NOT_APPLIED, |script, state| {
        ops(script, state).all(|op| op.verdict != Some(Verdict::NotApplied) || op.applied == 0)
    }),
    (name::RETAINED, |_, state| !state.target.effects.forgotten_too_soon),
    (name::NOT_READY, |_, state| !state.target.effects.refused_by_replays),
    (name::RESERVED, |_, state| {
        let entries = state.target.entries;
        let waits = |record: records::Record| match record.state {
            records::State::Reserved { index } => entries[usize::from(index)]
                .is_some_and(|it| it.op == record.op && it.solicitation == Some(record.by)),
            _ => true,
        };
        state.target.records.all().all(waits)
    }),
    (name::MESSAGE_ONCE, |script, state| {
        let applied = |op: OpId| state.target.effects.applied[usize::from(op)] != 0;
        (0..)
            .zip(script.ops)
            .all(|(id, op)| op.repeats.is_none_or(|first| !(applied(first) && applied(id))))
    }),
    (name::POSTS, |script, state| {
        let queue = state.target.queue;
        let entries = state.target.entries.iter().flatten();
        let bound = entries.filter(|entry| entry.post == Post::Bound).count();
        usize::from(queue.posted + queue.consumed) + bound == usize::from(script.posts)
    }),
];

/// The states that are possible in every script.
const SOMETIMES: [(&str, Condition); 5] = [
    ("all ops complete OK that can in one run", |script, state| {
        ops(script, state).filter(|op| op.outcome == Some(Outcome::Ok)).count() == script.ok
    }),
    ("an op times out after all of its data was applied", |script, state| {
        ops(script, state).any(|op| {
            matches!(op.outcome, Some(Outcome::Timeout { .. })) && op.applied == op.op.all()
        })
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

/// A state that is also possible if the window is too small for two ops at once.
const SOMETIMES_PARKED: (&str, Condition) =
    ("data lands for an entry that is parked while another is solicited", |_, state| {
        let entries = || state.target.entries.iter().flatten();
        entries().any(|entry| entry.parked && entry.arrived != 0)
            && entries().any(|entry| entry.solicitation.is_some() && !entry.parked)
    });

/// A state that is also possible if a slot has two ops.
const SOMETIMES_REUSE: (&str, Condition) =
    ("a slot that was used before waits for hop 4", |script, state| {
        state.initiator.slots.iter().any(|slot| {
            let earlier = &script.ops[..usize::from(slot.op)];
            matches!(slot.phase, Phase::Solicited { .. })
                && earlier.iter().any(|op| op.slot == script.op(slot.op).slot)
        })
    });

/// The states that are also possible for recorded ops.
const SOMETIMES_RECORDED: [(&str, Condition); 3] = [
    ("SETTLE finds that an op was applied", |script, state| {
        ops(script, state).any(|op| op.verdict == Some(Verdict::Applied))
    }),
    ("SETTLE finds that an op was not applied", |script, state| {
        ops(script, state).any(|op| op.verdict == Some(Verdict::NotApplied))
    }),
    ("SETTLE is under way while an entry waits for data, which is too", |script, state| {
        (0..script.ops.len() as OpId).any(|id| {
            let waits = |data: Frame| match data {
                Frame::Data { op, by, .. } => op == id && state.target.awaits(by),
                _ => false,
            };
            is_asked(script, state, id) && state.network.sent().any(waits)
        })
    }),
];

/// A state that is also possible if the target restarts, or if there are fewer records than hops 2.
const SOMETIMES_FORGOTTEN: (&str, Condition) =
    ("an op is forgotten that was applied", |script, state| {
        ops(script, state).any(|op| op.verdict == Some(Verdict::Forgotten) && op.applied != 0)
    });

/// A state that is also possible if the target may be stopped for as long as it pleases.
const SOMETIMES_ASKED: (&str, Condition) =
    ("an op lands that SETTLE asks about", |script, state| {
        state.target.landing.is_some_and(|landing| is_asked(script, state, landing.op))
    });

/// A state that is also possible if there are fewer records than hops 2.
const SOMETIMES_TAKEN: (&str, Condition) =
    ("an op that was not applied is forgotten, as its record was taken again", |_, state| {
        state.target.effects.forgotten_unapplied
    });

/// A state that is also possible if an op says that another is done.
const SOMETIMES_DONE: (&str, Condition) = ("a record is given back before its time", |_, state| {
    let retained = state.target.effects.retained;
    state.target.records.all().any(|record| {
        matches!(record.state, records::State::Released { .. })
            && retained[usize::from(record.op)] != 0
    })
});

/// A state that is also possible if a recorded op's key may be replaced under it.
const SOMETIMES_SETTLED_ACROSS: (&str, Condition) = (
    "SETTLE is under way under the next key while an entry waits under the old",
    |script, state| {
        (0..).zip(script.ops).any(|(id, op)| {
            let next = Frame::Settle { op: id, key: op.key + 1 };
            state.target.was_replaced(op.key)
                && state.network.has(next)
                && settle::is_unknown(script, state, id)
                && state.target.entries.iter().flatten().any(|entry| entry.is_asked_by(state, id))
        })
    },
);

/// The states that are also possible if there is no post for each SEND.
const SOMETIMES_NOT_READY: [(&str, Condition); 3] = [
    ("hop 1 finds no post", |_, state| {
        state.network.sent().any(|frame| matches!(frame, Frame::NotReady { .. }))
    }),
    ("hop 3 finds no post", |_, state| {
        let status = Status::NotReady;
        let told =
            |frame| matches!(frame, Frame::Acknowledgement { status: told, .. } if told == status);
        state.network.sent().any(told)
    }),
    ("a post that was given back is consumed", |script, state| {
        ops(script, state).any(|op| op.verdict == Some(Verdict::NotApplied))
            && state.target.queue.consumed == script.posts
    }),
];

/// A state that is also possible if a WRITE is among the ops.
const SOMETIMES_WRITE: (&str, Condition) =
    ("a WRITE times out when half of it was applied", |script, state| {
        ops(script, state).any(|op| {
            matches!(op.outcome, Some(Outcome::Timeout { .. }))
                && op.applied.count_ones() == 1
                && op.op.kind == Kind::Write
        })
    });

/// A state that is also possible if a WRITE's key may be replaced under it.
const SOMETIMES_REKEY: (&str, Condition) =
    ("an op is refused after hop 2 as its key was replaced", |script, state| {
        ops(script, state)
            .any(|op| op.outcome == Some(Outcome::AuthenticationFailure) && op.applied != 0)
    });

/// Whether a SETTLE is under way.
fn is_asked(script: &Script, state: &State, id: OpId) -> bool {
    let asked = |frame| matches!(frame, Frame::Settle { op, .. } if op == id);
    settle::is_unknown(script, state, id) && state.network.sent().any(asked)
}

/// An op and what became of it.
struct Seen {
    op: Op,
    outcome: Option<Outcome>,
    verdict: Option<Verdict>,
    applied: u8,
}

fn ops<'a>(script: &'a Script, state: &'a State) -> impl Iterator<Item = Seen> {
    let told = state.initiator.outcomes.into_iter().zip(state.initiator.verdicts);
    let seen = script.ops.iter().zip(told).zip(state.target.effects.applied);
    seen.map(|((&op, (outcome, verdict)), applied)| Seen { op, outcome, verdict, applied })
}

/// Whether an op was refused: nothing of it was applied, if it is a recorded one.
fn is_refused(outcome: Option<Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Nack | Outcome::AuthenticationFailure | Outcome::NotReady))
}

/// All that must be checked of `script`.
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
    let writes = script.ops.iter().any(|op| op.kind == Kind::Write);
    let outdated = script.ops.iter().any(|write| {
        let replaces = |op: &Op| op.rekey_to().is_some() && op.key == write.key;
        write.kind == Kind::Write && script.ops.iter().any(replaces)
    });
    all.extend(writes.then(|| sometimes(SOMETIMES_WRITE)));
    all.extend(outdated.then(|| sometimes(SOMETIMES_REKEY)));
    if script.keeps_records() {
        all.extend(ALWAYS_RECORDED.into_iter().map(always));
        all.extend(SOMETIMES_RECORDED.into_iter().map(sometimes));
        all.extend((!script.timing.fits()).then(|| sometimes(SOMETIMES_ASKED)));
        let taken_again = script.records < script.solicitations;
        all.extend(taken_again.then(|| sometimes(SOMETIMES_TAKEN)));
        let forgets = taken_again || script.target_restarts;
        all.extend(forgets.then(|| sometimes(SOMETIMES_FORGOTTEN)));
        all.extend(
            script.ops.iter().any(|op| op.done.is_some()).then(|| sometimes(SOMETIMES_DONE)),
        );
        all.extend(script.replaces_keys().then(|| sometimes(SOMETIMES_SETTLED_ACROSS)));
        let sends = script.ops.iter().filter(|op| op.takes_post()).count();
        let scarce = sends > usize::from(script.posts);
        all.extend(SOMETIMES_NOT_READY.into_iter().filter(|_| scarce).map(sometimes));
        all.extend((script.records >= script.solicitations).then(|| {
            Property::always(name::NEVER_FORGOTTEN, |_, state: &State| {
                let effects = &state.target.effects;
                !effects.forgotten_too_soon && !effects.forgotten_unapplied
            })
        }));
    }
    if script.all_frames && script.may_forget_frames() {
        all.push(Property::always(name::FORGOTTEN, |script, state: &State| {
            script.dead_frames(state).all(|frame| {
                let mut after = script.after(state, frame);
                after.network = script.without_dead_frames(&after);
                let mut before = *state;
                before.network = script.without_dead_frames(state);
                after == before
            })
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
