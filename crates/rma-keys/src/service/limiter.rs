//! How often a client may ask, and how often all of them together.
//!
//! Each has an allowance that is refilled steadily and holds a burst. It is kept as one moment:
//! when it will be full again. Clients are told apart by identity *and* address, as one identity is
//! often a whole fleet. Their number is bounded: where there are too many, a new one takes the
//! place of the one whose allowance has been full again for longest. Nothing else keeps a place:
//! not that the log was not told of all that a client was refused, which is counted then.

use core::{num::NonZeroU32, time::Duration};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rma_core::{addr::HostAddr, time::Instant};

use crate::{
    identity::SpiffeId,
    limits::{REGIONS_MAX, RETRY_MAX},
    peer::Peer,
};

/// An allowance, in regions asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many it is refilled by in a second.
    pub per_second: NonZeroU32,
    /// How many it holds. At least [`REGIONS_MAX`] count, as no request could be larger.
    pub burst: u32,
}

impl Rate {
    /// How long `count` take to be refilled.
    fn nanos(self, count: u64) -> u64 {
        count.saturating_mul(1_000_000_000) / u64::from(self.per_second.get())
    }
}

/// The longest that a client waits for its turn: half of what it may be told, as waiting times grow
/// by a random part.
const WAIT_MAX: Duration = RETRY_MAX.checked_div(2).expect("two is not zero");

/// How often a client that is turned away is told of in the audit log.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// One allowance in use.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// When it is full again.
    full_at: u64,
    /// How many requests were turned away since that was told, and when it was.
    untold: u64,
    told_at: Option<Instant>,
}

/// The reason why a request has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TurnedAway {
    /// When the allowance would hold enough.
    pub(super) wait: Duration,
    /// How many were turned away, if it is time to tell.
    pub(super) tell: Option<u64>,
}

impl Allowance {
    const FULL: Self = Self { full_at: 0, untold: 0, told_at: None };

    /// When it would be full again with `count` taken, and how long that is too late.
    fn after(&self, rate: Rate, now: Instant, count: u64) -> (u64, u64) {
        let now = now.as_nanos();
        let full_at = self.full_at.max(now).saturating_add(rate.nanos(count));
        let burst = rate.nanos(u64::from(rate.burst).max(REGIONS_MAX as u64));
        (full_at, full_at.saturating_sub(now.saturating_add(burst)))
    }

    fn turn_away(&mut self, now: Instant, late: u64) -> TurnedAway {
        self.untold += 1;
        let is_time = self.told_at.is_none_or(|told_at| now.since(told_at) >= TELL_EVERY);
        let tell = is_time.then(|| {
            self.told_at = Some(now);
            core::mem::take(&mut self.untold)
        });
        TurnedAway { wait: Duration::from_nanos(late), tell }
    }
}

/// A client that is told apart from others.
type Client = Arc<(SpiffeId, HostAddr)>;

/// All allowances of a service.
#[derive(Debug)]
pub(super) struct Limiter {
    of_client: Rate,
    of_all: Rate,
    clients_max: usize,
    all: Allowance,
    /// Until when all that was turned away for want of `all` would keep it empty, in nanoseconds.
    backlog_until: u64,
    clients: BTreeMap<Client, Allowance>,
    /// The same, by when their allowances are full again.
    by_full_at: BTreeSet<(u64, Client)>,
    /// How many requests of clients that were forgotten no line has told of.
    untold: u64,
}

impl Limiter {
    pub(super) fn new(of_client: Rate, of_all: Rate, clients_max: usize) -> Self {
        let (all, clients, by_full_at) = (Allowance::FULL, BTreeMap::new(), BTreeSet::new());
        Self {
            of_client,
            of_all,
            clients_max,
            all,
            backlog_until: 0,
            clients,
            by_full_at,
            untold: 0,
        }
    }

    /// How many requests were turned away that the log will never be told of, as whoever had asked
    /// them was forgotten first.
    pub(super) const fn untold(&self) -> u64 {
        self.untold
    }

    /// Takes `count` from what the peer may ask and from what all may, if both hold so many.
    ///
    /// Those who are turned away as all ask too much are told times one after the other, as if they
    /// stood in a queue: told the same time, they would all come back at once, for ever. They have
    /// used their own allowance, so that nobody can make that queue long alone.
    pub(super) fn take(&mut self, now: Instant, peer: &Peer, count: u64) -> Result<(), TurnedAway> {
        let client = Arc::new((peer.identity.clone(), peer.address));
        let mut allowance = match self.clients.get(&client) {
            Some(allowance) => *allowance,
            None => {
                let made = self.make_room(now);
                made.map_err(|wait| self.all.turn_away(now, wait))?;
                Allowance::FULL
            }
        };
        let before = allowance.full_at;
        let taken = self.take_from(&mut allowance, now, count);
        self.by_full_at.remove(&(before, Arc::clone(&client)));
        self.by_full_at.insert((allowance.full_at, Arc::clone(&client)));
        self.clients.insert(client, allowance);
        taken
    }

    fn take_from(
        &mut self,
        allowance: &mut Allowance,
        now: Instant,
        count: u64,
    ) -> Result<(), TurnedAway> {
        let (full_at, late) = allowance.after(self.of_client, now, count);
        if late > 0 {
            return Err(allowance.turn_away(now, late));
        }
        let (all_full_at, late) = self.all.after(self.of_all, now, count);
        allowance.full_at = full_at;
        if late > 0 {
            let now_ns = now.as_nanos();
            let turn = self.backlog_until.max(now_ns.saturating_add(late));
            let last = now_ns.saturating_add(WAIT_MAX.as_nanos() as u64);
            self.backlog_until = turn.saturating_add(self.of_all.nanos(count)).min(last);
            return Err(self.all.turn_away(now, turn.min(last) - now_ns));
        }
        self.all.full_at = all_full_at;
        Ok(())
    }

    /// Makes room for one more client: at the cost of the one that has rested for longest, if its
    /// allowance is full again. If none is, how long it is until one will be, in nanoseconds.
    fn make_room(&mut self, now: Instant) -> Result<(), u64> {
        if self.clients.len() < self.clients_max {
            return Ok(());
        }
        let first = self.by_full_at.first().map_or(u64::MAX, |(full_at, _)| *full_at);
        match first.saturating_sub(now.as_nanos()) {
            0 => {}
            wait => return Err(wait),
        }
        let (_, rested) = self.by_full_at.pop_first().expect("the first was there a moment ago");
        self.untold += self.clients.remove(&rested).map_or(0, |it| it.untold);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{peer::Serial, time::WallTime};

    fn rate(per_second: u32, burst: u32) -> Rate {
        Rate { per_second: NonZeroU32::new(per_second).unwrap(), burst }
    }

    fn peer(name: &str, address: [u8; 4]) -> Peer {
        Peer {
            identity: format!("spiffe://example.org/{name}").parse().unwrap(),
            serial: Serial::new(&[1]).unwrap(),
            not_after: WallTime::from_unix_millis(i64::MAX),
            address: address.into(),
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_client_has_its_burst_and_then_its_rate_and_takes_nothing_from_others() {
        let mut limiter = Limiter::new(rate(1000, 100), rate(1_000_000, 1_000_000), 10);
        let (one, elsewhere) = (peer("a", [10, 0, 0, 1]), peer("a", [10, 0, 0, 2]));
        for _ in 0..10 {
            limiter.take(at(0), &one, 10).unwrap();
        }
        let away = limiter.take(at(0), &one, 10).unwrap_err();
        assert_eq!(away.wait, Duration::from_millis(10));
        limiter.take(at(0), &elsewhere, 10).unwrap();
        limiter.take(at(0), &peer("b", [10, 0, 0, 1]), 10).unwrap();
        assert!(limiter.take(at(9), &one, 10).is_err());
        limiter.take(at(10), &one, 10).unwrap();
        let mut taken = 0;
        for millis in 11..=2010 {
            taken += u64::from(limiter.take(at(millis), &one, 1).is_ok());
        }
        assert_eq!(taken, 2000);
    }

    #[test]
    fn those_who_are_turned_away_together_are_told_times_one_after_the_other() {
        let mut limiter = Limiter::new(rate(1000, 1000), rate(100, 40), 100);
        limiter.take(at(0), &peer("a", [10, 0, 0, 0]), 40).unwrap();
        let mut waits = Vec::new();
        for number in 1..=3 {
            let away = limiter.take(at(0), &peer("a", [10, 0, 0, number]), 10).unwrap_err();
            waits.push(away.wait.as_millis());
        }
        assert_eq!(waits, [100, 200, 300]);
        for number in 1..=3 {
            let when = at(u64::from(number) * 100);
            limiter.take(when, &peer("a", [10, 0, 0, number]), 10).unwrap();
        }
    }

    #[test]
    fn nobody_makes_others_wait_for_longer_than_his_own_allowance() {
        let mut limiter = Limiter::new(rate(1, 100), rate(100, 40), 100);
        let greedy = peer("a", [10, 0, 0, 1]);
        for _ in 0..1000 {
            let _ = limiter.take(at(0), &greedy, 10);
        }
        let wait = limiter.take(at(0), &peer("b", [10, 0, 0, 2]), 10).unwrap_err().wait;
        // 40 of the 100 were given, 60 wait.
        assert_eq!(wait, Duration::from_millis(700));
    }

    #[test]
    fn the_log_is_told_once_a_second_how_many_were_turned_away() {
        let mut limiter = Limiter::new(rate(1, 1), rate(1000, 1000), 10);
        let one = peer("a", [10, 0, 0, 1]);
        limiter.take(at(0), &one, 32).unwrap();
        let mut told = Vec::new();
        for millis in 0..2000 {
            told.extend(limiter.take(at(millis), &one, 32).unwrap_err().tell);
        }
        assert_eq!(told, [1, 1000]);
    }

    #[test]
    fn a_new_client_takes_the_place_of_the_one_that_has_rested_for_longest_and_of_nobody_else() {
        let mut limiter = Limiter::new(rate(10, 32), rate(1_000_000, 1_000_000), 3);
        let client = |number| peer("a", [10, 0, 0, number]);
        for number in 0..3 {
            limiter.take(at(0), &client(number), u64::from(number) + 1).unwrap();
        }
        // None has its allowance back: told apart again, it would have more than its own.
        assert_eq!(limiter.take(at(0), &client(9), 1).unwrap_err().wait.as_millis(), 100);
        limiter.take(at(50), &client(0), 1).unwrap();
        assert_eq!(limiter.take(at(199), &client(9), 1).unwrap_err().wait.as_millis(), 1);
        // The first two are as new at the same moment, and one of them goes.
        limiter.take(at(200), &client(9), 1).unwrap();
        limiter.take(at(200), &client(8), 1).unwrap();
        assert!(limiter.take(at(200), &client(7), 1).is_err());
        let kept: Vec<_> = limiter.clients.keys().map(|it| it.1).collect();
        assert_eq!(kept, [client(2), client(8), client(9)].map(|it| it.address));
        assert_eq!(limiter.by_full_at.len(), limiter.clients.len());
    }

    /// The traces of a client that is never seen again.
    #[derive(Clone, Copy, Debug)]
    enum Left {
        Served,
        TurnedAwayAndTold,
        TurnedAwayAndUntold,
        TurnedAwayForWantOfAll,
    }

    #[test]
    fn a_table_that_is_full_of_whatever_clients_have_left_admits_new_ones_an_hour_and_a_day_later()
    {
        use Left::{Served, TurnedAwayAndTold, TurnedAwayAndUntold, TurnedAwayForWantOfAll};
        for left in [Served, TurnedAwayAndTold, TurnedAwayAndUntold, TurnedAwayForWantOfAll] {
            let mut limiter = Limiter::new(rate(1000, 10_000), rate(20_000, 20_000), 64);
            let mut millis = 0;
            for number in 0..64 {
                let client = peer("denied", [10, 0, 0, number]);
                let mut away = 0;
                for request in 0.. {
                    let taken = limiter.take(at(millis), &client, 32);
                    away += u32::from(taken.is_err());
                    let is_over = match left {
                        Served => request == 0,
                        TurnedAwayAndTold => away == 1,
                        TurnedAwayAndUntold => away == 2,
                        // All of what all may ask, so that the next one is turned away.
                        TurnedAwayForWantOfAll => request == 300,
                    };
                    if is_over {
                        break;
                    }
                }
                // When no client may ask any longer, they come together.
                millis += if matches!(left, TurnedAwayForWantOfAll) { 0 } else { 60_000 };
            }
            for hours in [1, 5, 24, 240] {
                let now = at(millis + hours * 3_600_000);
                for number in 0..64 {
                    let new = peer("new", [10, hours as u8, 1, number]);
                    assert_eq!(
                        limiter.take(now, &new, 32),
                        Ok(()),
                        "{left:?}, {hours} hours later"
                    );
                }
                assert_eq!((limiter.clients.len(), limiter.by_full_at.len()), (64, 64));
            }
            let untold = if matches!(left, TurnedAwayAndUntold) { 64 } else { 0 };
            assert_eq!(limiter.untold(), untold, "{left:?}");
        }
    }
}
