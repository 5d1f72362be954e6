//! The link that floors are measured on: a pair of interfaces like that of the compared hosts,
//! without any host on it.
//!
//! An interface has one steering program, and a queue one socket: what a host has nobody else can
//! have. So the floor has a veth pair of its own, made and opened as that of the hosts.

use rma_core::addr::HostAddr;
use rma_lab::{Lab, LabConfig, Netns};
use rma_xdp::{
    HostError,
    device::{
        Port,
        xdp::{SteeredSockets, XdpConfig},
    },
};

use super::exchange::{Side, Sides};
use crate::{error::PairError, mode, pair::cores};

/// Sockets at both ends of a veth pair.
#[derive(Debug)]
pub struct Link {
    // Dropped in this order.
    client: End,
    server: End,
    port: u16,
    _lab: Lab,
}

#[derive(Debug)]
struct End {
    sockets: SteeredSockets,
    address: HostAddr,
    mac: [u8; 6],
}

impl End {
    fn open(netns: &Netns, address: HostAddr, port: u16, mtu: u32) -> Result<Self, PairError> {
        let mac = netns.interface_mac(Lab::INTERFACE)?;
        let _inside = netns.enter()?;
        let config = mode::sockets(XdpConfig::new(Lab::INTERFACE, &[Port(port)], &[address]));
        let sockets = SteeredSockets::open(&config, mtu).map_err(HostError::from)?;
        Ok(Self { sockets, address, mac })
    }

    const fn side(&mut self, core: Option<usize>) -> Side<'_> {
        Side { sockets: &mut self.sockets, address: self.address, mac: self.mac, core }
    }
}

impl Link {
    /// Makes a veth pair, and opens sockets at both ends for the UDP port, which talk over IPv6 or
    /// IPv4.
    ///
    /// # Errors
    /// If something could not be made or opened.
    pub fn open(config: &LabConfig, port: u16, ipv6: bool) -> Result<Self, PairError> {
        let lab = Lab::new(config)?;
        let (a, b) = if ipv6 {
            (Lab::A_V6.into(), Lab::B_V6.into())
        } else {
            (Lab::A_V4.into(), Lab::B_V4.into())
        };
        let client = End::open(lab.a(), a, port, config.mtu)?;
        let server = End::open(lab.b(), b, port, config.mtu)?;
        Ok(Self { client, server, port, _lab: lab })
    }

    /// Lends the sockets.
    pub fn sides(&mut self) -> Sides<'_> {
        let (client_core, server_core) = cores();
        let (client, server) = (self.client.side(client_core), self.server.side(server_core));
        Sides { client, server, port: self.port }
    }
}
