//! One entry of the pending-write table: a mutation of another host, and how its data changes
//! memory.

use super::recorded::Recorded;
use crate::{
    addr::HostAddr,
    backend::{Transmit, TxFrame},
    crypto::{DerivedRegionKey, Iv, RegionKey},
    error::DropReason,
    granules::Granules,
    nic::{region_table::Rekeyed, responder::admission::Asked, tables::Tables},
    op::{ClassOfService, OpStatus},
    time::{Clock, Instant},
    wire::{
        Acknowledgement, Mutation, Solicitation, SolicitedData,
        mutation::{ACKNOWLEDGEMENT_LEN, DATA_OVERHEAD, SOLICITATION_LEN},
    },
};

//= 1rma#5.1-initiator-times-out-last
//= type=deviation
/// The part of the limit that is kept as guard: pauses shorter than this do no harm between clock
/// and copy.
const GUARD_PART: u64 = 8;

/// The part of the limit by which two hosts' clocks may differ in running it off.
const DRIFT_PART: u64 = 64;

/// One entry. Flat, and filled in place, as a command slot is.
pub(super) struct Pending {
    pub(super) state: State,
    pub(super) asked: Asked,
    pub(super) mutation: Mutation,
    /// The largest time for which data may change anything, once it is solicited.
    pub(super) limit_nanos: u64,
    /// Under which key of the region the request was admitted.
    pub(super) revision: u64,
    /// K_d of an op under way.
    pub(super) key: DerivedRegionKey,
    pub(super) arrived_at: Instant,
    /// When hop 2 was sent, or a little earlier.
    pub(super) solicited_at: Instant,
    /// The IV of hop 2, which binds data and acknowledgement to it.
    pub(super) solicitation_iv: Iv,
    /// The data that has come, applied or not.
    pub(super) arrived: Granules,
    /// The status that the acknowledgement will carry.
    pub(super) status: OpStatus,
    /// The number by which the solicitation names the op: this entry, or its record.
    pub(super) number: u16,
    /// The number of a Rekey that has changed its region.
    pub(super) rekeyed: Rekeyed,
    /// The further state of a recorded op.
    pub(super) recorded: Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Waiting,
    Solicited,
    /// Solicited so long ago that its share of the window was given to others.
    Parked,
    /// All data has come, and the acknowledgement waits to be sent.
    Answering,
}

impl Pending {
    /// How many of the limit's nanoseconds data may use: all but the guard.
    const fn deadline_nanos(&self) -> u64 {
        self.limit_nanos - self.limit_nanos / GUARD_PART
    }

    /// After how many nanoseconds the initiator may have given up.
    const fn given_up_nanos(&self) -> u64 {
        self.limit_nanos - self.limit_nanos / DRIFT_PART
    }

    /// Whether `data` from `source` claims to belong here. Its tag decides.
    pub(super) fn is_of(&self, source: HostAddr, data: &SolicitedData) -> bool {
        let (own, its) = (&self.asked.header, &data.header);
        matches!(self.state, State::Solicited | State::Parked)
            && self.number == data.pending
            && self.asked.initiator == source
            && (own.slot, own.generation) == (its.slot, its.generation)
            && (own.pid, own.region, own.class) == (its.pid, its.region, its.class)
    }

    pub(super) fn free() -> Self {
        Self {
            state: State::Free,
            asked: Asked::NONE,
            mutation: Mutation::Rekey,
            limit_nanos: 0,
            revision: 0,
            key: DerivedRegionKey::RESERVED,
            arrived_at: Instant::ZERO,
            solicited_at: Instant::ZERO,
            solicitation_iv: Iv::NONE,
            arrived: Granules::NONE,
            status: OpStatus::Ok,
            number: 0,
            rekeyed: Rekeyed::NONE,
            recorded: Recorded::NONE,
        }
    }

    /// Applies authentic data, if it is in time and its region is as it was when the op was
    /// admitted.
    #[inline]
    pub(super) fn land(
        &mut self,
        clock: &impl Clock,
        start: u32,
        payload: &[u8],
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        self.check_key(tables)?;
        self.change(clock, tables, |entry, _, tables| entry.apply(start, payload, tables))?
    }

    //= channels#P11-rekey
    /// Whether the region is as it was when the op was admitted. If not, the op fails.
    #[inline]
    pub(super) fn check_key(&mut self, tables: &Tables<'_>) -> Result<(), DropReason> {
        if tables.regions.get_at(self.asked.header.region, self.revision).is_none() {
            self.status = OpStatus::RemoteAuthenticationFailure;
            return Err(DropReason::OldKey);
        }
        Ok(())
    }

    //= channels#P2-never-late
    /// Does what changes the target, if it is in time: between two readings of the clock, of which
    /// `what` is told the first.
    #[inline]
    pub(super) fn change<T>(
        &mut self,
        clock: &impl Clock,
        tables: &mut Tables<'_>,
        what: impl FnOnce(&mut Self, Instant, &mut Tables<'_>) -> T,
    ) -> Result<T, DropReason> {
        // The turn's reading may be old by now; this one is not.
        //= 1rma#5.1-timeout-at-both-ends
        let now = clock.now();
        if now.nanos_since(self.solicited_at) >= self.deadline_nanos() {
            return Err(DropReason::DataLate);
        }
        let done = what(self, now, tables);
        if clock.now().nanos_since(self.solicited_at) >= self.given_up_nanos() {
            // Too late to undo, and so to be known.
            tables.counters.late_effects.add(1);
        }
        Ok(done)
    }

    /// Changes what a part of a plain op is to change. The caller has checked that all is as it was
    /// when it was admitted.
    #[inline]
    fn apply(
        &mut self,
        start: u32,
        payload: &[u8],
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        match self.mutation {
            //= 1rma#5.2-rekey
            Mutation::Rekey => {
                if let Ok(key) = payload.try_into() {
                    let region = self.asked.header.region;
                    let rekeyed = tables.regions.rekey(region, &RegionKey::from_bytes(key));
                    // It is registered: that was checked just now.
                    self.rekeyed = rekeyed.map_err(|_waits| DropReason::RekeysWait)?;
                }
            }
            _ => self.place(start, payload, tables),
        }
        Ok(())
    }

    /// Copies a part of the op's bytes to where they belong in the region.
    #[inline]
    pub(super) fn place(&self, start: u32, payload: &[u8], tables: &Tables<'_>) {
        if let Some((region_offset, _)) = self.mutation.span()
            && let Some(entry) = tables.regions.get(self.asked.header.region)
        {
            let offset = region_offset + u64::from(start);
            entry.memory.copy_in(offset, payload).expect("in bounds when it was admitted");
        }
    }

    pub(super) fn write_solicitation(
        &mut self,
        number: u16,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> Option<()> {
        self.number = number;
        let solicitation = Solicitation {
            header: self.asked.header,
            pending: number,
            payload_len_max: tables.payload_len_max(
                self.asked.responder,
                self.asked.initiator,
                DATA_OVERHEAD,
            ),
        };
        let frame = out.bytes.get_mut(..SOLICITATION_LEN)?;
        let request_iv = &self.asked.seal.iv;
        self.solicitation_iv =
            tables.security.write_answer(&self.key, request_iv, solicitation, frame);
        // The initiators decide how many there are, and those that keep the rules wait behind the
        // rest.
        let class = ClassOfService::Latency;
        out.hold(Transmit { class, ..self.asked.reply_for(tables, SOLICITATION_LEN) });
        Some(())
    }

    pub(super) fn write_acknowledgement(
        &self,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> Option<()> {
        if self.mutation.has_result() && self.status == OpStatus::Ok {
            return self.write_result(tables, out);
        }
        let acknowledgement = Acknowledgement { header: self.asked.header, status: self.status };
        let frame = out.bytes.get_mut(..ACKNOWLEDGEMENT_LEN)?;
        let iv = &self.solicitation_iv;
        tables.security.write_answer(&self.key, iv, acknowledgement, frame);
        out.hold(self.asked.reply_for(tables, ACKNOWLEDGEMENT_LEN));
        Some(())
    }
}
