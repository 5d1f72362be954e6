//! The conditions of a measurement, gathered before it.

use std::fs;

use rma_xdp::{InlineHost, device::DeviceInfo};
use serde::{Deserialize, Serialize};

use crate::{
    aead,
    machine::{Machine, mode_and_mtu},
};

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
    /// The core that the thread is pinned to.
    pub core: Option<usize>,
    /// The frequency governor of that core, or of the first.
    pub governor: Option<String>,
    /// Whether the thread offers its core to others whenever there is nothing to do.
    pub yields: bool,
    /// Features that fell back to a slower way.
    pub fallbacks: Vec<String>,
}

impl Conditions {
    /// On this host, whose thread is pinned to `core`. `yields`: whether it offers its core to
    /// others.
    pub(crate) fn new(
        machine: Machine,
        host: &InlineHost,
        core: Option<usize>,
        yields: bool,
    ) -> Self {
        let Machine { machine, cores, kernel, version } = machine;
        let info = host.info();
        let (mode, mtu) = mode_and_mtu(info);
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
            core,
            governor: governor(core.unwrap_or(0)),
            yields,
            fallbacks: host.fallbacks(),
        }
    }
}

/// The frequency governor of a core. None in most virtual machines.
fn governor(core: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
