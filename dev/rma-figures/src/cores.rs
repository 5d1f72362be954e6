//! Engines of one host on cores of their own, beside hosts of one engine on the same cores, and
//! beside an engine that a stranger floods.
//!
//! Each thread has an engine of the host that reads and one of the host that is read from, joined
//! by memory: so all that the threads share is what engines of a host share.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use rma_bench::pair::pinned;
use rma_core::{
    addr::HostAddr,
    grant::Grant,
    op::OpType,
    region::{Permissions, RegisteredRegion},
    time::Clock,
};
use rma_xdp::time::TscClock;

use crate::{
    joined::{self, Issuer, Place},
    memory::{FRAMES, Memory, Wire},
    turn::{BATCH, REGION_LEN, SIZE, addresses},
};

/// Batches of one round.
const BATCHES: usize = 256;

/// The places of engines of two hosts, for one thread.
type Both = [Place; 2];

/// An engine that reads and one that is read from.
struct Lane {
    asking: Issuer,
    asked: Issuer,
    /// Frames to the engine that reads.
    back: Rc<RefCell<Wire>>,
    local: RegisteredRegion,
    grant: Grant,
    clock: TscClock,
}

impl Lane {
    fn new([asking, asked]: Both) -> Self {
        let clock = TscClock::new();
        let [there, back] = [(); 2].map(|()| Wire::new());
        let end = |inbound: &Rc<_>, outbound: &Rc<_>| Memory {
            inbound: Rc::clone(inbound),
            outbound: Rc::clone(outbound),
        };
        let [initiator, responder] = addresses();
        let mut asking = Issuer::new(initiator, asking, end(&back, &there), &clock);
        let mut asked = Issuer::new(responder, asked, end(&there, &back), &clock);
        let local = asking.first_region(Permissions::NONE);
        let region = asked.first_region(Permissions::READ);
        let grant = joined::grant(responder, &region, REGION_LEN, OpType::Read);
        Self { asking, asked, back, local, grant, clock }
    }

    /// So many READs at once. Returns the nanoseconds until all have ended.
    fn batch(&mut self, at_once: usize) -> u64 {
        let began = self.clock.now();
        for _ in 0..at_once {
            joined::read(&mut self.asking.portal, &self.grant, &self.local);
        }
        let mut ended = 0;
        while ended < at_once {
            self.asking.engine.turn();
            self.asked.engine.turn();
            ended += joined::ended(&mut self.asking.portal);
        }
        self.clock.now().nanos_since(began)
    }

    /// READs a nanosecond, over one round.
    fn rate(&mut self) -> f64 {
        let nanos: u64 = (0..BATCHES).map(|_| self.batch(BATCH)).sum();
        (BATCHES * BATCH) as f64 / nanos as f64
    }
}

/// The rates of engines of one host, each on a core of its own.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// How many engines.
    pub engines: u16,
    /// Over those of as many hosts of one engine on the same cores.
    pub over_hosts: f64,
    /// Over that of a host of one engine, on the first of the cores, while the others sleep.
    pub over_one: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn pairs(engines: u16) -> Vec<Both> {
    let both = joined::places(engines).into_iter().zip(joined::places(engines));
    both.map(|(asking, asked)| [asking, asked]).collect()
}

/// Measures one engine for each of `cores`, at most 32, in so many rounds of all three kinds.
///
/// # Panics
/// If a READ does not succeed.
#[must_use]
pub fn together(cores: &[usize], rounds: usize) -> Together {
    let barrier = &Barrier::new(cores.len());
    let in_thread = |own: Both, core: usize, is_first: bool| {
        move || {
            pinned(Some(core), || {
                let alone = pairs(1).pop().expect("one engine");
                let (mut alone, mut beside) = (Lane::new(alone), Lane::new(own));
                let mut rates = Vec::new();
                for _ in 0..=rounds {
                    let mut of_round = [0.0; 3];
                    for (kind, rate) in of_round.iter_mut().enumerate() {
                        barrier.wait();
                        *rate = match kind {
                            0 if !is_first => 0.0,
                            0 | 1 => alone.rate(),
                            _ => beside.rate(),
                        };
                    }
                    rates.push(of_round);
                }
                rates
            })
        }
    };
    let all: Vec<Vec<[f64; 3]>> = std::thread::scope(|scope| {
        let begin = |(own, &core): (Both, &usize)| {
            let is_first = own[0].index == 0;
            scope.spawn(in_thread(own, core, is_first))
        };
        let threads: Vec<_> = pairs(cores.len() as u16).into_iter().zip(cores).map(begin).collect();
        threads.into_iter().map(|it| it.join().expect("all READs succeed")).collect()
    });
    let sum = |round: usize, kind: usize| all.iter().map(|it| it[round][kind]).sum::<f64>();
    // The first round warms up.
    let over = |kind| median((1..=rounds).map(|round| sum(round, 2) / sum(round, kind)).collect());
    Together { engines: cores.len() as u16, over_one: over(0), over_hosts: over(1) }
}

/// The frames that a stranger floods the first engine with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    /// Nothing: it takes turns that find nothing.
    None,
    /// READs under a key that is none, which it opens itself.
    Own,
    /// SENDs under a key that is none, to a queue at the second engine: handed over.
    HandedOver,
}

/// The p99 of an engine's own READs while another engine of its host is flooded, over that without.
#[derive(Clone, Copy, Debug)]
pub struct Flooded {
    /// By frames that the other engine opens and drops.
    pub own: f64,
    /// By frames that are for the engine that reads, and are handed over to it.
    pub handed_over: f64,
    /// Frames that were handed over.
    pub frames: u64,
}

/// A stranger's requests to the first of [`addresses`], under a key that is none.
fn forged(region: &RegisteredRegion, op_type: OpType) -> Vec<Vec<u8>> {
    let place = joined::places(1).pop().expect("one engine");
    let [inbound, outbound] = [(); 2].map(|()| Wire::new());
    let end = Memory { inbound, outbound: Rc::clone(&outbound) };
    let [victim, stranger] = addresses();
    let mut stranger = Issuer::new(stranger, place, end, &TscClock::new());
    let local = stranger.first_region(Permissions::NONE);
    let grant = Grant {
        responder: victim,
        initiator: addresses()[1],
        ..joined::grant(victim, region, SIZE, op_type)
    };
    for _ in 0..BATCH {
        let portal = &mut stranger.portal;
        let issued = match op_type {
            OpType::Send => portal.send(&grant, &local, 0, SIZE as u32, 0),
            _ => portal.read(&grant, 0, &local, 0, SIZE as u32),
        };
        issued.expect("a free slot");
    }
    stranger.engine.turn();
    let wire = outbound.borrow();
    wire.on_their_way().map(|(_, bytes)| bytes.to_vec()).collect()
}

/// Floods an engine until it is told to stop, and counts what it has handed over.
fn be_flooded(place: Both, is_over: &AtomicBool, kind: &AtomicUsize) -> u64 {
    let mut lane = Lane::new(place);
    let floods = [OpType::Read, OpType::Send].map(|op_type| forged(&lane.local, op_type));
    let [victim, stranger]: [HostAddr; 2] = addresses();
    while !is_over.load(SeqCst) {
        let flood = match kind.load(SeqCst) {
            kind if kind == Flood::Own as usize => &floods[0],
            kind if kind == Flood::HandedOver as usize => &floods[1],
            _ => &Vec::new(),
        };
        for frame in flood.iter().cycle().take(if flood.is_empty() { 0 } else { FRAMES }) {
            lane.back.borrow_mut().put([stranger, victim], |bytes| {
                bytes[..frame.len()].copy_from_slice(frame);
                frame.len()
            });
        }
        while lane.asking.engine.turn() > 0 {
            // Notices to the stranger.
            lane.asked.engine.turn();
        }
    }
    lane.asking.handed.given()
}

/// Measures so many rounds of all kinds of flood, each of 256 batches of READs.
///
/// # Panics
/// If a READ does not succeed.
#[must_use]
pub fn flooded(cores: [usize; 2], at_once: usize, rounds: usize) -> Flooded {
    let mut places = pairs(2);
    let (reading, attacked) = (places.pop().expect("two"), places.pop().expect("two"));
    let (is_over, kind) = (&AtomicBool::new(false), &AtomicUsize::new(Flood::None as usize));
    std::thread::scope(|scope| {
        let victim =
            scope.spawn(move || pinned(Some(cores[0]), || be_flooded(attacked, is_over, kind)));
        let kinds = [Flood::None, Flood::Own, Flood::HandedOver];
        let rounds = pinned(Some(cores[1]), || {
            let mut lane = Lane::new(reading);
            let mut round = || {
                kinds.map(|flood| {
                    kind.store(flood as usize, SeqCst);
                    let mut times: Vec<_> = (0..BATCHES).map(|_| lane.batch(at_once)).collect();
                    times.sort_unstable();
                    times[BATCHES * 99 / 100] as f64
                })
            };
            // The first round warms up.
            let rounds: Vec<_> = (0..=rounds).map(|_| round()).skip(1).collect();
            is_over.store(true, SeqCst);
            rounds
        });
        let over = |kind: usize| median(rounds.iter().map(|it| it[kind] / it[0]).collect());
        let frames = victim.join().expect("the flooded engine goes on");
        Flooded { own: over(1), handed_over: over(2), frames }
    })
}
