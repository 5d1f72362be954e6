//! Errors of keeping an owner's keys.

use rma_core::gate::Refused;

use crate::{
    audit::log::LogError,
    catalog::CatalogError,
    io::{keeper::key_file::KeyFileError, policy_file::PolicyFileError, random::octets},
    name::RegionName,
    secret::RegionSecret,
};

/// The reason why there is no keeper, or no other policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// There is no policy.
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    /// The audit log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The kernel gives no random octets.
    #[error("the kernel gives no random octets for keys: {0}")]
    Random(std::io::Error),
}

/// The reason why a region is not published, or its key not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The region's host did not do it.
    #[error("the host did not change the region's key: {0}")]
    Host(Refused),
    /// The catalog did not take it.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The kernel gives no random octets.
    #[error("the kernel gives no random octets for keys: {0}")]
    Random(std::io::Error),
    /// The keys of other hosts' regions are not kept.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The service has no way to other hosts.
    #[error(
        "the region {name} is another host's, and this service only keeps those of its own host: start it with a file for their keys"
    )]
    NoReach {
        /// The region.
        name: RegionName,
    },
    /// The region is kept already, and goes by another key by now.
    #[error(
        "the region {name} is kept already, and goes by another key by now: publish it once; if its owner has started again, remove it first"
    )]
    AlreadyKept {
        /// The region.
        name: RegionName,
    },
    /// The host of the region has no address of a family that this one has.
    #[error(
        "the host of the region {name} has no address of a family that this host has: give one to either"
    )]
    NoFamily {
        /// The region.
        name: RegionName,
    },
}

/// A fresh K_r.
pub(super) fn secret() -> Result<RegionSecret, std::io::Error> {
    Ok(RegionSecret::new(&mut octets()?))
}
