//! The interface of providers, and the choice of those that this processor can run.

use core::fmt;

use crate::{
    job::{DeriveJob, OpenJob, SealJob},
    key::{Key, KeySchedule, PreparedKey},
    portable::Portable,
};

/// An implementation of AES-128-GCM with 96-bit IVs and 128-bit tags, for batches of independent
/// frames.
///
/// Any number of jobs may be given at once, each with its own key, lengths and buffers; one alone
/// is a batch like any other. Jobs of similar shape that stand side by side go fastest. Nothing
/// allocates, and nothing panics over what a frame holds.
///
/// Values made by one provider may be used with another; it then begins from the key again, which
/// only costs time.
pub trait AeadProvider: fmt::Debug + Send + Sync {
    /// Returns the kind of provider; for a provider that is not of this crate, which its keys are
    /// prepared by.
    fn kind(&self) -> ProviderKind;

    /// Returns its name in reports.
    fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Prepares a key to derive others under.
    #[must_use]
    fn schedule(&self, key: &Key) -> KeySchedule;

    /// Derives `keys[i]` as `jobs[i]` says.
    ///
    /// # Panics
    /// If there are not as many keys as jobs, or a message is longer than
    /// [`CMAC_MESSAGE_MAX`](crate::CMAC_MESSAGE_MAX).
    fn derive(&self, jobs: &[DeriveJob<'_>], keys: &mut [Key]);

    /// Prepares a key to seal and open with.
    #[must_use]
    fn prepare(&self, key: &Key) -> PreparedKey;

    /// Seals every job.
    ///
    /// # Panics
    /// If a payload is longer than [`PAYLOAD_LEN_MAX`].
    fn seal(&self, jobs: &mut [SealJob<'_>]);

    /// Opens every job and writes its verdict. Of a frame whose tag is wrong nothing is written
    /// anywhere, and its neighbours are not disturbed: no plaintext is written before its own tag
    /// was found right.
    ///
    /// A payload longer than [`PAYLOAD_LEN_MAX`] is not authentic.
    fn open(&self, jobs: &mut [OpenJob<'_>]);
}

/// The longest payload of one frame, in octets. Far above any frame, and far below where AES-GCM's
/// block counter would repeat (2^36 octets).
pub const PAYLOAD_LEN_MAX: usize = 1 << 24;

/// The providers that there are, the slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProviderKind {
    /// RustCrypto's `aes-gcm`, one frame after the other, on every processor. Where its build has
    /// found or may detect AES instructions, on aarch64 as well, it uses them.
    Portable,
    /// AES-NI and PCLMULQDQ: 128-bit registers.
    AesNi,
    /// VAES and VPCLMULQDQ over AVX2: 256-bit registers.
    Vaes256,
    /// VAES and VPCLMULQDQ over AVX-512: 512-bit registers.
    Vaes512,
}

impl ProviderKind {
    /// Every provider, the slowest first.
    pub const ALL: [Self; 4] = [Self::Portable, Self::AesNi, Self::Vaes256, Self::Vaes512];

    /// Its name, as reports show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::AesNi => "aes-ni",
            Self::Vaes256 => "vaes-avx2",
            Self::Vaes512 => "vaes-avx512",
        }
    }

    /// The provider, if this processor can run it.
    ///
    /// # Errors
    /// The instructions that the processor lacks.
    pub fn provider(self) -> Result<&'static dyn AeadProvider, Unsupported> {
        let found = match self {
            Self::Portable => return Ok(&Portable),
            #[cfg(target_arch = "x86_64")]
            Self::AesNi => crate::x86::aes_ni(),
            #[cfg(target_arch = "x86_64")]
            Self::Vaes256 => crate::x86::vaes256(),
            #[cfg(target_arch = "x86_64")]
            Self::Vaes512 => crate::x86::vaes512(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::AesNi | Self::Vaes256 | Self::Vaes512 => Err("an x86-64 processor"),
        };
        found.map_err(|lacks| Unsupported { kind: self, lacks })
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A provider that this processor cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("the {kind} provider needs {lacks}, which this processor lacks")]
pub struct Unsupported {
    /// The provider.
    pub kind: ProviderKind,
    /// The first feature that the processor lacks.
    pub lacks: &'static str,
}

/// The fastest provider that this processor can run. To be asked once, at start.
#[must_use]
pub fn fastest() -> &'static dyn AeadProvider {
    let mut kinds = ProviderKind::ALL.into_iter().rev();
    kinds.find_map(|kind| kind.provider().ok()).unwrap_or(&Portable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_runs_or_says_what_it_lacks() {
        for kind in ProviderKind::ALL {
            match kind.provider() {
                Ok(provider) => assert_eq!(provider.kind(), kind),
                Err(error) => assert!(error.to_string().contains(kind.name()), "{error}"),
            }
        }
    }

    #[test]
    fn the_fastest_is_the_last_that_runs() {
        let last = ProviderKind::ALL.into_iter().rfind(|kind| kind.provider().is_ok());
        assert_eq!(Some(fastest().kind()), last);
    }
}
