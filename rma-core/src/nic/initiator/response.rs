//! The responder's answers to a request: the data of a read, which lands in host memory, or a
//! refusal of whatever was asked (1RMA §3.1, §4.2).

use super::{
    Initiator,
    slots::{Slot, State},
};
use crate::{
    addr::HostAddr,
    command::{CommandOp, Transfer},
    crypto::EngineId,
    error::DropReason,
    granules::Granules,
    limits::GRANULE,
    nic::{
        security::{Opened, payload_of},
        solicitation_window::SolicitationWindow,
        tables::Tables,
    },
    op::OpStatus,
    time::Instant,
    wire::{Failure, Header, Response, read::RESPONSE_HEADER_LEN},
};

/// When what has landed of a read was loaded, by the counters of the frames that it came in: an
/// engine counts up, and sends the parts of an answer in the order in which it loads them.
///
/// A request that comes twice is answered twice, and parts of both answers may land. So the first
/// part is not taken if it is younger than another, nor the last if it is older: a bell in the
/// first word would be seen without what was stored before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    engine: EngineId,
    oldest: u64,
    newest: u64,
}

impl Loaded {
    /// Of a read of which nothing has landed.
    pub(super) const NOTHING: Self = Self { engine: EngineId(0), oldest: u64::MAX, newest: 0 };

    /// This, with one more part, of a read of `op_size` bytes of which `arrived` has landed. `None`
    /// if it was not loaded in its turn, or it is not known when.
    fn with(self, response: &Response, arrived: Granules, op_size: u32) -> Option<Self> {
        let Header { engine, counter, .. } = response.header;
        if arrived == Granules::NONE {
            return Some(Self { engine, oldest: counter, newest: counter });
        }
        let (start, end) = response.span();
        let has = |start, end| arrived.meets(Granules::of(start, end));
        let is_after_first = if start == 0 {
            counter < self.oldest
        } else {
            counter > self.oldest || !has(0, GRANULE)
        };
        let is_before_last = if end == op_size {
            counter > self.newest
        } else {
            counter < self.newest || !has(op_size - 1, op_size)
        };
        let Self { oldest, newest, .. } = self;
        let with = Self { engine, oldest: oldest.min(counter), newest: newest.max(counter) };
        (is_after_first && is_before_last && engine == self.engine).then_some(with)
    }
}

impl Slot {
    /// Returns the granules that have arrived, and their times, with one more response that is not
    /// all of the read.
    fn part(&self, response: &Response, op_size: u32) -> Result<(Granules, Loaded), DropReason> {
        let (start, end) = response.span();
        if !Granules::may_be_cut(start, end, op_size) {
            return Err(DropReason::OutsideOp);
        }
        let granules = Granules::of(start, end);
        if self.arrived.meets(granules) {
            return Err(DropReason::Duplicate);
        }
        //= channels#2.3-ordered-reading
        let loaded = self.loaded.with(response, self.arrived, op_size);
        Ok((self.arrived.with(granules), loaded.ok_or(DropReason::Duplicate)?))
    }
}

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
        let id = self.index_of(claims.header.slot);
        let slot = self.slot_of(source, &claims.header, State::InService)?;
        let CommandOp::Read(Transfer { local_region, local_offset, op_size, .. }) = slot.command.op
        else {
            return Err(DropReason::LateOrUnsolicited);
        };
        let response =
            opened.answer(&slot.seal.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        let payload = payload_of(frame, RESPONSE_HEADER_LEN);
        let (start, end) = response.span();
        // Most reads are small, and have one response: it is all that there is to look at.
        let is_all = start == 0 && end == op_size;
        let part = if !is_all {
            Some(slot.part(&response, op_size)?)
        } else if slot.arrived == Granules::NONE {
            None
        } else {
            return Err(DropReason::Duplicate);
        };
        let sink = tables
            .regions
            .get(local_region)
            .filter(|sink| Some(sink.owner) == slot.pid)
            .ok_or(DropReason::LocalRegionGone)?;
        if sink.memory.copy_in(local_offset + u64::from(start), payload).is_err() {
            return Err(DropReason::LocalRegionGone);
        }
        //= 1rma#3.1-complete-when-all-bytes-arrived
        if let Some(part) = part {
            (slot.arrived, slot.loaded) = part;
            if slot.arrived != Granules::of(0, op_size) {
                return Ok(());
            }
        }
        self.complete(now, id, OpStatus::Ok, tables.window);
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
        let id = self.index_of(failure.header.slot);
        self.complete(now, id, failure.status, window);
        Ok(())
    }
}
