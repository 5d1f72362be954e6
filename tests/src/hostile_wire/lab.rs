//! Three namespaces in a row: host a, the wire, host b. The hosts are on one subnet and see one
//! cable.

use core::time::Duration;

use rma_lab::{Lab, Netns};
use rma_xdp::{
    Host, HostAddr, HostConfig, Pid,
    config::NicConfigBuilder,
    device::{Device, udp::UdpBatching, xdp},
    time::{Clock, TscClock},
};

use super::forwarder::Wire;
use crate::hosts::CLIENT_PID;

/// The PID of the server's process, as its NIC knows it.
pub const SERVER_PID: Pid = Pid(1002);

/// The wire's ends of the two veth pairs.
pub(super) const WIRE_INTERFACES: [&str; 2] = ["wire-a", "wire-b"];

/// How long the links may take to come up.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a host may be busy that was closed just now.
const REOPEN_TIMEOUT_NANOS: u64 = 60_000_000_000;

/// One end of the wire, and the host that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum End {
    /// The client's.
    A = 0,
    /// The server's.
    B = 1,
}

impl End {
    /// Both ends, in order.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The settings that the hosts at the two ends are opened with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Of the wire's choices.
    pub seed: u64,
    /// Whether the hosts are over kernel UDP sockets, instead of AF_XDP.
    pub udp: bool,
    /// The AF_XDP mode.
    pub mode: xdp::Mode,
    /// Whether the hosts talk over IPv6.
    pub ipv6: bool,
    /// Both NICs.
    pub nic: NicConfigBuilder,
}

impl Setup {
    /// The address of the host at `end`.
    #[must_use]
    pub fn address(&self, end: End) -> HostAddr {
        match (end, self.ipv6) {
            (End::A, false) => Lab::A_V4.into(),
            (End::B, false) => Lab::B_V4.into(),
            (End::A, true) => Lab::A_V6.into(),
            (End::B, true) => Lab::B_V6.into(),
        }
    }
}

/// The namespaces of both hosts and of the wire, and the links between them. Dropped, all of it is
/// gone.
#[derive(Debug)]
pub struct Namespaces {
    hosts: [Netns; 2],
    middle: Netns,
}

impl Namespaces {
    /// Builds them and waits until the links are up. Needs root.
    ///
    /// # Panics
    /// If anything cannot be set up.
    #[must_use]
    pub fn new() -> Self {
        Self::with_queues(1)
    }

    /// The same, where each interface has so many queues to send from and as many to receive on.
    ///
    /// # Panics
    /// If anything cannot be set up.
    #[must_use]
    pub fn with_queues(queues: u32) -> Self {
        Lab::sweep().expect("a look at what killed runs left");
        let hosts = ["a", "b"].map(|tag| Netns::create(tag).expect("a namespace; this needs root"));
        let middle = Netns::create("wire").expect("a namespace");
        // The wire itself says nothing.
        middle.sysctl("ipv6/conf/default/disable_ipv6", "1").expect("a setting");
        let addresses = [(Lab::A_V4, Lab::A_V6), (Lab::B_V4, Lab::B_V6)];
        for ((netns, far), (v4, v6)) in hosts.iter().zip(WIRE_INTERFACES).zip(addresses) {
            let ip = |words: &str| {
                let words: Vec<&str> = words.split(' ').collect();
                netns.ip(&words).expect("the ip command")
            };
            let near = Lab::INTERFACE;
            let queues = format!("numrxqueues {queues} numtxqueues {queues}");
            ip(&format!(
                "link add {near} {queues} type veth peer name {far} {queues} netns {}",
                middle.name()
            ));
            ip(&format!("addr add {v4}/{} dev {near}", Lab::V4_PREFIX));
            ip(&format!("addr add {v6}/{} dev {near} nodad", Lab::V6_PREFIX));
            ip(&format!("link set dev {near} up"));
            middle.ip(&["link", "set", "dev", far, "up"]).expect("the ip command");
        }
        for netns in &hosts {
            wait_for_carrier(netns);
        }
        Self { hosts, middle }
    }

    /// That of the host at `end`.
    #[must_use]
    pub const fn host(&self, end: End) -> &Netns {
        &self.hosts[end as usize]
    }

    /// That of the wire.
    #[must_use]
    pub const fn middle(&self) -> &Netns {
        &self.middle
    }
}

impl Default for Namespaces {
    fn default() -> Self {
        Self::new()
    }
}

/// The namespaces, the links and the wire's thread. Dropped, all of it is gone.
#[derive(Debug)]
pub struct WireLab {
    wire: Wire,
    namespaces: Namespaces,
}

impl WireLab {
    /// Builds it and waits until the links are up. Needs root.
    ///
    /// # Panics
    /// If anything cannot be set up.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let namespaces = Namespaces::new();
        let port = rma_xdp::config::DEFAULT_PORT;
        let wire = Wire::start(namespaces.middle(), WIRE_INTERFACES, port, seed);
        Self { wire, namespaces }
    }

    /// The wire between the two hosts, which attackers hold.
    #[must_use]
    pub const fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The namespace of the host at `end`.
    #[must_use]
    pub const fn netns(&self, end: End) -> &Netns {
        self.namespaces.host(end)
    }

    /// Opens a host at `end`, as process `pid`, under `address`.
    ///
    /// # Panics
    /// If it cannot be opened, or does not find the way to the other end.
    #[must_use]
    pub fn open_as(&self, setup: &Setup, end: End, pid: Pid, address: HostAddr) -> Host {
        let _inside = self.netns(end).enter().expect("a namespace");
        let mut config = HostConfig::udp(address).with(|it| {
            it.pid = pid;
            it.nic = setup.nic;
        });
        if setup.udp {
            // A packet that the kernel sends as one is longer than the wire between them carries.
            let batching = UdpBatching::ALL.with(|it| it.gso = false);
            config.device = Device::udp().with_batching(batching);
        } else {
            config.device = Device::xdp(Lab::INTERFACE).in_mode(setup.mode);
        }
        // The child of another test of this process may hold copies of what the last host here has
        // closed, between its fork and its exec.
        let clock = TscClock::new();
        let host = loop {
            match Host::open(config.clone()) {
                Ok(host) => break host,
                Err(error) if clock.now().as_nanos() > REOPEN_TIMEOUT_NANOS => panic!("{error}"),
                Err(_) => std::thread::yield_now(),
            }
        };
        host.resolve(setup.address(end.other())).expect("a way to the other end");
        host
    }
}

/// Carrier comes a moment after both ends are up.
fn wait_for_carrier(netns: &Netns) {
    let clock = TscClock::new();
    loop {
        let link = netns.ip(&["-o", "link", "show", "dev", Lab::INTERFACE]).expect("a link");
        if link.contains("LOWER_UP") {
            return;
        }
        let waited = Duration::from_nanos(clock.now().as_nanos());
        assert!(waited < READY_TIMEOUT, "no carrier: {link}");
    }
}

/// A client and a server at the ends of a hostile wire.
#[derive(Debug)]
pub struct Ends {
    /// The one that issues ops. `None` while nobody is there.
    pub client: Option<Host>,
    /// The one whose memory they are on. `None` while it is down.
    pub server: Option<Host>,
    /// The settings that they were opened with.
    pub setup: Setup,
    /// The lab that they are in. Dropped last.
    pub lab: WireLab,
}

impl Ends {
    /// Builds the lab and opens both hosts. The wire is good as yet.
    ///
    /// # Panics
    /// If anything cannot be set up.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let lab = WireLab::new(setup.seed);
        let mut ends = Self { client: None, server: None, setup, lab };
        ends.open_client(CLIENT_PID);
        ends.restart_server();
        ends
    }

    /// Opens the client anew, as process `pid`.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open_client(&mut self, pid: Pid) {
        self.open_client_at(pid, self.client_addr());
    }

    /// Opens the client anew, as process `pid` and at an address of its interface.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open_client_at(&mut self, pid: Pid, address: HostAddr) {
        self.client = None;
        self.client = Some(self.lab.open_as(&self.setup, End::A, pid, address));
    }

    /// Ends the server, with its regions, and opens a new one in its place.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn restart_server(&mut self) {
        self.server = None;
        let address = self.server_addr();
        self.server = Some(self.lab.open_as(&self.setup, End::B, SERVER_PID, address));
    }

    /// The client.
    ///
    /// # Panics
    /// If there is none just now.
    #[must_use]
    pub fn client(&self) -> &Host {
        self.client.as_ref().expect("the client lives")
    }

    /// The server.
    ///
    /// # Panics
    /// If there is none just now.
    #[must_use]
    pub fn server(&self) -> &Host {
        self.server.as_ref().expect("the server lives")
    }

    /// The client's address.
    #[must_use]
    pub fn client_addr(&self) -> HostAddr {
        self.setup.address(End::A)
    }

    /// The server's address.
    #[must_use]
    pub fn server_addr(&self) -> HostAddr {
        self.setup.address(End::B)
    }

    /// The wire between them.
    #[must_use]
    pub const fn wire(&self) -> &Wire {
        self.lab.wire()
    }
}
