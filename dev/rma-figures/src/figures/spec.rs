//! The description of a figure before it is measured, and its value after.
//!
//! Below the table and the measurements: the table names the measurements, which give their values
//! by these types.

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::limit::Limit;

/// A measurement, and the figures that come out of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Benchmark {
    /// Measures all of them at once.
    pub(super) run: fn(&Interrupt) -> Result<Vec<Measured>, PairError>,
    /// The figures that it gives.
    pub(super) figures: &'static [Spec],
}

/// The description of a figure before it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) limit: Option<Limit>,
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
    /// Of which figure: one of those that the table says come out of this measurement.
    pub(super) name: &'static str,
    pub(super) value: f64,
    /// Under which conditions, and what it is made of.
    pub(super) detail: String,
}

impl Spec {
    pub(super) const fn new(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, limit: None, noisy: true, needs: None }
    }

    pub(super) const fn at_most(self, limit: f64) -> Self {
        Self { limit: Some(Limit::AtMost(limit)), ..self }
    }

    pub(super) const fn at_least(self, limit: f64) -> Self {
        Self { limit: Some(Limit::AtLeast(limit)), ..self }
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
