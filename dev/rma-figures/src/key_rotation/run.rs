//! The clients' side of a number of rotations: one loop that issues, turns the engine, looks what
//! has come, and turns one connection to the service.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_bench::{client::Client, error::PairError, interrupt::Interrupt};
use rma_core::time::Instant;
use rma_xdp::time::Clock;

use super::{
    desk::{Desk, Swapped},
    history::{Deed, History, What},
    party::{Other, ThirdParty},
    prober::Prober,
    scene::{Kind, REGION_LEN, Rotations, SIZE},
};

/// Reads of the reader of the other region after all clients are back, before the next rotation is
/// prepared.
const AFTER: u64 = 4;

/// Deeds of the reader of the other region that are kept.
const OTHERS: usize = 512;

/// Turns of the engine after which a connection is turned in any case.
const TURNS_MAX: u32 = 256;

/// The state of a run of rotations.
pub(super) struct Run<'a> {
    client: &'a mut Client,
    probers: Vec<Prober>,
    other: Other,
    third: ThirdParty,
    desk: &'a Desk,
    random: StdRng,
    rotations: Rotations,
    /// Clients whose fetch is under way, in the order in which they are turned.
    fetching: VecDeque<usize>,
    /// The client that is looked at next, whether it wants to ask something.
    next: usize,
    /// The last change of the key.
    swap: Option<Deed>,
    others: VecDeque<Deed>,
    /// How many histories are kept.
    histories: usize,
    /// Turns of the engine since a connection was last turned.
    turns: u32,
    /// The latest epoch whose key was refused to somebody who had no other.
    refused: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        client: &'a mut Client,
        (probers, other, third): (Vec<Prober>, Other, ThirdParty),
        desk: &'a Desk,
        (rotations, histories): (Rotations, usize),
    ) -> Self {
        Self {
            random: StdRng::seed_from_u64(client.pattern.seed()),
            client,
            fetching: VecDeque::with_capacity(probers.len()),
            probers,
            other,
            third,
            desk,
            rotations,
            next: 0,
            swap: None,
            others: VecDeque::with_capacity(OTHERS),
            histories,
            turns: 0,
            refused: 0,
        }
    }

    pub(super) fn all(mut self, count: u64, interrupt: &Interrupt) -> Result<Rotations, PairError> {
        // One after the other: a service lets few strangers of one address in at a time.
        for i in 0..self.probers.len() {
            while self.probers[i].keys.grant(self.client.clock.now())?.is_none() {
                self.probers[i].keys.ask(self.client.clock.now());
                self.client.host.turn();
                self.probers[i].keys.turn(|| self.client.clock.now())?;
                if interrupt.is_set() {
                    return Err(PairError::Interrupted);
                }
            }
        }
        // Nothing counts before the first rotation is over: nobody has asked a second time yet.
        self.one(interrupt)?;
        let Rotations { kind, clients, .. } = self.rotations;
        self.rotations = Rotations::new(kind, clients);
        let before = self.counters();
        for _ in 0..count {
            self.one(interrupt)?;
            self.keep();
        }
        let after = self.counters();
        (self.rotations.fetches, self.rotations.spurious) =
            (after.0 - before.0, after.1 - before.1);
        while self.other.is_reading() || self.probers.iter().any(Prober::is_reading) {
            self.client.host.turn();
            self.poll()?;
        }
        Ok(self.rotations)
    }

    /// Fetches, and those that brought nothing new.
    fn counters(&self) -> (u64, u64) {
        let counters = self.probers.iter().map(|it| it.keys.cache.counters());
        counters
            .fold((0, 0), |(fetches, spurious), it| (fetches + it.fetches, spurious + it.spurious))
    }

    /// One rotation, until all clients read under its key, and a little longer.
    fn one(&mut self, interrupt: &Interrupt) -> Result<(), PairError> {
        // At any moment of a read, not always at the same.
        let mut before: u32 = self.random.random_range(16..256);
        let mut epoch = None;
        let mut back: Option<u64> = None;
        let mut looks = 0_u32;
        self.probers.iter_mut().for_each(Prober::begin);
        loop {
            self.turn()?;
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(4096) && interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
            if self.rotations.kind == Kind::Reactive && before > 0 {
                before -= 1;
                if before == 0 {
                    self.desk.wanted.put(());
                }
            }
            if let Some(Swapped { epoch: number, at }) = self.desk.swapped.take() {
                epoch = Some(number);
                let nanos = Instant::from_nanos;
                let what = What::Swap;
                let swap = at.map(|it| Deed { row: 0, what, from: nanos(it.0), to: nanos(it.1) });
                self.swap = swap.or(self.swap);
            }
            let Some(epoch) = epoch else { continue };
            let others = self.rotations.other_ops;
            match back {
                Some(since) if others >= since + AFTER => break,
                None if self.probers.iter().all(|it| it.proven >= epoch) => back = Some(others),
                _ => {}
            }
        }
        self.rotations.count += 1;
        Ok(())
    }

    fn turn(&mut self) -> Result<(), PairError> {
        let mut place = || self.random.random_range(0..REGION_LEN as u64 / u64::from(SIZE));
        for prober in &mut self.probers {
            prober.issue(&self.client.clock, place())?;
        }
        self.other.issue(self.client, place())?;
        self.client.host.turn();
        self.poll()?;
        if let Some(swap) = self.third.turn(self.client, self.desk)? {
            self.swap = Some(swap);
        }
        // One thread plays all clients. The connection of one is not turned while another's read
        // under a key that is refused is still out: that one would wait for what it never would
        // as a process of its own.
        self.turns += 1;
        let refused = self.refused;
        if self.turns >= TURNS_MAX || !self.probers.iter().any(|it| it.reads_under(refused)) {
            self.turns = 0;
            self.fetch()?;
        }
        Ok(())
    }

    /// Turns the connection of one client that fetches.
    fn fetch(&mut self) -> Result<(), PairError> {
        let clock = &self.client.clock;
        // When it is time to, somebody asks what the next key is.
        self.next = (self.next + 1) % self.probers.len();
        let keys = &mut self.probers[self.next].keys;
        if !keys.is_fetching() && keys.ask(clock.now()) && !self.fetching.contains(&self.next) {
            self.fetching.push_back(self.next);
        }
        if let Some(i) = self.fetching.pop_front()
            && self.probers[i].turn(clock, (&mut self.rotations, i))?
        {
            self.fetching.push_back(i);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), PairError> {
        let Self { client, probers, other, rotations, fetching, others, refused, .. } = self;
        let all_probe = fetching.is_empty();
        for (i, prober) in probers.iter_mut().enumerate() {
            if let Some(epoch) = prober.poll(&client.clock, (rotations, i), all_probe)? {
                *refused = epoch.max(*refused);
                if !fetching.contains(&i) {
                    fetching.push_back(i);
                }
            }
        }
        if let Some(deed) = other.poll(&client.clock) {
            rotations.other_ops += 1;
            rotations.other_failed += u64::from(deed.what != What::Read);
            if others.len() == OTHERS {
                others.pop_front();
            }
            others.push_back(deed);
        }
        Ok(())
    }

    /// Keeps what has just happened.
    fn keep(&mut self) {
        if self.rotations.histories.len() < self.histories {
            let deeds = self.probers.iter().flat_map(|it| it.deeds.iter().copied()).collect();
            let others = self.others.iter().copied().collect();
            self.rotations.histories.push(History { deeds, others, swap: self.swap });
        }
    }
}
