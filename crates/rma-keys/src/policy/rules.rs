//! All rules together: what they decide.

use core::time::Duration;

use rma_core::op::OpType;

use crate::{
    identity::SpiffeId,
    limits::LIFETIME_MAX,
    name::RegionName,
    peer::Serial,
    policy::{
        ask::{Ask, Authorizer, Decision},
        explain::Explanation,
        file::{self, PolicyError},
        place::Place,
        rule::{Refusal, Rule, RuleVerdict},
    },
    time::WallTime,
};

/// Rules and refusals, in the order of their file.
#[derive(Clone, Debug)]
pub struct Policy {
    allow: Vec<Rule>,
    refuse: Vec<Refusal>,
}

impl Policy {
    /// Reads a policy from TOML.
    ///
    /// # Errors
    /// If it is none, with the place in the file, the field and the value. A file without any rule
    /// is refused as well, as it is most often one that is being written: what denies everything
    /// says `allow = []`.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let (allow, refuse) = file::parse(text)?;
        Ok(Self { allow, refuse })
    }

    /// The rules whose `until` is past: they allow nothing any longer. They are reported to people
    /// and are no error, because a service must start with the file that it has run with.
    pub fn lapsed(&self, now: WallTime) -> impl Iterator<Item = (Place, WallTime)> {
        let until =
            move |rule: &Rule| Some((rule.place, rule.until.filter(|&until| until <= now)?));
        self.allow.iter().filter_map(until)
    }

    /// Whether `next`, in place of this policy, takes anything away that this one gave of `region`.
    /// Then the region's key has to be rotated at once, to one that was never announced.
    ///
    /// A rule that is changed counts as one that is gone: this may say yes where nothing is lost,
    /// and never the other way round.
    #[must_use]
    pub fn withdraws(&self, next: &Self, region: &RegionName) -> bool {
        let mut of_region = self.allow.iter().filter(|rule| rule.is_about(region));
        let newly_refused = |rule: &Rule| {
            let is_new = |it: &&Refusal| !self.refuse.iter().any(|old| old.is_as(it));
            next.refuse.iter().filter(is_new).any(|it| rule.identity.matches_id(&it.identity))
        };
        of_region.any(|rule| !next.allow.iter().any(|it| it.is_as(rule)) || newly_refused(rule))
    }

    /// Explains a decision: the rule that decides, and the reason why each of the others does not.
    #[must_use]
    pub fn explain(&self, ask: &Ask<'_>, now: WallTime) -> Explanation {
        Explanation {
            decision: self.decide(ask, now),
            refused: self.refusal(&ask.peer.identity, &ask.peer.serial),
            rules: self.allow.iter().map(|rule| rule.verdict(ask, now)).collect(),
        }
    }

    fn refusal(&self, identity: &SpiffeId, serial: &Serial) -> Option<Place> {
        self.refuse.iter().find(|it| it.refuses(identity, serial)).map(|it| it.place)
    }
}

impl Authorizer for Policy {
    fn decide(&self, ask: &Ask<'_>, now: WallTime) -> Decision {
        let Ask { peer, ops, .. } = *ask;
        if ops.is_empty() || self.refusal(&peer.identity, &peer.serial).is_some() {
            return Decision::Denied;
        }
        let verdicts = self.allow.iter().map(|rule| rule.verdict(ask, now));
        // Of each op what the most generous rule gives it.
        let mut best = [None; OpType::ALL.len()];
        for (place, allowed, lifetime) in verdicts.filter_map(RuleVerdict::allowed) {
            for op_type in allowed.iter() {
                let best = &mut best[op_type as usize - 1];
                if best.is_none_or(|(most, _)| most < lifetime) {
                    *best = Some((lifetime, place));
                }
            }
        }
        // And of these the least.
        let of_ops: Option<Vec<_>> = ops.iter().map(|it| best[it as usize - 1]).collect();
        let least = of_ops.and_then(|it| it.into_iter().min_by_key(|&(lifetime, _)| lifetime));
        let allowed = |(lifetime, rule)| Decision::Allowed { lifetime, rule: Some(rule) };
        least.map_or(Decision::Denied, allowed)
    }

    fn epoch_max(&self, region: &RegionName, now: WallTime) -> Duration {
        let of_region = self.allow.iter().filter(|rule| rule.is_about(region));
        let lifetimes = of_region.map(|rule| rule.lifetime_at(now)).filter(|it| !it.is_zero());
        lifetimes.min().unwrap_or(LIFETIME_MAX)
    }

    fn lapses_at(&self, region: &RegionName, now: WallTime) -> Option<WallTime> {
        let of_region = self.allow.iter().filter(|rule| rule.is_about(region));
        of_region.filter_map(|rule| rule.until).filter(|&until| until > now).min()
    }

    fn has_dates(&self, region: &RegionName) -> bool {
        self.allow.iter().any(|rule| rule.is_about(region) && rule.until.is_some())
    }
}
