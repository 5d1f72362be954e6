//! A portal as the way of a key service to regions of other hosts.

use rma_app::Portal;
use rma_core::{
    command::CommandSlotId,
    crypto::RegionKey,
    gate::{Gate, Identity, Refused},
    grant::Grant,
    op::OpStatus,
    region::{Permissions, RegisteredRegion},
};
use rma_keys::io::keeper::Reach;

use super::error::KeyServerError;
use crate::{engine::EngineKind, host::HostOf};

/// How many regions may be asked at once; others wait for a moment.
const SLOTS: u16 = 16;

/// Octets that are READ to see which key a region goes by.
const PROBE_LEN: u64 = 8;

/// A portal, and where what it READs lands.
#[derive(Debug)]
pub(super) struct OverPortal {
    portal: Portal,
    sink: RegisteredRegion,
    identity: Identity,
}

impl OverPortal {
    pub(super) fn open<P: EngineKind>(host: &HostOf<P>) -> Result<Self, KeyServerError> {
        let portal = host.portal(SLOTS).map_err(Refused::new)?;
        let sink = host.register(PROBE_LEN as usize, Permissions::NONE).map_err(Refused::new)?;
        Ok(Self { portal, sink, identity: host.identity() })
    }
}

impl Reach for OverPortal {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn has_room(&mut self) -> bool {
        self.portal.next_slot().is_some()
    }

    fn issue(&mut self, grant: &Grant, key: Option<RegionKey>) -> Option<CommandSlotId> {
        let issued = match key {
            Some(key) => self.portal.rekey(grant, key),
            None => {
                let len = PROBE_LEN.min(grant.region_len) as u32;
                self.portal.read(grant, 0, &self.sink, 0, len)
            }
        };
        issued.inspect_err(|error| tracing::warn!(%error, "a region is not asked")).ok()
    }

    fn poll(&mut self) -> Option<(CommandSlotId, OpStatus)> {
        self.portal.poll().map(|it| (it.slot, it.status))
    }
}
