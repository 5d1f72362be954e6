//! The two attackers of the paper's section 4.2, by name.
//!
//! A1 is a process without the key: it names whatever region it likes, guesses keys, uses what was granted to
//! others, sends datagrams of its own making. A2 has the wire: it sees, keeps, changes and injects whatever it likes.
//!
//! Neither may read or change anything, and neither may stop the others for longer than it tries.

use std::net::UdpSocket;

use rma_bench::{lab::Lab, pattern::Pattern};
use rma_core::{
    command::CommandSlotId,
    crypto::EngineId,
    wire::{Header, Request},
};
use rma_sim::prng::Prng;
use rma_xdp::{
    ClassOfService, Clock, DerivedRegionKey, Grant, Host, HostAddr, OpStatus, Permissions, Pid,
    RegionId, RegisteredRegion, SubmitError, TscClock,
};

use super::{
    faults::Faults,
    forge::{Captured, seal_request},
    frame,
    lab::{End, Ends},
    reads::Reader,
    table::Circumstances,
};
use crate::hosts::CLIENT_PID;

/// Code of read responses: frames with contents of a region.
const READ_RESPONSE: u8 = 2;

/// The process of A1.
const ATTACKER_PID: Pid = Pid(6666);

/// Another address of the client's interface, for an attacker on another host.
const ELSEWHERE: [u8; 4] = [192, 0, 2, 77];

const REGION_LEN: usize = 64 << 10;

/// What A1 is after: a region, and the right of one process to read it.
struct Secret {
    region: RegisteredRegion,
    pattern: Pattern,
    grant: Grant,
}

impl Secret {
    fn new(ends: &Ends) -> Self {
        let region = ends.server().register(REGION_LEN, Permissions::READ).expect("a region");
        let pattern = Pattern::new(ends.setup.seed);
        pattern.fill_region(&region);
        let grant =
            ends.server().grant(&region, ends.client_addr(), CLIENT_PID).expect("registered");
        Self { region, pattern, grant }
    }

    fn assert_unchanged(&self) {
        let mut bytes = vec![0; REGION_LEN];
        self.region.read(0, &mut bytes).expect("inside");
        assert_eq!(self.pattern.first_difference(0, &bytes), None);
    }

    /// Its owner's friend reads it.
    fn assert_readable(&self, client: &Host) {
        let mut portal = client.portal(1).expect("a slot");
        let sink = client.register(4096, Permissions::NONE).expect("a sink");
        let mut bytes = [0; 4096];
        for _ in 0..20 {
            portal.read(&self.grant, 64, &sink, 0, 4096).expect("a sensible op");
            match portal.wait().expect("the engine lives").status {
                OpStatus::Ok => break,
                status => assert_eq!(status, OpStatus::Timeout, "the machine may be busy"),
            }
        }
        sink.read(0, &mut bytes).expect("inside");
        assert_eq!(self.pattern.first_difference(64, &bytes), None);
        client.deregister(&sink).expect("registered");
    }
}

/// A1: every op of a process without the key fails, and it learns and changes nothing.
///
/// # Panics
/// If it got anywhere.
pub fn a1_a_process_without_the_key(ends: &mut Ends) {
    let secret = Secret::new(ends);
    secret.assert_readable(ends.client());

    ends.open_client(ATTACKER_PID);
    ends.wire().start_tape();
    another_process_of_the_same_host(ends.client(), &secret.grant, ends.setup.seed);
    assert_nothing_was_served(&ends.wire().take_tape());

    // The same PID on another host: PIDs are no secret, and hosts choose them.
    let elsewhere = HostAddr::from(ELSEWHERE);
    if secret.grant.initiator.is_ipv4() {
        let address = format!("{elsewhere}/{}", Lab::V4_PREFIX);
        let netns = ends.lab.netns(End::A);
        netns.ip(&["addr", "add", &address, "dev", Lab::INTERFACE]).expect("the ip command");
        ends.open_client_at(CLIENT_PID, elsewhere);
        // A responder does not look for the way to a stranger: without this, ops end with TIMEOUT.
        ends.server().resolve(elsewhere).expect("a way to the attacker");
        ends.wire().start_tape();
        the_same_process_of_another_host(ends.client(), elsewhere, &secret.grant);
        assert_nothing_was_served(&ends.wire().take_tape());
    }

    // A process may also send datagrams past its NIC, from the address of the victim's host.
    ends.open_client(CLIENT_PID);
    ends.wire().start_tape();
    datagrams_past_the_nic(ends, &secret.grant);
    assert_nothing_was_served(&ends.wire().take_tape());

    secret.assert_unchanged();
    secret.assert_readable(ends.client());
}

/// Every kind of guess, through a portal of its own.
fn another_process_of_the_same_host(attacker: &Host, stolen: &Grant, seed: u64) {
    let mut portal = attacker.portal(32).expect("slots");
    let sink = attacker.register(4096, Permissions::NONE).expect("a sink");
    assert_eq!(
        portal.read(stolen, 0, &sink, 0, 64),
        Err(SubmitError::GrantForAnotherProcess { granted: CLIENT_PID, portal: ATTACKER_PID })
    );
    let own = Grant { pid: ATTACKER_PID, ..*stolen };
    let elsewhere = Grant { initiator: HostAddr::from(ELSEWHERE), ..own };
    assert_eq!(
        portal.read(&elsewhere, 0, &sink, 0, 64),
        Err(SubmitError::GrantForAnotherHost { granted: elsewhere.initiator })
    );
    let mut prng = Prng::new(seed).fork(3);
    let mut guesses = vec![
        // The very key of another process.
        own,
        Grant { key: DerivedRegionKey::RESERVED, ..own },
        Grant { key: DerivedRegionKey::from_bytes([0; 16]), ..own },
    ];
    // RegionIds are easily guessed: few bits, counted up from zero.
    for index in 0..64 {
        for generation in 0..4 {
            guesses.push(Grant { region: RegionId::from_bits(generation << 16 | index), ..own });
        }
    }
    for _ in 0..500 {
        let mut key = [0; 16];
        prng.fill(&mut key);
        guesses.push(Grant { key: DerivedRegionKey::from_bytes(key), ..own });
    }
    assert_all_refused(&mut portal, &sink, &guesses);
}

/// The key of a process of the same number on another host.
fn the_same_process_of_another_host(attacker: &Host, address: HostAddr, stolen: &Grant) {
    let mut portal = attacker.portal(32).expect("slots");
    let sink = attacker.register(4096, Permissions::NONE).expect("a sink");
    assert_all_refused(&mut portal, &sink, &[Grant { initiator: address, ..*stolen }; 32]);
}

/// Every grant gives REMOTE_AUTHENTICATION_FAILURE, and nothing lands.
fn assert_all_refused(portal: &mut rma_xdp::Portal, sink: &RegisteredRegion, guesses: &[Grant]) {
    let mut left: Vec<(Grant, u32)> = guesses.iter().map(|&grant| (grant, 0)).collect();
    let mut under_way = std::collections::BTreeMap::new();
    while !left.is_empty() || !under_way.is_empty() {
        if let Some((grant, attempt)) = left.pop_if(|_| portal.next_slot().is_some()) {
            let size = [1, 64, 4096][left.len() % 3];
            let slot = portal.read(&grant, 0, sink, 0, size).expect("an op that the portal takes");
            under_way.insert(slot, (grant, attempt));
            continue;
        }
        let completion = portal.wait().expect("the engine lives");
        let (grant, attempt) = under_way.remove(&completion.slot).expect("one for each op");
        // The wire is good; the machine may be busy.
        if completion.status == OpStatus::Timeout && attempt < 20 {
            left.push((grant, attempt + 1));
        } else {
            assert_eq!(completion.status, OpStatus::RemoteAuthenticationFailure, "{grant:?}");
        }
    }
    let mut bytes = [0; 4096];
    sink.read(0, &mut bytes).expect("inside");
    assert!(bytes.iter().all(|&byte| byte == 0), "something has landed");
}

/// Requests from an ordinary socket, in the victim's name: with its PID, its region and keys that are guessed. Its
/// NIC gets the answers, and knows that it has not asked.
fn datagrams_past_the_nic(ends: &Ends, stolen: &Grant) {
    let socket = {
        let _inside = ends.lab.netns(End::A).enter().expect("a namespace");
        UdpSocket::bind((ends.client_addr().ip(), 0)).expect("a port")
    };
    let mut prng = Prng::new(ends.setup.seed).fork(4);
    let before = ends.server().counters().frames_received();
    let count = 200;
    for n in 0..count {
        let mut key = [0; 16];
        prng.fill(&mut key);
        let key = [DerivedRegionKey::RESERVED, DerivedRegionKey::from_bytes(key)][n % 2];
        let header = Header {
            class: ClassOfService::Latency,
            pid: stolen.pid,
            region: stolen.region,
            slot: CommandSlotId(prng.below(16) as u16),
            generation: prng.below(16) as u32,
            engine: EngineId(0),
            counter: prng.next(),
        };
        let request = Request { header, region_offset: 0, op_size: 4096, payload_len_max: 1424 };
        let octets = seal_request(&key, &request);
        socket.send_to(&octets, (stolen.responder.ip(), rma_xdp::DEFAULT_PORT)).expect("sent");
    }
    let clock = TscClock::new();
    while ends.server().counters().frames_received() < before + count as u64 {
        assert!(clock.now().as_nanos() < 10_000_000_000, "the server gets them");
        std::thread::yield_now();
    }
}

/// No frame with contents of a region has left the server.
fn assert_nothing_was_served(tape: &[Captured]) {
    assert!(!tape.is_empty(), "the attempts themselves came by");
    let port = rma_xdp::DEFAULT_PORT;
    let served =
        |captured: &&Captured| frame::frame_type(&captured.frame, port) == Some(READ_RESPONSE);
    assert_eq!(tape.iter().filter(served).count(), 0, "of {} frames", tape.len());
}

/// A2: whoever has the wire sees no plaintext, makes no op complete wrongly, and changes nothing, then or later.
///
/// # Panics
/// If it got anywhere.
pub fn a2_full_control_of_the_wire(ends: &Ends, count: usize, faults: &Faults) {
    let mut reader = Reader::new(ends, ends.setup.seed);
    ends.wire().start_tape();
    ends.wire().set_faults(*faults);
    reader.read_all(count, faults, Circumstances::default());
    ends.wire().calm();
    reader.assert_at_rest();
    let tape = ends.wire().take_tape();
    // All that it has kept, both ways and in both hosts' names, while ops run and while none do.
    ends.wire().replay_all(true);
    reader.assert_at_rest();
    reader.assert_alive();
    ends.wire().tally().assert_each_happened(faults);

    let served = tape.iter().map(|captured| captured.frame.len()).sum::<usize>();
    assert!(served > 1 << 20, "{served} bytes came by: too few to tell");
    assert_no_plaintext(&tape, reader.pattern(), reader.region().len() as usize);
}

/// Bytes of plaintext that would be seen: eight in a row, anywhere in the region, anywhere in a frame.
const WINDOW: usize = 8;

fn assert_no_plaintext(tape: &[Captured], pattern: Pattern, region_len: usize) {
    let mut region = vec![0; region_len];
    pattern.fill(0, &mut region);
    let window = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
    let mut known: Vec<u64> = region.windows(WINDOW).map(window).collect();
    known.sort_unstable();
    // Most windows of a frame are told apart by a part of their bits.
    let mut maybe = vec![false; 1 << 24];
    for bytes in &known {
        maybe[(bytes >> 40) as usize] = true;
    }
    for Captured { frame, .. } in tape {
        for bytes in frame.windows(WINDOW).map(window) {
            let seen = maybe[(bytes >> 40) as usize] && known.binary_search(&bytes).is_ok();
            assert!(!seen, "{bytes:#018x} of the region is in clear in {frame:02x?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_is_found_wherever_it_is() {
        let pattern = Pattern::new(1);
        let mut frame = vec![0; 100];
        let tape = |frame: &[u8]| [Captured { toward: End::A, frame: frame.to_vec() }];
        assert_no_plaintext(&tape(&frame), pattern, 4096);
        pattern.fill(1001, &mut frame[77..77 + WINDOW]);
        let found = std::panic::catch_unwind(|| assert_no_plaintext(&tape(&frame), pattern, 4096));
        assert!(found.is_err());
    }
}
