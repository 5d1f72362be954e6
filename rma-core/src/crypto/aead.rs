//! AES-128-GCM behind a batch-shaped trait.
//!
//! Frames of different ops are independent, so a provider may work on many at once, each with its own key
//! (1RMA §4.2, "Line-rate operation"). The portable provider works on one after the other; it is also the
//! reference that faster providers are checked against.

use core::fmt;

use aes::Aes128Enc;
use aes_gcm::{AeadInOut, AesGcm, KeyInit, aead::consts::U12};

use super::{DerivedRegionKey, Iv};
use crate::limits::TAG_LEN;

/// One frame to seal: `payload` is encrypted in place, `tag` is written.
#[derive(Debug)]
pub struct SealJob<'a, K> {
    /// The prepared K_d.
    pub key: &'a K,
    /// Never used before with this key.
    pub iv: Iv,
    /// What is authenticated but not encrypted.
    pub aad: &'a [u8],
    /// Plaintext in, ciphertext out.
    pub payload: &'a mut [u8],
    /// Where the tag goes.
    pub tag: &'a mut [u8; TAG_LEN],
}

/// One frame to open: `payload` is decrypted in place if, and only if, `tag` is right.
#[derive(Debug)]
pub struct OpenJob<'a, K> {
    /// The prepared K_d.
    pub key: &'a K,
    /// The IV that the frame was sealed with.
    pub iv: Iv,
    /// What was authenticated but not encrypted.
    pub aad: &'a [u8],
    /// Ciphertext in; plaintext out if authentic, unchanged otherwise.
    pub payload: &'a mut [u8],
    /// The tag that came with the frame.
    pub tag: &'a [u8; TAG_LEN],
    /// The verdict, written by [`AeadProvider::open`].
    pub authentic: bool,
}

/// An implementation of AES-128-GCM.
pub trait AeadProvider: fmt::Debug {
    /// A K_d with everything precomputed. Made once for each op and kept with it.
    type Key: Clone + Send;

    /// Prepares a key.
    fn prepare(&self, key: &DerivedRegionKey) -> Self::Key;

    /// Seals every job.
    fn seal(&self, jobs: &mut [SealJob<'_, Self::Key>]);

    /// Opens every job and writes its verdict. One bad frame does not disturb its neighbours.
    fn open(&self, jobs: &mut [OpenJob<'_, Self::Key>]);
}

/// The provider that runs everywhere: RustCrypto's `aes-gcm`, one frame after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortableAead;

/// A prepared key of [`PortableAead`].
#[derive(Clone)]
pub struct PortableKey(AesGcm<Aes128Enc, U12>);

impl fmt::Debug for PortableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PortableKey(secret)")
    }
}

impl AeadProvider for PortableAead {
    type Key = PortableKey;

    fn prepare(&self, key: &DerivedRegionKey) -> PortableKey {
        PortableKey(AesGcm::new(key.expose().into()))
    }

    fn seal(&self, jobs: &mut [SealJob<'_, PortableKey>]) {
        for job in jobs {
            let tag = job
                .key
                .0
                .encrypt_inout_detached(job.iv.octets().into(), job.aad, (&mut *job.payload).into())
                .expect("frames are far shorter than AES-GCM's limits");
            job.tag.copy_from_slice(&tag);
        }
    }

    fn open(&self, jobs: &mut [OpenJob<'_, PortableKey>]) {
        for job in jobs {
            let payload = (&mut *job.payload).into();
            job.authentic = job
                .key
                .0
                .decrypt_inout_detached(job.iv.octets().into(), job.aad, payload, job.tag.into())
                .is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{Direction, EngineId};

    fn seal(key: &PortableKey, payload: &mut [u8], aad: &[u8]) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        let iv = Iv::new(Direction::ToResponder, EngineId(0), 1);
        PortableAead.seal(&mut [SealJob { key, iv, aad, payload, tag: &mut tag }]);
        tag
    }

    fn open(key: &PortableKey, payload: &mut [u8], aad: &[u8], tag: &[u8; TAG_LEN]) -> bool {
        let iv = Iv::new(Direction::ToResponder, EngineId(0), 1);
        let mut jobs = [OpenJob { key, iv, aad, payload, tag, authentic: false }];
        PortableAead.open(&mut jobs);
        jobs[0].authentic
    }

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }

    /// Test case 4 of the GCM specification (McGrew and Viega).
    #[test]
    fn the_published_test_case_gives_the_published_tag() {
        let key: [u8; 16] = unhex("feffe9928665731c6d6a8f9467308308").try_into().unwrap();
        let key = PortableAead.prepare(&DerivedRegionKey::from_bytes(key));
        let mut payload = unhex(concat!(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
        ));
        let aad = unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let iv = Iv::from_octets(unhex("cafebabefacedbaddecaf888").try_into().unwrap());
        let mut tag = [0; TAG_LEN];
        PortableAead.seal(&mut [SealJob {
            key: &key,
            iv,
            aad: &aad,
            payload: &mut payload,
            tag: &mut tag,
        }]);
        assert_eq!(tag[..], unhex("5bc94fbc3221a5db94fae95ae7121a47"));
        assert_eq!(payload[..4], unhex("42831ec2"));
    }

    #[test]
    fn a_wrong_bit_anywhere_is_refused_and_shows_no_plaintext() {
        let key = PortableAead.prepare(&DerivedRegionKey::from_bytes([1; 16]));
        let other = PortableAead.prepare(&DerivedRegionKey::from_bytes([2; 16]));
        let (plain, aad) = (*b"some payload", *b"some header");
        let mut sealed = plain;
        let tag = seal(&key, &mut sealed, &aad);

        let mut opened = sealed;
        assert!(open(&key, &mut opened, &aad, &tag));
        assert_eq!(opened, plain);

        let refused = |key: &PortableKey, mut payload: [u8; 12], aad: &[u8], tag| {
            let before = payload;
            assert!(!open(key, &mut payload, aad, &tag));
            assert_eq!(payload, before, "unchanged");
        };
        refused(&other, sealed, &aad, tag);
        refused(&key, sealed, b"some headeR", tag);
        let mut flipped = sealed;
        flipped[11] ^= 1;
        refused(&key, flipped, &aad, tag);
        let mut flipped = tag;
        flipped[0] ^= 0x80;
        refused(&key, sealed, &aad, flipped);
    }
}
