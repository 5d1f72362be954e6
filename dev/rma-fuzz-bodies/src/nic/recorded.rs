//! Recorded ops of the target `nic`: messages, atomics, SETTLE, and receive queues whose
//! applications post what they like.
//!
//! Asserts: no event comes twice, and each is one that was asked for, with its whole message; an op
//! that is OK has its event, one that was not applied has none, and none comes after an op's end;
//! no two tickets are alike, and none is missing that somebody has; no two verdicts of one op
//! differ, but where one is that it was forgotten.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rma_core::{
    addr::Pid,
    command::{Command, CommandOp, CommandSlotId, Completion, RecordedOp, Transfer},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey},
    limits::OP_SIZE_MAX,
    nic::{Nic, RegionEntry},
    op::{ClassOfService, OpStatus, OpType},
    outcome::{Done, OpName, Verdict},
    receive_queue::{Receive, ReceiveQueue, ReceiveQueueLayout, ReceiveQueueMemory},
    region::{NicTag, Permissions, RegionId, RegisteredRegion},
    wire::FrameView,
};
use rma_shm::{Line, Region};

use super::{
    World,
    host::{AREAS, Expected, PID, SLOTS_MAX, Taken},
};
use crate::script::Script;

const RECEIVES: u16 = 4;
const BUFFER_LEN: u32 = 1024;
const WORDS_LEN: usize = 2048;

/// The offsets of the words, and of the bytes that WRITE_WITH_IMM writes.
const TICKETS: u64 = 0;
const SWAPPED: u64 = 8;
const BYTES: u64 = 64;

/// The memory of a host that recorded ops are on, but for its target.
pub(super) struct Ends {
    words: RegionId,
    memory: Arc<Region>,
    rings: ReceiveQueueMemory,
    queue: Option<ReceiveQueue>,
    /// Whether its application has kept to the rules.
    is_honest: bool,
    /// The immediates of all events that have come.
    seen: BTreeSet<u64>,
}

impl Ends {
    pub(super) fn new() -> Self {
        let layout = ReceiveQueueLayout::new(RECEIVES, BUFFER_LEN).expect("a queue may be so");
        Self {
            words: RegionId::from_bits(0),
            memory: Arc::new(Region::new(WORDS_LEN).expect("some words")),
            rings: ReceiveQueueMemory::heap(layout),
            queue: None,
            is_honest: true,
            seen: BTreeSet::new(),
        }
    }

    pub(super) fn register(&mut self, nic: &mut Nic, key: &RegionKey, owner: Pid) {
        let mut register = |entry| {
            let registered = nic.regions_mut().register(Box::new(entry));
            registered.map_err(|(error, _)| error).expect("the table has room for all")
        };
        let layout = ReceiveQueueLayout::new(RECEIVES, BUFFER_LEN).expect("a queue may be so");
        let buffers = Arc::new(Region::new(layout.memory_len()).expect("some buffers"));
        let port = self.rings.clone().into_port(None);
        let permissions = Permissions::SEND | Permissions::NOTIFY;
        let queue =
            register(RegionEntry::receive_queue(port, buffers.clone(), key, permissions, owner));
        let permissions = Permissions::WRITE | Permissions::NOTIFY | Permissions::ATOMIC;
        let entry = RegionEntry::new(self.memory.clone(), key, permissions, owner);
        self.words = register(entry.with_events(queue));
        let region = RegisteredRegion::new(queue, buffers, NicTag(0));
        self.queue = Some(self.rings.clone().into_application(region));
    }

    fn queue(&mut self) -> &mut ReceiveQueue {
        self.queue.as_mut().expect("registered")
    }
}

/// The ledger of all recorded ops.
#[derive(Default)]
pub(super) struct Ledger {
    /// The last immediate that was given away.
    made: u64,
    /// Events of ops that have ended, and whether they had come by then.
    final_events: Vec<(usize, u64, bool)>,
    /// By host: tickets that were drawn, and ops that may have drawn one more.
    tickets: [(BTreeSet<u64>, u64); 2],
    /// By the counter of a solicitation: whether its op was applied.
    applied: BTreeMap<u64, bool>,
    names: Vec<OpName>,
}

impl Ledger {
    fn know(&mut self, counter: u64, applied: bool) {
        let known = *self.applied.entry(counter).or_insert(applied);
        assert_eq!(known, applied, "an op was applied, and was not");
    }

    fn know_end(&mut self, done: &Completion) {
        let Some(name) = done.name() else { return };
        self.names.push(name);
        if !done.may_have_changed() {
            self.know(name.counter, done.status == OpStatus::Ok);
        }
    }
}

impl World {
    pub(super) fn recorded_step(&mut self, step: u8, host: usize, script: &mut Script<'_>) {
        match step {
            0..=6 => self.issue_recorded(step, host, script),
            7 => self.hosts[host].ends.queue().post_all(),
            8 => self.take_events(host),
            9 => self.post_garbage(host, script),
            10 | 11 => self.issue_settle(host, script),
            12 | 13 => self.issue_lines(host, script),
            14 => {
                let key = RegionKey::from_bytes([script.number() as u8; 16]);
                let Ends { words, .. } = self.hosts[host].ends;
                let queue = self.hosts[host].ends.queue().id();
                let region = if script.number() & 1 == 0 { words } else { queue };
                self.hosts[host].nic.regions_mut().rekey(region, &key).expect("registered");
            }
            _ => {
                // It may be posted already.
                let receive = Receive(script.number() as u16 % RECEIVES);
                let _ = self.hosts[host].ends.queue().post(receive);
            }
        }
    }

    /// Numbers in the ring of posts that its application must not write.
    fn post_garbage(&mut self, host: usize, script: &mut Script<'_>) {
        let Ends { rings, is_honest, .. } = &mut self.hosts[host].ends;
        *is_honest = false;
        let posts = rings.posts();
        for _ in 0..script.number() % 8 {
            let number = script.wide() % 9;
            let number = if number == 8 { u64::MAX } else { number };
            posts.set_line(posts.tail(), &Line([number; Line::WORDS]));
            posts.set_tail(posts.tail().wrapping_add(1));
        }
    }

    fn take_events(&mut self, host: usize) {
        let made = self.ledger.made;
        let ends = &mut self.hosts[host].ends;
        while let Some(event) = ends.queue().poll() {
            let immediate = event.immediate;
            assert!((1..=made).contains(&immediate), "an event that nobody asked for");
            if event.op_type == OpType::Send {
                let mut message = vec![0; event.len as usize];
                ends.queue().read(&event, &mut message).expect("its own receive");
                let whole = message.iter().all(|&byte| byte == immediate as u8);
                assert!(whole, "a message is another's in part");
            }
            assert!(ends.seen.insert(immediate), "an event came twice");
        }
    }

    /// A recorded op that is mostly right.
    fn issue_recorded(&mut self, kind: u8, host: usize, script: &mut Script<'_>) {
        let flags = script.number();
        let target = if flags & 1 == 0 { 1 - host } else { host };
        let slot = script.number() % (SLOTS_MAX + 1);
        let size = 1 + script.wide() as u32 % OP_SIZE_MAX;
        let whole_words = size.next_multiple_of(8);
        self.ledger.made += 1;
        let immediate = self.ledger.made;
        let area = (host * AREAS + slot) as u64 * u64::from(OP_SIZE_MAX);
        let bytes = |remote_offset, op_size| Transfer {
            op_size,
            remote_offset,
            local_region: self.hosts[host].sink,
            local_offset: slot as u64 * u64::from(OP_SIZE_MAX),
        };
        let fill = self.statuses[0] as u8 ^ 0x5a;
        let event = Expected::Event { host: target, immediate };
        let skew = if flags & 0x20 == 0 { 0 } else { 4 };
        let (op, expected) = match kind {
            0 => (
                RecordedOp::OrderedWrite(bytes(area, whole_words)),
                Expected::Written { host: target, offset: area, size: whole_words, fill },
            ),
            1 => (RecordedOp::Send { message: bytes(0, size), immediate }, event),
            2 => {
                let (ordered, size) = (flags & 16 != 0, whole_words.min(BUFFER_LEN));
                let transfer = bytes(BYTES, size);
                (RecordedOp::WriteWithImm { transfer, immediate, ordered }, event)
            }
            3 => (RecordedOp::Notify { immediate }, event),
            4 => {
                let (expected, new) = (script.wide() & 1, script.wide() & 1);
                let remote_offset = SWAPPED + skew;
                (RecordedOp::CompareSwap { remote_offset, expected, new }, Expected::Any)
            }
            _ => {
                let op = RecordedOp::FetchAdd { remote_offset: TICKETS, addend: 1 };
                (op, Expected::Ticket { host: target })
            }
        };
        let name = self.ledger.names.last().filter(|_| flags & 64 != 0);
        let op = CommandOp::Recorded { op, done: name.map(|&name| Done::from(name)) };
        let region = match kind {
            0 => self.hosts[target].target,
            1 | 3 => self.hosts[target].ends.queue().id(),
            _ => self.hosts[target].ends.words,
        };
        let is_wrong = flags & 2 != 0;
        let expected = if is_wrong { Expected::Failure } else { expected };
        let mut command = self.command((host, target), slot, region, op);
        command.class = ClassOfService::ALL[flags >> 2 & 1];
        if is_wrong {
            command.key = DerivedRegionKey::from_bytes([0x55; 16]);
        }
        match expected {
            Expected::Written { .. } => self.hosts[host].prepare(slot, &expected),
            _ => self.hosts[host].fill(slot, immediate as u8),
        }
        let op_type = command.op.op_type();
        self.give(host, command, op_type, expected);
    }

    fn command(
        &self,
        (host, target): (usize, usize),
        slot: usize,
        region: RegionId,
        op: CommandOp,
    ) -> Command {
        let (initiator, responder) = (self.hosts[host].addr, self.hosts[target].addr);
        let binding = KeyBinding { initiator, responder, pid: PID, op_type: op.op_type() };
        let entry = self.hosts[target].nic.regions().get(region);
        let none = DerivedRegionKey::from_bytes([0x55; 16]);
        Command {
            slot: CommandSlotId(slot as u16),
            class: ClassOfService::Latency,
            responder,
            remote_region: region,
            key: entry.map_or(none, |entry| entry.key.derive(&binding)),
            op,
        }
    }

    fn give(&mut self, host: usize, command: Command, op_type: OpType, expected: Expected) {
        let slot = usize::from(command.slot.0);
        let result = self.hosts[host].nic.handle_command(self.now, command);
        if let (Ok(()), Expected::Written { host: target, offset, .. }) = (result, expected) {
            self.hosts[target].forget_area(offset);
        }
        self.hosts[host].took(slot, result, Taken { at: self.now, op_type, expected });
    }

    /// Asks about an op that was solicited lately, whoever's it is.
    fn issue_settle(&mut self, host: usize, script: &mut Script<'_>) {
        let (back, flags) = (script.number(), script.number());
        let solicitations: Vec<_> = self
            .sealed
            .iter()
            .rev()
            .filter_map(|sealed| match FrameView::parse(&sealed.bytes) {
                Ok(FrameView::Solicitation(view)) => Some((sealed.transmit.source, view.claims())),
                _ => None,
            })
            .collect();
        let Some((responder, claims)) = solicitations.get(back % solicitations.len().max(1)) else {
            return;
        };
        let target = usize::from(self.hosts[1].addr == *responder);
        let (region, counter) = (claims.header.region, claims.header.counter);
        let name = OpName { engine: claims.header.engine, counter, number: claims.pending };
        let types = OpType::ALL.into_iter().filter(|it| it.may_be_recorded());
        let types: Vec<OpType> = types.collect();
        let op = CommandOp::Settle { op_type: types[flags % types.len()], name };
        let slot = script.number() % (SLOTS_MAX + 1);
        let command = self.command((host, target), slot, region, op);
        self.give(host, command, OpType::Read, Expected::Settled { counter });
    }

    /// Two lines as a hostile application writes them, or the first of two.
    fn issue_lines(&mut self, host: usize, script: &mut Script<'_>) {
        let slot = script.number() % SLOTS_MAX;
        let op = RecordedOp::FetchAdd { remote_offset: TICKETS, addend: 1 };
        let op = CommandOp::Recorded { op, done: None };
        let region = self.hosts[1 - host].ends.words;
        let honest = self.command((host, 1 - host), slot, region, op);
        let honest = Command { key: DerivedRegionKey::from_bytes([0x55; 16]), ..honest };
        let (mut first, second) = (honest.to_line(), honest.to_second_line());
        let mut second = second.expect("it has two");
        assert!(Command::from_line(&first).is_err(), "a first line is a command by itself");
        let (which, word, shift) = (script.number(), script.number(), script.number());
        let line = if which & 1 == 0 { &mut first } else { &mut second };
        line.0[word % Line::WORDS] ^= script.wide() << (shift % 64);
        let second = (which & 2 == 0).then_some(&second);
        let decoded = match second {
            Some(second) => Command::from_lines(&first, second),
            None => Command::from_line(&first),
        };
        let (slot, op_type) = match decoded {
            Ok(command) => (command.slot, command.op.op_type()),
            Err(slot) => (slot, OpType::Read),
        };
        let result = self.hosts[host].nic.handle_lines(self.now, &first, second).map(drop);
        let taken = Taken { at: self.now, op_type, expected: Expected::Failure };
        self.hosts[host].took(slot.0.into(), result, taken);
    }

    pub(super) fn event_ended(&mut self, host: usize, immediate: u64, done: &Completion) {
        self.take_events(host);
        self.ledger.know_end(done);
        let Ends { seen, is_honest, .. } = &self.hosts[host].ends;
        let (has_come, is_ok) = (seen.contains(&immediate), done.status == OpStatus::Ok);
        assert!(!is_ok || has_come || !is_honest, "an event is missing");
        assert!(is_ok || done.may_have_changed() || !has_come, "an event of an op that failed");
        self.ledger.final_events.push((host, immediate, has_come));
    }

    pub(super) fn ticket_ended(&mut self, host: usize, done: &Completion) {
        self.ledger.know_end(done);
        let (drawn, unknown) = &mut self.ledger.tickets[host];
        if done.status == OpStatus::Ok {
            let ticket = done.result().expect("a FETCH_ADD has a result");
            assert!(drawn.insert(ticket), "a ticket was drawn twice");
        } else if done.may_have_changed() {
            *unknown += 1;
        }
    }

    pub(super) fn settled(&mut self, counter: u64, done: &Completion) {
        let Some(verdict) = done.verdict() else {
            assert_ne!(done.status, OpStatus::Ok, "a SETTLE without a verdict");
            return;
        };
        match verdict {
            Verdict::Applied => self.ledger.know(counter, true),
            Verdict::NotApplied => self.ledger.know(counter, false),
            Verdict::Forgotten => {}
        }
    }

    /// At the end of all: nothing has come after its op's end.
    pub(super) fn check_ledger(&mut self) {
        for host in 0..2 {
            self.take_events(host);
            let word = self.hosts[host].ends.memory.load_acquire(TICKETS).expect("a word");
            let (drawn, unknown) = &self.ledger.tickets[host];
            let known = drawn.len() as u64;
            assert!(known <= word && word <= known + unknown, "{word} tickets, {known} known");
            assert!(drawn.last().is_none_or(|&last| last < word), "a ticket that there was not");
        }
        for &(host, immediate, had_come) in &self.ledger.final_events {
            let has_come = self.hosts[host].ends.seen.contains(&immediate);
            assert_eq!(has_come, had_come, "an event came after its op had ended");
        }
    }
}
