//! The least that a run must keep whose numbers are shown: each command is taken once and ends
//! once, within its bound, its delay is what its node's clock says, and all outcomes add up.
//!
//! No frame is looked at, no table and no memory, and nothing is remembered but commands under way.
//! So a run costs what its NICs and its network cost.

use rma_core::{
    command::{Command, CommandOp, Completion},
    error::CommandError,
    op::{OpStatus, OpType},
    time::Instant,
};

use super::violation::Violation;
use crate::net::{
    frame::NodeId,
    node::Condition,
    sim::Sim,
    trace::{Seen, What},
};

/// Follows the commands of a simulation.
#[derive(Debug, Default)]
pub struct Light {
    /// By engine, in its present life.
    nodes: Vec<Commands>,
}

/// The commands of one engine.
#[derive(Debug, Default)]
struct Commands {
    /// The number of its first command slot.
    first_slot: u16,
    slots: Vec<Option<UnderWay>>,
    /// How many ended, by status.
    ended: [u64; OpStatus::ALL.len()],
}

/// A command that was taken and has not ended.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    /// By its node's clock.
    issued_at: Instant,
    /// The latest end of it where the node is never stopped, in true time.
    due: Instant,
}

impl Commands {
    fn new(first_slot: u16, slots: usize) -> Self {
        Self { first_slot, slots: vec![None; slots], ..Self::default() }
    }

    fn slot_mut(&mut self, slot: u16) -> Option<&mut Option<UnderWay>> {
        self.slots.get_mut(usize::from(slot.checked_sub(self.first_slot)?))
    }
}

impl Light {
    /// Of a simulation that has not begun.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        let of = |node| {
            let before = sim.engines_of(sim.host_of(node)).iter().position(|&it| it == node);
            let slots = sim.nic(node).slot_count();
            Commands::new((before.unwrap_or(0) * slots) as u16, slots)
        };
        Self { nodes: sim.engines().map(of).collect() }
    }

    /// Takes in one thing that happened.
    ///
    /// # Errors
    /// A command that was taken twice, refused without reason, or ended without being under way; a
    /// delay that is not what the clock says.
    pub fn take(&mut self, sim: &Sim, seen: &Seen) -> Result<(), Violation> {
        match &seen.what {
            What::Issued { command, result } => self.issued(sim, seen, command, *result),
            What::Completed(completion) => self.completed(sim, seen, completion),
            What::Crashed => {
                let lost = &mut self.nodes[seen.node.index()];
                *lost = Commands::new(lost.first_slot, lost.slots.len());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn issued(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        command: &Command,
        result: Result<(), CommandError>,
    ) -> Result<(), Violation> {
        let (node, slot, issued_at) = (seen.node, command.slot.0, seen.local);
        match (result, self.nodes[node.index()].slot_mut(slot)) {
            (Ok(()), Some(free @ None)) => {
                let shape = match command.op {
                    CommandOp::Settle { .. } => OpType::Read,
                    op => op.op_type(),
                };
                let bound = sim.nic(node).config().settings().timing.bound(shape);
                let due = sim.when(node, issued_at + bound) + sim.spin(node);
                *free = Some(UnderWay { issued_at, due });
                Ok(())
            }
            (Ok(()), _) => Err(Violation::SlotTakenTwice { node, slot }),
            (Err(CommandError::SlotBusy { .. }), Some(Some(_)))
            | (Err(CommandError::ForeignSlot { .. }), None) => Ok(()),
            (Err(error), _) => Err(Violation::Refused { node, slot, error }),
        }
    }

    fn completed(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let Seen { at, local, node, .. } = *seen;
        let (slot, status) = (completion.slot.0, completion.status);
        let commands = &mut self.nodes[node.index()];
        let taken = commands.slot_mut(slot).and_then(Option::take);
        let unasked = Violation::CompletedUnasked { node, slot, status };
        let UnderWay { issued_at, due } = taken.ok_or(unasked)?;
        commands.ended[status as usize] += 1;
        check_due(sim, node, slot, due)?;
        let (told, measured) = (completion.total_delay(), local.since(issued_at));
        // A node may have been stopped between an op's end and its next chance to say so.
        let just_resumed = sim.resumed_at(node) == Some(at);
        if told == measured || just_resumed && told < measured {
            return Ok(());
        }
        let [told, measured] = [told, measured].map(|it| (completion.issue_delay(), it));
        Err(Violation::Delay { node, slot, status, told, measured })
    }

    /// Looks between two events, the last of which has been taken in, whether no command is overdue
    /// and NICs have counted the same ends as were seen: for the end of a run.
    ///
    /// # Errors
    /// The first NIC of which that is not so.
    pub fn check_end(&self, sim: &Sim) -> Result<(), Violation> {
        let all = sim.engines().zip(&self.nodes);
        for (node, commands) in all.filter(|&(node, _)| sim.condition(node) == Condition::Running) {
            for (slot, taken) in (commands.first_slot..).zip(&commands.slots) {
                taken.iter().try_for_each(|taken| check_due(sim, node, slot, taken.due))?;
            }
            for status in OpStatus::ALL {
                let counted = sim.nic(node).counters().completions(status);
                let seen = commands.ended[status as usize];
                if counted != seen {
                    return Err(Violation::Sums { node, status, counted, seen });
                }
            }
        }
        Ok(())
    }
}

/// Of a node that was stopped nothing can be asked.
fn check_due(sim: &Sim, node: NodeId, slot: u16, due: Instant) -> Result<(), Violation> {
    if sim.now() > due && sim.resumed_at(node).is_none() {
        return Err(Violation::Overdue { node, slot, due });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use rma_core::{
        addr::HostAddr,
        command::CommandSlotId,
        nic::{NicConfigBuilder, NicPlace},
    };

    use super::*;
    use crate::net::{
        clock::ClockOptions,
        link::LinkOptions,
        node::{NodeOptions, Pace},
    };

    fn sim() -> Sim {
        let node = NodeOptions {
            nic: NicConfigBuilder::default(),
            place: NicPlace::at(HostAddr::from([192, 0, 2, 1])),
            mtu: 1500,
            rate: 1_000_000_000,
            pace: Pace::Hardware,
            receive_ring: 1,
            clock: ClockOptions::default(),
        };
        Sim::new(&[node], LinkOptions::default(), None, 1).unwrap()
    }

    fn seen(nanos: u64, what: What) -> Seen {
        let at = Instant::from_nanos(nanos);
        Seen { at, local: at, node: NodeId(0), what }
    }

    /// A command for slot 0 that the NIC has taken.
    fn issued() -> What {
        let line = rma_shm::Line([1 << 16 | 1 << 32, 0, 0, 0, 0, 0, 0, 0]);
        What::Issued { command: Command::from_line(&line).unwrap(), result: Ok(()) }
    }

    fn ended(total_delay: u64) -> What {
        What::Completed(Completion::new(CommandSlotId(0), OpStatus::Ok, 0, total_delay))
    }

    #[test]
    fn a_command_that_is_taken_twice_or_ends_twice_is_found() {
        let (sim, slot, node) = (sim(), 0, NodeId(0));
        let mut light = Light::new(&sim);
        assert_eq!(light.take(&sim, &seen(5, issued())), Ok(()));
        let twice = Violation::SlotTakenTwice { node, slot };
        assert_eq!(light.take(&sim, &seen(6, issued())), Err(twice));
        assert_eq!(light.take(&sim, &seen(15, ended(10))), Ok(()));
        let unasked = Violation::CompletedUnasked { node, slot, status: OpStatus::Ok };
        assert_eq!(light.take(&sim, &seen(15, ended(10))), Err(unasked));
        assert_eq!(light.take(&sim, &seen(20, issued())), Ok(()));
        assert_eq!(light.take(&sim, &seen(21, What::Crashed)), Ok(()));
        assert_eq!(light.take(&sim, &seen(22, ended(2))), Err(unasked));
    }

    #[test]
    fn a_delay_that_is_not_what_the_clock_says_and_a_command_that_never_ends_are_found() {
        let mut sim = sim();
        let mut light = Light::new(&sim);
        assert_eq!(light.take(&sim, &seen(5, issued())), Ok(()));
        let found = light.take(&sim, &seen(15, ended(9)));
        assert!(matches!(found, Err(Violation::Delay { slot: 0, .. })), "{found:?}");
        assert_eq!(light.take(&sim, &seen(20, issued())), Ok(()));
        sim.advance_to(Instant::from_nanos(20) + Duration::from_secs(60));
        let found = light.check_end(&sim);
        assert!(matches!(found, Err(Violation::Overdue { slot: 0, .. })), "{found:?}");
    }

    #[test]
    fn a_nic_that_has_counted_less_than_it_told_is_found() {
        let sim = sim();
        let mut light = Light::new(&sim);
        assert_eq!(light.check_end(&sim), Ok(()));
        assert_eq!(light.take(&sim, &seen(5, issued())), Ok(()));
        assert_eq!(light.take(&sim, &seen(15, ended(10))), Ok(()));
        let (node, status) = (NodeId(0), OpStatus::Ok);
        let sums = Violation::Sums { node, status, counted: 0, seen: 1 };
        assert_eq!(light.check_end(&sim), Err(sums));
    }
}
