//! The services that stand beside 1RMA: the one list of them that engines and the driver work by.
//!
//! A service more is a part of [`Stacks`], has books of the driver's if applications get anything
//! of it, and is reached by the driver's questions past the others. What else is its own stands in
//! its own folder.

#[cfg(feature = "star")]
use rma_core::service::Both;
use rma_core::{one_rma::OneRma, region::RegionId, time::Instant};
#[cfg(feature = "star")]
use rma_star::service::Star;

#[cfg(feature = "star")]
use crate::star::books::StarBooks;

/// The services of an engine (StaR figure 6: stacks side by side).
#[cfg(feature = "star")]
pub(crate) type Stacks = Both<OneRma, Star>;
/// The service of an engine.
#[cfg(not(feature = "star"))]
pub(crate) type Stacks = OneRma;

/// An engine as the driver's questions see it.
pub(crate) struct Side<'a> {
    pub(crate) one_rma: &'a mut OneRma,
    #[cfg(feature = "star")]
    star: Option<(&'a mut Star, Instant)>,
}

/// The driver's books of each service, besides the accounts.
#[derive(Debug, Default)]
pub(crate) struct ServiceBooks {
    /// 1RMA's: regions that some NICs may have and others not, as an engine did not answer in time
    /// when they were registered or deregistered. They are to be deregistered.
    pub(crate) orphans: Vec<RegionId>,
    #[cfg(feature = "star")]
    pub(crate) star: StarBooks,
}

impl<'a> Side<'a> {
    /// Of an engine of these services, at this time.
    #[cfg(feature = "star")]
    pub(crate) fn new(stacks: &'a mut Stacks, now: Instant) -> Self {
        Self { one_rma: &mut stacks.first, star: stacks.second.as_mut().map(|it| (it, now)) }
    }

    /// Of an engine, at this time.
    #[cfg(not(feature = "star"))]
    pub(crate) const fn new(stacks: &'a mut Stacks, _: Instant) -> Self {
        Self { one_rma: stacks }
    }
}

/// The services beside 1RMA of an engine, as the driver's questions reach them.
pub(crate) trait Beside {
    /// StaR, if the engine serves it, and the engine's time.
    #[cfg(feature = "star")]
    fn star(&mut self) -> Option<(&mut Star, Instant)> {
        None
    }
}

impl Beside for Side<'_> {
    #[cfg(feature = "star")]
    fn star(&mut self) -> Option<(&mut Star, Instant)> {
        self.star.as_mut().map(|(star, now)| (&mut **star, *now))
    }
}
