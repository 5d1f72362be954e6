//! Writes what frames to Z carry behind their headers. It seals nothing, and gives no counters:
//! what has no room, or no memory, is found before a frame has one.

use rma_core::limits::TAG_LEN;

use super::{Stateful, connection::Connection, roles::Word, under_way::What, work::Way};
use crate::{
    names::Taken,
    tables::Tables,
    wire::{
        Cqe,
        data::GUIDE_HEADER_LEN,
        state::STATE_HEADER_LEN,
        told::{self, ASK_LEN},
        work::{TAKEN_LEN, WORK_HEADER_LEN},
    },
};

impl Stateful {
    /// Writes the payload of a frame.
    ///
    /// # Errors
    /// If it has no room; or the work request whose memory is no longer there.
    pub(super) fn fill(
        &self,
        host: &Tables<'_>,
        frame: u16,
        word: Option<&Word>,
        bytes: &mut [u8],
    ) -> Result<(), Option<u16>> {
        let sent = self.frames.at(frame);
        match &sent.what {
            What::Chunk { work: row, offset, len, .. } => {
                let work = &self.works[*row];
                let transfer = work.transfer.as_ref().ok_or(None)?;
                let len = if transfer.way == Way::Pull { 0 } else { usize::from(*len) };
                let payload = bytes.get_mut(GUIDE_HEADER_LEN..).unwrap_or_default();
                if payload.len() < len + TAG_LEN {
                    return Err(None);
                }
                let payload = &mut payload[..len];
                if len == 0 {
                    return Ok(());
                }
                if let Some(inline) = &work.inline {
                    let from = *offset as usize;
                    payload.copy_from_slice(&inline.0[from..from + len]);
                    return Ok(());
                }
                let pd = self.connections.at(sent.connection).local_pd;
                let offset = transfer.here.offset + u64::from(*offset);
                let span = host.mrs.span(pd, transfer.here.mr, transfer.access, offset, len as u64);
                let span = span.map_err(|_refused| Some(*row))?;
                span.memory.copy_out(span.offset, payload).map_err(|_bounds| Some(*row))
            }
            What::Cqes { told, .. } => {
                let cqes = told.iter(&self.work_links).map(|row| self.cqe_of(row));
                fill_cqes(bytes, self.connections.at(sent.connection), cqes).ok_or(None)
            }
            What::Probe => {
                let connection = self.connections.at(sent.connection);
                fill_cqes(bytes, connection, [Cqe::PROBE].into_iter()).ok_or(None)
            }
            What::Greeting => fill_state(bytes, &[0; ASK_LEN]).ok_or(None),
            What::Ask { mr, .. } => fill_state(bytes, &told::ask(*mr)).ok_or(None),
            What::Switch | What::Transfer | What::Commit => {
                word.and_then(|word| fill_state(bytes, word.payload())).ok_or(None)
            }
        }
    }
}

/// Encodes the places below which a connection's work was taken, as EAs and CQEPs say it.
pub(super) fn taken_of(connection: &Connection) -> [u8; TAKEN_LEN] {
    Taken { send: connection.taken_send, recv: connection.taken_recv }.to_octets()
}

fn fill_cqes(
    bytes: &mut [u8],
    connection: &Connection,
    cqes: impl Iterator<Item = Cqe>,
) -> Option<()> {
    let payload = bytes.get_mut(WORK_HEADER_LEN..).unwrap_or_default();
    let (taken, mut room) = payload.split_first_chunk_mut()?;
    *taken = taken_of(connection);
    for cqe in cqes {
        let (entry, rest) = room.split_first_chunk_mut()?;
        cqe.emit(entry);
        room = rest;
    }
    (room.len() >= TAG_LEN).then_some(())
}

fn fill_state(bytes: &mut [u8], payload: &[u8]) -> Option<()> {
    let room = bytes.get_mut(STATE_HEADER_LEN..)?;
    let (octets, rest) = room.split_at_mut_checked(payload.len())?;
    octets.copy_from_slice(payload);
    (rest.len() >= TAG_LEN).then_some(())
}
