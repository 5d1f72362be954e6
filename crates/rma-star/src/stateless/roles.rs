//! The stateful side's questions and news about the connection itself: rules, its end, and changes
//! of roles (ours; the paper leaves them to the future, §III-E2).
//!
//! A change of roles is decided and carried out by the library, which has what a connection takes:
//! here it is told what comes, and what it says is written. One step is the engine's own: the
//! COMMIT of a peer that has taken the connection over makes this host its stateless side.

use super::{
    Came, Stateless,
    answers::What,
    ea_of,
    guard::{close, qp_verdict},
};
use crate::{
    counters::{StarDrop, StarEvent},
    names::Era,
    portal::{QpState, QpWord, Report, StarPort, Verdict},
    tables::Tables,
    verbs::WcStatus,
    wire::{
        Answer, Header, State, StateKind, Switch, switch,
        told::{self, ASK_LEN, CLOSE_LEN},
    },
};

impl Stateless {
    /// The stateful side asks or tells about the connection itself.
    pub(super) fn handle_state(
        &mut self,
        host: &mut Tables<'_>,
        came: &Came<'_, '_>,
        state: State,
    ) {
        let header = came.seen.view.header();
        if !self.is_in_time(host, came, ea_of(header, 0, Answer::Clock)) {
            return;
        }
        if state.kind == StateKind::Commit {
            return self.handle_commit(host, came);
        }
        if qp_verdict(host, header) != Verdict::Open {
            host.counters.count(StarEvent::Gone);
            self.answer(host, came, ea_of(header, 0, Answer::Gone));
            return;
        }
        let qp = header.connection.qpn_z.index();
        let payload = came.payload();
        let report = match state.kind {
            StateKind::Ask => {
                if let Ok(mr) = told::asked(payload) {
                    self.answer(host, came, What::Rule { mr, number: state.number });
                    return;
                }
                None
            }
            StateKind::Initial if *payload == [0; ASK_LEN] => {
                self.answer(host, came, What::Initial);
                return;
            }
            StateKind::Close if *payload == [0; CLOSE_LEN] => return peer_closed(host, header),
            StateKind::Switch => Switch::parse(payload).ok().map(|switch| {
                let Switch { number, is_automatic } = switch;
                Report::SwitchAsked { qp, number, is_automatic }
            }),
            StateKind::Transfer => {
                let handover = switch::handover(payload).ok();
                handover.map(|handover| Report::HandedOver { qp, handover })
            }
            _ => None,
        };
        let Some(report) = report else {
            host.counters.drop_frame(StarDrop::Nonsense);
            return;
        };
        // The library decides, and answers: it has what a connection takes. There is no limit to
        // how often a peer says this, so it is told only as long as nothing else may want the room.
        let portal = header.connection.qpn_z.portal();
        let has_room = host.portals.get_mut(portal).is_some_and(StarPort::has_room_to_spare);
        if !has_room || !host.portals.report(portal, &report) {
            host.counters.drop_frame(StarDrop::NoRoom);
        }
    }

    //= star#ours-switch
    /// The peer is the stateful side from now on: this host, which was, has given it all, and does
    /// nothing but wait for this.
    fn handle_commit(&mut self, host: &mut Tables<'_>, came: &Came<'_, '_>) {
        let header = came.seen.view.header();
        let qpn = header.connection.qpn_z;
        let (portal, qp) = (qpn.portal(), qpn.index());
        let (nonce, Era(era)) = (header.connection.nonce.0, header.connection.era);
        if switch::name(came.payload()) != Ok(Era(era)) {
            host.counters.drop_frame(StarDrop::Nonsense);
            return;
        }
        let done = ea_of(header, 0, Answer::Done);
        if !self.answers.has_room(came.frame.source, &done) {
            host.counters.drop_frame(StarDrop::NoRoom);
            return;
        }
        let word = host.portals.get(portal).map_or(QpWord::CLOSED, |it| it.memory().qp_word(qp));
        if word.is(QpState::Expected, nonce, era) {
            if !host.portals.report(portal, &Report::Committed { qp, era: Era(era) }) {
                host.counters.count(StarEvent::ReportLost);
                return;
            }
            if let Some(port) = host.portals.get_mut(portal) {
                port.set_qp_word(qp, QpWord { state: QpState::Open, ..word });
            }
            host.counters.count(StarEvent::RolesChanged);
            self.given_away.push((portal as u16, qp));
        } else if !word.is_open_for(nonce, era) {
            host.counters.count(StarEvent::Gone);
            self.answer(host, came, ea_of(header, 0, Answer::Gone));
            return;
        }
        self.answer(host, came, done);
    }
}

/// The stateful side has ended the connection: nothing of it has effect any longer, and the
/// library, which is told so, flushes what is posted. Nobody waits for an answer. Should the frame
/// be lost, the library finds out by itself, later.
//= star#ours-close
fn peer_closed(host: &mut Tables<'_>, header: &Header) {
    let qpn = header.connection.qpn_z;
    let (portal, qp) = (qpn.portal(), qpn.index());
    if host.portals.report(portal, &Report::Failed { qp, status: WcStatus::WrFlushErr }) {
        close(host, portal as u16, qp);
    } else {
        host.counters.count(StarEvent::ReportLost);
    }
}
