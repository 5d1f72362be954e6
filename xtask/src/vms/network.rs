//! The network between the machines: a bridge with a tap for each of them, in a network namespace
//! of its own.
//!
//! The bridge has addresses as well, so that a host over UDP can be there. Nothing leads out of the
//! namespace. It is removed on drop; what a killed run leaves, the next one sweeps.

use std::{
    fs::File,
    io,
    net::{IpAddr, UdpSocket},
    os::fd::AsFd as _,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{error::Setup, kernels};
use crate::host;

/// The bridge that joins the machines of one network.
const BRIDGE: &str = "br0";

/// The prefix of its name: like those of the lab, whose makers can be told.
const PREFIX: &str = "rma-vms-";

/// A namespace with a bridge.
#[derive(Debug)]
pub(super) struct Network {
    name: String,
}

impl Network {
    /// Makes it, with a tap of `queues` queues for each machine. `mtu` is everybody's.
    pub(super) fn new(addresses: &[&str], taps: &[(String, u32)], mtu: u32) -> Result<Self, Setup> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut left = host::abandoned_namespaces();
        left.retain(|name| name.starts_with(PREFIX));
        host::delete_namespaces(&left);
        let name = format!("{PREFIX}{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        host::ip(&["netns", "add", &name]).map_err(Setup::Ip)?;
        let network = Self { name };
        let mtu = mtu.to_string();
        network.ip(&["link", "set", "lo", "up"])?;
        // No spanning tree, no snooping: frames pass from the beginning.
        let quiet =
            ["type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"];
        network.ip(&[&["link", "add", BRIDGE][..], &quiet].concat())?;
        for (tap, queues) in taps {
            let queues: &[&str] = if *queues > 1 { &["multi_queue"] } else { &[] };
            network.ip(&[&["tuntap", "add", "dev", tap, "mode", "tap"][..], queues].concat())?;
            network.ip(&["link", "set", tap, "mtu", &mtu, "master", BRIDGE, "up"])?;
        }
        network.ip(&["link", "set", BRIDGE, "mtu", &mtu, "up"])?;
        for address in addresses {
            let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            network.ip(&[&["addr", "add", address, "dev", BRIDGE][..], nodad].concat())?;
        }
        Ok(network)
    }

    /// Its name, as `ip netns exec` takes it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sends so many small datagrams from the bridge to a port of a machine.
    pub(super) fn flood(&self, to: IpAddr, port: u16, count: u32) -> Result<(), Setup> {
        let path = format!("/run/netns/{}", self.name);
        let send = || -> io::Result<()> {
            let namespace = File::open(&path)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
            let socket = UdpSocket::bind((any, 0))?;
            (0..count).try_for_each(|_| socket.send_to(&[0; 18], (to, port)).map(drop))
        };
        // In a thread of its own, which is in another namespace from then on.
        let sent = thread::scope(|scope| scope.spawn(send).join());
        sent.expect("it does not panic").map_err(kernels::file("sending from", path.as_ref()))
    }

    /// Whether a machine answers a ping from the bridge.
    pub(super) fn is_answered(&self, to: IpAddr) -> Result<bool, Setup> {
        /// Of patience, for a machine that is emulated on a busy computer. The pings go on
        /// meanwhile.
        const SECONDS: &str = "60";
        let ping = ["busybox", "ping", "-c", "1", "-W", SECONDS, "-w", SECONDS, &to.to_string()];
        let mut command = Command::new("ip");
        match kernels::run(command.args(["netns", "exec", &self.name]).args(ping)) {
            Ok(_) => Ok(true),
            Err(Setup::Command { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), Setup> {
        host::ip(&[&["-n", &self.name], arguments].concat()).map_err(Setup::Ip)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        host::delete_namespaces(std::slice::from_ref(&self.name));
    }
}
