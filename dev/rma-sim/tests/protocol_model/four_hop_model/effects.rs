//! The events at the target, as an observer of both sides sees them. No host knows any of it.

use crate::four_hop_model::script::OPS_MAX;

/// The events at the region, as an omniscient observer sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Effects {
    /// One bit for each granule of each op that was copied.
    pub(crate) applied: [u8; OPS_MAX],
    /// A granule was copied a second time.
    pub(crate) twice: bool,
    /// Data of one op went where another op's belongs.
    pub(crate) astray: bool,
    /// Data was copied that had come under a key which is the region's no more.
    pub(crate) under_old_key: bool,
    /// A key that had been replaced came back.
    pub(crate) key_returned: bool,
    /// Data was copied after its op had been reported as failed.
    pub(crate) late: bool,
    /// The same, and it was not counted.
    pub(crate) late_in_silence: bool,
    /// The counter of late effects, as far as it matters.
    pub(crate) late_counted: bool,
    /// One bit for each key that was replaced.
    pub(crate) replaced: u8,
    /// The word right before each op that was applied.
    pub(crate) results: [u8; OPS_MAX],
    /// For how long yet the record of each op that was applied must be there: whoever has to ask
    /// relies on it.
    pub(crate) retained: [u8; OPS_MAX],
    /// A result was told that is not that of the op.
    pub(crate) wrong_result: bool,
    /// An op that was applied was forgotten, in the same life and before its time.
    pub(crate) forgotten_too_soon: bool,
    /// The same of an op that was not applied, which has no time.
    pub(crate) forgotten_unapplied: bool,
    /// An op found no post while one was held for which no data had come.
    pub(crate) refused_by_replays: bool,
}
