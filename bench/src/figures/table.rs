//! The table of all figures: name, unit, limit, and the measurement that it comes from.
//!
//! To add a figure: an entry here, a measuring function in a file beside this one, and a row in
//! docs/BENCHMARKING.md, which a test compares with this table.

use super::{
    crypto, death, failover, floors, flows, issue, reads, rekey, simulator,
    spec::{Benchmark, Spec},
    transfers, turn, useless, writes,
};

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        run: reads::read64,
        figures: &[
            Spec::new("read64_over_floor", "ratio").at_most(1.4),
            Spec::new("read64_p99_over_floor", "ratio").at_most(2.0),
        ],
    },
    Benchmark {
        run: reads::read4096,
        figures: &[Spec::new("read4096_over_floor", "ratio").at_most(1.6)],
    },
    Benchmark { run: reads::read64_cold, figures: &[Spec::new("read64_cold_over_floor", "ratio")] },
    Benchmark {
        run: reads::read4096_cold,
        figures: &[Spec::new("read4096_cold_over_floor", "ratio")],
    },
    Benchmark {
        run: writes::write64,
        figures: &[Spec::new("write64_over_read64", "ratio").at_most(2.2)],
    },
    Benchmark {
        run: rekey::rekey,
        figures: &[
            Spec::new("rekey_gap_over_read", "ratio").at_most(1.5),
            Spec::new("rekey_gap_max_over_read", "ratio"),
            Spec::new("rekey_other_region_failures", "ops").at_most(0.0).always(),
        ],
    },
    Benchmark {
        run: death::peer_death,
        figures: &[
            // An engine whose thread is stopped ends ops late, so this figure has no limit. The
            // next one has, as its bound includes such pauses.
            Spec::new("peer_death_over_bound", "ratio"),
            Spec::new("peer_death_over_bound_and_noise", "ratio").at_most(1.0),
            Spec::new("peer_death_noise", "ms"),
        ],
    },
    Benchmark {
        run: failover::over_xdp,
        figures: &[
            Spec::new("goodput_after_peer_death", "ratio").at_least(0.9),
            Spec::new("worst_wait_after_peer_death", "T").at_most(3.0),
            Spec::new("recovery_after_peer_return", "s").at_most(1.0),
        ],
    },
    Benchmark {
        run: failover::over_udp,
        figures: &[
            Spec::new("goodput_after_peer_death_udp", "ratio").at_least(0.9),
            Spec::new("worst_wait_after_peer_death_udp", "T").at_most(3.0),
            Spec::new("recovery_after_peer_return_udp", "s").at_most(1.0),
        ],
    },
    Benchmark {
        run: simulator::events,
        figures: &[Spec::new("sim_events_per_s", "1/s").at_least(200_000.0)],
    },
    Benchmark {
        run: flows::convergence,
        figures: &[
            Spec::new("sim_ramp_rtts", "RTT").at_most(8.0).always(),
            Spec::new("sim_fair_rtts", "RTT").at_most(5.0).always(),
            Spec::new("sim_nosplit_slowdown", "ratio").at_least(20.0).always(),
        ],
    },
    Benchmark {
        run: flows::small_beside_large,
        figures: &[Spec::new("sim_small_beside_large_p99", "ratio").at_most(2.0).always()],
    },
    Benchmark {
        run: turn::turn64,
        figures: &[
            Spec::new("turn64_over_aead", "ratio").at_most(2.0),
            Spec::new("turn64_initiator_ops_per_s", "1/s"),
            Spec::new("turn64_responder_ops_per_s", "1/s"),
            Spec::new("turn64_aead_share", "ratio"),
        ],
    },
    Benchmark {
        run: issue::issue_path,
        figures: &[
            Spec::new("portal_commands_per_s", "1/s").at_least(20_000_000.0),
            Spec::new("issue_ops_per_s", "1/s").at_least(6_000_000.0),
        ],
    },
    Benchmark {
        run: transfers::goodput,
        figures: &[
            Spec::new("read_goodput_over_floor", "ratio").at_least(0.75),
            Spec::new("write_goodput_over_floor", "ratio").at_least(0.65),
        ],
    },
    Benchmark {
        run: transfers::over_exchange,
        figures: &[
            Spec::new("read_goodput_over_exchange", "ratio"),
            Spec::new("write_goodput_over_exchange", "ratio"),
        ],
    },
    Benchmark {
        run: transfers::read64_rate,
        figures: &[Spec::new("read64_rate_over_floor", "ratio").at_least(0.75)],
    },
    Benchmark {
        run: transfers::beside,
        figures: &[Spec::new("small_beside_large_p99", "ratio").at_most(3.0)],
    },
    Benchmark {
        run: useless::reads_under_replayed_writes,
        figures: &[
            Spec::new("reads_under_replayed_writes", "ratio").at_least(0.5),
            Spec::new("reads_under_replayed_writes_p99", "ratio").at_most(3.0),
            Spec::new("reads_under_replayed_writes_failed", "ops").at_most(0.0),
        ],
    },
    Benchmark {
        run: useless::reads_under_silent_writers,
        figures: &[
            Spec::new("reads_under_silent_writers", "ratio").at_least(0.5),
            Spec::new("reads_under_silent_writers_p99", "ratio").at_most(3.0),
            Spec::new("reads_under_silent_writers_failed", "ops").at_most(0.0),
        ],
    },
    Benchmark {
        run: useless::writes_under_useless_writes,
        figures: &[
            Spec::new("writes_under_useless_writes", "ratio").at_least(0.8),
            Spec::new("writes_under_64000_useless_writes", "ratio").at_least(0.5),
        ],
    },
    Benchmark {
        run: crypto::aead,
        figures: &[
            Spec::new("aead64_batch_ns", "ns").at_most(20.0),
            Spec::new("aead1440_batch_ns", "ns").at_most(105.0),
            Spec::new("aead4096_batch_ns", "ns").at_most(230.0),
            Spec::new("aead64_batch_speedup", "ratio").at_least(6.0),
            Spec::new("aead4096_batch_speedup", "ratio").at_least(4.0),
            Spec::new("request_verify_batch_ns", "ns").at_most(16.0),
            Spec::new("request_verify_single_ns", "ns").at_most(90.0),
            Spec::new("aead64_single_ns", "ns").at_most(75.0),
            Spec::new("aead64_aesni_speedup", "ratio").at_least(2.0),
        ],
    },
    Benchmark {
        run: floors::floors,
        figures: &[Spec::new("floor_flood_gbps", "Gbit/s"), Spec::new("floor_echo_rate", "1/s")],
    },
];

/// The figures' names, in the order in which they are measured.
pub(super) fn names() -> Vec<&'static str> {
    BENCHMARKS.iter().flat_map(|benchmark| benchmark.figures).map(|spec| spec.name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The figures of the table in the documentation, each with what stands in the column of
    /// limits.
    fn documented() -> BTreeMap<&'static str, &'static str> {
        let document = include_str!("../../../docs/BENCHMARKING.md");
        let table = document.lines().skip_while(|line| !line.starts_with("| figure |"));
        let rows = table.take_while(|line| line.starts_with('|')).skip(2);
        let mut documented = BTreeMap::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [figures, _value, limit] = cells[..] else { panic!("three columns: {row}") };
            for name in figures.split(", ") {
                let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap();
                assert_eq!(documented.insert(name, limit), None, "{name} stands there twice");
            }
        }
        documented
    }

    #[test]
    fn the_documentation_says_the_same_limits() {
        let specs = BENCHMARKS.iter().flat_map(|benchmark| benchmark.figures);
        let limit = |spec: &Spec| spec.limit.map(|limit| limit.to_string()).unwrap_or_default();
        let here: BTreeMap<&str, String> = specs.map(|spec| (spec.name, limit(spec))).collect();
        let documented = documented();
        let here: BTreeMap<&str, &str> = here.iter().map(|(name, l)| (*name, l.as_str())).collect();
        assert_eq!(documented, here);
    }

    #[test]
    fn no_two_figures_have_one_name() {
        let names = names();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
