//! `rma-figures crypto`: what AES-128-GCM costs with each provider, under keys that are all
//! different.
//!
//! One core, pinned. All providers and all kinds of batch take turns, round after round, so that
//! what disturbs the machine disturbs them alike; figures are medians over the rounds. Frames lie
//! as in a device's memory: header, payload and tag one after the other. Sealing and opening happen
//! in place; what is opened was sealed outside of the measured time, by another provider where
//! there is one, and must come out authentic.
//!
//! IVs repeat: this measures, and nothing of it is sent.

mod peer;

use clap::Args;
use rma_bench::{line, machine::Machine, pair};
use rma_crypto::{
    AeadProvider, DeriveFrom, DeriveJob, IV_LEN, JobKey, Key, KeySchedule, OpenJob, PreparedKey,
    ProviderKind, SealJob, TAG_LEN, Text, fastest,
};
use rma_xdp::time::{Clock, TscClock};
use serde::Serialize;

/// The arguments of `crypto`.
#[derive(Args, Clone, Debug)]
pub struct CryptoArgs {
    /// Print one line of JSON for each row and each figure.
    #[arg(long)]
    pub json: bool,
    /// Rounds; each value is the median of them.
    #[arg(long, default_value_t = ROUNDS)]
    pub rounds: usize,
    /// Core to measure on. Default: the last one.
    #[arg(long)]
    pub core: Option<usize>,
}

/// More: steadier medians. Fewer: done sooner.
pub(crate) const ROUNDS: usize = 60;
/// Frames of a set: the largest batch.
const FRAMES: usize = 32;
/// Octets of a read response that are authenticated only: its header, and the IV that it answers.
const RESPONSE_AAD: usize = 44;
/// Octets of a read request: all header.
const REQUEST_AAD: usize = 40;
/// Regions whose keys the keys of requests are derived under.
const REGIONS: usize = 8;
/// Octets that frames of a measurement take: less than a core's second-level cache, so that memory
/// is not what is measured.
const FOOTPRINT: usize = 128 << 10;

/// One kind of batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Work {
    what: What,
    keys: Keys,
    batch: usize,
    payload: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Seal,
    Open,
    /// Derive the key, set it up, and check the tag of a request, which has no payload.
    Verify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Keys {
    /// Set up in the batch.
    Fresh,
    /// Set up before.
    Prepared,
}

/// Nanoseconds for each frame of a kind of batch, by provider.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    work: Work,
    /// By provider: its name, and the median.
    nanos: Vec<(&'static str, f64)>,
}

/// All medians of a run.
#[derive(Debug)]
pub struct Measured(Vec<Row>);

fn works() -> Vec<Work> {
    let mut works = Vec::new();
    let both = [What::Seal, What::Open];
    for payload in [0, 64, 256, 1024, 1440, 4096] {
        works.extend(both.map(|what| Work { what, keys: Keys::Fresh, batch: FRAMES, payload }));
    }
    for payload in [64, 1440, 4096] {
        for (keys, batch) in [(Keys::Fresh, 1), (Keys::Prepared, 1), (Keys::Prepared, FRAMES)] {
            works.extend(both.map(|what| Work { what, keys, batch, payload }));
        }
    }
    let verify = |batch| Work { what: What::Verify, keys: Keys::Fresh, batch, payload: 0 };
    works.extend([1, 4, 8, 16, 32].map(verify));
    works
}

/// Keys in all their forms, as one provider has prepared them.
struct Prepared {
    provider: &'static dyn AeadProvider,
    schedules: Vec<KeySchedule>,
    blocks: Vec<[u8; 16]>,
    keys: Vec<Key>,
    prepared: Vec<PreparedKey>,
}

impl Prepared {
    fn new(provider: &'static dyn AeadProvider) -> Self {
        let region_key = |index: usize| Key::from_bytes([(index % REGIONS) as u8 + 1; 16]);
        let schedules: Vec<KeySchedule> =
            (0..FRAMES).map(|index| provider.schedule(&region_key(index))).collect();
        let blocks: Vec<[u8; 16]> = (0..FRAMES).map(|index| [index as u8; 16]).collect();
        let mut keys = vec![Key::default(); FRAMES];
        provider.derive(&derivations(&schedules, &blocks), &mut keys);
        let prepared = keys.iter().map(|key| provider.prepare(key)).collect();
        Self { provider, schedules, blocks, keys, prepared }
    }

    fn key(&self, keys: Keys, index: usize) -> JobKey<'_> {
        match keys {
            Keys::Fresh => JobKey::Fresh(&self.keys[index]),
            Keys::Prepared => JobKey::Prepared(&self.prepared[index]),
        }
    }
}

fn derivations<'k>(schedules: &'k [KeySchedule], blocks: &'k [[u8; 16]]) -> Vec<DeriveJob<'k>> {
    let job = |(schedule, block)| DeriveJob { schedule, from: DeriveFrom::Block(block) };
    schedules.iter().zip(blocks).map(job).collect()
}

/// Frames one after the other, as in a device's memory, and where their parts are.
struct Set {
    octets: Vec<u8>,
    aad: usize,
    stride: usize,
}

impl Set {
    fn new(aad: usize, payload: usize) -> Self {
        let stride = (aad + payload + TAG_LEN).next_multiple_of(64);
        Self { octets: vec![0x5a; stride * FRAMES], aad, stride }
    }

    /// Header, payload and tag of each frame.
    fn frames(
        &mut self,
        payload: usize,
    ) -> impl Iterator<Item = (&[u8], &mut [u8], &mut [u8; TAG_LEN])> {
        let aad = self.aad;
        self.octets.chunks_exact_mut(self.stride).map(move |frame| {
            let (header, rest) = frame.split_at_mut(aad);
            let (payload, rest) = rest.split_at_mut(payload);
            (&*header, payload, rest.first_chunk_mut().expect("the stride has room for it"))
        })
    }

    fn seal_jobs<'s>(&'s mut self, keys: &'s Prepared, work: Work) -> Vec<SealJob<'s>> {
        let frames = self.frames(work.payload).enumerate();
        let job = |(index, (aad, text, tag))| SealJob {
            key: keys.key(work.keys, index),
            iv: iv(index),
            aad,
            text: Text::in_place(text),
            tag,
        };
        frames.map(job).collect()
    }

    fn open_jobs<'s>(&'s mut self, keys: &'s Prepared, work: Work) -> Vec<OpenJob<'s>> {
        let frames = self.frames(work.payload).enumerate();
        let job =
            |(index, (aad, text, tag)): (usize, (&'s [u8], &'s mut [u8], &'s mut _))| OpenJob {
                key: keys.key(work.keys, index),
                iv: iv(index),
                aad,
                text: Text::in_place(text),
                tag,
                authentic: false,
            };
        frames.map(job).collect()
    }
}

fn iv(index: usize) -> [u8; IV_LEN] {
    [index as u8; IV_LEN]
}

/// Does `work` once with all frames of `sets`, and returns the nanoseconds for each frame.
fn run(clock: &TscClock, keys: &Prepared, work: Work, sets: &mut [Set]) -> f64 {
    if work.what != What::Seal {
        for set in &mut *sets {
            // Sealed elsewhere, if there is a choice.
            let kind = ProviderKind::ALL.into_iter().find(|&kind| kind != keys.provider.kind());
            let sealer = kind.and_then(|kind| kind.provider().ok()).unwrap_or(keys.provider);
            sealer.seal(&mut set.seal_jobs(keys, Work { keys: Keys::Fresh, ..work }));
        }
    }
    let frames = (sets.len() * FRAMES) as f64;
    let provider = keys.provider;
    match work.what {
        What::Seal => {
            let mut all: Vec<_> = sets.iter_mut().map(|set| set.seal_jobs(keys, work)).collect();
            let start = clock.now();
            for jobs in all.iter_mut().flat_map(|jobs| jobs.chunks_mut(work.batch)) {
                provider.seal(jobs);
            }
            clock.now().nanos_since(start) as f64 / frames
        }
        What::Open => {
            let mut all: Vec<_> = sets.iter_mut().map(|set| set.open_jobs(keys, work)).collect();
            let start = clock.now();
            for jobs in all.iter_mut().flat_map(|jobs| jobs.chunks_mut(work.batch)) {
                provider.open(jobs);
            }
            let nanos = clock.now().nanos_since(start) as f64 / frames;
            assert!(all.iter().flatten().all(|job| job.authentic), "{provider:?} refused a frame");
            nanos
        }
        What::Verify => verify(clock, keys, work.batch, sets) / frames,
    }
}

/// As an engine does with requests: keys are derived into its own memory, and the jobs are written
/// down each time.
fn verify(clock: &TscClock, keys: &Prepared, batch: usize, sets: &mut [Set]) -> f64 {
    match batch {
        1 => verify_by::<1>(clock, keys, sets),
        4 => verify_by::<4>(clock, keys, sets),
        8 => verify_by::<8>(clock, keys, sets),
        16 => verify_by::<16>(clock, keys, sets),
        _ => verify_by::<FRAMES>(clock, keys, sets),
    }
}

fn verify_by<const BATCH: usize>(clock: &TscClock, keys: &Prepared, sets: &mut [Set]) -> f64 {
    let derivations = derivations(&keys.schedules, &keys.blocks);
    let mut derived: [Key; BATCH] = [const { Key::from_bytes([0; 16]) }; BATCH];
    let mut refused = 0;
    let start = clock.now();
    for set in &*sets {
        for (derivations, frames) in
            derivations.chunks_exact(BATCH).zip(set.octets.chunks_exact(BATCH * set.stride))
        {
            keys.provider.derive(derivations, &mut derived);
            let mut jobs: [OpenJob<'_>; BATCH] = core::array::from_fn(|index| {
                let (aad, rest) = frames[index * set.stride..].split_at(set.aad);
                OpenJob {
                    key: JobKey::Fresh(&derived[index]),
                    // The number is in the frame, as in a real one.
                    iv: *rest[TAG_LEN..].first_chunk().expect("the stride has room for it"),
                    aad,
                    text: Text::empty(),
                    tag: rest.first_chunk().expect("the stride has room for it"),
                    authentic: false,
                }
            });
            keys.provider.open(&mut jobs);
            refused += jobs.iter().filter(|job| !job.authentic).count();
        }
    }
    let nanos = clock.now().nanos_since(start) as f64;
    assert_eq!(refused, 0, "{:?} refused requests", keys.provider);
    nanos
}

/// Measures everything, `rounds` times, on `core` or the last one that there is.
///
/// # Panics
/// If a provider refuses a frame that is right.
#[must_use]
pub fn measure(rounds: usize, core: Option<usize>) -> Measured {
    pair::pinned(core.or_else(last_core), || measure_here(rounds))
}

fn measure_here(rounds: usize) -> Measured {
    let clock = TscClock::new();
    let providers = ProviderKind::ALL.into_iter().filter_map(|kind| kind.provider().ok());
    let prepared: Vec<Prepared> = providers.map(Prepared::new).collect();
    let works = works();
    let mut nanos = vec![vec![Vec::new(); prepared.len()]; works.len()];
    for _ in 0..rounds.max(1) {
        for (work, nanos) in works.iter().zip(&mut nanos) {
            let aad = if work.what == What::Verify { REQUEST_AAD } else { RESPONSE_AAD };
            let sets = (FOOTPRINT / FRAMES / (aad + work.payload + TAG_LEN)).clamp(1, 16);
            for (keys, nanos) in prepared.iter().zip(nanos) {
                // A request's IV is in the frame.
                let room = if work.what == What::Verify { IV_LEN } else { work.payload };
                let mut sets: Vec<Set> = (0..sets).map(|_| Set::new(aad, room)).collect();
                for set in &mut sets {
                    let stride = set.stride;
                    for (index, frame) in set.octets.chunks_exact_mut(stride).enumerate() {
                        if work.what == What::Verify {
                            frame[aad + TAG_LEN..][..IV_LEN].fill(index as u8);
                        }
                    }
                }
                // Once for the caches.
                let _ = run(&clock, keys, *work, &mut sets);
                nanos.extend((0..3).map(|_| run(&clock, keys, *work, &mut sets)));
            }
        }
    }
    let rows = works.into_iter().zip(nanos).map(|(work, nanos)| Row {
        work,
        nanos: prepared
            .iter()
            .zip(nanos)
            .map(|(keys, nanos)| (keys.provider.kind().name(), median(nanos)))
            .collect(),
    });
    Measured(rows.collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A figure that comes out of it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AeadFigure {
    /// Its value.
    pub value: f64,
    /// Under which conditions, and what it is made of.
    pub detail: String,
}

impl Measured {
    /// Nanoseconds for each frame, with keys that are set up in the batch. `None` without the
    /// provider.
    fn fresh(&self, what: What, batch: usize, payload: usize, kind: ProviderKind) -> Option<f64> {
        let work = Work { what, keys: Keys::Fresh, batch, payload };
        let row = self.0.iter().find(|row| row.work == work)?;
        row.nanos.iter().find(|(name, _)| *name == kind.name()).map(|&(_, nanos)| nanos)
    }

    /// The slower of sealing and opening.
    fn slower(&self, batch: usize, payload: usize, kind: ProviderKind) -> Option<f64> {
        let seal = self.fresh(What::Seal, batch, payload, kind)?;
        Some(seal.max(self.fresh(What::Open, batch, payload, kind)?))
    }

    /// How many times as fast as the portable provider: the lesser of sealing and opening.
    fn speedup(&self, payload: usize, kind: ProviderKind) -> Option<f64> {
        let ratio = |what| {
            let portable = self.fresh(what, FRAMES, payload, ProviderKind::Portable)?;
            Some(portable / self.fresh(what, FRAMES, payload, kind)?)
        };
        Some(ratio(What::Seal)?.min(ratio(What::Open)?))
    }

    /// The figures of docs/BENCHMARKING.md, in its order; the last is that of a provider that not
    /// every processor can run.
    #[must_use]
    pub fn figures(&self) -> Vec<AeadFigure> {
        let best = fastest().kind();
        let slower = "the slower of sealing and opening";
        let lesser = "the lesser of sealing and opening";
        let keys = "each frame under a key of its own, with set-up";
        let time = |value: Option<f64>, what: &str| {
            let detail = format!("{best} provider: {what}; {keys}; in place, one pinned core");
            value.map(|value| AeadFigure { value, detail })
        };
        let ratio = |value: Option<f64>, kind, what: &str| {
            let detail = format!("{kind} over portable provider: {what}; {keys}; batch {FRAMES}");
            value.map(|value| AeadFigure { value, detail })
        };
        let aead =
            |payload| format!("{slower}, {payload} B and {RESPONSE_AAD} B of AAD, batch {FRAMES}");
        let verify = |batch| {
            format!(
                "derive the key of a request of {REQUEST_AAD} B and check its tag, batch {batch}"
            )
        };
        let single = format!("{slower}, 64 B and {RESPONSE_AAD} B of AAD, one at a time");
        let of = |payload| format!("{lesser}, {payload} B");
        let aes_ni = ProviderKind::AesNi;
        let figures = [
            time(self.slower(FRAMES, 64, best), &aead(64)),
            time(self.slower(FRAMES, 1440, best), &aead(1440)),
            time(self.slower(FRAMES, 4096, best), &aead(4096)),
            ratio(self.speedup(64, best), best, &of(64)),
            ratio(self.speedup(4096, best), best, &of(4096)),
            time(self.fresh(What::Verify, 16, 0, best), &verify(16)),
            time(self.fresh(What::Verify, 1, 0, best), &verify(1)),
            time(self.slower(1, 64, best), &single),
            ratio(self.speedup(64, aes_ni), aes_ni, &of(64)),
        ];
        figures.into_iter().flatten().collect()
    }
}

/// Figures over `ring`: ours with keys that are all different and set up in the batch, over what it
/// takes with keys that it has prepared, as for a bulk transfer; and frames that are alone, where
/// both set a key up.
#[must_use]
pub fn over_ring() -> Vec<AeadFigure> {
    pair::pinned(last_core(), || {
        [
            (64, FRAMES, false),
            (4096, FRAMES, false),
            (64, 1, true),
        ]
        .map(|(payload, batch, fresh)| {
            let peer::Beside { ours, ring } = peer::beside_ring(payload, batch, fresh, 3 * ROUNDS);
            let detail = format!(
                "{} provider {:.0} ns, `ring` {:.0}: the slower of sealing and opening {payload} B and {RESPONSE_AAD} B of AAD, ours \
                 {batch} at a time with a key set up for each, `ring` one by one with keys {}; median of {} rounds in turns; in \
                 place, one pinned core",
                fastest().kind(),
                ours.median(),
                ring.median(),
                if fresh { "set up too" } else { "prepared before" },
                ours.rounds(),
            );
            AeadFigure { value: ours.over(&ring), detail }
        })
        .into()
    })
}

/// The last core that there is.
fn last_core() -> Option<usize> {
    core_affinity::get_core_ids()?.pop().map(|core| core.id)
}

/// Measures and prints.
pub fn crypto(args: &CryptoArgs) {
    let measured = measure(args.rounds, args.core);
    if args.json {
        line!("{}", serde_json::to_string(&Machine::here()).expect("plain data"));
        for row in &measured.0 {
            line!("{}", serde_json::to_string(row).expect("plain data"));
        }
        return;
    }
    for error in ProviderKind::ALL.into_iter().filter_map(|kind| kind.provider().err()) {
        line!("not measured: {error}");
    }
    line!("nanoseconds for each frame; the provider that was chosen is {}", fastest().kind());
    let names = measured.0.first().map_or(&[][..], |row| &row.nanos);
    let names: String = names.iter().map(|(name, _)| format!("{name:>13}")).collect();
    line!("  {:6} {:8} {:>5} {:>7}{names}", "what", "keys", "batch", "payload");
    for Row { work: Work { what, keys, batch, payload }, nanos } in &measured.0 {
        let nanos: String = nanos.iter().map(|(_, nanos)| format!("{nanos:13.1}")).collect();
        let (what, keys) = (format!("{what:?}"), format!("{keys:?}"));
        line!("  {what:6} {keys:8} {batch:>5} {payload:>7}{nanos}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_measurements_have_all_cores() {
        let cores = || core_affinity::get_core_ids().map(|cores| cores.len());
        let before = cores();
        let _ = measure(1, None);
        assert_eq!(cores(), before);
    }
}
