//! Errors of keeping an owner's keys.

use rma_core::gate::Refused;

use crate::{
    audit::log::LogError,
    catalog::CatalogError,
    io::{policy_file::PolicyFileError, random::octets},
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
}

/// A fresh K_r.
pub(super) fn secret() -> Result<RegionSecret, std::io::Error> {
    Ok(RegionSecret::new(&mut octets()?))
}
