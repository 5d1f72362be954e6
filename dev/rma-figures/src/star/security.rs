//! Figure 12: calls a second with the paper's security module and without it, and ours beside
//! them, measured on shipped engines that are joined by memory.

use rma_bench::{
    aead,
    interrupt::Interrupt,
    line,
    pair::{cores, pinned},
};

use crate::{
    stations::security::{Rates, Workload, measure},
    svg::Series,
};

/// Numbers of connections: the paper's axis ends at 400.
const CONNECTIONS: [u32; 7] = [1, 8, 40, 120, 240, 320, 400];
/// Rounds of each. An odd number has a middle one.
const ROUNDS: usize = 21;
/// The paper says *almost the same*, and no number: a ratio of this is meant to be that.
const ALMOST: f64 = 0.95;

/// The names of the forms, in the order in which they are measured.
const NAMES: [&str; 3] = ["without security", "whitelists", "whitelists and AES-128-GCM"];

/// Measures and prints. Returns the numbers of connections and what was measured.
pub(super) fn print(interrupt: &Interrupt) -> (Vec<u32>, Vec<Series>) {
    line!(
        "Measured: shipped engines and libraries of StaR, in one thread, joined by memory; RPC, 8"
    );
    line!(
        "stateful sides, one PD and one MR a connection. Calls a second of a thread that turns the"
    );
    line!(
        "engines of both sides. The first two forms are the paper's and authenticate nothing; no host"
    );
    line!("can be opened with them. {}\n", aead::words());
    line!(
        "| connections | {} | whitelists over without | sealed over whitelists |",
        NAMES.join(" | ")
    );
    line!("|---|---|---|---|---|---|");
    let mut series = NAMES.map(|name| Series { name: name.to_owned(), values: Vec::new() });
    let (mut at, mut all) = (Vec::new(), Vec::new());
    for connections in CONNECTIONS {
        if interrupt.is_set() {
            break;
        }
        let it = pinned(cores().1, || measure(Workload::Rpc, connections, aead::chosen(), ROUNDS));
        let [bare, listed, sealed] = it.rates;
        line!(
            "| {connections} | {bare:.0} | {listed:.0} | {sealed:.0} | {:.3} | {:.3} |",
            it.whitelist_over_bare,
            it.sealed_over_whitelist,
        );
        series.iter_mut().zip(it.rates).for_each(|(series, rate)| series.values.push(rate));
        at.push(connections);
        all.push(it);
    }
    if !all.is_empty() {
        line!("\n{}", verdict(&all));
    }
    (at, series.into())
}

/// Returns the verdict on the paper's sentence, and on ours.
fn verdict(all: &[Rates]) -> String {
    let least = |ratio: fn(&Rates) -> f64| all.iter().map(ratio).fold(f64::MAX, f64::min);
    let whitelist = least(|it| it.whitelist_over_bare);
    let sealed = least(|it| it.sealed_over_whitelist);
    let holds = if whitelist >= ALMOST { "holds" } else { "does not hold" };
    format!(
        "The paper: throughput with and without the security module is almost the same. With whitelists it is {whitelist:.3} \
         of that without at least: that {holds} (bar {ALMOST}).\nAuthentication, which the paper has not, leaves {sealed:.3} of \
         it at least."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(whitelist_over_bare: f64, sealed_over_whitelist: f64) -> Rates {
        Rates { rates: [0.0; 3], whitelist_over_bare, sealed_over_whitelist }
    }

    #[test]
    fn the_verdict_is_of_the_worst_of_all() {
        let kept = verdict(&[rates(0.99, 0.5), rates(0.96, 0.25)]);
        assert!(kept.contains("is 0.960 of that without at least: that holds"), "{kept}");
        assert!(kept.contains("leaves 0.250 of"), "{kept}");
        let missed = verdict(&[rates(0.99, 0.5), rates(0.94, 0.6)]);
        assert!(missed.contains("that does not hold"), "{missed}");
    }
}
