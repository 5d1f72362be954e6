//! The network interface goes away under running hosts, and comes back: what hosts say meanwhile,
//! how ops end, and that both go on afterwards.
//!
//! An end of a veth pair that is deleted takes the other with it, so both hosts lose their
//! interface at once.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::time::Duration;
use std::thread;

use rma_lab::{Lab, LabConfig, Netns, Pattern};
use rma_tests::{
    exposition::Exposition,
    hosts::{CLIENT_PID, Hosts, Setup},
};
use rma_xdp::{
    Grant, Host, HostAddr, HostConfig, HostError, InlineHost, OpStatus, OpType, Permissions,
    Portal, RegionKey, RegisteredRegion,
    device::{InterfaceState, net::PathError},
    time::{Clock, TscClock},
};

/// Only for what never comes.
const DEADLINE: Duration = Duration::from_secs(30);

const LEN: usize = 64 << 10;

/// Calls `ask` until it has an answer.
pub(super) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let clock = TscClock::new();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        let waited = Duration::from_nanos(clock.now().as_nanos());
        assert!(waited < DEADLINE, "waited {DEADLINE:?} for {what}");
        thread::yield_now();
    }
}

pub(super) fn wait_state(host: &Host, wanted: InterfaceState) {
    wait_for("the interface's state", || (host.interface().unwrap().state == wanted).then_some(()));
}

pub(super) fn wait_attachments(host: &Host, wanted: u64) {
    wait_for("the interface to be attached again", || {
        let interface = host.interface().unwrap();
        let up = interface.state == InterfaceState::Up;
        (up && interface.attachments == wanted).then_some(())
    });
}

/// The client's reads and writes.
pub(super) struct Scene {
    pub(super) region: RegisteredRegion,
    to_read: Grant,
    to_write: Grant,
    portal: Portal,
    local: RegisteredRegion,
    pattern: Pattern,
    /// The longest that an op has taken, as its NIC has measured it.
    pub(super) slowest: Duration,
}

impl Scene {
    pub(super) fn new(hosts: &Hosts) -> Self {
        let all = Permissions::READ | Permissions::WRITE | Permissions::REKEY;
        let region = hosts.server().register(LEN, all).unwrap();
        let pattern = Pattern::new(7);
        pattern.fill_region(&region);
        let grant = |op_type| {
            hosts.server().grant(&region, hosts.client_addr, CLIENT_PID, op_type).unwrap()
        };
        let (to_read, to_write) = (grant(OpType::Read), grant(OpType::Write));
        let portal = hosts.client.portal(8).unwrap();
        let local = hosts.client.register(LEN, Permissions::NONE).unwrap();
        let slowest = Duration::ZERO;
        Self { region, to_read, to_write, portal, local, pattern, slowest }
    }

    /// Goes on with grants for the region's key of now.
    pub(super) fn regrant(&mut self, hosts: &Hosts) {
        let grant = |op_type| {
            hosts.server().grant(&self.region, hosts.client_addr, CLIENT_PID, op_type).unwrap()
        };
        (self.to_read, self.to_write) = (grant(OpType::Read), grant(OpType::Write));
    }

    /// Has the region's key changed by an op. Returns how that ended.
    pub(super) fn rekey(&mut self, hosts: &Hosts, key: RegionKey) -> OpStatus {
        let Hosts { client_addr, .. } = *hosts;
        let grant = hosts.server().grant(&self.region, client_addr, CLIENT_PID, OpType::Rekey);
        self.portal.rekey(&grant.unwrap(), key).unwrap();
        self.take_all(1)[0]
    }

    /// Reads and writes over all slots. Returns how each ended.
    pub(super) fn load(&mut self) -> Vec<OpStatus> {
        let issued = self.issue_all();
        self.take_all(issued)
    }

    /// Fills all slots with reads and writes of what is there anyway.
    pub(super) fn issue_all(&mut self) -> usize {
        let mut issued = 0;
        while self.portal.next_slot().is_some() {
            let at = issued * 4096;
            if issued % 2 == 0 {
                self.portal.read(&self.to_read, at, &self.local, at, 4096).unwrap();
            } else {
                let mut bytes = [0; 4096];
                self.pattern.fill(at, &mut bytes);
                self.local.write(at, &bytes).unwrap();
                self.portal.write(&self.to_write, at, &self.local, at, 4096).unwrap();
            }
            issued += 1;
        }
        issued as usize
    }

    /// Waits for all that is in flight. Each op completes once.
    pub(super) fn take_all(&mut self, count: usize) -> Vec<OpStatus> {
        let take = |_| {
            let completion = self.portal.wait_timeout(DEADLINE).unwrap();
            let completion = completion.expect("every op completes");
            self.slowest = self.slowest.max(completion.total_delay());
            completion.status
        };
        let statuses = (0..count).map(take).collect();
        assert_eq!(self.portal.outstanding(), 0);
        statuses
    }

    /// Reads until it works, and checks every byte of all 64 KiB then.
    pub(super) fn assert_works_again(&mut self) {
        wait_for("a read that is OK", || {
            self.portal.read(&self.to_read, 0, &self.local, 0, 64).unwrap();
            (self.take_all(1) == [OpStatus::Ok]).then_some(())
        });
        for at in (0..LEN as u64).step_by(4096) {
            self.portal.read(&self.to_read, at, &self.local, at, 4096).unwrap();
            assert_eq!(self.take_all(1), [OpStatus::Ok]);
        }
        let mut bytes = vec![0; LEN];
        self.local.read(0, &mut bytes).unwrap();
        assert_eq!(self.pattern.first_difference(0, &bytes), None);
        let issued = self.issue_all();
        assert_eq!(self.take_all(issued), vec![OpStatus::Ok; issued]);
    }
}

fn lab(hosts: &Hosts) -> &Lab {
    hosts.lab.as_ref().unwrap()
}

fn delete(netns: &Netns) {
    netns.ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
}

fn metrics(host: &Host) -> Exposition {
    let mut text = String::new();
    host.metrics().prometheus(&mut text).unwrap();
    Exposition::parse(&text)
}

fn in_state(host: &Host, state: &str) -> f64 {
    metrics(host).get(&format!("rma_interface_state{{interface=\"rma0\",state=\"{state}\"}}"))
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_is_deleted_and_made_again_is_used_again() {
    let hosts = Hosts::in_lab(&Setup::default());
    let mut scene = Scene::new(&hosts);
    scene.assert_works_again();
    let issued = scene.issue_all();
    delete(lab(&hosts).a());
    // Those may have been answered before.
    scene.take_all(issued);

    for host in [&hosts.client, hosts.server()] {
        wait_state(host, InterfaceState::Gone);
        assert_eq!((in_state(host, "gone"), in_state(host, "up")), (1.0, 0.0));
        assert!(metrics(host).get("rma_engine_up{engine=\"0\"}") == 1.0, "the engine goes on");
    }
    let error = hosts.client.resolve(hosts.server_addr).unwrap_err();
    assert!(matches!(error, HostError::Path(PathError::InterfaceGone { .. })), "{error}");
    assert!(error.to_string().contains("interface rma0 is gone"), "{error}");
    for _ in 0..3 {
        let issued = scene.issue_all();
        let ended = scene.take_all(issued);
        let lost = |status| matches!(status, OpStatus::Timeout | OpStatus::DispatchTimeout);
        assert!(ended.iter().all(|&status| lost(status)), "{ended:?}");
    }
    assert!(metrics(&hosts.client).get("rma_xdp_tx_no_interface_total") > 0.0);
    // The control path works as always, and so do ops to oneself.
    let own = hosts.client.register(4096, Permissions::READ).unwrap();
    let to_self =
        hosts.client.grant(&own, hosts.client_addr, hosts.client.pid(), OpType::Read).unwrap();
    scene.portal.read(&to_self, 0, &scene.local, 0, 64).unwrap();
    assert_eq!(scene.take_all(1), [OpStatus::Ok]);

    // Another index, other hardware addresses, another MTU, other queues.
    let again = LabConfig { mtu: 3400, queues: 2, ..LabConfig::default() };
    lab(&hosts).link(&again).unwrap();
    for host in [&hosts.client, hosts.server()] {
        wait_attachments(host, 2);
        let interface = host.interface().unwrap();
        assert!(interface.device.contains("2 queue(s), MTU 3400"), "{}", interface.device);
        assert_eq!(interface.trouble, None);
        assert_eq!(metrics(host).get("rma_interface_attachments_total"), 2.0);
    }
    scene.assert_works_again();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_link_that_loses_its_carrier_is_told_and_used_again() {
    let hosts = Hosts::in_lab(&Setup::default());
    let mut scene = Scene::new(&hosts);
    scene.assert_works_again();
    let issued = scene.issue_all();
    lab(&hosts).b().ip(&["link", "set", "dev", Lab::INTERFACE, "down"]).unwrap();
    scene.take_all(issued);
    // Set down there, without carrier here.
    for host in [&hosts.client, hosts.server()] {
        wait_state(host, InterfaceState::Down);
    }
    let error = hosts.client.resolve(hosts.server_addr).unwrap_err();
    assert!(matches!(error, HostError::Path(PathError::LinkDown { .. })), "{error}");
    let issued = scene.issue_all();
    assert!(scene.take_all(issued).iter().all(|&status| status != OpStatus::Ok));
    lab(&hosts).b().ip(&["link", "set", "dev", Lab::INTERFACE, "up"]).unwrap();
    for host in [&hosts.client, hosts.server()] {
        wait_attachments(host, 1);
    }
    scene.assert_works_again();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_is_renamed_is_the_same_one() {
    let hosts = Hosts::in_lab(&Setup::default());
    let mut scene = Scene::new(&hosts);
    let a = lab(&hosts).a();
    a.ip(&["link", "set", "dev", Lab::INTERFACE, "name", "other0"]).unwrap();
    scene.assert_works_again();
    wait_attachments(&hosts.client, 1);
    // Deleted under its other name, it is looked for under the one that the host was opened with.
    a.ip(&["link", "del", "dev", "other0"]).unwrap();
    wait_state(&hosts.client, InterfaceState::Gone);
    lab(&hosts).link(&LabConfig::default()).unwrap();
    wait_attachments(&hosts.client, 2);
    wait_attachments(hosts.server(), 2);
    scene.assert_works_again();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_is_moved_away_is_left_alone_and_used_again_when_it_is_back() {
    let hosts = Hosts::in_lab(&Setup::default());
    let mut scene = Scene::new(&hosts);
    let (a, elsewhere) = (lab(&hosts).a(), Netns::create("elsewhere").unwrap());
    let issued = scene.issue_all();
    a.ip(&["link", "set", "dev", Lab::INTERFACE, "netns", elsewhere.name()]).unwrap();
    scene.take_all(issued);
    wait_state(&hosts.client, InterfaceState::Gone);
    // The present owner finds nothing of ours on it.
    wait_for("the steering program to be detached", || {
        let link = elsewhere.ip(&["-d", "link", "show", "dev", Lab::INTERFACE]).unwrap();
        (!link.contains("prog/xdp")).then_some(())
    });
    elsewhere.ip(&["link", "set", "dev", Lab::INTERFACE, "netns", a.name()]).unwrap();
    // Moving takes the addresses and sets it down. (It has its index again, and is another
    // nevertheless.)
    wait_state(&hosts.client, InterfaceState::Detached);
    let trouble = || hosts.client.interface().unwrap().trouble;
    let trouble = wait_for("the reason why it is not attached", trouble);
    assert!(trouble.contains("is down: `ip link set rma0 up`"), "{trouble}");
    a.ip(&["link", "set", "dev", Lab::INTERFACE, "up"]).unwrap();
    let address = format!("{}/{}", Lab::A_V4, Lab::V4_PREFIX);
    a.ip(&["addr", "add", &address, "dev", Lab::INTERFACE]).unwrap();
    wait_attachments(&hosts.client, 2);
    scene.assert_works_again();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_interface_that_is_deleted_while_it_is_attached_again_and_a_peer_that_is_killed_meanwhile() {
    let mut hosts = Hosts::in_lab(&Setup::default());
    let mut scene = Scene::new(&hosts);
    delete(lab(&hosts).a());
    for round in 0..8 {
        // Without waiting for either host: it finds the one, or the other, or none, in whatever it
        // does.
        lab(&hosts).link(&LabConfig::default()).unwrap();
        if round % 2 == 0 {
            thread::yield_now();
        }
        let issued = scene.issue_all();
        delete(lab(&hosts).a());
        scene.take_all(issued);
    }
    lab(&hosts).link(&LabConfig::default()).unwrap();
    wait_state(&hosts.client, InterfaceState::Up);
    wait_state(hosts.server(), InterfaceState::Up);
    scene.assert_works_again();
    // And once more, with the server gone before the interface is back.
    delete(lab(&hosts).a());
    let issued = scene.issue_all();
    drop(hosts.server.take());
    assert!(scene.take_all(issued).iter().all(|&status| status != OpStatus::Ok));
    lab(&hosts).link(&LabConfig::default()).unwrap();
    let server = {
        let _inside = lab(&hosts).b().enter().unwrap();
        Host::open(Setup::default().server(hosts.server_addr)).unwrap()
    };
    hosts.server = Some(server);
    wait_state(&hosts.client, InterfaceState::Up);
    Scene::new(&hosts).assert_works_again();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_inline_host_follows_its_interface_as_it_is_turned() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let open = |netns: &Netns, addr: HostAddr| {
        let _inside = netns.enter().unwrap();
        let config = HostConfig::xdp(Lab::INTERFACE).with(|it| it.addresses = vec![addr]);
        InlineHost::open(config).unwrap()
    };
    let mut client = open(lab.a(), Lab::A_V4.into());
    let mut server = open(lab.b(), Lab::B_V4.into());
    let region = server.register(4096, Permissions::READ).unwrap();
    let grant = server.grant(&region, Lab::A_V4.into(), client.pid(), OpType::Read).unwrap();
    let local = client.register(4096, Permissions::NONE).unwrap();
    let mut portal = client.portal(1).unwrap();
    let mut read = |client: &mut InlineHost, server: &mut InlineHost| {
        portal.read(&grant, 0, &local, 0, 64).unwrap();
        wait_for("a completion", || {
            client.turn();
            server.turn();
            portal.poll()
        })
        .status
    };
    let mut read_until_ok = |client: &mut InlineHost, server: &mut InlineHost| {
        wait_for("a read that is OK", || (read(client, server) == OpStatus::Ok).then_some(()));
    };
    read_until_ok(&mut client, &mut server);
    delete(lab.b());
    wait_for("both to be told", || {
        client.turn();
        server.turn();
        let gone = |host: &InlineHost| host.interface().unwrap().state == InterfaceState::Gone;
        (gone(&client) && gone(&server)).then_some(())
    });
    lab.link(&LabConfig::default()).unwrap();
    read_until_ok(&mut client, &mut server);
    assert_eq!(client.interface().unwrap().attachments, 2);
}

#[test]
fn a_host_over_udp_has_no_interface_of_its_own() {
    let hosts = Hosts::over_udp(rma_xdp::config::NicConfigBuilder::default());
    assert_eq!(hosts.client.interface(), None);
    assert_eq!(hosts.client.metrics().device.interface, None);
}
