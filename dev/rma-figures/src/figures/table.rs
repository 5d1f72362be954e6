//! The table of all figures: name, unit, limit, goal, and the measurement that they come from.
//!
//! To add a figure: a row here, sides or a measuring function in a file beside this one, and a row
//! in docs/BENCHMARKING.md, which a test compares with this table.
//!
//! A *limit* holds on every x86-64 server that is quiet. A figure that the machine decides as much
//! as the code does, such as a time, a rate, a p99, or what two cores hand to each other, has none.
//! A *goal* is tighter, and to miss it is no failure.

use rma_bench::{
    compare::Transport,
    load::LoadOp,
    measure::What,
    one_way::Step::{OrderedWrite, Send},
};

use super::{
    alone::{self, Alone, FRAMES4096, PING_PONG, READ64, READ4096, WRITE64, cold},
    benchmark::Benchmark::{self, Own},
    beside, between, captures, changes, channels, crypto, death, decrypt, engines, failover,
    first_read, floors, flows, goodput, instructions, issue, key_rotation, keys, kv, queue_pairs,
    rate, rekey, scale, simulated, simulations, simulator,
    spec::Spec,
    star, star_engines, stations, tenants, turn,
    turns::{Hosts, Turns},
    useless,
};

/// The needs of counting instructions.
const VALGRIND: &str = "valgrind, x86-64, and the examples of rma-figures beside this program";

/// The needs of counting bytes.
const COUNTING: &str = "the allocator of rma-figures, which counts";

/// Most figures that are measured if nobody names any: as many as a person looks at.
#[cfg(test)]
const DEFAULT_MAX: usize = 70;

/// A ratio, which may have a limit.
const fn ratio(name: &'static str) -> Spec {
    Spec::new(name, "ratio")
}

/// A share of simulation or memory, or a count: noise is no excuse.
const fn exact(name: &'static str, unit: &'static str) -> Spec {
    Spec::new(name, unit).always()
}

/// Exchanges one at a time, at p50.
const fn p50(spec: Spec, of: What, over: What) -> Benchmark {
    Benchmark::Alone(spec, Alone { of, over, quantile: 0.5 })
}

/// A change over a WRITE of as many bytes.
const fn change(spec: Spec, op: LoadOp, size: u32) -> Benchmark {
    p50(spec.at_most(1.1), What::warm(op, size), What::warm(LoadOp::Write, size))
}

/// Rates or times in turns.
const fn turns(spec: Spec, turns: Turns) -> Benchmark {
    Benchmark::Turns(spec, turns)
}

/// The same, measured by name only.
const fn single(name: &'static str, unit: &'static str, of: Turns) -> Benchmark {
    Benchmark::Turns(Spec::new(name, unit).by_name(), of)
}

pub(super) const BENCHMARKS: &[Benchmark] = &[
    p50(ratio("read64_over_floor").at_most(1.75).goal_at_most(1.4), READ64, PING_PONG),
    Benchmark::Alone(
        ratio("read64_p99_over_floor").goal_at_most(2.0).by_name(),
        Alone { of: READ64, over: PING_PONG, quantile: 0.99 },
    ),
    p50(ratio("read64_over_udp").goal_at_most(0.75), READ64, What::Kernel(Transport::Udp, 64)),
    p50(
        ratio("read64_over_tcp").at_most(0.8).goal_at_most(0.45),
        READ64,
        What::Kernel(Transport::Tcp, 64),
    ),
    Own(alone::own_over_turns, &[ratio("read64_own_over_turns").goal_at_most(1.5)]),
    Own(first_read::first_read, &[ratio("first_read_over_tcp")]),
    Own(captures::slowdown, &[ratio("capture_slowdown").at_most(1.25).by_name()]),
    Own(captures::missed, &[exact("capture_missed", "packets").at_most(0.0).by_name()]),
    Own(
        between::over_pair,
        &[
            ratio("bench_read64_over_pair").at_most(1.05).by_name(),
            ratio("bench_rate_over_pipelined").at_least(0.95).by_name(),
            ratio("bench_goodput_over_transfers").at_least(0.95).by_name(),
        ],
    ),
    Own(between::open_loop, &[ratio("open_loop_late_share").at_most(0.02).by_name()]),
    Own(between::session_over_none, &[ratio("session_over_none").at_most(1.02).by_name()]),
    Own(between::compare_over_figure, &[ratio("compare_over_figure").at_most(0.05).by_name()]),
    Own(
        between::over_quic,
        &[ratio("read64_over_quic").at_most(0.4).needs("a build with --features quic").by_name()],
    ),
    Own(
        between::generator_alone,
        &[
            ratio("generator_over_parts").at_most(2.0).by_name(),
            exact("generator_allocated", "bytes").at_most(0.0).needs(COUNTING).by_name(),
        ],
    ),
    p50(ratio("read4096_over_floor").at_most(1.75).goal_at_most(1.45), READ4096, FRAMES4096),
    p50(ratio("read64_cold_over_floor").by_name(), cold(64), PING_PONG),
    p50(ratio("read4096_cold_over_floor").by_name(), cold(4096), FRAMES4096),
    p50(ratio("write64_over_read64").at_most(2.2), WRITE64, READ64),
    p50(
        ratio("send64_over_write_poll").at_most(1.15),
        What::OneWay(Send, 64),
        What::OneWay(OrderedWrite, 64),
    ),
    change(ratio("imm64_over_write64").by_name(), LoadOp::WriteWithImm, 64),
    change(ratio("ordered4096_over_write4096").by_name(), LoadOp::OrderedWrite, 4096),
    change(ratio("cas_over_write64").by_name(), LoadOp::CompareSwap, 64),
    change(ratio("fetch_add_over_write64"), LoadOp::FetchAdd, 64),
    turns(
        ratio("fetch_add_rate_over_write64_rate").at_least(0.9).by_name(),
        Turns::new(changes::FETCH_ADDS, changes::WRITES, 11),
    ),
    Own(changes::settle, &[ratio("settle_over_read_bound").at_most(1.0)]),
    turns(
        ratio("ring64_rate_over_write64_rate").at_least(4.0),
        Turns::new(channels::RING64, channels::WRITES64, 11).on(Hosts::Patient),
    ),
    Own(channels::zeroing, &[ratio("ring_without_over_with_zeroing").at_least(0.95).by_name()]),
    Own(channels::over_ops, &[ratio("channel64_over_ops").at_most(1.4)]),
    turns(
        ratio("fanin64_rate_over_one").at_least(0.5),
        Turns::new(channels::ALL_SENDERS, channels::ONE_SENDER, 11).on(Hosts::Patient),
    ),
    Own(channels::fan_in_memory, &[ratio("fanin64_memory_over_one").at_most(1.05).by_name()]),
    turns(
        ratio("rpc64_over_tcp").by_name(),
        Turns::new(channels::RPC64, channels::TCP64, 11).on(Hosts::Patient),
    ),
    Own(
        rekey::rekey,
        &[
            ratio("rekey_gap_over_read").at_most(1.75).goal_at_most(1.5),
            ratio("rekey_gap_max_over_read").by_name(),
            exact("rekey_other_region_failures", "ops").at_most(0.0),
        ],
    ),
    Own(
        death::peer_death,
        &[
            // An engine whose thread is stopped ends ops late, so this figure has no limit. The
            // next one has, as its bound includes such pauses.
            ratio("peer_death_over_bound").by_name(),
            ratio("peer_death_over_bound_and_noise").at_most(1.0),
            Spec::new("peer_death_noise", "ms").by_name(),
        ],
    ),
    Own(
        failover::over_xdp,
        &[
            ratio("goodput_after_peer_death").at_least(0.9),
            Spec::new("worst_wait_after_peer_death", "T").at_most(3.0),
            Spec::new("recovery_after_peer_return", "s").at_most(1.0),
        ],
    ),
    Own(
        failover::over_udp,
        &[
            ratio("goodput_after_peer_death_udp").at_least(0.9).by_name(),
            Spec::new("worst_wait_after_peer_death_udp", "T").at_most(3.0).by_name(),
            Spec::new("recovery_after_peer_return_udp", "s").at_most(1.0).by_name(),
        ],
    ),
    turns(
        ratio("sim_frame_over_turn").goal_at_most(16.0).by_name(),
        Turns::new(simulator::SHIPPED, simulator::SIMULATED, 5).on(Hosts::None),
    ),
    single("sim_events_per_s", "1/s", Turns::single(simulator::SIMULATED, 5).on(Hosts::None)),
    Own(
        simulations::hosts,
        &[
            ratio("sim40_over_2").at_most(2.0).by_name(),
            ratio("sim1000_over_2").at_most(4.0).by_name(),
        ],
    ),
    Own(
        simulations::checks,
        &[ratio("sim_light_over_full").at_most(0.8).goal_at_most(0.5).by_name()],
    ),
    Own(
        simulations::resident_1000,
        &[exact("sim1000_rss_gib", "GiB").at_most(4.0).needs("/proc/self/status").by_name()],
    ),
    Own(
        simulations::growth,
        &[exact("sim_memory_growth", "ratio").at_most(1.2).needs(COUNTING).by_name()],
    ),
    Own(
        flows::convergence,
        &[
            exact("sim_ramp_rtts", "RTT").at_most(8.0),
            exact("sim_fair_rtts", "RTT").at_most(5.0),
            exact("sim_nosplit_slowdown", "ratio").at_least(20.0).by_name(),
        ],
    ),
    Own(flows::small_beside_large, &[exact("sim_small_beside_large_p99", "ratio").at_most(2.0)]),
    Own(simulated::table2, &[exact("table2_rows", "rows").at_least(20.0).by_name()]),
    Own(simulated::recovery, &[exact("hole_recovery_over_bound", "ratio").at_most(1.0)]),
    Own(
        star::at_400,
        &[
            exact("star_over_cached_rc_400", "ratio").at_least(4.0).by_name(),
            exact("star_over_ideal_rc_400", "ratio").at_least(0.9).by_name(),
            exact("star_faithful_over_cached_rc_400", "ratio").by_name(),
        ],
    ),
    Own(star::over_scala, &[exact("star_over_scala_ml", "ratio").at_least(1.05).by_name()]),
    Own(
        star::knees,
        &[
            exact("sim_rc_knee", "ratio").at_most(0.15).by_name(),
            exact("sim_fig1_at_3000", "ratio").by_name(),
        ],
    ),
    Own(star::flat, &[exact("sim_star_flat", "ratio").at_least(0.95).by_name()]),
    turns(
        ratio("star_send_over_floor").at_most(2.9).goal_at_most(1.5),
        Turns::new(queue_pairs::SEND, queue_pairs::HALF_PING_PONG, 21).on(Hosts::Star),
    ),
    turns(
        ratio("star_send_back_over_floor").at_most(3.0).goal_at_most(1.8),
        Turns::new(queue_pairs::SEND_BACK, queue_pairs::HALF_PING_PONG, 21).on(Hosts::Star),
    ),
    turns(
        ratio("star_rpc_over_rc").at_least(0.68).goal_at_least(0.75),
        Turns::new(queue_pairs::CALLS_STAR, queue_pairs::CALLS_RC, 21).on(Hosts::Star),
    ),
    turns(
        ratio("star_write_over_1rma_write").at_least(0.9).goal_at_least(1.0),
        Turns::new(queue_pairs::WRITES_STAR, queue_pairs::WRITES_1RMA, 21).on(Hosts::Star),
    ),
    turns(
        ratio("read64_beside_star").at_most(1.1).goal_at_most(1.03),
        Turns::new(queue_pairs::READS_BESIDE, queue_pairs::READS_WITHOUT, 21).on(Hosts::Star),
    ),
    Own(
        stations::memory,
        &[
            exact("star_memory_flat", "B").at_most(0.0).needs(COUNTING),
            exact("star_engine_bytes_per_connection", "B").at_most(0.0).needs(COUNTING).by_name(),
            exact("star_library_bytes_per_qp", "B").at_most(128.0).needs(COUNTING),
            exact("star_library_bytes_per_wr", "B").at_most(64.0).needs(COUNTING).by_name(),
        ],
    ),
    Own(
        stations::instructions,
        &[exact("star_instructions_flat", "ratio").at_most(1.01).needs(VALGRIND)],
    ),
    Own(stations::time, &[ratio("star_time_flat").goal_at_most(1.05).by_name()]),
    Own(stations::turn, &[ratio("star_turn_over_aead").at_most(2.0).by_name()]),
    Own(
        stations::security,
        &[
            Spec::new("star_whitelist_cost", "share").at_most(0.05).goal_at_most(0.02).by_name(),
            Spec::new("star_auth_cost", "share").by_name(),
        ],
    ),
    Own(
        keys::rates,
        &[
            Spec::new("key_grants_per_s", "1/s").goal_at_least(15_000.0),
            Spec::new("key_handshakes_per_s", "1/s").goal_at_least(1_000.0),
        ],
    ),
    Own(
        key_rotation::rotations,
        &[
            Spec::new("rotation_reactive_extra_rtts_1", "RTT").goal_at_most(2.0),
            Spec::new("rotation_reactive_extra_rtts_10", "RTT").goal_at_most(2.0).by_name(),
            Spec::new("rotation_reactive_extra_rtts_100", "RTT").goal_at_most(2.0),
            Spec::new("rotation_proactive_rtts_1", "RTT").at_most(2.5).goal_at_most(1.4),
            Spec::new("rotation_proactive_rtts_100", "RTT").at_most(2.0).by_name(),
            Spec::new("rotation_scheduled_rtts_1", "RTT").by_name(),
            Spec::new("rotation_scheduled_rtts_100", "RTT").by_name(),
            ratio("rotation_fetches_per_client").at_most(1.0).by_name(),
            exact("rotation_bystander_failures", "ops").at_most(0.0),
        ],
    ),
    Own(
        key_rotation::goodput,
        &[
            ratio("rotation_goodput_over_steady").at_least(0.9).goal_at_least(0.95),
            exact("rotation_failed_calls", "calls").at_most(0.0),
        ],
    ),
    Own(kv::latency, &[ratio("kv_get_over_read64").goal_at_most(2.6).by_name()]),
    Own(
        kv::under_load,
        &[
            ratio("kv_hit_after_kill").at_least(0.99),
            exact("kv_wrong_values", "gets").at_most(0.0),
            Spec::new("kv_rotation_failures", "gets").at_most(0.0),
        ],
    ),
    Own(stations::share, &[Spec::new("star_share_min", "share").at_least(0.4)]),
    Own(star_engines::loss, &[exact("star_loss_goodput", "ratio").at_least(0.8)]),
    Own(star_engines::death, &[exact("star_death_over_bound", "ratio").at_most(1.0)]),
    Own(star_engines::switch, &[exact("star_switch_gap", "RTO").at_most(3.0)]),
    Own(
        turn::turn64,
        &[
            ratio("turn64_over_aead").at_most(2.0).goal_at_most(1.75),
            Spec::new("turn64_initiator_ops_per_s", "1/s").by_name(),
            Spec::new("turn64_responder_ops_per_s", "1/s").by_name(),
            ratio("turn64_aead_share").by_name(),
        ],
    ),
    Own(
        turn::handed_over,
        &[
            ratio("handover_rate_over_own").at_least(0.6).by_name(),
            ratio("handover_sends_over_own").at_least(0.6).by_name(),
        ],
    ),
    Own(
        engines::on_cores,
        &[
            ratio("two_engines_over_two_hosts").at_least(0.97).by_name(),
            ratio("two_engines_over_one").by_name(),
        ],
    ),
    Own(engines::beside_a_flood, &[ratio("flood_elsewhere_p99").at_most(1.5).by_name()]),
    Own(engines::behind_a_panel, &[exact("wrong_queue_share", "share").at_most(0.001).by_name()]),
    Own(engines::one_busy, &[ratio("lopsided_goodput").at_least(0.9).by_name()]),
    Own(
        engines::rekeys,
        &[
            exact("rekey_rounds", "rounds").at_most(3.0).by_name(),
            exact("rekey_bystanders", "ops").at_most(0.0).by_name(),
        ],
    ),
    Own(engines::recorded, &[ratio("recorded_four_over_one").at_least(0.8).by_name()]),
    Own(
        instructions::old_ops,
        &[
            exact("old_ops_instructions", "ratio").at_most(1.02).goal_at_most(1.01).needs(VALGRIND),
            exact("nic_turn_tax", "ratio").at_most(1.01).needs(VALGRIND).by_name(),
            exact("idle_service_tax", "ratio").needs(VALGRIND).by_name(),
        ],
    ),
    Own(
        instructions::ring_receivers,
        &[exact("ring_receiver_instructions", "ratio").at_most(0.99).needs(VALGRIND).by_name()],
    ),
    Own(
        scale::with_portals,
        &[
            ratio("idle_turn_1000_over_1").at_most(1.5),
            ratio("turn_portals1000_over_1").at_most(1.3).goal_at_most(1.15).by_name(),
        ],
    ),
    Own(scale::with_regions, &[ratio("turn_regions64000_over_1").goal_at_most(2.5)]),
    Own(scale::with_initiators, &[ratio("turn_initiators20000_over_1").goal_at_most(1.5)]),
    turns(
        ratio("portal_over_lines").goal_at_least(0.3),
        Turns::new(issue::PORTAL, issue::LINES, 11).on(Hosts::None),
    ),
    turns(
        ratio("issue_over_portal").goal_at_least(0.2),
        Turns::new(issue::EXECUTOR, issue::PORTAL, 11).on(Hosts::None),
    ),
    single("portal_commands_per_s", "1/s", Turns::single(issue::PORTAL, 11).on(Hosts::None)),
    single("issue_ops_per_s", "1/s", Turns::single(issue::EXECUTOR, 11).on(Hosts::None)),
    Own(
        goodput::reads_over_flood,
        &[
            ratio("read_goodput_over_floor").at_least(0.33).goal_at_least(0.57),
            ratio("read_goodput_over_parts").at_least(0.5).goal_at_least(0.85),
        ],
    ),
    Own(
        goodput::writes_over_flood,
        &[
            ratio("write_goodput_over_floor").at_least(0.22).goal_at_least(0.4),
            ratio("write_goodput_over_parts").at_least(0.33).goal_at_least(0.8),
        ],
    ),
    turns(
        ratio("read_goodput_jumbo_gain").at_least(0.95).goal_at_least(1.15),
        Turns::new(goodput::JUMBO_READS, goodput::READS, 11),
    ),
    turns(
        ratio("read64_rate_over_floor").at_least(1.9).goal_at_least(2.5),
        Turns::new(rate::READS, rate::RAW, 11),
    ),
    turns(
        ratio("read64_rate_over_udp").at_least(3.0).goal_at_least(5.0),
        Turns::new(rate::READS, rate::UDP, 11),
    ),
    turns(
        ratio("udp_read64_rate_over_echo").at_least(1.5),
        Turns::new(rate::READS, rate::UDP, 11).on(Hosts::Udp),
    ),
    turns(
        ratio("udp_goodput_over_gso").at_least(0.3).goal_at_least(0.4),
        Turns::new(goodput::READS, goodput::SEGMENTED, 11).on(Hosts::Udp),
    ),
    Own(
        beside::beside,
        &[
            ratio("small_beside_large_p99").at_most(6.0).goal_at_most(4.0),
            ratio("large_beside_small").at_least(0.5),
        ],
    ),
    Own(
        useless::reads_under_replayed_writes,
        &[
            ratio("reads_under_replayed_writes").at_least(0.5),
            ratio("reads_under_replayed_writes_p99").goal_at_most(3.0).by_name(),
            Spec::new("reads_under_replayed_writes_failed", "ops").at_most(0.0).by_name(),
        ],
    ),
    Own(
        useless::reads_under_silent_writers,
        &[
            ratio("reads_under_silent_writers").at_least(0.5),
            ratio("reads_under_silent_writers_p99").goal_at_most(3.0).by_name(),
            Spec::new("reads_under_silent_writers_failed", "ops").at_most(0.0).by_name(),
        ],
    ),
    Own(
        useless::writes_under_useless_writes,
        &[
            ratio("writes_under_useless_writes").at_least(0.8),
            ratio("writes_under_64000_useless_writes").at_least(0.5).by_name(),
        ],
    ),
    Own(
        tenants::bad_tenant,
        &[
            ratio("bad_tenant_p99_over_idle").at_most(4.0),
            Spec::new("bad_tenant_failed", "ops").at_most(0.0),
            ratio("bad_tenant_records_over_idle").at_least(0.5).by_name(),
        ],
    ),
    Own(tenants::records_shared, &[exact("records_shared", "ops").at_least(99.0)]),
    // In the order of `AeadFigure`s; the last one is missing without AES-NI.
    Own(
        crypto::aead,
        &[
            Spec::new("aead64_batch_ns", "ns").by_name(),
            Spec::new("aead1440_batch_ns", "ns").by_name(),
            Spec::new("aead4096_batch_ns", "ns").by_name(),
            ratio("aead64_batch_speedup").by_name(),
            ratio("aead4096_batch_speedup").by_name(),
            Spec::new("request_verify_batch_ns", "ns").by_name(),
            Spec::new("request_verify_single_ns", "ns").by_name(),
            Spec::new("aead64_single_ns", "ns").by_name(),
            ratio("aead64_aesni_speedup").at_least(2.0).needs("AES-NI").by_name(),
        ],
    ),
    Own(
        crypto::over_ring,
        &[
            ratio("aead64_over_ring").goal_at_most(0.5).by_name(),
            ratio("aead4096_over_ring").goal_at_most(1.05).by_name(),
            ratio("aead64_single_over_ring").goal_at_most(0.6).by_name(),
        ],
    ),
    Own(decrypt::over_aead, &[ratio("decrypt_over_aead").at_least(0.25).by_name()]),
    single("floor_flood_gbps", "Gbit/s", Turns::single(floors::FLOOD, 21)),
    single("floor_echo_rate", "1/s", Turns::single(rate::RAW, 21)),
];

/// All figures, in the order in which they are measured.
pub(super) fn specs() -> impl Iterator<Item = &'static Spec> {
    BENCHMARKS.iter().flat_map(Benchmark::figures)
}

/// Returns the names of all figures, those that run by name alone among them.
pub(super) fn names() -> Vec<&'static str> {
    specs().map(|spec| spec.name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::figures::limit::Limit;

    const DOCUMENT: &str = include_str!("../../../../docs/BENCHMARKING.md");

    /// The words of the documentation on a figure: whether it is measured by default, its limit,
    /// its goal.
    type Said = (bool, String, String);

    /// The figures of both tables in the documentation.
    fn documented() -> BTreeMap<&'static str, Said> {
        let mut documented = BTreeMap::new();
        let mut by_default = false;
        for row in DOCUMENT.lines() {
            by_default = match row {
                "### By default" => true,
                "### By name" => false,
                _ => by_default,
            };
            let is_figures = row.starts_with("| `");
            if !is_figures {
                continue;
            }
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [figures, _value, limits, goals] = cells[..] else { panic!("four columns: {row}") };
            let names: Vec<&str> = figures.split(", ").collect();
            // One for all of a row, or one for each, of which some may be none.
            let split = |cell: &'static str| {
                let all: Vec<&str> = cell.split("; ").collect();
                assert!(all.len() == 1 || all.len() == names.len(), "{row}");
                all
            };
            let (limits, goals) = (split(limits), split(goals));
            for (index, name) in names.iter().enumerate() {
                let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap();
                let at =
                    |all: &[&str]| all[index % all.len()].trim_start_matches("none").to_owned();
                let said = (by_default, at(&limits), at(&goals));
                assert_eq!(documented.insert(name, said), None, "{name} stands there twice");
            }
        }
        documented
    }

    #[test]
    fn the_documentation_says_the_same_limits_and_goals() {
        let words = |limit: Option<Limit>| limit.map(|limit| limit.to_string()).unwrap_or_default();
        let here: BTreeMap<&str, Said> = specs()
            .map(|spec| (spec.name, (spec.by_default, words(spec.limit), words(spec.goal))))
            .collect();
        assert_eq!(documented(), here);
    }

    #[test]
    fn the_figures_of_a_default_run_are_as_many_as_people_look_at() {
        let by_default = specs().filter(|spec| spec.by_default).count();
        assert!(by_default <= DEFAULT_MAX, "{by_default}");
        let lines = DOCUMENT.lines().filter(|line| line.starts_with('|')).count();
        assert!(lines <= 100, "{lines} lines in both tables");
    }

    #[test]
    fn a_limit_is_no_time_and_no_rate_of_one_processor() {
        for spec in specs() {
            let portable = !["ns", "us", "1/s", "Gbit/s"].contains(&spec.unit);
            assert!(portable || spec.limit.is_none(), "{} in {}", spec.name, spec.unit);
        }
    }

    #[test]
    fn a_goal_is_tighter_than_the_limit_beside_it() {
        for spec in specs() {
            match (spec.limit, spec.goal) {
                (Some(Limit::AtMost(limit)), Some(Limit::AtMost(goal))) => assert!(goal < limit),
                (Some(Limit::AtLeast(limit)), Some(Limit::AtLeast(goal))) => assert!(goal > limit),
                (Some(_), Some(_)) => panic!("{} points both ways", spec.name),
                _ => (),
            }
        }
    }

    #[test]
    fn no_two_figures_have_one_name() {
        let names = names();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
