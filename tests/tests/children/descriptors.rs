//! Descriptors that a program inherits which is started while hosts are open: none of theirs. With
//! one of them it would keep ports and queues in use for as long as it runs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::Ipv4Addr,
    process::{Command, Stdio},
    thread,
};

use rma_lab::{Lab, LabConfig};
use rma_tests::{
    hosts::{Hosts, Setup},
    keys::{HOUR, PATIENCE, Since, World},
};
use rma_xdp::{
    Host, config::NicConfigBuilder, device::xdp::Mode, keys::Schedule, metrics::MetricsEndpoint,
};

use super::turn;

/// Returns the descriptors that a program started now inherits, beside the standard three.
fn inherited() -> BTreeSet<String> {
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Once it answers, it has closed the files that it opens for itself as it starts.
    child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().map(Result::unwrap);
    let beyond = descriptors.filter(|it| !["0", "1", "2"].iter().any(|own| it.file_name() == *own));
    let targets =
        beyond.map(|it| fs::read_link(it.path()).unwrap().display().to_string()).collect();
    drop(child.stdin.take());
    child.wait().unwrap();
    targets
}

fn metrics(host: &Host) -> MetricsEndpoint {
    MetricsEndpoint::start((Ipv4Addr::LOCALHOST, 0).into(), host.metrics_source().clone()).unwrap()
}

#[test]
fn a_program_inherits_nothing_of_udp_hosts_nor_of_what_serves_keys_and_metrics() {
    let _turn = turn();
    let before = inherited();
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let _metrics = metrics(hosts.server());
    let world = World::over_udp();
    let owner = world.owner(Schedule::every(HOUR));
    let client = Host::open(world.client_config()).unwrap();
    let _peer = world.client(&client);
    assert_eq!(inherited(), before);
    drop(owner);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_program_inherits_nothing_of_hosts_over_xdp_attached_anew_or_not() {
    let _turn = turn();
    let before = inherited();
    for mode in [Mode::Native, Mode::Generic] {
        let lab = LabConfig { queues: 2, mtu: 9000, ..LabConfig::default() };
        let hosts = Hosts::in_lab(&Setup { mode, lab, ..Setup::default() });
        let _metrics = metrics(&hosts.client);
        assert_eq!(inherited(), before);
        // One that has come back is attached to by other means.
        let lab = hosts.lab.as_ref().unwrap();
        lab.a().ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
        lab.link(&LabConfig::default()).unwrap();
        // Both of them: then there are as many descriptors as before.
        let since = Since::now();
        for host in [&hosts.client, hosts.server()] {
            while host.interface().unwrap().attachments < 2 {
                assert!(since.elapsed() < PATIENCE, "{:?}", host.interface());
                thread::yield_now();
            }
        }
        assert_eq!(inherited(), before);
    }
}
