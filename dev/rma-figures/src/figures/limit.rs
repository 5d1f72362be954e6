//! The limit that a figure must keep.

use core::fmt;

use serde::Serialize;

/// The bound of a figure, which itself is still within it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The figure is no larger.
    AtMost(f64),
    /// The figure is no smaller.
    AtLeast(f64),
}

impl Limit {
    /// Whether `value` is within the limit. What is not a finite number was not measured, and is
    /// within none.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Self::AtMost(limit) => value <= limit,
                Self::AtLeast(limit) => value >= limit,
            }
    }
}

impl fmt::Display for Limit {
    /// As the documentation says it: `at most 1.4`, `at least 200,000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, limit) = match self {
            Self::AtMost(limit) => ("at most", limit),
            Self::AtLeast(limit) => ("at least", limit),
        };
        let digits = limit.to_string();
        let whole = digits.split('.').next().unwrap_or_default().len();
        write!(f, "{words} ")?;
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && index < whole && (whole - index) % 3 == 0 {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_itself_holds_and_what_is_beyond_does_not() {
        let (most, least) = (Limit::AtMost(1.4), Limit::AtLeast(200_000.0));
        assert!(most.holds(1.4) && most.holds(0.0) && !most.holds(1.4001));
        assert!(least.holds(200_000.0) && least.holds(f64::MAX) && !least.holds(199_999.9));
    }

    #[test]
    fn a_number_that_is_not_finite_is_within_no_limit() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for limit in [Limit::AtMost(1.0), Limit::AtLeast(1.0)] {
                assert!(!limit.holds(value), "{value} {limit}");
            }
        }
    }

    #[test]
    fn limits_are_said_in_words_with_thousands_apart() {
        let said = [
            (Limit::AtMost(0.0), "at most 0"),
            (Limit::AtMost(1.4), "at most 1.4"),
            (Limit::AtLeast(0.75), "at least 0.75"),
            (Limit::AtLeast(999.0), "at least 999"),
            (Limit::AtLeast(200_000.0), "at least 200,000"),
            (Limit::AtLeast(1_234_567.5), "at least 1,234,567.5"),
        ];
        for (limit, words) in said {
            assert_eq!(limit.to_string(), words);
        }
    }
}
