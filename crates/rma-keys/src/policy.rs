//! The policy: the identities that may have keys of regions, for which ops, from which addresses,
//! until when.
//!
//! Rules only allow, and what no rule allows is denied. So rules may overlap: a region, an op and a
//! client are given what the most generous rule gives, and one rule more never takes anything away.
//! Against all of them stand refusals, of an identity or of one of its certificates.
//!
//! A rule's `until` goes by the wall clock, looked at with each request; nothing else does. A rule
//! that is gone ends what was granted under it by rotation: [`Policy::withdraws`] says of which
//! regions.
//!
//! [`Authorizer`] is what a service asks; [`Policy`] is one, read from TOML, whose
//! fields are in `docs/KEYS.md`.

mod ask;
mod explain;
mod file;
mod pattern;
mod place;
mod rule;
mod rules;

pub use ask::{Ask, Authorizer, Decision};
pub use explain::Explanation;
pub use file::{Fault, PolicyError};
pub use pattern::PatternError;
pub use place::{Place, RuleKind};
pub use rule::{RuleVerdict, Verdict};
pub use rules::Policy;
