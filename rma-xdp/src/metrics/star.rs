//! What StaR counts, as data and as text.

use core::fmt::{self, Write};

use rma_star::counters::{Drop as StarDrop, Event as StarEvent, StarCounters};

use super::{
    ShardCells,
    display::Lines,
    prometheus::{COUNTER, Exposition},
};

/// The counters of StaR, of all engines together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StarTotals {
    /// Received frames that died, by reason.
    pub drops: Box<[(StarDrop, u64)]>,
    /// What else has happened, and how often.
    pub events: Box<[(StarEvent, u64)]>,
}

impl StarTotals {
    /// `None` if no engine serves StaR.
    pub(super) fn of(shards: &[ShardCells]) -> Option<Self> {
        let counters = || shards.iter().filter_map(|shard| shard.star.as_deref());
        counters().next()?;
        let sum = |count: &dyn Fn(&StarCounters) -> u64| counters().map(count).sum();
        Some(Self {
            drops: StarDrop::ALL.map(|reason| (reason, sum(&|it| it.drops(reason)))).into(),
            events: StarEvent::ALL.map(|event| (event, sum(&|it| it.events(event)))).into(),
        })
    }

    /// The lines for a person.
    pub(super) fn lines(&self, lines: &mut Lines<'_, '_>) -> fmt::Result {
        let events = self.events.iter().map(|(event, n)| (format!("{event:?}"), *n));
        lines.counts("StaR", events, "nothing yet")?;
        let drops = self.drops.iter().map(|(why, n)| (format!("{why:?}"), *n));
        lines.counts("dropped", drops, "nothing")
    }

    /// The text for scrapers.
    pub(super) fn prometheus(&self, text: &mut Exposition<'_, impl Write>) -> fmt::Result {
        let name = "rma_star_frames_dropped_total";
        text.family(COUNTER, name, "Frames for StaR that died, by reason.")?;
        for (reason, count) in &self.drops {
            text.sample(name, &[("reason", &format!("{reason:?}"))], *count)?;
        }
        let name = "rma_star_events_total";
        text.family(COUNTER, name, "What has happened in StaR, by event.")?;
        for (event, count) in &self.events {
            text.sample(name, &[("event", &format!("{event:?}"))], *count)?;
        }
        Ok(())
    }
}
