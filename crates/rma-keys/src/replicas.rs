//! The order in which replicas are asked: those that have lately failed to answer come last.
//!
//! It knows neither what is asked nor where they are; time is an argument. Invariant: every replica
//! is in every order, so whoever goes through an order has asked all of them.

use core::time::Duration;

use rma_core::{executor::CallStatus, op::OpStatus, time::Instant};

use crate::limits::{SUSPECT_MAX, SUSPECT_MIN};

/// Replicas in the order of preference: the first is asked first, while it answers.
#[derive(Clone, Debug)]
pub struct Replicas {
    all: Vec<Replica>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Replica {
    /// Until when it is taken not to answer, and how long it was this time.
    suspect: Option<(Instant, Duration)>,
}

impl Replicas {
    /// So many replicas, of which none is suspect.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { all: vec![Replica::default(); count] }
    }

    /// All of them, in the order in which to ask: those that are not suspect by preference, then
    /// the suspect ones, the one first whose time is over first.
    pub fn order(&self, now: Instant) -> impl Iterator<Item = usize> + use<> {
        let until = |it: &Replica| it.suspect.map(|(until, _)| until).filter(|&it| it > now);
        let mut order: Vec<_> = self.all.iter().enumerate().map(|(i, it)| (until(it), i)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, i)| i)
    }

    /// The same of `preferred` alone, in that order: for data whose copies are on some of all.
    pub fn order_of(
        &self,
        now: Instant,
        preferred: &[usize],
    ) -> impl Iterator<Item = usize> + use<> {
        let until =
            |i: usize| self.all.get(i)?.suspect.map(|(until, _)| until).filter(|&it| it > now);
        let mut order: Vec<_> = preferred.iter().map(|&i| (until(i), i)).collect();
        // Stable: who is not suspect stays where the preference has it.
        order.sort_by_key(|&(until, _)| until);
        order.into_iter().map(|(_, i)| i)
    }

    /// Replica `i` has ended a call so. One that did not answer is suspect: for 50 ms, and doubling
    /// to a second while it goes on. A NACK is an answer: others should be asked instead, and the
    /// replica's standing stays as it was. An `i` without a replica is ignored.
    pub fn report(&mut self, now: Instant, i: usize, status: &CallStatus) {
        let Some(replica) = self.all.get_mut(i) else { return };
        match status {
            CallStatus::Failed(OpStatus::Timeout)
            | CallStatus::PeerSilent { .. }
            | CallStatus::DeadlineExceeded
            | CallStatus::Unknown => {
                let wait = match replica.suspect {
                    // Calls that failed together count once.
                    Some((until, _)) if now < until => return,
                    Some((_, wait)) => (wait * 2).min(SUSPECT_MAX),
                    None => SUSPECT_MIN,
                };
                replica.suspect = Some((now + wait, wait));
            }
            CallStatus::Ok => replica.suspect = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: CallStatus = CallStatus::Failed(OpStatus::Timeout);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn order(replicas: &Replicas, millis: u64) -> Vec<usize> {
        replicas.order(at(millis)).collect()
    }

    #[test]
    fn a_replica_that_does_not_answer_comes_last_for_longer_and_longer() {
        let mut replicas = Replicas::new(3);
        assert_eq!(order(&replicas, 0), [0, 1, 2]);
        replicas.report(at(0), 0, &CallStatus::Failed(OpStatus::Nack));
        assert_eq!(order(&replicas, 0), [0, 1, 2], "it has answered");
        let mut now = 0;
        for wait in [50, 100, 200, 400, 800, 1_000, 1_000] {
            replicas.report(at(now), 0, &TIMEOUT);
            replicas.report(at(now), 0, &TIMEOUT);
            assert_eq!(order(&replicas, now + wait - 1), [1, 2, 0]);
            now += wait;
            assert_eq!(order(&replicas, now), [0, 1, 2], "a probe");
        }
        replicas.report(at(now), 0, &CallStatus::Ok);
        replicas.report(at(now), 0, &TIMEOUT);
        assert_eq!(order(&replicas, now + 50), [0, 1, 2]);
    }

    #[test]
    fn the_order_of_some_keeps_their_preference_but_for_the_suspect() {
        let mut replicas = Replicas::new(3);
        let order = |it: &Replicas| it.order_of(at(1), &[2, 0]).collect::<Vec<_>>();
        assert_eq!(order(&replicas), [2, 0]);
        replicas.report(at(0), 2, &TIMEOUT);
        assert_eq!(order(&replicas), [0, 2]);
        replicas.report(at(1), 0, &TIMEOUT);
        assert_eq!(order(&replicas), [2, 0], "whose time is over first");
    }

    #[test]
    fn when_all_are_suspect_all_are_still_asked() {
        let mut replicas = Replicas::new(2);
        replicas.report(at(0), 0, &CallStatus::PeerSilent { since: Duration::ZERO, tried: 1 });
        replicas.report(at(10), 1, &CallStatus::DeadlineExceeded);
        replicas.report(at(10), 2, &TIMEOUT);
        assert_eq!(order(&replicas, 20), [0, 1]);
        replicas.report(at(60), 0, &TIMEOUT);
        assert_eq!(order(&replicas, 60), [1, 0]);
    }
}
