//! One rule, and what it says of what is asked.

use core::{fmt, time::Duration};

use ipnet::IpNet;
use rma_core::addr::HostAddr;

use crate::{
    identity::SpiffeId,
    name::RegionName,
    ops::OpSet,
    peer::Serial,
    policy::{ask::Ask, pattern::Pattern, place::Place},
    time::WallTime,
};

/// A rule that allows.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) place: Place,
    pub(super) region: Pattern,
    pub(super) identity: Pattern,
    pub(super) ops: OpSet,
    /// None: the connection's own address only.
    pub(super) initiators: Option<Vec<IpNet>>,
    pub(super) until: Option<WallTime>,
    pub(super) lifetime: Duration,
}

/// A rule that refuses whatever others allow.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) place: Place,
    pub(super) identity: SpiffeId,
    /// None: all certificates of that identity.
    pub(super) serial: Option<Serial>,
}

impl Refusal {
    /// Whether it refuses the same, wherever it stands.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        (&self.identity, &self.serial) == (&other.identity, &other.serial)
    }

    /// Whether it refuses the holder of this certificate.
    pub(super) fn refuses(&self, identity: &SpiffeId, serial: &Serial) -> bool {
        self.identity == *identity && self.serial.as_ref().is_none_or(|it| it == serial)
    }
}

/// The verdict of one rule on a question: whether it allows it, or the first thing that it does
/// not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It allows at least one of the ops.
    Allows {
        /// Those of the ops that are asked for.
        ops: OpSet,
        /// For how long from now, at most.
        lifetime: Duration,
    },
    /// It is about other regions.
    OtherRegion,
    /// It is about other identities.
    OtherIdentity,
    /// It is about other ops.
    OtherOps,
    /// It does not let keys be bound to this address.
    OtherInitiator {
        /// The address that is asked for.
        initiator: HostAddr,
    },
    /// Its `until` is past.
    Lapsed {
        /// Its date.
        until: WallTime,
    },
}

/// The verdict of one rule, with the rule's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleVerdict {
    /// The rule.
    pub place: Place,
    /// The verdict of the rule.
    pub verdict: Verdict,
}

impl RuleVerdict {
    /// The rule, the ops and the lifetime, if it allows any.
    pub(super) const fn allowed(self) -> Option<(Place, OpSet, Duration)> {
        match self.verdict {
            Verdict::Allows { ops, lifetime } => Some((self.place, ops, lifetime)),
            _ => None,
        }
    }
}

impl Rule {
    /// Whether it allows the same, wherever it stands.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.ops, it.until, it.lifetime);
        of(self) == of(other)
            && self.region == other.region
            && self.identity == other.identity
            && self.initiators == other.initiators
    }

    /// How long it gives a key from now: zero if its date is past.
    pub(super) fn lifetime_at(&self, now: WallTime) -> Duration {
        self.until.map_or(self.lifetime, |until| self.lifetime.min(now.until(until)))
    }

    /// Whether it is about this region.
    pub(super) fn is_about(&self, region: &RegionName) -> bool {
        self.region.matches(region)
    }

    /// Returns its verdict on `ask`.
    pub(super) fn verdict(&self, ask: &Ask<'_>, now: WallTime) -> RuleVerdict {
        let ops = self.ops.and(ask.ops);
        let stranger = ask.initiator.filter(|&it| !self.admits(it, ask.peer.address));
        let verdict = match (stranger, self.until.filter(|&until| until <= now)) {
            _ if !self.is_about(ask.region) => Verdict::OtherRegion,
            _ if !self.identity.matches_id(&ask.peer.identity) => Verdict::OtherIdentity,
            _ if ops.is_empty() => Verdict::OtherOps,
            (Some(initiator), _) => Verdict::OtherInitiator { initiator },
            (None, Some(until)) => Verdict::Lapsed { until },
            (None, None) => Verdict::Allows { ops, lifetime: self.lifetime_at(now) },
        };
        RuleVerdict { place: self.place, verdict }
    }

    //= 1rma#3.1-key-of-one-client
    //= type=deviation
    /// Whether keys may be bound to `initiator`, if they are asked for from `own`.
    ///
    /// An address is a claim, and whoever claims another's gets that process's very key: hence only
    /// the connection's own address, or those that the rule lists.
    fn admits(&self, initiator: HostAddr, own: HostAddr) -> bool {
        match &self.initiators {
            None => initiator == own,
            Some(nets) => nets.iter().any(|net| net.contains(&initiator.ip())),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allows { ops, lifetime } => {
                write!(f, "allows {ops} for {} s", lifetime.as_secs())
            }
            Self::OtherRegion => f.write_str("is about other regions"),
            Self::OtherIdentity => f.write_str("is about other identities"),
            Self::OtherOps => f.write_str("is about other ops"),
            Self::OtherInitiator { initiator } => {
                write!(f, "does not let keys be bound to {initiator}")
            }
            Self::Lapsed { until } => write!(f, "ended at {until}"),
        }
    }
}
