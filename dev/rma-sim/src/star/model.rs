//! The cost of the StaR paper's experiments: a model of links, state caches and turns, in which
//! frames have a length, a way and an effect, and nothing else (StaR §II, §V; figures 1, 10, 11).
//!
//! It is not the shipped service: no octet is sealed, nothing is lost, no timer runs, and queues
//! are infinite. So it says what a design can reach on a link, and not what a program does.
//!
//! | module | what it is |
//! |---|---|
//! | [`time`] | picoseconds |
//! | [`frames`] | what is sent, and how long it is on the wire |
//! | [`cache`] | which connections' state a NIC holds |
//! | [`network`] | the server's link, both ways, and what happens when |
//! | [`load`] | what applications do: RPC, machine learning, READs |
//! | [`groups`] | ScalaRDMA: connections that may begin something only in their slot of time |
//! | [`rc`] | a server's NIC that holds the state of its connections, or fetches it |
//! | [`stateless`] | a server's NIC that holds none, and the clients that hold it: StaR |
//! | [`run`] | one run, and what it came to |
//! | [`figures`] | the paper's curves, with every parameter and where it is from |
//! | [`claims`] | what the paper says of them, and knees, ratios and penalties that answer it |
//!
//! Each knows those above it in the table and none below.
//!
//! The server is the bottleneck of all experiments: its link is modelled, and the clients' links,
//! which carry an eighth each, are not. Clients have all state that they need. Invariants: a run is
//! a function of its arguments; what was sent arrives, once and in order.

pub mod cache;
pub mod claims;
pub mod figures;
pub mod frames;
pub mod groups;
pub mod load;
pub mod network;
pub mod rc;
pub mod run;
pub mod stateless;
#[cfg(test)]
mod tests;
pub mod time;
