//! `rma-figures star`: figures 1, 10 and 11 of the StaR paper, from the cost model of
//! [`rma_sim::star::model`], which is no measurement of the shipped service, and figure 12, which
//! is measured on shipped engines (`security`).
//!
//! With `--figure` one of them as a table over connections, and as a plot. Without, all at 400
//! connections: calls a second and the use of the link side by side; the paper's numbers, ours and
//! what they say of each other; each parameter swept; each way to have fewer frames alone.

mod report;
mod security;
mod sweeps;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use rma_bench::{interrupt::Interrupt, line};
use rma_sim::star::model::{
    claims::figure_1_penalty,
    figures::{Curve, Setting, figure_1},
    frames::Wire,
    load::Workload,
    run::Outcome,
};

use crate::svg::{self, Axes, Series};

/// The arguments of `star`.
#[derive(Args, Clone, Debug)]
pub struct StarArgs {
    /// Figure of the paper to draw. Default: all of them, at 400 connections.
    #[arg(long, value_enum)]
    pub figure: Option<Figure>,
    /// Write the plot to this file, as SVG.
    #[arg(long, value_name = "FILE", requires = "figure")]
    pub svg: Option<PathBuf>,
    /// Use our frame sizes, not the paper's. Measured figures always do.
    #[arg(long)]
    pub our_frames: bool,
}

/// A figure that can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// READs a second over connections.
    #[value(name = "1")]
    Reads,
    /// Calls a second of RPC.
    #[value(name = "10a")]
    RpcCalls,
    /// Calls a second of machine learning.
    #[value(name = "10b")]
    MlCalls,
    /// The latency of a call of RPC.
    #[value(name = "11a")]
    RpcLatency,
    /// The latency of a call of machine learning.
    #[value(name = "11b")]
    MlLatency,
    /// Calls a second of RPC, with and without security. Measured, not modelled.
    #[value(name = "12")]
    Security,
}

/// An error that kept a figure from being shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StarError {
    /// The plot could not be made.
    #[error("cannot draw: {0}")]
    Draw(String),
    /// The file could not be written.
    #[error("cannot write {}: {error}; choose another file", path.display())]
    Svg {
        /// The file for the plot.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// Numbers of connections that figures 10 and 11 are drawn over: the paper's axis ends at 400.
const CONNECTIONS: [u32; 14] = [1, 8, 16, 40, 80, 120, 130, 160, 200, 240, 260, 300, 350, 400];
/// Those of figure 1.
const CONNECTIONS_OF_FIGURE_1: [u32; 12] =
    [50, 100, 200, 300, 400, 450, 475, 500, 1000, 2000, 3000, 4000];

/// Runs, prints and draws.
///
/// # Errors
/// If the plot cannot be made or written.
pub fn run(args: &StarArgs, interrupt: &Interrupt) -> Result<(), StarError> {
    if args.figure == Some(Figure::Security) {
        let (at, series) = security::print(interrupt);
        let (title, unit, _) = Figure::Security.words();
        return args.svg.as_deref().map_or(Ok(()), |path| save(path, (title, unit), &at, &series));
    }
    let wire = if args.our_frames { Wire::OURS } else { Wire::PAPER };
    let setting = Setting { wire, ..Setting::default() };
    let words = if args.our_frames { "our frames" } else { "the paper's frames" };
    line!("A cost model, no measurement: links, state caches and turns; {words}\n");
    match args.figure {
        Some(figure) => draw(figure, &setting, args, interrupt),
        None => {
            report::print(&setting, interrupt);
            sweeps::print(&setting, interrupt);
            Ok(())
        }
    }
}

impl Figure {
    /// Returns the quantity that is drawn, its unit, and the value of an outcome.
    const fn words(self) -> (&'static str, &'static str, fn(&Outcome) -> f64) {
        const CALLS: fn(&Outcome) -> f64 = |it| it.calls_per_s * 1e-6;
        match self {
            Self::Reads => ("READs of 32 B (figure 1)", "of the peak", |it| it.calls_per_s),
            Self::RpcCalls => ("RPC (figure 10a)", "M calls/s", CALLS),
            Self::MlCalls => ("Machine learning (figure 10b)", "M calls/s", CALLS),
            Self::RpcLatency => ("A call of RPC (figure 11a)", "us", |it| it.latency_us),
            Self::Security => {
                ("RPC with and without security (figure 12)", "calls/s", |it| it.calls_per_s)
            }
            Self::MlLatency => ("A call of ML (figure 11b)", "us", |it| it.latency_us),
        }
    }

    const fn workload(self) -> Workload {
        match self {
            Self::Reads => Workload::Read,
            Self::RpcCalls | Self::RpcLatency | Self::Security => Workload::Rpc,
            Self::MlCalls | Self::MlLatency => Workload::Ml,
        }
    }
}

/// The curves of a figure: for each its name, and what came of it at each number of connections.
fn curves(
    figure: Figure,
    setting: &Setting,
    interrupt: &Interrupt,
) -> (Vec<u32>, Vec<(&'static str, Vec<Outcome>)>) {
    let going = |_: &u32| !interrupt.is_set();
    if figure == Figure::Reads {
        let penalty = figure_1_penalty(setting).unwrap_or_default();
        line!("a state that is not there costs {:.1} ns, fitted\n", penalty.as_micros() * 1e3);
        let at: Vec<u32> = CONNECTIONS_OF_FIGURE_1.into_iter().take_while(going).collect();
        let all = at.iter().map(|&connections| figure_1(setting, connections, penalty)).collect();
        return (at, vec![("450 states, least recently used", all)]);
    }
    let at = CONNECTIONS.to_vec();
    let mut all = Vec::new();
    for curve in Curve::DRAWN.into_iter().take_while(|_| !interrupt.is_set()) {
        let run = |&connections: &u32| curve.run(setting, figure.workload(), connections);
        all.push((curve.name(), at.iter().map(run).collect()));
    }
    (at, all)
}

fn draw(
    figure: Figure,
    setting: &Setting,
    args: &StarArgs,
    interrupt: &Interrupt,
) -> Result<(), StarError> {
    let (title, unit, value) = figure.words();
    let (at, all) = curves(figure, setting, interrupt);
    line!("{title}, {unit}, by connections; in brackets the busier direction of the link\n");
    let heads: Vec<String> = at.iter().map(u32::to_string).collect();
    line!("| | {} |", heads.join(" | "));
    line!("|---|{}", "---|".repeat(heads.len()));
    let mut series = Vec::new();
    for (name, outcomes) in all {
        let mut values: Vec<f64> = outcomes.iter().map(value).collect();
        if figure == Figure::Reads {
            let peak = values.iter().copied().fold(0.0, f64::max);
            values.iter_mut().for_each(|it| *it /= peak);
        }
        let cells = values.iter().zip(&outcomes);
        let cells: Vec<String> =
            cells.map(|(value, it)| format!("{value:.3} ({:.2})", it.link())).collect();
        line!("| {name} | {} |", cells.join(" | "));
        series.push(Series { name: name.to_owned(), values });
    }
    args.svg.as_deref().map_or(Ok(()), |path| save(path, (title, unit), &at, &series))
}

/// Writes a plot over connections, with its title and unit.
fn save(path: &Path, titles: (&str, &str), at: &[u32], series: &[Series]) -> Result<(), StarError> {
    let svg = svg::draw(titles, &Axes::connections(at), series);
    fs::write(path, svg.map_err(StarError::Draw)?)
        .map_err(|error| StarError::Svg { path: path.to_owned(), error })?;
    line!("\nwritten to {}", path.display());
    Ok(())
}
