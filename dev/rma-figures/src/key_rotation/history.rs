//! The events around one rotation, drawn: figure 14 of the paper with many clients.
//!
//! As text, some of the clients, from the one that was back first to the one that was back last; as
//! a picture, all of them: how long each op took, and beside it who did what in that order.

use rma_bench::{
    drawing::{Axis, Curve, Form, Mark, Panel, Picture, Point, Scale},
    timeline::{Event, Timeline},
};
use rma_core::time::Instant;

/// An action of one of the parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A read that succeeded.
    Read,
    /// An op that did not.
    Refused,
    /// A fetch of keys.
    Fetch,
    /// The change of the key itself.
    Swap,
}

/// Something that somebody did, which took its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The party: clients by their number.
    pub row: usize,
    /// The action.
    pub what: What,
    /// When it began.
    pub from: Instant,
    /// When it was over.
    pub to: Instant,
}

/// The events around one rotation, client by client.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The actions of the clients, ordered by client and then by time.
    pub deeds: Vec<Deed>,
    /// The actions on the other region.
    pub others: Vec<Deed>,
    /// The change itself.
    pub swap: Option<Deed>,
}

/// Clients in a drawing of text.
const ROWS: usize = 10;

impl History {
    /// Whether an op failed on account of this change: clients that are slow still know of ops that
    /// failed at the one before.
    fn is_refused(&self, deed: &Deed) -> bool {
        deed.what == What::Refused && self.swap.is_none_or(|it| deed.to >= it.from)
    }

    /// When the first op that failed was issued.
    fn began(&self) -> Option<Instant> {
        self.deeds.iter().filter(|it| self.is_refused(it)).map(|it| it.from).min()
    }

    /// When each client issued the first read that succeeded after its last op that failed; those
    /// who were back first come first. Of those who lost nothing there is nothing.
    fn backs(&self) -> Vec<(Instant, usize)> {
        let rows = self.deeds.iter().map(|it| it.row).max().map_or(0, |it| it + 1);
        let back = |row| {
            let own = || self.deeds.iter().filter(move |it| it.row == row);
            let refused = own().filter(|it| self.is_refused(it)).map(|it| it.from).max()?;
            let reads = own().filter(|it| it.what == What::Read && it.from > refused);
            Some((reads.map(|it| it.from).min()?, row))
        };
        let mut backs: Vec<_> = (0..rows).filter_map(back).collect();
        backs.sort_unstable();
        backs
    }

    /// From the first op that failed until every client was back, in nanoseconds.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        let (back, _) = *self.backs().last()?;
        Some(back.nanos_since(self.began()?))
    }

    /// Returns the range that is shown: as much before and after as a tenth of it, and a few reads.
    fn shown(&self) -> Option<(Instant, u64, (u64, u64))> {
        let (zero, length) = (self.began()?, self.length()?);
        let mut reads: Vec<u64> = self
            .deeds
            .iter()
            .filter(|it| it.what == What::Read)
            .map(|it| it.to.nanos_since(it.from))
            .collect();
        reads.sort_unstable();
        let around = (length / 8).max(reads.get(reads.len() / 2).map_or(0, |it| 2 * it));
        let at = zero.as_nanos();
        Some((zero, length, (at.saturating_sub(around), at + length + around)))
    }

    /// Some of its clients as text; empty if no op failed.
    #[must_use]
    pub fn text(&self) -> String {
        let (Some((zero, _, shown)), backs) = (self.shown(), self.backs()) else {
            return String::new();
        };
        let count = backs.len().min(ROWS);
        let chosen: Vec<usize> = (0..count)
            .map(|i| backs[i * (backs.len() - 1) / count.saturating_sub(1).max(1)].1)
            .collect();
        let names: Vec<String> = ["rotation".to_owned()]
            .into_iter()
            .chain(chosen.iter().map(|it| format!("client {it}")))
            .chain(["other region".to_owned()])
            .collect();
        let rows: Vec<&str> = names.iter().map(String::as_str).collect();
        let event = |row, it: &Deed| Event {
            row,
            from: it.from.as_nanos(),
            to: it.to.as_nanos(),
            ok: it.what != What::Refused,
        };
        let mut events: Vec<Event> = self.swap.iter().map(|it| event(0, it)).collect();
        for (i, client) in chosen.iter().enumerate() {
            let own = self.deeds.iter().filter(|it| it.row == *client && it.what != What::Fetch);
            events.extend(own.map(|it| event(i + 1, it)));
        }
        events.extend(self.others.iter().map(|it| event(rows.len() - 1, it)));
        Timeline { rows: &rows, events: &events, zero: zero.as_nanos(), shown }.to_string()
    }

    /// All of its clients as a picture; `None` if no op failed.
    #[must_use]
    pub fn picture(&self, title: &str, conditions: &str) -> Option<Picture> {
        let (zero, length, (from, to)) = self.shown()?;
        let is_long = length > 10_000_000;
        let (unit, x) = if is_long {
            (1e6, "since the first op that failed [ms]")
        } else {
            (1e3, "since the first op that failed [µs]")
        };
        let at = |nanos: u64| (nanos.clamp(from, to) as f64 - zero.as_nanos() as f64) / unit;
        let is_shown = |it: &&Deed| it.to.as_nanos() >= from && it.from.as_nanos() <= to;
        let took =
            |it: &Deed| Point::new(at(it.from.as_nanos()), it.to.nanos_since(it.from) as f64 / 1e3);
        let bar = |row: usize, it: &Deed| {
            let ends = [it.from, it.to].map(|it| at(it.as_nanos()));
            Point { interval: Some(ends), ..Point::new(ends[0], row as f64) }
        };
        let backs = self.backs();
        let rows = || backs.iter().zip(1..).map(|((_, client), row)| (*client, row));
        let (mut times, mut bars) = (Vec::new(), Vec::new());
        for (what, name, colour) in DRAWN {
            let of = |it: &&Deed| it.what == what && is_shown(it);
            let all = || self.deeds.iter().filter(of);
            times.push(curve(name, colour, Form::Marks, all().map(took).collect()));
            let of_row = |(client, row): (usize, usize)| {
                all().filter(move |it| it.row == client).map(move |it| bar(row, it))
            };
            bars.push(curve(name, colour, Form::Spans, rows().flat_map(of_row).collect()));
        }
        let others = || self.others.iter().filter(is_shown);
        let above = backs.len() + 2;
        times.push(curve("another region", OTHER, Form::Marks, others().map(took).collect()));
        let other = others().map(|it| bar(above, it)).collect();
        bars.push(curve("another region", OTHER, Form::Spans, other));
        for curves in [&mut times, &mut bars] {
            curves.retain(|it| !it.points.is_empty());
        }
        let x = Axis { name: x, scale: Scale::Linear };
        let marks: Vec<Mark> = self
            .swap
            .iter()
            .map(|it| Mark::Place { x: at(it.from.as_nanos()), name: "the key changes".to_owned() })
            .collect();
        let panel = |title: &str, y: Axis, curves| Panel {
            title: title.to_owned(),
            x,
            y,
            curves,
            marks: marks.clone(),
        };
        let latency = Axis { name: "latency of an op [µs]", scale: Scale::Auto };
        let clients = Axis { name: "client, the first one back at 1", scale: Scale::Linear };
        let panels = vec![panel("Latency", latency, times), panel("By client", clients, bars)];
        Some(Picture { title: title.to_owned(), conditions: conditions.to_owned(), panels })
    }
}

/// The deeds of clients that are drawn, with their colours.
const DRAWN: [(What, &str, usize); 3] =
    [(What::Read, "READ", 0), (What::Refused, "refused", 1), (What::Fetch, "fetches its key", 5)];
const OTHER: usize = 7;

fn curve(name: &str, colour: usize, form: Form, points: Vec<Point>) -> Curve {
    Curve { name: name.to_owned(), colour, dash: 0, form, points }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(row: usize, what: What, from: u64, to: u64) -> Deed {
        let at = |micros: u64| Instant::from_nanos(1_000_000 + micros * 1_000);
        Deed { row, what, from: at(from), to: at(to) }
    }

    fn history() -> History {
        let deeds = vec![
            deed(0, What::Read, 0, 10),
            deed(0, What::Refused, 10, 20),
            deed(0, What::Fetch, 20, 80),
            deed(0, What::Read, 80, 90),
            deed(1, What::Read, 5, 15),
            deed(1, What::Refused, 15, 25),
            deed(1, What::Fetch, 25, 60),
            deed(1, What::Read, 61, 71),
        ];
        let swap = Some(deed(0, What::Swap, 12, 13));
        History { deeds, others: vec![deed(0, What::Read, 3, 40)], swap }
    }

    #[test]
    fn it_lasts_from_the_first_op_that_failed_until_the_last_client_is_back() {
        assert_eq!(history().length(), Some(70_000));
        assert_eq!(History::default().length(), None);
    }

    #[test]
    fn clients_stand_in_the_order_in_which_they_were_back() {
        let text = history().text();
        let lines: Vec<&str> = text.lines().collect();
        for (line, name) in ["rotation", "client 1", "client 0", "other region"].iter().enumerate()
        {
            assert!(lines[line].contains(name), "{text}");
        }
        assert!(
            lines[1].contains('X') && lines[2].contains('X') && !lines[3].contains('X'),
            "{text}"
        );
        assert!(History::default().text().is_empty());
    }

    #[test]
    fn a_picture_has_each_deed_with_its_latency_and_in_its_client_s_row() {
        let picture = history().picture("a title", "two clients").unwrap();
        let [times, bars] = &picture.panels[..] else { panic!("two panels") };
        let counts = |it: &Panel| it.curves.iter().map(|it| it.points.len()).collect::<Vec<_>>();
        assert_eq!((counts(times), counts(bars)), (vec![4, 2, 2, 1], vec![4, 2, 2, 1]));
        // Client 1 was back first.
        let fetches = &bars.curves[2].points;
        assert_eq!(fetches[0], Point { interval: Some([15.0, 50.0]), ..Point::new(15.0, 1.0) });
        assert_eq!(times.curves[2].points[0], Point::new(10.0, 60.0));
        let svg = picture.file().unwrap();
        for word in ["a title", "two clients", "the key changes", "latency of an op"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(History::default().picture("nothing", "").is_none());
    }

    #[test]
    fn a_failure_of_the_change_before_is_not_where_this_one_begins() {
        let mut history = history();
        let old = Deed {
            from: Instant::from_nanos(1_000),
            to: Instant::from_nanos(2_000),
            ..history.deeds[1]
        };
        history.deeds.insert(0, old);
        let alone = Deed { row: 2, ..old };
        history.deeds.extend([alone, deed(2, What::Read, 40, 50)]);
        assert_eq!(history.length(), Some(70_000));
        let picture = history.picture("a title", "").unwrap();
        assert_eq!(picture.panels[0].curves[1].points.len(), 2);
    }
}
