//! Recorded ops over a hostile wire, and a SETTLE for each whose end its initiator does not know:
//! FETCH_ADDs and ordered WRITEs are here, those that tell an application of themselves in
//! [`events`], COMPARE_SWAPs in [`swaps`].
//!
//! What must hold, whatever the wire does: an op is applied once or not at all, in whole; what its
//! status or a SETTLE says of it is true, and stays so. So much is promised of plain WRITEs that
//! [`worker`](super::worker) is for; here there is nothing between all and nothing, and no late
//! effect after a verdict.

use core::time::Duration;
use std::collections::BTreeSet;

use rma_core::{
    outcome::{OpName, Verdict},
    portal::{Change, RecordedOp, Source},
};
use rma_lab::Pattern;
use rma_sim::prng::Prng;
use rma_xdp::{
    Completion, Grant, Host, OpStatus, OpType, Permissions, Portal, RegionKey, RegisteredRegion,
    metrics::MetricsSource,
    ops::{ClassOfService, CommandSlotId},
};

use super::{
    faults::Faults,
    lab::Ends,
    table::{Circumstances, Kind, Outcomes, allows, stood_still},
};
use crate::hosts::CLIENT_PID;

pub mod events;
pub mod swaps;

const SLOTS: u16 = 16;
const SOURCE_LEN: u64 = 1 << 20;

/// Bytes of a place: room for the largest op, and for what must not change around it.
const PLACE: usize = 4096 + 512;

/// More places than ops under way, so that a place rests for a while after its op is over.
const PLACES: usize = 4 * SLOTS as usize;

/// How often an op is asked about whose end is not known. Each time the wire may lose it.
const ASKED_MAX: u32 = 12;

/// How long an op is waited for that may never end.
const OP_PATIENCE: Duration = Duration::from_secs(60);

/// The end of an op, as far as can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Once, and this is its result, if it has one.
    Applied(Option<u64>),
    /// It has not happened, and will not.
    NotApplied,
    /// Once or never: nobody can tell.
    Unknown,
}

/// The changes of recorded ops of one type, and the check of their effects.
pub trait Effect {
    /// The type that its ops are of.
    const OP_TYPE: OpType;

    /// Memory for it at both ends.
    fn new(ends: &Ends, prng: &mut Prng) -> Self;

    /// The region at the server that its ops are on.
    fn remote(&self) -> &RegisteredRegion;

    /// Issues an op, and names it by a number.
    fn issue(
        &mut self,
        portal: &mut Portal,
        grant: &Grant,
        prng: &mut Prng,
    ) -> (CommandSlotId, u64);

    /// That op has ended with TIMEOUT, and may have been applied. From now on it changes nothing.
    fn timed_out(&mut self, _op: u64) {}

    /// That op has ended. Panics if its effect is not as it must be.
    fn ended(&mut self, op: u64, known: Known, prng: &mut Prng);

    /// No op is under way. Panics if anything has changed that no op has.
    fn assert_at_rest(&mut self);

    /// How often something has changed after its op had timed out, at least. The server's NIC must
    /// have counted each.
    fn late_effects(&self) -> u64 {
        0
    }

    /// Returns the bytes of ops that the wire must not see.
    fn secrets(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// The job of a slot.
#[derive(Clone, Copy, Debug)]
enum Job {
    Op(u64),
    Settle { op: u64, name: OpName, asked: u32 },
}

/// Issues recorded ops of one type, and asks about those whose end it does not know.
#[derive(Debug)]
pub struct RecordedWorker<E> {
    prng: Prng,
    effect: E,
    grant: Grant,
    /// By slot: whether the key has changed since its op was issued.
    key_gone: Vec<bool>,
    client: MetricsSource,
    portal: Portal,
    /// By slot, from the portal's first.
    jobs: Vec<Option<Job>>,
    outcomes: Outcomes,
    applied: u64,
    /// How often each verdict was heard, in the order of [`Verdict::ALL`].
    verdicts: [u64; 3],
    unknown: u64,
}

impl<E: Effect> RecordedWorker<E> {
    /// Registers regions at both hosts.
    ///
    /// # Panics
    /// If there is no room for them.
    #[must_use]
    pub fn new(ends: &Ends) -> Self {
        let mut prng = Prng::new(ends.setup.seed).fork(16 + E::OP_TYPE as u64);
        let effect = E::new(ends, &mut prng);
        let server = ends.server();
        let grant = server.grant(effect.remote(), ends.client_addr(), CLIENT_PID, E::OP_TYPE);
        Self {
            prng,
            grant: grant.expect("registered"),
            effect,
            key_gone: vec![false; SLOTS.into()],
            client: ends.client().metrics_source().clone(),
            portal: ends.client().portal(SLOTS).expect("slots"),
            jobs: vec![None; SLOTS.into()],
            outcomes: Outcomes::default(),
            applied: 0,
            verdicts: [0; 3],
            unknown: 0,
        }
    }

    /// Has `count` ops run, as many at once as there are slots, and asks about them until their
    /// ends are known.
    ///
    /// # Panics
    /// If anything is not as it must be.
    pub fn run(&mut self, count: usize, faults: &Faults) {
        let mut issued = 0;
        loop {
            issued += self.begin(count - issued);
            if self.portal.outstanding() == 0 {
                break;
            }
            self.take_completion(faults);
        }
        self.effect.assert_at_rest();
    }

    /// Has ops under way whenever the key of their region changes, `rounds` times. From then on
    /// ops and SETTLEs are under the new key, and none fails of the old one.
    ///
    /// # Panics
    /// If anything is not as it must be.
    pub fn run_rekeyed(&mut self, server: &Host, rounds: usize, faults: &Faults) {
        for _ in 0..rounds {
            self.begin(SLOTS.into());
            // Some of them have ended by then, most of the time.
            for _ in 0..self.prng.below(SLOTS.into()) {
                self.take_completion(faults);
            }
            let mut key = [0; 16];
            self.prng.fill(&mut key);
            let key = RegionKey::from_bytes(key);
            server.rekey(self.effect.remote(), key).expect("registered");
            self.grant = self.grant.under(&key);
            self.key_gone.fill(true);
            while self.portal.outstanding() > 0 {
                self.take_completion(faults);
            }
            self.run(SLOTS.into(), faults);
        }
    }

    /// Issues ops, up to `count`, as long as there are free slots. Returns how many.
    fn begin(&mut self, count: usize) -> usize {
        let mut issued = 0;
        while issued < count && self.portal.next_slot().is_some() {
            let (slot, op) = self.effect.issue(&mut self.portal, &self.grant, &mut self.prng);
            self.note(slot, Job::Op(op));
            issued += 1;
        }
        issued
    }

    fn note(&mut self, slot: CommandSlotId, job: Job) {
        let slot = usize::from(slot.0 - self.portal.slots().start);
        (self.jobs[slot], self.key_gone[slot]) = (Some(job), false);
    }

    fn take_completion(&mut self, faults: &Faults) {
        let completion = self.portal.wait_timeout(OP_PATIENCE).expect("the engine lives");
        let completion = completion.expect("every op ends");
        let slot = usize::from(completion.slot.0 - self.portal.slots().start);
        let job = self.jobs[slot].take().expect("one completion for each op");
        let status = completion.status;
        self.outcomes.count(Kind::Good, status);
        let shed = status == OpStatus::DispatchTimeout;
        let stood_still = shed && stood_still(&self.client);
        let key_gone = self.key_gone[slot];
        let circumstances = Circumstances { stood_still, key_gone, ..Circumstances::default() };
        assert!(
            allows(E::OP_TYPE, Kind::Good, status, faults, circumstances),
            "{job:?}: {status} is not explained by these faults: {faults}"
        );
        match job {
            Job::Op(op) => self.op_ended(op, &completion),
            Job::Settle { op, name, asked } => self.settle_ended((op, name, asked), &completion),
        }
    }

    fn op_ended(&mut self, op: u64, completion: &Completion) {
        match completion.status {
            OpStatus::Ok => self.ended(op, Known::Applied(completion.result())),
            OpStatus::Timeout if completion.may_have_changed() => {
                let name = completion.name().expect("it was solicited");
                self.effect.timed_out(op);
                self.ask((op, name, 0));
            }
            status => {
                // Of bytes that land before their event.
                let is_in_part = E::OP_TYPE == OpType::WriteWithImm
                    && status == OpStatus::RemoteAuthenticationFailure;
                assert!(!completion.may_have_changed() || is_in_part, "{completion:?}");
                self.ended(op, Known::NotApplied);
            }
        }
    }

    fn ask(&mut self, (op, name, asked): (u64, OpName, u32)) {
        let slot = self.portal.settle(&self.grant, name).expect("a slot has just become free");
        self.note(slot, Job::Settle { op, name, asked: asked + 1 });
    }

    fn settle_ended(&mut self, (op, name, asked): (u64, OpName, u32), completion: &Completion) {
        match completion.verdict() {
            Some(verdict) => {
                self.verdicts[verdict as usize - 1] += 1;
                let known = match verdict {
                    Verdict::Applied => Known::Applied(completion.result()),
                    Verdict::NotApplied => Known::NotApplied,
                    Verdict::Forgotten => Known::Unknown,
                };
                self.ended(op, known);
            }
            None if asked < ASKED_MAX => self.ask((op, name, asked)),
            None => self.ended(op, Known::Unknown),
        }
    }

    fn ended(&mut self, op: u64, known: Known) {
        match known {
            Known::Applied(_) => self.applied += 1,
            Known::NotApplied => (),
            Known::Unknown => self.unknown += 1,
        }
        self.effect.ended(op, known, &mut self.prng);
    }

    /// Nothing has changed since the last op ended.
    ///
    /// # Panics
    /// If anything has.
    pub fn assert_at_rest(&mut self) {
        self.effect.assert_at_rest();
    }

    /// How often something has changed too late, at least: [`Effect::late_effects`].
    #[must_use]
    pub fn late_effects(&self) -> u64 {
        self.effect.late_effects()
    }

    /// Returns the secrets that the wire must not have seen: [`Effect::secrets`].
    #[must_use]
    pub fn secrets(&self) -> Vec<Vec<u8>> {
        self.effect.secrets()
    }

    /// How many ops were applied, as far as is known; how often each verdict was heard; and of how
    /// many ops nothing is known.
    #[must_use]
    pub const fn known(&self) -> (u64, [u64; 3], u64) {
        (self.applied, self.verdicts, self.unknown)
    }

    /// Returns the outcomes of the ops and the SETTLEs.
    #[must_use]
    pub const fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }
}

/// A word that FETCH_ADDs draw tickets from: no two ever find the same, and none is missing but of
/// those that nothing is known of.
#[derive(Debug)]
pub struct Tickets {
    words: RegisteredRegion,
    found: BTreeSet<u64>,
    issued: u64,
    unknown: u64,
}

/// The offset of the word.
const TICKET_AT: u64 = 64;

impl Effect for Tickets {
    const OP_TYPE: OpType = OpType::FetchAdd;

    fn new(ends: &Ends, _: &mut Prng) -> Self {
        let words = ends.server().register(4096, Permissions::ATOMIC).expect("a region");
        Self { words, found: BTreeSet::new(), issued: 0, unknown: 0 }
    }

    fn remote(&self) -> &RegisteredRegion {
        &self.words
    }

    fn issue(
        &mut self,
        portal: &mut Portal,
        grant: &Grant,
        prng: &mut Prng,
    ) -> (CommandSlotId, u64) {
        let change = Change::FetchAdd { remote_offset: TICKET_AT, addend: 1 };
        let class = prng.choose(&ClassOfService::ALL);
        let op = RecordedOp { grant, change, class };
        self.issued += 1;
        (portal.issue_recorded(&op).expect("a sensible op"), self.issued)
    }

    fn ended(&mut self, _: u64, known: Known, _: &mut Prng) {
        match known {
            Known::Applied(result) => {
                let ticket = result.expect("a FETCH_ADD has a result");
                assert!(self.found.insert(ticket), "ticket {ticket} was drawn twice");
            }
            Known::NotApplied => (),
            Known::Unknown => self.unknown += 1,
        }
    }

    fn assert_at_rest(&mut self) {
        let mut bytes = vec![0; 4096];
        self.words.read(0, &mut bytes).expect("inside");
        let place = TICKET_AT as usize..TICKET_AT as usize + 8;
        let drawn = u64::from_ne_bytes(*bytes[place.clone()].first_chunk().expect("a word"));
        let known = self.found.len() as u64;
        assert!(self.found.last().is_none_or(|&last| last < drawn), "a ticket that nobody drew");
        assert!(
            known <= drawn && drawn <= known + self.unknown,
            "{drawn} were applied: {known} are known, and of {} nothing is",
            self.unknown
        );
        bytes[place].fill(0);
        assert!(bytes.iter().all(|&byte| byte == 0), "no other word has changed");
    }
}

/// Places that ordered WRITEs fill, each in whole or not at all.
#[derive(Debug)]
pub struct Wholes {
    source: RegisteredRegion,
    pattern: Pattern,
    target: RegisteredRegion,
    /// The expected content, at all places that rest.
    model: Vec<u8>,
    free: Vec<usize>,
    /// By place: its op.
    under_way: Vec<Option<Whole>>,
}

/// An ordered WRITE under way.
#[derive(Clone, Copy, Debug)]
struct Whole {
    source: u64,
    /// In the place.
    start: usize,
    size: usize,
}

impl Wholes {
    fn there(&self, place: usize) -> Vec<u8> {
        let mut there = vec![0; PLACE];
        self.target.read((place * PLACE) as u64, &mut there).expect("inside");
        there
    }
}

impl Effect for Wholes {
    const OP_TYPE: OpType = OpType::Write;

    fn new(ends: &Ends, prng: &mut Prng) -> Self {
        let permissions = Permissions::WRITE;
        let source = ends.client().register(SOURCE_LEN as usize, Permissions::NONE);
        let source = source.expect("a region");
        let pattern = Pattern::new(prng.next());
        pattern.fill_region(&source);
        Self {
            source,
            pattern,
            target: ends.server().register(PLACES * PLACE, permissions).expect("a region"),
            model: vec![0; PLACES * PLACE],
            free: (0..PLACES).collect(),
            under_way: vec![None; PLACES],
        }
    }

    fn remote(&self) -> &RegisteredRegion {
        &self.target
    }

    fn issue(
        &mut self,
        portal: &mut Portal,
        grant: &Grant,
        prng: &mut Prng,
    ) -> (CommandSlotId, u64) {
        let place = self.free.swap_remove(prng.below(self.free.len() as u64) as usize);
        let size = match prng.below(3) {
            0 => 8,
            1 => 4096,
            _ => 8 * prng.between(1, 512) as usize,
        };
        let start = 8 * prng.below(((PLACE - size) / 8) as u64) as usize;
        let source = prng.below(SOURCE_LEN - size as u64);
        self.under_way[place] = Some(Whole { source, start, size });
        let change = Change::OrderedWrite {
            remote_offset: (place * PLACE + start) as u64,
            source: Source { region: &self.source, offset: source, len: size as u32 },
        };
        let class = prng.choose(&ClassOfService::ALL);
        let op = RecordedOp { grant, change, class };
        (portal.issue_recorded(&op).expect("a sensible op"), place as u64)
    }

    fn ended(&mut self, op: u64, known: Known, prng: &mut Prng) {
        let place = op as usize;
        let Whole { source, start, size } = self.under_way[place].take().expect("it was issued");
        let there = self.there(place);
        let model = &mut self.model[place * PLACE..][..PLACE];
        let is_as_before = there == *model;
        self.pattern.fill(source, &mut model[start..start + size]);
        let is_whole = there == *model;
        match known {
            Known::Applied(_) => assert!(is_whole, "{size} bytes at {start} of {place}: not all"),
            Known::NotApplied => assert!(is_as_before, "{size} bytes at {start} of {place}: some"),
            Known::Unknown => {
                assert!(is_whole || is_as_before, "{size} bytes at {start} of {place}: a part");
                // It may still change, for all that is known here: nobody looks any longer.
                model.fill(0);
                return;
            }
        }
        // Other bytes: should the op happen again, it will be seen.
        prng.fill(model);
        self.target.write((place * PLACE) as u64, model).expect("inside");
        self.free.push(place);
    }

    fn assert_at_rest(&mut self) {
        for &place in &self.free {
            let model = &self.model[place * PLACE..][..PLACE];
            assert!(self.there(place) == *model, "place {place} changed after its op");
        }
        assert!(self.free.len() >= usize::from(SLOTS), "too little is known");
        let mut source = vec![0; SOURCE_LEN as usize];
        self.source.read(0, &mut source).expect("inside");
        assert_eq!(self.pattern.first_difference(0, &source), None, "the source never changes");
    }
}
