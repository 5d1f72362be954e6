//! Records of work requests that are posted, one for each slot of the portal.
//!
//! A record is enough to post the work request once more, and keeps its completion until it is its
//! turn. It takes 56 bytes; with its guard word in the portal an open work request takes 64 (S4).
//! The slots are in lists: those of a queue in the order in which they were posted, and the free
//! ones.

use crate::{
    portal::Posted,
    verbs::{WcStatus, WqeOp},
};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// The bits of a record's last word: QP, op, whether there is an immediate, whether it is of a
/// WRITE, and how it ended.
const QP_BITS: u32 = 20;
const OP_AT: u32 = QP_BITS;
const IMMEDIATE: u32 = 1 << 22;
const OF_WRITE: u32 = 1 << 23;
const STATUS_AT: u32 = 24;
const OPEN: u32 = 0xff;

/// A work request that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) wr_id: u64,
    offset: u64,
    remote_offset: u64,
    mr: u32,
    remote_mr: u32,
    /// Of the work request; when it is complete, of what was moved.
    length: u32,
    /// The one that it was posted with; when it is complete, the one that came.
    immediate: u32,
    /// The present or last use of the slot.
    pub(super) generation: u32,
    pub(super) sequence: u32,
    /// The slot behind it in its list.
    next: u32,
    bits: u32,
}

impl Record {
    /// Of a free slot: nothing that could complete.
    const EMPTY: Self = Self {
        wr_id: 0,
        offset: 0,
        remote_offset: 0,
        mr: 0,
        remote_mr: 0,
        length: 0,
        immediate: 0,
        generation: 0,
        sequence: 0,
        next: NONE,
        bits: 0,
    };

    /// Of what is posted.
    pub(super) const fn of(wr_id: u64, posted: &Posted) -> Self {
        let (immediate, flag) = match posted.immediate {
            Some(it) => (it, IMMEDIATE),
            None => (0, 0),
        };
        Self {
            wr_id,
            offset: posted.offset,
            remote_offset: posted.remote_offset,
            mr: posted.mr,
            remote_mr: posted.remote_mr,
            length: posted.length,
            immediate,
            generation: posted.generation,
            sequence: posted.sequence,
            next: NONE,
            bits: OPEN << STATUS_AT | flag | (posted.op.code() as u32) << OP_AT | posted.qp,
        }
    }

    /// To be posted once more; the first of its queue is `first`. Inline data does not travel
    /// again: it is fetched.
    pub(super) fn again(&self, slot: u32, first: &Self) -> Posted {
        Posted {
            slot,
            generation: self.generation,
            qp: self.qp(),
            sequence: self.sequence,
            open_before: self.sequence.wrapping_sub(first.sequence) as u16,
            op: self.op(),
            again: true,
            is_moved: false,
            immediate: self.immediate(),
            inline_len: 0,
            mr: self.mr,
            offset: self.offset,
            length: self.length,
            remote_mr: self.remote_mr,
            remote_offset: self.remote_offset,
        }
    }

    /// To be posted anew in an era that begins. Inline data does not travel again.
    pub(super) fn moved(&self, slot: u32, first: &Self) -> Posted {
        Posted { again: false, is_moved: true, ..self.again(slot, first) }
    }

    pub(super) const fn qp(&self) -> u32 {
        self.bits & ((1 << QP_BITS) - 1)
    }

    pub(super) fn op(&self) -> WqeOp {
        WqeOp::from_code((self.bits >> OP_AT & 3) as u8).expect("two bits")
    }

    pub(super) const fn length(&self) -> u32 {
        self.length
    }

    pub(super) fn immediate(&self) -> Option<u32> {
        (self.bits & IMMEDIATE != 0).then_some(self.immediate)
    }

    /// Returns the status that it ended with; `None` as long as it has not.
    pub(super) fn status(&self) -> Option<WcStatus> {
        WcStatus::from_code((self.bits >> STATUS_AT) as u8)
    }

    /// Whether a WRITE with an immediate has taken it, which is a RECV.
    pub(super) const fn is_of_write(&self) -> bool {
        self.bits & OF_WRITE != 0
    }

    /// It has ended: from now on this is what its completion says.
    pub(super) fn complete(
        &mut self,
        status: WcStatus,
        byte_len: u32,
        immediate: Option<u32>,
        is_of_write: bool,
    ) {
        self.length = byte_len;
        self.immediate = immediate.unwrap_or_default();
        self.bits &= (1 << OP_AT | 2 << OP_AT) | ((1 << QP_BITS) - 1);
        self.bits |= u32::from(status.code()) << STATUS_AT;
        self.bits |= if immediate.is_some() { IMMEDIATE } else { 0 };
        self.bits |= if is_of_write { OF_WRITE } else { 0 };
    }
}

/// One of a queue pair's two queues: a ring of records, of which the last is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// The slot of the last work request; [`NONE`] if there is none.
    last: u32,
    /// The sequence of the next one that is posted.
    pub(super) next: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { last: NONE, next: 0 };

    pub(super) const fn is_empty(&self) -> bool {
        self.last == NONE
    }
}

/// All records.
#[derive(Debug)]
pub(super) struct Slots {
    records: Box<[Record]>,
    free: u32,
}

impl Slots {
    /// The memory that a slot takes here and in the portal, in bytes.
    pub(super) const ENTRY_LEN: usize = size_of::<Record>() + size_of::<u64>();

    pub(super) fn new(slots: u32) -> Self {
        let mut records: Box<[_]> = vec![Record::EMPTY; slots as usize].into();
        for (at, record) in records.iter_mut().enumerate() {
            record.next = if at + 1 < slots as usize { at as u32 + 1 } else { NONE };
        }
        Self { records, free: if slots > 0 { 0 } else { NONE } }
    }

    pub(super) const fn len(&self) -> u32 {
        self.records.len() as u32
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Record> {
        self.records.get(slot as usize)
    }

    /// Of a slot that there is.
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Record {
        &mut self.records[slot as usize]
    }

    /// A slot that is free, and the generation that its next use will be. It stays free.
    pub(super) fn first_free(&self) -> Option<(u32, u32)> {
        let record = self.get(self.free)?;
        Some((self.free, record.generation + 1))
    }

    /// Takes the first free slot for a work request at the end of a queue.
    pub(super) fn push(&mut self, queue: &mut Queue, record: Record) {
        let slot = self.free;
        self.free = self.records[slot as usize].next;
        let first = match self.get(queue.last) {
            None => slot,
            Some(last) => last.next,
        };
        self.records[slot as usize] = Record { next: first, ..record };
        if !queue.is_empty() {
            self.records[queue.last as usize].next = slot;
        }
        queue.last = slot;
        queue.next = queue.next.wrapping_add(1);
    }

    /// The first of a queue: its slot and record.
    pub(super) fn first(&self, queue: &Queue) -> Option<(u32, &Record)> {
        let last = self.get(queue.last)?;
        Some((last.next, &self.records[last.next as usize]))
    }

    /// All of a queue, in posting order.
    pub(super) fn iter(&self, queue: &Queue) -> impl Iterator<Item = (u32, &Record)> {
        let last = queue.last;
        let mut next = self.first(queue);
        core::iter::from_fn(move || {
            let (slot, record) = next?;
            next = (slot != last).then(|| (record.next, &self.records[record.next as usize]));
            Some((slot, record))
        })
    }

    /// How many work requests a queue has.
    pub(super) fn outstanding(&self, queue: &Queue) -> u32 {
        self.first(queue).map_or(0, |(_, first)| queue.next.wrapping_sub(first.sequence))
    }

    /// Takes the first out of a queue. Its slot is free then, unless its uses are used up: such a
    /// slot rests for good, as no name of a key may come twice.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<Record> {
        let (slot, &record) = self.first(queue)?;
        if slot == queue.last {
            queue.last = NONE;
        } else {
            self.records[queue.last as usize].next = record.next;
        }
        let freed = &mut self.records[slot as usize];
        *freed = Record { generation: record.generation, ..Record::EMPTY };
        if record.generation < u32::MAX {
            freed.next = self.free;
            self.free = slot;
        }
        Some(record)
    }

    /// Whether a use of a slot is under way: posted and not complete.
    pub(super) fn is_open(&self, slot: u32, generation: u32) -> bool {
        self.get(slot)
            .is_some_and(|record| record.generation == generation && record.status().is_none())
    }

    #[cfg(test)]
    pub(super) fn use_up(&mut self, slot: u32) {
        self.records[slot as usize].generation = u32::MAX - 1;
    }
}

const _: () = assert!(Slots::ENTRY_LEN <= 64, "S4: 64 bytes an open work request");
