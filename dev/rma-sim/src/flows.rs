//! Simulated applications on the shipped CommandExecutor: transfers between hosts with
//! hardware-like parameters, to see what congestion control makes of them (1RMA §6, §7.2, §7.4).
//!
//! | module | what it is |
//! |---|---|
//! | [`network`] | the hosts, the flows between them, and the log of what came of each op |
//! | [`workload`] | hosts with generators, and what became of their calls, through executors or not |
//! | [`report`] | the numbers of that, which take no more room for a longer run |
//! | [`rates`] | how much of a link each flow had, and since when shares are what they should be |
//! | [`traffic`] | the ops that each host begins, for any system that is to do them |
//! | [`scenes`] | the paper's experiments: figures 12 and 15, with numbers |
//! | [`plot`] | tables, with curves of text |
//!
//! All links have 100 Gbit/s, and an idle 4 KiB read takes 5 µs, as in the paper. What is not here:
//! mishaps and faults ([`crate::load::scenario`]); applications that think, or look only now and
//! then: these look at each completion at once.
//!
//! A run is a function of its options, seed included. All promises are checked after every event,
//! as in the swarm, unless the options say that a few will do; and frames are sealed by AES-GCM, or
//! by a model of it. Neither changes the log of a run by a bit.

mod drive;
pub mod network;
pub mod plot;
pub mod rates;
pub mod report;
pub mod scenes;
#[cfg(test)]
mod tests;
pub mod traffic;
pub mod workload;

pub use network::{Arrivals, CallRecord, Flow, FlowOptions, Log, OpRecord, run};
pub use rates::Rates;

use core::time::Duration;

/// The round-trip time of an idle 4 KiB read: the paper's (§7.4, §7.5).
pub const RTT: Duration = Duration::from_micros(5);

/// The rate of all devices and ports, in bytes a second: 100 Gbit/s.
pub const RATE: u64 = 12_500_000_000;
