//! An engine as part of a host: what runs its turns, and what reaches it between them.
//!
//! `thread` runs an engine on a thread of its own, `inline` when its user says so; both are asked
//! by `driver`, as its `control` has it. `housekeeping` is the cold work between turns,
//! and `services` has what each service does of it. The turn itself is `rma-core`'s.

pub(crate) mod housekeeping;
pub(crate) mod inline;
pub(crate) mod services;
pub(crate) mod thread;

pub use self::{inline::InlineEngine, thread::EngineThread};

use crate::driver::control::ControlPath;

/// The two ways to run an engine: the `P` of a [`HostOf`](crate::HostOf), for functions that take
/// either kind of host. Nobody can add one.
#[expect(
    private_bounds,
    reason = "nobody else can run an engine: two kinds of host are all there are"
)]
pub trait EngineKind: ControlPath {}

impl EngineKind for InlineEngine {}

impl EngineKind for EngineThread {}
