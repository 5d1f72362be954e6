//! The registered region table, RRT (1RMA §4.3): which memory remote hosts may name, and with which
//! key.
//!
//! Its size is fixed when the NIC starts and does not depend on the number of peers. Every access
//! of the NIC to host memory goes through exactly one entry.

use std::sync::Arc;

use arrayvec::ArrayVec;
use rma_shm::{prefetch_value, region::Region};

use super::{key_rings::KeyRings, previous_keys::PreviousKeys, tenant::Presence};
use crate::{
    addr::{LocalAddresses, Pid},
    backend::BATCH,
    command::CommandSlotId,
    crypto::{AeadProvider, EngineId, RegionKey, RegionKeySchedule, fastest},
    error::RegionError,
    keylog,
    limits::{OP_SIZE_MAX, REGION_LEN_MAX},
    receive_queue::ReceiveQueuePort,
    region::{Permissions, RegionId},
    tenant::TenantIndex,
    wire::Mutation,
};
use rma_crypto::Key;

/// The state of one registered region.
///
/// What a request needs comes first, in as few cache lines as there can be: of many regions each
/// request finds another one, and none of its lines in the cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RegionEntry {
    /// The host memory.
    pub memory: Arc<Region>,
    /// Under which of all the keys that this table has ever held the region is now. What was
    /// authenticated under one revision is not for another.
    pub(super) revision: u64,
    /// The process whose commands may use the region as their local end.
    pub owner: Pid,
    /// The rights of remote hosts.
    pub permissions: Permissions,
    /// The tenant whose share of the tables its ops come from.
    pub tenant: TenantIndex,
    /// The engine of the host that the region is rekeyed at, and that has its receive queue.
    pub(super) home: EngineId,
    /// K_r as it is, to be expanded for whom the table that the region is registered in has its
    /// keys expanded.
    given: Key,
    /// K_r, expanded.
    pub key: RegionKeySchedule,
    /// The kind of region: where its events go, or come from.
    pub(super) kind: RegionKind,
}

//= channels#2.2-row-of-the-region-table
/// The treatment of a row by remote ops.
#[derive(Debug)]
pub(super) enum RegionKind {
    /// Its bytes are read and written. WRITE_WITH_IMM makes events in this receive queue, if there
    /// is one.
    Memory {
        /// The name of the queue.
        events: Option<RegionId>,
    },
    /// A receive queue, whose buffers are its memory.
    ReceiveQueue(Box<ReceiveQueuePort>),
}

/// Bytes of an entry that are asked for early: all but the end of the schedule of a provider that
/// keeps more than the round keys.
const PREFETCHED_LEN: usize = 320;

impl RegionEntry {
    /// An entry for `memory`, protected by `key`.
    #[must_use]
    pub fn new(memory: Arc<Region>, key: &RegionKey, permissions: Permissions, owner: Pid) -> Self {
        let given = Key::from_bytes(*key.expose());
        let key = RegionKeySchedule::new(key);
        let kind = RegionKind::Memory { events: None };
        let tenant = TenantIndex::HOST;
        let home = EngineId::default();
        Self { memory, revision: 0, owner, permissions, tenant, home, given, key, kind }
    }

    /// The same, of this tenant. Of others it is the host's own.
    #[must_use]
    pub const fn of_tenant(mut self, tenant: TenantIndex) -> Self {
        self.tenant = tenant;
        self
    }

    /// The same, with this engine of the host as its home.
    #[must_use]
    pub const fn at_home(mut self, home: EngineId) -> Self {
        self.home = home;
        self
    }

    /// The same, with events in `queue`, a receive queue of the same owner: what WRITE_WITH_IMM
    /// needs. Not of an entry that is a queue itself.
    #[must_use]
    pub fn with_events(mut self, queue: RegionId) -> Self {
        if let RegionKind::Memory { events } = &mut self.kind {
            *events = Some(queue);
        }
        self
    }

    /// An entry for a receive queue, whose buffers lie in `memory`.
    #[must_use]
    pub fn receive_queue(
        port: ReceiveQueuePort,
        memory: Arc<Region>,
        key: &RegionKey,
        permissions: Permissions,
        owner: Pid,
    ) -> Self {
        let kind = RegionKind::ReceiveQueue(Box::new(port));
        Self { kind, ..Self::new(memory, key, permissions, owner) }
    }

    /// Whether it is a receive queue, and this process's.
    fn is_queue_of(&self, owner: Pid) -> bool {
        matches!(self.kind, RegionKind::ReceiveQueue(_)) && self.owner == owner
    }

    //= 1rma#4.3-one-region-per-access
    /// Whether `size` bytes at `offset` lie inside the region.
    pub(super) fn holds(&self, offset: u64, size: u32) -> bool {
        self.memory.holds(offset, size.into())
    }
}

#[derive(Debug)]
struct Row {
    generation: u16,
    entry: Option<Box<RegionEntry>>,
}

/// The registered region table.
//= 1rma#4.3-region-table-fixed
#[derive(Debug)]
pub struct RegionTable {
    rows: Box<[Row]>,
    /// The row that is looked at first for one that is free: the one after the last that was taken,
    /// so that a name is reused late.
    next: usize,
    /// The revision that the last key to come into the table got.
    revision: u64,
    /// The host's addresses, for the key log.
    addresses: LocalAddresses,
    /// The provider that expands the keys of regions into schedules.
    aead: &'static dyn AeadProvider,
    /// The keys that regions had lately.
    previous: PreviousKeys,
    /// The way of new keys to the tables of the host's other engines, and from these.
    rings: Option<KeyRings>,
    /// The decoy for a region that does not exist, so that a request for it takes as long to
    /// refuse.
    decoy: Decoy,
    /// The tenants that have regions, or command slots.
    presence: Presence,
}

/// The number of a Rekey among those of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rekeyed(u64);

impl Rekeyed {
    /// None: what was before any.
    pub(super) const NONE: Self = Self(0);
}

/// A region that nobody can name.
#[derive(Debug)]
pub(super) struct Decoy {
    /// Under which requests are opened that name no region. What is right under it is refused as
    /// well: it is no secret.
    pub(super) key: RegionKeySchedule,
    /// The memory that is fetched into the cache for them.
    pub(super) memory: Region,
}

impl Decoy {
    /// Under which revision its key is. Those of regions begin at 1.
    pub(super) const REVISION: u64 = 0;
    /// As it is.
    pub(super) const KEY: RegionKey = RegionKey::from_bytes([0xd; 16]);

    fn new(aead: &dyn AeadProvider) -> Self {
        let memory = Region::new(OP_SIZE_MAX as usize).expect("a page can be had");
        Self { key: RegionKeySchedule::with(aead, &Self::KEY), memory }
    }
}

/// How much of what a request asks for is fetched before it is known to be authentic, in bytes: no
/// more lines than a processor fetches at a time. A request that asked it to wait would be refused
/// later where there is such a region.
pub(super) const PREFETCH_MAX: usize = 1024;

/// Fetches the beginning of what a request claims to be about; of the decoy, as much where there is
/// no such thing.
#[inline]
pub(super) fn prefetch(region: Option<&RegionEntry>, decoy: &Decoy, offset: u64, size: usize) {
    let size = size.min(PREFETCH_MAX);
    let (memory, offset) = match region.filter(|region| region.holds(offset, size as u32)) {
        Some(region) => (&*region.memory, offset),
        None => (&decoy.memory, 0),
    };
    memory.prefetch(offset, size);
}

impl RegionTable {
    /// Bytes that each entry takes, used or not; when used, that of its entry as well.
    pub(super) const ENTRY_LEN: usize = size_of::<Row>();

    /// A table of `capacity` entries, at most [`crate::limits::REGIONS_MAX`].
    pub(super) fn new(capacity: u32, aead: &'static dyn AeadProvider) -> Self {
        let decoy = Decoy::new(aead);
        Self {
            rows: (0..capacity).map(|_| Row { generation: 0, entry: None }).collect(),
            next: 0,
            revision: 0,
            addresses: LocalAddresses::default(),
            aead,
            previous: PreviousKeys::new(decoy.key.clone()),
            decoy,
            rings: None,
            presence: Presence::NOBODY,
        }
    }

    /// Returns the tenants' presence: who has regions, or command slots.
    pub(super) const fn presence_mut(&mut self) -> &mut Presence {
        &mut self.presence
    }

    /// Whether more than one tenant has regions or command slots of this NIC.
    #[inline]
    pub(super) const fn is_shared(&self) -> bool {
        self.presence.is_shared()
    }

    /// Returns the tenant of `region`; the host's where there is none.
    pub(super) fn tenant_of(&self, region: RegionId) -> TenantIndex {
        self.get(region).map_or(TenantIndex::HOST, |entry| entry.tenant)
    }

    pub(super) const fn decoy(&self) -> &Decoy {
        &self.decoy
    }

    pub(super) const fn previous(&self) -> &PreviousKeys {
        &self.previous
    }

    pub(super) const fn previous_mut(&mut self) -> &mut PreviousKeys {
        &mut self.previous
    }

    /// Registers a region, and names it after a row that is free. For a NIC that is all that its
    /// host has.
    ///
    /// # Errors
    /// If the table is full, the region too long, or the entry does not fit its kind. Then it is
    /// given back.
    pub fn register(
        &mut self,
        entry: Box<RegionEntry>,
    ) -> Result<RegionId, (RegionError, Box<RegionEntry>)> {
        let rows = (self.next..self.rows.len()).chain(0..self.next);
        let mut free = rows.filter(|&index| self.rows[index].entry.is_none());
        let Some(index) = free.next() else {
            return Err((RegionError::TableFull { capacity: self.rows.len() }, entry));
        };
        let name = RegionId::new(index as u16, self.rows[index].generation);
        self.register_as(name, entry)?;
        self.next = (index + 1) % self.rows.len();
        Ok(name)
    }

    /// Registers a region under the name that its host has for it at all its NICs
    /// ([`RegionNames`](crate::region::RegionNames)).
    ///
    /// # Errors
    /// If the name's row is taken or beyond the table, the region too long, or the entry does not
    /// fit its kind. Then it is given back.
    pub fn register_as(
        &mut self,
        name: RegionId,
        mut entry: Box<RegionEntry>,
    ) -> Result<(), (RegionError, Box<RegionEntry>)> {
        let len = entry.memory.len() as u64;
        if len == 0 || len > REGION_LEN_MAX {
            return Err((RegionError::Length { len }, entry));
        }
        if let Err(error) = self.check_kind(&entry) {
            return Err((error, entry));
        }
        let capacity = self.rows.len();
        let row = self.rows.get_mut(name.index()).filter(|row| row.entry.is_none());
        let Some(row) = row else { return Err((RegionError::TableFull { capacity }, entry)) };
        if self.aead.kind() != fastest().kind() {
            let key = RegionKey::from_bytes(*entry.given.expose());
            entry.key = RegionKeySchedule::with(self.aead, &key);
        }
        self.revision += 1;
        keylog::installed(self.addresses, name, &RegionKey::from_bytes(*entry.given.expose()));
        entry.revision = self.revision;
        self.presence.enter(entry.tenant);
        row.generation = name.generation();
        row.entry = Some(entry);
        Ok(())
    }

    /// Whether an entry permits what its kind has, and names a queue of its own owner, if any.
    fn check_kind(&self, entry: &RegionEntry) -> Result<(), RegionError> {
        let RegionEntry { owner, permissions, .. } = *entry;
        match &entry.kind {
            RegionKind::ReceiveQueue(port) => {
                let most = Permissions::SEND | Permissions::NOTIFY | Permissions::REKEY;
                if !most.contains(permissions) {
                    return Err(RegionError::QueuePermissions { permissions });
                }
                let (needed, len) = (port.layout().memory_len(), entry.memory.len());
                if len < needed {
                    return Err(RegionError::QueueMemory { needed, len });
                }
                Ok(())
            }
            RegionKind::Memory { events: None } => Ok(()),
            RegionKind::Memory { events: Some(queue) } => {
                let is_own = self.get(*queue).is_some_and(|it| it.is_queue_of(owner));
                let error = RegionError::NotOwnQueue { queue: *queue, owner };
                if is_own { Ok(()) } else { Err(error) }
            }
        }
    }

    //= channels#2.2-own-queue
    //= channels#P8-own-only
    /// Returns the queue for the events of an op on `region`: the region itself, if it is a receive
    /// queue, or to the queue that it names, if that is there and its owner's.
    pub(super) fn queue_of(&self, region: RegionId, mutation: &Mutation) -> Option<RegionId> {
        let entry = self.get(region)?;
        match (&entry.kind, mutation) {
            (RegionKind::ReceiveQueue(_), Mutation::Send { .. } | Mutation::Notify) => Some(region),
            (RegionKind::Memory { events }, Mutation::WriteWithImm { .. }) => {
                events.filter(|&it| self.get(it).is_some_and(|it| it.is_queue_of(entry.owner)))
            }
            _ => None,
        }
    }

    /// The receive queue that `queue` names, and its memory.
    pub(super) fn queue_mut(
        &mut self,
        queue: RegionId,
    ) -> Option<(&mut ReceiveQueuePort, &Region)> {
        let RegionEntry { kind, memory, .. } = named_mut(&mut self.rows, queue)?;
        match kind {
            RegionKind::ReceiveQueue(port) => Some((port, memory)),
            RegionKind::Memory { .. } => None,
        }
    }

    /// Has events of the receive queue `queue` wake the portal that has `portal`, a command slot,
    /// from now on; without one nobody's. To be called before the slots of a portal that the queue
    /// is bound to become another's.
    ///
    /// # Errors
    /// If no receive queue of that name is registered.
    pub fn bind_queue(
        &mut self,
        queue: RegionId,
        portal: Option<CommandSlotId>,
    ) -> Result<(), RegionError> {
        let (port, _) =
            self.queue_mut(queue).ok_or(RegionError::NotRegistered { region: queue })?;
        port.bind(portal);
        Ok(())
    }

    /// The portal that events of the receive queue `queue` wake, by one of its slots.
    #[must_use]
    pub fn portal_of(&self, queue: RegionId) -> Option<CommandSlotId> {
        match &self.get(queue)?.kind {
            RegionKind::ReceiveQueue(port) => port.portal(),
            RegionKind::Memory { .. } => None,
        }
    }

    /// Takes a region out of the table. Its name will mean nothing until 2^16 later uses of its
    /// row.
    pub(super) fn deregister(&mut self, region: RegionId) -> Result<Box<RegionEntry>, RegionError> {
        let error = RegionError::NotRegistered { region };
        if self.get(region).is_none() {
            return Err(error);
        }
        let row = &mut self.rows[region.index()];
        row.generation = region.next_use().generation();
        let entry = row.entry.take().ok_or(error)?;
        self.presence.leave(entry.tenant);
        Ok(entry)
    }

    /// Installs a new K_r: in one step for the region, and without a trace for all others (§5.2).
    /// Of a host with several engines this is asked of the table at the region's home, and puts the
    /// key on its way to the others.
    ///
    /// From now on nothing that came under the old key is served or applied here; by another
    /// engine, nothing that it fetches from now on.
    ///
    /// # Errors
    /// If no region of that name is registered, or another engine has not taken the keys of earlier
    /// Rekeys, of the region's tenant among them. Then nothing has changed anywhere.
    //= 1rma#5.2-rekey-atomic
    pub fn rekey(&mut self, region: RegionId, key: &RegionKey) -> Result<Rekeyed, RegionError> {
        let tenant = self.get(region).ok_or(RegionError::NotRegistered { region })?.tenant;
        // First, so that no engine is told later than whoever asks for this.
        let put = self.rings.as_mut().map(|rings| rings.put(region, tenant, key));
        let put = put.map(|put| put.ok_or(RegionError::RekeysWait { region })).transpose()?;
        self.install(region, key);
        Ok(put.map_or(Rekeyed::NONE, Rekeyed))
    }

    /// Whether no engine of the host serves or applies under the key from before a Rekey.
    #[inline]
    pub(super) fn is_everywhere(&self, rekeyed: Rekeyed) -> bool {
        // Most ops are no Rekeys, and need not look at the lines that other engines write.
        rekeyed == Rekeyed::NONE
            || self.rings.as_ref().is_none_or(|rings| rings.are_taken(rekeyed.0))
    }

    /// Installs the keys that other engines have put on their way here. To be called between the
    /// fetching of frames and their handling.
    #[inline]
    pub fn take_keys(&mut self) {
        if self.rings.as_ref().is_some_and(KeyRings::have_some) {
            self.take_keys_that_are_there();
        }
    }

    #[cold]
    fn take_keys_that_are_there(&mut self) {
        while let Some((region, key)) = self.rings.as_mut().and_then(KeyRings::take) {
            self.install(region, &key);
        }
    }

    /// Gives `region` this key, if it is registered: another engine's may have gone meanwhile.
    fn install(&mut self, region: RegionId, key: &RegionKey) {
        let Some(entry) = named_mut(&mut self.rows, region) else { return };
        keylog::installed(self.addresses, region, key);
        self.revision += 1;
        entry.given = Key::from_bytes(*key.expose());
        let revision = core::mem::replace(&mut entry.revision, self.revision);
        let new = RegionKeySchedule::with(self.aead, key);
        let old = core::mem::replace(&mut entry.key, new);
        self.previous.push(region, entry.tenant, revision, old);
    }

    /// The table is a host's with these addresses.
    pub(super) const fn set_addresses(&mut self, addresses: LocalAddresses) {
        self.addresses = addresses;
    }

    /// Exchanges keys with the tables of the host's other engines from now on.
    pub fn set_rings(&mut self, rings: KeyRings) {
        self.rings = Some(rings);
    }

    /// Names another engine of the host as the home of `region`, if that is registered. Only once
    /// the one before has ended, and every other engine has taken all keys that it had put: so
    /// there is one order of a region's keys.
    pub fn move_home(&mut self, region: RegionId, home: EngineId) {
        if let Some(entry) = named_mut(&mut self.rows, region) {
            entry.home = home;
        }
    }

    /// The engine that is the home of `region`, where it is registered.
    pub(super) fn home_of(&self, region: RegionId) -> Option<EngineId> {
        self.get(region).map(|entry| entry.home)
    }

    /// The entry that `region` names.
    #[must_use]
    pub fn get(&self, region: RegionId) -> Option<&RegionEntry> {
        let row = self.rows.get(region.index())?;
        let named = RegionId::new(region.index() as u16, row.generation);
        row.entry.as_deref().filter(|_| named == region)
    }

    /// Asks for the cache lines that requests for `named` need, and does not wait for any of them.
    /// Of many regions none is in the cache, and each line says where the next one is: so all first
    /// lines are asked for together, then all second ones.
    ///
    /// Nothing is gained where all requests are for one region: the first of them waits, and the
    /// others find what they need.
    #[inline]
    pub(super) fn prefetch(&self, named: &[RegionId]) {
        if named.windows(2).any(|pair| pair[0] != pair[1]) {
            self.prefetch_several(named);
        }
    }

    #[inline(never)]
    fn prefetch_several(&self, named: &[RegionId]) {
        for row in named.iter().filter_map(|region| self.rows.get(region.index())) {
            prefetch_value(row, size_of::<Row>());
        }
        let mut entries: ArrayVec<&RegionEntry, BATCH> = ArrayVec::new();
        for entry in named.iter().take(BATCH).filter_map(|&region| self.get(region)) {
            prefetch_value(entry, PREFETCHED_LEN);
            entries.push(entry);
        }
        for entry in entries {
            prefetch_value(&*entry.memory, size_of::<Region>());
        }
    }

    /// The entry that `region` names, if it still has the key that it had at `revision`.
    pub(super) fn get_at(&self, region: RegionId, revision: u64) -> Option<&RegionEntry> {
        self.get(region).filter(|entry| entry.revision == revision)
    }
}

fn named_mut(rows: &mut [Row], region: RegionId) -> Option<&mut RegionEntry> {
    let row = rows.get_mut(region.index())?;
    let named = RegionId::new(region.index() as u16, row.generation);
    row.entry.as_deref_mut().filter(|_| named == region)
}

#[cfg(test)]
impl RegionTable {
    /// The receive queues there are.
    pub(super) fn ports(&self) -> impl Iterator<Item = (RegionId, &ReceiveQueuePort)> {
        self.rows.iter().enumerate().filter_map(|(index, row)| {
            let RegionKind::ReceiveQueue(port) = &row.entry.as_ref()?.kind else { return None };
            Some((RegionId::new(index as u16, row.generation), &**port))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(len: usize) -> Box<RegionEntry> {
        let memory = Arc::new(Region::new(len).unwrap());
        let key = RegionKey::from_bytes([0; 16]);
        Box::new(RegionEntry::new(memory, &key, Permissions::READ, Pid(1)))
    }

    //= 1rma#4.3-region-table-fixed
    //= type=test
    #[test]
    fn a_full_table_is_an_error_and_evicts_nothing() {
        let mut table = RegionTable::new(2, fastest());
        let ids = [table.register(entry(1)).unwrap(), table.register(entry(1)).unwrap()];
        let (error, _) = table.register(entry(1)).unwrap_err();
        assert_eq!(error, RegionError::TableFull { capacity: 2 });
        assert!(ids.iter().all(|&id| table.get(id).is_some()));
    }

    #[test]
    fn the_name_of_a_deregistered_region_names_nothing() {
        let mut table = RegionTable::new(1, fastest());
        let old = table.register(entry(1)).unwrap();
        assert!(table.deregister(old).is_ok());
        let new = table.register(entry(1)).unwrap();
        assert_ne!(old, new);
        assert!(table.get(old).is_none());
        assert_eq!(table.deregister(old).unwrap_err(), RegionError::NotRegistered { region: old });
        assert!(table.get(new).is_some());
        assert!(table.get(RegionId::from_bits(u32::MAX)).is_none());
    }

    //= 1rma#5.2-rekey-atomic
    //= type=test
    #[test]
    fn a_rekey_makes_what_came_before_it_old_for_its_region_alone() {
        let mut table = RegionTable::new(3, fastest());
        let [one, other] = [table.register(entry(1)).unwrap(), table.register(entry(1)).unwrap()];
        let before = [one, other].map(|id| table.get(id).unwrap().revision);
        assert_ne!(before[0], before[1]);
        let key = RegionKey::from_bytes([0; 16]);
        table.rekey(one, &key).unwrap();
        assert!(table.get_at(one, before[0]).is_none(), "even if the key is the same");
        assert!(table.get_at(other, before[1]).is_some());
        table.deregister(one).unwrap();
        assert_eq!(table.rekey(one, &key), Err(RegionError::NotRegistered { region: one }));
        let again = table.register(entry(1)).unwrap();
        assert!(table.get(again).unwrap().revision > before[1], "no revision comes twice");
    }

    #[test]
    fn bounds_do_not_overflow() {
        let entry = entry(4096);
        assert!(entry.holds(0, 4096));
        assert!(entry.holds(4095, 1));
        assert!(!entry.holds(4096, 1));
        assert!(!entry.holds(1, 4096));
        assert!(!entry.holds(u64::MAX, 1));
        assert!(!entry.holds(u64::MAX - 4095, 4096));
    }

    #[test]
    fn a_circular_region_holds_twice_its_offsets_and_no_more_than_its_bytes() {
        let memory = Arc::new(Region::circular(64).unwrap());
        let key = RegionKey::from_bytes([0; 16]);
        let entry = RegionEntry::new(memory, &key, Permissions::READ, Pid(1));
        for (offset, size) in [(0, 64), (1, 64), (64, 64), (127, 1), (128, 0)] {
            assert!(entry.holds(offset, size), "{size} at {offset}");
        }
        for (offset, size) in [(0, 65), (1, 128), (65, 64), (128, 1), (u64::MAX, 1)] {
            assert!(!entry.holds(offset, size), "{size} at {offset}");
        }
    }
}
