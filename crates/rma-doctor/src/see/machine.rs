//! The machine: files of `/proc` and `/sys`, and what system calls tell of it and this process.

use std::{fs, time::Duration};

use rma_core::crypto::fastest;
use rma_xdp::config::STATE_DIR;
use rustix::{
    fs::{Access, access, getxattr, statfs},
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    process::{Resource, getrlimit},
    thread::{CpuSet, capabilities, sched_getaffinity},
};

use super::{Look, Reader, ethtool, monotonic, output, sleep};
use crate::snapshot::{Files, Interface, Machine, Seen, Socket, StateDir};

/// How long a loop of our own spins, to see gaps.
const SPIN: Duration = Duration::from_millis(200);
/// File systems that are lost with the machine's memory.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// More interrupts than an interface has.
const INTERRUPTS_MAX: usize = 256;

/// Files of the machine.
const FILES: [&str; 9] = [
    "proc/sys/net/core/bpf_jit_enable",
    "proc/meminfo",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/kernel/security/lockdown",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/online",
];

/// Files of an interface, below its directory.
const INTERFACE_FILES: [&str; 7] = [
    "device/numa_node",
    "device/current_link_speed",
    "device/max_link_speed",
    "device/current_link_width",
    "device/max_link_width",
    "napi_defer_hard_irqs",
    "gro_flush_timeout",
];

pub(super) fn look(reader: &Reader, look: &Look) -> Machine {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let effective = capabilities(None).map(|it| it.effective.bits());
    let cores = sched_getaffinity(None);
    let cores = cores.map(|set| (0..CpuSet::MAX_CPU).filter(|it| set.is_set(*it)).collect());
    let mut files = Files::default();
    reader.read_into(&mut files, FILES.map(str::to_owned));
    files.0.insert("proc/cpuinfo".into(), processor(reader));
    let synchronised = output("timedatectl", &["show", "-p", "NTPSynchronized", "--value"]);
    read_cores(reader, &mut files);
    Machine {
        kernel: Seen::Value(kernel),
        af_xdp: af_xdp(),
        capabilities: effective.into(),
        file_capabilities: file_capabilities(),
        memlock: Seen::Value(getrlimit(Resource::Memlock).current),
        state_dir: state_dir(reader),
        clock_synchronised: synchronised.map(|it| it.trim() == "yes").into(),
        cores: cores.into(),
        aead: Seen::Value(fastest().name().to_owned()),
        gap_us: Seen::unseen("counters were read once only"),
        stat: Seen::unseen("counters were read once only"),
        sockets: sockets(reader, look.ports),
        firewall: firewall(look.ports),
        irqbalance: irqbalance(reader),
        files,
    }
}

/// Files of each core, and the nodes' cores.
fn read_cores(reader: &Reader, files: &mut Files) {
    const CPU: &str = "sys/devices/system/cpu";
    const NODE: &str = "sys/devices/system/node";
    let is_numbered =
        |name: &str, of: &str| name.strip_prefix(of).is_some_and(|it| it.parse::<u32>().is_ok());
    for cpu in reader.names(CPU).iter().filter(|it| is_numbered(it, "cpu")) {
        let paths = ["cpufreq/scaling_governor", "topology/thread_siblings_list"];
        reader.read_into(files, paths.map(|it| format!("{CPU}/{cpu}/{it}")));
        // Idle states are alike on all cores of a machine: those of the first tell.
        let states =
            if cpu == "cpu0" { reader.names(&format!("{CPU}/cpu0/cpuidle")) } else { Vec::new() };
        for state in states {
            let of = |it| format!("{CPU}/cpu0/cpuidle/{state}/{it}");
            reader.read_into(files, ["name", "latency", "disable"].map(of));
        }
    }
    for node in reader.names(NODE).iter().filter(|it| is_numbered(it, "node")) {
        reader.read_into(files, [format!("{NODE}/{node}/cpulist")]);
    }
}

/// The first processor's lines. A serial number stands after the last, on some.
fn processor(reader: &Reader) -> Seen<Option<String>> {
    let first = |text: String| text.split("\n\n").next().unwrap_or_default().to_owned();
    match reader.read("proc/cpuinfo") {
        Seen::Value(text) => Seen::Value(text.map(first)),
        unseen @ Seen::Unseen(_) => unseen,
    }
}

fn af_xdp() -> Seen<bool> {
    use rustix::io::Errno;
    match socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        // It is there, and not for everybody.
        Ok(_) | Err(Errno::PERM) => Seen::Value(true),
        Err(Errno::AFNOSUPPORT) => Seen::Value(false),
        Err(error) => Seen::unseen(format!("socket(AF_XDP): {error}")),
    }
}

/// The capabilities that this program's file gives, if they are made effective.
fn file_capabilities() -> Seen<Option<u64>> {
    let mut bytes = [0; 24];
    match getxattr("/proc/self/exe", "security.capability", &mut bytes[..]) {
        Ok(length) => Seen::Value(file_mask(bytes.get(..length).unwrap_or_default())),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Seen::Value(None),
        Err(error) => Seen::unseen(format!("capabilities of the program's file: {error}")),
    }
}

/// `struct vfs_cap_data`: a word with the flag "effective", then permitted and inheritable, twice.
fn file_mask(bytes: &[u8]) -> Option<u64> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
    let is_effective = word(0)? & 1 != 0;
    let mask = u64::from(word(4)?) | u64::from(word(12)?) << 32;
    is_effective.then_some(mask)
}

fn state_dir(reader: &Reader) -> Seen<StateDir> {
    let path = reader.path(STATE_DIR.trim_start_matches('/'));
    match statfs(&path) {
        Ok(it) => Seen::Value(StateDir {
            exists: true,
            in_memory: IN_MEMORY.contains(&i64::from(it.f_type as u32)),
            writable: access(&path, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        }),
        Err(rustix::io::Errno::NOENT) => {
            Seen::Value(StateDir { exists: false, in_memory: false, writable: false })
        }
        Err(error) => Seen::unseen(format!("{STATE_DIR}: {error}")),
    }
}

/// The sockets of two ports: UDP, and TCP that listens.
fn sockets(reader: &Reader, [udp, tcp]: [u16; 2]) -> Seen<Vec<Socket>> {
    let mut sockets = Vec::new();
    for (file, is_tcp) in [("udp", false), ("udp6", false), ("tcp", true), ("tcp6", true)] {
        match reader.read(&format!("proc/thread-self/net/{file}")) {
            Seen::Value(Some(text)) => {
                let port = if is_tcp { tcp } else { udp };
                let found = text.lines().any(|it| has_port(it, port, is_tcp));
                sockets.extend(found.then_some(Socket { tcp: is_tcp, port }));
            }
            // A kernel without IPv6.
            Seen::Value(None) if file.ends_with('6') => {}
            Seen::Value(None) => return Seen::unseen(format!("there is no /proc/net/{file}")),
            Seen::Unseen(why) => return Seen::Unseen(why),
        }
    }
    sockets.dedup();
    Seen::Value(sockets)
}

/// Whether a line of `/proc/net/udp` or `tcp` is of a socket with that port, as
/// `0: 00000000:28E8 …`.
fn has_port(line: &str, port: u16, listening: bool) -> bool {
    const LISTEN: &str = "0A";
    let mut words = line.split_whitespace().skip(1);
    let local = words.next().and_then(|it| it.rsplit_once(':'));
    let is_port = local.is_some_and(|it| u16::from_str_radix(it.1, 16) == Ok(port));
    is_port && (!listening || words.nth(1) == Some(LISTEN))
}

fn firewall(ports: [u16; 2]) -> Seen<Vec<String>> {
    let is_port = |word: &str| {
        let word = word.trim_matches([',', '{', '}']);
        ports.iter().any(|port| word == port.to_string())
    };
    // Any rule that may drop, whatever its port: which packets reach it is not followed here.
    let named = |line: &str| {
        let mut words = line.split_whitespace();
        let drops = line.contains("drop") || line.contains("reject");
        drops && (line.contains("policy drop") || !line.contains("dport") || words.any(is_port))
    };
    let rules = output("nft", &["list", "ruleset"]);
    rules
        .map(|it| it.lines().map(str::trim).filter(|it| named(it)).map(str::to_owned).collect())
        .into()
}

fn irqbalance(reader: &Reader) -> Seen<bool> {
    if let Err(why) = reader.mounted("proc") {
        return Seen::unseen(why);
    }
    let is_it = |pid: &String| {
        pid.bytes().all(|it| it.is_ascii_digit())
            && fs::read_to_string(reader.path(&format!("proc/{pid}/comm")))
                .is_ok_and(|it| it.trim() == "irqbalance")
    };
    Seen::Value(reader.names("proc").iter().any(is_it))
}

/// Spins for a moment between two readings of the cores' times. Then it has seen what the machine
/// does to a thread that spins.
pub(super) fn spin(reader: &Reader, machine: &mut Machine) {
    let stat = || match reader.read("proc/stat") {
        Seen::Value(text) => {
            // Without what each interrupt has counted, which is long.
            let lines = text.as_deref().unwrap_or_default().lines();
            Ok(lines.take_while(|it| it.starts_with("cpu")).collect::<Vec<_>>().join("\n"))
        }
        Seen::Unseen(why) => Err(why.0),
    };
    let before = stat();
    let start = monotonic();
    let (mut last, mut gap) = (start, Duration::ZERO);
    while last.saturating_sub(start) < SPIN {
        let now = monotonic();
        gap = gap.max(now.saturating_sub(last));
        last = now;
    }
    machine.gap_us = Seen::Value(u64::try_from(gap.as_micros()).unwrap_or(u64::MAX));
    // The kernel counts in hundredths of a second.
    sleep(Duration::from_millis(20));
    machine.stat = before.and_then(|before| Ok([before, stat()?])).into();
}

/// Reads the files that tell of an interface.
pub(super) fn look_at_interface(reader: &Reader, interface: &mut Interface) {
    let folder = format!("sys/class/net/{}", interface.name);
    let unseen = match (reader.read(&format!("{folder}/ifindex")), interface.link.get()) {
        (Seen::Unseen(why), _) | (_, Err(why)) => Some(why.0),
        (Seen::Value(index), Ok(link)) => {
            let index: Option<u32> = index.and_then(|it| it.trim().parse().ok());
            let other = "the /sys that is mounted is not of the interface's network namespace";
            (index != Some(link.index)).then(|| other.to_owned())
        }
    };
    if let Some(why) = unseen {
        interface.driver = Seen::unseen(&why);
        interface.bus = Seen::unseen(&why);
        interface.interrupts = Seen::unseen(&why);
        let files = INTERFACE_FILES.map(|it| (it.to_owned(), Seen::unseen(&why)));
        interface.files.0.extend(files);
        virtual_anyway(interface);
        return;
    }
    interface.driver = reader.target(&format!("{folder}/device/driver"));
    interface.bus = reader.target(&format!("{folder}/device"));
    for file in INTERFACE_FILES {
        interface.files.0.insert(file.to_owned(), reader.read(&format!("{folder}/{file}")));
    }
    // Those of a virtio device are its parent's.
    let lists = [format!("{folder}/device/msi_irqs"), format!("{folder}/device/../msi_irqs")];
    let numbers = lists.iter().map(|it| reader.names(it)).find(|it| !it.is_empty());
    let numbers = numbers.unwrap_or_default();
    let numbers: Vec<u32> =
        numbers.iter().filter_map(|it| it.parse().ok()).take(INTERRUPTS_MAX).collect();
    let affinity = |number: &u32| format!("proc/irq/{number}/smp_affinity_list");
    reader.read_into(&mut interface.files, numbers.iter().map(affinity));
    interface.interrupts = Seen::Value(numbers);
    if matches!(interface.driver, Seen::Value(Some(_))) {
        ethtool::look_by_program(interface);
    }
}

/// Those of a kind of their own have no device, whatever `/sys` shows.
fn virtual_anyway(interface: &mut Interface) {
    if interface.link.get().is_ok_and(|it| it.kind.is_some()) {
        interface.driver = Seen::Value(None);
        interface.bus = Seen::Value(None);
        interface.interrupts = Seen::Value(Vec::new());
    }
}

/// Gives an XDP program's name, where the kernel tells it.
pub(super) fn program_name(id: u32) -> String {
    let mut programs = aya::programs::loaded_programs().filter_map(Result::ok);
    let found = programs.find(|it| it.id() == id);
    found.and_then(|it| it.name_as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_among_sockets() {
        let udp = "  12: 00000000:28E8 00000000:0000 07 00000000:00000000";
        assert!(has_port(udp, 10472, false) && !has_port(udp, 10473, false));
        let tcp = "   0: 0100007F:1D2F 00000000:0000 0A 00000000:00000000";
        assert!(has_port(tcp, 7471, true));
        assert!(!has_port(&tcp.replace("0A", "01"), 7471, true), "connected, not listening");
        for cut in 0..udp.len() {
            has_port(&udp[..cut], 10472, true);
        }
    }

    #[test]
    fn the_capabilities_of_a_file_count_if_they_are_effective() {
        let mut bytes = [0; 20];
        bytes[0] = 1;
        bytes[3] = 2;
        bytes[5] = 0x10;
        bytes[12] = 0x40;
        assert_eq!(file_mask(&bytes), Some(0x40_0000_1000));
        bytes[0] = 0;
        assert_eq!(file_mask(&bytes), None);
        assert_eq!(file_mask(&bytes[..7]), None);
    }
}
