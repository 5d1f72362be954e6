//! The gauges of a NIC: the fill of its window, its queues and its tables.
//!
//! The NIC tells it when asked. An engine asks now and then and puts the answer where other threads
//! can read it; nothing here is done for each frame or op.

use core::{
    ops::AddAssign,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::Nic;
use crate::op::ClassOfService;

/// The fill of a NIC's parts, and their sizes. Pairs are by [`ClassOfService`], in the order of its
/// codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicGauges {
    /// Bytes of the solicitation window.
    pub window: u64,
    /// Bytes of it that are solicited and have not arrived.
    pub window_debited: u64,
    /// Entries of the command slot table.
    pub command_slots: u64,
    /// Those of them without an op, whether a portal has them or not.
    pub free_command_slots: u64,
    /// Ops of this host that have not entered service.
    pub ops_waiting: [u64; 2],
    /// Ops of this host that are in service.
    pub ops_in_service: u64,
    /// The depth of the inbound queue of each class, in requests.
    pub inbound_queue: u64,
    /// Reads of others that were admitted and whose responses are not all sent.
    pub inbound_reads: [u64; 2],
    /// Bytes that these reads still have to be sent.
    pub inbound_read_bytes: [u64; 2],
    /// Entries of the pending-write table.
    pub pending_writes: u64,
    /// Those of them that are in use and not parked.
    pub pending_writes_used: [u64; 2],
    /// Those of them that are parked: their data has not come in time, and their share of the
    /// window was wanted (P13).
    pub pending_writes_parked: u64,
    /// The bytes of these ops: so much may come in addition to `window_debited`.
    pub parked_bytes: u64,
    /// Entries of the table of outcome records.
    pub outcome_records: u64,
    /// Those of them that are of mutations under way, or kept for their initiators.
    pub outcome_records_used: u64,
    /// Buffers in which data of ordered mutations collects that comes in several frames. There is
    /// one for each of `pending_writes`.
    pub staging_used: u64,
    /// How many frames can be sealed with the counter values that are left.
    pub counter_values_left: u64,
}

/// How many numbers that are.
const COUNT: usize = 21;

impl AddAssign for NicGauges {
    /// Adds the fill of two NICs of one host.
    fn add_assign(&mut self, mut other: Self) {
        for (sum, more) in self.numbers().into_iter().zip(other.numbers()) {
            *sum += *more;
        }
    }
}

impl NicGauges {
    const fn numbers(&mut self) -> [&mut u64; COUNT] {
        let Self {
            window,
            window_debited,
            command_slots,
            free_command_slots,
            ops_waiting: [ow0, ow1],
            ops_in_service,
            inbound_queue,
            inbound_reads: [ir0, ir1],
            inbound_read_bytes: [ib0, ib1],
            pending_writes,
            pending_writes_used: [pw0, pw1],
            pending_writes_parked,
            parked_bytes,
            outcome_records,
            outcome_records_used,
            staging_used,
            counter_values_left,
        } = self;
        [
            window,
            window_debited,
            command_slots,
            free_command_slots,
            ow0,
            ow1,
            ops_in_service,
            inbound_queue,
            ir0,
            ir1,
            ib0,
            ib1,
            pending_writes,
            pw0,
            pw1,
            pending_writes_parked,
            parked_bytes,
            outcome_records,
            outcome_records_used,
            staging_used,
            counter_values_left,
        ]
    }
}

/// The gauges as they were when they were last published. Each is whole; they may be of two
/// publications.
#[derive(Debug, Default)]
pub(super) struct GaugeCells([AtomicU64; COUNT]);

impl GaugeCells {
    pub(super) fn store(&self, gauges: &NicGauges) {
        let mut gauges = *gauges;
        for (cell, value) in self.0.iter().zip(gauges.numbers()) {
            cell.store(*value, Relaxed);
        }
    }

    pub(super) fn load(&self) -> NicGauges {
        let mut gauges = NicGauges::default();
        for (cell, value) in self.0.iter().zip(gauges.numbers()) {
            *value = cell.load(Relaxed);
        }
        gauges
    }
}

impl Nic {
    /// Returns the present fill of the NIC.
    #[must_use]
    pub fn gauges(&self) -> NicGauges {
        let Self { config, window, initiator, responder, .. } = self;
        let settings = &config.settings;
        let by_class = |value: &dyn Fn(ClassOfService) -> usize| {
            ClassOfService::ALL.map(|class| value(class) as u64)
        };
        NicGauges {
            window: settings.solicitation_window.into(),
            window_debited: window.debited().into(),
            command_slots: settings.command_slots.into(),
            free_command_slots: initiator.free_slots() as u64,
            ops_waiting: by_class(&|class| initiator.ops_waiting(class)),
            ops_in_service: initiator.ops_in_service() as u64,
            inbound_queue: settings.inbound_queue.into(),
            inbound_reads: by_class(&|class| responder.reads().waiting(class).0),
            inbound_read_bytes: ClassOfService::ALL.map(|class| responder.reads().waiting(class).1),
            pending_writes: settings.pending_writes.into(),
            pending_writes_used: by_class(&|class| responder.writes().used(class)),
            pending_writes_parked: responder.writes().parked() as u64,
            parked_bytes: self.window_parked().into(),
            outcome_records: settings.outcome_records.into(),
            outcome_records_used: responder.writes().records().used() as u64,
            staging_used: responder.writes().staged() as u64,
            counter_values_left: self.counter_values_left(),
        }
    }

    /// Puts [`Nic::gauges`] where readers of [`super::NicCounters`] find them. Some tens of stores:
    /// for an engine's housekeeping, not for every turn.
    pub fn publish_gauges(&self) {
        self.counters.publish(&self.gauges());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_gauges_are_read_as_they_are() {
        let mut gauges = NicGauges::default();
        gauges.numbers().into_iter().zip(1..).for_each(|(value, number)| *value = number);
        let cells = GaugeCells::default();
        assert_eq!(cells.load(), NicGauges::default());
        cells.store(&gauges);
        assert_eq!(cells.load(), gauges);
    }
}
