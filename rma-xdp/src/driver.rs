//! The driver: hands out the NIC's finite resources, command slots and regions, and keeps the
//! region keys (1RMA §4.3, "Managing hardware resources").
//!
//! It runs on the application's threads and never touches a frame. Its pools are as large as the
//! NIC's tables: what it hands out, the NIC has room for; what it has not, is a clear error. Who
//! may have how much of them is told in [`crate::driver::tenant`] and decided in `accounts`.

mod accounts;
mod home;
mod pool;
mod slots;
pub(crate) mod tenant;

use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_app::{
    Portal,
    gauges::Executors,
    home::{Home, PortalParts},
    life::Life,
    sleep::Sleep,
};
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    crypto::{KeyBinding, RegionKey},
    error::RegionError,
    grant::Grant,
    nic::RegionEntry,
    op::OpType,
    portal::{Bell, PortalConfig, portal},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
};
use rma_shm::Region;

use crate::{
    driver::tenant::{
        AllocationError, DriverConfig, Tenant, TenantConfig, TenantId, TenantUsage, Usage,
    },
    engine::control::{Answer, ControlPath, Request, Unanswered},
    error::HostError,
};
use accounts::HOST;
pub(crate) use accounts::{Accounts, PoolSizes};
use home::PortalHome;

/// The accounts, shared with those who watch them.
pub(crate) type Books = Arc<Mutex<Accounts>>;

/// What every tenant has, and could have: the host itself first.
pub(crate) fn usages(books: &Books) -> Vec<TenantUsage> {
    books.lock().unwrap_or_else(PoisonError::into_inner).usages().collect()
}

#[derive(Debug)]
pub(crate) struct Driver {
    addresses: LocalAddresses,
    pid: Pid,
    bell: Option<Bell>,
    home: Arc<PortalHome>,
    /// The tenants, and which portals and regions are whose. The keys of the regions are in the
    /// NIC's table alone: a remote Rekey changes them.
    accounts: Books,
    /// Regions that the NIC has though whoever registered them was told of an error: to be
    /// deregistered.
    orphans: Vec<RegionId>,
    /// Tells this host's regions and portals from those of other hosts in this process.
    nic: NicTag,
}

/// The tag of the next host of this process.
static NEXT_TAG: AtomicU64 = AtomicU64::new(1);

impl Driver {
    pub(crate) fn new(
        addresses: LocalAddresses,
        pid: Pid,
        sizes: PoolSizes,
        config: &DriverConfig,
        bell: Option<Bell>,
    ) -> Result<Self, AllocationError> {
        Ok(Self {
            addresses,
            pid,
            bell,
            home: Arc::new(PortalHome::new(sizes.slots)),
            accounts: Arc::new(Mutex::new(Accounts::new(sizes, config, pid)?)),
            orphans: Vec::new(),
            nic: NicTag(NEXT_TAG.fetch_add(1, Relaxed)),
        })
    }

    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) const fn addresses(&self) -> &LocalAddresses {
        &self.addresses
    }

    /// The accounts, to watch them.
    pub(crate) const fn books(&self) -> &Books {
        &self.accounts
    }

    /// The executors over its portals, to watch them.
    pub(crate) fn executors(&self) -> &Executors {
        &self.home.executors
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // Whoever only watches cannot leave them half changed.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its portals tell of themselves to.
    pub(crate) fn home(&self) -> &dyn Home {
        &*self.home
    }

    /// Makes a tenant.
    pub(crate) fn tenant(
        &mut self,
        engine: &mut impl ControlPath,
        config: TenantConfig,
    ) -> Result<Tenant, HostError> {
        self.reclaim(engine)?;
        let TenantConfig { name, pid, priority, quotas } = config;
        let (pid, alive) = (pid.unwrap_or(self.pid), Arc::new(()));
        let id = self.accounts().open(&name, pid, priority, &quotas, Some(alive.clone()))?;
        tracing::debug!(tenant = &*name, id = id.0, %pid, "tenant made");
        Ok(Tenant { id, name, pid, nic: self.nic, _alive: alive })
    }

    /// The account of `tenant`; the host's own if none is named.
    fn account(&self, tenant: Option<&Tenant>) -> Result<TenantId, AllocationError> {
        match tenant {
            None => Ok(HOST),
            Some(tenant) if tenant.nic == self.nic => Ok(tenant.id),
            Some(Tenant { name, .. }) => {
                Err(AllocationError::TenantOfAnotherHost { tenant: name.clone() })
            }
        }
    }

    /// What a tenant has, and could have.
    pub(crate) fn usage(
        &mut self,
        engine: &mut impl ControlPath,
        tenant: Option<&Tenant>,
    ) -> Result<Usage, HostError> {
        let account = self.account(tenant)?;
        self.reclaim(engine)?;
        Ok(self.accounts().usage(account))
    }

    /// Whether `len` bytes could be registered now. Asked before memory is allocated for them.
    pub(crate) fn admits(
        &mut self,
        engine: &mut impl ControlPath,
        tenant: Option<&Tenant>,
        len: usize,
    ) -> Result<(), HostError> {
        self.settle_late(engine)?;
        self.accounts().close_abandoned();
        self.accounts().admit_region(self.account(tenant)?, len as u64)?;
        Ok(())
    }

    /// Registers `memory`, protected by `key`.
    pub(crate) fn register(
        &mut self,
        engine: &mut impl ControlPath,
        tenant: Option<&Tenant>,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        self.settle_late(engine)?;
        self.accounts().close_abandoned();
        let account = self.account(tenant)?;
        let charge = self.accounts().admit_region(account, memory.len() as u64)?;
        let owner = self.accounts().pid(account);
        let entry = RegionEntry::new(memory.clone(), &key, permissions, owner);
        let request = Request::Register(Box::new(entry));
        let Answer::Registered(result) = self.ask(engine, request)? else {
            unreachable!("answers come in the order of the questions")
        };
        let id = result.map_err(|(error, _entry)| error)?;
        self.accounts().registered(id, charge);
        tracing::debug!(region = %id, len = memory.len(), ?permissions, pid = %owner, "region registered");
        Ok(RegisteredRegion::new(id, memory, self.nic))
    }

    /// Takes a region out of the NIC's table. Its memory lives on as long as a handle to it.
    pub(crate) fn deregister(
        &mut self,
        engine: &mut impl ControlPath,
        region: &RegisteredRegion,
    ) -> Result<(), HostError> {
        self.check(region)?;
        let answer = self.ask(engine, Request::Deregister(region.id()))?;
        self.settle(answer);
        tracing::debug!(region = %region.id(), "region deregistered");
        Ok(())
    }

    /// Installs a new region key: the local rotation, past no network (§5.2, §7.3).
    pub(crate) fn rekey(
        &mut self,
        engine: &mut impl ControlPath,
        region: &RegisteredRegion,
        key: RegionKey,
    ) -> Result<(), HostError> {
        self.check(region)?;
        let Answer::Rekeyed(result) = self.ask(engine, Request::Rekey(region.id(), key))? else {
            unreachable!("answers come in the order of the questions")
        };
        result?;
        // Never the key.
        tracing::info!(region = %region.id(), "region rekeyed by its own host");
        Ok(())
    }

    /// Whether this host has registered `region`, and not another host one of the same number.
    fn check(&self, region: &RegisteredRegion) -> Result<(), RegionError> {
        if region.nic() == self.nic && self.accounts().has_region(region.id()) {
            Ok(())
        } else {
            Err(RegionError::NotRegistered { region: region.id() })
        }
    }

    /// K_d and all else that `initiator`'s process `pid` needs for ops of `op_type` on `region`,
    /// under the key that the region has now.
    pub(crate) fn grant(
        &mut self,
        engine: &mut impl ControlPath,
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
        let request = Request::Derive(region.id(), binding);
        let Answer::Derived(key) = self.ask(engine, request)? else {
            unreachable!("answers come in the order of the questions")
        };
        let key = key?;
        tracing::debug!(region = %region.id(), %initiator, %pid, %op_type, "grant made");
        Ok(Grant {
            responder,
            region: region.id(),
            region_len: region.len(),
            initiator,
            pid,
            op_type,
            key,
        })
    }

    /// Allocates `slots` command slots as a portal. Its PID is the tenant's, from now on. `None` if
    /// dropped portals, whose ops are in flight, have slots that may be enough: to be asked again
    /// once the engine has gone on.
    pub(crate) fn portal(
        &mut self,
        engine: &mut impl ControlPath,
        tenant: Option<&Tenant>,
        slots: u16,
    ) -> Result<Option<Portal>, HostError> {
        if slots == 0 {
            return Err(AllocationError::NoSlots.into());
        }
        let account = self.account(tenant)?;
        let unsettled = self.reclaim(engine)?;
        let taken = self.accounts().take_slots(account, slots);
        let range = match taken {
            Ok(range) => range,
            Err(_) if self.accounts().may_have(account, slots, &unsettled) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let life = engine.life();
        let sleep = match life {
            Life::Thread(_) => Some(Sleep::new().map_err(|source| {
                self.accounts().give_slots_back(range.clone());
                HostError::System { what: "creating an eventfd", source }
            })?),
            Life::Inline => None,
        };
        let pid = self.accounts().pid(account);
        tracing::debug!(slots = ?range, %pid, "portal allocated");
        let (rings, mut port) = portal(PortalConfig {
            slots: range,
            pid,
            addresses: self.addresses,
            bell: self.bell.clone(),
            nic: self.nic,
        });
        if let Some(sleep) = &sleep {
            port.set_sleeper(sleep.bell());
        }
        self.ask(engine, Request::Attach(port, pid))?;
        Ok(Some(Portal::new(PortalParts { rings, home: self.home.clone(), life, sleep })))
    }

    /// Takes back the slots of dropped portals, and then the reservations of dropped tenants.
    /// Returns those whose ops are in flight still.
    fn reclaim(&mut self, engine: &mut impl ControlPath) -> Result<Vec<Range<u16>>, HostError> {
        self.settle_late(engine)?;
        let mut unsettled = Vec::new();
        for _ in 0..self.home.retired.len() {
            let Some(slots) = self.home.retired.pop() else { break };
            let answer = self.ask(engine, Request::Detach(slots))?;
            if let Answer::Detached(slots, None) = &answer {
                unsettled.push(slots.clone());
            }
            self.settle(answer);
        }
        self.accounts().close_abandoned();
        Ok(unsettled)
    }

    /// Asks the engine. After an error the books are as if nothing had been asked, or will be once
    /// the engine has answered.
    fn ask(
        &mut self,
        engine: &mut impl ControlPath,
        request: Request,
    ) -> Result<Answer, HostError> {
        if let Err(error) = self.settle_late(engine) {
            self.undo(request);
            return Err(error);
        }
        engine.ask(request).map_err(|Unanswered { error, unseen }| {
            if let Some(request) = unseen {
                self.undo(*request);
            }
            error
        })
    }

    /// Puts into the books what the engine has done for askers that had given up, and has undone
    /// what nobody knows of.
    fn settle_late(&mut self, engine: &mut impl ControlPath) -> Result<(), HostError> {
        if let Some(late) = engine.late_answer()? {
            match late {
                Answer::Registered(Ok(region)) => self.orphans.push(region),
                // Nobody has got a portal for them.
                Answer::Attached(slots) => self.retire(slots),
                late => self.settle(late),
            }
        }
        while let Some(&region) = self.orphans.last() {
            let answer = engine.ask(Request::Deregister(region));
            // If the engine has not seen this, it is an orphan still.
            self.settle(answer.map_err(|unanswered| unanswered.error)?);
        }
        Ok(())
    }

    /// Puts into the books what the engine has taken back.
    fn settle(&mut self, answer: Answer) {
        match answer {
            // The one error is that the NIC does not have it: that was wanted, too.
            Answer::Deregistered(region, entry) => {
                drop(entry);
                self.orphans.retain(|&orphan| orphan != region);
                self.accounts().deregistered(region);
            }
            Answer::Detached(slots, Some(_port)) => {
                tracing::debug!(?slots, "slots of a dropped portal are free again");
                self.accounts().give_slots_back(slots);
            }
            Answer::Detached(slots, None) => self.retire(slots),
            Answer::Registered(_)
            | Answer::Rekeyed(_)
            | Answer::Derived(_)
            | Answer::Attached(_) => {}
        }
    }

    /// The engine has not seen this question, and never will.
    fn undo(&mut self, request: Request) {
        match request {
            Request::Attach(port, _) => self.accounts().give_slots_back(port.slots().clone()),
            Request::Detach(slots) => self.retire(slots),
            Request::Register(_)
            | Request::Deregister(_)
            | Request::Rekey(..)
            | Request::Derive(..) => {}
        }
    }

    /// These slots are to be taken back once their last op has completed.
    fn retire(&self, slots: Range<u16>) {
        self.home.retired.push(slots).expect("there is room for all portals that there can be");
    }
}

#[cfg(test)]
mod tests;
