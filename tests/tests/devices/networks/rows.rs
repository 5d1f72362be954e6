//! The networks, and how each must go. The page docs/NETWORKS.md has this table.

/// The middle of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Middle {
    /// A bridge, whose ports are veth: so is a container connected.
    Switch,
    /// A gateway between two links.
    Router,
}

/// The outcome of a row, where `near` opens its device and asks for ops with `far`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Must {
    /// All ops are OK, the device being opened in this mode, for this reason.
    Work(&'static str),
    /// Short ops are OK. Long ones end with TIMEOUT, until the path is told to carry so much.
    Search(u32),
    /// Opening, or finding the path, fails with this in its error.
    Refuse(&'static str),
}

/// A network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) middle: Middle,
    /// Commands, a line each, that make it of the middle and two hosts with `eth0`. The first word
    /// says where. N stands for 1 near and for 2 far.
    pub(super) made_with: &'static str,
    /// Commands that follow once there were ops. There have to be ops again.
    pub(super) then: &'static str,
    /// The interfaces that are opened: near, far.
    pub(super) open: [&'static str; 2],
    /// The addresses that are asked for: near, far. Empty: the interface's.
    pub(super) addresses: [&'static str; 2],
    pub(super) must: Must,
    /// The kernel module without which there is no such network. Debian's kernels have it.
    pub(super) needs: &'static str,
}

const FASTER_ON_VETH: Must = Must::Work("generic (faster on veth)");
const NO_NATIVE: Must = Must::Work("generic (native was refused)");

const SWITCH: Row = Row {
    name: "",
    middle: Middle::Switch,
    made_with: "",
    then: "",
    open: ["eth0"; 2],
    addresses: [""; 2],
    must: FASTER_ON_VETH,
    needs: "",
};
const ROUTER: Row = Row { middle: Middle::Router, ..SWITCH };
const VLAN: Row = Row { needs: "8021q", ..SWITCH };
const BOND: Row = Row {
    open: ["bond0", "eth0"],
    must: Must::Work("generic (native mode receives nothing on a bond)"),
    needs: "bonding",
    ..SWITCH
};

/// All of them.
pub(super) const ROWS: &[Row] = &[
    Row { name: "a container's veth into a bridge", ..SWITCH },
    Row { name: "IPv6 alone", made_with: "both ip -4 addr flush dev eth0", ..SWITCH },
    Row {
        name: "link-local IPv6 alone",
        made_with: "both ip addr flush dev eth0 scope global",
        must: Must::Refuse(
            "has a link-local address alone, which is good for hosts on its link: choose it",
        ),
        ..SWITCH
    },
    Row {
        name: "link-local IPv6 alone, its address chosen",
        made_with: "both ip addr flush dev eth0\nboth ip addr add fe80::N/64 dev eth0",
        addresses: ["fe80::1", "fe80::2"],
        ..SWITCH
    },
    Row {
        name: "VLAN, host on it",
        made_with: "both ip addr flush dev eth0 scope global\n\
                    both ip link add link eth0 name eth0.10 type vlan id 10\n\
                    both ip link set eth0.10 up\n\
                    both ip addr add 192.0.2.N/24 dev eth0.10\n\
                    both ip addr add fd00::N/64 dev eth0.10",
        open: ["eth0.10"; 2],
        must: NO_NATIVE,
        ..VLAN
    },
    Row {
        name: "VLAN, host on the port below it",
        made_with: "both ip addr flush dev eth0 scope global\n\
                    both ip link add link eth0 name eth0.10 type vlan id 10\n\
                    both ip link set eth0.10 up\n\
                    both ip addr add 192.0.2.N/24 dev eth0.10",
        open: ["eth0", "eth0.10"],
        addresses: ["192.0.2.1", ""],
        must: Must::Refuse("goes out interface eth0.10, not eth0"),
        ..VLAN
    },
    Row { name: "gateway", ..ROUTER },
    Row {
        name: "gateway, two hops",
        made_with: "middle ip link add p2 type veth peer name q2 netns OTHER\n\
                    middle ip link set p1 netns OTHER\n\
                    middle ip link set p2 up\n\
                    middle ip addr add 203.0.113.1/24 dev p2\n\
                    middle ip addr add fd02::1/64 dev p2\n\
                    middle ip route add 198.51.100.0/24 via 203.0.113.2\n\
                    middle ip route add fd01::/64 via fd02::2\n\
                    other ip addr add 203.0.113.2/24 dev q2\n\
                    other ip addr add fd02::2/64 dev q2\n\
                    other ip addr add 198.51.100.254/24 dev p1\n\
                    other ip addr add fd01::fe/64 dev p1\n\
                    other ip link set q2 up\n\
                    other ip link set p1 up\n\
                    other ip route add 192.0.2.0/24 via 203.0.113.1\n\
                    other ip route add fd00::/64 via fd02::1",
        ..ROUTER
    },
    Row {
        name: "gateway to a narrow link, tells (ICMP)",
        made_with: "middle ip link set p1 mtu 1300",
        must: Must::Search(1280),
        ..ROUTER
    },
    Row {
        name: "a narrow link that tells nobody",
        made_with: "middle ip link set p0 mtu 1300\nmiddle ip link set p1 mtu 1300",
        must: Must::Search(1280),
        ..SWITCH
    },
    Row {
        name: "the same, the MTU set at both ends",
        made_with: "middle ip link set p0 mtu 1300\nmiddle ip link set p1 mtu 1300\n\
                    both ip link set eth0 mtu 1300",
        ..SWITCH
    },
    Row {
        name: "MTU 3400",
        made_with: "middle ip link set p0 mtu 3400\nmiddle ip link set p1 mtu 3400\n\
                    both ip link set eth0 mtu 3400",
        ..SWITCH
    },
    Row {
        name: "MTU 9000",
        made_with: "middle ip link set p0 mtu 9000\nmiddle ip link set p1 mtu 9000\n\
                    both ip link set eth0 mtu 9000",
        ..SWITCH
    },
    Row {
        name: "MTU 9000 near, 1500 far",
        made_with: "middle ip link set p0 mtu 9000\nnear ip link set eth0 mtu 9000",
        ..SWITCH
    },
    Row {
        name: "the far hardware address changes in a run",
        then: "far sysctl -qw net.ipv4.conf.eth0.arp_notify=1 net.ipv6.conf.eth0.ndisc_notify=1\n\
               far ip link set eth0 address 02:00:00:00:00:0b",
        ..SWITCH
    },
    Row {
        name: "the far link goes down and up in a run",
        then: "far ip link set eth0 down\nfar ip link set eth0 up\n\
               far ip addr replace fd00::2/64 dev eth0",
        ..SWITCH
    },
    Row {
        name: "the route changes in a run",
        made_with: "middle ip addr add 192.0.2.253/24 dev p0\nmiddle ip addr add fd00::fd/64 dev p0",
        then: "near ip route replace default via 192.0.2.253\n\
               near ip route replace default via fd00::fd",
        ..ROUTER
    },
    Row {
        name: "bond, active-backup; a port fails in a run",
        made_with: "near ip addr flush dev eth0\n\
                    near ip link set eth0 down\n\
                    near ip link add eth1 type veth peer name q1 netns MIDDLE\n\
                    middle ip link set q1 master br0 up\n\
                    near ip link add bond0 type bond mode active-backup miimon 100\n\
                    near ip link set eth0 master bond0\n\
                    near ip link set eth1 master bond0\n\
                    near ip link set bond0 up\n\
                    near ip addr add 192.0.2.1/24 dev bond0\n\
                    near ip addr add fd00::1/64 dev bond0",
        then: "near ip link set eth0 down",
        ..BOND
    },
    Row {
        name: "bond, 802.3ad; a port fails in a run",
        made_with: "near ip addr flush dev eth0\n\
                    near ip link set eth0 down\n\
                    middle ip link set p0 nomaster down\n\
                    near ip link add eth1 type veth peer name q1 netns MIDDLE\n\
                    near ip link add bond0 type bond mode 802.3ad miimon 100 lacp_rate fast\n\
                    near ip link set eth0 master bond0\n\
                    near ip link set eth1 master bond0\n\
                    middle ip link add bond0 type bond mode 802.3ad miimon 100 lacp_rate fast\n\
                    middle ip link set p0 master bond0\n\
                    middle ip link set q1 master bond0\n\
                    middle ip link set bond0 master br0 up\n\
                    near ip link set bond0 up\n\
                    near ip addr add 192.0.2.1/24 dev bond0\n\
                    near ip addr add fd00::1/64 dev bond0",
        then: "near ip link set eth0 down",
        ..BOND
    },
    Row {
        name: "host on a bridge, over its port",
        made_with: "near ip addr flush dev eth0\n\
                    near ip link add br1 type bridge\n\
                    near ip link set eth0 master br1\n\
                    near ip link set br1 up\n\
                    near ip addr add 192.0.2.1/24 dev br1\n\
                    near ip addr add fd00::1/64 dev br1",
        open: ["br1", "eth0"],
        must: NO_NATIVE,
        ..SWITCH
    },
    Row {
        name: "macvlan",
        made_with: "near ip addr flush dev eth0\n\
                    near ip link add link eth0 name mac0 type macvlan mode bridge\n\
                    near ip link set mac0 up\n\
                    near ip addr add 192.0.2.1/24 dev mac0\n\
                    near ip addr add fd00::1/64 dev mac0",
        open: ["mac0", "eth0"],
        must: NO_NATIVE,
        ..SWITCH
    },
    Row {
        name: "two interfaces to one network, a table for each source",
        made_with: "near ip link add eth1 type veth peer name q1 netns MIDDLE\n\
                    middle ip link set q1 master br0 up\n\
                    near ip link set eth1 up\n\
                    near ip addr add 192.0.2.3/24 dev eth1\n\
                    near ip addr add fd00::3/64 dev eth1\n\
                    near ip route add 192.0.2.0/24 dev eth1 table 100\n\
                    near ip rule add from 192.0.2.3 table 100",
        open: ["eth1", "eth0"],
        ..SWITCH
    },
    Row {
        name: "a better route out another interface",
        made_with: "near ip link add eth1 type veth peer name q1 netns MIDDLE\n\
                    middle ip link set q1 master br0 up\n\
                    near ip link set eth1 up\n\
                    near ip addr add 203.0.113.3/24 dev eth1\n\
                    near ip route add 192.0.2.2 dev eth1",
        must: Must::Refuse("goes out interface eth1, not eth0"),
        ..SWITCH
    },
    Row {
        name: "VRF",
        made_with: "near ip link add blue type vrf table 10\n\
                    near ip link set blue up\n\
                    near ip link set eth0 master blue\n\
                    near ip addr replace fd00::1/64 dev eth0",
        needs: "vrf",
        ..SWITCH
    },
    Row {
        name: "loopback",
        open: ["lo", "eth0"],
        must: Must::Refuse("is not Ethernet, as `ip link show dev lo` tells: hosts over UDP work"),
        ..SWITCH
    },
    Row {
        name: "tun",
        made_with: "near ip tuntap add dev tun0 mode tun\n\
                    near ip link set tun0 up\n\
                    near ip addr add 203.0.113.1/24 dev tun0",
        open: ["tun0", "eth0"],
        must: Must::Refuse(
            "is not Ethernet, as `ip link show dev tun0` tells: hosts over UDP work",
        ),
        ..SWITCH
    },
    Row {
        name: "WireGuard",
        made_with: "near ip link add wg0 type wireguard\n\
                    near ip link set wg0 up\n\
                    near ip addr add 203.0.113.1/24 dev wg0",
        open: ["wg0", "eth0"],
        must: Must::Refuse("is not Ethernet, as `ip link show dev wg0` tells: hosts over UDP work"),
        needs: "wireguard",
        ..SWITCH
    },
];

/// The table, as Markdown.
pub(super) fn table() -> String {
    let mut text = String::from("| network | outcome | seen in | made with |\n|---|---|---|---|\n");
    for Row { name, middle, made_with, then, open: [near, _], must, needs, .. } in ROWS {
        let outcome = match must {
            Must::Work(mode) => format!("works, {mode}"),
            Must::Search(mtu) => format!(
                "64 B works; 4 KiB TIMEOUT, until the path is told to carry {mtu} bytes, then works"
            ),
            Must::Refuse(part) => format!("refused: … {part} …"),
        };
        let seen = match *needs {
            "" => "namespaces".to_owned(),
            module => format!("a virtual machine (`{module}`)"),
        };
        let middle = match middle {
            Middle::Switch => "switch",
            Middle::Router => "router",
        };
        let mut with = vec![format!("{middle}; host on `{near}`")];
        with.extend(made_with.lines().map(|line| format!("`{line}`")));
        with.extend((!then.is_empty()).then(|| "in a run:".to_owned()));
        with.extend(then.lines().map(|line| format!("`{line}`")));
        text.push_str(&format!("| {name} | {outcome} | {seen} | {} |\n", with.join("<br>")));
    }
    text
}
