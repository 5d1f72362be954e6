//! Hosts of one process each, as channels are opened between them and runs drive them.

use core::{error, fmt, time::Duration};
use std::sync::Arc;

use rma_channel::{Link, Peer, Registrar};
use rma_core::{
    crypto::RegionKey,
    grant::Grant,
    nic::Timing,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;
use rma_sim::net::frame::NodeId;

/// Hosts that channels are opened between.
pub trait Hosts {
    /// The process of a node, as it sets up its ends of channels.
    fn registrar(&mut self, node: NodeId) -> NodeRegistrar<'_>;

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

/// The registrar of a node's process, whatever host that has.
pub struct NodeRegistrar<'a>(Box<dyn Registrar<Error = Refused> + 'a>);

impl<'a> NodeRegistrar<'a> {
    /// A registrar of some host.
    pub fn new<R: Registrar + 'a>(of: R) -> Self {
        Self(Box::new(Of(of)))
    }
}

impl fmt::Debug for NodeRegistrar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the registrar of {}", self.0.peer())
    }
}

/// A host's refusal, in its words.
#[derive(Debug)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for Refused {}

/// A registrar of some host, whose errors are words.
struct Of<R>(R);

impl<R: Registrar> Registrar for Of<R> {
    type Error = Refused;

    fn peer(&self) -> Peer {
        self.0.peer()
    }

    fn key(&mut self) -> Result<RegionKey, Refused> {
        self.0.key().map_err(refused)
    }

    fn register(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        self.0.register(memory, key, permissions, events).map_err(refused)
    }

    fn receive_queue(
        &mut self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        self.0.receive_queue(layout, permissions).map_err(refused)
    }

    fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), Refused> {
        self.0.deregister(region).map_err(refused)
    }

    fn grant(
        &mut self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        self.0.grant(region, peer, op_type).map_err(refused)
    }

    fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        self.0.rekey(region, key).map_err(refused)
    }
}

impl Registrar for NodeRegistrar<'_> {
    type Error = Refused;

    fn peer(&self) -> Peer {
        self.0.peer()
    }

    fn key(&mut self) -> Result<RegionKey, Refused> {
        self.0.key()
    }

    fn register(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        self.0.register(memory, key, permissions, events)
    }

    fn receive_queue(
        &mut self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        self.0.receive_queue(layout, permissions)
    }

    fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), Refused> {
        self.0.deregister(region)
    }

    fn grant(
        &mut self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        self.0.grant(region, peer, op_type)
    }

    fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        self.0.rekey(region, key)
    }
}

fn refused(error: impl error::Error) -> Refused {
    Refused(error.to_string())
}
