//! The numbers that answer the paper's claims: knees, ratios, and the penalty that would give its
//! ratios.

use super::{
    figures::{Curve, FIGURE_1_AT_3000, Setting, figure_1},
    load::Workload,
    time::Picos,
};

/// The part of its peak that a curve keeps before its knee.
pub const KEPT: f64 = 0.95;

/// The place where a curve falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// With so many connections it still has [`KEPT`] of its peak, and with one more it has not.
    pub connections: u32,
    /// Its peak, a second.
    pub peak: f64,
}

/// The knee of `rate` near `expected`: looked for from half of it to twice as much, by twentieths
/// and then by ones.
#[must_use]
pub fn knee(expected: u32, rate: impl Fn(u32) -> f64) -> Knee {
    let at = |twentieth: u32| (expected * twentieth / 20).max(1);
    let rates: Vec<(u32, f64)> = (10..=40).map(|it| (at(it), rate(at(it)))).collect();
    let peak = rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
    let keeps = |rate: f64| rate >= KEPT * peak;
    // A rate that still rises is not there yet.
    let from = rates.iter().position(|&(_, rate)| keeps(rate)).unwrap_or_default();
    let kept = rates[from..].iter().take_while(|&&(_, rate)| keeps(rate)).count();
    let (mut low, _) = rates[from + kept - 1];
    let Some(&(mut high, _)) = rates.get(from + kept) else {
        return Knee { connections: low, peak };
    };
    while high - low > 1 {
        let middle = low.midpoint(high);
        if keeps(rate(middle)) { low = middle } else { high = middle }
    }
    Knee { connections: low, peak }
}

/// The penalty in `from..to` at which `value`, which grows with it, becomes `wanted`; `None` if it
/// does not there.
#[must_use]
pub fn penalty_for(
    wanted: f64,
    (from, to): (Picos, Picos),
    value: impl Fn(Picos) -> f64,
) -> Option<Picos> {
    if value(from) > wanted || value(to) < wanted {
        return None;
    }
    let (Picos(mut low), Picos(mut high)) = (from, to);
    // To a five-hundredth of the range.
    while (high - low) * 500 > to.0 - from.0 {
        let middle = low.midpoint(high);
        if value(Picos(middle)) < wanted { low = middle } else { high = middle }
    }
    Some(Picos(high))
}

/// How many times as many calls a second the first makes as the second.
#[must_use]
pub fn over(
    setting: &Setting,
    workload: Workload,
    connections: u32,
    (curve, baseline): (Curve, Curve),
) -> f64 {
    let calls = |curve: Curve| curve.run(setting, workload, connections).calls_per_s;
    calls(curve) / calls(baseline)
}

/// The penalty of the second, a baseline, at which the first makes `wanted` times as many calls.
#[must_use]
pub fn penalty_for_ratio(
    setting: &Setting,
    (curve, baseline): (Curve, Curve),
    wanted: f64,
    workload: Workload,
    connections: u32,
) -> Option<Picos> {
    let calls = curve.run(setting, workload, connections).calls_per_s;
    let ratio = |penalty| {
        let setting = Setting { penalty, cx3_penalty: penalty, ..*setting };
        calls / baseline.run(&setting, workload, connections).calls_per_s
    };
    penalty_for(wanted, (Picos::ZERO, Picos::nanos(10_000)), ratio)
}

/// The penalty of figure 1 at which what is left at 3000 connections is what the paper says.
#[must_use]
pub fn figure_1_penalty(setting: &Setting) -> Option<Picos> {
    let lost = |penalty| {
        let rate = |connections| figure_1(setting, connections, penalty).calls_per_s;
        rate(400) / rate(3000)
    };
    penalty_for(1.0 / FIGURE_1_AT_3000, (Picos::ZERO, Picos::nanos(200)), lost)
}

/// Returns the fit of `values` to a line over `at`: the coefficient of determination, 1 if they do.
#[must_use]
pub fn linearity(at: &[f64], values: &[f64]) -> f64 {
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let (x, y) = (mean(at), mean(values));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        at.iter().zip(values).map(|(&a, &b)| of(a - x, b - y)).sum()
    };
    let together = sum(&|a, b| a * b);
    together * together / (sum(&|a, _| a * a) * sum(&|_, b| b * b))
}
