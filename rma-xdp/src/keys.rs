//! The key service joined with hosts (1RMA §3.1, §4.2; `docs/KEYS.md`): who owns regions serves
//! their keys, and who reads and writes them goes by names.
//!
//! An owner's [`KeyServer`] publishes regions: from then on they go by keys that it makes, gives to
//! whom the policy allows, and changes, by a schedule, by a call, and when the policy takes
//! something away. A client has [`KeyCache`], which fetch and renew keys, and a [`KeyedClient`],
//! whose transfers outlast changes: what is missing goes on under the new key, inside the
//! transfer's time. Neither has any I/O before it is needed, and each has one thread; who turns an
//! engine inline turns these as well ([`InlineKeyServer`], [`KeyCacheLoop`]), and whoever polls
//! completions takes a [`KeyedExecutor`] over the same cache ([`KeyCache::with_cache`]).
//!
//! A service can also change the keys of regions of other hosts, over the network, so that their
//! owners' programs take no part (§5.2): [`KeyServer::publish_remote`].
//!
//! Which of several owners of the same bytes to ask, [`Replicas`] says, told of
//! [`KeyedError::status`].
//!
//! # Secrets
//!
//! Keys are in the memory of both processes, also after they were changed: buffers of this project
//! are erased, copies on stacks and in libraries are not. A program that has some should not leave
//! them in a core dump: [`core_dumps::switch_off`] at its start.
//!
//! # Both sides in one process
//!
//! ```
#![doc = include_str!("../examples/keys.rs")]
//! ```

mod client;
mod error;
mod reach;
mod server;

#[doc(inline)]
pub use rma_keys::{
    audit::log::{LogConfig, OnFull},
    cache::{CacheCounters, CacheError, GrantCache, Source},
    identity::{IdentityError, SpiffeId},
    io::{
        PolicyFrom,
        client::FetchError,
        core_dumps,
        keeper::{KeeperCounters, KeeperError, KeyFileError, PublishError, RemoteRegion},
        key_cache::{Addresses, KeyCache, KeyCacheLoop, KeyedRegion, NoKey, Ready},
        server::{Beside, EndReason, Limits, ServerCounters, StartError},
    },
    keyed::{KeyedCall, KeyedExecutor, KeyedOutcome, KeyedPiece, KeyedStatus},
    name::{NameError, RegionName},
    ops::OpSet,
    peer::Peer,
    policy::Policy,
    replicas::Replicas,
    ring::{GiveUp, Holder, KeyedGrant},
    rotation::Schedule,
    secret::Octets,
    service::ServiceConfig,
    tls::{credentials::Credentials, directory::CredentialsFrom, trust::Trust},
};

pub use client::{KeyedBufPiece, KeyedClient, KeyedTransfer};
pub use error::{KeyServerError, KeyedError};
pub use server::{InlineKeyServer, KeyServer, KeyServerConfig, KeyServerCounters};
