//! Hosts of several engines behind a patch panel: what a host sends comes to the engine of the
//! other that a hash of addresses and source port tells, which neither knows. All take turns in one
//! thread.

use std::{cell::RefCell, rc::Rc};

use rma_core::{
    addr::HostAddr,
    backend::Transmit,
    crypto::{EngineId, RegionKey},
    grant::Grant,
    op::{OpStatus, OpType},
    region::{Permissions, RegionNames, RegisteredRegion},
    time::Clock,
    wire::FrameView,
};
use rma_sim::prng::Prng;
use rma_xdp::time::TscClock;

use crate::{
    joined::{self, Issuer},
    memory::{FRAMES, Memory, Wire},
    turn::{BATCH, REGION_LEN, SIZE, addresses},
};

/// Rounds of turns after which an op that has not ended never will.
const ROUNDS_MAX: usize = 10_000;

/// A host, and the wires to and from each of its engines.
struct Host {
    address: HostAddr,
    issuers: Vec<Issuer>,
    inbound: Vec<Rc<RefCell<Wire>>>,
    outbound: Vec<Rc<RefCell<Wire>>>,
    names: RegionNames,
}

impl Host {
    fn new(address: HostAddr, engines: u16, clock: &TscClock) -> Self {
        // Room for the answers of all engines of another host.
        let wires =
            || -> Vec<_> { (0..engines).map(|_| Wire::with_room_for(4 * FRAMES)).collect() };
        let (inbound, outbound) = (wires(), wires());
        let ends = inbound.iter().cloned().zip(outbound.iter().cloned());
        let places = joined::places(engines).into_iter().zip(ends);
        let issuer = |(place, (inbound, outbound))| {
            Issuer::new(address, place, Memory { inbound, outbound }, clock)
        };
        let issuers = places.map(issuer).collect();
        Self { address, issuers, inbound, outbound, names: RegionNames::new(8) }
    }

    fn register(&mut self, permissions: Permissions) -> RegisteredRegion {
        joined::register(&mut self.issuers, &mut self.names, EngineId(0), permissions)
    }

    fn grant(&mut self, permissions: Permissions, op_type: OpType) -> Grant {
        let region = self.register(permissions);
        joined::grant(self.address, &region, REGION_LEN, op_type)
    }

    fn turn(&mut self) {
        for issuer in &mut self.issuers {
            issuer.engine.turn();
        }
    }

    /// Frames that came to another engine than the one that they are for.
    fn handed_over(&self) -> u64 {
        self.issuers.iter().map(|it| it.handed.given()).sum()
    }
}

/// Carries what is on its way to the engines that the hash tells.
fn carry(from: &Host, to: &Host, hash: u64) {
    let engine = |frame: &Transmit| {
        let [source, destination] =
            [frame.source, frame.destination].map(|it| u128::from_be_bytes(it.to_octets()) as u64);
        let words = [source, destination, frame.source_port.0.into()];
        let drawn = words.iter().fold(Prng::new(hash), |prng, &word| prng.fork(word));
        &*to.inbound[{ drawn }.below(to.inbound.len() as u64) as usize]
    };
    for wire in &from.outbound {
        wire.borrow_mut().carry(engine);
    }
}

/// Two hosts, of which the first asks the second.
struct Pair {
    asking: Host,
    asked: Host,
    local: RegisteredRegion,
    hash: u64,
    clock: TscClock,
}

impl Pair {
    /// Of so many engines.
    fn new([asking, asked]: [u16; 2]) -> Self {
        let clock = TscClock::new();
        let [initiator, responder] = addresses();
        let mut asking = Host::new(initiator, asking, &clock);
        let asked = Host::new(responder, asked, &clock);
        let local = asking.register(Permissions::NONE);
        Self { asking, asked, local, hash: 1, clock }
    }

    /// A turn of each engine, and what they send comes over. Returns the nanoseconds of all turns.
    fn round(&mut self) -> u64 {
        let Self { asking, asked, hash, clock, .. } = self;
        let began = clock.now();
        asking.turn();
        let asked_at = clock.now();
        carry(asking, asked, *hash);
        let carried_at = clock.now();
        asked.turn();
        let ended = clock.now();
        carry(asked, asking, *hash);
        asked_at.nanos_since(began) + ended.nanos_since(carried_at)
    }

    /// A batch of ops of the first engine. Returns the nanoseconds of all turns until they have
    /// ended.
    fn batch(&mut self, grant: &Grant, size: u32) -> u64 {
        let portal = &mut self.asking.issuers[0].portal;
        for at in 0..BATCH as u64 {
            let issued = match grant.op_type {
                OpType::FetchAdd => portal.fetch_add(grant, 8 * at, 1),
                _ => portal.read(grant, 0, &self.local, 0, size),
            };
            issued.expect("a free slot");
        }
        let (mut nanos, mut ended) = (0, 0);
        for _ in 0..ROUNDS_MAX {
            nanos += self.round();
            ended += joined::ended(&mut self.asking.issuers[0].portal);
            if ended == BATCH {
                return nanos;
            }
        }
        panic!("{ended} of {BATCH} ops have ended");
    }
}

/// The time of one batch over that of another, rounds of both in turns.
fn over(rounds: usize, mut batches: [impl FnMut() -> u64; 2]) -> f64 {
    let mut times: [Vec<u64>; 2] = Default::default();
    for round in 0..=rounds {
        for (batch, times) in batches.iter_mut().zip(&mut times) {
            let all: Vec<_> = (0..BATCH).map(|_| batch()).collect();
            // The first round warms up.
            times.extend(all.into_iter().filter(|_| round > 0));
        }
    }
    let [one, other] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2] as f64
    });
    one / other
}

/// Payload that a host of four engines reads a second, of which one is busy, over that of a host of
/// one engine. READs of 4 KiB, as many at once as a batch has.
///
/// # Panics
/// If a READ does not succeed.
#[must_use]
pub fn lopsided_goodput(rounds: usize) -> f64 {
    over(
        rounds,
        [1, 4].map(|engines| {
            let mut pair = Pair::new([engines, 1]);
            let grant = pair.asked.grant(Permissions::READ, OpType::Read);
            move || pair.batch(&grant, REGION_LEN as u32)
        }),
    )
}

/// Recorded ops a second, FETCH_ADDs on an ordinary region, at a responder of four engines over one
/// of one.
///
/// # Panics
/// If an op does not succeed.
#[must_use]
pub fn recorded_four_over_one(rounds: usize) -> f64 {
    over(
        rounds,
        [1, 4].map(|engines| {
            let mut pair = Pair::new([1, engines]);
            let grant = pair.asked.grant(Permissions::ATOMIC, OpType::FetchAdd);
            move || pair.batch(&grant, 8)
        }),
    )
}

/// The part of answers that come to a wrong engine of the host that reads, which has four, from
/// eight hosts of four: after so many READs of each of its engines from each of them, and after as
/// many more once the hash has changed.
///
/// # Panics
/// If a READ does not succeed.
#[must_use]
pub fn wrong_queue_share(ops: usize) -> [f64; 2] {
    const PEERS: u8 = 8;
    let clock = TscClock::new();
    let mut asking = Host::new(addresses()[0], 4, &clock);
    let local = asking.register(Permissions::NONE);
    let peers = (0..PEERS).map(|peer| Host::new([192, 0, 2, 10 + peer].into(), 4, &clock));
    let mut peers: Vec<_> = peers
        .map(|mut peer| {
            let grant = peer.grant(Permissions::READ, OpType::Read);
            (peer, grant)
        })
        .collect();
    let mut read_from_all = |hash: u64| {
        let before = asking.handed_over();
        for _ in 0..ops {
            for (peer, grant) in &mut peers {
                for issuer in &mut asking.issuers {
                    joined::read(&mut issuer.portal, grant, &local);
                }
                let mut ended = 0;
                while ended < asking.issuers.len() {
                    asking.turn();
                    carry(&asking, peer, hash);
                    peer.turn();
                    carry(peer, &asking, hash);
                    let portals = asking.issuers.iter_mut().map(|it| &mut it.portal);
                    ended += portals.map(joined::ended).sum::<usize>();
                }
            }
        }
        let answers = ops * usize::from(PEERS) * asking.issuers.len();
        (asking.handed_over() - before) as f64 / answers as f64
    };
    [1, 2].map(|hash| {
        read_from_all(hash);
        read_from_all(hash)
    })
}

/// Rekeys of a region under load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rekeys {
    /// The most rounds of all turns from the key's arrival to its acknowledgement.
    pub rounds: usize,
    /// READs of another region that have failed meanwhile.
    pub failed: usize,
    /// READs of another region that have ended meanwhile.
    pub ended: usize,
}

/// Whether a frame that is on its way there is of this kind.
fn has(wires: &[Rc<RefCell<Wire>>], is_kind: impl Fn(&FrameView) -> bool) -> bool {
    wires.iter().any(|wire| {
        let wire = wire.borrow();
        let mut frames = wire.on_their_way().filter_map(|(_, it)| FrameView::parse(it).ok());
        frames.any(|it| is_kind(&it))
    })
}

/// Rekeys a region of a host of four engines so often, by op, while another of its regions is read.
///
/// # Panics
/// If a Rekey does not succeed.
#[must_use]
pub fn rekeys(count: usize) -> Rekeys {
    let mut pair = Pair::new([1, 4]);
    let other = pair.asked.grant(Permissions::READ, OpType::Read);
    let mut grant = pair.asked.grant(Permissions::REKEY, OpType::Rekey);
    let mut seen = Rekeys::default();
    for number in 0..count {
        let key = RegionKey::from_bytes([number as u8; 16]);
        let rekey = pair.asking.issuers[0].portal.rekey(&grant, key).expect("a free slot");
        grant.key = joined::key(&RegionKey::from_bytes([number as u8; 16]), &grant);
        let mut rounds = None;
        for _ in 0..ROUNDS_MAX {
            let Pair { asking, asked, local, hash, .. } = &mut pair;
            let portal = &mut asking.issuers[0].portal;
            while portal.read(&other, 0, local, 0, SIZE as u32).is_ok() {}
            asking.turn();
            carry(asking, asked, *hash);
            if has(&asked.inbound, |it| matches!(it, FrameView::SolicitedData(_))) {
                rounds = Some(0);
            }
            asked.turn();
            rounds = rounds.map(|rounds| rounds + 1);
            if has(&asked.outbound, |it| matches!(it, FrameView::Acknowledgement(_))) {
                seen.rounds = seen.rounds.max(rounds.expect("its data has come"));
            }
            carry(asked, asking, *hash);
            let portal = &mut asking.issuers[0].portal;
            let mut is_over = false;
            while let Some(completion) = portal.poll() {
                if completion.slot == rekey {
                    assert_eq!(completion.status, OpStatus::Ok);
                    is_over = true;
                } else {
                    seen.ended += 1;
                    seen.failed += usize::from(completion.status != OpStatus::Ok);
                }
            }
            if is_over {
                break;
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_right_once_ports_are_learnt_and_again_once_the_hash_has_changed() {
        assert_eq!(wrong_queue_share(1000), [0.0; 2]);
    }

    #[test]
    fn a_rekey_of_four_engines_takes_three_rounds_of_turns_and_fails_nobody_elsewhere() {
        let Rekeys { rounds, failed, ended } = rekeys(300);
        assert!((1..=3).contains(&rounds), "{rounds}");
        assert_eq!(failed, 0);
        assert!(ended > 300, "{ended} READs beside it");
    }

    #[test]
    fn reads_and_recorded_ops_go_on_where_engines_are_several() {
        assert!(lopsided_goodput(1) > 0.0 && recorded_four_over_one(1) > 0.0);
    }
}
