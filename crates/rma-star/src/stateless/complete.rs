//! Ends of work: what is complete, and what the stateful side has taken (§III-C4).
//!
//! A completion is given, and its slot closed, in one step. What has been taken is only noted, for
//! the library to look at.

use super::{
    Came, Stateless, ea_of,
    guard::{qp_verdict, slot_verdict},
};
use crate::{
    counters::{StarDrop, StarEvent},
    names::{Slot, Taken},
    portal::{Guard, GuardState, Report, Verdict},
    tables::{Tables, z_time},
    verbs::{WcStatus, WqeOp},
    wire::{Answer, Cqep, Header, Rd},
};

impl Stateless {
    //= star#III-C4-cqep
    //= star#ours-one-answer
    /// Work requests are complete, and others are taken. What is taken is noted first, whatever
    /// becomes of the rest: it is as true of a CQEP that comes again, or has no room.
    pub(super) fn handle_cqep(&mut self, host: &mut Tables<'_>, came: &Came<'_, '_>, cqep: Cqep) {
        let header = came.seen.view.header();
        let ea = |answer, taken| ea_of(header, taken, answer);
        if !self.is_in_time(host, came, ea(Answer::Clock, 0)) {
            return;
        }
        if let Some(taken) = Cqep::taken(came.payload()) {
            note_taken(host, header, taken);
        }
        let has_room = || self.answers.has_room(came.frame.source, &ea(Answer::Done, 0));
        if cqep.wants_answer && !has_room() {
            host.counters.drop_frame(StarDrop::NoRoom);
            return;
        }
        let (portal, qp) = (header.connection.qpn_z.portal(), header.connection.qpn_z.index());
        let (mut taken, mut answer) = (0, Answer::Done);
        for (bit, cqe) in Cqep::cqes(came.payload()).enumerate() {
            let Ok(cqe) = cqe else {
                host.counters.drop_frame(StarDrop::Nonsense);
                return;
            };
            let verdict = if cqe.slot == Slot::NONE {
                qp_verdict(host, header)
            } else {
                slot_verdict(host, header, cqe.slot, cqe.generation.0)
            };
            match verdict {
                Verdict::Gone => {
                    host.counters.count(StarEvent::Gone);
                    answer = Answer::Gone;
                    break;
                }
                Verdict::Open if cqe.slot != Slot::NONE => {
                    let report = Report::Completed {
                        slot: cqe.slot.0,
                        generation: cqe.generation.0,
                        qp,
                        sequence: cqe.sequence.0,
                        op: cqe.op,
                        status: cqe.status,
                        byte_len: cqe.byte_len,
                        immediate: cqe.immediate,
                        is_of_write: cqe.is_of_write,
                    };
                    if !complete(host, portal, &report) {
                        // It is told of those that were taken, and comes again for this one.
                        break;
                    }
                }
                Verdict::Open | Verdict::Done => {}
            }
            taken |= 1 << bit;
        }
        // A side that wants no answer learns from later WQEs what has been done.
        if cqep.wants_answer || answer != Answer::Done {
            self.answer(host, came, ea(answer, taken));
        }
    }

    /// Gives the completion of the RECV that an RD has ended. `false` if it has no room.
    pub(super) fn complete_recv(host: &mut Tables<'_>, rd: &Rd) -> bool {
        let guide = &rd.guide;
        let connection = &guide.header.connection;
        let report = Report::Completed {
            slot: guide.slot.0,
            generation: guide.generation.0,
            qp: connection.qpn_z.index(),
            sequence: guide.sequence.0,
            op: WqeOp::Recv,
            status: WcStatus::Success,
            byte_len: guide.chunk_offset + u32::from(guide.chunk_len),
            immediate: None,
            is_of_write: false,
        };
        complete(host, connection.qpn_z.portal(), &report)
    }

    /// The stateful side has taken work requests.
    pub(super) fn handle_ea(host: &mut Tables<'_>, came: &Came<'_, '_>) {
        let header = came.seen.view.header();
        let Some(octets) = came.payload().first_chunk() else { return };
        let taken = Taken::from_octets(*octets);
        if z_time(came.now) >= came.seen.expiry || !note_taken(host, header, taken) {
            host.counters.drop_frame(StarDrop::LateOrUnsolicited);
        }
    }
}

/// Gives a completion and closes its slot, which is open: one step, as nobody else runs in between.
/// `false` if the completion has no room.
//= star#ours-guard-word
fn complete(host: &mut Tables<'_>, portal: u32, report: &Report) -> bool {
    let Report::Completed { slot, generation, qp, .. } = *report else { return false };
    if !host.portals.report(portal, report) {
        host.counters.count(StarEvent::ReportLost);
        return false;
    }
    if let Some(port) = host.portals.get_mut(portal) {
        let nonce = port.memory().qp_word(qp).nonce;
        port.set_guard(slot, Guard::new(generation, qp, nonce, GuardState::Closed));
    }
    true
}

/// Notes what the stateful side has taken, for the application. `false` if the connection is over.
/// What is noted never moves back, so a frame that comes late or twice says nothing new.
fn note_taken(host: &mut Tables<'_>, header: &Header, taken: Taken) -> bool {
    let qpn = header.connection.qpn_z;
    let is_open = qp_verdict(host, header) == Verdict::Open;
    if let Some(port) = host.portals.get_mut(qpn.portal()).filter(|_| is_open) {
        port.note_taken(qpn.index(), taken);
    }
    is_open
}
