//! The paper's claims about its figures, held against what was measured here.
//!
//! A claim is of all sizes that its sentence is about, and against all that it names: it takes the
//! worst of them.

use rma_xdp::channel::Kind;

use crate::svg::Series;

/// Something that the paper says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    pub(super) says: &'static str,
    pub(super) holds: bool,
    /// The value that decides.
    pub(super) because: String,
}

fn of(measured: &[Series], kind: Kind) -> &[f64] {
    let series = measured.iter().find(|series| series.name == kind.to_string());
    series.map_or(&[], |series| &series.values)
}

/// The ratios of two kinds, size by size.
fn over(measured: &[Series], one: Kind, other: Kind) -> Vec<f64> {
    of(measured, one).iter().zip(of(measured, other)).map(|(one, other)| one / other).collect()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MAX, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Kinds that deliver in as many half round trips as one op takes.
const ONE_OP: [Kind; 6] = [
    Kind::SendRecvNormal,
    Kind::WriteSlotInlined,
    Kind::WriteSlotImmediate,
    Kind::RingImmediate,
    Kind::RingWithZeroing,
    Kind::RingWithoutZeroing,
];

pub(super) fn round_trips(sizes: &[u32], measured: &[Series]) -> Vec<Claim> {
    let spread = |index: usize| {
        let at = |kind: &Kind| of(measured, *kind)[index];
        let all: Vec<f64> = ONE_OP.iter().map(at).collect();
        most(&all) / least(&all)
    };
    // A record of more than an op is two.
    let of_one_op = (0..sizes.len()).filter(|&index| sizes[index] <= 4000);
    let spread = most(&of_one_op.map(spread).collect::<Vec<_>>());
    let detached = least(&over(measured, Kind::RingDetached, Kind::RingWithoutZeroing));
    vec![
        Claim {
            says: "channels that need one half round trip have about the same latency",
            holds: spread < 1.3,
            because: format!("the slowest over the quickest is {spread:.2} at most"),
        },
        Claim {
            says: "the ring with a detached bell is slower than the others, as it needs two requests",
            holds: detached > 1.0,
            because: format!("{detached:.2} times that without zeroing, at least"),
        },
    ]
}

pub(super) fn copies(sizes: &[u32], measured: &[Series]) -> Vec<Claim> {
    let [without, with] = measured else { return Vec::new() };
    let ratios = without.values.iter().zip(&with.values).map(|(of, to)| of / to);
    let ratios = ratios.zip(sizes).filter(|(ratio, _)| ratio.is_finite());
    let ratios: Vec<f64> = ratios.map(|(ratio, _)| ratio).collect();
    let (Some(&small), Some(&large)) = (ratios.first(), ratios.last()) else { return Vec::new() };
    let all = least(&ratios);
    vec![
        Claim {
            says: "a server that need not copy what it is sent serves more requests",
            holds: all >= 1.0,
            because: format!("{all:.3} times as many at least"),
        },
        Claim {
            says: "that matters more for large messages",
            holds: large > small,
            because: format!("{small:.3} times for the first size, {large:.3} for the last"),
        },
    ]
}

/// How many peaks a distribution has: parts that hold a tenth of the highest at least, with a
/// valley of half the lower one between any two.
fn peaks(shares: &[f64]) -> usize {
    let floor = most(shares) / 10.0;
    let (mut count, mut rising, mut turn) = (0, true, 0.0_f64);
    for &share in shares.iter().chain([&0.0]) {
        if rising {
            turn = turn.max(share);
            if share < turn / 2.0 && turn >= floor {
                (count, rising, turn) = (count + 1, false, share);
            }
        } else {
            turn = turn.min(share);
            if share >= floor && share > turn * 2.0 {
                (rising, turn) = (true, share);
            }
        }
    }
    count
}

pub(super) fn distribution(_: &[u32], measured: &[Series]) -> Vec<Claim> {
    let of = |kind: Kind| {
        let is_of = move |series: &&Series| series.name.starts_with(&kind.to_string());
        measured.iter().filter(is_of).map(|series| peaks(&series.values)).collect::<Vec<_>>()
    };
    let (read, pushed) = (of(Kind::ReadRingInlined), of(Kind::RingWithoutZeroing));
    vec![
        Claim {
            says: "times through a read ring have two peaks: a bell is found by the first READ or by the \
                   second",
            holds: read.iter().all(|&peaks| peaks >= 2),
            because: format!("they have {read:?} by size"),
        },
        Claim {
            says: "those of a message that is written to its receiver have one",
            holds: pushed.iter().all(|&peaks| peaks == 1),
            because: format!("they have {pushed:?} by size"),
        },
    ]
}

/// Whether messages of this kind need a receive that was posted.
fn posts_receives(name: &str) -> bool {
    [Kind::SendRecvNormal, Kind::WriteSlotImmediate, Kind::RingImmediate]
        .iter()
        .any(|kind| kind.to_string() == name)
}

pub(super) fn throughput(sizes: &[u32], measured: &[Series]) -> Vec<Claim> {
    let ratios = over(measured, Kind::RingWithoutZeroing, Kind::RingWithZeroing);
    let zeroing = least(&ratios);
    let small = (0..sizes.len()).filter(|&index| sizes[index] <= 64);
    let receives = small.map(|index| {
        let rates = |posts: bool| {
            let kinds = measured.iter().filter(move |it| posts == posts_receives(&it.name));
            kinds.map(move |it| it.values[index]).collect::<Vec<_>>()
        };
        most(&rates(true)) / least(&rates(false))
    });
    let receives = most(&receives.collect::<Vec<_>>());
    vec![
        Claim {
            says: "the ring without zeroing carries as much as the one with it, or more",
            holds: zeroing >= 0.95,
            because: format!("{zeroing:.2} times as much at least"),
        },
        Claim {
            says: "small messages go slowest where receives have to be posted",
            holds: receives < 1.0,
            because: format!(
                "the quickest of them over the slowest of the others is {receives:.2} at most"
            ),
        },
    ]
}

pub(super) fn fan_in(_: &[u32], measured: &[Series]) -> Vec<Claim> {
    let [many, one] = measured else { return Vec::new() };
    let ratios = many.values.iter().zip(&one.values).map(|(of, to)| of / to);
    let ratios: Vec<f64> = ratios.filter(|ratio| !ratio.is_nan()).collect();
    let ratio = least(&ratios);
    vec![Claim {
        says: "eight senders are not held up by FETCH_ADDs of one word (in the paper they are, until \
               the word is in the NIC's memory; here it is in the engine's cache)",
        holds: ratio >= 0.5,
        because: format!("eight senders get {ratio:.2} times what one gets at least"),
    }]
}

pub(super) fn broadcast(sizes: &[u32], measured: &[Series]) -> Vec<Claim> {
    // Of which one READ brings several.
    let small = |ratios: Vec<f64>| {
        let small = ratios.into_iter().zip(sizes).filter(|&(_, &size)| size <= 2048);
        least(&small.map(|(ratio, _)| ratio).collect::<Vec<_>>())
    };
    let [notify, detached] = [
        (Kind::ReadRingNotify, Kind::ReadRingDetached),
        (Kind::ReadRingDetached, Kind::ReadRingInlined),
    ]
    .map(|(one, other)| small(over(measured, one, other)));
    let notify = notify.min(small(over(measured, Kind::ReadRingNotify, Kind::ReadRingInlined)));
    vec![
        Claim {
            says: "receivers that are notified get the most, as they do not look for bells",
            holds: notify >= 1.0,
            because: format!("{notify:.2} times what they get by either bell at least"),
        },
        Claim {
            says: "by a detached bell receivers get more than by inlined ones, several messages at once",
            holds: detached > 1.0,
            because: format!("{detached:.2} times as much at least"),
        },
    ]
}

pub(super) fn prefetching(sizes: &[u32], measured: &[Series]) -> Vec<Claim> {
    let [none, .., all] = measured else { return Vec::new() };
    let ratios = all.values.iter().zip(&none.values).map(|(of, to)| of / to).zip(sizes);
    // Of larger ones a READ brings one whatever it prefetches.
    let small = ratios.filter(|&(_, &size)| size <= 1024).map(|(ratio, _)| ratio);
    let ratio = least(&small.collect::<Vec<_>>());
    vec![Claim {
        says: "prefetching lets a receiver read several small records at once",
        holds: ratio > 1.0,
        because: format!("{ratio:.2} times as many at least"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl Fn(Kind) -> f64) -> Vec<Series> {
        let all = [&ONE_OP[..], &[Kind::RingDetached]].concat();
        let series = |kind: Kind| Series { name: kind.to_string(), values: vec![values(kind); 2] };
        all.into_iter().map(series).collect()
    }

    #[test]
    fn claims_hold_of_values_as_the_paper_has_them_and_of_no_others() {
        let sizes = [64, 1024];
        let detached = |slow: f64| series(|it| if it == Kind::RingDetached { slow } else { 5.0 });
        let holds = |claims: Vec<Claim>| claims.iter().map(|it| it.holds).collect::<Vec<_>>();
        assert_eq!(holds(round_trips(&sizes, &detached(9.0))), [true, true]);
        assert_eq!(holds(round_trips(&sizes, &detached(4.0))), [true, false]);
        let uneven = series(|it| if it == Kind::RingImmediate { 9.0 } else { 5.0 });
        assert!(!holds(round_trips(&sizes, &uneven))[0]);
        let rings = |without: f64| {
            series(|it| match it {
                Kind::RingWithoutZeroing => without,
                kind if posts_receives(&kind.to_string()) => 2.0,
                _ => 5.0,
            })
        };
        assert_eq!(holds(throughput(&sizes, &rings(6.0))), [true, true]);
        assert_eq!(holds(throughput(&sizes, &rings(1.0))), [false, false]);
        let bells = |it: Kind, inlined| if it == Kind::ReadRingInlined { inlined } else { 3.0 };
        let rings = |inlined| {
            let kinds = [Kind::ReadRingNotify, Kind::ReadRingDetached, Kind::ReadRingInlined];
            kinds.map(|it| Series { name: it.to_string(), values: vec![bells(it, inlined)] })
        };
        assert_eq!(holds(broadcast(&sizes, &rings(1.0))), [true, true]);
        assert_eq!(holds(broadcast(&sizes, &rings(4.0))), [false, false]);
        let rates = |with: [f64; 2]| {
            [[4.0, 4.0], with].map(|it| Series { name: String::new(), values: it.into() })
        };
        assert_eq!(holds(copies(&sizes, &rates([3.9, 3.0]))), [true, true]);
        assert_eq!(holds(copies(&sizes, &rates([4.1, 4.2]))), [false, false]);
        let times = |read: &[f64]| {
            let of = |kind: Kind, values: &[f64]| Series {
                name: format!("{kind}, 64 B"),
                values: values.into(),
            };
            [of(Kind::ReadRingInlined, read), of(Kind::RingWithoutZeroing, &[0.0, 1.0, 9.0, 2.0])]
        };
        assert_eq!(holds(distribution(&[], &times(&[0.0, 5.0, 1.0, 4.0, 0.0]))), [true, true]);
        assert_eq!(holds(distribution(&[], &times(&[0.0, 5.0, 4.0, 4.5, 0.0]))), [false, true]);
        let two = |of: f64| [of, 4.0].map(|it| Series { name: String::new(), values: vec![it] });
        assert!(
            prefetching(&sizes, &two(3.0))[0].holds && !prefetching(&sizes, &two(5.0))[0].holds
        );
        assert!(fan_in(&sizes, &two(3.0))[0].holds && !fan_in(&sizes, &two(1.0))[0].holds);
    }

    #[test]
    fn a_claim_fails_of_data_that_refutes_it_at_one_size_or_by_one_kind() {
        let sizes = [64, 1024];
        let of = |name: String, values: [f64; 2]| Series { name, values: values.into() };
        // Broadcasts: notified, detached, inlined.
        let broadcasts = |notify, detached, inlined| {
            let kinds = [Kind::ReadRingNotify, Kind::ReadRingDetached, Kind::ReadRingInlined];
            let series = kinds.into_iter().zip([notify, detached, inlined]);
            let series: Vec<_> = series.map(|(kind, it)| of(kind.to_string(), it)).collect();
            let [most, several] = &broadcast(&sizes, &series)[..] else { panic!("two claims") };
            [most.holds, several.holds]
        };
        assert_eq!(broadcasts([3.0, 3.0], [2.0, 2.0], [1.0, 1.0]), [true, true]);
        assert_eq!(broadcasts([3.0, 1.9], [2.0, 2.0], [1.0, 1.0]), [false, true]);
        assert_eq!(broadcasts([3.0, 3.0], [2.0, 0.9], [1.0, 1.0]), [true, false]);
        // One kind without receives is slower than one with them, at the small size.
        let rates = |slot: [f64; 2]| {
            let series = [
                (Kind::SendRecvNormal, [2.0, 2.0]),
                (Kind::RingImmediate, [2.1, 2.1]),
                (Kind::RingWithZeroing, [5.0, 5.0]),
                (Kind::RingWithoutZeroing, [5.0, 5.0]),
                (Kind::WriteSlotInlined, slot),
            ];
            let series = series.map(|(kind, it)| of(kind.to_string(), it));
            throughput(&sizes, &series)[1].holds
        };
        assert!(rates([3.0, 3.0]) && rates([3.0, 1.0]) && !rates([2.0, 3.0]));
        let prefetched = |with| {
            let series = [[4.0, 4.0], with].map(|it| of(String::new(), it));
            prefetching(&sizes, &series)[0].holds
        };
        assert!(prefetched([5.0, 4.1]) && !prefetched([5.0, 3.9]));
        let peaks = |second: &[f64]| {
            let two = [&[0.0, 5.0, 1.0, 4.0, 0.0][..], second];
            let series = |it: &[f64]| Series {
                name: format!("{}, 64 B", Kind::ReadRingInlined),
                values: it.into(),
            };
            distribution(&[], &two.map(series))[0].holds
        };
        assert!(peaks(&[0.0, 5.0, 1.0, 5.0, 0.0]) && !peaks(&[0.0, 5.0, 4.5, 5.0, 0.0]));
    }
}
