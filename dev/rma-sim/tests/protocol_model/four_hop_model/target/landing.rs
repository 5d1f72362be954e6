//! Hop 3 at the target: data is checked, and changes the region, between two looks at the clock.

use super::Landing;
use crate::four_hop_model::{
    initiator::Outcome,
    model::State,
    network::{Frame, Status},
    receive_queue::Post,
    script::{Flaw, OpId, Script, SolicitationId},
};

pub(super) fn receive_data(
    script: &Script,
    state: &mut State,
    op: OpId,
    by: SolicitationId,
    granule: u8,
) {
    let Some(index) = state.target.index_of_data(script, by) else { return };
    let Some(entry) = state.target.entry(index) else { return };
    let given_away = script.has(Flaw::LandsInAnothersEntry) && entry.solicitation != Some(by);
    let Some(expected) = entry.solicitation.or(given_away.then_some(by)) else { return };
    let generations = state.initiator.generations;
    let header = script.op(op).slot == script.op(entry.op).slot
        && generations[usize::from(op)] == generations[usize::from(entry.op)];
    let bound = expected == by || script.has(Flaw::HopThreeNotBound);
    let authentic = bound && script.op(op).same_key(script.op(entry.op));
    let repeated = entry.arrived & 1 << granule != 0 && !script.has(Flaw::NoArrivalBits);
    if !given_away && (!header || !authentic) || repeated {
        return;
    }
    let seen = entry.arrived != 0 && script.has(Flaw::CommitsOldRevision);
    if state.target.is_outdated(script, index) && !seen {
        let answer = state.target.discard(script, index, granule, Status::AuthenticationFailure);
        answer.into_iter().for_each(|frame| state.network.send(frame));
        return;
    }
    let completes = (entry.arrived | 1 << granule) == script.op(entry.op).all();
    let lands = completes || !script.op(op).is_recorded();
    if script.op(op).takes_post() && state.target.bind_post(index) == Post::Missing {
        let answer = state.target.discard(script, index, granule, Status::NotReady);
        answer.into_iter().for_each(|frame| state.network.send(frame));
        return;
    }
    if !lands {
        state.target.stage(index, granule);
        return;
    }
    // The look at the clock.
    if entry.age >= script.deadline() && !script.has(Flaw::NoCheckBeforeCopy) {
        return;
    }
    let landing = Landing { index, op, granule, copied: false, late: false, paused: 0 };
    state.target.landing = Some(landing);
    if completes && script.has(Flaw::AcknowledgedBeforeCopy) {
        state.network.send(Frame::Acknowledgement { by: expected, status: Status::Ok });
    }
}

/// The copy: a granule changes the region, or the new key its row, or a recorded op all that it is
/// to change.
pub(crate) fn copy(script: &Script, state: &mut State) {
    let target = &mut state.target;
    let landing = target.landing.as_mut().expect("a frame is landing");
    let entry = target.entries[usize::from(landing.index)].expect("its entry stays till then");
    let op = script.op(landing.op);
    let effects = &mut target.effects;
    let applied = &mut effects.applied[usize::from(landing.op)];
    let copied = if op.is_recorded() { op.all() } else { 1 << landing.granule };
    effects.twice |= *applied & copied != 0;
    *applied |= copied;
    effects.astray |= entry.op != landing.op;
    effects.under_old_key |= op.key != target.key;
    landing.late = match state.initiator.outcomes[usize::from(landing.op)] {
        None | Some(Outcome::Ok | Outcome::Lost) => false,
        Some(
            Outcome::Timeout { .. }
            | Outcome::AuthenticationFailure
            | Outcome::Nack
            | Outcome::NotReady,
        ) => true,
    };
    effects.late |= landing.late;
    landing.copied = true;
    let id = landing.op;
    if let Some(to) = op.rekey_to() {
        target.rekey(to);
    }
    if let Some(name) = entry.name() {
        target.commit(script, id, name);
    }
}

/// The look at the clock after the copy, and hop 4 if it was the last.
pub(crate) fn look_again(script: &Script, state: &mut State) {
    let target = &mut state.target;
    let landing = target.landing.take().expect("a frame is landing");
    let entry = target.entries[usize::from(landing.index)].as_mut().expect("it is still there");
    if entry.age >= script.late_from() && !script.has(Flaw::NoLookAfterCopy) {
        target.effects.late_counted = true;
    } else {
        target.effects.late_in_silence |= landing.late;
    }
    entry.arrived |=
        if script.has(Flaw::NoArrivalBits) { entry.arrived + 1 } else { 1 << landing.granule };
    if entry.arrived == script.op(entry.op).all() {
        let Some(by) = target.complete(script, landing.index).solicitation else {
            assert!(script.has(Flaw::LandsInAnothersEntry), "data has come for what waits");
            return;
        };
        state.network.send(Frame::Acknowledgement { by, status: Status::Ok });
    }
}
