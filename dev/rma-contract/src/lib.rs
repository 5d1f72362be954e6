//! One contract for all channels: each message comes whole, once and in order, or its sender is
//! told which did not.
//!
//! Channels are opened between [`hosts`], which are simulated here; `rma-tests` holds the contract
//! over UDP sockets and AF_XDP, `rma-fuzz-bodies` opens channels where nobody is believed, and
//! `rma-figures` counts and prints what channels cost.
//!
//! | module | what it is |
//! |---|---|
//! | [`hosts`] | what hosts are to a channel, and to a run that drives them |
//! | [`kinds`] | how a channel of each kind is opened: **a new kind comes in there, with one row** |
//! | [`end`] | a receiver's end: with the host of its node where it recovers |
//! | [`run`] | streams through a channel, and what must hold after every event |
//! | [`stream`] | one sender's messages and what became of them; one receiver's and what it holds |
//! | [`simulated`] | simulated hosts, with a link for each |
//! | [`passing`] | runs on simulated hosts: time passes, and hosts crash |
//! | [`hole`] | a sender that stops between its reservation and its message: a timeline |
//! | [`measured`] | Table 2 of the channels' paper, measured |
//!
//! Every end looks after every event, so that nothing is there for too short a time to be seen.
//! Whatever breaks the contract panics, as an assertion of a test does.

#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]
#![expect(clippy::missing_panics_doc, reason = "all of it panics where the contract is broken")]

pub mod end;
pub mod hole;
pub mod hosts;
pub mod kinds;
pub mod measured;
pub mod passing;
pub mod run;
pub mod simulated;
pub mod stream;
