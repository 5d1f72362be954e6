//! The state of a host by the number of its engines, as the allocator counts it. The table of
//! `docs/decisions/engine.md` is what this finds.

use std::sync::Arc;

use rma_core::{
    addr::HostAddr,
    crypto::{CounterBlock, EngineId},
    engine::Neighbours,
    nic::{KeyRings, Nic, NicConfigBuilder, NicPlace, TableMemory},
    seat::Seat,
};
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    service::Star,
};

use super::{NOTHING, watch};

const PAGE: &str = include_str!("../../../docs/decisions/engine.md");

/// Bytes that `make` allocates, and what it makes.
fn made<T>(make: impl FnOnce() -> T) -> (usize, T) {
    let mut count = NOTHING;
    let made = watch(&mut count, make);
    (count.bytes as usize, made)
}

/// The row of a host with so many engines: bytes of one engine's NIC, of which for ports learnt, of
/// its StaR; of all rings between engines, for frames and for keys; and of all together.
fn row(engines: u16) -> String {
    let address = HostAddr::from([192, 0, 2, 1]);
    let settings = NicConfigBuilder::default().divided(engines).unwrap();
    let place =
        NicPlace::at(address).with(|it| (it.engine, it.engines) = (EngineId(engines - 1), engines));
    let (nic, made_nic) = made(|| Nic::new(settings.build(place).unwrap()));
    let memory = made_nic.memory();
    let learnt = memory.iter().filter(|it| it.table == "source ports learnt");
    let learnt: usize = learnt.map(TableMemory::bytes).sum();
    let place = StarPlace::at(address)
        .with(|it| (it.engine, it.engines) = (EngineId(engines - 1), engines));
    let config = StarConfigBuilder::default().divided(engines).unwrap().build(place).unwrap();
    let (star, _star) = made(|| Star::new(config, CounterBlock::new(0, 1000)));
    // A host with one engine has no rings.
    let seats = |_| Seat::new(None, Arc::default());
    let seats: Vec<_> = (0..if engines == 1 { 0 } else { engines }).map(seats).collect();
    let (frames, _neighbours) = made(|| Neighbours::connect(&seats));
    let (keys, _keys) = made(|| KeyRings::connect(&seats));
    let host = usize::from(engines) * (nic + star) + frames + keys;
    let kib = |bytes: usize| format!("{}", bytes.div_ceil(1024));
    let [nic, learnt, star, frames, keys, host] = [nic, learnt, star, frames, keys, host].map(kib);
    format!("| {engines} | {nic} | {learnt} | {star} | {frames} | {keys} | {host} |")
}

#[test]
fn the_page_on_engines_tells_the_state_of_a_host_with_1_4_and_32_of_them() {
    let rows = [1, 4, 32].map(row).join("\n");
    println!("{rows}");
    assert!(PAGE.contains(&rows), "docs/decisions/engine.md should have\n{rows}");
}
