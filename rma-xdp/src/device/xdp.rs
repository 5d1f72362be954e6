//! Frames over AF_XDP: sockets that an XDP program fills, past the kernel's network stack.
//!
//! ```text
//!           engine thread                                kernel
//!   rx_burst <- packet::parse <- socket (receive ring) <- XSKMAP <- steering program <- interface
//!   tx_burst -> packet::Headers -> socket (transmit ring) -> doorbell -> interface
//! ```
//!
//! One kernel concept for each file: [`umem`] (memory, and who owns it), `ring` (how chunks change
//! hands), [`socket`] (four rings and a UMEM), `memory` (what is mapped), `steering` (the program),
//! `queues` (what it hears of the sockets), `port` (the UDP ports, as far as the kernel is
//! concerned), `device` (the interface), `choice` (the program's mode), `flush` (when to ring the
//! doorbell), [`packet`] (headers). An `attachment` is what a host has of an interface, a `share`
//! what each of its engines has, and a `place` whether it has it. `follower` replaces them when the
//! interface goes away and comes back, or `doubts` about its mode come true, and [`XdpBackend`]
//! moves packets over a share; [`SteeredSockets`] are without that. Routes and neighbours are not
//! known here: a path is looked up in [`crate::device::net::PathTable`], and a packet without one
//! is dropped and counted.
//!
//! Invariant: after [`XdpBackend::open`] nothing on the way of a frame allocates, locks, logs or
//! blocks, and whatever is received becomes a frame or a counter.

mod arrivals;
mod attachment;
mod backend;
mod broken;
mod capabilities;
mod choice;
mod config;
mod counters;
mod description;
mod device;
mod doubts;
mod error;
mod exchange;
mod flush;
mod follower;
mod linear;
mod link_return;
mod memory;
mod occupant;
pub mod packet;
mod place;
mod port;
mod queues;
mod ring;
mod share;
mod silence;
pub mod socket;
mod sockopt;
mod steered;
mod steering;
pub mod umem;
mod watch;

pub(crate) use self::follower::{Follower, InterfaceWatch};
pub use self::{
    attachment::SINGLE_BUFFER_MTU,
    backend::XdpBackend,
    broken::{Broken, Release},
    capabilities::Capabilities,
    choice::ModeReason,
    config::{AttachMode, Mode, XdpConfig},
    counters::Counters,
    description::{Description, Fallback, Feature},
    error::{InterfaceName, Refusal, XdpError},
    occupant::{AttachedProgram, Process, ProgramLink, ProgramPlace},
    sockopt::XskStatistics,
    steered::SteeredSockets,
};
pub use rma_core::tally::Tally;
