//! One contract for all channels, over simulated hosts: each message comes whole, once and in
//! order, or its sender is told which did not.
//!
//! | module | what it is |
//! |---|---|
//! | `quiet` | the contract on a network without faults |
//! | `closing` | what ends leave behind that are closed, and openings that fail |
//! | `duplex` | what duplex channels issue, and what they say of a peer that lies |
//! | `faults` | the same with all that can go wrong, on many networks |
//! | `dead_writer` | others go on, in time, where a sender stops between reservation and message |
//! | `table2` | what the crate says of itself is what is measured |
//! | `rings` | rings as a sender and a receiver share them |
//! | `marks` | marks of Table 2 that are in the types |
//! | `choosing` | `docs/CHANNELS.md`, and what the crate says of itself |
//!
//! The contract itself, how a channel of each kind is opened and the simulated hosts are the crate
//! `rma-contract`.
//!
//! `RMA_CHANNEL_SEEDS` says how many networks with faults each kind is tried on, and
//! `RMA_CHANNEL_FIRST` where to begin. `RMA_CHANNEL_SEED` runs one of them and prints all that
//! happens; `RMA_CHANNEL_KIND`, a number of Table 2, leaves all other kinds out.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod any;
mod choosing;
mod closing;
mod dead_writer;
mod duplex;
mod faults;
mod marks;
mod quiet;
mod rings;
mod table2;
