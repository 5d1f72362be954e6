//! The engine's end of a portal of a simulated host: what an engine does with a portal when it
//! looks, and nothing of when.
//!
//! What a doorbell and a bus cost is part of the links' delay.

use core::ops::Range;

use rma_core::{
    addr::Pid,
    command::Completion,
    portal::{CommandPortal, PortalConfig, PortalPort, portal},
};

use super::memory::nic_tag;
use crate::net::{frame::NodeId, sim::Sim};

#[derive(Debug)]
pub(crate) struct Port {
    node: NodeId,
    port: PortalPort,
}

impl Port {
    /// A portal of a process of `node`, which has all of `slots` from now on, and its other end.
    pub(crate) fn new(
        sim: &mut Sim,
        node: NodeId,
        slots: Range<u16>,
        pid: Pid,
    ) -> (CommandPortal, Self) {
        sim.nic_mut(node).configure_slots(slots.clone(), Some(pid));
        let addresses = sim.nic(node).config().place().addresses;
        let nic = nic_tag(node);
        let (portal, port) =
            portal(PortalConfig { slots, pid, addresses, bell: None, flag: None, nic });
        (portal, Self { node, port })
    }

    /// Whether completions of this slot are for it.
    pub(crate) fn owns(&self, slot: u16) -> bool {
        self.port.slots().contains(&slot)
    }

    /// The NIC takes the next command that the application has written, if there is one. The end of
    /// a turn must follow.
    pub(crate) fn issue_next(&mut self, sim: &mut Sim) -> bool {
        let Some(command) = self.port.take() else { return false };
        let command = command.expect("a portal writes commands that can be read");
        sim.issue(self.node, command).expect("a portal uses its own free slots");
        true
    }

    /// Gives the application a completion.
    pub(crate) fn complete(&mut self, completion: &Completion) {
        self.port.complete(completion);
    }
}
