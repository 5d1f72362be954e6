//! The cost of an engine's turn for a 64 B read, beside the AES-GCM calls that it makes for it.
//!
//! Two engines in one thread, joined by memory instead of a device: no system call, no other core,
//! no doorbell. A batch of reads goes through a portal; the turns of each side are timed apart, a
//! batch at a time, so that reading the clock costs next to nothing. In turns with that, the same
//! AES-GCM calls alone: same lengths, same number of frames, as many at a time as the NICs open and
//! seal side by side.
//!
//! Not measured: what an application does to issue a read and to poll its completion.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use arrayvec::ArrayVec;
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    backend::BATCH as SIDE_BY_SIDE,
    crypto::{AeadProvider, Direction, EngineId, Iv, KeyBinding, RegionKey, RegionKeySchedule},
    engine::Engine,
    grant::Grant,
    limits::TAG_LEN,
    nic::{Nic, NicConfigBuilder, NicPlace, ReceiveLenMax, RegionEntry},
    one_rma::OneRma,
    op::{OpStatus, OpType},
    portal::{CommandPortal, PortalConfig, portal},
    region::{NicTag, Permissions, RegisteredRegion},
    service::{Both, Service},
    time::Clock,
    wire::read::{REQUEST_HEADER_LEN, RESPONSE_HEADER_LEN},
};
use rma_crypto::{DeriveFrom, DeriveJob, IV_LEN, JobKey, Key, KeySchedule, OpenJob, SealJob, Text};
use rma_xdp::{Region, time::TscClock};

use crate::memory::{FRAME_LEN, Memory, Wire};

/// Reads under way at once: those of one batch.
pub const BATCH: usize = 32;

/// Bytes of each read.
pub(crate) const SIZE: usize = 64;

/// Bytes of each region, which a cache holds.
pub(crate) const REGION_LEN: usize = 4096;

/// Regions with keys of their own, where every read is to come under another key than those before
/// it. Not a multiple of a batch, so that no command slot sees the same one again soon.
const REGIONS: usize = 75;

pub(crate) const PID: Pid = Pid(7);

/// Under which keys reads come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All under one.
    One,
    /// Each under another one than its predecessors.
    Many,
}

/// The time that one side spends on a read, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// In all its turns.
    pub turn: f64,
    /// In the AES-GCM calls of these turns, key derivation and preparation included, when nothing
    /// else is done.
    pub aead: f64,
}

impl Side {
    /// The turn as a multiple of its AES-GCM calls.
    #[must_use]
    pub fn over_aead(&self) -> f64 {
        self.turn / self.aead
    }

    /// How many reads a second one core could do on this side.
    #[must_use]
    pub fn ops_per_s(&self) -> f64 {
        1e9 / self.turn
    }

    /// Returns the share of the turn that its AES-GCM calls take.
    #[must_use]
    pub fn aead_share(&self) -> f64 {
        self.aead / self.turn
    }
}

/// The measurements.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// The side that reads.
    pub initiator: Side,
    /// The side that is read.
    pub responder: Side,
}

impl Turns {
    /// Both sides.
    #[must_use]
    pub const fn sides(&self) -> [Side; 2] {
        [self.initiator, self.responder]
    }
}

/// Measures `rounds` rounds of 32 batches of turns and as many of AES-GCM calls alone, and takes
/// the medians of the batches.
///
/// # Panics
/// If a read does not succeed, or lands other bytes than those that it reads.
#[must_use]
pub fn measure(aead: &'static dyn AeadProvider, keys: Keys, rounds: usize) -> Turns {
    const BATCHES: usize = 32;
    let clock = TscClock::new();
    let mut engines = Engines::<OneRma>::new(aead, keys, clock.clone());
    let mut calls = Calls::new(aead, keys);
    let mut times: [Vec<u64>; 4] = Default::default();
    for round in 0..=rounds {
        let turns: Vec<_> = (0..BATCHES).map(|_| engines.batch(&clock)).collect();
        let alone: Vec<_> = (0..BATCHES).map(|_| calls.batch(&clock)).collect();
        // The first round warms up.
        for (turns, alone) in turns.into_iter().zip(alone).filter(|_| round > 0) {
            for (times, nanos) in times.iter_mut().zip(turns.into_iter().chain(alone)) {
                times.push(nanos);
            }
        }
    }
    engines.check();
    let [initiator, responder, initiator_aead, responder_aead] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2] as f64 / BATCH as f64
    });
    Turns {
        initiator: Side { turn: initiator, aead: initiator_aead },
        responder: Side { turn: responder, aead: responder_aead },
    }
}

/// Runs turns for `batches` batches of `at_once` reads and nothing else, for a profiler.
///
/// # Panics
/// As [`measure`]; if a batch has more than 32 reads.
pub fn profile(aead: &'static dyn AeadProvider, keys: Keys, batches: (u64, usize)) {
    profile_of::<OneRma>(aead, keys, batches);
}

/// As [`profile`], of engines that serve `S`.
///
/// # Panics
/// As [`profile`].
pub fn profile_of<S: WithOneRma>(
    aead: &'static dyn AeadProvider,
    keys: Keys,
    (batches, at_once): (u64, usize),
) {
    assert!(at_once <= BATCH, "{at_once} reads at once are more than {BATCH}");
    let clock = TscClock::new();
    let mut engines = Engines::<S>::new(aead, keys, clock.clone());
    for _ in 0..batches {
        engines.reads(at_once, &clock);
    }
    engines.check();
}

pub(crate) fn addresses() -> [HostAddr; 2] {
    [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]
}

/// A service that has 1RMA in it, alone or with others.
pub trait WithOneRma: Service {
    /// The service with this 1RMA.
    fn with(one_rma: OneRma) -> Self;

    /// Its 1RMA.
    fn one_rma(&mut self) -> &mut OneRma;
}

impl WithOneRma for OneRma {
    fn with(one_rma: OneRma) -> Self {
        one_rma
    }

    fn one_rma(&mut self) -> &mut OneRma {
        self
    }
}

/// A service that is beside 1RMA on an engine.
pub trait Company: Service {
    /// The service of a host with these addresses.
    fn at(addresses: &LocalAddresses) -> Self;
}

impl<B: Company> WithOneRma for Both<OneRma, B> {
    fn with(one_rma: OneRma) -> Self {
        let company = B::at(one_rma.addresses());
        Self::new(one_rma, company)
    }

    fn one_rma(&mut self) -> &mut OneRma {
        &mut self.first
    }
}

/// An engine at one end of a wire.
pub(crate) fn engine<S: WithOneRma>(
    end: Memory,
    address: HostAddr,
    settings: NicConfigBuilder,
    aead: &'static dyn AeadProvider,
    clock: TscClock,
) -> Engine<Memory, TscClock, S> {
    let receive_len_max = ReceiveLenMax { ipv4: FRAME_LEN, ipv6: FRAME_LEN };
    let place = NicPlace::at(address).with(|it| it.receive_len_max = receive_len_max);
    let config = settings.build(place).expect("the settings work");
    Engine::new(S::with(OneRma::new(Nic::with_aead(config, aead))), end, clock)
}

/// Regions' keys, and what K_d is derived from.
fn keys(keys: Keys) -> (Vec<RegionKey>, KeyBinding) {
    let count = if keys == Keys::Many { REGIONS } else { 1 };
    let [initiator, responder] = addresses();
    (
        (0..count).map(|number| RegionKey::from_bytes([number as u8; 16])).collect(),
        KeyBinding { initiator, responder, pid: PID, op_type: OpType::Read },
    )
}

/// Two engines and a portal.
pub(crate) struct Engines<S = OneRma> {
    initiator: Engine<Memory, TscClock, S>,
    responder: Engine<Memory, TscClock, S>,
    portal: CommandPortal,
    grants: Vec<Grant>,
    sink: RegisteredRegion,
    /// The content of each region.
    source: [u8; REGION_LEN],
    reads: usize,
}

impl<S: WithOneRma> Engines<S> {
    pub(crate) fn new(aead: &'static dyn AeadProvider, which: Keys, clock: TscClock) -> Self {
        Self::joined_by([Wire::new(), Wire::new()], aead, which, clock)
    }

    /// Engines that are joined by these wires: there, and back.
    pub(crate) fn joined_by(
        [there, back]: [Rc<RefCell<Wire>>; 2],
        aead: &'static dyn AeadProvider,
        which: Keys,
        clock: TscClock,
    ) -> Self {
        let ends = [
            Memory { inbound: Rc::clone(&back), outbound: Rc::clone(&there) },
            Memory { inbound: there, outbound: back },
        ];
        let settings = NicConfigBuilder::default();
        let mut ends = ends
            .into_iter()
            .zip(addresses())
            .map(|(end, address)| engine::<S>(end, address, settings, aead, clock.clone()));
        let mut engine = || ends.next().expect("there are two");
        let (mut initiator, mut responder) = (engine(), engine());

        let (regions, binding) = keys(which);
        let source = core::array::from_fn(|i| (i * 7 / 3) as u8);
        let mut register = |key: &RegionKey| {
            let memory = Arc::new(Region::new(REGION_LEN).expect("small"));
            memory.copy_in(0, &source).expect("as long");
            let entry = Box::new(RegionEntry::new(memory, key, Permissions::READ, PID));
            responder
                .service_mut()
                .one_rma()
                .nic_mut()
                .regions_mut()
                .register(entry)
                .expect("there is room")
        };
        let grants = regions.iter().map(|key| Grant {
            responder: binding.responder,
            region: register(key),
            region_len: REGION_LEN as u64,
            initiator: binding.initiator,
            pid: binding.pid,
            op_type: binding.op_type,
            key: RegionKeySchedule::new(key).derive(&binding),
        });
        let grants = grants.collect();

        let slots = 0..BATCH as u16;
        initiator.service_mut().one_rma().nic_mut().configure_slots(slots.clone(), Some(PID));
        let memory = Arc::new(Region::new(REGION_LEN).expect("small"));
        let entry =
            RegionEntry::new(Arc::clone(&memory), &regions[0], Permissions::NONE, binding.pid);
        let sink = initiator
            .service_mut()
            .one_rma()
            .nic_mut()
            .regions_mut()
            .register(Box::new(entry))
            .expect("room");
        let sink = RegisteredRegion::new(sink, memory, NicTag(1));
        let (portal, port) = portal(PortalConfig {
            slots,
            pid: PID,
            addresses: binding.initiator.into(),
            bell: None,
            flag: None,
            nic: NicTag(1),
        });
        initiator.service_mut().one_rma().attach(port);
        Self { initiator, responder, portal, grants, sink, source, reads: 0 }
    }

    /// One batch: nanoseconds at the initiator, and at the responder.
    fn batch(&mut self, clock: &TscClock) -> [u64; 2] {
        self.reads(BATCH, clock)
    }

    /// As many reads at once, at most a batch: nanoseconds at the initiator, and at the responder.
    pub(crate) fn reads(&mut self, count: usize, clock: &TscClock) -> [u64; 2] {
        self.issue(count);
        let issued = clock.now();
        initiator_turn(&mut self.initiator);
        let requested = clock.now();
        responder_turn(&mut self.responder);
        let answered = clock.now();
        initiator_turn(&mut self.initiator);
        let landed = clock.now();
        assert_eq!(self.poll(), count, "two turns are enough");
        let initiator = requested.nanos_since(issued) + landed.nanos_since(answered);
        [initiator, answered.nanos_since(requested)]
    }

    /// The engines: the initiator's, and the responder's.
    pub(crate) const fn ends(&mut self) -> [&mut Engine<Memory, TscClock, S>; 2] {
        [&mut self.initiator, &mut self.responder]
    }

    /// Issues as many reads.
    pub(crate) fn issue(&mut self, count: usize) {
        for _ in 0..count {
            let grant = &self.grants[self.reads % self.grants.len()];
            // Wherever a read comes from, that is where it lands.
            let offset = (self.reads * SIZE % REGION_LEN) as u64;
            let issued = self.portal.read(grant, offset, &self.sink, offset, SIZE as u32);
            issued.expect("as many as there are slots");
            self.reads += 1;
        }
    }

    /// How many reads have completed since this was asked last.
    pub(crate) fn poll(&mut self) -> usize {
        let mut completed = 0;
        while let Some(completion) = self.portal.poll() {
            assert_eq!(completion.status, OpStatus::Ok, "memory loses nothing");
            completed += 1;
        }
        completed
    }

    /// Whether everything that was read has landed.
    fn check(&self) {
        let mut landed = [0; REGION_LEN];
        self.sink.read(0, &mut landed).expect("as long");
        assert!(landed == self.source, "what was read is what was there");
    }
}

/// A function of its own, so that a profiler can tell the sides apart. It uses what the turn
/// returns, or it would jump there and not call it.
#[inline(never)]
pub(crate) fn initiator_turn<S: Service>(engine: &mut Engine<Memory, TscClock, S>) -> usize {
    core::hint::black_box(engine.turn())
}

/// As [`initiator_turn`]. The second call of `turn` there keeps either from being all of it.
#[inline(never)]
pub(crate) fn responder_turn<S: Service>(engine: &mut Engine<Memory, TscClock, S>) -> usize {
    core::hint::black_box(core::hint::black_box(engine).turn())
}

/// The AES-GCM calls of a batch, and nothing else: as many frames at a time as the NICs open and
/// seal. One side seals what the other opens.
struct Calls {
    aead: &'static dyn AeadProvider,
    regions: Vec<KeySchedule>,
    block: [u8; 16],
    frames: Vec<Sealed>,
    sealed: u64,
}

/// A request and its response, and the key of both sides.
struct Sealed {
    key: Key,
    request: [u8; REQUEST_HEADER_LEN],
    request_tag: [u8; TAG_LEN],
    response: [u8; RESPONSE_HEADER_LEN + IV_LEN],
    payload: [u8; SIZE],
    response_tag: [u8; TAG_LEN],
    ivs: [[u8; IV_LEN]; 2],
}

impl Calls {
    fn new(aead: &'static dyn AeadProvider, which: Keys) -> Self {
        let (regions, _) = keys(which);
        let regions: Vec<_> =
            regions.iter().map(|key| aead.schedule(&Key::from_bytes(*key.expose()))).collect();
        let frames = (0..BATCH).map(|_| Sealed {
            key: Key::default(),
            request: [1; _],
            request_tag: [0; _],
            response: [2; _],
            payload: [3; _],
            response_tag: [0; _],
            ivs: [[0; _]; 2],
        });
        let frames = frames.collect();
        Self { aead, regions, block: [4; _], frames, sealed: 0 }
    }

    /// One batch: nanoseconds at the initiator, and at the responder.
    fn batch(&mut self, clock: &TscClock) -> [u64; 2] {
        let Self { aead, regions, block, frames, sealed } = self;
        let first = *sealed as usize;
        for (index, frame) in frames.iter_mut().enumerate() {
            *sealed += 1;
            let [request, response] = [Direction::ToResponder, Direction::ToInitiator];
            frame.ivs = [request, response].map(|it| *Iv::new(it, EngineId(0), *sealed).octets());
            // The initiator has its key from a grant.
            let schedule = &regions[(first + index) % regions.len()];
            let jobs = [DeriveJob { schedule, from: DeriveFrom::Block(block) }];
            aead.derive(&jobs, core::slice::from_mut(&mut frame.key));
        }
        let start = clock.now();
        for frames in frames.chunks_mut(SIDE_BY_SIDE) {
            let jobs = frames.iter_mut().map(|frame| SealJob {
                key: JobKey::Fresh(&frame.key),
                iv: frame.ivs[0],
                aad: &frame.request,
                text: Text::empty(),
                tag: &mut frame.request_tag,
            });
            aead.seal(&mut jobs.collect::<ArrayVec<_, SIDE_BY_SIDE>>());
        }
        let requested = clock.now();
        let mut keys = [const { Key::from_bytes([0; 16]) }; SIDE_BY_SIDE];
        for (round, frames) in frames.chunks_mut(SIDE_BY_SIDE).enumerate() {
            let job = |index| DeriveJob {
                schedule: &regions[(first + round * SIDE_BY_SIDE + index) % regions.len()],
                from: DeriveFrom::Block(block),
            };
            let jobs: ArrayVec<_, SIDE_BY_SIDE> = (0..frames.len()).map(job).collect();
            aead.derive(&jobs, &mut keys[..frames.len()]);
            let jobs = frames.iter_mut().zip(&keys).map(|(frame, key)| OpenJob {
                key: JobKey::Fresh(key),
                iv: frame.ivs[0],
                aad: &frame.request,
                text: Text::empty(),
                tag: &frame.request_tag,
                authentic: false,
            });
            open(*aead, jobs.collect());
        }
        for frames in frames.chunks_mut(SIDE_BY_SIDE) {
            let jobs = frames.iter_mut().map(|frame| SealJob {
                key: JobKey::Fresh(&frame.key),
                iv: frame.ivs[1],
                aad: &frame.response,
                text: Text::in_place(&mut frame.payload),
                tag: &mut frame.response_tag,
            });
            aead.seal(&mut jobs.collect::<ArrayVec<_, SIDE_BY_SIDE>>());
        }
        let answered = clock.now();
        for frames in frames.chunks_mut(SIDE_BY_SIDE) {
            let jobs = frames.iter_mut().map(|frame| OpenJob {
                key: JobKey::Fresh(&frame.key),
                iv: frame.ivs[1],
                aad: &frame.response,
                text: Text::in_place(&mut frame.payload),
                tag: &frame.response_tag,
                authentic: false,
            });
            open(*aead, jobs.collect());
        }
        let landed = clock.now();
        let initiator = requested.nanos_since(start) + landed.nanos_since(answered);
        [initiator, answered.nanos_since(requested)]
    }
}

fn open(aead: &dyn AeadProvider, mut jobs: ArrayVec<OpenJob<'_>, SIDE_BY_SIDE>) {
    aead.open(&mut jobs);
    assert!(jobs.iter().all(|job| job.authentic), "they were just sealed");
}

#[cfg(test)]
mod tests {
    use rma_core::crypto::fastest;

    use super::*;

    #[test]
    fn reads_land_under_one_key_and_under_many_and_cost_more_than_their_aead() {
        for keys in [Keys::One, Keys::Many] {
            let turns = measure(fastest(), keys, 2);
            for side in turns.sides() {
                assert!(side.aead > 0.0 && side.turn > 0.0, "{turns:?}");
            }
        }
    }
}
