//! An engine as part of a host: what runs its turns, and what reaches it between them.
//!
//! `thread` runs an engine on a thread of its own, `inline` when its user says so; both are asked
//! by `driver`, as its `control` has it. `housekeeping` is the cold work between turns,
//! and `services` names what is served. The turn itself is `rma-core`'s.

pub(crate) mod housekeeping;
pub(crate) mod inline;
pub(crate) mod services;
#[cfg(feature = "star")]
pub(crate) mod star;
pub(crate) mod thread;

pub use self::{inline::InlineEngine, thread::EngineThread};
