//! The conditions of a measurement, gathered before it.

use std::fs;

use rma_xdp::{InlineHost, device::DeviceInfo};

use super::row::{Conditions, Peer};
use crate::{
    aead,
    machine::{Machine, mode_and_mtu},
    remote::Remote,
    serve::HostArgs,
};

impl Conditions {
    /// On this host. `yields`: whether its thread offers its core to others.
    pub(crate) fn new(machine: Machine, host: &InlineHost, args: &HostArgs, yields: bool) -> Self {
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
            core: args.core,
            governor: governor(args.core.unwrap_or(0)),
            yields,
            fallbacks: host.fallbacks(),
        }
    }
}

impl Peer {
    /// The server with its region of so many bytes.
    pub(crate) fn new(remote: &Remote, region_len: u64) -> Self {
        let (address, permit) = (remote.responder().to_string(), remote.permit_name());
        Self { address, region_len, permit }
    }
}

/// The frequency governor of a core. None in most virtual machines.
fn governor(core: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
