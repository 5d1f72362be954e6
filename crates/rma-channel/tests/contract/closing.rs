//! Ends that are closed, and openings that fail, leave nothing at their hosts: rows are counted.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rma_channel::{Close, Half, ring_buffer::RingConfig, ring_buffer::with_zeroing};
use rma_sim::{hosts::options::NetworkOptions, net::frame::NodeId};

use rma_contract::{
    hosts::{Driven as _, Hosts as _},
    kinds::{Row, Settings, rows},
    run::Run,
    simulated::World,
    stream::Lens,
};

/// A channel of a kind with all ends that it may have.
fn channel(row: &Row) -> (Run<World>, Settings) {
    let (settings, nodes) = row.settings(row.longest.min(300), 3, true);
    (Run::new(row, World::new(NetworkOptions::exact(nodes)), &settings), settings)
}

#[test]
fn ends_that_are_closed_give_back_all_that_they_have_registered() {
    for row in rows() {
        let (mut run, settings) = channel(row);
        let opened = run.world.rows();
        assert!(opened > 0, "{}", row.kind);
        for _ in 0..5 {
            // Closes those that are there.
            run.open(row, &settings, Lens::Mixed(row.shortest, settings.len_max), 20);
            assert_eq!(run.world.rows(), opened, "{}", row.kind);
            run.finish();
            run.check_all_came();
        }
        run.close();
        assert_eq!(run.world.rows(), 0, "{}", row.kind);
        if let Some(into) = row.into {
            run.open(&Row { open: into, ..*row }, &settings, Lens::All(row.shortest), 20);
            run.finish();
            run.check_all_came();
            run.close();
            assert_eq!(run.world.rows(), 0, "{}: into memory of the application's", row.kind);
        }
    }
}

#[test]
fn ops_of_closed_ends_come_to_an_end_and_others_go_on() {
    for row in rows() {
        for hops in 0..14 {
            let (mut run, settings) = channel(row);
            run.open(row, &settings, Lens::Mixed(row.shortest, settings.len_max), 20);
            run.pass(Duration::from_micros(hops));
            run.close();
            assert_eq!(run.world.rows(), 0, "{}, after {hops} hops", row.kind);
            let settings = Settings { name: settings.name + 1, ..settings };
            run.open(row, &settings, Lens::Mixed(row.shortest, settings.len_max), 20);
            run.finish();
            run.check_all_came();
            run.close();
            run.pass(Duration::from_secs(4));
            for node in (0..run.world.nodes()).map(NodeId) {
                let calls = run.world.link(node).0.executor().calls();
                assert_eq!(calls, 0, "{}: {node}, after {hops} hops", row.kind);
            }
        }
    }
}

#[test]
fn an_opening_that_fails_gives_back_what_it_has_registered() {
    for row in rows() {
        for open in [Some(row.open), row.into].into_iter().flatten() {
            let (settings, nodes) = row.settings(row.longest.min(300), 3, true);
            let failed = (0..100).take_while(|&room| {
                let mut world = World::new(NetworkOptions::exact(nodes));
                world.room = room;
                // A row's function panics if an end cannot be opened.
                let opened =
                    catch_unwind(AssertUnwindSafe(|| drop(open(&mut world, row.kind, &settings))));
                assert!(opened.is_ok() || world.kept == 0, "{} with {room} regions", row.kind);
                opened.is_err()
            });
            assert!((1..100).contains(&failed.count()), "{}", row.kind);
        }
    }
}

#[test]
fn a_half_that_is_never_connected_gives_back_what_it_has_registered() {
    let mut world = World::new(NetworkOptions::exact(2));
    let [us, peer] = [0, 1].map(|node| world.peer(NodeId(node)));
    let host = world.gate(NodeId(0));
    let config = RingConfig::with_peer(peer);
    let sender: Half<_> = with_zeroing::Sender::open(&*host, config).unwrap();
    let receiver = with_zeroing::Receiver::open(&*host, config).unwrap();
    // Neither end's terms are for this host, and those of a sender are none for a sender.
    assert!(sender.check(receiver.terms()).is_err(), "they are for {peer}, not {us}");
    assert!(sender.check(sender.terms()).is_err());
    sender.close(&*host).unwrap();
    receiver.close(&*host).unwrap();
    drop(host);
    assert_eq!(world.rows(), 0);
}
