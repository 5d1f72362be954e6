//! What software does: regions with random contents, and random reads of them, right and wrong.

use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    command::{Command, CommandSlotId},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule},
    error::DropReason,
    limits::OP_SIZE_MAX,
    nic::RegionEntry,
    op::{ClassOfService, OpStatus, OpType},
    region::{Permissions, RegionId},
};
use rma_shm::Region;

use crate::{
    node::NodeId,
    oracle::{Area, first_difference},
    prng::{Chance, Prng},
    sim::Sim,
    violation::Violation,
};

/// Bytes of local memory for each slot: room for a whole op at any alignment, with a margin.
const AREA_LEN: usize = OP_SIZE_MAX as usize + 128;

/// Regions that each node registers: what a table must have room for.
pub(crate) const REGIONS_PER_NODE: u32 = READABLE as u32 + 1 + PIDS as u32;

const READABLE: usize = 2;
const PIDS: usize = 2;

/// A region that others read, or may not.
#[derive(Debug)]
struct Source {
    id: RegionId,
    key: RegionKeySchedule,
    memory: Arc<Region>,
    content: Arc<[u8]>,
}

#[derive(Debug)]
struct Host {
    /// What its software does next.
    prng: Prng,
    /// How often it has started.
    life: u32,
    /// Where its keys and the contents of its regions come from.
    contents: u64,
    readable: [Source; READABLE],
    /// Registered, without permission to read.
    forbidden: Source,
    /// The name of a region that was deregistered.
    stale: RegionId,
    /// A region of each process for the data that it reads.
    sinks: [RegionId; PIDS],
    areas: Vec<Area>,
}

impl Host {
    /// Each process has half of the slots.
    fn process_of(&self, slot: u16) -> usize {
        usize::from(usize::from(slot) >= self.areas.len() / 2)
    }
}

/// An op, and how it must end on a network without faults.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) command: Command,
    pub(crate) expected: OpStatus,
    pub(crate) responder: NodeId,
    /// Which life of the responder it was planned for.
    pub(crate) responder_life: u32,
    /// Which of the responder's readable regions.
    source: usize,
    /// What that region held, and holds as long as it has the same key.
    content: Arc<[u8]>,
    /// Where in the slot's area the data goes.
    pub(crate) area_offset: usize,
    /// Notices that the responder had not sent, for their rate, when the op was planned.
    pub(crate) notices_limited: u64,
}

impl Planned {
    /// The bytes that it reads; none if it must fail.
    pub(crate) fn data(&self) -> &[u8] {
        if self.expected != OpStatus::Ok {
            return &[];
        }
        let start = self.command.remote_offset as usize;
        &self.content[start..start + self.command.op_size as usize]
    }
}

/// All memory of all nodes.
#[derive(Debug)]
pub(crate) struct World {
    prng: Prng,
    hosts: Vec<Host>,
}

/// The process that has number `process` on `node`.
const fn pid(node: NodeId, process: usize) -> Pid {
    Pid(1000 + node.0 as u32 * 10 + process as u32)
}

impl World {
    /// Registers regions on every node and hands out its slots.
    pub(crate) fn new(sim: &mut Sim, prng: Prng) -> Self {
        let nodes: Vec<NodeId> = sim.nodes().collect();
        let start = |node: NodeId| Host::new(sim, node, prng.fork(node.0.into()), 0, 0);
        Self { hosts: nodes.into_iter().map(start).collect(), prng }
    }

    /// What the software of `node` does when it starts again: the same as the first time, so that regions have
    /// the same names; with the same keys and contents, too, unless `new_keys`.
    pub(crate) fn restart(&mut self, sim: &mut Sim, node: NodeId, new_keys: bool) {
        let before = &self.hosts[node.index()];
        let (life, contents) = (before.life + 1, before.contents + u64::from(new_keys));
        let prng = before.prng.clone();
        let seeds = self.prng.fork(node.0.into());
        self.hosts[node.index()] = Host { prng, ..Host::new(sim, node, seeds, life, contents) };
    }

    /// How often `node` has started.
    pub(crate) fn life(&self, node: NodeId) -> u32 {
        self.hosts[node.index()].life
    }

    /// The next op of `node`, for `slot`, which may be busy.
    ///
    /// Each op draws from a generator of its own, so that one more draw here shifts no later op.
    pub(crate) fn plan(&mut self, sim: &Sim, node: NodeId, slot: u16, hopeless: Chance) -> Planned {
        let seed = self.hosts[node.index()].prng.next();
        let mut prng = Prng::new(seed);
        let local = &self.hosts[node.index()];
        let responder = NodeId(prng.below(self.hosts.len() as u64) as u16);
        let remote = &self.hosts[responder.index()];
        let process = local.process_of(slot);
        let ipv4 = prng.chance(Chance::ppm(500_000));
        let (initiator, responder_addr) = addresses(sim, node, responder, ipv4);
        let source = prng.below(READABLE as u64) as usize;
        let len = remote.readable[source].content.len() as u64;
        let largest = len.min(OP_SIZE_MAX.into());
        let (is_whole, some) = (prng.chance(Chance::ppm(250_000)), prng.magnitude(largest));
        let op_size = (if is_whole { largest } else { some }) as u32;
        let area_offset = prng.below((AREA_LEN - op_size as usize + 1) as u64) as usize;
        let binding = KeyBinding {
            initiator,
            responder: responder_addr,
            pid: pid(node, process),
            op_type: OpType::Read,
        };
        let mut planned = Planned {
            command: Command {
                slot: CommandSlotId(slot),
                op_type: OpType::Read,
                class: prng.choose(&ClassOfService::ALL),
                op_size,
                responder: responder_addr,
                remote_region: remote.readable[source].id,
                remote_offset: prng.below(len - u64::from(op_size) + 1),
                local_region: local.sinks[process],
                local_offset: (usize::from(slot) * AREA_LEN + area_offset) as u64,
                key: remote.readable[source].key.derive(&binding),
            },
            expected: OpStatus::Ok,
            responder,
            responder_life: remote.life,
            source,
            content: remote.readable[source].content.clone(),
            area_offset,
            notices_limited: sim.nic(responder).counters().drops(DropReason::NoticeRateLimited),
        };
        let is_hopeless = prng.chance(hopeless);
        let spoiled = self.spoil(&mut prng, &planned, node, &binding);
        if is_hopeless {
            planned = spoiled;
        }
        planned
    }

    /// Makes one thing about `planned` wrong.
    fn spoil(
        &self,
        prng: &mut Prng,
        planned: &Planned,
        node: NodeId,
        binding: &KeyBinding,
    ) -> Planned {
        let local = &self.hosts[node.index()];
        let remote = &self.hosts[planned.responder.index()];
        let source = &remote.readable[planned.source];
        let len = source.content.len() as u64;
        let mut spoiled = planned.clone();
        let command = &mut spoiled.command;
        let size = u64::from(command.op_size);
        let mut random_key = [0; 16];
        prng.fill(&mut random_key);
        let beyond = prng.choose(&[len, len - size + 1, u64::MAX, u64::MAX - size + 1]);
        use OpStatus::{
            InvalidCommand, RemoteAuthenticationFailure, RemoteOutOfBounds, RemotePermissionDenied,
        };
        spoiled.expected = match prng.below(12) {
            0 => {
                command.key = DerivedRegionKey::from_bytes(random_key);
                RemoteAuthenticationFailure
            }
            1 => {
                let pid = Pid(binding.pid.0 ^ 1);
                command.key = source.key.derive(&KeyBinding { pid, ..*binding });
                RemoteAuthenticationFailure
            }
            2 => {
                // As if another host had leaked its key.
                let initiator = HostAddr::from_octets([0xfd; 16]);
                command.key = source.key.derive(&KeyBinding { initiator, ..*binding });
                RemoteAuthenticationFailure
            }
            3 => {
                command.remote_region = remote.stale;
                RemoteAuthenticationFailure
            }
            4 => {
                command.remote_region = remote.readable[(planned.source + 1) % READABLE].id;
                RemoteAuthenticationFailure
            }
            5 | 6 => {
                command.remote_offset = beyond;
                RemoteOutOfBounds
            }
            7 => {
                command.remote_region = remote.forbidden.id;
                command.key = remote.forbidden.key.derive(binding);
                RemotePermissionDenied
            }
            8 => {
                command.op_size = prng.choose(&[0, OP_SIZE_MAX + 1, u32::MAX]);
                InvalidCommand
            }
            9 => {
                command.local_region = RegionId::from_bits(u32::MAX);
                InvalidCommand
            }
            10 => {
                command.local_region = local.sinks[1 - local.process_of(command.slot.0)];
                InvalidCommand
            }
            _ => {
                command.local_offset = prng.choose(&[
                    (local.areas.len() * AREA_LEN) as u64 - size + 1,
                    u64::MAX,
                    u64::MAX - size + 1,
                ]);
                InvalidCommand
            }
        };
        spoiled
    }

    pub(crate) fn area_mut(&mut self, node: NodeId, slot: CommandSlotId) -> &mut Area {
        &mut self.hosts[node.index()].areas[usize::from(slot.0)]
    }

    /// Checks that the area of a slot that is used again has not changed meanwhile.
    pub(crate) fn check_area(&self, node: NodeId, slot: CommandSlotId) -> Result<(), Violation> {
        self.hosts[node.index()].areas[usize::from(slot.0)].check_rest()
    }

    /// Checks all areas of a node on which no op is under way.
    pub(crate) fn check_areas(&self, node: NodeId) -> Result<(), Violation> {
        self.hosts[node.index()].areas.iter().try_for_each(Area::check_rest)
    }

    /// Checks that nothing has changed that nobody wrote to.
    pub(crate) fn check_rest(&self) -> Result<(), Violation> {
        for (index, host) in self.hosts.iter().enumerate() {
            self.check_areas(NodeId(index as u16))?;
            for source in host.readable.iter().chain([&host.forbidden]) {
                let mut now = vec![0; source.content.len()];
                source.memory.copy_out(0, &mut now).expect("the region has that length");
                if let Some(at) = first_difference(&now, &source.content[..]) {
                    return Err(Violation::SourceChanged { node: NodeId(index as u16), at });
                }
            }
        }
        Ok(())
    }
}

impl Host {
    fn new(sim: &mut Sim, node: NodeId, prng: Prng, life: u32, contents: u64) -> Self {
        let ops = prng.fork(0);
        let mut prng = prng.fork(1 + contents);
        let slots = sim.nic(node).slot_count() as u16;
        for (process, slots) in [0..slots / 2, slots / 2..slots].into_iter().enumerate() {
            sim.nic_mut(node).configure_slots(slots, Some(pid(node, process)));
        }
        let stale = Source::register(sim, node, &mut prng, Permissions::READ).id;
        sim.nic_mut(node).regions_mut().deregister(stale).expect("registered above");
        let readable =
            core::array::from_fn(|_| Source::register(sim, node, &mut prng, Permissions::READ));
        let forbidden = Source::register(sim, node, &mut prng, Permissions::NONE);
        let sink_len = usize::from(slots) * AREA_LEN;
        let sinks = [(); PIDS].map(|()| {
            Arc::new(Region::new(sink_len).expect("a few KiB for each of at least one slot"))
        });
        let key = RegionKey::from_bytes([0; 16]);
        let ids = core::array::from_fn(|process| {
            let owner = pid(node, process);
            register(
                sim,
                node,
                RegionEntry::new(sinks[process].clone(), &key, Permissions::NONE, owner),
            )
        });
        let area = |slot: u16| {
            let process = usize::from(slot >= slots / 2);
            let start = usize::from(slot) * AREA_LEN;
            Area::new(node, slot, sinks[process].clone(), start as u64, AREA_LEN)
        };
        let areas = (0..slots).map(area).collect();
        Self { prng: ops, life, contents, readable, forbidden, stale, sinks: ids, areas }
    }
}

impl Source {
    fn register(sim: &mut Sim, node: NodeId, prng: &mut Prng, permissions: Permissions) -> Self {
        let mut content = vec![0; prng.magnitude(32 << 10) as usize];
        prng.fill(&mut content);
        let memory = Arc::new(Region::new(content.len()).expect("a few KiB"));
        memory.copy_in(0, &content).expect("the region has that length");
        let mut key = [0; 16];
        prng.fill(&mut key);
        let key = RegionKey::from_bytes(key);
        // A process of its own: no command has it as its local region.
        let entry = RegionEntry::new(memory.clone(), &key, permissions, Pid(1));
        let id = register(sim, node, entry);
        Self { id, key: RegionKeySchedule::new(&key), memory, content: content.into() }
    }
}

fn register(sim: &mut Sim, node: NodeId, entry: RegionEntry) -> RegionId {
    let registered = sim.nic_mut(node).regions_mut().register(Box::new(entry));
    registered.map_err(|(error, _)| error).expect("the table has room for `REGIONS_PER_NODE`")
}

/// The addresses of both nodes in one family: IPv4 if asked for and there is one, or else there is no other.
fn addresses(sim: &Sim, a: NodeId, b: NodeId, ipv4: bool) -> (HostAddr, HostAddr) {
    let all = |node| sim.nic(node).config().settings().addresses.iter();
    let preferred = all(a).find(|addr| addr.is_ipv4() == ipv4);
    let from = preferred.or_else(|| all(a).next()).expect("a NIC has an address");
    let to = all(b).find(|addr| addr.is_ipv4() == from.is_ipv4());
    (from, to.expect("all nodes have addresses of the same families"))
}
