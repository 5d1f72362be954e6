//! Ops over time, drawn with characters: figure 14 of the paper for a terminal.

use std::fmt::{self, Write as _};

/// An op, or anything else that takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// In which of the timeline's rows.
    pub row: usize,
    /// When it began, in nanoseconds.
    pub from: u64,
    /// When it was over.
    pub to: u64,
    /// Whether it did what it should.
    pub ok: bool,
}

/// Columns of a drawing.
const WIDTH: u64 = 72;

/// Rows of events around one moment.
#[derive(Clone, Debug)]
pub struct Timeline<'a> {
    /// The rows' names.
    pub rows: &'a [&'a str],
    /// The events to draw.
    pub events: &'a [Event],
    /// The time that is drawn as 0, in nanoseconds.
    pub zero: u64,
    /// From when on, and until when.
    pub shown: (u64, u64),
}

impl fmt::Display for Timeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.shown;
        let name_width = self.rows.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let column = |at: u64| (at.saturating_sub(from) * WIDTH / (to - from).max(1)).min(WIDTH);
        for (index, name) in self.rows.iter().enumerate() {
            let mut line = [' '; WIDTH as usize];
            for event in self.events.iter().filter(|event| event.row == index) {
                if event.to < from || event.from >= to {
                    continue;
                }
                let (start, end) = (column(event.from), column(event.to));
                let body = if event.ok { '=' } else { 'x' };
                // At least its beginning is seen, and it ends where the next one begins.
                for place in start..end.max(start + 1).min(WIDTH) {
                    line[place as usize] = body;
                }
                if event.from >= from && start < WIDTH {
                    line[start as usize] = if event.ok { '|' } else { 'X' };
                }
            }
            let line: String = line.iter().collect();
            writeln!(f, "    {name:name_width$}  {}", line.trim_end())?;
        }
        // A scale with its zero.
        let mut ticks = String::new();
        let step = step_of(to - from);
        let zero = i128::from(self.zero);
        let mut at = (i128::from(from) - zero).div_euclid(step) * step;
        while zero + at < i128::from(to) {
            if let Ok(time) = u64::try_from(zero + at)
                && time >= from
            {
                let place = column(time) as usize;
                let used = ticks.chars().count();
                if place >= used {
                    write!(ticks, "{:pad$}'{}", "", at as f64 / 1e3, pad = place - used)?;
                }
            }
            at += step;
        }
        writeln!(f, "    {:name_width$}  {ticks} µs", "")
    }
}

/// Nanoseconds between two ticks of a scale: 1, 2 or 5 times a power of ten, and at most eight
/// ticks.
fn step_of(span: u64) -> i128 {
    let mut step = 100;
    loop {
        for times in [1, 2, 5] {
            if span / (step * times) < 8 {
                return i128::from(step * times);
            }
        }
        step *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_op_is_drawn_where_it_was() {
        let event = |row, from, to, ok| Event { row, from, to, ok };
        let events = [
            event(0, 0, 18_000, true),
            event(0, 18_000, 36_000, false),
            event(0, 36_000, 54_000, true),
            event(1, 60_000, 90_000, true),
            event(1, 900_000, 950_000, true),
        ];
        let timeline = Timeline {
            rows: &["reader", "other"],
            events: &events,
            zero: 18_000,
            shown: (0, 72_000),
        };
        let drawn = timeline.to_string();
        let lines: Vec<&str> = drawn.lines().collect();
        let run = |first: char, body: &str| format!("{first}{}", body.repeat(17));
        let ops = [run('|', "="), run('X', "x"), run('|', "=")].concat();
        assert_eq!(lines[0], format!("    reader  {ops}"));
        assert_eq!(lines[1], format!("    other   {}|{}", " ".repeat(60), "=".repeat(11)));
        assert_eq!(lines[2].find("'0"), Some(12 + 18), "{drawn}");
        assert!(lines[2].ends_with("µs"), "{drawn}");
    }
}
