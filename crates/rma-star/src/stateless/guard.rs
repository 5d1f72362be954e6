//! The rights of frames, by the words of their slot and of their QP, and the events that open and
//! close these (ours; section 6 of `docs/STAR-WIRE.md`).
//!
//! The words are the application's memory. They are read when a frame is handled, and again when
//! what it asked for is sent; nothing of them is remembered in between.

use crate::{
    keys::{Binding, FrameKey, KeyMessage, PdKeySchedule},
    names::{ConnectionName, Era, Nonce, PdId, Qpn, Slot},
    portal::{Guard, QpState, QpWord, StarPortalMemory, Verdict},
    tables::Tables,
    wire::{Guide, Header},
};

/// The memory that has the words of a connection.
fn memory_of<'h>(host: &'h Tables<'_>, header: &Header) -> Option<&'h StarPortalMemory> {
    host.portals.get(header.connection.qpn_z.portal()).map(|port| port.memory())
}

pub(super) fn slot_verdict(
    host: &Tables<'_>,
    header: &Header,
    slot: Slot,
    generation: u32,
) -> Verdict {
    let Some(memory) = memory_of(host, header) else { return Verdict::Gone };
    let (qp, (nonce, era)) = (header.connection.qpn_z.index(), connection_of(header));
    // A slot that there is not was never posted.
    let guard = memory.guard(slot.0).unwrap_or(Guard::FREE);
    Verdict::of(guard, memory.qp_word(qp), generation, qp, nonce, era)
}

/// Returns the verdict on a frame that is about no slot.
pub(super) fn qp_verdict(host: &Tables<'_>, header: &Header) -> Verdict {
    let word = memory_of(host, header)
        .map_or(QpWord::CLOSED, |memory| memory.qp_word(header.connection.qpn_z.index()));
    let (nonce, era) = connection_of(header);
    if word.is_open_for(nonce, era) { Verdict::Open } else { Verdict::Gone }
}

const fn connection_of(header: &Header) -> (u32, u16) {
    (header.connection.nonce.0, header.connection.era.0)
}

/// Returns the verdict on a frame that moves data.
pub(super) fn verdict_of(host: &Tables<'_>, guide: &Guide) -> Verdict {
    if guide.slot == Slot::NONE {
        qp_verdict(host, &guide.header)
    } else {
        slot_verdict(host, &guide.header, guide.slot, guide.generation.0)
    }
}

/// Returns a chunk's offset in its memory region, and its length, in bytes.
pub(super) const fn place_of(guide: &Guide) -> (u64, u64) {
    let octets = guide.octets_of_mr();
    (octets.start, guide.chunk_len as u64)
}

/// Opens a connection of a QP, which its application has written a record of. Returns K_c.
pub(crate) fn open(host: &mut Tables<'_>, portal: u16, qp: u32) -> Option<FrameKey> {
    let era = host.portals.get(portal.into())?.memory().record(qp)?.era;
    let (binding, pd_key) = binding_in(host, portal, qp, Era(era))?;
    let key = pd_key.derive(host.aead, &KeyMessage::of_connection(&binding));
    let connection = binding.connection;
    let (nonce, era) = (connection.nonce.0, connection.era.0);
    let port = host.portals.get_mut(portal.into())?;
    if qp >= port.memory().qps() {
        return None;
    }
    port.begin_qp(qp, QpWord { nonce, era, heard: 0, state: QpState::Open });
    Some(key)
}

/// Closes the connection of a QP: from now on no frame of it has effect.
pub(crate) fn close(host: &mut Tables<'_>, portal: u16, qp: u32) {
    if let Some(port) = host.portals.get_mut(portal.into()) {
        let word = port.memory().qp_word(qp);
        port.set_qp_word(qp, QpWord { state: QpState::Closed, ..word });
    }
}

/// Whether another may have the state of a QP's connection from the era of that number on: it is
/// open, and the era has not been.
pub(crate) fn may_be_taken_over(host: &Tables<'_>, portal: u16, qp: u32, era: Era) -> bool {
    let port = host.portals.get(portal.into());
    let word = port.map_or(QpWord::CLOSED, |port| port.memory().qp_word(qp));
    word.state == QpState::Open && era.0 > word.era
}

/// Returns the name of a QP's connection, by its record and its QP word, and the secret of its
/// protection domain: if that is the portal's.
pub(super) fn binding_of<'h>(
    host: &'h Tables<'_>,
    portal: u16,
    qp: u32,
) -> Option<(Binding, &'h PdKeySchedule)> {
    let word = host.portals.get(portal.into())?.memory().qp_word(qp);
    binding_in(host, portal, qp, Era(word.era))
}

/// The same, in an era that there may be.
fn binding_in<'h>(
    host: &'h Tables<'_>,
    portal: u16,
    qp: u32,
    era: Era,
) -> Option<(Binding, &'h PdKeySchedule)> {
    let record = host.portals.get(portal.into())?.memory().record(qp)?;
    let pd = host.pd_of_portal(PdId(record.pd), portal.into())?;
    let connection = ConnectionName {
        pd: PdId(record.pd),
        qpn_z: Tables::qpn(portal, qp)?,
        qpn_f: Qpn::from_bits(record.peer_qpn),
        nonce: Nonce(record.nonce),
        era,
    };
    let z = host.own_address(record.peer)?;
    Some((Binding { connection, f: record.peer, z }, &pd.key))
}
