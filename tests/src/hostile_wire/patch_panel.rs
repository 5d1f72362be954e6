//! A patch panel on a real kernel: the thread between two veth pairs of several queues that picks
//! the queue on which a frame comes to a host by a hash of its own. No host knows it, and no test
//! needs a NIC that has one: in native mode veth delivers a frame on the queue that it was sent on.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

use rma_core::{port::Port, time::Instant};
use rma_lab::Netns;
use rma_sim::prng::Prng;
use rma_xdp::{
    Host, HostAddr,
    device::{
        Engines,
        xdp::{Mode, SteeredSockets, XdpConfig, XdpError, socket::Socket},
    },
};

use super::{
    lab::{End, Namespaces, WIRE_INTERFACES},
    tap::Tap,
};
use crate::hosts::{Hosts, Setup};

/// The MTU of both pairs.
const MTU: u32 = 1500;

/// Frames taken from one queue before the next is looked at.
const BURST: usize = 64;

/// The offsets of a frame's IPv4 addresses, and of its UDP ports.
const ADDRESSES: core::ops::Range<usize> = 26..34;
const SOURCE_PORT: core::ops::Range<usize> = 34..36;

/// The function that tells the queue of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// Of addresses and source port, another one for each number.
    Random(u32),
    /// Of the addresses alone.
    WithoutPorts,
}

impl Hash {
    const fn to_word(self) -> u64 {
        match self {
            Self::Random(number) => number as u64,
            Self::WithoutPorts => u64::MAX,
        }
    }
}

/// The queue, of so many, of a frame of 1RMA over IPv4.
fn queue_of(frame: &[u8], word: u64, queues: usize) -> usize {
    let mut drawn = Prng::new(word);
    let octets = frame[ADDRESSES].iter().chain(&frame[SOURCE_PORT]);
    let seen = if word == Hash::WithoutPorts.to_word() { ADDRESSES.len() } else { usize::MAX };
    for &octet in octets.take(seen) {
        drawn = drawn.fork(octet.into());
    }
    drawn.below(queues as u64) as usize
}

/// An end of the panel, towards one host.
struct Side {
    sockets: SteeredSockets,
    /// For what is not of 1RMA, by which the hosts find each other.
    tap: Tap,
    queues: usize,
}

impl Side {
    /// Takes what is for `to` from the interface toward the other host.
    fn open(interface: &str, to: HostAddr, queues: usize) -> Result<Self, XdpError> {
        let mut config = XdpConfig::new(interface, &[Port(rma_xdp::config::DEFAULT_PORT)], &[to]);
        config.mode = Mode::Native;
        // Each queue's socket transmits.
        config.engines = Engines::Count(queues as u32);
        let tap = Tap::open(interface).expect("a packet socket");
        Ok(Self { sockets: SteeredSockets::open(&config, MTU)?, tap, queues })
    }

    fn socket(&mut self, queue: usize) -> &mut Socket {
        self.sockets.socket_mut(queue).expect("each queue has one")
    }

    /// Takes what has come, of 1RMA, in the order of each queue.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for queue in 0..self.queues {
            self.socket(queue).receive(BURST, |bytes, _| frames.push(bytes.to_vec()));
        }
        frames
    }

    /// Sends frames, each on its queue. One for which there is no room is lost.
    fn send(&mut self, frames: &[Vec<u8>], word: u64) {
        let queues = self.queues;
        for frame in frames {
            let socket = self.socket(queue_of(frame, word, queues));
            socket.room();
            let Some(mut chunk) = socket.take() else { continue };
            socket.bytes_mut(&mut chunk)[..frame.len()].copy_from_slice(frame);
            socket.stage(chunk, frame.len(), false);
        }
        for queue in 0..queues {
            let socket = self.socket(queue);
            socket.commit();
            socket.flush(Instant::ZERO);
        }
    }
}

fn carry_others(from: &Tap, to: &Tap, buffer: &mut [u8]) -> io::Result<()> {
    while let Some(len) = from.receive(buffer)? {
        to.send(&buffer[..len])?;
    }
    Ok(())
}

/// Frames are steered to sockets by addresses that the kernel has itself. This one is silent about
/// it: 8 stands for no answer to any ARP request, so the far host alone gives one.
fn let_be_local(middle: &Netns, interface: &str, address: HostAddr) {
    middle.sysctl(&format!("ipv4/conf/{interface}/arp_ignore"), "8").expect("a setting");
    let address = format!("{}/32", address.ip());
    middle.ip(&["addr", "add", &address, "dev", interface]).expect("the ip command");
}

/// The thread in the middle. Dropped, it ends.
#[derive(Debug)]
pub struct PatchPanel {
    hash: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PatchPanel {
    fn start(middle: &Netns, hosts: [HostAddr; 2], queues: usize, hash: Hash) -> Self {
        let mut sides = {
            let [a, b] = WIRE_INTERFACES;
            let ends = [(a, hosts[1]), (b, hosts[0])];
            for (interface, to) in ends {
                let_be_local(middle, interface, to);
            }
            let _inside = middle.enter().expect("the middle namespace");
            ends.map(|(interface, to)| Side::open(interface, to, queues).expect("AF_XDP sockets"))
        };
        let hash = Arc::new(AtomicU64::new(hash.to_word()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (word, stop) = (Arc::clone(&hash), Arc::clone(&is_over));
        let run = move || {
            let mut buffer = vec![0; 1 << 16];
            while !stop.load(SeqCst) {
                let [a, b] = &mut sides;
                let frames = [a.receive(), b.receive()];
                let is_idle = frames.iter().all(Vec::is_empty);
                b.send(&frames[0], word.load(SeqCst));
                a.send(&frames[1], word.load(SeqCst));
                carry_others(&a.tap, &b.tap, &mut buffer).expect("a packet socket");
                carry_others(&b.tap, &a.tap, &mut buffer).expect("a packet socket");
                if is_idle {
                    std::thread::yield_now();
                }
            }
        };
        let thread = std::thread::Builder::new().name("patch-panel".into()).spawn(run);
        Self { hash, is_over, thread: Some(thread.expect("a thread")) }
    }

    /// From now on another hash.
    pub fn set_hash(&self, hash: Hash) {
        self.hash.store(hash.to_word(), SeqCst);
    }
}

impl Drop for PatchPanel {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(panic)) = ended
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Two hosts of several engines, with a patch panel between them.
#[derive(Debug)]
pub struct Patched {
    /// The hosts. Dropped first.
    pub hosts: Hosts,
    /// The panel between them.
    pub panel: PatchPanel,
    _namespaces: Namespaces,
}

impl Patched {
    /// Hosts of so many engines, each with a queue. Needs root.
    ///
    /// # Panics
    /// If anything cannot be set up.
    #[must_use]
    pub fn new(engines: u32, hash: Hash) -> Self {
        let namespaces = Namespaces::with_queues(engines);
        let setup = Setup { engines: [Engines::Count(engines); 2], ..Setup::default() };
        let [client_addr, server_addr] = setup.addresses();
        let panel = PatchPanel::start(
            namespaces.middle(),
            [client_addr, server_addr],
            engines as usize,
            hash,
        );
        let open = |end, config| {
            let _inside = namespaces.host(end).enter().expect("a namespace");
            Host::open(config).expect("a host at the panel")
        };
        let client = open(End::A, setup.client(client_addr));
        let server = open(End::B, setup.server(server_addr));
        client.resolve(server_addr).expect("a way to the server");
        server.resolve(client_addr).expect("a way to the client");
        let port = rma_xdp::config::DEFAULT_PORT;
        let hosts =
            Hosts { client, client_addr, server: Some(server), server_addr, port, lab: None };
        Self { hosts, panel, _namespaces: namespaces }
    }
}
