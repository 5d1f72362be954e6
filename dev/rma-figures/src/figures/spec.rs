//! The row of a figure, and the values that a measurement gives.
//!
//! Below the table and the measurements: the table names the measurements, which give their values
//! by these types. A figure's name stands in its row alone: a measurement gives its values in the
//! order of the rows.

use super::limit::Limit;

/// The description of a figure before it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// The bound that it keeps on every x86-64 server.
    pub(super) limit: Option<Limit>,
    /// The bound that it should keep. To miss it is no failure.
    pub(super) goal: Option<Limit>,
    /// Whether it is measured if nobody names it.
    pub(super) by_default: bool,
    /// Whether a busy machine can take the figure beyond its limit. If not, every measurement of it
    /// counts.
    pub(super) noisy: bool,
    /// The requirement that not every build or processor meets, in words. Only such a figure may be
    /// missing from what its measurement gives, and then it says that it did not run.
    pub(super) needs: Option<&'static str>,
}

/// A figure's value, as its measurement gives it.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) value: f64,
    /// Under which conditions, and what it is made of.
    pub(super) detail: String,
}

impl Measured {
    pub(super) fn new(value: f64, detail: impl Into<String>) -> Self {
        Self { value, detail: detail.into() }
    }
}

impl Spec {
    pub(super) const fn new(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, limit: None, goal: None, by_default: true, noisy: true, needs: None }
    }

    pub(super) const fn at_most(self, limit: f64) -> Self {
        Self { limit: Some(Limit::AtMost(limit)), ..self }
    }

    pub(super) const fn at_least(self, limit: f64) -> Self {
        Self { limit: Some(Limit::AtLeast(limit)), ..self }
    }

    pub(super) const fn goal_at_most(self, goal: f64) -> Self {
        Self { goal: Some(Limit::AtMost(goal)), ..self }
    }

    pub(super) const fn goal_at_least(self, goal: f64) -> Self {
        Self { goal: Some(Limit::AtLeast(goal)), ..self }
    }

    /// Measured by name or with all others only.
    pub(super) const fn by_name(self) -> Self {
        Self { by_default: false, ..self }
    }

    /// Not every build and every processor has it.
    pub(super) const fn needs(self, what: &'static str) -> Self {
        Self { needs: Some(what), ..self }
    }

    /// Noise is no excuse.
    pub(super) const fn always(self) -> Self {
        Self { noisy: false, ..self }
    }
}
