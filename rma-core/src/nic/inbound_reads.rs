//! The incoming op FIFOs: reads that have been admitted, until all their responses are sent (1RMA §3.1, §4.3).
//!
//! The queues have a fixed depth. A read is NACKed that finds its queue full, or so much data before it that its
//! own would come too late (§6.1). A job carries its K_d; what it was admitted under must still be
//! the region's key when its data is read, so that nothing is read under a key that was rotated away.

use std::collections::VecDeque;

use super::{
    NicConfig,
    admission::{Admission, Admitted, Asked},
    granules::cut,
    responder::Serving,
};
use crate::{
    backend::Transmit,
    crypto::DerivedRegionKey,
    error::DropReason,
    limits::GRANULE,
    op::{ClassOfService, OpStatus},
    time::Instant,
    wire::{
        Request, Response,
        read::{RESPONSE_HEADER_LEN, RESPONSE_OVERHEAD},
    },
};

/// An admitted request whose responses are not all sent.
//= 1rma#4.2-no-peer-state
struct Job {
    asked: Asked,
    arrived_at: Instant,
    region_offset: u64,
    op_size: u16,
    /// Bytes of the op that have been sent.
    sent: u16,
    /// The largest payload that both sides and the path between them can carry.
    payload_len_max: usize,
    revision: u64,
    key: DerivedRegionKey,
}

pub(super) struct InboundReads {
    /// One for each class of service. They never grow past `depth`.
    queues: [VecDeque<Job>; 2],
    /// Bytes that the jobs of each queue still have to send.
    bytes: [u64; 2],
    depth: usize,
    nack_threshold: u64,
    timeout_nanos: u64,
    /// Which class is asked first the next time.
    first: ClassOfService,
}

impl InboundReads {
    /// Bytes that each entry of a queue takes.
    pub(super) const ENTRY_LEN: usize = size_of::<Job>();

    pub(super) fn new(config: &NicConfig) -> Self {
        let depth = config.settings.inbound_queue as usize;
        Self {
            queues: [VecDeque::with_capacity(depth), VecDeque::with_capacity(depth)],
            bytes: [0; 2],
            depth,
            nack_threshold: config.nack_threshold,
            timeout_nanos: config.timeout_nanos,
            first: ClassOfService::Latency,
        }
    }

    /// Whether one more read of `class` would be answered too late, or has no place.
    //= 1rma#6.1-nack-threshold
    pub(super) fn is_full(&self, class: ClassOfService) -> bool {
        // The classes take turns: before a new job goes all of its own queue, and as much of the other's.
        let own = self.bytes[class as usize];
        let before = own + own.min(self.bytes[class.other() as usize]);
        self.queues[class as usize].len() >= self.depth || before > self.nack_threshold
    }

    /// How many reads of `class` wait, and how many bytes they still have to send.
    pub(super) fn waiting(&self, class: ClassOfService) -> (usize, u64) {
        (self.queues[class as usize].len(), self.bytes[class as usize])
    }

    /// Queues an admitted read. It was asked `is_full`.
    pub(super) fn push(
        &mut self,
        now: Instant,
        asked: Asked,
        admitted: Admitted<Request>,
        reply_len_max: usize,
    ) {
        let Admitted { request, key, revision } = admitted;
        let class = request.header.class as usize;
        let path = reply_len_max.saturating_sub(RESPONSE_OVERHEAD);
        self.bytes[class] += u64::from(request.op_size);
        self.queues[class].push_back(Job {
            asked,
            arrived_at: now,
            region_offset: request.region_offset,
            op_size: request.op_size,
            sent: 0,
            // A path that carries no granule is a device's mistake; one granule may still get through.
            payload_len_max: path.min(request.payload_len_max.into()).max(GRANULE as usize),
            revision,
            key,
        });
    }

    /// Forgets what can no longer be answered in time, as after this host's device has stood still.
    pub(super) fn handle_timeout(&mut self, now: Instant, serving: &Serving<'_>) {
        for class in ClassOfService::ALL {
            while let Some(job) = self.queues[class as usize].front()
                && now.nanos_since(job.arrived_at) >= self.timeout_nanos
            {
                self.pop(class);
                serving.counters.count_abandoned();
            }
        }
    }

    fn pop(&mut self, class: ClassOfService) {
        if let Some(job) = self.queues[class as usize].pop_front() {
            self.bytes[class as usize] -= u64::from(job.op_size - job.sent);
        }
    }

    /// How many frames wait to be sent, at least.
    pub(super) fn frames_waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Writes the next response, if there is one.
    pub(super) fn poll_transmit(
        &mut self,
        serving: &mut Serving<'_>,
        admission: &mut Admission,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let class = self.next_class()?;
        let job = self.queues[class as usize].front_mut()?;
        let sent_before = job.sent;
        let transmit = job.write_response(serving, out);
        let sent = u64::from(job.sent - sent_before);
        let is_over = transmit.is_none() || job.sent == job.op_size;
        if transmit.is_none() {
            serving.counters.count_drop(DropReason::OldKey);
            let status = OpStatus::RemoteAuthenticationFailure;
            admission.refuse(&job.asked, &job.key, status, serving);
        }
        self.bytes[class as usize] -= sent;
        if is_over {
            self.pop(class);
        }
        // One frame for each call, and bounded work: the refusal, or an earlier one.
        transmit.or_else(|| admission.poll_transmit(serving, out))
    }

    /// The class whose turn it is, if it has a job; otherwise the other.
    fn next_class(&mut self) -> Option<ClassOfService> {
        let (turn, other) = (self.first, self.first.other());
        let class =
            [turn, other].into_iter().find(|&class| !self.queues[class as usize].is_empty())?;
        self.first = class.other();
        Some(class)
    }
}

impl Job {
    /// Reads the next part of the region into `out`. `None` if the region is gone, or has another
    /// key.
    fn write_response(&mut self, serving: &mut Serving<'_>, out: &mut [u8]) -> Option<Transmit> {
        let region = serving.regions.get_at(self.asked.header.region, self.revision)?;
        let room = out.len().saturating_sub(RESPONSE_OVERHEAD);
        let left = usize::from(self.op_size - self.sent);
        let payload_len = cut(left, self.payload_len_max.min(room));
        let frame = out.get_mut(..RESPONSE_OVERHEAD + payload_len)?;
        let payload = frame.get_mut(RESPONSE_HEADER_LEN..RESPONSE_HEADER_LEN + payload_len)?;
        let offset = self.region_offset + u64::from(self.sent);
        region.memory.copy_out(offset, payload).ok()?;
        let response = Response {
            header: self.asked.header,
            op_offset: self.sent,
            payload_len: payload_len as u16,
        };
        serving.security.write_response(&self.key, &self.asked.seal.iv, response, frame);
        self.sent += payload_len as u16;
        Some(self.asked.reply(RESPONSE_OVERHEAD + payload_len, true))
    }
}
