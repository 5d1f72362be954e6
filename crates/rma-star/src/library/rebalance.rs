//! Gives connections away at run time, if that is asked for (§III-E2: watch the number of
//! connections, and change roles).
//!
//! A host that is the stateful side of more connections than its threshold asks the peers of some
//! to be that instead; a peer agrees if it is below half of its own. So the two never give the same
//! connection to and fro: who has taken one is far from its threshold.

use rma_core::time::Instant;

use super::{GIVEN_AT_A_TIME, Verbs, negotiate::Part, qp::Phase};
use crate::{names::Side, portal::QpRecord};

/// How long a connection keeps its roles at least, in nanoseconds.
const KEEPS_ROLES: u64 = 10_000_000_000;

/// Queue pairs that are looked at in one call.
const LOOKS: u32 = 64;

impl Verbs {
    /// Asks for changes of roles, if this host has too many connections.
    pub(super) fn rebalance(&mut self, now: Instant) {
        let load = self.load();
        if !self.config.rebalances || !load.is_above() {
            return;
        }
        let rows = &self.rows;
        self.giving.retain(|index| rows[*index as usize].is_switching());
        let most = GIVEN_AT_A_TIME.min((load.connections - load.threshold) as usize);
        for _ in 0..LOOKS.min(self.rows.len() as u32) {
            if self.giving.len() >= most {
                return;
            }
            let index = self.next_look;
            self.next_look = (index + 1) % self.rows.len() as u32;
            let row = &self.rows[index as usize];
            let may = row.part() == Part::Of(Side::Stateful)
                && matches!(row.phase, Phase::Ready { .. })
                && !row.is_switching()
                && self.has_kept_roles(now, index);
            if may && self.ask_for_switch(index, true) {
                self.note_roles(now, index);
                self.giving.push(index);
            }
        }
    }

    fn has_kept_roles(&self, now: Instant, index: u32) -> bool {
        match self.record(index).z_clock {
            0 => true,
            since => now.as_nanos().saturating_sub(since) >= KEEPS_ROLES,
        }
    }

    /// The roles of a connection have changed, or were to.
    pub(super) fn note_roles(&mut self, now: Instant, index: u32) {
        let record = self.record(index);
        self.portal.set_record(index, &QpRecord { z_clock: now.as_nanos().max(1), ..record });
    }
}
