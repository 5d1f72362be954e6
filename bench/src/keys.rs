//! Keys from the key service, in place of a grant in a file: what `serve` publishes its region
//! with, and what those that measure there ask by name.
//!
//! A run that measures goes by the keys that it began with: one that is changed meanwhile ends it,
//! as what is measured are ops, and not how clients go on. `verify` goes on with others.

use core::time::Duration;
use std::{
    fs::DirBuilder,
    io,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use clap::Args;
use rma_keys::{
    epoch::Epoch,
    io::{
        addresses::Addresses,
        client::{FetchError, Hindrance},
    },
    ring::Standing,
};
use rma_xdp::{
    HostAddr, InlineHost, OpStatus, OpType, RegisteredRegion,
    device::LocalAddresses,
    keys::{
        CacheError, Holder, InlineKeyServer, KeyCache, KeyServerConfig, KeyServerError, KeyedGrant,
        KeyedRegion, NoKey, OpSet, RegionName, Schedule, SpiffeId, StartError,
    },
};

use crate::grants::Grants;

/// How long a client waits for keys.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name that a region has unless it is given another.
const REGION: &str = "bench/region";

/// The options by which `serve` gives keys.
#[derive(Args, Clone, Debug)]
pub struct ServeKeyArgs {
    /// Serve the region's keys at this address, to the clients that the policy allows, instead of
    /// writing a grant file.
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["id", "policy"])]
    pub(crate) keys: Option<Addresses>,
    /// Directory with this side's certificate and key, as `rmactl ca issue` makes it.
    #[arg(long, value_name = "DIR", requires = "keys")]
    id: Option<PathBuf>,
    /// Policy file in TOML, which says who may have keys of which regions; see docs/KEYS.md. It is
    /// reloaded when it changes.
    #[arg(long, value_name = "FILE", requires = "keys")]
    policy: Option<PathBuf>,
    /// Write an audit log into this directory, which is created if it is missing.
    #[arg(long, value_name = "DIR", requires = "keys")]
    audit: Option<PathBuf>,
    /// Name of the region.
    #[arg(long, value_name = "NAME", requires = "keys", default_value = REGION)]
    region: RegionName,
    /// Seconds between changes of the region's key, a tenth more or less.
    #[arg(long, value_name = "SECONDS", requires = "keys", default_value_t = 86_400)]
    rotate: u64,
}

/// The options by which a client gets keys.
#[derive(Args, Clone, Debug)]
pub struct ClientKeyArgs {
    /// Fetch keys from the key service at this address, instead of reading a grant file.
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["expect", "id"])]
    keys: Option<Addresses>,
    /// SPIFFE ID that the service must have, for example spiffe://example.org/server.
    #[arg(long, value_name = "IDENTITY", requires = "keys")]
    expect: Option<SpiffeId>,
    /// Directory with this side's certificate and key, as `rmactl ca issue` makes it.
    #[arg(long, value_name = "DIR", requires = "keys")]
    id: Option<PathBuf>,
    /// Name of the region.
    #[arg(long, value_name = "NAME", requires = "keys", default_value = REGION)]
    region: RegionName,
    /// Seed that `serve` was given.
    #[arg(long, requires = "keys", default_value_t = 1)]
    pub(crate) seed: u64,
    /// UDP port that `serve` was given.
    #[arg(long, requires = "keys", default_value_t = rma_xdp::config::DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
}

/// An error that kept keys from being served, or fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// Keys cannot be served.
    #[error(transparent)]
    Serve(#[from] Box<KeyServerError>),
    /// The audit log has no place.
    #[error("the directory of the audit log, {}, cannot be made: {why}; make it, or name another in --audit", path.display())]
    Audit {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// Keys cannot be fetched.
    #[error(transparent)]
    Start(#[from] Box<StartError>),
    /// There is no room for the region's keys.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The key service gives no keys.
    #[error(transparent)]
    NoKey(#[from] Box<NoKey>),
}

/// A key service that is known.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    addresses: Addresses,
    expected: SpiffeId,
    id: PathBuf,
    region: RegionName,
}

impl ServeKeyArgs {
    /// The name that the region is served under.
    pub(crate) const fn region(&self) -> &RegionName {
        &self.region
    }

    /// Serves keys of `region`, if that is asked for.
    pub(crate) fn open(
        &self,
        host: &InlineHost,
        region: &RegisteredRegion,
    ) -> Result<Option<InlineKeyServer>, KeysError> {
        let (Some(listen), Some(id), Some(policy)) = (&self.keys, &self.id, &self.policy) else {
            return Ok(None);
        };
        let listen = listen.first();
        self.audit.as_deref().map_or(Ok(()), make_directory)?;
        let config =
            KeyServerConfig::new(listen, id, policy).with(|it| it.audit.clone_from(&self.audit));
        let mut keys = InlineKeyServer::open(host, &config).map_err(Box::new)?;
        let schedule = Schedule::every(Duration::from_secs(self.rotate));
        keys.publish(host, &self.region, region, schedule).map_err(Box::new)?;
        Ok(Some(keys))
    }
}

/// Makes the directory of the audit log, which tells who was given keys: for its owner alone.
fn make_directory(path: &Path) -> Result<(), KeysError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|why| KeysError::Audit { path: path.to_owned(), why })
}

impl ClientKeyArgs {
    /// The service to ask, if one is given.
    pub(crate) fn service(&self) -> Option<Service> {
        let (region, id) = (self.region.clone(), self.id.clone()?);
        Some(Service { addresses: self.keys.clone()?, expected: self.expect.clone()?, id, region })
    }
}

impl Service {
    /// The name of the region that is asked for.
    pub(crate) const fn region(&self) -> &RegionName {
        &self.region
    }

    /// Fetches keys of the region for ops of these types, for `host`.
    pub(crate) fn fetch(
        &self,
        host: &InlineHost,
        op_types: &[OpType],
    ) -> Result<RegionKeys, KeysError> {
        let holder = Holder { initiators: host.addresses(), pid: host.pid() };
        let fetched = KeyCache::start(holder, &self.id).map_err(Box::new)?;
        let source = fetched.source(self.addresses.clone().into_vec(), self.expected.clone())?;
        let ops: OpSet = op_types.iter().copied().collect();
        let region = fetched.region(source, self.region.clone(), ops)?;
        let op_type = *op_types.first().expect("at least one type of op");
        let KeyedGrant { grant, epoch, .. } =
            region.wait_grant(op_type, PATIENCE).map_err(Box::new)?;
        let mut keys =
            RegionKeys { region, op_types: op_types.into(), grants: Grants::new(grant), epoch };
        keys.look();
        Ok(keys)
    }
}

/// Keys of a region, which are renewed as long as this is there.
#[derive(Debug)]
pub(crate) struct RegionKeys {
    region: KeyedRegion,
    op_types: Box<[OpType]>,
    /// The grants that were seen last, all of one epoch.
    grants: Grants,
    epoch: Epoch,
}

impl RegionKeys {
    /// The grants that were seen last.
    pub(crate) const fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Returns the epoch of the keys.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// An op under the key of `epoch` has ended so.
    pub(crate) fn note(&self, epoch: Epoch, status: OpStatus) {
        let ring = self.region.ring();
        // `look` says what it may do now.
        _ = self
            .region
            .key_cache()
            .with_cache(|cache, now| cache.on_outcome(now, ring, epoch, status));
    }

    /// Takes what there is to go by now.
    pub(crate) fn look(&mut self) {
        let ring = self.region.ring();
        let seen = self.region.key_cache().with_cache(|cache, now| {
            let mut all = self.op_types.iter().map(|&it| cache.grant(now, ring, it));
            let KeyedGrant { grant, epoch, .. } = all.next()??;
            let with = |grants: Grants, it: Option<KeyedGrant>| {
                it.map(|KeyedGrant { grant, .. }| grants.with(grant.op_type, grant.key))
            };
            Some((all.try_fold(Grants::new(grant), with)?, epoch))
        });
        if let Ok(Some((grants, epoch))) = seen {
            (self.grants, self.epoch) = (grants, epoch);
        }
    }

    /// Returns the reason why there are no other keys after `waited`, as far as is known.
    pub(crate) fn hindrance(&self, waited: Duration) -> Option<KeysError> {
        let region = &self.region;
        let ring = region.ring();
        let standing = region.key_cache().with_cache(|cache, now| cache.standing(now, ring));
        let why = match standing {
            Ok(Standing::GaveUp(why)) => region.gave_up(why),
            _ => region.late(waited),
        };
        let is_hindered = |why: &FetchError| {
            !matches!(why, FetchError::Unanswered { why: Hindrance::Silent, .. })
        };
        let is_known = !matches!(&why, NoKey::Late { why, .. } if !is_hindered(why));
        is_known.then(|| Box::new(why).into())
    }
}

/// Returns the address at which clients ask a service that listens at `listen`: an address of every
/// machine is none of this one, and keys are given to whoever comes from the address that ops come
/// from.
pub(crate) fn asked_at(listen: SocketAddr, host: LocalAddresses) -> SocketAddr {
    let is_v4 = |it: &HostAddr| it.ip().is_ipv4();
    let mut own = host.iter().filter(|it| is_v4(it) == listen.is_ipv4()).chain(host.iter());
    match own.next() {
        // [::] is for both families.
        Some(own) if listen.ip().is_unspecified() && (listen.is_ipv6() || is_v4(&own)) => {
            SocketAddr::new(own.ip(), listen.port())
        }
        _ => listen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_an_address_of_this_host_where_it_listens_at_all_of_them() {
        let v4: LocalAddresses = HostAddr::from([192, 0, 2, 1]).into();
        let v6: LocalAddresses = "2001:db8::1".parse::<HostAddr>().unwrap().into();
        for (listen, host, says) in [
            ("192.0.2.7:7471", v4, "192.0.2.7:7471"),
            ("0.0.0.0:7471", v4, "192.0.2.1:7471"),
            ("[::]:7471", v6, "[2001:db8::1]:7471"),
            // A socket of both families.
            ("[::]:7471", v4, "192.0.2.1:7471"),
            ("0.0.0.0:7471", v6, "0.0.0.0:7471"),
        ] {
            assert_eq!(asked_at(listen.parse().unwrap(), host), says.parse().unwrap(), "{listen}");
        }
    }
}
