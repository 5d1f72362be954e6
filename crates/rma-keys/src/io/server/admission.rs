//! Admission of new connections, and the choice of those that make room.
//!
//! A handshake costs a service more than it costs a stranger, and one that says nothing costs a
//! stranger nothing at all. So places among the handshakes are few, those of one address fewer, and
//! whoever has said nothing for a while goes first. An open connection is kept for a client's next
//! request; where there is no place left, the one that has rested for longest makes room, as its
//! client can come back, and whoever was never served cannot wait for that. Without I/O: time is an
//! argument.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use rma_core::{addr::HostAddr, time::Instant};

use crate::io::server::reason::EndReason;

/// The room that connections may take up.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Connections, handshakes with them. Default: 16,384.
    pub connections: usize,
    /// Those of one address. Default: 1,024. More, and few hosts can keep all others out; fewer,
    /// and a host with more applications, or a network behind one address, is turned away.
    pub connections_of_address: usize,
    /// Handshakes under way. Default: 512.
    pub handshakes: usize,
    /// Handshakes under way of one address. Default: 32.
    pub handshakes_of_address: usize,
    /// How long a connection may take to say who it would talk to before its place is given away to
    /// another. Default: 250 ms.
    pub silence: Duration,
    /// For how long an open connection has asked nothing when its place may be given away, where
    /// there is none left. Default: 1 s. Longer, and new clients wait for it; shorter, and clients
    /// that ask now and then take turns at handshakes.
    pub rest: Duration,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_of_address: 1_024,
            handshakes: 512,
            handshakes_of_address: 32,
            silence: Duration::from_millis(250),
            rest: Duration::from_secs(1),
        }
    }
}

/// The connections that have a place.
#[derive(Debug)]
pub(super) struct Admission {
    places: Places,
    members: BTreeMap<u64, Member>,
    handshakes: usize,
    of_address: BTreeMap<HostAddr, OfAddress>,
    /// The connections that have said nothing yet, the oldest first.
    silent: BTreeSet<(Instant, u64)>,
    /// The open connections, by when it was last answered.
    resting: BTreeSet<(Instant, u64)>,
}

/// A connection that has a place.
#[derive(Clone, Copy, Debug)]
struct Member {
    address: HostAddr,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// It has said nothing since then.
    Silent(Instant),
    Handshake,
    /// It was last answered then, or has been open since.
    Open(Instant),
}

/// The connections of one address.
#[derive(Clone, Copy, Debug, Default)]
struct OfAddress {
    connections: usize,
    handshakes: usize,
}

/// The verdict on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It gets a place.
    Admit,
    /// It gets the place of this one, which must be closed for this reason.
    InPlaceOf(u64, EndReason),
    /// It is closed at once.
    Refuse(EndReason),
}

impl Admission {
    pub(super) const fn new(places: Places) -> Self {
        Self {
            places,
            members: BTreeMap::new(),
            handshakes: 0,
            of_address: BTreeMap::new(),
            silent: BTreeSet::new(),
            resting: BTreeSet::new(),
        }
    }

    /// Whether a connection from `address` may stay.
    pub(super) fn judge(&self, now: Instant, address: HostAddr) -> Verdict {
        let of_address = self.of_address.get(&address).copied().unwrap_or_default();
        let own = Some(address);
        let (only, reason, is_of_open) =
            if of_address.handshakes >= self.places.handshakes_of_address {
                (own, EndReason::HandshakesOfAddress, false)
            } else if of_address.connections >= self.places.connections_of_address {
                (own, EndReason::ConnectionsOfAddress, true)
            } else if self.handshakes >= self.places.handshakes {
                (None, EndReason::HandshakesFull, false)
            } else if self.members.len() >= self.places.connections {
                (None, EndReason::ConnectionsFull, true)
            } else {
                return Verdict::Admit;
            };
        let silent = self.silent(now, only).map(|key| (key, EndReason::Silent));
        let resting = || self.oldest(&self.resting, now, self.places.rest, only);
        let place = silent.or_else(|| {
            let key = is_of_open.then(resting)??;
            Some((key, EndReason::Replaced))
        });
        place.map_or(Verdict::Refuse(reason), |(key, why)| Verdict::InPlaceOf(key, why))
    }

    /// Returns the connection that has been silent longest, if for long enough; `only` of this
    /// address.
    pub(super) fn silent(&self, now: Instant, only: Option<HostAddr>) -> Option<u64> {
        self.oldest(&self.silent, now, self.places.silence, only)
    }

    fn oldest(
        &self,
        of: &BTreeSet<(Instant, u64)>,
        now: Instant,
        least: Duration,
        only: Option<HostAddr>,
    ) -> Option<u64> {
        let old = of.iter().take_while(|(since, _)| now.since(*since) >= least);
        let is_its = |key: &u64| only.is_none_or(|only| self.members[key].address == only);
        old.map(|&(_, key)| key).find(is_its)
    }

    /// A connection has been admitted.
    pub(super) fn enter(&mut self, now: Instant, key: u64, address: HostAddr) {
        self.handshakes += 1;
        let of_address = self.of_address.entry(address).or_default();
        of_address.connections += 1;
        of_address.handshakes += 1;
        self.silent.insert((now, key));
        self.members.insert(key, Member { address, stage: Stage::Silent(now) });
    }

    /// A connection has said something.
    pub(super) fn speaks(&mut self, key: u64) {
        self.go_on(key, Stage::Handshake);
    }

    /// A connection's handshake has ended well, or a message of it was answered.
    pub(super) fn rests(&mut self, now: Instant, key: u64) {
        self.resting.insert((now, key));
        self.go_on(key, Stage::Open(now));
    }

    fn go_on(&mut self, key: u64, stage: Stage) {
        let member = self.members.get_mut(&key).expect("it has been admitted");
        let address = member.address;
        match (core::mem::replace(&mut member.stage, stage), stage) {
            (Stage::Open(before), Stage::Open(now)) if before == now => {}
            (before, _) => self.take_out(key, before, address),
        }
        if matches!(stage, Stage::Handshake) {
            self.handshakes += 1;
            self.of(address).handshakes += 1;
        }
    }

    /// A stage is over.
    fn take_out(&mut self, key: u64, stage: Stage, address: HostAddr) {
        match stage {
            Stage::Open(since) => {
                self.resting.remove(&(since, key));
                return;
            }
            Stage::Silent(since) => _ = self.silent.remove(&(since, key)),
            Stage::Handshake => {}
        }
        self.handshakes -= 1;
        self.of(address).handshakes -= 1;
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, key: u64) {
        let Member { address, stage } = self.members.remove(&key).expect("it has been admitted");
        self.take_out(key, stage, address);
        let of_address = self.of(address);
        of_address.connections -= 1;
        if of_address.connections == 0 {
            self.of_address.remove(&address);
        }
    }

    fn of(&mut self, address: HostAddr) -> &mut OfAddress {
        self.of_address.get_mut(&address).expect("it has been counted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn address(last: u8) -> HostAddr {
        [192, 0, 2, last].into()
    }

    impl Admission {
        /// Forgets all connections, without counting them.
        fn is_empty(&self) -> bool {
            self.members.is_empty()
                && self.handshakes == 0
                && self.of_address.is_empty()
                && self.silent.is_empty()
                && self.resting.is_empty()
        }
    }

    #[test]
    fn a_silent_client_makes_room_for_others_and_no_other_handshake_does() {
        let places =
            Places { handshakes: 3, handshakes_of_address: 2, connections: 4, ..Places::default() };
        let mut admission = Admission::new(places);
        for key in 0..2 {
            assert_eq!(admission.judge(at(0), address(1)), Verdict::Admit);
            admission.enter(at(0), key, address(1));
        }
        let full = Verdict::Refuse(EndReason::HandshakesOfAddress);
        let in_place_of = |key| Verdict::InPlaceOf(key, EndReason::Silent);
        assert_eq!(admission.judge(at(249), address(1)), full);
        assert_eq!(admission.judge(at(250), address(1)), in_place_of(0));
        admission.speaks(0);
        assert_eq!(admission.judge(at(250), address(1)), in_place_of(1));
        admission.enter(at(300), 2, address(2));
        // Full for all; the address that has room takes the oldest's place, whoever that is.
        assert_eq!(admission.judge(at(310), address(3)), in_place_of(1));
        admission.leave(1);
        admission.rests(at(310), 0);
        assert_eq!(admission.judge(at(310), address(3)), Verdict::Admit);
        for key in 3..5 {
            admission.enter(at(310), key, address(3));
        }
        assert_eq!(
            admission.judge(at(320), address(4)),
            Verdict::Refuse(EndReason::HandshakesFull)
        );
        admission.speaks(3);
        admission.rests(at(310), 3);
        let full = Verdict::Refuse(EndReason::ConnectionsFull);
        assert_eq!(admission.judge(at(320), address(4)), full);
        [0, 2, 3, 4].into_iter().for_each(|key| admission.leave(key));
        assert!(admission.is_empty(), "{admission:?}");
    }

    #[test]
    fn where_all_places_are_taken_the_one_that_has_rested_for_longest_makes_room() {
        let places = Places { connections: 3, connections_of_address: 2, ..Places::default() };
        let mut admission = Admission::new(places);
        for (key, host) in [(0, 1), (1, 1), (2, 2)] {
            assert_eq!(admission.judge(at(0), address(host)), Verdict::Admit);
            admission.enter(at(0), key, address(host));
            admission.speaks(key);
            admission.rests(at(key), key);
        }
        let in_place_of = |key| Verdict::InPlaceOf(key, EndReason::Replaced);
        let of_address = Verdict::Refuse(EndReason::ConnectionsOfAddress);
        assert_eq!(admission.judge(at(999), address(1)), of_address);
        let full = Verdict::Refuse(EndReason::ConnectionsFull);
        assert_eq!(admission.judge(at(999), address(3)), full, "they may ask again any moment");
        assert_eq!(admission.judge(at(1000), address(3)), in_place_of(0));
        // A client that asks keeps its place.
        admission.rests(at(500), 0);
        admission.rests(at(600), 2);
        assert_eq!(admission.judge(at(1001), address(3)), in_place_of(1));
        assert_eq!(admission.judge(at(1550), address(1)), in_place_of(1), "of its own");
        admission.leave(1);
        assert_eq!(admission.judge(at(1550), address(3)), Verdict::Admit);
        [0, 2].into_iter().for_each(|key| admission.leave(key));
        assert!(admission.is_empty(), "{admission:?}");
    }
}
