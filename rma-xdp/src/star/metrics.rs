//! The metrics of StaR.

use rma_star::counters::{StarCounters, StarDrop, StarEvent};

/// The counters of StaR, of all engines together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StarTotals {
    /// Received frames that died, by reason.
    pub drops: Box<[(StarDrop, u64)]>,
    /// The counts of other events.
    pub events: Box<[(StarEvent, u64)]>,
}

impl StarTotals {
    /// Of the engines that serve StaR. `None` if there are none.
    pub(crate) fn of<'a>(engines: impl Iterator<Item = &'a StarCounters> + Clone) -> Option<Self> {
        engines.clone().next()?;
        let sum = |count: &dyn Fn(&StarCounters) -> u64| engines.clone().map(count).sum();
        Some(Self {
            drops: StarDrop::ALL.map(|reason| (reason, sum(&|it| it.drops(reason)))).into(),
            events: StarEvent::ALL.map(|event| (event, sum(&|it| it.events(event)))).into(),
        })
    }
}
