//! The owner of a region: its key service and its rotation, on the thread of its host's engine.
//!
//! The shipped loop and the shipped state machine, turned inline: between turns of the engine the
//! service looks at its sockets, and serves one connection at most, so that no client's request
//! keeps the engine waiting for those of all.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rma_bench::{error::PairError, pair::Place};
use rma_core::time::Instant;
use rma_keys::{
    audit::Event,
    catalog::{CatalogError, Region},
    epoch::Epoch,
    io::{
        clock,
        server::{Answers, Limits, ServerLoop},
    },
    name::RegionName,
    policy::Policy,
    recorded::Recorded,
    rotation::{Plan, Rotation, Todo, Turn, Way},
    secret::RegionSecret,
    service::Service,
    time::Now,
};
use rma_xdp::{
    HostAddr, InlineHost, OpStatus, RegionKey, RegisteredRegion,
    crypto::random_region_key,
    time::{Clock, TscClock},
};

use super::{
    desk::{Desk, Step, Swapped},
    scene::LOOKS_PER_INSTALL,
};
use crate::key_service::Identities;

/// A service over sockets, in the hands of whoever turns an engine.
pub(super) struct Served {
    pub(super) turns: ServerLoop<Answers<Policy>>,
    service: Arc<Mutex<Recorded<Policy>>>,
}

impl Served {
    /// A service that listens at `responder`.
    pub(super) fn open(
        place: Place<'_>,
        responder: HostAddr,
        identities: &Identities,
    ) -> Result<Self, PairError> {
        let listener = {
            let _inside = place.lab().map(|lab| lab.b().enter()).transpose()?;
            TcpListener::bind((responder.ip(), 0))?
        };
        let service = Arc::new(Mutex::new(identities.service()));
        let answers = Answers(Arc::clone(&service));
        let turns =
            ServerLoop::from_directory(listener, &identities.server, answers, Limits::default());
        Ok(Self { turns: turns.expect("its credentials are in order"), service })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Recorded<Policy>> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the sockets, and serves one connection.
    pub(super) fn turn(&mut self, now: Now) {
        self.turns.look();
        self.turns.turn_within(now, 1);
    }
}

/// The owner of one region.
pub(super) struct Owner {
    served: Served,
    region: RegisteredRegion,
    rotation: Rotation,
    way: Way,
    /// When the rotation wants to be asked, if nothing happens before.
    until: Option<Instant>,
    /// The epoch and the key that are being installed, and whether by a probe.
    pending: Option<(Epoch, RegionKey, bool)>,
    /// The epoch that the host has installed and the rotation has not been told of: from when to
    /// when.
    installed: Option<(Epoch, (u64, u64))>,
    /// Looks since then.
    looks: u32,
    /// Whether the rotation was told something since it was last asked what to do.
    is_told: bool,
    /// The clients' clock.
    clock: TscClock,
}

impl Owner {
    /// Publishes `region` of `host` as `name`, with a key of its own.
    pub(super) fn open(
        host: &InlineHost,
        served: Served,
        (name, region): (RegionName, RegisteredRegion),
        responder: HostAddr,
        plan: Plan,
        clock: TscClock,
    ) -> Result<Self, PairError> {
        let key = random_region_key()?;
        host.rekey(&region, key)?;
        let place = Region { responders: responder.into(), id: region.id(), len: region.len() };
        let now = clock::now();
        let rotation = served.lock().change(now, |service| {
            in_turn(now, service, |turn| Rotation::publish(turn, name, place, &secret(&key), plan))
        });
        let rotation = rotation.expect("there is room");
        let way = plan.way;
        Ok(Self {
            served,
            region,
            rotation,
            way,
            until: None,
            pending: None,
            installed: None,
            looks: 0,
            is_told: true,
            clock,
        })
    }

    /// Does the next due task between two turns of `host`'s engine: one task only, because the
    /// engine waits meanwhile. A reader during the installation of a key thus does not wait for the
    /// audit log too.
    pub(super) fn turn(&mut self, now: Now, host: &InlineHost, desk: &Desk) {
        if self.is_told && self.go_on(now, host, desk) {
            return;
        }
        self.looks = self.looks.saturating_add(1);
        if let Some((to, at)) = self.installed.take_if(|_| self.looks > LOOKS_PER_INSTALL) {
            self.end(now, (to, false), OpStatus::Ok, Some(at), desk);
        } else if desk.wanted.take().is_some() {
            self.change(now, |rotation, turn| rotation.rotate(turn));
        } else if let Some((to, _, is_probe)) = self.pending
            && let Some(status) = desk.ended.take()
        {
            self.end(now, (to, is_probe), status, None, desk);
        } else if self.until.is_some_and(|at| at <= now.boot) {
            self.change(now, Rotation::handle_timeout);
        } else {
            self.served.turn(now);
        }
    }

    /// Does what the rotation asks for, if it does not wait.
    fn go_on(&mut self, now: Now, host: &InlineHost, desk: &Desk) -> bool {
        let recorded = self.served.lock();
        let todo = match self.rotation.poll_todo(now.boot, recorded.service()) {
            Todo::Wait(until) => {
                (self.until, self.is_told) = (until, false);
                return false;
            }
            Todo::Rekey { to, secret, .. } => (to, secret.region_key(), false),
            Todo::Probe { under } => {
                let (_, key, _) = self.pending.expect("a Rekey comes before a probe");
                (under, key, true)
            }
        };
        drop(recorded);
        self.pending = Some(todo);
        let (to, key, is_probe) = todo;
        if is_probe || self.way == Way::Rekey {
            desk.step.put(if is_probe { Step::Probe(key) } else { Step::Rekey(key) });
        } else {
            let from = self.clock.now().as_nanos();
            host.rekey(&self.region, key).expect("the region is registered");
            self.installed = Some((to, (from, self.clock.now().as_nanos())));
            self.looks = 0;
        }
        true
    }

    fn end(
        &mut self,
        now: Now,
        (to, is_probe): (Epoch, bool),
        status: OpStatus,
        at: Option<(u64, u64)>,
        desk: &Desk,
    ) {
        let before = self.rotation.counters().rotated;
        self.change(now, |rotation, turn| {
            if is_probe {
                rotation.handle_probe(turn, to, status)
            } else {
                rotation.handle_rekey(turn, to, status)
            }
        });
        if self.rotation.counters().rotated > before {
            desk.swapped.put(Swapped { epoch: to.number, at });
        }
    }

    fn change(
        &mut self,
        now: Now,
        act: impl FnOnce(&mut Rotation, &mut Turn<'_, Policy>) -> Result<(), CatalogError>,
    ) {
        self.is_told = true;
        let rotation = &mut self.rotation;
        let mut recorded = self.served.service.lock().unwrap_or_else(PoisonError::into_inner);
        let changed =
            recorded.change(now, |service| in_turn(now, service, |turn| act(rotation, turn)));
        changed.expect("the region is in the catalog");
    }
}

/// Runs one turn of a rotation's driver, and collects its events.
fn in_turn<T>(
    now: Now,
    service: &mut Service<Policy>,
    act: impl FnOnce(&mut Turn<'_, Policy>) -> T,
) -> (T, Vec<Event>) {
    let mut fresh = || secret(&random_region_key().expect("the system has randomness"));
    let mut turn = Turn { now, service, fresh: &mut fresh, events: Vec::new() };
    let done = act(&mut turn);
    (done, turn.events)
}

pub(super) fn secret(key: &RegionKey) -> RegionSecret {
    RegionSecret::new(&mut key.expose().to_owned())
}
