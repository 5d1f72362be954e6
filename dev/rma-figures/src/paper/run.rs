//! A run: how much of a figure is computed, with how many seeds, on how many threads.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use rma_bench::{interrupt::Interrupt, line};

use super::failed::FigureFailed;

/// How much of a figure is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Some of its points, by the same seeds as at full scale.
    Quick,
    /// All of its points.
    Full,
}

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) scale: Scale,
    /// Seeds of each simulated point, or rounds of each measured one; none for the figure's own
    /// number.
    pub(crate) seeds: Option<u64>,
    /// Threads for simulations and models.
    pub(crate) threads: usize,
    pub(crate) interrupt: &'a Interrupt,
}

impl Run<'_> {
    /// `quick` at quick scale, else `full`.
    pub(crate) const fn pick<'b, T>(&self, quick: &'b [T], full: &'b [T]) -> &'b [T] {
        match self.scale {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }

    /// The seeds of a point, of which a figure asks for `own`.
    pub(crate) fn seeds(&self, own: u64) -> core::ops::Range<u64> {
        1..self.seeds.unwrap_or(own) + 1
    }

    /// Runs `round` as often as a figure asks for, `own` times, or as the settings say. A round
    /// that fails is told and made again, unless more fail than are asked for: then there are
    /// fewer.
    ///
    /// # Errors
    /// That of the last round if none is good; one that no repetition helps against.
    pub(crate) fn rounds<T>(
        &self,
        own: u64,
        mut round: impl FnMut() -> Result<T, FigureFailed>,
    ) -> Result<Vec<T>, FigureFailed> {
        let wanted = self.seeds.unwrap_or(own);
        let (mut done, mut failed) = (Vec::new(), 0);
        while (done.len() as u64) < wanted {
            if self.interrupt.is_set() {
                return Err(FigureFailed::Interrupted);
            }
            match round() {
                Ok(it) => done.push(it),
                Err(error) if error.is_lasting() => return Err(error),
                Err(error) if failed == wanted && done.is_empty() => return Err(error),
                Err(_) if failed == wanted => break,
                Err(error) => {
                    failed += 1;
                    line!("  a round failed and is made again: {error}");
                }
            }
        }
        Ok(done)
    }

    /// The results of `run` for each of `jobs`, in their order, whatever the number of threads.
    ///
    /// # Errors
    /// If the program was asked to end.
    pub(crate) fn each<J: Sync, R: Send>(
        &self,
        jobs: &[J],
        run: impl Fn(&J) -> R + Sync,
    ) -> Result<Vec<R>, FigureFailed> {
        let next = AtomicUsize::new(0);
        let done: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            while !self.interrupt.is_set() {
                let index = next.fetch_add(1, Relaxed);
                let (Some(job), Some(place)) = (jobs.get(index), done.get(index)) else { break };
                let result = run(job);
                if let Ok(mut place) = place.lock() {
                    *place = Some(result);
                }
            }
        };
        thread::scope(|scope| {
            (1..self.threads.min(jobs.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let results = done.into_iter().map(|it| it.into_inner().ok().flatten());
        results.collect::<Option<Vec<R>>>().ok_or(FigureFailed::Interrupted)
    }
}

#[cfg(test)]
mod tests {
    use rma_bench::error::PairError;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_jobs_with_one_thread_or_sixteen() {
        let interrupt = Interrupt::default();
        for threads in [1, 2, 16] {
            let run = Run { scale: Scale::Full, seeds: None, threads, interrupt: &interrupt };
            let jobs: Vec<u64> = (0..100).collect();
            let squares = run.each(&jobs, |it| it * it).unwrap();
            assert_eq!(squares, jobs.iter().map(|it| it * it).collect::<Vec<_>>());
        }
        interrupt.set();
        let run = Run { scale: Scale::Quick, seeds: None, threads: 2, interrupt: &interrupt };
        assert!(matches!(run.each(&[1], |it| *it), Err(FigureFailed::Interrupted)));
    }

    #[test]
    fn rounds_that_fail_are_made_again_but_not_for_ever() {
        let interrupt = Interrupt::default();
        let run = Run { scale: Scale::Full, seeds: None, threads: 1, interrupt: &interrupt };
        let busy = || FigureFailed::Pair(PairError::MissingEvents { ops: 1, events: 0 });
        let with = |good: fn(u32) -> bool| {
            let mut round = 0;
            run.rounds(3, || {
                round += 1;
                if good(round) { Ok(round) } else { Err(busy()) }
            })
        };
        assert_eq!(with(|it| it % 2 == 0).unwrap(), [2, 4, 6]);
        assert_eq!(with(|it| it == 1).unwrap(), [1]);
        assert!(matches!(with(|_| false), Err(FigureFailed::Pair(_))));
        let mut tries = 0;
        let never = || {
            tries += 1;
            Err::<(), _>(FigureFailed::Settings("no".to_owned()))
        };
        assert!(run.rounds(3, never).is_err());
        assert_eq!(tries, 1);
        interrupt.set();
        assert!(matches!(run.rounds(3, || Ok(1)), Err(FigureFailed::Interrupted)));
    }
}
