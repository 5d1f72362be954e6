//! A target's records of the ops that it has solicited, and so the answers due to SETTLEs (not in
//! the paper).
//!
//! A verdict is right or FORGOTTEN. It may be FORGOTTEN of an op that was not applied, as its
//! record is free at once; of one that was applied only if its initiator said that it is done,
//! after the retention, or in another life. Nobody is refused a record while there must be one.

use std::collections::BTreeMap;

use rma_core::{
    addr::{HostAddr, Pid},
    nic::NicConfigBuilder,
    op::OpType,
    outcome::{Done, OpName, Verdict},
    region::RegionId,
    time::Instant,
};

/// For how many timeouts the record of an op is kept that was applied.
const RETENTION: u32 = 4;

/// The host and process that may ask about an op's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) initiator: HostAddr,
    pub(super) pid: Pid,
    pub(super) region: RegionId,
}

/// The verdict that an accepted SETTLE has to be answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueVerdict {
    pub(super) verdict: Verdict,
    /// Whether FORGOTTEN is right as well.
    pub(super) may_be_forgotten: bool,
}

impl DueVerdict {
    pub(super) const FORGOTTEN: Self = Self { verdict: Verdict::Forgotten, may_be_forgotten: true };

    pub(super) fn allows(self, verdict: Verdict) -> bool {
        verdict == self.verdict || self.may_be_forgotten && verdict == Verdict::Forgotten
    }
}

/// One op that was solicited.
#[derive(Debug)]
struct Record {
    name: OpName,
    asker: Asker,
    op_type: OpType,
    solicited_at: Instant,
    /// When it was applied.
    applied_at: Option<Instant>,
    is_done: bool,
}

/// The records of one node in its present life, in the order of solicitation.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Record>);

impl Records {
    pub(super) fn solicited(&mut self, name: OpName, asker: Asker, op_type: OpType, at: Instant) {
        let (applied_at, is_done) = (None, false);
        self.0.push(Record { name, asker, op_type, solicited_at: at, applied_at, is_done });
    }

    pub(super) fn applied(&mut self, name: OpName, at: Instant) {
        if let Some(record) = self.find(name.counter) {
            record.applied_at = Some(at);
        }
    }

    /// Somebody may have said that it knows the end of an op.
    pub(super) fn done(&mut self, asker: &Asker, done: Done) {
        if let Some(record) = self.find(done.counter)
            && record.asker == *asker
        {
            record.is_done = true;
        }
    }

    /// Returns the verdict on an op that is not under way: it has ended, or never was.
    pub(super) fn ask(
        &mut self,
        asker: &Asker,
        (op_type, name): (OpType, OpName),
        now: Instant,
        settings: &NicConfigBuilder,
    ) -> DueVerdict {
        let retention = settings.timing.timeout * RETENTION;
        let Some(record) = self.find(name.counter) else { return DueVerdict::FORGOTTEN };
        if (record.name, &record.asker, record.op_type) != (name, asker, op_type) {
            return DueVerdict::FORGOTTEN;
        }
        match record.applied_at {
            Some(at) => DueVerdict {
                verdict: Verdict::Applied,
                may_be_forgotten: record.is_done || now.since(at) >= retention,
            },
            None => DueVerdict { verdict: Verdict::NotApplied, may_be_forgotten: true },
        }
    }

    /// Whether there may be no record for one more op on `region`.
    pub(super) fn may_lack(
        &self,
        region: Option<RegionId>,
        now: Instant,
        settings: &NicConfigBuilder,
    ) -> bool {
        let all = settings.outcome_records as usize;
        // As long as an op is under way, is kept, and the notice of a refusal waits.
        let longest = settings.timing.timeout * (RETENTION + 2);
        let held = || self.0.iter().rev().take_while(|it| now.since(it.solicited_at) <= longest);
        if self.0.len() < all.div_ceil(2) {
            return false;
        }
        // Records are counted by row, and a row may have had another region before.
        let row = |region: RegionId| region.to_bits() as u16;
        let mut by_row = BTreeMap::new();
        held().for_each(|it| *by_row.entry(row(it.asker.region)).or_insert(0) += 1);
        let of_row = match region {
            Some(region) => by_row.get(&row(region)).copied(),
            None => by_row.values().copied().max(),
        };
        // A row gets none where it has as many as are free.
        of_row.unwrap_or(0) + by_row.values().sum::<usize>() >= all
    }

    fn find(&mut self, counter: u64) -> Option<&mut Record> {
        // Counters ascend but where several blocks of them are reserved.
        self.0.iter_mut().rev().find(|it| it.name.counter == counter)
    }
}
