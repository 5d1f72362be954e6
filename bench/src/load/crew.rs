//! The threads of a load: each issues ops through a portal or an executor of its own, at places of
//! its own if they change anything, and one thread more turns the engine.
//!
//! One thread alone turns the engine itself. Results of several are joined to one: as if one thread
//! had seen all of it, with the processor time and the gaps of all, the engine's among them.

use core::mem;
use std::{
    panic::resume_unwind,
    sync::{Mutex, PoisonError},
    thread,
};

use rma_core::time::Clock;
use rma_lab::Pattern;
use rma_xdp::{InlineHost, time::TscClock};

use super::{
    recorder::{Interval, Moved, Recorder},
    run::{self, Plan, Tell},
    schedule::Schedule,
    team::Team,
    work::{Leaves, Left},
};
use crate::{client::Area, error::PairError, failures::Failures, pair::pin};

/// The works of all threads.
#[derive(Debug)]
pub(crate) struct Crew<'a, W> {
    /// The host, if the one work that there is does not have it.
    pub(crate) host: Option<&'a mut InlineHost>,
    /// One for each thread.
    pub(crate) works: Vec<W>,
}

/// The seed of the places of one thread.
pub(crate) const fn seed_of(pattern: Pattern, size: u64, thread: u64) -> u64 {
    pattern.seed() ^ size ^ thread.rotate_right(16)
}

/// The part of an area for each thread: where they change something one beside the other, of at
/// least `least` bytes each. `None` if there is no room for that.
pub(crate) fn parts(area: Area, threads: u32, change: bool, least: u64) -> Option<Vec<Area>> {
    /// A line of the cache, which places begin at.
    const LINE: u64 = 64;
    let each = area.len / u64::from(threads) / LINE * LINE;
    if threads == 1 || !change {
        return Some(vec![area; threads as usize]);
    }
    let at = |thread| Area { offset: area.offset + u64::from(thread) * each, len: each };
    (each >= least).then(|| (0..threads).map(at).collect())
}

impl<W: Leaves + Send> Crew<'_, W> {
    /// Runs a plan: each thread by a schedule of its own, of which it gets as many as there are
    /// threads. Threads are pinned to `cores`, as far as there are any.
    ///
    /// # Errors
    /// As [`run::run`]: the first error of a thread.
    ///
    /// # Panics
    /// If a thread does.
    pub(crate) fn run(
        &mut self,
        mut schedules: Vec<Schedule>,
        cores: &[usize],
        clock: &TscClock,
        plan: Plan<'_>,
        recorder: &mut Recorder,
    ) -> Result<(), PairError> {
        let Some(host) = &mut self.host else {
            return run::run(&mut self.works[0], &mut schedules[0], clock, plan, recorder);
        };
        let count = self.works.len();
        let (kinds, team) = (recorder.kinds.len(), Team::new(count, recorder.kinds.len()));
        let gathered = Gathered { of: count, parts: Mutex::default() };
        let tell = plan.tell.map(|it| (it.every, |part: &Interval| gathered.add(part, it.say)));
        let tell = tell.as_ref().map(|(every, say)| Tell { every: *every, say });
        let plan = Plan { tell, team: Some(&team), ..plan };
        let (team, cores) =
            (&team, cores.iter().copied().map(Some).chain([None].into_iter().cycle()));
        let works = self.works.iter_mut().zip(schedules).zip(cores).enumerate();
        thread::scope(|scope| {
            let mut threads = Vec::with_capacity(count);
            for (member, ((work, mut schedule), core)) in works {
                let clock = clock.clone();
                threads.push(scope.spawn(move || {
                    let _leaves = team.join();
                    pin(core);
                    let mut recorder = Recorder::new(kinds, plan.rounds as usize);
                    let plan = Plan { member, ..plan };
                    let done = run::run(work, &mut schedule, &clock, plan, &mut recorder);
                    (recorder, done)
                }));
            }
            turn(host, team, clock, plan, recorder);
            let mut done = Ok(());
            for thread in threads {
                let (part, ended) = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                recorder.join(part);
                done = done.and(ended);
            }
            recorder.set_medians(team.medians());
            done
        })
    }

    /// The end of all works: what they leave, and their failures.
    pub(crate) fn finish(mut self) -> (Vec<Left>, Vec<Failures>) {
        let failures = self.works.iter_mut().map(|it| mem::take(it.failures())).collect();
        (self.works.into_iter().map(W::finish).collect(), failures)
    }
}

/// Turns the engine until nobody of the team is there any more.
fn turn(
    host: &mut InlineHost,
    team: &Team,
    clock: &TscClock,
    plan: Plan<'_>,
    recorder: &mut Recorder,
) {
    let (mut is_measured, mut is_over, mut seen) = (false, false, Moved::default());
    recorder.begin(clock.now());
    while team.is_there() {
        let worked = host.turn() > 0;
        if plan.yields && !worked {
            thread::yield_now();
        }
        let now = clock.now();
        if !is_measured && team.began().is_some() {
            is_measured = true;
            recorder.begin(now);
        }
        if is_over {
            continue;
        }
        if recorder.windows.ends(now) {
            let all = team.moved();
            recorder.windows.now = all.since(mem::replace(&mut seen, all));
        }
        if recorder.turned(now, worked) {
            team.engine_stood_still(now);
        }
        if is_measured && team.is_over() {
            is_over = true;
            recorder.end_round(now);
        }
    }
}

/// Intervals of all threads, which are told as one.
struct Gathered {
    of: usize,
    parts: Mutex<(usize, Option<Interval>)>,
}

impl Gathered {
    /// Adds what one thread saw, and has all of it told when the last one has.
    fn add(&self, part: &Interval, say: &(dyn Fn(&Interval) + Sync)) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, all) = &mut *parts;
        match all {
            None => *all = Some(part.clone()),
            Some(all) => all.join(part),
        }
        *count += 1;
        if *count == self.of {
            *count = 0;
            all.take().iter().for_each(say);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::{
        net::Ipv4Addr,
        sync::atomic::{AtomicU32, Ordering::Relaxed},
        time::Duration,
    };
    use std::collections::VecDeque;

    use rma_xdp::{HostConfig, OpStatus};

    use super::*;
    use crate::{
        interrupt::Interrupt,
        load::{
            places::Places,
            run::Extent,
            schedule::Arrivals,
            work::{Due, Ended, Work},
        },
    };

    /// Ends each op in the turn after its issue; each so manyth fails.
    struct Fast {
        under_way: VecDeque<Due>,
        fails_every: u64,
        ended: u64,
        panics: bool,
        failures: Failures,
    }

    impl Work for Fast {
        fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError> {
            assert!(!self.panics, "as a test wants it");
            self.under_way.extend(core::iter::from_fn(take));
            Ok(())
        }

        fn turn(&mut self) -> bool {
            !self.under_way.is_empty()
        }

        fn poll(&mut self) -> Option<Ended> {
            let at = self.under_way.pop_front()?;
            self.ended += 1;
            let is_ok = !self.ended.is_multiple_of(self.fails_every);
            let status = if is_ok { OpStatus::Ok } else { OpStatus::Nack };
            Some(Ended { kind: 0, at, status, bytes: 64, retries: 0, wrong: None })
        }

        fn failures(&mut self) -> &mut Failures {
            &mut self.failures
        }
    }

    impl Leaves for Fast {
        fn finish(self) -> Left {
            let places = Places::new(Area { offset: 0, len: 64 }, 64, 0);
            Left { places, size: 64, doubtful: Vec::new() }
        }
    }

    /// A host that nobody asks, at an address of its own.
    fn host() -> InlineHost {
        static NEXT: AtomicU32 = AtomicU32::new(0x7f43_0000);
        let own = NEXT.fetch_add(1, Relaxed) + (std::process::id() << 8 & 0xff00);
        InlineHost::open(HostConfig::udp(Ipv4Addr::from(own))).unwrap()
    }

    /// Runs three threads, and returns what they recorded.
    fn three(extent: Extent, schedules: Vec<Schedule>, fails_every: u64) -> Recorder {
        let mut host = host();
        let failures = Failures::default();
        let work = || Fast {
            under_way: VecDeque::new(),
            fails_every,
            ended: 0,
            panics: false,
            failures: failures.of_thread(),
        };
        let mut crew = Crew { host: Some(&mut host), works: vec![work(), work(), work()] };
        let (interrupt, mut recorder) = (Interrupt::default(), Recorder::new(1, 7));
        let plan = Plan::of_one([Extent::Ops(100), extent], 5, &interrupt);
        let plan = Plan { rounds: 7, yields: true, ..plan };
        crew.run(schedules, &[], &TscClock::new(), plan, &mut recorder).unwrap();
        assert!(crew.works.iter().all(|it| it.under_way.is_empty()));
        recorder
    }

    #[test]
    fn a_count_is_met_exactly_by_all_threads_together_though_ops_fail() {
        for fails_every in [u64::MAX, 7] {
            let recorder = three(Extent::Ops(30_000), Schedule::closed_of(3), fails_every);
            let kind = &recorder.kinds[0];
            assert_eq!((recorder.moved().ops, kind.response.count()), (30_000, 30_000));
            assert_eq!((kind.rates.len(), kind.medians.len()), (7, 7));
            assert!(recorder.all.ops >= 30_000 && recorder.elapsed > Duration::ZERO);
        }
    }

    #[test]
    fn threads_of_an_open_loop_make_its_rate_together_and_end_at_once() {
        let schedules = Schedule::open_of(3, Arrivals::Even, 3_000.0, 1);
        let recorder = three(Extent::Ops(300), schedules, u64::MAX);
        let kind = &recorder.kinds[0];
        assert_eq!((recorder.moved().ops, kind.service.count()), (300, 300));
        // However busy the machine is, none is issued before it is due.
        assert!(recorder.elapsed >= Duration::from_millis(90), "{:?}", recorder.elapsed);
    }

    #[test]
    #[should_panic(expected = "as a test wants it")]
    fn a_thread_that_panics_ends_the_others_and_is_not_hidden() {
        let mut host = host();
        let work = |panics| Fast {
            under_way: VecDeque::new(),
            fails_every: u64::MAX,
            ended: 0,
            panics,
            failures: Failures::default(),
        };
        let mut crew = Crew { host: Some(&mut host), works: vec![work(false), work(true)] };
        let interrupt = Interrupt::default();
        let plan = Plan::of_one([Extent::Ops(0), Extent::Ops(u64::MAX)], 1, &interrupt);
        let plan = Plan { yields: true, ..plan };
        let mut recorder = Recorder::new(1, 1);
        _ = crew.run(Schedule::closed_of(2), &[], &TscClock::new(), plan, &mut recorder);
    }

    #[test]
    fn threads_that_change_something_have_places_apart_and_readers_have_all() {
        let area = Area { offset: 128, len: 1000 };
        let parts = parts(area, 3, true, 64).unwrap();
        assert_eq!(parts.iter().map(|it| it.offset).collect::<Vec<_>>(), [128, 448, 768]);
        assert!(parts.iter().all(|it| it.len == 320));
        assert_eq!(super::parts(area, 3, false, 1000).unwrap(), [area; 3]);
        assert_eq!(super::parts(area, 1, true, 1000).unwrap(), [area]);
        assert_eq!(super::parts(area, 3, true, 321), None);
    }
}
