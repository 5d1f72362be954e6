//! The driver: hands out the NIC's finite resources, command slots and regions, and keeps the region keys
//! (1RMA §4.3, "Managing hardware resources").
//!
//! It runs on the application's threads and never touches a frame. Its pools are as large as the NIC's
//! tables: what it hands out, the NIC has room for; what it has not, is a clear error.

use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crossbeam_queue::ArrayQueue;
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    crypto::{KeyBinding, RegionKey},
    error::{RegionError, SlotError},
    grant::Grant,
    op::OpType,
    portal::{Bell, PortalConfig, PortalPort, portal},
    region::{NicTag, Permissions, RegisteredRegion},
};
use rma_core::{nic::RegionEntry, region::RegionId};
use rma_shm::Region;

use crate::{
    control::{Answer, ControlPath, Life, Request},
    error::HostError,
    portal::{Portal, Retired, Sleep},
};

#[derive(Debug)]
pub(crate) struct Driver {
    addresses: LocalAddresses,
    pid: Pid,
    bell: Option<Bell>,
    slot_count: u16,
    /// Free ranges by their start, never adjacent.
    free: BTreeMap<u16, u16>,
    retired: Retired,
    /// The regions that are registered. Their keys are in the NIC's table alone: a remote Rekey changes them.
    regions: BTreeSet<RegionId>,
    /// Tells this host's regions and portals from those of other hosts in this process.
    nic: NicTag,
}

/// The tag of the next host of this process.
static NEXT_TAG: AtomicU64 = AtomicU64::new(1);

impl Driver {
    pub(crate) fn new(addresses: LocalAddresses, pid: Pid, slots: u32, bell: Option<Bell>) -> Self {
        let slot_count = u16::try_from(slots).expect("checked by the NIC's configuration");
        Self {
            addresses,
            pid,
            bell,
            slot_count,
            free: BTreeMap::from([(0, slot_count)]),
            // One slot each is the most portals there can be.
            retired: Arc::new(ArrayQueue::new(slot_count.into())),
            regions: BTreeSet::new(),
            nic: NicTag(NEXT_TAG.fetch_add(1, Relaxed)),
        }
    }

    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) const fn addresses(&self) -> &LocalAddresses {
        &self.addresses
    }

    /// Whether `portal` is one of this host's.
    pub(crate) fn allocated(&self, portal: &Portal) -> bool {
        portal.is_of(&self.retired)
    }

    /// Registers `memory`, protected by `key`.
    pub(crate) fn register(
        &mut self,
        engine: &mut impl ControlPath,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
    ) -> Result<RegisteredRegion, HostError> {
        let entry = RegionEntry::new(memory.clone(), &key, permissions, self.pid);
        let Answer::Registered(result) = engine.ask(Request::Register(Box::new(entry)))? else {
            unreachable!("answers come in the order of the questions")
        };
        let id = result.map_err(|(error, _entry)| error)?;
        self.regions.insert(id);
        Ok(RegisteredRegion::new(id, memory, self.nic))
    }

    /// Takes a region out of the NIC's table. Its memory lives on as long as a handle to it.
    pub(crate) fn deregister(
        &mut self,
        engine: &mut impl ControlPath,
        region: &RegisteredRegion,
    ) -> Result<(), HostError> {
        self.check(region)?;
        let Answer::Deregistered(result) = engine.ask(Request::Deregister(region.id()))? else {
            unreachable!("answers come in the order of the questions")
        };
        result?;
        self.regions.remove(&region.id());
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
        let Answer::Rekeyed(result) = engine.ask(Request::Rekey(region.id(), key))? else {
            unreachable!("answers come in the order of the questions")
        };
        Ok(result?)
    }

    /// Whether this host has registered `region`, and not another host one of the same number.
    fn check(&self, region: &RegisteredRegion) -> Result<(), RegionError> {
        if region.nic() == self.nic && self.regions.contains(&region.id()) {
            Ok(())
        } else {
            Err(RegionError::NotRegistered { region: region.id() })
        }
    }

    /// K_d and all else that `initiator`'s process `pid` needs for ops of `op_type` on `region`, under the key that
    /// the region has now.
    pub(crate) fn grant(
        &self,
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
        let Answer::Derived(key) = engine.ask(Request::Derive(region.id(), binding))? else {
            unreachable!("answers come in the order of the questions")
        };
        Ok(Grant {
            responder,
            region: region.id(),
            region_len: region.len(),
            initiator,
            pid,
            op_type,
            key: key?,
        })
    }

    /// Allocates `slots` command slots as a portal.
    pub(crate) fn portal(
        &mut self,
        engine: &mut impl ControlPath,
        slots: u16,
    ) -> Result<Portal, HostError> {
        if slots == 0 {
            return Err(SlotError::None.into());
        }
        let life = engine.life();
        let sleep = match life {
            Life::Thread(_) => Some(Sleep::new()?),
            Life::Inline => None,
        };
        let range = loop {
            let settled = self.reclaim(engine)?;
            match self.take(slots) {
                Some(range) => break range,
                None if settled || !engine.wait_for_ops() => {
                    let free = self.free.values().copied().max().unwrap_or(0);
                    let capacity = usize::from(self.slot_count);
                    return Err(SlotError::TableFull { wanted: slots, free, capacity }.into());
                }
                None => {}
            }
        };
        let (portal, mut port) = portal(PortalConfig {
            slots: range,
            pid: self.pid,
            addresses: self.addresses,
            bell: self.bell.clone(),
            nic: self.nic,
        });
        if let Some(sleep) = &sleep {
            port.set_sleeper(sleep.bell());
        }
        let Answer::Attached = engine.ask(Request::Attach(port, self.pid))? else {
            unreachable!("answers come in the order of the questions")
        };
        Ok(Portal::new(portal, self.retired.clone(), life, sleep))
    }

    /// Takes back the slots of dropped portals. Returns whether all of them have settled.
    fn reclaim(&mut self, engine: &mut impl ControlPath) -> Result<bool, HostError> {
        let mut settled = true;
        for _ in 0..self.retired.len() {
            let Some(slots) = self.retired.pop() else { break };
            let Answer::Detached(port) = engine.ask(Request::Detach(slots.clone()))? else {
                unreachable!("answers come in the order of the questions")
            };
            if let Some(port) = port {
                drop::<PortalPort>(port);
                self.give_back(slots);
            } else {
                settled = false;
                self.retired.push(slots).expect("it was in the queue just now");
            }
        }
        Ok(settled)
    }

    /// The first free range that is long enough.
    fn take(&mut self, slots: u16) -> Option<Range<u16>> {
        let (&start, &len) = self.free.iter().find(|&(_, &len)| len >= slots)?;
        self.free.remove(&start);
        if len > slots {
            self.free.insert(start + slots, len - slots);
        }
        Some(start..start + slots)
    }

    fn give_back(&mut self, slots: Range<u16>) {
        let Range { mut start, mut end } = slots;
        if let Some(after) = self.free.remove(&end) {
            end += after;
        }
        if let Some((&before, &len)) = self.free.range(..start).next_back()
            && before + len == start
        {
            start = before;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver() -> Driver {
        let addr: HostAddr = "192.0.2.1".parse().unwrap();
        Driver::new(addr.into(), Pid(1), 10, None)
    }

    #[test]
    fn slots_come_back_in_one_piece_in_whatever_order_they_are_returned() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut driver = driver();
            let ranges = [3, 4, 3].map(|slots| driver.take(slots).unwrap());
            assert_eq!(driver.take(1), None);
            for index in order {
                driver.give_back(ranges[index].clone());
            }
            assert_eq!(driver.take(10), Some(0..10), "{order:?}");
        }
    }
}
