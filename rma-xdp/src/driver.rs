//! The driver: hands out the finite resources of a host's NICs, command slots and regions, and
//! keeps the region keys (1RMA §4.3, "Managing hardware resources").
//!
//! It runs on the application's threads and never touches a frame. Its pools are as large as the
//! NICs' tables: a NIC has room for all that the driver hands out, and a request for more is a
//! clear error. How much of them each tenant may have is told in [`crate::driver::tenant`] and
//! decided in `accounts`; what it asks engines is in `questions`, and how it reaches them in
//! `control` and `shards`.

pub(crate) mod accounts;
pub(crate) mod control;
mod home;
pub(crate) mod ledger;
pub(crate) mod pool;
pub(crate) mod questions;
pub(crate) mod queues;
pub(crate) mod shards;
mod slots;
pub(crate) mod tenant;

use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use std::sync::Arc;

use rma_app::{
    Portal,
    gauges::Executors,
    home::{Home, PortalParts},
    sleep::Sleep,
};
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    crypto::{EngineId, KeyBinding, RegionKey},
    error::RegionError,
    grant::Grant,
    nic::RegionEntry,
    op::OpType,
    portal::{FlagLender, PortalConfig, portal},
    region::{NicTag, Permissions, RegisteredRegion},
};
use rma_shm::Region;

pub use self::ledger::ReceiveQueues;
pub(crate) use self::{
    accounts::Capacities,
    ledger::{Books, Ledger, receive_queues, usages},
    shards::{Shard, Shards},
};
use self::{
    accounts::{Accounts, HOST},
    control::ControlPath,
    questions::{Attach, Deregister, Derive, Detach, Register, Rekey, TakeKeys},
    shards::under_way,
    tenant::{AllocationError, DriverConfig, Resource, Tenant, TenantConfig, TenantId, Usage},
};
use crate::error::HostError;

#[derive(Debug)]
pub(crate) struct Driver<P> {
    pub(crate) addresses: LocalAddresses,
    pid: Pid,
    pub(crate) shards: Shards<P>,
    pub(crate) ledger: Ledger,
    /// Of the flags of its portals.
    flags: FlagLender,
    /// Tells this host's regions and portals from those of other hosts in this process.
    nic: NicTag,
}

/// The terms on which memory becomes rows of the engines' tables.
struct Rows {
    account: TenantId,
    /// How many bytes the account is charged.
    charged: usize,
    /// The index of the engine that is the region's home. `None`: any.
    home: Option<usize>,
}

/// The tag of the next host of this process.
static NEXT_TAG: AtomicU64 = AtomicU64::new(1);

impl<P> Driver<P> {
    /// A driver for `shards`, of which each has room for so many `capacities`.
    pub(crate) fn new(
        addresses: LocalAddresses,
        pid: Pid,
        shards: Shards<P>,
        capacities: &Capacities,
        config: &DriverConfig,
    ) -> Result<Self, AllocationError> {
        let regions = capacities[Resource::Regions] as u32;
        let accounts = Accounts::new(shards.slots(), capacities, config, pid)?;
        let slots = shards.slots().map(|slots| slots.len()).sum();
        Ok(Self {
            addresses,
            pid,
            shards,
            ledger: Ledger::new(accounts, slots, regions),
            flags: FlagLender::new(),
            nic: NicTag(NEXT_TAG.fetch_add(1, Relaxed)),
        })
    }

    /// The engines.
    pub(crate) const fn shards_mut(&mut self) -> &mut Shards<P> {
        &mut self.shards
    }

    /// The accounts, to watch them.
    pub(crate) const fn books(&self) -> &Books {
        &self.ledger.books
    }

    /// The executors over its portals, to watch them.
    pub(crate) fn executors(&self) -> &Executors {
        &self.ledger.home.executors
    }

    /// Returns the home that its portals report to, and the engines that serve them.
    pub(crate) fn home_and_shards(&mut self) -> (&dyn Home, &mut Shards<P>) {
        (&*self.ledger.home, &mut self.shards)
    }

    /// The account of `tenant`; the host's own if none is named.
    pub(crate) fn account(&self, tenant: Option<&Tenant>) -> Result<TenantId, AllocationError> {
        match tenant {
            None => Ok(HOST),
            Some(tenant) if tenant.nic == self.nic => Ok(tenant.id),
            Some(Tenant { name, .. }) => {
                Err(AllocationError::TenantOfAnotherHost { tenant: name.clone() })
            }
        }
    }

    /// Whether this host has registered `region`, and not another host one of the same number.
    fn check(&self, region: &RegisteredRegion) -> Result<(), RegionError> {
        self.check_for(None, region)
    }

    /// Whether this host has registered `region` for `tenant`, or for anybody if none is named.
    pub(crate) fn check_for(
        &self,
        tenant: Option<&Tenant>,
        region: &RegisteredRegion,
    ) -> Result<(), RegionError> {
        let owner = self.ledger.accounts().owner_of_region(region.id());
        let owner = owner.filter(|_| region.nic() == self.nic).map(|owner| (self.nic, owner));
        if owner.is_some_and(|owner| tenant.is_none_or(|it| (it.nic, it.id) == owner)) {
            Ok(())
        } else {
            Err(RegionError::NotRegistered { region: region.id() })
        }
    }
}

impl<P: ControlPath> Driver<P> {
    /// Has engines say how full their NICs are that only do so when the host's user has them.
    pub(crate) fn publish_gauges(&self) {
        self.shards.0.iter().for_each(|shard| shard.path.publish_gauges());
    }

    /// Takes a turn of all engines, if that is for the host's user to do. Returns whether it was.
    pub(crate) fn go_on(&mut self) -> bool {
        self.shards.paths_mut().map(P::go_on).fold(false, |any, one| any | one)
    }

    /// Makes a tenant.
    pub(crate) fn tenant(&mut self, config: TenantConfig) -> Result<Tenant, HostError> {
        self.reclaim()?;
        let TenantConfig { name, pid, priority, quotas } = config;
        let (pid, alive) = (pid.unwrap_or(self.pid), Arc::new(()));
        let id = self.ledger.accounts().open(&name, pid, priority, &quotas, Some(alive.clone()))?;
        tracing::debug!(tenant = &*name, id = id.0, %pid, "tenant made");
        Ok(Tenant { id, name, pid, nic: self.nic, _alive: alive })
    }

    /// Returns the usage of a tenant, and its limits.
    pub(crate) fn usage(&mut self, tenant: Option<&Tenant>) -> Result<Usage, HostError> {
        let account = self.account(tenant)?;
        self.reclaim()?;
        Ok(self.ledger.accounts().usage(account))
    }

    /// Whether `len` bytes could be registered now. Asked before memory is allocated for them.
    pub(crate) fn admits(&mut self, tenant: Option<&Tenant>, len: usize) -> Result<(), HostError> {
        self.shards.settle_late(&mut self.ledger)?;
        self.ledger.accounts().close_abandoned();
        self.ledger.accounts().admit_region(self.account(tenant)?, len as u64)?;
        Ok(())
    }

    /// Registers `memory`, protected by `key`.
    pub(crate) fn register(
        &mut self,
        tenant: Option<&Tenant>,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.shards.settle_late(&mut self.ledger)?;
        self.ledger.accounts().close_abandoned();
        let account = self.account(tenant)?;
        let charged = memory.len();
        let rows = Rows { account, charged, home: None };
        self.register_rows(rows, memory, permissions, |memory, owner, _| {
            RegionEntry::new(memory, &key, permissions, owner)
        })
    }

    /// Registers `memory` as the row that `row` makes of it, the account's PID and the index of an
    /// engine.
    fn register_rows(
        &mut self,
        Rows { account, charged, home }: Rows,
        memory: Arc<Region>,
        permissions: Permissions,
        mut row: impl FnMut(Arc<Region>, Pid, usize) -> RegionEntry,
    ) -> Result<RegisteredRegion, HostError> {
        let charge = self.ledger.accounts().admit_region(account, charged as u64)?;
        let (owner, index) = self.ledger.accounts().identity(account);
        let mut row = |engine| row(memory.clone(), owner, engine).of_tenant(index);
        // The accounts have admitted no more regions than there are names.
        let full = RegionError::TableFull { capacity: self.ledger.names.count() };
        let id = self.ledger.names.take().ok_or(full)?;
        let any = || self.shards.living_from(id.index() % self.shards.count()).unwrap_or(0);
        let home = home.unwrap_or_else(any);
        let at = EngineId(home as u16);
        let question = |engine| Register(id, Box::new(row(engine).at_home(at)));
        match self.shards.ask_each_before(home, question, &mut self.ledger) {
            Ok(Ok(())) => {}
            Ok(Err((error, _entry))) => {
                // The others may have it: a home refuses more, as it alone has a receive queue.
                self.ledger.services.orphans.push(id);
                return Err(error.into());
            }
            Err(error) => {
                // Some engines may have it, and others not.
                self.ledger.services.orphans.push(id);
                return Err(error);
            }
        }
        self.ledger.accounts().registered(id, charge, home);
        tracing::debug!(region = %id, len = memory.len(), ?permissions, pid = %owner, "region registered");
        Ok(RegisteredRegion::new(id, memory, self.nic))
    }

    /// Takes a region out of the NICs' tables. Its memory lives on as long as a handle to it.
    pub(crate) fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), HostError> {
        self.check(region)?;
        self.shards.settle_late(&mut self.ledger)?;
        if self.check(region).is_ok() {
            match self.shards.ask_each(|_| Deregister(region.id()), &mut self.ledger) {
                Ok(answer) => answer.book(&mut self.ledger),
                Err(error) => {
                    if matches!(error, HostError::EngineStuck { is_under_way: true, .. }) {
                        self.ledger.services.orphans.push(region.id());
                    }
                    return Err(error);
                }
            }
        }
        tracing::debug!(region = %region.id(), "region deregistered");
        Ok(())
    }

    /// Installs a new region key: the local rotation, past no network (§5.2, §7.3).
    pub(crate) fn rekey(
        &mut self,
        region: &RegisteredRegion,
        key: RegionKey,
    ) -> Result<(), HostError> {
        self.check(region)?;
        let home_of = |ledger: &Ledger| ledger.accounts().home_of(region.id());
        let mut home = home_of(&self.ledger);
        if self.shards.living_from(home) != Some(home) {
            self.shards.move_homes(&mut self.ledger)?;
            home = home_of(&self.ledger);
        }
        self.shards.ask_at(home, Rekey(region.id(), key), &mut self.ledger)??;
        // The key is on its way to all: whoever has not taken it yet will, before anything else.
        let others = self.shards.ask_each_but(Some(home), |_| TakeKeys, &mut self.ledger);
        if !matches!(others, Err(HostError::EngineGone)) {
            others.map_err(under_way)?;
        }
        // Never the key.
        tracing::info!(region = %region.id(), "region rekeyed by its own host");
        Ok(())
    }

    /// K_d and all else that `initiator`'s process `pid` needs for ops of `op_type` on `region`,
    /// under the key that the region has now.
    pub(crate) fn grant(
        &mut self,
        region: &RegisteredRegion,
        initiator: HostAddr,
        pid: Pid,
        op_type: OpType,
    ) -> Result<Grant, HostError> {
        self.check(region)?;
        let responder = self
            .addresses
            .toward(initiator)
            .ok_or(HostError::NoAddressOfFamily { version: initiator.version() })?;
        let binding = KeyBinding { initiator, responder, pid, op_type };
        let key = self.shards.ask_any(Derive(region.id(), binding), &mut self.ledger)??;
        let longest_message = self.ledger.accounts().buffer_len(region.id());
        tracing::debug!(region = %region.id(), %initiator, %pid, %op_type, "grant made");
        Ok(Grant {
            responder,
            region: region.id(),
            region_len: longest_message.unwrap_or(region.reach()),
            initiator,
            pid,
            op_type,
            key,
        }
        .logged())
    }

    /// Allocates `slots` command slots as a portal, of `engine` if one is asked for. Its PID is the
    /// tenant's, from now on. `None` if dropped portals, whose ops are in flight, have slots that
    /// may be enough: to be asked again once the engine has gone on.
    pub(crate) fn portal(
        &mut self,
        tenant: Option<&Tenant>,
        slots: u16,
        engine: Option<usize>,
    ) -> Result<Option<Portal>, HostError> {
        if slots == 0 {
            return Err(AllocationError::NoSlots.into());
        }
        let engines = self.shards.count();
        if let Some(engine) = engine.filter(|&it| it >= engines) {
            return Err(AllocationError::NoSuchEngine { engine, engines }.into());
        }
        let account = self.account(tenant)?;
        let mut unsettled = self.reclaim()?;
        let index_of = |slot| self.shards.index_of(&(slot..slot));
        let is_asked_for = |slot| engine.is_none_or(|it| index_of(slot) == it);
        // An engine that stands still has no portal more, as long as others have room.
        let takes_questions = |slot| self.shards.takes_questions(index_of(slot));
        let mut accounts = self.ledger.accounts();
        let taken =
            accounts.take_slots(account, slots, |it| is_asked_for(it) && takes_questions(it));
        let taken = taken.or_else(|_| accounts.take_slots(account, slots, is_asked_for));
        unsettled.retain(|slots| is_asked_for(slots.start));
        let range = match taken {
            Ok(range) => range,
            Err(_) if accounts.may_have(account, slots, &unsettled) => return Ok(None),
            Err(AllocationError::Fragmented { tenant, .. }) if let Some(engine) = engine => {
                let free = accounts.longest_slots(account, is_asked_for);
                let (wanted, all) = (slots, self.shards.slots_at(engine).len() as u16);
                let full = AllocationError::EngineFull { engine, tenant, wanted, free, slots: all };
                return Err(full.into());
            }
            Err(error) => return Err(error.into()),
        };
        drop(accounts);
        let (life, bell) = self.shards.engine_of(&range);
        let sleep = if life.is_inline() {
            None
        } else {
            Some(Sleep::new().map_err(|source| {
                self.ledger.accounts().give_slots_back(range.clone());
                HostError::System { what: "creating an eventfd", source }
            })?)
        };
        let (pid, tenant) = self.ledger.accounts().identity(account);
        tracing::debug!(slots = ?range, %pid, "portal allocated");
        let (rings, mut port) = portal(PortalConfig {
            slots: range,
            pid,
            addresses: self.addresses,
            bell,
            flag: Some(self.flags.lend()),
            nic: self.nic,
        });
        if let Some(sleep) = &sleep {
            port.set_sleeper(sleep.bell());
        }
        self.shards.ask_one(Attach { port, pid, tenant }, &mut self.ledger)?;
        let home = self.ledger.home.clone();
        Ok(Some(Portal::new(PortalParts { rings, home, life, sleep })))
    }

    /// Takes back the slots of dropped portals, then portals of other services, then the
    /// reservations of dropped tenants. Returns the slots whose ops are in flight still.
    pub(crate) fn reclaim(&mut self) -> Result<Vec<Range<u16>>, HostError> {
        self.shards.settle_late(&mut self.ledger)?;
        let mut unsettled = Vec::new();
        for _ in 0..self.ledger.home.retired.len() {
            let Some(slots) = self.ledger.home.retired.pop() else { break };
            if !self.shards.takes_questions(self.shards.index_of(&slots)) {
                // Not worth waiting for: it may never take one again.
                self.ledger.retire(slots);
                continue;
            }
            let queues = self.ledger.accounts().queues_of(&slots);
            let answer = self.shards.ask_one(Detach { slots, queues }, &mut self.ledger)?;
            if answer.port.is_none() {
                unsettled.push(answer.slots.clone());
            }
            answer.book(&mut self.ledger);
        }
        self.reclaim_tagged()?;
        self.ledger.accounts().close_abandoned();
        Ok(unsettled)
    }

    /// Takes back dropped portals of services besides 1RMA, as far as nothing of them is under way
    /// and their engines take questions. Returns whether there was any to take back.
    pub(crate) fn reclaim_tagged(&mut self) -> Result<bool, HostError> {
        let mut was_asked = false;
        for _ in 0..self.ledger.home.retired_tags.len() {
            let Some(tag) = self.ledger.home.retired_tags.pop() else { break };
            was_asked |= self.take_back(tag)?;
        }
        Ok(was_asked)
    }
}

#[cfg(test)]
mod tests;
