//! READ over a hostile wire: random sizes and places, every byte of the sink held against a model.
//!
//! What must hold, whatever the wire does: an op that is reported OK brought the right bytes and no others; one that
//! is reported otherwise brought right granules or none; nothing lands after the report, nor outside an op's place,
//! ever; the table explains each status; every op ends within its bound. And once the wire is good again,
//! reads arrive.

use core::{ops::Range, time::Duration};

use rma_bench::pattern::Pattern;
use rma_core::limits::GRANULE;
use rma_sim::prng::Prng;
use rma_xdp::{
    ClassOfService, Completion, DerivedRegionKey, DropReason, Grant, Host, OpStatus, Permissions,
    Portal, ReadOp, RegionId, RegisteredRegion,
};

use super::{
    faults::{Faults, Tally},
    lab::Ends,
    table::{Circumstances, Kind, Outcomes, allows},
};
use crate::hosts::CLIENT_PID;

const REGION_LEN: usize = 1 << 20;
const SLOTS: u16 = 16;
/// Bytes of a place for one op: room for the largest, and for what must not change around it.
const PLACE: usize = 4096 + 512;
/// More places than slots, so that a place rests for a while after its op is over.
const PLACES: usize = 3 * SLOTS as usize;

/// What the scheduler of a busy machine may add to an op's bound.
const NOISE: Duration = Duration::from_secs(3);

/// How often a read may be lost on a good wire before that is called dead: the machine may be busy.
const ATTEMPTS: u32 = 20;

/// How a run went.
#[derive(Debug)]
pub struct Report {
    /// How the ops ended.
    pub outcomes: Outcomes,
    /// Reads on the good wire that had to be repeated.
    pub repeated: u32,
    /// What the wire did.
    pub tally: Tally,
}

impl core::fmt::Display for Report {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { outcomes, repeated, tally } = self;
        write!(f, "{outcomes}{repeated} repeated; {tally}")
    }
}

/// One op in flight.
#[derive(Clone, Copy, Debug)]
struct Op {
    kind: Kind,
    place: usize,
    /// In the sink.
    offset: usize,
    size: usize,
    remote: u64,
}

/// A region that is read from, a place where the data lands, and the model of both.
#[derive(Debug)]
pub struct Reader {
    prng: Prng,
    pattern: Pattern,
    region: RegisteredRegion,
    closed: Grant,
    grant: Grant,
    portal: Portal,
    sink: RegisteredRegion,
    /// What the sink must hold, but for places with an op in flight.
    model: Vec<u8>,
    /// By slot, from the portal's first.
    ops: Vec<Option<Op>>,
    free: Vec<usize>,
    bound: Duration,
    outcomes: Outcomes,
}

impl Reader {
    /// Registers a region at the server and a sink at the client.
    ///
    /// # Panics
    /// If there is no room for them.
    #[must_use]
    pub fn new(ends: &Ends, seed: u64) -> Self {
        let server = ends.server();
        let region = server.register(REGION_LEN, Permissions::READ).expect("a region");
        let pattern = Pattern::new(seed);
        pattern.fill_region(&region);
        let closed = server.register(4096, Permissions::NONE).expect("a region");
        let granted =
            |region| server.grant(region, ends.client_addr(), CLIENT_PID).expect("registered");
        let timing = ends.setup.nic.timing;
        Self {
            prng: Prng::new(seed).fork(2),
            pattern,
            grant: granted(&region),
            closed: granted(&closed),
            region,
            portal: ends.client().portal(SLOTS).expect("slots"),
            sink: ends.client().register(PLACES * PLACE, Permissions::NONE).expect("a sink"),
            model: vec![0; PLACES * PLACE],
            ops: vec![None; SLOTS.into()],
            free: (0..PLACES).collect(),
            bound: timing.dispatch_timeout + timing.timeout + NOISE,
            outcomes: Outcomes::default(),
        }
    }

    /// Has `count` reads of all kinds run, as many at once as there are slots.
    ///
    /// # Panics
    /// If anything is not as it must be.
    pub fn read_all(&mut self, count: usize, faults: &Faults, circumstances: Circumstances) {
        let mut issued = 0;
        loop {
            while issued < count && self.portal.next_slot().is_some() {
                self.issue();
                issued += 1;
            }
            if self.portal.outstanding() == 0 {
                return;
            }
            let completion = self.portal.wait().expect("the engine lives");
            self.settle(&completion, faults, circumstances);
        }
    }

    fn issue(&mut self) {
        let kind = match self.prng.below(20) {
            0 => Kind::OutOfBounds,
            1 => Kind::WrongKey,
            2 => Kind::NoRegion,
            3 => Kind::NotPermitted,
            _ => Kind::Good,
        };
        let size = match self.prng.below(3) {
            0 => self.prng.between(1, 200),
            1 => 4096 - self.prng.below(100),
            _ => self.prng.between(1, 4096),
        };
        let region_len = REGION_LEN as u64;
        let (remote, grant) = match kind {
            Kind::Good => (self.prng.below(region_len - size), self.grant),
            Kind::OutOfBounds => {
                let past = [region_len - size + 1, region_len, u64::MAX - size, u64::MAX];
                (self.prng.choose(&past), self.grant)
            }
            Kind::WrongKey => {
                let mut key = *self.grant.key.expose();
                key[self.prng.below(16) as usize] ^= 1 << self.prng.below(8);
                (0, Grant { key: DerivedRegionKey::from_bytes(key), ..self.grant })
            }
            Kind::NoRegion => {
                let region = RegionId::from_bits(0xffff_0000 | self.prng.below(1 << 16) as u32);
                (0, Grant { region, ..self.grant })
            }
            Kind::NotPermitted => (0, self.closed),
        };
        let place = self.free.swap_remove(self.prng.below(self.free.len() as u64) as usize);
        let start = place * PLACE;
        let offset = start + self.prng.between(1, (PLACE - 1) as u64 - size) as usize;
        // Since its last op was over, nothing has landed there.
        self.assert_rested(place);
        self.prng.fill(&mut self.model[start..start + PLACE]);
        self.sink.write(start as u64, &self.model[start..start + PLACE]).expect("inside");
        let op = Op { kind, place, offset, size: size as usize, remote };
        let slot = self.portal.next_slot().expect("looked at already");
        self.ops[usize::from(slot.0 - self.portal.slots().start)] = Some(op);
        let class = self.prng.choose(&ClassOfService::ALL);
        let issued = self.portal.issue_read(&ReadOp {
            grant: &grant,
            remote_offset: remote,
            sink: &self.sink,
            sink_offset: offset as u64,
            op_size: size as u32,
            class,
        });
        assert_eq!(issued, Ok(slot), "a sensible op");
    }

    /// Holds what an op has left behind against the model.
    fn settle(&mut self, completion: &Completion, faults: &Faults, circumstances: Circumstances) {
        let slot = usize::from(completion.slot.0 - self.portal.slots().start);
        let op = self.ops[slot].take().expect("one completion for each op");
        let status = completion.status;
        self.outcomes.count(op.kind, status);
        assert!(
            allows(op.kind, status, faults, circumstances),
            "{status} is not explained by these faults: {faults}; {op:?}"
        );
        assert!(completion.total_delay() < self.bound, "{completion:?} took too long, {op:?}");

        let mut there = vec![0; PLACE];
        let start = op.place * PLACE;
        self.sink.read(start as u64, &mut there).expect("inside");
        let span = op.offset - start..op.offset - start + op.size;
        let before = &self.model[start..start + PLACE];
        let same = |range: Range<usize>| there[range.clone()] == before[range];
        assert!(same(0..span.start) && same(span.end..PLACE), "bytes around {op:?} changed");
        for granule in (0..op.size).step_by(GRANULE as usize) {
            let end = (granule + GRANULE as usize).min(op.size);
            let range = span.start + granule..span.start + end;
            let remote = op.remote.wrapping_add(granule as u64);
            let right = op.kind == Kind::Good
                && self.pattern.first_difference(remote, &there[range.clone()]).is_none();
            let untouched = same(range);
            let well = if status == OpStatus::Ok { right } else { right || untouched };
            assert!(well, "bytes {granule}..{end} of {op:?} are wrong after {status}");
        }
        self.model[start..start + PLACE].copy_from_slice(&there);
        self.free.push(op.place);
    }

    fn assert_rested(&self, place: usize) {
        let start = place * PLACE;
        let mut there = vec![0; PLACE];
        self.sink.read(start as u64, &mut there).expect("inside");
        let model = &self.model[start..start + PLACE];
        let changed = there.iter().zip(model).position(|(there, model)| there != model);
        assert_eq!(changed, None, "place {place} changed after its op was over");
    }

    /// Nothing in flight has left a trace: the whole sink and the whole region are as the model says.
    ///
    /// # Panics
    /// If they are not.
    pub fn assert_at_rest(&self) {
        for place in 0..PLACES {
            self.assert_rested(place);
        }
        let mut region = vec![0; REGION_LEN];
        self.region.read(0, &mut region).expect("inside");
        assert_eq!(self.pattern.first_difference(0, &region), None, "reads change nothing");
    }

    /// On a good wire reads arrive. Returns how many had to be repeated.
    ///
    /// # Panics
    /// If one never arrives.
    pub fn assert_alive(&mut self) -> u32 {
        let mut repeated = 0;
        for size in [1, 64, 1408, 4096].repeat(25) {
            let remote = self.prng.below(REGION_LEN as u64 - u64::from(size));
            let mut attempt = 0;
            loop {
                self.portal.read(&self.grant, remote, &self.sink, 0, size).expect("a sensible op");
                let status = self.portal.wait().expect("the engine lives").status;
                if status == OpStatus::Ok {
                    break;
                }
                assert_eq!(status, OpStatus::Timeout, "the wire is good");
                attempt += 1;
                assert!(attempt < ATTEMPTS, "{attempt} reads on a good wire, all lost");
            }
            repeated += attempt;
            let there = &mut self.model[..size as usize];
            self.sink.read(0, there).expect("inside");
            assert_eq!(self.pattern.first_difference(remote, there), None, "{size} at {remote}");
        }
        repeated
    }

    /// The right to read the region.
    #[must_use]
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The region.
    #[must_use]
    pub const fn region(&self) -> &RegisteredRegion {
        &self.region
    }

    /// What the region holds.
    #[must_use]
    pub const fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// How the ops ended up to now.
    #[must_use]
    pub const fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }
}

/// `count` reads while the wire has `faults`; then what ever came by once more; then reads on a good wire.
///
/// # Panics
/// If anything is not as it must be.
pub fn run(ends: &Ends, count: usize, faults: &Faults, circumstances: Circumstances) -> Report {
    let mut reader = Reader::new(ends, ends.setup.seed);
    ends.wire().set_faults(*faults);
    reader.read_all(count, faults, circumstances);
    ends.wire().calm();
    reader.assert_at_rest();
    let repeated = reader.assert_alive();
    ends.wire().replay_all(true);
    reader.assert_at_rest();
    let repeated = repeated + reader.assert_alive();
    let tally = ends.wire().tally();
    tally.assert_each_happened(faults);
    assert_nics_have_seen_it(ends);
    assert!(reader.outcomes.of(Kind::Good, OpStatus::Ok) > 0, "some must get through");
    Report { outcomes: reader.outcomes, repeated, tally }
}

/// What the wire made has reached the NICs, and they have told it from what hosts send.
fn assert_nics_have_seen_it(ends: &Ends) {
    let seen = |host: &Host, reasons: &[DropReason]| {
        for &reason in reasons {
            let all: Vec<_> = host.counters().all_drops().collect();
            assert!(host.counters().drops(reason) > 0, "{reason:?} never happened: {all:?}");
        }
    };
    use DropReason::{
        Duplicate, LateOrUnsolicited, RequestUnauthenticated, ResponseUnauthenticated,
        UnknownRegion,
    };
    seen(ends.client(), &[Duplicate, LateOrUnsolicited, ResponseUnauthenticated, UnknownRegion]);
    seen(ends.server(), &[RequestUnauthenticated, LateOrUnsolicited, UnknownRegion]);
}
