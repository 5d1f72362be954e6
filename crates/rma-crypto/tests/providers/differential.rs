//! Every provider against RustCrypto's `aes-gcm`.

use proptest::prelude::*;

use crate::{
    batch::{Case, Damage, Kept, check},
    for_every_provider,
};

/// The longest text that all lengths are tried up to: an op and its overhead.
const TEXT_LEN_MAX: usize = 4200;

#[test]
fn frames_of_every_length_alone() {
    for_every_provider(|provider| {
        for text_len in 0..=TEXT_LEN_MAX {
            check(provider, &[Case::plain(text_len as u64, text_len % 67, text_len)]);
        }
    });
}

#[test]
fn frames_of_every_length_among_their_like() {
    for_every_provider(|provider| {
        for text_len in 0..=TEXT_LEN_MAX {
            // Every size of group comes with every residue of the length.
            let count = text_len as u64 * 7 % 11 + 2;
            let cases: Vec<Case> =
                (0..count).map(|seed| Case::plain(seed, text_len % 81, text_len)).collect();
            check(provider, &cases);
        }
    });
}

#[test]
fn frames_of_every_length_among_others() {
    for_every_provider(|provider| {
        // A number prime to 4201 visits every length once.
        let mut lengths = (0..=TEXT_LEN_MAX).map(|index| index * 1013 % (TEXT_LEN_MAX + 1));
        for batch_len in (1..=64).cycle() {
            let cases: Vec<Case> = lengths
                .by_ref()
                .take(batch_len)
                .map(|text_len| Case::plain(text_len as u64, text_len % 97, text_len))
                .collect();
            if cases.is_empty() {
                break;
            }
            check(provider, &cases);
        }
    });
}

#[test]
fn aad_of_every_length_up_to_four_hundred() {
    for_every_provider(|provider| {
        for aad_len in 0..=400 {
            for text_len in [0, 64, 1440] {
                let cases: Vec<Case> =
                    (0..3).map(|seed| Case::plain(seed, aad_len, text_len)).collect();
                check(provider, &cases);
                check(provider, &cases[..1]);
            }
        }
    });
}

#[test]
fn buffers_at_every_alignment() {
    for_every_provider(|provider| {
        for alignment in 0..64 {
            for in_place in [false, true] {
                let cases = [17, 64, 300, 1440].map(|text_len| Case {
                    alignments: (alignment, 63 - alignment),
                    in_place,
                    ..Case::plain(alignment.into(), 44, text_len)
                });
                check(provider, &cases);
            }
        }
    });
}

#[test]
fn every_bit_of_a_tag_counts() {
    for_every_provider(|provider| {
        for text_len in [0, 64, 4096] {
            let cases: Vec<Case> = (0..128)
                .map(|bit| Case {
                    damage: Damage::Tag(bit),
                    ..Case::plain(bit.into(), 44, text_len)
                })
                .collect();
            for batch_len in [1, 3, 64] {
                for cases in cases.chunks(batch_len) {
                    check(provider, cases);
                }
            }
        }
    });
}

#[test]
fn a_bad_frame_anywhere_in_a_batch_disturbs_no_neighbour() {
    for_every_provider(|provider| {
        for text_len in [0, 64, 1440] {
            for batch_len in 1..=20 {
                for bad in 0..batch_len {
                    let mut cases: Vec<Case> =
                        (0..batch_len).map(|seed| Case::plain(seed as u64, 44, text_len)).collect();
                    cases[bad].damage = Damage::Tag(7);
                    check(provider, &cases);
                }
            }
        }
    });
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        6 => Just(Damage::None),
        1 => any::<u8>().prop_map(Damage::Tag),
        1 => any::<u16>().prop_map(Damage::Text),
        1 => any::<u16>().prop_map(Damage::Aad),
        1 => any::<u8>().prop_map(Damage::Iv),
        1 => any::<u8>().prop_map(Damage::Key),
    ]
}

fn text_len() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(64), Just(1440), Just(4096), 0..300_usize, 0..=TEXT_LEN_MAX]
}

fn case() -> impl Strategy<Value = Case> {
    let kept = prop_oneof![
        4 => Just(Kept::Fresh),
        3 => Just(Kept::Prepared),
        1 => Just(Kept::PreparedElsewhere),
    ];
    let shape = (prop_oneof![Just(40), Just(44), 0..100_usize], text_len());
    let place = (any::<(u8, u8)>(), any::<bool>());
    (any::<u64>(), shape, place, kept, damage()).prop_map(
        |(seed, (aad_len, text_len), (alignments, in_place), kept, damage)| Case {
            seed,
            aad_len,
            text_len,
            alignments,
            in_place,
            kept,
            damage,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn batches_that_nobody_wrote(cases in prop::collection::vec(case(), 1..=64)) {
        for_every_provider(|provider| check(provider, &cases));
    }

    /// As bursts are: all of one shape and kind, but for one or two.
    #[test]
    fn batches_of_one_kind(
        one in case(),
        seeds in prop::collection::vec(any::<u64>(), 1..=64),
        others in prop::collection::vec((any::<prop::sample::Index>(), case()), 0..=2),
    ) {
        let mut cases: Vec<Case> = seeds.iter().map(|&seed| Case { seed, ..one }).collect();
        for (index, other) in others {
            let index = index.index(cases.len());
            cases[index] = other;
        }
        for_every_provider(|provider| check(provider, &cases));
    }
}
