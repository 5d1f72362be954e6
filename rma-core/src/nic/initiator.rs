//! The initiating side: command slot table, FIFO arbiters, solicitation window, completions (1RMA
//! §3.1, §4.3, figure 6).
//!
//! A slot goes round: free → queued (waits for its class's arbiter and for window) → in service
//! (its request is out) → for a mutation: solicited (its data is asked for) → completed (its
//! completion waits to be polled) → free. Every command that a slot takes leads to exactly one
//! completion (P1), and each completion refunds what the op debited (P3). What follows on a
//! solicitation is in `mutation`.

mod mutation;

use std::collections::VecDeque;

use super::{
    NicConfig,
    counters::NicCounters,
    gather::Bulk,
    granules::Granules,
    region_table::RegionTable,
    responder::admission::flow,
    security::{Opened, RequestSeal, Security, payload_of},
    solicitation_window::{SolicitationWindow, Solicitor},
};
use crate::{
    addr::{HostAddr, Pid},
    backend::Transmit,
    command::{Command, CommandOp, CommandSlotId, Completion, Transfer},
    crypto::{DerivedRegionKey, EngineId, Iv, RegionKey},
    error::{CommandError, DropReason},
    index_list::{IndexList, Links},
    limits::{OP_SIZE_MAX, REGION_KEY_LEN, TAG_LEN},
    op::{ClassOfService, OpStatus, OpType},
    time::Instant,
    wire::{
        Failure, Header, Mutation, MutationRequest, Request, Response,
        mutation::MUTATION_REQUEST_LEN,
        read::{REQUEST_LEN, RESPONSE_HEADER_LEN},
    },
};
use mutation::Solicited;

/// One entry of the command slot table. Flat, and filled in place, so that an op is not copied from
/// state to state.
struct Slot {
    state: State,
    /// Which use of the slot this is.
    generation: u32,
    /// PID_initiator, fixed when the slot was allocated; `None` while nobody has it.
    //= 1rma#4.2-pid-immutable
    pid: Option<Pid>,
    /// When the present command arrived here.
    arrived_at: Instant,
    /// The command of an op that is queued or in service.
    command: Command,
    /// When the op entered service.
    entered_at: Instant,
    /// What binds answers to the request.
    //= 1rma#A-iv-memoized
    seal: RequestSeal,
    /// Which of a read's granules have arrived.
    arrived: Granules,
    /// What a mutation's solicitation said.
    solicited: Solicited,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Queued,
    InService,
    Solicited,
    Completed,
}

/// Why a request always fits.
const ROOM: &str = "`Nic::poll_transmit` has checked that the shortest frames have room";

pub(super) struct Initiator {
    slots: Box<[Slot]>,
    links: Links,
    /// The FIFOs, by class of service and by whether their ops need window: see [`fifo`].
    waiting: [IndexList; FIFOS],
    /// Which class is asked first the next time: not the one that was served last.
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
    /// At most one for each slot, so it never grows.
    completions: VecDeque<Completion>,
    /// Ops of the throughput class that are in service or solicited.
    bulk_under_way: usize,
    /// When the last of them was answered.
    bulk_answered_at: Option<Instant>,
    dispatch_timeout_nanos: u64,
    timeout_nanos: u64,
}

impl Initiator {
    /// Bytes that each command slot takes: the slot, its links, and its place among the
    /// completions.
    pub(super) const ENTRY_LEN: usize =
        size_of::<Slot>() + 2 * Links::ENTRY_LEN + size_of::<Completion>();

    pub(super) fn new(config: &NicConfig) -> Self {
        let settings = &config.settings;
        let slots = settings.command_slots as usize;
        let free = || Slot {
            state: State::Free,
            generation: 0,
            pid: None,
            arrived_at: Instant::ZERO,
            command: Command::NONE,
            entered_at: Instant::ZERO,
            seal: RequestSeal::NONE,
            arrived: Granules::NONE,
            solicited: Solicited::NONE,
        };
        Self {
            slots: (0..slots).map(|_| free()).collect(),
            links: Links::new(slots),
            waiting: [const { IndexList::new() }; FIFOS],
            first: ClassOfService::Latency,
            in_service: IndexList::new(),
            solicited: IndexList::new(),
            sending: IndexList::new(),
            sending_links: Links::new(slots),
            data_first: true,
            completions: VecDeque::with_capacity(slots),
            bulk_under_way: 0,
            bulk_answered_at: None,
            dispatch_timeout_nanos: config.dispatch_timeout_nanos,
            timeout_nanos: config.timeout_nanos,
        }
    }

    pub(super) const fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Fixes the PID of a free slot, or takes it away.
    pub(super) fn configure_slot(&mut self, slot: CommandSlotId, pid: Option<Pid>) {
        let slot = &mut self.slots[slot.index()];
        slot.pid = pid;
        slot.command = Command::NONE;
    }

    pub(super) fn is_free(&self, slot: CommandSlotId) -> bool {
        self.slots.get(slot.index()).is_some_and(|slot| slot.state == State::Free)
    }

    /// Takes a command into its slot, and tells whether it waits there. A command that makes no
    /// sense completes at once.
    pub(super) fn handle_command(
        &mut self,
        now: Instant,
        command: &Command,
        context: &mut Context<'_>,
    ) -> Result<bool, CommandError> {
        let pid = self.take_slot(now, command.slot)?;
        let (local, size) = match &command.op {
            CommandOp::Read(transfer) | CommandOp::Write(transfer) => {
                (Some(transfer), transfer.op_size)
            }
            CommandOp::Rekey(_) => (None, command.op.op_size()),
        };
        let valid = (1..=OP_SIZE_MAX).contains(&size)
            && context.config.settings.addresses.toward(command.responder).is_some()
            && local.is_none_or(|&Transfer { local_region, local_offset, op_size, .. }| {
                let local = context.regions.get(local_region);
                local.is_some_and(|local| local.owner == pid && local.holds(local_offset, op_size))
            });
        if !valid {
            self.complete(now, command.slot, OpStatus::InvalidCommand, context.window);
            return Ok(false);
        }
        self.waiting[fifo(command.class, command.op.op_type())]
            .push_back(&mut self.links, command.slot.0);
        let slot = &mut self.slots[command.slot.index()];
        slot.state = State::Queued;
        slot.command = *command;
        Ok(true)
    }

    /// Completes a command that could not even be read.
    pub(super) fn handle_unreadable_command(
        &mut self,
        now: Instant,
        slot: CommandSlotId,
        window: &mut SolicitationWindow,
    ) -> Result<(), CommandError> {
        self.take_slot(now, slot)?;
        self.complete(now, slot, OpStatus::InvalidCommand, window);
        Ok(())
    }

    fn take_slot(&mut self, now: Instant, id: CommandSlotId) -> Result<Pid, CommandError> {
        let foreign = CommandError::ForeignSlot { slot: id.0 };
        let slot = self.slots.get_mut(id.index()).ok_or(foreign)?;
        let pid = slot.pid.ok_or(foreign)?;
        //= 1rma#4.3-slot-is-one-op
        if slot.state != State::Free {
            return Err(CommandError::SlotBusy { slot: id.0 });
        }
        slot.generation = slot.generation.wrapping_add(1);
        slot.arrived_at = now;
        Ok(pid)
    }

    /// Expires what is due: ops that waited too long to enter service, and ops without an end.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        window: &mut SolicitationWindow,
        counters: &NicCounters,
    ) {
        //= 1rma#4.3-eager-shedding
        for fifo in 0..FIFOS {
            while let Some(id) = self.waiting[fifo].front() {
                let waited = now.nanos_since(self.slots[usize::from(id)].arrived_at);
                if waited < self.dispatch_timeout_nanos {
                    break;
                }
                let op_type = self.slots[usize::from(id)].command.op.op_type();
                if op_type != OpType::Read || window.admits_op() {
                    counters.count_shed_with_room();
                }
                self.complete(now, CommandSlotId(id), OpStatus::DispatchTimeout, window);
            }
        }
        //= 1rma#4.1-timeout
        while let Some(id) = self.in_service.front() {
            if now.nanos_since(self.slots[usize::from(id)].entered_at) < self.timeout_nanos {
                break;
            }
            self.complete(now, CommandSlotId(id), OpStatus::Timeout, window);
        }
        //= 1rma#5.1-initiator-times-out-last
        while let Some(id) = self.solicited.front() {
            if now.nanos_since(self.slots[usize::from(id)].solicited.at) < self.timeout_nanos {
                break;
            }
            self.complete(now, CommandSlotId(id), OpStatus::Timeout, window);
        }
    }

    /// When `handle_timeout` has work next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let slot = |id: u16| &self.slots[usize::from(id)];
        let dispatch = self.waiting.iter().filter_map(IndexList::front);
        let dispatch =
            dispatch.map(|id| slot(id).arrived_at.after_nanos(self.dispatch_timeout_nanos));
        let in_service = self.in_service.front().map(|id| slot(id).entered_at);
        let solicited = self.solicited.front().map(|id| slot(id).solicited.at);
        let ends = in_service.into_iter().chain(solicited);
        dispatch.chain(ends.map(|from| from.after_nanos(self.timeout_nanos))).min()
    }

    /// About how many frames there are to send: ops with data to send, and those that could enter
    /// service now. 0 only if there is none.
    pub(super) fn frames_waiting(&self, window: &SolicitationWindow) -> usize {
        let ops = |class| {
            let reads =
                if window.admits_op() { self.waiting[fifo(class, OpType::Read)].len() } else { 0 };
            reads + self.waiting[fifo(class, OpType::Write)].len()
        };
        self.sending.len() + ClassOfService::ALL.into_iter().map(ops).sum::<usize>()
    }

    /// The requests of the throughput class that wait, if they are all that there is to send.
    pub(super) fn bulk(&self, now: Instant) -> Option<Bulk> {
        let fifos = |class| {
            [OpType::Read, OpType::Write].map(|op_type| &self.waiting[fifo(class, op_type)])
        };
        if !self.sending.is_empty()
            || fifos(ClassOfService::Latency).iter().any(|fifo| !fifo.is_empty())
        {
            return None;
        }
        let bulk = fifos(ClassOfService::Throughput);
        let waited = |id: u16| now.nanos_since(self.slots[usize::from(id)].arrived_at);
        Some(Bulk {
            requests: bulk.iter().map(|fifo| fifo.len()).sum(),
            under_way: self.bulk_under_way,
            waited_nanos: bulk.iter().filter_map(|fifo| fifo.front()).map(waited).max()?,
            answered_nanos: now.nanos_since(self.bulk_answered_at?),
        })
    }

    /// What frames are opened with that claim to answer the request of an op: its K_d, and the
    /// request's seal.
    pub(super) fn request_of(
        &self,
        source: HostAddr,
        header: &Header,
    ) -> Option<(&DerivedRegionKey, &RequestSeal)> {
        let slot = &self.slots[self.index_of(source, header, State::InService).ok()?];
        Some((&slot.command.key, &slot.seal))
    }

    /// As [`Initiator::request_of`], of frames that follow on a solicitation, and its IV.
    pub(super) fn solicitation_of(
        &self,
        source: HostAddr,
        header: &Header,
    ) -> Option<(&DerivedRegionKey, &Iv)> {
        let slot = &self.slots[self.index_of(source, header, State::Solicited).ok()?];
        Some((&slot.command.key, &slot.solicited.iv))
    }

    /// Notes the tag of a request that was just sealed.
    pub(super) fn note_tag(&mut self, slot: CommandSlotId, tag: [u8; TAG_LEN]) {
        self.slots[slot.index()].seal.tag = tag;
    }

    /// Whether a read waits for the window.
    pub(super) fn reads_wait(&self) -> bool {
        ClassOfService::ALL.into_iter().any(|it| !self.waiting[fifo(it, OpType::Read)].is_empty())
    }

    /// The op of `class` that came first, of those that may enter service: a read needs window, a
    /// mutation does not, as its data goes out.
    fn ready(&self, class: ClassOfService, admits_read: bool) -> Option<CommandSlotId> {
        let head = |op_type| self.waiting[fifo(class, op_type)].front();
        let arrived_at = |id: u16| self.slots[usize::from(id)].arrived_at;
        let id = match (head(OpType::Read).filter(|_| admits_read), head(OpType::Write)) {
            (Some(read), Some(write)) if arrived_at(write) < arrived_at(read) => write,
            (read, write) => read.or(write)?,
        };
        Some(CommandSlotId(id))
    }

    /// Writes the next frame: solicited data and requests take turns.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        // In most turns there is nothing, and that should be known soon.
        if self.sending.is_empty() && self.waiting.iter().all(IndexList::is_empty) {
            return None;
        }
        for data in [self.data_first, !self.data_first] {
            let transmit = if data {
                self.poll_data(context, out)
            } else {
                self.poll_request(now, context, out)
            };
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// Lets the next op enter service, if there is one that may, and writes its request.
    fn poll_request(
        &mut self,
        now: Instant,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let admits_read = context.window.admits(Solicitor::Read);
        let id = self.next_ready(admits_read)?;
        let slot = &mut self.slots[id.index()];
        let command = &slot.command;
        let pid = slot.pid.expect("a slot with a command has a PID");
        let addresses = &context.config.settings.addresses;
        let source = addresses.toward(command.responder).expect("checked on arrival");
        self.waiting[fifo(command.class, command.op.op_type())].remove(&mut self.links, id.0);
        self.in_service.push_back(&mut self.links, id.0);
        self.bulk_under_way += usize::from(command.class == ClassOfService::Throughput);

        let header = Header {
            class: command.class,
            pid,
            region: command.remote_region,
            slot: id,
            generation: slot.generation,
            engine: EngineId::default(),
            counter: 0,
        };
        let mutation = match command.op {
            CommandOp::Read(Transfer { remote_offset, op_size, .. }) => {
                context.window.debit(Solicitor::Read, op_size);
                let request = Request {
                    header,
                    region_offset: remote_offset,
                    op_size: op_size as u16,
                    payload_len_max: context.config.payload_len_max(source),
                };
                let out: &mut [u8; REQUEST_LEN] = out.first_chunk_mut().expect(ROOM);
                slot.seal.iv = context.security.write_request(&command.key, request, out);
                None
            }
            CommandOp::Write(Transfer { remote_offset, op_size, .. }) => {
                Some(Mutation::Write { region_offset: remote_offset, op_size: op_size as u16 })
            }
            CommandOp::Rekey(_) => Some(Mutation::Rekey),
        };
        if let Some(mutation) = mutation {
            let timeout_micros = (self.timeout_nanos / 1_000) as u32;
            let request = MutationRequest { header, mutation, timeout_micros };
            let out: &mut [u8; MUTATION_REQUEST_LEN] = out.first_chunk_mut().expect(ROOM);
            slot.seal.iv = context.security.write_mutation_request(&command.key, request, out);
        }
        self.data_first = true;
        slot.entered_at = now;
        slot.arrived = Granules::NONE;
        slot.state = State::InService;
        Some(Transmit {
            source,
            destination: slot.command.responder,
            len: if mutation.is_some() { MUTATION_REQUEST_LEN } else { REQUEST_LEN },
            flow: flow(&header),
            may_resolve: true,
            link_behind: false,
        })
    }

    //= 1rma#4.3-two-arbiters
    /// The next op of the class whose turn it is; of the other, if that class has none that may
    /// enter service.
    fn next_ready(&mut self, admits_read: bool) -> Option<CommandSlotId> {
        let (turn, other) = (self.first, self.first.other());
        if let Some(id) = self.ready(turn, admits_read) {
            self.first = other;
            return Some(id);
        }
        self.ready(other, admits_read)
    }

    /// Lands a response's payload in host memory; with the last one, completes the op.
    pub(super) fn handle_response(
        &mut self,
        now: Instant,
        source: HostAddr,
        claims: Response,
        frame: &[u8],
        opened: &Opened,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let id = claims.header.slot;
        let slot = self.slot_of(source, &claims.header, State::InService)?;
        let CommandOp::Read(Transfer { local_region, local_offset, op_size, .. }) = slot.command.op
        else {
            return Err(DropReason::LateOrUnsolicited);
        };
        let response =
            opened.answer(&slot.seal.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        let payload = payload_of(frame, RESPONSE_HEADER_LEN);
        let (start, end) = response.span();
        if !Granules::may_be_cut(start, end, op_size) {
            return Err(DropReason::OutsideOp);
        }
        let granules = Granules::of(start, end);
        if slot.arrived.meets(granules) {
            return Err(DropReason::Duplicate);
        }
        let sink = context
            .regions
            .get(local_region)
            .filter(|sink| Some(sink.owner) == slot.pid)
            .ok_or(DropReason::LocalRegionGone)?;
        if sink.memory.copy_in(local_offset + u64::from(start), payload).is_err() {
            return Err(DropReason::LocalRegionGone);
        }
        //= 1rma#3.1-complete-when-all-bytes-arrived
        slot.arrived = slot.arrived.with(granules);
        if slot.arrived == Granules::of(0, op_size) {
            self.complete(now, id, OpStatus::Ok, context.window);
        }
        Ok(())
    }

    /// Ends an op that its responder refused. Not a mutation whose data was solicited: that data
    /// may be on its way, and may still change the target.
    pub(super) fn handle_failure(
        &mut self,
        now: Instant,
        source: HostAddr,
        claims: Failure,
        opened: &Opened,
        window: &mut SolicitationWindow,
    ) -> Result<(), DropReason> {
        if self.slot_of(source, &claims.header, State::Solicited).is_ok() {
            return Err(DropReason::NoticeAfterSolicitation);
        }
        let slot = self.slot_of(source, &claims.header, State::InService)?;
        let failure =
            opened.answer(&slot.seal.iv, claims).ok_or(DropReason::ResponseUnauthenticated)?;
        self.complete(now, failure.header.slot, failure.status, window);
        Ok(())
    }

    /// The slot of the op that a frame claims to answer. The claim is not authenticated yet: the
    /// tag, which is bound to the op's key and to its request's IV, decides.
    fn slot_of(
        &mut self,
        source: HostAddr,
        header: &Header,
        state: State,
    ) -> Result<&mut Slot, DropReason> {
        let index = self.index_of(source, header, state)?;
        Ok(&mut self.slots[index])
    }

    /// The index of [`Initiator::slot_of`].
    fn index_of(
        &self,
        source: HostAddr,
        header: &Header,
        state: State,
    ) -> Result<usize, DropReason> {
        let index = header.slot.index();
        let slot = self.slots.get(index).ok_or(DropReason::UnknownSlot)?;
        if slot.state != state || slot.generation != header.generation {
            return Err(DropReason::LateOrUnsolicited);
        }
        if slot.command.responder != source {
            return Err(DropReason::WrongResponder);
        }
        Ok(index)
    }

    /// Ends the op of `id`, whatever its state, and refunds the window.
    fn complete(
        &mut self,
        now: Instant,
        id: CommandSlotId,
        status: OpStatus,
        window: &mut SolicitationWindow,
    ) {
        let slot = &mut self.slots[id.index()];
        let total = now.nanos_since(slot.arrived_at);
        let issue = match slot.state {
            State::Free => total,
            State::Queued => {
                let command = &slot.command;
                let fifo = fifo(command.class, command.op.op_type());
                self.waiting[fifo].remove(&mut self.links, id.0);
                total
            }
            State::InService => {
                self.in_service.remove(&mut self.links, id.0);
                if slot.command.op.op_type() == OpType::Read {
                    window.refund(Solicitor::Read, slot.command.op.op_size());
                }
                slot.entered_at.nanos_since(slot.arrived_at)
            }
            State::Solicited => {
                self.solicited.remove(&mut self.links, id.0);
                if slot.has_data_to_send() {
                    self.sending.remove(&mut self.sending_links, id.0);
                }
                slot.entered_at.nanos_since(slot.arrived_at)
            }
            State::Completed => unreachable!("an op completes once"),
        };
        let was_under_way = matches!(slot.state, State::InService | State::Solicited);
        if was_under_way && slot.command.class == ClassOfService::Throughput {
            self.bulk_under_way -= 1;
            if status != OpStatus::Timeout {
                self.bulk_answered_at = Some(now);
            }
        }
        slot.state = State::Completed;
        if slot.command.op.op_type() == OpType::Rekey {
            // The slot keeps no copy of the new K_r.
            slot.command.op = CommandOp::Rekey(RegionKey::from_bytes([0; REGION_KEY_LEN]));
        }
        self.completions.push_back(Completion::new(id, status, issue, total));
    }

    /// The next completion. Its slot is free from now on.
    pub(super) fn poll_completion(&mut self, counters: &NicCounters) -> Option<Completion> {
        let completion = self.completions.pop_front()?;
        let slot = &mut self.slots[completion.slot.index()];
        slot.state = State::Free;
        counters.count_completion(slot.command.op.op_type(), &completion);
        Some(completion)
    }

    /// How many ops of `class` have not entered service yet.
    pub(super) fn ops_waiting(&self, class: ClassOfService) -> usize {
        [OpType::Read, OpType::Write].map(|it| self.waiting[fifo(class, it)].len()).iter().sum()
    }

    /// How many ops are in service.
    pub(super) fn ops_in_service(&self) -> usize {
        self.in_service.len() + self.solicited.len()
    }

    /// How many slots have no op: each op waits, is in service, or has a completion that was not
    /// polled.
    pub(super) fn free_slots(&self) -> usize {
        let waiting = self.waiting.iter().map(IndexList::len).sum::<usize>();
        self.slots.len() - waiting - self.ops_in_service() - self.completions.len()
    }
}

/// What the initiator works with, besides its own tables.
pub(super) struct Context<'a> {
    pub(super) security: &'a mut Security,
    pub(super) regions: &'a RegionTable,
    pub(super) window: &'a mut SolicitationWindow,
    pub(super) config: &'a NicConfig,
}

/// How many outgoing FIFOs there are.
const FIFOS: usize = 4;

/// Which FIFO an op waits in. Each class has two: those that need window wait for it without
/// holding up the others.
//= 1rma#4.3-two-arbiters
//= type=deviation
const fn fifo(class: ClassOfService, op_type: OpType) -> usize {
    2 * class as usize + !matches!(op_type, OpType::Read) as usize
}

impl core::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Initiator").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}
