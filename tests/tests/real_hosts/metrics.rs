//! A host's metrics, and their scraping.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::{
    net::SocketAddr,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use rma_tests::{
    exposition::Exposition,
    hosts::{CLIENT_PID, Hosts, Loopback, Setup},
};
use rma_xdp::{
    Call, CallStatus, Client, Grant, HostConfig, InlineHost, OpStatus, OpType, Permissions, Piece,
    Portal, RegisteredRegion, TenantConfig,
    config::{IdlePolicy, NicConfigBuilder, Timing},
    messages::ReceiveQueueLayout,
    metrics::{ExecutorGauges, Metrics, MetricsEndpoint},
    time::{Clock, TscClock},
    transfer::{RetryPolicy, SilentPeers},
};

fn parse(metrics: &Metrics) -> Exposition {
    let mut text = String::new();
    metrics.prometheus(&mut text).unwrap();
    Exposition::parse(&text)
}

/// A portal of the client's, with grants to read and to write.
struct Scene {
    portal: Portal,
    local: RegisteredRegion,
    to_read: Grant,
    to_write: Grant,
}

impl Scene {
    fn new(hosts: &Hosts) -> Self {
        let all = Permissions::READ | Permissions::WRITE;
        let region = hosts.server().register(4096, all).unwrap();
        let grant = |op_type| {
            hosts.server().grant(&region, hosts.client_addr, CLIENT_PID, op_type).unwrap()
        };
        let portal = hosts.client.portal(8).unwrap();
        let local = hosts.client.register(4096, Permissions::NONE).unwrap();
        Self { portal, local, to_read: grant(OpType::Read), to_write: grant(OpType::Write) }
    }

    fn read(&mut self) -> OpStatus {
        self.portal.read(&self.to_read, 0, &self.local, 0, 64).unwrap();
        self.portal.wait().unwrap().status
    }

    fn write(&mut self) -> OpStatus {
        self.portal.write(&self.to_write, 0, &self.local, 0, 64).unwrap();
        self.portal.wait().unwrap().status
    }
}

fn endpoint(hosts: &Hosts) -> MetricsEndpoint {
    let source = hosts.client.metrics_source().clone();
    MetricsEndpoint::start(([127, 0, 0, 1], 0).into(), source).unwrap()
}

/// Sends `request`, says that there is no more, and returns all that comes back.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The other side may have had enough of it before its end.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(response).unwrap()
}

fn scrape(address: SocketAddr) -> Exposition {
    let response = ask(address, b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    Exposition::parse(body)
}

#[test]
fn a_hosts_metrics_add_up() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let mut scene = Scene::new(&hosts);
    for _ in 0..10 {
        assert_eq!(scene.read(), OpStatus::Ok);
    }
    for _ in 0..5 {
        assert_eq!(scene.write(), OpStatus::Ok);
    }
    let stale =
        Grant { key: rma_xdp::crypto::DerivedRegionKey::from_bytes([1; 16]), ..scene.to_read };
    scene.to_read = stale;
    assert_eq!(scene.read(), OpStatus::RemoteAuthenticationFailure);

    let client = parse(&hosts.client.metrics());
    let completed =
        |status: &str| client.get(&format!("rma_ops_completed_total{{status=\"{status}\"}}"));
    assert_eq!((completed("OK"), completed("REMOTE_AUTHENTICATION_FAILURE")), (15.0, 1.0));
    assert_eq!(completed("TIMEOUT"), 0.0);
    for delay in ["issue", "total"] {
        let count =
            |op: &str| client.get(&format!("rma_{delay}_delay_seconds_count{{op=\"{op}\"}}"));
        assert_eq!((count("READ"), count("WRITE"), count("Rekey")), (10.0, 5.0, 0.0), "{delay}");
    }
    let sum = |delay| client.get(&format!("rma_{delay}_delay_seconds_sum{{op=\"READ\"}}"));
    assert!(sum("issue") <= sum("total") && sum("total") < 10.0);
    assert_eq!(client.get("rma_engine_up{engine=\"0\"}"), 1.0);
    assert!(client.any("rma_aead_info{provider=\""), "which provider encrypts");
    // 16 requests, and 5 times data.
    assert_eq!(client.get("rma_frames_sent_total"), 21.0);
    assert_eq!(client.get("rma_udp_tx_frames_total"), 21.0);
    assert!(!client.any("rma_xdp_") && !client.any("rma_xsk_"), "that is another device's");
    assert_eq!(client.get("rma_tenant_command_slots_used{tenant=\"host\",id=\"0\"}"), 8.0);
    assert_eq!(client.get("rma_tenant_registered_bytes_used{tenant=\"host\",id=\"0\"}"), 4096.0);
    let server = parse(&hosts.server().metrics());
    assert_eq!(server.get("rma_frames_dropped_total{reason=\"RequestUnauthenticated\"}"), 1.0);
    assert_eq!(server.get("rma_frames_received_total"), 21.0);
    assert_eq!(server.get("rma_ops_completed_total{status=\"OK\"}"), 0.0);
}

#[test]
fn executors_tell_their_calls_and_windows_and_that_they_are_at_rest() {
    let timing = Timing::software(Duration::from_micros(10), Duration::from_millis(50));
    let mut hosts = Hosts::over_udp(NicConfigBuilder::default().with(|it| it.timing = timing));
    let Scene { portal, local, to_read, .. } = Scene::new(&hosts);
    drop(portal);
    let none = parse(&hosts.client.metrics());
    assert_eq!((none.get("rma_executors"), none.get("rma_executor_calls")), (0.0, 0.0));
    assert!(!none.any("rma_executor_local_cwnd_min_ops"), "there is no window");
    let mut busy = hosts.client.transfers(1).unwrap();
    let idle = hosts.client.transfers(4).unwrap();

    // One op is under way, and the call has more.
    hosts.server = None;
    let pieces =
        [Piece { grant: &to_read, remote_offset: 0, local: &local, local_offset: 0, len: 64 }];
    let calls = [(); 3]
        .map(|()| busy.submit(&Call::of(&pieces).with(|it| it.retry = RetryPolicy::NONE)).unwrap());
    busy.poll();
    let gauges = hosts.client.metrics().executors;
    assert_eq!((gauges.executors, gauges.command_slots), (2, 5));
    assert_eq!((gauges.calls, gauges.calls_waiting, gauges.ops_outstanding), (3, 2, 1));
    assert_eq!(gauges.remote_cwnds.iter().sum::<u64>(), 1, "they share it");
    let window = busy.protocol().congestion_control().remote_cwnds().next();
    assert!(window.is_some_and(|window| window > 0.0));
    assert_eq!(gauges.remote_cwnd_min, window);
    let text = parse(&hosts.client.metrics());
    assert_eq!(text.get("rma_executor_calls_waiting"), 2.0);
    let classes = ExecutorGauges::CWND_CLASSES
        .map(|class| text.get(&format!("rma_executor_remote_cwnds{{ops=\"{class}\"}}")));
    assert_eq!(classes.iter().sum::<f64>(), 1.0);
    assert_eq!(text.get("rma_executor_remote_cwnd_min_ops"), window.unwrap());

    // All are over, and one outcome after the other is taken. The second was the probe, with which
    // the third ended.
    let [first, second, third] = calls.map(|call| busy.wait(call).unwrap());
    assert_eq!(first.status, CallStatus::Failed(OpStatus::Timeout));
    assert_eq!(second.missing[0].tried, Some(OpStatus::Timeout));
    assert_eq!(third.missing[0].tried, None);
    for outcome in [second, third] {
        let status = outcome.status;
        assert!(matches!(status, CallStatus::PeerSilent { tried: 2, .. }), "{status}");
    }
    let gauges = hosts.client.metrics().executors;
    assert_eq!(gauges.silent_peers, SilentPeers { suspect: 0, dead: 1, probing: 0 });
    let text = parse(&hosts.client.metrics());
    assert_eq!(text.get("rma_executor_silent_peers{state=\"dead\"}"), 1.0);
    assert_eq!((gauges.calls, gauges.calls_waiting, gauges.ops_outstanding), (0, 0, 0));
    assert_eq!((gauges.remote_cwnds, gauges.remote_cwnd_min), ([0; 6], None));
    assert!(gauges.local_cwnd_min.is_some());
    drop((busy, idle));
    let gauges = hosts.client.metrics().executors;
    assert_eq!((gauges.executors, gauges.local_cwnd_min), (0, None));
}

#[test]
fn a_person_reads_a_dozen_aligned_lines() {
    let mut hosts = Hosts::over_udp(NicConfigBuilder::default());
    let mut scene = Scene::new(&hosts);
    let before = hosts.client.metrics().to_string();
    assert!(before.lines().any(|line| line == "ops         none ended yet"), "{before}");
    assert!(!before.contains("p99"), "no delay was seen: {before}");
    for _ in 0..3 {
        assert_eq!((scene.read(), scene.write()), (OpStatus::Ok, OpStatus::Ok));
    }
    let executor = hosts.client.transfers(4).unwrap();
    let text = hosts.client.metrics().to_string();
    println!("{text}");
    let names: Vec<_> = text.lines().map(|line| line[..12].trim_end()).collect();
    let expected = [
        "engine",
        "device",
        "ops",
        "",
        "READ",
        "WRITE",
        "frames",
        "trouble",
        "dropped",
        "not sent",
        "outgoing",
        "incoming",
        "executors",
        "windows",
        "counted",
        "tenant",
    ];
    assert_eq!(names, expected, "{text}");
    for line in text.lines() {
        assert!(line.as_bytes()[11] == b' ', "a name is short enough: {line}");
        assert!(line.len() == line.trim_end().len() && !line.contains('\n'), "{line:?}");
    }
    let line = |name| text.lines().find(|line| line[..12].trim_end() == name).unwrap();
    assert!(line("engine").starts_with("engine      up, AES-GCM by "));
    assert_eq!(line("ops"), "ops         6 OK");
    assert!(line("READ")[12..].trim_start().starts_with("3 "), "{text}");
    assert_eq!(line("trouble"), "trouble     none");
    assert!(line("counted").contains("rma_udp_tx_frames"), "{text}");
    let tenant = "tenant      host: 12 of 1024 slots, 1 of 1024 regions, 4.0 KiB registered";
    assert_eq!(line("tenant"), tenant, "8 slots, and 4 of the executor");
    drop((executor, scene));

    hosts.server = None;
    let source = hosts.client.metrics_source().clone();
    drop(hosts);
    assert!(source.metrics().to_string().starts_with("engine      DOWN"));
}

/// A host whose peer is gone, and how it is read from: ops end after seconds.
fn with_a_dead_peer() -> (Hosts, Grant, RegisteredRegion) {
    let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(2));
    let mut hosts = Hosts::over_udp(NicConfigBuilder::default().with(|it| it.timing = timing));
    let Scene { portal, local, to_read, .. } = Scene::new(&hosts);
    drop(portal);
    hosts.server = None;
    (hosts, to_read, local)
}

/// Sleeps at once.
const SLEEPY: IdlePolicy = {
    let mut it = IdlePolicy::busy_poll();
    it.spin = Duration::ZERO;
    it.yield_for = Duration::ZERO;
    it.sleep = true;
    it
};

#[test]
fn an_executor_whose_thread_sleeps_told_before_what_it_sleeps_for() {
    let (hosts, to_read, local) = with_a_dead_peer();
    let pieces =
        [Piece { grant: &to_read, remote_offset: 0, local: &local, local_offset: 0, len: 64 }];
    let call = Call::of(&pieces).with(|it| it.retry = RetryPolicy::NONE);
    let seen = || {
        let gauges = hosts.client.metrics().executors;
        (gauges.calls, gauges.calls_waiting, gauges.ops_outstanding)
    };
    // As many as the window lets go: each call is one op.
    let all_are_told = || matches!(seen(), (6, waiting, ops @ 1..) if waiting + ops == 6);

    // In an event loop. It tells when it is polled first, and not again for a while.
    let mut executor = hosts.client.transfers(4).unwrap();
    executor.set_idle(SLEEPY);
    executor.poll();
    assert_eq!(seen(), (0, 0, 0));
    executor.submit(&call).unwrap();
    assert_eq!(seen(), (1, 1, 0), "at once, as it may not be polled for long");
    for _ in 1..6 {
        executor.submit(&call).unwrap();
    }
    while executor.poll() > 0 {}
    assert!(executor.arm());
    assert!(all_are_told(), "{:?}", seen());
    executor.disarm();

    // In a wait.
    drop(executor);
    let mut executor = hosts.client.transfers(4).unwrap();
    executor.set_idle(SLEEPY);
    executor.poll();
    for _ in 0..6 {
        executor.submit(&call).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let outcome = executor.wait_any().unwrap();
            is_over.store(true, SeqCst);
            assert_eq!(outcome.status, CallStatus::Failed(OpStatus::Timeout));
        });
        while !all_are_told() {
            assert!(!is_over.load(SeqCst), "{:?}", seen());
            std::thread::yield_now();
        }
    });
}

#[test]
fn futures_under_way_are_told_while_the_thread_that_polls_for_them_sleeps() {
    let (hosts, to_read, _local) = with_a_dead_peer();
    let mut executor = hosts.client.transfers(4).unwrap();
    executor.set_idle(SLEEPY);
    executor.poll();
    let client = Client::new(executor);
    let pool = hosts.client.buffer_pool(2, 64).unwrap();
    let read = || client.read(&to_read, 0, pool.try_acquire().unwrap()).retry(RetryPolicy::NONE);
    let is_over = AtomicBool::new(false);
    let until_seen = |calls| loop {
        let gauges = hosts.client.metrics().executors;
        if (gauges.calls, gauges.ops_outstanding) == (calls, calls) {
            break;
        }
        assert!(!is_over.load(SeqCst), "{gauges:?}");
        std::thread::yield_now();
    };
    std::thread::scope(|scope| {
        let first = read();
        scope.spawn(|| {
            let (result, _buf) = client.block_on(first).unwrap();
            is_over.store(true, SeqCst);
            assert!(result.is_err());
        });
        until_seen(1);
        // One that is polled by another thread, which goes away.
        let mut second = read();
        assert!(pin!(&mut second).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        until_seen(2);
    });
}

#[test]
fn gauges_of_an_engine_at_rest_say_so() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let mut scene = Scene::new(&hosts);
    assert_eq!(scene.write(), OpStatus::Ok);
    // Published at the latest when the engine goes to sleep.
    let clock = TscClock::new();
    for host in [&hosts.client, hosts.server()] {
        loop {
            let gauges = host.metrics().gauges;
            let at_rest = gauges.window > 0
                && gauges.window_debited == 0
                && gauges.free_command_slots == gauges.command_slots
                && gauges.ops_in_service == 0
                && gauges.pending_writes_used == [0, 0]
                && gauges.counter_values_left > 0;
            if at_rest {
                break;
            }
            assert!(clock.now().as_nanos() < 10_000_000_000, "{gauges:?}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn an_inline_host_tells_what_is_now() {
    let Loopback { addresses: [client, server], port } = Loopback::unused();
    let open = |addr| {
        InlineHost::open(HostConfig::udp(addr).with(|it| {
            it.port = port;
            it.pid = CLIENT_PID;
        }))
        .unwrap()
    };
    let (mut a, mut b) = (open(client), open(server));
    let region = b.register(4096, Permissions::READ).unwrap();
    let grant = b.grant(&region, client, CLIENT_PID, OpType::Read).unwrap();
    let mut portal = a.portal(2).unwrap();
    let local = a.register(4096, Permissions::NONE).unwrap();
    portal.read(&grant, 0, &local, 0, 4096).unwrap();
    a.turn();
    let gauges = a.metrics().gauges;
    assert_eq!((gauges.ops_in_service, gauges.window_debited), (1, 4096));
    assert_eq!(gauges.free_command_slots, gauges.command_slots - 1);
    while portal.outstanding() > 0 {
        a.turn();
        b.turn();
        let _ = portal.poll();
    }
    let after = parse(&a.metrics());
    assert_eq!(after.get("rma_ops_in_service"), 0.0);
    assert_eq!(after.get("rma_ops_completed_total{status=\"OK\"}"), 1.0);
}

#[test]
fn a_host_tells_how_full_its_queues_and_records_are() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let (client, server) = (&hosts.client, hosts.server());
    let layout = |receives| ReceiveQueueLayout::new(receives, 0).unwrap();
    let register = |receives| server.receive_queue(layout(receives), Permissions::NOTIFY);
    let [mut busy, mut quiet] = [register(8).unwrap(), register(2).unwrap()];
    let queues = || {
        let text = parse(&server.metrics());
        ["rma_receive_queues", "rma_receives_posted", "rma_events_unread", "rma_events_unread_max"]
            .map(|name| text.get(name))
    };
    assert_eq!(queues(), [2.0, 0.0, 0.0, 0.0]);
    busy.post_all();
    quiet.post_all();
    let mut portal = client.portal(1).unwrap();
    for (queue, events) in [(&busy, 3), (&quiet, 1)] {
        let grant =
            server.grant(queue.region(), hosts.client_addr, CLIENT_PID, OpType::Notify).unwrap();
        for _ in 0..events {
            portal.notify(&grant, 1).unwrap();
            assert_eq!(portal.wait().unwrap().status, OpStatus::Ok);
        }
    }
    assert_eq!(queues(), [2.0, 6.0, 4.0, 3.0]);
    assert!(server.metrics().to_string().contains("2: 6 receives posted, 4 events unread"));
    while busy.poll().is_some() {}
    assert_eq!(queues(), [2.0, 6.0, 1.0, 1.0]);
    // The last op's record is kept, as nothing has said that its end is known.
    loop {
        let text = parse(&server.metrics());
        assert_eq!(text.get("rma_outcome_records_max"), 4096.0);
        if text.get("rma_outcome_records") > 0.0 {
            break;
        }
        std::thread::yield_now();
    }
    let text = parse(&server.metrics());
    assert_eq!(text.get("rma_staging_buffers"), 0.0);
    assert_eq!(text.get("rma_settled_total{verdict=\"APPLIED\"}"), 0.0);
    assert_eq!(text.get("rma_posts_refused_total"), 0.0);
    server.deregister(busy.region()).unwrap();
    assert_eq!(queues(), [1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn no_name_of_a_tenant_spoils_the_text() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let name = "a\"b\\c\nd} 1";
    let tenants = [name, name, ""].map(|name| {
        let tenant = hosts.client.tenant(TenantConfig::named(name)).unwrap();
        let region = hosts.client.for_tenant(&tenant).register(100, Permissions::NONE).unwrap();
        (tenant, region)
    });
    let text = parse(&hosts.client.metrics());
    for id in 1..3 {
        let sample =
            format!("rma_tenant_regions_used{{tenant=\"a\\\"b\\\\c\\nd}} 1\",id=\"{id}\"}}");
        assert_eq!(text.get(&sample), 1.0);
    }
    assert_eq!(text.get("rma_tenant_registered_bytes_used{tenant=\"\",id=\"3\"}"), 100.0);
    drop(tenants);
}

#[test]
fn a_source_outlives_its_host_and_says_that_it_is_gone() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    assert_eq!(Scene::new(&hosts).read(), OpStatus::Ok);
    let source = hosts.client.metrics_source().clone();
    assert!(source.metrics().engines_are_up());
    drop(hosts);
    let metrics = source.metrics();
    assert!(!metrics.engines_are_up() && metrics.tenants.is_empty());
    assert_eq!(parse(&metrics).get("rma_ops_completed_total{status=\"OK\"}"), 1.0);
}

#[test]
fn scrapes_while_ops_run_never_go_back_and_add_up_in_the_end() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let endpoint = endpoint(&hosts);
    let mut scene = Scene::new(&hosts);
    let done = AtomicBool::new(false);
    let ops = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut ops = 0;
            while !done.load(SeqCst) {
                assert_eq!(scene.read(), OpStatus::Ok);
                ops += 1;
            }
            ops
        });
        let ids = [
            "rma_ops_completed_total{status=\"OK\"}",
            "rma_total_delay_seconds_count{op=\"READ\"}",
            "rma_issue_delay_seconds_sum{op=\"READ\"}",
            "rma_frames_received_total",
        ];
        let mut last = [0.0; 4];
        for _ in 0..20 {
            let text = scrape(endpoint.address());
            let now = ids.map(|id| text.get(id));
            assert!(now.iter().zip(&last).all(|(now, last)| now >= last), "{last:?} then {now:?}");
            last = now;
        }
        done.store(true, SeqCst);
        running.join().unwrap()
    });
    let text = scrape(endpoint.address());
    assert_eq!(text.get("rma_ops_completed_total{status=\"OK\"}"), f64::from(ops));
    assert_eq!(text.get("rma_total_delay_seconds_count{op=\"READ\"}"), f64::from(ops));
}

#[test]
fn a_health_check_is_told_whether_the_host_serves() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let endpoint = endpoint(&hosts);
    let health = || ask(endpoint.address(), b"GET /health HTTP/1.1\r\n\r\n");
    assert!(health().starts_with("HTTP/1.1 200 "), "{}", health());
    drop(hosts);
    let closed = health();
    assert!(closed.starts_with("HTTP/1.1 503 "), "{closed}");
    assert!(closed.ends_with("the engine has ended, or the host is closed\n"), "{closed}");
}

#[test]
fn whatever_else_is_sent_gets_an_answer_and_the_next_scrape_is_served() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let endpoint = endpoint(&hosts);
    let garbage: Vec<u8> =
        (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let endless = [b"GET /metrics HTTP/1.1\r\n".as_slice(), &b"A: b\r\n".repeat(10_000)].concat();
    for (request, status) in [
        (b"GET / HTTP/1.1\r\n\r\n".as_slice(), "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
        (b"GET /metrics HTTP/3\r\n\r\n", "505"),
        (b"GET\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
        (b"\0\0\0\0", "400"),
        (b"GET /metrics HTTP/1.1\r\n", "400"),
        (b"\xff\xfe\r\n\r\n", "400"),
        (&endless, "431"),
    ] {
        let response = ask(endpoint.address(), request);
        let start = format!("HTTP/1.1 {status} ");
        assert!(
            response.starts_with(&start),
            "{status} for {:?}: {response}",
            &request[..request.len().min(30)]
        );
        assert_eq!(scrape(endpoint.address()).get("rma_engine_up{engine=\"0\"}"), 1.0);
    }
    // Those who only connect, and those who send for ever.
    drop(TcpStream::connect(endpoint.address()).unwrap());
    let response = ask(endpoint.address(), &garbage);
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{response}");
    assert_eq!(scrape(endpoint.address()).get("rma_engine_up{engine=\"0\"}"), 1.0);
}

#[test]
fn slow_clients_are_given_up_and_others_are_served_then() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let endpoint = endpoint(&hosts);
    // One says nothing, one says a little, one does not take its answer.
    let silent = TcpStream::connect(endpoint.address()).unwrap();
    let mut slow = TcpStream::connect(endpoint.address()).unwrap();
    slow.write_all(b"GET /met").unwrap();
    let mut deaf = TcpStream::connect(endpoint.address()).unwrap();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(scrape(endpoint.address()).get("rma_engine_up{engine=\"0\"}"), 1.0);
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    drop((silent, deaf));
}

#[test]
fn an_endpoint_ends_at_once_even_while_a_client_is_served() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let endpoint = endpoint(&hosts);
    let address = endpoint.address();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET /").unwrap();
    drop(endpoint);
    // A client that is given up for being slow is told so.
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    assert_eq!(answer, "", "the endpoint did not wait for the rest of the request");
    assert!(TcpStream::connect(address).is_err(), "nobody listens there any more");
    let error =
        MetricsEndpoint::start(([192, 0, 2, 1], 1).into(), hosts.client.metrics_source().clone());
    assert!(error.unwrap_err().to_string().contains("192.0.2.1:1"));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn over_af_xdp_the_kernels_statistics_are_there_until_the_host_is_gone() {
    let hosts = Hosts::in_lab(&Setup::default());
    assert_eq!(Scene::new(&hosts).read(), OpStatus::Ok);
    let source = hosts.client.metrics_source().clone();
    let text = parse(&source.metrics());
    for name in [
        "rx_dropped",
        "rx_invalid_descs",
        "tx_invalid_descs",
        "rx_ring_full",
        "rx_fill_ring_empty_descs",
        "rx_unread",
    ] {
        assert_eq!(text.get(&format!("rma_xsk_{name}_total")), 0.0);
    }
    assert!(text.any("rma_xsk_tx_ring_empty_descs_total"));
    assert!(text.get("rma_xdp_rx_packets_total") >= 1.0);
    let packets = |what, direction| {
        text.get(&format!("rma_packet_frames_{what}{{direction=\"{direction}\"}}"))
    };
    assert_eq!(packets("count", "received"), text.get("rma_xdp_rx_packets_total"));
    assert_eq!(packets("count", "sent"), text.get("rma_xdp_tx_packets_total"));
    assert_eq!(packets("sum", "sent"), text.get("rma_xdp_tx_frames_total"));
    assert!(!text.any("rma_udp_"));
    drop(hosts);
    let metrics = source.metrics();
    assert_eq!(metrics.device.xsk, None, "nothing is kept open");
    parse(&metrics);
}
