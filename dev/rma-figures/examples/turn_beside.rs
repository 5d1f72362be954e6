//! As `turn`, with a second service on each engine that is idle: what 1RMA pays for company. A
//! program of its own, as the compiler shares and inlines by who calls what.
//!
//! `turn_beside [one|many] fastest BATCHES AT_ONCE`

use std::process::ExitCode;

use rma_core::{
    addr::LocalAddresses,
    backend::{RxFrame, TxFrame},
    crypto::{EngineId, fastest},
    error::DropReason,
    one_rma::OneRma,
    packet::Tail,
    port::Port,
    quantum::Quantum,
    seat::Word,
    service::{Both, Service},
    time::{Clock, Instant},
};
use rma_figures::turn::{Company, Keys, profile_of};
use rma_shm::Line;

/// A service that nobody uses.
struct Idle {
    addresses: LocalAddresses,
}

impl Company for Idle {
    fn at(&addresses: &LocalAddresses) -> Self {
        Self { addresses }
    }
}

impl Service for Idle {
    fn owner_of(&self, _: &RxFrame<'_>) -> Option<EngineId> {
        None
    }

    fn take_keys(&mut self) {}

    fn note_paid(&mut self) {}

    fn poll_word(&mut self) -> Option<Word> {
        None
    }

    fn handle_word(&mut self, _: &Line) {}

    fn addresses(&self) -> &LocalAddresses {
        &self.addresses
    }

    fn serves(&self, _: Port) -> bool {
        false
    }

    fn frame_len(&self, _: Port, _: &[u8]) -> Result<usize, DropReason> {
        Err(DropReason::Length)
    }

    fn note_packet(&mut self, _: Port, _: usize) {}

    fn drop_tail(&mut self, _: Port, _: Tail) {}

    fn handle_frames(&mut self, _: Instant, _: &impl Clock, _: &mut [RxFrame<'_>]) {}

    fn take_commands(&mut self, _: Instant) -> usize {
        0
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn complete(&mut self) -> usize {
        0
    }

    fn latency_class_seen_at(&self) -> Option<Instant> {
        None
    }

    fn frames_waiting(&self) -> usize {
        0
    }

    fn gathers(&self, _: Instant) -> bool {
        false
    }

    fn poll_transmits(&mut self, _: Instant, _: &mut [TxFrame<'_>], _: &mut Quantum) -> usize {
        0
    }

    fn wants_transmit(&self) -> bool {
        false
    }

    fn wake_sleepers(&mut self) {}

    fn announce_sleep(&self) {}

    fn awake(&self) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let keys = match args.first().map(String::as_str) {
        Some("one") => Keys::One,
        Some("many") => Keys::Many,
        _ => return usage(),
    };
    let [_, provider, batches, at_once] = &args[..] else { return usage() };
    let (Ok(batches), Ok(at_once)) = (batches.parse(), at_once.parse()) else { return usage() };
    if provider != "fastest" || !(1..=32).contains(&at_once) {
        return usage();
    }
    profile_of::<Both<OneRma, Idle>>(fastest(), keys, (batches, at_once));
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: turn_beside [one|many] fastest BATCHES AT_ONCE");
    ExitCode::FAILURE
}
