//! The figures of the replicated cache of `rma-kv`.

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::spec::Measured;
use crate::kv;

pub(super) fn latency(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let (get, read) = kv::latency(interrupt)?;
    let micros = |it: core::time::Duration| it.as_secs_f64() * 1e6;
    let detail = format!(
        "medians: a get of 64 B {:.1} us, a READ of 64 B {:.1} us; one after the other over UDP on loopback, the server a \
         process of its own, the client with a thread that polls",
        micros(get),
        micros(read)
    );
    let value = get.as_secs_f64() / read.as_secs_f64();
    Ok(vec![Measured::new(value, detail)])
}

pub(super) fn under_load(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let kv::UnderLoad { before, gone, all, rotated } = kv::under_load(interrupt)?;
    let common = "1,000 ops/s, 95 % gets, values of 64 B to 64 KiB, three servers over UDP on loopback, two copies, keys \
                  that change every second";
    let hits = format!(
        "{:.4} of {} gets from a second after one of three servers was killed, {:.4} of {} before; {common}",
        gone.hit_rate(),
        gone.gets(),
        before.hit_rate(),
        before.gets()
    );
    Ok(vec![
        Measured::new(gone.hit_rate() / before.hit_rate(), hits),
        Measured::new(all.wrong as f64, format!("of {} gets; {common}", all.gets())),
        Measured::new(
            (before.failed + before.misses) as f64,
            format!("of {} gets while keys changed {rotated} times; {common}", before.gets()),
        ),
    ])
}
