//! Hop 1 at the responder: a request is authenticated and permitted, or refused (1RMA §4.2, §4.5).
//!
//! Nothing here grows with the number of peers. K_d is derived anew for each op.
//! Whoever could not be authenticated is told so by a notice that is shorter than the request, and limited in
//! rate (P10).

use std::collections::VecDeque;

use super::{
    NicConfig,
    notice_limiter::NoticeLimiter,
    responder::Serving,
    security::{Authentic, Opened, RequestSeal},
};
use crate::{
    addr::HostAddr,
    backend::Transmit,
    crypto::{DerivedRegionKey, KeyBinding},
    error::DropReason,
    op::{OpStatus, OpType},
    region::Permissions,
    time::Instant,
    wire::{Failure, Header, failure::FAILURE_LEN},
};

/// A request as it came: who asks whom, and what answers are bound to. Only a claim so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) header: Header,
    pub(super) seal: RequestSeal,
    pub(super) initiator: HostAddr,
    /// The address of ours that the request was sent to.
    pub(super) responder: HostAddr,
}

impl Asked {
    /// What stands in an entry that has not been used.
    pub(super) const NONE: Self = {
        let nobody = HostAddr::from_octets([0; 16]);
        Self { header: Header::NONE, seal: RequestSeal::NONE, initiator: nobody, responder: nobody }
    };

    /// The envelope of an answer of `len` octets.
    pub(super) fn reply(&self, len: usize, may_resolve: bool) -> Transmit {
        Transmit {
            source: self.responder,
            destination: self.initiator,
            len,
            flow: flow(&self.header),
            may_resolve,
        }
    }
}

/// The same for all frames of one op.
pub(super) const fn flow(header: &Header) -> u16 {
    header.slot.0 ^ header.generation as u16
}

/// What a request asks for.
pub(super) struct Wanted<T> {
    pub(super) claims: T,
    pub(super) op_type: OpType,
    /// Offset and size of the bytes of the region, if it is about bytes.
    pub(super) span: Option<(u64, u32)>,
    /// Whether there is no place for one more of its kind.
    pub(super) is_full: bool,
}

/// A request that is authentic, permitted and in bounds, and that there is a place for.
pub(super) struct Admitted<T> {
    pub(super) request: Authentic<T>,
    /// K_d.
    pub(super) key: DerivedRegionKey,
    /// Under which key of the region it is so.
    pub(super) revision: u64,
}

/// A failure notice that waits to be sent.
struct Notice {
    /// With its counter already.
    failure: Failure,
    request: RequestSeal,
    /// K_d, if it is one that both share.
    key: Option<DerivedRegionKey>,
    transmit: Transmit,
}

/// How many notices may wait. Beyond it they are dropped, and their ops time out.
const NOTICES_MAX: usize = 256;

pub(super) struct Admission {
    notices: VecDeque<Notice>,
    limiter: NoticeLimiter,
}

impl Admission {
    /// How many notices may wait.
    pub(super) const NOTICES: u32 = NOTICES_MAX as u32;

    /// Bytes that each of them takes.
    pub(super) const NOTICE_LEN: usize = size_of::<Notice>();

    pub(super) fn new(config: &NicConfig) -> Self {
        Self {
            notices: VecDeque::with_capacity(NOTICES_MAX),
            limiter: NoticeLimiter::new(config.settings.notices_per_second),
        }
    }

    //= 1rma#4.2-attacker-without-key
    /// Sees whether a request is authentic, whether the region permits it and holds its bytes, and whether there is a
    /// place for it. Otherwise it is refused, and why is returned.
    pub(super) fn admit<T: Copy>(
        &mut self,
        now: Instant,
        asked: &Asked,
        wanted: Wanted<T>,
        (frame, opened): (&mut [u8], &Opened),
        serving: &mut Serving<'_>,
    ) -> Result<Admitted<T>, DropReason> {
        let Wanted { claims, op_type, span, is_full } = wanted;
        let Some(region) = serving.regions.get(asked.header.region) else {
            self.refuse_unauthenticated(now, asked, serving);
            return Err(DropReason::UnknownRegion);
        };
        let Asked { initiator, responder, .. } = *asked;
        let binding = KeyBinding { initiator, responder, pid: asked.header.pid, op_type };
        let revision = region.revision;
        let (key, request) = serving.security.open_request(
            opened,
            (&region.key, revision),
            &binding,
            claims,
            (&asked.seal, frame),
        );
        let Some(request) = request else {
            let under_previous = region.previous.as_ref().is_some_and(|previous| {
                let key = previous.derive_with(serving.security.aead(), &binding);
                serving.security.is_request_under(&key, &asked.seal, frame)
            });
            // Who had the key before the rotation is told, however many strangers ask at the same time (P11).
            if under_previous {
                self.queue(asked, None, OpStatus::RemoteAuthenticationFailure, true, serving);
                return Err(DropReason::OldKey);
            }
            self.refuse_unauthenticated(now, asked, serving);
            return Err(DropReason::RequestUnauthenticated);
        };
        let refused = if !region.permissions.contains(Permissions::needed_by(op_type)) {
            Some((OpStatus::RemotePermissionDenied, DropReason::RequestNotPermitted))
        } else if span.is_some_and(|(offset, size)| !region.holds(offset, size)) {
            Some((OpStatus::RemoteOutOfBounds, DropReason::RequestOutOfBounds))
        } else if is_full {
            //= 1rma#4.5-nack
            Some((OpStatus::Nack, DropReason::InboundQueueFull))
        } else {
            None
        };
        if let Some((status, reason)) = refused {
            self.refuse(asked, &key, status, serving);
            return Err(reason);
        }
        Ok(Admitted { request, key, revision })
    }

    /// Refuses a request that was authentic.
    pub(super) fn refuse(
        &mut self,
        asked: &Asked,
        key: &DerivedRegionKey,
        status: OpStatus,
        serving: &mut Serving<'_>,
    ) {
        // Who cannot use the key any more is told so under the one that everybody has.
        let key = (status != OpStatus::RemoteAuthenticationFailure).then_some(key);
        self.queue(asked, key, status, true, serving);
    }

    //= 1rma#4.2-request-authentication-failure
    fn refuse_unauthenticated(&mut self, now: Instant, asked: &Asked, serving: &mut Serving<'_>) {
        if self.limiter.admits(now) {
            self.queue(asked, None, OpStatus::RemoteAuthenticationFailure, false, serving);
        } else {
            serving.counters.count_drop(DropReason::NoticeRateLimited);
        }
    }

    /// Queues a failure notice, bound to the request.
    fn queue(
        &mut self,
        asked: &Asked,
        key: Option<&DerivedRegionKey>,
        status: OpStatus,
        may_resolve: bool,
        serving: &mut Serving<'_>,
    ) {
        if !serving.security.can_seal() {
            serving.counters.count_seal_refused();
            return;
        }
        if self.notices.len() == NOTICES_MAX {
            serving.counters.count_drop(DropReason::NoticeQueueFull);
            return;
        }
        self.notices.push_back(Notice {
            failure: Failure { header: serving.security.stamped(asked.header), status },
            request: asked.seal,
            key: key.copied(),
            transmit: asked.reply(FAILURE_LEN, may_resolve),
        });
    }

    /// How many notices wait.
    pub(super) fn frames_waiting(&self) -> usize {
        self.notices.len()
    }

    /// Writes the next notice, if there is one.
    pub(super) fn poll_transmit(
        &mut self,
        serving: &mut Serving<'_>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let out = out.first_chunk_mut()?;
        let Notice { failure, request, key, transmit } = self.notices.pop_front()?;
        serving.security.write_failure(key.as_ref(), &request, &failure, out);
        Some(transmit)
    }
}
