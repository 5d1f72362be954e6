//! The consistency of the pending-write table and of all that its entries have, whatever has come:
//! for tests, which ask after each step.

use super::{PendingWrites, State};
use crate::{fair_queue::owners::OwnersQueue, receive_queue::Receive, region::RegionId};

impl PendingWrites {
    /// How many entries are not free.
    pub(in crate::nic) fn entries_used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// How many ops are solicited or parked whose targets record them.
    pub(in crate::nic) fn recorded_under_way(&self) -> usize {
        self.entries.iter().filter(|it| it.recorded.record.is_some()).count()
    }

    /// Checks that nothing is lost and nothing is there twice. Returns the receives that are bound
    /// to ops, and the bytes of the window that ops hold.
    pub(in crate::nic) fn assert_consistent(&self) -> (Vec<(RegionId, Receive)>, u32) {
        let count = |state| self.entries.iter().filter(|it| it.state == state).count();
        let waiting: usize = self.waiting.iter().map(OwnersQueue::len).sum();
        assert_eq!(count(State::Free), self.free.len());
        assert_eq!(count(State::Waiting), waiting);
        assert_eq!(count(State::Solicited), self.solicited.len());
        assert_eq!(count(State::Parked), self.parked.len());
        assert_eq!(count(State::Answering), self.answering.len() + self.installing.len());
        let in_use = self.entries.iter().filter(|it| !matches!(it.state, State::Free));
        let counted = in_use.filter(|it| it.state != State::Parked).count();
        assert_eq!(counted, self.used.iter().sum::<usize>(), "by class");
        let bytes = |state| {
            let of_state = self.entries.iter().filter(move |it| it.state == state);
            of_state.map(|it| it.mutation.op_size()).sum::<u32>()
        };
        assert_eq!(bytes(State::Parked), self.parked_bytes);
        let (mut bound, mut staged) = (Vec::new(), 0);
        let mut reserved = self.shared.records.assert_consistent();
        for (index, entry) in self.entries.iter().enumerate() {
            let recorded = &entry.recorded;
            let is_under_way = matches!(entry.state, State::Solicited | State::Parked);
            let has_record = is_under_way && entry.mutation.is_recorded();
            assert_eq!(recorded.record.is_some(), has_record, "{index}: {:?}", entry.state);
            assert_eq!(reserved.remove(&(index as u16)), recorded.record, "{index}");
            assert!(has_record || (recorded.receive.is_none() && recorded.staged.is_none()));
            bound.extend(recorded.receive);
            staged += usize::from(recorded.staged.is_some());
        }
        assert!(reserved.is_empty(), "records without an entry: {reserved:?}");
        assert_eq!(self.shared.staging.free_buffers() + staged, self.entries.len());
        (bound, bytes(State::Solicited))
    }
}
