//! Several applications on one host: each has its share of the pools, and its own PID.

use core::time::Duration;

use rma_core::gate::{Gate as _, Peer};
use rma_tests::hosts::{CLIENT_PID, Hosts};
use rma_xdp::{
    Grant, HostError, OpStatus, OpType, Permissions, Pid, Quotas, RegionKey, Tenant, TenantConfig,
    config::{NicConfigBuilder, Timing},
    tenant::{AllocationError, Priority, Quota},
};

fn hosts() -> Hosts {
    // Longer than a busy machine stalls between two lines of a test.
    let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(5));
    Hosts::over_udp(NicConfigBuilder::default().with(|it| it.timing = timing))
}

fn grant(hosts: &Hosts, pid: Pid) -> Grant {
    let region = hosts.server().register(4096, Permissions::READ).unwrap();
    hosts.server().grant(&region, hosts.client_addr, pid, OpType::Read).unwrap()
}

fn slots(tenant: &Tenant, hosts: &Hosts) -> (u64, u64) {
    let usage = hosts.client.for_tenant(tenant).usage().unwrap().slots;
    (usage.used, usage.available)
}

#[test]
fn slots_of_a_dropped_portal_count_until_its_last_op_is_over() {
    let mut hosts = hosts();
    let grant = grant(&hosts, CLIENT_PID);
    hosts.server = None;
    let quotas = Quotas::default().with(|it| it.slots = Quota::new(4, 8));
    let config = TenantConfig::named("batch").with(|it| it.quotas = quotas);
    let tenant = hosts.client.tenant(config).unwrap();
    let mut portal = hosts.client.for_tenant(&tenant).portal(8).unwrap();
    let sink = hosts.client.for_tenant(&tenant).register(64, Permissions::NONE).unwrap();
    portal.read(&grant, 0, &sink, 0, 64).unwrap();
    assert_eq!(slots(&tenant, &hosts), (8, 0));
    // A command that the engine has not taken yet would be gone with its portal.
    while hosts.client.engines()[0].counters.frames_sent() == 0 {
        std::thread::yield_now();
    }
    drop(portal);
    assert_eq!(slots(&tenant, &hosts), (8, 0), "its op is in flight for 5 s");
    // Waits for the op, and then they are there.
    let portal = hosts.client.for_tenant(&tenant).portal(6).unwrap();
    assert_eq!(slots(&tenant, &hosts), (6, 2));
    let refused = hosts.client.for_tenant(&tenant).portal(3).unwrap_err().to_string();
    assert!(refused.contains("`batch` has 6 of the 8"), "{refused}");
    drop(portal);
    assert_eq!(slots(&tenant, &hosts), (0, 8));
}

#[test]
fn a_tenant_that_reads_into_nowhere_leaves_its_neighbour_a_share_of_the_window() {
    let hosts = hosts();
    let [bad, neighbour] =
        ["bad", "neighbour"].map(|name| hosts.client.tenant(TenantConfig::named(name)).unwrap());
    let grant = grant(&hosts, CLIENT_PID);
    let nowhere = Grant { responder: [127, 255, 255, 1].into(), ..grant };
    let mut useless = hosts.client.for_tenant(&bad).portal(128).unwrap();
    let sink = hosts.client.for_tenant(&bad).register(4096, Permissions::NONE).unwrap();
    // As soon as both have slots, the window is shared.
    let mut portal = hosts.client.for_tenant(&neighbour).portal(1).unwrap();
    for _ in 0..128 {
        useless.read(&nowhere, 0, &sink, 0, 4096).unwrap();
    }
    // Its floor of what is for reads, and what is nobody's: 24 of them.
    while hosts.client.engines()[0].counters.frames_sent() < 24 {
        std::thread::yield_now();
    }
    let sink = hosts.client.for_tenant(&neighbour).register(64, Permissions::NONE).unwrap();
    for _ in 0..20 {
        portal.read(&grant, 0, &sink, 0, 64).unwrap();
        assert_eq!(portal.wait().unwrap().status, OpStatus::Ok);
    }
    assert_eq!(useless.outstanding(), 128, "none of its own has ended");
}

#[test]
fn a_tenant_has_its_own_pid_and_no_use_of_the_regions_of_others() {
    let hosts = hosts();
    let pid = Pid(77);
    let config = TenantConfig::named("serving").with(|it| it.pid = Some(pid));
    let tenant = hosts.client.tenant(config).unwrap();
    assert_eq!((tenant.pid(), tenant.name()), (pid, "serving"));
    let grant = grant(&hosts, pid);
    let mut portal = hosts.client.for_tenant(&tenant).portal(1).unwrap();
    assert_eq!(portal.pid(), pid);
    let [own, anothers] = [
        hosts.client.for_tenant(&tenant).register(64, Permissions::NONE).unwrap(),
        hosts.client.register(64, Permissions::NONE).unwrap(),
    ];
    for (sink, status) in [(&own, OpStatus::Ok), (&anothers, OpStatus::InvalidCommand)] {
        portal.read(&grant, 0, sink, 0, 64).unwrap();
        assert_eq!(portal.wait().unwrap().status, status);
    }
    let elsewhere = hosts.server().for_tenant(&tenant).portal(1).unwrap_err();
    let HostError::Allocation(AllocationError::TenantOfAnotherHost { .. }) = elsewhere else {
        panic!("{elsewhere}")
    };
}

#[test]
fn regions_and_bytes_have_quotas_and_memory_beyond_them_is_not_even_touched() {
    let hosts = hosts();
    let quotas = Quotas::default().with(|it| {
        it.regions = Quota::new(2, 2);
        it.bytes = Quota::new(0, 1 << 20);
    });
    let config = TenantConfig::named("batch").with(|it| {
        it.quotas = quotas;
        it.priority = Priority::Low;
    });
    let tenant = hosts.client.tenant(config).unwrap();
    let register = |len| hosts.client.for_tenant(&tenant).register(len, Permissions::NONE);
    // More than any machine has.
    let refused = register(1 << 46).unwrap_err().to_string();
    assert!(refused.contains("registered bytes were asked for"), "{refused}");
    let first = register(1 << 19).unwrap();
    let refused = register((1 << 19) + 1).unwrap_err().to_string();
    assert!(refused.contains("has 524288 of the 1048576"), "{refused}");
    let _second = register(1 << 19).unwrap();
    let refused = register(1).unwrap_err().to_string();
    assert!(refused.contains("1 regions were asked for"), "{refused}");
    hosts.client.deregister(&first).unwrap();
    assert!(register(1 << 19).is_ok());
}

#[test]
fn a_tenant_neither_grants_nor_rekeys_nor_takes_back_a_region_of_another() {
    let hosts = hosts();
    let [ours, others] = ["ours", "others"].map(|name| {
        let tenant = hosts.client.tenant(TenantConfig::named(name)).unwrap();
        let region = hosts.client.for_tenant(&tenant).register(64, Permissions::READ).unwrap();
        (tenant, region)
    });
    let peer = Peer { address: hosts.client_addr, pid: CLIENT_PID };
    let as_ours = hosts.client.for_tenant(&ours.0);
    for (region, is_own) in [(&others.1, false), (&ours.1, true)] {
        assert_eq!(as_ours.grant(region, peer, OpType::Read).is_ok(), is_own);
        assert_eq!(as_ours.rekey(region, RegionKey::from_bytes([1; 16])).is_ok(), is_own);
        assert_eq!(as_ours.deregister(region).is_ok(), is_own);
    }
    hosts.client.deregister(&others.1).unwrap();
}

#[test]
fn a_reservation_comes_back_with_the_last_handle_portal_and_region() {
    let hosts = hosts();
    let quotas = Quotas::default().with(|it| it.slots = Quota::new(1000, 1000));
    let config = TenantConfig::named("serving").with(|it| it.quotas = quotas);
    let tenant = hosts.client.tenant(config).unwrap();
    let all = |hosts: &Hosts| hosts.client.portal(1024).map(drop);
    let refused = all(&hosts).unwrap_err().to_string();
    assert!(
        refused.contains("1024 command slots") && refused.contains("no more than 24:"),
        "{refused}"
    );
    let region = hosts.client.for_tenant(&tenant).register(64, Permissions::NONE).unwrap();
    let portal = hosts.client.for_tenant(&tenant.clone()).portal(10).unwrap();
    drop(tenant);
    assert!(all(&hosts).is_err());
    drop(portal);
    assert!(all(&hosts).is_err());
    hosts.client.deregister(&region).unwrap();
    all(&hosts).unwrap();
}
