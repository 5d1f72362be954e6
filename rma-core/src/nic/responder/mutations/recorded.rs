//! Mutations that are recorded: how their data is collected and applied in one step, and how they
//! end (not in the paper, but for the four hops).
//!
//! | op | its data goes | applied by |
//! |---|---|---|
//! | ordered WRITE | into a staging buffer, if it comes in several frames | one copy, the last word last |
//! | SEND | into the buffer of a posted receive | the event |
//! | WRITE_WITH_IMM | into the region, as it comes; ordered, as an ordered WRITE | the event |
//! | NOTIFY | | the event |
//! | COMPARE_SWAP, FETCH_ADD | | one atomic instruction |
//!
//! Invariant: what applies an op is one step, after the last of its data, between two readings of
//! the clock, and its record says so before anything else happens. So an op is applied in whole or
//! not at all, and what its record says is final: with it applied, and with its entry gone not.
//!
//! A receive is bound to an op by the first authentic data of it. A request proves nothing about
//! today: recordings of requests, replayed without a key, would hold receives for ever. If the op
//! ends otherwise, the next op gets the receive.

use super::{
    Asked, Pending, PendingWrites,
    pending::State,
    staging::{Staged, Staging},
};
use crate::{
    backend::TxFrame,
    error::DropReason,
    limits::WORD_LEN,
    nic::{
        region_table::RegionTable,
        responder::records::{Asker, Known, OutcomeRecords, RecordIndex},
        solicitation_window::{SolicitationWindow, Solicitor},
        tables::Tables,
    },
    op::OpStatus,
    outcome::{Done, Verdict},
    receive_queue::{Event, Receive},
    region::RegionId,
    seal::Authentic,
    time::{Clock, Instant},
    wire::{
        AcknowledgementWithResult, Mutation, SettleRequest,
        recorded::{RESULT_HEADER_LEN, RESULT_LEN},
    },
};

/// The further state of an entry whose op is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    /// Its record, from when hop 2 is written until the entry is free.
    pub(super) record: Option<RecordIndex>,
    /// The immediate of its request.
    pub(super) immediate: u64,
    /// The result in its acknowledgement.
    result: u64,
    /// The buffer in which its data collects.
    pub(super) staged: Option<Staged>,
    /// The receive that is bound to it, and whose queue.
    pub(super) receive: Option<(RegionId, Receive)>,
}

impl Recorded {
    pub(super) const NONE: Self =
        Self { record: None, immediate: 0, result: 0, staged: None, receive: None };
}

/// The parts of the table that every entry's op may need besides the entry.
pub(super) struct Shared {
    pub(super) records: OutcomeRecords,
    pub(super) staging: Staging,
}

/// A part of an op's data.
pub(super) struct Part<'a> {
    pub(super) start: u32,
    pub(super) payload: &'a [u8],
    /// Whether all else has come.
    pub(super) is_last: bool,
}

impl Asked {
    /// Returns the party that may ask about the op's outcome.
    pub(in crate::nic::responder) const fn asker(&self) -> Asker {
        Asker { initiator: self.initiator, pid: self.header.pid, region: self.header.region }
    }
}

impl Pending {
    /// Takes a part of the data of a recorded op; with the last one, applies it.
    pub(super) fn land_recorded(
        &mut self,
        clock: &impl Clock,
        part: &Part<'_>,
        shared: &mut Shared,
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        self.check_key(tables)?;
        if self.status == OpStatus::RemoteNotReady {
            return Err(DropReason::NoReceiveLeft);
        }
        self.bind_receive(tables)?;
        let is_whole = part.payload.len() == self.mutation.op_size() as usize;
        match self.mutation {
            _ if self.mutation.is_ordered() && !is_whole => self.stage(part, &mut shared.staging),
            Mutation::Send { .. } => self.fill(part, tables),
            Mutation::WriteWithImm { ordered: false, .. } if !part.is_last => {
                self.change(clock, tables, |entry, _, tables| {
                    entry.place(part.start, part.payload, tables);
                })?;
            }
            _ => (),
        }
        if !part.is_last {
            return Ok(());
        }
        let (now, result) = self.change(clock, tables, |entry, now, tables| {
            (now, entry.commit(now, part, &shared.staging, tables))
        })?;
        let Some(result) = result else {
            self.status = OpStatus::RemoteAuthenticationFailure;
            return Err(DropReason::OldKey);
        };
        self.recorded.result = result;
        if let Some(record) = self.recorded.record {
            shared.records.applied(now, record, result);
        }
        Ok(())
    }

    //= channels#2.2-bound-by-data
    /// Binds a receive to the op, if it needs one and has none.
    fn bind_receive(&mut self, tables: &mut Tables<'_>) -> Result<(), DropReason> {
        if !self.mutation.consumes_receive() || self.recorded.receive.is_some() {
            return Ok(());
        }
        let queue = tables.regions.queue_of(self.asked.header.region, &self.mutation);
        let Some((queue, (port, _))) =
            queue.and_then(|queue| Some((queue, tables.regions.queue_mut(queue)?)))
        else {
            // It was there when the op was admitted.
            self.status = OpStatus::RemoteAuthenticationFailure;
            return Err(DropReason::OldKey);
        };
        match port.take() {
            Some(receive) => {
                self.recorded.receive = Some((queue, receive));
                Ok(())
            }
            None => {
                self.status = OpStatus::RemoteNotReady;
                Err(DropReason::NoReceiveLeft)
            }
        }
    }

    //= channels#2.3-all-before-any
    /// Keeps a part of the data until the others are there.
    fn stage(&mut self, part: &Part<'_>, staging: &mut Staging) {
        if self.recorded.staged.is_none() {
            self.recorded.staged = staging.take();
        }
        if let Some(staged) = self.recorded.staged {
            staging.write(staged, part.start, part.payload);
        }
    }

    /// Copies a part of a message into the buffer that is bound to it.
    fn fill(&self, part: &Part<'_>, tables: &mut Tables<'_>) {
        if let Some((queue, receive)) = self.recorded.receive
            && let Some((port, memory)) = tables.regions.queue_mut(queue)
        {
            let offset = port.layout().offset_of(receive) + u64::from(part.start);
            memory.copy_in(offset, part.payload).expect("a message is no longer than a buffer");
        }
    }

    //= channels#2.1-all-or-nothing
    /// Applies the op, all of whose data has come: with `part`, the last. Returns its result, or
    /// `None` if it cannot be applied any longer.
    fn commit(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        staging: &Staging,
        tables: &mut Tables<'_>,
    ) -> Option<u64> {
        match self.mutation {
            Mutation::OrderedWrite { .. } => {
                self.place_ordered(part, staging, tables)?;
                Some(0)
            }
            Mutation::WriteWithImm { ordered, .. } => {
                // Both, or only what needs no event.
                let (queue, _) = self.recorded.receive?;
                tables.regions.queue_mut(queue)?;
                if ordered {
                    self.place_ordered(part, staging, tables)?;
                } else {
                    self.place(part.start, part.payload, tables);
                }
                self.publish(now, self.recorded.immediate, tables)
            }
            Mutation::Send { .. } => self.publish(now, self.recorded.immediate, tables),
            Mutation::Notify => self.publish(now, operand(part.payload, 0), tables),
            //= channels#2.4-one-instruction
            Mutation::CompareSwap { region_offset } => {
                let [expected, new] = [0, 1].map(|index| operand(part.payload, index));
                let memory = &tables.regions.get(self.asked.header.region)?.memory;
                memory.compare_exchange(region_offset, expected, new).ok()
            }
            Mutation::FetchAdd { region_offset } => {
                let memory = &tables.regions.get(self.asked.header.region)?.memory;
                memory.fetch_add(region_offset, operand(part.payload, 0)).ok()
            }
            // They are not recorded.
            Mutation::Write { .. } | Mutation::Rekey => None,
        }
    }

    //= channels#2.3-last-word-last
    /// Copies all of the op's bytes to where they belong, the last word last.
    fn place_ordered(&self, part: &Part<'_>, staging: &Staging, tables: &Tables<'_>) -> Option<()> {
        let (offset, size) = self.mutation.span()?;
        let bytes = match self.recorded.staged {
            Some(staged) => staging.bytes(staged, size),
            None => part.payload,
        };
        let memory = &tables.regions.get(self.asked.header.region)?.memory;
        memory.copy_in_ordered(offset, bytes).ok()
    }

    //= channels#2.2-sender-is-known
    /// Tells the application of the op: the receive that was bound to it is consumed.
    fn publish(&mut self, now: Instant, immediate: u64, tables: &mut Tables<'_>) -> Option<u64> {
        let (queue, receive) = self.recorded.receive?;
        let (port, _) = tables.regions.queue_mut(queue)?;
        let (region_offset, len) = match self.mutation {
            Mutation::WriteWithImm { region_offset, op_size, .. } => (region_offset, op_size),
            Mutation::Send { op_size } => (0, op_size),
            _ => (0, 0),
        };
        //= channels#2.2-applied-by-publishing
        self.recorded.receive = None;
        port.publish(&Event {
            op_type: self.mutation.op_type(),
            receive,
            len: len.into(),
            immediate,
            initiator: self.asked.initiator,
            pid: self.asked.header.pid,
            region: self.asked.header.region,
            region_offset,
            at: now,
        });
        tables.events.note(queue, port);
        Some(0)
    }

    /// The acknowledgement of an op that was applied, and has a result.
    pub(super) fn write_result(
        &self,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> Option<()> {
        let acknowledgement = AcknowledgementWithResult { header: self.asked.header };
        let frame = out.bytes.get_mut(..RESULT_LEN)?;
        let result = frame.get_mut(RESULT_HEADER_LEN..RESULT_HEADER_LEN + WORD_LEN)?;
        result.copy_from_slice(&self.recorded.result.to_be_bytes());
        let iv = &self.solicitation_iv;
        tables.security.write_answer(&self.key, iv, acknowledgement, frame);
        out.hold(self.asked.reply_for(tables, RESULT_LEN));
        Some(())
    }

    //= channels#P13-no-starvation
    /// Gives back what a recorded op has, now that it has ended. If it was not applied, it was not,
    /// and will not be.
    pub(super) fn end_recorded(&mut self, shared: &mut Shared, regions: &mut RegionTable) {
        if let Some((queue, receive)) = self.recorded.receive.take()
            && let Some((port, _)) = regions.queue_mut(queue)
        {
            port.put_back(receive);
        }
        if let Some(staged) = self.recorded.staged.take() {
            shared.staging.put_back(staged);
        }
        if let Some(record) = self.recorded.record.take() {
            shared.records.ended(record);
        }
    }
}

/// Word number `index` of an op's operands. 0 if there is none, which `may_be_cut` has seen to.
fn operand(payload: &[u8], index: usize) -> u64 {
    let (words, _) = payload.as_chunks::<WORD_LEN>();
    words.get(index).map_or(0, |octets| u64::from_be_bytes(*octets))
}

impl PendingWrites {
    /// An initiator knows how an earlier op of its own has ended.
    pub(in crate::nic::responder) fn note_done(&mut self, asker: &Asker, done: Done) {
        self.shared.records.release(asker, done);
    }

    /// A region is no longer registered.
    pub(in crate::nic::responder) fn forget(&mut self, region: RegionId) {
        self.shared.records.forget(region);
    }

    //= channels#2.6-final
    /// Says what became of the op that an authentic request asks about. One that is under way ends
    /// now, and is no longer applied: its data finds no entry.
    pub(in crate::nic::responder) fn settle(
        &mut self,
        asked: &Asked,
        request: &Authentic<SettleRequest>,
        tables: &mut Tables<'_>,
    ) -> (Verdict, u64) {
        let SettleRequest { op_type, name, .. } = **request;
        let known = if name.engine == tables.config.place.engine {
            self.shared.records.ask(&asked.asker(), op_type, &name)
        } else {
            Known::Ended(Verdict::Forgotten, 0)
        };
        let (verdict, result) = match known {
            Known::Ended(verdict, result) => (verdict, result),
            Known::UnderWay(index) => {
                self.end_solicited(index, tables.window);
                self.release(index, tables.regions);
                (Verdict::NotApplied, 0)
            }
        };
        tables.counters.count_settled(verdict);
        (verdict, result)
    }

    /// Ends an op that is solicited or parked, and gives its share of the window back.
    fn end_solicited(&mut self, index: u16, window: &mut SolicitationWindow) {
        let entry = &self.entries[usize::from(index)];
        if entry.state == State::Parked {
            self.unpark(index);
        } else {
            window.refund(Solicitor::Mutation, entry.mutation.op_size());
            self.solicited.remove(&mut self.links, index);
        }
    }
}
