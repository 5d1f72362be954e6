//! The AEAD provider of a measurement's two hosts: the fastest, or, with the feature `null-crypto`,
//! none at all.
//!
//! Engines that are joined by memory can have none in any build ([`none`]): StaR's figures compare
//! with that, as the paper's authenticates nothing. No host is opened with it.
//!
//! `null-crypto` shows what is left of a figure when encryption costs nothing. It is a feature of
//! this binary alone, which no library and no service depends on; only figures and the demo are
//! measured with it, and it says so wherever a figure is printed. No limit is ever checked with it.

use rma_core::crypto::AeadProvider;

/// Whether frames are encrypted.
pub const ENCRYPTS: bool = !cfg!(feature = "null-crypto");

/// The cipher, as results name it.
pub const CIPHER: &str = if ENCRYPTS { "AES-128-GCM" } else { "none" };

/// Names the cipher's implementation, to be printed beside figures.
#[must_use]
pub fn words() -> String {
    if ENCRYPTS {
        format!("{CIPHER} on ({})", chosen().name())
    } else {
        "NOTHING IS ENCRYPTED (null-crypto)".to_owned()
    }
}

/// The provider.
#[must_use]
pub fn chosen() -> &'static dyn AeadProvider {
    #[cfg(feature = "null-crypto")]
    return none();
    #[cfg(not(feature = "null-crypto"))]
    rma_core::crypto::fastest()
}

/// A provider that encrypts nothing and believes everything, for engines that are joined by memory.
#[must_use]
pub fn none() -> &'static dyn AeadProvider {
    &null::Null
}

mod null {
    use rma_crypto::{
        AeadProvider, DeriveJob, Key, KeySchedule, OpenJob, Portable, PreparedKey, ProviderKind,
        SealJob,
    };

    /// Encrypts nothing and believes everything.
    #[derive(Debug)]
    pub(super) struct Null;

    impl AeadProvider for Null {
        fn kind(&self) -> ProviderKind {
            ProviderKind::Portable
        }

        fn name(&self) -> &'static str {
            "null"
        }

        fn schedule(&self, key: &Key) -> KeySchedule {
            Portable.schedule(key)
        }

        fn derive(&self, _: &[DeriveJob<'_>], _: &mut [Key]) {}

        fn prepare(&self, key: &Key) -> PreparedKey {
            Portable.prepare(key)
        }

        fn seal(&self, jobs: &mut [SealJob<'_>]) {
            for job in jobs {
                // No two are the same, and they differ all over: receivers tell frames that come
                // again by parts of their tags. Hosts count alike, and their headers differ.
                let words =
                    job.aad.chunks_exact(8).chain(job.iv.last_chunk::<8>().map(|it| &it[..]));
                let mixed = words.fold(0_u64, |mixed, word| {
                    let word = word.first_chunk().map_or(0, |it| u64::from_be_bytes(*it));
                    (mixed.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                });
                job.tag[..8].copy_from_slice(&mixed.to_be_bytes());
                job.tag[8..].copy_from_slice(&mixed.to_le_bytes());
            }
        }

        fn open(&self, jobs: &mut [OpenJob<'_>]) {
            for job in jobs {
                job.authentic = true;
            }
        }
    }
}
