//! The shares of connections in the tables of work requests and of frames under way (P12, P13).
//!
//! Of work requests:
//!
//! | part | of the table | whose |
//! |---|---|---|
//! | shared out | a quarter | applications', in proportion to the connections that their portals may have |
//! | kept | two rows for each connection that there may be, half of the table at most | Z's, of each connection: the first SEND, WRITE or READ, and the first RECV |
//! | common | the rest | who comes first, if that leaves enough to others |
//!
//! Of the common part an application, and all RECVs of a peer, get no more than they leave free; a
//! peer gets at most twice as much as it leaves, so its RECVs, which nobody may ever send to, leave
//! room for its SENDs. A peer is an IPv4 address, or the /64 of an IPv6 address, however many
//! connections it has.
//!
//! So, with four rows for each connection: an application always finds what is shared out to it,
//! and of each connection one SEND, WRITE or READ of Z and one RECV always get in, whatever all
//! others do. One peer that never gets done leaves a third of the common part to others, and `n` of
//! them leave one in `2 n + 1`. Whoever has enough addresses leaves nothing of it, and everybody
//! goes on with what is kept. With fewer rows than four for each connection, what is kept is for
//! those that come first.
//!
//! (These are figures of peers that want all at once. One that comes when others have all that they
//! may have, and give nothing back, gets two thirds of what is left.)
//!
//! A portal that was given no share has its engine to itself: it may fill the common part.
//!
//! Of frames under way one row is kept for each connection, half of the table at most, and the rest
//! is common: a peer gets at most twice as much of that as it leaves. So what is sent to a peer
//! that has died, which stays until it has been sent often enough, holds up nobody else.

use core::ops::Range;

use rma_core::addr::HostAddr;

use super::{row_index::RowIndex, slab::Slab};

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

/// A peer that has connections.
#[derive(Debug)]
struct Peer {
    host_bits: u64,
    connections: u16,
    /// Its rows of the common part: for its sends, and for its RECVs.
    rows: [u16; 2],
    /// Frames to it that are under way, beyond those that are kept.
    frames: u16,
}

/// The rows of one queue of Z, or of a connection's frames.
#[derive(Clone, Copy, Debug, Default)]
struct OfQueue {
    rows: u16,
    /// Whether one of them is of those that are kept.
    has_kept: bool,
}

/// Z's share of the table for one connection: for its sends, and for its RECVs.
#[derive(Debug)]
pub(super) struct OfConnection {
    peer: u16,
    queues: [OfQueue; 2],
    /// The frames under way of it, whoever's work requests they are about.
    frames: OfQueue,
}

impl OfConnection {
    /// Whether it has nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.rows == 0)
    }
}

/// The shares of a table's rows.
#[derive(Debug)]
pub(super) struct Shares {
    /// How many are shared out, kept, and common.
    shared: u16,
    kept: u16,
    common: u16,
    /// How many connections there may be.
    connections: u32,
    /// The number of the first portal.
    first_portal: u16,
    portals: Box<[OfPortal]>,
    peers: Slab<Peer>,
    by_host_bits: RowIndex,
    /// Those of the kept and of the common ones that are in use.
    kept_used: u16,
    common_used: u16,
    frames: Frames,
}

/// The shares of the rows of the table of frames under way.
#[derive(Debug)]
struct Frames {
    kept: u16,
    common: u16,
    kept_used: u16,
    common_used: u16,
}

impl Frames {
    const fn common_left(&self) -> u16 {
        self.common - self.common_used
    }
}

impl Shares {
    /// Bytes that each connection takes.
    pub(super) const ENTRY_LEN: usize = Slab::<Peer>::ENTRY_LEN + RowIndex::ENTRY_LEN;

    /// Of tables of so many work requests and frames, on an engine that may be the stateful side of
    /// so many connections, for portals of these numbers.
    pub(super) fn new(
        capacity: u16,
        frames: u16,
        connections: u32,
        portals: Range<u16>,
        secret: u64,
    ) -> Self {
        let shared = capacity / 4;
        let kept = connections.saturating_mul(2).min(u32::from(capacity / 2)) as u16;
        let frames_kept = connections.min(u32::from(frames / 2)) as u16;
        Self {
            shared,
            kept,
            common: capacity - shared - kept,
            connections,
            first_portal: portals.start,
            portals: vec![OfPortal::default(); portals.len()].into(),
            peers: Slab::new(connections as usize),
            by_host_bits: RowIndex::new(connections as usize, secret),
            kept_used: 0,
            common_used: 0,
            frames: Frames {
                kept: frames_kept,
                common: frames - frames_kept,
                kept_used: 0,
                common_used: 0,
            },
        }
    }

    /// Bytes that this takes beside [`Shares::ENTRY_LEN`].
    pub(super) const fn memory(&self) -> usize {
        self.portals.len() * size_of::<OfPortal>()
    }

    /// How many rows are given to anybody.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        let shared: usize = self.portals.iter().map(|of| usize::from(of.rows.min(of.share))).sum();
        shared + usize::from(self.kept_used) + usize::from(self.common_used)
    }

    /// A connection to this peer begins. `None` if there are as many as there may be.
    pub(super) fn hold(&mut self, peer: HostAddr) -> Option<OfConnection> {
        let host_bits = peer.host_bits();
        let mut rows = self.by_host_bits.rows(host_bits);
        let known = rows.find(|&at| self.peers[at].host_bits == host_bits);
        drop(rows);
        let at = match known {
            Some(at) => at,
            None => {
                let peer = Peer { host_bits, connections: 0, rows: [0; 2], frames: 0 };
                let at = self.peers.insert(peer)?;
                self.by_host_bits.add(host_bits, at);
                at
            }
        };
        self.peers[at].connections += 1;
        Some(OfConnection { peer: at, queues: Default::default(), frames: OfQueue::default() })
    }

    /// A connection whose peer has nothing of the table any more is over.
    pub(super) fn release(&mut self, of: &OfConnection) {
        debug_assert!(of.is_empty() && of.frames.rows == 0, "all of it has ended");
        let peer = &mut self.peers[of.peer];
        peer.connections -= 1;
        if peer.connections == 0 {
            self.by_host_bits.remove(peer.host_bits, of.peer);
            let _ = self.peers.remove(of.peer);
        }
    }

    const fn common_left(&self) -> u16 {
        self.common - self.common_used
    }

    /// Gives Z one more row for a connection, if it may have one.
    #[must_use]
    pub(super) fn peer_takes(&mut self, of: &mut OfConnection, is_recv: bool) -> bool {
        let which = usize::from(is_recv);
        let (queue, left) = (&mut of.queues[which], self.common_left());
        let peer = &mut self.peers[of.peer];
        if queue.rows == 0 && self.kept_used < self.kept {
            self.kept_used += 1;
            queue.has_kept = true;
        } else {
            let all = peer.rows.iter().sum::<u16>();
            if all >= left.saturating_mul(2) || (is_recv && peer.rows[which] >= left) {
                return false;
            }
            self.common_used += 1;
            peer.rows[which] += 1;
        }
        queue.rows += 1;
        true
    }

    /// Z has one row less for a connection.
    pub(super) fn peer_gives(&mut self, of: &mut OfConnection, is_recv: bool) {
        let which = usize::from(is_recv);
        let queue = &mut of.queues[which];
        queue.rows -= 1;
        // A kept row is given back last.
        if queue.rows == 0 && core::mem::take(&mut queue.has_kept) {
            self.kept_used -= 1;
        } else {
            self.common_used -= 1;
            self.peers[of.peer].rows[which] -= 1;
        }
    }

    /// Whether another frame of a connection may be under way, if the table has room.
    #[inline]
    pub(super) fn may_send(&self, of: &OfConnection) -> bool {
        let frames = &self.frames;
        (of.frames.rows == 0 && frames.kept_used < frames.kept)
            || self.peers[of.peer].frames < frames.common_left().saturating_mul(2)
    }

    /// Whether there may be a connection that [may not](Shares::may_send): a peer has at least two
    /// thirds of what is common then.
    pub(super) const fn may_hold_back(&self) -> bool {
        self.frames.common_left() as u32 * 3 <= self.frames.common as u32
    }

    /// Another frame of a connection, which may be, is under way.
    #[inline]
    pub(super) fn sends(&mut self, of: &mut OfConnection) {
        let frames = &mut self.frames;
        if of.frames.rows == 0 && frames.kept_used < frames.kept {
            frames.kept_used += 1;
            of.frames.has_kept = true;
        } else {
            frames.common_used += 1;
            self.peers[of.peer].frames += 1;
        }
        of.frames.rows += 1;
    }

    /// A frame of a connection is under way no more.
    #[inline]
    pub(super) fn has_sent(&mut self, of: &mut OfConnection) {
        of.frames.rows -= 1;
        // A kept row is given back last.
        if of.frames.rows == 0 && core::mem::take(&mut of.frames.has_kept) {
            self.frames.kept_used -= 1;
        } else {
            self.frames.common_used -= 1;
            self.peers[of.peer].frames -= 1;
        }
    }

    fn index_of(&self, portal: u16) -> usize {
        portal.wrapping_sub(self.first_portal).into()
    }

    fn share_of(&self, stateful_max: u32) -> u16 {
        let part = u64::from(stateful_max.min(self.connections));
        let share = u64::from(self.shared) * part / u64::from(self.connections.max(1));
        share as u16
    }

    /// Gives so many more rows to a portal that may have `stateful_max` connections; none if it may
    /// not have them all.
    #[must_use]
    pub(super) fn takes(&mut self, portal: u16, stateful_max: u32, count: u16) -> bool {
        let index = self.index_of(portal);
        let Some(&before) = self.portals.get(index) else { return false };
        // Once it has rows it is known, and need not be divided out for each post.
        let share = if before.rows > 0 { before.share } else { self.share_of(stateful_max) };
        let Some(rows) = before.rows.checked_add(count) else { return false };
        let after = OfPortal { rows, share };
        let more = after.beyond() - before.beyond();
        let left = self.common_left();
        // The last of them is to leave as much as there are before it.
        let leaves_enough = || u32::from(after.beyond()) + u32::from(more) <= u32::from(left) + 1;
        let is_alone = stateful_max == u32::MAX;
        if more > left || (more > 0 && !is_alone && !leaves_enough()) {
            return false;
        }
        self.portals[index] = after;
        self.common_used += more;
        true
    }

    /// A portal has so many rows less.
    pub(super) fn gives(&mut self, portal: u16, count: u16) {
        let index = self.index_of(portal);
        let Some(of) = self.portals.get_mut(index) else { return };
        let before = of.beyond();
        of.rows -= count;
        self.common_used -= before - of.beyond();
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    const SECRET: u64 = 0x9e37_79b9_7f4a_7c15;
    const PORTALS: Range<u16> = 0..16;

    fn peer(number: u16) -> HostAddr {
        let [high, low] = number.to_be_bytes();
        [192, 0, high, low].into()
    }

    /// All that Z can get in for a connection.
    fn fill(shares: &mut Shares, of: &mut OfConnection, is_recv: bool) -> u16 {
        (0..).take_while(|_| shares.peer_takes(of, is_recv)).count() as u16
    }

    proptest! {
        /// Whatever others do, who has less than its share gets a row, and so does every queue of Z
        /// that has none, and there is one.
        #[test]
        fn a_peer_below_its_share_always_gets_a_row(
            capacity in 4_u16..200,
            maxima in prop::collection::vec(0_u32..10, 1..6),
            steps in prop::collection::vec(
                (0_usize..12, 0_u16..4, prop::bool::weighted(0.8), any::<bool>()), 0..600),
        ) {
            let connections = maxima.iter().sum::<u32>().max(6);
            let mut shares = Shares::new(capacity, 64, connections, PORTALS, SECRET);
            let mut rows = vec![0_u16; maxima.len()];
            let mut of: Vec<_> = (0..6).map(|it| shares.hold(peer(it / 2)).unwrap()).collect();
            let is_roomy = u32::from(capacity) >= 4 * connections;
            for (who, count, takes, is_recv) in steps {
                match (who, maxima.get(who), takes) {
                    (6.., ..) => {
                        let of = &mut of[who - 6];
                        let has = of.queues[usize::from(is_recv)].rows;
                        if takes {
                            let got = shares.peer_takes(of, is_recv);
                            prop_assert!(got || has > 0 || !is_roomy, "one is kept");
                        } else if has > 0 {
                            shares.peer_gives(of, is_recv);
                        }
                    }
                    (_, Some(&max), true) => {
                        let share = shares.share_of(max);
                        let is_taken = shares.takes(who as u16, max, count);
                        rows[who] += if is_taken { count } else { 0 };
                        prop_assert!(is_taken || rows[who] + count > share);
                    }
                    (_, Some(_), false) if rows[who] >= count => {
                        shares.gives(who as u16, count);
                        rows[who] -= count;
                    }
                    _ => {}
                }
                let of_z = |it: &OfConnection| it.queues.iter().map(|queue| queue.rows).sum::<u16>();
                let used = rows.iter().sum::<u16>() + of.iter().map(of_z).sum::<u16>();
                prop_assert!(used <= capacity, "{} of {}", used, capacity);
                prop_assert!(shares.common_used <= shares.common);
                prop_assert!(shares.kept_used <= shares.kept);
            }
            for of in &mut of {
                for is_recv in [false, true] {
                    (0..of.queues[usize::from(is_recv)].rows)
                        .for_each(|_| shares.peer_gives(of, is_recv));
                }
                shares.release(of);
            }
            for (portal, &rows) in rows.iter().enumerate() {
                shares.gives(portal as u16, rows);
            }
            prop_assert_eq!((shares.kept_used, shares.common_used, shares.peers.len()), (0, 0, 0));
        }
    }

    #[test]
    fn an_application_that_takes_all_it_can_leaves_half_of_what_is_common() {
        let mut shares = Shares::new(8192, 64, 1024, PORTALS, SECRET);
        let rows = (0..).take_while(|_| shares.takes(7, 64, 1)).count() as u16;
        assert_eq!(rows, 128 + 2048);
        assert!(shares.takes(8, 64, 1));
        shares.gives(8, 1);
        shares.gives(7, rows);
        assert_eq!(shares.common_used, 0);
        // As many at once as one by one, and not one more.
        assert!(!shares.takes(7, 64, rows + 1));
        assert!(shares.takes(7, 64, rows) && !shares.takes(7, 64, 1));
    }

    #[test]
    fn a_portal_that_is_alone_has_what_is_not_kept_for_others() {
        let mut shares = Shares::new(64, 64, 4, PORTALS, SECRET);
        assert!(shares.takes(0, u32::MAX, 56) && !shares.takes(0, u32::MAX, 1));
        let mut of = shares.hold(peer(1)).unwrap();
        assert!([false, true].map(|is_recv| shares.peer_takes(&mut of, is_recv)) == [true; 2]);
    }

    #[test]
    fn a_peer_has_no_more_for_having_many_connections_and_others_get_theirs() {
        let mut shares = Shares::new(8192, 64, 1024, PORTALS, SECRET);
        let mut hostile: Vec<_> = (0..500).map(|_| shares.hold(peer(1)).unwrap()).collect();
        let recvs: u16 = hostile.iter_mut().map(|of| fill(&mut shares, of, true)).sum();
        assert_eq!(recvs, 500 + 2048, "half of what is common, and what is kept");
        let sends: u16 = hostile.iter_mut().map(|of| fill(&mut shares, of, false)).sum();
        assert_eq!((sends, shares.common_left()), (500 + 683, 1365));
        let mut honest = shares.hold(peer(2)).unwrap();
        assert_eq!(fill(&mut shares, &mut honest, true), 1 + 683);
        assert!(shares.takes(3, 64, 128 + 341));
    }

    #[test]
    fn a_peer_with_many_addresses_leaves_everybody_the_kept_rows() {
        let mut shares = Shares::new(8192, 64, 1024, PORTALS, SECRET);
        for number in 0..1000 {
            let mut of = shares.hold(peer(number)).unwrap();
            let _ = [true, false].map(|is_recv| fill(&mut shares, &mut of, is_recv));
        }
        assert_eq!(shares.common_left(), 0);
        for number in 1000..1024 {
            let mut honest = shares.hold(peer(number)).unwrap();
            for is_recv in [true, false, true] {
                assert_eq!(fill(&mut shares, &mut honest, is_recv), 1);
                shares.peer_gives(&mut honest, is_recv);
            }
        }
        assert!(shares.takes(3, 64, 128) && !shares.takes(3, 64, 1));
        assert!(shares.hold(peer(2000)).is_none(), "there are no more connections");
    }

    /// All frames that may be under way of a connection.
    fn send(shares: &mut Shares, of: &mut OfConnection) -> u16 {
        let mut count = 0;
        while shares.may_send(of) {
            shares.sends(of);
            count += 1;
        }
        count
    }

    #[test]
    fn frames_to_peers_that_do_not_answer_leave_one_to_every_connection() {
        let mut shares = Shares::new(64, 4096, 1024, PORTALS, SECRET);
        assert!(!shares.may_hold_back());
        let mut dead: Vec<_> = (0..500).map(|_| shares.hold(peer(1)).unwrap()).collect();
        let sent: u16 = dead.iter_mut().map(|of| send(&mut shares, of)).sum();
        assert_eq!(sent, 500 + 2048, "two thirds of what is common, and what is kept");
        assert!(shares.may_hold_back());
        let mut alive = shares.hold(peer(2)).unwrap();
        assert_eq!(send(&mut shares, &mut alive), 1 + 683);
        let mut others: Vec<_> = (3..503).map(|it| shares.hold(peer(it)).unwrap()).collect();
        assert!(others.iter_mut().all(|of| send(&mut shares, of) >= 1));
        for of in dead.iter_mut().chain(&mut others).chain([&mut alive]) {
            (0..of.frames.rows).for_each(|_| shares.has_sent(of));
            shares.release(of);
        }
        let Frames { kept_used, common_used, .. } = shares.frames;
        assert_eq!((kept_used, common_used, shares.peers.len()), (0, 0, 0));
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let mut shares = Shares::new(64, 64, 4, PORTALS, SECRET);
        let address = |last| HostAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        let [one, same] = [1, 2].map(|last| shares.hold(address(last)).unwrap());
        let other = HostAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1));
        let other = shares.hold(other).unwrap();
        assert_eq!(one.peer, same.peer);
        assert_ne!(one.peer, other.peer);
    }
}
