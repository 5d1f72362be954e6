//! The question that a service asks about each region of a request.

use core::time::Duration;

use rma_core::addr::HostAddr;

use crate::{name::RegionName, ops::OpSet, peer::Peer, policy::place::Place, time::WallTime};

/// The question to an [`Authorizer`]: may one client have one region?
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The peer that asks.
    pub peer: &'a Peer,
    /// The name of the region that is asked for.
    pub region: &'a RegionName,
    /// The types of op. All are allowed, or none.
    pub ops: OpSet,
    /// The address that the keys would be bound to. `None` asks whether any would do.
    pub initiator: Option<HostAddr>,
}

/// The answer of an [`Authorizer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// They may not be given.
    Denied,
    /// They may be given.
    Allowed {
        /// For how long from now, at most.
        lifetime: Duration,
        /// The rule that decided, for the audit log, if a policy did: the one without which it
        /// would be less.
        rule: Option<Place>,
    },
}

/// Decides who may have which region. Reads no clock: dates are compared with `now`.
pub trait Authorizer {
    /// Whether the keys that are asked for may be given, and for how long.
    fn decide(&self, ask: &Ask<'_>, now: WallTime) -> Decision;

    /// The longest that an epoch of `region` which begins now may last: as long as the shortest
    /// time for which any rule gives the region, so that no key outlives what allowed it.
    fn epoch_max(&self, region: &RegionName, now: WallTime) -> Duration;

    /// The next date at which somebody may not have `region` any longer, if there is one. Its key
    /// must not outlive that date, also if the wall clock is stepped toward it.
    fn lapses_at(&self, region: &RegionName, now: WallTime) -> Option<WallTime>;

    /// Whether the date decides anything about `region`, also one that is past by now: a wall clock
    /// that was ahead may be set back, and what had lapsed is allowed again.
    fn has_dates(&self, region: &RegionName) -> bool;
}
