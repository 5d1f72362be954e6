//! READs or WRITEs over a hostile wire: random sizes and places, every byte held against a model.
//!
//! Both copy bytes of a *source* with a known pattern into a *target* with a model: a read from the
//! server's memory into the client's, a write the other way. What must hold, whatever the wire
//! does: an op that is reported OK brought the right bytes and no others; one that is reported
//! otherwise brought right granules or none; nothing lands after the report, nor outside an op's
//! place, ever; the table explains each status; every op ends.

use core::time::Duration;
use std::sync::Arc;

use rma_lab::Pattern;
use rma_sim::prng::Prng;
use rma_xdp::{
    Completion, Grant, Host, OpStatus, OpType, Permissions, Portal, Region, RegionKey,
    RegisteredRegion,
    crypto::DerivedRegionKey,
    memory::RegionId,
    metrics::MetricsSource,
    ops::{ClassOfService, ReadOp, WriteOp},
    time::{Clock, TscClock},
};

use super::{
    faults::Faults,
    lab::Ends,
    places::{End, PLACE, Places},
    table::{Circumstances, Kind, Outcomes, allows, stood_still},
};
use crate::hosts::CLIENT_PID;

const SOURCE_LEN: u64 = 1 << 20;
const SLOTS: u16 = 16;
/// More places than slots, so that a place rests for a while after its op is over.
const PLACES: usize = 3 * SLOTS as usize;

/// How long an op is waited for that may never end. How long ops take is what `rma_figures::death`
/// looks at.
const OP_PATIENCE: Duration = Duration::from_secs(60);

/// How long an op may be lost over and over on a good wire before that is called dead: the machine
/// may be busy, and the server with what the wire was before.
const PATIENCE_NANOS: u64 = 5_000_000_000;

/// One op in flight.
#[derive(Clone, Copy, Debug)]
struct Op {
    kind: Kind,
    place: usize,
    source: u64,
    /// In the target.
    offset: usize,
    size: usize,
}

/// Issues ops of one type at random places, and holds what they change against the model.
#[derive(Debug)]
pub struct Worker {
    op_type: OpType,
    prng: Prng,
    pattern: Pattern,
    source: RegisteredRegion,
    target: Places,
    /// K_r of the server's region.
    key: RegionKey,
    grant: Grant,
    /// Under keys of before.
    old: Vec<Grant>,
    /// Under the key for another type of op.
    other_type: Grant,
    /// Of a region without permissions.
    closed: Grant,
    client: MetricsSource,
    portal: Portal,
    /// By slot, from the portal's first.
    ops: Vec<Option<Op>>,
    outcomes: Outcomes,
    repeated: u32,
}

impl Worker {
    /// Registers regions at both hosts.
    ///
    /// # Panics
    /// If there is no room for them, or `op_type` copies nothing.
    #[must_use]
    pub fn new(ends: &Ends, op_type: OpType, seed: u64) -> Self {
        let mut prng = Prng::new(seed).fork(2 + op_type as u64);
        let mut key = [0; 16];
        prng.fill(&mut key);
        let key = RegionKey::from_bytes(key);
        let (client, server) = (ends.client(), ends.server());
        let target_len = PLACES * PLACE;
        let (source, target) = match op_type {
            OpType::Read => (
                register_remote(server, new_memory(SOURCE_LEN as usize), &key, op_type),
                client.register(target_len, Permissions::NONE).expect("a region"),
            ),
            OpType::Write => (
                client.register(SOURCE_LEN as usize, Permissions::NONE).expect("a region"),
                register_remote(server, new_memory(target_len), &key, op_type),
            ),
            _ => panic!("a {op_type} copies no bytes between regions"),
        };
        let pattern = Pattern::new(prng.next());
        pattern.fill_region(&source);
        let closed = register_closed(server);
        let remote = if op_type == OpType::Read { &source } else { &target };
        let granted = |region, op_type| {
            server.grant(region, ends.client_addr(), CLIENT_PID, op_type).expect("registered")
        };
        let other = if op_type == OpType::Read { OpType::Write } else { OpType::Read };
        Self {
            op_type,
            prng,
            pattern,
            grant: granted(remote, op_type),
            other_type: granted(remote, other),
            closed: granted(&closed, op_type),
            target: Places::new(target, PLACES),
            source,
            key,
            old: Vec::new(),
            client: client.metrics_source().clone(),
            portal: client.portal(SLOTS).expect("slots"),
            ops: vec![None; SLOTS.into()],
            outcomes: Outcomes::default(),
            repeated: 0,
        }
    }

    /// Has `count` ops of all kinds run, as many at once as there are slots.
    ///
    /// # Panics
    /// If anything is not as it must be.
    pub fn run(&mut self, count: usize, faults: &Faults, circumstances: Circumstances) {
        let mut issued = self.begin(count);
        while self.portal.outstanding() > 0 {
            self.settle_next(faults, circumstances);
            issued += self.begin((count - issued).min(1));
        }
        self.assert_at_rest();
    }

    /// Issues up to `count` ops, as many as there are free slots; returns how many.
    ///
    /// # Panics
    /// If an op is refused.
    pub fn begin(&mut self, count: usize) -> usize {
        let mut issued = 0;
        while issued < count && self.portal.next_slot().is_some() {
            self.issue();
            issued += 1;
        }
        issued
    }

    /// Sees all ops that were begun to their end.
    ///
    /// # Panics
    /// If anything is not as it must be.
    pub fn finish(&mut self, faults: &Faults, circumstances: Circumstances) {
        while self.portal.outstanding() > 0 {
            self.settle_next(faults, circumstances);
        }
        self.assert_at_rest();
    }

    fn issue(&mut self) {
        let kind = match self.prng.below(24) {
            0 => Kind::OutOfBounds,
            1 => Kind::WrongKey,
            2 => Kind::NoRegion,
            3 => Kind::NotPermitted,
            4 => Kind::OtherType,
            5 if !self.old.is_empty() => Kind::OldKey,
            _ => Kind::Good,
        };
        let size = match self.prng.below(3) {
            0 => self.prng.between(1, 200),
            1 => 4096 - self.prng.below(100),
            _ => self.prng.between(1, 4096),
        };
        let source = self.prng.below(SOURCE_LEN - size);
        let (place, offset) = self.target.take(size as usize, &mut self.prng);
        let op = Op { kind, place, source, offset, size: size as usize };
        let grant = self.grant_of(kind);
        let remote_offset = match (kind, self.op_type) {
            (Kind::OutOfBounds, _) => {
                let len = self.grant.region_len;
                self.prng.choose(&[len - size + 1, len, u64::MAX - size, u64::MAX])
            }
            (_, OpType::Read) => source,
            (..) => offset as u64,
        };
        let class = self.prng.choose(&ClassOfService::ALL);
        let slot = self.portal.next_slot().expect("looked at already");
        self.ops[usize::from(slot.0 - self.portal.slots().start)] = Some(op);
        let issued = if self.op_type == OpType::Read {
            self.portal.issue_read(&ReadOp {
                grant: &grant,
                remote_offset,
                sink: self.target.memory(),
                sink_offset: offset as u64,
                op_size: size as u32,
                class,
            })
        } else {
            self.portal.issue_write(&WriteOp {
                grant: &grant,
                remote_offset,
                source: &self.source,
                source_offset: source,
                op_size: size as u32,
                class,
            })
        };
        assert_eq!(issued, Ok(slot), "a sensible op");
    }

    fn grant_of(&mut self, kind: Kind) -> Grant {
        match kind {
            Kind::Good | Kind::OutOfBounds => self.grant,
            Kind::WrongKey => {
                let mut key = *self.grant.key.expose();
                key[self.prng.below(16) as usize] ^= 1 << self.prng.below(8);
                Grant { key: DerivedRegionKey::from_bytes(key), ..self.grant }
            }
            Kind::NoRegion => {
                let region = RegionId::from_bits(0xffff_0000 | self.prng.below(1 << 16) as u32);
                Grant { region, ..self.grant }
            }
            Kind::NotPermitted => self.closed,
            Kind::OtherType => Grant { op_type: self.op_type, ..self.other_type },
            Kind::OldKey => self.old[self.prng.below(self.old.len() as u64) as usize],
        }
    }

    fn settle_next(&mut self, faults: &Faults, circumstances: Circumstances) {
        let completion = self.portal.wait_timeout(OP_PATIENCE).expect("the engine lives");
        let completion = completion.expect("every op ends");
        let slot = usize::from(completion.slot.0 - self.portal.slots().start);
        let op = self.ops[slot].take().expect("one completion for each op");
        let Completion { status, .. } = completion;
        self.outcomes.count(op.kind, status);
        let shed = status == OpStatus::DispatchTimeout;
        let stood_still = shed && stood_still(&self.client);
        let circumstances = Circumstances { stood_still, ..circumstances };
        assert!(
            allows(self.op_type, op.kind, status, faults, circumstances),
            "{:?}: {status} is not explained by these faults: {faults}; {op:?}",
            self.op_type
        );
        self.hold_against_model(op, status);
        // Bytes reported before have not changed since.
        if self.prng.below(8) == 0 {
            self.assert_targets_rest();
        }
    }

    fn hold_against_model(&mut self, op: Op, status: OpStatus) {
        let Op { kind, place, source, offset, size } = op;
        // A refused op brings nothing.
        let mut right = vec![0; if kind == Kind::Good { size } else { 0 }];
        self.pattern.fill(source, &mut right);
        let end = match status {
            OpStatus::Ok => End::Ok,
            // The client's own NIC takes nothing of a read that is over.
            _ if self.op_type == OpType::Read => End::Failed,
            _ => End::MayBeLate,
        };
        let settled = self.target.settle(place, offset, &right, end, &mut self.prng);
        settled.unwrap_or_else(|wrong| panic!("{:?}, {status}, {op:?}: {wrong}", self.op_type));
    }

    /// Ops that are over leave no trace any longer: no place that rests has changed, nor has the
    /// source.
    ///
    /// # Panics
    /// If they have, by anything that is no late effect ([`Worker::late_effects`]).
    pub fn assert_at_rest(&mut self) {
        self.assert_targets_rest();
        let mut source = vec![0; SOURCE_LEN as usize];
        self.source.read(0, &mut source).expect("inside");
        assert_eq!(self.pattern.first_difference(0, &source), None, "the source never changes");
    }

    fn assert_targets_rest(&mut self) {
        let rest = self.target.look_at_rest();
        rest.unwrap_or_else(|wrong| panic!("{:?}: {wrong}", self.op_type));
    }

    /// On a good wire ops arrive.
    ///
    /// # Panics
    /// If one never does.
    pub fn assert_alive(&mut self) {
        for size in [1, 64, 1408, 4096].repeat(25) {
            let clock = TscClock::new();
            while !self.try_once(size) {
                self.repeated += 1;
                assert!(clock.now().as_nanos() < PATIENCE_NANOS, "{size} bytes never arrive");
            }
        }
        self.assert_at_rest();
    }

    /// One op that is right in everything, on a good wire. `false` if it was lost, or found the
    /// server's tables full of what had come before.
    ///
    /// # Panics
    /// If it ends in any other way.
    pub fn try_once(&mut self, size: usize) -> bool {
        let source = self.prng.below(SOURCE_LEN - size as u64);
        let (place, offset) = self.target.take(size, &mut self.prng);
        let op = Op { kind: Kind::Good, place, source, offset, size };
        let (grant, size) = (&self.grant, size as u32);
        let issued = match self.op_type {
            OpType::Read => {
                self.portal.read(grant, source, self.target.memory(), offset as u64, size)
            }
            _ => self.portal.write(grant, offset as u64, &self.source, source, size),
        };
        issued.expect("a sensible op");
        let status = self.portal.wait().expect("the engine lives").status;
        self.hold_against_model(op, status);
        let lost = matches!(status, OpStatus::Timeout | OpStatus::Nack | OpStatus::DispatchTimeout);
        assert!(lost || status == OpStatus::Ok, "{status} on a good wire");
        status == OpStatus::Ok
    }

    /// The right to read or write the server's region.
    #[must_use]
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The server's region.
    #[must_use]
    pub const fn remote(&self) -> &RegisteredRegion {
        if let OpType::Read = self.op_type { &self.source } else { self.target.memory() }
    }

    /// All bytes that this worker has the wire carry come from here.
    #[must_use]
    pub fn secret(&self) -> Vec<u8> {
        let mut bytes = vec![0; SOURCE_LEN as usize];
        self.pattern.fill(0, &mut bytes);
        bytes
    }

    /// K_r of the server's region.
    #[must_use]
    pub const fn key(&self) -> RegionKey {
        self.key
    }

    /// From now on `key` is that of the server's region.
    pub fn set_key(&mut self, key: RegionKey) {
        self.old.push(self.grant);
        self.grant = self.grant.under(&key);
        self.old.retain(|old| *old != self.grant);
        self.other_type = self.other_type.under(&key);
        self.key = key;
    }

    /// The server is a new one: registers the same memory there, under the same key. What was
    /// granted must name it.
    ///
    /// # Panics
    /// If it has another name now.
    pub fn follow_server(&mut self, server: &Host) {
        let memory = self.remote().memory().clone();
        let remote = register_remote(server, memory, &self.key, self.op_type);
        assert_eq!(remote.id(), self.grant.region, "an old frame names the new region");
        let closed = register_closed(server);
        assert_eq!(closed.id(), self.closed.region, "and this one too");
        match self.op_type {
            OpType::Read => self.source = remote,
            _ => self.target.set_memory(remote),
        }
    }

    /// The client is a new one: registers the same memory there, and takes the same slots.
    ///
    /// # Panics
    /// If ops were in flight.
    pub fn follow_client(&mut self, client: &Host) {
        assert!(self.ops.iter().all(Option::is_none), "ops die with their host");
        let local = |region: &RegisteredRegion| {
            let (memory, key) = (region.memory().clone(), RegionKey::from_bytes([0; 16]));
            client.register_memory(memory, key, Permissions::NONE).expect("a region")
        };
        match self.op_type {
            OpType::Read => self.target.set_memory(local(self.target.memory())),
            _ => self.source = local(&self.source),
        }
        self.client = client.metrics_source().clone();
        self.portal = client.portal(SLOTS).expect("slots");
    }

    /// Returns the outcomes of ops up to now, and how many were repeated on a good wire.
    #[must_use]
    pub const fn outcomes(&self) -> (&Outcomes, u32) {
        (&self.outcomes, self.repeated)
    }

    /// How many frames have had an effect after their ops, at least. The server must have counted
    /// each, of all workers together.
    #[must_use]
    pub fn late_effects(&self) -> u64 {
        self.target.late_frames()
    }
}

fn new_memory(len: usize) -> Arc<Region> {
    Arc::new(Region::new(len).expect("memory"))
}

/// A region that permits nothing. Its key is no secret.
fn register_closed(server: &Host) -> RegisteredRegion {
    let (memory, key) = (new_memory(PLACES * PLACE), RegionKey::from_bytes([3; 16]));
    server.register_memory(memory, key, Permissions::NONE).expect("a region")
}

fn register_remote(
    server: &Host,
    memory: Arc<Region>,
    key: &RegionKey,
    op_type: OpType,
) -> RegisteredRegion {
    let permissions = op_type.shape().permission | Permissions::REKEY;
    server.register_memory(memory, *key, permissions).expect("a region")
}
