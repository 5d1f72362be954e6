//! The cost of engines' turns with large numbers: portals, regions, initiators.
//!
//! Engines in one thread with memory between them, as in [`turn`](crate::turn). What is timed is
//! one engine's turns and nothing else. Where a request has another initiator each time, it is
//! written and sealed into the same few buffers right before the turn, and outside of what is
//! timed: a device, too, puts a frame into the cache just before the engine looks at it. (Requests
//! that lay ready for 20,000 initiators would be cold, and it would be they that are measured.)
//!
//! One and many of something take turns within each round, and a figure is the median of the
//! rounds' ratios: a machine that gets slower gets so for both.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::{
        AeadProvider, DerivedRegionKey, Direction, EngineId, KeyBinding, RegionKey,
        RegionKeySchedule,
    },
    engine::Engine,
    grant::Grant,
    limits::TAG_LEN,
    nic::{NicConfigBuilder, RegionEntry},
    op::{ClassOfService, OpStatus, OpType},
    portal::{CommandPortal, FlagLender, PortalConfig, portal},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    seal,
    time::Clock,
    wire::{
        FrameView, Header, Request,
        read::{REQUEST_HEADER_LEN, REQUEST_LEN, RESPONSE_HEADER_LEN},
    },
};
use rma_crypto::{JobKey, OpenJob, SealJob, Text};
use rma_xdp::{Region, time::TscClock};

use crate::{
    memory::{Memory, Wire},
    turn::{BATCH, PID, REGION_LEN, SIZE, addresses, engine, initiator_turn, responder_turn},
};

/// Batches of one thing, and then of many, in each round.
const BATCHES: usize = 16;

/// The cost of one and the cost of many, of the same work, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct OneAndMany {
    /// With one: the median.
    pub one: f64,
    /// With many: the median.
    pub many: f64,
    /// The median of the rounds' ratios.
    pub ratio: f64,
}

/// Measures `rounds` rounds. `sample` does some work with one (0) or many (1), and tells
/// nanoseconds.
fn in_turns(rounds: usize, mut sample: impl FnMut(usize) -> f64) -> OneAndMany {
    let (mut all, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..=rounds {
        let medians = [0, 1].map(|which| {
            let mut samples: Vec<_> = (0..BATCHES).map(|_| sample(which)).collect();
            median(&mut samples)
        });
        // The first round warms up.
        if round > 0 {
            ratios.push(medians[1] / medians[0]);
            all.iter_mut().zip(medians).for_each(|(all, median)| all.push(median));
        }
    }
    let [one, many] = all.map(|mut all| median(&mut all));
    OneAndMany { one, many, ratio: median(&mut ratios) }
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The measurements of portals.
#[derive(Clone, Copy, Debug)]
pub struct Portals {
    /// A turn of an initiator's engine that finds nothing to do, all portals being quiet.
    pub idle_turn: OneAndMany,
    /// An initiator's turns for a 64 B READ, all issued through one of its portals.
    pub turns: OneAndMany,
}

/// Measures engines with one portal and with `count`.
///
/// # Panics
/// If a read does not succeed.
#[must_use]
pub fn portals(aead: &'static dyn AeadProvider, count: u16, rounds: usize) -> Portals {
    let clock = TscClock::new();
    let mut ends = [1, count].map(|count| Ends::new(aead, count, 1, &clock));
    ends.iter_mut().for_each(Ends::be_quiet);
    let idle_turn = in_turns(rounds, |which| ends[which].idle_turn(&clock));
    let turns = in_turns(rounds, |which| ends[which].batch(&clock)[0]);
    Portals { idle_turn, turns }
}

/// Measures a responder's turns for a 64 B READ, with one region and with `count`, each of 4 KiB
/// and with a key of its own: every READ is of any of them, at any place.
///
/// # Panics
/// If a read does not succeed, or lands other bytes than those that it reads.
#[must_use]
pub fn regions(aead: &'static dyn AeadProvider, count: usize, rounds: usize) -> OneAndMany {
    let clock = TscClock::new();
    let mut ends = [1, count].map(|count| Ends::new(aead, 1, count, &clock));
    let result = in_turns(rounds, |which| ends[which].batch(&clock)[1]);
    ends.iter().for_each(Ends::check);
    result
}

/// Measures a responder's turns for a 64 B READ, with one initiator and with `count`: every READ
/// comes from any of them.
///
/// # Panics
/// If a request is not answered, or with other bytes than those that it asks for.
#[must_use]
pub fn initiators(aead: &'static dyn AeadProvider, count: usize, rounds: usize) -> OneAndMany {
    let clock = TscClock::new();
    let mut ends = [1, count].map(|count| Asked::new(aead, count, &clock));
    in_turns(rounds, |which| ends[which].batch(&clock))
}

/// Numbers in no order, the same in each run.
pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

/// Returns the content of each region.
fn source() -> [u8; REGION_LEN] {
    core::array::from_fn(|i| (i * 7 / 3) as u8)
}

fn region_key(number: usize) -> RegionKey {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&(number as u64).to_le_bytes());
    RegionKey::from_bytes(key)
}

type MemoryEngine = Engine<Memory, TscClock>;

/// Registers memory that holds [`source`], under key `number`.
fn register(
    engine: &mut MemoryEngine,
    number: usize,
    permissions: Permissions,
) -> RegisteredRegion {
    let memory = Arc::new(Region::new(REGION_LEN).expect("small"));
    memory.copy_in(0, &source()).expect("as long");
    let entry = RegionEntry::new(Arc::clone(&memory), &region_key(number), permissions, PID);
    let id = engine.service_mut().nic_mut().regions_mut().register(Box::new(entry));
    RegisteredRegion::new(id.expect("there is room"), memory, NicTag(1))
}

/// Two engines: one whose application reads, and one whose regions are read.
struct Ends {
    initiator: MemoryEngine,
    responder: MemoryEngine,
    /// The one that is used, which came last.
    portal: CommandPortal,
    /// The others.
    _quiet: Vec<CommandPortal>,
    grants: Vec<Grant>,
    sink: RegisteredRegion,
    random: Random,
}

impl Ends {
    fn new(
        aead: &'static dyn AeadProvider,
        portals: u16,
        regions: usize,
        clock: &TscClock,
    ) -> Self {
        let (there, back) = (Wire::new(), Wire::new());
        let [here, remote] = addresses();
        let settings = NicConfigBuilder::default().with(|it| {
            it.command_slots = u32::from(portals) + BATCH as u32;
            it.regions = regions as u32;
        });
        let end = |inbound: &Rc<RefCell<Wire>>, outbound: &Rc<RefCell<Wire>>| Memory {
            inbound: Rc::clone(inbound),
            outbound: Rc::clone(outbound),
        };
        let mut initiator = engine(end(&back, &there), here, settings, aead, clock.clone());
        let mut responder = engine(end(&there, &back), remote, settings, aead, clock.clone());
        let binding =
            KeyBinding { initiator: here, responder: remote, pid: PID, op_type: OpType::Read };
        let grants = (0..regions).map(|number| Grant {
            responder: remote,
            region: register(&mut responder, number, Permissions::READ).id(),
            region_len: REGION_LEN as u64,
            initiator: here,
            pid: PID,
            op_type: OpType::Read,
            key: RegionKeySchedule::new(&region_key(number)).derive(&binding),
        });
        let grants = grants.collect();
        let sink = register(&mut initiator, 0, Permissions::NONE);
        sink.write(0, &[0; REGION_LEN]).expect("as long");
        let mut lender = FlagLender::new();
        let mut serve = |slots: core::ops::Range<u16>| {
            let service = initiator.service_mut();
            service.nic_mut().configure_slots(slots.clone(), Some(PID));
            let (addresses, nic, flag) = (here.into(), NicTag(1), Some(lender.lend()));
            let (portal, port) =
                portal(PortalConfig { slots, pid: PID, addresses, bell: None, flag, nic });
            service.attach(port);
            portal
        };
        let _quiet = (1..portals).map(|slot| serve(slot - 1..slot)).collect();
        let portal = serve(portals - 1..portals - 1 + BATCH as u16);
        let random = Random::default();
        Self { initiator, responder, portal, _quiet, grants, sink, random }
    }

    /// Turns until the initiator's engine has seen for a while that nobody issues anything.
    fn be_quiet(&mut self) {
        let clock = self.initiator.clock().clone();
        let begun = clock.now();
        while clock.now().nanos_since(begun) < 20_000_000 {
            initiator_turn(&mut self.initiator);
        }
    }

    /// Nanoseconds of a turn that finds nothing.
    fn idle_turn(&mut self, clock: &TscClock) -> f64 {
        let begun = clock.now();
        for _ in 0..BATCH {
            assert_eq!(initiator_turn(&mut self.initiator), 0, "nobody issues anything");
        }
        clock.now().nanos_since(begun) as f64 / BATCH as f64
    }

    /// One batch: nanoseconds of a read at the initiator, and at the responder.
    fn batch(&mut self, clock: &TscClock) -> [f64; 2] {
        for _ in 0..BATCH {
            let grant = &self.grants[self.random.below(self.grants.len())];
            // Wherever a read comes from, that is where it lands.
            let offset = (self.random.below(REGION_LEN / SIZE) * SIZE) as u64;
            let issued = self.portal.read(grant, offset, &self.sink, offset, SIZE as u32);
            issued.expect("as many as there are slots");
        }
        let issued = clock.now();
        initiator_turn(&mut self.initiator);
        let requested = clock.now();
        responder_turn(&mut self.responder);
        let answered = clock.now();
        initiator_turn(&mut self.initiator);
        let landed = clock.now();
        for _ in 0..BATCH {
            let status = self.portal.poll().map(|completion| completion.status);
            assert_eq!(status, Some(OpStatus::Ok), "two turns are enough");
        }
        let initiator = requested.nanos_since(issued) + landed.nanos_since(answered);
        [initiator, answered.nanos_since(requested)].map(|nanos| nanos as f64 / BATCH as f64)
    }

    /// Whether everything that was read has landed.
    fn check(&self) {
        let mut landed = [0; REGION_LEN];
        self.sink.read(0, &mut landed).expect("as long");
        assert!(landed == source(), "what was read is what was there");
    }
}

/// An engine that is asked by many initiators, which are no more than an address and a key each.
struct Asked {
    responder: MemoryEngine,
    there: Rc<RefCell<Wire>>,
    back: Rc<RefCell<Wire>>,
    region: RegionId,
    initiators: Vec<(HostAddr, DerivedRegionKey)>,
    aead: &'static dyn AeadProvider,
    /// The last counter value that an initiator used: each is used by one.
    counter: u64,
    random: Random,
    source: [u8; REGION_LEN],
}

impl Asked {
    fn new(aead: &'static dyn AeadProvider, count: usize, clock: &TscClock) -> Self {
        let (there, back) = (Wire::new(), Wire::new());
        let [_, here] = addresses();
        let end = Memory { inbound: Rc::clone(&there), outbound: Rc::clone(&back) };
        let mut responder = engine(end, here, NicConfigBuilder::default(), aead, clock.clone());
        let region = register(&mut responder, 0, Permissions::READ).id();
        let schedule = RegionKeySchedule::new(&region_key(0));
        let initiators = (0..count as u32).map(|number| {
            let [_, b, c, d] = number.to_be_bytes();
            let initiator = HostAddr::from([10, b, c, d]);
            let (pid, op_type) = (Pid(number), OpType::Read);
            let binding = KeyBinding { initiator, responder: here, pid, op_type };
            (initiator, schedule.derive(&binding))
        });
        let (initiators, random) = (initiators.collect(), Random(0x2545_f491_4f6c_dd1d));
        Self {
            responder,
            there,
            back,
            region,
            initiators,
            aead,
            counter: 0,
            random,
            source: source(),
        }
    }

    /// One batch: nanoseconds of a read at the responder.
    fn batch(&mut self, clock: &TscClock) -> f64 {
        let asked: [_; BATCH] = core::array::from_fn(|_| self.ask());
        let begun = clock.now();
        responder_turn(&mut self.responder);
        let took = clock.now().nanos_since(begun);
        self.check(&asked);
        took as f64 / BATCH as f64
    }

    /// Puts the request of some initiator on the wire. Tells whose, and its header.
    fn ask(&mut self) -> (usize, Request) {
        let number = self.random.below(self.initiators.len());
        let (initiator, key) = self.initiators[number];
        self.counter += 1;
        let request = Request {
            header: Header {
                class: ClassOfService::Latency,
                pid: Pid(number as u32),
                region: self.region,
                slot: rma_core::command::CommandSlotId((self.counter % 64) as u16),
                generation: self.counter as u32,
                engine: EngineId(0),
                counter: self.counter,
            },
            region_offset: (self.random.below(REGION_LEN / SIZE) * SIZE) as u64,
            op_size: SIZE as u16,
            payload_len_max: SIZE as u16,
        };
        let [_, responder] = addresses();
        self.there.borrow_mut().put([initiator, responder], |bytes| {
            request.emit(bytes.first_chunk_mut().expect("a frame has room"));
            let frame = seal::split(&mut bytes[..REQUEST_LEN], REQUEST_HEADER_LEN);
            let frame = frame.expect("as long as that");
            let iv = *request.header.iv(Direction::ToResponder).octets();
            let (key, text) = (JobKey::Fresh(key.as_key()), Text::in_place(frame.payload));
            self.aead.seal(&mut [SealJob { key, iv, aad: frame.header, text, tag: frame.tag }]);
            REQUEST_LEN
        });
        (number, request)
    }

    /// Whether each of `asked` was answered, with what it asked for.
    fn check(&mut self, asked: &[(usize, Request)]) {
        let Self { back, initiators, aead, source, .. } = self;
        let mut answered = 0;
        back.borrow_mut().drain(|destination, bytes| {
            let view = FrameView::parse(bytes).expect("a frame");
            let FrameView::ReadResponse(response) = view else { panic!("an answer: {view:?}") };
            let response = response.claims();
            let is_its = |(_, request): &&(usize, Request)| {
                request.header.generation == response.header.generation
            };
            let &(number, request) = asked.iter().find(is_its).expect("an answer to one of them");
            let (initiator, key) = initiators[number];
            assert_eq!(destination, initiator);
            let frame = seal::split(bytes, RESPONSE_HEADER_LEN).expect("it was parsed");
            let mut aad = frame.header.to_vec();
            aad.extend(request.header.iv(Direction::ToResponder).octets());
            let iv = *response.header.iv(Direction::ToInitiator).octets();
            let (key, text) = (JobKey::Fresh(key.as_key()), Text::in_place(frame.payload));
            let tag: &[u8; TAG_LEN] = frame.tag;
            let mut jobs = [OpenJob { key, iv, aad: &aad, text, tag, authentic: false }];
            aead.open(&mut jobs);
            assert!(jobs[0].authentic, "an answer to this initiator");
            let at = request.region_offset as usize;
            assert_eq!(bytes[RESPONSE_HEADER_LEN..][..SIZE], source[at..at + SIZE]);
            answered += 1;
        });
        assert_eq!(answered, asked.len(), "one turn is enough");
    }
}

#[cfg(test)]
mod tests {
    use rma_core::crypto::fastest;

    use super::*;

    #[test]
    fn much_of_anything_is_served_and_timed() {
        let Portals { idle_turn, turns } = portals(fastest(), 100, 2);
        let others = [regions(fastest(), 300, 2), initiators(fastest(), 300, 2)];
        for it in [idle_turn, turns].into_iter().chain(others) {
            assert!(it.one > 0.0 && it.many > 0.0 && it.ratio > 0.0, "{it:?}");
        }
    }
}
