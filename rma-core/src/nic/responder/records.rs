//! Outcome records: what became of the mutations of others that were solicited, for whoever asks
//! later (not in the paper).
//!
//! An initiator that times out after it has sent its data cannot know whether the op was applied.
//! Retrying with the same name would not help, as a bounded table forgets names, and a retry would
//! then be a new op. So the target names the op, and the initiator asks instead of retrying: the
//! name is the solicitation's engine and counter, which never come twice (P4), and the number of
//! the record. A record that was taken for another op has another counter, so the answer is right,
//! or that it was forgotten, and never wrong.
//!
//! A record goes round: free → reserved (hop 2 names it) → applied → free, or → not applied, which
//! is free at once. A free one keeps what it knows until it is taken: the one that was free longest
//! goes first. An applied one is kept for [`RETENTION`] timeouts, or until its initiator says that
//! it knows the end, or its region is deregistered: nobody can ask about it then.
//!
//! The table has a fixed size (P5). Where none is free, the op is refused, and nothing is evicted.
//! Holders of grants who never say that ops are done do not refuse records to the others (P13). The
//! tenants of a host have [`Shares`] of them. A row of the region table whose ops are one
//! initiator's gets none where it has as many as are free: k such rows that always want more have
//! one part of k + 1 each, and the last part is free. With half for each, two rows would have all.
//! Where a row has several initiators, by the lists of [`fair_queue`](crate::fair_queue), it may
//! have three times what is free, and each of them twice what is left of that for the row: so one
//! has half of all records at most, as if it were alone, and whoever has few finds one. Entries of
//! replayed requests hold no more records than there are entries: each has one while it is
//! solicited.

use crate::{
    addr::{HostAddr, Pid},
    error::DropReason,
    fair_queue::{BUCKETS, Bucket},
    index_list::{IndexList, Links},
    nic::{NicConfig, shares::Shares},
    op::OpType,
    outcome::{Done, OpName, Verdict},
    region::RegionId,
    tenant::TenantIndex,
    time::Instant,
};

/// For how many of this host's timeouts the record of an applied op is kept. Two SETTLEs for an
/// initiator with the same timeout; one where its timeout is twice as long, and none where it is
/// three times as long, or longer.
pub(in crate::nic) const RETENTION: u64 = 4;

/// The party that may ask what became of an op: the one that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nic) struct Asker {
    pub(in crate::nic) initiator: HostAddr,
    pub(in crate::nic) pid: Pid,
    pub(in crate::nic) region: RegionId,
}

/// The party that has a record besides its asker, and so counts as having one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The tenant of the region.
    tenant: TenantIndex,
    /// The list of the initiator: below [`BUCKETS`].
    list: u8,
}

impl Holder {
    /// An initiator of `bucket`, and the owner of the region.
    pub(super) const fn new(tenant: TenantIndex, bucket: Bucket) -> Self {
        Self { tenant, list: bucket.index() as u8 }
    }

    const fn list(self) -> usize {
        self.list as usize % BUCKETS
    }
}

/// The state of one recorded op.
struct Record {
    /// The counter of its solicitation. 0 of a record that was never taken: no counter is 0 that
    /// anybody is told of, or nobody asks for it.
    counter: u64,
    asker: Asker,
    holder: Holder,
    op_type: OpType,
    state: State,
    result: u64,
    ended_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was ever known.
    Empty,
    /// Of an op whose entry of the pending-write table this is.
    Reserved(u16),
    /// Kept for its initiator.
    Applied,
    /// As that, and free.
    Released,
    /// Free, and of an op that came to nothing.
    NotApplied,
}

/// For what a record is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    /// The entry of the op.
    pub(super) entry: u16,
    /// The counter of its solicitation.
    pub(super) counter: u64,
    pub(super) asker: Asker,
    pub(super) holder: Holder,
    pub(super) op_type: OpType,
}

/// The index of an entry's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordIndex(u16);

/// The state of an op that somebody asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It is under way, in this entry.
    UnderWay(u16),
    /// It has ended.
    Ended(Verdict, u64),
}

/// How many records are reserved or kept for one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    all: u16,
    /// By the list of the initiator.
    by_list: [u16; BUCKETS],
}

impl Row {
    const NONE: Self = Self { all: 0, by_list: [0; BUCKETS] };

    //= channels#2.5-half-for-an-initiator
    /// Whether `holder` may have one more, where so many are `free`.
    fn admits(&self, holder: Holder, free: usize) -> bool {
        let own = self.by_list[holder.list()];
        2 * usize::from(own) + usize::from(self.all) < 3 * free
    }
}

pub(in crate::nic) struct OutcomeRecords {
    records: Box<[Record]>,
    links: Links,
    /// The one that is free longest first.
    free: IndexList,
    /// Those that are kept, in the order in which their ops ended.
    kept: IndexList,
    /// How many records are reserved or kept for each tenant.
    by_tenant: Shares,
    /// The same by row of the region table.
    by_row: Box<[Row]>,
    /// The number of record 0: those of the pending-write table's entries come before it.
    first_number: u16,
    retention_nanos: u64,
}

impl OutcomeRecords {
    /// Bytes that each record takes.
    pub(in crate::nic) const ENTRY_LEN: usize = size_of::<Record>() + Links::ENTRY_LEN;

    /// Bytes that each row of the region table takes here.
    pub(in crate::nic) const ROW_LEN: usize = size_of::<Row>();

    pub(super) fn new(config: &NicConfig) -> Self {
        let count = config.settings.outcome_records as u16;
        let (mut links, mut free) = (Links::new(count.into()), IndexList::new());
        (0..count).for_each(|index| free.push_back(&mut links, index));
        Self {
            records: (0..count).map(|_| Record::EMPTY).collect(),
            links,
            free,
            kept: IndexList::new(),
            by_tenant: Shares::new(count.into(), config.timeout_nanos),
            by_row: vec![Row::NONE; config.settings.regions as usize].into(),
            first_number: config.first_number() + config.settings.pending_writes as u16,
            retention_nanos: config.timeout_nanos.saturating_mul(RETENTION),
        }
    }

    /// How many records are not free.
    pub(in crate::nic) fn used(&self) -> usize {
        self.records.len() - self.free.len()
    }

    //= channels#2.5-full-is-nack
    /// The record that is taken next, for an op of `holder` on `region`; or why there is none.
    /// `is_shared` if several tenants use this host.
    pub(super) fn next(
        &self,
        region: RegionId,
        holder: Holder,
        is_shared: bool,
    ) -> Result<RecordIndex, DropReason> {
        let record = self.free.front().ok_or(DropReason::OutcomeRecordsFull)?;
        let row = self.by_row.get(region.index());
        if row.is_none_or(|row| !row.admits(holder, self.free.len()))
            || (is_shared && !self.by_tenant.admits(holder.tenant, 1))
        {
            return Err(DropReason::OutcomeRecordShareFull);
        }
        Ok(RecordIndex(record))
    }

    /// Returns the number of `record` in frames.
    pub(super) const fn number(&self, RecordIndex(index): RecordIndex) -> u16 {
        self.first_number + index
    }

    /// Takes the record that is free longest, which [`OutcomeRecords::next`] has named.
    pub(super) fn reserve(
        &mut self,
        Reservation { entry, counter, asker, holder, op_type }: Reservation,
    ) -> Option<RecordIndex> {
        let index = self.free.pop_front(&mut self.links)?;
        let row = &mut self.by_row[asker.region.index()];
        row.all += 1;
        row.by_list[holder.list()] += 1;
        self.by_tenant.take(holder.tenant, 1);
        let state = State::Reserved(entry);
        let ended_at = Instant::ZERO;
        self.records[usize::from(index)] =
            Record { counter, asker, holder, op_type, state, result: 0, ended_at };
        Some(RecordIndex(index))
    }

    //= channels#2.5-applied-is-kept
    /// The op has been applied, with `result`.
    pub(super) fn applied(&mut self, now: Instant, RecordIndex(index): RecordIndex, result: u64) {
        let record = &mut self.records[usize::from(index)];
        record.state = State::Applied;
        record.result = result;
        record.ended_at = now;
        self.kept.push_back(&mut self.links, index);
    }

    //= channels#2.5-not-applied-is-free
    /// The op has ended. If it was not applied before, it was not, and its record is free.
    pub(super) fn ended(&mut self, RecordIndex(index): RecordIndex) {
        if matches!(self.records[usize::from(index)].state, State::Reserved(_)) {
            self.free(index, State::NotApplied);
        }
    }

    //= channels#2.5-done
    /// `asker` knows how an op ended: its record may go, if there is one.
    pub(super) fn release(&mut self, asker: &Asker, Done { counter, number }: Done) {
        let Some(index) = self.index_of(number) else { return };
        let record = &self.records[usize::from(index)];
        if record.state == State::Applied && (record.counter, &record.asker) == (counter, asker) {
            self.kept.remove(&mut self.links, index);
            self.free(index, State::Released);
        }
    }

    //= channels#2.5-deregistered
    /// `region` is no longer registered, so nobody can ask about its ops: frees what is kept for
    /// it. Looks at all records, if there are any for its row.
    pub(super) fn forget(&mut self, region: RegionId) {
        if self.by_row[region.index()].all == 0 {
            return;
        }
        for index in 0..self.records.len() as u16 {
            let Record { asker, state, .. } = &self.records[usize::from(index)];
            if *state == State::Applied && asker.region == region {
                self.kept.remove(&mut self.links, index);
                self.free(index, State::Released);
            }
        }
    }

    /// Frees records that were kept for long enough. Their initiators may ask as long as they are
    /// not taken, so nothing waits for this, but whoever needs one.
    pub(super) fn expire(&mut self, now: Instant) {
        self.by_tenant.note_time(now);
        while let Some(index) = self.kept.front()
            && now.nanos_since(self.records[usize::from(index)].ended_at) >= self.retention_nanos
        {
            self.kept.pop_front(&mut self.links);
            self.free(index, State::Released);
        }
    }

    fn free(&mut self, index: u16, state: State) {
        let record = &mut self.records[usize::from(index)];
        record.state = state;
        let row = &mut self.by_row[record.asker.region.index()];
        row.all -= 1;
        row.by_list[record.holder.list()] -= 1;
        self.by_tenant.give_back(record.holder.tenant, 1);
        self.free.push_back(&mut self.links, index);
    }

    /// The entry of the op that `number` names, if it is under way.
    pub(super) fn entry_of(&self, number: u16) -> Option<u16> {
        match self.records[usize::from(self.index_of(number)?)].state {
            State::Reserved(entry) => Some(entry),
            _ => None,
        }
    }

    //= channels#2.6-forgotten
    /// Returns the state of the op that `asker` calls `name`.
    pub(super) fn ask(&self, asker: &Asker, op_type: OpType, name: &OpName) -> Known {
        let forgotten = Known::Ended(Verdict::Forgotten, 0);
        let Some(index) = self.index_of(name.number) else { return forgotten };
        let record = &self.records[usize::from(index)];
        if (record.counter, &record.asker, record.op_type) != (name.counter, asker, op_type) {
            return forgotten;
        }
        //= channels#2.6-idempotent
        match record.state {
            State::Empty => forgotten,
            State::Reserved(entry) => Known::UnderWay(entry),
            State::Applied | State::Released => Known::Ended(Verdict::Applied, record.result),
            State::NotApplied => Known::Ended(Verdict::NotApplied, 0),
        }
    }

    fn index_of(&self, number: u16) -> Option<u16> {
        let index = number.checked_sub(self.first_number)?;
        (usize::from(index) < self.records.len()).then_some(index)
    }
}

impl Record {
    const EMPTY: Self = Self {
        counter: 0,
        asker: Asker {
            initiator: HostAddr::from_octets([0; 16]),
            pid: Pid(0),
            region: RegionId::from_bits(0),
        },
        holder: Holder::new(TenantIndex::HOST, Bucket::FIRST),
        op_type: OpType::Write,
        state: State::Empty,
        result: 0,
        ended_at: Instant::ZERO,
    };
}

#[cfg(test)]
impl OutcomeRecords {
    /// Checks that each record is in one place, and counted for whom it is. Returns those that are
    /// reserved, by their entries.
    pub(super) fn assert_consistent(&self) -> std::collections::BTreeMap<u16, RecordIndex> {
        let mut by_row = vec![Row::NONE; self.by_row.len()];
        let mut by_tenant = [0; TenantIndex::COUNT];
        let (mut reserved, mut kept) = (std::collections::BTreeMap::new(), 0);
        for (index, record) in self.records.iter().enumerate() {
            match record.state {
                State::Reserved(entry) => {
                    let twice = reserved.insert(entry, RecordIndex(index as u16));
                    assert_eq!(twice, None, "two records of entry {entry}");
                }
                State::Applied => kept += 1,
                State::Empty | State::Released | State::NotApplied => continue,
            }
            let row = &mut by_row[record.asker.region.index()];
            row.all += 1;
            row.by_list[record.holder.list()] += 1;
            by_tenant[record.holder.tenant.index()] += 1;
        }
        assert_eq!(*by_row, *self.by_row);
        assert_eq!(by_tenant, self.by_tenant.by_tenant());
        let half = self.records.len().div_ceil(2) as u16;
        let mut initiators = by_row.iter().flat_map(|row| row.by_list);
        assert!(initiators.all(|used| used <= half));
        assert_eq!(kept, self.kept.len());
        assert_eq!(self.free.len() + kept + reserved.len(), self.records.len());
        reserved
    }
}
