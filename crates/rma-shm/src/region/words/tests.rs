use super::{super::tests::pattern, *};

/// A word operation: its effect on the word at an offset, and the word before, if it tells.
type Call = (&'static str, fn(&Region, u64) -> Result<u64, WordError>);

const CALLS: [Call; 4] = [
    ("load", |region, offset| region.load_acquire(offset)),
    ("store", |region, offset| region.store_release(offset, 7).map(|()| 0)),
    ("compare", |region, offset| region.compare_exchange(offset, 0, 7)),
    ("add", |region, offset| region.fetch_add(offset, 7)),
];

fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0xee; region.len()];
    region.copy_out(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_word_is_what_copies_see_in_the_byte_order_of_this_machine() {
    let region = Region::new(24).unwrap();
    let (before, after) = (0x0102_0304_0506_0708_u64, u64::MAX - 1);
    region.copy_in(8, &before.to_ne_bytes()).unwrap();
    assert_eq!(region.load_acquire(8), Ok(before));
    region.store_release(8, after).unwrap();
    let expected = [[0; 8], after.to_ne_bytes(), [0; 8]].concat();
    assert_eq!(bytes_of(&region), expected);
}

#[test]
fn every_ordered_copy_of_whole_words_copies_just_those_and_others_copy_nothing() {
    const LEN: usize = 8 * 72 + 5;
    let (region, source) = (Region::new(LEN).unwrap(), pattern(LEN + 24));
    for offset in (0..20).chain([288, 569, 576, 577, 581, 584, u64::MAX - 7]) {
        for len in (0..40).chain(248..264).chain([512, 560, 568, 576, 584]) {
            region.copy_in(0, &[0xaa; LEN]).unwrap();
            let skew = len % 3;
            let bytes = &source[skew..skew + len];
            let found = region.copy_in_ordered(offset, bytes);
            let mut expected = vec![0xaa; LEN];
            let words = offset.is_multiple_of(8) && len.is_multiple_of(8);
            let end = offset.checked_add(len as u64).filter(|end| *end <= LEN as u64);
            match (words, end) {
                (true, Some(_)) => {
                    assert_eq!(found, Ok(()), "{len} bytes at {offset}");
                    expected[offset as usize..][..len].copy_from_slice(bytes);
                }
                (true, None) => {
                    let (len, region_len) = (len as u64, LEN as u64);
                    let error = OutOfBounds { offset, len, region_len };
                    assert_eq!(found, Err(WordError::OutOfBounds(error)));
                }
                (false, _) => {
                    let error = WordError::Misaligned { offset, len: len as u64 };
                    assert_eq!(found, Err(error));
                }
            }
            assert_eq!(bytes_of(&region), expected, "{len} bytes at {offset}");
        }
    }
}

/// Long copies, so that wide moves take part where there are some.
//= channels#2.3-last-word-last
//= type=test
#[test]
fn a_reader_of_the_last_word_of_an_ordered_copy_finds_all_of_it() {
    const ROUNDS: u64 = 5_000;
    for words in [2, 8, 34, 65, 512] {
        let region = Region::new(words * 8).unwrap();
        let last = words as u64 * 8 - 8;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let bytes = round.to_ne_bytes().repeat(words);
                    region.copy_in_ordered(0, &bytes).unwrap();
                }
            });
            let mut bell = 0;
            while bell < ROUNDS {
                bell = region.load_acquire(last).unwrap();
                for offset in (0..last).step_by(8) {
                    // A later copy may have begun.
                    let found = region.load_acquire(offset).unwrap();
                    assert!(found >= bell, "word {offset} of {words}: {found} after {bell}");
                }
            }
        });
    }
}

#[test]
fn compare_exchange_stores_where_it_finds_what_is_expected_and_tells_what_was_there() {
    let region = Region::new(16).unwrap();
    assert_eq!(region.compare_exchange(8, 0, 5), Ok(0));
    assert_eq!(region.compare_exchange(8, 0, 6), Ok(5));
    assert_eq!(region.load_acquire(8), Ok(5));
    assert_eq!(region.compare_exchange(8, 5, u64::MAX), Ok(5));
    assert_eq!((region.load_acquire(0), region.load_acquire(8)), (Ok(0), Ok(u64::MAX)));
}

#[test]
fn fetch_add_wraps_and_leaves_its_neighbours_alone() {
    let region = Region::new(24).unwrap();
    assert_eq!(region.fetch_add(8, u64::MAX), Ok(0));
    assert_eq!(region.fetch_add(8, 3), Ok(u64::MAX));
    assert_eq!([0, 8, 16].map(|offset| region.load_acquire(offset)), [Ok(0), Ok(2), Ok(0)]);
}

/// Also where the region ends inside a word: the rest of it is not the region's.
#[test]
fn an_access_to_less_than_a_word_is_refused_and_nothing_changes() {
    for len in 1..=33_usize {
        let region = Region::new(len).unwrap();
        let ends = [u64::MAX - 7, u64::MAX - 8, u64::MAX, 1 << 63];
        for offset in (0..=len as u64 + 9).chain(ends) {
            let inside = offset.checked_add(8).is_some_and(|end| end <= len as u64);
            let expected = match (offset % 8, inside) {
                (0, true) => None,
                (0, false) => {
                    let region_len = len as u64;
                    Some(OutOfBounds { offset, len: 8, region_len }.into())
                }
                _ => Some(WordError::Misaligned { offset, len: 8 }),
            };
            for (name, call) in CALLS {
                let before = bytes_of(&region);
                assert_eq!(call(&region, offset).err(), expected, "{name} at {offset} of {len}");
                if let Some(error) = expected {
                    assert_eq!(bytes_of(&region), before, "{name} at {offset} of {len}");
                    assert!(error.to_string().contains(&offset.to_string()), "{error}");
                }
            }
        }
    }
}

/// With byte-wise copies to the other half of each word, which are not lost either.
//= channels#2.4-one-instruction
//= type=test
#[test]
fn additions_and_exchanges_of_several_threads_are_all_there() {
    const ROUNDS: u64 = 20_000;
    let region = Region::new(16).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    region.fetch_add(8, 1).unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let mut before = region.load_acquire(8).unwrap();
                    loop {
                        let found = region.compare_exchange(8, before, before + 1).unwrap();
                        if found == before {
                            break;
                        }
                        before = found;
                    }
                }
            });
        }
    });
    assert_eq!((region.load_acquire(0), region.load_acquire(8)), (Ok(0), Ok(4 * ROUNDS)));
}
