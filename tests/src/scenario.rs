//! Scenarios: what must hold between any two hosts, whatever carries their frames.

use core::time::Duration;
use std::net::UdpSocket;

use rma_lab::Pattern;
use rma_xdp::{
    Grant, HostError, OpStatus, OpType, Permissions, Pid, Portal, RegionKey, RegisteredRegion,
    SubmitError,
    crypto::{DerivedRegionKey, random_region_key},
    memory::{RegionError, RegionId},
    metrics::DropReason,
    ops::{ClassOfService, ReadOp, WriteOp},
    tenant::{AllocationError, Resource},
    time::{Clock, TscClock},
};

use crate::hosts::{CLIENT_PID, Hosts};

/// A served region, a granted client, a place for data.
struct Scene {
    region: RegisteredRegion,
    grant: Grant,
    portal: Portal,
    sink: RegisteredRegion,
    pattern: Pattern,
}

const REGION_LEN: usize = 1 << 20;

/// How long an op is waited for that may never end.
const PATIENCE: Duration = Duration::from_secs(60);

impl Scene {
    fn new(hosts: &Hosts) -> Self {
        let region = hosts.server().register(REGION_LEN, Permissions::READ).expect("a region");
        let pattern = Pattern::new(42);
        pattern.fill_region(&region);
        let grant = hosts
            .server()
            .grant(&region, hosts.client_addr, CLIENT_PID, OpType::Read)
            .expect("the region is registered");
        let portal = hosts.client.portal(8).expect("free slots");
        let sink = hosts.client.register(8 * 4096, Permissions::NONE).expect("a region");
        Self { region, grant, portal, sink, pattern }
    }

    /// Reads and returns how it ended.
    fn read(&mut self, grant: &Grant, offset: u64, size: u32) -> OpStatus {
        self.portal.read(grant, offset, &self.sink, 0, size).expect("a sensible op");
        self.portal.wait().expect("an op is in flight").status
    }

    fn assert_read(&mut self, offset: u64, size: u32) {
        let grant = self.grant;
        assert_eq!(self.read(&grant, offset, size), OpStatus::Ok, "{size} bytes at {offset}");
        let mut arrived = vec![0; size as usize];
        self.sink.read(0, &mut arrived).expect("inside the sink");
        assert_eq!(self.pattern.first_difference(offset, &arrived), None, "{size} at {offset}");
    }
}

/// Everything that must hold, in turn.
pub fn everything(hosts: &mut Hosts) {
    reads_of_every_kind_of_size_arrive(hosts);
    both_classes_and_many_ops_at_once(hosts);
    many_portals_and_many_regions(hosts);
    a_refusal_by_the_responder_has_its_own_status(hosts);
    writes_of_every_kind_of_size_arrive_and_change_nothing_else(hosts);
    writes_and_reads_of_both_classes_at_once(hosts);
    a_rekey_fails_the_old_keys_of_its_region_alone(hosts);
    a_host_may_use_its_own_regions(hosts);
    resources_are_finite_and_come_back(hosts);
    a_portal_dropped_in_mid_flight_gives_its_slots_back(hosts);
    several_threads_each_with_a_portal(hosts);
    garbage_is_counted_and_nothing_is_lost(hosts);
    a_dead_peer_is_a_timeout(hosts);
}

/// Sizes around every boundary, at odd places.
pub fn reads_of_every_kind_of_size_arrive(hosts: &Hosts) {
    let mut scene = Scene::new(hosts);
    for size in [1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 1407, 1408, 1424, 1425, 2048, 4095, 4096] {
        for offset in [0, 1, 4093, REGION_LEN as u64 - u64::from(size)] {
            scene.assert_read(offset, size);
        }
    }
    hosts.server().deregister(&scene.region).expect("registered");
    hosts.client.deregister(&scene.sink).expect("registered");
}

/// Portals and regions by the hundred: most are quiet, and any may be used next. After a pause each
/// is served as at first, and a thread that sleeps is woken.
pub fn many_portals_and_many_regions(hosts: &Hosts) {
    // One of four engines has room for 128 requests, and may get them all at once.
    const COUNT: usize = 120;
    let sink = hosts.client.register(4096, Permissions::NONE).expect("a region");
    let mut portals: Vec<_> =
        (0..COUNT).map(|_| hosts.client.portal(1).expect("free slots")).collect();
    let regions: Vec<_> = (0..COUNT)
        .map(|number| {
            let region = hosts.server().register(4096, Permissions::READ).expect("a region");
            region.write(8, &[number as u8; 8]).expect("inside the region");
            let grant = hosts.server().grant(&region, hosts.client_addr, CLIENT_PID, OpType::Read);
            (region, grant.expect("the region is registered"))
        })
        .collect();
    for round in 0..3 {
        // All together, each of another region, and then one after the other.
        for (index, portal) in portals.iter_mut().enumerate() {
            let number = (index * 7 + round) % COUNT;
            portal.read(&regions[number].1, 8, &sink, index as u64 * 8, 8).expect("a sensible op");
        }
        for (index, portal) in portals.iter_mut().enumerate() {
            assert_eq!(portal.wait().expect("an op is in flight").status, OpStatus::Ok);
            let mut arrived = [0; 8];
            sink.read(index as u64 * 8, &mut arrived).expect("inside the sink");
            assert_eq!(arrived, [((index * 7 + round) % COUNT) as u8; 8], "portal {index}");
        }
        for index in [0, COUNT / 2, COUNT - 1] {
            // Longer than an engine watches a portal that issues nothing.
            let (clock, pause) = (TscClock::new(), Duration::from_millis(3));
            while Duration::from_nanos(clock.now().as_nanos()) < pause {
                std::thread::yield_now();
            }
            portals[index].read(&regions[index].1, 8, &sink, 0, 8).expect("a sensible op");
            assert_eq!(portals[index].wait().expect("an op is in flight").status, OpStatus::Ok);
        }
        // Some go, and others come in their place.
        portals.truncate(COUNT - 10);
        portals.extend((0..10).map(|_| hosts.client.portal(1).expect("free slots")));
    }
    drop(portals);
    for (region, _) in &regions {
        hosts.server().deregister(region).expect("registered");
    }
    hosts.client.deregister(&sink).expect("registered");
}

/// A full portal, over and over, in both classes.
pub fn both_classes_and_many_ops_at_once(hosts: &Hosts) {
    let mut scene = Scene::new(hosts);
    let slots = scene.portal.slots().clone();
    for round in 0..200_u64 {
        for (index, _) in slots.clone().enumerate() {
            let class = ClassOfService::ALL[(index + round as usize) % 2];
            let slot = scene.portal.next_slot().expect("a free slot");
            let sink_offset = u64::from(slot.0 - slots.start) * 4096;
            let op = ReadOp {
                grant: &scene.grant,
                remote_offset: round * 4096 + sink_offset % 977,
                sink: &scene.sink,
                sink_offset,
                op_size: 4096,
                class,
            };
            scene.portal.issue_read(&op).expect("a sensible op");
        }
        let full = scene.portal.read(&scene.grant, 0, &scene.sink, 0, 1);
        assert_eq!(full, Err(SubmitError::NoFreeCommandSlot { slots: 8 }));
        for _ in slots.clone() {
            let completion = scene.portal.wait().expect("ops are in flight");
            assert_eq!(completion.status, OpStatus::Ok);
            let sink_offset = u64::from(completion.slot.0 - slots.start) * 4096;
            let mut arrived = [0; 4096];
            scene.sink.read(sink_offset, &mut arrived).expect("inside the sink");
            let remote = round * 4096 + sink_offset % 977;
            assert_eq!(scene.pattern.first_difference(remote, &arrived), None);
            assert!(completion.issue_delay() <= completion.total_delay());
        }
    }
}

/// Wrong key, unknown region, bounds, permission: each its status, and good ops go on.
pub fn a_refusal_by_the_responder_has_its_own_status(hosts: &Hosts) {
    let mut scene = Scene::new(hosts);
    let good = scene.grant;
    let len = REGION_LEN as u64;
    let wrong_key = Grant { key: DerivedRegionKey::from_bytes([7; 16]), ..good };
    assert_eq!(scene.read(&wrong_key, 0, 64), OpStatus::RemoteAuthenticationFailure);
    let no_region = Grant { region: RegionId::from_bits(0xffff_fffe), ..good };
    assert_eq!(scene.read(&no_region, 0, 64), OpStatus::RemoteAuthenticationFailure);
    for (offset, size) in [(len, 1), (len - 1, 2), (u64::MAX, 1), (u64::MAX - 4095, 4096)] {
        assert_eq!(scene.read(&good, offset, size), OpStatus::RemoteOutOfBounds);
    }
    let closed = hosts.server().register(4096, Permissions::NONE).expect("a region");
    let closed = hosts.server().grant(&closed, hosts.client_addr, CLIENT_PID, OpType::Read);
    let closed = closed.expect("registered");
    assert_eq!(scene.read(&closed, 0, 64), OpStatus::RemotePermissionDenied);
    for op_size in [0, 4097] {
        let refused = scene.portal.read(&good, 0, &scene.sink, 0, op_size);
        assert_eq!(refused, Err(SubmitError::OpSize { op_size }));
    }
    let refused = scene.portal.read(&good, 0, &scene.sink, u64::MAX, 2);
    assert!(matches!(refused, Err(SubmitError::LocalOutOfBounds { .. })), "{refused:?}");
    let another = Grant { pid: Pid(CLIENT_PID.0 + 1), ..good };
    let refused = scene.portal.read(&another, 0, &scene.sink, 0, 1);
    assert!(matches!(refused, Err(SubmitError::GrantForAnotherProcess { .. })), "{refused:?}");
    // The memory is still there through `sink`, its registration is not.
    let gone = hosts.client.register(4096, Permissions::NONE).expect("a region");
    hosts.client.deregister(&gone).expect("registered");
    scene.portal.read(&good, 0, &gone, 0, 64).expect("the portal does not know the table");
    let completion = scene.portal.wait().expect("an op is in flight");
    assert_eq!(completion.status, OpStatus::InvalidCommand);
    scene.assert_read(0, 64);
    // A region that is taken away looks like one that never was.
    hosts.server().deregister(&scene.region).expect("registered");
    assert_eq!(scene.read(&good, 0, 64), OpStatus::RemoteAuthenticationFailure);
}

/// A region that may be written, with what it should hold; and grants for all types of op.
struct Target {
    region: RegisteredRegion,
    grants: [Grant; OpType::ALL.len()],
    model: Vec<u8>,
    portal: Portal,
    local: RegisteredRegion,
}

impl Target {
    fn new(hosts: &Hosts) -> Self {
        let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
        let region = hosts.server().register(REGION_LEN, all).expect("a region");
        let model: Vec<u8> = (0..REGION_LEN).map(|at| ((at * 13) >> 4) as u8).collect();
        region.write(0, &model).expect("inside the region");
        let grants = OpType::ALL.map(|op_type| {
            let grant = hosts.server().grant(&region, hosts.client_addr, CLIENT_PID, op_type);
            grant.expect("the region is registered")
        });
        let portal = hosts.client.portal(8).expect("free slots");
        let local = hosts.client.register(8 * 4096, Permissions::NONE).expect("a region");
        Self { region, grants, model, portal, local }
    }

    const fn grant(&self, op_type: OpType) -> Grant {
        self.grants[op_type.index()]
    }

    fn wait(&mut self) -> OpStatus {
        self.portal.wait().expect("an op is in flight").status
    }

    fn read(&mut self) -> OpStatus {
        let grant = self.grant(OpType::Read);
        self.portal.read(&grant, 0, &self.local, 0, 64).expect("a sensible op");
        self.wait()
    }

    fn assert_model(&self) {
        let mut bytes = vec![0; REGION_LEN];
        self.region.read(0, &mut bytes).expect("inside the region");
        let difference = bytes.iter().zip(&self.model).position(|(found, known)| found != known);
        assert_eq!(difference, None, "the first byte that is not as it should be");
    }

    fn end(self, hosts: &Hosts) {
        hosts.server().deregister(&self.region).expect("registered");
        hosts.client.deregister(&self.local).expect("registered");
    }
}

/// Sizes around every boundary, at odd places; every byte of the region is looked at.
pub fn writes_of_every_kind_of_size_arrive_and_change_nothing_else(hosts: &Hosts) {
    let mut target = Target::new(hosts);
    let grant = target.grant(OpType::Write);
    for (index, size) in
        [1, 2, 63, 64, 65, 127, 1408, 1424, 1425, 2048, 4095, 4096].into_iter().enumerate()
    {
        for offset in [0, 1, 4093, REGION_LEN as u64 - u64::from(size)] {
            let data = vec![index as u8 ^ offset as u8; size as usize];
            target.local.write(17, &data).expect("inside the local region");
            target.portal.write(&grant, offset, &target.local, 17, size).expect("a sensible op");
            assert_eq!(target.wait(), OpStatus::Ok, "{size} bytes at {offset}");
            target.model[offset as usize..][..size as usize].copy_from_slice(&data);
        }
        target.assert_model();
    }
    // A refused op changes nothing.
    let len = REGION_LEN as u64;
    for (offset, size) in [(len, 1), (len - 1, 2), (u64::MAX, 1)] {
        target.portal.write(&grant, offset, &target.local, 0, size).expect("a sensible op");
        assert_eq!(target.wait(), OpStatus::RemoteOutOfBounds);
    }
    let closed = hosts.server().register(4096, Permissions::READ).expect("a region");
    let op_type = OpType::Write;
    let denied = hosts.server().grant(&closed, hosts.client_addr, CLIENT_PID, op_type);
    target.portal.write(&denied.expect("registered"), 0, &target.local, 0, 1).expect("sensible");
    assert_eq!(target.wait(), OpStatus::RemotePermissionDenied);
    hosts.server().deregister(&closed).expect("registered");
    target.assert_model();
    target.end(hosts);
}

/// A full portal of reads and writes, over and over.
pub fn writes_and_reads_of_both_classes_at_once(hosts: &Hosts) {
    let mut target = Target::new(hosts);
    let [to_read, to_write] = [OpType::Read, OpType::Write].map(|it| target.grant(it));
    for round in 0..200_u64 {
        for index in 0..8_u64 {
            let class = ClassOfService::ALL[((index + round) % 2) as usize];
            let (local_offset, remote_offset) =
                (index * 4096, (round * 8 + index) * 4096 % REGION_LEN as u64);
            if index % 4 < 2 {
                let data = [round as u8 ^ index as u8; 4096];
                target.local.write(local_offset, &data).expect("inside");
                target.model[remote_offset as usize..][..4096].copy_from_slice(&data);
                let op = WriteOp {
                    grant: &to_write,
                    remote_offset,
                    source: &target.local,
                    source_offset: local_offset,
                    op_size: 4096,
                    class,
                };
                target.portal.issue_write(&op).expect("a free slot");
            } else {
                let op = ReadOp {
                    grant: &to_read,
                    remote_offset,
                    sink: &target.local,
                    sink_offset: local_offset,
                    op_size: 4096,
                    class,
                };
                target.portal.issue_read(&op).expect("a free slot");
            }
        }
        for _ in 0..8 {
            assert_eq!(target.wait(), OpStatus::Ok);
        }
    }
    target.assert_model();
    target.end(hosts);
}

//= 1rma#5.2-predistributed
//= type=test
/// Rotations: from here, by the Rekey op, with grants handed out beforehand and without.
pub fn a_rekey_fails_the_old_keys_of_its_region_alone(hosts: &Hosts) {
    let mut target = Target::new(hosts);
    let mut other = Target::new(hosts);
    let remote = |target: &mut Target, key: &RegionKey| {
        let grant = target.grant(OpType::Rekey);
        target.portal.rekey(&grant, *key).expect("a free slot");
        assert_eq!(target.wait(), OpStatus::Ok);
    };
    for round in 0..10 {
        let key = random_region_key().expect("the kernel has random numbers");
        let next = target.grants.map(|grant| grant.under(&key));
        assert_eq!(target.read(), OpStatus::Ok);
        if round % 2 == 0 {
            remote(&mut target, &key);
        } else {
            hosts.server().rekey(&target.region, key).expect("registered");
        }
        assert_eq!(target.read(), OpStatus::RemoteAuthenticationFailure);
        let (old, local) = (target.grant(OpType::Write), target.local.clone());
        target.portal.write(&old, 0, &local, 0, 64).expect("a free slot");
        assert_eq!(target.wait(), OpStatus::RemoteAuthenticationFailure);
        assert_eq!(other.read(), OpStatus::Ok, "another region");
        target.grants = next;
        assert_eq!(target.read(), OpStatus::Ok);
        let now = hosts.server().grant(&target.region, hosts.client_addr, CLIENT_PID, OpType::Read);
        assert_eq!(now.expect("registered"), target.grant(OpType::Read), "the host knows the key");
    }
    target.assert_model();
    target.end(hosts);
    other.end(hosts);
}

/// A host is a peer like any other to itself, over whatever device.
pub fn a_host_may_use_its_own_regions(hosts: &Hosts) {
    let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
    let region = hosts.client.register(8192, all).expect("a region");
    let grant = |op_type| {
        let grant = hosts.client.grant(&region, hosts.client_addr, CLIENT_PID, op_type);
        grant.expect("registered")
    };
    let mut portal = hosts.client.portal(4).expect("free slots");
    region.write(0, &[5; 4096]).expect("inside");
    portal.write(&grant(OpType::Write), 4096, &region, 0, 4096).expect("a free slot");
    assert_eq!(portal.wait().expect("in flight").status, OpStatus::Ok);
    let mut bytes = [0; 4096];
    region.read(4096, &mut bytes).expect("inside");
    assert_eq!(bytes, [5; 4096]);
    let key = random_region_key().expect("the kernel has random numbers");
    portal.rekey(&grant(OpType::Rekey), key).expect("a free slot");
    assert_eq!(portal.wait().expect("in flight").status, OpStatus::Ok);
    portal.read(&grant(OpType::Read), 4096, &region, 0, 64).expect("a free slot");
    assert_eq!(portal.wait().expect("in flight").status, OpStatus::Ok);
    hosts.client.deregister(&region).expect("registered");
}

/// Full tables are clear errors; what is given back can be had again.
pub fn resources_are_finite_and_come_back(hosts: &Hosts) {
    let slots = hosts.client.engines().into_iter().map(|it| it.slots.len() as u16);
    let (engines, capacity) = (slots.clone().count(), slots.max().expect("an engine"));
    let refused = hosts.client.portal(0);
    let none = HostError::Allocation(AllocationError::NoSlots);
    assert_eq!(refused.expect_err("no slots").to_string(), none.to_string());
    // All other engines' slots are in use.
    let others: Vec<_> =
        (1..engines).map(|_| hosts.client.portal(capacity).expect("an engine's")).collect();
    let most = hosts.client.portal(capacity - 16).expect("nearly all slots");
    let refused = hosts.client.portal(17).expect_err("more than are free");
    assert!(refused.to_string().contains("17 command slots were asked for"), "{refused}");
    let rest = hosts.client.portal(16).expect("the rest");
    drop((most, rest, others));
    let all = (0..engines).map(|_| hosts.client.portal(capacity).expect("all of them again"));
    drop(all.collect::<Vec<_>>());

    let mut regions = Vec::new();
    let full = loop {
        match hosts.client.register(1, Permissions::NONE) {
            Ok(region) => regions.push(region),
            Err(full) => break full,
        }
        assert!(regions.len() <= 1024, "the table is finite");
    };
    let HostError::Allocation(AllocationError::PoolEmpty { resource, .. }) = full else {
        panic!("{full}")
    };
    assert_eq!(resource, Resource::Regions);
    for region in &regions {
        hosts.client.deregister(region).expect("registered");
    }
    let twice = hosts.client.deregister(&regions[0]);
    assert!(
        matches!(twice, Err(HostError::Region(RegionError::NotRegistered { .. }))),
        "{twice:?}"
    );
    for len in [0, usize::MAX, 1 << 60] {
        let refused = hosts.client.register(len, Permissions::NONE);
        assert!(refused.is_err(), "{len} bytes");
    }
}

/// Slots of a portal that is dropped with ops in flight come back once the ops are over.
pub fn a_portal_dropped_in_mid_flight_gives_its_slots_back(hosts: &Hosts) {
    for _ in 0..20 {
        let mut scene = Scene::new(hosts);
        for _ in 0..8 {
            scene.portal.read(&scene.grant, 0, &scene.sink, 0, 4096).expect("a free slot");
        }
        drop(scene.portal);
        for engine in hosts.client.engines() {
            drop(hosts.client.portal(engine.slots.len() as u16).expect("all slots of an engine"));
        }
        hosts.client.deregister(&scene.sink).expect("registered");
        hosts.server().deregister(&scene.region).expect("registered");
    }
}

/// Portals are used by one thread each, and do not disturb each other.
pub fn several_threads_each_with_a_portal(hosts: &Hosts) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut scene = Scene::new(hosts);
                for index in 0..300_u64 {
                    scene
                        .assert_read((index * 4099 + thread * 31) % 900_000, 1 + index as u32 * 13);
                }
            });
        }
    });
}

/// Bytes from anybody, to the hosts' port: counted, and the engine goes on.
pub fn garbage_is_counted_and_nothing_is_lost(hosts: &Hosts) {
    let mut scene = Scene::new(hosts);
    let total =
        |hosts: &Hosts| hosts.server().metrics().drops.iter().map(|(_, count)| count).sum::<u64>();
    let before = total(hosts);
    let socket = {
        let _inside = hosts.lab.as_ref().map(|lab| lab.a().enter().expect("namespace a"));
        // From an address of the client's, but not from its port.
        UdpSocket::bind((hosts.client_addr.ip(), 0)).expect("a port")
    };
    let to = (hosts.server_addr.ip(), hosts.port);
    let mut seed = 1_u64;
    for len in (0..1400).step_by(7) {
        let garbage: Vec<u8> = (0..len)
            .map(|at| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                match at {
                    0 => 1,
                    1 => 1 + (len % 4) as u8,
                    _ => (seed >> 33) as u8,
                }
            })
            .collect();
        socket.send_to(&garbage, to).expect("sent");
        scene.assert_read(len as u64, 100);
    }
    let clock = TscClock::new();
    // Every datagram is counted: 200, the empty one among them.
    while total(hosts) < before + 200 {
        let waited = Duration::from_nanos(clock.now().as_nanos());
        assert!(waited < Duration::from_secs(10), "{} counted", total(hosts) - before);
        std::thread::yield_now();
    }
    let drops = hosts.server().metrics().drops;
    assert!(drops.iter().any(|&(it, count)| it == DropReason::Length && count > 0));
    scene.assert_read(5, 4096);
}

/// Every op completes, with TIMEOUT (P1). The server is gone afterwards. When they do is what
/// `rma_figures::death` looks at.
pub fn a_dead_peer_is_a_timeout(hosts: &mut Hosts) {
    // In the lab too, frames for nobody go nowhere: the port is nobody's once the server is gone.
    let (grant, mut portal, sink) = {
        let scene = Scene::new(hosts);
        (scene.grant, scene.portal, scene.sink)
    };
    hosts.server = None;
    let clock = TscClock::new();
    for _ in 0..8 {
        portal.read(&grant, 0, &sink, 0, 64).expect("a free slot");
    }
    for _ in 0..8 {
        let completion = portal.wait_timeout(PATIENCE).expect("ops are in flight");
        assert_eq!(completion.expect("an op ends").status, OpStatus::Timeout);
    }
    assert!(clock.now().as_nanos() >= 1_000_000_000, "no op gives up before its timeout");
}
