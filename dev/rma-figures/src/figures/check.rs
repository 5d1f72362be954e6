//! Holds figures to their limits.
//!
//! A busy machine can take a figure beyond its limit, so one that misses it is measured three
//! times, and the median decides: neither the worst of three, nor the best. Every value is shown.
//! Invariant: a figure for which noise is no excuse is within its limit in every measurement, or it
//! has missed it.

use core::fmt;

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::{
    benchmark::Benchmark,
    spec::{Measured, Spec},
    table::names,
};

/// An error of figures: one could not be had, or missed its limit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FiguresError {
    /// There is no figure of that name.
    #[error("there is no figure {name:?}; the figures are: {}", names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// A measurement failed.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// A measurement does not give a figure that the table says it gives. A bug of the bench.
    #[error("{name} was not measured by the benchmark that should: please report it")]
    NotMeasured {
        /// The figure.
        name: &'static str,
    },
    /// Figures are beyond their limits.
    #[error(
        "figures beyond their limits: {}; on a busy machine try again, see \"Noise\" in docs/BENCHMARKING.md",
        figures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Missed {
        /// The figures, with all their values.
        figures: Vec<Checked>,
    },
    /// Figures were asked for that this build or this processor cannot measure.
    #[error("figures that did not run: {}", figures.join("; "))]
    NotRun {
        /// The figures, with their needs.
        figures: Vec<String>,
    },
    /// The binary encrypts nothing.
    #[error("limits are for encrypted frames; build rma-figures without the feature null-crypto")]
    NothingEncrypted,
    /// None of the figures that were asked for has a limit.
    #[error("nothing to check: none of these figures has a limit; leave out --check")]
    NothingToCheck,
}

/// How often a figure is measured if it misses its limit the first time. Odd: one value is in the
/// middle.
pub(super) const ATTEMPTS: usize = 3;

/// A figure and all its values, in the order in which they were measured.
#[derive(Clone, Debug)]
pub struct Checked {
    pub(super) spec: Spec,
    /// None: it did not run.
    pub(super) values: Vec<f64>,
}

impl Checked {
    /// Returns the requirement that was missing, in words. `None` if it ran.
    pub(super) fn not_run(&self) -> Option<String> {
        let needs = self.spec.needs.filter(|_| self.values.is_empty())?;
        Some(format!("{} (needs {needs})", self.spec.name))
    }

    /// Whether the figure keeps its limit, if it has one. One that did not run keeps none.
    #[must_use]
    pub fn holds(&self) -> bool {
        let Some(limit) = self.spec.limit else { return true };
        let kept = self.values.iter().filter(|&&value| limit.holds(value)).count();
        // More than half of an odd number: the one in the middle, wherever what is no number would
        // be sorted.
        if self.spec.noisy { 2 * kept > self.values.len() } else { kept == self.values.len() }
    }
}

impl fmt::Display for Checked {
    /// `read64_over_floor 1.452, then 1.391 (at most 1.4)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec.name)?;
        for (index, value) in self.values.iter().enumerate() {
            write!(f, "{} {value:.3}", if index == 0 { "" } else { ", then" })?;
        }
        match self.spec.limit {
            Some(limit) => write!(f, " ({limit})"),
            None => Ok(()),
        }
    }
}

/// Measures those figures of a benchmark that are `wanted`: once, or `attempts` times if one for
/// which noise is an excuse misses its limit the first time. `show` is given every value, with the
/// number of the measurement.
pub(super) fn measure(
    benchmark: &Benchmark,
    wanted: impl Fn(&Spec) -> bool,
    attempts: usize,
    interrupt: &Interrupt,
    mut show: impl FnMut(&Spec, &Measured, usize),
) -> Result<Vec<Checked>, FiguresError> {
    let all = benchmark.figures();
    let mut figures: Vec<(usize, Checked)> = all
        .iter()
        .enumerate()
        .filter(|(_, spec)| wanted(spec))
        .map(|(place, &spec)| (place, Checked { spec, values: Vec::new() }))
        .collect();
    for attempt in 1..=attempts {
        let measured = match benchmark.run(interrupt) {
            // Noise, as a value beyond the limit is; others can still be measured.
            Err(error @ PairError::SpoiledRounds { .. }) => {
                vec![Measured::new(f64::NAN, error.to_string()); all.len()]
            }
            measured => measured?,
        };
        for (place, Checked { spec, values }) in &mut figures {
            match (measured.get(*place), spec.needs) {
                (Some(measured), _) => {
                    values.push(measured.value);
                    show(spec, measured, attempt);
                }
                (None, Some(needs)) => {
                    let detail = format!("DID NOT RUN: it needs {needs}");
                    show(spec, &Measured::new(f64::NAN, detail), attempt);
                }
                (None, None) => return Err(FiguresError::NotMeasured { name: spec.name }),
            }
        }
        // Whatever comes out of the second time: to stop at the first that is good would be to
        // choose it.
        let is_settled =
            |figure: &Checked| !figure.spec.noisy || figure.holds() || figure.not_run().is_some();
        if attempt == 1 && figures.iter().all(|(_, figure)| is_settled(figure)) {
            break;
        }
    }
    Ok(figures.into_iter().map(|(_, figure)| figure).collect())
}

/// Sums up all measurements: how many limits are kept, and for which figures it took more than one.
///
/// # Errors
/// [`FiguresError::Missed`] with every figure that missed its limit, [`FiguresError::NotRun`] with
/// those that have a limit and did not run, and [`FiguresError::NothingToCheck`].
pub(super) fn verdict(figures: &[Checked]) -> Result<String, FiguresError> {
    let limited = figures.iter().filter(|figure| figure.spec.limit.is_some());
    let (ran, not_run): (Vec<&Checked>, Vec<_>) =
        limited.partition(|figure| figure.not_run().is_none());
    let (kept, missed): (Vec<&Checked>, Vec<_>) =
        ran.into_iter().partition(|figure| figure.holds());
    if !missed.is_empty() {
        return Err(FiguresError::Missed { figures: missed.into_iter().cloned().collect() });
    }
    if !not_run.is_empty() {
        let figures = not_run.into_iter().filter_map(Checked::not_run).collect();
        return Err(FiguresError::NotRun { figures });
    }
    if kept.is_empty() {
        return Err(FiguresError::NothingToCheck);
    }
    let once_missed: Vec<String> = kept
        .iter()
        .filter(|figure| {
            !figure.values.iter().all(|&v| figure.spec.limit.is_some_and(|l| l.holds(v)))
        })
        .map(ToString::to_string)
        .collect();
    let all = format!("limits kept: {}", kept.len());
    Ok(if once_missed.is_empty() {
        all
    } else {
        format!("{all}; not in every measurement: {}", once_missed.join("; "))
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static RUNS: Cell<usize> = const { Cell::new(0) };
    }

    const fn spec(name: &'static str) -> Spec {
        Spec::new(name, "ratio")
    }

    /// One figure for each way in which three measurements can end.
    fn run(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
        RUNS.set(RUNS.get() + 1);
        let all: [[f64; ATTEMPTS]; 9] = [
            [1.3, 9.9, 1.3],
            [1.5, 1.3, 1.4],
            [1.5, 1.3, 1.6],
            [1.3, 1.5, 1.6],
            [f64::NAN, f64::INFINITY, 1.3],
            [1.5, 1.7, 1.6],
            [3.0, 2.0, 1.0],
            [0.0, 1.0, 0.0],
            [9.0, 9.0, 9.0],
        ];
        Ok(all.map(|values| Measured::new(values[(RUNS.get() - 1) % ATTEMPTS], "")).into())
    }

    const FIGURES: &[Spec] = &[
        spec("good").at_most(1.4),
        spec("late").at_most(1.4),
        spec("lucky").at_most(1.4),
        spec("worse").at_most(1.4),
        spec("never").at_most(1.4),
        spec("bad").at_most(1.4),
        spec("slow").at_least(200_000.0),
        spec("broken").at_most(0.0).always(),
        // A goal is no limit, reached or not.
        spec("free").goal_at_most(1.0),
    ];

    const MADE_UP: Benchmark = Benchmark::Own(run, FIGURES);

    /// Checks these figures, and returns the verdict and the number of values shown.
    fn check(names: &[&str]) -> (Result<String, FiguresError>, usize) {
        let mut shown = 0;
        let wanted = |spec: &Spec| names.contains(&spec.name);
        let uninterrupted = Interrupt::default();
        let figures = measure(&MADE_UP, wanted, ATTEMPTS, &uninterrupted, |_, _, _| shown += 1);
        (verdict(&figures.unwrap()), shown)
    }

    #[test]
    fn a_check_fails_on_a_figure_beyond_its_limit_and_says_every_value() {
        let (verdict, shown) = check(&["good", "bad", "slow"]);
        let error = verdict.unwrap_err().to_string();
        assert_eq!(shown, 9);
        assert!(error.contains("bad 1.500, then 1.700, then 1.600 (at most 1.4)"), "{error}");
        assert!(error.contains("slow 3.000, then 2.000, then 1.000 (at least 200,000)"), "{error}");
        assert!(!error.contains("good"), "{error}");
    }

    #[test]
    fn a_figure_within_its_limit_is_measured_once() {
        let (verdict, shown) = check(&["good", "free"]);
        assert_eq!((verdict.unwrap().as_str(), shown), ("limits kept: 1", 2));
    }

    #[test]
    fn a_figure_whose_median_keeps_its_limit_passes_and_the_verdict_tells() {
        let (verdict, shown) = check(&["late"]);
        let verdict = verdict.unwrap();
        assert_eq!(shown, 3);
        assert!(verdict.contains("late 1.500, then 1.300, then 1.400 (at most 1.4)"), "{verdict}");
    }

    /// The first time, something spoiled it.
    fn run_spoiled_once(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
        let measured = run(interrupt)?;
        if RUNS.get() == 1 {
            let why = "a frame was lost".to_owned();
            return Err(PairError::SpoiledRounds { counted: 1, rounds: 11, why });
        }
        Ok(measured)
    }

    #[test]
    fn a_spoiled_measurement_is_a_missed_one_and_not_the_end() {
        const SPOILED: Benchmark = Benchmark::Own(run_spoiled_once, FIGURES);
        let uninterrupted = Interrupt::default();
        let mut details = Vec::new();
        let show = |_: &Spec, measured: &Measured, _| details.push(measured.detail.clone());
        let figures = measure(&SPOILED, |spec| spec.name == "late", ATTEMPTS, &uninterrupted, show);
        let verdict = verdict(&figures.unwrap()).unwrap();
        assert!(verdict.contains("late NaN, then 1.300, then 1.400 (at most 1.4)"), "{verdict}");
        assert!(details[0].contains("a frame was lost"), "{details:?}");
    }

    #[test]
    fn one_good_value_of_three_does_not_pass() {
        let (verdict, shown) = check(&["lucky"]);
        let error = verdict.unwrap_err().to_string();
        assert_eq!(shown, 3, "the second value, which is good, is not the last");
        assert!(error.contains("lucky 1.500, then 1.300, then 1.600 (at most 1.4)"), "{error}");
        // Nor does one that was good once, and is measured again because of another.
        RUNS.set(0);
        let (verdict, _) = check(&["worse", "late"]);
        let error = verdict.unwrap_err().to_string();
        assert!(error.contains("worse 1.300, then 1.500, then 1.600 (at most 1.4)"), "{error}");
        RUNS.set(0);
        assert!(matches!(check(&["never"]), (Err(FiguresError::Missed { .. }), 3)));
    }

    #[test]
    fn where_noise_is_no_excuse_every_measurement_counts() {
        // Measured again because of the other figure only.
        let (verdict, _) = check(&["late", "broken"]);
        let error = verdict.unwrap_err().to_string();
        assert!(error.contains("broken 0.000, then 1.000, then 0.000 (at most 0)"), "{error}");
        RUNS.set(1);
        let (verdict, shown) = check(&["broken"]);
        assert!(matches!(verdict, Err(FiguresError::Missed { .. })));
        assert_eq!(shown, 1, "another measurement would not help");
    }

    #[test]
    fn a_check_without_a_limit_is_no_check() {
        assert!(matches!(check(&["free"]), (Err(FiguresError::NothingToCheck), 1)));
    }

    #[test]
    fn a_figure_that_cannot_run_here_says_so_and_is_no_success() {
        const LACKS: Benchmark = Benchmark::Own(
            |interrupt| run(interrupt).map(|all| vec![all[0].clone(), all[5].clone()]),
            &[
                spec("good").at_most(1.4),
                spec("bad").at_most(1.4),
                spec("late").at_most(1.4).needs("a feature"),
            ],
        );
        let check = |names: &[&str]| {
            RUNS.set(0);
            let mut details = Vec::new();
            let show = |_: &Spec, measured: &Measured, _| details.push(measured.detail.clone());
            let wanted = |spec: &Spec| names.contains(&spec.name);
            let figures = measure(&LACKS, wanted, ATTEMPTS, &Interrupt::default(), show).unwrap();
            (figures, details)
        };
        let (figures, details) = check(&["late", "good"]);
        assert_eq!(details, ["", "DID NOT RUN: it needs a feature"], "measured once");
        assert_eq!(figures[1].not_run().unwrap(), "late (needs a feature)");
        assert!(figures[0].holds() && !figures[1].holds());
        let error = verdict(&figures).unwrap_err();
        assert!(matches!(&error, FiguresError::NotRun { figures } if figures.len() == 1));
        assert!(error.to_string().contains("late (needs a feature)"), "{error}");
        // A figure beyond its limit is told first.
        let (figures, _) = check(&["late", "good", "bad"]);
        assert!(matches!(verdict(&figures), Err(FiguresError::Missed { .. })));
    }

    #[test]
    fn a_figure_that_its_measurement_forgets_is_an_error() {
        let forgets = Benchmark::Own(|_| Ok(Vec::new()), FIGURES);
        let figures = measure(&forgets, |_| true, 1, &Interrupt::default(), |_, _, _| ());
        assert!(matches!(figures, Err(FiguresError::NotMeasured { name: "good" })));
    }
}
