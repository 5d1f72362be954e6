//! A deterministic network of 1RMA NICs: virtual clock, links with faults, seeds that replay.
//!
//! The NICs are the shipped [`rma_core::nic::Nic`]; time, links and software around them are
//! simulated. Nothing here reads a clock, starts a thread or depends on the order of a hash, so the
//! same seed gives the same run, and a failing run prints the one line that repeats it (P12).
//!
//! | module | what it is |
//! |---|---|
//! | [`prng`] | where every random number comes from |
//! | [`net`] | nodes, links and what goes wrong with them, the heap of events, and what happened as data |
//! | [`check`] | what must hold after every event |
//! | [`hosts`] | portals, regions, receive queues and grants of hosts, for software that a test writes |
//! | [`load`] | software that uses the network: random workloads in two phases, and swarms of them |
//! | [`flows`] | applications on the CommandExecutor, and the paper's experiments with congestion control |
//! | [`star`] | StaR's engines under loss and incast, and a cost model of its paper's experiments |
//! | [`baselines`] | what the 1RMA paper compares with, as models: connections, two-sided software |
//! | [`pcap`] | what happened as a capture of packets |
//!
//! Each knows those above it in the table and none below.
//!
//! ```
//! let report = rma_sim::load::swarm::run_seed(1, |_| ())?;
//! assert_eq!(report, rma_sim::load::swarm::run_seed(1, |_| ())?);
//! # Ok::<(), Box<rma_sim::load::swarm::Found>>(())
//! ```

#![forbid(unsafe_code)]

pub mod baselines;
pub mod check;
pub mod flows;
pub mod hosts;
pub mod load;
pub mod net;
pub mod pcap;
pub mod prng;
pub mod star;
