//! The tables of this host that are of no connection, which both sides' processing works with.

use rma_core::{addr::HostAddr, tenant::TenantIndex};

use crate::{
    clock::ZTime,
    config::StarConfig,
    counters::StarCounters,
    mr_table::MrTable,
    names::{ConnectionName, PdId, Qpn},
    pd_table::{Pd, PdTable},
    portal::{Report, StarPort},
    portals::Portals,
    verbs::WcStatus,
};
use rma_core::time::Instant;
use rma_crypto::AeadProvider;

/// The tables of this host, lent for the handling of an event.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    pub(crate) config: &'a StarConfig,
    pub(crate) aead: &'static dyn AeadProvider,
    pub(crate) pds: &'a PdTable,
    pub(crate) mrs: &'a MrTable,
    pub(crate) portals: &'a mut Portals,
    pub(crate) counters: &'a StarCounters,
}

impl Tables<'_> {
    /// Reports to the application how the beginning of a connection has ended.
    pub(crate) fn opened(&self, now: Instant, qp: u32, status: WcStatus, key: [u8; 16]) -> Report {
        let valid_micros = self.config.valid_micros() as u32;
        Report::Opened { qp, status, key, clock: z_time(now).0, valid_micros }
    }

    /// The protection domain of a connection of which this host is the stateless side: if there is
    /// one, and its portal is that of the connection's QP.
    pub(crate) fn pd_of(&self, connection: &ConnectionName) -> Option<&Pd> {
        self.pd_of_portal(connection.pd, connection.qpn_z.portal())
    }

    /// The protection domain of that name, if portal number `portal` has it.
    pub(crate) fn pd_of_portal(&self, pd: PdId, portal: u32) -> Option<&Pd> {
        self.pds.get(pd).filter(|pd| u32::from(pd.owner) == portal)
    }

    /// The tenant whose portal has this number; the host's where there is none.
    pub(crate) fn tenant_of(&self, portal: u32) -> TenantIndex {
        self.portals.get(portal).map_or(TenantIndex::HOST, StarPort::tenant)
    }

    /// This host's address that `peer` is spoken to from.
    pub(crate) fn own_address(&self, peer: HostAddr) -> Option<HostAddr> {
        self.config.place.addresses.toward(peer)
    }

    /// The QPN of a QP of this host; `None` if the portal's number or the QP's is out of range.
    pub(crate) fn qpn(portal: u16, qp: u32) -> Option<Qpn> {
        Qpn::new(portal.into(), qp)
    }
}

/// This host's clock, as frames tell it.
pub(crate) const fn z_time(now: Instant) -> ZTime {
    ZTime(now.as_nanos() / 1_000)
}
