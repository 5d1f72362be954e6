//! The result of a comparison, as text and as lines of JSON.

use serde::Serialize;

use super::{
    list::{Does, How, Peer},
    round::Values,
};
use crate::{
    line,
    load::{Number, row::SCHEMA},
    machine::Machine,
    rates::Rates,
};

/// A peer's row.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// Its name, as it is typed.
    peer: &'static str,
    words: &'static str,
    /// The reason if it is not measured.
    reason: Option<String>,
    /// The program of others that measures it, with its version.
    measured_by: Option<String>,
    /// The way in which its numbers are otherwise than those of others.
    mark: Option<&'static str>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    ops_per_s: Option<f64>,
    cpu_ns_per_op: Option<f64>,
    payload_gbit_per_s: Option<f64>,
    /// The longest p50 of a round over the shortest; of the rate where there is no p50.
    spread: Option<f64>,
    /// 1RMA's figures as multiples of its own.
    rma_over: Option<Ratios>,
    /// Null if it is not measured.
    does: Option<Does>,
}

/// 1RMA's figures as multiples of a peer's: medians of the rounds' ratios.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratios {
    p50: Option<f64>,
    p99: Option<f64>,
    ops: Option<f64>,
    payload: Option<f64>,
}

impl Row {
    /// Of these rounds; 1RMA had those in `rma`.
    pub(super) fn new(
        peer: Peer,
        reason: Option<String>,
        rounds: &[Values],
        rma: &[Values],
    ) -> Self {
        let median = |of: fn(&Values) -> f64| finite(rounds.iter().map(of).collect());
        let ratio = |of: fn(&Values) -> f64| {
            finite(rma.iter().zip(rounds).map(|(rma, it)| of(rma) / of(it)).collect())
        };
        let does = reason.is_none().then(|| peer.how.does());
        let is_other = reason.is_none() && !matches!(peer.how, How::OneRma) && !rma.is_empty();
        Self {
            peer: peer.name,
            words: peer.words,
            reason,
            p50_us: median(|it| it.p50_us),
            p99_us: median(|it| it.p99_us),
            ops_per_s: median(|it| it.ops_per_s),
            cpu_ns_per_op: median(|it| it.cpu_ns_per_op),
            payload_gbit_per_s: median(|it| it.payload_gbit_per_s),
            rma_over: is_other.then(|| Ratios {
                p50: ratio(|it| it.p50_us),
                p99: ratio(|it| it.p99_us),
                ops: ratio(|it| it.ops_per_s),
                payload: ratio(|it| it.payload_gbit_per_s),
            }),
            spread: spread(rounds, |it| it.p50_us).or_else(|| spread(rounds, |it| it.ops_per_s)),
            measured_by: None,
            mark: peer.mark,
            does,
        }
    }

    /// Measured by such a program.
    pub(super) fn by(self, measured_by: Option<String>) -> Self {
        Self { measured_by, ..self }
    }
}

/// The largest over the smallest, if there are two.
fn spread(rounds: &[Values], of: fn(&Values) -> f64) -> Option<f64> {
    let all = || rounds.iter().map(of).filter(|it| it.is_finite());
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    Some(most / least).filter(|it| it.is_finite() && *it > 0.0 && all().count() > 1)
}

/// The median, if there is one.
fn finite(rounds: Rates) -> Option<f64> {
    Some(rounds.median()).filter(|it| it.is_finite())
}

/// The conditions, as the first event.
#[derive(Debug, Serialize)]
pub(super) struct Start {
    pub(super) command: &'static str,
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) links: String,
    pub(super) mtu: u32,
    pub(super) aead: String,
    pub(super) depth: u16,
    pub(super) rounds: u64,
    pub(super) iters: u64,
    /// The rest that the numbers stand on, and the rules that do not hold.
    pub(super) notes: Vec<String>,
}

/// Says where and how much is measured.
pub(super) fn introduce(start: &Start) {
    let Start { machine, links, depth, rounds, iters, notes, .. } = start;
    line!("  machine   {}, {} cores, kernel {}", machine.machine, machine.cores, machine.kernel);
    line!("  links     {links}");
    line!("  load      {iters} fetches in {rounds} rounds in turns, depth 1 and {depth}");
    notes.iter().for_each(|it| line!("  note      {it}"));
    line!("");
}

/// All rows.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    pub(super) depth: u16,
}

impl Table {
    /// Prints it for people.
    pub(super) fn print(&self) {
        self.lines().iter().for_each(|it| line!("{it}"));
    }

    /// Prints an event for each row.
    pub(super) fn events(&self) {
        self.rows.iter().for_each(|row| event("peer", row));
    }

    fn lines(&self) -> Vec<String> {
        let columns = |name: &str, values: [&str; 5], spread: &str| {
            let [p50, p99, rate, cpu, goodput] = values;
            format!("  {name:<34} {p50:>8} {p99:>8} {rate:>10} {cpu:>8} {goodput:>8} {spread:>7}")
        };
        let number = |it, digits| Number(it, digits).to_string();
        let rate = format!("rate d{}", self.depth);
        let head = columns("", ["p50", "99%", &rate, "CPU/op", "4 MiB"], "spread");
        let units =
            columns("fetch of 64 B, and of 4 MiB", ["µs", "µs", "M/s", "µs", "Gbit/s"], "of p50");
        let mut lines =
            vec![head, format!("{units}   encrypts  recovers losses  spares the application")];
        let mut marks: Vec<String> = Vec::new();
        let letter = |count: usize| char::from(b'a' + (count - 1) as u8);
        for row in &self.rows {
            let Some(Does { encrypts, recovers_losses, spares_application }) = row.does else {
                let why = row.reason.as_deref().unwrap_or_default();
                lines.push(format!("  {:<34} not measured: {why}", row.words));
                continue;
            };
            let [p50, p99, rate, cpu, goodput] = [
                number(row.p50_us, 2),
                number(row.p99_us, 2),
                number(row.ops_per_s.map(|it| it / 1e6), 3),
                number(row.cpu_ns_per_op.map(|it| it / 1e3), 2),
                number(row.payload_gbit_per_s, 2),
            ];
            let [encrypts, recovers, spares] = [encrypts, recovers_losses, spares_application]
                .map(|it| if it { "yes" } else { "no" });
            let mark = row.mark.map_or(String::new(), |mark| {
                let by = row.measured_by.as_ref().map_or(String::new(), |it| format!("{it}; "));
                marks.push(format!("{by}{mark}"));
                format!("   {}", letter(marks.len()))
            });
            let values = [&*p50, &p99, &rate, &cpu, &goodput];
            let spread = number(row.spread, 2);
            let columns = columns(row.words, values, &spread);
            lines.push(format!("{columns}   {encrypts:<8}  {recovers:<15}  {spares}{mark}"));
        }
        let told = marks.iter().enumerate();
        lines.extend(told.map(|(index, it)| format!("  {}: {it}", letter(index + 1))));
        let compared = self.rows.iter().filter_map(|it| Some((it.words, it.rma_over?)));
        for (index, (words, Ratios { p50, p99, ops, payload })) in compared.enumerate() {
            if index == 0 {
                lines.push("\n  1RMA as a multiple of".to_owned());
            }
            let [p50, p99, ops, payload] = [p50, p99, ops, payload].map(|it| number(it, 2));
            lines.push(columns(words, [&p50, &p99, &ops, "", &payload], "").trim_end().to_owned());
        }
        lines
    }
}

/// Prints an event.
pub(super) fn event(name: &str, fields: &impl Serialize) {
    #[derive(Serialize)]
    struct Event<'a, F> {
        schema: &'static str,
        event: &'a str,
        #[serde(flatten)]
        fields: &'a F,
    }
    let event = Event { schema: SCHEMA, event: name, fields };
    line!("{}", serde_json::to_string(&event).expect("plain data"));
}

#[cfg(test)]
mod tests {
    use super::{super::list::PEERS, *};

    fn peer(name: &str) -> Peer {
        PEERS.into_iter().find(|it| it.name == name).unwrap()
    }

    fn rounds(p50s: &[f64]) -> Vec<Values> {
        p50s.iter().map(|&p50_us| Values { p50_us, ops_per_s: 1e6, ..Values::NONE }).collect()
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_what_is_not_measured_has_a_dash() {
        let (rma, tls) = (rounds(&[4.0, 9.0, 5.0]), rounds(&[8.0, 10.0, 20.0]));
        let row = Row::new(peer("tls-no-gso"), None, &tls, &rma);
        assert_eq!((row.p50_us, row.payload_gbit_per_s), (Some(10.0), None));
        let ratios = row.rma_over.unwrap();
        assert_eq!((ratios.p50, ratios.ops, ratios.p99), (Some(0.5), Some(1.0), None));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!((&json["peer"], &json["p99_us"]), (&"tls-no-gso".into(), &().into()));
        assert!(Row::new(peer("1rma"), None, &rma, &rma).rma_over.is_none());
        assert!(Row::new(peer("tcp"), None, &tls, &[]).rma_over.is_none());
    }

    #[test]
    fn each_peer_has_a_row_with_numbers_or_a_reason() {
        let rma = rounds(&[4.0, 5.0]);
        let is_measured = |it: &Peer| it.name != "iperf3" && it.name != "quic";
        let row = |it: &Peer| {
            let reason = (!is_measured(it)).then(|| "it is missing".to_owned());
            let rounds = if is_measured(it) { &rma[..] } else { &[] };
            Row::new(*it, reason, rounds, &rma).by(Some("version 7".to_owned()))
        };
        let lines = Table { rows: PEERS.iter().map(row).collect(), depth: 32 }.lines().join("\n");
        for peer in PEERS {
            let line = lines.lines().find(|it| it.starts_with(&format!("  {} ", peer.words)));
            let line = line.unwrap_or_else(|| panic!("no {}: {lines}", peer.name));
            assert_eq!(line.contains("1.000"), is_measured(&peer), "{line}");
            assert_eq!(line.contains("not measured: it is missing"), !is_measured(&peer), "{line}");
            assert_eq!(line.contains(" 1.25 "), is_measured(&peer), "the spread: {line}");
            let is_told = peer.mark.is_some_and(|it| lines.contains(&format!("version 7; {it}")));
            assert_eq!(is_told, peer.mark.is_some() && is_measured(&peer), "{lines}");
        }
    }
}
