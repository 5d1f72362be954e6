//! Random keys and secrets, from the kernel: never from a generator of our own, and never one that
//! may repeat.

use rma_core::{crypto::RegionKey, fair_queue::BucketSecret};

use crate::error::HostError;

/// A region key from the kernel's random source.
///
/// # Errors
/// If the kernel has none.
pub fn random_region_key() -> Result<RegionKey, HostError> {
    random_bytes().map(RegionKey::from_bytes)
}

/// Draws the secret by which a host spreads initiators over lists, until it is closed.
pub(crate) fn random_bucket_secret() -> Result<BucketSecret, HostError> {
    random_bytes().map(BucketSecret::from_bytes)
}

pub(crate) fn random_bytes() -> Result<[u8; 16], HostError> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| HostError::System {
            what: "reading the kernel's random source",
            source: errno.into(),
        })?;
    // The kernel gives up to 256 octets in one piece once its source is seeded.
    assert_eq!(filled, bytes.len(), "getrandom gave less than it promises");
    Ok(bytes)
}
