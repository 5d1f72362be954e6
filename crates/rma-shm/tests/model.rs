//! The ring against a `VecDeque`, and a region against a `Vec<u8>`, under generated sequences of
//! calls.
#![cfg(not(loom))]

use proptest::{collection::vec, prelude::*};
use rma_shm::{Capacity, Full, Line, Region, RingMemory};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
enum RingCall {
    Push,
    PushPair,
    Pop,
    /// Push until full, one more than fits.
    Fill,
    /// Pop until empty, one more than there is.
    Drain,
}

fn ring_calls() -> impl Strategy<Value = Vec<RingCall>> {
    let call = prop_oneof![
        6 => Just(RingCall::Push),
        1 => Just(RingCall::PushPair),
        7 => Just(RingCall::Pop),
        1 => Just(RingCall::Fill),
        1 => Just(RingCall::Drain),
    ];
    vec(call, 1..200)
}

/// No two lines of a run are alike, nor two words.
fn line(n: u64) -> Line {
    Line(core::array::from_fn(|i| n << 8 | i as u64))
}

proptest! {
    #[test]
    fn a_ring_is_a_bounded_fifo_also_across_the_wrap(
        calls in ring_calls(),
        capacity in (0_u32..7).prop_map(|power| 1_usize << power),
        first in prop_oneof![Just(0), Just(u32::MAX - 2), u32::MAX - 300..=u32::MAX, any::<u32>()],
    ) {
        let memory = RingMemory::heap(Capacity::new(capacity).unwrap());
        memory.set_tail(first);
        memory.set_head(first);
        let (mut producer, mut consumer) =
            (memory.clone().into_producer(), memory.into_consumer());
        let mut model = VecDeque::new();
        let mut next = 1;
        for call in calls {
            let times = match call {
                RingCall::Push | RingCall::PushPair | RingCall::Pop => 1,
                RingCall::Fill | RingCall::Drain => capacity + 1,
            };
            for _ in 0..times {
                match call {
                    RingCall::Push | RingCall::Fill => {
                        let want = if model.len() < capacity { Ok(()) } else { Err(Full) };
                        prop_assert_eq!(producer.push(&line(next)), want);
                        if want.is_ok() {
                            model.push_back(line(next));
                        }
                        next += 1;
                    }
                    RingCall::PushPair => {
                        let want = if model.len() + 2 <= capacity { Ok(()) } else { Err(Full) };
                        let pair = [line(next), line(next + 1)];
                        prop_assert_eq!(producer.push_pair_unpublished(&pair[0], &pair[1]), want);
                        producer.publish();
                        if want.is_ok() {
                            model.extend(pair);
                        }
                        next += 2;
                    }
                    RingCall::Pop | RingCall::Drain => {
                        prop_assert_eq!(consumer.pop(), model.pop_front());
                    }
                }
                prop_assert_eq!(producer.len(), model.len());
                prop_assert_eq!(consumer.len(), model.len());
                prop_assert_eq!(consumer.is_empty(), model.is_empty());
            }
        }
        prop_assert_eq!(producer.impossible_indexes() + consumer.impossible_indexes(), 0);
    }

    #[test]
    fn a_region_is_a_vec_of_bytes_and_a_circular_one_is_modulo_its_length(
        (len, is_circular) in prop_oneof![
            (1_usize..9000, Just(false)),
            ((1_usize..140).prop_map(|lines| lines * 64), Just(true)),
        ],
        calls in vec((region_calls(), offsets(), lens(), 0_usize..8), 1..40),
    ) {
        let region = if is_circular { Region::circular(len) } else { Region::new(len) }.unwrap();
        let reach = if is_circular { 2 * len } else { len };
        prop_assert_eq!((region.len(), region.reach()), (len, reach as u64));
        let mut model = vec![0_u8; len];
        for (n, (call, offset, count, skew)) in calls.into_iter().enumerate() {
            // `skew` moves the buffer against the words of the region.
            let mut buffer: Vec<u8> = (0..skew + count).map(|i| (i * 31 + n * 101) as u8).collect();
            let end = offset.checked_add(count as u64);
            let fits = end.is_some_and(|end| end <= reach as u64) && count <= len;
            prop_assert_eq!(region.holds(offset, count as u64), fits);
            let places = (offset..end.unwrap_or(offset)).map(|at| at as usize % len);
            match call {
                RegionCall::Write => {
                    prop_assert_eq!(region.copy_in(offset, &buffer[skew..]).is_ok(), fits);
                    if fits {
                        places.zip(&buffer[skew..]).for_each(|(at, byte)| model[at] = *byte);
                    }
                }
                RegionCall::WriteOrdered => {
                    let fits = fits && offset.is_multiple_of(8) && count.is_multiple_of(8);
                    prop_assert_eq!(region.copy_in_ordered(offset, &buffer[skew..]).is_ok(), fits);
                    if fits {
                        places.zip(&buffer[skew..]).for_each(|(at, byte)| model[at] = *byte);
                    }
                }
                RegionCall::Read => {
                    let before = buffer.clone();
                    prop_assert_eq!(region.copy_out(offset, &mut buffer[skew..]).is_ok(), fits);
                    let there = || places.map(|at| model[at]).collect();
                    let expected = if fits { there() } else { before[skew..].to_vec() };
                    prop_assert_eq!(&buffer[skew..], expected);
                    prop_assert_eq!(&buffer[..skew], &before[..skew]);
                }
                RegionCall::Add => {
                    let word = offset.checked_add(8).filter(|end| *end <= reach as u64);
                    let before = word.filter(|_| offset.is_multiple_of(8)).map(|_| {
                        let bytes = &mut model[offset as usize % len..][..8];
                        let before = u64::from_ne_bytes((&*bytes).try_into().unwrap());
                        let after = before.wrapping_add(u64::MAX - count as u64);
                        bytes.copy_from_slice(&after.to_ne_bytes());
                        before
                    });
                    prop_assert_eq!(region.fetch_add(offset, u64::MAX - count as u64).ok(), before);
                }
            }
        }
        let mut all = vec![0xff; len];
        region.copy_out(0, &mut all).unwrap();
        prop_assert_eq!(all, model);
    }
}

#[derive(Clone, Copy, Debug)]
enum RegionCall {
    Write,
    WriteOrdered,
    Read,
    Add,
}

fn region_calls() -> impl Strategy<Value = RegionCall> {
    prop_oneof![
        Just(RegionCall::Write),
        Just(RegionCall::WriteOrdered),
        Just(RegionCall::Read),
        Just(RegionCall::Add)
    ]
}

/// Mostly near or in the region, sometimes where a sum overflows.
fn offsets() -> impl Strategy<Value = u64> {
    let words = (0_u64..1125).prop_map(|word| 8 * word);
    prop_oneof![4 => 0_u64..9000, 4 => words, 1 => u64::MAX - 5000..=u64::MAX, 1 => any::<u64>()]
}

fn lens() -> impl Strategy<Value = usize> {
    prop_oneof![0_usize..4200, (0_usize..525).prop_map(|words| 8 * words)]
}
