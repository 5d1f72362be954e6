//! Hosts for software of any kind, which a test writes over them: portals, regions, receive queues
//! and grants, as a driver gives them, in virtual time.
//!
//! | module | what it is |
//! |---|---|
//! | [`network`] | the hosts, and what comes next |
//! | [`gate`] | what a host answers to those who set channels up |
//! | [`options`] | what a network is made of: one that counts hops, or one drawn from a seed |
//! | [`counts`] | ops, frames and octets of a host, by type of op |
//! | `port` | the engine's end of a portal |
//! | `memory` | names, addresses and grants |
//!
//! A network is driven, and drives nobody: the test asks when the next event is, does it or lets
//! time pass until its own software wants to look, and then has commands taken from portals. So
//! what stands between an application and its NIC is the test's, and happens when the test says so.
//!
//! Invariant: all promises of [`crate::check::invariant`] hold after every event, or the run
//! panics, and says with which seed.
//!
//! ```
//! use std::sync::Arc;
//! use rma_core::{addr::Pid, op::{OpStatus, OpType}, region::Permissions};
//! use rma_sim::{hosts::{network::Network, options::NetworkOptions}, net::frame::NodeId};
//! use rma_shm::Region;
//!
//! let (here, there, pid) = (NodeId(0), NodeId(1), Pid(7));
//! let mut network = Network::new(NetworkOptions::exact(2));
//! let mut portal = network.portal(here, 4, pid);
//! let memory = || Arc::new(Region::new(64).unwrap());
//! let local = network.register((here, pid), memory(), Permissions::NONE, None);
//! let remote = network.register((there, pid), memory(), Permissions::READ, None);
//! remote.write(0, b"hello").unwrap();
//!
//! let grant = network.grant(&remote, network.address(here), pid, OpType::Read);
//! portal.read(&grant, 0, &local, 0, 5).unwrap();
//! network.take_commands(here);
//! while network.step().is_some() {}
//!
//! assert!(portal.poll().is_some_and(|done| done.status == OpStatus::Ok));
//! let mut bytes = [0; 5];
//! local.read(0, &mut bytes).unwrap();
//! assert_eq!(&bytes, b"hello");
//! ```

pub mod counts;
pub mod gate;
pub(crate) mod memory;
pub mod network;
pub mod options;
pub(crate) mod port;
#[cfg(test)]
mod tests;
