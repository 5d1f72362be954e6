//! Hop 1 at the responder: a request is authenticated and permitted, or refused (1RMA §4.2, §4.5).
//!
//! Nothing here grows with the number of peers. K_d is derived anew for each op. An initiator that
//! could not be authenticated is told so by a notice that is shorter than the request, and limited
//! in rate (P10): see `notices`.
//!
//! A request that cannot be authenticated costs the same work whatever its RegionId names: one
//! derivation and one opening, under a decoy where it names nothing, and as many again as any
//! region has previous keys. So the time of a refusal does not tell whether there is such a region.

use super::notices::{Cause, Notices, Refusal};
use crate::{
    addr::HostAddr,
    backend::{RxFrame, Transmit, TxFrame},
    crypto::{DerivedRegionKey, KeyBinding},
    error::DropReason,
    nic::{
        NicConfig,
        region_table::{Decoy, PREFETCH_MAX},
        security::{Opened, OpenedWith, RequestSeal},
        tables::Tables,
    },
    op::{OpStatus, OpType},
    port::SourcePort,
    seal::Authentic,
    time::Instant,
    wire::{Frame, Header},
};

/// A request as it came: who asks whom, and what answers are bound to. Only a claim so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) header: Header,
    pub(super) seal: RequestSeal,
    pub(super) initiator: HostAddr,
    /// The address of ours that the request was sent to.
    pub(super) responder: HostAddr,
    /// The UDP port that answers go from.
    pub(super) source_port: SourcePort,
}

impl Asked {
    /// The content of an entry that has not been used.
    pub(super) const NONE: Self = {
        let nobody = HostAddr::from_octets([0; 16]);
        Self {
            header: Header::NONE,
            seal: RequestSeal::NONE,
            initiator: nobody,
            responder: nobody,
            source_port: SourcePort::FIRST,
        }
    };

    /// The envelope of an answer of `len` octets, which weighs as its op does.
    #[inline]
    pub(super) fn reply(&self, config: &NicConfig, len: usize) -> Transmit {
        let ends = [self.responder, self.initiator];
        let transmit = Transmit::new(ends, config.place.port, self.header.class, len);
        Transmit { source_port: self.source_port, ..transmit }
    }

    /// The same for the tenant whose region it is about.
    pub(super) fn reply_for(&self, tables: &Tables<'_>, len: usize) -> Transmit {
        let tenant = tables.regions.tenant_of(self.header.region);
        Transmit { tenant, ..self.reply(tables.config, len) }
    }
}

/// The wish of a request.
pub(super) struct Wanted<T> {
    pub(super) claims: T,
    pub(super) op_type: OpType,
    /// Offset and size of the bytes of the region, if it is about bytes.
    pub(super) span: Option<(u64, u32)>,
    /// The reason why there is no place for one more of its kind, if so.
    pub(super) full: Option<DropReason>,
}

/// A request that is authentic, permitted and in bounds, and that there is a place for.
pub(super) struct Admitted<T> {
    pub(super) request: Authentic<T>,
    /// K_d, which the answer is sealed with.
    pub(super) key: DerivedRegionKey,
    /// Under which key of the region it is so.
    pub(super) revision: u64,
}

pub(super) struct Admission {
    notices: Notices,
    /// When this turn is, as far as it was told.
    now: Instant,
    paid: Paid,
}

/// Whether the packet of the frames that are handled has had its notice to a stranger.
#[derive(Debug, Default)]
struct Paid {
    by_notice: bool,
}

impl Paid {
    /// A frame is handled.
    #[inline]
    const fn note(&mut self, frame: &RxFrame<'_>) {
        self.by_notice &= !frame.is_first;
    }

    /// Whether the notice for a frame may begin a packet: that for the first of its packet that is
    /// refused.
    const fn opens(&mut self) -> bool {
        !core::mem::replace(&mut self.by_notice, true)
    }
}

impl Admission {
    pub(super) fn new(config: &NicConfig) -> Self {
        Self { notices: Notices::new(config), now: Instant::ZERO, paid: Paid::default() }
    }

    //= 1rma#3.1-request-authenticated
    //= 1rma#4.2-attacker-without-key
    /// Sees whether a request is authentic, whether the region permits it and holds its bytes, and
    /// whether there is a place for it. Otherwise it is refused, and why is returned.
    pub(super) fn admit<T: Frame<HEADER>, const HEADER: usize>(
        &mut self,
        asked: &Asked,
        wanted: Wanted<T>,
        frame: &mut RxFrame<'_>,
        opened: &Opened,
        tables: &mut Tables<'_>,
    ) -> Result<Admitted<T>, DropReason> {
        let Wanted { claims, op_type, span, full } = wanted;
        let region = tables.regions.get(asked.header.region);
        let Asked { initiator, responder, .. } = *asked;
        let binding = KeyBinding { initiator, responder, pid: asked.header.pid, op_type };
        let (region_key, revision) = match region {
            Some(region) => (&region.key, region.revision),
            None => (&tables.regions.decoy().key, Decoy::REVISION),
        };
        let security = &*tables.security;
        let (key, tag) = if opened.with == OpenedWith::Revision(revision) {
            (security.key_of(opened), opened.right_tag)
        } else {
            let (seal, bytes) = (&asked.seal, &mut *frame.bytes);
            security.open_under_new_key::<HEADER>(opened, region_key, &binding, seal, bytes)
        };
        let (Some(region), Some(tag)) = (region, tag) else {
            let reason = match region {
                Some(_) => DropReason::RequestUnauthenticated,
                None => DropReason::UnknownRegion,
            };
            let refused =
                self.refuse_unauthenticated::<HEADER>(asked, &binding, frame, opened, tables);
            return Err(refused.unwrap_or(reason));
        };
        if let Some((offset, size)) = span
            && size as usize > PREFETCH_MAX
        {
            // The rest of it: the beginning was fetched while the frame was opened.
            let rest = offset.saturating_add(PREFETCH_MAX as u64);
            region.memory.prefetch(rest, size as usize - PREFETCH_MAX);
        }
        let refused = if !region.permissions.contains(op_type.shape().permission) {
            Some((OpStatus::RemotePermissionDenied, DropReason::RequestNotPermitted))
        } else if span.is_some_and(|(offset, size)| !region.holds(offset, size)) {
            Some((OpStatus::RemoteOutOfBounds, DropReason::RequestOutOfBounds))
        } else {
            //= 1rma#4.5-nack
            full.map(|reason| (OpStatus::Nack, reason))
        };
        if let Some((status, reason)) = refused {
            self.refuse(asked, &key, status, tables);
            return Err(reason);
        }
        Ok(Admitted { request: Authentic::new(claims, tag), key, revision })
    }

    /// Refuses a request that was authentic.
    pub(super) fn refuse(
        &mut self,
        asked: &Asked,
        key: &DerivedRegionKey,
        status: OpStatus,
        tables: &mut Tables<'_>,
    ) {
        // An initiator that cannot use its key any more is told so under the key that everybody
        // has.
        let (cause, key) = match status {
            OpStatus::RemoteAuthenticationFailure => (Cause::OldKey, None),
            _ => (Cause::Known, Some(key)),
        };
        // Of a request that came twice and waited twice, too, the initiator is told once.
        let refusal = Refusal { asked, status, key, link: None, opens_packet: true };
        let _ = self.notices.push(self.now, cause, &refusal, tables.counters);
    }

    //= 1rma#4.2-request-authentication-failure
    //= type=deviation
    /// Refuses a request that is not authentic under its region's key. Returns why it is dropped,
    /// if not for that: it is authentic under a previous one, or was before the region got its key,
    /// in this very batch.
    #[inline(never)]
    fn refuse_unauthenticated<const HEADER: usize>(
        &mut self,
        asked: &Asked,
        binding: &KeyBinding,
        frame: &RxFrame<'_>,
        opened: &Opened,
        tables: &Tables<'_>,
    ) -> Option<DropReason> {
        let was_authentic = opened.right_tag.is_some()
            && matches!(opened.with, OpenedWith::Revision(it) if it != Decoy::REVISION);
        let previous = tables.regions.previous().to_compare(asked.header.region);
        // An initiator that had the key before a rotation is told, however many strangers ask at
        // the same time (P11).
        let is_old = tables.security.is_request_under_any::<HEADER>(
            &previous,
            binding,
            &asked.seal,
            frame.bytes,
        ) || was_authentic;
        let cause = if is_old { Cause::OldKey } else { Cause::Stranger };
        let status = OpStatus::RemoteAuthenticationFailure;
        // A packet of strangers gets one back at most, whatever is in it (P10). Who had the key
        // before is known.
        let opens_packet = is_old || self.paid.opens();
        let refusal = Refusal { asked, status, key: None, link: frame.link, opens_packet };
        let pushed = self.notices.push(self.now, cause, &refusal, tables.counters);
        pushed.err().or(is_old.then_some(DropReason::OldKey))
    }

    /// See [`Responder::note_paid`](super::Responder::note_paid).
    pub(super) const fn note_paid(&mut self) {
        self.paid.by_notice = true;
    }

    /// A frame is looked at, whatever it is.
    #[inline]
    pub(super) const fn note_frame(&mut self, now: Instant, frame: &RxFrame<'_>) {
        self.now = now;
        self.paid.note(frame);
    }

    /// It is `now`, in this turn.
    pub(super) const fn note_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Forgets notices that have waited for too long.
    pub(super) fn handle_timeout(&mut self, now: Instant, tables: &Tables<'_>) {
        self.now = now;
        self.notices.handle_timeout(now, tables.counters);
    }

    /// When `handle_timeout` has work next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.notices.poll_timeout()
    }

    /// How many notices may be sent now.
    pub(super) fn frames_waiting(&self) -> usize {
        self.notices.frames_waiting()
    }

    /// Writes the next notice, if there is one that may be sent. Returns whether there was.
    #[inline]
    pub(super) fn poll_transmit(&mut self, tables: &mut Tables<'_>, out: &mut TxFrame<'_>) -> bool {
        self.notices.poll_transmit(self.now, tables, out)
    }
}
