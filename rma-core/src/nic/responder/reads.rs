//! The incoming op FIFOs: reads that have been admitted, until all their responses are sent (1RMA
//! §3.1, §4.3). Answers to SETTLE wait here, too, as jobs without bytes: a queue of their own would
//! be one more that replays could fill.
//!
//! The queues have a fixed depth. A read is NACKed that finds its queue full, or so much data
//! before it that its own would come too late (§6.1). Within a class initiators take turns, an op
//! each, by the lists of [`fair_queue`](crate::fair_queue) (not in the paper): where a queue
//! is full, a read of the longest list is NACKed in place of one of a shorter list (P13). A job
//! carries its K_d; what it was admitted under must still be the region's key when its data is
//! read, so that nothing is read under a key that was rotated away.

use super::admission::{Admission, Admitted, Asked};
use crate::{
    backend::{Transmit, TxFrame},
    crypto::DerivedRegionKey,
    error::DropReason,
    fair_queue::{Bucket, FairLinks, owners::OwnersQueue},
    granules::cut,
    limits::{GRANULE, WORD_LEN},
    nic::{NicConfig, tables::Tables},
    op::{ClassOfService, OpStatus},
    outcome::Verdict,
    time::Instant,
    wire::{
        Request, Response, Settlement,
        read::{RESPONSE_HEADER_LEN, RESPONSE_OVERHEAD},
        settle::{SETTLEMENT_HEADER_LEN, SETTLEMENT_LEN},
    },
};

/// An admitted request whose responses are not all sent.
pub(super) struct Job {
    asked: Asked,
    arrived_at: Instant,
    region_offset: u64,
    op_size: u16,
    /// Bytes of the op that have been sent.
    sent: u16,
    /// The largest payload that both sides and the path between them can carry.
    payload_len_max: usize,
    /// The longest packet that the initiator receives.
    packet_len_max: u16,
    revision: u64,
    key: DerivedRegionKey,
    /// The answer to a SETTLE, which has no bytes.
    settled: Option<(Verdict, u64)>,
}

pub(in crate::nic) struct InboundReads {
    /// One for each class of service.
    queues: [Jobs; 2],
    nack_threshold: u64,
    timeout_nanos: u64,
    /// The class that is asked first the next time.
    first: ClassOfService,
    /// Whether the last response was of a job of the latency class that has more. That job is next:
    /// all its responses leave in one turn.
    has_rest: bool,
}

/// The jobs of one class.
struct Jobs {
    entries: Box<[Job]>,
    /// Those that are not in the queue, the one last that was used last.
    free: Vec<u16>,
    queue: OwnersQueue,
    links: FairLinks,
    /// Bytes that the jobs in the queue still have to send.
    bytes: u64,
}

impl InboundReads {
    /// Bytes that each entry of a queue takes.
    pub(in crate::nic) const ENTRY_LEN: usize =
        size_of::<Job>() + size_of::<u16>() + FairLinks::ENTRY_LEN;

    pub(super) fn new(config: &NicConfig) -> Self {
        let depth = config.settings.inbound_queue as u16;
        Self {
            queues: [Jobs::new(depth), Jobs::new(depth)],
            nack_threshold: config.nack_threshold,
            timeout_nanos: config.timeout_nanos,
            first: ClassOfService::Latency,
            has_rest: false,
        }
    }

    /// Returns the reason why one more read has to be NACKed, of `class`, of `op_size` bytes, that
    /// would wait in `bucket` has to be NACKed, if so.
    #[inline]
    pub(super) fn why_full(
        &self,
        class: ClassOfService,
        bucket: Bucket,
        op_size: u16,
    ) -> Option<DropReason> {
        let reason = self.why_no_place(class)?;
        self.who_makes_room(class, bucket, op_size).is_none().then_some(reason)
    }

    /// Returns the reason why there is no place for one more read of `class`, or it would be
    /// answered too late if it were the last.
    #[inline]
    fn why_no_place(&self, class: ClassOfService) -> Option<DropReason> {
        if self.queues[class as usize].free.is_empty() {
            Some(DropReason::InboundQueueFull)
        } else if self.is_deep(class) {
            Some(DropReason::InboundQueueTooLong)
        } else {
            None
        }
    }

    /// The job that is NACKed to make room for one more in the list of `bucket`, if its own list is
    /// longer. Where there are too many bytes, a job that is no smaller than the new one: otherwise
    /// there would be more of them.
    #[cold]
    fn who_makes_room(&self, class: ClassOfService, bucket: Bucket, op_size: u16) -> Option<u16> {
        let Jobs { entries, queue, .. } = &self.queues[class as usize];
        let index = OwnersQueue::who_makes_room(core::slice::from_ref(queue), queue, bucket)?;
        let is_enough = !self.is_deep(class) || entries[usize::from(index)].op_size >= op_size;
        is_enough.then_some(index)
    }

    /// Whether one more read of `class` would be answered too late if it were the last.
    //= 1rma#6.1-nack-threshold
    fn is_deep(&self, class: ClassOfService) -> bool {
        // The classes take turns: before a new job goes all of its own queue, and as much of the
        // other's.
        let [own, other] = [class, class.other()].map(|class| &self.queues[class as usize]);
        own.bytes + own.bytes.min(other.bytes) > self.nack_threshold
    }

    /// How many reads of `class` wait, and how many bytes they still have to send.
    pub(in crate::nic) fn waiting(&self, class: ClassOfService) -> (usize, u64) {
        let Jobs { queue, bytes, .. } = &self.queues[class as usize];
        (queue.len(), *bytes)
    }

    /// A place for one more job of `op_size` bytes, for the caller to fill in. It was asked
    /// `why_full`; where there is none, who has most of them makes room.
    #[inline]
    pub(super) fn place(
        &mut self,
        bucket: Bucket,
        class: ClassOfService,
        op_size: u16,
        admission: &mut Admission,
        tables: &mut Tables<'_>,
    ) -> Option<&mut Job> {
        let who_makes_room = if self.why_no_place(class).is_some() {
            self.who_makes_room(class, bucket, op_size)
        } else {
            None
        };
        if let Some(index) = who_makes_room {
            tables.counters.pushed_out.add(1);
            let job = &self.queues[class as usize].entries[usize::from(index)];
            admission.refuse(&job.asked, &job.key, OpStatus::Nack, tables);
            self.abandon(class, index);
        }
        self.queues[class as usize].push(bucket, op_size)
    }

    /// Forgets what can no longer be answered in time, as after this host's device has stood still.
    pub(super) fn handle_timeout(&mut self, now: Instant, tables: &Tables<'_>) {
        for class in ClassOfService::ALL {
            while let Some(index) = self.queues[class as usize].too_old(now, self.timeout_nanos) {
                self.abandon(class, index);
                tables.counters.requests_abandoned.add(1);
            }
        }
    }

    /// Forgets a job. If responses of it have left that the others should have followed, they
    /// follow no more, and the job has had its turn.
    #[cold]
    fn abandon(&mut self, class: ClassOfService, index: u16) {
        let jobs = &mut self.queues[class as usize];
        let is_begun = jobs.entries[usize::from(index)].sent > 0;
        jobs.remove(index);
        if is_begun && class == ClassOfService::Latency && self.has_rest {
            self.has_rest = false;
            self.first = class.other();
        }
    }

    /// How many frames wait to be sent, at least.
    pub(super) fn frames_waiting(&self) -> usize {
        self.queues.iter().map(|jobs| jobs.queue.len()).sum()
    }

    /// Whether the last response has others of its op behind it, which leave in the same turn.
    pub(super) const fn has_rest(&self) -> bool {
        self.has_rest
    }

    /// Writes the next response, if there is one. Returns whether there was.
    pub(super) fn poll_transmit(
        &mut self,
        tables: &mut Tables<'_>,
        admission: &mut Admission,
        out: &mut TxFrame<'_>,
    ) -> bool {
        // Unless a job says otherwise below.
        self.has_rest = false;
        let Some(class) = self.next_class() else { return false };
        let jobs = &mut self.queues[class as usize];
        let Some(front) = jobs.queue.front() else { return false };
        let job = &mut jobs.entries[usize::from(front)];
        let sent_before = job.sent;
        let is_written = job.write_response(tables, out).is_some();
        let sent = u64::from(job.sent - sent_before);
        let is_over = !is_written || job.sent == job.op_size;
        if !is_written {
            tables.counters.count_drop(DropReason::OldKey);
            let status = OpStatus::RemoteAuthenticationFailure;
            admission.refuse(&job.asked, &job.key, status, tables);
        }
        jobs.bytes -= sent;
        if is_over {
            jobs.pop();
        }
        self.has_rest = !is_over && class == ClassOfService::Latency;
        if self.has_rest {
            self.first = class;
        }
        // One frame for each call, and bounded work: the refusal, or an earlier one.
        is_written || admission.poll_transmit(tables, out)
    }

    /// The class whose turn it is, if it has a job; otherwise the other.
    fn next_class(&mut self) -> Option<ClassOfService> {
        let (turn, other) = (self.first, self.first.other());
        let class =
            [turn, other].into_iter().find(|&it| !self.queues[it as usize].queue.is_empty())?;
        self.first = class.other();
        Some(class)
    }
}

impl Jobs {
    fn new(depth: u16) -> Self {
        Self {
            entries: (0..depth).map(|_| Job::none()).collect(),
            free: (0..depth).rev().collect(),
            queue: OwnersQueue::new(),
            links: FairLinks::new(depth.into()),
            bytes: 0,
        }
    }

    /// Puts a job of `op_size` bytes into the list of `bucket`, for the caller to fill in.
    #[inline]
    fn push(&mut self, bucket: Bucket, op_size: u16) -> Option<&mut Job> {
        let index = self.free.pop()?;
        self.bytes += u64::from(op_size);
        self.queue.push_back(&mut self.links, bucket, index);
        Some(&mut self.entries[usize::from(index)])
    }

    /// The job that has waited longest, if it is older than that.
    #[inline]
    fn too_old(&self, now: Instant, timeout_nanos: u64) -> Option<u16> {
        let index = self.queue.oldest(&self.links)?;
        let age = now.nanos_since(self.entries[usize::from(index)].arrived_at);
        (age >= timeout_nanos).then_some(index)
    }

    /// Takes the job out whose turn it is.
    fn pop(&mut self) {
        if let Some(index) = self.queue.pop_front(&mut self.links) {
            self.release(index);
        }
    }

    fn remove(&mut self, index: u16) {
        self.queue.remove(&mut self.links, index);
        self.release(index);
    }

    fn release(&mut self, index: u16) {
        let job = &self.entries[usize::from(index)];
        self.bytes -= u64::from(job.op_size - job.sent);
        self.free.push(index);
    }
}

impl Job {
    fn none() -> Self {
        Self {
            asked: Asked::NONE,
            arrived_at: Instant::ZERO,
            region_offset: 0,
            op_size: 0,
            sent: 0,
            payload_len_max: 0,
            packet_len_max: 0,
            revision: 0,
            key: DerivedRegionKey::RESERVED,
            settled: None,
        }
    }

    /// Makes it that of an admitted read.
    #[inline]
    pub(super) fn read(
        &mut self,
        now: Instant,
        asked: Asked,
        &Admitted { request, key, revision }: &Admitted<Request>,
        reply_len_max: usize,
    ) {
        // Field by field, so that it is made where it stays.
        self.asked = asked;
        self.arrived_at = now;
        self.region_offset = request.region_offset;
        self.op_size = request.op_size;
        self.sent = 0;
        self.settled = None;
        // A path that carries no granule is a device's mistake; one granule may still get through.
        let path = reply_len_max.saturating_sub(RESPONSE_OVERHEAD);
        self.payload_len_max = path.min(request.payload_len_max.into()).max(GRANULE as usize);
        self.packet_len_max = request.payload_len_max.saturating_add(RESPONSE_OVERHEAD as u16);
        self.revision = revision;
        self.key = key;
    }

    /// Makes it the answer to an admitted SETTLE (not in the paper).
    #[cold]
    pub(super) fn settle(
        &mut self,
        now: Instant,
        asked: Asked,
        key: DerivedRegionKey,
        verdict: Verdict,
        result: u64,
    ) {
        let settled = Some((verdict, result));
        *self = Self { asked, arrived_at: now, key, settled, ..Self::none() };
    }

    /// Reads the next part of the region into `out`. `None` if the region is gone, or has another
    /// key.
    fn write_response(&mut self, tables: &mut Tables<'_>, out: &mut TxFrame<'_>) -> Option<()> {
        if let Some((verdict, result)) = self.settled {
            return self.write_settlement(verdict, result, tables, out);
        }
        let region = tables.regions.get_at(self.asked.header.region, self.revision)?;
        let room = out.bytes.len().saturating_sub(RESPONSE_OVERHEAD);
        let left = usize::from(self.op_size - self.sent);
        let payload_len = cut(left, self.payload_len_max.min(room));
        let frame = out.bytes.get_mut(..RESPONSE_OVERHEAD + payload_len)?;
        let payload = frame.get_mut(RESPONSE_HEADER_LEN..RESPONSE_HEADER_LEN + payload_len)?;
        let offset = self.region_offset + u64::from(self.sent);
        region.memory.copy_out(offset, payload).ok()?;
        let tenant = region.tenant;
        let response = Response {
            header: self.asked.header,
            op_offset: self.sent,
            payload_len: payload_len as u16,
        };
        tables.security.write_answer(&self.key, &self.asked.seal.iv, response, frame);
        self.sent += payload_len as u16;
        let reply = self.asked.reply(tables.config, RESPONSE_OVERHEAD + payload_len);
        out.hold(Transmit { packet_len_max: self.packet_len_max, tenant, ..reply });
        Some(())
    }

    /// Answers a SETTLE.
    #[cold]
    fn write_settlement(
        &self,
        verdict: Verdict,
        result: u64,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> Option<()> {
        let settlement = Settlement { header: self.asked.header, verdict };
        let frame = out.bytes.get_mut(..SETTLEMENT_LEN)?;
        let word = frame.get_mut(SETTLEMENT_HEADER_LEN..SETTLEMENT_HEADER_LEN + WORD_LEN)?;
        word.copy_from_slice(&result.to_be_bytes());
        tables.security.write_answer(&self.key, &self.asked.seal.iv, settlement, frame);
        out.hold(self.asked.reply_for(tables, SETTLEMENT_LEN));
        Some(())
    }
}
