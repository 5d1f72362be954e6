//! `rma-bench report`: saved rows as one page, with all that it needs inside.
//!
//! No script that runs, no request, no date: equal rows give equal bytes.

use core::fmt::Write;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    drawing::{Axis, CURVES_MAX, Curve, Form, Panel, Picture, Point, Scale, escape},
    line, page,
    saved::{FileError, Key, Saved},
};

/// Arguments of `report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// The folder that index.html is written to. It is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Rows, as loads wrote them with --json=FILE.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// The rows of a file.
struct Run {
    /// The file's name; nothing if it is the only one.
    name: String,
    rows: Vec<Saved>,
}

/// Writes the page of the rows of all files.
///
/// # Errors
/// If a file is of no use, or the page cannot be written.
pub fn run(args: &ReportArgs) -> Result<(), FileError> {
    let short = |path: &Path| path.file_name().unwrap_or_default().to_owned();
    let mut runs = Vec::new();
    for path in &args.files {
        let is_unique = args.files.iter().filter(|it| short(it) == short(path)).count() == 1;
        let name = match args.files.len() {
            1 => String::new(),
            _ if is_unique => short(path).display().to_string(),
            _ => path.display().to_string(),
        };
        runs.push(Run { name, rows: Saved::read(path)? });
    }
    let path = args.out.join("index.html");
    let written = fs::create_dir_all(&args.out).and_then(|()| fs::write(&path, page(&runs)));
    let other = |why| format!("cannot be written: {why}; give another folder to --out");
    written.map_err(|why| FileError::new(&path, other(why)))?;
    line!("  report    {}", path.display());
    Ok(())
}

/// All of `index.html`.
fn page(runs: &[Run]) -> String {
    let all = figures(runs);
    let drawn = all.iter().filter_map(Picture::draw);
    let drawn: String = drawn.map(|svg| format!("<figure>\n{svg}</figure>\n")).collect();
    let (rows, conditions) = (table_of_rows(runs), table_of_conditions(runs));
    let embedded = embedded(runs);
    page::page(
        "rma-bench",
        &format!("{drawn}<h2>Rows</h2>\n{rows}<h2>Conditions</h2>\n{conditions}{embedded}"),
    )
}

/// The rows as they were found, for programs.
fn embedded(runs: &[Run]) -> String {
    let mut text = String::from("<script type='application/json' id='rows'>\n[");
    for (row, index) in runs.iter().flat_map(|it| &it.rows).zip(0_u32..) {
        text += if index == 0 { "\n" } else { ",\n" };
        // Only strings have these, and there it means the same.
        text += &row.json.to_string().replace('<', "\\u003c");
    }
    text + "\n]\n</script>\n"
}

fn table_of_rows(runs: &[Run]) -> String {
    let mut table = String::from(
        "<table>\n<tr><th>measured<th>ops<th>50 % [µs]<th>90 %<th>99 %<th>99.9 %<th>99.99 %\
         <th>ops/s<th>Gbit/s<th>\n",
    );
    let number = |it: Option<f64>, digits: usize| {
        it.map_or_else(|| "-".to_owned(), |it| format!("{it:.digits$}"))
    };
    for run in runs {
        for row in &run.rows {
            let it = &row.latency_us;
            let name = escape(&run.label(&row.key().to_string()));
            let _ = write!(table, "<tr><td>{name}<td>{}", it.count);
            for percentile in [it.p50, it.p90, it.p99, it.p99_9, it.p99_99] {
                let _ = write!(table, "<td>{}", number(percentile, 2));
            }
            let rate = number(row.throughput.ops_per_s, 0);
            let goodput = number(row.throughput.payload_gbit_per_s, 3);
            let marks = row.marks().join(", ");
            let _ = writeln!(table, "<td>{rate}<td>{goodput}<td>{marks}");
        }
    }
    table + "</table>\n"
}

/// Conditions by name, with a column for each file: what its rows were measured in.
fn table_of_conditions(runs: &[Run]) -> String {
    let mut table: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        for leaf in run.rows.iter().flat_map(|it| it.leaves(&["conditions", "server", "peer"])) {
            let columns = table.entry(leaf.name).or_insert_with(|| vec![Vec::new(); runs.len()]);
            if !columns[index].contains(&leaf.value) {
                columns[index].push(leaf.value);
            }
        }
    }
    let mut html = String::from("<table>\n<tr><th>");
    runs.iter().for_each(|it| html += &format!("<th>{}", escape(&it.name)));
    for (name, columns) in table {
        html += &format!("\n<tr><td>{}", escape(&name));
        columns.iter().for_each(|it| html += &format!("<td>{}", escape(&it.join(" or "))));
    }
    html + "\n</table>\n"
}

impl Run {
    fn label(&self, text: &str) -> String {
        if self.name.is_empty() { text.to_owned() } else { format!("{}: {text}", self.name) }
    }
}

/// The rows of a curve.
struct Group<'a> {
    name: String,
    rows: Vec<&'a Saved>,
}

/// The rows of closed loops, or of open ones, that have a name in common.
fn groups(runs: &[Run], is_open: bool, name: fn(&Key) -> String) -> Vec<Group<'_>> {
    let mut all = Vec::new();
    for run in runs {
        let mut groups: BTreeMap<String, Vec<&Saved>> = BTreeMap::new();
        for row in run.rows.iter().filter(|it| it.key().load.asked_per_s.is_some() == is_open) {
            groups.entry(name(&row.key())).or_default().push(row);
        }
        all.extend(groups.into_iter().map(|(name, rows)| Group { name: run.label(&name), rows }));
    }
    all
}

impl Group<'_> {
    fn curve(
        &self,
        name: &str,
        x: impl Fn(&Key) -> f64,
        y: impl Fn(&Saved) -> Option<f64>,
    ) -> Curve {
        let point = |row: &&Saved| {
            let is_saturated = row.marks().contains(&"saturated");
            Some(Point { is_saturated, ..Point::new(x(&row.key()), y(row)?) })
        };
        let points = self.rows.iter().filter_map(point).collect();
        curve(format!("{}{name}", self.name), points)
    }
}

const MICROSECONDS: Axis = Axis { name: "µs", scale: Scale::Log };
const SIZES: Axis = Axis { name: "size of an op [B]", scale: Scale::Bytes };

fn figures(runs: &[Run]) -> Vec<Picture> {
    let sizes =
        groups(runs, false, |it| format!("{} {}, depth {}", it.command, it.load.op, it.load.depth));
    let rates =
        groups(runs, true, |it| format!("{} {} of {} B", it.command, it.load.op, it.load.size));
    let size = |it: &Key| it.load.size as f64;
    let goodput = |it: &Group<'_>| it.curve("", size, |it| it.throughput.payload_gbit_per_s);
    let percentiles = runs.iter().flat_map(|run| run.rows.iter().map(|it| percentiles(run, it)));

    let rate = Axis { name: "ops/s that were asked for", scale: Scale::Linear };
    let gbit = Axis { name: "Gbit/s of payload", scale: Scale::Log };
    let nines = Axis { name: "percentile", scale: Scale::Nines };
    let offered = "Latency against offered load; a cross: saturated";
    let mut figures = latencies("Latency by size", SIZES, &sizes, size);
    figures.extend(singles("Goodput by size", SIZES, gbit, sizes.iter().map(goodput).collect()));
    figures.extend(latencies(offered, rate, &rates, |it| it.load.asked_per_s.unwrap_or(0.0)));
    figures.extend(singles("Latency by percentile", nines, MICROSECONDS, percentiles.collect()));
    figures
}

fn percentiles(run: &Run, row: &Saved) -> Curve {
    let it = &row.latency_us;
    let all =
        [(50.0, it.p50), (90.0, it.p90), (99.0, it.p99), (99.9, it.p99_9), (99.99, it.p99_99)];
    let points = all.into_iter().filter_map(|(x, y)| Some(Point::new(x, y?)));
    curve(run.label(&row.key().to_string()), points.collect())
}

const fn curve(name: String, points: Vec<Point>) -> Curve {
    Curve { name, colour: 0, dash: 0, form: Form::Marked, points }
}

/// A picture of one panel.
fn single(title: &str, x: Axis, y: Axis, curves: Vec<Curve>) -> Picture {
    let panel = Panel { title: String::new(), x, y, curves, marks: Vec::new() };
    Picture { title: title.to_owned(), conditions: String::new(), panels: vec![panel] }
}

/// Two percentiles of each group, of one colour, as many to a figure as are told apart.
fn latencies(
    title: &'static str,
    x: Axis,
    groups: &[Group<'_>],
    at: fn(&Key) -> f64,
) -> Vec<Picture> {
    let figure = |part: &[Group<'_>]| {
        let curves = part.iter().zip(0..).flat_map(|(group, colour)| {
            let p50 = group.curve(", 50 %", at, |it| it.latency_us.p50);
            let p99 = group.curve(", 99 %", at, |it| it.latency_us.p99);
            [Curve { colour, ..p50 }, Curve { colour, dash: 1, ..p99 }]
        });
        single(title, x, MICROSECONDS, curves.collect())
    };
    groups.chunks(CURVES_MAX / 2).map(figure).collect()
}

/// Curves of a colour each.
fn singles(title: &'static str, x: Axis, y: Axis, curves: Vec<Curve>) -> Vec<Picture> {
    let figure = |part: &[Curve]| {
        let coloured =
            part.iter().zip(0..).map(|(it, n)| Curve { colour: n, dash: n, ..it.clone() });
        single(title, x, y, coloured.collect())
    };
    curves.chunks(CURVES_MAX).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        load::row::tests::{row, row_at},
        saved::tests::saved,
    };

    fn run(rows: &[Value]) -> Run {
        Run { name: String::new(), rows: rows.iter().map(saved).collect() }
    }

    fn rows() -> Vec<Value> {
        let mut rows: Vec<Value> = [64, 4096].map(row).to_vec();
        for rate in [0.5, 2000.0, 3000.0] {
            let mut open = row_at(64, Some(rate));
            let saturated = (rate == 3000.0).then_some(2500.0);
            open["lateness_us"]["saturated_at_per_s"] = json!(saturated);
            rows.push(open);
        }
        rows
    }

    #[test]
    fn equal_rows_give_equal_bytes_with_every_figure_and_nothing_from_elsewhere() {
        let first = page(&[run(&rows())]);
        assert_eq!(first, page(&[run(&rows())]));
        assert_eq!(first.matches("<figure>").count(), 4);
        for title in ["Latency by size", "Goodput", "offered load", "by percentile"] {
            assert!(first.contains(title), "{title}");
        }
        for mark in ["prefers-color-scheme: dark", "@media print", "class='cross'"] {
            assert!(first.contains(mark), "{mark}");
        }
        for request in ["src=", "href=", "url(", "@import", "://"] {
            assert!(!first.contains(request), "{request}");
        }
        assert_eq!(first.matches("<script").count(), 1);
        let (_, json) = first.split_once("id='rows'>").unwrap();
        let (json, _) = json.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<Vec<Value>>(json).unwrap(), rows());
    }

    #[test]
    fn text_of_a_file_is_no_part_of_the_page() {
        let mut row = row(64);
        let hostile = "</script><script>alert('1\u{1b}')</script><!--\"&";
        row["command"] = json!(hostile);
        row["load"]["op"] = json!(hostile);
        row["conditions"][hostile] = json!([hostile, { hostile: hostile }]);
        let run = Run { name: hostile.to_owned(), ..run(&[row]) };
        let html = page(&[run]);
        assert_eq!(html.matches("<script").count(), 1);
        assert!(!html.contains("<!--") && !html.contains('\u{1b}'));
    }

    #[test]
    fn one_row_has_its_percentiles_and_no_curve_over_sizes() {
        let page = page(&[run(&[row(64)])]);
        assert_eq!(page.matches("<figure>").count(), 1);
        assert!(page.contains("Latency by percentile"));
    }
}
