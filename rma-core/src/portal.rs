//! The CommandPortal: an application's command slots and its completion queue (1RMA §4.4, figure
//! 4).
//!
//! Two rings of lines join an application thread to its engine: commands one way, completions the
//! other. They lie in one mapping ([`PortalMemory`]), so the engine may be in another process.
//! Issuing a command is one store of 64 bytes and one Release store: no lock and, unless the engine
//! sleeps, no system call.
//!
//! The portal hands out a [`CommandSlotId`](crate::command::CommandSlotId) with each command and
//! takes it back with the completion. It never has more commands under way than slots, and both
//! rings have at least as many entries as they have lines for all slots, so neither can be full.
//!
//! The engine's end, [`PortalPort`], believes none of that: the rings are memory that a hostile
//! application could write to (P8). It takes only commands for the portal's own slots, and takes
//! none as long as their completions would have no room, so that an application that breaks the
//! rules stalls itself alone. Indexes that cannot be are counted
//! ([`NicCounters::impossible_indexes`](crate::nic::NicCounters::impossible_indexes)).

use core::ops::Range;
use std::sync::Arc;

use rma_shm::Mapping;

use crate::{
    addr::{LocalAddresses, Pid},
    region::NicTag,
};

mod application;
mod flag;
mod memory;
mod ops;
mod port;
mod recorded;

pub use crate::wake::{Bell, Wake};
pub use application::{Batch, CommandPortal};
pub use flag::{Flag, FlagLender};
pub use memory::PortalMemory;
pub use ops::{Change, Placement, ReadOp, RecordedOp, Source, WriteOp};
pub use port::PortalPort;

/// The facts that the driver fixes when it allocates a portal.
#[derive(Clone, Debug)]
pub struct PortalConfig {
    /// The portal's command slots: at least one.
    pub slots: Range<u16>,
    /// PID_initiator of all its ops.
    pub pid: Pid,
    /// The host's addresses.
    pub addresses: LocalAddresses,
    /// The bell that wakes the engine; `None` if the engine never sleeps.
    pub bell: Option<Bell>,
    /// The flag that the application raises when it has issued commands; `None` if the engine looks
    /// for commands in every turn.
    pub flag: Option<Flag>,
    /// The NIC that the slots belong to.
    pub nic: NicTag,
}

/// Makes a portal and the engine's end of it, for two threads of this process. For two processes,
/// each makes its end of a [`PortalMemory`].
///
/// # Panics
/// If there are no slots.
#[must_use]
pub fn portal(config: PortalConfig) -> (CommandPortal, PortalPort) {
    let (slots, flag) = (config.slots.clone(), config.flag.clone());
    let count = slots.len() as u16;
    let mapping = Arc::new(Mapping::heap(PortalMemory::footprint(count)));
    let memory = PortalMemory::format(&mapping, count).expect("a mapping of its footprint");
    let (portal, mut port) = (memory.clone().into_application(config), memory.into_port(slots));
    if let Some(flag) = flag {
        port.set_flag(flag);
    }
    (portal, port)
}

#[cfg(test)]
mod tests;
