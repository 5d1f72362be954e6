//! The owner's side as one: regions under keys of a catalog, which are rotated at their own host
//! and given out by a policy, in a file or in memory.
//!
//! A [`Keeper`] is what the parts make together: a service with its log, a rotation for each
//! region, and the policy, whose file is read anew when it changes. A [`KeeperLoop`] has it answer
//! connections; a [`KeeperThread`] turns that. The regions' host is an argument, or the thread's:
//! it is asked through a [`Gate`]. Regions of other hosts can be kept as well: those are rekeyed
//! over the network, through a [`Reach`].
//!
//! Invariants: a region of the own host that was published is under a key that the catalog has, or
//! will have when its host does what it was asked; keys are changed with nobody fetching in the
//! midst. So an owner's own rotation is never in doubt.

mod error;
mod key_file;
mod regions;
mod remote;
mod thread;
mod turns;

use core::time::Duration;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    gate::Gate,
    region::RegisteredRegion,
    time::Instant,
};

pub use error::{KeeperError, PublishError};
pub use key_file::KeyFileError;
pub use remote::{Reach, RemoteRegion};
pub use thread::KeeperThread;
pub use turns::KeeperLoop;

use crate::{
    audit::{
        Event, What,
        log::{Log, LogConfig, LogCounters},
    },
    catalog::CatalogError,
    epoch::{Epoch, Life},
    io::{
        policy_file::{PolicyFile, PolicyFrom},
        random::octets,
    },
    name::RegionName,
    peer::Peer,
    policy::Policy,
    recorded::Recorded,
    rotation::{Rotation, RotationCounters, Schedule, Turn},
    secret::Octets,
    service::{Service, ServiceConfig, ServiceCounters},
    time::Now,
};
use regions::{Regions, add};
use remote::Remotes;

/// The settings by which an owner keeps keys.
#[derive(Clone, Debug)]
pub struct KeeperConfig {
    /// The policy, or its file.
    pub policy: PolicyFrom,
    /// The directory of the audit log, `audit.log` in it. `None`: there is none.
    pub audit: Option<PathBuf>,
    /// The settings of the audit log.
    pub log: LogConfig,
    /// The service's limits for its clients. Its seed is drawn anew by [`Keeper::new`].
    pub service: ServiceConfig,
}

impl KeeperConfig {
    /// By this policy, and without a log.
    #[must_use]
    pub fn new(policy: impl Into<PolicyFrom>) -> Self {
        let (log, service) = (LogConfig::default(), ServiceConfig::default());
        Self { policy: policy.into(), audit: None, log, service }
    }
}

/// The counters of a keeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperCounters {
    /// The counts of grants given and refused.
    pub service: ServiceCounters,
    /// The counts of audit records, if it writes them.
    pub log: LogCounters,
    /// The rotations of all regions, those that are gone among them.
    pub rotations: RotationCounters,
    /// The number of rotation alarms for people; each is an event of `tracing` as well.
    pub alarms: u64,
    /// Times that the regions' host did not change a key.
    pub host_failures: u64,
    /// Policies that were taken from the file.
    pub reloaded: u64,
    /// States of the file that were not taken.
    pub not_reloaded: u64,
}

/// How often people are told of a denial, as clients can be denied as often as they ask.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Keeps the keys of an owner's regions.
#[derive(Debug)]
pub struct Keeper {
    recorded: Recorded<Policy>,
    /// None if the policy is in memory.
    policy: Option<PolicyFile>,
    regions: Regions,
    /// None if only regions of the own host are kept.
    remotes: Option<Remotes>,
    /// When the log wants something.
    log_at: Option<Instant>,
    /// To whom keys were given since the host was told.
    initiators: BTreeSet<HostAddr>,
    denials: Denials,
    reloaded: u64,
    not_reloaded: u64,
}

impl Keeper {
    /// A keeper without regions, for a host with these addresses.
    ///
    /// # Errors
    /// If there is no policy, the log cannot be written, or the kernel gives no random octets.
    pub fn new(responders: LocalAddresses, config: &KeeperConfig) -> Result<Self, KeeperError> {
        let KeeperConfig { policy, audit, log, service } = config;
        let (policy, rules) = match policy {
            PolicyFrom::File(path) => {
                let (file, rules) = PolicyFile::open(path)?;
                (Some(file), rules)
            }
            PolicyFrom::Memory(rules) => (None, rules.clone()),
        };
        let seed = u64::from_ne_bytes(octets().map_err(KeeperError::Random)?);
        let service = ServiceConfig { seed: seed ^ 1, ..*service };
        let service = Service::new(Life(octets().map_err(KeeperError::Random)?), rules, service);
        let recorded = match audit {
            Some(directory) => {
                Recorded::new(service, Log::open(&directory.join("audit.log"), *log)?)
            }
            None => Recorded::without_log(service),
        };
        Ok(Self {
            recorded,
            policy,
            regions: Regions::new(responders, seed),
            remotes: None,
            log_at: None,
            initiators: BTreeSet::new(),
            denials: Denials::default(),
            reloaded: 0,
            not_reloaded: 0,
        })
    }

    /// Keeps regions of other hosts as well, whose keys are in the file at `path`: it is made if
    /// there is none. What an earlier life of the service kept goes on.
    ///
    /// # Errors
    /// If the file cannot be read or written, or others may read it.
    pub fn reach_others(
        &mut self,
        now: Now,
        path: &Path,
        reach: Box<dyn Reach>,
    ) -> Result<(), PublishError> {
        let seed = u64::from_ne_bytes(octets().map_err(PublishError::Random)?);
        self.remotes = Some(Remotes::open(now, path, reach, &mut self.recorded, seed)?);
        Ok(())
    }

    /// The service, to look at its catalog.
    #[must_use]
    pub const fn service(&self) -> &Service<Policy> {
        self.recorded.service()
    }

    /// Returns its counters.
    #[must_use]
    pub fn counters(&self) -> KeeperCounters {
        KeeperCounters {
            service: self.service().counters(),
            log: self.recorded.log().map(Log::counters).unwrap_or_default(),
            rotations: self
                .remotes
                .as_ref()
                .map_or(self.regions.counters(), |it| add(self.regions.counters(), it.counters())),
            alarms: self.regions.alarms + self.remotes.as_ref().map_or(0, |it| it.alarms),
            host_failures: self.regions.host_failures,
            reloaded: self.reloaded,
            not_reloaded: self.not_reloaded,
        }
    }

    /// Publishes a region under `name`: it goes by a key of the catalog's own from now on, which is
    /// changed by `schedule`. Grants from before are worth nothing. What had the name before goes
    /// out, and is closed to everybody if it is another region.
    ///
    /// # Errors
    /// If the host does not change the key, or the catalog does not take the region.
    pub fn publish(
        &mut self,
        now: Now,
        host: &dyn Gate,
        name: RegionName,
        region: &RegisteredRegion,
        schedule: Schedule,
    ) -> Result<Epoch, PublishError> {
        let epoch =
            self.regions.publish(now, host, &mut self.recorded, name.clone(), region, schedule)?;
        if let Some(remotes) = self.remotes.as_mut().filter(|it| it.has(&name)) {
            remotes.displace(now, &name);
        }
        Ok(epoch)
    }

    /// Publishes a region of another host under `name` (1RMA §5.2): from now on its key is changed
    /// by this service, over the network, and its owner takes no part. Clients that hold grants
    /// keep them until the first change. What had the name before goes out.
    ///
    /// # Errors
    /// If there is no way to other hosts ([`Keeper::reach_others`]), the file of keys cannot be
    /// written, or the catalog does not take the region.
    pub fn publish_remote(
        &mut self,
        now: Now,
        host: &dyn Gate,
        name: RegionName,
        region: &RemoteRegion,
        schedule: Schedule,
    ) -> Result<Epoch, PublishError> {
        let no_reach = || PublishError::NoReach { name: name.clone() };
        let remotes = self.remotes.as_mut().ok_or_else(no_reach)?;
        let epoch = remotes.publish(now, &mut self.recorded, name.clone(), region, schedule)?;
        self.regions.displace(host, &name)?;
        Ok(epoch)
    }

    /// Takes a region out. No client is given its keys any longer, and clients that hold some are
    /// shut out. But a region of another host keeps the key that it has: its owner changes it, or
    /// takes the region back.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn remove(
        &mut self,
        now: Now,
        host: &dyn Gate,
        name: &RegionName,
    ) -> Result<(), PublishError> {
        if let Some(remotes) = self.remotes.as_mut().filter(|it| it.has(name)) {
            remotes.remove(name)?;
        }
        self.regions.remove(now, host, &mut self.recorded, name)
    }

    /// Changes the key of a region now. What is announced already is installed.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn rotate(
        &mut self,
        now: Now,
        host: &dyn Gate,
        name: &RegionName,
    ) -> Result<(), PublishError> {
        self.act(now, host, name, |rotation, turn| rotation.rotate(turn))
    }

    /// Changes the key of a region now, for one that nobody can hold: one has leaked, or somebody
    /// must be shut out.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn withdraw(
        &mut self,
        now: Now,
        host: &dyn Gate,
        name: &RegionName,
    ) -> Result<(), PublishError> {
        self.act(now, host, name, |rotation, turn| rotation.withdraw(turn))
    }

    fn act(
        &mut self,
        now: Now,
        host: &dyn Gate,
        name: &RegionName,
        act: impl FnOnce(&mut Rotation, &mut Turn<'_, Policy>) -> Result<(), CatalogError>,
    ) -> Result<(), PublishError> {
        match self.remotes.as_mut().filter(|it| it.has(name)) {
            Some(remotes) => remotes.act(now, &mut self.recorded, name, act),
            None => self.regions.act(now, host, &mut self.recorded, name, act),
        }
    }

    /// Reads the policy's file now, if it has one, and goes by it: what it takes away ends at once.
    ///
    /// # Errors
    /// If it is no policy. Then the one from before holds.
    pub fn reload(&mut self, now: Now, host: &dyn Gate) -> Result<(), KeeperError> {
        match self.policy.as_mut().map(PolicyFile::read_now) {
            None => {}
            Some(Ok(policy)) => self.take(now, host, policy),
            Some(Err(why)) => {
                self.not_reloaded += 1;
                return Err(why.into());
            }
        }
        Ok(())
    }

    /// Answers a message.
    pub fn handle(&mut self, now: Now, peer: &Peer, message: &[u8]) -> Octets {
        let Self { initiators, denials, recorded, .. } = self;
        recorded.handle_and_see(now, peer, message, |event| match event.what {
            What::Granted { initiator, .. } | What::Current { initiator, .. } => {
                initiators.insert(initiator);
            }
            What::Denied { .. } => denials.tell(now.boot, event),
            _ => {}
        })
    }

    /// Does what time has come for: changes keys, looks at the policy, writes the log to the disk.
    pub fn handle_timeout(&mut self, now: Now, host: &dyn Gate) {
        self.log_at = self.recorded.poll(now);
        match self.policy.as_mut().and_then(|it| it.poll(now.boot)) {
            None => {}
            Some(Ok(policy)) => self.take(now, host, policy),
            Some(Err(error)) => {
                self.not_reloaded += 1;
                tracing::warn!(%error, "the key service goes on with its old policy");
            }
        }
        self.regions.handle_timeout(now, host, &mut self.recorded);
        if let Some(remotes) = &mut self.remotes {
            remotes.handle_timeout(now, &mut self.recorded);
        }
        self.prepare(host);
    }

    /// When [`Keeper::handle_timeout`] has something to do, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let policy_at = self.policy.as_ref().and_then(PolicyFile::poll_timeout);
        let remote_at = self.remotes.as_ref().and_then(Remotes::poll_timeout);
        let at = [self.log_at, policy_at, self.regions.poll_timeout(), remote_at];
        at.into_iter().flatten().min()
    }

    /// Tells the host to whom keys were given.
    pub fn prepare(&mut self, host: &dyn Gate) {
        while let Some(initiator) = self.initiators.pop_first() {
            host.prepare(initiator);
        }
    }

    fn take(&mut self, now: Now, host: &dyn Gate, policy: Policy) {
        self.reloaded += 1;
        let withdrawn = self.recorded.change(now, |service| {
            let reloaded = service.reload(now, policy);
            (reloaded.withdrawn, vec![reloaded.event])
        });
        tracing::info!(withdrawn = withdrawn.len(), "the key service goes by another policy");
        self.regions.handle_policy(now, host, &mut self.recorded, &withdrawn);
        if let Some(remotes) = &mut self.remotes {
            remotes.handle_policy(now, &mut self.recorded, &withdrawn);
        }
    }
}

/// When people were last told of a denial, and how many there were since.
#[derive(Debug, Default)]
struct Denials {
    told_at: Option<Instant>,
    untold: u64,
}

impl Denials {
    /// Tells people of a denial: its client learns no more than that, and often it is a rule, or an
    /// address, that is wrong. The audit log has all of them.
    fn tell(&mut self, now: Instant, event: &Event) {
        if self.told_at.is_some_and(|at| now.since(at) < TELL_EVERY) {
            self.untold += 1;
            return;
        }
        self.told_at = Some(now);
        let untold = core::mem::take(&mut self.untold);
        tracing::warn!(%event, untold, "the key service denied a region");
    }
}
