//! The path table by itself and under concurrent readers.

use std::{collections::BTreeMap, net::Ipv6Addr, thread};

use super::*;

fn host(number: u32) -> HostAddr {
    HostAddr::from(Ipv6Addr::new(
        0xfd00,
        0,
        0,
        0,
        0,
        0,
        (number >> 16) as u16,
        (number & 0xffff) as u16,
    ))
}

/// A path whose every part follows from one number, so that a mixture shows.
fn path(number: u64) -> Path {
    let [.., a, b, c, d, e, f] = number.to_be_bytes();
    let mac = [a, b, c, d, e, f];
    Path { source_mac: mac, next_hop_mac: mac, mtu: number as u32 }
}

#[test]
fn a_path_survives_its_packing_into_words() {
    let path = Path {
        source_mac: [1, 2, 3, 4, 5, 6],
        next_hop_mac: [0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa],
        mtu: 0x1234_5678,
    };
    assert_eq!(Path::from_words(path.to_words()), path);
}

#[test]
fn inserted_paths_are_found_and_removed_ones_are_not() {
    let (table, mut writer) = PathTable::new(1500);
    let v4: HostAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(table.lookup(v4), None);
    writer.insert(v4, path(1)).unwrap();
    writer.insert(host(2), path(2)).unwrap();
    assert_eq!(table.lookup(v4), Some(path(1)));
    assert_eq!(table.lookup(host(2)), Some(path(2)));
    writer.insert(v4, path(3)).unwrap();
    assert_eq!(table.lookup(v4), Some(path(3)));
    assert!(writer.remove(v4));
    assert!(!writer.remove(v4));
    assert_eq!(table.lookup(v4), None);
    assert_eq!(table.lookup(host(2)), Some(path(2)));
}

#[test]
fn a_full_table_refuses_a_new_destination_and_keeps_the_others() {
    let (table, mut writer) = PathTable::new(1500);
    for number in 0..DESTINATIONS_MAX as u32 {
        writer.insert(host(number), path(number.into())).unwrap();
    }
    let full = Err(TableFull { capacity: DESTINATIONS_MAX });
    assert_eq!(writer.insert(host(u32::MAX), path(0)), full);
    // An old destination may still change.
    writer.insert(host(7), path(70)).unwrap();
    for number in 0..DESTINATIONS_MAX as u32 {
        let expected = path(if number == 7 { 70 } else { number.into() });
        assert_eq!(table.lookup(host(number)), Some(expected));
    }
    assert!(writer.remove(host(0)));
    writer.insert(host(u32::MAX), path(1)).unwrap();
    assert_eq!(table.lookup(host(u32::MAX)), Some(path(1)));
}

#[test]
fn the_table_agrees_with_a_map_over_many_insertions_and_removals() {
    let (table, mut writer) = PathTable::new(1500);
    let mut model = BTreeMap::new();
    let mut state = 1u64;
    for step in 0..200_000u64 {
        // An ordinary linear congruential generator: repeatable and enough here.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let destination = host((state >> 33) as u32 % 1500);
        if state >> 63 == 0 {
            let inserted = writer.insert(destination, path(step));
            if model.len() < DESTINATIONS_MAX || model.contains_key(&destination) {
                inserted.unwrap();
                model.insert(destination, step);
            } else {
                assert!(inserted.is_err());
            }
        } else {
            assert_eq!(writer.remove(destination), model.remove(&destination).is_some());
        }
        assert_eq!(table.lookup(destination), model.get(&destination).copied().map(path));
    }
    for number in 0..1500 {
        let expected = model.get(&host(number)).copied().map(path);
        assert_eq!(table.lookup(host(number)), expected);
    }
}

#[test]
fn readers_see_whole_paths_of_the_right_destination_while_the_writer_works() {
    // Numbers of one destination are congruent modulo the number of destinations.
    const DESTINATIONS: u64 = 40;
    const ROUNDS: u64 = 60_000;
    let (table, mut writer) = PathTable::new(1500);
    let stop = AtomicBool::new(false);
    // Never removed: every look must find it.
    let steady = host(1_000_000);
    writer.insert(steady, path(0)).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    for number in 0..DESTINATIONS {
                        let Some(found) = table.lookup(host(number as u32)) else { continue };
                        assert_eq!(found, path(found.mtu.into()), "a mixture of two paths");
                        assert_eq!(u64::from(found.mtu) % DESTINATIONS, number);
                    }
                    let found = table.lookup(steady).expect("this destination is never removed");
                    assert_eq!(found, path(found.mtu.into()), "a mixture of two paths");
                    assert!(found.mtu >= last, "an old path came back");
                    last = found.mtu;
                }
            });
        }
        for round in 0..ROUNDS {
            let number = round * 7 % DESTINATIONS;
            let value = path(round * DESTINATIONS + number);
            writer.insert(host(number as u32), value).unwrap();
            writer.insert(steady, path(round)).unwrap();
            if round % 3 == 0 {
                writer.remove(host((round * 11 % DESTINATIONS) as u32));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn requests_arrive_in_order_and_too_many_of_one_tenant_are_refused() {
    let (table, mut writer) = PathTable::new(1500);
    let [one, other] = [TenantIndex::HOST, TenantIndex::of(7)];
    for number in 0..REQUESTS_MAX as u32 {
        assert!(table.request(one, host(number)));
    }
    assert!(!table.request(one, host(0)));
    // Another tenant has places of its own, and waits for one of the others at most.
    assert!(table.request(other, host(5555)));
    assert_eq!(writer.poll_request(), Some((one, host(0))));
    assert_eq!(writer.poll_request(), Some((other, host(5555))));
    assert!(table.request(one, host(9999)));
    let mut rest = 0;
    while writer.poll_request().is_some() {
        rest += 1;
    }
    assert_eq!(rest, REQUESTS_MAX);
}

#[test]
fn a_destination_counts_as_used_when_it_was_looked_up() {
    let (table, mut writer) = PathTable::new(1500);
    writer.insert(host(1), path(1)).unwrap();
    assert!(writer.take_used(host(1)), "an insertion counts as use");
    assert!(!writer.take_used(host(1)));
    assert!(table.lookup(host(1)).is_some());
    assert!(writer.take_used(host(1)));
    assert!(!writer.take_used(host(2)), "an unknown destination is not in use");
}

#[test]
fn a_waker_is_signalled_once_until_it_is_cleared() {
    let waker = Waker::new().unwrap();
    waker.wake();
    waker.wake();
    let mut count = [0; 8];
    rustix::io::read(&waker, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    waker.clear();
    waker.wake();
    rustix::io::read(&waker, &mut count).unwrap();
}
