//! The network between the machines: a bridge with a tap for each of them, in a network namespace
//! of its own.
//!
//! The bridge has addresses as well, so that a host over UDP can be there. Nothing leads out of the
//! namespace. It is removed on drop; what a killed run leaves, the next one sweeps.

use std::{process, sync::atomic::AtomicU32, sync::atomic::Ordering::Relaxed};

use super::error::Setup;
use crate::host;

/// The bridge that joins the machines of one network.
const BRIDGE: &str = "br0";

/// How its name begins: like those of the lab, whose makers can be told.
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

    fn ip(&self, arguments: &[&str]) -> Result<(), Setup> {
        host::ip(&[&["-n", &self.name], arguments].concat()).map_err(Setup::Ip)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        host::delete_namespaces(std::slice::from_ref(&self.name));
    }
}
