//! What the paper says of its figures, held against what was measured here.

use rma_xdp::channel::Kind;

/// One curve: a value for each size, in the order of sizes; not a number where there is none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) values: Vec<f64>,
}

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

pub(super) fn throughput(sizes: &[u32], measured: &[Series]) -> Vec<Claim> {
    let ratios = over(measured, Kind::RingWithoutZeroing, Kind::RingWithZeroing);
    let zeroing = least(&ratios);
    let small: Vec<usize> = (0..sizes.len()).filter(|&index| sizes[index] <= 64).collect();
    let at = |kind, index: usize| of(measured, kind)[index];
    let receives = small.iter().flat_map(|&index| {
        [Kind::SendRecvNormal, Kind::RingImmediate]
            .map(|kind| at(kind, index) / at(Kind::RingWithoutZeroing, index))
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
            because: format!("{receives:.2} times that of the ring without zeroing at most"),
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
    let notify = most(&over(measured, Kind::ReadRingNotify, Kind::ReadRingInlined));
    let detached = over(measured, Kind::ReadRingDetached, Kind::ReadRingInlined);
    // Of which one READ brings several.
    let small = detached.into_iter().zip(sizes).filter(|&(_, &size)| size <= 2048);
    let detached = least(&small.map(|(ratio, _)| ratio).collect::<Vec<_>>());
    vec![
        Claim {
            says: "receivers that are notified get the most, as they do not look for bells",
            holds: notify > 1.0,
            because: format!("{notify:.2} times what they get by inlined bells at most"),
        },
        Claim {
            says: "by a detached bell receivers get more than by inlined ones, several messages at once",
            holds: detached > 1.0,
            because: format!("{detached:.2} times as much at least"),
        },
    ]
}

pub(super) fn prefetching(_: &[u32], measured: &[Series]) -> Vec<Claim> {
    let [none, .., all] = measured else { return Vec::new() };
    let ratios = all.values.iter().zip(&none.values).map(|(of, to)| of / to);
    let ratio = most(&ratios.collect::<Vec<_>>());
    vec![Claim {
        says: "prefetching lets a receiver read several records at once",
        holds: ratio > 1.0,
        because: format!("{ratio:.2} times as much at most"),
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
                Kind::RingWithZeroing => 5.0,
                _ => 2.0,
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
        let two = |of: f64| [of, 4.0].map(|it| Series { name: String::new(), values: vec![it] });
        assert!(
            prefetching(&sizes, &two(3.0))[0].holds && !prefetching(&sizes, &two(5.0))[0].holds
        );
        assert!(fan_in(&sizes, &two(3.0))[0].holds && !fan_in(&sizes, &two(1.0))[0].holds);
    }
}
