//! Rows of region tables, whether they are regions or receive queues: their names and keys.

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    nic::RegionEntry,
    op::OpType,
    region::RegionId,
};

use crate::{
    check::violation::Violation,
    net::{frame::NodeId, sim::Sim},
    prng::Prng,
};

/// A K_r that nobody knows but those who are told.
pub(super) fn draw_key(prng: &mut Prng) -> RegionKey {
    let mut key = [0; 16];
    prng.fill(&mut key);
    RegionKey::from_bytes(key)
}

/// Registers a row at the engines of `node`; `entry` is told whether it is for its home.
pub(super) fn register(
    sim: &mut Sim,
    node: NodeId,
    home: usize,
    entry: impl FnMut(bool) -> RegionEntry,
) -> RegionId {
    let registered = sim.register(node, home, entry);
    registered.expect("the table has room for `REGIONS_PER_NODE`")
}

/// The name and the keys of a row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: RegionId,
    pub(super) key_bytes: RegionKey,
    pub(super) key: RegionKeySchedule,
    /// The key before this one, if it had one.
    pub(super) old_key: Option<RegionKeySchedule>,
    /// The key that an op under way installs.
    pub(super) rekeying: Option<RegionKey>,
}

impl Row {
    /// One that is not registered yet.
    pub(super) fn new(prng: &mut Prng) -> Self {
        let key_bytes = draw_key(prng);
        Self {
            id: RegionId::from_bits(0),
            key: RegionKeySchedule::new(&key_bytes),
            key_bytes,
            old_key: None,
            rekeying: None,
        }
    }

    pub(super) fn set_key(&mut self, key: RegionKey) {
        self.key_bytes = key;
        let key = RegionKeySchedule::new(&key);
        self.old_key = Some(core::mem::replace(&mut self.key, key));
    }

    /// Its owner gives it another key.
    pub(super) fn rotate(&mut self, sim: &mut Sim, node: NodeId, key: RegionKey) -> RegionId {
        self.set_key(key);
        sim.rekey(node, self.id, &key).expect("registered when the host started");
        self.id
    }

    /// Checks that the NIC at its home has the key that it must have.
    pub(super) fn check_key(&self, sim: &Sim, node: NodeId) -> Result<(), Violation> {
        let any = HostAddr::from_octets([0; 16]);
        let (initiator, responder) = (any, any);
        let binding = KeyBinding { initiator, responder, pid: Pid(0), op_type: OpType::Read };
        let entry = sim.nic(sim.home_of(node, self.id)).regions().get(self.id);
        let has_it =
            entry.is_some_and(|entry| entry.key.derive(&binding) == self.key.derive(&binding));
        if has_it { Ok(()) } else { Err(Violation::WrongKey { node }) }
    }
}
