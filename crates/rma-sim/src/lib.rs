//! A deterministic network of 1RMA NICs: virtual clock, links with faults, seeds that replay.
//!
//! The NICs are the shipped [`rma_core::nic::Nic`]; time, links and software around them are
//! simulated. Nothing here reads a clock, starts a thread or depends on the order of a hash, so the
//! same seed gives the same run, and a failing run prints the one line that repeats it (P12).
//!
//! | module | what it is |
//! |---|---|
//! | [`prng`] | where every random number comes from |
//! | [`queue`] | drop-tail, before something that has a rate |
//! | [`link`](mod@link) | delay, jitter, rate, queue, and faults of one direction of a path |
//! | [`switch`] | an output port for each node, shared by all that send to it |
//! | [`clock`] | a node's own clock, which is wrong |
//! | [`node`] | a NIC behind a device of some rate and MTU, which can be stopped |
//! | [`counter`] | where a node's counter values come from, over all its lives |
//! | [`mishap`] | pauses, crashes, restarts, regions that change |
//! | [`sim`] | nodes, links, and the heap of events |
//! | [`trace`] | what happened, as data |
//! | [`pcap`] | the same as a capture of packets |
//! | [`invariant`] | what must hold after every event |
//! | [`violation`] | a promise that was not kept |
//! | [`scenario`] | a workload of reads, writes and rekeys in two phases, with a model of all memory and keys |
//! | [`swarm`] | options drawn from a seed, and a fixed load to measure with |
//! | [`calls`] | random calls of CommandExecutors on the swarm's networks |
//! | [`flows`] | applications on the CommandExecutor, and the paper's experiments with congestion control |
//!
//! ```
//! let report = rma_sim::swarm::run_seed(1, |_| ())?;
//! assert_eq!(report, rma_sim::swarm::run_seed(1, |_| ())?);
//! # Ok::<(), Box<rma_sim::swarm::Found>>(())
//! ```

#![forbid(unsafe_code)]

pub mod calls;
pub mod clock;
pub mod counter;
mod disk;
pub mod flows;
pub mod invariant;
pub mod link;
pub mod mishap;
pub mod node;
mod oracle;
pub mod pcap;
pub mod prng;
pub mod queue;
pub mod scenario;
pub mod sim;
pub mod swarm;
pub mod switch;
pub mod trace;
pub mod violation;
mod workload;
