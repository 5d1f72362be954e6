//! Sets connections up (§III-C1): three messages between two libraries, and what the engines are
//! told.
//!
//! ```text
//! who connects                                    who answers
//!   connect ------------------ Offer ----------->   roles are decided
//!                                                   Z: the engine opens, and gives K_c
//!   Z: the engine opens   <--- Answer (K_c of Z) -
//!   F: the engine opens ------ Confirm (K_c of Z)>  F: the engine opens
//!   Z tells its initial state, in band and again until F has acknowledged it: both are ready
//! ```
//!
//! If both are stateful (RC), who connects is first as Z is, and its engine gives K_c; then both
//! engines open as F's do. They are ready when they have heard of each other.
//!
//! The messages are octets for any channel that keeps secrets and says who the peer is. What is
//! received is checked, and an error otherwise: then nothing has changed.

use core::time::Duration;

use rma_core::{keylog, time::Instant};

use super::{
    Verbs,
    negotiate::{Load, Part, Role, RolesClash, part_of_answerer},
    qp::{Flags, Phase, Qp},
    terms::{Answer, Confirm, ConnectError, End, Given, Offer, Terms},
};
use crate::{
    clock::ZTime,
    keys::FrameKey,
    names::Side,
    portal::{Post, QpRecord},
    tables::z_time,
    verbs::WcStatus,
};

impl Verbs {
    /// This host connects: [`Verbs::poll_message`] has the first message of the set-up then.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, now: Instant, qp: Qp) -> Result<(), ConnectError> {
        let Phase::Init(role) = self.phase(qp)? else { return Err(ConnectError::NotExpected) };
        self.set_phase(qp.index, Phase::Offered(role), true);
        self.wheel.arm(qp.index, now, self.config.set_up_timeout);
        Ok(())
    }

    /// Takes a message of the peer's library, that came over a channel that keeps secrets. After
    /// this, and after [`Verbs::poll`], there may be a message to it.
    ///
    /// # Errors
    /// [`ConnectError`]. Nothing has changed then.
    pub fn handle_message(
        &mut self,
        now: Instant,
        qp: Qp,
        octets: &[u8],
    ) -> Result<(), ConnectError> {
        let phase = self.phase(qp)?;
        match (phase, Terms::parse(octets)?) {
            (Phase::Init(role), Terms::Offer(offer)) => {
                let part = part_of_answerer(offer.role, offer.load, role, self.load())?;
                self.take_offer(now, qp.index, &offer, part)
            }
            (Phase::Offered(role), Terms::Answer(answer)) => self.take_answer(qp, role, &answer),
            (Phase::Agreed | Phase::Opened, Terms::Confirm(confirm)) => {
                self.take_confirm(now, qp.index, &confirm)
            }
            _ => Err(ConnectError::NotExpected),
        }
    }

    /// The next message to the peer's library, for a channel that keeps secrets: one of them has
    /// the connection's key. `None` if there is none now.
    #[must_use]
    pub fn poll_message(&mut self, now: Instant, qp: Qp) -> Option<Vec<u8>> {
        self.row(qp)?;
        let row = self.row_mut(qp.index);
        if !row.flags.take(Flags::MESSAGE_IS_DUE) {
            return None;
        }
        let (phase, is_answerer, part) = (row.phase, row.flags.has(Flags::IS_ANSWERER), row.part());
        let peer_nonce = row.peer_nonce();
        let record = self.record(qp.index);
        let given = match part {
            Part::Of(Side::Stateful) => None,
            Part::Rc if is_answerer => {
                Some(Given { clock: z_time(now), key: FrameKey::from_bytes([0; 16]) })
            }
            _ => {
                let (clock, key) = (ZTime(record.z_clock), FrameKey::from_bytes(record.key));
                Some(Given { clock, key })
            }
        };
        let terms = match phase {
            Phase::Offered(role) => Terms::Offer(Offer {
                role,
                addresses: self.place.addresses,
                end: self.end_of(qp, record.local_pd),
                load: self.load(),
            }),
            Phase::Agreed | Phase::Opened if is_answerer => Terms::Answer(Answer {
                address: self.place.addresses.toward(record.peer)?,
                end: self.end_of(qp, record.local_pd),
                answers: (record.peer_qpn, peer_nonce),
                part,
                given,
            }),
            Phase::Opened => {
                if part == Part::Of(Side::Stateless) {
                    self.introduce(now, qp.index, 0);
                }
                let confirms = (self.place.qpn(qp.index), record.nonce);
                Terms::Confirm(Confirm { confirms, part, given })
            }
            _ => return None,
        };
        if part != Part::Of(Side::Stateful) && phase == Phase::Opened {
            // The engine derives the key, and this has told it: nobody needs it here any longer.
            self.portal.set_record(qp.index, &QpRecord { key: [0; 16], z_clock: 0, ..record });
        }
        Some(terms.to_octets())
    }

    /// Whether [`Verbs::poll_message`] has a message.
    #[must_use]
    pub fn has_message(&self, qp: Qp) -> bool {
        self.row(qp).is_some_and(|row| row.flags.has(Flags::MESSAGE_IS_DUE))
    }

    /// How long the set-up of a connection may take: [`VerbsConfig::set_up_timeout`].
    ///
    /// [`VerbsConfig::set_up_timeout`]: super::VerbsConfig::set_up_timeout
    #[must_use]
    pub const fn set_up_timeout(&self) -> Duration {
        self.config.set_up_timeout
    }

    fn phase(&self, qp: Qp) -> Result<Phase, ConnectError> {
        self.row(qp).map(|row| row.phase).ok_or(ConnectError::NoSuchQp)
    }

    fn set_phase(&mut self, index: u32, phase: Phase, message_is_due: bool) {
        let row = self.row_mut(index);
        row.phase = phase;
        if message_is_due {
            row.flags.set(Flags::MESSAGE_IS_DUE);
        }
    }

    pub(super) fn load(&self) -> Load {
        let connections = self.stateful.saturating_add(self.stateful_elsewhere);
        Load { connections, threshold: self.config.threshold }
    }

    /// Returns the description of this queue pair for the peer.
    fn end_of(&self, qp: Qp, pd: u32) -> End {
        End {
            pd,
            qpn: self.place.qpn(qp.index),
            nonce: qp.nonce,
            packet_len_max: self.place.packet_len_max,
            depths: self.rows[qp.index as usize].depths,
        }
    }

    /// The record of a connection with this peer, whose key this host gives or not.
    fn agreed(
        &self,
        index: u32,
        gives: bool,
        peer: rma_core::addr::HostAddr,
        end: &End,
    ) -> QpRecord {
        let own = self.record(index);
        let own_nonce = self.rows[index as usize].nonce;
        let (pd, nonce) = if gives { (own.local_pd, own_nonce) } else { (end.pd, end.nonce) };
        QpRecord {
            peer,
            pd,
            local_pd: own.local_pd,
            peer_qpn: end.qpn,
            nonce,
            era: 0,
            packet_len_max: end.packet_len_max,
            z_clock: 0,
            key: [0; 16],
        }
    }

    /// Tells the key log the key of a connection, which this host gives, as Z, or is given.
    fn log_key(&self, index: u32, record: &QpRecord, gives: bool) {
        let QpRecord { peer, pd, peer_qpn, nonce, era, z_clock, key, .. } = record;
        let Some(own) = self.place.addresses.toward(*peer) else { return };
        let (own_qpn, peer_qpn) = (self.place.qpn(index), *peer_qpn);
        let (z, f) = if gives { (own, *peer) } else { (*peer, own) };
        let (of_z, of_f) = if gives { (own_qpn, peer_qpn) } else { (peer_qpn, own_qpn) };
        let key = keylog::Hex(key);
        keylog::line(format_args!(
            "STAR_KC {z} {f} {pd} {of_z} {of_f} {nonce} {era} {z_clock} {key}"
        ));
    }

    /// The engine is to have this connection.
    fn open(&mut self, index: u32, part: Part, record: &QpRecord) -> Result<(), ConnectError> {
        let before = self.record(index);
        self.portal.set_record(index, record);
        let connects = !self.rows[index as usize].flags.has(Flags::IS_ANSWERER);
        let post = match part {
            Part::Of(side) => Post::Open { qp: index, is_stateful: side == Side::Stateful },
            Part::Rc => Post::OpenRc { qp: index, connects },
        };
        if self.portal.post(&post, None).is_err() {
            self.portal.set_record(index, &before);
            return Err(ConnectError::EngineStalled);
        }
        self.note_part(index, part);
        self.set_phase(index, Phase::Opening, false);
        Ok(())
    }

    fn note_part(&mut self, index: u32, part: Part) {
        let row = self.row_mut(index);
        if part == Part::Rc {
            row.flags.set(Flags::IS_RC);
        }
        if part != Part::Of(Side::Stateless) && !row.is_stateful() {
            row.flags.set(Flags::IS_STATEFUL);
            self.stateful += 1;
        }
    }

    fn take_offer(
        &mut self,
        now: Instant,
        index: u32,
        offer: &Offer,
        part: Part,
    ) -> Result<(), ConnectError> {
        let own = self.place.addresses;
        let peer = own.iter().find_map(|own| offer.addresses.toward(own));
        let peer = peer.ok_or(ConnectError::NoAddress)?;
        let gives = part == Part::Of(Side::Stateless);
        let record = self.agreed(index, gives, peer, &offer.end);
        if gives {
            self.open(index, part, &record)?;
        } else {
            self.portal.set_record(index, &record);
            self.note_part(index, part);
            self.set_phase(index, Phase::Agreed, true);
        }
        let row = self.row_mut(index);
        row.flags.set(Flags::IS_ANSWERER);
        row.set_peer_nonce(offer.end.nonce);
        self.wheel.arm(index, now, self.config.set_up_timeout);
        Ok(())
    }

    fn take_answer(&mut self, qp: Qp, role: Role, answer: &Answer) -> Result<(), ConnectError> {
        let index = qp.index;
        if answer.answers != (self.place.qpn(index), qp.nonce) {
            return Err(ConnectError::OtherConnection);
        }
        self.place.addresses.toward(answer.address).ok_or(ConnectError::NoAddress)?;
        let (part, wished) = match answer.part {
            Part::Of(Side::Stateless) => (Part::Of(Side::Stateful), Role::Stateful),
            Part::Of(Side::Stateful) => (Part::Of(Side::Stateless), Role::Stateless),
            Part::Rc => (Part::Rc, Role::Rc),
        };
        if role != wished && role != Role::Auto {
            return Err(RolesClash(role).into());
        }
        let gives = part != Part::Of(Side::Stateful);
        let record = self.agreed(index, gives, answer.address, &answer.end);
        let record = with_given(record, answer.given.as_ref());
        if answer.given.is_some() && !gives {
            self.log_key(index, &record, false);
        }
        self.open(index, part, &record)
    }

    fn take_confirm(
        &mut self,
        now: Instant,
        index: u32,
        confirm: &Confirm,
    ) -> Result<(), ConnectError> {
        let row = &self.rows[index as usize];
        let (phase, record) = (row.phase, self.record(index));
        if !row.flags.has(Flags::IS_ANSWERER) || row.flags.has(Flags::MESSAGE_IS_DUE) {
            return Err(ConnectError::NotExpected);
        }
        if confirm.confirms != (record.peer_qpn, record.nonce) {
            return Err(ConnectError::OtherConnection);
        }
        let part = row.part();
        let others = match part {
            Part::Of(Side::Stateless) => Part::Of(Side::Stateful),
            Part::Of(Side::Stateful) => Part::Of(Side::Stateless),
            Part::Rc => Part::Rc,
        };
        if confirm.part != others {
            return Err(ConnectError::NotExpected);
        }
        match (phase, &confirm.given) {
            (Phase::Agreed, Some(given)) => {
                let record = with_given(record, Some(given));
                self.log_key(index, &record, false);
                self.open(index, part, &record)
            }
            (Phase::Opened, None) => {
                self.introduce(now, index, 0);
                Ok(())
            }
            _ => Err(ConnectError::NotExpected),
        }
    }

    /// The engine has opened a connection, or has not. `false` if it was not asked to.
    pub(super) fn opened(
        &mut self,
        now: Instant,
        index: u32,
        status: WcStatus,
        clock: u64,
        key: [u8; 16],
    ) -> bool {
        let Some(row) = self.rows.get(index as usize) else { return false };
        if row.phase != Phase::Opening {
            // It may have been closed meanwhile.
            return matches!(row.phase, Phase::Failing(_));
        }
        if status != WcStatus::Success {
            self.end(index, status);
            return true;
        }
        let (part, is_answerer) = (row.part(), row.flags.has(Flags::IS_ANSWERER));
        // The side that gives the key: the stateless side, or in RC who connects.
        let gives = match part {
            Part::Of(side) => side == Side::Stateless,
            Part::Rc => !is_answerer,
        };
        if gives {
            let record = QpRecord { z_clock: clock, key, ..self.record(index) };
            self.log_key(index, &record, true);
            self.portal.set_record(index, &record);
        }
        // A side that answers and was given the key has said all that it has to say.
        self.set_phase(index, Phase::Opened, gives || !is_answerer);
        self.wheel.arm_before(index, now, self.config.set_up_timeout);
        if is_answerer && part == Part::Of(Side::Stateful) {
            // The peer's initial state may have come before there was a connection to take it.
            // Without room for this it comes again.
            let _ = self.portal.post(&Post::Introduce { qp: index }, None);
        }
        true
    }
}

/// With what the peer gives.
fn with_given(record: QpRecord, given: Option<&Given>) -> QpRecord {
    match given {
        None => record,
        Some(Given { clock: ZTime(z_clock), key }) => {
            QpRecord { z_clock: *z_clock, key: *key.expose(), ..record }
        }
    }
}
