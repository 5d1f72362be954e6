//! What must hold after every event, whatever the network does: the promises that can be checked from
//! outside a NIC, from frames, verdicts, completions and the virtual clock alone.
//!
//! | promise | here |
//! |---|---|
//! | P1 bounded | each command completes once, within dispatch timeout + timeout; its delays are what the clock says |
//! | P3 solicited | what the NIC debits is the sum of its ops in service and fits the window, and so does the payload on its way to it |
//! | P4 fresh IVs | no sender address uses (engine, direction, counter) twice |
//! | P5 no growth | ops never outnumber slots, jobs never outnumber the inbound queue |
//! | P6, P7 | no corrupted copy and no byte of an op is accepted twice, none for an op that has completed |
//!
//! That data is right is checked by [`crate::scenario`], which knows memory.

use std::collections::{BTreeMap, BTreeSet};

use rma_core::{
    addr::HostAddr,
    backend::Transmit,
    command::{Command, Completion},
    error::{CommandError, DropReason},
    limits::GRANULE,
    nic::NicConfigBuilder,
    op::OpStatus,
    time::Instant,
    wire::{FrameView, Header, Request, Response},
};

use crate::{
    node::{NodeId, ip_udp_len},
    sim::Sim,
    trace::{Seen, What},
    violation::Violation,
};

/// A command whose completion has not been seen.
#[derive(Debug)]
struct Outstanding {
    issued_at: Instant,
    due: Instant,
    /// When its request was sent, and which op that began.
    entered: Option<(Instant, OpName)>,
}

/// An op has one name for ever: its initiator, its slot, and which use of the slot it is.
type OpName = (NodeId, u16, u32);

/// What has been seen of an op that entered service.
#[derive(Debug)]
struct Op {
    size: u32,
    completed: bool,
    /// A failure notice was accepted.
    refused: bool,
    /// Copies of its request that the network delivers.
    request_copies: u64,
    /// How often a responder accepted its request.
    accepted: u64,
    /// Payload that was sent for it.
    answered: u64,
    /// Payload that is on its way, without the network's own copies.
    in_flight: u64,
    /// One bit for each granule that was accepted.
    arrived: u64,
}

#[derive(Debug, Default)]
struct NodeState {
    /// Sizes of ops in service, by the wire.
    solicited: u32,
    /// Payload on its way to ops in service.
    in_flight: u64,
    /// Ops in service whose request the network multiplied.
    multiplied: u32,
    /// Requests that were accepted and not answered in full, by class.
    jobs: [u32; 2],
}

/// Follows a simulation and finds broken promises.
#[derive(Debug, Default)]
pub struct Checker {
    nodes: Vec<NodeState>,
    outstanding: BTreeMap<(NodeId, u16), Outstanding>,
    deadlines: BTreeSet<(Instant, NodeId, u16)>,
    ops: BTreeMap<OpName, Op>,
    ivs: BTreeSet<(HostAddr, u16, u8, u64)>,
    peak_in_flight: u64,
}

impl Checker {
    /// A checker for a simulation that has not begun.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        Self { nodes: sim.nodes().map(|_| NodeState::default()).collect(), ..Self::default() }
    }

    /// Whether `slot` of `node` has a command that has not completed.
    #[must_use]
    pub fn is_outstanding(&self, node: NodeId, slot: u16) -> bool {
        self.outstanding.contains_key(&(node, slot))
    }

    /// How many commands of `node` have not completed.
    #[must_use]
    pub fn outstanding_of(&self, node: NodeId) -> usize {
        self.outstanding.range((node, 0)..=(node, u16::MAX)).count()
    }

    /// How many commands have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The most solicited payload that was ever on its way to one node, in bytes.
    #[must_use]
    pub const fn peak_in_flight(&self) -> u64 {
        self.peak_in_flight
    }

    /// Takes in one thing that happened.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub fn take(&mut self, sim: &Sim, seen: &Seen) -> Result<(), Violation> {
        let Seen { at, node, ref what } = *seen;
        match what {
            What::Issued { command, result } => self.issued(sim, at, node, command, *result),
            What::Sent { transmit, frame, arrives, extra_copies } => {
                let copies = u64::from(*arrives) + u64::from(*extra_copies);
                self.sent(sim, at, node, transmit, frame, copies, *arrives)
            }
            What::Received { transmit, frame, corrupted, extra, result } => {
                if *corrupted && result.is_ok() {
                    let source_addr = transmit.source;
                    return Err(Violation::CorruptedAccepted { node, source_addr });
                }
                self.received(sim, node, transmit, frame, *extra, *result)
            }
            What::Completed(completion) => self.completed(sim, at, node, completion),
        }
    }

    /// Checks what must hold between events. To be called when all that happened has been taken in.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check(&mut self, sim: &Sim) -> Result<(), Violation> {
        if let Some(&(due, node, slot)) = self.deadlines.first()
            && due < sim.now()
        {
            return Err(Violation::Overdue { node, slot, due });
        }
        for (node, state) in sim.nodes().zip(&self.nodes) {
            let debited = sim.nic(node).window_debited();
            let settings = sim.nic(node).config().settings();
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
            if let Some(&jobs) = state.jobs.iter().find(|&&jobs| jobs > depth) {
                return Err(Violation::QueueGrew { node, jobs, depth });
            }
        }
        Ok(())
    }

    fn issued(
        &mut self,
        sim: &Sim,
        at: Instant,
        node: NodeId,
        command: &Command,
        result: Result<(), CommandError>,
    ) -> Result<(), Violation> {
        let slot = command.slot.0;
        let busy = self.is_outstanding(node, slot);
        match result {
            Ok(()) if busy => Err(Violation::SlotTakenTwice { node, slot }),
            Err(error) if !busy => Err(Violation::RefusedFreeSlot { node, slot, error }),
            Err(_) => Ok(()),
            Ok(()) => {
                let timing = settings(sim, node).timing;
                let due = at + timing.dispatch_timeout + timing.timeout;
                self.deadlines.insert((due, node, slot));
                let outstanding = Outstanding { issued_at: at, due, entered: None };
                self.outstanding.insert((node, slot), outstanding);
                Ok(())
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    fn sent(
        &mut self,
        sim: &Sim,
        at: Instant,
        node: NodeId,
        transmit: &Transmit,
        frame: &[u8],
        copies: u64,
        arrives: bool,
    ) -> Result<(), Violation> {
        let destination = transmit.destination;
        let wrong = Violation::WrongFrame { node, destination, len: frame.len() };
        let view = FrameView::parse(frame).ok().ok_or(wrong)?;
        let family = destination.is_ipv4();
        let fits = |node| frame.len() <= receive_len_max(sim, node, family);
        let to = sim.node_at(destination);
        let own = settings(sim, node).addresses.contains(transmit.source);
        if !own || !fits(node) || !to.is_none_or(fits) {
            return Err(wrong);
        }
        let (header, direction) = match view {
            FrameView::ReadRequest(view) => (view.claims().header, 0),
            FrameView::ReadResponse(view) => (view.claims().header, 1),
            FrameView::Failure(view) => (view.claims().header, 1),
        };
        self.use_iv(transmit.source, &header, direction)?;
        match view {
            FrameView::ReadRequest(view) => {
                self.entered_service(at, node, view.claims(), copies).ok_or(wrong)
            }
            FrameView::ReadResponse(view) => {
                self.sent_response(node, to.ok_or(wrong)?, &view.claims(), arrives).ok_or(wrong)?;
                self.check_in_flight(to.ok_or(wrong)?, &header)
            }
            FrameView::Failure(_) => Ok(()),
        }
    }

    fn use_iv(
        &mut self,
        sender: HostAddr,
        header: &Header,
        direction: u8,
    ) -> Result<(), Violation> {
        let (engine, counter) = (header.engine.0, header.counter);
        if self.ivs.insert((sender, engine, direction, counter)) {
            Ok(())
        } else {
            Err(Violation::IvRepeated { sender, engine, direction, counter })
        }
    }

    /// `None` if the request is for no command that waits.
    fn entered_service(
        &mut self,
        at: Instant,
        node: NodeId,
        request: Request,
        copies: u64,
    ) -> Option<()> {
        let Request { header, op_size, .. } = request;
        let name = (node, header.slot.0, header.generation);
        let outstanding = self.outstanding.get_mut(&(node, header.slot.0))?;
        if outstanding.entered.replace((at, name)).is_some() {
            return None;
        }
        let op = Op {
            size: op_size.into(),
            completed: false,
            refused: false,
            request_copies: copies,
            accepted: 0,
            answered: 0,
            in_flight: 0,
            arrived: 0,
        };
        let state = &mut self.nodes[node.index()];
        state.solicited += op.size;
        state.multiplied += u32::from(copies > 1);
        self.ops.insert(name, op).is_none().then_some(())
    }

    /// `None` if the response answers nothing that was asked.
    fn sent_response(
        &mut self,
        node: NodeId,
        to: NodeId,
        response: &Response,
        arrives: bool,
    ) -> Option<()> {
        let header = response.header;
        let op = self.ops.get_mut(&(to, header.slot.0, header.generation))?;
        let (_, end) = response.span();
        let payload_len = u64::from(response.payload_len);
        op.answered += payload_len;
        if end > op.size || op.answered > op.accepted * u64::from(op.size) {
            return None;
        }
        if end == op.size {
            let jobs = &mut self.nodes[node.index()].jobs[header.class as usize];
            *jobs = jobs.checked_sub(1)?;
        }
        if arrives && !op.completed {
            op.in_flight += payload_len;
            self.nodes[to.index()].in_flight += payload_len;
        }
        Some(())
    }

    fn check_in_flight(&self, node: NodeId, header: &Header) -> Result<(), Violation> {
        let Some(op) = self.ops.get(&(node, header.slot.0, header.generation)) else {
            return Ok(());
        };
        let allowed = op.request_copies * u64::from(op.size);
        if op.in_flight <= allowed {
            Ok(())
        } else {
            Err(Violation::InFlight { node, bytes: op.in_flight, allowed })
        }
    }

    fn received(
        &mut self,
        sim: &Sim,
        node: NodeId,
        transmit: &Transmit,
        frame: &[u8],
        extra: bool,
        result: Result<(), DropReason>,
    ) -> Result<(), Violation> {
        // What was sent was checked when it was sent.
        let Ok(view) = FrameView::parse(frame) else { return Ok(()) };
        match view {
            FrameView::ReadRequest(view) => {
                let Header { slot, generation, class, .. } = view.claims().header;
                let from = sim.node_at(transmit.source);
                if result.is_ok()
                    && let Some(op) =
                        from.and_then(|from| self.ops.get_mut(&(from, slot.0, generation)))
                {
                    op.accepted += 1;
                    self.nodes[node.index()].jobs[class as usize] += 1;
                }
                Ok(())
            }
            FrameView::ReadResponse(view) => {
                let response = view.claims();
                let Header { slot, generation, .. } = response.header;
                let Some(op) = self.ops.get_mut(&(node, slot.0, generation)) else {
                    return Ok(());
                };
                if !extra && !op.completed {
                    op.in_flight -= u64::from(response.payload_len);
                    self.nodes[node.index()].in_flight -= u64::from(response.payload_len);
                }
                if result.is_ok() {
                    let granules = granules(&response);
                    if op.completed || op.arrived & granules != 0 {
                        return Err(Violation::AcceptedTwice { node, slot: slot.0 });
                    }
                    op.arrived |= granules;
                }
                Ok(())
            }
            FrameView::Failure(view) => {
                let Header { slot, generation, .. } = view.claims().header;
                if result.is_ok() {
                    let op = self.ops.get_mut(&(node, slot.0, generation));
                    let op = op.filter(|op| !op.completed && !op.refused);
                    let op = op.ok_or(Violation::AcceptedTwice { node, slot: slot.0 })?;
                    op.refused = true;
                }
                Ok(())
            }
        }
    }

    fn completed(
        &mut self,
        sim: &Sim,
        at: Instant,
        node: NodeId,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let (slot, status) = (completion.slot.0, completion.status);
        let unasked = Violation::CompletedUnasked { node, slot, status };
        let Outstanding { issued_at, due, entered } =
            self.outstanding.remove(&(node, slot)).ok_or(unasked)?;
        self.deadlines.remove(&(due, node, slot));
        if at > due {
            return Err(Violation::Overdue { node, slot, due });
        }
        let told = (completion.issue_delay(), completion.total_delay());
        let served_at = entered.map_or(at, |(served_at, _)| served_at);
        let measured = (served_at.since(issued_at), at.since(issued_at));
        if told != measured {
            return Err(Violation::Delay { node, slot, status, told, measured });
        }
        let timing = settings(sim, node).timing;
        let explained = match (status, entered) {
            (OpStatus::InvalidCommand, None) => measured.1.is_zero(),
            (OpStatus::DispatchTimeout, None) => measured.1 == timing.dispatch_timeout,
            (_, None) | (OpStatus::InvalidCommand | OpStatus::DispatchTimeout, Some(_)) => false,
            (status, Some((served_at, name))) => {
                let op = self.ops.get_mut(&name).ok_or(unasked)?;
                op.completed = true;
                let state = &mut self.nodes[node.index()];
                state.solicited -= op.size;
                state.in_flight -= op.in_flight;
                state.multiplied -= u32::from(op.request_copies > 1);
                match status {
                    OpStatus::Ok => op.arrived.count_ones() == op.size.div_ceil(GRANULE),
                    OpStatus::Timeout => !op.refused && at.since(served_at) == timing.timeout,
                    _ => op.refused,
                }
            }
        };
        if explained { Ok(()) } else { Err(Violation::Unexplained { node, slot, status }) }
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
    use crate::{link::LinkOptions, node::NodeOptions};
    use rma_core::command::CommandSlotId;

    fn sim() -> Sim {
        let node = |host| {
            let addr: HostAddr = core::net::Ipv4Addr::new(192, 0, 2, host).into();
            let nic = NicConfigBuilder { addresses: addr.into(), ..NicConfigBuilder::default() };
            NodeOptions { nic, mtu: 1500, rate: 1_000_000_000 }
        };
        Sim::new(&[node(1), node(2)], LinkOptions::default(), 1).unwrap()
    }

    fn seen(what: What) -> Seen {
        Seen { at: Instant::ZERO, node: NodeId(0), what }
    }

    #[test]
    fn a_completion_that_nobody_asked_for_is_found() {
        let sim = sim();
        let done = Completion::new(CommandSlotId(3), OpStatus::Ok, 0, 0);
        let found = Checker::new(&sim).take(&sim, &seen(What::Completed(done)));
        assert!(matches!(found, Err(Violation::CompletedUnasked { slot: 3, .. })));
    }

    #[test]
    fn a_repeated_iv_and_an_accepted_corruption_are_found() {
        let sim = sim();
        let mut checker = Checker::new(&sim);
        let mut frame = [0; rma_core::wire::failure::FAILURE_LEN];
        let header = Header {
            class: Default::default(),
            pid: rma_core::addr::Pid(1),
            region: rma_core::region::RegionId::from_bits(0),
            slot: CommandSlotId(0),
            generation: 1,
            engine: Default::default(),
            counter: 9,
        };
        rma_core::wire::Failure { header, status: OpStatus::Nack }.emit(&mut frame);
        let addr = |host| core::net::Ipv4Addr::new(192, 0, 2, host).into();
        let transmit = Transmit {
            source: addr(1),
            destination: addr(2),
            len: frame.len(),
            flow: 0,
            may_resolve: true,
        };
        let frame: std::sync::Arc<[u8]> = frame.into();
        let sent =
            seen(What::Sent { transmit, frame: frame.clone(), arrives: true, extra_copies: 0 });
        assert_eq!(checker.take(&sim, &sent), Ok(()));
        let found = checker.take(&sim, &sent);
        assert!(matches!(found, Err(Violation::IvRepeated { counter: 9, .. })));
        let result = Ok(());
        let received = What::Received { transmit, frame, corrupted: true, extra: false, result };
        let found = checker.take(&sim, &seen(received));
        assert!(matches!(found, Err(Violation::CorruptedAccepted { .. })));
    }
}
