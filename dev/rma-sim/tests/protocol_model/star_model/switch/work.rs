//! Messages: what the stateful side does for both, and what the stateless side's engine answers.
//!
//! Each function is one step of one engine. Messages of a flow are worked on side by side, and
//! completed in order.

use super::{
    model::Action,
    network::{Frame, Work},
    script::{Flaw, MESSAGES_MAX, Messages, Number, Script, Trackers, Who},
    side::{Life, Phase, State},
};

/// Collects the actions that `who` may take of its own accord.
pub(crate) fn actions(script: &Script, state: &State, who: Who, actions: &mut Vec<Action>) {
    let side = &state.sides[who];
    if may_post(script, state, who) {
        let flows = Who::ALL.into_iter();
        let next = flows.filter(|&flow| next_post(script, state, who, flow).is_some());
        actions.extend(next.map(|flow| Action::Post { who, flow }));
    }
    if side.may_send(script, who) {
        let messages =
            Who::ALL.into_iter().flat_map(|flow| (0..MESSAGES_MAX).map(move |m| (flow, m)));
        actions.extend(
            messages
                .filter_map(|(flow, message)| frame_to_send(script, state, who, flow, message))
                .filter(|&frame| !state.network.has(frame))
                .map(Action::Send),
        );
    }
}

/// Whether the library of a stateless side hands work requests to its engine.
fn may_post(script: &Script, state: &State, who: Who) -> bool {
    let side = &state.sides[who];
    let holds_back = side.phase != Phase::Idle && !script.has(Flaw::PostsNotHeldBack);
    side.guards.era == Some(side.era) && !side.holds(script, who, who) && !holds_back
}

/// The next work request of a queue that has not been posted.
fn next_post(script: &Script, state: &State, who: Who, flow: Who) -> Option<u8> {
    let side = &state.sides[who];
    let posted = side.complete[flow].and(side.guards.open[flow]);
    script.messages(flow).without(posted).iter().next()
}

pub(crate) fn post(script: &Script, state: &mut State, who: Who, flow: Who) {
    let Some(message) = next_post(script, state, who, flow) else { return };
    let side = &mut state.sides[who];
    side.guards.open[flow].add(message);
    state.network.send(Frame::Work { kind: Work::Wqep, era: side.era, flow, message });
}

/// The frame that a stateful side has to send for a message. GD and GDA are one: what counts is
/// that the bytes are under way.
fn frame_to_send(
    script: &Script,
    state: &State,
    who: Who,
    flow: Who,
    message: u8,
) -> Option<Frame> {
    let side = &state.sides[who];
    let (row, era) = (&side.row, side.era);
    let frame = |kind| Some(Frame::Work { kind, era, flow, message });
    if script.trackers(side.stage) == Trackers::Both {
        let waits = flow == who && script.messages(flow).without(row.answered[flow]).has(message);
        return frame(Work::Rd).filter(|_| waits);
    }
    if !row.known[flow].has(message) || row.answered[flow].has(message) {
        return None;
    }
    // A RECV of its own is complete before its peer's SEND is: in order.
    let is_done = if flow == who { row.done[flow] } else { side.complete[flow] };
    if is_done.has(message) {
        return frame(Work::Cqep);
    }
    let peer = &state.sides[who.other()];
    if row.done[flow].has(message) {
        None
    } else if flow == who {
        frame(Work::Rd)
    } else {
        frame(Work::Gda).filter(|_| peer.opens(who.other(), era, flow, message).is_some())
    }
}

/// Returns the side that takes a frame.
pub(crate) fn receiver(script: &Script, state: &State, kind: Work, era: Number, flow: Who) -> Who {
    let stateful = match script.trackers(state.network.stage(era)) {
        Trackers::One(stateful) => stateful,
        // Only RD and RDA are sent.
        Trackers::Both => flow,
    };
    match kind {
        Work::Rd | Work::Gda => flow.other(),
        Work::Rda | Work::GoneRd => flow,
        Work::Wqep | Work::Ea | Work::GoneCqep => stateful,
        Work::Cqep => stateful.other(),
    }
}

/// A frame about a message comes to `who`.
pub(crate) fn receive(
    script: &Script,
    state: &mut State,
    who: Who,
    (kind, era, flow, message): (Work, Number, Who, u8),
) {
    let answer = |kind| Frame::Work { kind, era, flow, message };
    let side = &mut state.sides[who];
    if side.life != Life::Live {
        return;
    }
    let takes = side.takes(script, who, era);
    let row = &mut side.row;
    match kind {
        Work::Wqep if takes => {
            // In order, each once.
            let taken = row.known[flow].and(row.answered[flow]);
            if message == taken.run() && script.messages(flow).has(message) {
                row.known[flow].add(message);
            }
        }
        Work::Gda if takes => {
            if !row.done[flow].has(message) {
                row.done[flow].add(message);
                state.effects.astray |= state.sides[who.other()].shift != 0;
                state.land(flow, message);
                complete_receives(state, who, flow);
            }
        }
        Work::Rd if takes && script.trackers(side.stage) == Trackers::Both => {
            if !row.done[flow].has(message) {
                row.done[flow].add(message);
                state.land(flow, message);
                complete_receives(state, who, flow);
            }
            if state.sides[who].complete[flow].has(message) {
                state.network.send(answer(Work::Rda));
            }
        }
        Work::Rd => match side.opens(who, era, flow, message) {
            Some(_) => {
                state.land(flow, message);
                state.network.send(answer(Work::Rda));
            }
            None => say_gone(script, state, who, answer(Work::GoneRd), era),
        },
        Work::Cqep => match side.opens(who, era, flow, message) {
            Some(request) => {
                side.guards.open[flow].remove(request);
                state.complete(who, flow, request);
                state.network.send(answer(Work::Ea));
            }
            None => say_gone(script, state, who, answer(Work::GoneCqep), era),
        },
        Work::Rda if takes => {
            row.done[flow].add(message);
            if script.trackers(side.stage) == Trackers::Both {
                complete_send(state, who, message);
            }
        }
        Work::Ea if takes => {
            if flow == who {
                complete_send(state, who, message);
            } else {
                row.answered[flow].add(message);
            }
        }
        Work::GoneRd => {
            let waits = !row.done[flow].has(message);
            believe_gone(script, state, who, era, waits);
        }
        Work::GoneCqep => {
            let waits = !row.answered[flow].has(message);
            believe_gone(script, state, who, era, waits);
        }
        Work::Wqep | Work::Gda | Work::Rda | Work::Ea => {}
    }
}

/// RECVs of a stateful side are complete as far as bytes have come, in order.
pub(crate) fn complete_receives(state: &mut State, who: Who, flow: Who) {
    let side = &state.sides[who];
    let next = side.row.done[flow].in_order().without(side.complete[flow]);
    next.iter().for_each(|message| state.complete(who, flow, message));
}

/// The peer has completed its RECV.
fn complete_send(state: &mut State, who: Who, message: u8) {
    let row = &mut state.sides[who].row;
    if !row.answered[who].has(message) {
        row.answered[who].add(message);
        state.complete(who, who, message);
    }
}

/// Answers a frame that finds no open QP word of its era. Nobody believes it while that can happen,
/// so it is sent only where a flaw makes a difference.
fn say_gone(script: &Script, state: &mut State, who: Who, gone: Frame, era: Number) {
    if script.has(Flaw::GoneBelievedInDoubt) && state.sides[who].guards.era != Some(era) {
        state.network.send(gone);
    }
}

/// "gone" answers one copy: who has another answer to that does not look at this.
fn believe_gone(script: &Script, state: &mut State, who: Who, era: Number, waits: bool) {
    let side = &mut state.sides[who];
    let listens = matches!(side.phase, Phase::InDoubt(_)) || side.takes(script, who, era);
    if waits && listens && side.era == era {
        side.life = Life::Ended;
    }
}

/// Frames of `who` in its era that are not answered.
pub(crate) fn unanswered(script: &Script, state: &State, who: Who) -> impl Iterator<Item = Frame> {
    let side = &state.sides[who];
    let (row, era) = (side.row, side.era);
    let both = script.trackers(side.stage) == Trackers::Both;
    let waiting = Who::ALL.into_iter().flat_map(move |flow| {
        let all = Messages::first(MESSAGES_MAX);
        let until = if both { row.answered[flow] } else { row.done[flow] };
        let rd = all.without(until).iter().map(move |message| (Work::Rd, message));
        let cqep = all.without(row.answered[flow]).iter().map(move |message| (Work::Cqep, message));
        let rd = rd.filter(move |_| flow == who);
        let sent = rd.chain(cqep.filter(move |_| !both));
        sent.map(move |(kind, message)| Frame::Work { kind, era, flow, message })
    });
    let network = state.network;
    waiting.filter(move |&frame| network.has(frame))
}
