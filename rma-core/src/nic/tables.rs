//! The tables that both sides of a NIC work with, besides the tables of their own: lent for one
//! event.

use crate::{addr::HostAddr, limits::GRANULE, path_limits::Paths};

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
    pub(super) paths: Option<&'a Paths>,
}

impl Tables<'_> {
    /// The largest payload, in bytes, of one frame from `peer` to `own`, one of the NIC's
    /// addresses, of a kind that has `overhead` octets besides. More than an op has where packets
    /// may be longer than a frame: it tells how long they may be.
    #[inline]
    pub(super) fn payload_len_max(&self, own: HostAddr, peer: HostAddr, overhead: usize) -> u16 {
        let device = self.config.frame_len_max(own);
        let path = self.paths.and_then(|paths| paths.packet_len_max(peer));
        let frame = path.map_or(device, |path| path.min(device));
        let payload = frame.saturating_sub(overhead).max(GRANULE as usize);
        u16::try_from(payload).unwrap_or(u16::MAX)
    }
}
