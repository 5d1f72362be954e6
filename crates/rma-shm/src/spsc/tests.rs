use super::*;
use crate::{LayoutError, Mapping};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Shortly before the indexes wrap.
const FIRST: u32 = u32::MAX - 2;

/// A ring in which `FIRST` lines, modulo 2^32, have been pushed and taken.
fn old_ring(capacity: usize) -> (Producer, Consumer, RingMemory) {
    let memory = RingMemory::heap(Capacity::new(capacity).expect("a power of two"));
    memory.set_tail(FIRST);
    memory.set_head(FIRST);
    (memory.clone().into_producer(), memory.clone().into_consumer(), memory)
}

fn line(n: u64) -> Line {
    Line(core::array::from_fn(|i| n * 8 + i as u64))
}

#[test]
fn capacity_is_a_power_of_two_within_the_limit() {
    for capacity in [0, 3, 6, 100, CAPACITY_MAX + 1, 2 * CAPACITY_MAX, usize::MAX, 1 << 63] {
        let error = ring(capacity).unwrap_err();
        assert_eq!(error, RingError::Capacity { capacity });
        assert!(error.to_string().contains(&capacity.to_string()));
    }
    for capacity in [1, 2, 64, CAPACITY_MAX] {
        assert_eq!(ring(capacity).unwrap().0.capacity(), capacity);
    }
}

#[test]
fn lines_come_out_in_order_across_the_wrap_of_the_indexes() {
    for capacity in [1, 2, 4, 8] {
        let (mut producer, mut consumer, _) = old_ring(capacity);
        for round in 0..5 {
            for n in 0..capacity as u64 {
                producer.push(&line(round * 100 + n)).unwrap();
            }
            assert_eq!(producer.push(&line(0)), Err(Full));
            assert_eq!((producer.len(), consumer.len()), (capacity, capacity));
            for n in 0..capacity as u64 {
                assert_eq!(consumer.pop(), Some(line(round * 100 + n)));
            }
            assert_eq!(consumer.pop(), None);
            assert!(producer.is_empty() && consumer.is_empty());
        }
        assert_eq!((producer.impossible_indexes(), consumer.impossible_indexes()), (0, 0));
    }
}

#[test]
fn lines_that_are_not_published_are_seen_when_they_are_or_when_there_are_many() {
    let (mut producer, mut consumer, _) = old_ring(32);
    // The index is a multiple of what is kept back after these.
    for n in 0..3 {
        assert!(!consumer.has_line(), "{n}");
        producer.push_unpublished(&line(n)).unwrap();
    }
    for n in 0..3 {
        assert_eq!(consumer.pop(), Some(line(n)));
    }
    producer.push_unpublished(&line(3)).unwrap();
    assert_eq!((consumer.len(), producer.len()), (0, 1));
    producer.publish();
    assert_eq!(consumer.pop(), Some(line(3)));
    producer.push_unpublished(&line(4)).unwrap();
    producer.push(&line(5)).unwrap();
    assert_eq!((consumer.pop(), consumer.pop()), (Some(line(4)), Some(line(5))));
}

#[test]
fn a_ring_that_is_full_has_published_all_it_holds() {
    let (mut producer, mut consumer) = ring(4).unwrap();
    for n in 0..4 {
        producer.push_unpublished(&line(n)).unwrap();
    }
    assert!(!consumer.has_line());
    assert_eq!(producer.push_unpublished(&line(4)), Err(Full));
    assert_eq!(consumer.pop(), Some(line(0)));
    assert_eq!(producer.push_unpublished(&line(4)), Ok(()));
}

#[test]
fn of_a_pair_that_does_not_fit_nothing_is_stored_and_all_before_it_is_published() {
    let memory = RingMemory::heap(Capacity::new(4).unwrap());
    let (mut producer, mut consumer) =
        (memory.clone().into_producer(), memory.clone().into_consumer());
    for n in 0..3 {
        producer.push_unpublished(&line(n)).unwrap();
    }
    memory.set_line(3, &line(77));
    assert!(consumer.is_empty());
    assert_eq!(producer.push_pair_unpublished(&line(3), &line(4)), Err(Full));
    assert_eq!((memory.line(3), producer.len(), consumer.len()), (line(77), 3, 3));
    assert_eq!(consumer.pop(), Some(line(0)));
    assert_eq!(producer.push_pair_unpublished(&line(3), &line(4)), Ok(()));
    producer.publish();
    let lines: Vec<_> = core::iter::from_fn(|| consumer.pop()).collect();
    assert_eq!(lines, [1, 2, 3, 4].map(line));

    let (mut producer, mut consumer, _) = old_ring(1);
    assert_eq!(producer.push_pair_unpublished(&line(0), &line(1)), Err(Full));
    assert_eq!(consumer.pop(), None);
}

/// However pairs and single lines follow each other, and wherever the index begins.
#[test]
fn pairs_are_never_split_and_no_more_lines_are_kept_back_than_without_them() {
    for choices in 0_u32..1 << 12 {
        let first = FIRST.wrapping_add(choices % TOGETHER_MAX);
        let memory = RingMemory::heap(Capacity::new(64).unwrap());
        memory.set_tail(first);
        memory.set_head(first);
        let (mut producer, mut consumer) = (memory.clone().into_producer(), memory.into_consumer());
        let (mut pushed, mut taken) = (0, 0);
        for call in 0..24 {
            if choices >> (call % 12) & 1 == 0 {
                producer.push_unpublished(&line(pushed)).unwrap();
                pushed += 1;
            } else {
                let (one, two) = (line(pushed), line(pushed + 1));
                producer.push_pair_unpublished(&one, &two).unwrap();
                pushed += 2;
            }
            let waiting = consumer.len() as u64;
            // The last pushed line ends a pair or is a single line.
            assert!(waiting == 0 || taken + waiting == pushed, "{choices:#x}: a part of what was");
            assert!(pushed - taken - waiting < u64::from(TOGETHER_MAX), "{choices:#x}: too many");
            for _ in 0..waiting {
                assert_eq!(consumer.pop(), Some(line(taken)), "{choices:#x}");
                taken += 1;
            }
        }
    }
}

#[test]
fn an_impossible_tail_is_counted_and_looks_empty_until_it_makes_sense_again() {
    let (mut producer, mut consumer, memory) = old_ring(4);
    for forged in [FIRST.wrapping_add(5), FIRST.wrapping_sub(1), 1 << 31, u32::MAX / 2] {
        let before = consumer.impossible_indexes();
        memory.set_tail(forged);
        assert_eq!((consumer.pop(), consumer.len()), (None, 0));
        assert_eq!(consumer.impossible_indexes(), before + 1);
    }
    producer.push(&line(9)).unwrap();
    assert_eq!(consumer.pop(), Some(line(9)));
}

#[test]
fn an_impossible_head_is_counted_and_looks_full_until_it_makes_sense_again() {
    let (mut producer, mut consumer, memory) = old_ring(2);
    producer.push(&line(0)).unwrap();
    producer.push(&line(1)).unwrap();
    for forged in [FIRST.wrapping_sub(1), FIRST.wrapping_add(3), 1 << 31] {
        let before = producer.impossible_indexes();
        memory.set_head(forged);
        assert_eq!((producer.push(&line(7)), producer.len()), (Err(Full), 2));
        assert_eq!(producer.impossible_indexes(), before + 1);
    }
    assert_eq!(consumer.pop(), Some(line(0)), "the consumer trusts its own index");
    producer.push(&line(2)).unwrap();
    assert_eq!((consumer.pop(), consumer.pop()), (Some(line(1)), Some(line(2))));
}

#[test]
fn room_that_was_seen_stays_though_the_consumer_takes_its_index_back() {
    let (mut producer, mut consumer, memory) = old_ring(4);
    for n in 0..4 {
        producer.push(&line(n)).unwrap();
    }
    assert!(!producer.has_room_for(1) && !producer.has_room_for(usize::MAX));
    assert_eq!((consumer.pop(), consumer.pop()), (Some(line(0)), Some(line(1))));
    assert!(producer.has_room_for(2) && !producer.has_room_for(3));
    assert_eq!(producer.impossible_indexes(), 0, "an honest consumer, so far");
    memory.set_head(FIRST);
    assert!(producer.has_room_for(2) && !producer.has_room_for(3));
    assert_eq!((producer.impossible_indexes(), producer.len()), (1, 2));
    assert_eq!((producer.push(&line(4)), producer.push(&line(5))), (Ok(()), Ok(())));
}

#[test]
fn a_line_that_was_seen_can_be_taken_though_the_producer_takes_its_index_back() {
    let (mut producer, mut consumer, memory) = old_ring(4);
    producer.push(&line(0)).unwrap();
    producer.push(&line(1)).unwrap();
    assert!(consumer.has_line());
    memory.set_tail(FIRST);
    assert_eq!(consumer.len(), 2);
    assert_eq!((consumer.pop(), consumer.pop()), (Some(line(0)), Some(line(1))));
    assert_eq!((consumer.has_line(), consumer.impossible_indexes()), (false, 1));
}

#[test]
fn a_hostile_tail_never_yields_more_than_capacity_lines_per_look() {
    let (_, mut consumer, memory) = old_ring(8);
    memory.set_tail(FIRST.wrapping_add(8));
    let taken = core::iter::from_fn(|| consumer.pop()).count();
    assert_eq!(taken, 8);
}

#[test]
fn of_a_secret_line_nothing_is_left_in_the_ring_and_others_stay() {
    let (mut producer, mut consumer, memory) = old_ring(4);
    for n in 1..=3 {
        producer.push(&line(n)).unwrap();
    }
    for n in 1..=3 {
        let popped = consumer.pop_and_wipe_if(|found| *found == line(2));
        assert_eq!(popped, Some(line(n)), "a copy of it is what the caller gets");
    }
    let left = [0, 1, 2].map(|n| memory.line(FIRST.wrapping_add(n)));
    assert_eq!(left, [line(1), Line::ZERO, line(3)]);
    assert_eq!(consumer.pop_and_wipe_if(|_| true), None);
}

#[test]
fn two_threads_pass_whole_lines_in_order() {
    const LINES: u64 = 200_000;
    let (mut producer, mut consumer, _) = old_ring(16);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..LINES {
                while producer.push(&line(n)).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        for n in 0..LINES {
            let taken = loop {
                match consumer.pop() {
                    Some(taken) => break taken,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(taken, line(n));
        }
    });
    assert!(consumer.is_empty());
}

#[test]
fn each_side_has_two_cache_lines_of_its_own() {
    assert_eq!(align_of::<Producer>(), 128);
    assert_eq!(align_of::<Consumer>(), 128);
}

#[test]
fn the_layout_is_what_both_sides_rely_on() {
    let capacity = Capacity::new(4).unwrap();
    let footprint = RingMemory::footprint(capacity);
    assert_eq!(footprint, 384 + 4 * 64);
    let mapping = Arc::new(Mapping::heap(128 + footprint));
    let memory = RingMemory::format(&mapping, 128, capacity).unwrap();
    memory.set_tail(0x1111_1111);
    memory.set_head(0x2222_2222);
    memory.set_line(1, &line(1));
    let word = |at: usize| mapping.words()[(128 + at) / 8].load(Relaxed);
    assert_eq!(word(0).to_ne_bytes(), *b"1RMAring");
    assert_eq!((word(8), word(16)), (1, 4));
    assert_eq!((word(128), word(256)), (0x1111_1111, 0x2222_2222));
    let entry: [u64; 8] = core::array::from_fn(|index| word(384 + 64 + 8 * index));
    assert_eq!(entry, line(1).0);
}

#[test]
fn a_ring_goes_on_where_the_memory_says_whoever_joins_it() {
    let capacity = Capacity::new(4).unwrap();
    let mapping = Arc::new(Mapping::heap(RingMemory::footprint(capacity)));
    let mut producer = RingMemory::format(&mapping, 0, capacity).unwrap().into_producer();
    for n in 0..3 {
        producer.push(&line(n)).unwrap();
    }
    let join = || RingMemory::join(&mapping, 0, capacity).unwrap();
    let mut consumer = join().into_consumer();
    assert_eq!((consumer.len(), consumer.pop()), (3, Some(line(0))));
    drop((producer, consumer));
    let (mut producer, mut consumer) = (join().into_producer(), join().into_consumer());
    assert_eq!(
        (producer.len(), producer.has_room_for(2), producer.has_room_for(3)),
        (2, true, false)
    );
    producer.push(&line(3)).unwrap();
    let lines: Vec<_> = core::iter::from_fn(|| consumer.pop()).collect();
    assert_eq!(lines, [line(1), line(2), line(3)]);
}

#[test]
fn a_producer_that_joins_beside_impossible_indexes_finds_the_ring_full_until_they_make_sense() {
    let memory = RingMemory::heap(Capacity::new(4).unwrap());
    memory.set_tail(FIRST);
    for head in [FIRST.wrapping_add(1), FIRST.wrapping_sub(5), 1 << 31] {
        memory.set_head(head);
        let mut producer = memory.clone().into_producer();
        assert_eq!((producer.impossible_indexes(), producer.len()), (1, 4));
        assert_eq!(producer.push(&line(0)), Err(Full));
        memory.set_head(FIRST);
        assert_eq!(producer.push(&line(0)), Ok(()));
        memory.set_tail(FIRST);
    }
}

#[test]
fn a_part_that_is_no_ring_of_that_capacity_is_refused_with_its_label() {
    let (four, eight) = (Capacity::new(4).unwrap(), Capacity::new(8).unwrap());
    let mapping = Arc::new(Mapping::heap(RingMemory::footprint(four)));
    let (at, wanted) = (0, *b"1RMAring");
    let refused = |capacity| RingMemory::join(&mapping, 0, capacity).unwrap_err();
    assert_eq!(refused(four), LayoutError::Kind { at, found: [0; 8], wanted });
    let len = RingMemory::footprint(eight);
    let too_short = LayoutError::TooShort { at, len, mapping_len: mapping.len() };
    assert_eq!(refused(eight), too_short);
    assert_eq!(RingMemory::format(&mapping, 0, eight).unwrap_err(), too_short);
    assert!(RingMemory::format(&mapping, 128, four).is_err());
    assert!(RingMemory::format(&mapping, usize::MAX - 127, four).is_err());
    let misaligned = RingMemory::format(&mapping, 64, four).unwrap_err();
    assert_eq!(misaligned, LayoutError::Misaligned { at: 64 });
    RingMemory::format(&mapping, 0, four).unwrap();
    let two = Capacity::new(2).unwrap();
    assert_eq!(refused(two), LayoutError::Size { at, kind: wanted, found: 4, wanted: 2 });
    mapping.words()[1].store(2, Relaxed);
    assert_eq!(refused(four), LayoutError::Version { at, kind: wanted, found: 2, wanted: 1 });
    assert!(refused(four).to_string().contains("run the same release"));
}

/// A process that has the ring's mapping, and writes anything anywhere: the label, the indexes in
/// whole words, and what nobody looks at.
#[test]
fn whatever_is_written_anywhere_in_the_mapping_both_ends_stay_inside_the_ring() {
    const CAPACITY: usize = 8;
    let capacity = Capacity::new(CAPACITY).unwrap();
    let footprint = RingMemory::footprint(capacity);
    // The memory around the ring is not its own.
    let mapping = Arc::new(Mapping::heap(footprint + 2 * 128));
    let around = || (0..16).chain((128 + footprint) / 8..(256 + footprint) / 8);
    let memory = RingMemory::format(&mapping, 128, capacity).unwrap();
    let (mut producer, mut consumer) = (memory.clone().into_producer(), memory.into_consumer());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let words = &mapping.words()[128 / 8..(128 + footprint) / 8];
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            while !stop.load(Relaxed) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let word = match random >> 60 {
                    0..4 => &words[128 / 8],
                    4..8 => &words[256 / 8],
                    _ => &words[(random >> 32) as usize % words.len()],
                };
                let near = word.load(Relaxed).wrapping_add(random & 7).wrapping_sub(3);
                word.store(if random & 0x100 == 0 { near } else { random }, Relaxed);
            }
        });
        // The writer may not run for long on a busy machine: until both ends have met it.
        let mut n = 0;
        while n < 300_000
            || producer.impossible_indexes() == 0
            || consumer.impossible_indexes() == 0
        {
            let _ = (producer.push(&line(n)), consumer.pop());
            assert!(producer.len() <= CAPACITY && consumer.len() <= CAPACITY);
            n += 1;
            if n.is_multiple_of(1024) {
                std::thread::yield_now();
            }
        }
        stop.store(true, Relaxed);
    });
    assert_eq!((producer.capacity(), consumer.capacity()), (CAPACITY, CAPACITY));
    assert!(around().all(|word| mapping.words()[word].load(Relaxed) == 0));
}
