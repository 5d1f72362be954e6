//! Explanations of a policy's decisions, for people.

use core::fmt;

use crate::policy::{ask::Decision, place::Place, rule::RuleVerdict};

/// A policy's decision, and the verdict of each of its rules. Shown as lines of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The decision of the policy.
    pub decision: Decision,
    /// The rule that refuses this identity or certificate whatever others say, if one does.
    pub refused: Option<Place>,
    /// The verdict of each rule that allows, in the order of the file.
    pub rules: Vec<RuleVerdict>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.decision, self.refused) {
            (Decision::Allowed { lifetime, rule }, _) => {
                f.write_str("allowed")?;
                rule.iter().try_for_each(|rule| write!(f, " by {rule}"))?;
                writeln!(f, " for {} s", lifetime.as_secs())?;
            }
            (Decision::Denied, Some(place)) => writeln!(f, "denied by {place}")?,
            (Decision::Denied, None) => {
                writeln!(f, "denied: no rule allows all ops that are asked for")?;
            }
        }
        self.rules.iter().try_for_each(|it| writeln!(f, "  {} {}", it.place, it.verdict))
    }
}
