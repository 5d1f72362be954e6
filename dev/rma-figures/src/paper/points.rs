//! The points of a figure, as they are stored: values with four significant digits, in an order
//! that depends on nothing but the figure.

use rma_bench::machine::Machine;
use serde::{Deserialize, Serialize};

use super::about::{About, Kind};

/// All that a run of a figure leaves behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Points {
    /// The figure.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// The conditions of all points, in one line: network, seeds or rounds, sizes, encryption.
    pub(crate) conditions: String,
    /// Whether they are some of those at full scale.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub(crate) is_quick: bool,
    /// The seeds or rounds, if they were asked for and are not the figure's own number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seeds: Option<u64>,
    /// The machine that measured points are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) measured_on: Option<MeasuredOn>,
    pub(crate) series: Vec<Series>,
    /// Single numbers, such as how long something took to settle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) numbers: Vec<Number>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tables: Vec<Table>,
}

/// The machine that points were measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MeasuredOn {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// Rounds of each point.
    pub(crate) rounds: u64,
    /// The day and name of the commit that was measured, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
}

impl MeasuredOn {
    /// This machine.
    pub(crate) fn here(rounds: u64) -> Self {
        let Machine { machine, cores, kernel, .. } = Machine::here();
        Self { processor: machine, cores, kernel, rounds, commit: None }
    }
}

/// Values over one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// Unique in its figure.
    pub(crate) name: String,
    pub(crate) values: Vec<Value>,
}

/// A value at a place of an axis. Stored as `[x, y]` or `[x, y, low, high]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub(crate) struct Value {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The range of most of what the value stands for.
    pub(crate) interval: Option<[f64; 2]>,
}

/// A number by its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Number {
    /// Unique in its figure.
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
}

/// A table of words and numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A reason why points cannot be stored or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PointsError {
    /// A value that no axis has.
    #[error(
        "{series}: {value} at {x} is no number that can be stored; the run that made it is wrong"
    )]
    NoNumber {
        /// The series or number.
        series: String,
        x: String,
        value: String,
    },
    /// Two series of one name.
    #[error("two series or numbers of figure {id} are called {name:?}; give one another name")]
    Twice { id: String, name: String },
    /// A value of another form.
    #[error("a value has {0} numbers and not two or four; write the file again")]
    Form(usize),
}

/// A place on an axis with eight significant digits: sizes stay the powers of two that they are.
fn place(x: f64) -> f64 {
    format!("{x:.7e}").parse().unwrap_or(x)
}

/// `value` with four significant digits.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

impl Value {
    /// A value without an interval.
    pub(crate) fn new(x: f64, y: f64) -> Self {
        Self { x: place(x), y: rounded(y), interval: None }
    }

    /// The middle of `all`, and the least and most of the middle 80 %.
    pub(crate) fn of(x: f64, all: &mut [f64]) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (all.len().saturating_sub(1)) as f64 * share;
            all.get(place.round() as usize).copied().unwrap_or(f64::NAN)
        };
        let middle = all.len() / 2;
        let median = match all.len() {
            0 => f64::NAN,
            len if len % 2 == 0 => f64::midpoint(all[middle - 1], all[middle]),
            _ => all[middle],
        };
        let interval = (all.len() > 1).then(|| [rounded(at(0.1)), rounded(at(0.9))]);
        Self { interval, ..Self::new(x, median) }
    }

    /// The upper end of its interval; without one, the value.
    pub(crate) fn most(&self) -> f64 {
        self.interval.map_or(self.y, |[_, high]| high)
    }

    /// The same with an interval.
    pub(crate) fn within(self, low: f64, high: f64) -> Self {
        Self { interval: Some([rounded(low), rounded(high)]), ..self }
    }
}

impl TryFrom<Vec<f64>> for Value {
    type Error = PointsError;

    fn try_from(stored: Vec<f64>) -> Result<Self, PointsError> {
        match stored[..] {
            [x, y] => Ok(Self { x, y, interval: None }),
            [x, y, low, high] => Ok(Self { x, y, interval: Some([low, high]) }),
            _ => Err(PointsError::Form(stored.len())),
        }
    }
}

impl From<Value> for Vec<f64> {
    fn from(value: Value) -> Self {
        let ends = value.interval.into_iter().flatten();
        [value.x, value.y].into_iter().chain(ends).collect()
    }
}

impl Points {
    /// Points of a figure that has none yet.
    pub(crate) fn new(about: &About, conditions: impl Into<String>) -> Self {
        Self {
            id: about.id.to_owned(),
            kind: about.kind,
            conditions: conditions.into(),
            is_quick: false,
            seeds: None,
            measured_on: None,
            series: Vec::new(),
            numbers: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Adds a series.
    pub(crate) fn push(&mut self, name: impl Into<String>, values: Vec<Value>) {
        self.series.push(Series { name: name.into(), values });
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, name: impl Into<String>, value: f64, unit: &str) {
        let number = Number { name: name.into(), value: rounded(value), unit: unit.to_owned() };
        self.numbers.push(number);
    }

    /// The values of a series; none if it is not there.
    pub(crate) fn of(&self, name: &str) -> &[Value] {
        let found = self.series.iter().find(|it| it.name == name);
        found.map_or(&[], |it| &it.values)
    }

    /// The value of a series at `x`.
    pub(crate) fn at(&self, name: &str, x: f64) -> Option<f64> {
        let x = place(x);
        self.of(name).iter().find(|it| it.x.to_bits() == x.to_bits()).map(|it| it.y)
    }

    /// A number by its name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.numbers.iter().find(|it| it.name == name).map(|it| it.value)
    }

    /// All conditions, in one line.
    pub(crate) fn line(&self) -> String {
        let mut line = self.kind.to_string();
        if let Some(MeasuredOn { processor, cores, kernel, rounds, commit }) = &self.measured_on {
            line += &format!(
                ", measured on {processor}, {cores} cores, Linux {kernel}, {rounds} rounds"
            );
            commit.iter().for_each(|it| line += &format!(", {it}"));
        }
        if self.is_quick {
            line += "; some of the points";
        }
        format!("{line}; {}", self.conditions)
    }

    /// The command that makes them again.
    pub(crate) fn command(&self) -> String {
        let quick = if self.is_quick { " --quick" } else { "" };
        let seeds = self.seeds.map_or_else(String::new, |it| format!(" --seeds {it}"));
        format!("rma-figures paper {}{quick}{seeds}", self.id)
    }

    /// The reason why they decide nothing, if there is one.
    pub(crate) fn too_few(&self) -> Option<String> {
        let rounds = self.measured_on.as_ref().map(|it| it.rounds).filter(|it| *it < ROUNDS_MIN);
        let short = self.series.iter().find(|it| it.values.len() < 2);
        let is_empty = self.series.is_empty() && self.numbers.is_empty() && self.tables.is_empty();
        if let Some(rounds) = rounds {
            Some(format!("{rounds} rounds, and {ROUNDS_MIN} are needed"))
        } else if let Some(Series { name, values }) = short {
            Some(format!("{name} has too few values: {}", values.len()))
        } else {
            is_empty.then(|| "nothing was measured".to_owned())
        }
    }

    /// As the text of a file.
    pub(crate) fn json(&self) -> String {
        let mut text = String::new();
        let json = serde_json::to_value(self).unwrap_or_default();
        write_json(&json, 0, &mut text);
        text + "\n"
    }

    /// As comma-separated values: a line for each value and number, and all tables below.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from("series,x,y,low,high,unit\n");
        for Series { name, values } in &self.series {
            for Value { x, y, interval } in values {
                let ends =
                    interval.map_or_else(|| ",".to_owned(), |[low, high]| format!("{low},{high}"));
                text += &format!("{},{x},{y},{ends},\n", cell(name));
            }
        }
        for Number { name, value, unit } in &self.numbers {
            text += &format!("{},,{value},,,{}\n", cell(name), cell(unit));
        }
        for Table { title, heads, rows } in &self.tables {
            text += &format!("\n{}\n", cell(title));
            for row in [heads].into_iter().chain(rows) {
                let cells: Vec<String> = row.iter().map(|it| cell(it)).collect();
                text += &(cells.join(",") + "\n");
            }
        }
        text
    }

    /// Checks that all can be stored and told apart.
    ///
    /// # Errors
    /// The first value or name that cannot.
    pub(crate) fn check(&self) -> Result<(), PointsError> {
        let mut names: Vec<&str> = self.series.iter().map(|it| it.name.as_str()).collect();
        names.extend(self.numbers.iter().map(|it| it.name.as_str()));
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|it| it[0] == it[1]) {
            return Err(PointsError::Twice { id: self.id.clone(), name: twice[0].to_owned() });
        }
        let of_series = self.series.iter().flat_map(|it| {
            it.values.iter().flat_map(move |value| {
                Vec::from(*value).into_iter().map(move |part| (&it.name, value.x, part))
            })
        });
        let of_numbers = self.numbers.iter().map(|it| (&it.name, 0.0, it.value));
        for (series, x, value) in of_series.chain(of_numbers) {
            if !value.is_finite() {
                let (x, value) = (x.to_string(), value.to_string());
                return Err(PointsError::NoNumber { series: series.clone(), x, value });
            }
        }
        Ok(())
    }
}

/// Fewer rounds than these decide nothing.
const ROUNDS_MIN: u64 = 3;

/// Text as a cell of comma-separated values.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Writes JSON with what holds no other list in one line, so that a difference is a line.
fn write_json(json: &serde_json::Value, depth: usize, text: &mut String) {
    use serde_json::Value::{Array, Object};
    let items: Vec<(String, &serde_json::Value)> = match json {
        Array(all) => all.iter().map(|it| (String::new(), it)).collect(),
        Object(all) => all.iter().map(|(name, it)| (format!("{name:?}: "), it)).collect(),
        _ => Vec::new(),
    };
    if !items.iter().any(|(_, it)| matches!(it, Array(_) | Object(_))) {
        *text += &json.to_string();
        return;
    }
    let [open, close] = if matches!(json, Array(_)) { ['[', ']'] } else { ['{', '}'] };
    let indent = "  ".repeat(depth + 1);
    text.push(open);
    for (index, (name, it)) in items.into_iter().enumerate() {
        *text += if index == 0 { "\n" } else { ",\n" };
        *text += &format!("{indent}{name}");
        write_json(it, depth + 1, text);
    }
    *text += &format!("\n{}", "  ".repeat(depth));
    text.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::figure::About;

    const ABOUT: About =
        About { id: "1rma-0", title: "", says: "", kind: Kind::Simulation, seconds: 1 };

    #[test]
    fn points_are_read_as_they_were_stored() {
        let mut points = Points::new(&ABOUT, "two hosts");
        points.push("a", vec![Value::new(0.1, 1.234_56), Value::of(2.0, &mut [3.0, 1.0, 2.0])]);
        points.number("settled", 1.0 / 3.0, "RTT");
        points.check().unwrap();
        points.tables.push(Table {
            title: "a, b".to_owned(),
            heads: vec!["a".to_owned()],
            rows: vec![vec!["\"x\"".to_owned()]],
        });
        let json = points.json();
        assert!(json.contains("[0.1,1.235],\n        [2.0,2.0,1.0,3.0]\n"), "{json}");
        assert_eq!(serde_json::from_str::<Points>(&json).unwrap(), points);
        assert_eq!((points.at("a", 0.1), points.value("settled")), (Some(1.235), Some(0.3333)));
        assert!(serde_json::from_str::<Value>("[1, 2, 3]").is_err());
        let csv =
            "a,0.1,1.235,,,\na,2,2,1,3,\nsettled,,0.3333,,,RTT\n\n\"a, b\"\na\n\"\"\"x\"\"\"\n";
        assert_eq!(points.csv(), format!("series,x,y,low,high,unit\n{csv}"));
    }

    #[test]
    fn two_rounds_or_a_curve_of_one_point_or_nothing_decide_nothing() {
        let mut points = Points::new(&ABOUT, "two hosts");
        assert!(points.too_few().is_some());
        points.push("a", vec![Value::new(1.0, 1.0), Value::new(2.0, 1.0)]);
        assert_eq!(
            (points.too_few(), points.command().as_str()),
            (None, "rma-figures paper 1rma-0")
        );
        points.measured_on = Some(MeasuredOn::here(3));
        assert_eq!(points.too_few(), None);
        points.measured_on = Some(MeasuredOn::here(2));
        assert!(points.too_few().is_some() && points.line().contains(", 2 rounds; two hosts"));
        points.measured_on = None;
        points.push("b", vec![Value::new(1.0, 1.0)]);
        assert_eq!(points.too_few().unwrap(), "b has too few values: 1");
    }

    #[test]
    fn a_value_that_is_no_number_and_a_name_given_twice_are_refused() {
        let mut points = Points::new(&ABOUT, "");
        points.push("a", vec![Value::new(1.0, f64::NAN)]);
        assert!(matches!(points.check(), Err(PointsError::NoNumber { .. })));
        let mut points = Points::new(&ABOUT, "");
        points.push("a", Vec::new());
        points.number("a", 1.0, "");
        assert!(matches!(points.check(), Err(PointsError::Twice { .. })));
    }
}
