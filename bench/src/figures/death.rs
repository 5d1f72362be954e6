//! How late ops end whose peer has died.

use super::{lab, table::Measured};
use crate::{
    death,
    interrupt::Interrupt,
    pair::{PairConfig, PairError, Place},
};

/// Ops that are outstanding when the peer dies, or issued later.
const DEATH_OPS: u64 = 10_000;

pub(super) fn peer_death(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let death = death::run(Place::Lab(&lab), &PairConfig::default(), DEATH_OPS, interrupt)?;
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let detail = format!(
        "slowest of {} reads {:.3} ms, bound {:.0} ms; of {} writes {:.3} ms, bound {:.0} ms; past a bound {:.3} ms, \
         in the NIC's own count {:.3} ms; engine without a turn for up to {:.3} ms meanwhile; {}; {} in flight at \
         once, default timing, all over {:.2} s after the peer's death",
        death.ops - death.writes,
        ms(death.slowest[0]),
        ms(death.bounds[0]),
        death.writes,
        ms(death.slowest[1]),
        ms(death.bounds[1]),
        ms(death.excess()[0]),
        ms(death.excess()[1]),
        ms(death.turn_gap),
        death.endings(),
        death.slots,
        death.took as f64 / 1e9,
    );
    let noise = format!(
        "twice the longest time between two engine turns while peer_death_over_bound was measured: one may be late to \
         take an op, and one to end it; a loop on that core that only looks at the clock was stopped for up to {:.3} \
         ms in half a second before",
        ms(death.idle_gap)
    );
    let over = |name, noise, detail| {
        let value = death.over_bound(noise);
        Measured { name, value, detail }
    };
    let with_noise =
        "as peer_death_over_bound, with peer_death_noise added to each bound: at most 1";
    Ok(vec![
        over("peer_death_over_bound", 0, detail),
        over("peer_death_over_bound_and_noise", death.noise(), with_noise.to_owned()),
        Measured { name: "peer_death_noise", value: ms(death.turn_gap), detail: noise },
    ])
}
