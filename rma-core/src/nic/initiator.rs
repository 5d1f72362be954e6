//! The initiating side: command slot table, FIFO arbiters, solicitation window, completions (1RMA §3.1,
//! §4.3, figure 6).
//!
//! A slot goes round: free → queued (waits for its class's arbiter and for window) → in service (its
//! request is out) → completed (its completion waits to be polled) → free. Every command that a slot takes
//! leads to exactly one completion (P1), and each completion refunds what the op debited (P3).

use std::collections::VecDeque;

use super::{
    NicConfig,
    counters::NicCounters,
    region_table::RegionTable,
    security::Security,
    slot_list::{Links, SlotList},
    solicitation_window::SolicitationWindow,
};
use crate::{
    addr::{HostAddr, LocalAddresses, Pid},
    backend::Transmit,
    command::{Command, CommandSlotId, Completion},
    crypto::{AeadProvider, DerivedRegionKey, EngineId, Iv},
    error::{CommandError, DropReason},
    limits::{GRANULE, OP_SIZE_MAX},
    op::{ClassOfService, OpStatus},
    time::Instant,
    wire::{
        Failure, Header, Request, Response,
        read::{REQUEST_LEN, RESPONSE_OVERHEAD},
    },
};

/// One entry of the command slot table. Flat, and filled in place: moving an op with its prepared key from
/// state to state would copy half a kilobyte each time.
struct Slot<K> {
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
    /// The prepared K_d of `command`, if the slot has ever had one: who reads again with the same key need
    /// not set it up again, which costs as much as sealing the request. Gone with the slot's owner.
    key: Option<K>,
    /// Which key that is.
    key_of: DerivedRegionKey,
    /// What binds responses to the request.
    request_iv: Iv,
    /// One bit for each granule that has arrived.
    arrived: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Queued,
    InService,
    Completed,
}

impl<K> Slot<K> {
    /// K_d of the op in service.
    fn prepared_key(&self) -> &K {
        self.key.as_ref().expect("set when the op entered service")
    }
}

pub(super) struct Initiator<A: AeadProvider> {
    slots: Box<[Slot<A::Key>]>,
    links: Links,
    /// The FIFO arbiters, one for each class of service.
    waiting: [SlotList; 2],
    /// Which class is asked first the next time.
    first: ClassOfService,
    /// In the order in which ops entered service, which is the order of their deadlines.
    in_service: SlotList,
    window: SolicitationWindow,
    /// At most one for each slot, so it never grows.
    completions: VecDeque<Completion>,
    dispatch_timeout_nanos: u64,
    timeout_nanos: u64,
}

impl<A: AeadProvider> Initiator<A> {
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
            key: None,
            key_of: Command::NONE.key,
            request_iv: Iv::NONE,
            arrived: 0,
        };
        Self {
            slots: (0..slots).map(|_| free()).collect(),
            links: Links::new(slots),
            waiting: [SlotList::new(), SlotList::new()],
            first: ClassOfService::Latency,
            in_service: SlotList::new(),
            window: SolicitationWindow::new(settings.solicitation_window),
            completions: VecDeque::with_capacity(slots),
            dispatch_timeout_nanos: config.dispatch_timeout_nanos,
            timeout_nanos: config.timeout_nanos,
        }
    }

    pub(super) const fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub(super) const fn window_debited(&self) -> u32 {
        self.window.debited()
    }

    /// Fixes the PID of a free slot, or takes it away.
    pub(super) fn configure_slot(&mut self, slot: CommandSlotId, pid: Option<Pid>) {
        let slot = &mut self.slots[slot.index()];
        slot.pid = pid;
        slot.key = None;
    }

    pub(super) fn is_free(&self, slot: CommandSlotId) -> bool {
        self.slots.get(slot.index()).is_some_and(|slot| slot.state == State::Free)
    }

    /// Takes a command into its slot. A command that makes no sense completes at once.
    pub(super) fn handle_command(
        &mut self,
        now: Instant,
        command: Command,
        regions: &RegionTable,
        addresses: &LocalAddresses,
    ) -> Result<(), CommandError> {
        let pid = self.take_slot(now, command.slot)?;
        let sink = regions.get(command.local_region);
        let valid = (1..=OP_SIZE_MAX).contains(&command.op_size)
            && addresses.toward(command.responder).is_some()
            && sink.is_some_and(|sink| {
                sink.owner == pid && sink.holds(command.local_offset, command.op_size)
            });
        if !valid {
            self.complete(now, command.slot, OpStatus::InvalidCommand);
            return Ok(());
        }
        self.waiting[command.class as usize].push_back(&mut self.links, command.slot);
        let slot = &mut self.slots[command.slot.index()];
        slot.state = State::Queued;
        slot.command = command;
        Ok(())
    }

    /// Completes a command that could not even be read.
    pub(super) fn handle_unreadable_command(
        &mut self,
        now: Instant,
        slot: CommandSlotId,
    ) -> Result<(), CommandError> {
        self.take_slot(now, slot)?;
        self.complete(now, slot, OpStatus::InvalidCommand);
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

    /// Expires what is due: ops that waited too long to enter service, and ops without their data.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        //= 1rma#4.3-eager-shedding
        for class in ClassOfService::ALL {
            while let Some(slot) = self.waiting[class as usize].front() {
                let waited = now.nanos_since(self.slots[slot.index()].arrived_at);
                if waited < self.dispatch_timeout_nanos {
                    break;
                }
                self.complete(now, slot, OpStatus::DispatchTimeout);
            }
        }
        //= 1rma#4.1-timeout
        while let Some(slot) = self.in_service.front() {
            if now.nanos_since(self.slots[slot.index()].entered_at) < self.timeout_nanos {
                break;
            }
            self.complete(now, slot, OpStatus::Timeout);
        }
    }

    /// When `handle_timeout` has work next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let after =
            |from: Instant, nanos: u64| Instant::from_nanos(from.as_nanos().saturating_add(nanos));
        let dispatch =
            self.waiting.iter().filter_map(SlotList::front).map(|slot| {
                after(self.slots[slot.index()].arrived_at, self.dispatch_timeout_nanos)
            });
        let service = self
            .in_service
            .front()
            .map(|slot| after(self.slots[slot.index()].entered_at, self.timeout_nanos));
        dispatch.chain(service).min()
    }

    /// Whether an op could enter service now.
    pub(super) fn wants_transmit(&self) -> bool {
        self.window.admits_op() && self.waiting.iter().any(|list| list.front().is_some())
    }

    /// Lets the next op enter service, if the window admits one, and writes its request.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        context: &mut Dispatch<'_, A>,
        out: &mut [u8; REQUEST_LEN],
    ) -> Option<Transmit> {
        if !self.window.admits_op() {
            return None;
        }
        let id = self.next_waiting()?;
        let slot = &mut self.slots[id.index()];
        let command = &slot.command;
        let pid = slot.pid.expect("a slot with a command has a PID");
        let source = context.addresses.toward(command.responder).expect("checked on arrival");
        self.waiting[command.class as usize].remove(&mut self.links, id);
        self.in_service.push_back(&mut self.links, id);
        self.window.debit(command.op_size);

        if slot.key_of != command.key {
            slot.key = None;
            slot.key_of = command.key;
        }
        let key = slot.key.get_or_insert_with(|| context.security.prepare(&command.key));
        let request = Request {
            header: Header {
                class: command.class,
                pid,
                region: command.remote_region,
                slot: id,
                generation: slot.generation,
                engine: EngineId::default(),
                counter: 0,
            },
            region_offset: command.remote_offset,
            op_size: command.op_size as u16,
            payload_len_max: context.payload_len_max(source),
        };
        slot.request_iv = context.security.seal_request(key, request, out);
        slot.entered_at = now;
        slot.arrived = 0;
        slot.state = State::InService;
        Some(Transmit {
            source,
            destination: slot.command.responder,
            len: REQUEST_LEN,
            flow: id.0 ^ slot.generation as u16,
            may_resolve: true,
        })
    }

    //= 1rma#4.3-two-arbiters
    /// The head of the class whose turn it is; of the other, if that class has none.
    fn next_waiting(&mut self) -> Option<CommandSlotId> {
        let turn = self.first;
        self.first = match turn {
            ClassOfService::Latency => ClassOfService::Throughput,
            ClassOfService::Throughput => ClassOfService::Latency,
        };
        let head = |class: ClassOfService| self.waiting[class as usize].front();
        head(turn).or_else(|| head(self.first))
    }

    /// Lands a response's payload in host memory; with the last one, completes the op.
    pub(super) fn handle_response(
        &mut self,
        now: Instant,
        source: HostAddr,
        claims: Response,
        frame: &mut [u8],
        context: &Landing<'_, A>,
    ) -> Result<(), DropReason> {
        let id = claims.header.slot;
        let slot = self.slot_in_service(source, &claims.header)?;
        let opened = context
            .security
            .open_response(slot.prepared_key(), &slot.request_iv, claims, frame)
            .ok_or(DropReason::ResponseUnauthenticated)?;
        let (response, payload) = *opened;
        let size = slot.command.op_size;
        let (start, end) = response.span();
        if end > size || !(end.is_multiple_of(GRANULE) || end == size) {
            return Err(DropReason::OutsideOp);
        }
        let granules = granules(start, end);
        if slot.arrived & granules != 0 {
            return Err(DropReason::Duplicate);
        }
        let sink = context
            .regions
            .get(slot.command.local_region)
            .filter(|sink| Some(sink.owner) == slot.pid)
            .ok_or(DropReason::LocalRegionGone)?;
        let offset = slot.command.local_offset + u64::from(start);
        if sink.memory.copy_in(offset, payload).is_err() {
            return Err(DropReason::LocalRegionGone);
        }
        //= 1rma#3.1-complete-when-all-bytes-arrived
        slot.arrived |= granules;
        if slot.arrived == self::granules(0, size) {
            self.complete(now, id, OpStatus::Ok);
        }
        Ok(())
    }

    /// Ends an op that its responder refused.
    pub(super) fn handle_failure(
        &mut self,
        now: Instant,
        source: HostAddr,
        claims: Failure,
        frame: &mut [u8],
        security: &Security<A>,
    ) -> Result<(), DropReason> {
        let slot = self.slot_in_service(source, &claims.header)?;
        let failure = security
            .open_failure(slot.prepared_key(), &slot.request_iv, claims, frame)
            .ok_or(DropReason::ResponseUnauthenticated)?;
        self.complete(now, failure.header.slot, failure.status);
        Ok(())
    }

    /// The slot of the op that a frame claims to answer. The claim is not authenticated yet: the tag, which
    /// is bound to the op's key and to its request's IV, decides.
    fn slot_in_service(
        &mut self,
        source: HostAddr,
        header: &Header,
    ) -> Result<&mut Slot<A::Key>, DropReason> {
        let slot = self.slots.get_mut(header.slot.index()).ok_or(DropReason::UnknownSlot)?;
        if slot.state != State::InService || slot.generation != header.generation {
            return Err(DropReason::LateOrUnsolicited);
        }
        if slot.command.responder != source {
            return Err(DropReason::WrongResponder);
        }
        Ok(slot)
    }

    /// Ends the op of `id`, whatever its state, and refunds the window.
    fn complete(&mut self, now: Instant, id: CommandSlotId, status: OpStatus) {
        let slot = &mut self.slots[id.index()];
        let total = now.nanos_since(slot.arrived_at);
        let issue = match slot.state {
            State::Free => total,
            State::Queued => {
                self.waiting[slot.command.class as usize].remove(&mut self.links, id);
                total
            }
            State::InService => {
                self.in_service.remove(&mut self.links, id);
                self.window.refund(slot.command.op_size);
                slot.entered_at.nanos_since(slot.arrived_at)
            }
            State::Completed => unreachable!("an op completes once"),
        };
        slot.state = State::Completed;
        self.completions.push_back(Completion::new(id, status, issue, total));
    }

    /// The next completion. Its slot is free from now on.
    pub(super) fn poll_completion(&mut self, counters: &NicCounters) -> Option<Completion> {
        let completion = self.completions.pop_front()?;
        self.slots[completion.slot.index()].state = State::Free;
        counters.count_completion(completion.status);
        Some(completion)
    }
}

/// What an op needs to enter service.
pub(super) struct Dispatch<'a, A: AeadProvider> {
    pub(super) security: &'a mut Security<A>,
    pub(super) config: &'a NicConfig,
    pub(super) addresses: &'a LocalAddresses,
}

impl<A: AeadProvider> Dispatch<'_, A> {
    /// The largest payload of one response to `source`, one of our addresses.
    fn payload_len_max(&self, source: HostAddr) -> u16 {
        let receive = &self.config.settings.receive_len_max;
        let frame = if source.is_ipv4() { receive.ipv4 } else { receive.ipv6 };
        let payload = frame.saturating_sub(RESPONSE_OVERHEAD).min(OP_SIZE_MAX as usize);
        u16::try_from(payload).expect("an op fits 16 bits")
    }
}

/// What a response's payload needs to land.
pub(super) struct Landing<'a, A: AeadProvider> {
    pub(super) security: &'a Security<A>,
    pub(super) regions: &'a RegionTable,
}

/// One bit for each granule of the bytes from `start` to `end`, exclusive.
const fn granules(start: u32, end: u32) -> u64 {
    let (first, past) = (start / GRANULE, end.div_ceil(GRANULE));
    ones(past) & !ones(first)
}

/// The lowest `count` bits, of at most 64.
const fn ones(count: u32) -> u64 {
    if count >= u64::BITS { u64::MAX } else { (1 << count) - 1 }
}

impl<A: AeadProvider> core::fmt::Debug for Initiator<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Initiator")
            .field("slots", &self.slots.len())
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_are_the_bits_of_the_bytes() {
        assert_eq!(granules(0, 1), 1);
        assert_eq!(granules(0, 64), 1);
        assert_eq!(granules(0, 65), 0b11);
        assert_eq!(granules(64, 128), 0b10);
        assert_eq!(granules(0, 4096), u64::MAX);
        assert_eq!(granules(4032, 4096), 1 << 63);
    }
}
