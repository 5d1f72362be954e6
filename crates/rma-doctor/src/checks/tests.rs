//! Each check on a healthy and a sick snapshot, and all of them on none.

use std::collections::BTreeSet;

use super::*;
use crate::snapshot::{Link, *};

fn value<T>(value: T) -> Seen<T> {
    Seen::Value(value)
}

fn files(all: &[(&str, &str)]) -> Files {
    let seen = |it: &(&str, &str)| (it.0.to_owned(), value(Some(it.1.to_owned())));
    Files(all.iter().map(seen).collect())
}

const STAT: &str = "cpu 100 0 100 800 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0";
const STAT_LATER: &str =
    "cpu 200 0 100 900 0 0 0 0\ncpu0 150 0 50 400 0 0 0 0\ncpu1 50 0 50 500 0 0 0 0";

/// A machine on which all is well, for an engine on core 0 of two.
fn machine() -> Machine {
    Machine {
        kernel: value("6.12.48-cloud".into()),
        af_xdp: value(true),
        capabilities: value(u64::MAX),
        file_capabilities: value(None),
        memlock: value(None),
        state_dir: value(StateDir { exists: true, in_memory: false, writable: true }),
        clock_synchronised: value(true),
        cores: value(vec![0, 1]),
        aead: value("vaes-avx512".into()),
        gap_us: value(40),
        stat: value([STAT.into(), STAT_LATER.into()]),
        sockets: value(Vec::new()),
        firewall: value(Vec::new()),
        irqbalance: value(false),
        files: files(&[
            ("proc/sys/net/core/bpf_jit_enable", "1"),
            ("proc/meminfo", "HugePages_Free: 0\n"),
            ("proc/cpuinfo", "model name : fast\nflags : nonstop_tsc\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/kernel/security/lockdown", "[none] integrity confidentiality"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
            ("sys/devices/system/cpu/online", "0-1"),
            ("sys/devices/system/cpu/isolated", "0"),
            ("sys/devices/system/cpu/nohz_full", "0"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "1"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0"),
            ("sys/devices/system/node/online", "0-1"),
            ("sys/devices/system/node/node0/cpulist", "2-3"),
            ("sys/devices/system/node/node1/cpulist", "0-1"),
        ]),
    }
}

/// A NIC as its driver's documentation describes it, on which all is well. Not recorded: written
/// from documentation, for mlx5, i40e, ice and ena.
fn interface(driver: &str) -> Interface {
    let losses = Losses::default();
    Interface {
        name: "eth1".into(),
        link: value(Link {
            index: 3,
            mtu: 1500,
            up: true,
            carrier: true,
            ethernet: true,
            has_vlans: true,
            rx_queues: 8,
            tx_queues: 8,
            ..Link::default()
        }),
        addresses: value(vec![Address { address: "192.0.2.1".into(), ..Address::default() }]),
        driver: value(Some(driver.into())),
        bus: value(Some("0000:81:00.0".into())),
        xdp: value(XdpOffer {
            basic: true,
            redirect: true,
            zero_copy: true,
            multi_buffer: false,
            zero_copy_segments: 1,
        }),
        features: value(Features {
            on: ["rx-checksum".into()].into(),
            changeable: ["rx-lro", "rx-gro-hw", "rx-vlan-hw-parse", "rx-gro-list"]
                .map(String::from)
                .into(),
        }),
        rings: value(Some(Rings { rx: 2048, rx_max: 8192 })),
        channels: value(Some(Channels { combined: 2, combined_max: 8, ..Channels::default() })),
        coalescing: value(Some(Coalescing { rx_usecs: Some(0), adaptive: false })),
        rss_table: value(Some(vec![0, 1, 0, 1])),
        rss_fields: value(Some(RssFields { udp4: "sdfn".into(), udp6: "sdfn".into() })),
        ntuple: value(Some(Vec::new())),
        pause: value(Some(Pause::default())),
        eee: value(Some(false)),
        half_duplex: value(Some(false)),
        speed: value(Some(100_000)),
        losses: value([losses, losses]),
        interrupts: value(vec![40]),
        files: files(&[
            ("device/numa_node", "1"),
            ("device/current_link_speed", "16.0 GT/s PCIe"),
            ("device/max_link_speed", "16.0 GT/s PCIe"),
            ("device/current_link_width", "16"),
            ("device/max_link_width", "16"),
            ("napi_defer_hard_irqs", "2"),
            ("gro_flush_timeout", "200000"),
            ("proc/irq/40/smp_affinity_list", "1"),
        ]),
    }
}

fn snapshot() -> Snapshot {
    Snapshot { version: VERSION, machine: machine(), interfaces: vec![interface("mlx5_core")] }
}

fn wanted() -> Wanted {
    Wanted { engines: 2, cores: vec![0], busy_poll: true, ..Wanted::default() }
}

fn find(snapshot: &Snapshot, id: &str) -> Finding {
    check(snapshot, &wanted()).into_iter().find(|it| it.id == id).expect("there is such a check")
}

type Sicken = fn(&mut Machine, &mut Interface);

fn set(files: &mut Files, path: &str, text: &str) {
    files.0.insert(path.into(), value(Some(text.into())));
}

fn link(interface: &mut Interface) -> &mut Link {
    match &mut interface.link {
        Seen::Value(link) => link,
        Seen::Unseen(why) => panic!("{why:?}"),
    }
}

fn on(interface: &mut Interface, feature: &str) {
    if let Seen::Value(features) = &mut interface.features {
        features.on.insert(feature.into());
    }
}

/// For each check what makes it sick, the state that it then has, and what its command has in it.
fn sick_machines() -> Vec<(&'static str, State, &'static str, Sicken)> {
    use State::{Mend, Note};
    vec![
        ("kernel", Mend, "apt", |m, _| m.kernel = value("5.15.0".into())),
        ("af_xdp", Mend, "XDP_SOCKETS", |m, _| m.af_xdp = value(false)),
        ("capabilities", Mend, "setcap cap_net_admin,", |m, _| m.capabilities = value(0)),
        ("memlock", Mend, "ulimit -l unlimited", |m, _| {
            m.capabilities = value(0);
            m.memlock = value(Some(65536));
        }),
        ("state_dir", Mend, "install -d -m 700", |m, _| {
            m.state_dir = value(StateDir { exists: true, in_memory: true, writable: true });
        }),
        ("wall_clock", Note, "set-ntp", |m, _| m.clock_synchronised = value(false)),
        ("aead", Mend, "", |m, _| m.aead = value("portable".into())),
        ("bpf_jit", Mend, "sysctl -w", |m, _| {
            set(&mut m.files, "proc/sys/net/core/bpf_jit_enable", "0\n");
        }),
        ("lockdown", Mend, "lockdown", |m, _| {
            set(&mut m.files, "sys/kernel/security/lockdown", "none integrity [confidentiality]");
        }),
        ("huge_pages", Mend, "vm.nr_hugepages=32", |m, _| {
            set(&mut m.files, "sys/kernel/mm/transparent_hugepage/enabled", "always [never]");
        }),
        ("clock", Mend, "dmesg", |m, _| {
            let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
            set(&mut m.files, path, "hpet");
        }),
        ("governor", Mend, "cpupower -c 0 ", |m, _| {
            let path = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
            set(&mut m.files, path, "powersave");
        }),
        ("idle_states", Mend, "--low-latency", |m, _| {
            let path = "sys/devices/system/cpu/cpu0/cpuidle/state1/latency";
            set(&mut m.files, path, "170");
        }),
        ("isolation", Note, "", |m, _| set(&mut m.files, "sys/devices/system/cpu/isolated", "")),
        ("smt", Mend, "siblings", |m, _| {
            m.stat = value([STAT.into(), STAT_LATER.replace("cpu1 50", "cpu1 150")]);
        }),
        ("cores", Mend, "taskset", |m, _| m.cores = value(vec![0])),
        ("steal", Mend, "top", |m, _| m.gap_us = value(9000)),
        ("port", Mend, "ss -ulpn 'sport = :10472'", |m, _| {
            m.sockets = value(vec![Socket { tcp: false, port: 10472 }]);
        }),
        ("session_port", Mend, "ss -tlpn 'sport = :7471'", |m, _| {
            m.sockets = value(vec![Socket { tcp: true, port: 7471 }]);
        }),
        ("firewall", Mend, "nft", |m, _| m.firewall = value(vec!["tcp dport 7471 drop".into()])),
    ]
}

fn sick_interfaces() -> Vec<(&'static str, State, &'static str, Sicken)> {
    use State::{Mend, Note};
    vec![
        ("link", Mend, "ip link set dev eth1 up", |_, i| link(i).up = false),
        ("kind", Note, "", |_, i| link(i).kind = Some("vlan".into())),
        ("address", Mend, "ip address add", |_, i| i.addresses = value(Vec::new())),
        ("xdp_native", Mend, "", |_, i| i.xdp = value(XdpOffer::default())),
        ("zero_copy", Note, "", |_, i| i.driver = value(Some("virtio_net".into()))),
        ("other_program", Mend, "ip link set dev eth1 xdpdrv off", |_, i| {
            let program = Program { id: 7, name: "filter".into(), place: "xdpdrv".into() };
            link(i).program = Some(program);
        }),
        ("mtu", Mend, "ip link set dev eth1 mtu 38", |_, i| link(i).mtu = 9000),
        ("lro", Mend, "ethtool -K eth1 lro off", |_, i| on(i, "rx-lro")),
        ("gro_generic", Mend, "ethtool -K eth1 rx-gro-list off", |_, i| {
            link(i).kind = Some("veth".into());
            on(i, "rx-gro-list");
        }),
        ("vlan_offload", Note, "ethtool -K eth1 rxvlan off", |_, i| on(i, "rx-vlan-hw-parse")),
        ("rings", Mend, "ethtool -G eth1 rx 2048", |_, i| {
            i.rings = value(Some(Rings { rx: 256, rx_max: 8192 }));
        }),
        ("channels", Mend, "ethtool -L eth1 combined 2", |_, i| {
            let one = Channels { combined: 1, combined_max: 8, ..Channels::default() };
            i.channels = value(Some(one));
        }),
        ("rss_fields", Mend, "ethtool -N eth1 rx-flow-hash udp4 sdfn", |_, i| {
            i.rss_fields = value(Some(RssFields { udp4: "sd".into(), udp6: "sdfn".into() }));
        }),
        ("rss_table", Mend, "ethtool -X eth1 equal 2", |_, i| {
            i.rss_table = value(Some(vec![0, 0]));
        }),
        ("ntuple", Mend, "ethtool -N eth1 delete 1023", |_, i| {
            i.ntuple = value(Some(vec!["rule 1023 port 10472 to Direct to queue 3".into()]));
        }),
        ("coalescing", Mend, "ethtool -C eth1 adaptive-rx off rx-usecs 0", |_, i| {
            i.coalescing = value(Some(Coalescing { rx_usecs: Some(8), adaptive: true }));
        }),
        ("irq", Mend, "echo 1 > /proc/irq/40/smp_affinity_list", |_, i| {
            set(&mut i.files, "proc/irq/40/smp_affinity_list", "0");
        }),
        ("busy_poll", Mend, "echo 2 > /sys/class/net/eth1/napi_defer_hard_irqs", |_, i| {
            set(&mut i.files, "napi_defer_hard_irqs", "0");
        }),
        ("numa", Mend, "--cores 2", |_, i| set(&mut i.files, "device/numa_node", "0")),
        ("pause_eee", Note, "ethtool --set-eee eth1 eee off", |_, i| i.eee = value(Some(true))),
        ("pcie", Mend, "lspci -vv -s 0000:81:00.0", |_, i| {
            set(&mut i.files, "device/current_link_width", "8");
        }),
        ("losses", Mend, "ethtool -S eth1", |_, i| {
            let after = Losses { missed: 3, ..Losses::default() };
            i.losses = value([Losses::default(), after]);
        }),
    ]
}

#[test]
fn on_a_healthy_machine_nothing_is_to_be_mended_or_unknown() {
    for driver in ["mlx5_core", "i40e", "ice", "ena"] {
        let mut healthy = snapshot();
        healthy.interfaces = vec![interface(driver)];
        for finding in check(&healthy, &wanted()) {
            let is_fine = matches!(finding.state, State::Ok | State::DoesNotApply);
            assert!(is_fine, "{driver}: {finding:?}");
        }
    }
}

#[test]
fn each_check_finds_its_sickness_and_says_how_to_mend_it() {
    let mut tried = BTreeSet::new();
    for (id, state, command, sicken) in sick_machines().into_iter().chain(sick_interfaces()) {
        let mut sick = snapshot();
        sicken(&mut sick.machine, &mut sick.interfaces[0]);
        let finding = find(&sick, id);
        assert_eq!(finding.state, state, "{finding:?}");
        let text = finding.command.clone().unwrap_or_default();
        assert!(text.contains(command), "{finding:?}");
        assert!(!finding.why.is_empty() && !finding.found.is_empty(), "{finding:?}");
        // A snapshot that somebody sends tells the same.
        let sent = Snapshot::from_json(&sick.json().unwrap()).unwrap();
        assert_eq!(find(&sent, id), finding);
        tried.insert(id);
    }
    let all: BTreeSet<&str> = CHECKS.iter().map(|it| it.id).collect();
    assert_eq!(tried, all);
}

#[test]
fn a_thing_that_was_not_seen_is_unknown_and_never_well() {
    let nothing = Snapshot {
        version: VERSION,
        machine: Machine::default(),
        interfaces: vec![Interface::default()],
    };
    for finding in check(&nothing, &wanted()) {
        assert_eq!(finding.state, State::Unknown, "{finding:?}");
    }
}

#[test]
fn a_snapshot_that_is_cut_or_of_another_version_is_refused_and_a_lacking_field_is_unknown() {
    let text = snapshot().json().unwrap();
    for length in (0..text.trim_end().len()).filter(|it| text.is_char_boundary(*it)) {
        assert!(Snapshot::from_json(&text[..length]).is_err(), "{length}");
    }
    let other = text.replacen("\"version\": 1", "\"version\": 2", 1);
    let error = Snapshot::from_json(&other).unwrap_err().to_string();
    assert!(error.contains("version 2"), "{error}");
    let lacking = Snapshot::from_json(&text.replacen("\"kernel\"", "\"kernal\"", 1)).unwrap();
    assert_eq!(find(&lacking, "kernel").state, State::Unknown);
}

#[test]
fn a_saved_snapshot_has_no_address_and_equal_ones_stay_equal() {
    let mut with_rule = snapshot();
    with_rule.machine.firewall = value(vec!["ip saddr 192.0.2.1 tcp dport 7471 drop".into()]);
    let text = with_rule.json().unwrap();
    assert!(!text.contains("192.0.2.1"), "{text}");
    assert!(text.contains("tcp dport 7471 drop"));
}

#[test]
fn names_and_numbers_that_nobody_expects_do_no_harm() {
    let mut odd = snapshot();
    odd.interfaces[0].name = "it's$(reboot)".into();
    link(&mut odd.interfaces[0]).up = false;
    let command = find(&odd, "link").command.unwrap();
    assert_eq!(command, r"ip link set dev 'it'\''s$(reboot)' up");
    for nonsense in ["", "-1", "99999999999999999999", "0-", "\u{1b}[2J", "x x x x x x x x x x"] {
        let mut odd = snapshot();
        for file in odd.machine.files.0.values_mut() {
            *file = value(Some(nonsense.into()));
        }
        for file in odd.interfaces[0].files.0.values_mut() {
            *file = value(Some(nonsense.into()));
        }
        odd.machine.kernel = value(nonsense.into());
        odd.machine.stat = value([nonsense.into(), nonsense.into()]);
        odd.interfaces[0].channels =
            value(Some(Channels { rx: u32::MAX, combined: u32::MAX, ..Channels::default() }));
        let findings = check(&odd, &wanted());
        let page = crate::page::Page { snapshot: &odd, findings: &findings, verbose: true };
        assert!(!page.to_string().contains('\u{1b}'));
    }
}

#[test]
fn a_thousand_interfaces_are_looked_at_one_by_one() {
    let mut many = snapshot();
    many.interfaces =
        (0..1000).map(|it| Interface { name: format!("eth{it}"), ..interface("ice") }).collect();
    let of_interface = CHECKS.iter().filter(|it| matches!(it.run, Run::Interface(_))).count();
    let findings = check(&many, &wanted());
    assert_eq!(findings.len(), CHECKS.len() + 999 * of_interface);
}
