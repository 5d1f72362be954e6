//! The whole of it: two hosts, an owner at one, clients at the other.

use rma_bench::{client::Client, error::PairError, interrupt::Interrupt, pair::Place};
use rma_keys::{io::clock, name::RegionName, ring::Holder, tls::directory::Directory};
use rma_xdp::{InlineHost, OpType, Permissions};

use super::{
    beat::Beaten,
    desk::Desk,
    keys::Keys,
    owner::{Owner, Served},
    party::{Other, ThirdParty},
    prober::Prober,
    run::Run,
    scene::{CLIENTS_MAX, REGION_LEN, Rotations, SIZE, Scene, TURNS_PER_LOOK, beat, open},
};
use crate::key_service::Identities;

/// Opens two hosts at `place`, and rotates the key of a region of one under the eyes of clients at
/// the other.
///
/// # Errors
/// If hosts, slots, sockets or keys cannot be had, or op after op fails.
///
/// # Panics
/// If there are more clients than [`CLIENTS_MAX`], or no directory for certificates.
pub fn rotate(
    place: Place<'_>,
    scene: Scene,
    interrupt: &Interrupt,
) -> Result<Rotations, PairError> {
    let Scene { kind, clients, rotations: count, histories, port } = scene;
    assert!((1..=CLIENTS_MAX).contains(&clients), "{clients} clients");
    let mut pair = open(place, port)?;
    let identities = Identities::new();
    let one = *pair.client.grants.any();
    let region = pair.server.register(REGION_LEN, Permissions::READ | Permissions::REKEY)?;
    let other = pair.server.register(REGION_LEN, Permissions::READ)?;
    let other = pair.server.grant(&other, one.initiator, one.pid, OpType::Read)?;
    let name: RegionName = "kv/values".parse().expect("a name");
    let served = Served::open(place, one.responder, &identities)?;
    let published = (name.clone(), region.clone());
    let clock = pair.client.clock.clone();
    let address = served.turns.address();
    let mut owner = match kind.plan() {
        Some(plan) => {
            let owner = Owner::open(&pair.server, served, published, one.responder, plan, clock)?;
            AnyOwner::Rotating(Box::new(owner))
        }
        None => {
            let mut owner = Beaten::new(served, published, one.responder, clock);
            owner.publish(&pair.server, Some(beat(clients)));
            AnyOwner::Beaten(Box::new(owner))
        }
    };
    let rekey = pair.server.grant(&region, one.initiator, one.pid, OpType::Rekey)?;
    let desk = &Desk::default();
    let mut turns = 0_u32;
    let (_, credentials) = Directory::open(&identities.client).expect("they are in order");
    let holder = Holder { initiators: one.initiator.into(), pid: one.pid };
    pair.run_beside(
        move |host, _| {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS_PER_LOOK) {
                owner.turn(host, desk);
            }
        },
        |client: &mut Client| {
            // Sockets are of the namespace that their thread is in.
            let _inside = place.lab().map(|lab| lab.a().enter()).transpose()?;
            let mut probers = Vec::with_capacity(clients);
            for i in 0..clients {
                let who = (holder, i as u64);
                let keys = Keys::open(&credentials, address, name.clone(), who)?;
                let sink = client.host.register(SIZE as usize, Permissions::NONE)?;
                probers.push(Prober::new(keys, client.host.portal(1)?, sink));
            }
            let third = ThirdParty::new(client.host.portal(1)?, rekey);
            let other = Other::new(client.host.portal(1)?, other);
            let rotations = (Rotations::new(kind, clients), histories);
            Run::new(client, (probers, other, third), desk, rotations).all(count, interrupt)
        },
    )
}

/// The party that rotates.
enum AnyOwner {
    Rotating(Box<Owner>),
    Beaten(Box<Beaten>),
}

impl AnyOwner {
    fn turn(&mut self, host: &InlineHost, desk: &Desk) {
        let now = clock::now();
        match self {
            Self::Rotating(owner) => owner.turn(now, host, desk),
            Self::Beaten(owner) => {
                if let Some(swapped) = owner.turn(now, host) {
                    desk.swapped.put(swapped);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_rotation::{history::History, scene::Kind};

    /// Every rotation is survived by every client, over loopback, and nobody else notices.
    #[test]
    fn clients_outlast_rotations_of_each_kind_with_one_fetch_each() {
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            let port = 10_480 + std::process::id() as u16 % 4_000 + i as u16;
            let scene = Scene { kind, clients: 5, rotations: 4, histories: 4, port };
            let rotations = rotate(Place::Loopback, scene, &Interrupt::default()).unwrap();
            assert_eq!(rotations.count, 4, "{kind:?}");
            assert_eq!((rotations.other_failed, rotations.failed_otherwise), (0, 0), "{kind:?}");
            assert!(rotations.other_ops > 0 && rotations.reads.count() > 0, "{kind:?}");
            assert_eq!(rotations.spurious, 0, "{kind:?}");
            if kind == Kind::Reactive {
                assert_eq!((rotations.gaps.count(), rotations.fetches), (20, 20));
            }
            // A client that has the next key already may be stopped while the key changes, and
            // notice nothing.
            if kind == Kind::Reactive {
                let drawn = rotations.median().map(History::text);
                assert!(drawn.is_some_and(|it| it.contains("client ")), "{kind:?}");
            }
        }
    }
}
