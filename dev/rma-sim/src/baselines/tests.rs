//! Whether the models do what they say, and what theory says of them.

use core::time::Duration;

use super::{
    constants::Variation,
    figures::{
        CHUNK, LARGE, Point, SMALL, Setting, figure_10, figure_12, figure_13, idle, under_loss,
    },
    *,
};
use crate::{
    flows::{
        RATE,
        traffic::{Destination, Op, Traffic},
    },
    prng::Chance,
};

const SEED: u64 = 5;

/// 40 Gbit/s.
const SLOW: u64 = 5_000_000_000;

const BY_TURNS: System = System::Rdma(RdmaOptions::lossless(Service::PacketByPacket));
const BY_MESSAGES: System = System::Rdma(RdmaOptions::lossless(Service::MessageByMessage));

fn setting(system: System, measured: u32) -> Setting {
    Setting { system, constants: Constants::default(), seed: SEED, measured }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn ran(system: System, constants: &Constants, work: &Work) -> Outcome {
    let outcome = run(&system, constants, work, SEED).expect("there is such work");
    assert!(outcome.adds_up(), "{:?}", outcome.packets);
    outcome
}

fn reads(traffic: Traffic, measured: u32) -> Work {
    Work { traffic, measured, transfers: None }
}

/// `load` of the link of host 0, from which all others read.
fn from_one(hosts: u32, load: f64) -> Traffic {
    Traffic { hosts, load, destination: Destination::Incast(0), ..Traffic::reads(CHUNK) }
}

#[test]
fn an_idle_read_of_4_kib_takes_5_us_at_both_rates() {
    for system in [BY_TURNS, BY_MESSAGES] {
        for rate in [RATE, SLOW] {
            let idle = idle(&setting(system, 1), rate, CHUNK).expect("there is such a read");
            assert!((micros(idle) - 5.0).abs() < 0.005, "{idle:?}");
        }
    }
}

#[test]
fn an_idle_read_by_software_takes_what_its_four_messages_cost_besides() {
    let idle = idle(&setting(System::Software, 1), RATE, CHUNK).expect("there is such a read");
    let messages = 4.0 * 0.3 + 2.0 * (32.0 + 4096.0) * 0.2e-3;
    assert!((micros(idle) - 5.0 - messages).abs() < 0.01, "{idle:?}");
}

/// A single queue with chance arrivals and equal service: the device of the host from which all
/// others read.
#[test]
fn a_single_port_makes_reads_wait_as_in_an_m_d_1_queue() {
    for load in [0.3, 0.5, 0.7, 0.8] {
        let outcome = ran(BY_TURNS, &Constants::default(), &reads(from_one(41, load), 400_000));
        let service = f64::from(4096 + 86) / 12.5e3;
        let waits = micros(outcome.of(CHUNK).mean()) - 5.0;
        let theory = service * load / (2.0 * (1.0 - load));
        assert!((waits / theory - 1.0).abs() < 0.03, "{load}: {waits} us, by theory {theory}");
    }
}

/// A request waits in a device and at a port, and so does its response, each time behind what takes
/// the load's share of the time.
#[test]
fn reads_of_all_from_all_wait_as_in_four_m_d_1_queues() {
    for load in [0.1, 0.3, 0.5, 0.7] {
        let point = figure_10(&setting(BY_TURNS, 100_000), load).expect("there is such a load");
        let mean = micros(point.latencies().mean());
        let theory = 5.0 + 4.0 * f64::from(4096 + 86) / 12.5e3 * load / (2.0 * (1.0 - load));
        assert!((mean / theory - 1.0).abs() < 0.01, "{load}: {mean} us, by theory {theory}");
    }
}

/// Without costs, and with packets of the same lengths, software is connections that serve messages
/// in the order in which they came: two programs for one network.
#[test]
fn both_models_agree_where_they_are_the_same() {
    let constants = Constants::default()
        .with(Constant::MessageTime, 0.0)
        .with(Constant::ByteTime, 0.0)
        .with(Constant::SoftwareOverhead, 86.0 / 114.0)
        .with(Constant::SoftwareRequest, 12.0 / 32.0);
    for load in [0.3, 0.7] {
        let traffic = Traffic { hosts: 20, load, ..Traffic::reads(CHUNK) };
        let waits = |system| {
            let outcome = ran(system, &constants, &reads(traffic.clone(), 50_000));
            micros(outcome.of(CHUNK).mean()) - 5.0
        };
        let [connections, software] = [BY_MESSAGES, System::Software].map(waits);
        assert!((connections / software - 1.0).abs() < 0.01, "{connections}, {software}");
    }
}

#[test]
fn a_large_read_delays_small_ones_of_its_connection_by_half_of_its_time() {
    let median = |system, large| {
        let point = figure_12(&setting(system, 3_000), large).expect("there is such a point");
        micros(point.latencies().at(0.5))
    };
    for system in [BY_TURNS, BY_MESSAGES] {
        let alone = median(system, None);
        assert!(alone < 5.0, "{alone}");
        for large in [1 << 20, 4 << 20] {
            let half = (large + large / 4096 * 86) as f64 / 12.5e3 / 2.0;
            let added = median(system, Some(large)) - alone;
            assert!((added / half - 1.0).abs() < 0.15, "{large}: {added} us, half is {half}");
        }
    }
}

#[test]
fn states_are_missing_only_where_there_are_more_connections_than_a_nic_holds() {
    let constants = Constants::default();
    let misses = |connections: u32| {
        let work = reads(from_one(connections + 1, 0.3), 20_000);
        ran(BY_TURNS, &constants, &work).misses
    };
    assert_eq!(misses(450), 0);
    let [few, many] = [misses(460), misses(900)];
    assert!(few > 0 && many > 5 * few, "{few}, {many}");
    let halved = constants.clone().with(Constant::CachedStates, 0.5);
    let work = reads(from_one(301, 0.3), 20_000);
    assert!(ran(BY_TURNS, &halved, &work).misses > 0);
}

#[test]
fn a_missing_state_holds_up_what_comes_after() {
    let mean = |connections: u32| {
        let work = reads(from_one(connections + 1, 0.2), 20_000);
        micros(ran(BY_TURNS, &Constants::default(), &work).of(CHUNK).mean())
    };
    let slower = mean(900) - mean(450);
    // Half of the states are missing, for a request and again for its response, if it is gone by
    // then; a packet is there in a third of the time that a state takes.
    assert!((0.45..2.0).contains(&slower), "{slower}");
}

#[test]
fn going_back_recovers_every_loss() {
    for service in [Service::PacketByPacket, Service::MessageByMessage] {
        for ppm in [100, 10_000, 50_000] {
            let setting = setting(System::Rdma(RdmaOptions::lossless(service)), 2_000);
            for len in [CHUNK, LARGE] {
                let point = under_loss(&setting, Chance::ppm(ppm), len, 0.2);
                let Point { outcome, .. } = point.expect("there is such a point");
                assert!(outcome.adds_up(), "{outcome:?}");
                assert!(outcome.packets.again >= outcome.packets.lost / 2, "{outcome:?}");
                let lost = outcome.packets.lost as f64 / outcome.packets.sent as f64;
                let chance = f64::from(ppm) * 1e-6;
                assert!(ppm < 10_000 || (lost / chance - 1.0).abs() < 0.2, "{lost}");
            }
        }
    }
}

#[test]
fn a_port_without_room_loses_what_going_back_recovers() {
    let constants = Constants::default().with(Constant::PortLen, 1.0 / 16.0);
    for service in [Service::PacketByPacket, Service::MessageByMessage] {
        let fabric = FabricOptions { ports: Ports::DropTail, loss: Chance::NEVER };
        let options = RdmaOptions { fabric, ..RdmaOptions::lossless(service) };
        let traffic = Traffic { hosts: 20, load: 0.6, ..Traffic::reads(LARGE) };
        let outcome = ran(System::Rdma(options), &constants, &reads(traffic, 2_000));
        let packets = outcome.packets;
        assert!(packets.lost > 0 && packets.again > packets.lost, "{packets:?}");
        let lossless = System::Rdma(RdmaOptions::lossless(service));
        let traffic = Traffic { hosts: 20, load: 0.6, ..Traffic::reads(LARGE) };
        let outcome = ran(lossless, &constants, &reads(traffic, 2_000));
        assert_eq!((outcome.packets.lost, outcome.packets.again), (0, 0));
    }
}

#[test]
fn taking_turns_spares_small_reads_what_large_ones_of_other_connections_take() {
    let p99 = |system| {
        let point = figure_13(&setting(system, 20_000), RATE, 0.5).expect("there is such a point");
        assert!(point.outcome.of(LARGE).count() > 2_000);
        point.slowdown(0.99)
    };
    let [by_turns, by_messages] = [p99(BY_TURNS), p99(BY_MESSAGES)];
    assert!(by_messages > 1.5 * by_turns, "{by_turns}, {by_messages}");
}

#[test]
fn a_core_is_the_limit_of_the_software_of_one_peer() {
    let goodput = |load| {
        let destination = Destination::Fixed(1);
        let traffic = Traffic { destination, load, ..Traffic::reads(CHUNK) };
        ran(System::Software, &Constants::default(), &reads(traffic, 20_000)).goodput(RATE, 1)
    };
    // A core receives a request and sends an answer, or the other way round.
    let each = 2.0 * 0.3e-6 + (32.0 + 4096.0) * 0.2e-9;
    let limit = 4096.0 / each / RATE as f64;
    let below = 0.2 * 4096.0 / (4096.0 + 114.0);
    assert!((goodput(0.2) / below - 1.0).abs() < 0.02, "{} of {below}", goodput(0.2));
    // The client's core spends time on requests that the server's has none for.
    let beyond = goodput(0.3) / limit;
    assert!((0.85..1.0).contains(&beyond), "{beyond}");
}

#[test]
fn each_system_delays_more_under_more_load() {
    for system in [BY_TURNS, BY_MESSAGES, System::Software] {
        let p99 = |load| {
            let point = figure_10(&setting(system, 5_000), load).expect("there is such a load");
            assert!(point.outcome.adds_up());
            point.slowdown(0.99)
        };
        let [low, middle, high] = [p99(0.1), p99(0.5), p99(0.8)];
        assert!(1.0 < low && low < middle && middle < high, "{low}, {middle}, {high}");
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_does_not() {
    let lossy = RdmaOptions {
        fabric: FabricOptions { ports: Ports::DropTail, loss: Chance::ppm(1000) },
        ..RdmaOptions::lossless(Service::PacketByPacket)
    };
    for system in [System::Rdma(lossy), System::Software] {
        let outcome = |seed| {
            let setting = Setting { seed, ..setting(system, 2_000) };
            figure_13(&setting, SLOW, 0.6).expect("there is such a load").outcome
        };
        assert_eq!(outcome(1), outcome(1));
        assert_ne!(outcome(1), outcome(2));
    }
}

#[test]
fn every_constant_changes_what_comes_of_a_run() {
    let outcome = |constants: &Constants| {
        let fabric = FabricOptions { ports: Ports::DropTail, loss: Chance::ppm(2000) };
        let rdma = RdmaOptions { fabric, ..RdmaOptions::lossless(Service::PacketByPacket) };
        // Many connections, and few with much on each.
        let mixed = |traffic| Traffic { sizes: figures::sizes_13(), ..traffic };
        let few = Traffic { hosts: 3, load: 1.2, ..Traffic::reads(CHUNK) };
        let works = [mixed(from_one(800, 1.2)), mixed(few)].map(|it| reads(it, 500));
        let of = |system| works.each_ref().map(|work| ran(system, constants, work));
        let states = [BY_TURNS, System::Software].map(|it| figures::state(it, constants, 1000));
        (of(System::Rdma(rdma)), of(System::Software), states)
    };
    // Three hosts do not fill ports of a MiB.
    let constants = Constants::default().with(Constant::PortLen, 1.0 / 16.0);
    let plain = outcome(&constants);
    for Variation { constant, factor, constants } in constants.variations() {
        assert!(outcome(&constants) != plain, "{constant} times {factor} changes nothing");
    }
}

#[test]
fn work_that_there_cannot_be_is_refused_with_the_next_step() {
    let refused = |work: &Work, words: &str| {
        for system in [BY_TURNS, System::Software] {
            let error = run(&system, &Constants::default(), work, SEED).expect_err("it cannot be");
            assert!(error.to_string().contains(words), "{error}");
        }
    };
    refused(&reads(Traffic::reads(SMALL), 0), "take 1 or more");
    refused(&reads(Traffic::reads(SMALL), u32::MAX), "or fewer");
    refused(&reads(Traffic { op: Op::Write, ..Traffic::reads(SMALL) }, 1), "take `Op::Read`");
    let loss = under_loss(&setting(System::Software, 1), Chance::ppm(1), CHUNK, 0.1);
    assert_eq!(loss, Err(BaselineError::Loss));
    refused(&reads(Traffic { hosts: 0, ..Traffic::reads(SMALL) }, 1), "0 hosts");
}
