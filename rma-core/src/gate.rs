//! The gate: all that a program asks of its host about memory and keys ([`Gate`]).
//!
//! Ends of channels and keepers of keys are handed a gate, and know no host. A host answers it for
//! itself and for each of its tenants; so do the fake host of tests and the simulated one, and a
//! client of a host in another process can. It is asked on the control path only: no op passes it.
//!
//! It stands in this crate as the lowest one that all who ask and all who answer depend on. That is
//! also why portals and StaR's verbs are asked of the host itself: their answers are types of the
//! crates above, which wait and wake.
//!
//! It is a trait with a method a request, as a request type and an answer type would only say each
//! of them twice. What a method takes and gives is plain data beside handles of memory, and there
//! is one type of error ([`Refused`]), so that a client can encode each of them.

use core::{error, fmt};
use std::sync::Arc;

use rma_shm::Region;

use crate::{
    addr::{HostAddr, LocalAddresses, Pid},
    crypto::RegionKey,
    grant::Grant,
    op::OpType,
    receive_queue::{ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
};

/// A process of a host: what keys are bound to, and so who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// An address of the host.
    pub address: HostAddr,
    /// The process, which the host vouches for.
    pub pid: Pid,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}", self.pid, self.address)
    }
}

/// The process that a gate answers, by all addresses of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// All addresses of the host.
    pub addresses: LocalAddresses,
    /// The process, as keys are bound to it.
    pub pid: Pid,
}

impl Identity {
    /// Whether grants for `peer` are for this process.
    #[must_use]
    pub fn is(&self, peer: Peer) -> bool {
        self.pid == peer.pid && self.addresses.contains(peer.address)
    }
}

impl From<Peer> for Identity {
    fn from(Peer { address, pid }: Peer) -> Self {
        Self { addresses: address.into(), pid }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of", self.pid)?;
        for (index, address) in self.addresses.iter().enumerate() {
            write!(f, "{} {address}", if index > 0 { " or" } else { "" })?;
        }
        Ok(())
    }
}

/// The reason why a host did not do what it was asked, in the host's words.
#[derive(Debug)]
pub struct Refused {
    why: Box<dyn error::Error + Send + Sync>,
    is_under_way: bool,
}

impl Refused {
    /// Nothing was done, and nothing will be.
    pub fn new(why: impl error::Error + Send + Sync + 'static) -> Self {
        Self { why: Box::new(why), is_under_way: false }
    }

    /// As [`Refused::new`], unless `is_under_way`: then the host has taken the request up, and may
    /// do it all the same, now or later.
    #[must_use]
    pub fn with_under_way(self, is_under_way: bool) -> Self {
        Self { is_under_way, ..self }
    }

    /// Whether a [`Gate::rekey`] that ended so may be done all the same. Whoever must know repeats
    /// it, with the same key, until it is answered otherwise.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Returns the host's own error, such as a `HostError` of the crate `rma-xdp`.
    #[must_use]
    pub fn why(&self) -> &(dyn error::Error + Send + Sync + 'static) {
        &*self.why
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl error::Error for Refused {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.why.source()
    }
}

/// All that a process asks of its host about memory and keys.
pub trait Gate {
    /// Returns this process, as grants for it name it.
    fn identity(&self) -> Identity;

    /// Draws a region key that nobody can guess.
    ///
    /// # Errors
    /// If there is no randomness.
    fn key(&self) -> Result<RegionKey, Refused>;

    /// Registers memory under `key`. `events`: the queue that its WRITE_WITH_IMMs make events in.
    ///
    /// # Errors
    /// If the host has no room for it.
    fn register(
        &self,
        memory: Arc<Region>,
        key: RegionKey,
        permissions: Permissions,
        events: Option<&ReceiveQueue>,
    ) -> Result<RegisteredRegion, Refused>;

    /// Registers a receive queue under a fresh key. No receive of it is posted.
    ///
    /// # Errors
    /// If the host has no room for it.
    fn receive_queue(
        &self,
        layout: ReceiveQueueLayout,
        permissions: Permissions,
    ) -> Result<ReceiveQueue, Refused>;

    /// Takes a region, or a receive queue by its region, back: nobody can use it any longer, and it
    /// no longer counts for what the host has room for.
    ///
    /// # Errors
    /// If it is of another host, or that cannot be reached.
    fn deregister(&self, region: &RegisteredRegion) -> Result<(), Refused>;

    /// Makes the grant that `peer` needs for ops of `op_type` on `region`, under its present key.
    ///
    /// # Errors
    /// If the region is not registered here.
    fn grant(
        &self,
        region: &RegisteredRegion,
        peer: Peer,
        op_type: OpType,
    ) -> Result<Grant, Refused>;

    /// Gives a region another key, at once.
    ///
    /// # Errors
    /// If the region still goes by the key from before; or, where [`Refused::is_under_way`] says
    /// so, by the one or the other.
    fn rekey(&self, region: &RegisteredRegion, key: RegionKey) -> Result<(), Refused>;

    /// Tells the host that `initiator` has been given keys: its ops will come, and refusals must
    /// find the way back. Must not wait. Nothing happens at a host that needs to find no ways.
    fn prepare(&self, initiator: HostAddr);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_any_of_its_hosts_addresses_and_no_other_pid() {
        let [first, second]: [HostAddr; 2] =
            [[192, 0, 2, 1].into(), "2001:db8::1".parse().unwrap()];
        let mut us = Identity::from(Peer { address: first, pid: Pid(7) });
        us.addresses.insert(second);
        assert!([first, second].iter().all(|&address| us.is(Peer { address, pid: Pid(7) })));
        assert!(!us.is(Peer { address: first, pid: Pid(8) }));
        assert!(!us.is(Peer { address: [192, 0, 2, 2].into(), pid: Pid(7) }));
        assert_eq!(us.to_string(), "process 7 of 192.0.2.1 or 2001:db8::1");
    }
}
