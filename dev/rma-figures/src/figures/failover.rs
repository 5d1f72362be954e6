//! The losses of a thousand tasks when one of two servers is killed, and when it is back.

use core::time::Duration;

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::spec::Measured;
use crate::failover::{self, TASKS};

/// The stand-in for a rate that never came back, in seconds.
const NEVER: f64 = 1e9;

pub(super) fn over_xdp(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    measured(false, interrupt)
}

pub(super) fn over_udp(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    measured(true, interrupt)
}

fn measured(udp: bool, interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let run = failover::run(udp, interrupt)?;
    let (before, after) = run.lookups();
    let device = if udp { "UDP" } else { "AF_XDP" };
    let detail = format!(
        "{before:.0} lookups/s of 64 B at two servers before one is killed, {after:.0} at the other from three timeouts \
         later on; {TASKS} tasks over {device}, two processes that serve and one client on the cores there are",
    );
    let longest = run.longest_wait();
    let lookups = run.longest_lookups();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let longest_detail = format!(
        "{:.1} ms, timeout {} ms: the longest wait for the killed server after its death of a call that ended before its \
         return, READ or WRITE, with the default policy or without retries; from its begin, beside others before the \
         death, the longest of these took {:.1} ms; the longest lookup, at both if need be, {:.1} ms then, and {:.1} ms \
         before",
        ms(longest),
        run.timeout.as_millis(),
        ms(run.longest_call()),
        ms(lookups.1),
        ms(lookups.0)
    );
    let back = run.recovery();
    let back_detail = match back {
        Some(_) => {
            "from when the new grant was handed over to the first tenth of a second at 0.9 of the rates before"
        }
        None => "it served no tenth of a second at 0.9 of the rate before",
    };
    let timeouts = longest.as_secs_f64() / run.timeout.as_secs_f64();
    Ok(vec![
        Measured::new(after / before, detail),
        Measured::new(timeouts, longest_detail),
        Measured::new(back.map_or(NEVER, |it| it.as_secs_f64()), back_detail),
    ])
}
