//! An engine as part of a host: what runs its turns, and what reaches it between them.
//!
//! `thread` runs an engine on a thread of its own, `control` is what the driver asks of an engine
//! and what it answers, `housekeeping` is the cold work between turns, and `services` names what is
//! served. The turn itself is `rma-core`'s.

pub(crate) mod control;
pub(crate) mod housekeeping;
pub(crate) mod services;
pub(crate) mod thread;
