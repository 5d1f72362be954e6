//! Records: what who never says that an op is done leaves of them to others, by initiator, by row,
//! and by tenant.

use super::*;
use crate::nic::TenantIndex;

/// The ops of an initiator that shares a region with [`USELESS`].
const FEW: usize = 100;

/// Runs an op of `from` on `region` of the target to its end, in no time.
fn add(net: &mut Net, from: At, region: RegionId) -> OpStatus {
    let command = net.command((from, TARGET), 0, OpType::FetchAdd);
    net.issue(from, Command { remote_region: region, ..command });
    net.exchange(from, TARGET);
    net.hosts[from].nic.poll_completion().expect("it has ended").status
}

/// A counter that two hosts have grants for. One of them adds without pause, and never says that an
/// op is done; the other one adds now and then.
fn honest_ok_of(pause: Duration, before: Duration) -> usize {
    // 4,000 records a second, each kept for 400 ms: more than there are.
    const USELESS_PAUSE: Duration = Duration::from_micros(250);
    let settings = NicConfigBuilder { outcome_records: 256, ..NicConfigBuilder::default() };
    let mut net = Net::new(4, settings);
    let counter = net.hosts[TARGET].region;
    let useless = |net: &mut Net, time: Duration| {
        let until = net.now + time;
        while net.now < until {
            let _ = add(net, USELESS, counter);
            net.now = net.now + USELESS_PAUSE;
        }
    };
    useless(&mut net, before);
    let mut ok = 0;
    for _ in 0..FEW {
        ok += usize::from(add(&mut net, HONEST, counter) == OpStatus::Ok);
        useless(&mut net, pause);
    }
    let refused = net.hosts[TARGET].nic.counters().drops(DropReason::OutcomeRecordShareFull);
    assert!(refused > 100, "there were not enough for all: {refused}");
    ok
}

//= channels#2.5-half-for-an-initiator
//= type=test
//= channels#P13-no-starvation
//= type=test
#[test]
fn a_rare_op_finds_a_record_beside_a_host_that_fills_them() {
    // One that is longer than its own record lasts, and one that is not.
    for pause in [Duration::from_millis(450), Duration::from_millis(10)] {
        let ok = honest_ok_of(pause, Duration::from_millis(500));
        assert_eq!(ok, FEW, "one op in {pause:?}");
    }
}

/// The owner of regions is any number of initiators, and has as many regions.
//= channels#P13-no-starvation
//= type=test
#[test]
fn a_tenants_region_finds_records_beside_all_regions_of_another() {
    let settings = NicConfigBuilder { outcome_records: 256, ..NicConfigBuilder::default() };
    let mut net = Net::new(4, settings);
    let of_tenant = |net: &mut Net, tenant: usize| {
        let Host { nic, memory, key, .. } = &mut net.hosts[TARGET];
        let entry = RegionEntry::new(memory.clone(), key, ALL, PID);
        let entry = entry.of_tenant(TenantIndex::of(tenant));
        nic.regions_mut().register(Box::new(entry)).unwrap()
    };
    let rows: Vec<_> = (0..300).map(|_| of_tenant(&mut net, 1)).collect();
    let neighbour = of_tenant(&mut net, 2);
    for &row in &rows {
        while add(&mut net, USELESS, row) == OpStatus::Ok {}
    }
    let timeout = net.hosts[TARGET].nic.config().settings().timing.timeout;
    for round in 0..3 {
        // Half of its floor, as of one row: of two tenants and whoever comes next each has a sixth.
        let found = (0..FEW).filter(|_| add(&mut net, HONEST, neighbour) == OpStatus::Ok).count();
        assert!(found >= 256 / 6 / 2, "{found} records, round {round}");
        net.now = net.now + timeout * 4;
        for &row in &rows {
            let _ = add(&mut net, USELESS, row);
        }
    }
}
