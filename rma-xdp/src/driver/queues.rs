//! Receive queues: rows of the region table whose rings the driver makes.
//!
//! A queue is one engine's, its home: its rings have one producer and one consumer. That is the
//! engine of the portal that its events wake, or one of those that serve the fewest queues. Other
//! engines have a row of the same name that permits nothing, as each engine has a row for each
//! region: they hand over what comes to them for the queue.
//!
//! The portal may go before the queue. Then the queue stays as it is, and its events wake nobody:
//! the engine is told so before the portal's slots can be another's.

use std::sync::Arc;

use rma_app::Portal;
use rma_core::{
    command::CommandSlotId,
    crypto::RegionKey,
    error::RegionError,
    nic::RegionEntry,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

use super::{
    Driver, Rows,
    accounts::QueueAccount,
    control::ControlPath,
    tenant::{AllocationError, Tenant, TenantId},
};
use crate::error::HostError;

/// The parts of a receive queue.
#[derive(Debug)]
pub(crate) struct QueueParts {
    pub(crate) layout: ReceiveQueueLayout,
    /// For the buffers.
    pub(crate) memory: Arc<Region>,
    pub(crate) key: RegionKey,
    pub(crate) permissions: Permissions,
}

/// How many registered bytes a queue counts as: its buffers, and the rings of posts and events.
pub(crate) const fn charged_len(layout: ReceiveQueueLayout) -> usize {
    layout.memory_len() + ReceiveQueueMemory::footprint(layout)
}

impl<P: ControlPath> Driver<P> {
    /// Registers a receive queue, whose events wake `portal`.
    pub(crate) fn receive_queue(
        &mut self,
        tenant: Option<&Tenant>,
        portal: Option<&Portal>,
        parts: QueueParts,
    ) -> Result<ReceiveQueue, HostError> {
        self.shards.settle_late(&mut self.ledger)?;
        self.ledger.accounts().close_abandoned();
        let account = self.account(tenant)?;
        let slots = portal.map(Portal::slots);
        if let Some(portal) = portal {
            self.check_portal(portal, account)?;
        }
        let QueueParts { layout, memory, key, permissions } = parts;
        let rings = ReceiveQueueMemory::heap(layout);
        let home = slots.map(|slots| self.shards.index_of(slots));
        let home = home.unwrap_or_else(|| self.emptiest());
        let first = slots.map(|slots| slots.start);
        let rows = Rows { account, charged: charged_len(layout), home: Some(home) };
        let region = self.register_rows(rows, memory, permissions, |memory, owner, engine| {
            if engine == home {
                let port = rings.clone().into_port(first.map(CommandSlotId));
                RegionEntry::receive_queue(port, memory, &key, permissions, owner)
            } else {
                RegionEntry::new(memory, &key, permissions, owner)
            }
        })?;
        let queue = QueueAccount { engine: home, portal: first, memory: rings.clone() };
        self.ledger.accounts().registered_queue(region.id(), queue);
        tracing::debug!(queue = %region.id(), ?layout, portal = ?slots, "receive queue registered");
        Ok(rings.into_application(region))
    }

    /// Registers `memory` with events in `queue`, for whom the queue is for. A tenant has queues of
    /// its own alone.
    pub(crate) fn register_with_events(
        &mut self,
        tenant: Option<&Tenant>,
        queue: &RegisteredRegion,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.shards.settle_late(&mut self.ledger)?;
        self.ledger.accounts().close_abandoned();
        let (home, account) = self.queue(queue)?;
        if tenant.is_some() && self.account(tenant)? != account {
            return Err(RegionError::NotRegistered { region: queue.id() }.into());
        }
        let rows = Rows { account, charged: memory.len(), home: Some(home) };
        self.register_rows(rows, memory, permissions, |memory, owner, engine| {
            let entry = RegionEntry::new(memory, &key, permissions, owner);
            if engine == home { entry.with_events(queue.id()) } else { entry }
        })
    }

    /// Whether `len` bytes could be registered now for whom `queue` is for.
    pub(crate) fn admits_beside(
        &mut self,
        queue: &RegisteredRegion,
        len: usize,
    ) -> Result<(), HostError> {
        self.shards.settle_late(&mut self.ledger)?;
        self.ledger.accounts().close_abandoned();
        let (_, account) = self.queue(queue)?;
        self.ledger.accounts().admit_region(account, len as u64)?;
        Ok(())
    }

    /// The engine that serves the fewest queues, of those that take questions.
    fn emptiest(&self) -> usize {
        let counts = self.ledger.accounts().queues_by_engine(self.shards.count());
        let engines = (0..counts.len()).filter(|&it| self.shards.takes_questions(it));
        engines.min_by_key(|&it| counts[it]).unwrap_or(0)
    }

    /// The engine that serves a queue of this host, and whose it is.
    fn queue(&self, queue: &RegisteredRegion) -> Result<(usize, TenantId), HostError> {
        self.check(queue)?;
        let region = queue.id();
        let accounts = self.ledger.accounts();
        let (queue, tenant) =
            accounts.queue(region).ok_or(RegionError::NotRegistered { region })?;
        Ok((queue.engine, tenant))
    }

    /// Whether events of a queue of `account` may wake `portal`.
    fn check_portal(&self, portal: &Portal, account: TenantId) -> Result<(), AllocationError> {
        let is_own = portal.is_of(&*self.ledger.home)
            && self.ledger.accounts().owner_of(portal.slots()) == Some(account);
        if is_own { Ok(()) } else { Err(AllocationError::PortalOfAnother) }
    }
}
