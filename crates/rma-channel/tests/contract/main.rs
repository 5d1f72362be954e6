//! One contract for all channels, over simulated hosts: each message comes whole, once and in
//! order, or its sender is told which did not.
//!
//! | module | what it is |
//! |---|---|
//! | `world` | simulated hosts, a link for each, and registrars |
//! | `kinds` | how a channel of each kind is opened: **a new kind comes in there, with one row** |
//! | `end` | a receiver's end: with the registrar of its node where it recovers |
//! | `run` | streams through a channel, and what must hold after every event |
//! | `simulated` | what can be done to a run here only |
//! | `stream` | one sender's messages and what became of them; one receiver's and what it holds |
//! | `quiet` | the contract on a network without faults |
//! | `closing` | what ends leave behind that are closed, and openings that fail |
//! | `duplex` | what duplex channels issue, and what they say of a peer that lies |
//! | `faults` | the same with all that can go wrong, on many networks |
//! | `hole` | a sender that stops between its reservation and its message: a timeline |
//! | `dead_writer` | others go on then, in time |
//! | `measured` | the paper's Table 2, measured |
//! | `table2` | what the crate says of itself is what is measured |
//! | `marks` | marks of Table 2 that are in the types |
//! | `choosing` | `docs/CHANNELS.md`, and what the crate says of itself |
//!
//! `kinds`, `run` and `stream` are over a `World` beside them, which is simulated here. The crate
//! `rma-tests` includes the same three files beside one of real hosts, where messages take the way
//! through UDP sockets or AF_XDP; and `rma-bench` these with `hole` and `measured`, beside the
//! simulated one, to count and to print. They are no library that both depend on, as it would
//! depend on this crate, whose own tests could then not be of one build with it; and what opens
//! channels in a row's function is then plain: no row is generic.
//!
//! Every end looks after every event, so that nothing is there for too short a time to be seen.
//!
//! `RMA_CHANNEL_SEEDS` says how many networks with faults each kind is tried on, and
//! `RMA_CHANNEL_FIRST` where to begin. `RMA_CHANNEL_SEED` runs one of them and prints all that
//! happens; `RMA_CHANNEL_KIND`, a number of Table 2, leaves all other kinds out.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod choosing;
mod closing;
mod dead_writer;
mod duplex;
mod end;
mod faults;
mod hole;
mod kinds;
mod marks;
mod measured;
mod quiet;
mod run;
mod simulated;
mod stream;
mod table2;
mod world;
