//! P10: what a node sends to refuse a request. A failure notice answers one copy of one request
//! that came to the node in its present life, is bound to it, says what became of it, and is
//! shorter. It is sent within a timeout, or never. Those to strangers are no more than the
//! configured rate allows, and those to whoever has used an old key no more than theirs; of the
//! latter, a request gets one within a timeout, however often it comes. Packets that have nothing
//! but notices to strangers are no more than came from the same address with requests of strangers.
//!
//! Here it is also checked that no request that the network has changed is taken for an authentic
//! one, not even to refuse it (P6).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use rma_core::{
    addr::HostAddr,
    crypto::{AeadProvider, DerivedRegionKey, Direction, IV_LEN, Iv},
    error::DropReason,
    limits::TAG_LEN,
    nic::{NicConfig, NicConfigBuilder},
    op::{Moves, OpStatus},
    region::RegionId,
    time::Instant,
    wire::{Failure, FrameView, Header, failure::FAILURE_HEADER_LEN},
};
use rma_crypto::{OpenJob, Text};

use super::{
    Checker, is_for_stranger, settings,
    state::{NodeState, Op, OpIndex},
};
use crate::{
    check::violation::Violation,
    net::{
        frame::{Frame, NodeId, Packet},
        sim::Sim,
        trace::{Landing, Seen},
    },
};

/// The answers that one node owes, in its present life.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Copies of requests that it refused at once, and has sent no notice for. In the order in
    /// which they came.
    refused: Vec<Cause>,
    /// Copies that it accepted, and has neither answered in full, nor solicited, nor refused.
    accepted: Vec<Cause>,
    strangers: Bucket,
    old_keys: Bucket,
    /// Requests under old keys that came or were told, in that order.
    told: Vec<Told>,
}

/// The packets of strangers to one host, in its present life.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Packets with requests of strangers, by their address, that no packet has answered.
    unanswered: BTreeMap<HostAddr, u64>,
    /// Those that were counted, by the numbers of their copies.
    paid_for: BTreeSet<u64>,
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
    /// The op that it is for; `None` if it was changed on its way.
    op: Option<OpIndex>,
    verdict: Verdict,
}

/// The verdict on a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    /// Refused under its K_d, so it was authentic.
    Refused(OpStatus),
    /// Under a key that its region had before.
    OldKey,
    /// Not authentic.
    Stranger,
}

/// A request under an old key.
#[derive(Debug)]
struct Told {
    tag: [u8; TAG_LEN],
    at: Instant,
    /// When a notice was sent. Otherwise it came.
    was_sent: bool,
}

impl Told {
    /// A NIC remembers requests in sets of eight, chosen by their tags.
    const WAYS: usize = 8;
    const SETS: u64 = 512;

    fn set(&self) -> u64 {
        u64::from_be_bytes(*self.tag.first_chunk().expect("a tag is longer")) % Self::SETS
    }
}

/// How many notices of a kind may be sent at once after a pause.
const BURST: u64 = 256;

/// How many notices a second those may get at least who have used an old key.
const OLD_KEYS_PER_SECOND_MIN: u32 = 1_000;

/// The notices of one kind that may still be sent, in nanoseconds of earned time. A notice costs
/// whole ones, as in a NIC: otherwise both would not always agree how many there may be.
#[derive(Debug)]
struct Bucket {
    earned: u64,
    seen: Instant,
    /// Before this time there was none at least once.
    short_until: Instant,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { earned: u64::MAX, seen: Instant::ZERO, short_until: Instant::ZERO }
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
        let missing = price.saturating_sub(self.earned);
        if missing > 0 {
            self.short_until = now + Duration::from_nanos(missing);
        }
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
    fn binds(
        &self,
        aead: &dyn AeadProvider,
        notice: &[u8],
        header: &Header,
        key: &DerivedRegionKey,
    ) -> bool {
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
        aead.open(&mut jobs);
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
        (result, landing): (Result<(), DropReason>, Landing),
    ) -> Result<(), Violation> {
        let header = match FrameView::parse(arrived) {
            Ok(FrameView::ReadRequest(view)) => view.claims().header,
            Ok(FrameView::MutationRequest(view)) => view.claims().header,
            Ok(FrameView::RecordedRequest(view)) => view.claims().header,
            Ok(FrameView::SettleRequest(view)) => view.claims().header,
            _ => return Ok(()),
        };
        let node = seen.node;
        let verdict = match result {
            Ok(()) => Verdict::Accepted,
            Err(DropReason::OldKey) => Verdict::OldKey,
            Err(reason) => match reason.refused_with() {
                Some(OpStatus::RemoteAuthenticationFailure) => Verdict::Stranger,
                Some(status) => Verdict::Refused(status),
                None => return Ok(()),
            },
        };
        if op.is_none() && verdict != Verdict::Stranger {
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
        let timeout = settings(sim, node).timing.timeout;
        let notices = &mut self.nodes[node.index()].notices;
        let is_recent = |at: Instant| seen.local.since(at) < timeout;
        notices.refused.retain(|cause| is_recent(cause.arrived_at));
        notices.told.retain(|told| is_recent(told.at));
        if verdict == Verdict::OldKey {
            notices.told.push(Told { tag: cause.tag, at: seen.local, was_sent: false });
        }
        let strangers = &mut self.strangers[self.hosts[node.index()].0.index()];
        if verdict == Verdict::Stranger && strangers.paid_for.insert(landing.copy) {
            *strangers.unanswered.entry(cause.initiator).or_default() += 1;
        }
        match verdict {
            Verdict::Accepted => notices.accepted.push(cause),
            _ => notices.refused.push(cause),
        }
        Ok(())
    }

    /// A node has answered a copy of the request of `op` in full, or solicited its data: no notice
    /// follows. Of several copies it is the first that has not waited for too long: those before
    /// are refused, and their notices may follow.
    pub(super) fn request_answered(&mut self, sim: &Sim, seen: &Seen, op: OpIndex) {
        let dispatch_timeout = settings(sim, seen.node).timing.dispatch_timeout;
        let accepted = &mut self.nodes[seen.node.index()].notices.accepted;
        let in_time = |cause: &Cause| seen.local.since(cause.arrived_at) < dispatch_timeout;
        let of_op = |cause: &Cause| cause.op == Some(op);
        let place = accepted.iter().position(|cause| of_op(cause) && in_time(cause));
        if let Some(place) = place.or_else(|| accepted.iter().position(of_op)) {
            accepted.remove(place);
        }
    }

    /// A packet was sent, which strangers must have paid for with another if it is for them alone.
    pub(super) fn packet_paid(&mut self, node: NodeId, packet: &Packet) -> Result<(), Violation> {
        if !packet.frames.iter().all(|frame| is_for_stranger(frame)) {
            return Ok(());
        }
        let destination = packet.transmit.destination;
        let unanswered = &mut self.strangers[self.hosts[node.index()].0.index()].unanswered;
        let left = unanswered.get_mut(&destination).and_then(|left| {
            *left = left.checked_sub(1)?;
            Some(())
        });
        left.ok_or(Violation::UnpaidPacket { node, destination })
    }

    /// The regions for whose ops `node` may have no record, of those that ops wait for.
    fn lacking(&self, node: NodeId, now: Instant, settings: &NicConfigBuilder) -> Vec<RegionId> {
        let NodeState { notices, records, .. } = &self.nodes[node.index()];
        let ops = notices.accepted.iter().filter_map(|cause| cause.op);
        let regions = ops.filter_map(|op| Some(self.ops[op].target?.1));
        regions.filter(|&region| records.may_lack(Some(region), now, settings)).collect()
    }

    /// A failure notice was sent.
    pub(super) fn notice_sent(
        &mut self,
        sim: &Sim,
        seen: &Seen,
        frame: &Frame,
        failure: &Failure,
    ) -> Result<(), Violation> {
        let (node, status, now) = (seen.node, failure.status, seen.local);
        let config = sim.nic(node).config();
        let settings = config.settings();
        let timeout = settings.timing.timeout;
        let ops = &self.ops;
        let unauthenticated = OpStatus::RemoteAuthenticationFailure;
        let pushed_out = self.nodes[node.index()].pushed_out;
        let has_waited = |cause: &Cause, op: &Op| {
            let waited = now.since(cause.arrived_at);
            op.op_type.shape().moves == Moves::Out
                && !op.is_settle()
                && waited >= settings.timing.dispatch_timeout
        };
        let lacking: Vec<RegionId> =
            if status == OpStatus::Nack { self.lacking(node, now, settings) } else { Vec::new() };
        let has_no_record = |op: &Op| {
            op.is_recorded() && op.target.is_some_and(|(_, region)| lacking.contains(&region))
        };
        let explains = |cause: &Cause| {
            let waited = now.since(cause.arrived_at);
            match (cause.verdict, cause.op.map(|op| &ops[op])) {
                (Verdict::Refused(why), _) => why == status && waited < timeout,
                (verdict @ (Verdict::OldKey | Verdict::Stranger), _) => {
                    // The same request may have been refused as the one and as the other. Paths are
                    // not looked for on behalf of strangers.
                    let is_stranger = !frame.transmit.may_resolve;
                    let is_so = is_stranger == (verdict == Verdict::Stranger);
                    status == unauthenticated && waited < timeout && is_so
                }
                (Verdict::Accepted, Some(op)) => match status {
                    OpStatus::RemoteAuthenticationFailure => op.stale && frame.transmit.may_resolve,
                    OpStatus::Nack => pushed_out > 0 || has_waited(cause, op) || has_no_record(op),
                    _ => false,
                },
                (Verdict::Accepted, None) => false,
            }
        };
        let aead = sim.nic(node).aead();
        let is_bound = |cause: &Cause| {
            let own = cause.op.map(|op| &ops[op].key);
            let reserved = status == unauthenticated;
            let key = if reserved { Some(&DerivedRegionKey::RESERVED) } else { own };
            key.is_some_and(|key| cause.binds(aead, &frame.bytes, &failure.header, key))
        };
        let fits = |cause: &Cause| {
            cause.is_answered_by(frame, failure) && explains(cause) && is_bound(cause)
        };
        let state = &mut self.nodes[node.index()];
        let notices = &mut state.notices;
        let destination = frame.transmit.destination;
        let mut found = Err(Violation::UnaskedNotice { node, destination, status });
        let refused = (0..notices.refused.len()).filter(|&place| fits(&notices.refused[place]));
        let refused: Vec<usize> = refused.collect();
        for place in refused {
            let cause = &notices.refused[place];
            let (verdict, tag) = (cause.verdict, cause.tag);
            match notices.admits(now, node, config, verdict, &tag) {
                Ok(()) => {
                    found = Ok(notices.refused.remove(place));
                    break;
                }
                Err(violation) => found = Err(violation),
            }
        }
        // Of several copies that are stale those are told so that nothing else can be told of: of
        // the others it may be that they have waited for too long.
        let is_told_first = |cause: &Cause| !cause.op.is_some_and(|op| has_waited(cause, &ops[op]));
        let mut accepted = notices.accepted.iter();
        let first = match status {
            OpStatus::RemoteAuthenticationFailure => {
                accepted.position(|cause| is_told_first(cause) && fits(cause))
            }
            _ => None,
        };
        if found.is_err()
            && let Some(place) = first.or_else(|| notices.accepted.iter().position(fits))
        {
            state.fairness.refused();
            let cause = notices.accepted.remove(place);
            if status == unauthenticated {
                notices.admits(now, node, config, Verdict::OldKey, &cause.tag)?;
            }
            if let Some(op) = cause.op {
                // A frame that has waited for too long, or is stale, is told apart by that.
                let was_in_time = status == OpStatus::Nack && !has_waited(&cause, &ops[op]);
                let is_known = was_in_time && state.forget(op);
                let was_pushed = is_known && !has_no_record(&ops[op]);
                state.pushed_out -= u64::from(was_pushed);
            }
            found = Ok(cause);
        }
        let cause = found?;
        if frame.bytes.len() < cause.len {
            Ok(())
        } else {
            let (len, cause_len) = (frame.bytes.len(), cause.len);
            Err(Violation::Amplified { node, len, cause_len })
        }
    }
}

impl Notices {
    /// The ops whose requests may be told of.
    pub(super) fn ops(&self) -> impl Iterator<Item = OpIndex> {
        self.refused.iter().chain(&self.accepted).filter_map(|cause| cause.op)
    }

    /// Forgets what is not told any more: of what was accepted, what `is_over`.
    pub(super) fn forget(
        &mut self,
        now: Instant,
        timeout: Duration,
        is_over: impl Fn(Instant) -> bool,
    ) {
        self.refused.retain(|cause| now.since(cause.arrived_at) < timeout);
        self.told.retain(|told| now.since(told.at) < timeout);
        self.accepted.retain(|cause| !is_over(cause.arrived_at));
    }

    /// Whether a notice for what has `verdict` may be sent now; if so, it is counted.
    fn admits(
        &mut self,
        now: Instant,
        node: NodeId,
        config: &NicConfig,
        verdict: Verdict,
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Violation> {
        let (settings, place) = (config.settings(), config.place());
        let rate = settings.notices_per_second;
        let (bucket, of_host) = match verdict {
            Verdict::Accepted | Verdict::Refused(_) => return Ok(()),
            Verdict::OldKey => (&mut self.old_keys, rate.max(OLD_KEYS_PER_SECOND_MIN)),
            Verdict::Stranger => (&mut self.strangers, rate),
        };
        let engines = u32::from(place.engines);
        let is_among_first = engines > 1 && u32::from(place.engine.0) < of_host % engines;
        let per_second = of_host / engines + u32::from(is_among_first);
        if verdict == Verdict::OldKey {
            self.told.retain(|told| now.since(told.at) < settings.timing.timeout);
            let before = self.told.iter().rposition(|it| it.was_sent && it.tag == *tag);
            if let Some(before) = before {
                // A NIC's memory is finite.
                let set = self.told[before].set();
                let others = self.told[before..].iter().filter(|it| it.set() == set);
                if others.filter(|it| it.tag != *tag).count() < Told::WAYS {
                    return Err(Violation::ToldTwice { node });
                }
            }
            self.told.push(Told { tag: *tag, at: now, was_sent: true });
        }
        if bucket.admits(now, per_second) {
            Ok(())
        } else {
            Err(Violation::NoticesTooFast { node, per_second })
        }
    }
}

impl Checker {
    /// Whether an engine of host `node` may have had no token for a notice at some time from
    /// `since` on, by its own clock. Whoever is not told then learns by a timeout.
    #[must_use]
    pub fn lacked_notices(&self, sim: &Sim, node: NodeId, since: Instant) -> bool {
        let mut notices = self.states_of(node).map(|state| &state.notices);
        settings(sim, node).notices_per_second == 0
            || notices.any(|Notices { strangers, old_keys, .. }| {
                [strangers, old_keys].iter().any(|bucket| bucket.short_until > since)
            })
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
