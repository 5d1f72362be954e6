//! The ring against a `VecDeque`, and a region against a `Vec<u8>`, under generated sequences of
//! calls.
#![cfg(not(loom))]

use proptest::{collection::vec, prelude::*};
use rma_shm::{Capacity, Full, Line, Region, RingMemory};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
enum RingCall {
    Push,
    Pop,
    /// Push until full, one more than fits.
    Fill,
    /// Pop until empty, one more than there is.
    Drain,
}

fn ring_calls() -> impl Strategy<Value = Vec<RingCall>> {
    let call = prop_oneof![
        8 => Just(RingCall::Push),
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
                RingCall::Push | RingCall::Pop => 1,
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
    fn a_region_is_a_vec_of_bytes(
        len in 1_usize..9000,
        calls in vec((any::<bool>(), offsets(), 0_usize..4200, 0_usize..8), 1..40),
    ) {
        let region = Region::new(len).unwrap();
        let mut model = vec![0_u8; len];
        for (n, (is_write, offset, count, skew)) in calls.into_iter().enumerate() {
            // `skew` moves the buffer against the words of the region.
            let mut buffer: Vec<u8> = (0..skew + count).map(|i| (i * 31 + n * 101) as u8).collect();
            let end = offset.checked_add(count as u64);
            let fits = end.is_some_and(|end| end <= len as u64);
            let range = offset as usize..offset.wrapping_add(count as u64) as usize;
            if is_write {
                prop_assert_eq!(region.copy_in(offset, &buffer[skew..]).is_ok(), fits);
                if fits {
                    model[range].copy_from_slice(&buffer[skew..]);
                }
            } else {
                let before = buffer.clone();
                prop_assert_eq!(region.copy_out(offset, &mut buffer[skew..]).is_ok(), fits);
                let expected = if fits { &model[range] } else { &before[skew..] };
                prop_assert_eq!(&buffer[skew..], expected);
                prop_assert_eq!(&buffer[..skew], &before[..skew]);
            }
        }
        let mut all = vec![0xff; len];
        region.copy_out(0, &mut all).unwrap();
        prop_assert_eq!(all, model);
    }
}

/// Mostly near or in the region, sometimes where a sum overflows.
fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..9000, 1 => u64::MAX - 5000..=u64::MAX, 1 => any::<u64>()]
}
