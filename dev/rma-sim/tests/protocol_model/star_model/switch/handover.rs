//! The switch itself: who gives work requests away, and who takes them.
//!
//! Each function is one step of one side's library, or of the engine that it commands.

use super::{
    model::Action,
    network::{Frame, Handover, Part, Work},
    script::{Flaw, MESSAGES_MAX, Messages, Number, Pair, Script, Trackers, Who},
    side::{Guards, Life, Phase, Row, State},
    work,
};

/// Collects the actions that `who` may take of its own accord.
pub(crate) fn actions(script: &Script, state: &State, who: Who, actions: &mut Vec<Action>) {
    let side = &state.sides[who];
    let peer = &state.sides[who.other()];
    if script.deaths && peer.life != Life::Dead {
        actions.push(Action::Die { who });
    }
    if script.ends || peer.life != Life::Live {
        actions.push(Action::End { who });
    }
    let Some(giver) = script.giver(side.stage) else {
        return;
    };
    if side.phase == Phase::Idle && script.leader(side.stage) == who && side.last < script.attempts
    {
        actions.push(Action::Ask { who });
    }
    match side.phase {
        Phase::Asks(_) if script.cancels => actions.push(Action::Cancel { who }),
        Phase::Drains(_) => {
            if work::unanswered(script, state, who).next().is_none() || script.has(Flaw::NotDrained)
            {
                actions.push(Action::SendPart { who, flow: Who::A });
            } else {
                actions.push(Action::AwaitDead { who });
            }
            actions.extend(script.cancels.then_some(Action::Cancel { who }));
        }
        Phase::Sends(_) => {
            actions.push(Action::SendPart { who, flow: Who::B });
            actions.extend(script.cancels.then_some(Action::Cancel { who }));
        }
        Phase::InDoubt(_) if script.has(Flaw::ResumesOutOfDoubt) => {
            actions.push(Action::Resume { who });
        }
        Phase::Holds { parts, .. } => {
            if !parts.0.contains(&0) {
                actions.push(Action::TakeGuards { who });
            }
            actions.extend(script.aborts.then_some(Action::Abort { who }));
        }
        Phase::HasGuards { .. } => {
            actions.push(Action::Enter { who });
            let aborts = script.aborts && script.has(Flaw::AbortAfterGuards);
            actions.extend(aborts.then_some(Action::Abort { who }));
        }
        _ => {}
    }
    if script.refuses && giver != who && script.leader(side.stage) == giver {
        let refusable = (side.last + 1..=script.attempts).filter(|&number| {
            may_take_switch(script, state, who, number)
                && state.network.has(Frame::Switch { kind: Handover::Switch, number })
        });
        actions.extend(refusable.map(|number| Action::Refuse { who, number }));
    }
}

/// The leader tries the next number.
pub(crate) fn ask(script: &Script, state: &mut State, who: Who) {
    let side = &mut state.sides[who];
    let number = side.last + 1;
    side.last = number;
    let leads_and_gives = script.giver(side.stage) == Some(who);
    side.phase = if leads_and_gives {
        Phase::Asks(number)
    } else {
        Phase::Holds { number, parts: Pair::default() }
    };
    state.network.attempt_mut(number).era = side.era;
    state.network.send(Frame::Switch { kind: Handover::Switch, number });
}

/// Whether SWITCH finds `who` in the era that it was sent in, and has a number that is new.
fn may_take_switch(script: &Script, state: &State, who: Who, number: Number) -> bool {
    let side = &state.sides[who];
    let may_leave = match side.phase {
        Phase::Idle | Phase::Holds { .. } | Phase::Drains(_) | Phase::Sends(_) => true,
        Phase::Asks(_) | Phase::InDoubt(_) | Phase::HasGuards { .. } | Phase::Unanswered(_) => {
            false
        }
    };
    let is_new = number > side.last || script.has(Flaw::LastNotKept);
    let in_era = side.era == state.network.attempt(number).era;
    may_leave && is_new && in_era && script.leader(side.stage) != who
}

/// The taker says no, for once.
pub(crate) fn refuse(state: &mut State, who: Who, number: Number) {
    let side = &mut state.sides[who];
    side.last = number;
    side.phase = Phase::Idle;
    state.network.send(Frame::Switch { kind: Handover::Refused, number });
}

/// Returns the side that takes a frame.
pub(crate) fn receiver(script: &Script, state: &State, kind: Handover, number: Number) -> Who {
    let stage = state.network.stage(state.network.attempt(number).era);
    let giver = script.giver(stage).expect("a switch was tried");
    match kind {
        Handover::Switch => script.leader(stage).other(),
        Handover::Accepted | Handover::Refused | Handover::Commit | Handover::Abort => giver,
        Handover::TransferA | Handover::TransferB | Handover::Committed => giver.other(),
    }
}

/// A frame about a switch comes to `who`.
pub(crate) fn receive(
    script: &Script,
    state: &mut State,
    who: Who,
    kind: Handover,
    number: Number,
) {
    let attempt = *state.network.attempt(number);
    let side = &mut state.sides[who];
    if side.life != Life::Live {
        return;
    }
    // Whether a frame of this attempt is one of that attempt, for whoever looks at numbers that
    // come again in an era.
    let is_of = |other: Number, flaw| {
        other == number || script.has(flaw) && state.network.attempt(other).era == attempt.era
    };
    match kind {
        Handover::Switch => take_switch(script, state, who, number),
        Handover::Accepted => {
            if side.phase == Phase::Asks(number) {
                side.phase = Phase::Drains(number);
            }
        }
        Handover::Refused => {
            if side.phase == Phase::Asks(number) {
                side.phase = Phase::Idle;
            }
        }
        Handover::TransferA | Handover::TransferB => {
            let flow = if kind == Handover::TransferA { Who::A } else { Who::B };
            if let Phase::Holds { number: held, parts } = &mut side.phase
                && is_of(*held, Flaw::TransferOfNumberUsedAgain)
                && parts[flow] == 0
            {
                parts[flow] = number;
            }
        }
        Handover::Commit => take_commit(script, state, who, number),
        Handover::Committed => {
            if side.phase == Phase::Unanswered(number) {
                settle(script, state, who);
            }
        }
        Handover::Abort => {
            let (Phase::Asks(tried)
            | Phase::Drains(tried)
            | Phase::Sends(tried)
            | Phase::InDoubt(tried)) = side.phase
            else {
                return;
            };
            if is_of(tried, Flaw::AbortOfNumberUsedAgain) {
                side.phase = Phase::Idle;
            }
        }
    }
}

fn take_switch(script: &Script, state: &mut State, who: Who, number: Number) {
    if !may_take_switch(script, state, who, number) {
        return;
    }
    let side = &mut state.sides[who];
    side.last = side.last.max(number);
    if script.giver(side.stage) == Some(who) {
        side.phase = Phase::Drains(number);
    } else {
        side.phase = Phase::Holds { number, parts: Pair::default() };
        state.network.send(Frame::Switch { kind: Handover::Accepted, number });
    }
}

/// W has passed: what the giver sent is dead where it was not answered. Copies of what was answered
/// may still come.
pub(crate) fn await_dead(script: &Script, state: &mut State, who: Who) {
    let unanswered: Vec<_> = work::unanswered(script, state, who).collect();
    unanswered.into_iter().for_each(|frame| state.network.forget(frame));
}

/// The giver sends a part of TRANSFER: from the last on it is in doubt.
pub(crate) fn send_part(state: &mut State, who: Who, flow: Who) {
    let side = &mut state.sides[who];
    let (Phase::Drains(number) | Phase::Sends(number)) = side.phase else {
        unreachable!("`actions` saw it");
    };
    side.phase = if flow == Who::A { Phase::Sends(number) } else { Phase::InDoubt(number) };
    let part = Part { done: side.row.done[flow], complete: side.complete[flow] };
    state.network.attempt_mut(number).parts[flow] = part;
    state.network.send(Frame::Switch { kind: Handover::transfer(flow), number });
}

/// The taker lets go of the attempt.
pub(crate) fn abort(state: &mut State, who: Who) {
    let side = &mut state.sides[who];
    let number = side.phase.number().expect("`actions` saw it");
    side.phase = Phase::Idle;
    state.network.send(Frame::Switch { kind: Handover::Abort, number });
}

/// The taker's engine closes the QP word, takes back the guards and tells which were closed.
pub(crate) fn take_guards(script: &Script, state: &mut State, who: Who) {
    let side = &mut state.sides[who];
    let Phase::Holds { number, parts } = side.phase else { unreachable!("`actions` saw it") };
    side.phase = Phase::HasGuards { number, parts };
    if !script.has(Flaw::GuardsLeftOpen) {
        side.guards = Guards::default();
    }
}

/// The taker enters the row: what TRANSFER says, and what its own engine and library know.
pub(crate) fn enter(script: &Script, state: &mut State, who: Who) {
    let Phase::HasGuards { number, parts } = state.sides[who].phase else {
        unreachable!("`actions` saw it");
    };
    let told = |flow: Who| state.network.attempt(parts[flow]).parts[flow];
    let (sends, receives) = (told(who), told(who.other()));
    let side = &mut state.sides[who];
    let mine = if script.has(Flaw::GuardsNotAsked) { Pair::default() } else { side.complete };
    let (out, into) = (who, who.other());
    let row = &mut side.row;
    row.known = Pair::default();
    row.answered[out] = sends.complete.and(mine[out]);
    row.done[out] = sends.done.and(row.answered[out]);
    row.answered[into] = receives.complete;
    row.done[into] = row.done[into].and(receives.done).and(mine[into]);
    if script.has(Flaw::NewSequences) {
        // A side that counts anew goes on after what was received.
        row.answered[into] = row.answered[into].and(row.done[into].in_order());
    }
    side.era = number;
    side.stage += 1;
    side.phase = Phase::Unanswered(number);
    state.network.send(Frame::Switch { kind: Handover::Commit, number });
    if script.has(Flaw::CompletesUnanswered) {
        settle(script, state, who);
    }
}

/// The taker completes what is complete by what TRANSFER says, and begins to work.
fn settle(script: &Script, state: &mut State, who: Who) {
    let side = &mut state.sides[who];
    side.phase = Phase::Idle;
    let (row, mine) = (side.row, side.complete);
    row.answered[who]
        .without(mine[who])
        .iter()
        .for_each(|message| state.complete(who, who, message));
    let flow = who.other();
    if script.has(Flaw::GuardsNotAsked) {
        let told = row.done[flow].in_order().without(row.answered[flow]);
        told.iter().for_each(|message| state.complete(who, flow, message));
    }
    work::complete_receives(state, who, flow);
}

/// The giver is in doubt no more.
fn take_commit(script: &Script, state: &mut State, who: Who, number: Number) {
    let peer = &state.sides[who.other()];
    let received = peer.row.done[who].in_order().and(peer.complete[who]).run();
    let side = &mut state.sides[who];
    if side.phase != Phase::InDoubt(number) {
        if script.has(Flaw::CommitTakenTwice) && side.copy != Pair::default() {
            let copy = side.copy;
            post_all(state, who, copy);
        }
        return;
    }
    side.era = number;
    side.stage += 1;
    side.phase = Phase::Idle;
    if !side.holds(script, who, who) {
        let unfinished = |flow: Who| script.messages(flow).without(side.complete[flow]);
        let unfinished = Pair(Who::ALL.map(unfinished));
        side.row = Row::default();
        side.guards = Guards { era: Some(number), ..Guards::default() };
        if script.has(Flaw::NewSequences) {
            side.shift = received - side.complete[who].run();
        }
        if script.has(Flaw::CommitTakenTwice) {
            side.copy = unfinished;
        }
        post_all(state, who, unfinished);
    }
    state.network.send(Frame::Switch { kind: Handover::Committed, number });
}

/// Work requests are posted in the era that begins, with their sequences.
fn post_all(state: &mut State, who: Who, requests: Pair<Messages>) {
    let State { sides, network, .. } = state;
    let side = &mut sides[who];
    side.guards.era = Some(side.era);
    for flow in Who::ALL {
        side.guards.open[flow] = side.guards.open[flow].and(requests[flow]);
        let shift = if flow == who { side.shift } else { 0 };
        let sequences = requests[flow].iter().map(|request| request + shift);
        for message in sequences.filter(|&message| message < MESSAGES_MAX) {
            network.send(Frame::Work { kind: Work::Wqep, era: side.era, flow, message });
        }
    }
}

/// A side gives its peer up: all that is not complete fails, at a time when everything that it sent
/// and that could still do something is dead.
pub(crate) fn end(script: &Script, state: &mut State, who: Who) {
    let side = &mut state.sides[who];
    for flow in Who::ALL {
        let flushed = side.guards.open[flow];
        state.effects.twice |= flushed.iter().any(|request| side.complete[flow].has(request));
    }
    side.life = Life::Ended;
    let era = side.era;
    let stateful = script.trackers(side.stage) == Trackers::One(who);
    for message in 0..MESSAGES_MAX {
        for kind in [Work::Rd, Work::Gda] {
            state.network.forget(Frame::Work { kind, era, flow: who, message });
        }
        for flow in Who::ALL.into_iter().filter(|_| stateful) {
            state.network.forget(Frame::Work { kind: Work::Cqep, era, flow, message });
        }
    }
    if era > 0 && !script.has(Flaw::AnswerNotTimed) {
        let kind = Handover::Committed;
        if receiver(script, state, kind, era) != who {
            state.network.forget(Frame::Switch { kind, number: era });
        }
    }
}
