//! Workloads of a few hosts, of which theory or the options say what must come of them.

use super::*;
use crate::flows::traffic::{Arrivals, Destination, Size};

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn executor() -> Front {
    Front::Executor { cc: CcConfigBuilder::default(), retry: RetryPolicy::DEFAULT }
}

fn nic(retry: Retry) -> Front {
    Front::Nic { retry, slots: 256 }
}

/// From host 0 to host 1, at equal distances.
fn pair(load: f64, op: Op) -> Traffic {
    let (arrivals, destination) = (Arrivals::Static, Destination::Fixed(1));
    Traffic { load, op, arrivals, destination, framing: Framing::own(op), ..Traffic::reads(4096) }
}

fn workload(traffic: &Traffic, front: Front) -> Workload {
    Workload::of(traffic, front, Fabric::paper(96 << 10), micros(500))
}

fn ran(workload: &Workload) -> Report {
    run(workload).expect("it can be run")
}

#[test]
fn calls_take_an_rtt_and_what_is_offered_is_accepted_whatever_the_way_into_the_nic() {
    for front in [executor(), nic(Retry::Never)] {
        let report = ran(&workload(&pair(0.3, Op::Read), front));
        let (calls, delays) = (report.calls(), report.latencies_of(4096).unwrap());
        assert_eq!((calls.shed, calls.failed, calls.retried), (0, 0, 0));
        assert!((delays.mean() - 5.0).abs() < 0.03, "{}", delays.mean());
        assert!((report.goodput() - 0.3).abs() < 0.01, "{}", report.goodput());
        assert!(report.payload() < report.goodput() && !report.is_saturated());
    }
    let report = ran(&workload(&pair(0.3, Op::Write), nic(Retry::Never)));
    let mean = report.latencies_of(4096).unwrap().mean();
    assert!((8.0..10.0).contains(&mean), "four hops: {mean}");
}

#[test]
fn more_than_a_link_carries_waits_then_is_shed_and_is_named_saturated() {
    for load in [1.0, 1.5, 3.0] {
        for front in [executor(), Front::Nic { retry: Retry::Always, slots: 16 }] {
            let traffic =
                Traffic { sizes: vec![Size { len: 64, share: 1.0 }], ..pair(load, Op::Read) };
            let report = ran(&Workload { waiting: 100, ..workload(&traffic, front) });
            let calls = report.calls();
            assert!(calls.waiting == 100 && calls.shed > 0 && report.is_saturated(), "{calls:?}");
        }
    }
}

#[test]
fn ops_that_are_refused_are_issued_again_at_once_if_that_is_wanted() {
    let traffic = Traffic { hosts: 3, destination: Destination::Fixed(2), ..pair(1.0, Op::Read) };
    let fabric = Fabric { nack: Nack::Above(8192), ..Fabric::paper(128 << 10) };
    let counts = |retry| {
        let report = ran(&Workload::of(&traffic, nic(retry), fabric.clone(), micros(500)));
        let (calls, ops) = (report.calls(), report.ops());
        assert!(ops.with(OpStatus::Nack) > 100, "{ops:?}");
        assert_eq!(ops.issued - calls.retried + calls.shed + calls.waiting, calls.offered);
        (calls.retried, ops.with(OpStatus::Nack), calls.failed)
    };
    let (retried, _, failed) = counts(Retry::Never);
    assert!(retried == 0 && failed > 100);
    let (retried, nacked, failed) = counts(Retry::Nacked);
    assert!(retried == nacked && failed > 0, "those that never entered service are not");
    assert_eq!(counts(Retry::Always).2, 0);
}

#[test]
fn a_host_dies_and_its_clients_go_on_with_the_replica_and_every_call_is_accounted_for() {
    let hosts = 4;
    let to = |destination| Traffic {
        hosts,
        destination: Destination::Fixed(destination),
        ..pair(0.1, Op::Read)
    };
    let sources = [(0, 2), (1, 3)].map(|(host, server)| Source { host, traffic: to(server) });
    let retry = RetryPolicy::DEFAULT.with(|it| {
        it.timeouts = 0;
        it.outlast = Some(Duration::ZERO);
    });
    let front = Front::Executor { cc: CcConfigBuilder::default(), retry };
    let fabric = Fabric::paper(96 << 10);
    let death = Death { host: 2, at: micros(200), replica: Some(3) };
    let both = Workload {
        sources: sources.to_vec(),
        death: Some(death),
        checks: Checks::Every,
        ..Workload::of(&to(2), front, fabric, micros(500))
    };
    let mut late = 0;
    let ended = &mut |ended: &Ended| {
        assert!(ended.is_ok);
        assert!(
            ended.host != 0 || ended.at < Instant::from_nanos(205_000) || ended.destination == 3
        );
        late += u64::from(ended.at.as_nanos() > 300_000 && ended.host == 0);
    };
    let report = watch(&both, ended).unwrap();
    assert!(report.calls().retried > 0 && late > 40, "{late}");
    let alone = Workload { death: Some(Death { replica: None, ..death }), ..both };
    assert!(ran(&alone).calls().failed > 10);
}

#[test]
fn a_slow_link_is_the_bottleneck_and_that_of_others_is_not() {
    let traffic = |destination| Traffic { hosts: 4, destination, ..pair(0.5, Op::Read) };
    let sources = [(0, 1), (2, 3)]
        .map(|(host, server)| Source { host, traffic: traffic(Destination::Fixed(server)) });
    let rates = vec![HostRate { host: 1, rate: RATE / 4 }];
    let report = ran(&Workload {
        sources: sources.to_vec(),
        fabric: Fabric { rates, ..Fabric::paper(96 << 10) },
        ..workload(&traffic(Destination::Fixed(1)), nic(Retry::Never))
    });
    let [slow, other] = [0, 1].map(|index| report.hosts[index].ops.wire_bytes as f64);
    assert!((slow / other - 0.5).abs() < 0.05, "{slow} {other}");
}

#[test]
fn a_mix_has_latencies_by_length_and_reads_and_writes_can_meet() {
    let sizes = vec![Size { len: 64, share: 0.5 }, Size { len: 200_000, share: 0.5 }];
    let mix = |op| Traffic { sizes: sizes.clone(), ..pair(0.2, op) };
    let source = |(host, op)| Source {
        host,
        traffic: Traffic { destination: Destination::Uniform, ..mix(op) },
    };
    let sources = [(0, Op::Read), (0, Op::Write), (1, Op::Read)].map(source).to_vec();
    let report = ran(&Workload {
        sources,
        length: micros(2_000),
        checks: Checks::Every,
        seals: Seals::AesGcm,
        ..workload(&mix(Op::Read), executor())
    });
    let [small, large] = [64, 200_000].map(|len| report.latencies_of(len).unwrap().mean());
    assert!(small < large / 2.0 && report.calls().failed == 0, "{small} {large}");
}

#[test]
fn a_model_of_aes_gcm_and_light_checks_change_no_number() {
    let traffic = Traffic { hosts: 5, load: 0.7, ..Traffic::reads(4096) };
    for jitter in [0, 3_000] {
        let fabric = Fabric { jitter: Duration::from_nanos(jitter), ..Fabric::paper(64 << 10) };
        let quick = Workload::of(&traffic, executor(), fabric, micros(200));
        let full = Workload { seals: Seals::AesGcm, checks: Checks::Every, ..quick.clone() };
        assert!(ran(&quick) == ran(&full));
    }
}

#[test]
fn a_workload_that_cannot_run_is_an_error_that_says_what_to_take() {
    let refused = |workload: Workload, words: &str| {
        let error = run(&workload).map(|_| ()).expect_err("it cannot be run").to_string();
        assert!(error.contains(words), "{error}");
    };
    let good = || workload(&pair(0.5, Op::Read), nic(Retry::Never));
    let fabric = |fabric| Workload { fabric, ..good() };
    let paper = || Fabric::paper(96 << 10);
    refused(Workload { sources: vec![], ..good() }, "no sources");
    refused(workload(&pair(0.0, Op::Read), executor()), "a load of 0");
    refused(workload(&Traffic { hosts: 1, ..Traffic::reads(64) }, executor()), "one host alone");
    refused(fabric(Fabric::paper(4095)), "4095");
    refused(fabric(Fabric { nack: Nack::Above(0), ..paper() }), "above 0 bytes");
    refused(fabric(Fabric { rtt: Duration::from_nanos(100), ..paper() }), "takes longer");
    let timing = Timing::new(micros(15), micros(20));
    refused(fabric(Fabric { timing, nack: Nack::Above(9_000), ..paper() }), "no time for a queue");
    refused(workload(&Traffic { ..Traffic::reads(4097) }, nic(Retry::Never)), "4097 bytes");
    refused(
        Workload { front: Front::Nic { retry: Retry::Never, slots: 0 }, ..good() },
        "0 command",
    );
    refused(Workload { warm_up: micros(500), ..good() }, "longer time");
    let death = Some(Death { host: 2, at: micros(1), replica: None });
    refused(Workload { death, ..good() }, "host 2 of 2");
    let cc = CcConfigBuilder::default().with(|it| it.ai = f64::NAN);
    refused(
        workload(&pair(0.5, Op::Read), Front::Executor { cc, retry: RetryPolicy::DEFAULT }),
        "ai",
    );
}

#[test]
fn jitter_beyond_rtt_and_timeout_makes_ops_late_and_no_panic() {
    for law in [JitterLaw::Uniform, JitterLaw::Exponential] {
        for jitter in [micros(6), micros(30)] {
            let fabric = Fabric { jitter, law, ..Fabric::paper(64 << 10) };
            let report =
                ran(&Workload { fabric, ..workload(&pair(0.5, Op::Read), nic(Retry::Never)) });
            let is_late = report.ops().with(OpStatus::Timeout) > 0;
            assert_eq!(is_late, jitter > micros(6) || law == JitterLaw::Exponential);
        }
    }
}
