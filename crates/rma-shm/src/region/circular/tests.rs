use super::{super::tests::pattern, *};
use crate::region::HugePageSize;

/// A model of a circular region: bytes, each of which has an offset for each time around.
struct Model(Vec<u8>);

impl Model {
    fn has(&self, offset: u64, len: usize) -> bool {
        let end = offset.checked_add(len as u64);
        len <= self.0.len() && end.is_some_and(|end| end <= 2 * self.0.len() as u64)
    }

    fn places(&self, offset: u64, len: usize) -> impl Iterator<Item = usize> + use<> {
        let all = self.0.len();
        (offset as usize..offset as usize + len).map(move |at| at % all)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (place, byte) in self.places(offset, bytes.len()).zip(bytes) {
            self.0[place] = *byte;
        }
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        self.places(offset, len).map(|place| self.0[place]).collect()
    }
}

fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0xee; region.len()];
    region.copy_out(0, &mut bytes).unwrap();
    bytes
}

/// All copies of `len` bytes at `offset`, against the model.
fn check_copies(region: &Region, offset: u64, len: usize, source: &[u8]) {
    let all = region.len();
    let fresh = || Model(vec![0xaa; all]);
    let (bytes, is_there) = (&source[..len], fresh().has(offset, len));
    let outside = OutOfBounds { offset, len: len as u64, region_len: all as u64 };
    let expected = if is_there { Ok(()) } else { Err(outside) };
    assert_eq!(region.holds(offset, len as u64), is_there, "{len} bytes at {offset} of {all}");

    let mut model = fresh();
    region.copy_in(0, &model.0).unwrap();
    assert_eq!(region.copy_in(offset, bytes), expected);
    if is_there {
        model.write(offset, bytes);
    }
    assert_eq!(bytes_of(region), model.0, "{len} bytes in at {offset} of {all}");

    let mut found = vec![0xbb; len];
    assert_eq!(region.copy_out(offset, &mut found), expected);
    let there = if is_there { model.read(offset, len) } else { vec![0xbb; len] };
    assert_eq!(found, there, "{len} bytes out at {offset} of {all}");

    let mut model = fresh();
    region.copy_in(0, &model.0).unwrap();
    let is_words = offset.is_multiple_of(8) && len.is_multiple_of(8);
    let expected = match (is_words, is_there) {
        (false, _) => Err(WordError::Misaligned { offset, len: len as u64 }),
        (true, false) => Err(WordError::OutOfBounds(outside)),
        (true, true) => {
            model.write(offset, bytes);
            Ok(())
        }
    };
    assert_eq!(region.copy_in_ordered(offset, bytes), expected);
    assert_eq!(bytes_of(region), model.0, "{len} ordered bytes at {offset} of {all}");
    region.prefetch(offset, len);
}

#[test]
fn every_copy_in_a_small_circular_region_is_one_modulo_its_length() {
    let (region, source) = (Region::circular(64).unwrap(), pattern(80));
    for offset in (0..140).chain([u64::MAX - 64, u64::MAX - 7, u64::MAX]) {
        for len in 0..=66 {
            check_copies(&region, offset, len, &source);
        }
    }
}

/// Long enough for wide moves on both sides of the end.
#[test]
fn long_copies_across_the_end_are_ones_modulo_the_length() {
    const LEN: usize = 1088;
    let (region, source) = (Region::circular(LEN).unwrap(), pattern(LEN + 1));
    for around in [LEN as u64, 2 * LEN as u64] {
        for offset in (around - 20..around + 20).chain(around - 560..around - 540) {
            for len in (0..20).chain(248..270).chain(536..570).chain(LEN - 17..=LEN + 1) {
                check_copies(&region, offset, len, &source);
            }
        }
    }
}

#[test]
fn the_two_parts_of_an_access_are_before_the_end_and_from_the_begin_on() {
    let region = Region::circular(128).unwrap();
    for (offset, len, parts) in [
        (127, 2, (127, 1)),
        (64, 128, (64, 64)),
        (128, 0, (0, 0)),
        (128, 128, (0, 128)),
        (130, 126, (2, 126)),
        (192, 64, (64, 64)),
        (256, 0, (0, 0)),
    ] {
        assert_eq!(region.around(offset, len), Ok(parts), "{len} bytes at {offset}");
    }
    let plain = Region::new(128).unwrap();
    let error = OutOfBounds { offset: 127, len: 2, region_len: 128 };
    assert_eq!(plain.around(127, 2), Err(error));
}

#[test]
fn a_word_has_an_offset_for_each_time_around() {
    let region = Region::circular(64).unwrap();
    for place in (0..64).step_by(8) {
        let again = 64 + place;
        region.store_release(again, place + 1).unwrap();
        assert_eq!(region.load_acquire(place), Ok(place + 1));
        assert_eq!(region.fetch_add(again, 5), Ok(place + 1));
        assert_eq!(region.compare_exchange(again, place + 6, 9), Ok(place + 6));
        assert_eq!(region.compare_exchange(place, 9, place), Ok(9));
        assert_eq!(region.load_acquire(again), Ok(place));
    }
    for offset in [128, 136, u64::MAX - 7] {
        let error = OutOfBounds { offset, len: 8, region_len: 64 };
        assert_eq!(region.load_acquire(offset), Err(error.into()));
        assert_eq!(region.store_release(offset, 1), Err(error.into()));
    }
    assert_eq!(region.fetch_add(60, 1), Err(WordError::Misaligned { offset: 60, len: 8 }));
}

#[test]
fn a_circular_region_is_as_long_as_its_bytes_and_a_plain_one_has_no_second_round() {
    let (plain, circular) = (Region::new(64).unwrap(), Region::circular(64).unwrap());
    assert_eq!((plain.len(), plain.reach()), (64, 64));
    assert_eq!((circular.len(), circular.reach()), (64, 128));
    assert!(!plain.holds(64, 1) && plain.holds(64, 0) && circular.holds(64, 1));
    assert!(plain.copy_in(63, &[1; 2]).is_err() && plain.load_acquire(64).is_err());
    assert!(
        plain.copy_out(63, &mut [1; 2]).is_err() && plain.copy_in_ordered(56, &[1; 16]).is_err()
    );
    assert_eq!(bytes_of(&plain), [0; 64]);
}

#[test]
fn a_length_that_is_not_of_whole_lines_is_refused_before_it_is_allocated() {
    for len in [1, 8, 63, 65, 4096 + 32, isize::MAX as usize] {
        assert_eq!(Region::circular(len).unwrap_err(), MemoryError::CircularLen { len });
    }
    assert_eq!(Region::circular(0).unwrap_err(), MemoryError::Empty);
    let error = Region::new(100).unwrap().into_circular().unwrap_err();
    assert_eq!(error, MemoryError::CircularLen { len: 100 });
    assert!(error.to_string().contains("100"), "{error}");
}

#[test]
fn shared_memory_is_circular_for_whom_says_so() {
    let ring = Region::memfd("rma-test", 192).unwrap().into_circular().unwrap();
    ring.copy_in(190, &[1, 2, 3, 4]).unwrap();
    let fd = ring.fd().unwrap().try_clone_to_owned().unwrap();
    let plain = Region::map_memfd(fd).unwrap();
    let mut ends = [[0; 2]; 2];
    plain.copy_out(190, &mut ends[0]).unwrap();
    plain.copy_out(0, &mut ends[1]).unwrap();
    assert_eq!(ends, [[1, 2], [3, 4]]);
    assert!(plain.copy_in(190, &[0; 4]).is_err());
    let also = plain.into_circular().unwrap();
    also.copy_in(191, &[7, 8]).unwrap();
    let mut found = [0; 4];
    ring.copy_out(190, &mut found).unwrap();
    assert_eq!(found, [1, 7, 8, 4]);
}

/// The end of a region of huge pages is not that of its last page.
#[test]
fn huge_pages_or_what_is_there_in_their_place_are_circular_at_the_length_asked_for() {
    let (region, _) = Region::prefer_huge_pages(4096 + 64, HugePageSize::TwoMiB).unwrap();
    let region = region.into_circular().unwrap();
    region.copy_in(4096 + 63, &[1, 2]).unwrap();
    let mut found = [0];
    region.copy_out(0, &mut found).unwrap();
    assert_eq!((found, region.reach()), ([2], 2 * 4160));
}

/// Long copies, so that wide moves take part where there are some.
#[test]
fn a_reader_of_the_last_word_of_an_ordered_copy_across_the_end_finds_all_of_it() {
    const ROUNDS: u64 = 5_000;
    const WORDS: u64 = 512;
    for (words, before_end) in [(2, 1), (34, 1), (34, 33), (512, 300)] {
        let region = Region::circular(WORDS as usize * 8).unwrap();
        let first = (WORDS - before_end) * 8;
        let last = first + (words - 1) * 8;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let bytes = round.to_ne_bytes().repeat(words as usize);
                    region.copy_in_ordered(first, &bytes).unwrap();
                }
            });
            let mut bell = 0;
            while bell < ROUNDS {
                bell = region.load_acquire(last).unwrap();
                for offset in (first..last).step_by(8) {
                    // A later copy may have begun.
                    let found = region.load_acquire(offset).unwrap();
                    assert!(found >= bell, "word {offset} of {words}: {found} after {bell}");
                }
            }
        });
    }
}

#[test]
fn a_reader_of_a_bell_before_the_end_finds_data_behind_it_that_is_as_new() {
    const ROUNDS: u64 = 5_000;
    const LEN: usize = 4096;
    for (len, part) in [(64, 64), (64, 8), (1024, 1024), (4096, 1440)] {
        let region = Region::circular(LEN).unwrap();
        let bell_at = LEN as u64 - 8;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let data = round.to_ne_bytes().repeat(len / 8 - 1);
                    region.copy_in(bell_at + 8, &data).unwrap();
                    region.store_release(bell_at, round).unwrap();
                }
            });
            let (mut bytes, mut bell) = (vec![0; len], 0);
            while bell < ROUNDS {
                for (n, bytes) in bytes.chunks_mut(part).enumerate() {
                    region.copy_out(bell_at + (n * part) as u64, bytes).unwrap();
                }
                let words = bytes.as_chunks::<8>().0;
                bell = u64::from_ne_bytes(words[0]);
                for word in words {
                    let found = u64::from_ne_bytes(*word);
                    assert!(found >= bell, "{found} behind bell {bell}, {len} bytes by {part}");
                }
            }
        });
    }
}
