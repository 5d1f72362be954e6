//! The target's work for recorded ops besides the four hops: their records, posts and results, and
//! how SETTLE ends them.

use super::{Entry, Solicitation, Target};
use crate::four_hop_model::{
    receive_queue::Post,
    records::{self, Name},
    script::{Flaw, Kind, Op, OpId, Script, SolicitationId},
};

impl Target {
    /// The entry that data for a solicitation is for: it names that, or a record which knows it.
    pub(super) fn index_of_data(&self, script: &Script, by: SolicitationId) -> Option<u8> {
        let Solicitation { index, record, .. } = self.solicitations[usize::from(by)];
        let Some(record) = record.filter(|_| !script.has(Flaw::CommitIgnoresCounter)) else {
            return Some(index);
        };
        match self.records.at(record)?.state {
            records::State::Reserved { index } => Some(index),
            _ => None,
        }
    }

    /// The first authentic data of an op binds a post, if there is one.
    pub(super) fn bind_post(&mut self, index: u8) -> Post {
        let entry = self.entries[usize::from(index)].as_mut().expect("the caller saw it");
        if entry.post == Post::Unbound {
            entry.post = self.queue.bind();
        }
        let post = entry.post;
        if post == Post::Missing {
            self.note_not_ready();
        }
        post
    }

    /// Authentic data of a recorded op waits for the rest of it.
    pub(super) fn stage(&mut self, index: u8, granule: u8) {
        let entry = self.entries[usize::from(index)].as_mut().expect("the caller saw it");
        entry.arrived |= 1 << granule;
    }

    /// A recorded op changes the word, if it is one that does.
    pub(super) fn commit(&mut self, script: &Script, op: OpId, name: Name) {
        let Op { kind, .. } = script.op(op);
        let before = self.word;
        match kind {
            Kind::FetchAdd => self.word = self.word.wrapping_add(1 << op),
            Kind::CompareSwap { expected, new } if before == expected => self.word = new,
            _ => (),
        }
        let result = if kind.has_result() { before } else { 0 };
        self.solicitations[usize::from(name.by)].result = result;
        self.effects.results[usize::from(op)] = result;
        self.effects.retained[usize::from(op)] = script.timing.retention;
    }

    /// An entry ends as all of it has been applied.
    pub(super) fn complete(&mut self, script: &Script, index: u8) -> Entry {
        let by = self.entry(index).and_then(|entry| entry.solicitation);
        let result = by.map_or(0, |by| self.solicitations[usize::from(by)].result);
        let entry = self.end(script, index, records::State::Applied { result });
        self.queue.consumed += u8::from(entry.post == Post::Bound);
        entry
    }

    /// SETTLE ends an entry that waits for data.
    pub(crate) fn settle(&mut self, script: &Script, index: u8) {
        if script.has(Flaw::SettleLeavesEntry) {
            return;
        }
        let (debited, posted) = (self.debited, self.queue.posted);
        self.remove(script, index);
        if script.has(Flaw::SettledWithoutGivingBack) {
            (self.debited, self.queue.posted) = (debited, posted);
        }
    }

    /// The op has been forgotten, and its initiator still wants to know.
    pub(crate) fn note_forgotten(&mut self, op: OpId, name: Name) {
        if name.by < self.solicited_before {
            return;
        }
        let op = usize::from(op);
        let effects = &mut self.effects;
        effects.forgotten_unapplied |= effects.applied[op] == 0;
        effects.forgotten_too_soon |= effects.applied[op] != 0 && effects.retained[op] != 0;
    }

    /// Whether a record has been held for the retention.
    pub(crate) fn may_expire(&self, record: u8) -> bool {
        self.records.at(record).is_some_and(|record| {
            matches!(record.state, records::State::Applied { .. })
                && self.effects.retained[usize::from(record.op)] == 0
        })
    }

    /// Gives up a record that has been held for the retention.
    pub(crate) fn expire(&mut self, record: u8) {
        let by = self.records.at(record).expect("may_expire was asked").by;
        self.records.release(Name { by, record });
    }

    /// Nobody relies on the record of this op any longer.
    pub(crate) fn let_expire(&mut self, op: OpId) {
        self.effects.retained[usize::from(op)] = 0;
    }

    /// Holds the result that hop 4 of `by` brings against what the op has met.
    pub(crate) fn compare_result(&mut self, op: OpId, by: SolicitationId) {
        let told = self.solicitations[usize::from(by)].result;
        self.effects.wrong_result |= told != self.effects.results[usize::from(op)];
    }

    /// An op finds no post. That is honest only if all are consumed, or held by data.
    pub(super) fn note_not_ready(&mut self) {
        let idle = |entry: &Entry| entry.post == Post::Bound && entry.arrived == 0;
        self.effects.refused_by_replays |= self.entries.iter().flatten().any(idle);
    }
}
