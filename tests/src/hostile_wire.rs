//! A hostile wire on a real kernel: three namespaces in a row, and in the middle one a forwarder
//! that does to the frames between two hosts whatever an attacker with full control of the wire
//! could do.
//!
//! | module | what it is |
//! |---|---|
//! | [`lab`] | namespaces, veth pairs, hosts at both ends |
//! | [`faults`] | what may happen to a frame, how often, and how often it did |
//! | [`forwarder`] | the thread in the middle |
//! | [`forge`] | frames that no host has sent |
//! | `repack` | packets that no host has sent |
//! | [`frame`](mod@frame) | where packet and frames of 1RMA lie in an Ethernet frame |
//! | [`table`] | which status each fault explains |
//! | [`patch_panel`] | a thread in the middle that picks the queue at which a frame comes |
//! | [`places`] | memory that ops change, and the model of it |
//! | [`worker`] | READs or WRITEs over the wire, every byte held against the model |
//! | [`recorded`] | recorded ops of each type, and a SETTLE for each whose end is not known |
//! | [`scenarios`] | READ, WRITE, Rekey, recorded ops and restarts |
//! | [`attackers`] | A1 and A2 of the paper's section 4.2 |
//! | [`star`] | StaR at the ends of a wire of its own |
//! | [`seeds`] | which seeds are run, and the line that repeats one |
//!
//! Not here: a deterministic network, which `rma-sim` is. The wire's decisions follow from its seed
//! and the order in which frames arrive, and a real kernel decides that order.
//!
//! Invariant: whatever is made is gone when it is dropped, also when a test panics.

pub mod attackers;
pub mod faults;
pub mod forge;
pub mod forwarder;
pub mod frame;
pub mod lab;
pub mod patch_panel;
pub mod places;
pub mod recorded;
mod repack;
pub mod scenarios;
pub mod seeds;
pub mod star;
pub mod table;
mod tap;
pub mod worker;
