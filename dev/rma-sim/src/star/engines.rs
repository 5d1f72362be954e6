//! The shipped engines and libraries of StaR on a network in virtual time: what becomes of them
//! under loss, when many send to one, and when a host dies.
//!
//! | module | what it is |
//! |---|---|
//! | [`options`] | what a run is made of, and what comes of it |
//! | [`run`] | hosts and their applications, and how a run goes |
//! | [`deaths`] | what becomes of a host's work requests when the other one dies |
//! | `host` | an engine, its application's library, and the frames that wait for it |
//! | `network` | links to a switch whose ports many share, and loss |
//!
//! Host 0 is the server, and stateless in every connection unless a run says otherwise; the others
//! are clients. Applications look as soon as something completes, and turns of engines take 1 µs.
//! Frames that a turn sends to one host share packets, as those of engines do. Nothing here is
//! checked but that runs go on: what must hold of StaR is tested where it is.
//!
//! Invariant: a run repeats exactly.

pub mod deaths;
mod host;
mod network;
pub mod options;
pub mod run;
#[cfg(test)]
mod tests;
