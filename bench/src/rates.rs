//! Rates that are measured in turns: what is compared runs alternately, in short rounds.
//!
//! A round that the scheduler spoiled spoils one value of many, so medians are quoted; and a ratio
//! is taken within each round, so that a machine whose speed drifts drifts under both. A round in
//! which something was not what it should be, such as a floor that lost frames, counts for nothing
//! ([`PairError::SpoiledRound`]): it is made again, which is told on standard error.

use crate::{error::PairError, interrupt::Interrupt};

/// Measures a rate, or something else, once, on what all that take turns share.
pub type Measure<'a, S> = dyn FnMut(&mut S) -> Result<f64, PairError> + 'a;

/// The rates of one kind, in the order in which they were measured.
#[derive(Clone, Debug, Default)]
pub struct Rates(Vec<f64>);

impl Rates {
    /// The middle one; not a number if there is none.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// In how many rounds they were measured.
    #[must_use]
    pub const fn rounds(&self) -> usize {
        self.0.len()
    }

    /// The lowest and the highest.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        let fold = |of: fn(f64, f64) -> f64| self.0.iter().copied().fold(f64::NAN, of);
        (fold(f64::min), fold(f64::max))
    }

    /// The rates, in the order in which they were measured.
    #[must_use]
    pub fn all(&self) -> &[f64] {
        &self.0
    }

    /// Applies `of` to the rate of each round.
    #[must_use]
    pub fn map(&self, of: impl Fn(f64) -> f64) -> Self {
        self.0.iter().copied().map(of).collect()
    }

    /// The sums with `other`, round by round.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.0.iter().zip(&other.0).map(|(one, other)| one + other).collect()
    }

    /// The median of the ratios to `other`, round by round.
    #[must_use]
    pub fn over(&self, other: &Self) -> f64 {
        self.over_each(other).median()
    }

    /// The ratios to `other`, round by round.
    #[must_use]
    pub fn over_each(&self, other: &Self) -> Self {
        self.0.iter().zip(&other.0).map(|(of, to)| of / to).collect()
    }
}

impl FromIterator<f64> for Rates {
    fn from_iter<I: IntoIterator<Item = f64>>(rates: I) -> Self {
        Self(rates.into_iter().collect())
    }
}

/// Lets each of `measures` measure once in each of `rounds` rounds, one after the other, on
/// `shared`: a pair of hosts, for example. Of a round that one of them finds spoiled nothing is
/// kept, and it is made again: as many in all as there are rounds.
///
/// # Errors
/// The error that a measure returns; if not even every second round counts; on Ctrl-C.
pub fn in_turns<S, const N: usize>(
    shared: &mut S,
    mut measures: [&mut Measure<'_, S>; N],
    rounds: u64,
    interrupt: &Interrupt,
) -> Result<[Rates; N], PairError> {
    let mut all = core::array::from_fn(|_| Rates::default());
    let (mut spoiled, mut again) = (None, 0);
    while (all.first().map_or(0, Rates::rounds) as u64) < rounds && again <= rounds {
        let mut round = || {
            let mut rates = [0.0; N];
            for (measure, rate) in measures.iter_mut().zip(&mut rates) {
                if interrupt.is_set() {
                    return Err(PairError::Interrupted);
                }
                *rate = measure(shared)?;
            }
            Ok(rates)
        };
        match round() {
            Ok(rates) => all.iter_mut().zip(rates).for_each(|(all, rate)| all.0.push(rate)),
            Err(PairError::SpoiledRound(why)) => {
                again += 1;
                tell_again(&why);
                spoiled = Some(why);
            }
            Err(error) => return Err(error),
        }
    }
    let counted = all.first().map_or(0, Rates::rounds);
    match spoiled {
        Some(why) if counted as u64 * 2 <= rounds => {
            Err(PairError::SpoiledRounds { counted, rounds, why })
        }
        _ => Ok(all),
    }
}

/// Measures `rounds` times what `open` opens. It is opened anew for a round that was spoiled, which
/// is made again: as many in all as there are rounds. So there may be fewer, and none.
///
/// # Errors
/// The error that `open` or `measure` returns.
pub fn rounds_of<T, V>(
    rounds: u64,
    mut open: impl FnMut() -> Result<T, PairError>,
    mut measure: impl FnMut(&mut T) -> Result<V, PairError>,
) -> Result<Vec<V>, PairError> {
    let (mut opened, mut values, mut again) = (None, Vec::new(), 0);
    while (values.len() as u64) < rounds && again <= rounds {
        let mut what = match opened.take() {
            Some(what) => what,
            None => open()?,
        };
        match measure(&mut what) {
            Ok(value) => {
                values.push(value);
                opened = Some(what);
            }
            Err(PairError::SpoiledRound(why)) => {
                again += 1;
                tell_again(&why);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(values)
}

/// Tells people of a round that is made again. Not on standard output, which has results.
pub(crate) fn tell_again(why: &str) {
    eprintln!("a round is made again: {why}");
}

/// The middle one; of an even number, the mean of the two in the middle; not a number if any is
/// none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    values.sort_by(f64::total_cmp);
    let (low, high) = ((values.len() - 1) / 2, values.len() / 2);
    f64::midpoint(values[low], values[high])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compared_measurements_take_turns() {
        let mut order = String::new();
        let mut next = 0.0;
        let mut first = |order: &mut String| {
            order.push('a');
            next += 1.0;
            Ok(next)
        };
        let mut second = |order: &mut String| {
            order.push('b');
            Ok(2.0)
        };
        let uninterrupted = Interrupt::default();
        let [a, b] = in_turns(&mut order, [&mut first, &mut second], 5, &uninterrupted).unwrap();
        assert_eq!(order, "ababababab");
        assert_eq!((a.median(), a.range(), b.median()), (3.0, (1.0, 5.0), 2.0));
        assert_eq!(a.over(&b), 1.5);
    }

    #[test]
    fn the_median_favours_neither_side_and_hides_nothing() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
        for nan in [f64::NAN, -f64::NAN] {
            assert!(median(vec![1.0, nan, 2.0]).is_nan());
        }
    }

    #[test]
    fn of_a_spoiled_round_nothing_is_kept() {
        let in_turns = |spoiled: &[u64]| {
            let (mut first, mut round) = (0.0, 0);
            let mut always = |(): &mut ()| {
                first += 1.0;
                Ok(first)
            };
            let mut sometimes = |(): &mut ()| {
                round += 1;
                if spoiled.contains(&round) {
                    return Err(PairError::SpoiledRound(format!("round {round} lost a frame")));
                }
                Ok(10.0 * round as f64)
            };
            in_turns(&mut (), [&mut always, &mut sometimes], 5, &Interrupt::default())
        };
        let [a, b] = in_turns(&[2, 5]).unwrap();
        let (five, others) = (vec![1.0, 3.0, 4.0, 6.0, 7.0], vec![10.0, 30.0, 40.0, 60.0, 70.0]);
        assert_eq!((a.0, b.0), (five, others), "they are made again");
        let error = in_turns(&[1, 2, 4, 5, 6, 7]).unwrap_err().to_string();
        assert!(error.starts_with("only 1 of 5 rounds count"), "{error}");
        assert!(error.contains("round 7 lost a frame"), "{error}");
    }

    #[test]
    fn a_round_that_broke_what_it_measured_is_made_again_with_another() {
        let (mut opened, mut measured) = (0, 0.0);
        let open = || {
            opened += 1;
            Ok(opened)
        };
        let measure = |_: &mut i32| {
            measured += 1.0;
            if measured == 2.0 {
                return Err(PairError::SpoiledRound("the channel is broken".to_owned()));
            }
            Ok(measured)
        };
        assert_eq!(rounds_of(3, open, measure).unwrap(), [1.0, 3.0, 4.0]);
        assert_eq!(opened, 2);
        let broken = |_: &mut i32| Err::<f64, _>(PairError::SpoiledRound("always".to_owned()));
        let none = rounds_of(3, || Ok(0), broken).unwrap();
        assert!(none.is_empty(), "the others are not lost");
    }

    #[test]
    fn a_machine_that_slows_down_does_not_change_the_ratio() {
        let fast_and_slow = [Rates(vec![8.0, 8.0, 4.0]), Rates(vec![2.0, 2.0, 1.0])];
        assert_eq!(fast_and_slow[0].over(&fast_and_slow[1]), 4.0);
    }

    #[test]
    fn without_a_measurement_there_is_no_number() {
        assert!(Rates::default().median().is_nan() && Rates::default().range().0.is_nan());
    }
}
