//! Regions of other hosts, whose keys this service changes over the network (1RMA §5.2): their
//! owners take no part once they have published them.
//!
//! Contract: keys are changed by the op Rekey, whose outcome may be unknown; then a READ finds out
//! which key the region goes by. The keys of these regions are in a file before a Rekey takes them
//! over the network, so a service that starts again goes on with what it was doing.
//!
//! Invariant: a key that a region may go by is in the file.

use core::{fmt, time::Duration};
use std::{collections::BTreeMap, path::Path};

use rma_core::{
    addr::LocalAddresses,
    command::CommandSlotId,
    crypto::{KeyBinding, RegionKey},
    gate::Identity,
    grant::Grant,
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
};

use super::{
    error::PublishError,
    key_file::{KeyFile, KeyFileError, Keys},
    regions::{ZERO, add, tell, turn},
};
use crate::{
    catalog::{CatalogError, Region},
    epoch::Epoch,
    jitter::Jitter,
    limits::{STEP_RETRY_MAX, STEP_RETRY_MIN},
    name::RegionName,
    policy::Policy,
    recorded::Recorded,
    rotation::{Alarm, Plan, Rotation, RotationCounters, Schedule, Todo, Turn, Way},
    secret::RegionSecret,
    time::Now,
};

/// How often the ends of ops that are under way are looked for. Longer: a key is known to be
/// changed later. Shorter: the thread wakes more often, for as long as an op takes.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The way to regions of other hosts: a portal, as the keeper needs it.
pub trait Reach: fmt::Debug + Send {
    /// Returns the process that the ops come from.
    fn identity(&self) -> Identity;

    /// Whether there is room for an op now.
    fn has_room(&mut self) -> bool;

    /// Issues an op under `grant`: a Rekey to `key`, or a READ of some bytes. `None` if it cannot
    /// be issued.
    fn issue(&mut self, grant: &Grant, key: Option<RegionKey>) -> Option<CommandSlotId>;

    /// Returns an op that has ended, if one has.
    fn poll(&mut self) -> Option<(CommandSlotId, OpStatus)>;
}

/// A region of another host, as its owner gives it to the service. The owner registers it with
/// REKEY and READ among its permissions, and never changes its key itself.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRegion {
    /// The addresses of its host.
    pub responders: LocalAddresses,
    /// Its name there.
    pub id: RegionId,
    /// Its length in bytes.
    pub len: u64,
    /// The key that it goes by. It comes over a channel that keeps secrets.
    pub key: RegionKey,
}

//= 1rma#5.2-remote-rotation
/// All of them.
#[derive(Debug)]
pub(super) struct Remotes {
    file: KeyFile,
    reach: Box<dyn Reach>,
    kept: BTreeMap<RegionName, Kept>,
    under_way: BTreeMap<CommandSlotId, Asked>,
    jitter: Jitter,
    gone: RotationCounters,
    pub(super) alarms: u64,
    /// When the file is written again that still has a region which is gone.
    write_at: Option<Instant>,
}

#[derive(Debug)]
struct Kept {
    region: Region,
    schedule: Schedule,
    rotation: Rotation,
    at: Option<Instant>,
    present: RegionSecret,
    /// The key that a Rekey has taken over the network, or will.
    next: Option<(Epoch, RegionSecret)>,
    is_asked: bool,
    /// Whether all its keys were refused: its owner has started again, and may publish it anew.
    is_lost: bool,
}

/// An op that is under way. Its region may be gone.
#[derive(Debug)]
struct Asked {
    name: RegionName,
    epoch: Epoch,
    is_probe: bool,
}

impl Remotes {
    /// Those whose keys are in the file at `path`, which is made if there is none: they go on as
    /// they were.
    pub(super) fn open(
        now: Now,
        path: &Path,
        reach: Box<dyn Reach>,
        recorded: &mut Recorded<Policy>,
        seed: u64,
    ) -> Result<Self, KeyFileError> {
        let (file, found) = KeyFile::open(path)?;
        let (kept, under_way) = (BTreeMap::new(), BTreeMap::new());
        let jitter = Jitter(seed);
        let mut all =
            Self { file, reach, kept, under_way, jitter, gone: ZERO, alarms: 0, write_at: None };
        for Keys { name, region, schedule, present, next } in found {
            let plan = all.plan(schedule);
            let begun = turn(now, recorded, |turn| {
                let mut rotation = Rotation::publish(turn, name.clone(), region, &present, plan)?;
                let next =
                    next.map(|next| Ok::<_, CatalogError>((rotation.take_up(turn, &next)?, next)));
                Ok::<_, CatalogError>((rotation, next.transpose()?))
            });
            match begun {
                Ok((rotation, next)) => {
                    let at = Some(now.boot);
                    let kept = Kept {
                        region,
                        schedule,
                        rotation,
                        at,
                        present,
                        next,
                        is_asked: false,
                        is_lost: false,
                    };
                    all.kept.insert(name, kept);
                }
                Err(error) => {
                    tracing::error!(region = %name, %error, "a region of the file of keys")
                }
            }
        }
        Ok(all)
    }

    fn plan(&mut self, schedule: Schedule) -> Plan {
        Plan { way: Way::Rekey, schedule, seed: self.jitter.next() }
    }

    pub(super) fn has(&self, name: &RegionName) -> bool {
        self.kept.contains_key(name)
    }

    pub(super) fn counters(&self) -> RotationCounters {
        self.kept.values().fold(self.gone, |sum, it| add(sum, it.rotation.counters()))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.kept.values().filter_map(|it| it.at).chain(self.write_at).min()
    }

    pub(super) fn publish(
        &mut self,
        now: Now,
        recorded: &mut Recorded<Policy>,
        name: RegionName,
        remote: &RemoteRegion,
        schedule: Schedule,
    ) -> Result<Epoch, PublishError> {
        let &RemoteRegion { responders, id, len, key } = remote;
        let region = Region { responders, id, len };
        recorded.service().catalog().admits(&name, &region)?;
        self.initiator_for(&region).ok_or_else(|| PublishError::NoFamily { name: name.clone() })?;
        if let Some(kept) = self.kept.get(&name)
            && kept.region == region
            && !kept.is_lost
        {
            // The key that it goes by by now must not be thrown away for one that it had once.
            let entry = recorded.service().catalog().find(&name);
            return match entry {
                Some(entry) if *kept.present.region_key().expose() == *key.expose() => {
                    Ok(entry.present().epoch())
                }
                _ => Err(PublishError::AlreadyKept { name }),
            };
        }
        let present = RegionSecret::new(&mut key.expose().to_owned());
        // First into the file: nothing has changed if that cannot be.
        let fresh = Keys { name, region, schedule, present, next: None };
        let others = self.keys().filter(|it| it.name != fresh.name);
        self.file.write(others.chain([copy_of(&fresh)]))?;
        let Keys { name, present, .. } = fresh;
        let plan = self.plan(schedule);
        let rotation = turn(now, recorded, |turn| {
            Rotation::publish(turn, name.clone(), region, &present, plan)
        })?;
        let at = Some(now.boot);
        self.forget(&name);
        let kept = Kept {
            region,
            schedule,
            rotation,
            at,
            present,
            next: None,
            is_asked: false,
            is_lost: false,
        };
        self.kept.insert(name.clone(), kept);
        let entry = recorded.service().catalog().find(&name);
        Ok(entry.expect("it was published").present().epoch())
    }

    /// Another has the name now: it is forgotten, in the file as well.
    pub(super) fn displace(&mut self, now: Now, name: &RegionName) {
        self.forget(name);
        self.write_at = Some(now.boot);
    }

    fn forget(&mut self, name: &RegionName) {
        if let Some(old) = self.kept.remove(name) {
            self.gone = add(self.gone, old.rotation.counters());
            self.under_way.retain(|_, asked| asked.name != *name);
        }
    }

    /// Forgets a region, and has that written down first: otherwise nothing has changed.
    pub(super) fn remove(&mut self, name: &RegionName) -> Result<(), PublishError> {
        self.file.write(self.keys().filter(|it| it.name != *name))?;
        self.forget(name);
        Ok(())
    }

    /// Has a region's rotation do something, and then what follows from it.
    pub(super) fn act(
        &mut self,
        now: Now,
        recorded: &mut Recorded<Policy>,
        name: &RegionName,
        act: impl FnOnce(&mut Rotation, &mut Turn<'_, Policy>) -> Result<(), CatalogError>,
    ) -> Result<(), PublishError> {
        let unknown = || CatalogError::Unknown { name: name.clone() };
        let kept = self.kept.get_mut(name).ok_or_else(unknown)?;
        turn(now, recorded, |turn| act(&mut kept.rotation, turn))?;
        self.drive(now, recorded, name);
        Ok(())
    }

    /// The policy is another one, which takes something of the `withdrawn` away.
    pub(super) fn handle_policy(
        &mut self,
        now: Now,
        recorded: &mut Recorded<Policy>,
        withdrawn: &[RegionName],
    ) {
        let names: Vec<_> = self.kept.keys().cloned().collect();
        for name in names {
            let done = self.act(now, recorded, &name, |rotation, turn| {
                if withdrawn.binary_search(&name).is_ok() {
                    rotation.withdraw(turn)?;
                }
                rotation.handle_policy(turn)
            });
            if let Err(error) = done {
                tracing::error!(region = %name, %error, "a region cannot go by the new policy");
            }
        }
    }

    /// Takes the ends of ops, and does what time has come for.
    pub(super) fn handle_timeout(&mut self, now: Now, recorded: &mut Recorded<Policy>) {
        if self.write_at.take_if(|at| *at <= now.boot).is_some()
            && let Err(error) = self.write()
        {
            tracing::warn!(%error, "the file of keys still has a region that is gone");
            self.write_at = Some(now.boot + STEP_RETRY_MAX);
        }
        while let Some((slot, status)) = self.reach.poll() {
            if let Some(asked) = self.under_way.remove(&slot) {
                self.end(now, recorded, &asked, status);
            }
        }
        let due = self.kept.iter().filter(|(_, it)| it.at.is_some_and(|at| at <= now.boot));
        let due: Vec<_> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            self.drive(now, recorded, &name);
        }
    }

    /// Tells a rotation how its op has ended, and writes down what that has settled.
    fn end(&mut self, now: Now, recorded: &mut Recorded<Policy>, asked: &Asked, status: OpStatus) {
        let Asked { name, epoch, is_probe } = asked;
        let Some(kept) = self.kept.get_mut(name) else { return };
        kept.is_asked = false;
        kept.at = Some(now.boot);
        let done = turn(now, recorded, |turn| {
            if *is_probe {
                kept.rotation.handle_probe(turn, *epoch, status)
            } else {
                kept.rotation.handle_rekey(turn, *epoch, status)
            }
        });
        if let Err(error) = done {
            tracing::error!(region = %name, %error, "a region's key cannot be changed");
        }
        let present = recorded.service().catalog().find(name).map(|it| it.present().epoch());
        if let Some((_, secret)) = kept.next.take_if(|(epoch, _)| Some(*epoch) == present) {
            kept.present = secret;
            kept.is_lost = false;
            // Not needed for what follows: with both keys in the file, a READ would find out.
            if let Err(error) = self.write() {
                tracing::warn!(%error, "the file of keys still has a key from before");
            }
        }
    }

    fn drive(&mut self, now: Now, recorded: &mut Recorded<Policy>, name: &RegionName) {
        let Some(kept) = self.kept.get_mut(name) else { return };
        if kept.is_asked {
            kept.at = Some(now.boot + LOOK_EVERY);
            return;
        }
        let done = turn(now, recorded, |turn| kept.rotation.handle_timeout(turn));
        while let Some(alarm) = kept.rotation.poll_alarm() {
            self.alarms += 1;
            kept.is_lost |= alarm == Alarm::BothRefused;
            tell(name, alarm);
        }
        if let Err(error) = done {
            tracing::error!(region = %name, %error, "a region's key cannot be changed");
            kept.at = Some(now.boot + STEP_RETRY_MIN);
            return;
        }
        // Its turn comes when one of those that are under way is over.
        if !self.reach.has_room() {
            kept.at = Some(now.boot + LOOK_EVERY);
            return;
        }
        let (epoch, key, under) = match kept.rotation.poll_todo(now.boot, recorded.service()) {
            Todo::Wait(at) => {
                kept.at = at;
                return;
            }
            Todo::Rekey { under, to, secret } => (to, Some(secret.region_key()), under),
            Todo::Probe { under } => (under, None, under),
        };
        let asked = Asked { name: name.clone(), epoch, is_probe: key.is_none() };
        match self.ask(recorded, name, epoch, key, under) {
            Some(slot) => {
                self.under_way.insert(slot, asked);
                if let Some(kept) = self.kept.get_mut(name) {
                    (kept.is_asked, kept.at) = (true, Some(now.boot + LOOK_EVERY));
                }
            }
            // The rotation tries again after a while.
            None => self.end(now, recorded, &asked, OpStatus::DispatchTimeout),
        }
    }

    /// Issues an op under the key of epoch `under`. `None` if that cannot be done now.
    fn ask(
        &mut self,
        recorded: &Recorded<Policy>,
        name: &RegionName,
        epoch: Epoch,
        key: Option<RegionKey>,
        under: Epoch,
    ) -> Option<CommandSlotId> {
        let kept = self.kept.get_mut(name)?;
        let region = kept.region;
        if let Some(key) = key
            && kept.next.as_ref().is_none_or(|(known, _)| *known != epoch)
        {
            kept.next = Some((epoch, RegionSecret::new(&mut key.expose().to_owned())));
            // First into the file: a service that starts again must know what it has asked for.
            if let Err(error) = self.write() {
                tracing::warn!(region = %name, %error, "a key is not changed before it is in the file");
                if let Some(kept) = self.kept.get_mut(name) {
                    kept.next = None;
                }
                return None;
            }
        }
        let op_type = if key.is_some() { OpType::Rekey } else { OpType::Read };
        let binding = self.initiator_for(&region)?;
        let binding = KeyBinding { op_type, ..binding };
        let entry = recorded.service().catalog().find(name)?;
        let mut keys = [Some(entry.present()), entry.next()].into_iter().flatten();
        let granted = keys.find(|it| it.epoch() == under)?.derive(&binding);
        let KeyBinding { initiator, responder, pid, op_type } = binding;
        let (id, region_len, key_d) = (region.id, region.len, granted.derived_key());
        let grant =
            Grant { responder, region: id, region_len, initiator, pid, op_type, key: key_d };
        self.reach.issue(&grant, key)
    }

    /// Returns what keys for our own ops on `region` are bound to, if we have an address of a
    /// family of its host's.
    fn initiator_for(&self, region: &Region) -> Option<KeyBinding> {
        let Identity { addresses, pid } = self.reach.identity();
        region.responders.iter().find_map(|responder| {
            let initiator = addresses.toward(responder)?;
            Some(KeyBinding { initiator, responder, pid, op_type: OpType::Read })
        })
    }

    fn write(&self) -> Result<(), KeyFileError> {
        self.file.write(self.keys())
    }

    fn keys(&self) -> impl Iterator<Item = Keys> {
        self.kept.iter().map(|(name, kept)| Keys {
            name: name.clone(),
            region: kept.region,
            schedule: kept.schedule,
            present: kept.present.copied(),
            next: kept.next.as_ref().map(|(_, secret)| secret.copied()),
        })
    }
}

fn copy_of(keys: &Keys) -> Keys {
    let Keys { name, region, schedule, present, .. } = keys;
    let (name, present) = (name.clone(), present.copied());
    Keys { name, region: *region, schedule: *schedule, present, next: None }
}
