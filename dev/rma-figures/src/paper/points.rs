//! The points of a figure, as they are stored: numbers with four significant digits, in an order
//! that depends on nothing but the figure.

use rma_bench::machine::Machine;
use serde::{Deserialize, Serialize};

use super::figure::Kind;

/// What a run of a figure leaves behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Points {
    /// The figure.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// The conditions of all points, in one line: network, seeds or rounds, sizes, encryption.
    pub(crate) conditions: String,
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
}

impl MeasuredOn {
    /// This machine.
    pub(crate) fn here(rounds: u64) -> Self {
        let Machine { machine, cores, kernel, .. } = Machine::here();
        Self { processor: machine, cores, kernel, rounds }
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
    /// Where most of what the value stands for lies.
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

/// `value` with four significant digits.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

impl Value {
    /// A value without an interval.
    pub(crate) fn new(x: f64, y: f64) -> Self {
        Self { x: rounded(x), y: rounded(y), interval: None }
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
    pub(crate) fn new(about: &super::figure::About, conditions: impl Into<String>) -> Self {
        Self {
            id: about.id.to_owned(),
            kind: about.kind,
            conditions: conditions.into(),
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
        let x = rounded(x);
        self.of(name).iter().find(|it| it.x.to_bits() == x.to_bits()).map(|it| it.y)
    }

    /// A number by its name.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.numbers.iter().find(|it| it.name == name).map(|it| it.value)
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
        let json = serde_json::to_string(&points).unwrap();
        assert!(json.contains("[0.1,1.235],[2.0,2.0,1.0,3.0]"), "{json}");
        assert_eq!(serde_json::from_str::<Points>(&json).unwrap(), points);
        assert_eq!((points.at("a", 0.1), points.value("settled")), (Some(1.235), Some(0.3333)));
        assert!(serde_json::from_str::<Value>("[1, 2, 3]").is_err());
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
