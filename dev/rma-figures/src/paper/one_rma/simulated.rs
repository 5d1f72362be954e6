//! Runs of simulated hosts with generators, at the paper's scale: what most figures of section 7
//! are made of.

use core::time::Duration;

use rma_bench::drawing::{Axis, Form, Panel, Picture, Scale as Places};
use rma_sim::flows::{
    RATE, RTT,
    report::Report,
    traffic::{Arrivals, Destination, Framing, Op, Traffic},
    workload::{Front, Retry, Workload, WorkloadError, run as simulate},
};

use crate::paper::{
    drawn::{curve, picture},
    figure::{Figure, FigureFailed},
    points::{Points, Value},
    run::Run,
};

/// The size of ops: the paper's.
pub(crate) const OP: u64 = 4096;

/// The conditions of every one of these runs.
pub(crate) const COMMON: &str =
    "100 Gbit/s, idle RTT 5 us, MTU 9000, one switch; a model of AES-GCM, light checks";

/// How long the payload of an op and its headers take on a link, in microseconds.
pub(crate) fn op_micros() -> f64 {
    Framing::own(Op::Read).wire_bytes(OP) as f64 / RATE as f64 * 1e6
}

/// The idle RTT, in microseconds.
pub(crate) fn rtt_micros() -> f64 {
    RTT.as_secs_f64() * 1e6
}

/// Ops of one direction from host 0 to host 1.
pub(crate) fn pair(load: f64, op: Op) -> Traffic {
    let (framing, destination) = (Framing::own(op), Destination::Fixed(1));
    Traffic { load, op, framing, destination, ..Traffic::reads(OP) }
}

/// Reads by chance, with which hosts 0 and 1 each ask for all of the link of host 2.
pub(crate) fn two_clients() -> Traffic {
    let destination = Destination::Fixed(2);
    Traffic { hosts: 3, destination, ..pair(1.0, Op::Read) }
}

/// Reads at an equal distance that ask for the whole link.
pub(crate) fn whole_link() -> Traffic {
    Traffic { arrivals: Arrivals::Static, ..pair(1.0, Op::Read) }
}

/// Straight to the NIC, with more slots than windows let be under way.
pub(crate) const fn nic(retry: Retry) -> Front {
    Front::Nic { retry, slots: 256 }
}

/// How long `hosts` need for so many ops at this load of all of their links, and as long again as a
/// warm-up takes.
pub(crate) fn time_for(ops: u64, hosts: u32, load: f64) -> Duration {
    let micros = ops as f64 * op_micros() / (f64::from(hosts) * load);
    Duration::from_nanos((micros * 1e3) as u64) + WARM_UP
}

/// How long queues take to become what they stay.
pub(crate) const WARM_UP: Duration = Duration::from_micros(50);

/// The reports of the workloads that `make` makes of each of `cases`, by seed.
pub(crate) fn reports<C: Sync>(
    run: &Run<'_>,
    cases: &[C],
    seeds: u64,
    make: impl Fn(&C) -> Workload + Sync,
) -> Result<Vec<Vec<Report>>, FigureFailed> {
    let seeds: Vec<u64> = run.seeds(seeds).collect();
    let jobs: Vec<(&C, u64)> =
        cases.iter().flat_map(|case| seeds.iter().map(move |&seed| (case, seed))).collect();
    let all = run.each(&jobs, |&(case, seed)| simulate(&Workload { seed, ..make(case) }))?;
    let all: Vec<Report> = all.into_iter().collect::<Result<_, _>>().map_err(failed)?;
    Ok(all.chunks(seeds.len().max(1)).map(<[Report]>::to_vec).collect())
}

/// A figure whose settings cannot be run.
pub(crate) fn failed(error: WorkloadError) -> FigureFailed {
    FigureFailed::Settings(error.to_string())
}

/// The value of `of` for the reports of a case: the median of its seeds, and their interval.
pub(crate) fn value(x: f64, reports: &[Report], of: impl Fn(&Report) -> f64) -> Value {
    Value::of(x, &mut reports.iter().map(of).collect::<Vec<_>>())
}

/// Whether an axis' values of one series are those of another, and what each pair of them is.
pub(crate) fn both<'a>(
    points: &'a Points,
    (one, other): (&'a str, &'a str),
) -> impl Iterator<Item = [f64; 3]> + 'a {
    points.of(one).iter().filter_map(move |it| Some([it.x, it.y, points.at(other, it.x)?]))
}

/// The names of axes, and their scales.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
}

impl Axes {
    /// Both from 0.
    pub(crate) const fn linear(x: &'static str, y: &'static str) -> Self {
        let scale = Places::Linear;
        Self { x: Axis { name: x, scale }, y: Axis { name: y, scale } }
    }
}

/// A panel of the series with these names, those that there are.
pub(crate) fn panel(points: &Points, title: &str, axes: Axes, names: &[&str]) -> Panel {
    let series = names.iter().filter_map(|name| points.series.iter().find(|it| it.name == *name));
    let curves = series.enumerate().map(|(place, it)| curve(it, place, Form::Marked)).collect();
    let Axes { x, y } = axes;
    Panel { title: title.to_owned(), x, y, curves, marks: Vec::new() }
}

/// A picture of one panel with all series.
pub(crate) fn one_panel(figure: &dyn Figure, points: &Points, axes: Axes) -> Picture {
    let names: Vec<&str> = points.series.iter().map(|it| it.name.as_str()).collect();
    picture(figure, points, vec![panel(points, "", axes, &names)])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::paper::{claims::Claim, points::rounded};

    /// Points of `figure` with these series.
    pub(crate) fn points(figure: &dyn Figure, series: &[(&str, &[[f64; 2]])]) -> Points {
        let mut points = Points::new(&figure.about(), "");
        for (name, values) in series {
            points.push(*name, values.iter().map(|&[x, y]| Value::new(x, y)).collect());
        }
        points
    }

    /// The same with another value at one place.
    pub(crate) fn with(points: &Points, name: &str, x: f64, y: f64) -> Points {
        let mut points = points.clone();
        let series = points.series.iter_mut().find(|it| it.name == name).expect("a series");
        let value = series.values.iter_mut().find(|it| it.x.to_bits() == x.to_bits());
        value.expect("a value").y = rounded(y);
        points
    }

    /// The claims that do not hold, by the ends of their ids.
    pub(crate) fn broken(figure: &dyn Figure, points: &Points) -> Vec<String> {
        let claims: Vec<Claim> = figure.claims(points);
        assert!(!claims.is_empty());
        let id = figure.about().id;
        let end = |claim: &Claim| claim.id[id.len() + 1..].to_owned();
        claims.iter().filter(|it| !it.holds).map(end).collect()
    }

    #[test]
    fn an_op_takes_what_theory_says() {
        assert!((op_micros() - 0.336).abs() < 0.002, "{}", op_micros());
        assert_eq!(time_for(1000, 2, 0.5).as_micros(), (op_micros() * 1e3) as u128 + 50);
    }
}
