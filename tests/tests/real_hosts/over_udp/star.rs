//! StaR between two hosts, as applications use it: every op in both roles, quotas, portals that are
//! dropped, and engines that are gone.

use core::time::Duration;
use std::{
    io::Write as _,
    os::unix::net::UnixStream,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use rma_tests::{exposition::Exposition, hosts::Loopback};
use rma_xdp::{
    Host, HostAddr, HostConfig, HostError, InlineHost, Quotas, TenantConfig, WaitError,
    config::IdlePolicy,
    star::{
        Access, CqId, MemoryRegion, MrError, PostError, ProtectionDomain, Qp, QpConfig, QpState,
        RecvWr, Role, SendWr, SetUpError, StarConfigBuilder, StarError, StarEvent,
        StarPortalConfig, StarVerbs, Wc, WcStatus, WqeOp,
    },
    tenant::{AllocationError, Quota, Resource},
};

/// Bytes of each end's memory region: the lower half is for what it receives.
const LEN: usize = 64 << 10;
const HALF: u64 = LEN as u64 / 2;

fn config(address: HostAddr) -> HostConfig {
    let ports = [(); 3].map(|()| Loopback::unused().port);
    HostConfig::udp(address).with(|it| {
        it.star = Some(StarConfigBuilder::default());
        [it.port, it.stateless_port, it.stateful_port] = ports;
    })
}

/// Two configurations of hosts that reach each other.
fn configs() -> [HostConfig; 2] {
    let Loopback { addresses: [one, other], .. } = Loopback::unused();
    let first = config(one);
    let second = first.clone().with(|it| it.addresses = vec![other]);
    [first, second]
}

pub(super) fn hosts() -> [Host; 2] {
    configs().map(|config| Host::open(config).unwrap())
}

/// One end of a connection, with what belongs to it.
struct End {
    verbs: StarVerbs,
    pd: ProtectionDomain,
    mr: MemoryRegion,
    cq: CqId,
    qp: Qp,
}

const ALL: Access = Access::from_bits(7);

impl End {
    fn new(host: &Host, role: Role) -> Self {
        Self::over(host, host.verbs(StarPortalConfig::default()).unwrap(), role)
    }

    fn over(host: &Host, mut verbs: StarVerbs, role: Role) -> Self {
        let pd = host.alloc_pd(&verbs).unwrap();
        let mr = host.reg_mr(&pd, LEN, ALL).unwrap();
        let cq = verbs.create_cq(64);
        let qp = verbs.create_qp(&pd, cq, cq, QpConfig { role, ..QpConfig::default() }).unwrap();
        Self { verbs, pd, mr, cq, qp }
    }

    fn another_qp(&mut self, role: Role) -> Qp {
        let config = QpConfig { role, ..QpConfig::default() };
        self.verbs.create_qp(&self.pd, self.cq, self.cq, config).unwrap()
    }

    /// The next completion.
    fn completion(&mut self) -> Wc {
        let mut wcs = [Wc::EMPTY];
        assert_eq!(self.verbs.wait_cq(self.cq, &mut wcs).unwrap(), 1);
        wcs[0]
    }

    fn assert_done(&mut self, wr_id: u64, opcode: WqeOp, byte_len: u32) {
        let wc = self.completion();
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
            (wr_id, WcStatus::Success, opcode, byte_len)
        );
    }

    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// Connects two queue pairs, over a socket that stays in this process.
pub(super) fn connect(
    (one, its): (&mut StarVerbs, Qp),
    (other, others): (&mut StarVerbs, Qp),
) -> [Result<(), SetUpError>; 2] {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let accepts = scope.spawn(move || other.accept_over(others, &mut there));
        let connected = one.connect_over(its, &mut here);
        // An accepter that waits for more learns that there is none.
        drop(here);
        [connected, accepts.join().unwrap()]
    })
}

fn pair(hosts: &[Host; 2], roles: [Role; 2]) -> [End; 2] {
    let [mut one, mut other] = [0, 1].map(|at| End::new(&hosts[at], roles[at]));
    for result in connect((&mut one.verbs, one.qp), (&mut other.verbs, other.qp)) {
        result.unwrap();
    }
    [one, other]
}

/// Each op from `one` to `other`, with messages of these lengths.
fn every_op(one: &mut End, other: &mut End) {
    for len in [0_u32, 1, 64, 4096, 20_000] {
        let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8 ^ len as u8).collect();
        one.mr.write(HALF, &sent).unwrap();
        other
            .verbs
            .post_recv(other.qp, &RecvWr { wr_id: 7, sge: other.mr.slice(0, 32 << 10) })
            .unwrap();
        let wr = SendWr::send(1, one.mr.slice(HALF, len)).with_imm(len);
        one.verbs.post_send(one.qp, &wr).unwrap();
        let wc = other.completion();
        assert_eq!((wc.wr_id, wc.status, wc.byte_len), (7, WcStatus::Success, len));
        assert_eq!(wc.imm, Some(len));
        one.assert_done(1, WqeOp::Send, len);
        assert_eq!(other.bytes(0, len as usize), sent);

        let wr = SendWr::write(2, one.mr.slice(HALF, len), other.mr.remote(100));
        one.verbs.post_send(one.qp, &wr).unwrap();
        one.assert_done(2, WqeOp::Write, len);
        assert_eq!(other.bytes(100, len as usize), sent);

        let wr = SendWr::read(3, one.mr.slice(64, len), other.mr.remote(100));
        one.verbs.post_send(one.qp, &wr).unwrap();
        one.assert_done(3, WqeOp::Read, len);
        assert_eq!(one.bytes(64, len as usize), sent);
    }
}

#[test]
fn every_op_works_from_either_side_to_the_other_whoever_connects() {
    let hosts = hosts();
    for roles in [[Role::Stateless, Role::Stateful], [Role::Stateful, Role::Stateless]] {
        let [mut one, mut other] = pair(&hosts, roles);
        let is_stateful = |end: &End| end.verbs.is_stateful(end.qp).unwrap();
        assert_eq!([is_stateful(&one), is_stateful(&other)], roles.map(|it| it == Role::Stateful));
        every_op(&mut one, &mut other);
        every_op(&mut other, &mut one);
    }
}

#[test]
fn memory_can_be_taken_back_and_windows_before_their_region() {
    let hosts = hosts();
    let [mut one, other] = pair(&hosts, [Role::Stateful, Role::Stateless]);
    let window = hosts[1].bind_mw(&other.mr, 8..72, Access::REMOTE_READ).unwrap();
    other.mr.write(8, b"windowed").unwrap();
    one.verbs.post_send(one.qp, &SendWr::read(1, one.mr.slice(0, 8), window.remote(0))).unwrap();
    one.assert_done(1, WqeOp::Read, 8);
    assert_eq!(one.bytes(0, 8), b"windowed");
    let refused = hosts[1].dereg_mr(&other.mr).unwrap_err();
    let HostError::Star(StarError::Mr(MrError::HasWindows { windows: 1, .. })) = refused else {
        panic!("{refused}")
    };
    hosts[1].dealloc_mw(&window).unwrap();
    hosts[1].dereg_mr(&other.mr).unwrap();
    let again = hosts[1].dereg_mr(&other.mr);
    assert!(
        matches!(again, Err(HostError::Star(StarError::Mr(MrError::NoSuchMr(_))))),
        "{again:?}"
    );
    // Memory that was taken back is of no use to the peer, who is told so.
    one.verbs.post_send(one.qp, &SendWr::read(2, one.mr.slice(0, 8), other.mr.remote(8))).unwrap();
    assert_eq!(one.completion().status, WcStatus::RemAccessErr);
    let refused = one.verbs.post_send(one.qp, &SendWr::send(3, one.mr.slice(0, 1)));
    assert_eq!(refused, Err(PostError::QpInError));
}

#[test]
fn an_inline_engine_turns_while_its_thread_waits() {
    let [mine, theirs] = configs();
    let (mut here, there) = (InlineHost::open(mine).unwrap(), Host::open(theirs).unwrap());
    let mut peer = End::new(&there, Role::Stateful);
    let mut verbs = here.verbs(StarPortalConfig::default()).unwrap();
    let pd = here.alloc_pd(&verbs).unwrap();
    let mr = here.reg_mr(&pd, LEN, ALL).unwrap();
    let cq = verbs.create_cq(4);
    let qp = verbs.create_qp(&pd, cq, cq, QpConfig::default()).unwrap();
    let (mut mine, mut theirs) = UnixStream::pair().unwrap();
    let refused = verbs.connect_over(qp, &mut mine);
    assert!(matches!(refused, Err(SetUpError::Wait(WaitError::InlineEngine))), "{refused:?}");
    thread::scope(|scope| {
        scope.spawn(|| peer.verbs.accept_over(peer.qp, &mut theirs).unwrap());
        here.wait(&mut verbs.connecting_over(qp, &mut mine)).unwrap();
    });
    let mut wcs = [Wc::EMPTY; 4];
    let nothing = here.wait(&mut verbs.completions(cq, &mut wcs));
    assert_eq!(nothing, Err(WaitError::NothingOutstanding));
    mr.write(0, b"inline").unwrap();
    verbs.post_send(qp, &SendWr::write(5, mr.slice(0, 6), peer.mr.remote(1))).unwrap();
    assert_eq!(verbs.wait_cq(cq, &mut wcs), Err(WaitError::InlineEngine));
    assert_eq!(here.wait(&mut verbs.completions(cq, &mut wcs)), Ok(1));
    assert_eq!((wcs[0].wr_id, wcs[0].status), (5, WcStatus::Success));
    assert_eq!(peer.bytes(1, 6), b"inline");
}

/// Of which pool a request has found too little.
fn refused<T>(result: Result<T, HostError>) -> Resource {
    match result.err().unwrap() {
        HostError::Allocation(AllocationError::Quota { resource, .. }) => resource,
        other => panic!("{other}"),
    }
}

#[test]
fn a_tenants_share_of_star_is_within_its_quotas_and_comes_back() {
    let [host, other] = hosts();
    let quotas = Quotas::default().with(|it| {
        it.pds = Quota::new(1, 2);
        it.mrs = Quota::new(0, 3);
        it.bytes = Quota::new(0, 1000);
        it.work_requests = Quota::new(0, 100);
        it.stateful_connections = Quota::new(4, 8);
    });
    let tenant = host.tenant(TenantConfig::named("star").with(|it| it.quotas = quotas)).unwrap();
    let open = |work_requests, stateful_connections| {
        let config = StarPortalConfig::default().with(|it| {
            (it.work_requests, it.stateful_connections) = (work_requests, stateful_connections);
        });
        host.for_tenant(&tenant).verbs(config)
    };
    assert_eq!(refused(open(101, 0)), Resource::WorkRequests);
    assert_eq!(refused(open(100, 9)), Resource::StatefulConnections);
    let verbs = open(60, 8).unwrap();
    assert_eq!(refused(open(41, 0)), Resource::WorkRequests);
    assert_eq!(refused(open(40, 1)), Resource::StatefulConnections);

    let pds = [(); 2].map(|()| host.alloc_pd(&verbs).unwrap());
    assert_eq!(refused(host.alloc_pd(&verbs)), Resource::ProtectionDomains);
    let mr = host.reg_mr(&pds[0], 600, ALL).unwrap();
    assert_eq!(refused(host.reg_mr(&pds[1], 401, ALL)), Resource::RegisteredBytes);
    // The same memory once more: it counts twice.
    let twice = host.reg_mr_of(&pds[1], Arc::clone(mr.memory()), 100..500, ALL).unwrap();
    host.bind_mw(&twice, 0..400, Access::REMOTE_READ).unwrap();
    assert_eq!(refused(host.reg_mr(&pds[0], 0, ALL)), Resource::MemoryRegions);
    let used = || {
        let usage = host.for_tenant(&tenant).usage().unwrap();
        [usage.pds, usage.mrs, usage.bytes, usage.work_requests, usage.stateful_connections]
            .map(|pool| pool.used)
    };
    assert_eq!(used(), [2, 3, 1000, 60, 8]);
    let mut text = String::new();
    host.metrics().prometheus(&mut text).unwrap();
    let text = Exposition::parse(&text);
    let shown = ["protection_domains", "memory_regions", "work_requests", "stateful_connections"]
        .map(|pool| ["used", "available"].map(|what| format!("rma_tenant_star_{pool}_{what}")))
        .map(|names| names.map(|name| text.get(&format!("{name}{{tenant=\"star\",id=\"1\"}}"))));
    assert_eq!(shown, [[2.0, 0.0], [3.0, 0.0], [60.0, 40.0], [8.0, 0.0]]);
    // With a protection domain all its memory goes, windows and all.
    host.dealloc_pd(&pds[1]).unwrap();
    assert_eq!(used(), [1, 1, 600, 60, 8]);
    let gone = host.dereg_mr(&twice).unwrap_err();
    assert!(matches!(gone, HostError::Star(StarError::Mr(MrError::NoSuchMr(_)))), "{gone}");
    // An impossible request is refused, and charged to nobody.
    let beyond = host.reg_mr_of(&pds[0], Arc::clone(mr.memory()), 500..700, ALL).unwrap_err();
    assert!(matches!(beyond, HostError::Star(StarError::Mr(MrError::OutOfBounds { .. }))));
    assert_eq!(used(), [1, 1, 600, 60, 8]);
    // Others' handles mean nothing here.
    let foreign = other.reg_mr(&pds[0], 1, ALL).unwrap_err();
    assert!(matches!(foreign, HostError::Star(StarError::NoSuchPortal)), "{foreign}");
    drop(verbs);
    // It has no connections that anything had to be waited for.
    let gone = host.reg_mr(&pds[0], 1, ALL).unwrap_err();
    assert!(matches!(gone, HostError::Star(StarError::NoSuchPortal)), "{gone}");
    assert_eq!(used(), [0; 5]);
}

#[test]
fn a_host_without_star_says_so_and_a_portal_has_a_size() {
    let Loopback { addresses: [address, _], port } = Loopback::unused();
    let host = Host::open(HostConfig::udp(address).with(|it| it.port = port)).unwrap();
    let refused = host.verbs(StarPortalConfig::default()).unwrap_err();
    assert!(matches!(refused, HostError::Star(StarError::NotServed)), "{refused}");
    let [host, _] = hosts();
    for (work_requests, queue_pairs) in [(0, 1), (1, 0), (u32::MAX, 1), (1, u32::MAX)] {
        let config = StarPortalConfig::default().with(|it| {
            (it.work_requests, it.queue_pairs) = (work_requests, queue_pairs);
        });
        let refused = host.verbs(config).unwrap_err();
        assert!(matches!(refused, HostError::Star(StarError::PortalSize { .. })), "{refused}");
    }
}

#[test]
fn a_portal_opens_no_more_stateful_connections_than_it_was_given() {
    let hosts = hosts();
    let config = StarPortalConfig::default().with(|it| it.stateful_connections = 1);
    let mut one = End::over(&hosts[0], hosts[0].verbs(config).unwrap(), Role::Stateful);
    let mut peer = End::new(&hosts[1], Role::Stateless);
    for result in connect((&mut one.verbs, one.qp), (&mut peer.verbs, peer.qp)) {
        result.unwrap();
    }
    let counted = || {
        let events = hosts[0].metrics().star.unwrap().events;
        events.iter().find(|it| it.0 == StarEvent::OpenRefused).unwrap().1
    };
    assert_eq!(counted(), 0);
    let (second, its_peer) = (one.another_qp(Role::Stateful), peer.another_qp(Role::Stateless));
    let results = connect((&mut one.verbs, second), (&mut peer.verbs, its_peer));
    assert!(matches!(results[0], Err(SetUpError::Failed)), "{results:?}");
    assert!(results[1].is_err());
    assert_eq!(counted(), 1);
    // When the first is over, and all that it has sent is dead, there may be another.
    one.verbs.post_recv(one.qp, &RecvWr { wr_id: 9, sge: one.mr.slice(0, 64) }).unwrap();
    one.verbs.close(one.qp);
    let wc = one.completion();
    assert_eq!((wc.wr_id, wc.status), (9, WcStatus::WrFlushErr));
    let (next, its_peer) = (one.another_qp(Role::Stateful), peer.another_qp(Role::Stateless));
    for result in connect((&mut one.verbs, next), (&mut peer.verbs, its_peer)) {
        result.unwrap();
    }
}

#[test]
fn the_share_of_a_dropped_portal_is_anothers_when_its_connections_are_over() {
    let hosts = hosts();
    let quotas = Quotas::default().with(|it| it.work_requests = Quota::new(0, 64));
    let config = TenantConfig::named("again").with(|it| it.quotas = quotas);
    let tenant = hosts[0].tenant(config).unwrap();
    let config = StarPortalConfig::default().with(|it| it.work_requests = 64);
    for role in [Role::Stateful, Role::Stateless, Role::Stateful] {
        let peers = if role == Role::Stateful { Role::Stateless } else { Role::Stateful };
        // It waits for what the last round has left under way.
        let verbs = hosts[0].for_tenant(&tenant).verbs(config).unwrap();
        let (mut one, mut other) = (End::over(&hosts[0], verbs, role), End::new(&hosts[1], peers));
        for result in connect((&mut one.verbs, one.qp), (&mut other.verbs, other.qp)) {
            result.unwrap();
        }
        let sge = other.mr.slice(0, 64);
        other.verbs.post_recv(other.qp, &RecvWr { wr_id: 1, sge }).unwrap();
        one.verbs.post_recv(one.qp, &RecvWr { wr_id: 1, sge: one.mr.slice(0, 64) }).unwrap();
        one.verbs.post_send(one.qp, &SendWr::send(2, one.mr.slice(HALF, 9))).unwrap();
        other.assert_done(1, WqeOp::Recv, 9);
        // Its RECV is outstanding still.
        drop(one);
        assert!(other.verbs.state(other.qp).is_some());
    }
    let usage = |work_requests| loop {
        let usage = hosts[0].for_tenant(&tenant).usage().unwrap();
        if usage.work_requests.used == work_requests {
            break usage;
        }
        thread::yield_now();
    };
    assert_eq!((usage(0).pds.used, usage(0).mrs.used, usage(0).bytes.used), (0, 0, 0));
}

#[test]
fn a_waiter_for_an_engine_that_ends_is_told_so() {
    let hosts = hosts();
    let [mut one, other] = pair(&hosts, [Role::Stateless, Role::Stateful]);
    one.verbs.post_recv(one.qp, &RecvWr { wr_id: 1, sge: one.mr.slice(0, 64) }).unwrap();
    let next = one.another_qp(Role::Auto);
    // It sleeps at once.
    let idle = IdlePolicy::default().with(|it| (it.spin, it.yield_for) = Default::default());
    one.verbs.set_idle(idle);
    let begins = Arc::new(Barrier::new(2));
    let begun = Arc::clone(&begins);
    let waits = thread::spawn(move || {
        begun.wait();
        let mut wcs = [Wc::EMPTY];
        let waited = one.verbs.wait_cq(one.cq, &mut wcs);
        (one, waited)
    });
    let [host, _peers] = hosts;
    begins.wait();
    // Whether it sleeps by now or is about to.
    drop(host);
    let (mut one, waited) = waits.join().unwrap();
    assert_eq!(waited, Err(WaitError::EngineGone));
    let (mut stream, _other_end) = UnixStream::pair().unwrap();
    let refused = one.verbs.connect_over(next, &mut stream);
    assert!(matches!(refused, Err(SetUpError::Wait(WaitError::EngineGone))), "{refused:?}");
    assert!(!one.verbs.arm(), "nobody would wake it");
    one.verbs.disarm();
    drop(other);
}

#[test]
fn a_wait_ends_in_time_and_a_peer_that_says_nothing_is_no_peer() {
    let hosts = hosts();
    let [mut one, _other] = pair(&hosts, [Role::Stateful, Role::Stateless]);
    one.verbs.post_recv(one.qp, &RecvWr { wr_id: 1, sge: one.mr.slice(0, 64) }).unwrap();
    let mut wcs = [Wc::EMPTY; 2];
    let timeout = Duration::from_millis(5);
    assert_eq!(one.verbs.wait_cq_timeout(one.cq, &mut wcs, timeout), Ok(0));
    assert_eq!(one.verbs.wait_cq_timeout(one.cq, &mut [], timeout), Ok(0));
    let next = one.another_qp(Role::Auto);
    let (mut stream, other_end) = UnixStream::pair().unwrap();
    drop(other_end);
    let refused = one.verbs.connect_over(next, &mut stream);
    assert!(matches!(refused, Err(SetUpError::Stream(_))), "{refused:?}");
    assert_eq!(one.verbs.state(next), Some(QpState::Init));
    one.verbs.close(next);
    assert_eq!(one.verbs.state(next), None);
}

/// A stranger says that a long message comes, and then an octet now and then, so that no read is
/// slow.
fn trickle(mut stream: UnixStream, enough: &AtomicBool) {
    let mut octets = [232, 3].into_iter().chain(std::iter::repeat(1));
    while !enough.load(SeqCst) && stream.write_all(&[octets.next().expect("no end")]).is_ok() {
        thread::park_timeout(Duration::from_millis(100));
    }
}

/// A side whose set-ups take no longer than this.
fn server(host: &Host, set_up_timeout: Duration) -> End {
    let config = StarPortalConfig::default().with(|it| it.verbs.set_up_timeout = set_up_timeout);
    End::over(host, host.verbs(config).unwrap(), Role::Stateless)
}

#[test]
fn a_stranger_whose_octets_trickle_ends_in_time() {
    let hosts = hosts();
    let brief = Duration::from_millis(500);
    let mut server = server(&hosts[0], brief);
    let next = server.qp;
    let (mut stream, strangers) = UnixStream::pair().unwrap();
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| trickle(strangers, &enough));
        let refused = server.verbs.accept_over(next, &mut stream);
        enough.store(true, SeqCst);
        assert!(
            matches!(refused, Err(SetUpError::TimedOut { after }) if after == brief),
            "{refused:?}"
        );
    });
}

#[test]
fn a_stranger_whose_octets_trickle_holds_up_no_other_queue_pair() {
    let hosts = hosts();
    let mut server = server(&hosts[0], Duration::from_secs(60));
    let mut client = End::new(&hosts[1], Role::Stateful);
    for result in connect((&mut server.verbs, server.qp), (&mut client.verbs, client.qp)) {
        result.unwrap();
    }
    for number in 0..8 {
        let sge = server.mr.slice(64 * number, 64);
        server.verbs.post_recv(server.qp, &RecvWr { wr_id: number, sge }).unwrap();
    }
    let next = server.another_qp(Role::Stateless);
    let (mut stream, strangers) = UnixStream::pair().unwrap();
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| trickle(strangers, &enough));
        scope.spawn(|| {
            for number in 0..8 {
                let sge = client.mr.slice(HALF, 8);
                client.verbs.post_send(client.qp, &SendWr::send(number, sge)).unwrap();
                client.assert_done(number, WqeOp::Send, 8);
            }
            enough.store(true, SeqCst);
        });
        // The stranger goes once all of that is done: if it has to wait, the time is over first.
        let refused = server.verbs.accept_over(next, &mut stream);
        assert!(matches!(refused, Err(SetUpError::Stream(_))), "{refused:?}");
    });
    for number in 0..8 {
        server.assert_done(number, WqeOp::Recv, 8);
    }
}
