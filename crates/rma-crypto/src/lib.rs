//! AES-128-GCM for many independent frames at once, each under its own key.
//!
//! 1RMA's ops are independent and unordered, so frames may be encrypted in any order and many at
//! once (§4.2, "Line-rate operation"). Nearly every frame has a key of its own, derived anew: what
//! a short one costs is the set-up of its key, and that is a chain of instructions each of which
//! waits for the one before. Doing several frames side by side hides the waiting. Hence the
//! interface: it takes a batch, and a batch of one is a batch like any other.
//!
//! This crate does not know the protocol: who derives which key from what, which IV is fresh, and
//! what a frame is, are decided by `rma-core`. It is one of the crates with `unsafe` in them:
//! vector instructions, and payloads that are read and written in the same place. Its public
//! functions are safe.
//!
//! | module | what it is |
//! |---|---|
//! | [`provider`] | [`AeadProvider`], and which ones this processor can run: [`fastest`], [`ProviderKind`] |
//! | [`job`] | what there is to do: [`SealJob`], [`OpenJob`], [`DeriveJob`]; whose promise a fresh IV is |
//! | [`text`] | [`Text`]: a payload in place, or from one place to another |
//! | [`key`] | [`Key`], [`PreparedKey`], [`KeySchedule`]: zeroized on drop, never shown |
//! | [`portable`] | [`Portable`]: RustCrypto's `aes-gcm`, on every processor |
//!
//! ```
//! use rma_crypto::{JobKey, Key, OpenJob, SealJob, Text, fastest};
//!
//! let aead = fastest();
//! let keys = [Key::from_bytes([1; 16]), Key::from_bytes([2; 16])];
//! let mut payloads = [*b"some data of one op", *b"and data of another"];
//! let mut tags = [[0; 16]; 2];
//!
//! let [mut one, mut other] = payloads;
//! let [tag_one, tag_other] = &mut tags;
//! let job = |key, text, tag| SealJob {
//!     key: JobKey::Fresh(key),
//!     iv: [0; 12], // the first frame under this key
//!     aad: b"header",
//!     text: Text::in_place(text),
//!     tag,
//! };
//! aead.seal(&mut [job(&keys[0], &mut one, tag_one), job(&keys[1], &mut other, tag_other)]);
//!
//! // The second frame is damaged on its way. The first does not mind.
//! other[3] ^= 1;
//! let mut jobs = [(&keys[0], &mut one, &tags[0]), (&keys[1], &mut other, &tags[1])].map(
//!     |(key, text, tag)| OpenJob {
//!         key: JobKey::Fresh(key),
//!         iv: [0; 12],
//!         aad: b"header",
//!         text: Text::in_place(text),
//!         tag,
//!         authentic: false,
//!     },
//! );
//! aead.open(&mut jobs);
//! assert_eq!(jobs.map(|job| job.authentic), [true, false]);
//! assert_eq!(one, payloads[0]);
//! ```

pub mod job;
pub mod key;
pub mod portable;
pub mod provider;
pub mod text;

#[cfg(target_arch = "x86_64")]
#[expect(
    clippy::needless_range_loop,
    clippy::manual_map,
    reason = "a number names the same register in several arrays, and closures may not be inlined"
)]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use job::{CMAC_MESSAGE_MAX, DeriveFrom, DeriveJob, IV_LEN, JobKey, OpenJob, SealJob, TAG_LEN};
pub use key::{KEY_LEN, Key, KeySchedule, PreparedKey};
pub use portable::Portable;
pub use provider::{AeadProvider, PAYLOAD_LEN_MAX, ProviderKind, Unsupported, fastest};
pub use text::{Text, UnequalLengths};
