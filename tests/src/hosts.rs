//! Two hosts to run a scenario between: over UDP on loopback, over AF_XDP on a veth pair, or one of
//! each.

use core::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
    time::Duration,
};

use rma_crypto::{AeadProvider, fastest};
use rma_lab::{Lab, LabConfig, udp_port_is_unused};
use rma_xdp::{
    Host, HostAddr, HostConfig, Pid,
    config::{CounterConfig, NicConfigBuilder, Timing},
    device::{Device, Engines, xdp::Mode},
    star::StarConfigBuilder,
};

/// The settings that the two hosts are opened with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The lab's network. Loopback has its own.
    pub lab: LabConfig,
    /// Whether the hosts talk over IPv6. In the lab only.
    pub ipv6: bool,
    /// Whether the client is over UDP sockets in the lab, and whether the server is.
    pub udp: (bool, bool),
    /// The AF_XDP mode of both hosts.
    pub mode: Mode,
    /// The client's, if it is another.
    pub client_mode: Option<Mode>,
    /// The engines of the client, and of the server.
    pub engines: [Engines; 2],
    /// Those who encrypt for the client, and for the server.
    pub aead: [&'static dyn AeadProvider; 2],
    /// Both NICs.
    pub nic: NicConfigBuilder,
    /// The settings of StaR on both, if they serve it.
    pub star: Option<StarConfigBuilder>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            lab: LabConfig::default(),
            ipv6: false,
            udp: (false, false),
            mode: Mode::Native,
            client_mode: None,
            engines: [Engines::One; 2],
            aead: [fastest(); 2],
            nic: NicConfigBuilder::default(),
            star: None,
        }
    }
}

impl Setup {
    /// The server of a lab, at `addr`.
    pub fn server(&self, addr: HostAddr) -> HostConfig {
        self.host(addr, SERVER_PID, self.udp.1, self.mode)
            .with(|it| (it.engines, it.aead) = (self.engines[1], self.aead[1]))
    }

    /// Returns the addresses of the client and the server of a lab.
    pub fn addresses(&self) -> [HostAddr; 2] {
        if self.ipv6 {
            [Lab::A_V6, Lab::B_V6].map(HostAddr::from)
        } else {
            [Lab::A_V4, Lab::B_V4].map(HostAddr::from)
        }
    }

    /// The client of a lab, at `addr`.
    pub fn client(&self, addr: HostAddr) -> HostConfig {
        self.host(addr, CLIENT_PID, self.udp.0, self.client_mode.unwrap_or(self.mode))
            .with(|it| (it.engines, it.aead) = (self.engines[0], self.aead[0]))
    }

    fn host(&self, addr: HostAddr, pid: Pid, udp: bool, mode: Mode) -> HostConfig {
        let device = if udp { Device::udp() } else { Device::xdp(Lab::INTERFACE).in_mode(mode) };
        let nic = patient(self.nic);
        HostConfig::udp(addr).with(|it| {
            it.device = device;
            it.port = rma_xdp::config::DEFAULT_PORT;
            it.pid = pid;
            it.nic = nic;
            it.star = self.star;
        })
    }
}

/// A host that reads and a host that is read from.
#[derive(Debug)]
pub struct Hosts {
    /// The one that reads.
    pub client: Host,
    /// Its address.
    pub client_addr: HostAddr,
    /// The one that is read from. `None` once it has been killed.
    pub server: Option<Host>,
    /// Its address.
    pub server_addr: HostAddr,
    /// Their port.
    pub port: u16,
    /// The network they are in. Dropped last.
    pub lab: Option<Lab>,
}

/// The PIDs of the two hosts' portals: two processes, as far as the NICs can tell.
pub const CLIENT_PID: Pid = Pid(1001);
const SERVER_PID: Pid = Pid(1002);

/// `nic` with timeouts that no stall of a busy machine runs off, unless it has timeouts of its own:
/// what scenarios are about is not how soon an op gives up.
fn patient(nic: NicConfigBuilder) -> NicConfigBuilder {
    if nic.timing != Timing::default() {
        return nic;
    }
    let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(1));
    nic.with(|it| it.timing = timing)
}

/// StaR that no stall of a busy machine ends connections of, and that soon asks quiet peers whether
/// they are there.
pub fn star() -> StarConfigBuilder {
    StarConfigBuilder::default().with(|it| {
        it.retries = 6;
        it.probe_interval = Duration::from_millis(300);
    })
}

/// The same with room for few work requests where a host is the stateful side: four for each
/// connection that a portal has a share of.
pub fn star_with_a_small_table() -> StarConfigBuilder {
    star().with(|it| (it.connections, it.work_requests) = (64, 256))
}

/// Two addresses on loopback and a port that no other test has, whichever process it runs in.
#[derive(Clone, Copy, Debug)]
pub struct Loopback {
    /// The addresses: this process's own, as its number is in them.
    pub addresses: [HostAddr; 2],
    /// The port. The kernel hands it out to nobody who does not name it.
    pub port: u16,
}

impl Loopback {
    /// A pair that has not been given out before.
    ///
    /// # Panics
    /// If no port is left.
    #[must_use]
    pub fn unused() -> Self {
        /// Below the ports that the kernel hands out.
        static NEXT: AtomicU16 = AtomicU16::new(11_000);
        let first = 0x7f00_0000 | std::process::id() << 1;
        let addresses = [first, first | 1].map(Ipv4Addr::from);
        loop {
            let port = NEXT.fetch_add(1, Relaxed);
            assert!(port < 32_768, "no UDP port from 11000 on is free on {}", addresses[0]);
            // Another process may have it, as on all addresses.
            if udp_port_is_unused(port).expect("the kernel's table of UDP sockets") {
                return Self { addresses: addresses.map(HostAddr::from), port };
            }
        }
    }
}

impl Loopback {
    /// An address of this process's own for a third host, on the port of the other two.
    #[must_use]
    pub fn third() -> HostAddr {
        // Process numbers have 22 bits.
        Ipv4Addr::from(0x7f80_0000 | std::process::id() << 1).into()
    }
}

impl Hosts {
    /// Two hosts over UDP on loopback. Needs no privileges.
    ///
    /// # Panics
    /// If they cannot be opened.
    #[must_use]
    pub fn over_udp(nic: NicConfigBuilder) -> Self {
        Self::over_udp_counting(nic, &CounterConfig::default())
    }

    /// The same, with message counters of one's own choice.
    ///
    /// # Panics
    /// If they cannot be opened.
    #[must_use]
    pub fn over_udp_counting(nic: NicConfigBuilder, counter: &CounterConfig) -> Self {
        Self::over_udp_as(nic, |it| it.counter = counter.clone())
    }

    /// Two hosts over UDP on loopback, each with `change` made to its configuration.
    fn over_udp_as(nic: NicConfigBuilder, change: impl Fn(&mut HostConfig)) -> Self {
        let Loopback { addresses: [client_addr, server_addr], port } = Loopback::unused();
        let open = |addr: HostAddr, pid| {
            let config = HostConfig::udp(addr).with(|it| {
                it.port = port;
                it.pid = pid;
                it.nic = patient(nic);
                change(it);
            });
            Host::open(config).expect("UDP sockets on loopback")
        };
        Self {
            client: open(client_addr, CLIENT_PID),
            server: Some(open(server_addr, SERVER_PID)),
            client_addr,
            server_addr,
            port,
            lab: None,
        }
    }

    /// Two hosts over UDP on loopback that serve StaR too. Needs no privileges.
    ///
    /// # Panics
    /// If they cannot be opened.
    #[must_use]
    pub fn over_udp_with_star(star: StarConfigBuilder) -> Self {
        let ports = [(); 2].map(|()| Loopback::unused().port);
        Self::over_udp_as(NicConfigBuilder::default(), |it| {
            it.star = Some(star);
            [it.stateless_port, it.stateful_port] = ports;
        })
    }

    /// Two hosts in two namespaces. Needs root.
    ///
    /// # Panics
    /// If anything cannot be set up.
    #[must_use]
    pub fn in_lab(setup: &Setup) -> Self {
        Self::in_this(Lab::new(&setup.lab).expect("a lab"), setup)
    }

    /// Two hosts in the namespaces of a lab.
    ///
    /// # Panics
    /// If anything cannot be set up.
    #[must_use]
    pub fn in_this(lab: Lab, setup: &Setup) -> Self {
        let [client_addr, server_addr] = setup.addresses();
        let port = rma_xdp::config::DEFAULT_PORT;
        let open = |config| Host::open(config).expect("a host in the lab");
        let client = {
            let _inside = lab.a().enter().expect("namespace a");
            open(setup.client(client_addr))
        };
        let server = {
            let _inside = lab.b().enter().expect("namespace b");
            open(setup.server(server_addr))
        };
        client.resolve(server_addr).expect("a way to the server");
        server.resolve(client_addr).expect("a way to the client");
        Self { client, server: Some(server), client_addr, server_addr, port, lab: Some(lab) }
    }

    /// The server.
    ///
    /// # Panics
    /// If it has been killed.
    #[must_use]
    pub fn server(&self) -> &Host {
        self.server.as_ref().expect("the server lives")
    }
}
