//! A server that restarts has new keys. Whoever comes with a grant of its last life is told so,
//! also if this life has granted him nothing yet: over AF_XDP, where a notice needs a way to the
//! initiator and must not have one looked for, as anybody can send in its name, it goes back the
//! way that the request came.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;

use rma_tests::hosts::{CLIENT_PID, Hosts, Setup};
use rma_xdp::{
    Grant, Host, HostAddr, HostConfig, InlineHost, OpStatus, OpType, Permissions, Portal,
    RegisteredRegion,
    config::NicConfigBuilder,
    time::{Clock, TscClock},
};

/// Longer than a path takes to be found, by far.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's next life: an engine on a thread, or one that is turned here.
enum Server {
    Threaded(Box<Host>),
    Inline(Box<InlineHost>),
}

impl Server {
    fn grant(&mut self, initiator: HostAddr) -> Grant {
        let (len, read) = (4096, (CLIENT_PID, OpType::Read));
        match self {
            Self::Threaded(host) => {
                let region = host.register(len, Permissions::READ).unwrap();
                host.grant(&region, initiator, read.0, read.1).unwrap()
            }
            Self::Inline(host) => {
                let region = host.register(len, Permissions::READ).unwrap();
                host.grant(&region, initiator, read.0, read.1).unwrap()
            }
        }
    }

    /// Reads under `grant`, and returns the status.
    fn read(&mut self, portal: &mut Portal, grant: &Grant, sink: &RegisteredRegion) -> OpStatus {
        portal.read(grant, 0, sink, 0, 64).unwrap();
        loop {
            if let Some(completion) = portal.poll() {
                return completion.status;
            }
            match self {
                Self::Threaded(_) => std::thread::yield_now(),
                Self::Inline(host) => drop::<usize>(host.turn()),
            }
        }
    }
}

impl Server {
    /// Returns a counter of the device.
    fn device(&self, name: &str) -> u64 {
        let metrics = match self {
            Self::Threaded(host) => host.metrics(),
            Self::Inline(host) => host.metrics(),
        };
        let counter = metrics.device.counters.iter().find(|counter| counter.name == name);
        counter.expect("a counter of that name").value
    }
}

/// The server is killed and `restart`ed; who has a grant of before is told that it is void, before
/// anything is granted. Returns the new server, a portal to it, and where data would land.
fn a_stale_grant_is_refused(
    hosts: &mut Hosts,
    restart: impl FnOnce(&Hosts) -> Server,
) -> (Server, Portal, RegisteredRegion) {
    let mut portal = hosts.client.portal(1).unwrap();
    let sink = hosts.client.register(64, Permissions::NONE).unwrap();
    let mut last_life = Server::Threaded(Box::new(hosts.server.take().unwrap()));
    let stale = last_life.grant(hosts.client_addr);
    assert_eq!(last_life.read(&mut portal, &stale, &sink), OpStatus::Ok);
    drop(last_life);

    let mut server = restart(hosts);
    for _ in 0..3 {
        let status = server.read(&mut portal, &stale, &sink);
        assert_eq!(status, OpStatus::RemoteAuthenticationFailure);
    }
    (server, portal, sink)
}

/// The same over AF_XDP, where the server knows no path.
fn a_stale_grant_is_refused_by_the_link(ipv6: bool, restart: impl FnOnce(HostConfig) -> Server) {
    let setup = Setup { ipv6, ..Setup::default() };
    let mut hosts = Hosts::in_lab(&setup);
    let (mut server, mut portal, sink) = a_stale_grant_is_refused(&mut hosts, |hosts| {
        let _inside = hosts.lab.as_ref().unwrap().b().enter().unwrap();
        restart(setup.server(hosts.server_addr))
    });
    let returned = "rma_xdp_tx_link_return_total";
    assert_eq!(server.device(returned), 3);
    assert_eq!(server.device("rma_xdp_tx_no_path_total"), 0);

    // Nothing was learnt: data needs a path, which a grant has looked for while the host goes on.
    let fresh = server.grant(hosts.client_addr);
    let clock = TscClock::new();
    loop {
        match server.read(&mut portal, &fresh, &sink) {
            OpStatus::Ok => break,
            status => assert_eq!(status, OpStatus::Timeout),
        }
        assert!(Duration::from_nanos(clock.now().as_nanos()) < PATIENCE, "still no data");
    }
    assert_eq!(server.device(returned), 3, "with a path, it is the kernel's choice");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_restarted_host_refuses_a_stale_grant_though_it_has_granted_nothing() {
    a_stale_grant_is_refused_by_the_link(false, |config| {
        Server::Threaded(Box::new(Host::open(config).unwrap()))
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_restarted_inline_host_refuses_a_stale_grant_though_it_has_granted_nothing() {
    a_stale_grant_is_refused_by_the_link(true, |config| {
        Server::Inline(Box::new(InlineHost::open(config).unwrap()))
    });
}

/// The kernel knows the way.
#[test]
fn a_restarted_host_over_udp_refuses_a_stale_grant_though_it_has_granted_nothing() {
    let mut hosts = Hosts::over_udp(NicConfigBuilder::default());
    a_stale_grant_is_refused(&mut hosts, |hosts| {
        let (addr, port) = (hosts.server_addr, hosts.port);
        let config = HostConfig::udp(addr).with(|it| it.port = port);
        Server::Threaded(Box::new(Host::open(config).unwrap()))
    });
}
