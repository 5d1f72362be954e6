//! The memory of hosts whose applications call, and what calls may do to it.
//!
//! Each host has a *target*: bytes that are only read, then an area for each call of each
//! application that may write. Each application has a local region with an area for each of its
//! calls. An area belongs to one call at a time, so what it must hold is known to the byte, but for
//! what ops have tried in vain.

use std::sync::Arc;

use rma_core::{
    addr::Pid,
    crypto::RegionKey,
    executor::Outcome,
    nic::RegionEntry,
    op::Moves,
    region::{Permissions, RegionId, RegisteredRegion},
};
use rma_shm::Region;

use crate::{
    hosts::memory::{nic_tag, register},
    net::{frame::NodeId, sim::Sim},
    prng::Prng,
};

/// Calls of an application at once.
pub(super) const CALLS: u16 = 4;

/// The most that a call transfers, in bytes.
pub(super) const AREA_LEN: usize = 20 << 10;

/// Bytes of a target that are only read.
pub(super) const CONTENT_LEN: usize = 24 << 10;

/// All keys: whose they are matters elsewhere.
const KEY: RegionKey = RegionKey::from_bytes([7; 16]);

/// The process of each application.
pub(super) const PID: Pid = Pid(7);

/// Returns the offset of a call's local area.
pub(super) const fn local_area(slot: usize) -> u64 {
    (slot * AREA_LEN) as u64
}

/// Returns the offset of a call's area in each target.
pub(super) const fn remote_area(application: NodeId, slot: usize) -> u64 {
    (CONTENT_LEN + (application.index() * CALLS as usize + slot) * AREA_LEN) as u64
}

/// Cuts `len` bytes of an area into one to three pieces, by start and length.
pub(super) fn cut(prng: &mut Prng, len: u64) -> Vec<(u64, u64)> {
    let mut cuts = vec![0, len];
    cuts.extend((0..prng.below(3)).map(|_| prng.below(len + 1)));
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect()
}

/// The change that a call makes: an area that holds `before`, to which it brings `data`.
#[derive(Debug)]
pub(super) struct Expected {
    moves: Moves,
    before: Vec<u8>,
    /// By piece: where in the area it goes, and what.
    data: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug)]
pub(super) struct Host {
    target: Arc<Region>,
    /// Its name, for those who have a grant.
    pub(super) target_id: RegionId,
    local: RegisteredRegion,
    /// The expected content of the areas of its own target.
    known: Vec<u8>,
}

fn bytes_of(region: &Region, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.copy_out(offset, &mut bytes).expect("areas lie inside their regions");
    bytes
}

impl Host {
    pub(super) fn new(sim: &mut Sim, node: NodeId, applications: u16, prng: &Prng) -> Self {
        let areas = usize::from(applications) * usize::from(CALLS) * AREA_LEN;
        let mut known = vec![0; CONTENT_LEN + areas];
        prng.fork(0x100 + u64::from(node.0)).fill(&mut known);
        let target = Arc::new(Region::new(known.len()).expect("some hundred KiB"));
        target.copy_in(0, &known).expect("it is as long");
        let memory = Arc::new(Region::new(AREA_LEN * usize::from(CALLS)).expect("some ten KiB"));
        let local = RegisteredRegion::new(RegionId::from_bits(0), memory, nic_tag(node));
        let mut host = Self { target, target_id: RegionId::from_bits(0), local, known };
        host.register(sim, node);
        host
    }

    /// Registers its regions with a NIC that has none. They have the same names and keys each time.
    pub(super) fn register(&mut self, sim: &mut Sim, node: NodeId) {
        let mut register = |memory: &Arc<Region>, permissions, owner| {
            let entry = RegionEntry::new(memory.clone(), &KEY, permissions, owner);
            register(sim, node, entry, memory.clone())
        };
        let permissions = Permissions::READ | Permissions::WRITE;
        self.target_id = register(&self.target, permissions, Pid(1)).id();
        self.local = register(self.local.memory(), Permissions::NONE, PID);
    }

    pub(super) const fn local(&self) -> &RegisteredRegion {
        &self.local
    }

    pub(super) fn target_len(&self) -> u64 {
        self.target.len() as u64
    }

    /// Prepares the memory of a call by application `node` with `target`. `remote` says where in
    /// the target each of `spans`, by start and length in the area, is. Checks that nothing has
    /// changed since the last call.
    pub(super) fn prepare(
        hosts: &mut [Self],
        prng: &mut Prng,
        (node, target): (NodeId, NodeId),
        slot: usize,
        moves: Moves,
        spans: &[(u64, u64)],
        remote: &[u64],
    ) -> Result<Expected, String> {
        let mut fresh = vec![0; AREA_LEN];
        prng.fill(&mut fresh);
        let (area, at) = (local_area(slot), remote_area(node, slot));
        let known = hosts[target.index()].known[at as usize..][..AREA_LEN].to_vec();
        if bytes_of(&hosts[target.index()].target, at, AREA_LEN) != known {
            return Err(format!("{target}: what call {slot} of {node} may write to has changed"));
        }
        hosts[node.index()].local.write(area, &fresh).expect("areas lie inside");
        let piece = |(&(start, len), &remote): (&(u64, u64), &u64)| {
            let data = match moves {
                Moves::Out => fresh[start as usize..][..len as usize].to_vec(),
                Moves::In => {
                    hosts[target.index()].known[remote as usize..][..len as usize].to_vec()
                }
            };
            (start, data)
        };
        let data = spans.iter().zip(remote).map(piece).collect();
        let before = if moves == Moves::Out { known } else { fresh };
        Ok(Expected { moves, before, data })
    }

    /// Checks the memory of a call that has ended.
    pub(super) fn check(
        hosts: &mut [Self],
        (node, target): (NodeId, NodeId),
        slot: usize,
        expected: &Expected,
        outcome: &Outcome,
    ) -> Option<String> {
        let now = match expected.moves {
            Moves::Out => {
                let at = remote_area(node, slot);
                let host = &mut hosts[target.index()];
                let now = bytes_of(&host.target, at, AREA_LEN);
                host.known[at as usize..][..AREA_LEN].copy_from_slice(&now);
                now
            }
            Moves::In => bytes_of(hosts[node.index()].local.memory(), local_area(slot), AREA_LEN),
        };
        // The values that each byte may have: before, and after.
        let (mut low, mut high) = (expected.before.clone(), expected.before.clone());
        for (piece, (start, data)) in expected.data.iter().enumerate() {
            let range = *start as usize..*start as usize + data.len();
            low[range.clone()].copy_from_slice(data);
            high[range].copy_from_slice(data);
            for missing in outcome.missing.iter().filter(|missing| missing.piece == piece) {
                let from = *start as usize + missing.offset as usize;
                let range = from..from + missing.len as usize;
                low[range.clone()].copy_from_slice(&expected.before[range.clone()]);
                if missing.tried.is_none() {
                    high[range.clone()].copy_from_slice(&expected.before[range]);
                }
            }
        }
        let is_wrong = |&at: &usize| now[at] != low[at] && now[at] != high[at];
        (0..AREA_LEN).find(is_wrong).map(|at| format!("byte {at} is neither old nor new"))
    }
}
