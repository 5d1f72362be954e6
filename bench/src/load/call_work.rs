//! READs and WRITEs of any size, as calls of an executor: cut into ops, paced by congestion
//! control, retried.
//!
//! As with a portal's ops, what is written depends on its place alone. Of each READ the first and
//! the last line are compared with what should be there.

use rma_core::executor::{Call, CallId, CallStatus, Piece};
use rma_xdp::{
    Grant, OpStatus, OpType, Permissions, RegisteredRegion, Transfers, ops::ClassOfService,
    transfer::ExecutorConfig,
};

use super::{
    op::LoadOp,
    places::{LINE, Places},
    work::{Due, Ended, Work},
};
use crate::{
    amount::WARM,
    client::{Area, Client},
    error::PairError,
    failures::Failures,
};

/// Command slots of the executor: as many as are of use on a fast link.
const SLOTS: u16 = 256;

/// Calls of an executor.
#[derive(Debug)]
pub(crate) struct CallWork<'a> {
    client: &'a mut Client,
    transfers: Transfers,
    op: LoadOp,
    grant: Grant,
    size: u64,
    class: ClassOfService,
    places: Places,
    /// The calls under way, with a part of `local` for each.
    calls: Box<[Option<Issued>]>,
    local: RegisteredRegion,
    /// Places of calls that failed, to be issued again.
    next: Vec<u64>,
}

/// The calls to issue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// Bytes of each.
    pub(crate) size: u64,
    /// How many are under way at once, at most.
    pub(crate) depth: u32,
    /// Bytes from the area's beginning that they are spread over.
    pub(crate) span: u64,
    pub(crate) class: ClassOfService,
}

/// A call that was submitted.
#[derive(Clone, Copy, Debug)]
struct Issued {
    call: CallId,
    offset: u64,
    at: Due,
}

impl<'a> CallWork<'a> {
    /// Such calls at places of the client's area.
    ///
    /// # Errors
    /// If slots or memory cannot be had, or the op is not granted.
    ///
    /// # Panics
    /// Never: the bounds are the regions' own.
    pub(crate) fn new(
        client: &'a mut Client,
        op: LoadOp,
        Calls { size, depth, span, class }: Calls,
    ) -> Result<Self, PairError> {
        let grant = client.grants.get(op.op_type())?;
        let config: ExecutorConfig = client.host.executor_config();
        let transfers = Transfers::new(client.host.portal(SLOTS)?, config).map_err(other)?;
        // All WRITEs come from one copy of the bytes that are sent, wherever they go.
        let parts = if op == LoadOp::Read { u64::from(depth) * size } else { size + WARM };
        let local = client.host.register(parts as usize, Permissions::NONE)?;
        if op != LoadOp::Read {
            let mut bytes = vec![0; WARM as usize];
            Client::source_pattern(client.pattern).fill(0, &mut bytes);
            for offset in (0..parts).step_by(WARM as usize) {
                let len = (parts - offset).min(WARM) as usize;
                local.write(offset, &bytes[..len]).expect("inside");
            }
        }
        let area = client.area().with_len_at_most(span);
        let places = Places::of_calls(area, size, client.pattern.seed() ^ size);
        let calls = vec![None; depth as usize].into();
        let next = Vec::with_capacity(depth as usize + 1);
        Ok(Self { client, transfers, op, grant, size, class, places, calls, local, next })
    }

    /// Tells the client's model what was written, and its doubts of what failed.
    ///
    /// # Panics
    /// Never: the bounds are the regions' own.
    pub(crate) fn finish(self) {
        let Self { client, op, places, size, next, local, .. } = self;
        if op == LoadOp::Read {
            return;
        }
        for offset in next {
            client.doubt_area(Area { offset, len: size });
        }
        let Some(model) = &mut client.model else { return };
        let mut bytes = vec![0; size as usize];
        for offset in places.written() {
            local.read(offset % WARM, &mut bytes).expect("inside");
            model.apply(offset, &bytes);
        }
    }

    /// The place where the first or the last line of what was read is wrong.
    fn wrong(&self, index: usize, offset: u64) -> Option<u64> {
        let len = self.size.min(LINE);
        let mut line = [0; LINE as usize];
        let line = &mut line[..len as usize];
        [0, self.size - len].into_iter().find_map(|at| {
            self.local.read(index as u64 * self.size + at, line).expect("inside");
            let Client { model, pattern, .. } = &self.client;
            match model {
                Some(model) => model.first_difference(offset + at, line),
                None => pattern.first_difference(offset + at, line),
            }
        })
    }
}

/// An error of an executor.
fn other(why: impl core::error::Error + Send + Sync + 'static) -> PairError {
    PairError::Other(Box::new(why))
}

impl Work for CallWork<'_> {
    fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError> {
        while let Some(index) = self.calls.iter().position(Option::is_none) {
            let offset = self.next.pop().unwrap_or_else(|| self.places.draw());
            let Some(at) = take() else {
                self.next.push(offset);
                break;
            };
            let local_offset = match self.op.op_type() {
                OpType::Read => index as u64 * self.size,
                _ => offset % WARM,
            };
            let (grant, local, len) = (&self.grant, &self.local, self.size);
            let pieces = [Piece { grant, remote_offset: offset, local, local_offset, len }];
            let call = Call::of(&pieces).with(|it| it.class = Some(self.class));
            let call = self.transfers.submit(&call).map_err(other)?;
            self.calls[index] = Some(Issued { call, offset, at });
        }
        Ok(())
    }

    fn turn(&mut self) -> bool {
        self.client.host.drive(&mut self.transfers) > 0
    }

    fn poll(&mut self) -> Option<Ended> {
        let outcome = self.transfers.poll_outcome()?;
        let is_of = |it: &Option<Issued>| it.is_some_and(|it| it.call == outcome.call);
        let index = self.calls.iter().position(is_of).expect("outcomes are of calls that began");
        let Issued { offset, at, .. } = self.calls[index].take().expect("it was found");
        let status = match outcome.status {
            CallStatus::Ok => OpStatus::Ok,
            CallStatus::Failed(status) => status,
            // Silence in one way or another: nothing is cancelled here, or comes after another.
            _ => OpStatus::Timeout,
        };
        let is_ok = status == OpStatus::Ok;
        if !is_ok {
            self.next.push(offset);
        } else if self.op.writes() {
            self.places.wrote(offset);
        }
        let is_read = is_ok && self.op == LoadOp::Read;
        let wrong = if is_read { self.wrong(index, offset) } else { None };
        let retries = outcome.retries;
        Some(Ended { kind: 0, at, status, bytes: self.size, retries, wrong })
    }

    fn failures(&mut self) -> &mut Failures {
        &mut self.client.failures
    }
}
