//! An application's CommandExecutor, whose portal's other end feeds a simulated NIC.
//!
//! It stands for the application's thread and for what the engine does with a portal: take
//! commands, give completions. Both happen at once: what a doorbell and a bus cost is part of the
//! links' delay.
//!
//! Time here is true time; executor and NIC are told what their node's clock shows.

use core::ops::Range;

use rma_core::{
    addr::Pid,
    command::Completion,
    executor::{Call, CallError, CallId, CommandExecutor, ExecutorConfig, Outcome},
    portal::{CommandPortal, PortalConfig, PortalPort, portal},
    region::NicTag,
    time::Instant,
};

use crate::net::{frame::NodeId, sim::Sim};

#[derive(Debug)]
pub(crate) struct Software {
    pub(crate) node: NodeId,
    pub(crate) executor: CommandExecutor<CommandPortal>,
    port: PortalPort,
}

/// What `node`'s regions are registered with.
pub(crate) fn nic_tag(node: NodeId) -> NicTag {
    NicTag(u64::from(node.0) + 1)
}

impl Software {
    /// A process of `node` with all of `slots`.
    pub(crate) fn new(
        sim: &mut Sim,
        node: NodeId,
        slots: Range<u16>,
        pid: Pid,
        config: ExecutorConfig,
    ) -> Self {
        sim.nic_mut(node).configure_slots(slots.clone(), Some(pid));
        let addresses = sim.nic(node).config().place().addresses;
        let (portal, port) = portal(PortalConfig {
            slots,
            pid,
            addresses,
            bell: None,
            flag: None,
            nic: nic_tag(node),
        });
        let executor = CommandExecutor::new(portal, config).expect("settings that can work");
        Self { node, executor, port }
    }

    pub(crate) fn submit(&mut self, sim: &Sim, call: &Call<'_>) -> Result<CallId, CallError> {
        self.executor.submit(sim.local_now(self.node), call)
    }

    /// The engine has a completion for it, which is seen in the next [`Software::turn`].
    pub(crate) fn complete(&mut self, completion: &Completion) {
        self.port.complete(completion);
    }

    /// The thread looks: it takes completions, and the NIC takes the commands that it issues.
    pub(crate) fn turn(&mut self, sim: &mut Sim) {
        self.executor.poll(sim.local_now(self.node));
        while let Some(command) = self.port.take() {
            let command = command.expect("an executor writes commands that can be read");
            sim.issue(self.node, command).expect("an executor uses its own free slots");
            sim.end_turn(self.node);
        }
    }

    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        self.executor.poll_outcome()
    }

    /// When the thread must look again even if no completion comes: later than now.
    pub(crate) fn wake_at(&self, sim: &Sim) -> Option<Instant> {
        let local = self.executor.poll_timeout()?;
        let next = Instant::from_nanos(sim.now().as_nanos() + 1);
        Some(sim.when(self.node, local).max(next))
    }
}
