//! The two attackers of the paper's section 4.2, by name.
//!
//! A1 is a process without the key: it names whatever region it likes, guesses keys, uses what was
//! granted to others, sends datagrams of its own making. A2 has the wire: it sees, keeps, changes
//! and injects whatever it likes.
//!
//! Neither may read or change anything, and neither may stop the others for longer than it tries.

use std::{
    collections::BTreeMap,
    net::{Ipv6Addr, UdpSocket},
};

use rma_core::{
    crypto::EngineId,
    portal::Source,
    wire::{FrameType, Header, Mutation, MutationRequest, Request},
};
use rma_lab::{Lab, Pattern};
use rma_sim::prng::Prng;
use rma_xdp::{
    Grant, Host, HostAddr, OpStatus, OpType, Permissions, Pid, Portal, RegionKey, RegisteredRegion,
    SubmitError,
    crypto::DerivedRegionKey,
    memory::RegionId,
    ops::{ClassOfService, CommandSlotId},
    time::{Clock, TscClock},
};

use super::{
    faults::Faults,
    forge::{Captured, seal_mutation_request, seal_request},
    frame,
    lab::{End, Ends},
    scenarios,
};
use crate::hosts::CLIENT_PID;

/// The process of A1.
const ATTACKER_PID: Pid = Pid(6666);

/// Another address for the client's interface, for an attacker on another host, and its prefix.
fn elsewhere(ends: &Ends) -> (HostAddr, u8) {
    if ends.client_addr().is_ipv4() {
        ([192, 0, 2, 77].into(), Lab::V4_PREFIX)
    } else {
        (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 77).into(), Lab::V6_PREFIX)
    }
}

const REGION_LEN: usize = 64 << 10;

/// How often an op may be lost on a good wire.
const ATTEMPTS: u32 = 20;

const ALL_TYPES: [OpType; 3] = [OpType::Read, OpType::Write, OpType::Rekey];

/// The secret that A1 is after: a region, and the rights of one process to read, write and rekey
/// it.
struct Secret {
    region: RegisteredRegion,
    pattern: Pattern,
    grants: [Grant; 3],
}

impl Secret {
    fn new(ends: &Ends) -> Self {
        let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
        let region = ends.server().register(REGION_LEN, all).expect("a region");
        let pattern = Pattern::new(ends.setup.seed);
        pattern.fill_region(&region);
        let grants = rights(ends, &region, CLIENT_PID);
        Self { region, pattern, grants }
    }

    /// Neither its bytes nor its key.
    fn assert_unchanged(&self, ends: &Ends) {
        let mut bytes = vec![0; REGION_LEN];
        self.region.read(0, &mut bytes).expect("inside");
        assert_eq!(self.pattern.first_difference(0, &bytes), None);
        assert_eq!(rights(ends, &self.region, CLIENT_PID), self.grants);
    }

    /// Checks that a client with a right to read it does.
    fn assert_readable(&self, client: &Host, grant: &Grant) {
        let mut portal = client.portal(1).expect("a slot");
        let sink = client.register(4096, Permissions::NONE).expect("a sink");
        let mut bytes = [0; 4096];
        for _ in 0..ATTEMPTS {
            portal.read(grant, 64, &sink, 0, 4096).expect("a sensible op");
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

fn rights(ends: &Ends, region: &RegisteredRegion, pid: Pid) -> [Grant; 3] {
    ALL_TYPES.map(|op_type| {
        ends.server().grant(region, ends.client_addr(), pid, op_type).expect("registered")
    })
}

/// A1: every op of a process without the key fails, and it learns and changes nothing.
///
/// # Panics
/// If it got anywhere.
pub fn a1_a_process_without_the_key(ends: &mut Ends) {
    let secret = Secret::new(ends);
    secret.assert_readable(ends.client(), &secret.grants[0]);

    ends.open_client(ATTACKER_PID);
    ends.wire().start_tape();
    another_process_of_the_same_host(ends, &secret.grants);
    a_reader_that_wants_more(ends, &secret);
    assert_nothing_was_served(&ends.wire().take_tape());
    secret.assert_unchanged(ends);

    // The same PID on another host: PIDs are no secret, and hosts choose them.
    let (elsewhere, prefix) = elsewhere(ends);
    let address = format!("{elsewhere}/{prefix}");
    let mut add = vec!["addr", "add", &address, "dev", Lab::INTERFACE];
    if !elsewhere.is_ipv4() {
        // Otherwise the kernel would not use it before it has looked for others that have it.
        add.push("nodad");
    }
    ends.lab.netns(End::A).ip(&add).expect("the ip command");
    ends.open_client_at(CLIENT_PID, elsewhere);
    // A responder does not look for the way to a stranger: without this, ops end with TIMEOUT.
    ends.server().resolve(elsewhere).expect("a way to the attacker");
    ends.wire().start_tape();
    let stolen = secret.grants.map(|grant| Grant { initiator: elsewhere, ..grant });
    assert_all_refused(ends.client(), &stolen.repeat(10));
    assert_nothing_was_served(&ends.wire().take_tape());

    // A process may also send datagrams past its NIC, from the address of the victim's host.
    ends.open_client(CLIENT_PID);
    ends.wire().start_tape();
    datagrams_past_the_nic(ends, &secret.grants[0]);
    assert_nothing_was_served(&ends.wire().take_tape());

    secret.assert_unchanged(ends);
    secret.assert_readable(ends.client(), &secret.grants[0]);
}

/// Every kind of guess, through a portal of its own.
fn another_process_of_the_same_host(ends: &Ends, stolen: &[Grant; 3]) {
    let (attacker, seed) = (ends.client(), ends.setup.seed);
    let mut portal = attacker.portal(1).expect("a slot");
    let memory = attacker.register(4096, Permissions::NONE).expect("a region");
    let mut prng = Prng::new(seed).fork(3);
    let mut guesses = Vec::new();
    for stolen in *stolen {
        let refused = issue(&mut portal, &stolen, &memory, 64);
        let another =
            SubmitError::GrantForAnotherProcess { granted: CLIENT_PID, portal: ATTACKER_PID };
        assert_eq!(refused, Err(another));
        let own = Grant { pid: ATTACKER_PID, ..stolen };
        let elsewhere = Grant { initiator: elsewhere(ends).0, ..own };
        let refused = issue(&mut portal, &elsewhere, &memory, 64);
        assert_eq!(refused, Err(SubmitError::GrantForAnotherHost { granted: elsewhere.initiator }));
        guesses.extend([
            // The very key of another process.
            own,
            Grant { key: DerivedRegionKey::RESERVED, ..own },
            Grant { key: DerivedRegionKey::from_bytes([0; 16]), ..own },
        ]);
        // RegionIds are easily guessed: few bits, counted up from zero.
        for index in 0..64 {
            for generation in 0..4 {
                let region = RegionId::from_bits(generation << 16 | index);
                guesses.push(Grant { region, ..own });
            }
        }
        for _ in 0..200 {
            let mut key = [0; 16];
            prng.fill(&mut key);
            guesses.push(Grant { key: DerivedRegionKey::from_bytes(key), ..own });
        }
    }
    assert_all_refused(attacker, &guesses);
}

/// A process that may read, and tries to write and to rekey with what it has.
fn a_reader_that_wants_more(ends: &Ends, secret: &Secret) {
    let attacker = ends.client();
    let [reader, ..] = rights(ends, &secret.region, ATTACKER_PID);
    let mut portal = attacker.portal(1).expect("a slot");
    let memory = attacker.register(4096, Permissions::NONE).expect("a region");
    let refused = portal.write(&reader, 0, &memory, 0, 64);
    let (granted, wanted) = (OpType::Read, OpType::Write);
    assert_eq!(refused, Err(SubmitError::GrantForAnotherOpType { granted, wanted }));
    let more = [OpType::Write, OpType::Rekey].map(|op_type| Grant { op_type, ..reader });
    assert_all_refused(attacker, &more.repeat(10));
}

fn issue(
    portal: &mut Portal,
    grant: &Grant,
    memory: &RegisteredRegion,
    size: u32,
) -> Result<CommandSlotId, SubmitError> {
    match grant.op_type {
        OpType::Read => portal.read(grant, 0, memory, 0, size),
        OpType::Write => portal.write(grant, 0, memory, 0, size),
        OpType::Rekey => portal.rekey(grant, RegionKey::from_bytes([6; 16])),
        OpType::Send => portal.send(grant, memory, 0, size, 0),
        OpType::WriteWithImm => {
            portal.write_with_imm(grant, 0, Source { region: memory, offset: 0, len: size }, 0)
        }
        OpType::Notify => portal.notify(grant, 0),
        OpType::CompareSwap => portal.compare_swap(grant, 0, 0, 1),
        OpType::FetchAdd => portal.fetch_add(grant, 0, 1),
    }
}

/// Every grant gives REMOTE_AUTHENTICATION_FAILURE, and nothing lands.
fn assert_all_refused(attacker: &Host, guesses: &[Grant]) {
    let mut portal = attacker.portal(32).expect("slots");
    let memory = attacker.register(4096, Permissions::NONE).expect("a region");
    let mut left: Vec<(Grant, u32)> = guesses.iter().map(|&grant| (grant, 0)).collect();
    let mut under_way = BTreeMap::new();
    while !left.is_empty() || !under_way.is_empty() {
        if portal.next_slot().is_some()
            && let Some((grant, attempt)) = left.pop()
        {
            let size = [1, 64, 4096][left.len() % 3];
            let slot = issue(&mut portal, &grant, &memory, size).expect("the portal takes it");
            under_way.insert(slot, (grant, attempt));
            continue;
        }
        let completion = portal.wait().expect("the engine lives");
        let (grant, attempt) = under_way.remove(&completion.slot).expect("one for each op");
        // The wire is good; the machine may be busy.
        if completion.status == OpStatus::Timeout && attempt < ATTEMPTS {
            left.push((grant, attempt + 1));
        } else {
            assert_eq!(completion.status, OpStatus::RemoteAuthenticationFailure, "{grant:?}");
        }
    }
    let mut bytes = [0; 4096];
    memory.read(0, &mut bytes).expect("inside");
    assert!(bytes.iter().all(|&byte| byte == 0), "something has landed");
}

/// Requests from an ordinary socket, in the victim's name: with its PID, its region and keys that
/// are guessed. Its NIC gets the answers, and knows that it has not asked.
fn datagrams_past_the_nic(ends: &Ends, stolen: &Grant) {
    let socket = {
        let _inside = ends.lab.netns(End::A).enter().expect("a namespace");
        UdpSocket::bind((ends.client_addr().ip(), 0)).expect("a port")
    };
    let mut prng = Prng::new(ends.setup.seed).fork(4);
    let before = ends.server().engines()[0].counters.frames_received();
    let count = 300;
    let mut packet = Vec::new();
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
        let mutation = |mutation| {
            let request = MutationRequest { header, mutation, timeout_micros: 1_000_000 };
            seal_mutation_request(&key, &request).to_vec()
        };
        let octets = match n % 3 {
            0 => {
                let request =
                    Request { header, region_offset: 0, op_size: 4096, payload_len_max: 1424 };
                seal_request(&key, &request).to_vec()
            }
            1 => mutation(Mutation::Write { region_offset: 0, op_size: 4096 }),
            _ => mutation(Mutation::Rekey),
        };
        packet.extend(octets);
        // Some packets are one request, others six.
        if n >= count / 2 || n % 6 == 5 {
            let to = (stolen.responder.ip(), rma_xdp::config::DEFAULT_PORT);
            socket.send_to(&core::mem::take(&mut packet), to).expect("sent");
        }
    }
    let clock = TscClock::new();
    while ends.server().engines()[0].counters.frames_received() < before + count as u64 {
        assert!(clock.now().as_nanos() < 10_000_000_000, "the server gets them");
        std::thread::yield_now();
    }
}

/// No frame with contents of a region has left the server, nor one that asks for new contents.
fn assert_nothing_was_served(tape: &[Captured]) {
    assert!(!tape.is_empty(), "the attempts themselves came by");
    let served = tape.iter().filter(|captured| {
        let codes = frame::frame_types(&captured.frame, rma_xdp::config::DEFAULT_PORT);
        [FrameType::ReadResponse, FrameType::Solicitation, FrameType::Acknowledgement]
            .iter()
            .any(|&served| codes.contains(&(served as u8)))
    });
    assert_eq!(served.count(), 0, "of {} packets", tape.len());
}

/// A2: whoever has the wire sees no plaintext, makes no op complete wrongly, and changes nothing,
/// then or later.
///
/// # Panics
/// If it got anywhere.
pub fn a2_full_control_of_the_wire(ends: &Ends, count: usize, faults: &Faults) {
    let (tape, secrets) = scenarios::recorded(ends, count, faults);
    let len = tape.iter().map(|captured| captured.frame.len()).sum::<usize>();
    assert!(len > 1 << 20, "{len} bytes came by: too few to tell");
    assert_no_plaintext(&tape, &secrets);
}

/// Bytes of plaintext that would be seen: eight in a row, anywhere in a secret, anywhere in a
/// frame.
const WINDOW: usize = 8;

fn assert_no_plaintext(tape: &[Captured], secrets: &[Vec<u8>]) {
    let window = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
    let mut known: Vec<u64> =
        secrets.iter().flat_map(|secret| secret.windows(WINDOW).map(window)).collect();
    known.sort_unstable();
    // Most windows of a frame are told apart by a part of their bits.
    let mut maybe = vec![false; 1 << 24];
    for bytes in &known {
        maybe[(bytes >> 40) as usize] = true;
    }
    for Captured { frame, .. } in tape {
        for bytes in frame.windows(WINDOW).map(window) {
            let seen = maybe[(bytes >> 40) as usize] && known.binary_search(&bytes).is_ok();
            assert!(!seen, "{bytes:#018x} of a secret is in clear in {frame:02x?}");
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
        let mut secret = vec![0; 4096];
        pattern.fill(0, &mut secret);
        let secrets = [vec![1; 16], secret];
        assert_no_plaintext(&tape(&frame), &secrets);
        pattern.fill(1001, &mut frame[77..77 + WINDOW]);
        let found = std::panic::catch_unwind(|| assert_no_plaintext(&tape(&frame), &secrets));
        assert!(found.is_err());
    }
}
