//! A simulated host's answers at the [`Gate`], for one of its processes.

use core::cell::RefCell;
use std::sync::Arc;

use rma_core::{
    addr::HostAddr,
    crypto::RegionKey,
    gate::{Gate, Identity, Peer, Refused},
    grant::Grant,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

use super::network::{Network, Process};

/// A process of a simulated host. It panics where a host would refuse.
#[derive(Debug)]
pub struct SimHost<'a> {
    network: RefCell<&'a mut Network>,
    process: Process,
}

impl<'a> SimHost<'a> {
    /// A process of one of the network's hosts.
    pub const fn new(network: &'a mut Network, process: Process) -> Self {
        Self { network: RefCell::new(network), process }
    }
}

impl Gate for SimHost<'_> {
    fn identity(&self) -> Identity {
        let (node, pid) = self.process;
        Peer { address: self.network.borrow().address(node), pid }.into()
    }

    fn key(&self) -> Result<RegionKey, Refused> {
        Ok(self.network.borrow_mut().key())
    }

    fn register(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused> {
        let mut network = self.network.borrow_mut();
        Ok(network.register_under(&key, self.process, memory, permissions, events))
    }

    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused> {
        Ok(self.network.borrow_mut().receive_queue(self.process, layout, permissions))
    }

    fn deregister(&self, region: &RegisteredRegion) -> Result<(), Refused> {
        self.network.borrow_mut().deregister(region);
        Ok(())
    }

    fn grant(
        &self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused> {
        Ok(self.network.borrow().grant(region, peer.address, peer.pid, op_type))
    }

    fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused> {
        self.network.borrow_mut().rekey(region, &key);
        Ok(())
    }

    /// It needs to find no ways.
    fn prepare(&self, _: HostAddr) {}
}
