//! The result of a comparison, as text and as lines of JSON.

use serde::Serialize;

use super::list::{Does, How, Peer, Values};
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
    reason: Option<&'static str>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    ops_per_s: Option<f64>,
    cpu_ns_per_op: Option<f64>,
    payload_gbit_per_s: Option<f64>,
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
    pub(super) fn new(peer: Peer, rounds: &[Values], rma: &[Values]) -> Self {
        let median = |of: fn(&Values) -> f64| finite(rounds.iter().map(of).collect());
        let ratio = |of: fn(&Values) -> f64| {
            finite(rma.iter().zip(rounds).map(|(rma, it)| of(rma) / of(it)).collect())
        };
        let reason = match peer.how {
            How::Not(why) => Some(why),
            _ => None,
        };
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
            does: peer.how.does(),
        }
    }
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
    pub(super) mode: String,
    pub(super) mtu: u32,
    pub(super) aead: String,
    pub(super) pinned: bool,
    pub(super) depth: u16,
    pub(super) rounds: u64,
    pub(super) iters: u64,
}

/// Says where and how much is measured.
pub(super) fn introduce(start: &Start) {
    let Start { machine, mode, mtu, aead, pinned, depth, rounds, iters, .. } = start;
    line!("  machine   {}, {} cores, kernel {}", machine.machine, machine.cores, machine.kernel);
    line!("  links     a veth pair for each peer, MTU {mtu}; AF_XDP {mode}; {aead}");
    let pinned = if *pinned { "a core for each side" } else { "both sides on one core" };
    line!(
        "  load      {iters} fetches in {rounds} rounds in turns, depth 1 and {depth}; {pinned}, spinning\n"
    );
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
        let columns = |name: &str, values: [&str; 5]| {
            let [p50, p99, rate, cpu, goodput] = values;
            format!("  {name:<34} {p50:>8} {p99:>8} {rate:>10} {cpu:>8} {goodput:>8}")
        };
        let number = |it, digits| Number(it, digits).to_string();
        let rate = format!("rate d{}", self.depth);
        let head = columns("", ["p50", "99%", &rate, "CPU/op", "4 MiB"]);
        let units = columns("fetch of 64 B, and of 4 MiB", ["µs", "µs", "M/s", "µs", "Gbit/s"]);
        let mut lines =
            vec![head, format!("{units}   encrypts  recovers losses  spares the application")];
        for row in &self.rows {
            let Some(Does { encrypts, recovers_losses, spares_application }) = row.does else {
                let why = row.reason.unwrap_or_default();
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
            lines.push(format!(
                "{}   {encrypts:<8}  {recovers:<15}  {spares}",
                columns(row.words, [&p50, &p99, &rate, &cpu, &goodput]),
            ));
        }
        let compared = self.rows.iter().filter_map(|it| Some((it.words, it.rma_over?)));
        for (index, (words, Ratios { p50, p99, ops, payload })) in compared.enumerate() {
            if index == 0 {
                lines.push("\n  1RMA as a multiple of".to_owned());
            }
            let [p50, p99, ops, payload] = [p50, p99, ops, payload].map(|it| number(it, 2));
            lines.push(columns(words, [&p50, &p99, &ops, "", &payload]));
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
        let row = Row::new(peer("tls-no-gso"), &tls, &rma);
        assert_eq!((row.p50_us, row.payload_gbit_per_s), (Some(10.0), None));
        let ratios = row.rma_over.unwrap();
        assert_eq!((ratios.p50, ratios.ops, ratios.p99), (Some(0.5), Some(1.0), None));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!((&json["peer"], &json["p99_us"]), (&"tls-no-gso".into(), &().into()));
        assert!(Row::new(peer("1rma"), &rma, &rma).rma_over.is_none());
        assert!(Row::new(peer("tcp"), &tls, &[]).rma_over.is_none());
    }

    #[test]
    fn each_peer_has_a_row_with_numbers_or_a_reason() {
        let rma = rounds(&[4.0]);
        let rows: Vec<Row> = PEERS.iter().map(|it| Row::new(*it, &rma, &rma)).collect();
        let lines = Table { rows, depth: 32 }.lines().join("\n");
        for peer in PEERS {
            let line = lines.lines().find(|it| it.starts_with(&format!("  {} ", peer.words)));
            let line = line.unwrap_or_else(|| panic!("no {}: {lines}", peer.name));
            let is_measured = !matches!(peer.how, How::Not(_));
            assert_eq!(line.contains("1.000"), is_measured, "{line}");
            assert_eq!(line.contains("not measured: "), !is_measured, "{line}");
        }
    }
}
