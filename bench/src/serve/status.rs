//! The line a second on standard error that says how it goes.

use core::time::Duration;
use std::{
    fs,
    io::{IsTerminal, Write, stderr},
};

use crate::session::{Sessions, Usage};

/// Octets that an interface has received and sent, all that goes over it among them: a host counts
/// frames alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Octets {
    received: u64,
    sent: u64,
}

impl Octets {
    /// Those of an interface of this network namespace. Not from /sys, which may show another's.
    fn of(interface: &str) -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/thread-self/net/dev").ok()?, interface)
    }

    fn read(text: &str, interface: &str) -> Option<Self> {
        let is_of = |line: &&str| line.trim_start().split(':').next() == Some(interface);
        let (_, counts) = text.lines().find(is_of)?.split_once(':')?;
        let counts: Vec<u64> =
            counts.split_ascii_whitespace().map_while(|it| it.parse().ok()).collect();
        Some(Self { received: *counts.first()?, sent: *counts.get(8)? })
    }

    /// In words, of what came and went since, in so many microseconds.
    fn text(self, earlier: Self, interface: &str, micros: f64) -> String {
        let gbit = |now: u64, then: u64| now.saturating_sub(then) as f64 * 8.0 / 1e3 / micros;
        let (received, sent) =
            (gbit(self.received, earlier.received), gbit(self.sent, earlier.sent));
        format!("  {interface} in {received:.3} out {sent:.3} Gbit/s")
    }
}

/// The usage that was said last, and when there is something to say again.
pub(super) struct Status {
    /// `None`: nothing is said.
    every: Option<Duration>,
    next: Duration,
    last: Usage,
    /// The name of the busy time.
    busy: &'static str,
    interface: Option<String>,
    octets: Option<Octets>,
    /// Whether a line is written over the one before.
    rewrites: bool,
}

impl Status {
    /// Each so many seconds, 0 for never; without that each second to a terminal.
    pub(super) fn new(
        interval: Option<u64>,
        busy: &'static str,
        interface: Option<String>,
    ) -> Self {
        let rewrites = stderr().is_terminal();
        let seconds = interval.unwrap_or(u64::from(rewrites));
        let every = (seconds > 0).then(|| Duration::from_secs(seconds));
        let next = every.unwrap_or(Duration::MAX);
        let octets = interface.as_deref().and_then(Octets::of);
        Self { every, next, last: Usage::default(), busy, interface, octets, rewrites }
    }

    /// Whether there is something to say, after `elapsed`.
    pub(super) fn is_due(&mut self, elapsed: Duration) -> bool {
        let Some(every) = self.every.filter(|_| elapsed >= self.next) else { return false };
        self.next = elapsed.saturating_add(every);
        true
    }

    /// Says what there was since the last time.
    pub(super) fn say(&mut self, now: Usage, sessions: Option<&Sessions>) {
        let mut text = text(&now, &self.last, self.busy, sessions);
        let octets = self.interface.as_deref().and_then(Octets::of);
        if let (Some(interface), Some(now_all), Some(then)) = (&self.interface, octets, self.octets)
        {
            let micros = now.elapsed_us.saturating_sub(self.last.elapsed_us).max(1) as f64;
            text += &now_all.text(then, interface, micros);
        }
        (self.last, self.octets) = (now, octets);
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

fn text(now: &Usage, last: &Usage, busy: &str, sessions: Option<&Sessions>) -> String {
    let Usage { elapsed_us, busy_us, frames_received, frames_sent, drops, .. } = now.since(last);
    let micros = elapsed_us.max(1) as f64;
    let millions = |count: u64| count as f64 / micros;
    let (clients, writers) = sessions.map_or((0, 0), |it| (it.clients(), it.writers()));
    format!(
        "  {:>8} s  clients {clients}, writing {writers}  {:.3} M frames/s in {:.3} out  {busy} {:.0} %  dropped {}",
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
        let said =
            text(&of(3_000_000, 900_000, 5), &of(2_000_000, 400_000, 3), "engine busy", None);
        let says = "0.500 M frames/s in 0.250 out  engine busy 25 %  dropped 2";
        assert!(said.ends_with(says), "{said}");
    }

    #[test]
    fn octets_of_an_interface_are_those_of_its_line_and_no_others() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n\
                    eth1: 125000000 2 0 0 0 0 0 0 250000000 3 0 0 0 0 0 0\n    eth10: 7 1 0 0 0 0 0 0 8 1\n";
        let octets = Octets::read(text, "eth1").unwrap();
        let said = octets.text(Octets::default(), "eth1", 1e6);
        assert_eq!(said, "  eth1 in 1.000 out 2.000 Gbit/s");
        assert_eq!(Octets::read(text, "eth10"), Some(Octets { received: 7, sent: 8 }));
        assert_eq!((Octets::read(text, "eth"), Octets::read("", "eth1")), (None, None));
    }

    #[test]
    fn nothing_is_due_where_nothing_is_wanted_and_else_once_an_interval() {
        let mut never = Status::new(Some(0), "", None);
        assert!(!never.is_due(Duration::MAX));
        let mut status = Status::new(Some(2), "", None);
        let due = [0, 1, 2, 3, 4, 9, 10, 11].map(|it| status.is_due(Duration::from_secs(it)));
        assert_eq!(due, [false, false, true, false, true, true, false, true]);
    }
}
