//! P10: what a node sends to refuse a request. A failure notice answers one copy of one request that came to the node
//! in its present life, is bound to it, says what became of it, and is shorter. Those to whom it could not
//! authenticate are no more than the configured rate allows.
//!
//! Here it is also checked that no request that the network has changed is taken for an authentic one, not even to
//! refuse it (P6).

use rma_core::{
    addr::HostAddr,
    crypto::{DerivedRegionKey, Direction, IV_LEN, Iv, fastest},
    error::DropReason,
    limits::TAG_LEN,
    op::{OpStatus, OpType},
    time::Instant,
    wire::{Failure, FrameView, Header, failure::FAILURE_HEADER_LEN},
};
use rma_crypto::{OpenJob, Text};

use super::{
    Checker, settings,
    state::{NodeState, OpIndex},
};
use crate::{
    node::NodeId,
    sim::Sim,
    trace::{Frame, Seen},
    violation::Violation,
};

/// What one node has to answer, in its present life.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Copies of requests that it refused at once, and has sent no notice for. In the order in which they came.
    refused: Vec<Cause>,
    /// Copies that it accepted, and has neither answered in full, nor solicited, nor refused.
    accepted: Vec<Cause>,
    strangers: Bucket,
}

/// A copy of a request that came.
#[derive(Debug)]
struct Cause {
    header: Header,
    tag: [u8; TAG_LEN],
    len: usize,
    initiator: HostAddr,
    responder: HostAddr,
    arrived_at: Instant,
    /// Which op's it is; `None` if it was changed on its way.
    op: Option<OpIndex>,
    verdict: Verdict,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    /// Refused, and authentic if the status is another than REMOTE_AUTHENTICATION_FAILURE.
    Refused(OpStatus),
    /// Refused as a stranger's when there had been too many.
    TooMany,
}

/// How many notices strangers may get at once after a pause.
const BURST: u64 = 256;

/// What notices to strangers may still be sent, in nanoseconds of earned time. A notice costs whole ones, as in a NIC:
/// otherwise both would not always agree which of two requests was told.
#[derive(Debug)]
struct Bucket {
    earned: u64,
    seen: Instant,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { earned: u64::MAX, seen: Instant::ZERO }
    }
}

impl Bucket {
    fn admits(&mut self, now: Instant, per_second: u32) -> bool {
        if per_second == 0 {
            return false;
        }
        let price = 1_000_000_000_u64.div_ceil(per_second.into());
        let earned = self.earned.saturating_add(now.nanos_since(self.seen));
        self.earned = earned.min(BURST * price);
        self.seen = now;
        let left = self.earned.checked_sub(price);
        self.earned = left.unwrap_or(self.earned);
        left.is_some()
    }
}

impl Cause {
    fn is_answered_by(&self, frame: &Frame, failure: &Failure) -> bool {
        let name = |it: &Header| (it.slot, it.generation, it.pid, it.region, it.class);
        let (from, to) = (frame.transmit.source, frame.transmit.destination);
        (self.responder, self.initiator) == (from, to)
            && name(&self.header) == name(&failure.header)
    }

    /// Whether `notice`, which is well-formed, is sealed under `key` and bound to this request.
    fn binds(&self, notice: &[u8], header: &Header, key: &DerivedRegionKey) -> bool {
        let Some((notice, tag)) = notice.split_last_chunk::<TAG_LEN>() else { return false };
        let mut aad = [0; FAILURE_HEADER_LEN + IV_LEN + TAG_LEN];
        let (own, answered) = aad.split_at_mut(FAILURE_HEADER_LEN);
        own.copy_from_slice(notice);
        let (iv, its_tag) = answered.split_at_mut(IV_LEN);
        let Header { engine, counter, .. } = self.header;
        iv.copy_from_slice(Iv::new(Direction::ToResponder, engine, counter).octets());
        its_tag.copy_from_slice(&self.tag);
        let iv = *Iv::new(Direction::ToInitiator, header.engine, header.counter).octets();
        let (key, text) = (key.as_key().into(), Text::empty());
        let mut jobs = [OpenJob { key, iv, aad: &aad, text, tag, authentic: false }];
        fastest().open(&mut jobs);
        jobs[0].authentic
    }
}

impl Checker {
    /// A copy of a request came, as `arrived`, and `result` became of it. Other frames are ignored.
    pub(super) fn request_came(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        arrived: &[u8],
        op: Option<OpIndex>,
        result: Result<(), DropReason>,
    ) -> Result<(), Violation> {
        let header = match FrameView::parse(arrived) {
            Ok(FrameView::ReadRequest(view)) => view.claims().header,
            Ok(FrameView::MutationRequest(view)) => view.claims().header,
            _ => return Ok(()),
        };
        let node = seen.node;
        let notices = &mut self.nodes[node.index()].notices;
        let unauthenticated = OpStatus::RemoteAuthenticationFailure;
        let verdict = match result {
            Ok(()) => Verdict::Accepted,
            Err(DropReason::UnknownRegion | DropReason::RequestUnauthenticated) => {
                let per_second = settings(sim, node).notices_per_second;
                if notices.strangers.admits(seen.local, per_second) {
                    Verdict::Refused(unauthenticated)
                } else {
                    Verdict::TooMany
                }
            }
            Err(DropReason::OldKey) => Verdict::Refused(unauthenticated),
            Err(DropReason::RequestNotPermitted) => {
                Verdict::Refused(OpStatus::RemotePermissionDenied)
            }
            Err(DropReason::RequestOutOfBounds) => Verdict::Refused(OpStatus::RemoteOutOfBounds),
            Err(DropReason::InboundQueueFull) => Verdict::Refused(OpStatus::Nack),
            Err(_) => return Ok(()),
        };
        let is_stranger =
            matches!(result, Err(DropReason::UnknownRegion | DropReason::RequestUnauthenticated));
        if op.is_none() && !is_stranger {
            let source_addr = frame.transmit.source;
            return Err(Violation::CorruptedAccepted { node, source_addr });
        }
        let cause = Cause {
            header,
            tag: arrived.last_chunk().copied().unwrap_or_default(),
            len: arrived.len(),
            initiator: frame.transmit.source,
            responder: frame.transmit.destination,
            arrived_at: seen.local,
            op,
            verdict,
        };
        match verdict {
            Verdict::Accepted => notices.accepted.push(cause),
            _ => notices.refused.push(cause),
        }
        Ok(())
    }

    /// `node` has answered a copy of the request of `op` in full, or solicited its data: no notice follows.
    pub(super) fn request_answered(&mut self, node: NodeId, op: OpIndex) {
        let accepted = &mut self.nodes[node.index()].notices.accepted;
        if let Some(place) = accepted.iter().position(|cause| cause.op == Some(op)) {
            accepted.remove(place);
        }
    }

    /// A failure notice was sent.
    pub(super) fn notice_sent(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        failure: &Failure,
    ) -> Result<(), Violation> {
        let (node, status) = (seen.node, failure.status);
        let settings = settings(sim, node);
        let ops = &self.ops;
        let explains = |cause: &Cause| match (cause.verdict, cause.op.map(|op| &ops[op])) {
            (Verdict::Refused(why), _) => why == status,
            (Verdict::TooMany, _) => status == OpStatus::RemoteAuthenticationFailure,
            (Verdict::Accepted, Some(op)) => match status {
                OpStatus::RemoteAuthenticationFailure => op.stale,
                OpStatus::Nack => {
                    let waited = seen.local.since(cause.arrived_at);
                    op.op_type != OpType::Read && waited >= settings.timing.dispatch_timeout
                }
                _ => false,
            },
            (Verdict::Accepted, None) => false,
        };
        let is_bound = |cause: &Cause| {
            let own = cause.op.map(|op| &ops[op].key);
            let reserved = status == OpStatus::RemoteAuthenticationFailure;
            let key = if reserved { Some(&DerivedRegionKey::RESERVED) } else { own };
            key.is_some_and(|key| cause.binds(&frame.bytes, &failure.header, key))
        };
        let fits = |cause: &Cause| {
            cause.is_answered_by(frame, failure) && explains(cause) && is_bound(cause)
        };
        let NodeState { notices, fairness, .. } = &mut self.nodes[node.index()];
        let Notices { refused, accepted, .. } = notices;
        let in_time = |cause: &Cause| cause.verdict != Verdict::TooMany && fits(cause);
        let cause = if let Some(place) = refused.iter().position(in_time) {
            refused.remove(place)
        } else if let Some(place) = accepted.iter().position(fits) {
            fairness.refused();
            accepted.remove(place)
        } else if refused.iter().any(fits) {
            let per_second = settings.notices_per_second;
            return Err(Violation::NoticesTooFast { node, per_second });
        } else {
            let destination = frame.transmit.destination;
            return Err(Violation::UnaskedNotice { node, destination, status });
        };
        if frame.bytes.len() < cause.len {
            Ok(())
        } else {
            let (len, cause_len) = (frame.bytes.len(), cause.len);
            Err(Violation::Amplified { node, len, cause_len })
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn strangers_get_a_burst_and_then_the_rate() {
        let (mut bucket, mut now) = (Bucket::default(), Instant::from_nanos(77));
        let mut admitted =
            |now, per_second| (0..1000).filter(|_| bucket.admits(now, per_second)).count();
        assert_eq!(admitted(now, 3), 256);
        now = now + Duration::from_nanos(1_000_000_001);
        assert_eq!(admitted(now, 3), 2, "no faster, though a third of a second is not whole");
        now = now + Duration::from_nanos(1);
        assert_eq!(admitted(now, 3), 1);
        now = now + Duration::from_secs(1_000);
        assert_eq!(admitted(now, 3), 256);
        assert_eq!(admitted(now, 0), 0);
    }
}
