//! Which new connection gets a place among the handshakes, and who makes room for it.
//!
//! A handshake costs a service more than it costs a stranger, and one that says nothing costs a
//! stranger nothing at all. So places are few, those of one address fewer, and who has said nothing
//! for a while goes first. Without I/O: time is an argument.

use core::time::Duration;
use std::collections::BTreeMap;

use rma_core::{addr::HostAddr, time::Instant};

use crate::io::server::reason::EndReason;

/// What connections may take up.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Connections, handshakes with them. Default: 16,384.
    pub connections: usize,
    /// Handshakes under way. Default: 512.
    pub handshakes: usize,
    /// Handshakes under way of one address. Default: 32.
    pub handshakes_of_address: usize,
    /// How long a connection may take to say who it would talk to before its place is given away to
    /// another. Default: 250 ms.
    pub silence: Duration,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            connections: 16_384,
            handshakes: 512,
            handshakes_of_address: 32,
            silence: Duration::from_millis(250),
        }
    }
}

/// Who has a place.
#[derive(Debug)]
pub(super) struct Admission {
    places: Places,
    connections: usize,
    handshakes: usize,
    of_address: BTreeMap<HostAddr, usize>,
    /// Who has said nothing yet, the oldest first.
    silent: BTreeMap<(Instant, u64), HostAddr>,
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It gets a place.
    Admit,
    /// It gets the place of this one, which is to be closed.
    InPlaceOf(u64),
    /// It is closed at once.
    Refuse(EndReason),
}

impl Admission {
    pub(super) const fn new(places: Places) -> Self {
        Self {
            places,
            connections: 0,
            handshakes: 0,
            of_address: BTreeMap::new(),
            silent: BTreeMap::new(),
        }
    }

    /// Whether a connection from `address` may stay.
    pub(super) fn judge(&self, now: Instant, address: HostAddr) -> Verdict {
        let of_address = self.of_address.get(&address).copied().unwrap_or(0);
        let (only, reason) = if of_address >= self.places.handshakes_of_address {
            (Some(address), EndReason::HandshakesOfAddress)
        } else if self.handshakes >= self.places.handshakes {
            (None, EndReason::HandshakesFull)
        } else if self.connections >= self.places.connections {
            (None, EndReason::ConnectionsFull)
        } else {
            return Verdict::Admit;
        };
        let old = self
            .silent
            .iter()
            .take_while(|((since, _), _)| now.since(*since) >= self.places.silence);
        let mut old = old.filter(|&(_, &it)| only.is_none_or(|only| only == it));
        old.next().map_or(Verdict::Refuse(reason), |(&(_, key), _)| Verdict::InPlaceOf(key))
    }

    /// A connection has been admitted.
    pub(super) fn enter(&mut self, now: Instant, key: u64, address: HostAddr) {
        self.connections += 1;
        self.handshakes += 1;
        *self.of_address.entry(address).or_default() += 1;
        self.silent.insert((now, key), address);
    }

    /// A connection that came at `since` has said something.
    pub(super) fn speaks(&mut self, since: Instant, key: u64) {
        self.silent.remove(&(since, key));
    }

    /// The handshake of a connection from `address` has ended well.
    pub(super) fn is_open(&mut self, address: HostAddr) {
        self.handshakes -= 1;
        let left = self.of_address.get_mut(&address).expect("it has been counted");
        *left -= 1;
        if *left == 0 {
            self.of_address.remove(&address);
        }
    }

    /// A connection has ended, which came at `since`, in its handshake or after it.
    pub(super) fn leave(&mut self, since: Instant, key: u64, handshaking: Option<HostAddr>) {
        self.connections -= 1;
        self.speaks(since, key);
        if let Some(address) = handshaking {
            self.is_open(address);
        }
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

    #[test]
    fn who_says_nothing_makes_room_for_others_and_nobody_else_does() {
        let places =
            Places { handshakes: 3, handshakes_of_address: 2, connections: 4, ..Places::default() };
        let mut admission = Admission::new(places);
        for key in 0..2 {
            assert_eq!(admission.judge(at(0), address(1)), Verdict::Admit);
            admission.enter(at(0), key, address(1));
        }
        let full = Verdict::Refuse(EndReason::HandshakesOfAddress);
        assert_eq!(admission.judge(at(249), address(1)), full);
        assert_eq!(admission.judge(at(250), address(1)), Verdict::InPlaceOf(0));
        admission.speaks(at(0), 0);
        assert_eq!(admission.judge(at(250), address(1)), Verdict::InPlaceOf(1));
        admission.enter(at(300), 2, address(2));
        // Full for all; the address that has room takes the oldest's place, whoever that is.
        assert_eq!(admission.judge(at(310), address(3)), Verdict::InPlaceOf(1));
        admission.leave(at(0), 1, Some(address(1)));
        admission.is_open(address(1));
        assert_eq!(admission.judge(at(310), address(3)), Verdict::Admit);
        for key in 3..5 {
            admission.enter(at(310), key, address(3));
        }
        assert_eq!(
            admission.judge(at(320), address(4)),
            Verdict::Refuse(EndReason::HandshakesFull)
        );
        admission.is_open(address(3));
        let full = Verdict::Refuse(EndReason::ConnectionsFull);
        assert_eq!(admission.judge(at(320), address(4)), full);
        admission.leave(at(310), 3, None);
        admission.leave(at(310), 4, Some(address(3)));
        admission.leave(at(300), 2, Some(address(2)));
        admission.leave(at(0), 0, None);
        let Admission { connections, handshakes, of_address, silent, .. } = admission;
        assert_eq!((connections, handshakes, of_address.len(), silent.len()), (0, 0, 0, 0));
    }
}
