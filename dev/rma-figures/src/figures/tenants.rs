//! The room that a tenant gone bad leaves to another of its process, and the records that one
//! initiator leaves to another.

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::{
    conditions::{CONDITIONS, MTU, lab},
    spec::Measured,
};
use crate::bad_tenant::{self, BesideTenant, Seen};

pub(super) fn bad_tenant(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let BesideTenant { idle, bad } = bad_tenant::measure(&lab()?, interrupt)?;
    let p99 = |seen: &Seen| seen.latencies.quantile_us(0.99);
    let detail = format!(
        "64 B READs of a tenant, 4 under way, and FETCH_ADDs of another host on its region, 4 under way, while another \
         tenant of its process is idle, and gone bad (reads into nowhere, 32 portals of commands without sense, a \
         Rekey in each ms, 64 regions whose records are filled), on the engine's own thread: p99 {:.1} and {:.1} us; \
         {:.0} and {:.0} recorded ops a second; veth MTU {MTU}, {CONDITIONS}",
        p99(&idle),
        p99(&bad),
        idle.recorded_per_s,
        bad.recorded_per_s,
    );
    Ok(vec![
        Measured::new(p99(&bad) / p99(&idle), detail),
        Measured::new(
            (idle.failed + bad.failed) as f64,
            "ops of the other tenant that did not end with OK",
        ),
        Measured::new(
            bad.recorded_per_s / idle.recorded_per_s,
            "recorded ops a second on the other tenant's region",
        ),
    ])
}

pub(super) fn records_shared(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let detail = "FETCH_ADDs that ended with OK, of 100, one in 10 ms, on a region to which another host adds 40,000 times \
                  a second and never says that an op is done: by NICs alone, in virtual time";
    Ok(vec![Measured::new(f64::from(bad_tenant::records_shared()), detail)])
}
