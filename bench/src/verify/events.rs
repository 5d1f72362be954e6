//! The events that `rma-bench verify` reports while it runs: to people, or as lines of JSON to
//! programs, `cargo xtask vms` among them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::line;

/// The events that are reported while it runs, one line each.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event<'a> {
    /// The host is open.
    Open { device: String, fallbacks: Vec<String> },
    /// A round has ended, and every byte was right.
    Round(Round),
    /// Op after op fails. Said again each time that twice as many have.
    Failing { status: &'static str, failures: u32 },
    /// An op has succeeded again.
    Answered,
    /// There is another grant, and this is what the region held under it.
    Regranted { region: Found },
    /// The session was lost, and there is another, with these bytes to write to: the first, and the
    /// one after the last.
    Lane { area: [u64; 2] },
    /// The rounds have ended.
    Verified(&'a Totals),
    /// Somebody wants it to end, and the region is put back first.
    Restoring,
    /// Everything has ended.
    End {
        #[serde(flatten)]
        totals: &'a Totals,
        /// Whether the region is as it was before.
        restored: bool,
        /// The bytes that were written to: the first, and the one after the last.
        area: [u64; 2],
    },
}

/// The counts of a round.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Round {
    pub(super) round: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) bytes: u64,
    pub(super) compared: u64,
    /// Rotations of the region's key: its own, and those of the key service.
    pub(super) rekeys: u64,
}

/// The counts of all rounds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Totals {
    pub(super) rounds: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) bytes: u64,
    pub(super) compared: u64,
    pub(super) rekeys: u64,
    pub(super) regrants: u64,
    /// Ops that did not end with OK, by status. Each was issued again.
    pub(super) failed: BTreeMap<&'static str, u64>,
}

/// The content that a region had under a new grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Found {
    /// The content of before.
    Kept,
    /// The pattern of a fresh region.
    Fresh,
}

impl Event<'_> {
    /// Prints it: as a line of JSON, or as text for people.
    pub(super) fn say(&self, json: bool) {
        if json {
            return line!("{}", serde_json::to_string(self).expect("plain data"));
        }
        match self {
            Self::Open { .. } => {}
            Self::Round(Round { round, reads, writes, bytes, compared, .. }) => line!(
                "  round {round:4} {reads} reads, {writes} writes, {:.1} MB; {compared} bytes read back, every byte right",
                *bytes as f64 / 1e6
            ),
            Self::Failing { status, failures } => {
                line!("  failing    {failures} ops in a row ended with {status}; trying on");
            }
            Self::Answered => line!("  answered   ops succeed again"),
            Self::Regranted { region: Found::Kept } => {
                line!("  regranted  the grant is new; the region holds what it held");
            }
            Self::Regranted { region: Found::Fresh } => {
                line!("  regranted  the grant is new; the region is a fresh one");
            }
            Self::Lane { area: [first, end] } => {
                line!(
                    "  lane       there is a session again, and bytes {first} to {end} to write to"
                );
            }
            Self::Verified(totals) => {
                line!(
                    "\n  verified   {} reads and {} writes in {} rounds, {:.1} MB, every byte right; {} rotations, {} new \
                     grants",
                    totals.reads,
                    totals.writes,
                    totals.rounds,
                    totals.bytes as f64 / 1e6,
                    totals.rekeys,
                    totals.regrants
                );
                for (status, count) in &totals.failed {
                    line!("  failed     {count} ops with {status}, each issued again");
                }
            }
            Self::Restoring => {
                line!("  restoring  what was there before; once more Ctrl-C leaves it as it is");
            }
            Self::End { restored: true, .. } => line!("  restored   what was there before"),
            Self::End { restored: false, area: [first, end], .. } => line!(
                "  not restored: some of the region's bytes {first} to {end} may hold what was written last; `rma-bench serve` \
                 fills it anew when it is started again"
            ),
        }
    }
}
