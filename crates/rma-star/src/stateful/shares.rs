//! Whose the rows of the table of work requests may be (P12, P13).
//!
//! A quarter of the table is shared out: an application has of it what its portal has of the
//! connections that this host may be the stateful side of, and always finds that free. The rest is
//! for who comes first: peers, which have told of work requests, and applications that have more
//! than their share. There nobody gets all: a peer's connection no more than a quarter of the
//! table, an application no more than what it leaves to others. So whoever posts without end, or
//! never gets done, keeps no application of this host from posting. Peers are not told apart by
//! host yet: several connections of one, whose RECVs never complete, can keep out those of others.
//!
//! A portal that was given no share has its engine to itself, and may fill all.

use crate::names::Qpn;

/// The rows of one portal.
#[derive(Clone, Copy, Debug, Default)]
struct OfPortal {
    rows: u16,
    /// How many of the table it always may have; only while it has any.
    share: u16,
}

impl OfPortal {
    /// How many it has beyond its share.
    const fn beyond(self) -> u16 {
        self.rows.saturating_sub(self.share)
    }
}

/// How the rows of a table are shared.
#[derive(Debug)]
pub(super) struct Shares {
    capacity: u16,
    /// How many connections there may be.
    connections: u32,
    portals: Box<[OfPortal]>,
    /// Rows of peers, and of applications beyond their shares.
    common: u16,
}

impl Shares {
    /// Of a table of so many rows, on a host that may be the stateful side of so many connections.
    pub(super) fn new(capacity: u16, connections: u32) -> Self {
        let portals = vec![OfPortal::default(); Qpn::PORTALS as usize].into();
        Self { capacity, connections, portals, common: 0 }
    }

    /// Bytes that this takes.
    pub(super) const fn memory(&self) -> usize {
        self.portals.len() * size_of::<OfPortal>()
    }

    /// The part that is shared out.
    const fn quarter(&self) -> u16 {
        self.capacity / 4
    }

    /// How many more rows anybody may have beyond what is shared out.
    const fn common_left(&self) -> u16 {
        (self.capacity - self.quarter()).saturating_sub(self.common)
    }

    /// Whether a connection's peer, which has `rows` of it, may have one more.
    pub(super) fn admits_peer(&self, rows: u32) -> bool {
        rows < u32::from(self.quarter().max(1)) && self.common_left() > 0
    }

    /// Whether a portal may have one more, that may have `stateful_max` connections: all if it has
    /// the engine to itself.
    pub(super) fn admits(&self, portal: u16, stateful_max: u32) -> bool {
        let Some(of) = self.portals.get(usize::from(portal)) else { return false };
        // Once it has rows it is known, and need not be divided out for each post.
        let share = if of.rows > 0 { of.share } else { self.share_of(stateful_max) };
        stateful_max == u32::MAX || of.rows < share || of.rows - share < self.common_left()
    }

    fn share_of(&self, stateful_max: u32) -> u16 {
        let part = u64::from(stateful_max.min(self.connections));
        let share = u64::from(self.quarter()) * part / u64::from(self.connections.max(1));
        share as u16
    }

    /// A peer has one more row.
    pub(super) const fn peer_takes(&mut self) {
        self.common += 1;
    }

    /// A peer has one row less.
    pub(super) const fn peer_gives(&mut self) {
        self.common -= 1;
    }

    /// A portal has one more row.
    pub(super) fn takes(&mut self, portal: u16, stateful_max: u32) {
        let is_first = self.portals.get(usize::from(portal)).is_some_and(|of| of.rows == 0);
        let share = is_first.then(|| self.share_of(stateful_max));
        let Some(of) = self.portals.get_mut(usize::from(portal)) else { return };
        of.share = share.unwrap_or(of.share);
        let before = of.beyond();
        of.rows += 1;
        self.common += of.beyond() - before;
    }

    /// A portal has one row less.
    pub(super) fn gives(&mut self, portal: u16) {
        let Some(of) = self.portals.get_mut(usize::from(portal)) else { return };
        let before = of.beyond();
        of.rows -= 1;
        self.common -= before - of.beyond();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever others do, who has less than its share gets a row, and there is one.
        #[test]
        fn who_has_less_than_its_share_always_gets_a_row(
            capacity in 4_u16..200,
            maxima in prop::collection::vec(0_u32..20, 1..6),
            steps in prop::collection::vec((0_usize..8, prop::bool::weighted(0.8)), 0..600),
        ) {
            let connections = maxima.iter().sum::<u32>().max(1);
            let mut shares = Shares::new(capacity, connections);
            let mut rows = vec![0_u16; maxima.len()];
            let mut peers = [0_u32; 2];
            for (who, takes) in steps {
                match (maxima.get(who), takes) {
                    (Some(&max), true) if shares.admits(who as u16, max) => {
                        shares.takes(who as u16, max);
                        rows[who] += 1;
                    }
                    (Some(_), false) if rows[who] > 0 => {
                        shares.gives(who as u16);
                        rows[who] -= 1;
                    }
                    (None, true) if shares.admits_peer(peers[who % 2]) => {
                        shares.peer_takes();
                        peers[who % 2] += 1;
                    }
                    (None, false) if peers[who % 2] > 0 => {
                        shares.peer_gives();
                        peers[who % 2] -= 1;
                    }
                    _ => {}
                }
                let used = rows.iter().sum::<u16>() + peers.iter().sum::<u32>() as u16;
                prop_assert!(used <= capacity, "{} of {}", used, capacity);
                for (portal, &max) in maxima.iter().enumerate() {
                    let share = shares.share_of(max);
                    if rows[portal] < share {
                        prop_assert!(shares.admits(portal as u16, max) && used < capacity);
                    }
                }
            }
        }
    }

    #[test]
    fn one_that_takes_all_it_can_leaves_half_to_others() {
        let mut shares = Shares::new(4096, 1024);
        let mut rows = 0;
        while shares.admits(7, 64) {
            shares.takes(7, 64);
            rows += 1;
        }
        assert_eq!(rows, 64 + 1536);
        assert!(shares.admits(8, 64) && shares.admits_peer(0));
        (0..rows).for_each(|_| shares.gives(7));
        assert_eq!(shares.common, 0);
    }
}
