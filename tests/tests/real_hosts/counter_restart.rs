//! P4: hosts that are killed, restarted, and lied to about the time never use a counter value
//! twice; nor do hosts whose mark is lost under a right clock.
//!
//! The hosts are processes of their own, killed with SIGKILL while they send. The test plays their
//! peer: it reads the counter of each frame, which is in clear, and sends some frames back, so that
//! the hosts seal refusals as well.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;
use std::{
    collections::{BTreeSet, VecDeque},
    fs, io,
    net::{IpAddr, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
};

use rma_core::wire::frame_len;
use rma_lab::Scratch;
use rma_tests::hosts::Loopback;
use rma_xdp::HostAddr;
use rustix::time::{ClockId, clock_gettime};

const DAY: i64 = 86_400;
/// The most that a host reserves by default.
const BLOCK_LEN: u64 = 1 << 34;

/// The peer of a host at another address, on the same port. Nobody else is on that port at these
/// addresses.
struct Peer {
    socket: UdpSocket,
    host: HostAddr,
    /// Counters of frames that came in a packet with others, and were not looked at yet.
    came: VecDeque<u64>,
    /// Frame types that have been seen.
    types: BTreeSet<u8>,
}

impl Peer {
    fn new() -> Self {
        let Loopback { addresses: [host, peer], port } = Loopback::unused();
        let peer: IpAddr = peer.to_string().parse().unwrap();
        let socket = UdpSocket::bind((peer, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, host, came: VecDeque::new(), types: BTreeSet::new() }
    }

    fn start(&self, kind: &str, dir: &Path, clock_offset: i64, block_len: u64) -> Running {
        let here = self.socket.local_addr().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sealing-host"))
            .args([kind, &self.host.to_string(), &here.ip().to_string(), &here.port().to_string()])
            .arg(dir)
            .args([clock_offset.to_string(), block_len.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Running(child)
    }

    /// The counters of the next `count` frames, each of which has one of its own.
    fn counters(&mut self, count: usize) -> BTreeSet<u64> {
        let mut counters = BTreeSet::new();
        for _ in 0..count {
            let counter = self.counter().expect("the host sends");
            assert!(counters.insert(counter), "{counter} twice in one run");
        }
        counters
    }

    /// The counters of all frames that have arrived.
    fn rest(&mut self) -> BTreeSet<u64> {
        self.socket.set_nonblocking(true).unwrap();
        let counters = core::iter::from_fn(|| self.counter().ok()).collect();
        self.socket.set_nonblocking(false).unwrap();
        counters
    }

    fn counter(&mut self) -> io::Result<u64> {
        if let Some(counter) = self.came.pop_front() {
            return Ok(counter);
        }
        let mut packet = [0; 2048];
        let (len, from) = self.socket.recv_from(&mut packet)?;
        let mut rest = &packet[..len];
        while !rest.is_empty() {
            let (frame, more) = rest.split_at(frame_len(rest).expect("an honest frame"));
            let counter = u64::from_be_bytes(frame[20..28].try_into().unwrap());
            self.types.insert(frame[1]);
            if counter.is_multiple_of(8) {
                // A request for a region that the host has not; a notice says so. Anything else is
                // dropped. Fails if the host is gone.
                let _ = self.socket.send_to(frame, from);
            }
            self.came.push_back(counter);
            rest = more;
        }
        Ok(self.came.pop_front().expect("a packet has a frame"))
    }
}

/// A host in a process of its own.
struct Running(Child);

impl Running {
    fn kill(mut self) {
        self.0.kill().unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.code().is_none(), "it ended by itself: {status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Does nothing if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn a_host_that_is_killed_under_a_clock_that_steps(kind: &str) {
    let scratch = Scratch::new();
    let mut peer = Peer::new();
    let mut last: Option<u64> = None;
    for clock_offset in [0, -DAY, DAY, -DAY, -400 * DAY] {
        let started = now().saturating_add_signed(clock_offset * 1_000_000_000);
        let host = peer.start(kind, scratch.path(), clock_offset, BLOCK_LEN);
        let mut counters = peer.counters(200);
        host.kill();
        counters.append(&mut peer.rest());
        let (first_now, last_now) = (*counters.first().unwrap(), *counters.last().unwrap());
        if let Some(last) = last {
            assert!(first_now > last, "{first_now} after {last}, clock {clock_offset} s off");
        }
        if clock_offset < 0 {
            assert!(started + BLOCK_LEN < first_now, "the clock alone would have begun lower");
        } else {
            assert!(first_now >= started, "the clock is the second line");
        }
        last = Some(last_now);
    }
    assert_eq!(peer.types, BTreeSet::from([1, 3]), "requests and failure notices");
}

#[test]
fn a_host_that_is_killed_and_restarted_under_a_clock_set_back_uses_new_counters_only() {
    a_host_that_is_killed_under_a_clock_that_steps("thread");
}

#[test]
fn an_inline_host_that_is_killed_and_restarted_under_a_clock_set_back_uses_new_counters_only() {
    a_host_that_is_killed_under_a_clock_that_steps("inline");
}

#[test]
fn hosts_whose_mark_is_lost_between_two_starts_under_a_right_clock_use_new_counters_only() {
    let scratch = Scratch::new();
    let mut peer = Peer::new();
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        for _ in 0..3 {
            let host = peer.start("thread", scratch.path(), 0, BLOCK_LEN);
            let mut counters = peer.counters(200);
            host.kill();
            counters.append(&mut peer.rest());
            assert!(seen.is_disjoint(&counters), "a value was used twice");
            seen.append(&mut counters);
        }
        // As fast as processes start, hosts are opened more often than they may be for long: three
        // of them are ahead of the clock by less than a second.
        let last = *seen.last().unwrap();
        assert!(last < now() + 1_000_000_000, "{} ns ahead of the clock", last - now());
        while now() <= last {
            std::thread::yield_now();
        }
        fs::remove_file(scratch.path().join("counter")).unwrap();
    }
}

#[test]
fn processes_that_share_a_state_directory_never_share_a_value_and_go_on_from_block_to_block() {
    const BLOCK_LEN: u64 = 32;
    const HOSTS: usize = 3;
    let scratch = Scratch::new();
    let mut peers = [(); HOSTS].map(|()| Peer::new());
    let mut seen = BTreeSet::new();
    let mut add = |counters: BTreeSet<u64>| {
        let before = seen.len();
        let count = counters.len();
        seen.extend(counters);
        assert_eq!(seen.len(), before + count, "a value was used twice");
    };
    let start = |peer: &Peer, kind, offset| peer.start(kind, scratch.path(), offset, BLOCK_LEN);
    let mut hosts = [const { None::<Running> }; HOSTS];
    for round in 0..2 * HOSTS {
        let which = round % HOSTS;
        // One is killed and comes back with another clock, the others go on.
        if let Some(host) = hosts[which].take() {
            host.kill();
            add(peers[which].rest());
        }
        let offset = [0, -DAY, DAY][(round + round / HOSTS) % 3];
        let kind = if which == 1 { "inline" } else { "thread" };
        hosts[which] = Some(start(&peers[which], kind, offset));
        for (peer, _) in peers.iter_mut().zip(&hosts).filter(|(_, host)| host.is_some()) {
            add(peer.counters(4 * BLOCK_LEN as usize));
        }
    }
}
