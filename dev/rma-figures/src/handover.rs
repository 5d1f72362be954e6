//! The cost of frames that land at the wrong engine of a host: READs whose answers do, and SENDs
//! whose receive queue is another engine's, each over those that land right.
//!
//! All engines take turns in one thread, joined by memory: no system call, no other core, no
//! doorbell. So what handing over costs both engines is counted, and not what two cores gain.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use rma_core::{
    addr::HostAddr,
    crypto::EngineId,
    grant::Grant,
    nic::RegionEntry,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{Permissions, RegionNames, RegisteredRegion},
    time::Clock,
};
use rma_xdp::{Region, time::TscClock};

use crate::{
    joined::{self, Issuer, KEY},
    memory::{Memory, Wire},
    turn::{BATCH, PID, REGION_LEN, SIZE, addresses},
};

/// The home of all regions.
const FIRST: EngineId = EngineId(0);

/// Batches of one round.
const BATCHES: usize = 32;

/// A host of two engines that asks, and one of two that is asked.
struct Scene {
    asking: Vec<Issuer>,
    asked: Vec<Issuer>,
    local: RegisteredRegion,
    grants: [Grant; 2],
    queue: ReceiveQueue,
    clock: TscClock,
}

/// The engine, of two, at which frames land that are for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lands {
    Right,
    Wrong,
}

fn host(address: HostAddr, ends: [Memory; 2], clock: &TscClock) -> Vec<Issuer> {
    let each = joined::places(2).into_iter().zip(ends);
    each.map(|(place, end)| Issuer::new(address, place, end, clock)).collect()
}

impl Scene {
    /// Requests, and answers, land where they are said to.
    fn new(requests: Lands, answers: Lands) -> Self {
        let clock = TscClock::new();
        let [there, back, idle] = [(); 3].map(|()| Wire::new());
        // The first engine asks, and the first answers what it is asked itself.
        let ends = |lands, inbound: &Rc<RefCell<_>>, outbound: &Rc<RefCell<_>>| {
            let end = |is_lit: bool| Memory {
                inbound: Rc::clone(if is_lit { inbound } else { &idle }),
                outbound: Rc::clone(outbound),
            };
            [end(lands == Lands::Right), end(lands == Lands::Wrong)]
        };
        let [initiator, responder] = addresses();
        let mut asking = host(initiator, ends(answers, &back, &there), &clock);
        let mut asked = host(responder, ends(requests, &there, &back), &clock);
        let mut names = RegionNames::new(8);
        let local = joined::register(&mut asking, &mut names, FIRST, Permissions::NONE);
        let region = joined::register(&mut asked, &mut names, FIRST, Permissions::READ);
        let layout = ReceiveQueueLayout::new(BATCH as u16, SIZE as u32).expect("small");
        let memory = Arc::new(Region::new(layout.memory_len()).expect("small"));
        let rings = ReceiveQueueMemory::heap(layout);
        let queue = joined::register_rows(&mut asked, &mut names, &memory, |engine| {
            let memory = Arc::clone(&memory);
            let entry = if engine == 0 {
                let port = rings.clone().into_port(None);
                RegionEntry::receive_queue(port, memory, &KEY, Permissions::SEND, PID)
            } else {
                RegionEntry::new(memory, &KEY, Permissions::NONE, PID)
            };
            entry.at_home(FIRST)
        });
        let grants = [
            joined::grant(responder, &region, REGION_LEN, OpType::Read),
            joined::grant(responder, &queue, SIZE, OpType::Send),
        ];
        Self { asking, asked, local, grants, queue: rings.into_application(queue), clock }
    }

    /// One batch of READs or SENDs. Returns the nanoseconds of all turns.
    fn batch(&mut self, op_type: OpType) -> u64 {
        let Self { asking, asked, local, grants: [read, send], queue, clock } = self;
        if op_type == OpType::Send {
            while queue.poll().is_some() {}
            queue.post_all();
        }
        let portal = &mut asking[0].portal;
        for _ in 0..BATCH {
            let issued = match op_type {
                OpType::Send => portal.send(send, local, 0, SIZE as u32, 0),
                _ => portal.read(read, 0, local, 0, SIZE as u32),
            };
            issued.expect("a free slot");
        }
        let (began, mut ended) = (clock.now(), 0);
        while ended < BATCH {
            // The engine that is handed over to comes last, so that each frame is carried at once.
            for host in [&mut *asking, &mut *asked] {
                host.iter_mut().rev().for_each(|issuer| {
                    issuer.engine.turn();
                });
            }
            ended += joined::ended(&mut asking[0].portal);
        }
        clock.now().nanos_since(began)
    }
}

/// Rates of ops whose frames land wrong, over those whose frames land right.
#[derive(Clone, Copy, Debug)]
pub struct HandedOver {
    /// READs whose answers land wrong.
    pub reads: f64,
    /// SENDs whose requests and data land at another engine than their queue's.
    pub sends: f64,
}

/// Measures so many rounds of 32 batches of each kind, in turns, and takes the medians.
///
/// # Panics
/// If an op does not succeed.
#[must_use]
pub fn measure(rounds: usize) -> HandedOver {
    let over = |op_type, wrong: [Lands; 2]| {
        let mut scenes =
            [[Lands::Right; 2], wrong].map(|[requests, answers]| Scene::new(requests, answers));
        let mut times: [Vec<u64>; 2] = Default::default();
        for round in 0..=rounds {
            for (scene, times) in scenes.iter_mut().zip(&mut times) {
                let batches = (0..BATCHES).map(|_| scene.batch(op_type));
                // The first round warms up.
                times.extend(batches.collect::<Vec<_>>().into_iter().filter(|_| round > 0));
            }
        }
        let [right, wrong] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2] as f64
        });
        right / wrong
    };
    HandedOver {
        reads: over(OpType::Read, [Lands::Right, Lands::Wrong]),
        sends: over(OpType::Send, [Lands::Wrong, Lands::Right]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_succeed_whose_frames_land_at_the_wrong_engine_and_are_handed_over() {
        for op_type in [OpType::Read, OpType::Send] {
            let mut scene = Scene::new(Lands::Wrong, Lands::Wrong);
            for _ in 0..3 {
                scene.batch(op_type);
            }
        }
    }
}
