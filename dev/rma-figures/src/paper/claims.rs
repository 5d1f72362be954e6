//! A paper's claims about its figures, held against the points that there are here.
//!
//! A claim is over all values that its sentence is about, and against all that it names: it takes
//! the worst. No verdict is written by hand; only reasons for differences are, and each of them
//! names its claim and is refused once the claim holds.

use serde::Deserialize;

/// A statement of a paper, as a formula over points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    /// The figure's id and a word or two: `1rma-16a-no-jitter`.
    pub(crate) id: String,
    /// The statement.
    pub(crate) says: String,
    /// The paper's number; a dash if it has none.
    pub(crate) paper: String,
    /// The formula of the value.
    pub(crate) formula: String,
    /// The demand on the value.
    pub(crate) demand: String,
    /// The value here.
    pub(crate) value: f64,
    pub(crate) holds: bool,
    pub(crate) weight: Weight,
}

/// The weight of a claim in a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A number of the paper, or a bound.
    Number,
    /// An order or a direction.
    Shape,
    /// No claim of the paper but a theory's, which shows that the simulator is right.
    Theory,
    /// Nothing: a constant was fitted so that it holds.
    Fitted,
}

impl Claim {
    fn new(id: &str, says: &str, formula: &str, value: f64) -> Self {
        Self {
            id: id.to_owned(),
            says: says.to_owned(),
            paper: "–".to_owned(),
            formula: formula.to_owned(),
            demand: String::new(),
            value,
            holds: false,
            weight: Weight::Number,
        }
    }

    /// A number of the paper, of which ours may be off by the share `tolerance`.
    pub(crate) fn number(
        id: &str,
        says: &str,
        formula: &str,
        value: f64,
        paper: f64,
        tolerance: f64,
    ) -> Self {
        let holds = (value / paper - 1.0).abs() <= tolerance;
        let demand = format!("{paper} ± {} %", tolerance * 100.0);
        Self { paper: paper.to_string(), demand, holds, ..Self::new(id, says, formula, value) }
    }

    /// A value that is at most `bound`.
    pub(crate) fn at_most(id: &str, says: &str, formula: &str, value: f64, bound: f64) -> Self {
        let demand = format!("≤ {bound}");
        Self { demand, holds: value <= bound, ..Self::new(id, says, formula, value) }
    }

    /// A value that is at least `bound`.
    pub(crate) fn at_least(id: &str, says: &str, formula: &str, value: f64, bound: f64) -> Self {
        let demand = format!("≥ {bound}");
        Self { demand, holds: value >= bound, ..Self::new(id, says, formula, value) }
    }

    /// A value of which the paper says that it is from `low` to `high`, and ours may be off by the
    /// share `tolerance`.
    pub(crate) fn between(
        id: &str,
        says: &str,
        formula: &str,
        value: f64,
        [low, high]: [f64; 2],
        tolerance: f64,
    ) -> Self {
        let paper = format!("{low} to {high}");
        let demand = format!("{paper} ± {} %", tolerance * 100.0);
        let holds = value >= low * (1.0 - tolerance) && value <= high * (1.0 + tolerance);
        Self { paper, demand, holds, ..Self::new(id, says, formula, value) }
    }

    /// The same, with the paper's number as it writes it.
    pub(crate) fn paper(self, paper: &str) -> Self {
        Self { paper: paper.to_owned(), ..self }
    }

    /// The same, as a claim of order or direction.
    pub(crate) fn shape(self) -> Self {
        Self { weight: Weight::Shape, ..self }
    }

    /// The same, as a theory's.
    pub(crate) fn theory(self) -> Self {
        Self { weight: Weight::Theory, ..self }
    }

    /// The same, as something that a fitted constant decides.
    pub(crate) fn fitted(self) -> Self {
        Self { weight: Weight::Fitted, ..self }
    }
}

/// The least of `values`; not a number if there is none, or if one is none: then no claim holds.
pub(crate) fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    extreme(values, f64::min)
}

/// The greatest of `values`, as [`least`].
pub(crate) fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    extreme(values, f64::max)
}

fn extreme(values: impl IntoIterator<Item = f64>, of: fn(f64, f64) -> f64) -> f64 {
    let worst = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { of(a, b) };
    values.into_iter().reduce(worst).unwrap_or(f64::NAN)
}

/// A reviewed reason why a claim does not hold here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    pub(crate) claim: String,
    pub(crate) reason: String,
}

/// The judgement of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All claims hold.
    Agrees,
    /// The claims of order and direction hold, of which there is one at least.
    AgreesInShape,
    /// All claims that do not hold have a reason.
    DiffersExplained,
    /// A claim does not hold.
    Differs,
    /// There is no claim that counts, or no data.
    None,
}

impl Verdict {
    /// The verdict of `claims`.
    pub(crate) fn of(claims: &[Claim], differences: &[Difference]) -> Self {
        let counts = |it: &&Claim| it.weight != Weight::Fitted;
        let all = || claims.iter().filter(counts);
        let shapes = || all().filter(|it| it.weight == Weight::Shape);
        let is_explained = |it: &Claim| differences.iter().any(|why| why.claim == it.id);
        if all().next().is_none() {
            Self::None
        } else if all().all(|it| it.holds) {
            Self::Agrees
        } else if shapes().next().is_some() && shapes().all(|it| it.holds) {
            Self::AgreesInShape
        } else if all().all(|it| it.holds || is_explained(it)) {
            Self::DiffersExplained
        } else {
            Self::Differs
        }
    }

    /// The words of the page.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::AgreesInShape => "agrees in shape",
            Self::DiffersExplained => "differs, explained",
            Self::Differs => "differs",
            Self::None => "no verdict",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(value: f64) -> Claim {
        Claim::at_most("1rma-0-a", "it is small", "value", value, 1.0)
    }

    #[test]
    fn bounds_hold_at_the_bound_and_no_farther() {
        assert!(claim(1.0).holds && !claim(1.000_001).holds && !claim(f64::NAN).holds);
        let number = |value| Claim::number("a", "", "", value, 2.0, 0.15).holds;
        assert!(number(2.299) && number(1.701) && !number(2.301) && !number(1.69));
        assert!(!Claim::at_least("a", "", "", 0.99, 1.0).holds);
        assert!(least([]).is_nan() && most([1.0, f64::NAN, 2.0]).is_nan());
        assert!((most([1.0, 3.0, 2.0]) - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn verdicts_follow_from_claims_and_reasons() {
        let reason = Difference { claim: "1rma-0-a".to_owned(), reason: String::new() };
        let of = |claims: &[Claim], reasons: &[Difference]| Verdict::of(claims, reasons);
        assert_eq!(of(&[claim(0.0)], &[]), Verdict::Agrees);
        assert_eq!(of(&[claim(2.0)], &[]), Verdict::Differs);
        assert_eq!(of(&[claim(2.0)], &[reason]), Verdict::DiffersExplained);
        assert_eq!(of(&[claim(2.0), claim(0.0).shape()], &[]), Verdict::AgreesInShape);
        assert_eq!(of(&[claim(0.0), claim(2.0).shape()], &[]), Verdict::Differs);
        assert_eq!(of(&[claim(0.0).fitted()], &[]), Verdict::None);
        assert_eq!(of(&[claim(0.0), claim(2.0).fitted()], &[]), Verdict::Agrees);
        assert_eq!(of(&[], &[]), Verdict::None);
    }
}
