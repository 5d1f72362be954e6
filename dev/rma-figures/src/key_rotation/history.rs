//! The events around one rotation, drawn: figure 14 of the paper with many clients.
//!
//! As text, some of the clients, from the one that was back first to the one that was back last; as
//! SVG, all of them in that order, a line each.

use core::fmt::Write as _;

use rma_bench::timeline::{Event, Timeline};
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

/// Pixels of an SVG: the width of its plot, what is left and above, and a client's line.
const PLOT: f64 = 900.0;
const LEFT: f64 = 110.0;
const TOP: f64 = 60.0;
const LINE: f64 = 6.0;

impl History {
    /// When the first op that failed was issued.
    fn began(&self) -> Option<Instant> {
        let refused = self.deeds.iter().filter(|it| it.what == What::Refused);
        refused.map(|it| it.from).min()
    }

    /// When each client issued the first read that succeeded after its last op that failed; those
    /// who were back first come first. Of those who lost nothing there is nothing.
    fn backs(&self) -> Vec<(Instant, usize)> {
        let rows = self.deeds.iter().map(|it| it.row).max().map_or(0, |it| it + 1);
        let back = |row| {
            let own = || self.deeds.iter().filter(move |it| it.row == row);
            let refused = own().filter(|it| it.what == What::Refused).map(|it| it.from).max()?;
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

    /// All of its clients as an SVG; `None` if no op failed.
    #[must_use]
    pub fn svg(&self, title: &str) -> Option<String> {
        let (zero, length, (from, to)) = self.shown()?;
        let backs = self.backs();
        let x = |at: u64| {
            LEFT + PLOT * at.clamp(from, to).saturating_sub(from) as f64 / (to - from) as f64
        };
        let lines = backs.len() + 2;
        let (width, height) = (LEFT + PLOT + 30.0, TOP + LINE * lines as f64 + 50.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{title}</text>\n"
        );
        let mut key = LEFT;
        for (what, name) in [
            (What::Read, "READ"),
            (What::Refused, "refused"),
            (What::Fetch, "fetches its key"),
            (What::Swap, "the key changes"),
        ] {
            let colour = colour(what);
            _ = writeln!(
                svg,
                "<rect x=\"{key}\" y=\"32\" width=\"18\" height=\"8\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"41\">{name}</text>",
                key + 24.0
            );
            key += 150.0;
        }
        let mut draw = |line: usize, deeds: &mut dyn Iterator<Item = &Deed>| {
            let y = TOP + LINE * line as f64;
            for deed in deeds.filter(|it| it.to.as_nanos() >= from && it.from.as_nanos() <= to) {
                let (left, right) = (x(deed.from.as_nanos()), x(deed.to.as_nanos()));
                let width = (right - left - 0.6).max(0.8);
                _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" \
                     fill=\"{}\"/>",
                    LINE - 1.0,
                    colour(deed.what)
                );
            }
        };
        draw(0, &mut self.swap.iter());
        for (i, (_, client)) in backs.iter().enumerate() {
            draw(i + 1, &mut self.deeds.iter().filter(|it| it.row == *client));
        }
        draw(lines - 1, &mut self.others.iter());
        let names = [(0, "rotation"), (1, "clients"), (lines - 1, "other region")];
        for (line, name) in names {
            let y = TOP + LINE * (line as f64 + 1.0);
            _ = writeln!(svg, "<text x=\"8\" y=\"{y:.1}\">{name}</text>");
        }
        let base = TOP + LINE * lines as f64 + 18.0;
        for part in 0..=4 {
            let at = zero.as_nanos() + length * part / 4;
            let micros = (length * part / 4) as f64 / 1e3;
            _ = writeln!(
                svg,
                "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1:.1}\" stroke=\"#bbb\" stroke-width=\"0.5\"/>\
                 <text x=\"{0:.1}\" y=\"{2:.1}\" text-anchor=\"middle\">{micros:.1} us</text>",
                x(at),
                base - 14.0,
                base
            );
        }
        svg.push_str("</svg>\n");
        Some(svg)
    }
}

/// Colours that people who see few of them tell apart.
const fn colour(what: What) -> &'static str {
    match what {
        What::Read => "#0072b2",
        What::Refused => "#d55e00",
        What::Fetch => "#e69f00",
        What::Swap => "#000000",
    }
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
    fn an_svg_has_a_mark_for_each_deed_that_is_shown() {
        let svg = history().svg("a title").unwrap();
        for (what, marks) in
            [(What::Read, 5), (What::Refused, 2), (What::Fetch, 2), (What::Swap, 1)]
        {
            // One more in its key.
            let drawn = svg.matches(colour(what)).count();
            assert_eq!(drawn, marks + 1, "{what:?} in {svg}");
        }
        assert!(svg.contains("a title") && svg.ends_with("</svg>\n"));
        assert_eq!(History::default().svg("nothing"), None);
    }
}
