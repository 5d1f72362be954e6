//! The table of all figures: name, unit, limit, and the measurement that it comes from.
//!
//! To add a figure: an entry here, a measuring function in a file beside this one, and a row in
//! docs/BENCHMARKING.md, which a test compares with this table.

use super::{
    beside, changes, channels, crypto, death, failover, first_read, floors, flows, goodput,
    instructions, issue, key_rotation, keys, kv, queue_pairs, rate, reads, rekey, scale, simulated,
    simulator,
    spec::{Benchmark, Spec},
    star, star_engines, stations, tenants, turn, useless, writes,
};

/// The needs of counting instructions.
const VALGRIND: &str = "valgrind, x86-64, and the examples of rma-figures beside this program";

/// The needs of counting bytes.
const COUNTING: &str = "the allocator of rma-figures, which counts";

/// The needs of figures over `ring`.
const PEERS: &str = "the feature `peers` of rma-figures";

pub(super) const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        run: reads::read64,
        figures: &[
            Spec::new("read64_over_floor", "ratio").at_most(1.4),
            Spec::new("read64_p99_over_floor", "ratio").at_most(2.0),
            Spec::new("read64_over_udp", "ratio").at_most(0.75),
            Spec::new("read64_over_tcp", "ratio").at_most(0.45),
            Spec::new("read64_own_over_turns", "ratio").at_most(1.5),
        ],
    },
    Benchmark {
        run: first_read::first_read,
        figures: &[Spec::new("first_read_over_tcp", "ratio")],
    },
    Benchmark {
        run: reads::read4096,
        figures: &[Spec::new("read4096_over_floor", "ratio").at_most(1.45)],
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
        run: changes::send64,
        figures: &[Spec::new("send64_over_write_poll", "ratio").at_most(1.15)],
    },
    Benchmark {
        run: changes::imm64,
        figures: &[Spec::new("imm64_over_write64", "ratio").at_most(1.1)],
    },
    Benchmark {
        run: changes::ordered4096,
        figures: &[Spec::new("ordered4096_over_write4096", "ratio").at_most(1.1)],
    },
    Benchmark {
        run: changes::cas,
        figures: &[Spec::new("cas_over_write64", "ratio").at_most(1.1)],
    },
    Benchmark {
        run: changes::fetch_add,
        figures: &[Spec::new("fetch_add_over_write64", "ratio").at_most(1.1)],
    },
    Benchmark {
        run: changes::fetch_add_rate,
        figures: &[Spec::new("fetch_add_rate_over_write64_rate", "ratio").at_least(0.9)],
    },
    Benchmark {
        run: changes::settle,
        figures: &[Spec::new("settle_over_read_bound", "ratio").at_most(1.0)],
    },
    Benchmark {
        run: channels::ring64,
        figures: &[Spec::new("ring64_rate_over_write64_rate", "ratio").at_least(4.0)],
    },
    Benchmark {
        run: channels::zeroing,
        figures: &[Spec::new("ring_without_over_with_zeroing", "ratio").at_least(0.95)],
    },
    Benchmark {
        run: channels::over_ops,
        figures: &[Spec::new("channel64_over_ops", "ratio").at_most(1.15)],
    },
    Benchmark {
        run: channels::fan_in,
        figures: &[
            Spec::new("fanin64_rate_over_one", "ratio").at_least(0.5),
            Spec::new("fanin64_memory_over_one", "ratio").at_most(1.05),
        ],
    },
    Benchmark { run: channels::rpc64, figures: &[Spec::new("rpc64_over_tcp", "ratio")] },
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
        figures: &[
            Spec::new("sim_frame_over_turn", "ratio").at_most(16.0),
            Spec::new("sim_events_per_s", "1/s"),
        ],
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
        run: simulated::table2,
        figures: &[Spec::new("table2_rows", "rows").at_least(20.0).always()],
    },
    Benchmark {
        run: simulated::recovery,
        figures: &[Spec::new("hole_recovery_over_bound", "ratio").at_most(1.0).always()],
    },
    Benchmark {
        run: star::at_400,
        figures: &[
            Spec::new("star_over_cached_rc_400", "ratio").at_least(4.0).always(),
            Spec::new("star_over_ideal_rc_400", "ratio").at_least(0.9).always(),
            Spec::new("star_faithful_over_cached_rc_400", "ratio"),
        ],
    },
    Benchmark {
        run: star::over_scala,
        figures: &[Spec::new("star_over_scala_ml", "ratio").at_least(1.05).always()],
    },
    Benchmark {
        run: star::knees,
        figures: &[
            Spec::new("sim_rc_knee", "ratio").at_most(0.15).always(),
            Spec::new("sim_fig1_at_3000", "ratio"),
        ],
    },
    Benchmark {
        run: star::flat,
        figures: &[Spec::new("sim_star_flat", "ratio").at_least(0.95).always()],
    },
    Benchmark {
        run: queue_pairs::sends,
        figures: &[
            Spec::new("star_send_over_floor", "ratio").at_most(1.5),
            Spec::new("star_send_back_over_floor", "ratio").at_most(1.8),
        ],
    },
    Benchmark {
        run: queue_pairs::calls,
        figures: &[Spec::new("star_rpc_over_rc", "ratio").at_least(0.75)],
    },
    Benchmark {
        run: queue_pairs::writes,
        figures: &[Spec::new("star_write_over_1rma_write", "ratio").at_least(1.0)],
    },
    Benchmark {
        run: queue_pairs::reads_beside,
        figures: &[Spec::new("read64_beside_star", "ratio").at_most(1.03)],
    },
    Benchmark {
        run: stations::memory,
        figures: &[
            Spec::new("star_memory_flat", "B").at_most(0.0).always().needs(COUNTING),
            Spec::new("star_engine_bytes_per_connection", "B")
                .at_most(0.0)
                .always()
                .needs(COUNTING),
            Spec::new("star_library_bytes_per_qp", "B").at_most(128.0).always().needs(COUNTING),
            Spec::new("star_library_bytes_per_wr", "B").at_most(64.0).always().needs(COUNTING),
        ],
    },
    Benchmark {
        run: stations::instructions,
        figures: &[Spec::new("star_instructions_flat", "ratio")
            .at_most(1.01)
            .always()
            .needs(VALGRIND)],
    },
    Benchmark {
        run: stations::time,
        figures: &[Spec::new("star_time_flat", "ratio").at_most(1.05)],
    },
    Benchmark {
        run: stations::turn,
        figures: &[Spec::new("star_turn_over_aead", "ratio").at_most(2.0)],
    },
    Benchmark {
        run: stations::security,
        figures: &[
            Spec::new("star_whitelist_cost", "share").at_most(0.02),
            Spec::new("star_auth_cost", "share"),
        ],
    },
    Benchmark {
        run: keys::rates,
        figures: &[Spec::new("key_grants_per_s", "1/s"), Spec::new("key_handshakes_per_s", "1/s")],
    },
    Benchmark {
        run: key_rotation::rotations,
        figures: &[
            Spec::new("rotation_reactive_extra_rtts_1", "RTT").at_most(2.0),
            Spec::new("rotation_reactive_extra_rtts_10", "RTT").at_most(2.0),
            Spec::new("rotation_reactive_extra_rtts_100", "RTT").at_most(2.0),
            Spec::new("rotation_proactive_rtts_1", "RTT").at_most(1.4),
            Spec::new("rotation_proactive_rtts_100", "RTT").at_most(2.0),
            Spec::new("rotation_scheduled_rtts_1", "RTT"),
            Spec::new("rotation_scheduled_rtts_100", "RTT"),
            Spec::new("rotation_fetches_per_client", "ratio").at_most(1.0),
            Spec::new("rotation_bystander_failures", "ops").at_most(0.0).always(),
        ],
    },
    Benchmark {
        run: key_rotation::goodput,
        figures: &[
            Spec::new("rotation_goodput_over_steady", "ratio").at_least(0.95),
            Spec::new("rotation_failed_calls", "calls").at_most(0.0).always(),
        ],
    },
    Benchmark {
        run: kv::latency,
        figures: &[Spec::new("kv_get_over_read64", "ratio").at_most(2.6)],
    },
    Benchmark {
        run: kv::under_load,
        figures: &[
            Spec::new("kv_hit_after_kill", "ratio").at_least(0.99),
            Spec::new("kv_wrong_values", "gets").at_most(0.0).always(),
            Spec::new("kv_rotation_failures", "gets").at_most(0.0),
        ],
    },
    Benchmark {
        run: stations::share,
        figures: &[Spec::new("star_share_min", "share").at_least(0.4)],
    },
    Benchmark {
        run: star_engines::loss,
        figures: &[Spec::new("star_loss_goodput", "ratio").at_least(0.8).always()],
    },
    Benchmark {
        run: star_engines::death,
        figures: &[Spec::new("star_death_over_bound", "ratio").at_most(1.0).always()],
    },
    Benchmark {
        run: star_engines::switch,
        figures: &[Spec::new("star_switch_gap", "RTO").at_most(3.0).always()],
    },
    Benchmark {
        run: turn::turn64,
        figures: &[
            Spec::new("turn64_over_aead", "ratio").at_most(1.75),
            Spec::new("turn64_initiator_ops_per_s", "1/s"),
            Spec::new("turn64_responder_ops_per_s", "1/s"),
            Spec::new("turn64_aead_share", "ratio"),
        ],
    },
    Benchmark {
        run: instructions::old_ops,
        figures: &[
            Spec::new("old_ops_instructions", "ratio").at_most(1.01).always().needs(VALGRIND),
            Spec::new("nic_turn_tax", "ratio").at_most(1.01).always().needs(VALGRIND),
            Spec::new("idle_service_tax", "ratio").always().needs(VALGRIND),
        ],
    },
    Benchmark {
        run: instructions::ring_receivers,
        figures: &[Spec::new("ring_receiver_instructions", "ratio")
            .at_most(0.99)
            .always()
            .needs(VALGRIND)],
    },
    Benchmark {
        run: scale::with_portals,
        figures: &[
            Spec::new("idle_turn_1000_over_1", "ratio").at_most(1.5),
            Spec::new("turn_portals1000_over_1", "ratio").at_most(1.15),
        ],
    },
    Benchmark {
        run: scale::with_regions,
        figures: &[Spec::new("turn_regions64000_over_1", "ratio").at_most(2.5)],
    },
    Benchmark {
        run: scale::with_initiators,
        figures: &[Spec::new("turn_initiators20000_over_1", "ratio").at_most(1.5)],
    },
    Benchmark {
        run: issue::issue_path,
        figures: &[
            Spec::new("portal_over_lines", "ratio").at_least(0.3),
            Spec::new("issue_over_portal", "ratio").at_least(0.2),
            Spec::new("portal_commands_per_s", "1/s"),
            Spec::new("issue_ops_per_s", "1/s"),
        ],
    },
    Benchmark {
        run: goodput::goodput,
        figures: &[
            Spec::new("read_goodput_over_floor", "ratio").at_least(0.57),
            Spec::new("read_goodput_over_parts", "ratio").at_least(0.85),
            Spec::new("write_goodput_over_floor", "ratio").at_least(0.4),
            Spec::new("write_goodput_over_parts", "ratio").at_least(0.8),
        ],
    },
    Benchmark {
        run: goodput::over_exchange,
        figures: &[
            Spec::new("read_goodput_over_exchange", "ratio"),
            Spec::new("write_goodput_over_exchange", "ratio"),
        ],
    },
    Benchmark {
        run: goodput::jumbo_gain,
        figures: &[Spec::new("read_goodput_jumbo_gain", "ratio").at_least(1.15)],
    },
    Benchmark {
        run: rate::over_floor,
        figures: &[
            Spec::new("read64_rate_over_floor", "ratio").at_least(2.5),
            Spec::new("read64_rate_over_udp", "ratio").at_least(5.0),
        ],
    },
    Benchmark {
        run: rate::over_udp,
        figures: &[Spec::new("udp_read64_rate_over_echo", "ratio").at_least(1.5)],
    },
    Benchmark {
        run: goodput::over_gso,
        figures: &[Spec::new("udp_goodput_over_gso", "ratio").at_least(0.4)],
    },
    Benchmark {
        run: beside::beside,
        figures: &[
            Spec::new("small_beside_large_p99", "ratio").at_most(4.0),
            Spec::new("large_beside_small", "ratio").at_least(0.5),
        ],
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
        run: tenants::bad_tenant,
        figures: &[
            Spec::new("bad_tenant_p99_over_idle", "ratio").at_most(1.5),
            Spec::new("bad_tenant_failed", "ops").at_most(0.0),
            Spec::new("bad_tenant_records_over_idle", "ratio").at_least(0.5),
        ],
    },
    Benchmark {
        run: tenants::records_shared,
        figures: &[Spec::new("records_shared", "ops").at_least(99.0).always()],
    },
    Benchmark {
        run: crypto::aead,
        figures: &[
            Spec::new("aead64_aesni_speedup", "ratio").at_least(2.0).needs("AES-NI"),
            Spec::new("aead64_batch_speedup", "ratio"),
            Spec::new("aead4096_batch_speedup", "ratio"),
            Spec::new("aead64_batch_ns", "ns"),
            Spec::new("aead1440_batch_ns", "ns"),
            Spec::new("aead4096_batch_ns", "ns"),
            Spec::new("aead64_single_ns", "ns"),
            Spec::new("request_verify_batch_ns", "ns"),
            Spec::new("request_verify_single_ns", "ns"),
        ],
    },
    Benchmark {
        run: crypto::over_ring,
        figures: &[
            Spec::new("aead64_over_ring", "ratio").at_most(0.5).needs(PEERS),
            Spec::new("aead4096_over_ring", "ratio").at_most(1.05).needs(PEERS),
            Spec::new("aead64_single_over_ring", "ratio").at_most(0.6).needs(PEERS),
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
        let document = include_str!("../../../../docs/BENCHMARKING.md");
        let table = document.lines().skip_while(|line| !line.starts_with("| figure |"));
        let rows = table.take_while(|line| line.starts_with('|')).skip(2);
        let mut documented = BTreeMap::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [figures, _value, limit] = cells[..] else { panic!("three columns: {row}") };
            let names: Vec<&str> = figures.split(", ").collect();
            // One for all of a row, or one for each, of which some may be none.
            let limits: Vec<&str> = limit.split("; ").collect();
            assert!(limits.len() == 1 || limits.len() == names.len(), "{row}");
            for (index, name) in names.into_iter().enumerate() {
                let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap();
                let limit = match limits[index % limits.len()] {
                    "none" => "",
                    limit => limit,
                };
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
    fn the_table_in_the_documentation_is_one_that_people_read() {
        let document = include_str!("../../../../docs/BENCHMARKING.md");
        let lines = document.lines().filter(|line| line.starts_with('|')).count();
        assert!(lines <= 70, "{lines} lines in one table, and in no other");
        let tables = document.lines().filter(|line| line.starts_with("|---")).count();
        assert_eq!(tables, 1);
    }

    #[test]
    fn a_limit_is_no_time_and_no_rate_of_one_processor() {
        for spec in BENCHMARKS.iter().flat_map(|benchmark| benchmark.figures) {
            let portable = !["ns", "us", "1/s", "Gbit/s"].contains(&spec.unit);
            assert!(portable || spec.limit.is_none(), "{} in {}", spec.name, spec.unit);
        }
    }

    #[test]
    fn no_two_figures_have_one_name() {
        let names = names();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
