//! The responding side: requests are admitted or refused, reads are answered, mutations applied
//! (1RMA §3.1, §4.2, §5).
//!
//! What is refused, read and mutated has a module each: `admission`, `reads`, `mutations`. They
//! take turns to send, so that requests that are refused, which may come as fast as frames can be
//! sent, do not stop those that were accepted.

mod admission;
mod mutations;
mod notices;
mod reads;
mod recorded;
mod records;

use super::{
    NicConfig,
    security::{Opened, RequestSeal},
    solicitation_window::SolicitationWindow,
    tables::Tables,
};
use crate::{
    addr::HostAddr,
    backend::{BATCH, RxFrame, TxFrame},
    crypto::{DerivedRegionKey, EngineId, Iv},
    error::DropReason,
    fair_queue::Bucket,
    op::OpType,
    outcome::Done,
    region::RegionId,
    time::{Clock, Instant},
    wire::{Header, MutationRequest, Request, SolicitedData},
};
use admission::{Admission, Asked, Wanted};
use arrayvec::ArrayVec;
pub(super) use mutations::{PendingWrites, Staging};
pub(super) use notices::{Notices, ToldRequests};
pub(super) use reads::InboundReads;
pub(super) use records::{Asker, OutcomeRecords};

pub(super) struct Responder {
    admission: Admission,
    reads: InboundReads,
    writes: PendingWrites,
    /// News of the records of other engines of the host, since the batch began.
    dones: ArrayVec<DoneElsewhere, BATCH>,
    /// The sender that is asked first for the next frame.
    first: Sender,
    /// The last initiator that asked, and its list: many requests of one come in a row, and the
    /// hash costs more than a look.
    last: (HostAddr, Bucket),
}

/// An initiator's news that it knows how an op ended whose record another engine of the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DoneElsewhere {
    pub(super) engine: EngineId,
    pub(super) asker: Asker,
    pub(super) done: Done,
}

#[derive(Clone, Copy)]
enum Sender {
    Admission,
    Reads,
    Writes,
}

impl Responder {
    pub(super) fn new(config: &NicConfig) -> Self {
        let nobody = HostAddr::from_octets([0; 16]);
        Self {
            admission: Admission::new(config),
            reads: InboundReads::new(config),
            writes: PendingWrites::new(config),
            dones: ArrayVec::new(),
            first: Sender::Admission,
            last: (nobody, config.place.bucket_secret.bucket_of(nobody)),
        }
    }

    /// Returns the list that the requests of `asked` wait in.
    #[inline]
    fn bucket_of(&mut self, asked: &Asked, tables: &Tables<'_>) -> Bucket {
        let initiator = asked.initiator;
        if self.last.0 != initiator {
            self.last = (initiator, tables.config.place.bucket_secret.bucket_of(initiator));
        }
        // With one owner, its lists are all that there are.
        if tables.regions.is_shared() {
            self.last.1.of_owner(tables.regions.tenant_of(asked.header.region).index())
        } else {
            self.last.1
        }
    }

    /// Hop 1 of a read.
    pub(super) fn handle_read_request(
        &mut self,
        now: Instant,
        claims: Request,
        frame: &mut RxFrame<'_>,
        opened: &Opened,
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        let asked = asked(now, claims.header, frame);
        let span = Some((claims.region_offset, claims.op_size.into()));
        let bucket = self.bucket_of(&asked, tables);
        let full = self.reads.why_full(claims.header.class, bucket, claims.op_size);
        let wanted = Wanted { claims, op_type: OpType::Read, span, full };
        let admitted = self.admission.admit(&asked, wanted, frame, opened, tables)?;
        let (class, op_size) = (claims.header.class, claims.op_size);
        if let Some(job) = self.reads.place(bucket, class, op_size, &mut self.admission, tables) {
            job.read(now, asked, &admitted, frame.reply_len_max);
        }
        Ok(())
    }

    /// Hop 1 of a mutation.
    pub(super) fn handle_mutation_request(
        &mut self,
        now: Instant,
        claims: MutationRequest,
        frame: &mut RxFrame<'_>,
        opened: &Opened,
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        let asked = asked(now, claims.header, frame);
        if self.writes.has_come(&asked) {
            return Err(DropReason::Duplicate);
        }
        let span = claims.mutation.span();
        let bucket = self.bucket_of(&asked, tables);
        let full = self.writes.why_full(claims.header.class, bucket);
        let op_type = claims.mutation.op_type();
        let wanted = Wanted { claims, op_type, span, full };
        let admitted = self.admission.admit(&asked, wanted, frame, opened, tables)?;
        if self.writes.make_room(claims.header.class, bucket, &mut self.admission, tables) {
            self.writes.push(now, asked, bucket, &admitted, 0);
        }
        Ok(())
    }

    /// Hop 3 of a mutation.
    pub(super) fn handle_data(
        &mut self,
        clock: &impl Clock,
        claims: SolicitedData,
        frame: &mut RxFrame<'_>,
        opened: &Opened,
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        self.writes.handle_data(clock, claims, frame, opened, tables)
    }

    /// The next news for another engine of the host.
    pub(super) fn poll_done(&mut self) -> Option<DoneElsewhere> {
        self.dones.pop()
    }

    /// Counts the packet of the frames that follow as paid for, up to the next first frame.
    pub(super) const fn note_paid(&mut self) {
        self.admission.note_paid();
    }

    /// A frame is handled, whatever it is.
    #[inline]
    pub(super) const fn note_frame(&mut self, now: Instant, frame: &RxFrame<'_>) {
        self.admission.note_frame(now, frame);
    }

    /// Whether the request of a mutation has come before.
    pub(super) fn has_come(&self, header: &Header, frame: &RxFrame<'_>) -> bool {
        self.writes.has_come(&asked(Instant::ZERO, *header, frame))
    }

    /// Returns the key and binding that solicited data is opened with: K_d, and the IV of the
    /// solicitation that it claims to answer.
    pub(super) fn solicitation_of(
        &self,
        source: HostAddr,
        claims: &SolicitedData,
    ) -> Option<(&DerivedRegionKey, &Iv)> {
        self.writes.solicitation_of(source, claims)
    }

    pub(super) const fn reads(&self) -> &InboundReads {
        &self.reads
    }

    pub(super) const fn writes(&self) -> &PendingWrites {
        &self.writes
    }

    /// A region is no longer registered. Its ops that are under way end by themselves.
    pub(super) fn forget(&mut self, region: RegionId) {
        self.writes.forget(region);
    }

    /// Expires whatever is due.
    pub(super) fn handle_timeout(&mut self, now: Instant, tables: &mut Tables<'_>) {
        self.admission.handle_timeout(now, tables);
        self.reads.handle_timeout(now, tables);
        self.writes.handle_timeout(now, &mut self.admission, tables);
    }

    /// When `handle_timeout` has work next. Reads that are too late to be answered wait for room in
    /// the device, and need no timer.
    pub(super) fn poll_timeout(
        &self,
        window: &SolicitationWindow,
        reads_wait: bool,
    ) -> Option<Instant> {
        let writes = self.writes.poll_timeout(window, reads_wait);
        self.admission.poll_timeout().into_iter().chain(writes).min()
    }

    /// Whether a mutation waits for nothing but the window.
    pub(super) fn mutations_wait(&self) -> bool {
        self.writes.wait_for_window()
    }

    /// Whether there is a mutation that could be parked.
    pub(super) fn may_park(&self) -> bool {
        self.writes.any_solicited()
    }

    /// Parks mutations that have held their share of the window for long enough, if somebody wants
    /// room.
    pub(super) fn park(&mut self, now: Instant, reads_wait: bool, tables: &mut Tables<'_>) {
        self.writes.park(now, reads_wait, tables);
    }

    /// About how many frames there are to send. 0 only if there is none.
    pub(super) fn frames_waiting(&self, window: &SolicitationWindow) -> usize {
        self.admission.frames_waiting()
            + self.reads.frames_waiting()
            + self.writes.frames_waiting(window)
    }

    /// Whether the last frame began an op of the latency class that has more of them.
    pub(super) const fn has_rest(&self) -> bool {
        self.reads.has_rest()
    }

    /// Writes the next frame, if there is one. Returns whether there was.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> bool {
        // In most turns there is nothing, and that should be known soon.
        if self.frames_waiting(tables.window) == 0 {
            return false;
        }
        let Self { admission, reads, writes, .. } = self;
        admission.note_time(now);
        let mut sender = self.first;
        for _ in 0..Sender::COUNT {
            let is_written = match sender {
                Sender::Admission => admission.poll_transmit(tables, out),
                Sender::Reads => reads.poll_transmit(tables, admission, out),
                Sender::Writes => writes.poll_transmit(now, admission, tables, out),
            };
            sender = sender.next();
            if is_written {
                self.first = if reads.has_rest() { Sender::Reads } else { sender };
                return true;
            }
        }
        false
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

/// `now` is when the turn began that the request came in.
fn asked(now: Instant, header: Header, frame: &RxFrame<'_>) -> Asked {
    Asked {
        header,
        seal: RequestSeal::of(&header, frame.bytes),
        initiator: frame.source,
        responder: frame.destination,
        source_port: frame.source_port.answering(now),
    }
}

impl core::fmt::Debug for Responder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Responder").field("writes", &self.writes).finish_non_exhaustive()
    }
}
