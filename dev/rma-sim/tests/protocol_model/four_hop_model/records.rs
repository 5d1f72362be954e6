//! The target's outcome records: what it knows of recorded ops that it has solicited.
//!
//! A record is taken when hop 2 is sent, of those that are free, and is held until its entry ends
//! without having been applied, or, if it was applied, until its initiator has said that it knows,
//! or for the retention. A record that is free again keeps what it knows until it is taken. There
//! is no other way for a record to forget but the end of the process.

use crate::four_hop_model::script::{Flaw, OpId, RECORDS_MAX, Script, SolicitationId};

/// The name by which an op is asked about: hop 2's counter, and the number of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) by: SolicitationId,
    pub(crate) record: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The hop 2 that it was taken for.
    pub(crate) by: SolicitationId,
    /// Its op, which tells who may ask.
    pub(crate) op: OpId,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// An entry waits for data.
    Reserved { index: u8 },
    /// It was applied, and is held.
    Applied { result: u8 },
    /// Free; it was applied.
    Released { result: u8 },
    /// Free; it was not applied, and never will be.
    NotApplied,
}

impl Record {
    const fn is_held(self) -> bool {
        matches!(self.state, State::Reserved { .. } | State::Applied { .. })
    }
}

/// The table. `None` is a record that was never taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Records([Option<Record>; RECORDS_MAX]);

impl Records {
    /// The record that one more op would take: one that was never taken, or else the lowest that is
    /// free, so that one is taken again as soon as can be.
    pub(crate) fn place(&self, script: &Script) -> Option<u8> {
        let records = &self.0[..usize::from(script.records)];
        let fresh = records.iter().position(Option::is_none);
        let free = || records.iter().position(|record| record.is_some_and(|it| !it.is_held()));
        let held = (script.has(Flaw::RecordTakenWhileHeld) && !records.is_empty()).then_some(0);
        fresh.or_else(free).or(held).map(|place| place as u8)
    }

    /// Reserves the record of `name`, which `place` gave, for an entry.
    pub(crate) fn reserve(&mut self, name: Name, op: OpId, index: u8) {
        let record = Record { by: name.by, op, state: State::Reserved { index } };
        self.0[usize::from(name.record)] = Some(record);
    }

    /// Returns the record that `name` names.
    pub(crate) fn find(&self, name: Name) -> Option<Record> {
        self.at(name.record).filter(|record| record.by == name.by)
    }

    /// Returns the content of the record, whatever it was taken for.
    pub(crate) fn at(&self, record: u8) -> Option<Record> {
        self.0[usize::from(record)]
    }

    /// An entry has ended, and this is how.
    pub(crate) fn conclude(&mut self, script: &Script, name: Name, end: State) {
        if let Some(record) = &mut self.0[usize::from(name.record)]
            && (record.by == name.by || script.has(Flaw::CommitIgnoresCounter))
        {
            record.state = end;
        }
    }

    /// An op's initiator knows that it was applied: its record is free.
    pub(crate) fn release(&mut self, name: Name) {
        if let Some(record) = &mut self.0[usize::from(name.record)]
            && let State::Applied { result } = record.state
            && record.by == name.by
        {
            record.state = State::Released { result };
        }
    }

    /// All that know something.
    pub(crate) fn all(&self) -> impl Iterator<Item = Record> {
        self.0.into_iter().flatten()
    }
}
