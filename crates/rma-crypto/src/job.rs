//! Jobs: one job for each frame, or each key.
//!
//! # IVs
//!
//! A provider takes the IV that it is given. That no (key, IV) pair seals twice is the caller's
//! promise: GCM is broken by a single repetition, which shows the XOR of two plaintexts and lets
//! tags be forged. The key of an op, the sender's part of the IV and an ascending counter keep that
//! promise in this project. A job that was sealed is done: to seal again is to need a new IV, also
//! if the plaintext is the same.

use crate::{
    key::{Key, KeySchedule, PreparedKey},
    text::Text,
};

/// Octets of an IV.
pub const IV_LEN: usize = 12;

/// Octets of a tag.
pub const TAG_LEN: usize = 16;

/// The longest message that [`DeriveFrom::Cmac`] takes, in octets: six AES blocks.
pub const CMAC_MESSAGE_MAX: usize = 96;

/// The key of a job.
#[derive(Clone, Copy, Debug)]
pub enum JobKey<'a> {
    /// Set up for this job, together with the others of its batch.
    Fresh(&'a Key),
    /// Set up before.
    Prepared(&'a PreparedKey),
}

impl<'a> JobKey<'a> {
    /// The key itself, however it was set up.
    #[must_use]
    pub const fn key(self) -> &'a Key {
        match self {
            Self::Fresh(key) => key,
            Self::Prepared(prepared) => &prepared.key,
        }
    }
}

impl<'a> From<&'a Key> for JobKey<'a> {
    fn from(key: &'a Key) -> Self {
        Self::Fresh(key)
    }
}

impl<'a> From<&'a PreparedKey> for JobKey<'a> {
    fn from(key: &'a PreparedKey) -> Self {
        Self::Prepared(key)
    }
}

/// One frame to seal: the payload is encrypted, the tag is written.
#[derive(Debug)]
pub struct SealJob<'a> {
    /// The frame's key.
    pub key: JobKey<'a>,
    /// Never used before with this key.
    pub iv: [u8; IV_LEN],
    /// The data that is authenticated but not encrypted.
    pub aad: &'a [u8],
    /// Plaintext in, ciphertext out.
    pub text: Text<'a>,
    /// The place that the tag is written to.
    pub tag: &'a mut [u8; TAG_LEN],
}

/// One frame to open: the payload is decrypted if, and only if, the tag is right.
#[derive(Debug)]
pub struct OpenJob<'a> {
    /// The frame's key.
    pub key: JobKey<'a>,
    /// The IV that the frame was sealed with.
    pub iv: [u8; IV_LEN],
    /// The data that was authenticated but not encrypted.
    pub aad: &'a [u8],
    /// Ciphertext in; plaintext out if authentic. Otherwise nothing at all is written.
    pub text: Text<'a>,
    /// The tag that came with the frame.
    pub tag: &'a [u8; TAG_LEN],
    /// The verdict, written by [`AeadProvider::open`](crate::AeadProvider::open).
    pub authentic: bool,
}

/// The source of a key.
///
/// Both ways may be used under one key only if what is derived from can never meet: a CMAC of one
/// whole block is the encryption of another block. It is for the caller to begin the two with
/// different octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeriveFrom<'a> {
    /// The derived key is this block, encrypted.
    Block(&'a [u8; 16]),
    /// The derived key is the AES-CMAC (RFC 4493) of this message, of at most [`CMAC_MESSAGE_MAX`]
    /// octets.
    Cmac(&'a [u8]),
}

/// One key to derive.
#[derive(Clone, Copy, Debug)]
pub struct DeriveJob<'a> {
    /// The key to derive under.
    pub schedule: &'a KeySchedule,
    /// The source of the key.
    pub from: DeriveFrom<'a>,
}
