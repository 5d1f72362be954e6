//! The conditions of a measurement, gathered before it.

use std::fs;

use rma_xdp::{HostOf, device::DeviceInfo, engine::EngineKind};
use serde::{Deserialize, Serialize};

use crate::{
    aead, cores,
    machine::{Machine, mode_and_mtu},
    numa,
    route::interface_with,
};

/// The cores of this program's threads, and what they do there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinning<'a> {
    /// Those that threads are pinned to, engines' first.
    pub(crate) cores: &'a [usize],
    pub(crate) low_latency: bool,
    pub(crate) yields: bool,
}

/// The conditions of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// The processor's name.
    pub machine: String,
    /// Cores that this process may use, before it is pinned.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The version of this program.
    pub version: String,
    /// The device in words.
    pub device: String,
    /// `xdp` or `udp`.
    pub backend: String,
    /// The way in which the kernel passes frames, and why.
    pub mode: String,
    /// MTU of the device, in bytes of IP packet.
    pub mtu: u32,
    /// MTU of the path, if it is less.
    pub path_mtu: Option<u32>,
    /// The AEAD, and its implementation.
    pub aead: String,
    /// The interface that frames leave by, if it is known.
    pub interface: Option<String>,
    /// The NUMA node of its device. Null if the system does not tell.
    pub numa_node: Option<u32>,
    /// The core that the engine, or the first of several, is pinned to.
    pub core: Option<usize>,
    /// The cores that threads are pinned to, engines' first.
    pub pinned: Vec<usize>,
    /// The NUMA node of these cores, or of all that this process may use. Null if there are
    /// several, or if the system does not tell.
    pub cores_numa_node: Option<u32>,
    /// Whether cores are kept out of idle states that take long to leave.
    pub low_latency: bool,
    /// The frequency governor of that core, or of the first.
    pub governor: Option<String>,
    /// Whether the thread offers its core to others whenever there is nothing to do.
    pub yields: bool,
    /// Features that fell back to a slower way.
    pub fallbacks: Vec<String>,
}

impl Conditions {
    /// On this host, whose threads are where `pinning` says.
    pub(crate) fn new(
        machine: Machine,
        host: &HostOf<impl EngineKind>,
        pinning: Pinning<'_>,
    ) -> Self {
        let Pinning { cores: pinned, low_latency, yields } = pinning;
        let core = pinned.first().copied();
        let info = host.info();
        let (mode, mtu) = mode_and_mtu(info);
        let interface = interface_of(host);
        let node = numa::of_cores(if pinned.is_empty() { &machine.available } else { pinned });
        let Machine { machine, cores, kernel, version, .. } = machine;
        Self {
            machine,
            cores,
            kernel,
            version: version.to_owned(),
            device: info.to_string(),
            backend: if matches!(info, DeviceInfo::Udp(_)) { "udp" } else { "xdp" }.to_owned(),
            mode,
            mtu,
            path_mtu: host.narrow_paths().first().map(|narrow| narrow.mtu),
            aead: aead::words(),
            numa_node: interface.as_deref().and_then(numa::of_interface),
            interface,
            core,
            pinned: pinned.to_vec(),
            cores_numa_node: node,
            low_latency,
            governor: governor(core.unwrap_or(0)),
            yields,
            fallbacks: host.fallbacks(),
        }
    }

    /// The NUMA nodes of the interface and of the cores, in words.
    pub(crate) fn nodes(&self) -> String {
        let node = |it: Option<u32>| it.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
        let interface = self.interface.as_deref().unwrap_or("the interface");
        let cores = match &*self.pinned {
            [] => "cores".to_owned(),
            pinned => format!("cores {}", cores::Text(pinned)),
        };
        let (there, here) = (node(self.numa_node), node(self.cores_numa_node));
        format!("NUMA node of {interface} {there}, of the {cores} {here}")
    }
}

/// The interface that a host's frames leave by, if it is known.
pub(crate) fn interface_of(host: &HostOf<impl EngineKind>) -> Option<String> {
    match host.info() {
        DeviceInfo::Xdp(xdp) => Some(xdp.interface.to_string()),
        _ => host.addresses().iter().next().and_then(|it| interface_with(it.ip())),
    }
}

/// The frequency governor of a core. None in most virtual machines.
fn governor(core: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
