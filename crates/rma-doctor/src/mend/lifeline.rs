//! The interfaces that whoever mends may be connected by.

use std::{fs, path::Path};

/// An interface that a connection goes by, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifeline {
    /// The name of it.
    pub interface: String,
    /// The use that it has.
    pub use_: &'static str,
}

/// The interfaces of the default routes, and of the ssh connection that this process was started
/// by, with those that they stand on. `with_address` names the interface of an address.
#[must_use]
pub fn lifelines(root: &Path, with_address: &dyn Fn(&str) -> Option<String>) -> Vec<Lifeline> {
    let mut all = Vec::new();
    let mut add = |interface: String, use_: &'static str| {
        all.push(Lifeline { interface: interface.clone(), use_ });
        below(root, &interface, 0, &mut |interface| all.push(Lifeline { interface, use_ }));
    };
    for interface in default_routes(root) {
        add(interface, "the default route goes by it");
    }
    if let Some(interface) = ssh_address(root).and_then(|it| with_address(&it)) {
        add(interface, "this ssh connection comes by it");
    }
    all
}

fn default_routes(root: &Path) -> Vec<String> {
    let read = |path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let v4 = read("proc/thread-self/net/route");
    let v6 = read("proc/thread-self/net/ipv6_route");
    let v4 = v4.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_default = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
        is_default.then(|| words[0].to_owned())
    });
    let v6 = v6.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (to, len, interface) = (words.first()?, words.get(1)?, words.get(9)?);
        let is_default = to.chars().all(|it| it == '0') && *len == "00" && *interface != "lo";
        is_default.then(|| (*interface).to_owned())
    });
    v4.chain(v6).collect()
}

/// The address of this machine that ssh was connected to. `sudo` takes the variable away, so it is
/// looked for in the processes that this one comes from as well.
fn ssh_address(root: &Path) -> Option<String> {
    let mut process = "self".to_owned();
    for _ in 0..64 {
        let of = root.join("proc").join(&process);
        let environment = fs::read(of.join("environ")).unwrap_or_default();
        let found = environment.split(|it| *it == 0).find_map(|it| {
            let value = str::from_utf8(it).ok()?.strip_prefix("SSH_CONNECTION=")?;
            Some(value.split_whitespace().nth(2)?.to_owned())
        });
        if found.is_some() {
            return found;
        }
        let status = fs::read_to_string(of.join("status")).ok()?;
        let parent = status.lines().find_map(|it| it.strip_prefix("PPid:"))?.trim();
        if parent == "0" {
            return None;
        }
        process = parent.to_owned();
    }
    None
}

/// Names what an interface stands on: a VLAN's, a bond's.
fn below(root: &Path, interface: &str, depth: u32, add: &mut dyn FnMut(String)) {
    if depth == 8 {
        return;
    }
    let Ok(entries) = fs::read_dir(root.join("sys/class/net").join(interface)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if let Some(lower) = name.to_str().and_then(|it| it.strip_prefix("lower_")) {
            add(lower.to_owned());
            below(root, lower, depth + 1, add);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_a_connection_stands_on_is_known_through_sudo_and_a_vlan() {
        let root = std::env::temp_dir().join(format!("rma-doctor-lifeline-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/thread-self/net/route",
            "Iface Destination Gateway Flags RefCnt Use Metric Mask\n\
             eth0 00000000 0100A8C0 0003 0 0 0 00000000\neth9 0000A8C0 00000000 1 0 0 0 00FFFFFF\n",
        );
        write("proc/thread-self/net/ipv6_route", "cut");
        write("proc/self/environ", "A=1\0");
        write("proc/self/status", "Name: x\nPPid:\t77\n");
        write("proc/77/environ", "B=2\0SSH_CONNECTION=198.51.100.1 5 192.0.2.1 22\0");
        write("sys/class/net/eth1.10/lower_eth1/x", "");
        let named = |address: &str| (address == "192.0.2.1").then(|| "eth1.10".to_owned());
        let found = lifelines(&root, &named);
        let names: Vec<_> = found.iter().map(|it| &*it.interface).collect();
        assert_eq!(names, ["eth0", "eth1.10", "eth1"]);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(lifelines(&root, &named), [], "nothing is seen, and nothing fails");
    }
}
