//! Two real hosts for channels, with some processes on each.

use core::{fmt, time::Duration};

use rma_channel::{Link, Peer};
use rma_contract::hosts::{Driven, Hosts};
use rma_core::{
    executor::{CommandExecutor, ExecutorConfig},
    gate::Gate,
    time::{Clock as _, Instant},
};
use rma_lab::Lab;
use rma_sim::net::frame::NodeId;
use rma_xdp::{
    HostAddr, HostConfig, InlineHost, Pid, Tenant, TenantConfig,
    config::{NicConfigBuilder, Timing},
    ops::PortalLease,
    time::TscClock,
};

use crate::hosts::{Loopback, Setup};

/// Command slots of each link.
const SLOTS: u16 = 32;

/// Processes, each with a link: those with even numbers on one host, the others on the other.
const NODES: u16 = 8;

/// A process.
#[derive(Debug)]
struct Node {
    tenant: Tenant,
    link: Link,
    _lease: PortalLease,
}

/// Two hosts with several processes each, and the network between them. All is in the hands of one
/// thread.
#[derive(Debug)]
pub struct World {
    about: String,
    nodes: Vec<Node>,
    hosts: [InlineHost; 2],
    addresses: [HostAddr; 2],
    clock: TscClock,
    /// How many turns there were in which no host had anything to do.
    idle: u64,
    /// The network that they are in, unless that is loopback. Dropped last.
    _lab: Option<Lab>,
}

/// Longer than a busy machine stalls between two lines of a test: channels are not about how soon
/// an op gives up.
fn timing() -> Timing {
    Timing::software(Duration::from_micros(10), Duration::from_secs(5))
}

impl World {
    /// Two hosts over UDP on loopback. Needs no privileges.
    ///
    /// # Panics
    /// If they cannot be opened.
    #[must_use]
    pub fn over_udp() -> Self {
        let Loopback { addresses, port } = Loopback::unused();
        let nic = NicConfigBuilder::default().with(|it| it.timing = timing());
        let open = |address: HostAddr| {
            let config = HostConfig::udp(address).with(|it| (it.port, it.nic) = (port, nic));
            InlineHost::open(config).expect("UDP sockets on loopback")
        };
        Self::new("UDP".to_owned(), addresses.map(open), addresses, None)
    }

    /// Two hosts in two namespaces. Needs root.
    ///
    /// # Panics
    /// If anything cannot be set up.
    #[must_use]
    pub fn in_lab(setup: &Setup) -> Self {
        let nic = setup.nic.with(|it| it.timing = timing());
        let setup = Setup { nic, ..setup.clone() };
        let lab = Lab::new(&setup.lab).expect("a lab");
        let addresses @ [client, server] = setup.addresses();
        let open = |config| InlineHost::open(config).expect("a host in the lab");
        let hosts = [(lab.a(), setup.client(client)), (lab.b(), setup.server(server))];
        let hosts = hosts.map(|(namespace, config)| {
            let _inside = namespace.enter().expect("a namespace");
            open(config)
        });
        for (host, far) in hosts.iter().zip([server, client]) {
            host.resolve(far).expect("a way to the other host");
        }
        Self::new(hosts[0].info().to_string(), hosts, addresses, Some(lab))
    }

    fn new(
        about: String,
        hosts: [InlineHost; 2],
        addresses: [HostAddr; 2],
        lab: Option<Lab>,
    ) -> Self {
        let nodes = (0..NODES).map(|node| {
            let host = &hosts[usize::from(node % 2)];
            let config = TenantConfig::named(&format!("process {node}"));
            let pid = Some(Pid(100 + u32::from(node)));
            let config = config.with(|it| it.pid = pid);
            let tenant = host.tenant(config).expect("a tenant");
            let portal = host.for_tenant(&tenant).portal(SLOTS).expect("a portal");
            let (portal, lease) = portal.into_parts();
            let executor = CommandExecutor::new(portal, ExecutorConfig::default());
            Node { tenant, link: Link::new(executor.expect("an executor")), _lease: lease }
        });
        let nodes = nodes.collect();
        Self { about, nodes, hosts, addresses, clock: TscClock::new(), idle: 0, _lab: lab }
    }

    /// Checks that channels which are closed have left nothing: a host has only so many regions.
    pub(crate) fn check_rows(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let usage = self.hosts[number % 2].for_tenant(&node.tenant).usage().expect("an engine");
            assert_eq!(usage.regions.used, 0, "{self}: of process {number}");
        }
    }
}

impl Hosts for World {
    fn gate(&mut self, node: NodeId) -> Box<dyn Gate + '_> {
        let tenant = &self.nodes[usize::from(node.0)].tenant;
        Box::new(self.hosts[usize::from(node.0 % 2)].for_tenant(tenant))
    }

    fn peer(&self, node: NodeId) -> Peer {
        let address = self.addresses[usize::from(node.0 % 2)];
        Peer { address, pid: self.nodes[usize::from(node.0)].tenant.pid() }
    }

    fn timing(&self) -> Timing {
        timing()
    }

    fn reader_timeout(&self) -> Duration {
        Duration::from_hours(1)
    }

    fn look_every(&self) -> Duration {
        Duration::ZERO
    }
}

impl Driven for World {
    const STANDS_STILL: bool = false;

    // More turns than a frame that got lost is missed for, however quick they are: all of ten
    // seconds if each took a tenth of a microsecond.
    const IDLE_STEPS_MAX: u64 = 100_000_000;

    fn seed(&self) -> u64 {
        1
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn is_running(&self, _: NodeId) -> bool {
        true
    }

    fn link(&mut self, node: NodeId) -> (&mut Link, Instant) {
        (&mut self.nodes[usize::from(node.0)].link, self.clock.now())
    }

    fn take_commands(&mut self, _: NodeId) -> usize {
        0
    }

    fn step(&mut self, _: Option<Instant>) {
        let work: usize = self.hosts.iter_mut().map(InlineHost::turn).sum();
        self.idle = if work > 0 { 0 } else { self.idle + 1 };
        // The kernel has the packets on their way, and may need this core. Not each time: on a busy
        // machine it is long until a turn comes again.
        if self.idle % 1000 == 999 {
            std::thread::yield_now();
        }
    }

    fn wake_at(&self, _: NodeId, local: Instant) -> Option<Instant> {
        Some(local)
    }

    fn nodes(&self) -> u16 {
        NODES
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about)
    }
}
