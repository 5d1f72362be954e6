//! A row of the table: figures and the measurement that gives them.

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::{
    alone::Alone,
    spec::{Measured, Spec},
    turns::Turns,
};

/// A measurement, and the figures that come out of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Benchmark {
    /// One latency over another, of exchanges one at a time.
    Alone(Spec, Alone),
    /// A rate or a time, in turns with what it is compared with.
    Turns(Spec, Turns),
    /// Whatever else gives figures together.
    Own(fn(&Interrupt) -> Result<Vec<Measured>, PairError>, &'static [Spec]),
}

impl Benchmark {
    /// The figures that it gives.
    pub(super) const fn figures(&self) -> &[Spec] {
        match self {
            Self::Alone(spec, _) | Self::Turns(spec, _) => core::slice::from_ref(spec),
            Self::Own(_, figures) => figures,
        }
    }

    /// Measures all of them at once. Values come in the order of the figures; at the end those are
    /// missing whose needs are not met.
    pub(super) fn run(&self, interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
        match self {
            Self::Alone(_, alone) => Ok(vec![alone.measure(interrupt)?]),
            Self::Turns(_, turns) => Ok(vec![turns.measure(interrupt)?]),
            Self::Own(run, _) => run(interrupt),
        }
    }
}
