//! The loop of a load: issues what may be issued, lets the engine work, takes what has ended.
//!
//! It warms up, measures round after round without a break, so that as much is under way at their
//! edges as in their midst, and then waits for what is still under way, which does not count any
//! more. Invariant: when it returns, nothing is under way. From issue to completion, never
//! halved. Nothing is allocated in it.

use core::{fmt, time::Duration};

use rma_core::time::{Clock, Instant};
use rma_xdp::OpStatus;

use super::{
    recorder::{Interval, Moved, Recorder, Sample},
    schedule::Schedule,
    team::Team,
    work::{Due, Ended, Work},
};
use crate::{error::PairError, interrupt::Interrupt};

/// Turns between two looks at whether somebody wants the run to end.
const LOOK_EVERY: u32 = 1024;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// So many ops that were OK.
    Ops(u64),
    /// For so long.
    Time(Duration),
}

impl Extent {
    /// Its part up to the end of a round.
    const fn until(self, round: u64, rounds: u64) -> Self {
        match self {
            Self::Ops(count) => Self::Ops(count / rounds * round + count % rounds * round / rounds),
            Self::Time(time) => {
                let nanos = time.as_nanos() * round as u128 / rounds as u128;
                Self::Time(Duration::from_nanos(nanos as u64))
            }
        }
    }

    const fn is_reached(self, ok: u64, elapsed: Duration) -> bool {
        match self {
            Self::Ops(count) => ok >= count,
            Self::Time(time) => elapsed.as_nanos() >= time.as_nanos(),
        }
    }
}

/// The measurement, with its conditions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) warm_up: Extent,
    pub(crate) extent: Extent,
    /// In how many rounds, at least one.
    pub(crate) rounds: u64,
    /// Ops under way at once, at most.
    pub(crate) depth: u32,
    /// Whether the thread offers its core to others whenever there is nothing to do.
    pub(crate) yields: bool,
    pub(crate) interrupt: &'a Interrupt,
    /// Somebody to tell how it goes.
    pub(crate) tell: Option<Tell<'a>>,
    /// The threads that measure together, of several.
    pub(crate) team: Option<&'a Team>,
    /// The number of this one among them.
    pub(crate) member: usize,
}

impl<'a> Plan<'a> {
    /// One round of one thread, which nobody is told of.
    pub(crate) const fn of_one(extents: [Extent; 2], depth: u32, interrupt: &'a Interrupt) -> Self {
        let [warm_up, extent] = extents;
        let (rounds, yields, tell, team, member) = (1, false, None, None, 0);
        Self { warm_up, extent, rounds, depth, yields, interrupt, tell, team, member }
    }
}

/// Somebody who is told what was seen, each interval. Meanwhile nothing is issued: that is a gap.
#[derive(Clone, Copy)]
pub(crate) struct Tell<'a> {
    pub(crate) every: Duration,
    pub(crate) say: &'a (dyn Fn(&Interval) + Sync),
}

impl fmt::Debug for Tell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tell").field("every", &self.every).finish_non_exhaustive()
    }
}

/// The place of a loop in its plan.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// `None`: it warms up.
    round: Option<u64>,
    /// When that, or the measurement, began.
    start: Instant,
    /// Ops that were OK since.
    ok: u64,
    under_way: u32,
    is_over: bool,
}

impl Progress {
    /// Whether one more may be issued.
    fn has_room(&self, plan: &Plan<'_>) -> bool {
        let is_wanted = match (self.round, plan.extent, plan.team) {
            (Some(_), Extent::Ops(count), None) => self.ok + u64::from(self.under_way) < count,
            (Some(_), Extent::Ops(count), Some(team)) => team.may_claim(count),
            _ => true,
        };
        is_wanted && self.under_way < plan.depth
    }

    /// Whether one is left for this thread, of those that all of a team issue.
    fn claim(&self, plan: &Plan<'_>) -> bool {
        match (self.round, plan.extent, plan.team) {
            (Some(_), Extent::Ops(count), Some(team)) => team.claim(count),
            _ => true,
        }
    }

    /// An op has ended, well or not.
    fn ended(&mut self, plan: &Plan<'_>, end: &Ended) {
        self.under_way -= 1;
        let is_ok = end.status == OpStatus::Ok;
        self.ok += u64::from(is_ok);
        match plan.team {
            Some(team) if is_ok => team.ok(plan.member, self.round.is_some(), end.bytes),
            Some(team) if self.round.is_some() => team.give_back(),
            _ => {}
        }
    }

    /// Goes on to the next round, if one has ended, or to the first of them.
    fn step(&mut self, plan: &Plan<'_>, now: Instant, recorder: &mut Recorder) {
        let elapsed = now.since(self.start);
        let ok = |extent| match (plan.team, extent) {
            (Some(team), Extent::Ops(_)) => team.count(self.round.is_some()),
            _ => self.ok,
        };
        match self.round {
            None if plan.team.is_some_and(|it| it.began().is_some())
                || plan.warm_up.is_reached(ok(plan.warm_up), elapsed) =>
            {
                recorder.begin(now);
                let start = plan.team.map_or(now, |it| it.begin(now, self.under_way));
                (self.round, self.start, self.ok) = (Some(0), start, 0);
            }
            Some(round)
                if plan
                    .extent
                    .until(round + 1, plan.rounds)
                    .is_reached(ok(plan.extent), elapsed) =>
            {
                self.end_round(plan, now, recorder);
                self.round = Some(round + 1);
                self.is_over = round + 1 == plan.rounds;
            }
            _ => {}
        }
        if self.is_over {
            plan.team.into_iter().for_each(Team::end);
        }
    }

    fn end_round(&self, plan: &Plan<'_>, now: Instant, recorder: &mut Recorder) {
        if let Some(team) = plan.team {
            team.end_round(self.round.unwrap_or(0) as usize, recorder);
        }
        recorder.end_round(now);
    }
}

/// Runs a plan.
///
/// # Errors
/// If op after op fails; on a wrong byte; if it was interrupted. Also then the recorder has what
/// was seen, and nothing is under way.
pub(crate) fn run(
    work: &mut impl Work,
    schedule: &mut Schedule,
    clock: &impl Clock,
    plan: Plan<'_>,
    recorder: &mut Recorder,
) -> Result<(), PairError> {
    let start = clock.now();
    let mut at = Progress { round: None, start, ok: 0, under_way: 0, is_over: false };
    let (mut now, mut turns, mut ended) = (start, 0_u32, Ok(()));
    schedule.start(start);
    recorder.is_open = schedule.is_open();
    recorder.begin(start);
    if plan.tell.is_some() {
        recorder.note_intervals(start);
    }
    loop {
        if !at.is_over {
            at.step(&plan, now, recorder);
        }
        if !at.is_over {
            // What is issued together counts from the beginning of that.
            let issued = clock.now();
            ended = work.issue(&mut || {
                if !at.has_room(&plan) {
                    return None;
                }
                let due = schedule.take(issued)?;
                if !at.claim(&plan) {
                    return None;
                }
                if recorder.is_open {
                    recorder.issued(due, issued);
                }
                at.under_way += 1;
                Some(Due { due, issued })
            });
        } else if at.under_way == 0 {
            return ended.and_then(|()| work.failures().at_end(now));
        }
        let worked = work.turn();
        if plan.yields && !worked {
            std::thread::yield_now();
        }
        now = clock.now();
        if !at.is_over {
            recorder.turned(now, worked);
        }
        if let Some(team) = plan.team {
            recorder.engine_gap_until = team.gap_until();
        }
        while let Some(end) = work.poll() {
            at.ended(&plan, &end);
            let passed = match end.status {
                OpStatus::Ok => {
                    work.failures().ok(now);
                    recorder.all.add(Moved { ops: 1, bytes: end.bytes });
                    Ok(())
                }
                // Its receiver has more to do at the moment than to take messages.
                OpStatus::RemoteNotReady => Ok(()),
                status => work.failures().count(status, now),
            };
            if !at.is_over {
                recorder.record(Sample { end, now });
            }
            let right = end.wrong.map_or(Ok(()), |at| Err(PairError::WrongByte { at }));
            ended = ended.and(passed).and(right);
        }
        if let Some(Tell { every, say }) = plan.tell {
            recorder.tell(now, every, say);
        }
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(LOOK_EVERY) && plan.interrupt.is_set() {
            ended = ended.and(Err(PairError::Interrupted));
        }
        let others_end = || plan.team.is_some_and(Team::stops);
        if !at.is_over && (ended.is_err() || recorder.is_saturated || others_end()) {
            // What was measured until now is a round too, if a shorter one.
            at.end_round(&plan, now, recorder);
            at.is_over = true;
            if let Some(team) = plan.team {
                team.end();
                team.stop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::collections::VecDeque;

    use super::*;
    use crate::{failures::Failures, load::schedule::Arrivals};

    /// A clock that a test moves on: a microsecond each turn.
    #[derive(Default)]
    struct HandClock(Cell<Instant>);

    impl Clock for HandClock {
        fn now(&self) -> Instant {
            self.0.get()
        }
    }

    /// A server that ends each op at once, but for the time in which it stands still.
    struct Server<'a> {
        clock: &'a HandClock,
        turns: u64,
        /// The turn in which all stands still, and for how long.
        stall: Option<(u64, Duration)>,
        /// Whether what is under way meanwhile ends with TIMEOUT.
        loses: bool,
        /// How many still do.
        lost: usize,
        under_way: VecDeque<Due>,
        status: OpStatus,
        issued: u64,
        failures: Failures,
    }

    impl<'a> Server<'a> {
        fn new(clock: &'a HandClock) -> Self {
            let (under_way, failures) = (VecDeque::new(), Failures::default());
            let status = OpStatus::Ok;
            let (turns, stall, loses, lost, issued) = (0, None, false, 0, 0);
            Self { clock, turns, stall, loses, lost, under_way, status, issued, failures }
        }
    }

    impl Work for Server<'_> {
        fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError> {
            while let Some(due) = take() {
                self.issued += 1;
                self.under_way.push_back(due);
            }
            Ok(())
        }

        fn turn(&mut self) -> bool {
            self.turns += 1;
            let step = match self.stall {
                Some((turn, time)) if turn == self.turns => {
                    self.lost = if self.loses { self.under_way.len() } else { 0 };
                    time
                }
                _ => Duration::from_micros(1),
            };
            self.clock.0.set(self.clock.now() + step);
            !self.under_way.is_empty()
        }

        fn poll(&mut self) -> Option<Ended> {
            let at = self.under_way.pop_front()?;
            let status = if self.lost > 0 { OpStatus::Timeout } else { self.status };
            self.lost = self.lost.saturating_sub(1);
            let bytes = 64;
            Some(Ended { kind: 0, at, status, bytes, retries: 0, wrong: None })
        }

        fn failures(&mut self) -> &mut Failures {
            &mut self.failures
        }
    }

    fn plan(extent: Extent, depth: u32, interrupt: &Interrupt) -> Plan<'_> {
        Plan::of_one([Extent::Ops(0), extent], depth, interrupt)
    }

    #[test]
    fn a_stall_of_an_open_loop_is_in_the_response_of_all_that_were_due_and_not_in_the_service() {
        let clock = HandClock::default();
        let mut server = Server::new(&clock);
        server.stall = Some((1_000_000, Duration::from_millis(30)));
        let mut recorder = Recorder::new(1, 1);
        let mut schedule = Schedule::open(Arrivals::Even, 10_000.0, 1);
        let interrupt = Interrupt::default();
        let plan = plan(Extent::Time(Duration::from_secs(3)), 256, &interrupt);
        run(&mut server, &mut schedule, &clock, plan, &mut recorder).unwrap();
        let kind = &recorder.kinds[0];
        // 300 of 30,000 were due meanwhile, one every 100 µs: half of them waited for 15 ms.
        assert!(kind.response.quantile_us(0.995) >= 10_000.0);
        assert!(kind.service.quantile_us(0.995) <= 2.0, "{}", kind.service.quantile_us(0.995));
        assert_eq!(kind.response.count(), 29_999);
        assert!(recorder.lateness.max_us() <= 2.0 && recorder.latest >= 29_000_000);
        assert_eq!((recorder.gaps.count, recorder.gaps.longest), (1, 30_000_000));
        assert!((295..=301).contains(&kind.disturbed.count()), "{}", kind.disturbed.count());
        let rest = kind.response.without(&kind.disturbed);
        assert!(rest.quantile_us(0.999) <= 2.0);
    }

    #[test]
    fn a_closed_loop_issues_as_many_as_were_asked_for_and_never_more_than_its_depth_at_once() {
        let clock = HandClock::default();
        let mut server = Server::new(&clock);
        let (mut recorder, interrupt) = (Recorder::new(1, 1), Interrupt::default());
        let plan = plan(Extent::Ops(1000), 7, &interrupt);
        run(&mut server, &mut Schedule::Closed, &clock, plan, &mut recorder).unwrap();
        assert_eq!((server.issued, recorder.moved().ops), (1000, 1000));
        // Of seven each time, but for the last.
        assert_eq!(server.turns, 1000_u64.div_ceil(7));
        assert_eq!(recorder.kinds[0].service.count(), 0);
    }

    #[test]
    fn an_open_loop_that_asks_for_more_than_there_is_ends_as_saturated() {
        let clock = HandClock::default();
        let mut server = Server::new(&clock);
        let (mut recorder, interrupt) = (Recorder::new(1, 1), Interrupt::default());
        // One a turn, and a turn takes a microsecond: half of what is asked for.
        let mut schedule = Schedule::open(Arrivals::Poisson, 2_000_000.0, 1);
        let plan = plan(Extent::Time(Duration::from_secs(60)), 1, &interrupt);
        run(&mut server, &mut schedule, &clock, plan, &mut recorder).unwrap();
        assert!(recorder.is_saturated);
        let made = recorder.moved().per_second(recorder.elapsed).ops_per_s;
        assert!((made - 1e6).abs() < 1e4, "{made}");
        assert!(recorder.elapsed < Duration::from_secs(3), "{:?}", recorder.elapsed);
    }

    #[test]
    fn failures_end_a_round_and_nothing_stays_under_way() {
        let clock = HandClock::default();
        let mut server = Server::new(&clock);
        server.status = OpStatus::RemoteAuthenticationFailure;
        let (mut recorder, interrupt) = (Recorder::new(1, 1), Interrupt::default());
        let plan = plan(Extent::Ops(1_000_000), 32, &interrupt);
        let ended = run(&mut server, &mut Schedule::Closed, &clock, plan, &mut recorder);
        assert!(matches!(ended, Err(PairError::Failing { .. })), "{ended:?}");
        assert!(server.under_way.is_empty());
    }

    #[test]
    fn a_machine_that_was_suspended_goes_on_with_its_load_whatever_that_is() {
        let open = |arrivals| Schedule::open(arrivals, 10_000.0, 1);
        for (name, schedule, depth, suspended) in [
            ("read-lat", Schedule::Closed, 1, 3600),
            ("write-bw", Schedule::Closed, 32, 3600),
            ("many calls", Schedule::Closed, 256, 30),
            ("even", open(Arrivals::Even), 256, 5),
            ("by chance", open(Arrivals::Poisson), 256, 5),
        ] {
            let (clock, mut schedule) = (HandClock::default(), schedule);
            let mut server = Server::new(&clock);
            let (time, interrupt) = (Duration::from_secs(suspended), Interrupt::default());
            (server.stall, server.loses) = (Some((500, time)), true);
            let mut recorder = Recorder::new(1, 10);
            let count = 200_000;
            let plan = Plan { rounds: 10, ..plan(Extent::Ops(count), depth, &interrupt) };
            run(&mut server, &mut schedule, &clock, plan, &mut recorder).unwrap();
            let kind = &recorder.kinds[0];
            assert_eq!((recorder.moved().ops, kind.rates.len()), (count, 10), "{name}");
            assert!(recorder.gaps.longest >= time.as_nanos() as u64, "{name}");
            assert!(!recorder.is_saturated && recorder.elapsed >= time, "{name}");
            let lost = kind.outcomes[OpStatus::Timeout as usize];
            // Ops were under way in most turns of a closed loop, and in few of an open one.
            let told = server.failures.pauses().count();
            assert_eq!(told, u32::from(lost > 0), "{name}: a pause is told");
            assert!(lost > 0 || recorder.is_open, "{name}");
        }
    }

    #[test]
    fn an_interrupted_round_says_so_and_keeps_what_it_measured() {
        let clock = HandClock::default();
        let mut server = Server::new(&clock);
        let (mut recorder, interrupt) = (Recorder::new(1, 1), Interrupt::default());
        interrupt.set();
        let plan = plan(Extent::Ops(1_000_000), 1, &interrupt);
        let ended = run(&mut server, &mut Schedule::Closed, &clock, plan, &mut recorder);
        assert!(matches!(ended, Err(PairError::Interrupted)));
        assert_eq!(recorder.moved().ops, u64::from(LOOK_EVERY));
    }

    #[test]
    fn rounds_follow_each_other_without_a_break_and_the_warm_up_does_not_count() {
        let clock = HandClock::default();
        let mut server = Server::new(&clock);
        let (mut recorder, interrupt) = (Recorder::new(1, 10), Interrupt::default());
        let plan = Plan {
            warm_up: Extent::Ops(500),
            rounds: 10,
            ..plan(Extent::Time(Duration::from_millis(10)), 4, &interrupt)
        };
        run(&mut server, &mut Schedule::Closed, &clock, plan, &mut recorder).unwrap();
        assert_eq!(recorder.elapsed, Duration::from_millis(10));
        assert_eq!(recorder.kinds[0].rates.len(), 10);
        // Four each microsecond, in each round.
        assert_eq!(recorder.moved().ops, 40_000);
        assert!(recorder.kinds[0].rates.iter().all(|it| (it.ops_per_s - 4e6).abs() < 1.0));
    }

    #[test]
    fn a_count_is_met_exactly_however_many_rounds_it_is_cut_into() {
        for rounds in [1, 3, 10] {
            let clock = HandClock::default();
            let mut server = Server::new(&clock);
            let (mut recorder, interrupt) = (Recorder::new(1, 10), Interrupt::default());
            let plan = Plan { rounds, ..plan(Extent::Ops(1007), 5, &interrupt) };
            run(&mut server, &mut Schedule::Closed, &clock, plan, &mut recorder).unwrap();
            assert_eq!((recorder.moved().ops, server.issued), (1007, 1007));
            assert_eq!(recorder.kinds[0].rates.len() as u64, rounds);
        }
    }
}
