//! Hosts of one process each, as channels are opened between them and runs drive them.

use core::{fmt, time::Duration};

use rma_channel::{Link, Peer};
use rma_core::{gate::Gate, nic::Timing, time::Instant};
use rma_sim::net::frame::NodeId;

/// Hosts that channels are opened between.
pub trait Hosts {
    /// The process of a node, as it sets up its ends of channels.
    fn gate(&mut self, node: NodeId) -> Box<dyn Gate + '_>;

    /// The name of a node's process to others.
    fn peer(&self, node: NodeId) -> Peer;

    /// The times that the NICs take at most.
    fn timing(&self) -> Timing;

    /// How long readers count that tell nothing.
    fn reader_timeout(&self) -> Duration;

    /// How long readers wait after a look that found nothing.
    fn look_every(&self) -> Duration;
}

/// Hosts that a run drives.
pub trait Driven: Hosts + fmt::Display {
    /// Whether time stands still while ends look.
    const STANDS_STILL: bool;

    /// More events than any run needs between two that a sender or a receiver learns something by.
    const IDLE_STEPS_MAX: u64;

    /// The seed that streams are drawn from.
    fn seed(&self) -> u64;

    /// The time.
    fn now(&self) -> Instant;

    /// How many nodes there are: their numbers begin at 0.
    fn nodes(&self) -> u16;

    /// Whether a node has not crashed, and does not stand still.
    fn is_running(&self, node: NodeId) -> bool;

    /// The link of a node, and the time that its clock shows.
    fn link(&mut self, node: NodeId) -> (&mut Link, Instant);

    /// Takes the commands that a node's link has issued; returns how many there were.
    fn take_commands(&mut self, node: NodeId) -> usize;

    /// Does what comes next, at `wake` at the latest: when an end wants to look again.
    fn step(&mut self, wake: Option<Instant>);

    /// When the clock of a node shows `local`, if it runs.
    fn wake_at(&self, node: NodeId, local: Instant) -> Option<Instant>;
}
