//! A host with one process, whose engine turns when it is told to; and what two processes say.

use core::time::Duration;
use std::{
    path::Path,
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
};

use rma_channel::{Claims, Link, Message, Peer as ChannelPeer, Terms};
use rma_core::executor::CommandExecutor;
use rma_lab::Scratch;
use rma_tests::hosts::Loopback;
use rma_xdp::{
    HostAddr, HostConfig, InlineHost, OpStatus,
    config::{NicConfigBuilder, Timing},
    ops::PortalLease,
    time::{Clock as _, Instant, TscClock},
};

use crate::{
    hosts::{Network, PID, Place, Side},
    peer::{Part, Peer, orders, wait_for},
};

/// Long enough for a busy machine to do most ops in time. Those that it does not are asked about,
/// or done again.
pub(super) const TIMING: Timing =
    Timing::new(Duration::from_millis(200), Duration::from_millis(500));

/// Longer than a busy machine holds up a reader that lives.
pub(super) const READER_TIMEOUT: Duration = Duration::from_secs(4);

/// How long messages are.
pub(super) const LEN: usize = 16;

/// Message `number` of sender `index`.
pub(super) fn message(index: u64, number: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&index.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Returns the sender and the number of a message.
pub(super) fn number<C: Claims>(message: &Message<'_, C>) -> (u64, u64) {
    let mut bytes = [0; LEN];
    assert_eq!((message.len(), message.copy_to(&mut bytes)), (LEN, LEN));
    let [index, number] = [&bytes[..8], &bytes[8..]]
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    (index, number)
}

/// The process of a host of the two that are known to both.
pub(super) const fn peer_in(network: Network, side: Side) -> ChannelPeer {
    ChannelPeer { address: network.address(side), pid: PID }
}

/// The same, of a place.
pub(super) const fn peer_of(place: &Place, side: Side) -> ChannelPeer {
    peer_in(place.network, side)
}

/// Terms after a word, as a line.
pub(super) fn words(word: &str, terms: &Terms) -> String {
    let hex: String = terms.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{word} {hex}")
}

fn terms_of(hex: &str) -> Terms {
    let bytes = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..][..2], 16).unwrap());
    Terms::from_bytes(&bytes.collect::<Vec<u8>>()).unwrap()
}

/// The terms that the other process says after `word`.
pub(super) fn hear(peer: &Peer, word: &str) -> Terms {
    let mut heard = None;
    wait_for(word, || {
        heard = peer.try_hear();
        heard.is_some()
    });
    let [said, hex] = &heard.unwrap()[..] else { panic!("two words") };
    assert_eq!(said, word);
    terms_of(hex)
}

/// The lines from the process that started this one, without waiting for it.
pub(super) struct Orders(Receiver<String>);

impl Orders {
    pub(super) fn new() -> Self {
        let (say, heard) = channel();
        thread::spawn(move || orders().all(|line| say.send(line).is_ok()));
        Self(heard)
    }

    /// The next order, if there is one. If there are no more this process ends.
    pub(super) fn next(&mut self) -> Option<String> {
        match self.0.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => std::process::exit(0),
        }
    }

    /// The terms that come first.
    pub(super) fn terms(&mut self, station: &mut Station) -> Terms {
        loop {
            station.turn();
            if let Some(line) = self.next() {
                let hex = line.strip_prefix("terms ").expect("terms come first");
                return terms_of(hex);
            }
        }
    }
}

/// A host with one process, which has one link.
pub(super) struct Station {
    pub(super) host: InlineHost,
    link: Link,
    clock: TscClock,
    address: HostAddr,
    _lease: PortalLease,
    /// Of its message counter, if that is not the starting process's to keep.
    _state_dir: Option<Scratch>,
}

impl Station {
    fn new(address: HostAddr, port: u16, state_dir: &Path) -> Self {
        let config = HostConfig::udp(address).with(|it| {
            (it.port, it.pid) = (port, PID);
            it.nic = NicConfigBuilder::default().with(|it| it.timing = TIMING);
            it.counter.state_dir = Some(state_dir.to_owned());
        });
        let host = InlineHost::open(config).unwrap();
        let (portal, lease) = host.portal(64).unwrap().into_parts();
        let executor = CommandExecutor::new(portal, host.executor_config()).unwrap();
        let (link, clock) = (Link::new(executor), TscClock::new());
        Self { host, link, clock, address, _lease: lease, _state_dir: None }
    }

    fn with_scratch(address: HostAddr, port: u16) -> Self {
        let scratch = Scratch::new();
        let it = Self::new(address, port, scratch.path());
        Self { _state_dir: Some(scratch), ..it }
    }

    /// The other process's.
    pub(super) fn of(part: &Part) -> Self {
        Self::new(part.network.address(part.side), part.network.ports[0], &part.state_dir)
    }

    /// One of the two, in this process.
    pub(super) fn open(place: &Place, side: Side) -> Self {
        Self::with_scratch(place.network.address(side), place.network.ports[0])
    }

    /// The one that others write to or read from, in this process.
    pub(super) fn at_home(place: &Place) -> Self {
        Self::open(place, Side::Target)
    }

    /// A third one, in this process.
    pub(super) fn third(place: &Place) -> Self {
        Self::with_scratch(Loopback::third(), place.network.ports[0])
    }

    pub(super) fn peer(&self) -> ChannelPeer {
        ChannelPeer { address: self.address, pid: self.host.pid() }
    }

    /// How many of its ops have ended so.
    pub(super) fn completed(&self, status: OpStatus) -> u64 {
        self.host.engines()[0].counters.completions(status)
    }

    /// One turn of the engine, after which the link has looked.
    pub(super) fn turn(&mut self) {
        if self.host.turn() == 0 {
            // The kernel has the packets on their way, and may need this core.
            thread::yield_now();
        }
        self.link.poll(self.clock.now());
    }

    /// Its link, and the time.
    pub(super) fn link(&mut self) -> (&mut Link, Instant) {
        (&mut self.link, self.clock.now())
    }
}
