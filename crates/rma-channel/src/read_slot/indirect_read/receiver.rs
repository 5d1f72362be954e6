//! The receiver's end: who has which buffer, and what has come.

use core::ops::Range;
use std::{collections::BTreeMap, sync::Arc};

use rma_core::{
    executor::CallId,
    gate::{Gate, Peer},
    grant::Grant,
    op::OpType,
    receive_queue::{Event, ReceiveQueue, ReceiveQueueLayout},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_shm::Region;

use super::{
    farewell::Farewell,
    offers::{Again, Borrower, EACH, IndirectConfig, MEMORY_MAX, Standing},
};
use crate::{
    arrivals::Arrivals,
    close::{Registered, gives_back, opened},
    epochs::Epochs,
    link::Link,
    open::end::End,
    receiver::{self, Blocking, Claim, Claims, Come, ReceiveError, RecoverError, read},
    ring::{Malformed, Position, Record},
    terms::{Admitted, Half, Needs, OpenError, Side, Terms, TermsError},
};

mod lending;

/// How far a message has come that a buffer was lent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not at all.
    Lent,
    /// It is there, and one before it is not.
    Come,
    /// It is handed out, or to be.
    Out,
}

/// A buffer that is not free.
#[derive(Clone, Copy, Debug)]
struct Lend {
    seat: u64,
    number: Position,
    stage: Stage,
}

/// A sender.
#[derive(Debug)]
struct Seat {
    peer: Peer,
    /// For NOTIFY, once it has said so.
    grant: Option<Grant>,
    /// How many epochs there were before it has joined.
    epoch: u64,
    /// Up to where it was lent buffers.
    lent: Position,
    arrivals: Arrivals<Record>,
    standing: Standing,
}

impl Seat {
    const fn has(&self) -> u64 {
        self.lent.since(self.arrivals.tail())
    }

    /// Whether it may be lent one more, of `most`.
    fn takes(&self, most: u16) -> bool {
        self.grant.is_some() && self.standing == Standing::Present && self.has() < most.into()
    }
}

/// An offer that must be told, or is being told.
#[derive(Clone, Copy, Debug)]
struct Notice {
    seat: u64,
    number: Position,
    offset: u64,
    /// The call under way, and its epoch.
    call: Option<(CallId, u64)>,
    again: Option<Again>,
}

/// The receiver's end, which all senders share.
#[derive(Debug)]
pub struct Receiver {
    config: IndirectConfig,
    epochs: Epochs<1>,
    queue: ReceiveQueue,
    /// Buffers that are free, if this end lends them by itself.
    pool: Option<Vec<u64>>,
    /// Whether one might be lent.
    may_lend: bool,
    /// By where they begin: buffers that are not free. No two overlap.
    lent: BTreeMap<u64, Lend>,
    seats: BTreeMap<u64, Seat>,
    /// The number of the next seat.
    next_seat: u64,
    notices: Vec<Notice>,
    /// The senders that are out and have yet to be told.
    farewells: Vec<Farewell>,
    /// Messages that have come and were not claimed.
    come: Come,
    /// The offers that were taken back, and not told yet.
    taken_back: Vec<u64>,
    /// All that it gives back when it is closed.
    registered: Registered,
}

impl Receiver {
    /// Opens the receiver's end, in memory of its own, which it lends by itself.
    ///
    /// # Errors
    /// If the settings cannot be, or the host has no room.
    pub fn open(host: &dyn Gate, config: IndirectConfig) -> Result<Self, OpenError> {
        config.check()?;
        let memory = Arc::new(Region::new(config.memory_len() as usize)?);
        Self::open_in(host, config, memory)
    }

    /// The same in the application's memory, from its beginning on. Other ends may not use it.
    ///
    /// # Errors
    /// As [`Receiver::open`], and if the memory is shorter than [`IndirectConfig::memory_len`].
    pub fn open_in(
        host: &dyn Gate,
        config: IndirectConfig,
        memory: Arc<Region>,
    ) -> Result<Self, OpenError> {
        config.check()?;
        let refuse = |what, value, why| Err(OpenError::Settings { what, value, why });
        if (memory.len() as u64) < config.memory_len() {
            let (value, why) = (memory.len() as u64, "ask the settings for its length");
            return refuse("the memory of buffers, in bytes,", value, why);
        }
        if config.senders > config.buffers {
            let why = "it must be no more than there are buffers, as each sender is lent one";
            return refuse("the number of senders", config.senders.into(), why);
        }
        let mut it = Self::open_unlent(host, config, memory)?;
        let offsets = (0..u64::from(config.buffers)).map(|buffer| buffer * config.stride());
        // The first is lent first.
        it.pool = Some(offsets.rev().collect());
        Ok(it)
    }

    /// Opens the receiver's end in the application's memory, of which nothing is lent but what the
    /// application [offers](Receiver::offer).
    ///
    /// # Errors
    /// As [`Receiver::open`], and if the memory is longer than 32 GiB.
    pub fn open_unlent(
        host: &dyn Gate,
        config: IndirectConfig,
        memory: Arc<Region>,
    ) -> Result<Self, OpenError> {
        opened(host, |host| {
            config.check()?;
            if memory.len() as u64 > MEMORY_MAX {
                let (what, value) = ("the memory of buffers, in bytes,", memory.len() as u64);
                return Err(OpenError::Settings { what, value, why: "it must be 32 GiB at most" });
            }
            let layout = ReceiveQueueLayout::new(config.buffers, 0)?;
            let none = Permissions::NONE;
            let mut queue = host.receive_queue(layout, none).map_err(OpenError::Host)?;
            queue.post_all();
            let epochs = Epochs::open(host, config.epochs.into(), |host, [key]| {
                let permissions = Permissions::WRITE | Permissions::NOTIFY;
                let memory = host.register(memory, key, permissions, Some(&queue));
                Ok([memory.map_err(OpenError::Host)?])
            })?;
            Ok(Self {
                config,
                epochs,
                queue,
                pool: None,
                may_lend: false,
                lent: BTreeMap::new(),
                seats: BTreeMap::new(),
                next_seat: 0,
                notices: Vec::new(),
                farewells: Vec::new(),
                come: Come::default(),
                taken_back: Vec::new(),
                registered: Registered::default(),
            })
        })
    }

    /// Admits `peer` as a sender, and returns the terms to send to it. The peer tells how it is
    /// told of buffers: [`Receiver::accept`].
    ///
    /// # Errors
    /// If it is a sender already, there are as many as there can be, or the host makes no grants.
    pub fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, OpenError> {
        let refuse = |what, value, why| Err(OpenError::Settings { what, value, why });
        if self.seats.values().any(|seat| seat.peer == peer) {
            let why = "events tell senders apart by process; take back what it has first";
            return refuse("the number of ends of one sender", 2, why);
        }
        let senders = self.seats.len() as u64 + 1;
        if senders > self.config.senders.into() {
            return refuse("the number of senders", senders, "no more than were to be");
        }
        let grants = self.epochs.grants(host, peer, &EACH).map_err(OpenError::Host)?;
        let (us, agreed) = (host.identity(), self.config.agreed());
        let needs = Needs { us, agreed, side: Side::Receiver, grants: &[OpType::Notify] };
        let number = self.next_seat;
        self.next_seat += 1;
        let arrivals = Arrivals::new(self.config.lent.into());
        let (epoch, lent, standing) = (self.epochs.epoch(), Position::ZERO, Standing::Present);
        let seat = Seat { peer, grant: None, epoch, lent, arrivals, standing };
        self.seats.insert(number, seat);
        Ok(Half::new(needs, grants, move |told| Admitted {
            seat: number,
            from: Position::ZERO,
            grant: Some(told[0]),
        }))
    }

    /// Lends buffers to a sender that was admitted, and has told its terms, from now on.
    ///
    /// # Errors
    /// If those are not terms of that sender.
    pub fn accept(&mut self, half: Half<Admitted>, theirs: &Terms) -> Result<(), TermsError> {
        self.seat(half.complete(theirs)?);
        Ok(())
    }

    /// Takes back a sender's unused buffers and its grants: it is no longer a sender, and the next
    /// polls tell it so, if they can. Messages that have come in order stay where they are. The
    /// others go on in the next epoch, but for those whose grants are used up: they need new terms.
    /// Returns the offsets of the buffers that are the application's again, if it offers them
    /// itself.
    ///
    /// # Errors
    /// If the host refuses. It must be tried again, and until then nobody can write.
    pub fn take_back(&mut self, host: &dyn Gate, from: Peer) -> Result<Vec<u64>, RecoverError> {
        self.epochs.fence(host).map_err(RecoverError::Host)?;
        // Messages that came just before the fence.
        self.gather();
        let is_out = |seat: &Seat| seat.peer == from;
        let seats: Vec<u64> =
            self.seats.iter().filter(|(_, seat)| is_out(seat)).map(|(&number, _)| number).collect();
        let out = seats.iter().filter_map(|number| self.seats.remove(number)?.grant);
        self.farewells.extend(out.map(Farewell::new));
        let is_void = |lend: &Lend| seats.contains(&lend.seat) && lend.stage != Stage::Out;
        let void = self.lent.iter().filter(|(_, lend)| is_void(lend)).map(|(&offset, _)| offset);
        self.taken_back.extend(void);
        self.lent.retain(|_, lend| !is_void(lend));
        self.epochs.resume(host).map_err(RecoverError::Host)?;
        let others: Vec<(u64, Lend)> = self.lent.iter().map(|(&at, &lend)| (at, lend)).collect();
        for (offset, Lend { seat, number, stage }) in others {
            let is_told = |it: &Notice| it.seat == seat && it.number == number;
            // One that is under way is told again as soon as that is over.
            if stage == Stage::Lent && !self.notices.iter().any(is_told) {
                self.notices.push(Notice { seat, number, offset, call: None, again: None });
            }
        }
        let mut taken_back = core::mem::take(&mut self.taken_back);
        if let Some(pool) = &mut self.pool {
            pool.append(&mut taken_back);
            self.may_lend = true;
        }
        Ok(taken_back)
    }

    /// The senders that were admitted, and what they have.
    pub fn senders(&self) -> impl Iterator<Item = Borrower> + '_ {
        let borrower = |seat: &Seat| {
            let (peer, has, standing) = (seat.peer, seat.has(), seat.standing);
            Borrower { peer, has, standing }
        };
        self.seats.values().map(borrower)
    }

    /// The memory that buffers are in.
    #[must_use]
    pub const fn memory(&self) -> &RegisteredRegion {
        &self.epochs.regions()[0]
    }

    /// Returns the place of one of this receiver's messages, in the memory that it was opened with:
    /// its range in bytes. It stays there until it is given back.
    #[must_use]
    pub const fn place(&self, claim: &Claim) -> (&RegisteredRegion, Range<u64>) {
        (self.memory(), claim.record.range())
    }

    /// Takes the events that there are.
    fn gather(&mut self) {
        while let Some(event) = self.queue.poll() {
            // It was polled just now.
            let _ = self.queue.post(event.receive);
            if let Err(malformed) = self.take(&event) {
                let from = Peer { address: event.initiator, pid: event.pid };
                let seat = self.seats.values_mut().find(|seat| seat.peer == from);
                if let Some(seat) = seat.filter(|it| !matches!(it.standing, Standing::Malformed(_)))
                {
                    seat.standing = Standing::Malformed(malformed);
                }
            }
        }
    }

    /// A message has come, if it can have.
    fn take(&mut self, event: &Event) -> Result<(), Malformed> {
        let &Event { immediate, region_offset, len, .. } = event;
        let end = region_offset.saturating_add(len.into());
        let malformed = Malformed::Event { immediate, end, len };
        let found = self.lent.range_mut(..=region_offset).next_back();
        let (&offset, lend) = found.ok_or(malformed)?;
        let seat = self.seats.get_mut(&lend.seat).ok_or(malformed)?;
        let (number, whole) = (Position::from_bits(immediate), end.saturating_sub(offset));
        let is_message = event.region == self.epochs.regions()[0].id()
            && (event.initiator, event.pid) == (seat.peer.address, seat.peer.pid)
            && !matches!(seat.standing, Standing::Malformed(_))
            && (lend.number, lend.stage) == (number, Stage::Lent)
            && (1..=u64::from(self.config.len_max)).contains(&whole);
        if !is_message {
            return Err(malformed);
        }
        seat.arrivals.insert(number, Record { position: number, offset, len: whole as u32 })?;
        lend.stage = Stage::Come;
        while let Some((_, record)) = seat.arrivals.take() {
            if let Some(lend) = self.lent.get_mut(&record.offset) {
                lend.stage = Stage::Out;
            }
            self.come.push(record, seat.peer);
        }
        Ok(())
    }
}

gives_back!(Receiver);

impl Claims for Receiver {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        self.gather();
        Ok(self.come.claim())
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        read(self.memory(), &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        let offset = claim.record.offset;
        let Some(lend) = self.lent.remove(&offset) else { return };
        if let Some(seat) = self.seats.get_mut(&lend.seat) {
            seat.arrivals.give_back(lend.number);
        }
        if let Some(pool) = &mut self.pool {
            pool.push(offset);
            self.may_lend = true;
        }
    }

    /// When a sender is told again that could not be.
    fn poll_timeout(&self) -> Option<Instant> {
        let idle = self.notices.iter().filter(|notice| notice.call.is_none());
        let notices = idle.filter_map(|notice| notice.again.map(|it| it.at));
        notices.chain(self.farewells.iter().filter_map(Farewell::at)).min()
    }
}

impl receiver::Receiver for Receiver {
    /// Lends what is free, and tells of it; and those that are out that they are.
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.gather();
        if self.may_lend {
            self.lend();
        }
        let mut index = 0;
        while index < self.notices.len() {
            if self.tell(link, now, index)? {
                index += 1;
            } else {
                self.notices.swap_remove(index);
            }
        }
        self.farewells.retain_mut(|it| it.tell(link, now, self.config.patience));
        Ok(())
    }
}

impl End for Receiver {
    fn admit(&mut self, host: &dyn Gate, peer: Peer) -> Result<Half<Admitted>, OpenError> {
        Self::admit(self, host, peer)
    }

    fn seat(&mut self, Admitted { seat, grant, .. }: Admitted) {
        if let Some(seat) = self.seats.get_mut(&seat) {
            seat.grant = grant;
        }
        self.may_lend = true;
    }

    fn events(&self) -> Option<&ReceiveQueue> {
        Some(&self.queue)
    }

    fn take_back(&mut self, host: &dyn Gate, from: Peer) -> Result<(), RecoverError> {
        Self::take_back(self, host, from).map(drop)
    }
}

impl Blocking for Receiver {
    fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }
}
