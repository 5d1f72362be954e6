//! Hop 1 at the responder: a request is authenticated and permitted, or refused (1RMA §4.2, §4.5).
//!
//! Nothing here grows with the number of peers. K_d is derived for each op (`key_cache` keeps a few for the next).
//! Whoever could not be authenticated is told so by a notice that is shorter than the request, and limited in
//! rate (P10).

use std::collections::VecDeque;

use super::{
    NicConfig,
    key_cache::{KeyCache, KeyId},
    notice_limiter::NoticeLimiter,
    responder::Serving,
    security::{Authentic, RequestSeal},
};
use crate::{
    addr::HostAddr,
    backend::Transmit,
    crypto::{AeadProvider, KeyBinding},
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
    /// The prepared K_d, among [`Admission::keys`].
    pub(super) key: KeyId,
    /// Under which key of the region it is so.
    pub(super) revision: u64,
}

/// A sealed failure notice, or an acknowledgement that refuses, that waits to be sent.
struct Notice {
    frame: [u8; FAILURE_LEN],
    transmit: Transmit,
}

/// How many notices may wait. Beyond it they are dropped, and their ops time out.
const NOTICES_MAX: usize = 256;

pub(super) struct Admission<A: AeadProvider> {
    notices: VecDeque<Notice>,
    limiter: NoticeLimiter,
    pub(super) keys: KeyCache<A::Key>,
}

impl<A: AeadProvider> Admission<A> {
    /// How many notices may wait.
    pub(super) const NOTICES: u32 = NOTICES_MAX as u32;

    /// Bytes that each of them takes.
    pub(super) const NOTICE_LEN: usize = size_of::<Notice>();

    pub(super) fn new(config: &NicConfig) -> Self {
        Self {
            notices: VecDeque::with_capacity(NOTICES_MAX),
            limiter: NoticeLimiter::new(config.settings.notices_per_second),
            // One for each read that waits for its responses.
            keys: KeyCache::new(2 * config.settings.inbound_queue as usize),
        }
    }

    //= 1rma#4.2-attacker-without-key
    /// Authenticates a request and checks that the region permits it and holds its bytes, and that there is a
    /// place for it. Otherwise it is refused, and why is returned.
    pub(super) fn admit<T: Copy>(
        &mut self,
        now: Instant,
        asked: &Asked,
        wanted: Wanted<T>,
        frame: &mut [u8],
        serving: &mut Serving<'_, A>,
    ) -> Result<Admitted<T>, DropReason> {
        let Wanted { claims, op_type, span, is_full } = wanted;
        let Some(region) = serving.regions.get(asked.header.region) else {
            self.refuse_unauthenticated(now, asked, serving);
            return Err(DropReason::UnknownRegion);
        };
        if let Some((offset, size)) = span {
            // While the key is derived and the tag checked, the data comes out of memory. A claim is good
            // enough: nothing is read.
            region.memory.prefetch(offset, size as usize);
        }
        let Asked { initiator, responder, .. } = *asked;
        let binding = KeyBinding { initiator, responder, pid: asked.header.pid, op_type };
        let revision = region.revision;
        let (request, key) = if let Some(id) = self.keys.find(revision, &binding) {
            let key = self.keys.at(id);
            (serving.security.open_request(key, claims, &asked.seal, frame), Some(id))
        } else {
            let key = serving.security.prepare(&region.key.derive(&binding));
            let request = serving.security.open_request(&key, claims, &asked.seal, frame);
            let id = request.is_some().then(|| self.keys.insert(revision, binding, key));
            (request, id)
        };
        let (Some(request), Some(key)) = (request, key) else {
            let under_previous = region.previous.as_ref().is_some_and(|previous| {
                let key = serving.security.prepare(&previous.derive(&binding));
                serving.security.open_request(&key, claims, &asked.seal, frame).is_some()
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
            let key = self.keys.at(key).clone();
            self.refuse(asked, &key, status, serving);
            return Err(reason);
        }
        Ok(Admitted { request, key, revision })
    }

    /// Refuses a request that was authentic.
    pub(super) fn refuse(
        &mut self,
        asked: &Asked,
        key: &A::Key,
        status: OpStatus,
        serving: &mut Serving<'_, A>,
    ) {
        // Who cannot use the key any more is told so under the one that everybody has.
        let key = (status != OpStatus::RemoteAuthenticationFailure).then_some(key);
        self.queue(asked, key, status, true, serving);
    }

    //= 1rma#4.2-request-authentication-failure
    fn refuse_unauthenticated(
        &mut self,
        now: Instant,
        asked: &Asked,
        serving: &mut Serving<'_, A>,
    ) {
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
        key: Option<&A::Key>,
        status: OpStatus,
        may_resolve: bool,
        serving: &mut Serving<'_, A>,
    ) {
        if !self.has_room(serving) {
            return;
        }
        let mut frame = [0; FAILURE_LEN];
        let failure = Failure { header: asked.header, status };
        serving.security.seal_failure(key, &asked.seal, failure, &mut frame);
        self.push(frame, asked.reply(FAILURE_LEN, may_resolve));
    }

    /// Whether one more notice can be sealed and may wait. Counts it if not.
    pub(super) fn has_room(&self, serving: &Serving<'_, A>) -> bool {
        if !serving.security.can_seal() {
            serving.counters.count_seal_refused();
            return false;
        }
        let has_room = self.notices.len() < NOTICES_MAX;
        if !has_room {
            serving.counters.count_drop(DropReason::NoticeQueueFull);
        }
        has_room
    }

    /// Queues a sealed frame. The caller has asked `has_room`.
    pub(super) fn push(&mut self, frame: [u8; FAILURE_LEN], transmit: Transmit) {
        self.notices.push_back(Notice { frame, transmit });
    }

    pub(super) fn wants_transmit(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Writes the next notice, if there is one.
    pub(super) fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let notice = self.notices.pop_front()?;
        out[..FAILURE_LEN].copy_from_slice(&notice.frame);
        Some(notice.transmit)
    }
}
