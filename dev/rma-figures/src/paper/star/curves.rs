//! The runs of figures 10 and 11: curves of the cost model, and the shipped engines beside them.

use core::time::Duration;

use rma_bench::drawing::{self, Axis, Form, Panel, Point, Scale as AxisScale};
use rma_sim::star::{
    engines::{self, options::Options, run::Run as Engines},
    model::{
        figures::{Curve, Setting},
        frames::Wire,
        load::Workload,
        stateless::Fusion,
    },
};

use crate::paper::{
    figure::{About, FigureFailed},
    points::{Points, Value},
    run::Run,
};

/// Numbers of connections: the paper's axis ends at 400.
const CONNECTIONS: [u32; 15] = [1, 8, 16, 40, 64, 80, 120, 130, 160, 200, 240, 260, 300, 350, MOST];
const QUICK: [u32; 4] = [8, 64, 240, MOST];
/// Those at which the shipped engines run.
const OF_ENGINES: [u32; 5] = [8, 64, 120, 240, MOST];
const QUICK_OF_ENGINES: [u32; 2] = [8, 64];

/// Connections of the paper's testbed at most.
pub(super) const MOST: u32 = 400;

/// The model's link and delays, for engines: 1 us from host to host.
const HOP: Duration = Duration::from_nanos(500);
/// How long engines run before anything is counted, until windows have settled, and meanwhile.
const LENGTH: Duration = Duration::from_millis(10);

/// The name of what the shipped engines do.
pub(super) const ENGINES: &str = "shipped engines";
/// The model with the frames that they have.
pub(super) const OUR_FRAMES: &str = "StaR, our frames";

/// The paper's curves, and StaR by the paper's own sequence of frames.
pub(super) const OF_PAPER: [Curve; 5] =
    [Curve::STAR, Curve::FAITHFUL, Curve::RdmaOnFpga, Curve::Rdma, Curve::ScalaRdma];
/// Ours beside them.
pub(super) const OURS: [Curve; 3] =
    [Curve::Star(Fusion::THREE_ANSWERS), Curve::Star(Fusion::FRAMES), Curve::Unlimited];

/// The results of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) calls_per_s: f64,
    pub(super) latency_us: f64,
}

/// A run of a curve with so many connections.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    /// None: the shipped engines.
    of: Option<(Curve, Wire)>,
    connections: u32,
}

/// Adds all curves to `points`: of each run what `value` says.
pub(super) fn add(
    points: &mut Points,
    run: &Run<'_>,
    workload: Workload,
    value: fn(&Reached) -> f64,
) -> Result<(), FigureFailed> {
    let of_model = |name, curve, wire| (name, Some((curve, wire)));
    let curves = OF_PAPER.into_iter().chain(OURS);
    let curves = curves.map(|curve| of_model(curve.name(), curve, Wire::PAPER));
    let ours = [of_model(OUR_FRAMES, Curve::STAR, Wire::OURS), (ENGINES, None)];
    let mut jobs = Vec::new();
    for (name, of) in curves.chain(ours) {
        let at = match of {
            Some(_) => run.pick(&QUICK, &CONNECTIONS),
            None => run.pick(&QUICK_OF_ENGINES, &OF_ENGINES),
        };
        jobs.extend(at.iter().map(|&connections| Job { name, of, connections }));
    }
    let reached = run.each(&jobs, |job| job.run(workload))?;
    for (job, reached) in jobs.iter().zip(&reached) {
        let value = Value::new(job.connections.into(), value(reached));
        match points.series.last_mut() {
            Some(series) if series.name == job.name => series.values.push(value),
            _ => points.push(job.name, vec![value]),
        }
    }
    Ok(())
}

impl Job {
    fn run(&self, workload: Workload) -> Reached {
        let Some((curve, wire)) = self.of else { return shipped(workload, self.connections) };
        let outcome =
            curve.run(&Setting { wire, ..Setting::default() }, workload, self.connections);
        Reached { calls_per_s: outcome.calls_per_s, latency_us: outcome.latency_us }
    }
}

/// The shipped engines and libraries on links as the model's.
fn shipped(workload: Workload, connections: u32) -> Reached {
    let workload = match workload {
        Workload::Ml => engines::options::Workload::Ml,
        _ => engines::options::Workload::Rpc,
    };
    let mut engines =
        Engines::new(Options { connections, workload, hop: HOP, ..Options::default() });
    engines.run_for(LENGTH);
    let _ = engines.outcome();
    engines.run_for(LENGTH);
    let outcome = engines.outcome();
    let took: u64 = outcome.took.iter().sum();
    Reached {
        calls_per_s: outcome.done as f64 / LENGTH.as_secs_f64(),
        latency_us: took as f64 / outcome.took.len() as f64 * 1e-3,
    }
}

/// Points that have no curves yet, with the conditions of all of them.
pub(super) fn empty(about: &About) -> Points {
    let conditions = "8 clients, one server, 10 Gbit/s, 1 us from host to host, 1 us from a completion to what follows; \
                      the paper's frames, 64 B a work request; the engines on the same links, sealed by AES-128-GCM";
    Points::new(about, conditions)
}

/// The value of the first curve over that of the second.
pub(super) fn over(points: &Points, of: &str, to: &str, connections: u32) -> Option<f64> {
    let at = |name| points.at(name, connections.into());
    Some(at(of)? / at(to)?)
}

/// The ratios of two curves, wherever both are.
pub(super) fn ratios<'a>(
    points: &'a Points,
    of: &'a str,
    to: &'a str,
) -> impl Iterator<Item = Ratio> + 'a {
    points.of(of).iter().filter_map(move |it| {
        let ratio = it.y / points.at(to, it.x)?;
        Some(Ratio { connections: it.x, ratio })
    })
}

/// A ratio with so many connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) connections: f64,
    pub(super) ratio: f64,
}

/// The two panels: the paper's curves, and ours on the same scale.
pub(super) fn panels(points: &Points, name: &'static str) -> Vec<Panel> {
    let names = |curves: &[Curve]| curves.iter().map(|it| it.name()).collect::<Vec<_>>();
    let of_paper = names(&OF_PAPER);
    let mut ours = vec![Curve::STAR.name(), OUR_FRAMES, ENGINES];
    ours.extend(names(&OURS));
    let panel = |title: &str, names: &[&'static str]| Panel {
        title: title.to_owned(),
        x: Axis { name: "connections", scale: AxisScale::Linear },
        y: Axis { name, scale: AxisScale::Linear },
        curves: names.iter().filter_map(|name| curve(points, name)).collect(),
        marks: Vec::new(),
    };
    vec![panel("The paper's curves, in the cost model", &of_paper), panel("Ours", &ours)]
}

/// The colour of our frames: that of a curve of the paper's panel, as there are more curves than
/// colours.
const OF_OUR_FRAMES: usize = 2;

/// A curve, of the same colour in all panels; none if it has no values.
fn curve(points: &Points, name: &str) -> Option<drawing::Curve> {
    let values = points.of(name);
    let is_of_engines = name == ENGINES;
    let place = points.series.iter().position(|it| it.name == name)?;
    let is_of_our_frames = is_of_engines || name == OUR_FRAMES;
    let colour = if is_of_our_frames { OF_OUR_FRAMES } else { place % drawing::CURVES_MAX };
    (!values.is_empty()).then(|| drawing::Curve {
        name: name.to_owned(),
        colour: if is_of_engines { colour + 1 } else { colour },
        dash: colour,
        form: if is_of_engines { Form::Marks } else { Form::Marked },
        points: values.iter().map(|it| Point::new(it.x, it.y)).collect(),
    })
}
