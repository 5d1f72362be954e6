//! The line a second on standard error that says how it goes.

use core::time::Duration;
use std::io::{IsTerminal, Write, stderr};

use crate::session::{Sessions, Usage};

/// The usage that was said last, and when there is something to say again.
pub(super) struct Status {
    /// `None`: nothing is said.
    every: Option<Duration>,
    next: Duration,
    last: Usage,
    /// Whether a line is written over the one before.
    rewrites: bool,
}

impl Status {
    /// Each so many seconds, 0 for never; without that each second to a terminal.
    pub(super) fn new(interval: Option<u64>) -> Self {
        let rewrites = stderr().is_terminal();
        let seconds = interval.unwrap_or(u64::from(rewrites));
        let every = (seconds > 0).then(|| Duration::from_secs(seconds));
        let next = every.unwrap_or(Duration::MAX);
        Self { every, next, last: Usage::default(), rewrites }
    }

    /// Whether there is something to say, after `elapsed`.
    pub(super) fn is_due(&mut self, elapsed: Duration) -> bool {
        let Some(every) = self.every.filter(|_| elapsed >= self.next) else { return false };
        self.next = elapsed.saturating_add(every);
        true
    }

    /// Says what there was since the last time.
    pub(super) fn say(&mut self, now: Usage, sessions: Option<&Sessions>) {
        let text = text(&now, &self.last, sessions);
        self.last = now;
        // What was longer before is erased. That nobody reads it is no reason to end.
        _ = if self.rewrites {
            write!(stderr(), "\r{text}\x1b[K")
        } else {
            writeln!(stderr(), "{text}")
        };
    }

    /// There is no other line.
    pub(super) fn end(&self) {
        if self.rewrites && self.last != Usage::default() {
            _ = writeln!(stderr());
        }
    }
}

fn text(now: &Usage, last: &Usage, sessions: Option<&Sessions>) -> String {
    let Usage { elapsed_us, busy_us, frames_received, frames_sent, drops, .. } = now.since(last);
    let micros = elapsed_us.max(1) as f64;
    let millions = |count: u64| count as f64 / micros;
    let (clients, writers) = sessions.map_or((0, 0), |it| (it.clients(), it.writers()));
    format!(
        "  {:>8} s  clients {clients}, writing {writers}  {:.3} M frames/s in {:.3} out  engine busy {:.0} %  dropped {}",
        now.elapsed_us / 1_000_000,
        millions(frames_received),
        millions(frames_sent),
        100.0 * busy_us as f64 / micros,
        drops.values().sum::<u64>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_there_was_since_the_last_one() {
        let of = |elapsed_us, frames_received, dropped| Usage {
            elapsed_us,
            busy_us: elapsed_us / 4,
            frames_received,
            frames_sent: frames_received / 2,
            drops: [("WrongTag".to_owned(), dropped)].into(),
            ..Usage::default()
        };
        let said = text(&of(3_000_000, 900_000, 5), &of(2_000_000, 400_000, 3), None);
        let says = "0.500 M frames/s in 0.250 out  engine busy 25 %  dropped 2";
        assert!(said.ends_with(says), "{said}");
    }

    #[test]
    fn nothing_is_due_where_nothing_is_wanted_and_else_once_an_interval() {
        let mut never = Status::new(Some(0));
        assert!(!never.is_due(Duration::MAX));
        let mut status = Status::new(Some(2));
        let due = [0, 1, 2, 3, 4, 9, 10, 11].map(|it| status.is_due(Duration::from_secs(it)));
        assert_eq!(due, [false, false, true, false, true, true, false, true]);
    }
}
