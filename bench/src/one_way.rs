//! Messages one at a time, and how long each takes one way: from before its sender issues it until
//! its receiver sees it.
//!
//! The receiver looks between any two turns of its engine, by SEND for an event of its queue, by an
//! ordered WRITE for the last word of a slot: the two ways in which a message of one op comes to
//! who waits for it. Both clocks are one. Invariant: every message that counts was seen, and all of
//! its words were what was sent.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use rma_xdp::{
    Clock, Completion, Grant, OpStatus, OpType, ReceiveQueue, RegisteredRegion, Source, TscClock,
};

use crate::{
    client::Client,
    error::{PairError, count_failure},
    interrupt::Interrupt,
    latency::Latencies,
    pair::Pair,
};

/// How a message is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// By SEND, into a receive that was posted.
    Send,
    /// By an ordered WRITE of a slot, whose last word is the bell.
    OrderedWrite,
}

/// Bytes of a word. Messages are whole words.
const WORD: u32 = 8;

/// Where the slot is in the region.
const SLOT: u64 = 0;

/// What the receiver has seen last.
#[derive(Debug, Default)]
struct Seen {
    /// The message's number, which all of its words are; 0: none.
    number: AtomicU64,
    /// When, in nanoseconds.
    at: AtomicU64,
    /// How many messages had a word that is another's.
    torn: AtomicU64,
}

/// The receiving application.
struct Receiver<'a> {
    push: Push,
    region: &'a RegisteredRegion,
    clock: TscClock,
    seen: &'a Seen,
    last: u64,
    bytes: Vec<u8>,
}

impl Receiver<'_> {
    /// Looks once whether a message has come.
    fn look(&mut self, queue: &mut ReceiveQueue) {
        match self.push {
            Push::Send => {
                if let Some(event) = queue.poll() {
                    let at = self.clock.now();
                    queue.read(&event, &mut self.bytes).expect("as long as what is sent");
                    queue.post(event.receive).expect("its event has come");
                    self.saw(event.immediate, at.as_nanos());
                }
            }
            Push::OrderedWrite => {
                let bell = SLOT + self.bytes.len() as u64 - u64::from(WORD);
                let number = self.region.load(bell).expect("a word of the slot");
                if number != self.last {
                    let at = self.clock.now();
                    self.region.read(SLOT, &mut self.bytes).expect("inside");
                    self.saw(number, at.as_nanos());
                }
            }
        }
    }

    fn saw(&mut self, number: u64, at: u64) {
        self.last = number;
        let number_of_all = number.to_le_bytes();
        if self.bytes.chunks(WORD as usize).any(|word| word != number_of_all) {
            self.seen.torn.fetch_add(1, Relaxed);
        }
        self.seen.at.store(at, Relaxed);
        self.seen.number.store(number, Release);
    }
}

/// Brings `count` messages of `size` bytes, which is a multiple of 8, after some to warm up, one
/// when the one before is done.
///
/// # Errors
/// If op after op fails, or a message comes torn.
///
/// # Panics
/// If `size` is no multiple of 8, or longer than an op.
pub fn one_way(
    pair: &mut Pair,
    push: Push,
    size: u32,
    (warm_up, count): (u64, u64),
    interrupt: &Interrupt,
) -> Result<Latencies, PairError> {
    assert!(size > 0 && size.is_multiple_of(WORD), "messages are whole words");
    let (region, seen) = (&pair.region.clone(), &Seen::default());
    let mut bytes = vec![0; size as usize];
    region.write(SLOT, &bytes).expect("the region holds a message");
    let grant = match push {
        Push::Send => pair.send,
        Push::OrderedWrite => pair.client.grants.get(OpType::Write)?,
    };
    let clock = pair.client.clock.clone();
    let mut receiver = Receiver { push, region, clock, seen, last: 0, bytes: bytes.clone() };
    let result = pair.run_beside(
        |_, queue| receiver.look(queue),
        |client| sent(client, &grant, push, (size, warm_up, count), seen, interrupt),
    );
    // What the slot holds now is what the model says.
    region.read(SLOT, &mut bytes).expect("inside");
    if let Some(model) = &mut pair.client.model {
        model.apply(SLOT, &bytes);
    }
    let latencies = result?;
    if seen.torn.load(Relaxed) > 0 {
        return Err(PairError::WrongByte { at: SLOT });
    }
    Ok(latencies)
}

fn sent(
    client: &mut Client,
    grant: &Grant,
    push: Push,
    (size, warm_up, count): (u32, u64, u64),
    seen: &Seen,
    interrupt: &Interrupt,
) -> Result<Latencies, PairError> {
    let mut latencies = Latencies::new();
    let (mut number, mut failures): (u64, _) = (0, 0);
    while latencies.count() < count {
        number += 1;
        let words = number.to_le_bytes().repeat((size / WORD) as usize);
        client.local.write(0, &words).expect("an op's worth");
        let message = Source { region: &client.local, offset: 0, len: size };
        let start = client.clock.now();
        match push {
            Push::Send => client.portal.send(grant, &client.local, 0, size, number)?,
            Push::OrderedWrite => client.portal.write_ordered(grant, SLOT, message)?,
        };
        let Completion { status, .. } = client.host.wait(&mut client.portal)?;
        if status != OpStatus::Ok {
            failures = count_failure(failures, status)?;
            continue;
        }
        failures = 0;
        // The receiver looks after the turn that acknowledged.
        while seen.number.load(Acquire) != number {
            if interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
            core::hint::spin_loop();
        }
        if number > warm_up {
            let start = start.as_nanos();
            latencies.record_nanos(seen.at.load(Relaxed).saturating_sub(start));
        }
    }
    Ok(latencies)
}
