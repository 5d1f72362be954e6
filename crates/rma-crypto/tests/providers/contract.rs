//! The promises of the interface, beyond right results.

use rma_crypto::{
    AeadProvider, CMAC_MESSAGE_MAX, DeriveFrom, DeriveJob, JobKey, Key, KeySchedule, OpenJob,
    PAYLOAD_LEN_MAX, Portable, ProviderKind, SealJob, Text,
};

use crate::{batch::octets, for_every_provider};

#[test]
fn an_empty_batch_is_no_work() {
    for_every_provider(|provider| {
        provider.seal(&mut []);
        provider.open(&mut []);
        provider.derive(&[], &mut []);
    });
}

#[test]
fn derived_keys_are_those_of_the_portable_provider_in_any_mixture() {
    let other = ProviderKind::ALL.into_iter().rev().find_map(|kind| kind.provider().ok()).unwrap();
    for_every_provider(|provider| {
        for batch_len in 1..=33 {
            let keys: Vec<Key> = (0..batch_len)
                .map(|seed| Key::from_bytes(octets(seed, 16).try_into().unwrap()))
                .collect();
            let schedule = |(index, key): (usize, &Key)| match index % 5 {
                4 => other.schedule(key),
                3 => Portable.schedule(key),
                _ => provider.schedule(key),
            };
            let schedules: Vec<KeySchedule> = keys.iter().enumerate().map(schedule).collect();
            let messages: Vec<Vec<u8>> = (0..batch_len)
                .map(|seed| octets(seed + 100, (seed * 7 + batch_len) as usize % 65))
                .collect();
            let jobs: Vec<DeriveJob<'_>> = schedules
                .iter()
                .zip(&messages)
                .map(|(schedule, message)| {
                    let block = message.first_chunk().filter(|_| message.len() % 3 > 0);
                    let from = block.map_or(DeriveFrom::Cmac(message), DeriveFrom::Block);
                    DeriveJob { schedule, from }
                })
                .collect();
            let mut derived = vec![Key::default(); jobs.len()];
            let mut expected = derived.clone();
            provider.derive(&jobs, &mut derived);
            Portable.derive(&jobs, &mut expected);
            assert_eq!(derived, expected, "{batch_len} keys, {provider:?}");
        }
    });
}

#[test]
fn a_message_of_every_length_up_to_the_limit_can_be_derived_from() {
    for_every_provider(|provider| {
        let schedule = provider.schedule(&Key::from_bytes([3; 16]));
        let message = octets(1, CMAC_MESSAGE_MAX);
        for len in 0..=CMAC_MESSAGE_MAX {
            let jobs = [DeriveJob { schedule: &schedule, from: DeriveFrom::Cmac(&message[..len]) }];
            let (mut derived, mut expected) = ([Key::default()], [Key::default()]);
            provider.derive(&jobs, &mut derived);
            Portable.derive(&jobs, &mut expected);
            assert_eq!(derived, expected, "{len} octets, {provider:?}");
        }
    });
}

#[test]
fn a_payload_above_the_limit_is_never_authentic() {
    let mut octets = vec![0; PAYLOAD_LEN_MAX + 1];
    for_every_provider(|provider| {
        let key = Key::from_bytes([1; 16]);
        let mut small = [0; 16];
        let mut tag = [0; 16];
        let text = Text::in_place(&mut small);
        let key = JobKey::Fresh(&key);
        provider.seal(&mut [SealJob { key, iv: [0; 12], aad: &[], text, tag: &mut tag }]);
        let open = |text| OpenJob { key, iv: [0; 12], aad: &[], text, tag: &tag, authentic: true };
        let mut jobs = [open(Text::in_place(&mut octets)), open(Text::in_place(&mut small))];
        provider.open(&mut jobs);
        assert_eq!(jobs.map(|job| job.authentic), [false, true], "{provider:?}");
        assert_eq!(small, [0; 16]);
    });
}

#[test]
fn a_long_payload_comes_out_right() {
    // The block counter passes 2^16, and the bulk loop runs long.
    let plain = octets(9, (1 << 20) + 77);
    let expected = crate::batch::reference(&[7; 16], &[0xff; 12], b"aad", &plain);
    for_every_provider(|provider| {
        let key = Key::from_bytes([7; 16]);
        let (mut text, mut tag) = (plain.clone(), [0; 16]);
        provider.seal(&mut [SealJob {
            key: JobKey::Fresh(&key),
            iv: [0xff; 12],
            aad: b"aad",
            text: Text::in_place(&mut text),
            tag: &mut tag,
        }]);
        assert!(text == expected.0 && tag == expected.1, "{provider:?}");
    });
}

#[test]
fn providers_and_what_they_make_are_shown_by_name_alone() {
    for_every_provider(|provider| {
        let key = Key::from_bytes([0x5a; 16]);
        let shown = format!("{:?} {:?} {key:?}", provider.prepare(&key), provider.schedule(&key));
        assert_eq!(shown, "PreparedKey(secret) KeySchedule(secret) Key(secret)");
    });
}
