//! The owner's end: [`KeyServer`], and [`InlineKeyServer`] for those who turn everything.

use core::time::Duration;
use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
};

use rma_core::{gate::Gate, region::RegisteredRegion};
use rma_keys::{
    audit::log::LogConfig,
    io::{
        PolicyFrom, clock,
        keeper::{
            Keeper, KeeperConfig, KeeperCounters, KeeperLoop, KeeperThread, PublishError,
            RemoteRegion,
        },
        server::{Beside, Limits, ServerCounters, StartError},
    },
    name::RegionName,
    rotation::Schedule,
    service::ServiceConfig,
    time::Now,
    tls::directory::CredentialsFrom,
};

use super::{error::KeyServerError, reach::OverPortal};
use crate::{
    engine::EngineKind,
    host::{Host, HostOf},
};

/// With what a key service is started. Every field may be set.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct KeyServerConfig {
    /// The address at which it accepts connections. With port 0, at a port of the system's choice.
    /// With `0.0.0.0` or `[::]`, at all addresses of this machine: clients are told one of these,
    /// best the host's own, as keys are given to the address that their connection comes from.
    pub listen: SocketAddr,
    /// Its credentials, or their directory: `docs/KEYS.md` says which files. These are read anew
    /// when they change.
    pub credentials: CredentialsFrom,
    /// The policy, or its file. That is read anew when it changes; what that takes away ends at
    /// once.
    pub policy: PolicyFrom,
    /// The directory of its audit log. Default: `None`, there is none.
    pub audit: Option<PathBuf>,
    /// The file with the keys of regions of other hosts ([`KeyServer::publish_remote`]). It is made
    /// if there is none, and only its owner may read it. Default: `None`, no such regions.
    pub remote_keys: Option<PathBuf>,
    /// The settings of the audit log.
    pub log: LogConfig,
    /// How often clients may ask.
    pub service: ServiceConfig,
    /// How many connections there may be, and for how long.
    pub limits: Limits,
}

impl KeyServerConfig {
    /// At this address, with these files or values, and with defaults for the rest.
    pub fn new(
        listen: SocketAddr,
        credentials: impl Into<CredentialsFrom>,
        policy: impl Into<PolicyFrom>,
    ) -> Self {
        Self {
            listen,
            credentials: credentials.into(),
            policy: policy.into(),
            audit: None,
            remote_keys: None,
            log: LogConfig::default(),
            service: ServiceConfig::default(),
            limits: Limits::default(),
        }
    }

    fn open<P: EngineKind>(&self, host: &HostOf<P>) -> Result<KeeperLoop, KeyServerError> {
        let config = KeeperConfig {
            audit: self.audit.clone(),
            log: self.log,
            service: self.service,
            ..KeeperConfig::new(self.policy.clone())
        };
        let mut keeper = Keeper::new(host.addresses(), &config)?;
        if let Some(path) = &self.remote_keys {
            keeper.reach_others(clock::now(), path, Box::new(OverPortal::open(host)?))?;
        }
        let listener = TcpListener::bind(self.listen)
            .map_err(|source| KeyServerError::Listen { address: self.listen, source })?;
        Ok(KeeperLoop::new(listener, &self.credentials, keeper, self.limits)?)
    }
}

rma_core::settings!(KeyServerConfig);

/// The counters of a key service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyServerCounters {
    /// Its connections.
    pub connections: ServerCounters,
    /// Its keys: what was given and refused, rotations, alarms.
    pub keys: KeeperCounters,
}

/// Serves the keys of a host's regions, and changes them, on a thread of its own. Dropped, it no
/// longer serves; the regions keep the keys that they have.
///
/// An owner that stops, and will be back, drops this and then its host, and no more: clients
/// outlast that for as long as they were told to (`RetryPolicy::outlast`), and go on with the keys
/// of its next life. One that leaves its regions to other owners takes them out first
/// ([`KeyServer::remove`]): clients are denied at once then, and turn to another.
#[derive(Debug)]
pub struct KeyServer {
    host: Arc<Host>,
    thread: KeeperThread,
}

impl KeyServer {
    /// Starts the service of a host's keys, of which none is published yet. Whoever asks for a
    /// region before it is published is denied, and takes that for an answer for a second: so an
    /// owner that starts again, whose clients are waiting, uses [`KeyServer::start_with`].
    ///
    /// # Errors
    /// The error names what is missing or wrong, and the next step.
    pub fn start(host: Arc<Host>, config: &KeyServerConfig) -> Result<Self, KeyServerError> {
        Self::start_with(host, config, &[])
    }

    /// Starts the service of a host's keys, and publishes these regions, as [`KeyServer::publish`]
    /// does, before anybody is answered.
    ///
    /// # Errors
    /// The error names what is missing or wrong, and the next step.
    pub fn start_with(
        host: Arc<Host>,
        config: &KeyServerConfig,
        regions: &[(&str, &RegisteredRegion, Schedule)],
    ) -> Result<Self, KeyServerError> {
        let mut turns = config.open(&host)?;
        for &(name, region, schedule) in regions {
            let name = parse(name)?;
            turns.keeper().publish(clock::now(), &*host, name, region, schedule)?;
        }
        let thread = KeeperThread::start(turns, host.clone());
        let thread = thread.map_err(StartError::Thread)?;
        Ok(Self { host, thread })
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.thread.address()
    }

    /// Returns its counters.
    #[must_use]
    pub fn counters(&self) -> KeyServerCounters {
        let keys = self.thread.with(|_, keeper| keeper.counters());
        KeyServerCounters { connections: self.thread.connections(), keys }
    }

    /// Publishes a region under `name`: from now on it goes by keys of the service's, which are
    /// changed by `schedule`, or more often where the policy gives shorter lifetimes. Grants from
    /// before are worth nothing. What had the name before goes out, and is closed to everybody if
    /// it is another region.
    ///
    /// # Errors
    /// If it has no such name, is published under another one, is not registered at this host, or
    /// there are too many.
    pub fn publish(
        &self,
        name: &str,
        region: &RegisteredRegion,
        schedule: Schedule,
    ) -> Result<(), KeyServerError> {
        self.act(name, |now, keeper, host, name| {
            keeper.publish(now, host, name, region, schedule).map(drop)
        })
    }

    /// Publishes a region of another host under `name` (1RMA §5.2): this service changes its key
    /// from now on, by the op Rekey, and its owner's program takes no part, whether it sleeps or
    /// not. The owner registers the region with REKEY and READ among its
    /// [`Permissions`](rma_core::region::Permissions), and gives it to this service over a channel
    /// that keeps secrets; a region that it registers anew must be published anew.
    ///
    /// A key that has *leaked* must be changed at the region's own host: whoever holds it and has
    /// recorded the Rekey has the next one, too.
    ///
    /// # Errors
    /// If [`KeyServerConfig::remote_keys`] names no file, or that cannot be written; and as
    /// [`KeyServer::publish`].
    pub fn publish_remote(
        &self,
        name: &str,
        region: &RemoteRegion,
        schedule: Schedule,
    ) -> Result<(), KeyServerError> {
        self.act(name, |now, keeper, host, name| {
            keeper.publish_remote(now, host, name, region, schedule).map(drop)
        })
    }

    /// Takes a region out. No client is given its keys any longer, and clients that hold some are
    /// shut out: the region goes by a key that nobody knows. One of another host keeps its key: its
    /// owner changes that, or takes the region back.
    ///
    /// # Errors
    /// If none was published under this name.
    pub fn remove(&self, name: &str) -> Result<(), KeyServerError> {
        self.act(name, |now, keeper, host, name| keeper.remove(now, host, &name))
    }

    /// Changes the key of a region now. What was announced to its clients is what it changes to.
    ///
    /// # Errors
    /// If none was published under this name.
    pub fn rotate_now(&self, name: &str) -> Result<(), KeyServerError> {
        self.act(name, |now, keeper, host, name| keeper.rotate(now, host, &name))
    }

    /// Changes the key of a region now, for one that nobody can have: a key has leaked. All clients
    /// of the region fetch once.
    ///
    /// # Errors
    /// If none was published under this name.
    pub fn withdraw(&self, name: &str) -> Result<(), KeyServerError> {
        self.act(name, |now, keeper, host, name| keeper.withdraw(now, host, &name))
    }

    /// Reads the policy's file now, and goes by it; else that is done within 20 s.
    ///
    /// # Errors
    /// If the file holds no policy. Then the one from before holds.
    pub fn reload_policy(&self) -> Result<(), KeyServerError> {
        Ok(self.thread.with(|now, keeper| keeper.reload(now, &*self.host))?)
    }

    fn act(
        &self,
        name: &str,
        act: impl FnOnce(Now, &mut Keeper, &dyn Gate, RegionName) -> Result<(), PublishError>,
    ) -> Result<(), KeyServerError> {
        let name = parse(name)?;
        Ok(self.thread.with(|now, keeper| act(now, keeper, &*self.host, name))?)
    }
}

/// [`KeyServer`] without a thread: connections are answered and keys changed when, and only when,
/// the application turns it, with the host that it was opened for: of either kind.
#[derive(Debug)]
pub struct InlineKeyServer {
    turns: KeeperLoop,
}

impl InlineKeyServer {
    /// Opens the service of a host's keys.
    ///
    /// # Errors
    /// As [`KeyServer::start`].
    pub fn open<P: EngineKind>(
        host: &HostOf<P>,
        config: &KeyServerConfig,
    ) -> Result<Self, KeyServerError> {
        Ok(Self { turns: config.open(host)? })
    }

    /// Does what can be done now, and waits for nobody.
    pub fn turn(&mut self, host: &dyn Gate) {
        self.turn_beside(host, &mut ());
    }

    /// [`Self::turn`], with somebody who answers what is no key message.
    pub fn turn_beside(&mut self, host: &dyn Gate, beside: &mut dyn Beside) {
        let now = clock::now();
        // A wait finds which connections have something.
        self.turns.wait_for(now.boot, Duration::ZERO);
        self.turns.turn_beside(now, host, beside);
    }

    /// Waits for something to do, no longer than `most`; of no use to whoever has an engine to
    /// turn.
    pub fn wait(&mut self, most: Duration) {
        self.turns.wait_for(clock::now().boot, most);
    }

    /// As [`KeyServer::address`].
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.turns.address()
    }

    /// As [`KeyServer::counters`].
    pub fn counters(&mut self) -> KeyServerCounters {
        let keys = self.turns.keeper().counters();
        KeyServerCounters { connections: self.turns.connections(), keys }
    }

    /// As [`KeyServer::publish`].
    ///
    /// # Errors
    /// As [`KeyServer::publish`].
    pub fn publish(
        &mut self,
        host: &dyn Gate,
        name: &str,
        region: &RegisteredRegion,
        schedule: Schedule,
    ) -> Result<(), KeyServerError> {
        let (name, now) = (parse(name)?, clock::now());
        self.turns.keeper().publish(now, host, name, region, schedule)?;
        Ok(())
    }

    /// As [`KeyServer::remove`].
    ///
    /// # Errors
    /// As [`KeyServer::remove`].
    pub fn remove(&mut self, host: &dyn Gate, name: &str) -> Result<(), KeyServerError> {
        Ok(self.turns.keeper().remove(clock::now(), host, &parse(name)?)?)
    }

    /// As [`KeyServer::rotate_now`].
    ///
    /// # Errors
    /// As [`KeyServer::rotate_now`].
    pub fn rotate_now(&mut self, host: &dyn Gate, name: &str) -> Result<(), KeyServerError> {
        Ok(self.turns.keeper().rotate(clock::now(), host, &parse(name)?)?)
    }

    /// As [`KeyServer::withdraw`].
    ///
    /// # Errors
    /// As [`KeyServer::withdraw`].
    pub fn withdraw(&mut self, host: &dyn Gate, name: &str) -> Result<(), KeyServerError> {
        Ok(self.turns.keeper().withdraw(clock::now(), host, &parse(name)?)?)
    }

    /// As [`KeyServer::reload_policy`].
    ///
    /// # Errors
    /// As [`KeyServer::reload_policy`].
    pub fn reload_policy(&mut self, host: &dyn Gate) -> Result<(), KeyServerError> {
        Ok(self.turns.keeper().reload(clock::now(), host)?)
    }
}

fn parse(name: &str) -> Result<RegionName, KeyServerError> {
    name.parse().map_err(|why| KeyServerError::Name { name: name.into(), why })
}
