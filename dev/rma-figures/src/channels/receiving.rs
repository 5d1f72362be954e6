//! The work of a ring's receiver for messages, and nothing else, for a profiler: see
//! [`instructions`](crate::instructions).
//!
//! Both hosts are simulated, so nothing here depends on time or another thread. Invariant: there is
//! one look for each batch, which finds all of its messages, and each is what was sent.

use core::time::Duration;

use rma_bench::error::PairError;
use rma_core::{addr::Pid, executor::CommandExecutor, time::Instant};
use rma_sim::{
    hosts::{gate::SimHost, network::Network, options::NetworkOptions},
    net::frame::NodeId,
};
use rma_xdp::channel::{
    AnyReceiver, ChannelConfig, Kind, Link, Message, Outgoing as _, Peer, Receiver as _, SendState,
    Sender as _, ring::RingLen,
};

use super::{Ends, failed, fill, open::both_ends};

/// Messages of a batch: less than half of a ring of the longest.
pub const BATCH: u64 = 8;

/// Bytes of the ring.
const RING_LEN: u64 = 1 << 17;

/// The nodes of the sender and of the receiver.
const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];

/// How long the network goes on between two looks at what it has done.
const STEP: Duration = Duration::from_micros(5);

/// Steps that a batch takes at most.
const STEPS_MAX: usize = 10_000;

/// Sends so many batches of messages of `size` bytes, of 4 KiB at most, through a ring with or
/// without zeroing.
///
/// # Errors
/// If the kind is no such ring.
///
/// # Panics
/// If a message does not come, or is another.
pub fn profile(kind: Kind, size: u32, batches: u64) -> Result<(), PairError> {
    let mut network = Network::new(NetworkOptions::exact(2));
    let [sender, receiver] = NODES.map(|node| peer(&network, node));
    if !matches!(kind, Kind::RingWithZeroing | Kind::RingWithoutZeroing) {
        return Err(failed(kind)(&"it is not a ring with bells in its messages"));
    }
    let config = ChannelConfig::new(size, 1).with(|it| it.ring = RingLen::new(RING_LEN).ok());
    let failed = failed(kind);
    let half = kind.open(&host(&mut network, NODES[1]), &config, sender);
    let half = half.map_err(|error| failed(&error.why))?;
    let joined = kind.join(&host(&mut network, NODES[0]), &config, receiver, half.terms());
    let ends = both_ends(half, joined, &failed)?;
    let links = NODES.map(|node| {
        let portal = network.portal(node, 32, pid(node));
        let executor = CommandExecutor::new(portal, network.executor());
        Link::new(executor.expect("a network's own settings work"))
    });
    let mut run = Run { network, links, ends, size: size as usize, sent: 0 };
    (0..batches).for_each(|_| run.batch());
    Ok(())
}

/// A ring between two hosts.
struct Run {
    network: Network,
    links: [Link; 2],
    ends: Ends,
    size: usize,
    sent: u64,
}

impl Run {
    /// Sends a batch, waits until all of it is there, and looks once.
    fn batch(&mut self) {
        let mut bytes = vec![0; self.size];
        let mut newest = None;
        for _ in 0..BATCH {
            self.sent += 1;
            fill(&mut bytes, self.sent);
            let now = self.network.local_now(NODES[0]);
            let sent = self.ends.0.send(&mut self.links[0], now, &bytes);
            newest = Some(sent.expect("the ring has room for two batches"));
        }
        let newest = newest.expect("a batch has messages");
        let is_there = |run: &Self| {
            matches!(run.ends.0.test(newest), SendState::Accepted | SendState::Processed)
        };
        for _ in 0..STEPS_MAX {
            if is_there(self) {
                break;
            }
            self.step();
        }
        assert!(is_there(self), "message {} is lost", self.sent);
        let now = self.network.local_now(NODES[1]);
        let mut expected = self.sent - BATCH;
        let link = &mut self.links[1];
        let seen = receiver_look(&mut self.ends.1, link, now, &mut bytes);
        expected += seen;
        // The newest is what is in `bytes`.
        let mut last = vec![0; self.size];
        fill(&mut last, self.sent);
        assert!(expected == self.sent && bytes == last, "{seen} messages of {BATCH}");
    }

    /// Runs one step of time.
    fn step(&mut self) {
        let until = self.network.now() + STEP;
        loop {
            for (node, link) in NODES.into_iter().zip(&mut self.links) {
                link.poll(self.network.local_now(node));
                self.network.take_commands(node);
            }
            let now = self.network.local_now(NODES[0]);
            self.ends.0.poll(&mut self.links[0], now).expect("nothing fails here");
            if self.network.next_at().is_none_or(|next| next > until) {
                break;
            }
            self.network.step();
        }
        self.network.advance_to(until);
    }
}

/// All that a receiver does for the messages that are there: it copies each into `bytes`, gives it
/// back, and tells how far it is. Returns how many there were. A function of its own, so that a
/// profiler can tell it apart.
#[inline(never)]
fn receiver_look(
    receiver: &mut AnyReceiver,
    link: &mut Link,
    now: Instant,
    bytes: &mut [u8],
) -> u64 {
    let mut seen = 0;
    while let Some(message) = Message::next(receiver).expect("its sender is honest") {
        message.copy_to(bytes);
        seen += 1;
    }
    receiver.poll(link, now).expect("nothing fails here");
    core::hint::black_box(seen)
}

/// The process of a node.
const fn pid(node: NodeId) -> Pid {
    Pid(100 + node.0 as u32)
}

fn peer(network: &Network, node: NodeId) -> Peer {
    Peer { address: network.address(node), pid: pid(node) }
}

/// A node's process, for setting channels up.
const fn host(network: &mut Network, node: NodeId) -> SimHost<'_> {
    SimHost::new(network, (node, pid(node)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_finds_a_batch_in_a_ring_with_zeroing_and_in_one_without() {
        for kind in [Kind::RingWithZeroing, Kind::RingWithoutZeroing] {
            for size in [8, 64, 4096] {
                // Several times around the ring.
                profile(kind, size, 20).unwrap();
            }
        }
        assert!(profile(Kind::RingImmediate, 64, 1).is_err(), "its bell is an event");
    }
}
