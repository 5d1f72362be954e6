//! Many work requests at once on a network that is not kind.

use core::time::Duration;

use proptest::prelude::*;

use super::{
    deeds::{Begun, DEEDS, Deed, begin, check, faithful, fused},
    pair::{Fate, Pair},
};
use crate::verbs::WcStatus;

const LATENCY: Duration = Duration::from_micros(5);

prop_compose! {
    fn deed()(
        deed in prop::sample::select(DEEDS.to_vec()),
        len in prop_oneof![0_u32..200, 1000_u32..9000],
        immediate in any::<Option<u32>>(),
        wait_micros in 0_u64..30,
    ) -> (Deed, u32, Option<u32>, u64) {
        let immediate = immediate.filter(|_| !matches!(deed, Deed::ZRead | Deed::FRead));
        (deed, len, immediate, wait_micros)
    }
}

/// A network that loses so many of a hundred frames, doubles so many, and delays each differently.
fn unlucky(loss: u64, double: u64, seed: u64) -> Fate {
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    Box::new(move |_| {
        if random() % 100 < loss {
            return vec![];
        }
        let copies = if random() % 100 < double { 2 } else { 1 };
        (0..copies).map(|_| LATENCY + Duration::from_micros(random() % 40)).collect()
    })
}

fn begin_all(pair: &mut Pair, deeds: Vec<(Deed, u32, Option<u32>, u64)>) -> Vec<Begun> {
    let mut at = 0;
    let mut begin = |(deed, len, immediate, wait)| {
        let begun = begin(pair, deed, (at, len), immediate);
        at += u64::from(len) + 100;
        pair.run_for(Duration::from_micros(wait));
        begun
    };
    deeds.into_iter().map(&mut begin).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_that_is_posted_is_done_once_on_a_network_that_loses_doubles_and_reorders(
        deeds in prop::collection::vec(deed(), 1..24),
        is_faithful: bool,
        is_rc: bool,
        (loss, double, seed) in (0_u64..8, 0_u64..20, any::<u64>()),
    ) {
        let mut pair = Pair::of(if is_faithful { faithful() } else { fused() }, is_rc);
        pair.fate = unlucky(loss, double, seed);
        let begun = begin_all(&mut pair, deeds);
        pair.run_to_the_end(Duration::from_secs(60));
        for begun in &begun {
            check(&pair, begun);
        }
        // The last CQEs may still be on their way.
        pair.run_for(Duration::from_secs(5));
        prop_assert_eq!(pair.f_host.stateful.in_use(), (0, 0));
    }

    /// On a network so bad that connections fail, each work request still ends once, in time, and
    /// success is true.
    #[test]
    fn success_is_true_and_everything_ends_on_the_worst_network(
        deeds in prop::collection::vec(deed(), 1..12),
        is_faithful: bool,
        is_rc: bool,
        (loss, double, seed) in (30_u64..90, 0_u64..20, any::<u64>()),
    ) {
        let mut pair = Pair::of(if is_faithful { faithful() } else { fused() }, is_rc);
        pair.fate = unlucky(loss, double, seed);
        let begun = begin_all(&mut pair, deeds);
        pair.run_for(Duration::from_secs(45));
        prop_assert!(pair.f.open.is_empty(), "{:?}", pair.f.open);
        let has_failed = !pair.f.told.is_empty();
        // A stateful side ends by itself; the other one's library is not here.
        prop_assert!((has_failed && !is_rc) || pair.z.open.is_empty(), "{:?}", pair.z.open);
        let success = Some(WcStatus::Success);
        for Begun { z_slot, f_slot, to_f, at, bytes, received } in &begun {
            let z = z_slot.and_then(|slot| pair.z.status(slot));
            let f = f_slot.and_then(|slot| pair.f.status(slot));
            let there = if *to_f { &pair.f } else { &pair.z };
            if z == success || f == success {
                prop_assert_eq!(&there.bytes(*at, bytes.len()), bytes);
            }
            // The side that gave is told after the side that got.
            let (gave, got) = if *to_f { (z, f) } else { (f, z) };
            if received.is_some() && gave == success {
                prop_assert_eq!(got, success);
            }
        }
        prop_assert_eq!(pair.f_host.stateful.in_use(), (0, 0));
    }
}
