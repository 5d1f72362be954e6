//! The shares of 1RMA and StaR in one engine that both keep busy.
//!
//! Two engines, each with both services, joined by wires that take few frames a turn: READs of
//! 1RMA and WRITEs of StaR's stateful side, more of either than fit. Frames count of turns after
//! which both services have still some: in them, what one has not got the other has.

use rma_core::{
    addr::LocalAddresses,
    crypto::{AeadProvider, CounterBlock},
    one_rma::OneRma,
    port::Port,
    service::{Both, Service},
    time::Clock,
};
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    library::{Qp, QpState, Remote, Role},
    service::Star,
    verbs::WcStatus,
};
use rma_xdp::time::TscClock;

use super::application::{Application, Plan, Work, negotiate};
use crate::{
    allocator::Asked,
    memory::Wire,
    turn::{BATCH, Company, Engines, Keys, addresses},
};

/// Frames that leave in a turn.
const ROOM: usize = 16;

/// Connections, and WRITEs that wait or are under way of each. One of a connection is under way at
/// a time.
const CONNECTIONS: u32 = 64;
const DEPTH: usize = 4;

impl Company for Star {
    fn at(&addresses: &LocalAddresses) -> Self {
        let config = StarConfigBuilder::default().build(StarPlace::at(addresses));
        Self::new(config.expect("the defaults work"), CounterBlock::new(0, u64::MAX))
    }
}

type Services = Both<OneRma, Star>;

/// The bytes that each service has sent in turns after which both had more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// How many turns these were.
    pub turns: u64,
    /// Frames of 1RMA, and their octets.
    pub one_rma: (u64, u64),
    /// Frames of StaR, and their octets.
    pub star: (u64, u64),
}

impl Sent {
    /// Of all frames, the part of the service that has sent fewer. Not a number if there were none.
    #[must_use]
    pub fn share(&self) -> f64 {
        let (one, other) = (self.one_rma.0, self.star.0);
        one.min(other) as f64 / (one + other) as f64
    }

    /// Counts the frames of a turn.
    fn count(&mut self, services: &Services, wire: &Wire) {
        let of_star = services.second.as_ref().map_or(0, Service::frames_waiting);
        if services.first.frames_waiting() == 0 || of_star == 0 {
            return;
        }
        self.turns += 1;
        for (transmit, octets) in wire.on_their_way() {
            let is_one_rma = transmit.port == Port::ONE_RMA;
            let (frames, bytes) = if is_one_rma { &mut self.one_rma } else { &mut self.star };
            *frames += 1;
            *bytes += octets.len() as u64;
        }
    }
}

/// Keeps both services busy for so many turns, after some to warm up, and tells what the engine has
/// sent whose applications read and write.
///
/// # Panics
/// If an operation does not end well.
#[must_use]
pub fn measure(aead: &'static dyn AeadProvider, turns: usize) -> Sent {
    let clock = TscClock::new();
    let wires = [ROOM, ROOM].map(Wire::with_room_for);
    let there = wires[0].clone();
    let mut engines = Engines::<Services>::joined_by(wires, aead, Keys::One, clock.clone());
    let mut applications = applications(&mut engines);
    let qps = connect(&mut engines, &mut applications, &clock);
    let [f, z] = &mut applications;
    let write = Work::Write(Remote { mr: z.mr(0).id(), offset: 0 });
    for (at, &[_, at_f]) in qps.iter().enumerate() {
        (0..DEPTH).for_each(|_| f.post(clock.now(), (at_f, at as u32), at, write));
    }
    engines.issue(BATCH);
    let (mut sent, warm_up) = (Sent::default(), turns / 10);
    let mut came = Vec::new();
    for turn in 0..turns + warm_up {
        let [initiator, responder] = engines.ends();
        initiator.turn();
        if turn >= warm_up {
            sent.count(initiator.service(), &there.borrow());
        }
        responder.turn();
        let completed = engines.poll();
        engines.issue(completed);
        let now = clock.now();
        z.verbs.poll(now);
        f.verbs.poll(now);
        f.take(&mut came);
        for wc in came.drain(..) {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            let at = (wc.wr_id >> 32) as usize;
            f.post(now, (qps[at][1], at as u32), at, write);
        }
    }
    sent
}

/// Those of the stateful side, which is the initiator's host, and of the stateless side.
fn applications(engines: &mut Engines<Services>) -> [Application; 2] {
    let mut hosts = engines.ends().into_iter().zip(addresses());
    core::array::from_fn(|_| {
        let (engine, address) = hosts.next().expect("there are two");
        let (qps, places) = (CONNECTIONS, 1 << 10);
        let plan = Plan { portals: 1, address, slots: 4096, qps, stateful: qps, mrs: 1, places };
        let star = engine.service_mut().second.as_mut().expect("there are two services");
        Application::new(star, &plan, &mut Asked::default())
    })
}

/// The ends of each connection: at the stateless side, and at the other.
fn connect(
    engines: &mut Engines<Services>,
    [f, z]: &mut [Application; 2],
    clock: &TscClock,
) -> Vec<[Qp; 2]> {
    let qps = (0..CONNECTIONS).map(|at| {
        let qps = [z.create_qp(at, Role::Stateless), f.create_qp(at, Role::Stateful)];
        z.verbs.connect(clock.now(), qps[0]).expect("it is new");
        qps
    });
    let qps: Vec<_> = qps.collect();
    let is_ready = |[z, f]: [&Application; 2], [at_z, at_f]: [Qp; 2]| {
        [z.verbs.state(at_z), f.verbs.state(at_f)] == [Some(QpState::Ready); 2]
    };
    for _ in 0..1000 {
        if qps.iter().all(|&qps| is_ready([&*z, &*f], qps)) {
            return qps;
        }
        for &qps in &qps {
            negotiate(clock.now(), [&mut *z, &mut *f], qps, &mut Asked::default());
        }
        engines.ends().into_iter().for_each(|engine| {
            engine.turn();
        });
        z.verbs.poll(clock.now());
        f.verbs.poll(clock.now());
    }
    panic!("the connections are not ready");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_service_that_sent_fewer_frames() {
        let sent = Sent { turns: 2, one_rma: (30, 9), star: (10, 99) };
        assert!((sent.share() - 0.25).abs() < 1e-9);
        assert!(Sent::default().share().is_nan());
    }
}
