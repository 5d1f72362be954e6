//! The whole cache on loopback, under load: a server killed and back, keys that change. Counted
//! over gets, never over time.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::PathBuf;

use rma_kv::{
    demo::{COPIES, Demo, Program},
    load::{run::Load, workload::Mix},
};
use rma_lab::Scratch;

const KEYS: u64 = 300;

fn start(scratch: &Scratch, rotate: f64) -> (Demo, Load) {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_kv-server"));
    let demo = Demo::start(Program { path, args: Vec::new() }, scratch.path(), rotate).unwrap();
    let mix = Mix { keys: KEYS, rate: 400.0, ..Mix::default() };
    let load = Load::new(demo.client().unwrap(), demo.servers(), demo.credentials(), (mix, 7));
    (demo, load.unwrap())
}

/// Runs for so many more gets, and returns what they were.
fn gets(load: &mut Load, count: u64) -> rma_kv::load::seconds::Counts {
    let before = load.counts();
    load.run(|it| it.counts().gets() - before.gets() >= count, |_| ());
    load.counts().since(&before)
}

#[test]
fn gets_go_on_while_a_server_is_killed_and_comes_back_with_new_keys() {
    let scratch = Scratch::new();
    let (mut demo, mut load) = start(&scratch, 3600.0);
    assert_eq!(load.fill(), KEYS * COPIES as u64);
    let before = gets(&mut load, 400);
    assert_eq!((before.hits, before.wrong), (before.gets(), 0), "{before:?} {:?}", load.error());

    demo.kill(0).unwrap();
    let gone = gets(&mut load, 800);
    assert!(gone.hit_rate() >= 0.99, "{gone:?} {:?}", load.error());
    assert!(gone.failovers > 0, "nobody has asked the dead: {gone:?}");
    assert_eq!(gone.wrong, 0);

    demo.start_server(0).unwrap();
    let (served, before) = (load.served()[0], load.counts());
    // It comes back empty and with new keys, and in the end gives values again.
    load.run(|it| it.served()[0] - served >= 100, |_| ());
    let back = load.counts().since(&before);
    assert!(back.hit_rate() >= 0.99, "{back:?} {:?}", load.error());
    assert!(back.refetches > 0, "its keys are new: {back:?}");
    assert_eq!(back.wrong, 0);
    rma_lab::evidence::show(format_args!(
        "the cache: {} gets beside a kill and a return, {} failovers, {} misses, none wrong",
        load.counts().gets(),
        load.counts().failovers,
        load.counts().misses
    ));
}

#[test]
fn no_get_fails_or_misses_while_keys_rotate() {
    let scratch = Scratch::new();
    let (demo, mut load) = start(&scratch, 0.5);
    assert_eq!(load.fill(), KEYS * COPIES as u64);
    let mut rotated = 0;
    load.run(
        |_| {
            rotated += demo.events().iter().filter(|it| it.1 == "rotated").count();
            rotated >= 24
        },
        |_| (),
    );
    let counts = load.counts();
    assert_eq!((counts.failed, counts.misses, counts.wrong), (0, 0, 0), "{:?}", load.error());
    assert!(counts.refetches > 0, "{counts:?}");
    rma_lab::evidence::show(format_args!(
        "the cache: {} gets while keys changed {rotated} times, none failed",
        counts.gets()
    ));
}
