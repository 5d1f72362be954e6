//! The paper's experiments with congestion control, simulated: figures 12 and 15 in numbers.
//!
//! A simulation repeats exactly, so noise is no excuse; many seeds are many start phases and
//! jitters.

use core::time::Duration;

use rma_bench::{error::PairError, interrupt::Interrupt};
use rma_sim::flows::scenes::{Scene, Settling, settlings, small_beside};

use super::spec::Measured;

/// Seeds of each experiment.
const SEEDS: u64 = 20;

pub(super) fn convergence(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let [ramp, join, total] = [Scene::Ramp, Scene::Join, Scene::JoinTotalDelayOnly]
        .map(|scene| settlings(scene, 0..SEEDS));
    let [slowest_ramp, slowest_join] = [&ramp, &join].map(|all| worst(all));
    let quickest_total = total.first().map_or(0.0, |settling| settling.rtts);
    let failed: usize = [&ramp, &join].into_iter().flatten().map(|it| it.failures).sum();
    let if_ok = |rtts| if failed == 0 { rtts } else { f64::INFINITY };
    let common = "100 Gbit/s, RTT 5 us, 4 MiB reads, solicitation window 64 KiB; settled when from then on each 20 us \
                  use at least 95 % of the link, with equal shares to within 20 %";
    let detail = |what: &str, all: &[Settling]| {
        format!("the slowest of {} runs, {what}; {common}; {failed} ops were not OK", describe(all))
    };
    let slower = format!(
        "the quickest run without a local window, of {}, over the slowest with one; {common}",
        describe(&total)
    );
    Ok(vec![
        Measured::new(if_ok(slowest_ramp), detail("0 to full rate", &ramp)),
        Measured::new(if_ok(slowest_join), detail("a second server joins at one client", &join)),
        Measured::new(quickest_total / slowest_join, slower),
    ])
}

/// The slowest; a run that did not settle is slower than any.
fn worst(settlings: &[Settling]) -> f64 {
    let rtts = |settling: &Settling| if settling.happened { settling.rtts } else { f64::INFINITY };
    settlings.iter().map(rtts).fold(0.0, f64::max)
}

/// How many, and how they are distributed.
fn describe(settlings: &[Settling]) -> String {
    let at = |index: usize| settlings.get(index).map_or(0.0, |settling| settling.rtts);
    let count = settlings.len();
    let never = settlings.iter().filter(|settling| !settling.happened).count();
    let never = match never {
        0 => String::new(),
        never => format!(", {never} not within the time observed"),
    };
    format!(
        "{count} ({:.1}, median {:.1}, {:.1} RTT{never})",
        at(0),
        at(count / 2),
        at(count.saturating_sub(1))
    )
}

/// For how long small reads are measured beside each size of transfer: a thousand of them.
const SMALL_FOR: Duration = Duration::from_millis(100);

pub(super) fn small_beside_large(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let alone = small_beside(None, 1, SMALL_FOR);
    let over = |part: Duration, whole: Duration| part.as_secs_f64() / whole.as_secs_f64();
    let mut worst: f64 = 0.0;
    let mut sizes = Vec::new();
    for (name, large) in [
        ("4 KiB", 4 << 10),
        ("16 KiB", 16 << 10),
        ("64 KiB", 64 << 10),
        ("256 KiB", 256 << 10),
        ("1 MiB", 1 << 20),
        ("4 MiB", 4 << 20),
    ] {
        let beside = small_beside(Some(large), 1, SMALL_FOR);
        let [median, p99] = [over(beside.median, alone.median), over(beside.p99, alone.p99)];
        worst = worst.max(p99);
        sizes.push(format!("{name} {median:.2}, {p99:.2}"));
    }
    let detail = format!(
        "the worst of p99 over p99 alone, of 64 B reads, 10,000 a second by chance, {} each; alone {:?}, p99 {:?}; slower \
         at the median and at p99 beside one transfer of {}",
        alone.samples,
        alone.median,
        alone.p99,
        sizes.join("; "),
    );
    Ok(vec![Measured::new(worst, detail)])
}
