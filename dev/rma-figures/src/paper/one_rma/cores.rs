//! The cores that software needs (§1, §6.1): ops a second through the full stack on one core, and
//! the cores for 100 Gbit/s of 4 KiB ops.
//!
//! The engine plays the NIC here, and costs cores as well, which the paper's hardware does not: its
//! figures are those of `rma-figures measure`, and no claim.

use rma_bench::{drawing::Picture, machine::Machine};

use crate::{
    issue,
    paper::{
        claims::Claim,
        figure::{About, Figure, FigureFailed, Kind},
        points::{MeasuredOn, Points, Value},
        run::{Run, Scale},
    },
};

/// The figure.
#[derive(Debug)]
pub(super) struct Cores;

const ROUNDS: u64 = 5;

/// Ops of 4 KiB in a second of 100 Gbit/s.
const OPS: f64 = 100e9 / 8.0 / 4096.0;

const EXECUTOR: &str = "ops/s through a CommandExecutor";
const PORTAL: &str = "ops/s through a CommandPortal";
const NEEDED: &str = "cores for 100 Gbit/s of 4 KiB ops";

impl Figure for Cores {
    fn about(&self) -> About {
        About {
            id: "1rma-6.1",
            title: "Cores that software needs to issue ops",
            says: "One core issues some 6 M ops/s through the full stack, and half a core keeps 100 Gbit/s busy.",
            kind: Kind::Memory,
            seconds: 10,
        }
    }

    fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
        let count = match run.scale {
            Scale::Quick => 200_000,
            Scale::Full => 2_000_000,
        };
        let rounds = run.seeds.unwrap_or(ROUNDS);
        let rate = |of: fn(u64) -> f64| -> Result<f64, FigureFailed> {
            let mut all = Vec::new();
            for _ in 0..rounds {
                if run.interrupt.is_set() {
                    return Err(FigureFailed::Interrupted);
                }
                all.push(of(count));
            }
            Ok(Value::of(0.0, &mut all).y)
        };
        let (executor, portal) = (rate(issue::executor_ops)?, rate(issue::portal_commands)?);
        let mut points = Points::new(
            &self.about(),
            format!(
                "one application thread against a null engine on the other of {} cores, which completes at once; \
                 medians of {rounds} rounds of {count} ops",
                Machine::here().cores
            ),
        );
        points.measured_on = Some(MeasuredOn::here(rounds));
        points.number(EXECUTOR, executor, "ops/s");
        points.number(PORTAL, portal, "ops/s");
        points.number(NEEDED, OPS / executor, "cores");
        Ok(points)
    }

    fn claims(&self, points: &Points) -> Vec<Claim> {
        let (Some(rate), Some(cores)) = (points.value(EXECUTOR), points.value(NEEDED)) else {
            return Vec::new();
        };
        vec![
            Claim::at_least(
                "1rma-6.1-rate",
                "a core issues 6 M ops/s with congestion control",
                EXECUTOR,
                rate,
                6e6,
            )
            .paper("6 M"),
            Claim::at_most(
                "1rma-6.1-cores",
                "half a core issues what 100 Gbit/s carries",
                "3.05 M / ops/s through a CommandExecutor",
                cores,
                0.5,
            )
            .paper("0.5"),
        ]
    }

    fn picture(&self, _: &Points) -> Option<Picture> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_fail_of_the_least_value_beyond_them() {
        let holds = |rate: f64, cores: f64| {
            let mut points = Points::new(&Cores.about(), "");
            points.number(EXECUTOR, rate, "ops/s");
            points.number(NEEDED, cores, "cores");
            Cores.claims(&points).iter().map(|it| it.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds(6e6, 0.5), [true, true]);
        assert_eq!(holds(5.99e6, 0.501), [false, false]);
    }
}
