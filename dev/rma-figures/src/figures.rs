//! `rma-figures measure`: every figure that the documentation quotes, by name, and whether it keeps
//! its limit and reaches its goal.
//!
//! The figures, their limits and goals are in `table`, the sides that they compare in files beside
//! it, how two sides take turns in `alone` and `turns`, and what a missed limit does in `check`.

mod alone;
mod benchmark;
mod beside;
mod between;
mod captures;
mod changes;
mod channels;
mod check;
mod conditions;
mod crypto;
mod death;
mod decrypt;
mod engines;
mod failover;
mod first_read;
mod floors;
mod flows;
mod goodput;
mod instructions;
mod issue;
mod key_rotation;
mod keys;
mod kv;
mod limit;
mod queue_pairs;
mod rate;
mod rekey;
mod scale;
mod simulated;
mod simulations;
mod simulator;
mod spec;
mod star;
mod star_engines;
mod stations;
mod table;
mod tenants;
mod turn;
mod turns;
mod useless;

use clap::Args;
use rma_bench::{aead, interrupt::Interrupt, line};
use serde::Serialize;

use self::{
    check::{ATTEMPTS, measure, verdict},
    spec::{Measured, Spec},
    table::{BENCHMARKS, names, specs},
};
pub use self::{
    check::{Checked, FiguresError},
    limit::Limit,
};

/// The arguments of `figures`.
#[derive(Args, Clone, Debug)]
pub struct FiguresArgs {
    /// Print one line of JSON for each figure.
    #[arg(long)]
    pub json: bool,
    /// Figures to measure, by name, separated by commas. Default: those that say most.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Measure all figures.
    #[arg(long, conflicts_with = "only")]
    pub all: bool,
    /// Fail if a figure misses its limit. Such a figure is measured three times, since the machine
    /// may be busy, and the median decides. Every value is shown.
    #[arg(long, conflicts_with = "list")]
    pub check: bool,
    /// List the figures' names: those that are measured by default, or with `--all` all.
    #[arg(long)]
    pub list: bool,
}

/// One measurement of a figure, as it is printed.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// Under which conditions, and what it is made of.
    pub detail: String,
    /// The limit that it must keep.
    pub limit: Option<Limit>,
    /// Whether this value is within the limit, if there is one.
    pub ok: Option<bool>,
    /// The goal that it should reach.
    pub goal: Option<Limit>,
    /// Whether this value reaches the goal, if there is one.
    pub reached: Option<bool>,
    /// The measurement of this run that it comes from: 1, unless the figure, or one that is
    /// measured with it, missed its limit before.
    pub attempt: usize,
}

/// Measures and prints.
///
/// # Errors
/// If a figure does not exist or cannot be measured here, or, if they are checked, is beyond its
/// limit.
pub fn run(args: &FiguresArgs, interrupt: &Interrupt) -> Result<(), FiguresError> {
    let wanted = |spec: &Spec| match &args.only[..] {
        [] => args.all || spec.by_default,
        only => only.iter().any(|only| only == spec.name),
    };
    if args.list {
        let names: Vec<_> = specs().filter(|spec| wanted(spec)).map(|spec| spec.name).collect();
        line!("{}", names.join("\n"));
        return Ok(());
    }
    if let Some(name) = args.only.iter().find(|name| !names().contains(&name.as_str())) {
        return Err(FiguresError::Unknown { name: name.clone() });
    }
    if args.check && !aead::ENCRYPTS {
        return Err(FiguresError::NothingEncrypted);
    }
    if args.check && !specs().any(|spec| wanted(spec) && spec.limit.is_some()) {
        return Err(FiguresError::NothingToCheck);
    }
    if !args.json {
        line!("  {:31} {:>11} {:21} {:6} detail", "figure", "value", "(limit; goal)", "unit");
    }
    let attempts = if args.check { ATTEMPTS } else { 1 };
    let mut figures = Vec::new();
    for benchmark in BENCHMARKS {
        if benchmark.figures().iter().any(wanted) {
            let show = |spec: &Spec, measured: &Measured, attempt| {
                Figure::new(spec, measured, attempt).print(args.json);
            };
            figures.extend(measure(benchmark, wanted, attempts, interrupt, show)?);
        }
    }
    let not_run: Vec<String> = figures.iter().filter_map(Checked::not_run).collect();
    if !not_run.is_empty() {
        if !args.only.is_empty() {
            return Err(FiguresError::NotRun { figures: not_run });
        }
        let words = format!("did not run: {}", not_run.join("; "));
        if args.json { eprintln!("{words}") } else { line!("{words}") }
    }
    if args.check {
        let verdict = verdict(&figures)?;
        // In JSON, standard output is figures and nothing else.
        if args.json { eprintln!("{verdict}") } else { line!("{verdict}") }
    }
    Ok(())
}

impl Figure {
    fn new(spec: &Spec, measured: &Measured, attempt: usize) -> Self {
        let &Spec { name, unit, limit, goal, .. } = spec;
        let &Measured { value, ref detail } = measured;
        let holds = |limit: Option<Limit>| limit.map(|limit| limit.holds(value));
        let (ok, reached) = (holds(limit), holds(goal));
        Self { name, value, unit, detail: detail.clone(), limit, ok, goal, reached, attempt }
    }

    fn print(&self, json: bool) {
        if json {
            line!("{}", serde_json::to_string(self).expect("plain data"));
        } else {
            line!("{}", self.row());
        }
    }

    /// A line for people: `read64_over_floor  1.490 (at most 1.75; goal at most 1.4: not reached)
    /// ratio  …`.
    fn row(&self) -> String {
        let Self { name, value, unit, detail, .. } = self;
        let bound = |words: &str, limit: Option<Limit>, holds: Option<bool>, missed: &str| {
            let missed = if holds == Some(false) { missed } else { "" };
            limit.map(|limit| format!("{words}{limit}{missed}"))
        };
        let bounds = [
            bound("", self.limit, self.ok, ": MISSED"),
            bound("goal ", self.goal, self.reached, ": not reached"),
        ];
        let bounds: Vec<String> = bounds.into_iter().flatten().collect();
        let limit =
            if bounds.is_empty() { String::new() } else { format!("({})", bounds.join("; ")) };
        let again = match self.attempt {
            1 => String::new(),
            attempt => format!("measured again, {attempt} of {ATTEMPTS}: "),
        };
        format!("  {name:31} {value:>11.3} {limit:21} {unit:6} {again}{detail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, limit: Option<Limit>, attempt: usize) -> Figure {
        let spec = Spec { limit, ..Spec::new("made_up", "ratio") };
        Figure::new(&spec, &Measured::new(value, "of nothing"), attempt)
    }

    #[test]
    fn a_row_shows_the_limit_beside_the_value() {
        let limit = Some(Limit::AtMost(1.4));
        assert!(figure(1.39, limit, 1).row().contains(" 1.390 (at most 1.4) "));
        assert!(figure(1.41, limit, 1).row().contains(" 1.410 (at most 1.4: MISSED) "));
        let again = figure(1.39, limit, 2).row();
        assert!(again.ends_with("measured again, 2 of 3: of nothing"), "{again}");
    }

    #[test]
    fn a_goal_that_is_not_reached_is_said_and_is_no_miss() {
        let spec = Spec::new("made_up", "ratio").at_most(1.75).goal_at_most(1.4);
        let row = |value| Figure::new(&spec, &Measured::new(value, ""), 1).row();
        assert!(row(1.4).contains("(at most 1.75; goal at most 1.4) "), "{}", row(1.4));
        let between = row(1.5);
        assert!(between.contains("(at most 1.75; goal at most 1.4: not reached) "), "{between}");
        let goal_alone = Spec::new("made_up", "us").goal_at_most(1.4);
        let row = Figure::new(&goal_alone, &Measured::new(1.5, ""), 1).row();
        assert!(row.contains("(goal at most 1.4: not reached) "), "{row}");
    }

    #[test]
    fn json_says_the_limit_and_whether_it_is_kept() {
        let json = |figure: &Figure| serde_json::to_string(figure).unwrap();
        assert_eq!(
            json(&figure(1.5, Some(Limit::AtMost(1.4)), 1)),
            r#"{"name":"made_up","value":1.5,"unit":"ratio","detail":"of nothing","limit":{"at_most":1.4},"ok":false,"goal":null,"reached":null,"attempt":1}"#
        );
        assert!(json(&figure(1.5, None, 1)).contains(r#""limit":null,"ok":null,"goal":null,"#));
    }
}
