//! On what a figure was measured, so that no number travels without its conditions.

use std::fs;

use rma_xdp::device::DeviceInfo;
use serde::Serialize;

use crate::cores;

/// The machine and how the run was set up.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub machine: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// Their numbers.
    #[serde(skip)]
    pub(crate) available: Vec<usize>,
    /// The kernel's release.
    pub kernel: String,
    /// The version of this program.
    pub version: &'static str,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or("unknown processor", |(_, name)| name);
        let kernel = rustix::system::uname();
        Self {
            machine: name.trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            available: cores::available(),
            kernel: kernel.release().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Returns the way in which the kernel passes a device's frames and the reason for it, and its MTU
/// in bytes of IP packet: the smallest, if it has several.
#[must_use]
pub fn mode_and_mtu(info: &DeviceInfo) -> (String, u32) {
    match info {
        DeviceInfo::Xdp(xdp) => (format!("{} ({})", xdp.mode, xdp.mode_reason), xdp.mtu),
        DeviceInfo::Udp(udp) => {
            let mtu = udp.sockets.iter().map(|socket| socket.mtu).min().unwrap_or(0);
            (udp.to_string(), mtu)
        }
        _ => (String::new(), 0),
    }
}
