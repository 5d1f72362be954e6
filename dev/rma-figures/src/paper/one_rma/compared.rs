//! The systems that the paper compares 1RMA with, beside it in its figures.
//!
//! They are models; [`rma_sim::baselines`] says of what, and has the source of each constant.

use rma_sim::baselines::{
    BaselineError, Constants, RdmaOptions, Service, System,
    constants::Variation,
    figures::{Point, Setting},
};

use crate::paper::{
    claims::Claim,
    figure::FigureFailed,
    points::{Points, Table, Value, rounded},
    run::{Run, Scale},
};

/// A system beside 1RMA.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    name: &'static str,
    pub(super) system: System,
}

/// Connections, of which a NIC serves a packet of each by turns.
pub(super) const BY_TURNS: Other = connections("connections by turns", Service::PacketByPacket);

/// Connections, of which a NIC serves a whole message of each by turns.
pub(super) const BY_MESSAGES: Other =
    connections("connections by messages", Service::MessageByMessage);

/// Connections where their order makes no difference: messages of one packet, or one connection.
pub(super) const CONNECTIONS: Other = connections("connections", Service::PacketByPacket);

/// Two-sided software.
pub(super) const SOFTWARE: Other = Other { name: "two-sided software", system: System::Software };

/// The conditions of all of them.
pub(super) const MODELS: &str =
    "connections and two-sided software are models in a network that loses nothing";

const fn connections(name: &'static str, service: Service) -> Other {
    Other { name, system: System::Rdma(RdmaOptions::lossless(service)) }
}

/// How often, with how many ops and with what constants others run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'a> {
    pub(super) seeds: u64,
    /// Ops of each seed.
    pub(super) measured: u32,
    pub(super) constants: &'a Constants,
}

impl Other {
    /// The name of a series.
    pub(super) fn name(&self, what: &str) -> String {
        format!("{} {what}", self.name)
    }

    /// The points that `make` makes of each of `cases`, by seed.
    pub(super) fn points<C: Sync>(
        &self,
        run: &Run<'_>,
        cases: &[C],
        runs: Runs<'_>,
        make: impl Fn(&Setting, &C) -> Result<Point, BaselineError> + Sync,
    ) -> Result<Vec<Vec<Point>>, FigureFailed> {
        let Runs { seeds, measured, constants } = runs;
        let seeds: Vec<u64> = run.seeds(seeds).collect();
        let jobs: Vec<(&C, u64)> =
            cases.iter().flat_map(|case| seeds.iter().map(move |&seed| (case, seed))).collect();
        let all = run.each(&jobs, |&(case, seed)| {
            let constants = constants.clone();
            make(&Setting { system: self.system, constants, seed, measured }, case)
        })?;
        let all: Result<Vec<Point>, BaselineError> = all.into_iter().collect();
        let all = all.map_err(|it| FigureFailed::Settings(it.to_string()))?;
        Ok(all.chunks(seeds.len().max(1)).map(<[Point]>::to_vec).collect())
    }
}

/// How long `part` of the reads took at most, in microseconds.
pub(super) fn micros(point: &Point, part: f64) -> f64 {
    point.latencies().at(part).as_secs_f64() * 1e6
}

/// The value of `of` for the points of a case: the median of its seeds, and their interval.
pub(super) fn value(x: f64, points: &[Point], of: impl Fn(&Point) -> f64) -> Value {
    Value::of(x, &mut points.iter().map(of).collect::<Vec<_>>())
}

/// The same points at one place of the axis.
pub(super) fn only(points: &Points, x: f64) -> Points {
    let mut points = points.clone();
    points.series.iter_mut().for_each(|it| it.values.retain(|it| it.x.to_bits() == x.to_bits()));
    points
}

/// The values of claims where each constant is half and one and a half of what it is: a table,
/// whose last column has those whose verdict is another than in its first row.
pub(super) fn sensitivity(
    run: &Run<'_>,
    title: &str,
    claims: impl Fn(&Run<'_>, &Constants) -> Result<Vec<Claim>, FigureFailed> + Sync,
) -> Result<Table, FigureFailed> {
    let default = Constants::default();
    let mut cases = vec![("none".to_owned(), default.clone())];
    if run.scale == Scale::Full {
        let all = default.variations().into_iter();
        cases.extend(all.map(|Variation { constant, factor, constants }| {
            let value = rounded(constants.get(constant));
            (format!("{constant} × {factor}: {value} {}", constant.unit()), constants)
        }));
    }
    let each = Run { threads: 1, seeds: Some(1), ..*run };
    let all = run.each(&cases, |(_, constants)| claims(&each, constants))?;
    let all: Vec<Vec<Claim>> = all.into_iter().collect::<Result<_, _>>()?;
    let names: Vec<&str> = cases.iter().map(|(name, _)| &**name).collect();
    Ok(table(title, &names, &all))
}

/// A row for each name whose claims have other values than the first, and one for all others.
fn table(title: &str, names: &[&str], all: &[Vec<Claim>]) -> Table {
    let first = all.first().map_or(&[][..], |it| it);
    let mut rows = Vec::new();
    let mut same = Vec::new();
    for (index, (name, claims)) in names.iter().zip(all).enumerate() {
        if index > 0 && claims.as_slice() == first {
            same.push(*name);
        } else {
            rows.push(row(name, first, claims));
        }
    }
    if !same.is_empty() {
        rows.push(row(&format!("no difference: {}", same.join("; ")), first, first));
    }
    let ids = first.iter().map(|it| it.id.clone());
    let heads = ["constant".to_owned()].into_iter().chain(ids).chain(["moves".to_owned()]);
    Table { title: title.to_owned(), heads: heads.collect(), rows }
}

fn row(name: &str, first: &[Claim], claims: &[Claim]) -> Vec<String> {
    let values = claims.iter().map(|it| format!("{:.3}", it.value));
    let moved = first.iter().zip(claims).filter(|(a, b)| a.holds != b.holds);
    let words = |it: &Claim| format!("{} {}", it.id, if it.holds { "holds" } else { "fails" });
    let moved: Vec<String> = moved.map(|(_, it)| words(it)).collect();
    let moved = if moved.is_empty() { "–".to_owned() } else { moved.join(", ") };
    [name.to_owned()].into_iter().chain(values).chain([moved]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_that_a_constant_moves_is_named_and_one_that_it_does_not_move_is_not() {
        let claims = |value| {
            let claim = |id, bound| Claim::at_most(id, "", "", value, bound);
            vec![claim("1rma-0-a", 1.0), claim("1rma-0-b", 3.0)]
        };
        assert_eq!(row("c", &claims(1.0), &claims(1.0)), ["c", "1.000", "1.000", "–"]);
        assert_eq!(row("c", &claims(1.0), &claims(2.0))[3], "1rma-0-a fails");
        assert_eq!(row("c", &claims(2.0), &claims(1.0))[3], "1rma-0-a holds");
        let all = [1.0, 1.0, 2.0, 1.0].map(claims);
        let Table { rows, .. } = table("", &["none", "x", "y", "z"], &all);
        let names: Vec<&str> = rows.iter().map(|it| &*it[0]).collect();
        assert_eq!(names, ["none", "y", "no difference: x; z"]);
    }
}
