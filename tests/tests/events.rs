//! Events: the control path tells what it does, the engine does not.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::fmt::Write;
use std::sync::Mutex;

use rma_tests::{hosts::Hosts, scenario};
use rma_xdp::config::{CounterConfig, NicConfigBuilder};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// All events so far: the thread, and the fields.
static EVENTS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

struct Recorder;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn core::fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("rma_")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        EVENTS.lock().unwrap().push((thread, text.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_control_path_tells_what_it_does_and_the_engine_says_nothing() {
    tracing::subscriber::set_global_default(Recorder).unwrap();
    // Blocks so short that the engines need further ones.
    let counter = CounterConfig::default().with(|it| it.block_len = 1 << 9);
    let mut hosts = Hosts::over_udp_counting(NicConfigBuilder::default(), &counter);
    scenario::everything(&mut hosts);
    drop(hosts);
    let events = EVENTS.lock().unwrap();
    for told in [
        "host opened",
        "engine thread started",
        "engine thread stopped",
        "region registered",
        "region deregistered",
        "region rekeyed",
        "grant made",
        "portal allocated",
        "portal dropped",
        "slots of a dropped portal",
        "first counter block",
        "counter block reserved",
    ] {
        assert!(events.iter().any(|(_, text)| text.contains(told)), "{told} in {events:#?}");
    }
    for (thread, text) in &*events {
        assert_ne!(thread, "rma-engine", "{text}");
        assert!(!text.contains("key="), "{text}");
    }
}
