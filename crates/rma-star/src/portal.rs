//! The portal: what an application and its engine share, for connections of either role (ours; the
//! paper's NIC reads queues and registers of its own over PCIe).
//!
//! | part | written by | read by |
//! |---|---|---|
//! | ring of [posts](Post) | application | engine |
//! | ring of [reports](Report) | engine | application |
//! | [guard words](Guard), one a slot | engine | engine |
//! | [QP words](QpWord) and [words of what is taken](crate::names::Taken), one each a QP | engine | both |
//! | [QP records](QpRecord), one a QP | application | engine |
//!
//! This is where the state of connections lives of which this host is the stateless side: in
//! memory of the application that has them, so that the engine's own does not grow with them
//! (section 6 of `docs/STAR-WIRE.md` says what the words mean). Each is one cache line or less,
//! and found by its number.
//!
//! Every work request has a *slot* of its portal from when it is posted until it is reported, once.
//! So as long as the application keeps to that, neither ring can be full.
//!
//! The engine believes nothing of it (P8): the application may write any of this memory at any
//! time. What it rewrites decides about its own slots and connections alone, as a portal has one
//! owner and every protection domain has one portal.

mod ends;
mod line;
mod memory;
mod record;
#[cfg(test)]
mod tests;
mod words;

pub use ends::{StarPort, StarPortal, portal};
pub use line::{Post, Posted, Report};
pub use memory::StarPortalMemory;
pub use record::QpRecord;
pub use words::{Guard, GuardState, QpState, QpWord, Verdict};
