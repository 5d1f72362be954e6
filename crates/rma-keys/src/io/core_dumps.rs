//! Core dumps, which keys must not be in.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Switches core dumps of this process off, for good: to be called at the start of a program that
/// will hold keys. RLIMIT_CORE alone does not hold where dumps are piped to a program; so the
/// process is also made one that cannot be dumped, and that others of its user cannot trace.
///
/// # Errors
/// If the system refuses.
pub fn switch_off() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
