//! Published test cases.

use rma_crypto::{AeadProvider, DeriveFrom, DeriveJob, JobKey, Key, OpenJob, SealJob, Text};

use crate::{for_every_provider, unhex};

/// A test case of AES-128-GCM: key, IV, plaintext, AAD, ciphertext, tag.
type Gcm = [&'static str; 6];

const K: &str = "feffe9928665731c6d6a8f9467308308";
const P: &str = concat!(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
);
const C: &str = concat!(
    "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e",
    "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985"
);
const AAD: &str = "feedfacedeadbeeffeedfacedeadbeefabaddad2";

/// Test cases 1 to 4 of McGrew and Viega, "The Galois/Counter Mode of Operation (GCM)", the ones
/// with a 128-bit key and a 96-bit IV; and of NIST's CAVP set `gcmEncryptExtIV128.rsp`, one each
/// with AAD only, and with neither.
const GCM: [Gcm; 6] = [
    [
        "00000000000000000000000000000000",
        "000000000000000000000000",
        "",
        "",
        "",
        "58e2fccefa7e3061367f1d57a4e7455a",
    ],
    [
        "00000000000000000000000000000000",
        "000000000000000000000000",
        "00000000000000000000000000000000",
        "",
        "0388dace60b6a392f328c2b971b2fe78",
        "ab6e47d42cec13bdf53a67b21257bddf",
    ],
    [K, "cafebabefacedbaddecaf888", P, "", C, "4d5c2af327cd64a62cf35abd2ba6fab4"],
    [
        K,
        "cafebabefacedbaddecaf888",
        // Test case 4: four octets less.
        "",
        AAD,
        "",
        "5bc94fbc3221a5db94fae95ae7121a47",
    ],
    [
        "11754cd72aec309bf52f7687212e8957",
        "3c819d9a9bed087615030b65",
        "",
        "",
        "",
        "250327c674aaf477aef2675748cf6971",
    ],
    [
        "77be63708971c4e240d1cb79e8d77feb",
        "e0e00f19fed7ba0136a797f3",
        "",
        "7a43ec1d9c0a5a78a0b16533a6213cab",
        "",
        "209fcc8d3675ed938e9c7166709dd946",
    ],
];

fn seal(
    provider: &dyn AeadProvider,
    key: JobKey<'_>,
    iv: [u8; 12],
    aad: &[u8],
    text: &mut [u8],
) -> [u8; 16] {
    let mut tag = [0; 16];
    let text = Text::in_place(text);
    provider.seal(&mut [SealJob { key, iv, aad, text, tag: &mut tag }]);
    tag
}

#[test]
fn the_published_cases_of_gcm_come_out_as_published() {
    for_every_provider(|provider| {
        for (number, &[key, iv, plain, aad, cipher, tag]) in GCM.iter().enumerate() {
            let (mut plain, mut cipher) = (unhex(plain), unhex(cipher));
            if number == 3 {
                plain = unhex(&P[..120]);
                cipher = unhex(&C[..120]);
            }
            let key = Key::from_bytes(unhex(key).try_into().unwrap());
            let iv: [u8; 12] = unhex(iv).try_into().unwrap();
            let (aad, tag) = (unhex(aad), unhex(tag));
            let prepared = provider.prepare(&key);
            for key in [JobKey::Fresh(&key), JobKey::Prepared(&prepared)] {
                let mut text = plain.clone();
                let made = seal(provider, key, iv, &aad, &mut text);
                assert_eq!((&text, &made[..]), (&cipher, &tag[..]), "case {number}, {provider:?}");
                let mut jobs = [OpenJob {
                    key,
                    iv,
                    aad: &aad,
                    text: Text::in_place(&mut text),
                    tag: &made,
                    authentic: false,
                }];
                provider.open(&mut jobs);
                assert!(jobs[0].authentic);
                assert_eq!(text, plain);
            }
        }
    });
}

/// FIPS 197, appendix B and C.1; RFC 4493, section 4.
#[test]
fn the_published_cases_of_aes_and_cmac_come_out_as_published() {
    for_every_provider(|provider| {
        let derive = |key: &str, from: DeriveFrom<'_>| {
            let key = Key::from_bytes(unhex(key).try_into().unwrap());
            let mut keys = [Key::default()];
            provider.derive(&[DeriveJob { schedule: &provider.schedule(&key), from }], &mut keys);
            keys[0].expose().to_vec()
        };
        let blocks = [
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "3243f6a8885a308d313198a2e0370734",
                "3925841d02dc09fbdc118597196a0b32",
            ),
            (
                "000102030405060708090a0b0c0d0e0f",
                "00112233445566778899aabbccddeeff",
                "69c4e0d86a7b0430d8cdb78070b4c55a",
            ),
        ];
        for (key, block, encrypted) in blocks {
            let block = unhex(block).try_into().unwrap();
            assert_eq!(derive(key, DeriveFrom::Block(&block)), unhex(encrypted));
        }
        let message = unhex(concat!(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51",
            "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
        ));
        let macs = [
            (0, "bb1d6929e95937287fa37d129b756746"),
            (16, "070a16b46b4d4144f79bdd9dd04a287c"),
            (40, "dfa66747de9ae63030ca32611497c827"),
            (64, "51f0bebf7e3b9d92fc49741779363cfe"),
        ];
        for (len, mac) in macs {
            let made =
                derive("2b7e151628aed2a6abf7158809cf4f3c", DeriveFrom::Cmac(&message[..len]));
            assert_eq!(made, unhex(mac), "{len} octets, {provider:?}");
        }
    });
}
