//! Rows that loads have saved with `--json=FILE`, as `diff` and `report` read them.
//!
//! Only what those two need is asked for, so that rows of later versions with more fields are read
//! as well. All else of a row stays as it was found.

use core::fmt;
use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::load::row::SCHEMA;

/// A file that is of no use: which, why, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct FileError {
    path: PathBuf,
    why: String,
}

impl FileError {
    pub(crate) fn new(path: &Path, why: impl Into<String>) -> Self {
        Self { path: path.to_owned(), why: why.into() }
    }
}

/// A row, as far as it is understood, and as it was found.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Saved {
    command: String,
    #[serde(default)]
    pub(crate) partial: bool,
    load: Load,
    pub(crate) latency_us: Latency,
    pub(crate) lateness_us: Option<Lateness>,
    pub(crate) throughput: Throughput,
    /// The number of its line.
    #[serde(skip)]
    pub(crate) line: usize,
    /// All of it.
    #[serde(skip)]
    pub(crate) json: Value,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Latency {
    #[serde(default)]
    pub(crate) count: u64,
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p99_9: Option<f64>,
    pub(crate) p99_99: Option<f64>,
    pub(crate) p50_ci95: Option<[f64; 2]>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Lateness {
    pub(crate) saturated_at_per_s: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Throughput {
    pub(crate) ops_per_s: Option<f64>,
    pub(crate) payload_gbit_per_s: Option<f64>,
    pub(crate) ci95: Option<[f64; 2]>,
    pub(crate) steady: Option<bool>,
}

/// The measurement that a row is of, the same in two rows that can be compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Key {
    pub(crate) command: String,
    #[serde(flatten)]
    pub(crate) load: Load,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Load {
    pub(crate) op: String,
    r#loop: String,
    pub(crate) size: u64,
    pub(crate) depth: u32,
    pub(crate) asked_per_s: Option<f64>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, load: Load { op, size, depth, asked_per_s, .. } } = self;
        let mut text = format!("{command} {op} {}", in_bytes(*size));
        if *depth != 1 {
            text += &format!(", depth {depth}");
        }
        if let Some(rate) = asked_per_s {
            text += &format!(", {rate}/s");
        }
        f.pad(&text)
    }
}

/// A condition, or another thing that was asked for, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Saved {
    /// All rows of a file. At least one.
    ///
    /// # Errors
    /// If there is none, or if any line is not what a load writes.
    pub(crate) fn read(path: &Path) -> Result<Vec<Self>, FileError> {
        let bytes = fs::read(path).map_err(|why| {
            FileError::new(path, format!("{why}; give a file that a load wrote with --json=FILE"))
        })?;
        let mut rows = Vec::new();
        for (text, line) in bytes.split(|it| *it == b'\n').zip(1..) {
            if !text.trim_ascii().is_empty() {
                let row = Self::parse(text, line);
                rows.extend(
                    row.map_err(|why| FileError::new(path, format!("line {line}: {why}")))?,
                );
            }
        }
        let none =
            || FileError::new(path, "no row: nothing was measured; measure with --json=FILE");
        if rows.is_empty() { Err(none()) } else { Ok(rows) }
    }

    /// The row of a line; `None` if the line is another event.
    fn parse(text: &[u8], line: usize) -> Result<Option<Self>, String> {
        let at_fault = |error: serde_json::Error| {
            if error.is_eof() {
                return "cut off in the middle, as by a full disk: remove the line, or measure again"
                    .to_owned();
            }
            let (text, column) = (error.to_string(), error.column());
            let why = text.split(" at line ").next().unwrap_or_default();
            format!("column {column}: {why}; give what a load wrote with --json=FILE, unchanged")
        };
        let json: Value = serde_json::from_slice(text).map_err(at_fault)?;
        match json.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(format!(
                    "schema {}, and this program reads {SCHEMA}: use that which wrote it",
                    plain(other)
                ));
            }
            None => return Err("no schema: give what a load wrote with --json=FILE".to_owned()),
        }
        if json.get("event").and_then(Value::as_str) != Some("row") {
            return Ok(None);
        }
        let mut row: Self = serde_json::from_slice(text).map_err(at_fault)?;
        for text in [&mut row.command, &mut row.load.op, &mut row.load.r#loop] {
            *text = plain(text);
        }
        Ok(Some(Self { line, json, ..row }))
    }

    /// The measurement that it is of.
    pub(crate) fn key(&self) -> Key {
        Key { command: self.command.clone(), load: self.load.clone() }
    }

    /// All there is in these objects of the row.
    pub(crate) fn leaves(&self, objects: &[&str]) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        for object in objects {
            let fields = self.json.get(object).and_then(Value::as_object);
            for (name, value) in fields.into_iter().flatten() {
                let name = match *object {
                    "conditions" => plain(name),
                    _ => format!("{object}.{}", plain(name)),
                };
                leaves.push(Leaf { name, value: in_words(value) });
            }
        }
        leaves
    }

    /// Reasons not to take its numbers at their word.
    pub(crate) fn marks(&self) -> Vec<&'static str> {
        let is_saturated =
            self.lateness_us.as_ref().is_some_and(|it| it.saturated_at_per_s.is_some());
        let marks = [
            (self.partial, "partial"),
            (self.throughput.steady == Some(false), "not steady"),
            (is_saturated, "saturated"),
        ];
        marks.into_iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| mark).collect()
    }
}

/// Bytes, as short as can be.
pub(crate) fn in_bytes(bytes: u64) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// A value for people.
fn in_words(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => plain(text),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(in_words).collect::<Vec<_>>().join("; "),
        other => plain(&other.to_string()),
    }
}

/// Text of a file, without what a terminal takes as a command.
fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{FFFD}")
}

#[cfg(test)]
pub(crate) mod tests {
    use rma_lab::Scratch;

    use super::*;
    use crate::load::row::tests::row;

    /// A row as it is read after it was written.
    pub(crate) fn saved(row: &Value) -> Saved {
        Saved::parse(row.to_string().as_bytes(), 1).unwrap().unwrap()
    }

    fn read(text: &[u8]) -> Result<Vec<Saved>, String> {
        let scratch = Scratch::new();
        let path = scratch.path().join("rows");
        fs::write(&path, text).unwrap();
        Saved::read(&path).map_err(|it| {
            it.to_string().strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
        })
    }

    #[test]
    fn rows_are_read_and_other_events_passed_over() {
        let row = row(64).to_string();
        let start = r#"{"schema":"rma-bench/1","event":"start","anything":[1]}"#;
        let rows = read(format!("{start}\r\n\n{row}\n{row}").as_bytes()).unwrap();
        assert_eq!(rows.iter().map(|it| it.line).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(rows[0].key().to_string(), "read-lat READ 64 B");
    }

    #[test]
    fn a_file_that_is_not_of_rows_is_refused_with_its_line() {
        let row = row(64).to_string();
        let half = &row[..row.len() / 2];
        let end = "{\"schema\":\"rma-bench/1\",\"event\":\"end\"}\n";
        let faults: [(Vec<u8>, &str); 11] = [
            ("".into(), "no row: "),
            (end.into(), "no row: "),
            (half.into(), "line 1: cut off in the middle"),
            (format!("{row}\n{half}\n{row}").into(), "line 2: cut off in the middle"),
            (format!("{row}\n{}", row.replace("4.5", "NaN")).into(), "line 2: column "),
            (row.replace("4.5", "1e999").into(), "line 1: column "),
            (row.replace("bench/1", "bench/2").into(), "line 1: schema rma-bench/2, and"),
            (row.replace("\"depth\"", "\"deep\"").into(), "line 1: column "),
            ("[]".into(), "line 1: no schema"),
            ("#bytes #iterations".into(), "line 1: column 1: "),
            (vec![0xff, 0xfe], "line 1: column 1: "),
        ];
        for (text, fault) in faults {
            let why = read(&text).unwrap_err();
            assert!(why.starts_with(fault), "{why:?} is not {fault:?}");
        }
        let missing = Saved::read(Path::new("/nowhere/rows")).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/rows: No such file"), "{missing}");
    }

    #[test]
    fn a_terminal_takes_no_command_from_a_file() {
        let mut row = row(64);
        row["command"] = Value::from("\u{1b}[2J");
        row["conditions"]["kernel"] = Value::from("6.1\u{7}");
        let saved = saved(&row);
        let leaves = saved.leaves(&["conditions"]);
        assert_eq!(saved.key().command, "\u{FFFD}[2J");
        assert!(leaves.iter().any(|it| it.value == "6.1\u{FFFD}"), "{leaves:?}");
    }
}
