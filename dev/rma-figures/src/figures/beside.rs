//! Small reads beside a large one.

use rma_bench::{
    client::Client,
    error::PairError,
    interrupt::Interrupt,
    pair::{Pair, PairConfig, Place},
    rates,
};
use rma_xdp::OpType;

use super::{
    conditions::{CONDITIONS, MTU, lab},
    spec::Measured,
};
use crate::transfers::{LARGE, Transfers};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Large reads in a round, alone.
const LARGE_COUNT: u64 = 24;
/// Small reads in each round: alone, and beside large ones.
const SMALL_COUNT: u64 = 10_000;
/// The least rate of the large reads beside the small ones, as a part of what they make alone.
const BACKGROUND_MIN: f64 = 0.1;

/// The pair, and what the measures of one round of [`beside`] tell each other.
struct Beside {
    pair: Pair,
    transfers: Transfers,
    /// Payload of large reads, in bytes a second: alone, and beside small ones.
    alone: f64,
    beside: f64,
}

impl Beside {
    fn large(&mut self, interrupt: &Interrupt) -> Result<f64, PairError> {
        let Self { pair, transfers, .. } = self;
        let run = |client: &mut Client| {
            transfers.large(client, OpType::Read, (LARGE_COUNT, 1), interrupt)
        };
        self.alone = pair.run(run)?.bytes_per_second();
        Ok(self.alone)
    }

    /// p99 of small reads, in microseconds.
    fn small(&mut self, beside: Option<u64>, interrupt: &Interrupt) -> Result<f64, PairError> {
        let Self { pair, transfers, .. } = self;
        let run = |client: &mut Client| transfers.small(client, SMALL_COUNT, beside, interrupt);
        let (latencies, large) = pair.run(run)?;
        self.beside = large.bytes_per_second();
        Ok(latencies.quantile_us(0.99))
    }

    /// Returns the rate of the large reads beside the small ones, if they were there at all.
    fn background(&self) -> Result<f64, PairError> {
        let Self { alone, beside, .. } = *self;
        if beside >= BACKGROUND_MIN * alone {
            return Ok(beside);
        }
        Err(PairError::SpoiledRound(format!(
            "the large reads beside small ones made {:.3} Gbit/s, and {:.2} alone: small ones were beside nothing",
            beside * 8e-9,
            alone * 8e-9,
        )))
    }
}

/// Small reads beside a large one over small reads alone, and the large ones so over large ones
/// alone.
pub(super) fn beside(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::default())?;
    let transfers = Transfers::open(&mut pair.client.host, None)?;
    let mut shared = Beside { pair, transfers, alone: 0.0, beside: 0.0 };
    let mut large = |shared: &mut Beside| shared.large(interrupt);
    let mut alone = |shared: &mut Beside| shared.small(None, interrupt);
    let mut beside = |shared: &mut Beside| shared.small(Some(LARGE), interrupt);
    let mut background = |shared: &mut Beside| shared.background();
    let measures: [&mut rates::Measure<'_, Beside>; 4] =
        [&mut large, &mut alone, &mut beside, &mut background];
    let [large, alone, beside, background] =
        rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let small = beside.over_each(&alone);
    let kept = background.over_each(&large);
    let detail = |ratios: &rates::Rates| {
        let (low, high) = ratios.range();
        format!(
            "p99 of {SMALL_COUNT} calls of 64 B alone {:.2} us, beside a 4 MiB READ {:.2} us; 4 MiB READs one after the other alone \
             {:.2} Gbit/s, beside them {:.2}; medians, {} of {ROUNDS} rounds count, ratios from {low:.2} to {high:.2}; veth MTU \
             {MTU}, {CONDITIONS}",
            alone.median(),
            beside.median(),
            large.median() * 8e-9,
            background.median() * 8e-9,
            ratios.rounds(),
        )
    };
    Ok(vec![
        Measured::new(small.median(), detail(&small)),
        Measured::new(kept.median(), detail(&kept)),
    ])
}
