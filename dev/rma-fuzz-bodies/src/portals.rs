//! An engine whose applications share nothing but it: two honest ones, and one that writes anything
//! to its rings.
//!
//! Frames arrive at once and in order, and windows and tables have room for everybody. So an honest
//! op takes two or three turns, and every turn more is somebody else's doing: no more than that
//! one's slots allow (P8).

mod honest;
mod hostile;

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    engine::Engine,
    grant::Grant,
    limits::OP_SIZE_MAX,
    nic::{Nic, NicConfigBuilder, NicCounters, NicPlace, RegionEntry},
    one_rma::OneRma,
    op::{OpStatus, OpType},
    portal::{FlagLender, PortalConfig, portal},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    time::Clock,
    wire::FRAME_LEN_MAX,
};
use rma_lab::{HandClock, MemoryBackend, received};
use rma_shm::Region;
use rma_sim::prng::Prng;

use super::script::Script;
use honest::{Honest, Memory};
use hostile::{Hostile, Identity};

const TAG: NicTag = NicTag(1);

/// Command slots of each honest application.
const HONEST_SLOTS: u16 = 2;
/// Command slots of a hostile application that has many: more than are served in one turn.
const MANY_SLOTS: u16 = 48;

/// Frames of one op that wait at one time, at most; and how many pass in one turn, at least: large
/// ones, by the engine's quantum beside ops of the latency class.
const FRAMES_PER_OP: u32 = 4;
const FRAMES_PER_TURN: u32 = 2;

/// Bytes at the start of each region that do not change.
const CONSTANT_LEN: u64 = 2 * OP_SIZE_MAX as u64;

/// The first octet of a region key is its owner's number and this. What is derived from the hostile
/// application's keys, it may have.
const HONEST_KEY: u8 = 0x40;
const HOSTILE_KEY: u8 = 0x80;

/// The applications, by number.
const HOSTILE: u8 = 2;

/// Longer than any op takes, whatever becomes of it.
const LONG: Duration = Duration::from_secs(1);

pub(super) fn run(script: &mut Script<'_>) -> Arc<NicCounters> {
    let mut world = World::new(script);
    let counters = world.engine.service().nic().counters().clone();
    while let Some(step) = script.byte() {
        world.step(step, script);
    }
    world.finish();
    counters
}

struct World {
    engine: Engine<MemoryBackend, HandClock>,
    peer: Nic,
    peer_addr: HostAddr,
    honest: [Honest; 2],
    hostile: Hostile,
}

/// The engine's counts of all ops.
struct Counted {
    completions: u64,
    refused: u64,
    impossible: u64,
}

impl World {
    fn new(script: &mut Script<'_>) -> Self {
        let shape = script.number();
        let first = (script.number() as u32).wrapping_sub(1 << 7);
        let hostile_slots = if shape & 0x80 == 0 { 1 + shape as u16 % 8 } else { MANY_SLOTS };
        let addresses: [HostAddr; 2] =
            ["192.0.2.1", "192.0.2.2"].map(|addr| addr.parse().expect("an address"));
        let [mut nic, mut peer] = addresses.map(|addr| nic(addr, hostile_slots + 2 * HONEST_SLOTS));
        // The order of slots and of service must not matter.
        let mut order = [0, 1, HOSTILE];
        order.rotate_left(shape >> 3 & 3);
        let mut memories = [0, 1, HOSTILE].map(|who| {
            let slots = if who == HOSTILE { hostile_slots } else { HONEST_SLOTS };
            Some([memory(&mut nic, who, slots), memory(&mut peer, who, slots)])
        });
        let names = |memories: &Option<[Memory; 2]>| {
            memories.as_ref().map_or([RegionId::from_bits(0); 2], |both| {
                [both[0].region.id(), both[1].region.id()]
            })
        };
        let identity = Identity {
            slots: 0..0,
            pid: pid(HOSTILE),
            addresses,
            regions: names(&memories[usize::from(HOSTILE)]),
            victims: names(&memories[shape >> 5 & 1]),
        };
        let mut next = 0;
        let (mut ports, mut lender) = (Vec::new(), FlagLender::new());
        let (mut honest, mut hostile) = (Vec::new(), None);
        for who in order {
            let count = if who == HOSTILE { hostile_slots } else { HONEST_SLOTS };
            let slots = next..next + count;
            next += count;
            nic.configure_slots(slots.clone(), Some(pid(who)));
            let (port, both) = if who == HOSTILE {
                let (port, process) = Hostile::start(Identity { slots, ..identity.clone() }, first);
                hostile = Some(process);
                (port, None)
            } else {
                let (pid, addresses) = (pid(who), addresses[0].into());
                let config = PortalConfig {
                    slots,
                    pid,
                    addresses,
                    bell: None,
                    flag: Some(lender.lend()),
                    nic: TAG,
                };
                let (portal, port) = portal(config);
                (port, Some((portal, memories[usize::from(who)].take())))
            };
            ports.push(port);
            let Some((portal, Some([local, remote]))) = both else { continue };
            let grants = [OpType::Read, OpType::Write]
                .map(|op_type| grant(who, op_type, addresses, &remote.region));
            let turns_of_others = u32::from(hostile_slots) * FRAMES_PER_OP / FRAMES_PER_TURN;
            let under_way = Vec::new();
            honest.push(Honest { portal, grants, local, remote, under_way, turns_of_others });
        }
        let mut engine =
            Engine::new(OneRma::new(nic), MemoryBackend::default(), HandClock::default());
        ports.into_iter().for_each(|port| engine.service_mut().attach(port));
        let honest = honest.try_into().unwrap_or_else(|_| unreachable!("two of the three"));
        let hostile = hostile.expect("one of the three");
        Self { engine, peer, peer_addr: addresses[1], honest, hostile }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        match step & 0x0f {
            0 | 1 => self.turn(),
            2 | 3 => self.honest[usize::from(step >> 7)].issue(script),
            14 => self.pass(Duration::from_millis(script.number() as u64)),
            15 => self.restart(script.number() as u32),
            step => self.hostile.step(step, script),
        }
    }

    fn counted(&self) -> Counted {
        let counters = self.engine.service().nic().counters();
        Counted {
            completions: OpStatus::ALL.into_iter().map(|s| counters.completions(s)).sum(),
            refused: counters.commands_refused(),
            impossible: counters.impossible_indexes(),
        }
    }

    fn turn(&mut self) {
        let (before, rings_before) = (self.counted(), self.hostile.before());
        self.engine.turn();
        // A look at shared memory, too.
        let _ = self.engine.is_idle();
        self.carry();
        self.let_pass(Duration::from_micros(1));

        let honest_done: u64 = self.honest.iter_mut().map(Honest::poll).sum();
        let after = self.counted();
        assert!(after.impossible >= before.impossible);
        let done = after.completions - before.completions - honest_done;
        let refused = after.refused - before.refused;
        self.hostile.account(&rings_before, done as u32, refused as u32);
        for nic in [self.engine.service().nic(), &self.peer] {
            assert!(nic.window_debited() <= nic.config().settings().solicitation_window, "P3");
        }
    }

    /// Frames arrive, and the peer answers.
    fn carry(&mut self) {
        let now = self.engine.clock().now();
        self.peer.handle_timeout(now);
        let wire = self.engine.backend_mut();
        let mut out = [0; FRAME_LEN_MAX];
        while let Some((transmit, mut bytes)) = wire.sent.pop_front() {
            if transmit.destination == self.peer_addr {
                // The sender will hear the frame's fate.
                let _ = self.peer.handle_frame(now, &now, received(transmit, &mut bytes));
            }
        }
        while let Some(transmit) = self.peer.poll_transmit(now, &mut out) {
            wire.arriving.push_back((transmit, out[..transmit.len].to_vec()));
        }
    }

    fn let_pass(&self, time: Duration) {
        self.engine.clock().advance(time);
    }

    /// Time passes while no honest op is under way.
    fn pass(&mut self, time: Duration) {
        let turns = self.honest.iter().map(Honest::turns_left).max();
        for _ in 0..turns.unwrap_or_default() {
            self.turn();
        }
        assert!(self.honest.iter().all(|honest| honest.under_way.is_empty()));
        self.let_pass(time);
        self.turn();
    }

    /// The hostile process dies, and another gets its slots: if none of its ops is under way.
    fn restart(&mut self, first: u32) {
        let slots = &self.hostile.identity.slots;
        let port = self.engine.service_mut().detach(slots);
        let settled = self.hostile.is_settled();
        assert_eq!(port.is_some(), settled, "only ops under way hold a portal up");
        if settled {
            assert!(self.engine.service().nic().are_free(slots.clone()));
            let (port, next) = Hostile::start(self.hostile.identity.clone(), first);
            self.engine.service_mut().attach(port);
            self.hostile = next;
        }
    }

    /// Nothing stays: no op, no slot, no window; and nobody has touched the honest applications'
    /// memory.
    fn finish(mut self) {
        self.honest.iter_mut().for_each(|honest| honest.issue(&mut Script(&[0xff; 4])));
        self.pass(LONG);
        self.hostile.stop();
        for _ in 0..8 {
            self.pass(LONG);
        }
        assert!(self.hostile.is_settled(), "every command that was taken has completed");
        self.restart(0);
        for nic in [self.engine.service().nic(), &self.peer] {
            assert_eq!(nic.window_debited(), 0);
        }
        self.honest.iter().for_each(Honest::check);
    }
}

fn nic(addr: HostAddr, slots: u16) -> Nic {
    let settings = NicConfigBuilder::default().with(|it| {
        it.command_slots = slots.into();
        it.regions = 3;
        it.inbound_queue = slots.into();
        // Half of the entries and half of the window are for those that are solicited, and none is
        // to wait.
        it.pending_writes = 2 * u32::from(slots);
        it.solicitation_window = 2 * u32::from(slots) * OP_SIZE_MAX;
    });
    Nic::new(settings.build(NicPlace::at(addr)).expect("settings that work"))
}

const fn pid(who: u8) -> Pid {
    Pid(10 + who as u32)
}

const fn key(who: u8) -> RegionKey {
    RegionKey::from_bytes([if who == HOSTILE { HOSTILE_KEY } else { HONEST_KEY + who }; 16])
}

/// Makes the grant of application `who` on a region of its own on the other host.
fn grant(who: u8, op_type: OpType, addresses: [HostAddr; 2], region: &RegisteredRegion) -> Grant {
    let ([initiator, responder], pid) = (addresses, pid(who));
    let binding = KeyBinding { initiator, responder, pid, op_type };
    let key = RegionKeySchedule::new(&key(who)).derive(&binding);
    let (region, region_len) = (region.id(), region.len());
    Grant { responder, region, region_len, initiator, pid, op_type, key }
}

/// A region of application `who`. The holders of its key may do everything.
fn memory(nic: &mut Nic, who: u8, slots: u16) -> Memory {
    let mut content = vec![0; CONSTANT_LEN as usize + usize::from(slots) * OP_SIZE_MAX as usize];
    Prng::new(who.into()).fill(&mut content[..CONSTANT_LEN as usize]);
    let memory = Arc::new(Region::new(content.len()).expect("some pages"));
    memory.copy_in(0, &content).expect("the same length");
    let everything = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
    let entry = RegionEntry::new(memory.clone(), &key(who), everything, pid(who));
    let id = nic.regions_mut().register(Box::new(entry));
    let id = id.map_err(|(error, _)| error).expect("the table has room for it");
    Memory { region: RegisteredRegion::new(id, memory, TAG), content }
}
