use super::*;
use crate::mapping::PAGE_SIZE;

pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 1) as u8).collect()
}

#[test]
fn sizes_that_no_machine_has_are_errors() {
    assert_eq!(Region::new(0).unwrap_err(), MemoryError::Empty);
    let len = isize::MAX as usize + 1;
    assert_eq!(
        Region::new(len).unwrap_err(),
        MemoryError::TooLarge { len, max: isize::MAX as usize }
    );
    for len in [isize::MAX as usize, isize::MAX as usize - PAGE_SIZE, 1 << 60] {
        let error = Region::new(len).unwrap_err();
        assert!(matches!(error, MemoryError::OutOfMemory { len: got, .. } if got == len));
        assert!(error.to_string().contains(&len.to_string()));
    }
}

#[test]
fn a_new_region_is_zero_and_starts_at_a_page() {
    for len in [1, 7, 8, PAGE_SIZE, PAGE_SIZE + 1] {
        let region = Region::new(len).unwrap();
        assert_eq!(region.words().as_ptr() as usize % PAGE_SIZE, 0);
        let mut bytes = vec![0xff; len];
        region.copy_out(0, &mut bytes).unwrap();
        assert_eq!((region.len(), bytes), (len, vec![0; len]));
    }
}

#[test]
fn bounds_are_checked_without_overflow() {
    let region = Region::new(100).unwrap();
    let mut one = [0xee];
    for offset in [100, 101, u64::from(u32::MAX) + 1, u64::MAX - 1, u64::MAX] {
        let error = OutOfBounds { offset, len: 1, region_len: 100 };
        assert_eq!(region.copy_in(offset, &[1]), Err(error));
        assert_eq!(region.copy_out(offset, &mut one), Err(error));
    }
    assert_eq!(one, [0xee]);
    assert_eq!(
        region.copy_in(37, &[1; 64]),
        Err(OutOfBounds { offset: 37, len: 64, region_len: 100 })
    );
    assert!(region.copy_in(36, &[1; 64]).is_ok());
    assert!(region.copy_in(100, &[]).is_ok() && region.copy_out(100, &mut []).is_ok());
    assert!(region.copy_in(101, &[]).is_err() && region.copy_in(u64::MAX, &[]).is_err());
}

#[test]
fn every_offset_length_and_buffer_alignment_copies_just_those_bytes() {
    let region = Region::new(64).unwrap();
    let source = pattern(48);
    for offset in 0..17 {
        for len in 0..33 {
            for skew in 0..8 {
                region.copy_in(0, &[0xaa; 64]).unwrap();
                region.copy_in(offset, &source[skew..skew + len]).unwrap();
                let mut expected = [0xaa; 64];
                expected[offset as usize..][..len].copy_from_slice(&source[skew..skew + len]);
                let mut all = [0; 64];
                region.copy_out(0, &mut all).unwrap();
                assert_eq!(all, expected);
                let mut part = [0; 48];
                region.copy_out(offset, &mut part[skew..skew + len]).unwrap();
                assert_eq!(part[skew..skew + len], source[skew..skew + len]);
                assert!(part[..skew].iter().chain(&part[skew + len..]).all(|&byte| byte == 0));
            }
        }
    }
}

#[test]
fn concurrent_writes_to_neighbouring_bytes_do_not_undo_each_other() {
    const ROUNDS: u32 = 20_000;
    let region = Region::new(24).unwrap();
    std::thread::scope(|scope| {
        // Thread t owns bytes t, t + 3, t + 6, ..: every word is shared by all three.
        for thread in 0..3_u64 {
            let region = &region;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for offset in (thread..24).step_by(3) {
                        region.copy_in(offset, &[round as u8]).unwrap();
                        let mut seen = [0];
                        region.copy_out(offset, &mut seen).unwrap();
                        assert_eq!(seen, [round as u8]);
                    }
                }
            });
        }
    });
}

#[test]
fn long_copies_copy_just_those_bytes_wherever_they_begin_and_end() {
    const LEN: usize = 640;
    let (region, source) = (Region::new(LEN).unwrap(), pattern(LEN));
    for offset in 0..40 {
        for len in (WIDE_MIN * WORD - 20..WIDE_MIN * WORD + 160).chain([LEN - offset]) {
            for skew in [0, 1, 8] {
                let len = len.min(LEN - offset).min(LEN - skew);
                let bytes = &source[skew..skew + len];
                region.copy_in(0, &[0xaa; LEN]).unwrap();
                region.copy_in(offset as u64, bytes).unwrap();
                let mut expected = [0xaa; LEN];
                expected[offset..offset + len].copy_from_slice(bytes);
                let mut all = [0; LEN];
                region.copy_out(0, &mut all).unwrap();
                assert_eq!(all, expected, "{len} bytes in at {offset}");
                let mut part = [0xbb; LEN];
                region.copy_out(offset as u64, &mut part[skew..skew + len]).unwrap();
                assert_eq!(part[skew..skew + len], *bytes, "{len} bytes out at {offset}");
                let mut around = part[..skew].iter().chain(&part[skew + len..]);
                assert!(around.all(|&byte| byte == 0xbb), "{len} bytes out at {offset}");
            }
        }
    }
}

//= channels#2.3-ordered-reading
//= type=test
#[test]
fn the_first_word_and_the_last_are_never_moved_with_others() {
    let region = Region::new(PAGE_SIZE).unwrap();
    let words = region.words();
    for first in 0..8 {
        for len in WIDE_MIN..WIDE_MIN + 40 {
            let (start, last) = middle(&words[first..first + len]);
            assert!((1..=2).contains(&start) && last == len - 1, "{first}, {len}: {start}, {last}");
        }
    }
}

#[test]
fn a_long_copy_does_not_undo_what_others_write_beside_it() {
    const ROUNDS: u32 = 20_000;
    let region = Region::new(1024).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                region.copy_in(3, &[round as u8; 1018]).unwrap();
            }
        });
        for offset in [0, 1021] {
            let region = &region;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    region.copy_in(offset, &[round as u8; 3]).unwrap();
                    let mut seen = [0; 3];
                    region.copy_out(offset, &mut seen).unwrap();
                    assert_eq!(seen, [round as u8; 3]);
                }
            });
        }
    });
}

/// One thread writes copies of `len` bytes at `offset`, all of them the same byte; another reads
/// them and looks at each aligned word. Bytes of the first and the last word that are outside of
/// the copy are not looked at.
fn no_word_is_torn(offset: usize, len: usize) {
    const ROUNDS: usize = 5_000;
    let region = Region::new(2 * PAGE_SIZE).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = vec![0; len];
            for round in 0..ROUNDS {
                bytes.fill(round as u8);
                region.copy_in(offset as u64, &bytes).unwrap();
            }
        });
        let mut bytes = vec![0; len];
        for _ in 0..ROUNDS {
            region.copy_out(offset as u64, &mut bytes).unwrap();
            let (edge, whole) = bytes.split_at(offset.next_multiple_of(WORD) - offset);
            for word in [edge].into_iter().chain(whole.chunks(WORD)) {
                assert!(word.iter().all(|byte| byte == &word[0]), "{word:?} of {len} at {offset}");
            }
        }
    });
}

#[test]
fn words_of_long_copies_are_never_torn_the_first_and_the_last_neither() {
    for (offset, len) in [(0, 4096), (8, 4096), (8, 256), (3, 1440), (21, 3264), (40, 259)] {
        no_word_is_torn(offset, len);
    }
}

#[test]
fn aligned_words_are_never_torn() {
    const ROUNDS: usize = 20_000;
    let region = Region::new(PAGE_SIZE).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                region.copy_in(0, &[round as u8; 256]).unwrap();
            }
        });
        let mut bytes = [0; 256];
        for _ in 0..ROUNDS {
            region.copy_out(0, &mut bytes).unwrap();
            for word in bytes.as_chunks::<8>().0 {
                assert!(word.iter().all(|byte| byte == &word[0]), "{word:?}");
            }
        }
    });
}

/// Reads `bytes` from the begin of `region` by copies of `part` bytes in ascending order, as a READ
/// of several frames is read.
fn copy_out_in_parts(region: &Region, bytes: &mut [u8], part: usize) {
    for (n, bytes) in bytes.chunks_mut(part).enumerate() {
        region.copy_out((n * part) as u64, bytes).unwrap();
    }
}

fn first_and_last(numbers: &[[u8; WORD]]) -> (u64, u64) {
    let number = |at: usize| u64::from_ne_bytes(numbers[at]);
    (number(0), number(numbers.len() - 1))
}

#[test]
fn a_reader_of_a_bell_finds_data_that_is_as_new_by_one_copy_or_several() {
    const ROUNDS: u64 = 5_000;
    for (len, part) in [(64, 64), (64, 8), (248, 100), (1024, 1024), (4096, 1440)] {
        let region = Region::new(len).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let data = round.to_ne_bytes().repeat(len / WORD - 1);
                    region.copy_in(WORD as u64, &data).unwrap();
                    region.store_release(0, round).unwrap();
                }
            });
            let (mut bytes, mut bell) = (vec![0; len], 0);
            while bell < ROUNDS {
                copy_out_in_parts(&region, &mut bytes, part);
                let (words, _) = bytes.as_chunks::<WORD>();
                (bell, _) = first_and_last(words);
                for word in words {
                    let found = u64::from_ne_bytes(*word);
                    assert!(found >= bell, "{found} behind bell {bell}, {len} bytes by {part}");
                }
            }
        });
    }
}

#[test]
fn between_two_equal_numbers_that_are_written_last_to_first_lies_data_that_is_whole() {
    const ROUNDS: u64 = 5_000;
    for (len, part) in [(64, 64), (248, 100), (1024, 1024), (4096, 1440)] {
        let region = Region::new(len).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    region.store_release((len - WORD) as u64, round).unwrap();
                    fence(Ordering::Release);
                    let data = round.to_ne_bytes().repeat(len / WORD - 2);
                    region.copy_in(WORD as u64, &data).unwrap();
                    region.store_release(0, round).unwrap();
                }
            });
            let (mut bytes, mut front) = (vec![0; len], 0);
            while front < ROUNDS {
                copy_out_in_parts(&region, &mut bytes, part);
                let (words, _) = bytes.as_chunks::<WORD>();
                let (first, last) = first_and_last(words);
                front = first;
                if first == last {
                    assert!(words.iter().all(|word| word == &words[0]), "torn: {len} by {part}");
                }
            }
        });
    }
}
