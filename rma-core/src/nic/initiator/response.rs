//! What a responder answers to a request: the data of a read, which lands in host memory, or a
//! refusal of whatever was asked (1RMA §3.1, §4.2).

use super::{Initiator, slots::State};
use crate::{
    addr::HostAddr,
    command::{CommandOp, Transfer},
    error::DropReason,
    nic::{
        granules::Granules,
        security::{Opened, payload_of},
        solicitation_window::SolicitationWindow,
        tables::Tables,
    },
    op::OpStatus,
    time::Instant,
    wire::{Failure, Response, read::RESPONSE_HEADER_LEN},
};

impl Initiator {
    /// Lands a response's payload in host memory; with the last one, completes the op.
    pub(in crate::nic) fn handle_response(
        &mut self,
        now: Instant,
        source: HostAddr,
        claims: Response,
        frame: &[u8],
        opened: &Opened,
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        let id = claims.header.slot;
        let slot = self.slot_of(source, &claims.header, State::InService)?;
        let CommandOp::Read(Transfer { local_region, local_offset, op_size, .. }) = slot.command.op
        else {
            return Err(DropReason::LateOrUnsolicited);
        };
        let response =
            opened.answer(&slot.seal.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        let payload = payload_of(frame, RESPONSE_HEADER_LEN);
        let (start, end) = response.span();
        if !Granules::may_be_cut(start, end, op_size) {
            return Err(DropReason::OutsideOp);
        }
        let granules = Granules::of(start, end);
        if slot.arrived.meets(granules) {
            return Err(DropReason::Duplicate);
        }
        let sink = tables
            .regions
            .get(local_region)
            .filter(|sink| Some(sink.owner) == slot.pid)
            .ok_or(DropReason::LocalRegionGone)?;
        if sink.memory.copy_in(local_offset + u64::from(start), payload).is_err() {
            return Err(DropReason::LocalRegionGone);
        }
        //= 1rma#3.1-complete-when-all-bytes-arrived
        slot.arrived = slot.arrived.with(granules);
        if slot.arrived == Granules::of(0, op_size) {
            self.complete(now, id, OpStatus::Ok, tables.window);
        }
        Ok(())
    }

    /// Ends an op that its responder refused. Not a mutation whose data was solicited: that data
    /// may be on its way, and may still change the target.
    pub(in crate::nic) fn handle_failure(
        &mut self,
        now: Instant,
        source: HostAddr,
        claims: Failure,
        opened: &Opened,
        window: &mut SolicitationWindow,
    ) -> Result<(), DropReason> {
        if self.slot_of(source, &claims.header, State::Solicited).is_ok() {
            return Err(DropReason::NoticeAfterSolicitation);
        }
        let slot = self.slot_of(source, &claims.header, State::InService)?;
        let failure =
            opened.answer(&slot.seal.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        if failure.status == OpStatus::RemoteNotReady && !slot.may_be_acknowledged(failure.status) {
            return Err(DropReason::NoticeStatus);
        }
        self.complete(now, failure.header.slot, failure.status, window);
        Ok(())
    }
}
