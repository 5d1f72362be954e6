//! Ops that end at once: the cost of the loop itself, beside the parts that it cannot do without.

use core::{hint::black_box, time::Duration};

use rma_core::time::Clock;
use rma_xdp::{OpStatus, time::TscClock};

use super::{
    recorder::{Recorder, Sample},
    run::{self, Extent, Plan},
    schedule::{Arrivals, Schedule},
    work::{Due, Ended, Work},
};
use crate::{error::PairError, failures::Failures, interrupt::Interrupt};

/// Ends each op in the turn after its issue.
#[derive(Debug, Default)]
struct Null {
    under_way: Option<Due>,
    failures: Failures,
}

const fn ended(at: Due) -> Ended {
    Ended { kind: 0, at, status: OpStatus::Ok, bytes: 64, retries: 0, wrong: None }
}

impl Work for Null {
    fn issue(&mut self, take: &mut impl FnMut() -> Option<Due>) -> Result<(), PairError> {
        if self.under_way.is_none() {
            self.under_way = take();
        }
        Ok(())
    }

    fn turn(&mut self) -> bool {
        self.under_way.is_some()
    }

    fn poll(&mut self) -> Option<Ended> {
        self.under_way.take().map(ended)
    }

    fn failures(&mut self) -> &mut Failures {
        &mut self.failures
    }
}

/// Nanoseconds of an op that ends at once.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    /// In a closed loop, one at a time.
    pub closed: f64,
    /// In an open loop that is always behind.
    pub open: f64,
    /// Two readings of the clock and one record alone.
    pub parts: f64,
}

/// Measures the loop without a network, `count` ops of each kind.
///
/// # Errors
/// If it is interrupted.
pub fn generator(count: u64, interrupt: &Interrupt) -> Result<Generator, PairError> {
    let clock = TscClock::new();
    let per_op = |elapsed: Duration, ops: u64| elapsed.as_nanos() as f64 / ops.max(1) as f64;
    let of = |schedule: &mut Schedule| {
        let mut recorder = Recorder::new(1, 1);
        let (warm_up, extent) = (Extent::Ops(count / 10), Extent::Ops(count));
        let plan = Plan::of_one([warm_up, extent], 1, interrupt);
        run::run(&mut Null::default(), schedule, &clock, plan, &mut recorder)?;
        Ok::<_, PairError>(per_op(recorder.elapsed, recorder.moved().ops))
    };
    let closed = of(&mut Schedule::Closed)?;
    // Due long before: each is issued as soon as the one before it has ended.
    let open = of(&mut Schedule::open(Arrivals::Poisson, 100_000_000.0, 1))?;
    let mut recorder = Recorder::new(1, 1);
    let start = clock.now();
    for _ in 0..count {
        let issued = clock.now();
        let now = clock.now();
        recorder.record(black_box(Sample { end: ended(Due { due: issued, issued }), now }));
    }
    let parts = per_op(clock.now().since(start), count);
    Ok(Generator { closed, open, parts })
}
