//! StaR as an application has it: queue pairs and completion queues over a portal of StaR, polled,
//! waited for, or as futures. The words are those of verbs; `docs/VERBS.md` maps every call.
//!
//! [`StarVerbs`] is [`rma_star::library::Verbs`] with what that has not: a clock, the life of the
//! engine that serves it, and a way to sleep until that has something to report. A maker of portals
//! makes it, and gives out protection domains, memory regions and windows; applications find both
//! at a host of the crate `rma-xdp`.
//!
//! | module | what it is |
//! |---|---|
//! | [`verbs`] | [`StarVerbs`]: posting, polling, waiting |
//! | [`memory`] | [`ProtectionDomain`], [`MemoryRegion`], [`MemoryWindow`] |
//! | [`futures`] | [`AsyncVerbs`] and [`AsyncQp`]: work requests as futures, with owned buffers |
//! | [`set_up`] | connections over a stream that keeps secrets |

pub mod futures;
pub mod memory;
pub mod set_up;
pub mod verbs;

pub use futures::{AsyncQp, AsyncVerbs, Work, WorkError};
pub use memory::{MemoryRegion, MemoryWindow, ProtectionDomain};
pub use set_up::{SetUpError, SetUpStream};
pub use verbs::{StarParts, StarVerbs};
