//! The source of channel ends' memory, and of grants on it for others: a host, or something that
//! stands for one.

use core::{error, fmt};
use std::sync::Arc;

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::RegionKey,
    grant::Grant,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

/// A process of a host: what keys are bound to, and so who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// The host.
    pub address: HostAddr,
    /// The process, which the host vouches for.
    pub pid: Pid,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}", self.pid, self.address)
    }
}

/// A registrar of memory and maker of grants, for one process of one host. It takes part in setting
/// channels up, and later only in the recovery of shared rings.
pub trait Registrar {
    /// The error of a registrar.
    type Error: error::Error + Send + Sync + 'static;

    /// Returns this process, as its peers name it.
    fn peer(&self) -> Peer;

    /// A region key that nobody can guess.
    ///
    /// # Errors
    /// If there is no randomness.
    fn key(&mut self) -> Result<RegionKey, Self::Error>;

    /// Registers memory under `key`. `events`: the queue that its WRITE_WITH_IMMs make events in.
    ///
    /// # Errors
    /// If the host has no room for it.
    fn register(
        &mut self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Self::Error>;

    /// A receive queue, of which nothing is posted.
    ///
    /// # Errors
    /// If the host has no room for it.
    fn receive_queue(
        &mut self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Self::Error>;

    /// Takes a region, or a receive queue by its region, back: nobody can use it any longer, and it
    /// counts no longer for what the host has room for.
    ///
    /// # Errors
    /// If it is of another host, or that cannot be reached.
    fn deregister(&mut self, region: &RegisteredRegion) -> Result<(), Self::Error>;

    /// Makes the grant that `peer` needs for ops of `op_type` on `region`, under its present key.
    ///
    /// # Errors
    /// If the region is not registered here.
    fn grant(
        &mut self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Self::Error>;

    /// Gives a region another key, at once.
    ///
    /// # Errors
    /// If it is not registered here.
    fn rekey(&mut self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Self::Error>;
}
