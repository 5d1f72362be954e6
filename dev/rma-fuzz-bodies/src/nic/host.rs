//! One host of the fuzz target: what it has registered, and what its memory must hold.

use std::{collections::BTreeMap, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey},
    error::CommandError,
    limits::OP_SIZE_MAX,
    nic::{Nic, NicConfigBuilder, NicPlace, ReceiveLenMax, RegionEntry},
    op::OpType,
    region::{Permissions, RegionId},
    time::Instant,
};
use rma_shm::Region;

use super::recorded::Ends;
use rma_sim::prng::Prng;

pub(super) const PID: Pid = Pid(77);
pub(super) const SOURCE_LEN: u64 = 3 * OP_SIZE_MAX as u64;
pub(super) const SLOTS_MAX: usize = 8;

/// Areas of each host in a target, one for each slot that there can be, or be named.
pub(super) const AREAS: usize = SLOTS_MAX + 1;

/// A command that was taken and has not completed.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) at: Instant,
    pub(super) op_type: OpType,
    pub(super) expected: Expected,
}

/// The expectation behind an OK.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    /// There may be none.
    Failure,
    /// These bytes of the source were read.
    Read { offset: u64, size: u32 },
    /// These bytes of that host's target are all `fill`.
    Written { host: usize, offset: u64, size: u32, fill: u8 },
    /// The target had another key for a while at least.
    Rekeyed,
    /// That host's queue has an event with this immediate.
    Event { host: usize, immediate: u64 },
    /// A ticket was drawn from that host's word.
    Ticket { host: usize },
    /// Anything that such an op may end with.
    Any,
    /// The target says what became of the op with this counter.
    Settled { counter: u64 },
}

pub(super) struct Host {
    pub(super) nic: Nic,
    pub(super) addr: HostAddr,
    /// Others may read it.
    pub(super) source: RegionId,
    /// Nobody may do anything.
    pub(super) sink: RegionId,
    /// Others may write to it and rekey it.
    pub(super) target: RegionId,
    /// The ends that recorded ops are on.
    pub(super) ends: Ends,
    key: RegionKey,
    source_memory: Arc<Region>,
    sink_memory: Arc<Region>,
    target_memory: Arc<Region>,
    pub(super) taken: Vec<Option<Taken>>,
    /// The content of the target's areas when their last op was reported.
    remembered: BTreeMap<u64, Vec<u8>>,
}

/// One of the host's regions.
#[derive(Clone, Copy)]
enum Which {
    Source,
    Sink,
    Target,
}

impl Host {
    pub(super) fn new(
        addr: &str,
        settings: NicConfigBuilder,
        receive_len_max: ReceiveLenMax,
        prng: &mut Prng,
    ) -> Self {
        let addr: HostAddr = addr.parse().expect("an address");
        let counter_start = prng.below(1 << 62);
        let place = NicPlace::at(addr).with(|it| {
            it.counter_start = counter_start;
            it.receive_len_max = receive_len_max;
        });
        let mut nic = Nic::new(settings.build(place).expect("every shape has working settings"));
        let slots = nic.slot_count();
        nic.configure_slots(0..slots as u16, Some(PID));
        let memory = |len: u64| Arc::new(Region::new(len as usize).expect("a few KiB"));
        let source_memory = memory(SOURCE_LEN);
        let mut content = vec![0; SOURCE_LEN as usize];
        Prng::new(1).fill(&mut content);
        source_memory.copy_in(0, &content).expect("the region has that length");
        let mut key = [0; 16];
        prng.fill(&mut key);
        let none = RegionId::from_bits(0);
        let mut host = Self {
            nic,
            addr,
            source: none,
            sink: none,
            target: none,
            ends: Ends::new(),
            key: RegionKey::from_bytes(key),
            source_memory,
            sink_memory: memory(AREAS as u64 * u64::from(OP_SIZE_MAX)),
            target_memory: memory(2 * AREAS as u64 * u64::from(OP_SIZE_MAX)),
            taken: vec![None; slots],
            remembered: BTreeMap::new(),
        };
        host.source = host.register(Which::Source);
        host.sink = host.register(Which::Sink);
        host.target = host.register(Which::Target);
        let others = Pid(PID.0 + 1);
        host.ends.register(&mut host.nic, &host.key, others);
        host
    }

    fn register(&mut self, which: Which) -> RegionId {
        let others = Pid(PID.0 + 1);
        let (memory, permissions, owner) = match which {
            Which::Source => (&self.source_memory, Permissions::READ, others),
            Which::Sink => (&self.sink_memory, Permissions::NONE, PID),
            Which::Target => (&self.target_memory, Permissions::WRITE | Permissions::REKEY, others),
        };
        let entry = RegionEntry::new(memory.clone(), &self.key, permissions, owner);
        let registered = self.nic.regions_mut().register(Box::new(entry));
        registered.map_err(|(error, _)| error).expect("the table has room for all")
    }

    /// Deregisters a region and registers it again, under another name; or rotates the target's
    /// key.
    pub(super) fn renew_region(&mut self, choice: usize) {
        let which = [Which::Source, Which::Sink, Which::Target][(choice & 3) % 3];
        if choice & 4 != 0 {
            let key = RegionKey::from_bytes([choice as u8; 16]);
            self.nic.regions_mut().rekey(self.target, &key).expect("registered");
            return;
        }
        let old = match which {
            Which::Source => self.source,
            Which::Sink => self.sink,
            Which::Target => self.target,
        };
        self.nic.deregister(old).expect("registered");
        let new = self.register(which);
        match which {
            Which::Source => self.source = new,
            Which::Sink => self.sink = new,
            Which::Target => self.target = new,
        }
    }

    /// K_d of one of this host's regions, under the key that it has now.
    pub(super) fn derive(&self, region: RegionId, binding: &KeyBinding) -> DerivedRegionKey {
        self.nic.regions().get(region).expect("registered").key.derive(binding)
    }

    /// Fills the local memory of a free slot with what must be written from there.
    pub(super) fn prepare(&mut self, slot: usize, expected: &Expected) {
        if let Expected::Written { fill, .. } = *expected
            && self.taken.get(slot).is_some_and(Option::is_none)
        {
            let area = [fill; OP_SIZE_MAX as usize];
            let offset = slot as u64 * u64::from(OP_SIZE_MAX);
            self.sink_memory.copy_in(offset, &area).expect("a slot's own part");
        }
    }

    /// Fills the local memory of a slot with what a message has, if the slot is free.
    pub(super) fn fill(&mut self, slot: usize, byte: u8) {
        if self.taken.get(slot).is_some_and(Option::is_none) {
            let area = [byte; OP_SIZE_MAX as usize];
            let offset = slot as u64 * u64::from(OP_SIZE_MAX);
            self.sink_memory.copy_in(offset, &area).expect("a slot's own part");
        }
    }

    pub(super) fn sink_bytes(&self, slot: usize, size: u32) -> Vec<u8> {
        bytes(&self.sink_memory, slot as u64 * u64::from(OP_SIZE_MAX), size)
    }

    pub(super) fn source_bytes(&self, offset: u64, size: u32) -> Vec<u8> {
        bytes(&self.source_memory, offset, size)
    }

    pub(super) fn target_bytes(&self, offset: u64, size: u32) -> Vec<u8> {
        bytes(&self.target_memory, offset, size)
    }

    /// An op on this area of the target has been reported: it does not change any longer.
    pub(super) fn remember_area(&mut self, offset: u64) {
        let now = self.target_bytes(offset, OP_SIZE_MAX);
        self.remembered.insert(offset, now);
    }

    /// An op on this area of the target begins.
    pub(super) fn forget_area(&mut self, offset: u64) {
        if let Some(remembered) = self.remembered.remove(&offset) {
            self.check_area(offset, &remembered);
        }
    }

    /// P2: checks what must not have changed.
    pub(super) fn check_areas(&self) {
        self.remembered.iter().for_each(|(&offset, bytes)| self.check_area(offset, bytes));
    }

    fn check_area(&self, offset: u64, remembered: &[u8]) {
        let unchanged = self.target_bytes(offset, OP_SIZE_MAX) == remembered;
        assert!(unchanged, "an op changed its target after it had been reported");
    }

    pub(super) fn took(&mut self, slot: usize, result: Result<(), CommandError>, taken: Taken) {
        let Some(entry) = self.taken.get_mut(slot) else {
            assert!(matches!(result, Err(CommandError::ForeignSlot { .. })));
            return;
        };
        match result {
            Ok(()) => assert!(entry.replace(taken).is_none(), "a slot has one command"),
            Err(error) => {
                assert!(matches!(error, CommandError::SlotBusy { .. }) && entry.is_some());
            }
        }
    }
}

fn bytes(memory: &Region, offset: u64, size: u32) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    memory.copy_out(offset, &mut bytes).expect("checked by the NIC, or an area");
    bytes
}
