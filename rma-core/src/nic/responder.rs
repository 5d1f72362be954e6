//! The responding side: requests are admitted or refused, reads are answered, mutations applied (1RMA §3.1, §4.2,
//! §5).
//!
//! What is refused, read and mutated has a module each: `admission`, `inbound_reads`, `pending_writes`. They take turns
//! to send, so that requests that are refused, which may come as fast as frames can be sent, do not stop those that
//! were accepted.

use super::{
    NicConfig, NicCounters, RegionTable,
    admission::{Admission, Asked, Wanted},
    inbound_reads::InboundReads,
    pending_writes::PendingWrites,
    security::{RequestSeal, Security},
    solicitation_window::SolicitationWindow,
};
use crate::{
    backend::{RxFrame, Transmit},
    crypto::AeadProvider,
    error::DropReason,
    op::OpType,
    time::{Clock, Instant},
    wire::{Header, Mutation, MutationRequest, Request, SolicitedData},
};

pub(super) struct Responder<A: AeadProvider> {
    admission: Admission<A>,
    reads: InboundReads,
    writes: PendingWrites<A>,
    /// Who is asked first for the next frame.
    first: Sender,
}

#[derive(Clone, Copy)]
enum Sender {
    Admission,
    Reads,
    Writes,
}

/// What the responder works with, besides its own tables.
pub(super) struct Serving<'a, A: AeadProvider> {
    pub(super) security: &'a mut Security<A>,
    pub(super) regions: &'a mut RegionTable,
    pub(super) counters: &'a NicCounters,
    pub(super) config: &'a NicConfig,
}

impl<A: AeadProvider> Responder<A> {
    pub(super) fn new(config: &NicConfig) -> Self {
        Self {
            admission: Admission::new(config),
            reads: InboundReads::new(config),
            writes: PendingWrites::new(config),
            first: Sender::Admission,
        }
    }

    /// Hop 1 of a read.
    pub(super) fn handle_read_request(
        &mut self,
        now: Instant,
        claims: Request,
        frame: RxFrame<'_>,
        serving: &mut Serving<'_, A>,
    ) -> Result<(), DropReason> {
        let asked = asked(claims.header, &frame);
        let span = Some((claims.region_offset, claims.op_size.into()));
        let is_full = self.reads.is_full(claims.header.class);
        let wanted = Wanted { claims, op_type: OpType::Read, span, is_full };
        let admitted = self.admission.admit(now, &asked, wanted, frame.bytes, serving)?;
        self.reads.push(now, asked, admitted, frame.reply_len_max, &mut self.admission.keys);
        Ok(())
    }

    /// Hop 1 of a mutation.
    pub(super) fn handle_mutation_request(
        &mut self,
        now: Instant,
        claims: MutationRequest,
        frame: RxFrame<'_>,
        serving: &mut Serving<'_, A>,
    ) -> Result<(), DropReason> {
        let asked = asked(claims.header, &frame);
        if self.writes.has_come(&asked) {
            return Err(DropReason::Duplicate);
        }
        let span = match claims.mutation {
            Mutation::Write { region_offset, op_size } => Some((region_offset, op_size.into())),
            Mutation::Rekey => None,
        };
        let is_full = self.writes.is_full(claims.header.class);
        let op_type = claims.mutation.op_type();
        let wanted = Wanted { claims, op_type, span, is_full };
        let admitted = self.admission.admit(now, &asked, wanted, frame.bytes, serving)?;
        let key = self.admission.keys.at(admitted.key);
        self.writes.push(now, asked, &admitted, key);
        Ok(())
    }

    /// Hop 3 of a mutation.
    pub(super) fn handle_data(
        &mut self,
        clock: &impl Clock,
        claims: SolicitedData,
        frame: RxFrame<'_>,
        window: &mut SolicitationWindow,
        serving: &mut Serving<'_, A>,
    ) -> Result<(), DropReason> {
        self.writes.handle_data(clock, claims, frame, window, serving)
    }

    pub(super) const fn reads(&self) -> &InboundReads {
        &self.reads
    }

    pub(super) const fn writes(&self) -> &PendingWrites<A> {
        &self.writes
    }

    /// Expires whatever is due.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        window: &mut SolicitationWindow,
        serving: &mut Serving<'_, A>,
    ) {
        self.reads.handle_timeout(now, &mut self.admission, serving);
        self.writes.handle_timeout(now, window, &mut self.admission, serving);
    }

    /// When `handle_timeout` has work next. Reads that are too late to be answered wait for room in the device,
    /// and need no timer.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.writes.poll_timeout()
    }

    /// Whether a mutation waits for the window.
    pub(super) fn mutations_wait(&self) -> bool {
        self.writes.any_waits()
    }

    /// Whether a frame waits to be sent.
    pub(super) fn wants_transmit(&self, window: &SolicitationWindow) -> bool {
        self.admission.wants_transmit()
            || self.reads.wants_transmit()
            || self.writes.wants_transmit(window)
    }

    /// Writes the next frame, if there is one.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        window: &mut SolicitationWindow,
        serving: &mut Serving<'_, A>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        // In most turns there is nothing, and that should be known soon.
        if !self.wants_transmit(window) {
            return None;
        }
        let Self { admission, reads, writes, .. } = self;
        let mut sender = self.first;
        for _ in 0..Sender::COUNT {
            let transmit = match sender {
                Sender::Admission => admission.poll_transmit(out),
                Sender::Reads => reads.poll_transmit(serving, admission, out),
                Sender::Writes => writes.poll_transmit(now, window, admission, serving, out),
            };
            sender = sender.next();
            if transmit.is_some() {
                self.first = sender;
                return transmit;
            }
        }
        None
    }
}

impl Sender {
    const COUNT: usize = 3;

    const fn next(self) -> Self {
        match self {
            Self::Admission => Self::Reads,
            Self::Reads => Self::Writes,
            Self::Writes => Self::Admission,
        }
    }
}

fn asked(header: Header, frame: &RxFrame<'_>) -> Asked {
    Asked {
        header,
        seal: RequestSeal::of(&header, frame.bytes),
        initiator: frame.source,
        responder: frame.destination,
    }
}

impl<A: AeadProvider> core::fmt::Debug for Responder<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Responder").field("writes", &self.writes).finish_non_exhaustive()
    }
}
