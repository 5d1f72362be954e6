//! The providers for x86-64, and how this processor is asked what it can do.
//!
//! All three are the same code (`lanes`) over registers of different width. Here is what is unsafe
//! about it: the instructions, each in a function of its own that a proof of their presence makes
//! safe to call, and the entry functions, which have the instructions enabled.

mod aes_ni;
mod vaes256;
mod vaes512;

use core::fmt;

use self::{aes_ni::AesNi, vaes256::Vaes256, vaes512::Vaes512};
use crate::{
    job::{DeriveJob, OpenJob, SealJob},
    key::{Key, KeySchedule, PreparedKey},
    lanes::{self, Isa, Job, Layout, Place},
    portable::Portable,
    provider::{AeadProvider, ProviderKind},
};

/// A provider, or what this processor lacks for it. Providers are of size zero: nothing is
/// allocated for one that lives for ever.
type Found = Result<&'static dyn AeadProvider, &'static str>;

/// The provider over 128-bit registers, if this processor can run it.
pub(crate) fn aes_ni() -> Found {
    Ok(Box::leak(Box::new(OverAesNi(AesNi::detect()?))))
}

/// The provider over 256-bit registers, if this processor can run it.
pub(crate) fn vaes256() -> Found {
    Ok(Box::leak(Box::new(OverVaes256(Vaes256::detect(AesNi::detect()?)?))))
}

/// The provider over 512-bit registers, if this processor can run it.
pub(crate) fn vaes512() -> Found {
    Ok(Box::leak(Box::new(OverVaes512(Vaes512::detect(AesNi::detect()?)?))))
}

/// The first of some features that this processor lacks.
macro_rules! first_missing {
    ($($feature:tt),+) => {
        'found: {
            $(if !std::arch::is_x86_feature_detected!($feature) { break 'found Some($feature); })+
            None
        }
    };
}

impl AesNi {
    fn detect() -> Result<Self, &'static str> {
        if let Some(lacks) = first_missing!("sse2", "ssse3", "aes", "pclmulqdq") {
            return Err(lacks);
        }
        // SAFETY: these are the features that it is the proof of, and they were found.
        Ok(unsafe { Self::assume() })
    }
}

impl Vaes256 {
    fn detect(narrow: AesNi) -> Result<Self, &'static str> {
        if let Some(lacks) = first_missing!("avx2", "vaes", "vpclmulqdq") {
            return Err(lacks);
        }
        // SAFETY: these are the features that it is the proof of, and they were found.
        Ok(unsafe { Self::assume(narrow) })
    }
}

impl Vaes512 {
    fn detect(narrow: AesNi) -> Result<Self, &'static str> {
        let missing =
            first_missing!("avx2", "avx512f", "avx512bw", "avx512vl", "vaes", "vpclmulqdq");
        if let Some(lacks) = missing {
            return Err(lacks);
        }
        // SAFETY: these are the features that it is the proof of, and they were found.
        Ok(unsafe { Self::assume(narrow) })
    }
}

/// Texts of a frame alone that have at least so many octets go through the bulk loop.
///
/// Smaller: the powers that the loop needs cost more than it saves. Larger: medium texts go block
/// by block in one lane.
const BULK_MIN_ALONE: usize = 256;

/// As [`BULK_MIN_ALONE`], of frames with neighbours, which fill the lanes of short texts.
const BULK_MIN: usize = 512;

/// A provider: its entry functions, with their instructions enabled.
///
/// There is one for a frame alone, one for a few, and one for a whole group. Each of these names:
/// the blocks of key stream that are made at a time, the registers side by side, and the frames in
/// them.
macro_rules! provider {
    (
        $(#[$doc:meta])* $provider:ident($proof:ident), $kind:ident, $features:literal,
        few: [$($few:literal),+], $few_most:literal;
        many: [$($many:literal),+], $many_most:literal;
        derive: $registers:literal, $keys:literal
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $provider($proof);

        impl $provider {
            #[target_feature(enable = $features)]
            fn alone<'j, J: Job<'j>>(self, jobs: &mut [J]) {
                let isa = self.0.one();
                let layout = Layout { isa, bulk: self.0, bulk_min: BULK_MIN_ALONE };
                let mut place = Place::new();
                J::run::<_, _, 4, 1, 1>(layout, place.lend(), jobs);
                place.erase(isa);
            }

            #[target_feature(enable = $features)]
            fn few<'j, J: Job<'j>>(self, jobs: &mut [J]) {
                let isa = self.0;
                let layout = Layout { isa, bulk: isa, bulk_min: BULK_MIN };
                let mut place = Place::new();
                J::run::<_, _, $($few),+>(layout, place.lend(), jobs);
                place.erase(isa);
            }

            /// Whole groups, and what is over.
            #[target_feature(enable = $features)]
            fn many<'j, J: Job<'j>>(self, jobs: &mut [J]) {
                let isa = self.0;
                let layout = Layout { isa, bulk: isa, bulk_min: BULK_MIN };
                let mut place = Place::new();
                let material = place.lend();
                for jobs in jobs.chunks_mut($many_most) {
                    match jobs.len() {
                        1 => self.alone(jobs),
                        2..=$few_most => self.few(jobs),
                        _ => J::run::<_, _, $($many),+>(layout, material, jobs),
                    }
                }
                place.erase(isa);
            }

            #[target_feature(enable = $features)]
            fn run<'j, J: Job<'j>>(self, jobs: &mut [J]) {
                match jobs.len() {
                    0 => {}
                    1 => self.alone(jobs),
                    2..=$few_most => self.few(jobs),
                    _ => self.many(jobs),
                }
            }

            #[target_feature(enable = $features)]
            fn derive(self, jobs: &[DeriveJob<'_>], keys: &mut [Key]) {
                for (jobs, keys) in jobs.chunks($keys).zip(keys.chunks_mut($keys)) {
                    let is_done = if jobs.len() == 1 {
                        lanes::derive::<_, 1, 1>(self.0.one(), jobs, keys)
                    } else {
                        lanes::derive::<_, $registers, $keys>(self.0, jobs, keys)
                    };
                    if !is_done {
                        // It begins from the keys again, whoever has made the schedules.
                        Portable.derive(jobs, keys);
                    }
                }
            }

            #[target_feature(enable = $features)]
            fn prepare(self, key: &Key) -> PreparedKey {
                lanes::prepare(self.0.one(), <$proof as Isa>::LANES, key)
            }

            #[target_feature(enable = $features)]
            fn schedule(self, key: &Key) -> KeySchedule {
                lanes::schedule(self.0.one(), key)
            }
        }

        impl AeadProvider for $provider {
            fn kind(&self) -> ProviderKind {
                ProviderKind::$kind
            }

            fn schedule(&self, key: &Key) -> KeySchedule {
                // SAFETY: `self` holds the proof that the features are there.
                unsafe { Self::schedule(*self, key) }
            }

            fn derive(&self, jobs: &[DeriveJob<'_>], keys: &mut [Key]) {
                assert_eq!(jobs.len(), keys.len(), "one key for each job");
                // SAFETY: `self` holds the proof that the features are there.
                unsafe { Self::derive(*self, jobs, keys) }
            }

            fn prepare(&self, key: &Key) -> PreparedKey {
                // SAFETY: `self` holds the proof that the features are there.
                unsafe { Self::prepare(*self, key) }
            }

            fn seal(&self, jobs: &mut [SealJob<'_>]) {
                // SAFETY: `self` holds the proof that the features are there.
                unsafe { self.run(jobs) }
            }

            fn open(&self, jobs: &mut [OpenJob<'_>]) {
                // SAFETY: `self` holds the proof that the features are there.
                unsafe { self.run(jobs) }
            }
        }

        impl fmt::Debug for $provider {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(ProviderKind::$kind.name())
            }
        }
    };
}

provider! {
    /// AES-NI and PCLMULQDQ. Sixteen registers: four frames side by side, two blocks of each.
    OverAesNi(AesNi), AesNi, "sse2,ssse3,aes,pclmulqdq",
    few: [2, 2, 2], 2;
    many: [2, 4, 4], 4;
    derive: 4, 4
}

provider! {
    /// VAES and VPCLMULQDQ over AVX2. Sixteen registers: eight frames in four of them.
    OverVaes256(Vaes256), Vaes256, "sse2,ssse3,aes,pclmulqdq,avx2,vaes,vpclmulqdq",
    few: [4, 2, 4], 4;
    many: [2, 4, 8], 8;
    derive: 4, 8
}

provider! {
    /// VAES and VPCLMULQDQ over AVX-512. Thirty-two registers: eight frames in two of them, sixteen
    /// in set-up.
    OverVaes512(Vaes512), Vaes512,
    "sse2,ssse3,aes,pclmulqdq,avx2,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq",
    few: [4, 1, 4], 4;
    many: [4, 2, 8], 8;
    derive: 2, 8
}
