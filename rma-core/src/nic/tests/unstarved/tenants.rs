//! The part of a host's tables and turns that one tenant leaves to another, beside what it would
//! leave if both were one.

use super::*;
use crate::{command::RecordedOp, nic::TenantIndex};

/// Both are the host's own, or two tenants.
const PARTIES: [[usize; 2]; 2] = [[0, 0], [1, 2]];

/// The first slot of the neighbour.
const NEIGHBOUR: u16 = 256;

/// Hosts of which [`TARGET`] has slots of two parties.
fn net_of(parties: [usize; 2]) -> Net {
    let mut net = Net::new(4, NicConfigBuilder::default());
    let [bad, neighbour] = parties.map(TenantIndex::of);
    let nic = &mut net.hosts[TARGET].nic;
    nic.configure_slots_of(0..NEIGHBOUR, Some(PID), bad);
    nic.configure_slots_of(NEIGHBOUR..NEIGHBOUR + 8, Some(PID), neighbour);
    net
}

/// A region of one of these at [`TARGET`].
fn region_of(net: &mut Net, party: usize) -> RegionId {
    let Host { nic, memory, key, .. } = &mut net.hosts[TARGET];
    let entry = RegionEntry::new(memory.clone(), key, ALL, PID);
    let entry = entry.of_tenant(TenantIndex::of(party));
    nic.regions_mut().register(Box::new(entry)).unwrap()
}

/// Goes on until the op in `slot` of `at` has ended.
fn end_of(net: &mut Net, at: At, slot: u16) -> OpStatus {
    loop {
        net.turn();
        if let Some(it) = net.completions(at).iter().find(|it| it.slot.0 == slot) {
            return it.status;
        }
    }
}

//= channels#P13-no-starvation
//= type=test
#[test]
fn reads_of_a_tenant_into_nowhere_leave_its_neighbour_a_share_of_the_window() {
    for (parties, status, debited) in [
        (PARTIES[0], OpStatus::DispatchTimeout, 256 << 10),
        // Of what is for reads, its floor and what is nobody's.
        (PARTIES[1], OpStatus::Ok, (128 << 10) / 4 * 3),
    ] {
        let mut net = net_of(parties);
        net.deaf.push(USELESS);
        let useless = Load::start(&mut net, (TARGET, USELESS), OpType::Read, NEIGHBOUR);
        net.pass(Duration::from_millis(1));
        assert_eq!(net.most_debited, debited, "{parties:?}");
        let read = net.command((TARGET, SERVER), NEIGHBOUR, OpType::Read);
        net.issue(TARGET, read);
        assert_eq!(end_of(&mut net, TARGET, NEIGHBOUR), status, "{parties:?}");
        if parties != PARTIES[0] {
            // Others' writes to the host find room, too.
            net.issue(HONEST, net.command((HONEST, TARGET), 0, OpType::Write));
            assert_eq!(end_of(&mut net, HONEST, 0), OpStatus::Ok);
        }
        drop(useless);
    }
}

#[test]
fn a_neighbours_reads_go_on_as_long_as_a_tenant_reads_into_nowhere() {
    let mut net = net_of(PARTIES[1]);
    net.deaf.push(USELESS);
    let mut ok = 0;
    let issue = |net: &mut Net, slot: u16| {
        let to = if slot < NEIGHBOUR { USELESS } else { SERVER };
        net.issue(TARGET, net.command((TARGET, to), slot, OpType::Read));
    };
    (0..NEIGHBOUR + 1).for_each(|slot| issue(&mut net, slot));
    let until = net.now + Duration::from_millis(250);
    while net.now < until {
        net.turn();
        for completion in net.completions(TARGET) {
            let slot = completion.slot.0;
            if slot >= NEIGHBOUR {
                assert_eq!(completion.status, OpStatus::Ok, "after {ok}");
                ok += 1;
            }
            issue(&mut net, slot);
        }
        let shed = net.hosts[TARGET].nic.counters().shed_with_room();
        assert_eq!(shed, 0, "who waits for its share is not shed for want of processor");
    }
    assert!(ok > 5_000, "{ok}");
}

//= channels#P13-no-starvation
//= type=test
#[test]
fn owners_of_regions_take_turns_before_the_initiators_that_they_make_up_do() {
    let place = |parties: [usize; 2]| {
        let mut net = net_of(parties);
        let [bad, neighbour] = parties.map(|party| region_of(&mut net, party));
        let small = NicConfigBuilder {
            pending_writes: 4,
            outcome_records: 4,
            ..NicConfigBuilder::default()
        };
        for number in 0..240 {
            // A holder of K_r has K_d of every address.
            net.hosts[USELESS] = Host::new(&format!("198.51.100.{}", number + 1), small);
            let command = net.command((USELESS, TARGET), 0, OpType::Read);
            net.issue(USELESS, Command { remote_region: bad, ..command });
            let request = net.hosts[USELESS].transmit(net.now).remove(0);
            let nic = &mut net.hosts[TARGET].nic;
            deliver(nic, net.now, &request, wire::FRAME_LEN_MAX).unwrap();
        }
        let command = net.command((HONEST, TARGET), 0, OpType::Read);
        net.issue(HONEST, Command { remote_region: neighbour, ..command });
        let request = net.hosts[HONEST].transmit(net.now).remove(0);
        deliver(&mut net.hosts[TARGET].nic, net.now, &request, wire::FRAME_LEN_MAX).unwrap();
        let honest = net.hosts[HONEST].addr;
        let answers = net.hosts[TARGET].transmit(net.now);
        answers.iter().position(|it| it.transmit.destination == honest).unwrap()
    };
    let (as_one, as_two) = (place(PARTIES[0]), place(PARTIES[1]));
    assert!(as_one > 40, "{as_one} frames: one of each list");
    assert!(as_two <= 4, "{as_two} frames: those of one op");
}

/// A client whose request has come under the key that its region had a moment ago is told so.
//= channels#P13-no-starvation
//= type=test
#[test]
fn rekeys_of_a_tenant_leave_the_previous_keys_of_its_neighbour() {
    for (parties, is_told) in [(PARTIES[0], false), (PARTIES[1], true)] {
        let mut net = net_of(parties);
        let neighbour = region_of(&mut net, parties[1]);
        let others: Vec<_> = (0..256).map(|_| region_of(&mut net, parties[0])).collect();
        let new = RegionKey::from_bytes([9; 16]);
        let regions = net.hosts[TARGET].nic.regions_mut();
        regions.rekey(neighbour, &new).unwrap();
        for other in others {
            regions.rekey(other, &new).unwrap();
        }
        let command = net.command((HONEST, TARGET), 0, OpType::Read);
        net.issue(HONEST, Command { remote_region: neighbour, ..command });
        net.exchange(HONEST, TARGET);
        let old = net.hosts[TARGET].nic.counters().drops(DropReason::OldKey);
        assert_eq!(old == 1, is_told, "{parties:?}");
    }
}

/// Reads wait in one place while a host has several tenants, and in another while it has one.
#[test]
fn reads_that_wait_are_not_overtaken_where_a_tenant_comes_or_remains_alone() {
    let issue = |net: &mut Net, slots: core::ops::Range<u16>| {
        for slot in slots {
            net.issue(TARGET, net.command((TARGET, SERVER), slot, OpType::Read));
        }
    };
    for comes in [false, true] {
        let mut net = net_of(PARTIES[1]);
        let neighbour = |net: &mut Net, pid| {
            let nic = &mut net.hosts[TARGET].nic;
            nic.configure_slots_of(NEIGHBOUR..NEIGHBOUR + 8, pid, TenantIndex::of(PARTIES[1][1]));
        };
        // More than there is window for, in its share or at all.
        neighbour(&mut net, Some(PID).filter(|_| !comes));
        issue(&mut net, 0..100);
        net.turn();
        neighbour(&mut net, Some(PID).filter(|_| comes));
        net.now = net.now + Duration::from_nanos(1);
        issue(&mut net, 100..150);
        net.pass(Duration::from_millis(2));
        let completions = net.completions(TARGET);
        let slots: Vec<u16> = completions.iter().map(|it| it.slot.0).collect();
        assert!(completions.iter().all(|it| it.status == OpStatus::Ok), "{completions:?}");
        assert_eq!(slots.len(), 150);
        assert!(slots.is_sorted(), "a tenant comes: {comes}; {slots:?}");
    }
}

/// A backend that looks for the ways to hosts goes by that.
#[test]
fn a_frame_names_the_tenant_that_it_goes_for() {
    let mut net = net_of(PARTIES[1]);
    let [bad, neighbour] = PARTIES[1];
    let tenants = |net: &mut Net, at: At| -> Vec<usize> {
        net.hosts[at].transmit(net.now).iter().map(|it| it.transmit.tenant.index()).collect()
    };
    for (slot, party) in [(0, bad), (NEIGHBOUR, neighbour)] {
        net.issue(TARGET, net.command((TARGET, SERVER), slot, OpType::Write));
        assert_eq!(tenants(&mut net, TARGET), [party], "a request");
    }
    for party in [bad, neighbour] {
        let region = region_of(&mut net, party);
        for op_type in [OpType::Read, OpType::Write] {
            let command = net.command((HONEST, TARGET), 0, op_type);
            net.issue(HONEST, Command { remote_region: region, ..command });
            let request = net.hosts[HONEST].transmit(net.now).remove(0);
            let nic = &mut net.hosts[TARGET].nic;
            deliver(nic, net.now, &request, wire::FRAME_LEN_MAX).unwrap();
            let sent = tenants(&mut net, TARGET);
            assert!(!sent.is_empty() && sent.iter().all(|&it| it == party), "{op_type}: {sent:?}");
            net.now = net.now + Duration::from_secs(1);
            let nic = &mut net.hosts[HONEST].nic;
            nic.handle_timeout(net.now);
            assert!(nic.poll_completion().is_some());
        }
        // The solicitation, then the result; a refusal.
        for (remote_offset, frames) in [(0, 2), (1 << 40, 1)] {
            let add = RecordedOp::FetchAdd { remote_offset, addend: 1 };
            let command = net.recorded((HONEST, TARGET), 0, add);
            net.issue(HONEST, Command { remote_region: region, ..command });
            let mut sent = Vec::new();
            while let [frame] = &net.hosts[HONEST].transmit(net.now)[..] {
                let nic = &mut net.hosts[TARGET].nic;
                let _ = deliver(nic, net.now, frame, wire::FRAME_LEN_MAX);
                for answer in net.hosts[TARGET].transmit(net.now) {
                    sent.push(answer.transmit.tenant.index());
                    let nic = &mut net.hosts[HONEST].nic;
                    deliver(nic, net.now, &answer, wire::FRAME_LEN_MAX).unwrap();
                }
            }
            assert_eq!(sent, vec![party; frames]);
            assert!(net.hosts[HONEST].nic.poll_completion().is_some());
        }
    }
}
