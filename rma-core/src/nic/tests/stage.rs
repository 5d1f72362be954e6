//! The stage of the tests of recorded ops: a pair whose responder has a receive queue, and a region
//! for everything, which names it.

use super::*;
use crate::{
    command::RecordedOp,
    limits::TAG_LEN,
    outcome::{Done, OpName},
    receive_queue::{Event, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, RegisteredRegion},
    wire::{Frame, Header, Solicitation},
};
use rma_crypto::{SealJob, Text};

pub(super) const RECEIVES: u16 = 4;
pub(super) const BUFFER_LEN: u32 = 4096;

/// The permissions of the responder's region: all that a region can.
pub(super) const ALL: Permissions = Permissions::READ
    .and(Permissions::WRITE)
    .and(Permissions::NOTIFY)
    .and(Permissions::ATOMIC)
    .and(Permissions::REKEY);

pub(super) struct Stage {
    pub(super) pair: Pair,
    pub(super) queue: ReceiveQueue,
}

/// Registers a queue at `host`, under its key.
pub(super) fn register_queue(
    host: &mut Host,
    layout: ReceiveQueueLayout,
    portal: Option<CommandSlotId>,
) -> (ReceiveQueue, ReceiveQueueMemory) {
    let rings = ReceiveQueueMemory::heap(layout);
    let memory = Arc::new(Region::new(layout.memory_len()).unwrap());
    let permissions = Permissions::SEND | Permissions::NOTIFY | Permissions::REKEY;
    let port = rings.clone().into_port(portal);
    let entry = RegionEntry::receive_queue(port, memory.clone(), &host.key, permissions, PID);
    let id = host.nic.regions_mut().register(Box::new(entry)).unwrap();
    (rings.clone().into_application(RegisteredRegion::new(id, memory, NicTag(0))), rings)
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::with(NicConfigBuilder::default())
    }

    pub(super) fn with(settings: NicConfigBuilder) -> Self {
        let layout = ReceiveQueueLayout::new(RECEIVES, BUFFER_LEN).unwrap();
        // A name with counter 0 is none that anything can be said of.
        let settings = NicConfigBuilder { counter_start: 1, ..settings };
        Self::of(Pair::with(settings), layout).0
    }

    /// With a queue of that layout, and its rings.
    pub(super) fn of(mut pair: Pair, layout: ReceiveQueueLayout) -> (Self, ReceiveQueueMemory) {
        let (queue, rings) = register_queue(&mut pair.b, layout, None);
        let entry = RegionEntry::new(pair.b.memory.clone(), &pair.b.key, ALL, PID);
        let entry = Box::new(entry.with_events(queue.id()));
        pair.b.region = pair.b.nic.regions_mut().register(entry).unwrap();
        (Self { pair, queue }, rings)
    }

    pub(super) fn recorded(&self, slot: u16, op: RecordedOp) -> Command {
        let command = self.pair.command(slot, CommandOp::Recorded { op, done: None });
        let to_queue = matches!(op, RecordedOp::Send { .. } | RecordedOp::Notify { .. });
        let remote_region = if to_queue { self.queue.id() } else { command.remote_region };
        Command { remote_region, ..command }
    }

    pub(super) fn send(&self, slot: u16, size: u32, immediate: u64) -> Command {
        self.recorded(slot, RecordedOp::Send { message: self.pair.transfer(0, size), immediate })
    }

    pub(super) fn notify(&self, slot: u16, immediate: u64) -> Command {
        self.recorded(slot, RecordedOp::Notify { immediate })
    }

    pub(super) fn ordered_write(&self, slot: u16, offset: u64, size: u32) -> Command {
        self.recorded(slot, RecordedOp::OrderedWrite(self.pair.transfer(offset, size)))
    }

    pub(super) fn write_with_imm(&self, slot: u16, size: u32, ordered: bool) -> Command {
        let transfer = self.pair.transfer(0, size);
        self.recorded(slot, RecordedOp::WriteWithImm { transfer, immediate: 7, ordered })
    }

    pub(super) fn compare_swap(&self, slot: u16, expected: u64, new: u64) -> Command {
        self.recorded(slot, RecordedOp::CompareSwap { remote_offset: 0, expected, new })
    }

    pub(super) fn fetch_add(&self, slot: u16, remote_offset: u64, addend: u64) -> Command {
        self.recorded(slot, RecordedOp::FetchAdd { remote_offset, addend })
    }

    /// An op of each type, in the order of the types: of WRITE, a plain one.
    pub(super) fn one_of_each(&self, slot: u16) -> [Command; OpType::ALL.len()] {
        OpType::ALL.map(|op_type| match op_type {
            OpType::Read => self.pair.read(slot, 0, 64),
            OpType::Write => self.pair.write(slot, 0, 64),
            OpType::Rekey => self.pair.rekey(slot, [3; 16]),
            OpType::Send => self.send(slot, 64, 1),
            OpType::WriteWithImm => self.write_with_imm(slot, 64, false),
            OpType::Notify => self.notify(slot, 1),
            OpType::CompareSwap => self.compare_swap(slot, 0, 1),
            OpType::FetchAdd => self.fetch_add(slot, 0, 1),
        })
    }

    /// A recorded op of each kind, the large ones with data of several frames.
    pub(super) fn recorded_ops(&self, slot: u16) -> [Command; 7] {
        [
            self.ordered_write(slot, 0, 4096),
            self.send(slot, 4096, 1),
            self.write_with_imm(slot, 4096, false),
            self.write_with_imm(slot, 4096, true),
            self.notify(slot, 1),
            self.compare_swap(slot, 0, 1),
            self.fetch_add(slot, 0, 1),
        ]
    }

    pub(super) fn settle(&self, slot: u16, of: &Command, name: OpName) -> Command {
        let op = CommandOp::Settle { op_type: of.op.op_type(), name };
        Command { slot: CommandSlotId(slot), op, ..*of }
    }

    /// Runs `command` to its end.
    pub(super) fn run(&mut self, command: Command) -> Completion {
        self.pair.issue(command);
        self.pair.exchange();
        self.pair.completion()
    }

    /// As far as hop 3: what the target calls the op, and its data.
    pub(super) fn solicited(&mut self, command: Command) -> (OpName, Vec<Flight>) {
        let solicitation = self.pair.solicitation_of(command);
        let FrameView::Solicitation(view) = FrameView::parse(&solicitation.bytes).unwrap() else {
            panic!("not solicited: {command:?}")
        };
        let Solicitation { header: Header { engine, counter, .. }, pending: number, .. } =
            view.claims();
        self.pair.deliver_to_a(&solicitation).unwrap();
        (OpName { engine, counter, number }, self.pair.requests())
    }

    /// Lets the time pass that an op may take, and returns how the only one there was ended.
    pub(super) fn time_out(&mut self) -> Completion {
        let timeout = self.pair.timeout();
        self.pair.advance(timeout);
        self.pair.completion()
    }

    pub(super) fn word(&self, offset: u64) -> u64 {
        self.pair.b.memory.load_acquire(offset).unwrap()
    }

    pub(super) fn event(&mut self) -> Event {
        self.queue.poll().expect("an event")
    }

    pub(super) fn dropped(&self, reason: DropReason) -> u64 {
        self.pair.b.nic.counters().drops(reason)
    }

    pub(super) fn rekey(&mut self, region: RegionId, key: [u8; 16]) {
        self.pair.b.nic.regions_mut().rekey(region, &RegionKey::from_bytes(key)).unwrap();
    }

    /// Nothing is under way any longer, and nothing was lost.
    pub(super) fn assert_settled_down(&self) {
        assert_eq!(self.pair.b.nic.window_debited(), 0);
        assert_eq!(self.pair.a.nic.window_debited(), 0);
        self.pair.b.nic.assert_consistent();
        assert_eq!(self.pair.b.nic.responder.writes().entries_used(), 0);
    }
}

/// The same command, which says besides that an earlier op is done.
pub(super) fn saying_done(command: Command, earlier: Done) -> Command {
    match command.op {
        CommandOp::Recorded { op, .. } => {
            Command { op: CommandOp::Recorded { op, done: Some(earlier) }, ..command }
        }
        _ => command,
    }
}

impl Nic {
    /// Checks that no entry, record, buffer or receive is lost or there twice, and that the window
    /// is debited by what is solicited. Of a NIC that has no ops of its own.
    pub(super) fn assert_consistent(&self) {
        let (bound, solicited) = self.responder.writes().assert_consistent();
        assert_eq!(self.window.debited(), solicited);
        let mut by_queue = std::collections::BTreeMap::new();
        for (queue, receive) in bound {
            let receives: &mut std::collections::BTreeSet<_> =
                by_queue.entry(queue.to_bits()).or_default();
            assert!(receives.insert(receive), "{receive:?} is bound twice");
        }
        for (queue, port) in self.regions.ports() {
            let bound = by_queue.get(&queue.to_bits()).map_or(0, |it| it.len());
            assert_eq!(port.assert_consistent(), bound);
        }
    }
}

/// The octets of a frame that nobody but a holder of `key` could have made: `answered` is the IV of
/// the frame that it answers, if it answers one.
pub(super) fn sealed<T: Frame<HEADER>, const HEADER: usize>(
    key: &DerivedRegionKey,
    claims: &T,
    answered: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; HEADER + payload.len() + TAG_LEN];
    claims.emit(bytes.first_chunk_mut().unwrap());
    bytes[HEADER..][..payload.len()].copy_from_slice(payload);
    let aad = [&bytes[..HEADER], answered].concat();
    let (text, tag) = bytes.split_last_chunk_mut::<TAG_LEN>().unwrap();
    let iv = *claims.header().iv(T::DIRECTION).octets();
    let (key, text) = (key.as_key().into(), Text::in_place(&mut text[HEADER..]));
    fastest().seal(&mut [SealJob { key, iv, aad: &aad, text, tag }]);
    bytes
}
