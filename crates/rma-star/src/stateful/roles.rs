//! Changes of roles (ours; the paper leaves them to the future, §III-E2): this host gives a
//! connection away, or has taken one over.
//!
//! ```text
//! F, gives                                    Z, takes
//!   Asks     --- SWITCH n ------------------>   its library decides
//!   Drains   <-- SWITCH n (or ABORT n) ------
//!     nothing begins, what has begun is finished
//!   InDoubt  --- TRANSFER n ---------------->   closes its QP word and has a row, in one step
//!   is Z     <-- COMMIT n, of era n ---------   Commits
//!     posts what is not complete -- EA ----->   works
//! ```
//!
//! Who gives takes nothing in doubt but COMMIT and ABORT, and is silent but for TRANSFER, until one
//! of them comes or the connection fails: it never goes on by itself, as the other may work by
//! then. Whoever takes does nothing before it knows that COMMIT was taken, and that less than W
//! ago: or the other may have failed, and told its application so. A model
//! (`dev/rma-sim/tests/protocol_model`) has a variant without each of these rules, which fails.
//!
//! What the model does without, this does: it waits until all that has begun is answered. So
//! everything before a place in each queue is complete, four places are all that a TRANSFER says of
//! work, and no work request is half done in two eras.

use rma_core::time::Instant;

use super::{
    SIDES, Stateful,
    connection::{Attempt, Connection, Phase, Roles},
    report,
    under_way::What,
};
use crate::{
    handover::Handover,
    keys::{Binding, FrameKey, KeyMessage},
    names::{ConnectionName, Era, Nonce, Sequence, Side, Taken},
    portal::{QpState, QpWord, Report, StarPort},
    tables::{Tables, z_time},
    verbs::WcStatus,
    wire::{StateKind, Switch, switch},
};

impl Stateful {
    /// The application wants to give a connection away.
    pub(crate) fn switch(
        &mut self,
        host: &mut Tables<'_>,
        portal: u16,
        qp: u32,
        is_automatic: bool,
    ) {
        let begun = self.find(portal, qp).is_some_and(|at| self.ask(at, is_automatic, true));
        if !begun {
            report(host, portal, &Report::NotSwitched { qp });
        }
    }

    /// Z asks for a change of roles, by a frame with this counter. There may be one under way. The
    /// same wish may come again, whoever sends it, also when nobody wishes it any longer: Z's
    /// frames count up, so it is known.
    pub(super) fn take_wish(&mut self, at: u16, counter: u64) {
        let connection = self.connections.at_mut(at);
        if connection.wished < Some(counter) {
            connection.wished = Some(counter);
            let _ = self.ask(at, false, false);
        }
    }

    /// Begins a change of roles. `false` if there is one under way, or there cannot be one.
    pub(super) fn ask(&mut self, at: u16, is_automatic: bool, is_own: bool) -> bool {
        let connection = self.connections.at_mut(at);
        let may = connection.phase == Phase::Open
            && !connection.is_halted
            && connection.is_ready
            && connection.rc.is_none()
            && connection.roles == Roles::Stay;
        let Some(number) = connection.tried.0.checked_add(1).filter(|_| may) else { return false };
        connection.tried = Era(number);
        let attempt = Attempt { number: Era(number), is_automatic, is_own, is_sent: false };
        connection.roles = Roles::Asks(attempt);
        self.relist(at);
        true
    }

    /// Z says what it thinks of the change of roles that is under way.
    pub(super) fn take_word(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        at: u16,
        kind: StateKind,
        number: Era,
    ) {
        let roles = self.connections.at(at).roles;
        let is_this = roles.attempt().is_some_and(|attempt| attempt.number == number);
        match (kind, roles) {
            (StateKind::Abort, _) if is_this => self.stay(host, now, at),
            (StateKind::Switch, Roles::Asks(attempt)) if is_this => {
                self.forget_word(at);
                self.connections.at_mut(at).roles = Roles::Drains(attempt);
                for side in SIDES {
                    self.set_blocked(at, side, None);
                }
                self.relist(at);
            }
            // Of another attempt, or once more.
            _ => {}
        }
    }

    /// Roles stay as they are: Z does not agree, or is silent.
    pub(super) fn stay(&mut self, host: &mut Tables<'_>, now: Instant, at: u16) {
        self.forget_word(at);
        let connection = self.connections.at_mut(at);
        let (portal, qp, roles) = (connection.portal, connection.qp, connection.roles);
        connection.roles = Roles::Stay;
        expect_no_more(host, roles, portal, qp);
        if roles.attempt().is_some_and(|attempt| attempt.is_own) {
            report(host, portal, &Report::NotSwitched { qp });
        }
        self.advance(host, now, at);
    }

    /// Forgets the frame about the change of roles, if there is one under way.
    fn forget_word(&mut self, at: u16) {
        let is_word = |frame: &u16| {
            matches!(self.frames.at(*frame).what, What::Switch | What::Transfer | What::Commit)
        };
        let events = &self.connections.at(at).events;
        let frame = events.iter(&self.frame_links).find(is_word);
        if let Some(frame) = frame {
            let _ = self.forget_frame(frame);
        }
    }

    /// Whether Z must be told something about a change of roles.
    pub(super) fn word_is_due(&self, connection: &Connection) -> bool {
        match connection.roles {
            Roles::Stay | Roles::InDoubt(_) => false,
            Roles::Asks(Attempt { is_sent, .. }) | Roles::Commits { is_sent } => !is_sent,
            Roles::Drains(_) => connection.is_drained(),
        }
    }

    /// Returns the next frame to Z about a change of roles. The first TRANSFER halts the
    /// connection.
    pub(super) fn next_word(&mut self, host: &mut Tables<'_>, at: u16) -> Option<What> {
        if !self.word_is_due(self.connections.at(at)) {
            return None;
        }
        let connection = self.connections.at_mut(at);
        match &mut connection.roles {
            Roles::Asks(attempt) => {
                attempt.is_sent = true;
                Some(What::Switch)
            }
            Roles::Commits { is_sent } => {
                *is_sent = true;
                Some(What::Commit)
            }
            &mut Roles::Drains(attempt) => {
                connection.roles = Roles::InDoubt(attempt);
                connection.eas_due = 0;
                self.expect_commit(host, at, attempt.number);
                Some(What::Transfer)
            }
            Roles::Stay | Roles::InDoubt(_) => None,
        }
    }

    /// From now on this host's stateless processing takes COMMIT.
    fn expect_commit(&self, host: &mut Tables<'_>, at: u16, Era(era): Era) {
        let connection = self.connections.at(at);
        let [send, recv] = self.first_open(at, Side::Stateful);
        let Some(port) = host.portals.get_mut(connection.portal.into()) else { return };
        let nonce = port.memory().record(connection.qp).map_or(0, |record| record.nonce);
        let word = QpWord { nonce, era, heard: 0, state: QpState::Expected };
        port.expect_qp(connection.qp, word, Taken { send, recv });
    }

    /// Returns the first work request of a side that is not complete, of sends and of receives, if
    /// none has begun.
    fn first_open(&self, at: u16, side: Side) -> [Sequence; 2] {
        let connection = self.connections.at(at);
        let queues = &connection.queues[side as usize];
        let next = match side {
            Side::Stateful => connection.posted,
            Side::Stateless => [connection.taken_send, connection.taken_recv],
        };
        let first =
            |front: Option<u16>, next| front.map_or(next, |row| Sequence(self.works[row].sequence));
        [first(queues.sends.front(), next[0]), first(queues.recvs.front(), next[1])]
    }

    /// Writes the payload of a frame about a change of roles.
    pub(super) fn word(
        &self,
        host: &Tables<'_>,
        now: Instant,
        at: u16,
        what: &What,
    ) -> Option<Word> {
        let connection = self.connections.at(at);
        let (kind, payload) = match (what, connection.roles) {
            (What::Switch, Roles::Asks(Attempt { number, is_automatic, .. })) => {
                let switch = Switch { number, is_automatic };
                (StateKind::Switch, Payload::Switch(switch.to_octets()))
            }
            (What::Transfer, Roles::InDoubt(attempt)) => {
                let handover = self.handover(host, now, at, attempt.number);
                (StateKind::Transfer, Payload::Transfer(handover.to_octets()))
            }
            (What::Commit, Roles::Commits { .. }) => {
                (StateKind::Commit, Payload::Named(switch::named(connection.name.era)))
            }
            _ => return None,
        };
        Some(Word { kind, payload })
    }

    /// Collects the facts that Z needs to be the stateful side.
    fn handover(&self, host: &Tables<'_>, now: Instant, at: u16, era: Era) -> Handover {
        let connection = self.connections.at(at);
        let ConnectionName { qpn_z, qpn_f, .. } = connection.name;
        let port = host.portals.get(connection.portal.into());
        let nonce = Nonce(port.map_or(0, |port| port.memory().qp_word(connection.qp).nonce));
        let pd = connection.local_pd;
        let name = ConnectionName { pd, qpn_z: qpn_f, qpn_f: qpn_z, nonce, era };
        let binding = Binding { connection: name, f: connection.peer, z: connection.own };
        // Without its protection domain the connection is lost: nothing of Z will be authentic.
        let key = host
            .pd_of_portal(pd, connection.portal.into())
            .map_or(FrameKey::from_bytes([0; 16]), |pd| {
                pd.key.derive(host.aead, &KeyMessage::of_connection(&binding))
            });
        let receive = &host.config.place().receive_len_max;
        let longest = if connection.own.is_ipv4() { receive.ipv4 } else { receive.ipv6 };
        Handover {
            era,
            packet_len_max: u16::try_from(longest).unwrap_or(u16::MAX),
            valid_micros: host.config.valid_micros() as u32,
            clock: z_time(now).0,
            pd,
            nonce,
            giver: self.first_open(at, Side::Stateful),
            taker: self.first_open(at, Side::Stateless),
            key,
        }
    }

    /// The peer has the connection: nothing of it is left here, and nothing is reported, as its
    /// work requests go on.
    pub(crate) fn give_away(&mut self, host: &mut Tables<'_>, now: Instant, portal: u16, qp: u32) {
        let Some(at) = self.find(portal, qp) else { return };
        if !matches!(self.connections.at(at).roles, Roles::InDoubt(_)) {
            // An application has written the word that expects it.
            return;
        }
        self.forget_word(at);
        self.empty(at, Self::free);
        self.leave_lists(at, now);
        let _ = self.forget(host, at);
    }

    /// This host, the stateless side until now, has the connection, and rows for so many work
    /// requests that its application will post anew: one that found none would end the connection.
    /// Nothing begins before the peer has said that it knows.
    pub(crate) fn take_over(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        portal: u16,
        qp: u32,
        handover: &Handover,
        outstanding: u32,
    ) -> WcStatus {
        let full = WcStatus::GeneralErr;
        let stateful_max = host.portals.get(portal.into()).map_or(0, StarPort::stateful_max);
        let rows = u16::try_from(outstanding).ok();
        let rows = rows.filter(|&rows| self.shares.takes(portal, stateful_max, rows));
        let Some(rows) = rows else { return full };
        let beginning = self.beginning(host, now, portal, qp, Some(handover));
        let added = beginning.and_then(|it| Ok((self.add(&it).ok_or(full)?, it.z_clock)));
        let (at, z_clock) = match added {
            Ok(added) => added,
            Err(status) => {
                self.shares.gives(portal, rows);
                return status;
            }
        };
        if let Some(port) = host.portals.get_mut(portal.into()) {
            port.stateful_opened();
        }
        let connection = self.connections.at_mut(at);
        connection.rows_to_come = rows;
        connection.is_ready = true;
        connection.roles = Roles::Commits { is_sent: false };
        [connection.taken_send, connection.taken_recv] = handover.giver;
        connection.posted = handover.taker;
        // It has shown that since this was sealed.
        connection.clock.heard(z_clock, now);
        self.relist(at);
        WcStatus::Success
    }

    /// The peer has taken the COMMIT of this frame, which was sent at `sent_at`: this host works.
    /// If that is long ago the peer may have failed meanwhile, and is told once more.
    pub(super) fn committed(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        at: u16,
        frame: u16,
        sent_at: Instant,
    ) {
        let connection = self.connections.at_mut(at);
        if now.nanos_since(sent_at) >= connection.valid_micros.saturating_mul(1_000) {
            return;
        }
        connection.roles = Roles::Stay;
        let _ = self.forget_frame(frame);
        self.advance(host, now, at);
    }
}

/// A frame about a change of roles.
pub(super) struct Word {
    pub(super) kind: StateKind,
    payload: Payload,
}

enum Payload {
    Switch([u8; switch::SWITCH_LEN]),
    Transfer([u8; crate::handover::HANDOVER_LEN]),
    Named([u8; switch::NAMED_LEN]),
}

impl Word {
    pub(super) const fn payload(&self) -> &[u8] {
        match &self.payload {
            Payload::Switch(octets) => octets,
            Payload::Transfer(octets) => octets,
            Payload::Named(octets) => octets,
        }
    }
}

/// The peer is not to take the connection, if it was.
pub(super) fn expect_no_more(host: &mut Tables<'_>, roles: Roles, portal: u16, qp: u32) {
    if matches!(roles, Roles::InDoubt(_))
        && let Some(port) = host.portals.get_mut(portal.into())
    {
        let word = port.memory().qp_word(qp);
        port.set_qp_word(qp, QpWord { state: QpState::Closed, ..word });
    }
}
