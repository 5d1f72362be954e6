//! Messages one at a time, and how long each takes one way: from before its sender issues the first
//! op until its receiver sees it.
//!
//! What brings a message is a row of ops, each issued when the one before is done ([`Step`]): what
//! the channels are made of, without what makes them channels. No flow control, no places, one
//! message at a time.
//!
//! The receiver looks between any two turns of its engine: for an event of its queue, for a word
//! that an ordered WRITE stores last, or by READs of its sender's memory. Both clocks are one.
//! Invariant: every message that counts was seen, and all of its words were what was sent.

use core::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};

use rma_xdp::{
    Completion, Grant, OpStatus, OpType, Permissions, Portal, ReceiveQueue, RegisteredRegion,
    ops::Source,
    time::{Clock, TscClock},
};

use crate::{
    client::Client, error::PairError, failures::Failures, interrupt::Interrupt, latency::Latencies,
    pair::Pair,
};

/// An op on a message's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A SEND of the message, into a receive that was posted.
    Send,
    /// A NOTIFY, whose immediate is the message's number.
    Notify,
    /// A WRITE_WITH_IMM of the message.
    WriteWithImm,
    /// An ordered WRITE of the message, whose last word is the bell.
    OrderedWrite,
    /// A WRITE of the message, which nobody can see yet.
    Write,
    /// An ordered WRITE of a word behind the message: a bell of its own.
    Bell,
    /// A COMPARE_SWAP of another word, which nobody else changes.
    CompareSwap,
    /// A FETCH_ADD of another word.
    FetchAdd,
    /// A READ of a bell at the sender, by the receiver, again and again until it is another.
    ReadBell,
    /// A READ of the message at the sender, by the receiver.
    ReadMessage,
    /// A READ of both at once, again and again until the bell is another.
    ReadSlot,
}

/// Bytes of a word. Messages are whole words.
const WORD: u32 = 8;

/// The offset of the message in the receiver's region.
const SLOT: u64 = 0;

/// The offset of the bell in the sender's memory, if the receiver reads it; the message is behind
/// it.
const BELL: u64 = 0;

/// How long a sender waits before message `number`: anything up to 16 µs. Without, looks would be
/// in step with messages, and find each by the first READ or each by the second.
#[must_use]
pub const fn pause(number: u64) -> Duration {
    Duration::from_nanos(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50)
}

impl Step {
    /// Whether the receiver issues it.
    const fn is_read(self) -> bool {
        self.op_type().index() == OpType::Read.index()
    }

    const fn op_type(self) -> OpType {
        match self {
            Self::Send => OpType::Send,
            Self::Notify => OpType::Notify,
            Self::WriteWithImm => OpType::WriteWithImm,
            Self::OrderedWrite | Self::Write | Self::Bell => OpType::Write,
            Self::CompareSwap => OpType::CompareSwap,
            Self::FetchAdd => OpType::FetchAdd,
            Self::ReadBell | Self::ReadMessage | Self::ReadSlot => OpType::Read,
        }
    }

    /// Returns the offset and length of the READ of a message of `size` bytes.
    const fn span(self, size: u32) -> (u64, u32) {
        match self {
            Self::ReadBell => (BELL, WORD),
            Self::ReadSlot => (BELL, WORD + size),
            _ => (BELL + WORD as u64, size),
        }
    }

    const fn has_bell(self) -> bool {
        matches!(self, Self::ReadBell | Self::ReadSlot)
    }
}

/// The last state that the receiver has seen.
#[derive(Debug, Default)]
struct Seen {
    /// The message's number, which all of its words are; 0: none.
    number: AtomicU64,
    /// When, in nanoseconds.
    at: AtomicU64,
    /// How many messages had a word that is another's.
    torn: AtomicU64,
}

/// A receiver's READs of its sender's memory.
struct Reading {
    portal: Portal,
    grant: Grant,
    /// The region in which a bell and a message land, which lie as in the sender's memory.
    sink: RegisteredRegion,
    /// The READs of a message.
    steps: Vec<Step>,
    /// The index of the READ that comes next, or is under way, if one will come.
    at: Option<usize>,
    under_way: bool,
    /// The number of the message that is read, if an event has told it.
    told: Option<u64>,
}

/// The receiving application.
struct Receiver {
    /// The last op that the sender issues, if any.
    found_by: Option<Step>,
    region: RegisteredRegion,
    reading: Option<Reading>,
    clock: TscClock,
    last: u64,
    bytes: Vec<u8>,
}

/// The reader's look: between two turns.
struct Look<'a> {
    queue: &'a mut ReceiveQueue,
    seen: &'a Seen,
    /// Whether READs may be issued.
    goes_on: bool,
}

impl Receiver {
    /// Looks once whether a message has come.
    fn look(&mut self, mut look: Look<'_>) {
        match self.found_by {
            Some(Step::OrderedWrite) => {
                self.look_at_word(SLOT + self.bytes.len() as u64 - u64::from(WORD), look.seen);
            }
            Some(Step::Bell) => self.look_at_word(SLOT + self.bytes.len() as u64, look.seen),
            Some(step) => self.look_at_queue(step, &mut look),
            None => {}
        }
        if self.reading.is_some() {
            self.read_on(&look);
        }
    }

    fn look_at_word(&mut self, bell: u64, seen: &Seen) {
        let number = self.region.load(bell).expect("a word of the region");
        if number != self.last {
            let at = self.clock.now();
            self.region.read(SLOT, &mut self.bytes).expect("inside");
            self.saw(number, at.as_nanos(), seen);
        }
    }

    fn look_at_queue(&mut self, step: Step, Look { queue, seen, .. }: &mut Look<'_>) {
        let Some(event) = queue.poll() else { return };
        let at = self.clock.now();
        match step {
            Step::Send => queue.read(&event, &mut self.bytes).expect("as long as what is sent"),
            Step::WriteWithImm => self.region.read(SLOT, &mut self.bytes).expect("inside"),
            _ => self.bytes = words(event.immediate, self.bytes.len()),
        }
        queue.post(event.receive).expect("its event has come");
        match &mut self.reading {
            Some(reading) => (reading.at, reading.told) = (Some(0), Some(event.immediate)),
            None => self.saw(event.immediate, at.as_nanos(), seen),
        }
    }

    /// Issues the next READ, if the one before is done.
    fn read_on(&mut self, look: &Look<'_>) {
        let Some(reading) = &mut self.reading else { return };
        let size = self.bytes.len() as u32;
        let Some(mut at) = reading.at else { return };
        if reading.under_way {
            let Some(Completion { status, .. }) = reading.portal.poll() else { return };
            reading.under_way = false;
            let bell = || reading.sink.load(BELL).expect("a word of the region");
            let is_news = !reading.steps[at].has_bell() || bell() != self.last;
            if status == OpStatus::Ok && is_news {
                at += 1;
            }
            reading.at = Some(at);
            if at == reading.steps.len() {
                let number = reading.told.take().unwrap_or_else(bell);
                // Without a bell, it looks again.
                reading.at = if self.found_by.is_none() { Some(0) } else { None };
                let now = self.clock.now();
                let message = BELL + u64::from(WORD);
                reading.sink.read(message, &mut self.bytes).expect("inside");
                self.saw(number, now.as_nanos(), look.seen);
                return;
            }
        }
        if look.goes_on {
            let (offset, len) = reading.steps[at].span(size);
            let Reading { portal, grant, sink, .. } = reading;
            portal.read(grant, offset, sink, offset, len).expect("one at a time");
            reading.under_way = true;
        }
    }

    fn saw(&mut self, number: u64, at: u64, seen: &Seen) {
        self.last = number;
        let number_of_all = number.to_le_bytes();
        if self.bytes.chunks(WORD as usize).any(|word| word != number_of_all) {
            seen.torn.fetch_add(1, Relaxed);
        }
        seen.at.store(at, Relaxed);
        seen.number.store(number, Release);
    }

    /// Whether none of its READs is under way.
    const fn is_quiet(&self) -> bool {
        match &self.reading {
            Some(reading) => !reading.under_way,
            None => true,
        }
    }
}

/// A message: its number in all words.
fn words(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(len / WORD as usize)
}

/// The sending application.
struct Sender {
    steps: Vec<(Step, Grant)>,
    /// The memory that the receiver reads: a bell, and the message.
    stored: Option<RegisteredRegion>,
    size: u32,
    /// How many messages were sent.
    number: u64,
    /// The word as COMPARE_SWAP and FETCH_ADD have left it.
    word: u64,
}

/// Ops that bring messages of one size, issued by hand.
pub struct ByHand {
    // Dropped in this order.
    sender: Sender,
    receiver: Receiver,
}

impl core::fmt::Debug for ByHand {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ByHand").field("size", &self.sender.size).finish_non_exhaustive()
    }
}

impl ByHand {
    /// Opens the parts needed for messages of `size` bytes from the client to the server of a pair,
    /// by `steps` in this order: first those of the sender, then those of the receiver.
    ///
    /// # Errors
    /// If slots or memory cannot be had.
    ///
    /// # Panics
    /// If `size` is no multiple of 8, or longer than an op; or the last step of a sender is one
    /// that nobody can see.
    pub fn open(pair: &mut Pair, steps: &[Step], size: u32) -> Result<Self, PairError> {
        assert!(size > 0 && size.is_multiple_of(WORD), "messages are whole words");
        let first_read = steps.iter().position(|step| step.is_read()).unwrap_or(steps.len());
        let (pushes, reads) = steps.split_at(first_read);
        let found_by = pushes.last().copied();
        let hidden = [Step::Write, Step::CompareSwap, Step::FetchAdd];
        assert!(!found_by.is_some_and(|step| hidden.contains(&step)), "nobody sees it");
        let region = pair.region.clone();
        // The message, a bell, and a word for atomics.
        region.write(SLOT, &vec![0; size as usize + 16]).expect("the region holds a message");
        let grant = |step: &Step| {
            let grant = match step {
                Step::Send => pair.send,
                Step::Notify => pair.notify,
                step => pair.client.grants.get(step.op_type())?,
            };
            Ok((*step, grant))
        };
        let pushes = pushes.iter().map(grant).collect::<Result<_, PairError>>()?;
        let (stored, reading) = if reads.is_empty() {
            (None, None)
        } else {
            let (stored, reading) = reading(pair, reads, (size, found_by.is_none()))?;
            (Some(stored), Some(reading))
        };
        let (clock, bytes) = (pair.client.clock.clone(), vec![0; size as usize]);
        Ok(Self {
            sender: Sender { steps: pushes, stored, size, number: 0, word: 0 },
            receiver: Receiver { found_by, region, reading, clock, last: 0, bytes },
        })
    }

    /// Brings `count` messages, after some to warm up, one some time after the one before is there.
    ///
    /// # Errors
    /// If op after op fails, or a message comes torn.
    ///
    /// # Panics
    /// Never: the region holds a message.
    pub fn one_way(
        &mut self,
        pair: &mut Pair,
        counts: (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let Self { sender, receiver } = self;
        let (seen, over, quiet) =
            (&Seen::default(), &AtomicBool::new(false), &AtomicBool::new(true));
        let result = pair.run_beside(
            |_, queue| {
                let goes_on = !over.load(Acquire);
                receiver.look(Look { queue, seen, goes_on });
                quiet.store(receiver.is_quiet(), Release);
            },
            |client| {
                let sent = sender.send_all(client, counts, seen, interrupt);
                over.store(true, Release);
                // A READ that nobody answers would be one too many for the next time.
                while !quiet.load(Acquire) && !interrupt.is_set() {
                    client.host.turn();
                }
                sent
            },
        );
        // The slot must now hold the model's content.
        let mut bytes = vec![0; self.sender.size as usize + 16];
        self.receiver.region.read(SLOT, &mut bytes).expect("inside");
        if let Some(model) = &mut pair.client.model {
            model.apply(SLOT, &bytes);
        }
        let latencies = result?;
        if seen.torn.load(Relaxed) > 0 {
            return Err(PairError::WrongByte { at: SLOT });
        }
        Ok(latencies)
    }
}

/// The client's memory for messages of `size` bytes that the server reads, and with what. `looks`:
/// nobody tells when.
fn reading(
    pair: &mut Pair,
    steps: &[Step],
    (size, looks): (u32, bool),
) -> Result<(RegisteredRegion, Reading), PairError> {
    let len = (WORD + size) as usize;
    let any = pair.client.grants.any();
    let (here, there) = (any.initiator, any.responder);
    let stored = pair.client.host.register(len, Permissions::READ)?;
    let grant = pair.client.host.grant(&stored, there, pair.server.pid(), OpType::Read)?;
    debug_assert_eq!(grant.responder, here, "the client has one address");
    let sink = pair.server.register(len, Permissions::NONE)?;
    let (portal, at) = (pair.server.portal(2)?, looks.then_some(0));
    let steps = steps.to_vec();
    Ok((stored, Reading { portal, grant, sink, steps, at, under_way: false, told: None }))
}

impl Sender {
    fn send_all(
        &mut self,
        client: &mut Client,
        (warm_up, count): (u64, u64),
        seen: &Seen,
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let (mut latencies, mut failures) = (Latencies::new(), Failures::default());
        let first = self.number;
        while latencies.count() < count {
            self.number += 1;
            let number = self.number;
            let bytes = words(number, self.size as usize);
            client.local.write(0, &bytes).expect("an op's worth");
            let begin = client.clock.now() + pause(number);
            while client.clock.now() < begin {
                client.host.turn();
            }
            let start = client.clock.now();
            if let Some(stored) = &self.stored {
                stored.write(BELL + u64::from(WORD), &bytes).expect("inside");
                stored.store(BELL, number).expect("a word of the region");
            }
            let status = self.push(client)?;
            if status != OpStatus::Ok {
                failures.count(status, client.clock.now())?;
                continue;
            }
            failures.ok(client.clock.now());
            // The receiver looks after the turn that acknowledged, or reads.
            while seen.number.load(Acquire) != number {
                if interrupt.is_set() {
                    return Err(PairError::Interrupted);
                }
                if self.stored.is_some() {
                    client.host.turn();
                }
                core::hint::spin_loop();
            }
            if number > first + warm_up {
                let start = start.as_nanos();
                latencies.record_nanos(seen.at.load(Relaxed).saturating_sub(start));
            }
        }
        Ok(latencies)
    }

    /// Does its steps, and says how the last one has ended.
    fn push(&mut self, client: &mut Client) -> Result<OpStatus, PairError> {
        let &mut Self { ref steps, size, number, ref mut word, .. } = self;
        let bell = SLOT + u64::from(size);
        let atomic = bell + u64::from(WORD);
        for (step, grant) in steps {
            let Client { portal, local, host, .. } = &mut *client;
            let message = Source { region: local, offset: 0, len: size };
            match step {
                Step::Send => portal.send(grant, local, 0, size, number)?,
                Step::Notify => portal.notify(grant, number)?,
                Step::WriteWithImm => portal.write_with_imm(grant, SLOT, message, number)?,
                Step::OrderedWrite => portal.write_ordered(grant, SLOT, message)?,
                Step::Write => portal.write(grant, SLOT, local, 0, size)?,
                Step::Bell => portal.write_ordered(grant, bell, Source { len: WORD, ..message })?,
                Step::CompareSwap => portal.compare_swap(grant, atomic, *word, number)?,
                Step::FetchAdd => portal.fetch_add(grant, atomic, 1)?,
                Step::ReadBell | Step::ReadMessage | Step::ReadSlot => continue,
            };
            let done = host.wait(portal)?;
            if done.status != OpStatus::Ok {
                return Ok(done.status);
            }
            if let (Step::CompareSwap, Some(before)) = (step, done.result()) {
                *word = if before == *word { number } else { before };
            }
        }
        Ok(OpStatus::Ok)
    }
}
