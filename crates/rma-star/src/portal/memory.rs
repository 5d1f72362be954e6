//! A portal's memory: rings, doorbells, words and records in one mapping.
//!
//! | offset in bytes | what | written by |
//! |---|---|---|
//! | 0 | [label](Label): kind `StaRport`, version 2, size: slots | who formats it |
//! | 128 | [doorbell](Doorbell): whether the engine sleeps | engine |
//! | 256 | doorbell: whether the application's thread sleeps | application |
//! | 384 | [ring](rma_shm::spsc) of posts | application; the engine its `head` |
//! | behind it | ring of reports | engine; the application its `head` |
//! | behind it | 16 for each QP: QP word, word of what is taken | engine |
//! | behind them | 8 for each slot: guard word | engine |
//! | behind them | 64 for each QP: its record | application |
//!
//! Both sides know how many slots and QPs there are, and compute from that where everything lies.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use rma_shm::{Capacity, Doorbell, Label, LayoutError, Mapping, RingError, RingMemory};

use super::{
    record::QpRecord,
    words::{Guard, QpWord},
};
use crate::names::Taken;

const ENGINE_DOORBELL: usize = Label::FOOTPRINT;
const APPLICATION_DOORBELL: usize = ENGINE_DOORBELL + Doorbell::FOOTPRINT;
const POSTS: usize = APPLICATION_DOORBELL + Doorbell::FOOTPRINT;
const WORD: usize = size_of::<u64>();
/// The alignment of parts: what a ring asks for.
const ALIGN: usize = 128;

/// Reports that have room beyond those that cannot be too many.
const SPARE_REPORTS: usize = 16;

/// The places of a portal's parts, in bytes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    posts: Capacity,
    reports: Capacity,
    qp_words: usize,
    guards: usize,
    records: usize,
    len: usize,
}

impl Layout {
    /// Of a portal of so many slots and QPs.
    fn of(slots: u32, qps: u32) -> Result<Self, RingError> {
        let (slots, qps) = (slots as usize, qps as usize);
        let for_lines = |lines: usize| Capacity::new(lines.next_power_of_two());
        // A slot is posted once at a time, in two lines at most; a QP has one post of its own.
        let posts = for_lines(2 * slots + qps)?;
        let reports = StarPortalMemory::reports_of(slots as u32, qps as u32);
        let reports = for_lines(reports + SPARE_REPORTS)?;
        let qp_words = POSTS + RingMemory::footprint(posts) + RingMemory::footprint(reports);
        let guards = (qp_words + 2 * WORD * qps).next_multiple_of(ALIGN);
        let records = (guards + WORD * slots).next_multiple_of(ALIGN);
        let len = records + QpRecord::WORDS * WORD * qps;
        Ok(Self { posts, reports, qp_words, guards, records, len })
    }

    /// Of one that must lie in a mapping. No mapping is long enough for one that has no layout.
    fn within(mapping: &Mapping, slots: u32, qps: u32) -> Result<Self, LayoutError> {
        let mapping_len = size_of_val(mapping.words());
        let too_short = LayoutError::TooShort { at: 0, len: usize::MAX, mapping_len };
        Self::of(slots, qps).map_err(|_too_many| too_short)
    }
}

/// The memory that both ends of a portal are made of. Clones are of the same memory.
#[derive(Clone, Debug)]
pub struct StarPortalMemory {
    mapping: Arc<Mapping>,
    layout: Layout,
    pub(crate) posts: RingMemory,
    pub(super) reports: RingMemory,
    engine_doorbell: Doorbell,
    application_doorbell: Doorbell,
    slots: u32,
    qps: u32,
}

/// The function that makes one ring, or finds it.
type PlaceRing = fn(&Arc<Mapping>, usize, Capacity) -> Result<RingMemory, LayoutError>;

impl StarPortalMemory {
    /// The bytes that a portal of `slots` slots and `qps` queue pairs takes.
    ///
    /// # Errors
    /// If a ring cannot be that large: see [`rma_shm::spsc::CAPACITY_MAX`].
    pub fn footprint(slots: u32, qps: u32) -> Result<usize, RingError> {
        Layout::of(slots, qps).map(|layout| layout.len)
    }

    /// The most reports that there are of so many slots and QPs: a slot is reported once; a QP may
    /// be opened, ready, failed and closed, and has one report of the end of a change of roles.
    pub(super) const fn reports_of(slots: u32, qps: u32) -> usize {
        slots as usize + 5 * qps as usize
    }

    fn label(slots: u32, qps: u32) -> Label {
        Label { kind: *b"StaRport", version: 2, size: u64::from(slots) << 32 | u64::from(qps) }
    }

    /// Makes a portal's memory at the beginning of `mapping`, over whatever was there: no posts, no
    /// connections, and nobody sleeps.
    ///
    /// # Errors
    /// If the mapping is shorter than [`StarPortalMemory::footprint`], or there is none for so
    /// many.
    pub fn format(mapping: &Arc<Mapping>, slots: u32, qps: u32) -> Result<Self, LayoutError> {
        let layout = Layout::within(mapping, slots, qps)?;
        Self::label(slots, qps).format(mapping, 0, layout.len, || {
            let memory = Self::place(mapping, layout, slots, qps, RingMemory::format)?;
            for word in &mapping.words()[layout.qp_words / WORD..layout.len / WORD] {
                word.store(0, Ordering::Relaxed);
            }
            Ok(memory)
        })
    }

    /// The memory of a portal that another process has formatted at the beginning of `mapping`.
    /// Both have agreed on slots and QPs.
    ///
    /// # Errors
    /// As [`StarPortalMemory::format`], or if there is no such portal.
    pub fn join(mapping: &Arc<Mapping>, slots: u32, qps: u32) -> Result<Self, LayoutError> {
        let layout = Layout::within(mapping, slots, qps)?;
        Self::label(slots, qps).check(mapping, 0, layout.len)?;
        Self::place(mapping, layout, slots, qps, RingMemory::join)
    }

    fn place(
        mapping: &Arc<Mapping>,
        layout: Layout,
        slots: u32,
        qps: u32,
        ring: PlaceRing,
    ) -> Result<Self, LayoutError> {
        Ok(Self {
            posts: ring(mapping, POSTS, layout.posts)?,
            reports: ring(mapping, POSTS + RingMemory::footprint(layout.posts), layout.reports)?,
            engine_doorbell: Doorbell::at(mapping, ENGINE_DOORBELL)?,
            application_doorbell: Doorbell::at(mapping, APPLICATION_DOORBELL)?,
            mapping: Arc::clone(mapping),
            layout,
            slots,
            qps,
        })
    }

    /// How many slots there are.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// How many queue pairs there are.
    #[must_use]
    pub const fn qps(&self) -> u32 {
        self.qps
    }

    /// Whether the engine sleeps: what the application looks at after it has posted.
    #[must_use]
    pub const fn engine_doorbell(&self) -> &Doorbell {
        &self.engine_doorbell
    }

    /// Whether the application's thread sleeps: what the engine looks at after it has reported.
    #[must_use]
    pub const fn application_doorbell(&self) -> &Doorbell {
        &self.application_doorbell
    }

    /// Words from `at` bytes on.
    fn words(&self, at: usize) -> &[AtomicU64] {
        self.mapping.words().get(at / WORD..).unwrap_or_default()
    }

    fn guard_word(&self, slot: u32) -> Option<&AtomicU64> {
        if slot >= self.slots {
            return None;
        }
        self.words(self.layout.guards).get(slot as usize)
    }

    /// The words of a QP: its QP word, and what is taken.
    fn qp_words(&self, qp: u32) -> Option<&[AtomicU64]> {
        if qp >= self.qps {
            return None;
        }
        let at = 2 * qp as usize;
        self.words(self.layout.qp_words).get(at..at + 2)
    }

    fn record_words(&self, qp: u32) -> Option<&[AtomicU64]> {
        if qp >= self.qps {
            return None;
        }
        let at = QpRecord::WORDS * qp as usize;
        self.words(self.layout.records).get(at..at + QpRecord::WORDS)
    }

    /// The guard of a slot; `None` if there is no such slot.
    #[must_use]
    #[inline]
    pub fn guard(&self, slot: u32) -> Option<Guard> {
        let word = self.guard_word(slot)?;
        Some(Guard::from_bits(word.load(Ordering::Relaxed)))
    }

    /// Writes the guard of a slot that there is. For the engine alone.
    #[inline]
    pub(super) fn set_guard(&self, slot: u32, guard: Guard) {
        if let Some(word) = self.guard_word(slot) {
            word.store(guard.to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the connection of a QP; closed if there is no such QP.
    #[must_use]
    #[inline]
    pub fn qp_word(&self, qp: u32) -> QpWord {
        let word = self.qp_words(qp).and_then(<[_]>::first);
        word.map_or(QpWord::CLOSED, |word| QpWord::from_bits(word.load(Ordering::Acquire)))
    }

    /// Writes the QP word of a QP that there is. For the engine alone.
    #[inline]
    pub(super) fn set_qp_word(&self, qp: u32, value: QpWord) {
        if let Some(word) = self.qp_words(qp).and_then(<[_]>::first) {
            word.store(value.to_bits(), Ordering::Release);
        }
    }

    /// Returns the places below which the stateful side has taken a QP's work requests.
    #[must_use]
    #[inline]
    pub fn taken(&self, qp: u32) -> Taken {
        let word = self.qp_words(qp).and_then(<[_]>::last);
        word.map_or(Taken::default(), |word| Taken::from_bits(word.load(Ordering::Relaxed)))
    }

    /// Writes what is taken. For the engine alone.
    #[inline]
    pub(super) fn set_taken(&self, qp: u32, taken: Taken) {
        if let Some(word) = self.qp_words(qp).and_then(<[_]>::last) {
            word.store(taken.to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the application's record of a QP's connection. Each word is read once.
    #[must_use]
    pub fn record(&self, qp: u32) -> Option<QpRecord> {
        let words = self.record_words(qp)?;
        let mut copy = [0; QpRecord::WORDS];
        for (copy, word) in copy.iter_mut().zip(words) {
            *copy = word.load(Ordering::Relaxed);
        }
        Some(QpRecord::from_words(copy))
    }

    /// Writes what the engine has to know of a QP's connection. For the application; before it
    /// posts.
    pub(super) fn set_record(&self, qp: u32, record: &QpRecord) {
        let words = self.record_words(qp).unwrap_or_default();
        for (word, value) in words.iter().zip(record.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }
}
