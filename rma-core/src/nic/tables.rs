//! What both sides of a NIC work with, besides the tables of their own: lent for one event.

use super::{
    NicConfig, NicCounters, RegionTable, rung_queues::RungQueues, security::Security,
    solicitation_window::SolicitationWindow,
};

/// The tables that initiator and responder share.
pub(super) struct Tables<'a> {
    pub(super) security: &'a mut Security,
    pub(super) regions: &'a mut RegionTable,
    pub(super) window: &'a mut SolicitationWindow,
    pub(super) events: &'a mut RungQueues,
    pub(super) counters: &'a NicCounters,
    pub(super) config: &'a NicConfig,
}
