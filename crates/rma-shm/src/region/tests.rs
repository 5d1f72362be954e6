use super::*;
use crate::mapping::PAGE_SIZE;

fn pattern(len: usize) -> Vec<u8> {
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
