//! SETTLE: an initiator asks what became of an op, and its target answers.
//!
//! Both hops are the network's, as all are: a request may come late, twice and after the answer was
//! taken. It names what it asks about, and is sealed under a key; under one that is not the
//! region's at present it is refused with a notice that anybody could make, which says nothing.

use crate::four_hop_model::{
    initiator::Outcome,
    model::State,
    network::Frame,
    records,
    script::{FIRST_KEY, Flaw, Key, OpId, SETTLE_KEYS_MAX, Script},
};

/// The verdict of the answer. The result that comes with `Applied` is compared as the answer is
/// made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Applied,
    NotApplied,
    Forgotten,
}

impl Verdict {
    pub(crate) const ALL: [Self; 3] = [Self::Applied, Self::NotApplied, Self::Forgotten];
}

/// Requests that the initiator may send. Under the op's key or a later one: who rotates keys has
/// the next grant at hand.
pub(crate) fn requests(script: &Script, state: &State) -> impl Iterator<Item = Frame> {
    let keys = FIRST_KEY..if script.replaces_keys() { SETTLE_KEYS_MAX } else { FIRST_KEY + 1 };
    let asked = (0..).zip(script.ops).filter(move |&(id, _)| is_unknown(script, state, id));
    asked
        .flat_map(move |(op, asked)| {
            let under = keys.clone().filter(move |&key| key >= asked.key);
            under.map(move |key| Frame::Settle { op, key })
        })
        .filter(|&frame| !state.network.has(frame))
}

/// Whether the initiator has to ask to know how an op ended: it has timed out, and may have been
/// applied. In some scripts it asks before as well, which cancels the op.
pub(crate) fn is_unknown(script: &Script, state: &State, op: OpId) -> bool {
    let is_over = match state.initiator.outcomes[usize::from(op)] {
        Some(outcome) => outcome == Outcome::Timeout { reached: true },
        None => script.cancels,
    };
    is_over
        && state.initiator.names[usize::from(op)].is_some()
        && state.initiator.verdicts[usize::from(op)].is_none()
}

/// The target answers.
pub(crate) fn answer(script: &Script, state: &mut State, op: OpId, key: Key) {
    let target = &mut state.target;
    let Some(name) = state.initiator.names[usize::from(op)] else { return };
    if key != target.key {
        return;
    }
    let record = if script.has(Flaw::SettleIgnoresCounter) {
        target.records.at(name.record)
    } else {
        target.records.find(name)
    };
    let asker_s = record.filter(|record| script.op(record.op).same_type(script.op(op)));
    let verdict = match asker_s.map(|record| record.state) {
        Some(records::State::Reserved { index }) => {
            target.settle(script, index);
            Verdict::NotApplied
        }
        Some(records::State::NotApplied) => Verdict::NotApplied,
        Some(records::State::Applied { result } | records::State::Released { result }) => {
            let effects = &mut target.effects;
            effects.wrong_result |= result != effects.results[usize::from(op)];
            Verdict::Applied
        }
        None if script.has(Flaw::AbsenceIsNotApplied) => Verdict::NotApplied,
        None => Verdict::Forgotten,
    };
    if verdict == Verdict::Forgotten && is_unknown(script, state, op) {
        state.target.note_forgotten(op, name);
    }
    state.network.send(Frame::Settlement { op, verdict });
}

/// The initiator is told, if it still asks.
pub(crate) fn receive(script: &Script, state: &mut State, op: OpId, verdict: Verdict) {
    let asks = |id: &OpId| is_unknown(script, state, *id);
    let any = (0..script.ops.len() as u8).filter(|_| script.has(Flaw::SettlementNotBound));
    let Some(asker) = any.chain([op]).find(asks) else { return };
    state.initiator.verdicts[usize::from(asker)] = Some(verdict);
    let results = &state.target.effects.results;
    let told =
        verdict == Verdict::Applied && results[usize::from(asker)] != results[usize::from(op)];
    state.target.effects.wrong_result |= told;
}
