//! The time until ops end whose peer has died.

use rma_bench::{
    error::PairError,
    interrupt::Interrupt,
    pair::{PairConfig, Place},
};

use super::{conditions::lab, spec::Measured};
use crate::death;

/// Ops that are outstanding when the peer dies, or issued later.
const DEATH_OPS: u64 = 10_000;

pub(super) fn peer_death(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let death = death::run(Place::Lab(&lab), &PairConfig::default(), DEATH_OPS, interrupt)?;
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let detail = format!(
        "slowest of {} reads {:.3} ms, bound {:.0} ms; of {} writes {:.3} ms, bound {:.0} ms; past a bound {:.3} ms, \
         in the NIC's own count {:.3} ms, of which {:.3} and {:.3} ms are no pause of the engine; {}; {} in flight at \
         once, default timing, all over {:.2} s after the peer's death",
        death.ops - death.writes,
        ms(death.slowest[0]),
        ms(death.bounds[0]),
        death.writes,
        ms(death.slowest[1]),
        ms(death.bounds[1]),
        ms(death.excess()[0]),
        ms(death.excess()[1]),
        ms(death.unexplained[0]),
        ms(death.unexplained[1]),
        death.endings(),
        death.slots,
        death.took as f64 / 1e9,
    );
    let noise = format!(
        "the longest pause of the engine that an op of peer_death_over_bound lived through; a loop on that core that \
         only looks at the clock was stopped for up to {:.3} ms in half a second before",
        ms(death.idle_gap)
    );
    let with_pauses = "as peer_death_over_bound, with the pauses of the engine that may have delayed an op added to its \
                       bound: those to take it, to see its solicitation, to end it, to see its end; at most 1";
    Ok(vec![
        Measured::new(death.over_bound(), detail),
        Measured::new(death.over_bound_and_pauses, with_pauses),
        Measured::new(ms(death.pause), noise),
    ])
}
