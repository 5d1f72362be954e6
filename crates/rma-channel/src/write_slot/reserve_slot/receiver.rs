//! The receiver's end of shared slots.

use core::{ops::Range, time::Duration};
use std::sync::Arc;

use rma_core::{
    gate::{Gate, Peer},
    receive_queue::{Event, ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::slots::{BITS, EACH, ReserveConfig, Slots, bit};
use crate::{
    close::{Registered, gives_back, opened},
    epochs::Epochs,
    link::Link,
    receiver::{self, Blocking, Claim, Claims, Come, ReceiveError, RecoverError, read},
    ring::{Malformed, Position, Record},
    terms::{Agreed, OpenError, Side, Terms},
};

/// The result of a recovery, which begins another epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How many epochs there were before the present one.
    pub epoch: u64,
    /// How many slots were taken, and no message had come.
    pub freed: u32,
}

/// The receiver's knowledge of a word's slots, bit by bit.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// A message has come, and is not given back.
    full: u64,
    /// It is taken, and no message had come when it was looked at last.
    waited_for: u64,
}

/// The receiver's end, which all senders share.
#[derive(Debug)]
pub struct Receiver {
    slots: Slots,
    agreed: Agreed,
    hole_timeout: Duration,
    epochs: Epochs<1>,
    queue: ReceiveQueue,
    /// By word.
    known: Box<[Known]>,
    /// By slot: since when it is waited for, if it is.
    since: Box<[Instant]>,
    /// Messages that have come and were not handed out.
    come: Come,
    /// The malformed input that came.
    malformed: Option<Malformed>,
    /// The regions are fenced and in order; how many slots were freed.
    fenced: Option<u32>,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl Receiver {
    /// How much memory the slots take, in bytes, with the words that tell which are taken.
    #[must_use]
    pub fn memory_len(config: &ReserveConfig) -> u64 {
        Slots { count: config.slots, len_max: config.len_max }.memory_len()
    }

    /// Opens the receiver's end: slots that are free, in memory of their own.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: ReserveConfig) -> Result<Self, OpenError> {
        let slots = config.check()?;
        Self::open_in(host, config, Arc::new(Region::new(slots.memory_len() as usize)?))
    }

    /// The same in the application's memory, from its beginning on. Other ends may not use it.
    ///
    /// # Errors
    /// As [`Receiver::open`], and if the memory is shorter than [`Receiver::memory_len`].
    pub fn open_in(
        host: &dyn Gate,
        config: ReserveConfig,
        memory: Arc<Region>,
    ) -> Result<Self, OpenError> {
        opened(host, |host| {
            let slots = config.check()?;
            if (memory.len() as u64) < slots.memory_len() {
                let (value, why) = (memory.len() as u64, "ask the settings for its length");
                return Err(OpenError::Settings {
                    what: "the memory of slots, in bytes,",
                    value,
                    why,
                });
            }
            let layout = ReceiveQueueLayout::new(slots.count, 0)?;
            let none = Permissions::NONE;
            let mut queue = host.receive_queue(layout, none).map_err(OpenError::Host)?;
            queue.post_all();
            let epochs = Epochs::open(host, config.epochs.into(), |host, [key]| {
                let permissions = Permissions::ATOMIC | Permissions::WRITE | Permissions::NOTIFY;
                let memory = host.register(memory, key, permissions, Some(&queue));
                Ok([memory.map_err(OpenError::Host)?])
            })?;
            let (agreed, hole_timeout) = (config.agreed(), config.hole_timeout);
            let it = Self {
                slots,
                agreed,
                hole_timeout,
                epochs,
                queue,
                known: vec![Known::default(); slots.words().into()].into(),
                since: vec![Instant::ZERO; slots.count.into()].into(),
                come: Come::default(),
                malformed: None,
                fenced: None,
                registered: Registered::default(),
            };
            it.put_in_order();
            Ok(it)
        })
    }

    /// Admits `peer` as a sender, and returns the terms to send to it.
    ///
    /// # Errors
    /// If the host makes no grants for it.
    pub fn admit(&self, host: &dyn Gate, peer: Peer) -> Result<Terms, OpenError> {
        let grants = self.epochs.grants(host, peer, &EACH).map_err(OpenError::Host)?;
        Ok(Terms::new(self.agreed, Side::Receiver, grants))
    }

    /// Returns the place of one of this receiver's messages, in the memory that it was opened with:
    /// its range in bytes. It stays there until it is given back.
    #[must_use]
    pub const fn place(&self, claim: &Claim) -> (&RegisteredRegion, Range<u64>) {
        (self.memory(), claim.record.range())
    }

    const fn memory(&self) -> &RegisteredRegion {
        &self.epochs.regions()[0]
    }

    /// Takes the events that there are. A receive is posted again at once: there are as many as
    /// slots, and a slot is used once at a time.
    fn gather(&mut self) -> Result<(), Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        while let Some(event) = self.queue.poll() {
            // It was polled just now.
            let _ = self.queue.post(event.receive);
            let Some(record) = self.message(&event) else {
                let Event { immediate, region_offset, len, .. } = event;
                let end = region_offset.saturating_add(len.into());
                let malformed = Malformed::Event { immediate, end, len };
                self.malformed = Some(malformed);
                return Err(malformed);
            };
            self.come.push(record, Peer { address: event.initiator, pid: event.pid });
        }
        Ok(())
    }

    /// The message that an event tells of, whose slot is full from now on; if there can be one: in
    /// a slot that is taken and has none.
    fn message(&mut self, event: &Event) -> Option<Record> {
        let stride = self.slots.stride();
        let end = event.region_offset.checked_add(event.len.into())?;
        let slot = end.checked_sub(1)? / stride;
        let offset = slot * stride;
        let len = u32::try_from(end - offset).ok()?;
        if event.region != self.memory().id()
            || slot >= self.slots.count.into()
            || event.region_offset < offset
            || !(1..=self.slots.len_max).contains(&len)
        {
            return None;
        }
        let (word, bit) = bit(slot as u16);
        let taken = self.memory().load(self.slots.offset(word)).ok()?;
        let known = &mut self.known[usize::from(word)];
        if taken & bit == 0 || known.full & bit != 0 {
            return None;
        }
        known.full |= bit;
        known.waited_for &= !bit;
        Some(Record { position: Position::ZERO, offset, len })
    }

    /// A slot is free again: its bit is cleared, whatever senders do to the others meanwhile.
    fn clear(&self, slot: u16) {
        let (word, bit) = bit(slot);
        let offset = self.slots.offset(word);
        let mut before = self.memory().load(offset).unwrap_or(0);
        while before & bit != 0 {
            // There is such a word: or else nothing is set.
            let found = self.memory().compare_exchange(offset, before, before & !bit);
            match found {
                Ok(found) if found != before => before = found,
                _ => break,
            }
        }
    }

    /// Looks which slots are taken, and since when no message has come.
    fn watch(&mut self, now: Instant) {
        for word in 0..self.slots.words() {
            let taken = self.memory().load(self.slots.offset(word)).unwrap_or(0);
            let known = &mut self.known[usize::from(word)];
            let waited_for = taken & !known.full & !self.slots.none(word);
            let mut new = waited_for & !known.waited_for;
            known.waited_for = waited_for;
            while new != 0 {
                self.since[usize::from(word * BITS) + new.trailing_zeros() as usize] = now;
                new &= new - 1;
            }
        }
    }

    /// Since when the slot is waited for that has been for longest.
    fn longest(&self) -> Option<Instant> {
        let words = (0..).zip(&self.known).filter(|(_, known)| known.waited_for != 0);
        let slots = words.flat_map(|(word, known)| {
            let is_waited_for = move |at: &u16| known.waited_for >> at & 1 != 0;
            (0..BITS).filter(is_waited_for).map(move |at| word * BITS + at)
        });
        slots.map(|slot| self.since[usize::from(slot)]).min()
    }

    /// When [`Receiver::poll_recovery`] has something to do, if nothing comes until then.
    #[must_use]
    pub fn recovery_timeout(&self) -> Option<Instant> {
        Some(self.longest()? + self.hole_timeout)
    }

    /// Takes slots back whose senders do not use them, if it is time: says so if it did. To be
    /// called again and again. Messages that have come stay where they are.
    ///
    /// # Errors
    /// If what came cannot be, or the host refuses.
    //= channels#4.2-reserve
    pub fn poll_recovery(
        &mut self,
        host: &dyn Gate,
        now: Instant,
    ) -> Result<Option<Recovery>, RecoverError> {
        if self.fenced.is_none() {
            self.gather().map_err(ReceiveError::from)?;
            self.watch(now);
            if self.recovery_timeout().is_none_or(|at| now < at) {
                return Ok(None);
            }
            self.epochs.fence(host).map_err(RecoverError::Host)?;
            // Messages that came just before the fence.
            self.gather().map_err(ReceiveError::from)?;
            self.watch(now);
            let freed = self.known.iter().map(|known| known.waited_for.count_ones()).sum();
            self.known.iter_mut().for_each(|known| known.waited_for = 0);
            self.put_in_order();
            self.fenced = Some(freed);
        }
        self.epochs.resume(host).map_err(RecoverError::Host)?;
        let epoch = self.epochs.epoch();
        Ok(self.fenced.take().map(|freed| Recovery { epoch, freed }))
    }

    /// Makes the words say that slots with messages are taken, and no others. Nobody else changes
    /// them meanwhile.
    fn put_in_order(&self) {
        for (word, known) in (0..).zip(&self.known) {
            let _ =
                self.memory().store(self.slots.offset(word), known.full | self.slots.none(word));
        }
    }
}

gives_back!(Receiver);

impl Claims for Receiver {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        self.gather()?;
        Ok(self.come.claim())
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        read(self.memory(), &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        let slot = (claim.record.offset / self.slots.stride()) as u16;
        let (word, bit) = bit(slot);
        self.known[usize::from(word)].full &= !bit;
        self.clear(slot);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl receiver::Receiver for Receiver {
    /// Looks which slots are waited for. It issues nothing.
    fn poll(&mut self, _: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.watch(now);
        Ok(())
    }
}

impl Blocking for Receiver {
    fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }
}
