//! NUMA nodes of interfaces and cores, as far as the system tells: the rest is unknown, and never
//! node 0.

use std::{fs, path::Path};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::cores;

/// The files of the system.
const SYS: &str = "/sys";

/// An error about `--numa auto`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NumaError {
    /// The system does not tell where the interface is.
    #[error(
        "--numa auto: the system does not tell the node of {interface}, and has several: leave it out, and give --cores"
    )]
    Unknown {
        /// The interface.
        interface: String,
    },
    /// A core is on another node than the interface.
    #[error(
        "--numa auto: core {core} is not on node {node}, which {interface} is on: give --cores of these: {}",
        cores::Text(near)
    )]
    OtherNode {
        /// The core.
        core: usize,
        /// The interface.
        interface: String,
        /// Its node.
        node: u32,
        /// The cores there.
        near: Vec<usize>,
    },
    /// This process may use no core of the node.
    #[error(
        "--numa auto: this process may use no core of node {node}, which {interface} is on: leave it out, or look at `taskset`"
    )]
    NoCores {
        /// The interface.
        interface: String,
        /// Its node.
        node: u32,
    },
}

/// The node that an interface's device is at.
pub(crate) fn of_interface(interface: &str) -> Option<u32> {
    of_interface_in(Path::new(SYS), interface)
}

fn of_interface_in(sys: &Path, interface: &str) -> Option<u32> {
    let path = sys.join("class/net").join(interface).join("device/numa_node");
    // -1 where the firmware says nothing.
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The one node that all of these cores are at. `None` if there are several, or it is unknown.
pub(crate) fn of_cores(cores: &[usize]) -> Option<u32> {
    of_cores_in(Path::new(SYS), cores)
}

fn of_cores_in(sys: &Path, cores: &[usize]) -> Option<u32> {
    let mut nodes = nodes(sys).into_iter();
    nodes
        .find(|(_, near)| !cores.is_empty() && cores.iter().all(|it| near.contains(it)))
        .map(|it| it.0)
}

/// The nodes with their cores.
fn nodes(sys: &Path) -> Vec<(u32, Vec<usize>)> {
    let root = sys.join("devices/system/node");
    let online = fs::read_to_string(root.join("online")).unwrap_or_default();
    let of = |node: usize| {
        let path = root.join(format!("node{node}")).join("cpulist");
        let text = fs::read_to_string(path).ok()?;
        Some((u32::try_from(node).ok()?, cores::list(text.trim())?))
    };
    cores::list(online.trim()).unwrap_or_default().into_iter().filter_map(of).collect()
}

/// Keeps the calling thread on the node of `interface`: then memory that it touches first is there,
/// as the kernel gives it. `pinned` are the cores that were asked for, if any.
///
/// # Errors
/// If one of these is on another node, or the node is not known and there are several.
pub(crate) fn stay_near(interface: &str, pinned: &[usize]) -> Result<(), NumaError> {
    let near = near(Path::new(SYS), interface, pinned)?;
    let mut set = CpuSet::new();
    near.into_iter().filter(|&it| it < CpuSet::MAX_CPU).for_each(|it| set.set(it));
    // Whoever may not be moved stays where it is: that is no reason to end.
    if set.count() > 0 {
        _ = sched_setaffinity(None, &set);
    }
    Ok(())
}

/// The cores of the interface's node that this process may use, if there are several nodes.
fn near(sys: &Path, interface: &str, pinned: &[usize]) -> Result<Vec<usize>, NumaError> {
    let (nodes, interface) = (nodes(sys), interface.to_owned());
    if nodes.len() <= 1 {
        return Ok(Vec::new());
    }
    let of = of_interface_in(sys, &interface);
    let found = nodes.into_iter().find(|(node, _)| Some(*node) == of);
    let Some((node, near)) = found else { return Err(NumaError::Unknown { interface }) };
    if let Some(&core) = pinned.iter().find(|it| !near.contains(it)) {
        return Err(NumaError::OtherNode { core, interface, node, near });
    }
    let available = cores::available();
    let own: Vec<usize> = near.into_iter().filter(|it| available.contains(it)).collect();
    if own.is_empty() { Err(NumaError::NoCores { interface, node }) } else { Ok(own) }
}

#[cfg(test)]
mod tests {
    use rma_lab::Scratch;

    use super::*;

    /// Two nodes: core 0 at the first, all others at the second, where `eth1` is.
    fn two_nodes() -> Scratch {
        let sys = Scratch::new();
        for (path, text) in [
            ("devices/system/node/online", "0-1"),
            ("devices/system/node/node0/cpulist", "0"),
            ("devices/system/node/node1/cpulist", "1-63"),
            ("class/net/eth1/device/numa_node", "1"),
            ("class/net/eth0/device/numa_node", "-1"),
        ] {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        sys
    }

    #[test]
    fn nodes_are_what_the_system_tells_and_else_unknown() {
        let sys = two_nodes();
        let of = |interface| of_interface_in(sys.path(), interface);
        assert_eq!((of("eth1"), of("eth0"), of("veth0")), (Some(1), None, None));
        let of = |cores: &[usize]| of_cores_in(sys.path(), cores);
        assert_eq!((of(&[0]), of(&[1, 2]), of(&[0, 1]), of(&[])), (Some(0), Some(1), None, None));
        assert_eq!(of_cores_in(Path::new("/nosuch"), &[0]), None);
    }

    #[test]
    fn cores_of_another_node_than_the_interface_are_refused_with_those_that_are_near() {
        let sys = two_nodes();
        let near = |interface, pinned: &[usize]| near(sys.path(), interface, pinned);
        let error = near("eth1", &[2, 0]).unwrap_err().to_string();
        assert!(
            error.contains("core 0 is not on node 1") && error.contains("these: 1-63"),
            "{error}"
        );
        let error = near("eth0", &[]).unwrap_err().to_string();
        assert!(error.contains("does not tell the node of eth0"), "{error}");
        // Where there is one node all are near.
        assert_eq!(super::near(Path::new("/nosuch"), "eth0", &[0]).unwrap(), Vec::<usize>::new());
    }
}
