//! Gets: by one-sided reads, at one replica after the other until one answers.
//!
//! The replica that a key prefers is asked first, unless it did not answer lately. A NACK or a
//! TIMEOUT sends the get to the next one, at once; a changed key does not, as [`KeyedClient`] goes
//! on under the next. Where a replica has not the value, the next is asked as well: it may be back
//! from a restart, and empty. The get says so, that somebody may put it there again.

use core::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rma_keys::io::clock;
use rma_xdp::{
    BufferPool, CallStatus, Client, Host, HostError, OpType, TransferError,
    keys::{
        CacheError, Holder, KeyCache, KeyedClient, KeyedError, KeyedRegion, NoKey, OpSet, Replicas,
        SpiffeId, StartError as KeyCacheError,
    },
    memory::BufferPoolError,
    transfer::{RetryPolicy, StartError},
};

use crate::{
    layout::{RECORD_LEN_MAX, Tag},
    lookup::{Lookup, Next, Read},
    placement::Placement,
    server::{INDEX, VALUES, idle},
};

/// How long one replica has to give a key, if none is there. Longer, and a get waits longer for one
/// that is gone; shorter, and one that is busy is taken to be gone.
const KEY_TIME: Duration = Duration::from_millis(50);

/// How long a READ may take. One to a replica that is gone ends by its TIMEOUT before. What takes
/// longer waits for its turn here, and to ask another replica as well would make that worse.
const READ_TIME: Duration = Duration::from_millis(500);

/// How often a get goes through its replicas. More, and it outlasts a longer time in which none
/// answers; fewer, and a moment in which none does fails it.
const PASSES: usize = 3;

/// How many ops may be under way.
const SLOTS: u16 = 256;

/// The addresses and identity of a server.
#[derive(Clone, Debug)]
pub struct ServerAt {
    /// By which name keys are placed: as long as it stays, so do they.
    pub name: String,
    /// The address at which it serves keys.
    pub keys: SocketAddr,
    /// The address at which it takes puts.
    pub puts: SocketAddr,
    /// The identity in its certificate.
    pub identity: SpiffeId,
}

/// A client of the cache. Clones share everything.
#[derive(Clone, Debug)]
pub struct Cache {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: KeyedClient,
    grants: KeyCache,
    pool: BufferPool,
    /// Index and values of each server.
    servers: Vec<(KeyedRegion, KeyedRegion)>,
    placement: Placement,
    replicas: Mutex<Replicas>,
    torn: AtomicU64,
    failovers: AtomicU64,
}

/// The reason why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The host has no slots or memory left.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There is no room for buffers.
    #[error(transparent)]
    Buffers(#[from] BufferPoolError),
    /// There can be no thread.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The credentials are not in order.
    #[error(transparent)]
    KeyCache(#[from] KeyCacheError),
    /// There are more servers than the cache of grants holds.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The reason why a get found out nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// No replica has answered.
    #[error("none of {replicas} replicas has answered, {PASSES} times each; the last: {last}")]
    NoAnswer {
        /// How many hold the key.
        replicas: usize,
        /// The error of the last one.
        last: AskError,
    },
    /// There are no servers.
    #[error("the cache has no servers; name at least one")]
    NoServers,
}

/// The reason why one replica did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// A READ did not succeed.
    #[error(transparent)]
    Read(#[from] KeyedError),
    /// There is no key.
    #[error(transparent)]
    NoKey(#[from] NoKey),
    /// It was torn each time.
    #[error("the value was put anew during each try to read it; try again")]
    Torn,
}

/// The result of a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// The value with its version, unless no replica that answered has it.
    pub found: Option<Found>,
    /// The replicas that should have it, and have not.
    pub missed: Vec<usize>,
}

/// A value that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The octets that were put.
    pub value: Vec<u8>,
    /// The version among those that were put.
    pub version: u64,
    /// The server that had it.
    pub server: usize,
}

impl Cache {
    /// A client at `host` with the credentials in a directory, of servers of which `copies` hold
    /// each key. `gets` may be under way at once, the others wait. Reaches nobody yet.
    ///
    /// # Errors
    /// The error names what is missing or wrong.
    pub fn open(
        host: &Host,
        credentials: &Path,
        servers: &[ServerAt],
        (copies, gets): (usize, u32),
    ) -> Result<Self, OpenError> {
        let holder = Holder { initiators: host.addresses(), pid: host.pid() };
        let grants = KeyCache::start(holder, credentials)?;
        let regions = servers.iter().map(|it| {
            let source = grants.source(vec![it.keys], it.identity.clone())?;
            let region = |name: &str| {
                let name = name.parse().expect("a name");
                grants.region(source, name, OpSet::NONE.with(OpType::Read))
            };
            Ok((region(INDEX)?, region(VALUES)?))
        });
        let regions = regions.collect::<Result<_, OpenError>>()?;
        let mut executor = host.transfers(SLOTS)?;
        executor.set_idle(idle());
        let client = Client::start(executor)?;
        let shared = Shared {
            client: KeyedClient::new(client, &grants),
            grants,
            pool: host.buffer_pool(gets, RECORD_LEN_MAX as u32)?,
            servers: regions,
            placement: Placement::new(servers.iter().map(|it| &it.name), copies),
            replicas: Mutex::new(Replicas::new(servers.len())),
            torn: AtomicU64::new(0),
            failovers: AtomicU64::new(0),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The client under it, for those that block on a get.
    #[must_use]
    pub fn client(&self) -> &KeyedClient {
        &self.shared.client
    }

    /// The buffers that gets read into.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        &self.shared.pool
    }

    /// The index and the values of a server.
    #[must_use]
    pub fn regions(&self, server: usize) -> &(KeyedRegion, KeyedRegion) {
        &self.shared.servers[server]
    }

    /// Returns the servers that hold a key, in the order of preference.
    #[must_use]
    pub fn servers_of(&self, key: &[u8]) -> Vec<usize> {
        self.shared.placement.of(Tag::of(key))
    }

    /// How often something was torn, how often a get went on to another replica, and how often
    /// another key of a region came.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        let Shared { torn, failovers, grants, .. } = &*self.shared;
        (torn.load(Relaxed), failovers.load(Relaxed), grants.counters().renewed)
    }

    /// Gets a value.
    ///
    /// # Errors
    /// If no replica has answered. That none has the value is no error.
    pub async fn get(&self, key: &[u8]) -> Result<Got, GetError> {
        let failovers = &self.shared.failovers;
        let preferred = self.servers_of(key);
        let mut missed = Vec::new();
        let mut last = None;
        for _ in 0..PASSES {
            let order = self.replicas().order_of(clock::now().boot, &preferred);
            for server in order {
                match self.ask(server, key).await {
                    Ok(Some((value, version))) => {
                        self.replicas().report(clock::now().boot, server, &CallStatus::Ok);
                        let found = Some(Found { value, version, server });
                        return Ok(Got { found, missed });
                    }
                    Ok(None) => {
                        self.replicas().report(clock::now().boot, server, &CallStatus::Ok);
                        missed.push(server);
                    }
                    Err(error) => {
                        if let Some(status) = silence(&error) {
                            self.replicas().report(clock::now().boot, server, &status);
                        }
                        failovers.fetch_add(1, Relaxed);
                        last = Some(error);
                    }
                }
            }
            if !missed.is_empty() {
                return Ok(Got { found: None, missed });
            }
        }
        let replicas = preferred.len();
        last.map_or(Err(GetError::NoServers), |last| Err(GetError::NoAnswer { replicas, last }))
    }

    fn replicas(&self) -> MutexGuard<'_, Replicas> {
        // Nothing that could panic happens under this lock.
        self.shared.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value and its version at one server, if it has it.
    async fn ask(&self, server: usize, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>, AskError> {
        let Shared { client, pool, servers, torn, .. } = &*self.shared;
        let (index, values) = &servers[server];
        index.ready(KEY_TIME).await?;
        // A ready client has a grant, unless it was refused in this moment.
        let Some(grant) = index.grant(OpType::Read) else {
            return Err(index.late(Duration::ZERO).into());
        };
        let mut lookup = Lookup::new(key, grant.grant.region_len);
        let mut buf = pool.acquire().await;
        loop {
            let (region, offset) = match lookup.reads() {
                Read::Bucket { offset } => (index, offset),
                Read::Record { offset, .. } => (values, offset),
            };
            buf.set_len(lookup.reads().size());
            let read = client.read(region, offset, buf).retry(RetryPolicy::NONE).timeout(READ_TIME);
            let (result, filled) = read.await;
            result?;
            buf = filled;
            let bytes = buf.to_vec();
            let before = lookup.torn();
            let next = lookup.take(&bytes);
            torn.fetch_add(u64::from(lookup.torn() - before), Relaxed);
            match next {
                Next::Read(_) => {}
                Next::Hit { value, version } => return Ok(Some((bytes[value].to_vec(), version))),
                Next::Miss => return Ok(None),
                Next::Torn => return Err(AskError::Torn),
            }
        }
    }
}

/// Returns the status by which [`Replicas`] learn of a replica that did not answer. One that has
/// given no key in time is as silent as one that has given no bytes.
fn silence(error: &AskError) -> Option<CallStatus> {
    match error {
        AskError::Read(error) => match (error.status(), error) {
            (Some(status), _) => Some(status),
            // Nothing that the replica did.
            (None, KeyedError::Transfer(TransferError::Refused(_))) => None,
            (None, _) => Some(CallStatus::DeadlineExceeded),
        },
        AskError::NoKey(_) => Some(CallStatus::DeadlineExceeded),
        AskError::Torn => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gets_may_be_awaited_on_any_thread() {
        const fn is_send<T: Send>(_: &T) {}
        let _ = |cache: Cache| {
            is_send(&cache);
            is_send(&cache.get(b"key"));
        };
    }
}
