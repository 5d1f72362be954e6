//! How much memory a NIC takes: all of it is allocated when the NIC is made (P5).

use super::{
    Nic,
    initiator::Initiator,
    previous_keys::PreviousKeys,
    region_table::RegionTable,
    responder::{InboundReads, Notices, OutcomeRecords, PendingWrites, Staging, ToldRequests},
    rung_queues::RungQueues,
    security::Security,
    shares::Shares,
};
use crate::{
    backend::BATCH, fair_queue::owners::OwnersQueue, learnt_ports::LearntPorts, tenant::TenantIndex,
};

/// The memory of one table of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMemory {
    /// The table's name: that of the setting that sizes it, if there is one.
    pub table: &'static str,
    /// How many entries it has.
    pub entries: usize,
    /// How many bytes each takes.
    pub entry_len: usize,
}

impl TableMemory {
    /// Bytes of the whole table.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.entries * self.entry_len
    }
}

impl Nic {
    //= 1rma#4.2-no-peer-state
    //= channels#P5-fixed-tables
    /// Returns the memory that the NIC has allocated, table by table. It depends on the settings
    /// alone: not on how many hosts there are, nor on what they do. A region that is registered
    /// brings the memory of its entry with it; a receive queue, its posts and events as well.
    #[must_use]
    pub fn memory(&self) -> [TableMemory; 16] {
        let settings = &self.config.settings;
        let learnt_ports = if self.config.is_alone() { 0 } else { LearntPorts::ENTRIES as u32 };
        let table = |table, entries: u32, entry_len| TableMemory {
            table,
            entries: entries as usize,
            entry_len,
        };
        [
            table("command slots", settings.command_slots, Initiator::ENTRY_LEN),
            table("regions", settings.regions, RegionTable::ENTRY_LEN),
            // One queue for each class of service.
            table("inbound queue", 2 * settings.inbound_queue, InboundReads::ENTRY_LEN),
            table("frames opened or sealed at a time", BATCH as u32, Security::ENTRY_LEN),
            table("pending writes", settings.pending_writes, PendingWrites::ENTRY_LEN),
            table(
                "traces of pending writes",
                PendingWrites::traces(settings.pending_writes),
                PendingWrites::TRACE_LEN,
            ),
            table("staging of ordered ops", settings.pending_writes, Staging::ENTRY_LEN),
            table("outcome records", settings.outcome_records, OutcomeRecords::ENTRY_LEN),
            table(
                "events and records by region",
                settings.regions,
                OutcomeRecords::ROW_LEN + RungQueues::ROW_LEN,
            ),
            table("failure notices", Notices::ENTRIES, Notices::ENTRY_LEN),
            table("requests told of an old key", ToldRequests::PLACES, ToldRequests::PLACE_LEN),
            table("previous keys", PreviousKeys::KEYS, PreviousKeys::ENTRY_LEN),
            table(
                "shares of window and records",
                TenantIndex::COUNT as u32,
                2 * Shares::TENANT_LEN,
            ),
            // For each class of service, of reads and of mutations.
            table("lists of owners", 4, OwnersQueue::HEAP_LEN),
            table("source ports learnt", learnt_ports, LearntPorts::ENTRY_LEN),
            table("what stands for no region", 1, self.regions.decoy().memory.len()),
        ]
    }
}
