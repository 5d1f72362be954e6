//! Networks as they are: each is made of three namespaces and the commands of its row, and two
//! hosts over AF_XDP read and write each other across it, or are refused.

#![expect(clippy::unwrap_used, reason = "a test's fixtures fail as the test itself does")]

pub(crate) mod flow;
mod rows;

use std::{
    fs,
    net::IpAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use rma_lab::{LabError, Netns, evidence};
use rma_xdp::{Host, HostAddr, HostConfig, OpStatus, config::Timing};

use flow::{Flow, OP, eventually};
use rows::{Middle, Must, ROWS, Row, table};

/// The commands for a bridge between the two, and for a gateway.
const SWITCH: &str = "middle ip link add br0 type bridge\n\
    middle ip link set br0 up\n\
    middle ip link set p0 master br0\n\
    middle ip link set p1 master br0\n\
    both ip addr add 192.0.2.N/24 dev eth0\n\
    both ip addr add fd00::N/64 dev eth0";
const ROUTER: &str = "middle sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\n\
    other sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\n\
    middle ip addr add 192.0.2.254/24 dev p0\n\
    middle ip addr add fd00::fe/64 dev p0\n\
    middle ip addr add 198.51.100.254/24 dev p1\n\
    middle ip addr add fd01::fe/64 dev p1\n\
    near ip addr add 192.0.2.1/24 dev eth0\n\
    near ip addr add fd00::1/64 dev eth0\n\
    near ip route add default via 192.0.2.254\n\
    near ip route add default via fd00::fe\n\
    far ip addr add 198.51.100.2/24 dev eth0\n\
    far ip addr add fd01::2/64 dev eth0\n\
    far ip route add default via 198.51.100.254\n\
    far ip route add default via fd01::fe";

/// The namespaces of a row.
pub(crate) struct Network {
    /// Near and far, each with `eth0`.
    pub(crate) ends: [Netns; 2],
    /// Between them, with `p0` towards the near end and `p1` towards the far one.
    pub(crate) middle: Netns,
    /// Empty, for rows that need a fourth.
    other: Netns,
}

impl Network {
    /// A bridge between two hosts, and nothing else.
    pub(crate) fn switch() -> Self {
        let network = Self::bare();
        network.run(SWITCH).unwrap();
        network
    }

    fn bare() -> Self {
        let [near, far, middle, other] =
            ["near", "far", "middle", "other"].map(|tag| Netns::create(tag).unwrap());
        let network = Self { ends: [near, far], middle, other };
        for (end, port) in ["p0", "p1"].into_iter().enumerate() {
            let peer = format!("ip link add eth0 type veth peer name {port} netns MIDDLE");
            let end = ["near", "far"][end];
            let lines =
                format!("{end} {peer}\nmiddle ip link set {port} up\n{end} ip link set eth0 up");
            network.run(&lines).unwrap();
        }
        network
    }

    fn of(row: &Row) -> Result<Self, LabError> {
        let network = Self::bare();
        network.run(match row.middle {
            Middle::Switch => SWITCH,
            Middle::Router => ROUTER,
        })?;
        network.run(row.made_with)?;
        Ok(network)
    }

    pub(crate) fn run(&self, lines: &str) -> Result<(), LabError> {
        for line in lines.lines() {
            let (place, command) = line.trim().split_once(' ').unwrap();
            let [near, far] = &self.ends;
            let places: &[&Netns] = match place {
                "near" => &[near],
                "far" => &[far],
                "both" => &[near, far],
                "middle" => &[&self.middle],
                "other" => &[&self.other],
                _ => panic!("{line}"),
            };
            for (number, netns) in (1..).zip(places) {
                let words = command.split(' ').map(|word| match word {
                    "MIDDLE" => self.middle.name().to_owned(),
                    "OTHER" => self.other.name().to_owned(),
                    _ => word
                        .replace(".N/", &format!(".{number}/"))
                        .replace(":N/", &format!(":{number}/")),
                });
                netns.exec(&words.collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Opens the host of one end.
    fn open(&self, end: usize, row: &Row) -> Result<Host, rma_xdp::HostError> {
        let _inside = self.ends[end].enter().unwrap();
        Host::open(HostConfig::xdp(row.open[end]).with(|it| {
            it.nic.timing = Timing::default();
            let address = row.addresses[end].parse::<IpAddr>();
            it.addresses = address.into_iter().map(HostAddr::from).collect();
        }))
    }
}

/// The addresses of each family that both have.
fn pairs(hosts: [&Host; 2]) -> Vec<[HostAddr; 2]> {
    let [near, far] = hosts.map(Host::address_status);
    let of = |family: bool| {
        let find = |all: &[rma_xdp::device::AddressStatus]| {
            all.iter().map(|it| it.address).find(|it| it.is_ipv4() == family)
        };
        Some([find(&near)?, find(&far)?])
    };
    [true, false].into_iter().filter_map(of).collect()
}

/// Makes the network of a row, and looks whether it goes as it must.
fn go(row: &Row) {
    let network = match Network::of(row) {
        Ok(network) => network,
        Err(error) if !row.needs.is_empty() => {
            evidence::not_run(format_args!("network \"{}\": {error}", row.name));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    if let Must::Refuse(part) = row.must {
        let error = match network.open(0, row) {
            Err(error) => error,
            Ok(near) => near.resolve([192, 0, 2, 2].into()).unwrap_err(),
        };
        assert!(error.to_string().contains(part), "{error}");
        return;
    }
    let [near, far] = [0, 1].map(|end| {
        network.ends[end].wait_ready(row.open[end]).unwrap();
        network.open(end, row).unwrap()
    });
    let pairs = pairs([&near, &far]);
    assert!(!pairs.is_empty(), "addresses of one family");
    let mut flows: Vec<Flow> =
        pairs.into_iter().map(|pair| Flow::new([&near, &far], pair).unwrap()).collect();
    match row.must {
        Must::Work(mode) => {
            let info = near.info().to_string();
            assert!(info.contains(&format!(": {mode},")), "{info}");
        }
        Must::Search(mtu) => flows.iter_mut().for_each(|flow| search(&near, flow, mtu)),
        Must::Refuse(_) => {}
    }
    flows.iter_mut().for_each(Flow::succeeds);
    network.run(row.then).unwrap();
    flows.iter_mut().for_each(Flow::succeeds);
    assert_eq!(near.narrow_paths().is_empty(), !matches!(row.must, Must::Search(_)));
}

/// Short ops live on it, and long ones do once the host knows what it carries.
fn search(near: &Host, flow: &mut Flow, mtu: u32) {
    eventually("short ops", || flow.read(64) == OpStatus::Ok);
    assert_eq!(flow.read(OP), OpStatus::Timeout, "nobody knows yet");
    eventually("that the path is told", || {
        flow.read(OP);
        near.narrow_paths().iter().any(|it| (it.peer, it.mtu) == (flow.far, mtu))
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_network_of_the_page_works_or_is_refused_as_it_says() {
    // In a virtual machine, the rows that other kernels lack modules for.
    let is_machine = std::env::var_os("RMA_NETWORKS_WITH_MODULES").is_some();
    let mut failed = Vec::new();
    for row in ROWS.iter().filter(|row| !is_machine || !row.needs.is_empty()) {
        println!("network: {}", row.name);
        if catch_unwind(AssertUnwindSafe(|| go(row))).is_err() {
            failed.push(row.name);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// With RMA_WRITE_PAGES set it writes the table.
#[test]
fn the_page_of_networks_has_these_rows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/NETWORKS.md");
    let page = fs::read_to_string(&path).unwrap();
    let (text, found) = page.split_once("\n| network |").unwrap();
    let wanted = table();
    if std::env::var_os("RMA_WRITE_PAGES").is_some() {
        fs::write(&path, format!("{text}\n{wanted}")).unwrap();
    } else {
        assert_eq!(format!("| network |{found}"), wanted, "docs/NETWORKS.md: set RMA_WRITE_PAGES");
    }
}
