//! Keys of regions, beside [`RegionKey`](crate::RegionKey), and the providers that encrypt frames
//! ([`HostConfig::aead`](crate::HostConfig::aead)).

#[doc(inline)]
pub use rma_core::crypto::{AeadProvider, DerivedRegionKey, ProviderKind};

pub use crate::random::random_region_key;
