//! The effect of a key's rotations on a reader and on others.

use core::time::Duration;

use rma_bench::{
    amount::Amount,
    error::PairError,
    interrupt::Interrupt,
    pair::{Pair, PairConfig, Place},
    rotation::{By, NextGrant, beside_reads},
};
use rma_xdp::{
    OpStatus,
    config::{NicConfigBuilder, Timing},
};

use super::{
    conditions::{AMOUNT, CONDITIONS, MTU, lab},
    spec::Measured,
};

/// Rotations, in turns with reads.
const ROTATIONS: Amount = Amount { count: 2000, rounds: 20 };

/// The NICs' timeout while keys are rotated: a core that the scheduler takes away fails no op, so
/// what fails does so for the key.
const PATIENT: Duration = Duration::from_secs(2);

pub(super) fn rekey(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let place = Place::Lab(&lab);
    let timing = Timing::software(Duration::from_micros(10), PATIENT);
    let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
    let mut pair = Pair::open(place, &PairConfig { nic, ..PairConfig::default() })?;
    let kind = (By::RekeyOp, NextGrant::Beforehand);
    let amounts = (ROTATIONS, AMOUNT.count / ROTATIONS.rounds);
    let (reads, rotations) = beside_reads(&mut pair, place, &[kind], amounts, interrupt)?;
    let rotations = &rotations[0];
    let read = reads.quantile_us(0.5);
    let detail = |what: &str, of: f64| {
        format!(
            "{what} of {} rotations by the Rekey op, next grants handed out before: {of:.2} us from the issue of the \
             first READ that failed to that of the first that then succeeded; READ 64 B p50 alone {read:.2} us, in the \
             reader beside another {:.2} us; {} ops failed, {} with another status than {}; veth MTU {MTU}, {CONDITIONS}",
            rotations.count(),
            rotations.reads.quantile_us(0.5),
            rotations.failed,
            rotations.failed_otherwise,
            OpStatus::RemoteAuthenticationFailure,
        )
    };
    let (p50, max) = (rotations.gaps.quantile_us(0.5), rotations.gaps.max_us());
    Ok(vec![
        Measured::new(p50 / read, detail("p50", p50)),
        Measured::new(max / read, detail("longest", max)),
        Measured::new(
            rotations.other_failed as f64,
            format!(
                "of {} READs of another region of the same host meanwhile, by another portal of the same host; {} of \
                 them with {}",
                rotations.other_ops,
                rotations.other_refused,
                OpStatus::RemoteAuthenticationFailure
            ),
        ),
    ])
}
