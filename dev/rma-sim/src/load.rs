//! Software that uses the network, with a model of what must come of it.
//!
//! | module | what it is |
//! |---|---|
//! | `workload` | ops that software draws, and what memory and keys must be after them |
//! | [`scenario`] | a workload of reads, writes and rekeys in two phases, with mishaps |
//! | [`steady`] | a load that does not change, to measure what a simulation costs |
//! | [`swarm`] | options drawn from a seed, and a fixed load to measure with |
//! | `software` | an executor whose portal's other end feeds a simulated NIC |
//! | [`calls`] | random calls of CommandExecutors on the swarm's networks |

pub mod calls;
pub mod scenario;
pub(crate) mod software;
pub mod steady;
pub mod swarm;
mod workload;
