//! The results of a run, to wherever they are asked for: text, lines of JSON, comma-separated
//! values.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

use super::{
    args::{Asks, Format, OutputArgs},
    columns,
    recorder::{Interval, Rate},
    row::{Row, SCHEMA},
};
use crate::line;

/// A file that results cannot be written to.
#[derive(Debug, thiserror::Error)]
#[error("results cannot be written to {}: {why}", path.display())]
pub struct NotWritten {
    path: PathBuf,
    why: io::Error,
}

impl NotWritten {
    pub(super) fn new(path: &Path, why: io::Error) -> Self {
        Self { path: path.to_owned(), why }
    }
}

/// A file, by its name.
#[derive(Debug)]
struct Sink {
    path: PathBuf,
    file: File,
}

impl Sink {
    fn create(path: &Path) -> Result<Self, NotWritten> {
        let file = File::create(path).map_err(|why| NotWritten::new(path, why))?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn line(&mut self, line: &str) -> Result<(), NotWritten> {
        let written = writeln!(self.file, "{line}");
        written.map_err(|why| NotWritten::new(&self.path, why))
    }
}

/// The places that results go to.
#[derive(Debug)]
pub(crate) struct Output {
    asks: Asks,
    format: Format,
    /// Lines of JSON on standard output, in place of text.
    is_json: bool,
    json: Option<Sink>,
    csv: Option<Sink>,
    rows: u32,
}

impl Output {
    /// Opens the files, before anything is measured.
    ///
    /// # Errors
    /// If one cannot be made.
    pub(crate) fn open(args: &OutputArgs, asks: Asks) -> Result<Self, NotWritten> {
        let json = args.json.as_ref().and_then(Option::as_deref).map(Sink::create).transpose()?;
        let csv = args.csv.as_deref().map(Sink::create).transpose()?;
        let is_json = matches!(args.json, Some(None));
        Ok(Self { asks, format: args.format, is_json, json, csv, rows: 0 })
    }

    /// Whether people read standard output.
    pub(crate) const fn is_text(&self) -> bool {
        !self.is_json
    }

    /// How many rows there are so far.
    pub(crate) const fn rows(&self) -> u32 {
        self.rows
    }

    /// Writes an event other than a row.
    ///
    /// # Errors
    /// If a file takes no more.
    pub(crate) fn event(&mut self, name: &str, fields: &impl Serialize) -> Result<(), NotWritten> {
        #[derive(Serialize)]
        struct Event<'a, F> {
            schema: &'static str,
            event: &'a str,
            #[serde(flatten)]
            fields: &'a F,
        }
        self.json(&Event { schema: SCHEMA, event: name, fields })
    }

    /// Tells how it goes: to people on standard error, and as an event.
    ///
    /// # Errors
    /// If a file takes no more.
    pub(crate) fn interval(&mut self, interval: &Interval) -> Result<(), NotWritten> {
        #[derive(Serialize)]
        struct Told {
            seconds: f64,
            ops: u64,
            ops_per_s: f64,
            payload_gbit_per_s: f64,
            p50_us: Option<f64>,
            p99_us: Option<f64>,
            not_ok: u64,
        }
        let Interval { start, end, moved, latencies, not_ok } = interval;
        let elapsed = end.since(*start);
        let Rate { ops_per_s, gbit_per_s } = moved.per_second(elapsed);
        let (p50_us, p99_us) = (latencies.percentile_us(0.5), latencies.percentile_us(0.99));
        let in_words = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
        eprintln!(
            "  {ops_per_s:>11.0} ops/s {gbit_per_s:>8.3} Gbit/s  50% {} µs  99% {} µs  {not_ok} not OK",
            in_words(p50_us),
            in_words(p99_us),
        );
        let told = Told {
            seconds: elapsed.as_secs_f64(),
            ops: moved.ops,
            ops_per_s,
            payload_gbit_per_s: gbit_per_s,
            p50_us,
            p99_us,
            not_ok: *not_ok,
        };
        self.event("interval", &told)
    }

    /// Writes a row.
    ///
    /// # Errors
    /// If a file takes no more.
    pub(crate) fn row(&mut self, row: &Row) -> Result<(), NotWritten> {
        if self.is_text() {
            if self.rows == 0 {
                line!("{}", columns::head(self.asks, self.format));
            }
            line!("{}", columns::row(row, self.asks, self.format));
            if self.format == Format::People {
                columns::notes(row).iter().for_each(|note| line!("  {note}"));
            }
        }
        self.json(row)?;
        if let Some(csv) = &mut self.csv {
            let value = serde_json::to_value(row).expect("plain data");
            let mut leaves = Vec::new();
            collect(String::new(), &value, &mut leaves);
            if self.rows == 0 {
                csv.line(&joined(leaves.iter().map(|(name, _)| name.clone())))?;
            }
            csv.line(&joined(leaves.into_iter().map(|(_, value)| value)))?;
        }
        self.rows += 1;
        Ok(())
    }

    fn json(&mut self, value: &impl Serialize) -> Result<(), NotWritten> {
        if !self.is_json && self.json.is_none() {
            return Ok(());
        }
        let text = serde_json::to_string(value).expect("plain data");
        if self.is_json {
            line!("{text}");
        }
        self.json.as_mut().map_or(Ok(()), |it| it.line(&text))
    }
}

/// The leaves of a row, with their names joined by dots. Where an object is null in one row and
/// there in another, the columns of a file would not be the same: those are one column, as JSON.
fn collect(name: String, value: &Value, leaves: &mut Vec<(String, String)>) {
    /// Objects that are not there in each row.
    const WHOLE: [&str; 4] = ["service_us", "lateness_us", "server", "server_usage"];
    match value {
        Value::Object(fields) if !WHOLE.contains(&&*name) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                collect(name, value, leaves);
            }
        }
        Value::Null => leaves.push((name, String::new())),
        Value::String(text) => leaves.push((name, text.clone())),
        other => leaves.push((name, other.to_string())),
    }
}

/// A line of comma-separated values (RFC 4180).
fn joined(values: impl Iterator<Item = String>) -> String {
    let quoted = values.map(|value| match value.contains([',', '"', '\n']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value,
    });
    quoted.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_commas_and_quotes_are_quoted() {
        let values = ["a", "b,c", "say \"hi\""].map(str::to_owned);
        assert_eq!(joined(values.into_iter()), "a,\"b,c\",\"say \"\"hi\"\"\"");
    }

    #[test]
    fn leaves_of_a_row_have_their_path_as_name() {
        let value = serde_json::json!({"a": {"b": 1, "c": null}, "service_us": {"p50": 2}});
        let mut leaves = Vec::new();
        collect(String::new(), &value, &mut leaves);
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [of("a.b", "1"), of("a.c", ""), of("service_us", "{\"p50\":2}")];
        assert_eq!(leaves, expected);
    }
}
