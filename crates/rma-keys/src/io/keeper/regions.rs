//! The regions of a keeper, each with its rotation, and which of them wants something when.
//!
//! Invariant: after each call, no region has anything to do before the time that stands with it.

use std::collections::{BTreeMap, BTreeSet};

use rma_core::{
    addr::LocalAddresses, gate::Gate, op::OpStatus, region::RegisteredRegion, time::Instant,
};

use crate::{
    catalog::{CatalogError, Region},
    epoch::Epoch,
    io::keeper::error::{PublishError, secret},
    jitter::Jitter,
    limits::STEP_RETRY_MIN,
    name::RegionName,
    policy::Policy,
    recorded::Recorded,
    rotation::{Alarm, Plan, Rotation, RotationCounters, Schedule, Todo, Turn, Way, retry_pause},
    secret::RegionSecret,
    time::Now,
};

/// How many steps one region takes before others have their turn: a change of a key for another one
/// takes three.
const STEPS_MAX: usize = 8;

/// Regions by name.
#[derive(Debug)]
pub(super) struct Regions {
    responders: LocalAddresses,
    kept: BTreeMap<RegionName, Kept>,
    /// When which of them wants something.
    times: BTreeSet<(Instant, RegionName)>,
    jitter: Jitter,
    /// Of those that are gone.
    gone: RotationCounters,
    pub(super) alarms: u64,
    pub(super) host_failures: u64,
}

#[derive(Debug)]
struct Kept {
    region: RegisteredRegion,
    rotation: Rotation,
    at: Option<Instant>,
    /// The key that the catalog has of it, if its host has taken that up and not said that it is
    /// done. Nothing else is done with the region before that is known.
    under_way: Option<FirstKey>,
}

/// A key that a host has taken up, and may not go by yet.
#[derive(Debug)]
struct FirstKey {
    secret: RegionSecret,
    /// How often it was told to the host again.
    waits: u32,
}

/// Has a rotation do something, and writes down what that was.
pub(super) fn turn<T>(
    now: Now,
    recorded: &mut Recorded<Policy>,
    act: impl FnOnce(&mut Turn<'_, Policy>) -> T,
) -> T {
    recorded.change(now, |service| {
        let fresh = &mut || secret().expect("a kernel that has given random octets has more");
        let mut turn = Turn { now, service, fresh, events: Vec::new() };
        (act(&mut turn), turn.events)
    })
}

impl Regions {
    pub(super) const fn new(responders: LocalAddresses, seed: u64) -> Self {
        Self {
            responders,
            kept: BTreeMap::new(),
            times: BTreeSet::new(),
            jitter: Jitter(seed),
            gone: ZERO,
            alarms: 0,
            host_failures: 0,
        }
    }

    pub(super) fn counters(&self) -> RotationCounters {
        self.kept.values().fold(self.gone, |sum, it| add(sum, it.rotation.counters()))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.times.first().map(|it| it.0)
    }

    pub(super) fn publish(
        &mut self,
        now: Now,
        host: &dyn Gate,
        recorded: &mut Recorded<Policy>,
        name: RegionName,
        region: &RegisteredRegion,
        schedule: Schedule,
    ) -> Result<Epoch, PublishError> {
        let place = Region { responders: self.responders, id: region.id(), len: region.reach() };
        recorded.service().catalog().admits(&name, &place)?;
        let fresh = secret().map_err(PublishError::Random)?;
        // The host first: what the catalog gives must be what it goes by, or will in a moment.
        let is_under_way = match host.rekey(region, fresh.region_key()) {
            Ok(()) => false,
            Err(error) if error.is_under_way() => {
                tracing::warn!(%name, %error, "the host has taken up a region's first key");
                self.host_failures += 1;
                true
            }
            Err(error) => return Err(PublishError::Host(error)),
        };
        let plan = Plan { way: Way::Host, schedule, seed: self.jitter.next() };
        let rotation =
            turn(now, recorded, |turn| Rotation::publish(turn, name.clone(), place, &fresh, plan))?;
        let under_way = is_under_way.then_some(FirstKey { secret: fresh, waits: 0 });
        let kept = Kept { region: region.clone(), rotation, at: None, under_way };
        if let Some(old) = self.kept.insert(name.clone(), kept) {
            self.forget(&name, &old);
            if old.region.id() != region.id() {
                close(host, &old.region)?;
            }
        }
        self.drive(now, host, recorded, &name);
        let entry = recorded.service().catalog().find(&name);
        Ok(entry.expect("it was published").present().epoch())
    }

    pub(super) fn remove(
        &mut self,
        now: Now,
        host: &dyn Gate,
        recorded: &mut Recorded<Policy>,
        name: &RegionName,
    ) -> Result<(), PublishError> {
        recorded.change(now, |service| match service.remove(now, name) {
            Ok(event) => (Ok(()), vec![event]),
            Err(error) => (Err(error), Vec::new()),
        })?;
        self.displace(host, name)
    }

    /// Another has the name now: it is closed to everybody.
    pub(super) fn displace(
        &mut self,
        host: &dyn Gate,
        name: &RegionName,
    ) -> Result<(), PublishError> {
        let Some(old) = self.kept.remove(name) else { return Ok(()) };
        self.forget(name, &old);
        close(host, &old.region)
    }

    fn forget(&mut self, name: &RegionName, old: &Kept) {
        self.gone = add(self.gone, old.rotation.counters());
        if let Some(at) = old.at {
            self.times.remove(&(at, name.clone()));
        }
    }

    /// Has a region's rotation do something, and then what follows from it.
    pub(super) fn act(
        &mut self,
        now: Now,
        host: &dyn Gate,
        recorded: &mut Recorded<Policy>,
        name: &RegionName,
        act: impl FnOnce(&mut Rotation, &mut Turn<'_, Policy>) -> Result<(), CatalogError>,
    ) -> Result<(), PublishError> {
        let Some(kept) = self.kept.get_mut(name) else {
            return Err(CatalogError::Unknown { name: name.clone() }.into());
        };
        turn(now, recorded, |turn| act(&mut kept.rotation, turn))?;
        self.drive(now, host, recorded, name);
        Ok(())
    }

    /// The policy is another one, which takes something of the `withdrawn` away.
    pub(super) fn handle_policy(
        &mut self,
        now: Now,
        host: &dyn Gate,
        recorded: &mut Recorded<Policy>,
        withdrawn: &[RegionName],
    ) {
        // Those first: somebody has what he must not have.
        let names: Vec<_> = self.kept.keys().cloned().collect();
        let (first, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|it| withdrawn.binary_search(it).is_ok());
        for (names, is_withdrawn) in [(first, true), (others, false)] {
            for name in names {
                let done = self.act(now, host, recorded, &name, |rotation, turn| {
                    if is_withdrawn {
                        rotation.withdraw(turn)?;
                    }
                    rotation.handle_policy(turn)
                });
                if let Err(error) = done {
                    tracing::error!(region = %name, %error, "a region cannot go by the new policy");
                }
            }
        }
    }

    /// Does what time has come for.
    pub(super) fn handle_timeout(
        &mut self,
        now: Now,
        host: &dyn Gate,
        recorded: &mut Recorded<Policy>,
    ) {
        // Each once: what wants another turn at once has it in the next.
        let due = self.times.iter().take_while(|(at, _)| *at <= now.boot);
        let due: Vec<_> = due.map(|(_, name)| name.clone()).collect();
        for name in due {
            self.drive(now, host, recorded, &name);
        }
    }

    /// Has a region's rotation and its host do what there is to do now, and notes when there will
    /// be more.
    fn drive(
        &mut self,
        now: Now,
        host: &dyn Gate,
        recorded: &mut Recorded<Policy>,
        name: &RegionName,
    ) {
        let Some(Kept { region, rotation, at, under_way }) = self.kept.get_mut(name) else {
            return;
        };
        let mut until = Some(now.boot);
        if let Some(FirstKey { secret, waits }) = under_way {
            if rekey(host, region, secret) == OpStatus::Ok {
                *under_way = None;
            } else {
                self.host_failures += 1;
                until = Some(now.boot + retry_pause(*waits));
                *waits = waits.saturating_add(1);
            }
        }
        let steps = if under_way.is_some() { 0 } else { STEPS_MAX };
        for _ in 0..steps {
            let done = turn(now, recorded, |turn| rotation.handle_timeout(turn));
            let done = match rotation.poll_todo(now.boot, recorded.service()) {
                _ if done.is_err() => done,
                Todo::Wait(at) => {
                    until = at;
                    if at.is_none_or(|at| at > now.boot) {
                        break;
                    }
                    Ok(())
                }
                Todo::Rekey { to, secret, .. } => {
                    let status = rekey(host, region, secret);
                    self.host_failures += u64::from(status != OpStatus::Ok);
                    turn(now, recorded, |turn| rotation.handle_rekey(turn, to, status))
                }
                // Of no use: the host has said what it did.
                Todo::Probe { under } => turn(now, recorded, |turn| {
                    rotation.handle_probe(turn, under, OpStatus::DispatchTimeout)
                }),
            };
            if let Err(error) = done {
                tracing::error!(region = %name, %error, "a region's key cannot be changed");
                until = Some(now.boot + STEP_RETRY_MIN);
                break;
            }
        }
        while let Some(alarm) = rotation.poll_alarm() {
            self.alarms += 1;
            tell(name, alarm);
        }
        let before = core::mem::replace(at, until);
        if before != until {
            if let Some(before) = before {
                self.times.remove(&(before, name.clone()));
            }
            self.times.extend(until.map(|at| (at, name.clone())));
        }
    }
}

/// Translates the host's answer for a rotation.
fn rekey(host: &dyn Gate, region: &RegisteredRegion, secret: &RegionSecret) -> OpStatus {
    match host.rekey(region, secret.region_key()) {
        Ok(()) => OpStatus::Ok,
        Err(error) => {
            tracing::warn!(region = ?region.id(), %error, "the host did not change a region's key");
            if error.is_under_way() { OpStatus::Timeout } else { OpStatus::DispatchTimeout }
        }
    }
}

/// Has a region go by a key that nobody knows. One that is no longer registered is closed as it is.
fn close(host: &dyn Gate, region: &RegisteredRegion) -> Result<(), PublishError> {
    let fresh = secret().map_err(PublishError::Random)?;
    if let Err(error) = host.rekey(region, fresh.region_key()) {
        tracing::info!(region = ?region.id(), %error, "a region that is published no more was gone");
    }
    Ok(())
}

pub(super) fn tell(name: &RegionName, alarm: Alarm) {
    match alarm {
        Alarm::Late { by } => {
            tracing::warn!(region = %name, ?by, "a key is good for longer than was told");
        }
        other => tracing::warn!(region = %name, alarm = ?other, "a key cannot be changed"),
    }
}

pub(super) const ZERO: RotationCounters =
    RotationCounters { rotated: 0, late_epochs: 0, rekeys: 0, probes: 0, withdrawn: 0 };

pub(super) const fn add(one: RotationCounters, other: RotationCounters) -> RotationCounters {
    RotationCounters {
        rotated: one.rotated + other.rotated,
        late_epochs: one.late_epochs + other.late_epochs,
        rekeys: one.rekeys + other.rekeys,
        probes: one.probes + other.probes,
        withdrawn: one.withdrawn + other.withdrawn,
    }
}
