//! The initiating side: command slot table, FIFO arbiters, solicitation window, completions (1RMA
//! §3.1, §4.3, figure 6).
//!
//! A slot goes round: free → queued (waits for its class's arbiter and for window) → in service
//! (its request is out) → for a mutation: solicited (its data is asked for) → completed (its
//! completion waits to be polled) → free. Every command that a slot takes leads to exactly one
//! completion (P1), and each completion refunds what the op debited (P3).
//!
//! Here is how an op comes and how it ends. What happens in between has a module each: `queues` and
//! `request` until its request is out, `response` or `mutation` until it has its answer; `slots` is
//! the table that all of them work on.

mod mutation;
mod queues;
mod recorded;
mod request;
mod response;
mod slots;

use std::collections::VecDeque;

use rma_shm::Line;

use super::{
    NicConfig,
    counters::NicCounters,
    security::RequestSeal,
    shares::Shares,
    solicitation_window::{SolicitationWindow, Solicitor},
    tables::Tables,
};
use crate::{
    addr::Pid,
    backend::TxFrame,
    command::{Command, CommandOp, Completion, Ending, Transfer},
    error::CommandError,
    granules::Granules,
    index_list::{IndexList, Links},
    learnt_ports::LearntPorts,
    op::{ClassOfService, Moves, OpStatus},
    path_limits::Paths,
    port::SourcePort,
    tenant::TenantIndex,
    time::Instant,
};
use mutation::Solicited;
use queues::{FIFOS, Held, fifo};
use response::Loaded;
use slots::{Slot, SlotIndex, State};

pub(super) struct Initiator {
    slots: Box<[Slot]>,
    /// The number of the first of them, in frames and to applications.
    first_slot: u16,
    links: Links,
    /// The FIFOs, by class of service and by whether their ops need window: see [`fifo`].
    waiting: [IndexList; FIFOS],
    /// Reads that wait for a share of the window besides.
    held: Held,
    /// The shares of this host's tenants in the window of reads.
    shares: Shares,
    /// The class that is asked first the next time: not the one that was served last.
    first: ClassOfService,
    /// In the order in which ops entered service, which is the order of their deadlines.
    in_service: IndexList,
    /// Mutations in the order of their solicitation, which is the order of their new deadlines.
    solicited: IndexList,
    /// Those of them that have data to send.
    sending: IndexList,
    sending_links: Links,
    /// Whether solicited data is asked first for the next frame.
    data_first: bool,
    /// Whether the last frame was data of an op of the latency class that has more. That op is
    /// next: all its data leaves in one turn.
    has_rest: bool,
    /// At most one for each slot, so it never grows.
    completions: VecDeque<Ended>,
    /// Ops of the throughput class that are in service or solicited.
    bulk_under_way: usize,
    /// When the last of them was answered.
    bulk_answered_at: Option<Instant>,
    dispatch_timeout_nanos: u64,
    timeout_nanos: u64,
    /// The listener for the lengths of frames that came, and for those that did not.
    paths: Option<Paths>,
    /// The source ports whose answers come to this engine.
    ports: LearntPorts,
}

/// An op that has ended, and whose completion waits to be polled.
struct Ended {
    slot: SlotIndex,
    status: OpStatus,
    issue: u64,
    total: u64,
}

impl Initiator {
    /// Bytes that each command slot takes: the slot, its links, and its place among the
    /// completions.
    pub(super) const ENTRY_LEN: usize =
        size_of::<Slot>() + 2 * Links::ENTRY_LEN + size_of::<Ended>();

    pub(super) fn new(config: &NicConfig) -> Self {
        let settings = &config.settings;
        let slots = settings.command_slots as usize;
        let free = || Slot {
            state: State::Free,
            generation: 0,
            pid: None,
            tenant: TenantIndex::HOST,
            charged: 0,
            arrived_at: Instant::ZERO,
            command: Command::NONE,
            entered_at: Instant::ZERO,
            source_port: SourcePort::FIRST,
            seal: RequestSeal::NONE,
            arrived: Granules::NONE,
            longest: 0,
            loaded: Loaded::NOTHING,
            solicited: Solicited::NONE,
            ending: Ending::NONE,
        };
        Self {
            slots: (0..slots).map(|_| free()).collect(),
            first_slot: config.first_slot(),
            links: Links::new(slots),
            waiting: [const { IndexList::new() }; FIFOS],
            held: Held::new(),
            shares: Shares::new(
                SolicitationWindow::shared_reads_max(settings.solicitation_window),
                config.timeout_nanos,
            ),
            first: ClassOfService::Latency,
            in_service: IndexList::new(),
            solicited: IndexList::new(),
            sending: IndexList::new(),
            sending_links: Links::new(slots),
            data_first: true,
            has_rest: false,
            completions: VecDeque::with_capacity(slots),
            bulk_under_way: 0,
            bulk_answered_at: None,
            dispatch_timeout_nanos: config.dispatch_timeout_nanos,
            timeout_nanos: config.timeout_nanos,
            paths: None,
            ports: LearntPorts::new(config.place.engines),
        }
    }

    pub(super) fn set_paths(&mut self, paths: Paths) {
        self.paths = Some(paths);
    }

    /// Takes a command into its slot, and tells whether it waits there, and with which class. A
    /// command that makes no sense completes at once.
    pub(super) fn handle_command(
        &mut self,
        now: Instant,
        command: &Command,
        tables: &mut Tables<'_>,
    ) -> Result<Option<ClassOfService>, CommandError> {
        let (id, pid) = self.take_slot(now, command.slot)?;
        self.slots[id.index()].command = *command;
        Ok(self.queue(now, id, pid, tables))
    }

    /// As [`Initiator::handle_command`], of a command as an application wrote it: read where it
    /// stays. One that cannot be read makes no sense.
    #[inline]
    pub(super) fn handle_lines(
        &mut self,
        now: Instant,
        first: &Line,
        second: Option<&Line>,
        tables: &mut Tables<'_>,
    ) -> Result<Option<ClassOfService>, CommandError> {
        let (id, pid) = self.take_slot(now, Command::slot_of(first))?;
        if self.slots[id.index()].command.read(first, second).is_none() {
            self.slots[id.index()].command = Command::NONE;
            self.complete(now, id, OpStatus::InvalidCommand, tables.window);
            return Ok(None);
        }
        Ok(self.queue(now, id, pid, tables))
    }

    /// Queues the command of a slot that was just taken, if it makes sense.
    #[inline]
    fn queue(
        &mut self,
        now: Instant,
        id: SlotIndex,
        pid: Pid,
        tables: &mut Tables<'_>,
    ) -> Option<ClassOfService> {
        let slot = &mut self.slots[id.index()];
        let command = &slot.command;
        let valid = command.op.is_defined()
            && tables.config.place.addresses.toward(command.responder).is_some()
            && command.op.transfer().is_none_or(
                |&Transfer { local_region, local_offset, op_size, .. }| {
                    let local = tables.regions.get(local_region);
                    local.is_some_and(|local| {
                        local.owner == pid && local.holds(local_offset, op_size)
                    })
                },
            );
        if !valid {
            self.complete(now, id, OpStatus::InvalidCommand, tables.window);
            return None;
        }
        let (class, moves) = (command.class, command.op.moves());
        if tables.regions.is_shared() && moves == Moves::In {
            self.hold(id);
            return Some(class);
        }
        slot.state = State::Queued;
        self.waiting[fifo(class, moves)].push_back(&mut self.links, id.0);
        Some(class)
    }

    /// Expires what is due: ops that waited too long to enter service, and ops without an end.
    pub(super) fn handle_timeout(&mut self, now: Instant, tables: &mut Tables<'_>) {
        self.shares.note_time(now);
        let Tables { window, counters, .. } = tables;
        //= 1rma#4.3-eager-shedding
        for fifo in 0..FIFOS {
            while let Some(id) = self.waiting[fifo].front() {
                let slot = &self.slots[usize::from(id)];
                if now.nanos_since(slot.arrived_at) < self.dispatch_timeout_nanos {
                    break;
                }
                if slot.command.op.moves() == Moves::Out || window.admits_op() {
                    counters.shed_with_room.add(1);
                }
                self.complete(now, SlotIndex(id), OpStatus::DispatchTimeout, window);
            }
        }
        while !self.held.is_empty()
            && let Some(id) = self.next_due(now)
        {
            if window.admits_op() && self.has_share(self.slots[usize::from(id)].tenant) {
                counters.shed_with_room.add(1);
            }
            self.complete(now, SlotIndex(id), OpStatus::DispatchTimeout, window);
        }
        //= 1rma#4.1-timeout
        while let Some(id) = self.in_service.front() {
            if now.nanos_since(self.slots[usize::from(id)].entered_at) < self.timeout_nanos {
                break;
            }
            self.complete(now, SlotIndex(id), OpStatus::Timeout, window);
        }
        //= 1rma#5.1-initiator-times-out-last
        while let Some(id) = self.solicited.front() {
            if now.nanos_since(self.slots[usize::from(id)].solicited.at) < self.timeout_nanos {
                break;
            }
            self.complete(now, SlotIndex(id), OpStatus::Timeout, window);
        }
    }

    /// A held read that has waited too long to enter service.
    #[cold]
    fn next_due(&self, now: Instant) -> Option<u16> {
        let arrived_at = |id: u16| self.slots[usize::from(id)].arrived_at;
        let is_due = |&id: &u16| now.nanos_since(arrived_at(id)) >= self.dispatch_timeout_nanos;
        self.held.heads().find(is_due)
    }

    /// When `handle_timeout` has work next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let slot = |id: u16| &self.slots[usize::from(id)];
        let mut first =
            self.waiting.iter().filter_map(IndexList::front).map(|id| slot(id).arrived_at).min();
        if !self.held.is_empty() {
            let held = self.held.heads().map(|id| slot(id).arrived_at);
            first = first.into_iter().chain(held).min();
        }
        let dispatch = first.map(|at| at.after_nanos(self.dispatch_timeout_nanos));
        let in_service = self.in_service.front().map(|id| slot(id).entered_at);
        let solicited = self.solicited.front().map(|id| slot(id).solicited.at);
        let ends = in_service.into_iter().chain(solicited);
        dispatch.into_iter().chain(ends.map(|from| from.after_nanos(self.timeout_nanos))).min()
    }

    /// Writes the next frame, if there is one: solicited data and requests take turns. Returns
    /// whether there was.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> bool {
        // In most turns there is nothing, and that should be known soon.
        if self.sending.is_empty()
            && self.held.is_empty()
            && self.waiting.iter().all(IndexList::is_empty)
        {
            return false;
        }
        // Unless an op says otherwise below.
        self.has_rest = false;
        for data in [self.data_first, !self.data_first] {
            let is_written = if data {
                self.poll_data(tables, out)
            } else {
                self.poll_request(now, tables, out).is_some()
            };
            if is_written {
                return true;
            }
        }
        false
    }

    /// Whether the last frame has others of its op behind it, which leave in the same turn.
    pub(super) const fn has_rest(&self) -> bool {
        self.has_rest
    }

    /// Ends the op of `id`, whatever its state, and refunds the window.
    fn complete(
        &mut self,
        now: Instant,
        id: SlotIndex,
        status: OpStatus,
        window: &mut SolicitationWindow,
    ) {
        let slot = &mut self.slots[id.index()];
        let moves = slot.command.op.moves();
        let total = now.nanos_since(slot.arrived_at);
        let issue = match slot.state {
            State::Free => total,
            State::Queued => {
                let fifo = fifo(slot.command.class, moves);
                self.waiting[fifo].remove(&mut self.links, id.0);
                total
            }
            State::Held => {
                self.held.remove(&mut self.links, slot, id);
                total
            }
            State::InService => {
                self.in_service.remove(&mut self.links, id.0);
                if moves == Moves::In {
                    window.refund(Solicitor::Read, slot.command.op.op_size());
                    if slot.charged > 0 {
                        let charged = core::mem::take(&mut slot.charged);
                        self.shares.give_back(slot.tenant, charged.into());
                    }
                }
                slot.entered_at.nanos_since(slot.arrived_at)
            }
            State::Solicited => {
                self.solicited.remove(&mut self.links, id.0);
                if slot.has_data_to_send() {
                    self.sending.remove(&mut self.sending_links, id.0);
                }
                slot.note_end(status);
                slot.entered_at.nanos_since(slot.arrived_at)
            }
            State::Completed => unreachable!("an op completes once"),
        };
        if let Some(paths) = &self.paths {
            slot.tell(status, paths);
        }
        if matches!(status, OpStatus::Timeout | OpStatus::Nack) {
            self.ports.forget(slot.command.responder, slot.source_port);
        }
        let was_under_way = matches!(slot.state, State::InService | State::Solicited);
        if was_under_way && slot.command.class == ClassOfService::Throughput {
            self.bulk_under_way -= 1;
            if status != OpStatus::Timeout {
                self.bulk_answered_at = Some(now);
            }
        }
        slot.state = State::Completed;
        // The slot keeps no copy of a new K_r.
        slot.command.op.forget_key();
        self.completions.push_back(Ended { slot: id, status, issue, total });
    }

    /// The next completion. Its slot is free from now on.
    #[inline]
    pub(super) fn poll_completion(&mut self, counters: &NicCounters) -> Option<Completion> {
        let Ended { slot: id, status, issue, total } = self.completions.pop_front()?;
        let completion = Completion::new(self.number_of(id), status, issue, total);
        let slot = &mut self.slots[id.index()];
        slot.state = State::Free;
        counters.count_completion(&slot.command.op, &completion);
        Some(match slot.command.op {
            CommandOp::Read(_) => completion,
            _ => completion.ending(core::mem::replace(&mut slot.ending, Ending::NONE)),
        })
    }

    /// How many ops are in service.
    pub(super) fn ops_in_service(&self) -> usize {
        self.in_service.len() + self.solicited.len()
    }

    /// How many slots have no op: each op waits, is in service, or has a completion that was not
    /// polled.
    pub(super) fn free_slots(&self) -> usize {
        let waiting = self.waiting.iter().map(IndexList::len).sum::<usize>() + self.held.len();
        self.slots.len() - waiting - self.ops_in_service() - self.completions.len()
    }
}

impl core::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Initiator").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}
