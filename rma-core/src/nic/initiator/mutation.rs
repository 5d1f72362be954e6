//! Hops 2 to 4 of a mutation at its initiator (1RMA §5.1, figure 7): the solicitation is answered
//! as though it were a read request, and the acknowledgement completes the op.
//!
//! Invariant: data is sent for one solicitation of an op and for no other, and from then on nothing
//! but the acknowledgement or the timeout ends the op. The timeout begins anew with the
//! solicitation, by a clock that was read after it had arrived: so the responder, which began to
//! count before it sent it, is always the first to give up (P2).

use super::{
    Initiator,
    recorded::write_operands,
    slots::{Slot, SlotIndex, State},
};
use crate::{
    addr::HostAddr,
    backend::{RxFrame, Transmit, TxFrame},
    command::{CommandOp, CommandSlotId, Transfer},
    crypto::{EngineId, Iv},
    error::DropReason,
    granules::cut,
    limits::GRANULE,
    nic::{security::Opened, solicitation_window::SolicitationWindow, tables::Tables},
    op::ClassOfService,
    outcome::OpName,
    time::{Clock, Instant},
    wire::{
        Acknowledgement, Header, Solicitation, SolicitedData,
        mutation::{DATA_HEADER_LEN, DATA_OVERHEAD},
    },
};

/// The content of an op's solicitation, and the amount sent for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solicited {
    /// When it had arrived, or a little later.
    pub(super) at: Instant,
    /// The IV that binds the data to it.
    pub(super) iv: Iv,
    /// The responder's name for the op.
    pub(super) name: OpName,
    /// The largest payload that both sides and the path between them can carry. Of a read: what its
    /// request said.
    pub(super) payload_len_max: u16,
    /// The longest packet that the responder receives.
    packet_len_max: u16,
    /// Bytes of the op that have been sent.
    sent: u32,
    /// The address of ours that it was sent to.
    source: HostAddr,
}

impl Solicited {
    pub(super) const NONE: Self = Self {
        at: Instant::ZERO,
        iv: Iv::NONE,
        name: OpName { engine: EngineId(0), counter: 0, number: 0 },
        payload_len_max: 0,
        packet_len_max: 0,
        sent: 0,
        source: HostAddr::from_octets([0; 16]),
    };
}

impl Slot {
    /// Whether an op that was solicited is in the list of those with data to send.
    pub(super) const fn has_data_to_send(&self) -> bool {
        self.solicited.sent < self.command.op.op_size()
    }
}

impl Initiator {
    /// Takes the first solicitation of an op: its data must be sent.
    pub(in crate::nic) fn handle_solicitation(
        &mut self,
        clock: &impl Clock,
        claims: Solicitation,
        frame: &RxFrame<'_>,
        opened: &Opened,
        tables: &Tables<'_>,
    ) -> Result<(), DropReason> {
        if self.slot_of(frame.source, &claims.header, State::Solicited).is_ok() {
            return Err(DropReason::SolicitedTwice);
        }
        let slot = self.slot_of(frame.source, &claims.header, State::InService)?;
        if !slot.command.op.is_mutation() {
            return Err(DropReason::LateOrUnsolicited);
        }
        let local = slot.command.op.transfer().map(|it| it.local_region);
        let solicitation =
            opened.answer(&slot.seal.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        let owner = slot.pid;
        let is_gone = |local| tables.regions.get(local).is_none_or(|it| Some(it.owner) != owner);
        if local.is_some_and(is_gone) {
            // Nothing has been sent and nothing will be; the op times out.
            return Err(DropReason::LocalRegionGone);
        }
        let path = frame.reply_len_max.saturating_sub(DATA_OVERHEAD);
        slot.solicited = Solicited {
            //= 1rma#5.1-initiator-times-out-last
            at: clock.now(),
            iv: solicitation.header.iv(crate::crypto::Direction::ToInitiator),
            name: OpName {
                engine: solicitation.header.engine,
                counter: solicitation.header.counter,
                number: solicitation.pending,
            },
            payload_len_max: path.min(solicitation.payload_len_max.into()).max(GRANULE as usize)
                as u16,
            packet_len_max: solicitation.payload_len_max.saturating_add(DATA_OVERHEAD as u16),
            sent: 0,
            source: frame.destination,
        };
        slot.state = State::Solicited;
        let id = self.index_of(claims.header.slot).0;
        self.in_service.remove(&mut self.links, id);
        self.solicited.push_back(&mut self.links, id);
        self.sending.push_back(&mut self.sending_links, id);
        Ok(())
    }

    /// Writes the next frame of solicited data, if there is one. Ops take turns. Returns whether
    /// there was one.
    pub(super) fn poll_data(&mut self, tables: &mut Tables<'_>, out: &mut TxFrame<'_>) -> bool {
        let Some(id) = self.sending.pop_front(&mut self.sending_links) else { return false };
        let number = self.number_of(SlotIndex(id));
        let slot = &mut self.slots[usize::from(id)];
        let is_written = slot.write_data(number, tables, out).is_some();
        if !is_written {
            // The local region is gone: what was sent may land, the rest never comes.
            slot.solicited.sent = slot.command.op.op_size();
        }
        if slot.has_data_to_send() {
            self.has_rest = slot.command.class == ClassOfService::Latency;
            if self.has_rest {
                self.sending.push_front(&mut self.sending_links, id);
            } else {
                self.sending.push_back(&mut self.sending_links, id);
            }
        }
        self.data_first = self.has_rest;
        is_written
    }

    /// Ends an op as its responder says.
    pub(in crate::nic) fn handle_acknowledgement(
        &mut self,
        now: Instant,
        source: HostAddr,
        claims: Acknowledgement,
        opened: &Opened,
        window: &mut SolicitationWindow,
    ) -> Result<(), DropReason> {
        let slot = self.slot_of(source, &claims.header, State::Solicited)?;
        let acknowledgement =
            opened.answer(&slot.solicited.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        if !slot.may_be_acknowledged(acknowledgement.status) {
            return Err(DropReason::NoticeStatus);
        }
        let id = self.index_of(acknowledgement.header.slot);
        self.complete(now, id, acknowledgement.status, window);
        Ok(())
    }
}

impl Slot {
    /// Reads the next part of the op's data into `out`. `None` if the local region is gone.
    fn write_data(
        &mut self,
        id: CommandSlotId,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> Option<()> {
        let Solicited { iv, name, payload_len_max, packet_len_max, sent, source, .. } =
            self.solicited;
        let room = out.bytes.len().saturating_sub(DATA_OVERHEAD);
        let left = (self.command.op.op_size() - sent) as usize;
        let payload_len = cut(left, usize::from(payload_len_max).min(room));
        let frame = out.bytes.get_mut(..DATA_OVERHEAD + payload_len)?;
        let payload = frame.get_mut(DATA_HEADER_LEN..DATA_HEADER_LEN + payload_len)?;
        match (&self.command.op, self.command.op.transfer()) {
            (CommandOp::Rekey(key), _) => payload.copy_from_slice(key.expose()),
            (CommandOp::Recorded { op, .. }, None) => write_operands(op, payload),
            (_, transfer) => {
                let &Transfer { local_region, local_offset, .. } = transfer?;
                let local = tables.regions.get(local_region)?;
                if Some(local.owner) != self.pid {
                    return None;
                }
                local.memory.copy_out(local_offset + u64::from(sent), payload).ok()?;
            }
        }
        let header = Header {
            class: self.command.class,
            pid: self.pid?,
            region: self.command.remote_region,
            slot: id,
            generation: self.generation,
            ..Header::NONE
        };
        let data = SolicitedData {
            header,
            pending: name.number,
            op_offset: sent as u16,
            payload_len: payload_len as u16,
        };
        tables.security.write_answer(&self.command.key, &iv, data, frame);
        self.solicited.sent += payload_len as u32;
        self.longest = self.longest.max(frame.len() as u16);
        let (ends, len) = ([source, self.command.responder], DATA_OVERHEAD + payload_len);
        let transmit = Transmit::new(ends, tables.config.place.port, header.class, len);
        let (source_port, tenant) = (self.source_port, self.tenant);
        out.hold(Transmit { source_port, packet_len_max, tenant, ..transmit });
        Some(())
    }
}
