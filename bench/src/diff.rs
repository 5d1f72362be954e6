//! `rma-bench diff`: two saved runs, what is not alike in their conditions, and what became worse.
//!
//! Two values are told apart if their intervals of 95 % are apart, and in no other way.

use core::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::{
    line,
    saved::{FileError, Key, Leaf, Saved},
};

/// Arguments of `diff`.
#[derive(Args, Clone, Debug)]
pub struct DiffArgs {
    /// Rows of the run before, as a load wrote them with --json=FILE.
    before: PathBuf,
    /// Rows of the run after.
    after: PathBuf,
    /// Exit with 3 if a value is told apart, and worse by more than this.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    limit: Option<f64>,
    /// Print one object of JSON instead of text.
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse().ok();
    number
        .filter(|it: &f64| it.is_finite() && *it >= 0.0)
        .ok_or_else(|| "a percentage from 0 is needed, such as 5%".to_owned())
}

/// An error that `diff` ends with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// A file is of no use.
    #[error(transparent)]
    File(#[from] FileError),
    /// The two files have nothing to compare, or nothing to judge.
    #[error("{}, and {}: {why}", before.display(), after.display())]
    Nothing {
        /// The file before.
        before: PathBuf,
        /// The file after.
        after: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// A run that broke off is no better than one that is worse.
    #[error("{missing} rows are missing or partial in {}, which is within no limit: run it again", after.display())]
    Incomplete {
        /// How many are.
        missing: usize,
        /// The file.
        after: PathBuf,
    },
    /// Values are worse than they may be.
    #[error("values worse by more than {limit} %: {worse}; see WORSE")]
    Worse {
        /// How many are.
        worse: usize,
        /// The limit.
        limit: f64,
    },
}

impl DiffError {
    /// The exit status of a program that ends with it.
    #[must_use]
    pub const fn status(&self) -> u8 {
        if matches!(self, Self::Worse { .. } | Self::Incomplete { .. }) { 3 } else { 1 }
    }
}

/// A difference, as programs read it.
#[derive(Clone, Debug, Serialize)]
struct Diff {
    schema: &'static str,
    limit_percent: Option<f64>,
    not_alike: Vec<NotAlike>,
    pairs: Vec<Pair>,
    only_before: Vec<Key>,
    only_after: Vec<Key>,
}

/// A condition that differs, and in how many pairs of rows.
#[derive(Clone, Debug, Serialize)]
struct NotAlike {
    name: String,
    before: String,
    after: String,
    pairs: usize,
}

/// Two rows of the same measurement.
#[derive(Clone, Debug, Serialize)]
struct Pair {
    #[serde(flatten)]
    key: Key,
    marks_before: Vec<&'static str>,
    marks_after: Vec<&'static str>,
    values: Vec<Change>,
}

/// A value, before and after.
#[derive(Clone, Debug, Serialize)]
struct Change {
    name: &'static str,
    unit: &'static str,
    before: Option<f64>,
    after: Option<f64>,
    change_percent: Option<f64>,
    /// The least and the largest change, if each value is anywhere in its interval.
    between_percent: Option<[f64; 2]>,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// One of the values has no interval.
    NoInterval,
    NotToldApart,
    Better,
    Worse,
    WorseThanLimit,
}

/// A value of a row.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    value: Option<f64>,
    ci95: Option<[f64; 2]>,
}

impl Quantity {
    fn all(row: &Saved) -> [Self; 4] {
        let Saved { latency_us: latency, throughput, .. } = row;
        let (rate, goodput) = (throughput.ops_per_s, throughput.payload_gbit_per_s);
        let per_op = rate.zip(goodput).map(|(rate, goodput)| goodput / rate);
        let of_goodput = throughput.ci95.zip(per_op).map(|(ci95, it)| ci95.map(|end| end * it));
        let of = |name, unit, value, ci95| Self { name, unit, value, ci95 };
        [
            of("t_typical", "µs", latency.p50, latency.p50_ci95),
            of("99%", "µs", latency.p99, None),
            of("rate", "ops/s", rate, throughput.ci95),
            of("goodput", "Gbit/s", goodput, of_goodput),
        ]
    }
}

impl Change {
    fn new(before: &Quantity, after: &Quantity, limit: Option<f64>) -> Self {
        let percent = |from: f64, to: f64| (to / from - 1.0) * 100.0;
        let both = before.value.zip(after.value);
        let change_percent = both.map(|(from, to)| percent(from, to)).filter(|it| it.is_finite());
        let between = before.ci95.zip(after.ci95);
        let between = between.map(|(from, to)| [percent(from[1], to[0]), percent(from[0], to[1])]);
        let between_percent = between.filter(|[low, high]| low.is_finite() && high.is_finite());
        let is_more_better = before.unit != "µs";
        let verdict = match between_percent.zip(change_percent) {
            None => Verdict::NoInterval,
            Some(([low, high], _)) if low <= 0.0 && high >= 0.0 => Verdict::NotToldApart,
            Some(([low, _], _)) if (low > 0.0) == is_more_better => Verdict::Better,
            Some((_, change)) => {
                let worse = if is_more_better { -change } else { change };
                let is_beyond = limit.is_some_and(|limit| worse > limit);
                if is_beyond { Verdict::WorseThanLimit } else { Verdict::Worse }
            }
        };
        let Quantity { name, unit, value, .. } = *before;
        let (before, after) = (value, after.value);
        Self { name, unit, before, after, change_percent, between_percent, verdict }
    }

    /// The value for people, with digits enough.
    fn number(&self, value: Option<f64>) -> String {
        let digits = match (self.unit, value) {
            ("ops/s", _) => 0,
            ("Gbit/s", Some(..1.0)) => 6,
            ("Gbit/s", _) => 3,
            _ => 2,
        };
        value.map_or_else(|| "-".to_owned(), |it| format!("{it:.digits$}"))
    }
}

/// Compares two files.
///
/// # Errors
/// If a file is of no use, if nothing in one is in the other, or if a value is worse than the
/// limit.
pub fn run(args: &DiffArgs) -> Result<(), DiffError> {
    let nothing = |why: String| {
        let (before, after) = (args.before.clone(), args.after.clone());
        Err(DiffError::Nothing { before, after, why })
    };
    let diff = Diff::new(&read(&args.before)?, &read(&args.after)?, args.limit);
    if let ([], [only, ..]) = (&diff.pairs[..], &diff.only_before[..]) {
        return nothing(format!(
            "no row is of the same command, op, size, depth and rate, such as {only}: run the same \
             command for both"
        ));
    }
    if args.json {
        line!("{}", serde_json::to_string(&diff).expect("plain data"));
    } else {
        line!("{diff}");
    }
    let Some(limit) = args.limit else { return Ok(()) };
    let partial = diff.pairs.iter().filter(|it| it.marks_after.contains(&"partial")).count();
    let missing = diff.only_before.len() + partial;
    if missing > 0 {
        return Err(DiffError::Incomplete { missing, after: args.after.clone() });
    }
    let worse = diff.count(Verdict::WorseThanLimit);
    let values: usize = diff.pairs.iter().map(|it| it.values.len()).sum();
    match values - diff.count(Verdict::NoInterval) {
        0 => nothing("no interval in both, so --limit says nothing: use --rounds 10".to_owned()),
        _ if worse > 0 => Err(DiffError::Worse { worse, limit }),
        _ => Ok(()),
    }
}

/// The rows of a file, of a measurement each.
fn read(path: &Path) -> Result<Vec<Saved>, FileError> {
    let rows = Saved::read(path)?;
    for (index, row) in rows.iter().enumerate() {
        let key = row.key();
        if let Some(Saved { line, .. }) = find(&rows[..index], &key) {
            let again = format!("line {}: {key} again, as in line {line}", row.line);
            return Err(FileError::new(path, again + ": keep one run in a file"));
        }
    }
    Ok(rows)
}

/// The row of a measurement.
fn find<'a>(rows: &'a [Saved], key: &Key) -> Option<&'a Saved> {
    rows.iter().find(|it| it.key() == *key)
}

impl Diff {
    fn new(before: &[Saved], after: &[Saved], limit: Option<f64>) -> Self {
        let (mut not_alike, mut pairs) = (Vec::new(), Vec::new());
        for from in before {
            let key = from.key();
            let Some(to) = find(after, &key) else { continue };
            note(&mut not_alike, from, to);
            let values = Quantity::all(from).into_iter().zip(Quantity::all(to));
            let values = values.map(|(from, to)| Change::new(&from, &to, limit)).collect();
            let (marks_before, marks_after) = (from.marks(), to.marks());
            pairs.push(Pair { key, marks_before, marks_after, values });
        }
        let only = |here: &[Saved], there: &[Saved]| {
            let keys = here.iter().map(Saved::key);
            keys.filter(|it| find(there, it).is_none()).collect()
        };
        Self {
            schema: "rma-bench-diff/1",
            limit_percent: limit,
            not_alike,
            pairs,
            only_before: only(before, after),
            only_after: only(after, before),
        }
    }

    /// How many values are of this verdict.
    fn count(&self, verdict: Verdict) -> usize {
        let values = self.pairs.iter().flat_map(|it| &it.values);
        values.filter(|it| it.verdict == verdict).count()
    }
}

/// Adds what is not alike in two rows.
fn note(all: &mut Vec<NotAlike>, before: &Saved, after: &Saved) {
    let [before, after] =
        [before, after].map(|it| it.leaves(&["conditions", "server", "peer", "load"]));
    let value = |leaves: &[Leaf], name: &str| {
        let found = leaves.iter().find(|it| it.name == name);
        found.map_or_else(|| "not told".to_owned(), |it| it.value.clone())
    };
    let new = after.iter().filter(|it| before.iter().all(|old| old.name != it.name));
    for Leaf { name, .. } in before.iter().chain(new) {
        let [before, after] = [&before, &after].map(|it| value(it, name));
        let is_known =
            |it: &&mut NotAlike| it.name == *name && it.before == before && it.after == after;
        if before == after {
            continue;
        }
        match all.iter_mut().find(is_known) {
            Some(known) => known.pairs += 1,
            None => all.push(NotAlike { name: name.clone(), before, after, pairs: 1 }),
        }
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for NotAlike { name, before, after, pairs } in &self.not_alike {
            write!(f, "  not alike    {name}: {before} → {after}")?;
            let all = self.pairs.len();
            if *pairs < all { writeln!(f, "  (in {pairs} of {all} rows)")? } else { writeln!(f)? }
        }
        let width = self.pairs.iter().map(|it| it.key.to_string().chars().count()).max();
        let width = width.unwrap_or_default();
        for pair in &self.pairs {
            let key = &pair.key;
            let marks = [("before", &pair.marks_before), ("after", &pair.marks_after)];
            let marks = marks.into_iter().filter(|(_, marks)| !marks.is_empty());
            let marks = marks.map(|(side, marks)| format!("{side}: {}", marks.join(", ")));
            let marks = marks.collect::<Vec<_>>().join("; ");
            if !marks.is_empty() {
                writeln!(f, "  {key:width$}  {marks}")?;
            }
            for change in &pair.values {
                let [before, after] = [change.before, change.after].map(|it| change.number(it));
                let Change { name, unit, .. } = change;
                let percent =
                    change.change_percent.map_or_else(String::new, |it| format!("{it:+.1} %"));
                let between = change.between_percent;
                let between = between
                    .map_or_else(String::new, |[low, high]| format!("({low:+.1} to {high:+.1})"));
                let verdict = match change.verdict {
                    Verdict::NoInterval => "no interval".to_owned(),
                    Verdict::NotToldApart => "not told apart".to_owned(),
                    Verdict::Better => "better".to_owned(),
                    Verdict::Worse => "worse".to_owned(),
                    Verdict::WorseThanLimit => {
                        format!("WORSE than {} %", self.limit_percent.unwrap_or_default())
                    }
                };
                writeln!(
                    f,
                    "  {key:width$}  {name:9} {before:>10} → {after:>10} {unit:6} {percent:>8}  \
                     {between:16}  {verdict}"
                )?;
            }
        }
        for (side, keys) in [("before", &self.only_before), ("after", &self.only_after)] {
            keys.iter().try_for_each(|key| writeln!(f, "  only {side:7} {key}"))?;
        }
        write!(
            f,
            "  {} better, {} worse, {} not told apart, {} without an interval",
            self.count(Verdict::Better),
            self.count(Verdict::Worse) + self.count(Verdict::WorseThanLimit),
            self.count(Verdict::NotToldApart),
            self.count(Verdict::NoInterval),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{load::row::tests::row, saved::tests::saved};

    fn rows(rows: &[Value]) -> Vec<Saved> {
        rows.iter().map(saved).collect()
    }

    /// The verdict on t_typical and on the rate, after both have grown by this factor.
    fn verdicts(factor: f64, limit: Option<f64>) -> [Verdict; 2] {
        let mut after = row(64);
        let latency = &mut after["latency_us"];
        latency["p50"] = json!(4.0 * factor);
        latency["p50_ci95"] = json!([3.9 * factor, 4.1 * factor]);
        let throughput = &mut after["throughput"];
        throughput["ops_per_s"] = json!(1000.0 * factor);
        throughput["ci95"] = json!([990.0 * factor, 1010.0 * factor]);
        let diff = Diff::new(&rows(&[row(64)]), &rows(&[after]), limit);
        [0, 2].map(|it| diff.pairs[0].values[it].verdict)
    }

    #[test]
    fn values_are_told_apart_if_their_intervals_are_and_judged_by_the_limit() {
        use Verdict::{Better, NotToldApart, Worse, WorseThanLimit};
        assert_eq!(verdicts(1.0, Some(0.0)), [NotToldApart, NotToldApart]);
        // 4.2 is from 4.095, below 4.1; 1050 is from 1039.5, above 1010.
        assert_eq!(verdicts(1.05, Some(1.0)), [NotToldApart, Better]);
        assert_eq!(verdicts(1.06, None), [Worse, Better]);
        assert_eq!(verdicts(1.06, Some(6.5)), [Worse, Better]);
        assert_eq!(verdicts(1.06, Some(5.0)), [WorseThanLimit, Better]);
        assert_eq!(verdicts(0.9, Some(5.0)), [Better, WorseThanLimit]);
    }

    #[test]
    fn a_difference_says_all_that_is_not_alike() {
        let mut after = row(64);
        after["conditions"]["kernel"] = json!("6.12");
        after["conditions"]["fallbacks"] = json!(["copy mode"]);
        after["partial"] = json!(true);
        after["latency_us"]["p50_ci95"] = Value::Null;
        let before = rows(&[row(64), row(128)]);
        let text = Diff::new(&before, &rows(&[after, row(4096)]), None).to_string();
        for part in [
            "not alike    kernel: 6.1 → 6.12\n",
            "not alike    fallbacks: none → copy mode\n",
            "after: partial\n",
            "no interval\n",
            "only before  read-lat READ 128 B\n",
            "only after   read-lat READ 4 KiB\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn values_of_zero_have_no_change() {
        let mut zero = row(64);
        zero["throughput"] = json!({ "ops_per_s": 0.0, "payload_gbit_per_s": 0.0, "ci95": [0, 0] });
        let diff = Diff::new(&rows(&[zero.clone()]), &rows(&[zero]), Some(0.0));
        assert!(diff.pairs[0].values[2..].iter().all(|it| it.change_percent.is_none()));
        assert_eq!(diff.count(Verdict::NotToldApart), 1);
    }

    #[test]
    fn percentages_are_numbers_from_zero() {
        assert_eq!(["5%", " 0.5 %", "0"].map(percent), [Ok(5.0), Ok(0.5), Ok(0.0)]);
        assert!(["", "%", "-1", "NaN", "inf", "5x"].iter().all(|it| percent(it).is_err()));
    }
}
