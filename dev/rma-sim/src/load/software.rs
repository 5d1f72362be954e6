//! An application's CommandExecutor, whose portal's other end feeds a simulated NIC.
//!
//! It stands for the application's thread and for what the engine does with a portal: take
//! commands, give completions. Both happen at once.
//!
//! Time here is true time; executor and NIC are told what their node's clock shows.

use core::ops::Range;

use rma_core::{
    addr::Pid,
    command::Completion,
    executor::{Call, CallError, CallId, CommandExecutor, ExecutorConfig, Outcome},
    time::Instant,
};

use crate::{
    hosts::port::Port,
    net::{frame::NodeId, sim::Sim},
};

#[derive(Debug)]
pub(crate) struct Software {
    pub(crate) node: NodeId,
    pub(crate) executor: CommandExecutor,
    port: Port,
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
        let (portal, port) = Port::new(sim, node, slots, pid);
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
        while self.port.issue_next(sim) {
            sim.end_turn(self.node);
        }
    }

    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        self.executor.poll_outcome()
    }

    /// When the thread must look again even if no completion comes: later than now.
    pub(crate) fn wake_at(&self, sim: &Sim) -> Option<Instant> {
        Some(sim.wake_at(self.node, self.executor.poll_timeout()?))
    }
}
