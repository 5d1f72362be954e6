//! The serving side: inbound queues, responses, failure notices (1RMA §3.1, §4.2, §4.5).
//!
//! Nothing here grows with the number of peers. A request that has been authenticated becomes a job in the
//! inbound queue of its class; the job carries the prepared K_d, so the key is derived at most once for each
//! op (`key_cache` keeps a few for the next). The queues have a fixed depth; beyond it requests are NACKed.

use std::collections::VecDeque;

use super::{
    NicConfig, counters::NicCounters, key_cache::KeyCache, notice_limiter::NoticeLimiter,
    region_table::RegionTable, security::Security,
};
use crate::{
    addr::HostAddr,
    backend::{RxFrame, Transmit},
    crypto::{AeadProvider, Direction, Iv, KeyBinding},
    error::DropReason,
    limits::GRANULE,
    op::{ClassOfService, OpStatus, OpType},
    region::Permissions,
    time::Instant,
    wire::{
        Failure, Request, Response,
        failure::FAILURE_LEN,
        read::{RESPONSE_HEADER_LEN, RESPONSE_OVERHEAD},
    },
};

/// An authenticated request whose responses are not all sent.
//= 1rma#4.2-no-peer-state
struct Job<K> {
    request: Request,
    request_iv: Iv,
    key: K,
    initiator: HostAddr,
    /// The address of ours that the request was sent to.
    responder: HostAddr,
    /// The largest payload that both sides and the path between them can carry.
    payload_len_max: usize,
    /// Bytes of the op that have been sent.
    sent: u16,
}

/// A sealed failure notice that waits to be sent.
struct Notice {
    frame: [u8; FAILURE_LEN],
    transmit: Transmit,
}

/// How many notices may wait. Beyond it they are dropped, and their ops time out.
const NOTICES_MAX: usize = 256;

pub(super) struct Responder<A: AeadProvider> {
    /// The incoming op FIFOs, one for each class of service. They never grow past `depth`.
    inbound: [VecDeque<Job<A::Key>>; 2],
    depth: usize,
    /// Which class is asked first the next time.
    first: ClassOfService,
    notices: VecDeque<Notice>,
    /// Whether notices are asked first for the next frame.
    notices_first: bool,
    limiter: NoticeLimiter,
    keys: KeyCache<A::Key>,
}

/// What the responder works with, besides its own queues.
pub(super) struct Serving<'a, A: AeadProvider> {
    pub(super) security: &'a mut Security<A>,
    pub(super) regions: &'a RegionTable,
    pub(super) counters: &'a NicCounters,
}

impl<A: AeadProvider> Responder<A> {
    pub(super) fn new(config: &NicConfig) -> Self {
        let depth = config.settings.inbound_queue as usize;
        Self {
            inbound: [VecDeque::with_capacity(depth), VecDeque::with_capacity(depth)],
            depth,
            first: ClassOfService::Latency,
            notices: VecDeque::with_capacity(NOTICES_MAX),
            notices_first: true,
            limiter: NoticeLimiter::new(config.settings.notices_per_second),
            keys: KeyCache::new(),
        }
    }

    /// How much the queues have allocated: must never change.
    #[cfg(test)]
    pub(super) fn capacities(&self) -> [usize; 3] {
        let [latency, throughput] = self.inbound.each_ref().map(VecDeque::capacity);
        [latency, throughput, self.notices.capacity()]
    }

    /// Authenticates a request and queues it; refuses it with a notice otherwise.
    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        claims: Request,
        frame: RxFrame<'_>,
        serving: &mut Serving<'_, A>,
    ) -> Result<(), DropReason> {
        let refuse = Refusal { now, claims, initiator: frame.source, responder: frame.destination };
        let Some(region) = serving.regions.get(claims.header.region) else {
            self.refuse_unauthenticated(&refuse, serving);
            return Err(DropReason::UnknownRegion);
        };
        // While the key is derived and the tag checked, the data comes out of memory. A claim is good
        // enough: nothing is read.
        region.memory.prefetch(claims.region_offset, claims.op_size.into());
        let binding = KeyBinding {
            initiator: frame.source,
            responder: frame.destination,
            pid: claims.header.pid,
            op_type: OpType::Read,
        };
        let kept = self.keys.get(serving.regions, claims.header.region, &binding);
        let is_new = kept.is_none();
        let key = kept.unwrap_or_else(|| serving.security.prepare(&region.key.derive(&binding)));
        let Some(request) = serving.security.open_request(&key, claims, frame.bytes) else {
            self.refuse_unauthenticated(&refuse, serving);
            return Err(DropReason::RequestUnauthenticated);
        };
        if is_new {
            self.keys.insert(claims.header.region, binding, &key);
        }
        let refused = if !region.permissions.contains(Permissions::READ) {
            Some((OpStatus::RemotePermissionDenied, DropReason::RequestNotPermitted))
        } else if !region.holds(request.region_offset, request.op_size.into()) {
            Some((OpStatus::RemoteOutOfBounds, DropReason::RequestOutOfBounds))
        } else if self.inbound[request.header.class as usize].len() >= self.depth {
            //= 1rma#4.5-nack
            Some((OpStatus::Nack, DropReason::InboundQueueFull))
        } else {
            None
        };
        if let Some((status, reason)) = refused {
            self.refuse(&refuse, Some(&key), status, serving);
            return Err(reason);
        }
        let path = frame.reply_len_max.saturating_sub(RESPONSE_OVERHEAD);
        let job = Job {
            request_iv: request.header.iv(Direction::ToResponder),
            key,
            initiator: frame.source,
            responder: frame.destination,
            // A path that carries no granule is a device's mistake; one granule may still get through.
            payload_len_max: path.min(request.payload_len_max.into()).max(GRANULE as usize),
            sent: 0,
            request: *request,
        };
        self.inbound[request.header.class as usize].push_back(job);
        Ok(())
    }

    //= 1rma#4.2-request-authentication-failure
    fn refuse_unauthenticated(&mut self, refusal: &Refusal, serving: &mut Serving<'_, A>) {
        if self.limiter.admits(refusal.now) {
            self.refuse(refusal, None, OpStatus::RemoteAuthenticationFailure, serving);
        } else {
            serving.counters.count_drop(DropReason::NoticeRateLimited);
        }
    }

    /// Queues a failure notice, bound to the request's IV.
    fn refuse(
        &mut self,
        refusal: &Refusal,
        key: Option<&A::Key>,
        status: OpStatus,
        serving: &mut Serving<'_, A>,
    ) {
        if self.notices.len() == NOTICES_MAX {
            serving.counters.count_drop(DropReason::NoticeQueueFull);
            return;
        }
        let header = refusal.claims.header;
        let failure = Failure { header, status };
        let iv = header.iv(Direction::ToResponder);
        let frame = serving.security.seal_failure(key, &iv, failure);
        let transmit = Transmit {
            source: refusal.responder,
            destination: refusal.initiator,
            len: FAILURE_LEN,
            flow: flow(&refusal.claims),
            may_resolve: key.is_some(),
        };
        self.notices.push_back(Notice { frame, transmit });
    }

    /// Whether a notice or a response waits to be sent.
    pub(super) fn wants_transmit(&self) -> bool {
        !self.notices.is_empty() || self.inbound.iter().any(|queue| !queue.is_empty())
    }

    /// Writes the next notice or response, if there is one. They take turns: requests that are refused
    /// may come as fast as frames can be sent, and those that were accepted must not wait for their end.
    pub(super) fn poll_transmit(
        &mut self,
        serving: &mut Serving<'_, A>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let notices_first = self.notices_first;
        self.notices_first = !notices_first;
        if notices_first {
            self.poll_notice(out).or_else(|| self.poll_response(serving, out))
        } else {
            self.poll_response(serving, out).or_else(|| self.poll_notice(out))
        }
    }

    fn poll_notice(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let notice = self.notices.pop_front()?;
        out[..FAILURE_LEN].copy_from_slice(&notice.frame);
        Some(notice.transmit)
    }

    fn poll_response(&mut self, serving: &mut Serving<'_, A>, out: &mut [u8]) -> Option<Transmit> {
        loop {
            let class = self.next_class()?;
            let queue = &mut self.inbound[class as usize];
            let job = queue.front_mut().expect("`next_class` found a job");
            let transmit = job.write_response(serving, out);
            if transmit.is_none() {
                serving.counters.count_abandoned();
            }
            if transmit.is_none() || job.sent == job.request.op_size {
                queue.pop_front();
            }
            if transmit.is_some() {
                return transmit;
            }
        }
    }

    /// The class whose turn it is, if it has a job; otherwise the other.
    fn next_class(&mut self) -> Option<ClassOfService> {
        let turn = self.first;
        let other = match turn {
            ClassOfService::Latency => ClassOfService::Throughput,
            ClassOfService::Throughput => ClassOfService::Latency,
        };
        self.first = other;
        [turn, other].into_iter().find(|&class| !self.inbound[class as usize].is_empty())
    }
}

impl<K: Send> Job<K> {
    /// Reads the next part of the region into `out` and seals it. `None` if the region is gone.
    fn write_response<A: AeadProvider<Key = K>>(
        &mut self,
        serving: &mut Serving<'_, A>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let region = serving.regions.get(self.request.header.region)?;
        let room = out.len().saturating_sub(RESPONSE_OVERHEAD);
        let left = usize::from(self.request.op_size - self.sent);
        let payload_len = cut(left, self.payload_len_max.min(room));
        let frame = out.get_mut(..RESPONSE_OVERHEAD + payload_len)?;
        let payload = frame.get_mut(RESPONSE_HEADER_LEN..RESPONSE_HEADER_LEN + payload_len)?;
        let offset = self.request.region_offset + u64::from(self.sent);
        region.memory.copy_out(offset, payload).ok()?;
        let response = Response {
            header: self.request.header,
            op_offset: self.sent,
            payload_len: payload_len as u16,
        };
        serving.security.seal_response(&self.key, &self.request_iv, response, frame);
        self.sent += payload_len as u16;
        Some(Transmit {
            source: self.responder,
            destination: self.initiator,
            len: RESPONSE_OVERHEAD + payload_len,
            flow: flow(&self.request),
            may_resolve: true,
        })
    }
}

/// How many of the `left` bytes of an op go into the next response: as few responses as `most` bytes each
/// allow, whole granules but for the last.
///
/// All but the last are full: the initiator opens one while the next is under way, so what it waits for in
/// the end is the last one alone, and that should be short. But not tiny, which would be a frame for nearly
/// nothing: then the rest is cut evenly. (4 KiB at an MTU of 3400: 7.3 µs in place of 7.5 on a veth pair.)
fn cut(left: usize, most: usize) -> usize {
    const GRANULE_LEN: usize = GRANULE as usize;
    if left <= most {
        return left;
    }
    let most = (most / GRANULE_LEN).max(1) * GRANULE_LEN;
    let responses = left.div_ceil(most);
    let last = left - (responses - 1) * most;
    if last >= most / 4 { most } else { left.div_ceil(responses).next_multiple_of(GRANULE_LEN) }
}

/// The same for all frames that answer one op.
const fn flow(request: &Request) -> u16 {
    request.header.slot.0 ^ request.header.generation as u16
}

/// Who asked for what, for the notice that refuses it.
struct Refusal {
    now: Instant,
    claims: Request,
    initiator: HostAddr,
    responder: HostAddr,
}

impl<A: AeadProvider> core::fmt::Debug for Responder<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Responder")
            .field("inbound", &self.inbound.each_ref().map(VecDeque::len))
            .field("notices", &self.notices.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(mut left: usize, most: usize) -> Vec<usize> {
        let mut cuts = Vec::new();
        while left > 0 {
            cuts.push(cut(left, most));
            left -= cuts.last().unwrap();
        }
        cuts
    }

    #[test]
    fn an_op_is_cut_into_few_responses_with_a_short_but_not_tiny_last_one() {
        assert_eq!(cuts(4096, 4096), [4096]);
        assert_eq!(cuts(4096, 3324), [3264, 832]);
        assert_eq!(cuts(4096, 1424), [1408, 1408, 1280]);
        assert_eq!(cuts(100, 1424), [100]);
        assert_eq!(cuts(1424, 1424), [1424]);
        assert_eq!(cuts(1425, 1424), [768, 657]);
    }

    #[test]
    fn every_cut_of_every_size_is_allowed_on_the_wire() {
        for most in [64, 65, 127, 128, 500, 1424, 3324, 4095] {
            for size in 1..=4096 {
                let cuts = cuts(size, most);
                let (last, others) = cuts.split_last().unwrap();
                assert!(others.iter().all(|cut| cut.is_multiple_of(64) && *cut <= most));
                assert!(*last <= most && *last > 0);
                assert_eq!(cuts.iter().sum::<usize>(), size);
            }
        }
    }
}
