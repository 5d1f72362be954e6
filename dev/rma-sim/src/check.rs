//! Checks of the promises against the events on the network and in memory.
//!
//! | module | what it is |
//! |---|---|
//! | [`violation`] | a promise that was not kept |
//! | [`invariant`] | what must hold after every event |
//! | [`light`] | what a run must keep whose numbers are shown |
//! | [`watch`] | the choice between these two |
//! | [`history`] | words that several clients change at once: does each behave as one? |
//! | `board` | ranges that ordered ops change and reads follow |
//! | `oracle` | a model of a memory area: which bytes it may hold |
//!
//! A checker only looks: nothing here changes a run.

pub(crate) mod board;
pub mod history;
pub mod invariant;
pub mod light;
pub(crate) mod oracle;
pub mod violation;
pub mod watch;
