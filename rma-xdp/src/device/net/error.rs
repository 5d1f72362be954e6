//! Errors of questions to the kernel, and of paths to hosts.

use std::{io, net::IpAddr};

use rma_core::addr::HostAddr;
use rma_shm::Told;

/// The reason why an interface cannot be used or watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// There is no such interface in this network namespace.
    #[error("there is no interface {name:?} in this network namespace: `ip link` lists them")]
    NoSuchInterface {
        /// The name as given.
        name: Box<str>,
    },
    /// The interface does not carry Ethernet frames.
    #[error(
        "interface {name} is not Ethernet, as `ip link show dev {name}` tells: hosts over UDP work \
         on any interface (HostConfig::udp; of rma-bench: --udp ADDRESS)"
    )]
    NotEthernet {
        /// The interface.
        name: Box<str>,
    },
    /// The kernel refused a question or answered what cannot be understood.
    #[error("{doing} for interface {name}: {}", Told::of(source))]
    Kernel {
        /// The action that failed.
        doing: &'static str,
        /// The interface.
        name: Box<str>,
        /// The error of the kernel.
        source: io::Error,
    },
    /// No thread could be started.
    #[error(
        "the network monitor of interface {name} could not start its thread: {}",
        Told::of_thread(source)
    )]
    Thread {
        /// The interface.
        name: Box<str>,
        /// The error of the system.
        source: io::Error,
    },
}

/// The reason why there is no path to a destination.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The kernel has no route, or a route that forbids the destination.
    #[error("there is no route to {destination}: see `ip route get {destination}`")]
    NoRoute {
        /// The destination.
        destination: HostAddr,
    },
    /// The destination is a broadcast, multicast or unspecified address.
    #[error("{destination} is not the address of one host: 1RMA is between two hosts")]
    NotUnicast {
        /// The destination.
        destination: HostAddr,
    },
    /// The route goes out somewhere else, and none that is as good goes out the interface.
    #[error(
        "the route to {destination} goes out interface {route_interface}, not {interface}: \
         see `ip route get {destination}`, and open the interface that it names"
    )]
    WrongInterface {
        /// The destination.
        destination: HostAddr,
        /// The interface that was opened.
        interface: Box<str>,
        /// The interface that the route names.
        route_interface: Box<str>,
    },
    /// The destination is an address of this machine: what goes there does not leave it.
    #[error(
        "{destination} is an address of this machine itself, and what it sends to itself does not \
         leave by interface {interface}; for two ports of one machine give the other one a network \
         namespace (`ip netns add peer`, then `ip link set dev PORT netns peer` and its address \
         anew), or use kernel sockets, `--udp ADDRESS`, at both ends"
    )]
    ThisHost {
        /// The destination.
        destination: HostAddr,
        /// The interface that was opened.
        interface: Box<str>,
    },
    /// The address that the host sends from has been taken from it.
    #[error(
        "{source_address}, which this host sends from, is not an address of this machine any more, or \
         not usable: see `ip addr show dev {interface}`; the host goes on when it is back"
    )]
    SourceGone {
        /// The address.
        source_address: HostAddr,
        /// The interface.
        interface: Box<str>,
    },
    /// Nobody answers for the next hop's address.
    #[error(
        "{next_hop} does not tell its hardware address on interface {interface}: \
         is the host up? see `ip neigh show {next_hop} dev {interface}`"
    )]
    NeighbourUnresolved {
        /// The destination, or the gateway towards it.
        next_hop: IpAddr,
        /// The interface.
        interface: Box<str>,
    },
    /// The interface is down or has no carrier.
    #[error("interface {interface} is down or has no carrier: `ip link set dev {interface} up`")]
    LinkDown {
        /// The interface.
        interface: Box<str>,
    },
    /// There is no interface of that name any longer, and none has come back.
    #[error(
        "interface {interface} is gone from this network namespace: `ip link` lists those that are \
         there; the host goes on when there is one of this name again"
    )]
    InterfaceGone {
        /// The interface.
        interface: Box<str>,
    },
    /// As many destinations are in use as the table holds.
    #[error(
        "no path to {destination} can be kept: the path table holds {capacity} destinations, \
         and all are in use or were within the last minutes"
    )]
    TableFull {
        /// The destination.
        destination: HostAddr,
        /// Destinations that the table holds.
        capacity: usize,
    },
    /// The address to send from is not an address of this host.
    #[error("{source_address} is not an address of this host: see `ip addr`")]
    SourceNotLocal {
        /// The address.
        source_address: HostAddr,
    },
    /// The kernel refused a question.
    #[error("{doing} for {destination}: {}", Told::of(source))]
    Kernel {
        /// The action that failed.
        doing: &'static str,
        /// The destination.
        destination: HostAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The monitor's thread is gone.
    #[error("the network monitor of interface {interface} has stopped")]
    Stopped {
        /// The interface.
        interface: Box<str>,
    },
}
