//! What must hold after every event, whatever the network and the nodes do: the promises that can be checked
//! from outside a NIC, from frames, verdicts, completions and clocks alone.
//!
//! | promise | here |
//! |---|---|
//! | P1 bounded | each command completes once, within dispatch timeout + timeout by its node's clock, or as soon as its node runs again; its delays are what that clock says |
//! | P3 solicited | what the NIC debits is the sum of its ops in service and fits the window, and so does the payload on its way to it |
//! | P4 fresh IVs | no sender address uses (engine, direction, counter) twice, restarts included |
//! | P5 no growth | ops never outnumber slots, jobs never outnumber the inbound queue |
//! | P6, P7 | no corrupted copy, no byte of an op twice, none for an op that has completed or that its node has lost in a crash, no answer to another op |
//!
//! That data is right is checked by [`crate::scenario`], which knows memory.

mod ivs;

use std::{collections::BTreeSet, sync::Arc};

use rma_core::{
    command::{Command, Completion},
    error::{CommandError, DropReason},
    limits::GRANULE,
    nic::NicConfigBuilder,
    op::OpStatus,
    time::Instant,
    wire::{FrameView, Header, Request, Response},
};

use crate::{
    node::{Condition, NodeId, ip_udp_len},
    sim::Sim,
    trace::{Frame, Seen, What},
    violation::Violation,
};
use ivs::FreshIvs;

/// A command whose completion has not been seen. Times are by its node's clock but for `due`.
#[derive(Debug)]
struct Outstanding {
    issued_at: Instant,
    /// In true time.
    due: Instant,
    /// When its request was sent, and which op that began.
    entered: Option<(Instant, OpIndex)>,
}

/// An op has one number for ever, unlike its slot, the use of the slot and the life of its node.
type OpIndex = usize;

/// What has been seen of an op that entered service.
#[derive(Debug)]
struct Op {
    initiator: NodeId,
    slot: u16,
    generation: u32,
    size: u32,
    /// Completed, or lost in a crash of its initiator.
    over: bool,
    /// A failure notice was accepted.
    refused: bool,
    /// Copies of its request that the network delivers, at most.
    request_copies: u64,
    /// How often a responder accepted its request.
    accepted: u64,
    /// How often a responder dropped it.
    dropped: u64,
    /// Payload that was sent for it.
    answered: u64,
    /// Payload that is on its way, without the network's own copies.
    in_flight: u64,
    /// One bit for each granule that was accepted.
    arrived: u64,
}

/// A request that a responder accepted and has not answered in full.
#[derive(Debug)]
struct Job {
    op: OpIndex,
    /// How much of it has been answered.
    sent: u32,
}

/// What has been seen of one node in its present life.
#[derive(Debug, Default)]
struct NodeState {
    slots: Vec<Option<Outstanding>>,
    /// How many of `slots` are taken.
    outstanding: usize,
    /// Sizes of ops in service, by the wire.
    solicited: u32,
    /// Payload on its way to ops in service.
    in_flight: u64,
    /// Ops in service whose request the network multiplied.
    multiplied: u32,
    /// By class, in the order in which they were accepted.
    jobs: [Vec<Job>; 2],
    /// Above all counters that it has used, in its former lives, too.
    counters_used: u64,
}

impl NodeState {
    fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| None).collect(), ..Self::default() }
    }
}

/// Follows a simulation and finds broken promises.
#[derive(Debug, Default)]
pub struct Checker {
    nodes: Vec<NodeState>,
    /// What is outstanding, by true time.
    deadlines: BTreeSet<(Instant, NodeId, u16)>,
    ops: Vec<Op>,
    /// The op that each frame is part of, by its number; `None` for failure notices.
    op_of: Vec<Option<OpIndex>>,
    ivs: FreshIvs,
    peak_in_flight: u64,
}

impl Checker {
    /// A checker for a simulation that has not begun.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        let node = |node| NodeState::new(sim.nic(node).slot_count());
        Self { nodes: sim.nodes().map(node).collect(), ..Self::default() }
    }

    /// Whether `slot` of `node` has a command that has not completed.
    #[must_use]
    pub fn is_outstanding(&self, node: NodeId, slot: u16) -> bool {
        self.nodes[node.index()].slots.get(usize::from(slot)).is_some_and(Option::is_some)
    }

    /// How many commands of `node` have not completed.
    #[must_use]
    pub fn outstanding_of(&self, node: NodeId) -> usize {
        self.nodes[node.index()].outstanding
    }

    /// How many commands have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.nodes.iter().map(|state| state.outstanding).sum()
    }

    /// The most solicited payload that was ever on its way to one node, in bytes.
    #[must_use]
    pub const fn peak_in_flight(&self) -> u64 {
        self.peak_in_flight
    }

    /// A counter above all that `node` has used.
    #[must_use]
    pub fn counters_used(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].counters_used
    }

    /// Takes in one thing that happened.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub fn take(&mut self, sim: &Sim, seen: &Seen) -> Result<(), Violation> {
        match &seen.what {
            What::Issued { command, result } => self.issued(sim, seen, command, *result),
            What::Sent { frame, arrives, extra_copies } => {
                let copies = u64::from(*arrives) + u64::from(*extra_copies);
                self.sent(sim, seen, frame, copies, *arrives)
            }
            What::Received { frame, altered, extra, result } => {
                if altered.is_some() && result.is_ok() {
                    let source_addr = frame.transmit.source;
                    return Err(Violation::CorruptedAccepted { node: seen.node, source_addr });
                }
                if !extra {
                    self.left_the_wire(frame);
                }
                self.received(seen.node, frame, *result)
            }
            What::Lost { frame, extra, .. } => {
                if !extra {
                    self.left_the_wire(frame);
                }
                Ok(())
            }
            What::Completed(completion) => self.completed(sim, seen, completion),
            What::Crashed => {
                self.crashed(seen.node);
                Ok(())
            }
            What::Paused | What::Resumed | What::Restarted => Ok(()),
        }
    }

    /// Checks what must hold between events. To be called when all that happened has been taken in.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check(&mut self, sim: &Sim) -> Result<(), Violation> {
        let overdue = self.deadlines.range(..(sim.now(), NodeId(0), 0));
        for &(due, node, slot) in overdue {
            // Nothing can be asked of a node that is stopped.
            if sim.condition(node) == Condition::Running {
                return Err(Violation::Overdue { node, slot, due });
            }
        }
        for (node, state) in sim.nodes().zip(&self.nodes) {
            if sim.condition(node) == Condition::Down {
                continue;
            }
            let debited = sim.nic(node).window_debited();
            let settings = settings(sim, node);
            let window = settings.solicitation_window;
            let solicited = state.solicited;
            if debited != solicited || debited > window {
                return Err(Violation::Window { node, debited, solicited, window });
            }
            if state.multiplied == 0 && state.in_flight > window.into() {
                let (bytes, allowed) = (state.in_flight, window.into());
                return Err(Violation::InFlight { node, bytes, allowed });
            }
            self.peak_in_flight = self.peak_in_flight.max(state.in_flight);
            let depth = settings.inbound_queue;
            if let Some(jobs) = state.jobs.iter().map(Vec::len).find(|&jobs| jobs > depth as usize)
            {
                return Err(Violation::QueueGrew { node, jobs, depth });
            }
        }
        Ok(())
    }

    fn issued(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        command: &Command,
        result: Result<(), CommandError>,
    ) -> Result<(), Violation> {
        let (node, slot) = (seen.node, command.slot.0);
        let busy = self.is_outstanding(node, slot);
        match result {
            Ok(()) if busy => Err(Violation::SlotTakenTwice { node, slot }),
            Err(CommandError::SlotBusy { .. }) if busy => Ok(()),
            Err(CommandError::ForeignSlot { .. })
                if command.slot.0 as usize >= sim.nic(node).slot_count() =>
            {
                Ok(())
            }
            Err(error) => Err(Violation::Refused { node, slot, error }),
            Ok(()) => {
                let timing = settings(sim, node).timing;
                let issued_at = seen.local;
                let due = sim.when(node, issued_at + timing.dispatch_timeout + timing.timeout);
                self.deadlines.insert((due, node, slot));
                let state = &mut self.nodes[node.index()];
                state.slots[usize::from(slot)] =
                    Some(Outstanding { issued_at, due, entered: None });
                state.outstanding += 1;
                Ok(())
            }
        }
    }

    fn sent(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Arc<Frame>,
        copies: u64,
        arrives: bool,
    ) -> Result<(), Violation> {
        let node = seen.node;
        let destination = frame.transmit.destination;
        let wrong = Violation::WrongFrame { node, destination, len: frame.bytes.len() };
        let view = FrameView::parse(&frame.bytes).ok().ok_or(wrong)?;
        let fits = |node| frame.bytes.len() <= receive_len_max(sim, node, destination.is_ipv4());
        let own = settings(sim, node).addresses.contains(frame.transmit.source);
        if !own || !fits(node) || !frame.to.is_none_or(fits) {
            return Err(wrong);
        }
        let (header, direction) = match view {
            FrameView::ReadRequest(view) => (view.claims().header, 0),
            FrameView::ReadResponse(view) => (view.claims().header, 1),
            FrameView::Failure(view) => (view.claims().header, 1),
        };
        let (sender, engine, counter) = (frame.transmit.source, header.engine.0, header.counter);
        if !self.ivs.insert(sender, engine, direction, counter) {
            return Err(Violation::IvRepeated { sender, engine, direction, counter });
        }
        let used = &mut self.nodes[node.index()].counters_used;
        *used = counter.saturating_add(1).max(*used);
        let op = match view {
            FrameView::ReadRequest(view) => {
                Some(self.entered_service(seen, view.claims(), copies).ok_or(wrong)?)
            }
            FrameView::ReadResponse(view) => {
                let to = frame.to.ok_or(wrong)?;
                let op = self.answered(node, to, &view.claims(), arrives).ok_or(wrong)?;
                self.check_in_flight(op)?;
                Some(op)
            }
            FrameView::Failure(_) => None,
        };
        self.op_of.push(op);
        Ok(())
    }

    /// `None` if the request is for no command that waits.
    fn entered_service(&mut self, seen: &Seen, request: Request, copies: u64) -> Option<OpIndex> {
        let Request { header, op_size, .. } = request;
        let index = self.ops.len();
        let state = &mut self.nodes[seen.node.index()];
        let outstanding = state.slots.get_mut(usize::from(header.slot.0))?.as_mut()?;
        if outstanding.entered.replace((seen.local, index)).is_some() {
            return None;
        }
        let op = Op {
            initiator: seen.node,
            slot: header.slot.0,
            generation: header.generation,
            size: op_size.into(),
            over: false,
            refused: false,
            request_copies: copies,
            accepted: 0,
            dropped: 0,
            answered: 0,
            in_flight: 0,
            arrived: 0,
        };
        state.solicited += op.size;
        state.multiplied += u32::from(copies > 1);
        self.ops.push(op);
        Some(index)
    }

    /// The op that a response is part of; `None` if it answers nothing that was asked, or not in order.
    fn answered(
        &mut self,
        node: NodeId,
        to: NodeId,
        response: &Response,
        arrives: bool,
    ) -> Option<OpIndex> {
        let Header { slot, generation, class, .. } = response.header;
        let (start, end) = response.span();
        let jobs = &mut self.nodes[node.index()].jobs[class as usize];
        let place = jobs.iter().position(|job| {
            let op = &self.ops[job.op];
            (op.initiator, op.slot, op.generation, job.sent) == (to, slot.0, generation, start)
        })?;
        let index = jobs[place].op;
        jobs[place].sent = end;
        let op = &mut self.ops[index];
        if end == op.size {
            jobs.remove(place);
        }
        let payload_len = u64::from(response.payload_len);
        op.answered += payload_len;
        if end > op.size || op.answered > op.accepted * u64::from(op.size) {
            return None;
        }
        if arrives && !op.over {
            op.in_flight += payload_len;
            self.nodes[to.index()].in_flight += payload_len;
        }
        Some(index)
    }

    fn check_in_flight(&self, op: OpIndex) -> Result<(), Violation> {
        let op = &self.ops[op];
        let allowed = op.request_copies * u64::from(op.size);
        if op.in_flight <= allowed {
            Ok(())
        } else {
            Err(Violation::InFlight { node: op.initiator, bytes: op.in_flight, allowed })
        }
    }

    /// A frame that was counted as on its way has arrived, or was lost.
    fn left_the_wire(&mut self, frame: &Frame) {
        if let Some(index) = self.op_of[frame.number as usize]
            && let Ok(FrameView::ReadResponse(view)) = FrameView::parse(&frame.bytes)
        {
            let op = &mut self.ops[index];
            if !op.over {
                let payload_len = u64::from(view.claims().payload_len);
                op.in_flight -= payload_len;
                self.nodes[op.initiator.index()].in_flight -= payload_len;
            }
        }
    }

    fn received(
        &mut self,
        node: NodeId,
        frame: &Frame,
        result: Result<(), DropReason>,
    ) -> Result<(), Violation> {
        // What was sent was checked when it was sent.
        let Ok(view) = FrameView::parse(&frame.bytes) else { return Ok(()) };
        let index = self.op_of[frame.number as usize];
        match view {
            FrameView::ReadRequest(view) => {
                let class = view.claims().header.class;
                let index = index.expect("set when it was sent");
                let op = &mut self.ops[index];
                if result.is_ok() {
                    op.accepted += 1;
                    let job = Job { op: index, sent: 0 };
                    self.nodes[node.index()].jobs[class as usize].push(job);
                } else {
                    op.dropped += 1;
                }
                Ok(())
            }
            FrameView::ReadResponse(view) => {
                if result.is_ok() {
                    let response = view.claims();
                    let granules = granules(&response);
                    let op = &mut self.ops[index.expect("set when it was sent")];
                    if op.over || op.initiator != node || op.arrived & granules != 0 {
                        let slot = response.header.slot.0;
                        return Err(Violation::AcceptedTwice { node, slot });
                    }
                    op.arrived |= granules;
                }
                Ok(())
            }
            FrameView::Failure(view) => {
                if result.is_ok() {
                    let Header { slot, generation, .. } = view.claims().header;
                    let none = Violation::AcceptedTwice { node, slot: slot.0 };
                    let state = &self.nodes[node.index()];
                    let outstanding = state.slots.get(usize::from(slot.0)).and_then(Option::as_ref);
                    let (_, index) = outstanding.and_then(|o| o.entered).ok_or(none)?;
                    let op = &mut self.ops[index];
                    // What refuses an op follows a request of that very op.
                    if op.generation != generation || op.refused || op.dropped == 0 {
                        return Err(none);
                    }
                    op.refused = true;
                }
                Ok(())
            }
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
        let unasked = Violation::CompletedUnasked { node, slot, status };
        let state = &mut self.nodes[node.index()];
        let taken = state.slots.get_mut(usize::from(slot)).and_then(Option::take);
        let Outstanding { issued_at, due, entered } = taken.ok_or(unasked)?;
        state.outstanding -= 1;
        self.deadlines.remove(&(due, node, slot));
        let just_resumed = sim.resumed_at(node) == Some(at);
        if at > due && !just_resumed {
            return Err(Violation::Overdue { node, slot, due });
        }
        let told = (completion.issue_delay(), completion.total_delay());
        let served_at = entered.map_or(local, |(served_at, _)| served_at);
        let measured = (served_at.since(issued_at), local.since(issued_at));
        if told != measured {
            return Err(Violation::Delay { node, slot, status, told, measured });
        }
        let timing = settings(sim, node).timing;
        let in_time = |waited, limit| {
            waited >= limit && (waited <= limit + sim.wake_slack(node) || just_resumed)
        };
        let explained = match (status, entered) {
            (OpStatus::InvalidCommand, None) => measured.1.is_zero(),
            (OpStatus::DispatchTimeout, None) => in_time(measured.1, timing.dispatch_timeout),
            (_, None) | (OpStatus::InvalidCommand | OpStatus::DispatchTimeout, Some(_)) => false,
            (status, Some((served_at, index))) => {
                self.end(index);
                let op = &self.ops[index];
                match status {
                    OpStatus::Ok => op.arrived.count_ones() == op.size.div_ceil(GRANULE),
                    OpStatus::Timeout => {
                        !op.refused && in_time(local.since(served_at), timing.timeout)
                    }
                    _ => op.refused,
                }
            }
        };
        if explained { Ok(()) } else { Err(Violation::Unexplained { node, slot, status }) }
    }

    /// An op is over: nothing that is on its way counts for it any more.
    fn end(&mut self, index: OpIndex) {
        let op = &mut self.ops[index];
        op.over = true;
        let state = &mut self.nodes[op.initiator.index()];
        state.solicited -= op.size;
        state.in_flight -= op.in_flight;
        state.multiplied -= u32::from(op.request_copies > 1);
    }

    /// A node has forgotten everything, and its applications are gone.
    fn crashed(&mut self, node: NodeId) {
        let state = &mut self.nodes[node.index()];
        let counters_used = state.counters_used;
        let fresh = NodeState { counters_used, ..NodeState::new(state.slots.len()) };
        let lost = core::mem::replace(state, fresh);
        for (slot, outstanding) in lost.slots.into_iter().enumerate() {
            let Some(Outstanding { due, entered, .. }) = outstanding else { continue };
            self.deadlines.remove(&(due, node, slot as u16));
            if let Some((_, index)) = entered {
                self.ops[index].over = true;
            }
        }
    }
}

fn settings(sim: &Sim, node: NodeId) -> &NicConfigBuilder {
    sim.nic(node).config().settings()
}

fn receive_len_max(sim: &Sim, node: NodeId, ipv4: bool) -> usize {
    let receive = settings(sim, node).receive_len_max;
    debug_assert_eq!(receive.ipv4 - receive.ipv6, ip_udp_len(false) - ip_udp_len(true));
    if ipv4 { receive.ipv4 } else { receive.ipv6 }
}

fn granules(response: &Response) -> u64 {
    let (start, end) = response.span();
    (start / GRANULE..end.div_ceil(GRANULE)).fold(0, |bits, granule| bits | 1 << granule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::ClockOptions, link::LinkOptions, node::NodeOptions};
    use rma_core::{addr::HostAddr, backend::Transmit, command::CommandSlotId};

    fn sim() -> Sim {
        let node = |host| {
            let addr: HostAddr = core::net::Ipv4Addr::new(192, 0, 2, host).into();
            NodeOptions {
                nic: NicConfigBuilder { addresses: addr.into(), ..NicConfigBuilder::default() },
                mtu: 1500,
                rate: 1_000_000_000,
                receive_ring: 1,
                clock: ClockOptions::default(),
            }
        };
        Sim::new(&[node(1), node(2)], LinkOptions::default(), None, 1).unwrap()
    }

    fn seen(what: What) -> Seen {
        Seen { at: Instant::ZERO, local: Instant::ZERO, node: NodeId(0), what }
    }

    fn notice(number: u64) -> Arc<Frame> {
        let mut bytes = [0; rma_core::wire::failure::FAILURE_LEN];
        let header = Header {
            class: Default::default(),
            pid: rma_core::addr::Pid(1),
            region: rma_core::region::RegionId::from_bits(0),
            slot: CommandSlotId(0),
            generation: 1,
            engine: Default::default(),
            counter: 9,
        };
        rma_core::wire::Failure { header, status: OpStatus::Nack }.emit(&mut bytes);
        let addr = |host| core::net::Ipv4Addr::new(192, 0, 2, host).into();
        let transmit = Transmit {
            source: addr(1),
            destination: addr(2),
            len: bytes.len(),
            flow: 0,
            may_resolve: true,
        };
        let (from, to) = (NodeId(0), Some(NodeId(1)));
        Arc::new(Frame { number, from, to, transmit, bytes: bytes.into() })
    }

    #[test]
    fn a_completion_that_nobody_asked_for_is_found() {
        let sim = sim();
        let done = Completion::new(CommandSlotId(3), OpStatus::Ok, 0, 0);
        let found = Checker::new(&sim).take(&sim, &seen(What::Completed(done)));
        assert!(matches!(found, Err(Violation::CompletedUnasked { slot: 3, .. })));
    }

    #[test]
    fn a_repeated_iv_is_found_also_after_a_crash_and_so_is_an_accepted_corruption() {
        let sim = sim();
        let mut checker = Checker::new(&sim);
        let sent =
            |number| seen(What::Sent { frame: notice(number), arrives: true, extra_copies: 0 });
        assert_eq!(checker.take(&sim, &sent(0)), Ok(()));
        assert_eq!(checker.counters_used(NodeId(0)), 10);
        assert_eq!(checker.take(&sim, &seen(What::Crashed)), Ok(()));
        assert_eq!(checker.counters_used(NodeId(0)), 10);
        let found = checker.take(&sim, &sent(1));
        assert!(matches!(found, Err(Violation::IvRepeated { counter: 9, .. })));
        let altered = Some(vec![0; 5].into());
        let received = What::Received { frame: notice(0), altered, extra: false, result: Ok(()) };
        let found = checker.take(&sim, &seen(received));
        assert!(matches!(found, Err(Violation::CorruptedAccepted { .. })));
    }

    /// The op of before the crash is over, and its slot free.
    #[test]
    fn a_completion_of_before_a_crash_is_found() {
        let mut sim = sim();
        let mut checker = Checker::new(&sim);
        sim.nic_mut(NodeId(0)).configure_slots(0..1, Some(rma_core::addr::Pid(1)));
        let line = rma_shm::Line([1 << 16 | 1 << 32, 0, 0, 0, 0, 0, 0, 0]);
        let command = Command::from_line(&line).unwrap();
        let issued = seen(What::Issued { command, result: Ok(()) });
        assert_eq!(checker.take(&sim, &issued), Ok(()));
        assert_eq!(checker.outstanding(), 1);
        assert_eq!(checker.take(&sim, &seen(What::Crashed)), Ok(()));
        assert_eq!(checker.outstanding(), 0);
        let done = Completion::new(CommandSlotId(0), OpStatus::Timeout, 0, 0);
        let found = checker.take(&sim, &seen(What::Completed(done)));
        assert!(matches!(found, Err(Violation::CompletedUnasked { slot: 0, .. })));
    }
}
