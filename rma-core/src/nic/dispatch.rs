//! The dispatch of received frames, one kind after the other: what each is opened with, and who
//! handles it (1RMA §4.2, "Line-rate operation").
//!
//! A batch of frames is taken in two steps. First all are parsed, and the cache lines asked for
//! that their requests need; then the tables are asked which op each frame claims to belong to;
//! keys of requests are derived, and all frames are opened, side by side. Nothing changes meanwhile
//! but payloads that are decrypted where they lie. Then the frames are handled one after the other,
//! each by tables that those before it may have changed: a frame counts as authentic only if it was
//! opened with what they say now ([`Opened`]).
//!
//! What both steps do for a kind of frame stands in one place, its [`Received`].

use arrayvec::ArrayVec;

use super::{
    Nic,
    initiator::Initiator,
    region_table::{Decoy, RegionTable, prefetch},
    responder::Responder,
    security::{Derivations, Opened, OpenedWith, Security},
};
use crate::{
    backend::{BATCH, RxFrame},
    crypto::{BindingFields, DerivedRegionKey, Iv, KeyBinding},
    error::DropReason,
    op::{ClassOfService, OpType},
    region::RegionId,
    seal::FrameSet,
    time::{Clock, Instant},
    wire::{
        Acknowledgement, AcknowledgementWithResult, Failure, Frame, FrameView, MutationRequest,
        RecordedRequest, Request, Response, SettleRequest, Settlement, Solicitation, SolicitedData,
    },
};

/// A frame that was looked at, and opened if it could belong to anything.
pub(super) struct Seen {
    pub(super) view: Result<FrameView, DropReason>,
    /// The class that it claims.
    pub(super) class: ClassOfService,
    pub(super) opened: Opened,
}

/// A batch of them.
pub(super) type Batch = ArrayVec<Seen, BATCH>;

/// The key that a kind of frame is opened with, and its handler.
trait Received {
    /// Notes with what the frame must be opened, by what the tables say: for the batch in `look`,
    /// and for whoever handles the frame in its `with`, which stays as it is if the frame belongs
    /// to nothing or need not be opened. `None` in those cases.
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()>;

    /// Hands the frame over, with what opening it has shown.
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason>;
}

/// Does the same with the claims of a frame, whatever its kind.
macro_rules! by_kind {
    ($view:expr, $claims:ident => $do:expr) => {
        by_kind!(
            $view, $claims => $do;
            ReadRequest ReadResponse Failure MutationRequest Solicitation SolicitedData
            Acknowledgement RecordedRequest AcknowledgementWithResult SettleRequest Settlement
        )
    };
    ($view:expr, $claims:ident => $do:expr; $($kind:ident)+) => {
        match $view {
            $(FrameView::$kind(view) => {
                let $claims = view.claims();
                $do
            })+
        }
    };
}

impl Received for Request {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        let span = Some((self.region_offset, self.op_size.into()));
        look.request(frame, self, OpType::Read, span);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (responder, mut tables) = nic.responding();
        responder.handle_read_request(it.now, self, it.frame, it.opened, &mut tables)
    }
}

impl Received for Response {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        let (key, seal) = look.initiator.request_of(frame.frame.source, &self.header)?;
        look.answer(frame, self, key, &seal.iv);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (initiator, mut tables) = nic.initiating();
        initiator.handle_response(
            it.now,
            it.frame.source,
            self,
            it.frame.bytes,
            it.opened,
            &mut tables,
        )
    }
}

impl Received for Failure {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        let Arrived { index, frame, with } = frame;
        let (key, seal) = look.initiator.request_of(frame.source, &self.header)?;
        look.security.expect_failure(index, key, seal, self, frame.bytes);
        *with = OpenedWith::Answered(seal.iv);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (initiator, tables) = nic.initiating();
        initiator.handle_failure(it.now, it.frame.source, self, it.opened, tables.window)
    }
}

impl Received for MutationRequest {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        // A frame that has come before need not be authenticated again.
        if look.responder.has_come(&self.header, frame.frame) {
            return None;
        }
        look.request(frame, self, self.mutation.op_type(), None);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (responder, mut tables) = nic.responding();
        responder.handle_mutation_request(it.now, self, it.frame, it.opened, &mut tables)?;
        nic.make_room(it.now);
        Ok(())
    }
}

impl Received for Solicitation {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        let (key, seal) = look.initiator.request_of(frame.frame.source, &self.header)?;
        look.answer(frame, self, key, &seal.iv);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (initiator, tables) = nic.initiating();
        initiator.handle_solicitation(it.clock, self, it.frame, it.opened, &tables)
    }
}

impl Received for SolicitedData {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        let (key, answered) = look.responder.solicitation_of(frame.frame.source, self)?;
        look.answer(frame, self, key, answered);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (responder, mut tables) = nic.responding();
        responder.handle_data(it.clock, self, it.frame, it.opened, &mut tables)
    }
}

impl Received for Acknowledgement {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        let (key, answered) = look.initiator.solicitation_of(frame.frame.source, &self.header)?;
        look.answer(frame, self, key, answered);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (initiator, tables) = nic.initiating();
        initiator.handle_acknowledgement(it.now, it.frame.source, self, it.opened, tables.window)
    }
}

impl Received for RecordedRequest {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        // A frame that has come before need not be authenticated again.
        if look.responder.has_come(&self.header, frame.frame) {
            return None;
        }
        look.request(frame, self, self.mutation.op_type(), None);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (responder, mut tables) = nic.responding();
        responder.handle_recorded_request(it.now, self, it.frame, it.opened, &mut tables)?;
        nic.make_room(it.now);
        Ok(())
    }
}

impl Received for AcknowledgementWithResult {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        let (key, answered) = look.initiator.solicitation_of(frame.frame.source, &self.header)?;
        look.answer(frame, self, key, answered);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (initiator, tables) = nic.initiating();
        initiator.handle_result(it.now, self, it.frame, it.opened, tables.window)
    }
}

impl Received for SettleRequest {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        look.request(frame, self, self.op_type, None);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (responder, mut tables) = nic.responding();
        responder.handle_settle_request(it.now, self, it.frame, it.opened, &mut tables)
    }
}

impl Received for Settlement {
    #[inline]
    fn expect(&self, frame: Arrived<'_>, look: &mut Look<'_, '_>) -> Option<()> {
        let (key, seal) = look.initiator.request_of(frame.frame.source, &self.header)?;
        look.answer(frame, self, key, &seal.iv);
        Some(())
    }

    #[inline]
    fn handle(self, nic: &mut Nic, it: Came<'_, '_, impl Clock>) -> Result<(), DropReason> {
        let (initiator, tables) = nic.initiating();
        initiator.handle_settlement(it.now, self, it.frame, it.opened, tables.window)
    }
}

/// A frame of a batch, and which of its frames it is.
struct Arrived<'f> {
    index: usize,
    frame: &'f RxFrame<'f>,
    /// The key to open it with is noted here.
    with: &'f mut OpenedWith,
}

/// A frame that was looked at, as it is handled.
struct Came<'a, 'f, C> {
    now: Instant,
    clock: &'a C,
    frame: &'a mut RxFrame<'f>,
    opened: &'a Opened,
}

/// The tables as they are while a batch is looked at, and what is noted of it.
struct Look<'a, 'd> {
    security: &'d mut Security,
    regions: &'a RegionTable,
    initiator: &'a Initiator,
    responder: &'a Responder,
    derivations: &'d mut Derivations<'a>,
}

impl Look<'_, '_> {
    /// A request: its K_d is derived from the key that its region has now, or from a decoy's. It
    /// reads the bytes of `span`, if it does.
    #[inline]
    fn request<const HEADER: usize>(
        &mut self,
        Arrived { index, frame, with }: Arrived<'_>,
        claims: &impl Frame<HEADER>,
        op_type: OpType,
        span: Option<(u64, usize)>,
    ) {
        let header = claims.header();
        let region = self.regions.get(header.region);
        if let Some((offset, size)) = span {
            // While keys are derived and tags checked, the beginning of the data comes out of
            // memory. A claim is good enough: nothing is read.
            prefetch(region, self.regions.decoy(), offset, size);
        }
        let (initiator, responder) = (frame.source, frame.destination);
        let binding = KeyBinding { initiator, responder, pid: header.pid, op_type };
        let (key, revision) = match region {
            Some(region) => (&region.key, region.revision),
            None => (&self.regions.decoy().key, Decoy::REVISION),
        };
        self.security.expect_request(index, header, HEADER);
        self.derivations.push((index, key, BindingFields::new(&binding)));
        *with = OpenedWith::Revision(revision);
    }

    /// Looks for the key of a frame that claims to answer the one with `answered`, under `key`.
    #[inline]
    fn answer<T: Frame<HEADER>, const HEADER: usize>(
        &mut self,
        Arrived { index, frame, with }: Arrived<'_>,
        claims: &T,
        key: &DerivedRegionKey,
        answered: &Iv,
    ) {
        let iv = claims.header().iv(T::DIRECTION);
        self.security.expect_answer::<HEADER>(index, key, iv, answered, frame.bytes);
        *with = OpenedWith::Answered(*answered);
    }
}

/// Returns the region that a request is for, if the frame is one.
#[inline]
fn region_of_request(view: &FrameView) -> Option<RegionId> {
    match view {
        FrameView::ReadRequest(request) => Some(request.claims().header.region),
        FrameView::MutationRequest(request) => Some(request.claims().header.region),
        FrameView::RecordedRequest(request) => Some(request.claims().header.region),
        FrameView::SettleRequest(request) => Some(request.claims().header.region),
        _ => None,
    }
}

impl Nic {
    /// Looks at a batch of frames, and opens those that claim to belong to something. In place:
    /// payloads that are authentic are decrypted from now on.
    pub(super) fn open(&mut self, frames: &mut [RxFrame<'_>], batch: &mut Batch) {
        let Self { config, security, regions, initiator, responder, .. } = self;
        let mut named: ArrayVec<RegionId, BATCH> = ArrayVec::new();
        for (index, frame) in frames.iter().enumerate() {
            let is_local = config.place.addresses.contains(frame.destination);
            let view = if is_local {
                FrameView::parse(frame.bytes)
            } else {
                Err(DropReason::NotForThisHost)
            };
            let class = view.as_ref().map_or(ClassOfService::Throughput, FrameView::class);
            named.extend(view.as_ref().ok().and_then(region_of_request));
            let opened = Opened { index, with: OpenedWith::Nothing, right_tag: None };
            batch.push(Seen { view, class, opened });
        }
        regions.prefetch(&named);
        let mut derivations = Derivations::new();
        let mut which = FrameSet::default();
        let mut look =
            Look { security, regions, initiator, responder, derivations: &mut derivations };
        for (index, (frame, seen)) in frames.iter().zip(&mut *batch).enumerate() {
            let Ok(view) = &seen.view else { continue };
            let frame = Arrived { index, frame, with: &mut seen.opened.with };
            if by_kind!(view, claims => claims.expect(frame, &mut look)).is_some() {
                which.insert(index);
            }
        }
        let authentic = self.security.open(frames, which, &derivations);
        for seen in batch {
            seen.opened.right_tag = authentic.right_tag(seen.opened.index);
        }
    }

    /// Handles a frame that was looked at with its batch.
    #[inline]
    pub(super) fn handle_view(
        &mut self,
        now: Instant,
        clock: &impl Clock,
        frame: &mut RxFrame<'_>,
        Seen { view, opened, .. }: &Seen,
    ) -> Result<(), DropReason> {
        let view = view.as_ref().map_err(|&reason| reason)?;
        let came = Came { now, clock, frame, opened };
        by_kind!(view, claims => claims.handle(self, came))
    }
}
