//! A host's regions, over all its lives.

use std::sync::Arc;

use rma_core::{
    addr::Pid,
    crypto::RegionKey,
    limits::{OP_SIZE_MAX, WORD_LEN},
    nic::RegionEntry,
    region::{Permissions, RegionId},
};
use rma_shm::Region;

use super::{
    PIDS, TARGETS, pid,
    queue::Queue,
    rows::{Row, register},
};
use crate::{
    check::{
        board::{BOARD_LEN, Board},
        oracle::{Area, first_difference},
        violation::Violation,
    },
    net::{frame::NodeId, sim::Sim},
    prng::Prng,
};

/// Bytes of memory for each op: room for a whole op at any alignment, with a margin.
pub(super) const AREA_LEN: usize = OP_SIZE_MAX as usize + 128;

/// How many writes to one target may be under way at once.
const AREAS_PER_TARGET: usize = 6;

/// How many words of a target atomics are on.
pub(super) const WORDS: usize = 2;

/// The longest part of a target that is only read.
const CONTENT_LEN_MAX: u64 = 16 << 10;

/// A region that others use, or may not.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) row: Row,
    permissions: Permissions,
    memory: Arc<Region>,
    /// Its first bytes, which nobody writes to.
    pub(super) content: Arc<[u8]>,
    /// Behind it, an area for each write; then a board, and words for atomics.
    pub(super) areas: Vec<Area>,
    pub(super) areas_in_use: [bool; AREAS_PER_TARGET],
    /// The board that ordered ops change. `None` where nobody may.
    pub(super) board: Option<Board>,
    /// How many ops on the board are under way, or may be for ever as their applications are gone.
    pub(super) board_users: u32,
}

#[derive(Debug)]
pub(super) struct Host {
    /// The random numbers that its software's next steps are drawn from.
    pub(super) prng: Prng,
    /// How often it has started.
    pub(super) life: u32,
    /// The index of the present one of `epochs`. Another one comes with new keys.
    pub(super) contents: usize,
    /// Targets, with all that they ever were: nobody may write to those of the past, either.
    pub(super) epochs: Vec<[Target; TARGETS]>,
    /// The receive queues of the targets.
    pub(super) queues: Vec<[Queue; TARGETS]>,
    /// Registered, without any permission.
    pub(super) forbidden: Target,
    /// The name of a region that was deregistered.
    pub(super) stale: RegionId,
    /// A region of each process: where the data of its reads goes to, and that of its writes comes
    /// from.
    pub(super) local: [(RegionId, Arc<Region>); PIDS],
    /// Parts of `local`, one for each slot.
    pub(super) areas: Vec<Area>,
}

impl Host {
    pub(super) fn new(sim: &mut Sim, node: NodeId, seeds: Prng) -> Self {
        let mut prng = seeds.fork(1);
        let forbidden = Target::new((node, 0), &mut prng, Permissions::NONE);
        let mut host = Self {
            prng: seeds.fork(0),
            life: 0,
            contents: 0,
            epochs: vec![draw_targets(node, &mut prng)],
            queues: vec![draw_queues(&seeds, 0)],
            forbidden,
            stale: RegionId::from_bits(0),
            local: core::array::from_fn(|_| (RegionId::from_bits(0), Arc::new(small_region()))),
            areas: Vec::new(),
        };
        host.start(sim, node);
        host
    }

    /// Starts its software: always the same.
    fn start(&mut self, sim: &mut Sim, node: NodeId) {
        let slots = sim.slot_count(node) as u16;
        for (process, slots) in [0..slots / 2, slots / 2..slots].into_iter().enumerate() {
            sim.configure_slots(node, slots, pid(node, process));
        }
        self.forbidden.register(sim, node, 0, None);
        self.stale = self.forbidden.row.id;
        sim.deregister(node, self.stale).expect("registered above");
        (0..TARGETS).for_each(|target| self.register_target(sim, node, target));
        self.forbidden.register(sim, node, 0, None);
        let len = usize::from(slots.div_ceil(2)) * AREA_LEN;
        for process in 0..PIDS {
            self.local[process].1 = Arc::new(Region::new(len).expect("a few KiB a slot"));
            self.register_local(sim, node, process);
        }
        let area = |slot: u16| {
            let process = usize::from(slot >= slots / 2);
            let memory = self.local[process].1.clone();
            Area::new(node, slot, memory, local_offset(slot, slots.into()) as u64, AREA_LEN)
        };
        self.areas = (0..slots).map(area).collect();
    }

    pub(super) fn restart(&mut self, sim: &mut Sim, node: NodeId, seeds: Prng, new_keys: bool) {
        self.life += 1;
        if new_keys {
            self.contents += 1;
            let mut prng = seeds.fork(1 + self.contents as u64);
            self.epochs.push(draw_targets(node, &mut prng));
            self.queues.push(draw_queues(&seeds, self.contents as u64));
        }
        self.start(sim, node);
    }

    /// Registers a target, and before it the queue that it names.
    pub(super) fn register_target(&mut self, sim: &mut Sim, node: NodeId, target: usize) {
        let queue = &mut self.queues[self.contents][target];
        // The home of both, which is another one in each life.
        let home = target + self.life as usize;
        queue.register(sim, node, home);
        let events = queue.row.id;
        self.epochs[self.contents][target].register(sim, node, home, Some(events));
    }

    pub(super) fn queue(&self, target: usize) -> &Queue {
        &self.queues[self.contents][target]
    }

    fn register_local(&mut self, sim: &mut Sim, node: NodeId, process: usize) {
        let (id, memory) = &mut self.local[process];
        let key = RegionKey::from_bytes([0; 16]);
        let owner = pid(node, process);
        let entry = |_| RegionEntry::new(memory.clone(), &key, Permissions::NONE, owner);
        *id = register(sim, node, process, entry);
    }

    pub(super) fn churn_local(&mut self, sim: &mut Sim, node: NodeId, process: usize) {
        let (id, _) = self.local[process];
        sim.deregister(node, id).expect("registered until now");
        self.register_local(sim, node, process);
    }

    pub(super) fn targets(&self) -> &[Target; TARGETS] {
        &self.epochs[self.contents]
    }

    pub(super) fn targets_mut(&mut self) -> &mut [Target; TARGETS] {
        &mut self.epochs[self.contents]
    }

    /// Each process has half of the slots.
    pub(super) fn process_of(&self, slot: u16) -> usize {
        usize::from(usize::from(slot) >= self.areas.len() / 2)
    }

    /// Returns the offset of `slot`'s area in its process's region.
    pub(super) fn local_offset(&self, slot: u16) -> u64 {
        local_offset(slot, self.areas.len()) as u64
    }
}

fn local_offset(slot: u16, slots: usize) -> usize {
    let slot = usize::from(slot);
    let first = if slot >= slots / 2 { slots / 2 } else { 0 };
    (slot - first) * AREA_LEN
}

fn small_region() -> Region {
    Region::new(1).expect("one byte")
}

/// Words of a board for an op: where, and how many bytes. `size` is what it should be about.
///
/// They often begin or end together, where the words are that tell of the others.
pub(super) fn draw_span(prng: &mut Prng, size: u32) -> (usize, u32) {
    let len = (size as usize).next_multiple_of(WORD_LEN).min(BOARD_LEN);
    let len = prng.choose(&[BOARD_LEN, len, len, len, WORD_LEN]);
    let last = BOARD_LEN - len;
    let somewhere = prng.below((last / WORD_LEN) as u64 + 1) as usize * WORD_LEN;
    (prng.choose(&[0, 0, somewhere, last]), len as u32)
}

fn draw_targets(node: NodeId, prng: &mut Prng) -> [Target; TARGETS] {
    let both = Permissions::READ | Permissions::WRITE | Permissions::NOTIFY | Permissions::ATOMIC;
    let mut target = |number, permissions| Target::new((node, number), prng, permissions);
    [target(0, both), target(1, both | Permissions::REKEY)]
}

/// From a generator of their own: what targets are does not depend on them.
fn draw_queues(seeds: &Prng, epoch: u64) -> [Queue; TARGETS] {
    let mut prng = seeds.fork(0x9e0e + epoch);
    [Permissions::NONE, Permissions::REKEY].map(|besides| Queue::new(&mut prng, besides))
}

impl Target {
    fn new((node, number): (NodeId, u16), prng: &mut Prng, permissions: Permissions) -> Self {
        let mut content = vec![0; prng.magnitude(CONTENT_LEN_MAX) as usize];
        prng.fill(&mut content);
        let writable = permissions.contains(Permissions::WRITE);
        let areas = if writable { AREAS_PER_TARGET } else { 0 };
        let board_start = (content.len() + areas * AREA_LEN).next_multiple_of(WORD_LEN);
        let board_len = if writable { BOARD_LEN } else { 0 };
        let len = board_start + board_len + WORDS * WORD_LEN;
        let memory = Arc::new(Region::new(len).expect("a few KiB"));
        memory.copy_in(0, &content).expect("the region is longer");
        let area = |area: usize| {
            let start = content.len() + area * AREA_LEN;
            Area::new(node, area as u16, memory.clone(), start as u64, AREA_LEN)
        };
        let board = || Board::new(node, number, memory.clone(), board_start as u64);
        Self {
            row: Row::new(prng),
            permissions,
            board: writable.then(board),
            board_users: 0,
            areas: (0..areas).map(area).collect(),
            areas_in_use: [false; AREAS_PER_TARGET],
            memory,
            content: content.into(),
        }
    }

    fn register(&mut self, sim: &mut Sim, node: NodeId, home: usize, events: Option<RegionId>) {
        // A process of its own: no command has it as its local region.
        let Self { memory, row, permissions, .. } = self;
        let entry = |is_home| {
            let entry = RegionEntry::new(memory.clone(), &row.key_bytes, *permissions, Pid(1));
            match events.filter(|_| is_home) {
                Some(queue) => entry.with_events(queue),
                None => entry,
            }
        };
        row.id = register(sim, node, home, entry);
    }

    pub(super) fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Returns the offset of `area`.
    pub(super) fn area_start(&self, area: usize) -> u64 {
        (self.content.len() + area * AREA_LEN) as u64
    }

    /// Returns the offset of word number `word`.
    pub(super) fn word_offset(&self, word: usize) -> u64 {
        self.len() - ((WORDS - word) * WORD_LEN) as u64
    }

    /// Returns the value of the word at `offset`.
    pub(super) fn load(&self, offset: u64) -> u64 {
        self.memory.load_acquire(offset).expect("a word of the target")
    }

    /// The memory that atomics of its owner are on.
    pub(super) fn memory(&self) -> &Region {
        &self.memory
    }

    /// Checks that nothing has changed since the last op on each part.
    pub(super) fn check_rest(&self, node: NodeId) -> Result<(), Violation> {
        self.areas.iter().try_for_each(Area::check_rest)?;
        self.board.iter().try_for_each(Board::check)?;
        let mut now = vec![0; self.content.len()];
        self.memory.copy_out(0, &mut now).expect("the region is longer");
        match first_difference(&now, &self.content) {
            Some(at) => Err(Violation::SourceChanged { node, at }),
            None => Ok(()),
        }
    }
}
