//! A batch of received frames: what each of them is, and what it is opened with (1RMA §4.2,
//! "Line-rate operation").
//!
//! Nothing changes here. The tables are asked which op each frame claims to belong to; keys of
//! requests are derived, and all frames are opened, side by side. Then they are handled one after
//! the other, each by tables that those before it may have changed.

use arrayvec::ArrayVec;

use super::{
    Nic, RegionEntry,
    region_table::Decoy,
    security::{Derivations, FrameSet, Opened, OpenedWith},
};
use crate::{
    backend::{BATCH, RxFrame},
    crypto::{BindingFields, Direction, KeyBinding},
    error::DropReason,
    op::{ClassOfService, OpType},
    wire::{
        FrameView, Header,
        mutation::{
            ACKNOWLEDGEMENT_HEADER_LEN, DATA_HEADER_LEN, MUTATION_REQUEST_HEADER_LEN,
            SOLICITATION_HEADER_LEN,
        },
        read::{REQUEST_HEADER_LEN, RESPONSE_HEADER_LEN},
    },
};

/// A frame that was looked at, and opened if it could belong to anything.
pub(super) struct Seen {
    pub(super) view: Result<FrameView, DropReason>,
    /// What it claims.
    pub(super) class: ClassOfService,
    pub(super) opened: Opened,
}

/// How much of what a request asks for is fetched before it is known to be authentic, in bytes: no
/// more lines than a processor fetches at a time. A request that asked it to wait would be refused
/// later where there is such a region.
pub(super) const PREFETCH_MAX: usize = 1024;

/// Fetches the beginning of what a request claims to be about; of the decoy, as much where there is
/// no such thing.
fn prefetch(region: Option<&RegionEntry>, decoy: &Decoy, offset: u64, size: usize) {
    let size = size.min(PREFETCH_MAX);
    match region.filter(|region| region.holds(offset, size as u32)) {
        Some(region) => region.memory.prefetch(offset, size),
        None => decoy.memory.prefetch(0, size),
    }
}

/// A batch of them.
pub(super) type Batch = ArrayVec<Seen, BATCH>;

impl Nic {
    /// Looks at a batch of frames, and opens those that claim to belong to something. In place:
    /// payloads that are authentic are decrypted from now on.
    pub(super) fn open(&mut self, frames: &mut [RxFrame<'_>], batch: &mut Batch) {
        let Self { config, security, regions, initiator, responder, .. } = self;
        let mut derivations = Derivations::new();
        let mut which = FrameSet::default();
        for (index, frame) in frames.iter().enumerate() {
            let RxFrame { source, destination, ref bytes, .. } = *frame;
            let is_local = config.settings.addresses.contains(destination);
            let view =
                if is_local { FrameView::parse(bytes) } else { Err(DropReason::NotForThisHost) };

            // A request: K_d is derived from the key that its region has now, or from a decoy's.
            let mut request = |header: &Header, header_len, op_type, span: Option<(u64, usize)>| {
                let region = regions.get(header.region);
                if let Some((offset, size)) = span {
                    // While keys are derived and tags checked, the beginning of the data comes out
                    // of memory. A claim is good enough: nothing is read.
                    prefetch(region, regions.decoy(), offset, size);
                }
                let (initiator, responder) = (source, destination);
                let binding = KeyBinding { initiator, responder, pid: header.pid, op_type };
                let (key, revision) = match region {
                    Some(region) => (&region.key, region.revision),
                    None => (&regions.decoy().key, Decoy::REVISION),
                };
                security.expect_request(index, header, header_len);
                derivations.push((index, key, BindingFields::new(&binding)));
                Some(OpenedWith::Revision(revision))
            };
            let with = match &view {
                Err(_) => None,
                Ok(FrameView::ReadRequest(view)) => {
                    let claims = view.claims();
                    let span = Some((claims.region_offset, claims.op_size.into()));
                    request(&claims.header, REQUEST_HEADER_LEN, OpType::Read, span)
                }
                Ok(FrameView::MutationRequest(view)) => {
                    let claims = view.claims();
                    // What has come before need not be authenticated again.
                    if responder.has_come(&claims.header, frame) {
                        None
                    } else {
                        let op_type = claims.mutation.op_type();
                        request(&claims.header, MUTATION_REQUEST_HEADER_LEN, op_type, None)
                    }
                }
                Ok(FrameView::ReadResponse(view)) => {
                    let header = view.claims().header;
                    initiator.request_of(source, &header).map(|(key, seal)| {
                        let iv = header.iv(Direction::ToInitiator);
                        security
                            .expect_answer::<RESPONSE_HEADER_LEN>(index, key, iv, &seal.iv, bytes);
                        OpenedWith::Answered(seal.iv)
                    })
                }
                Ok(FrameView::Failure(view)) => {
                    let claims = view.claims();
                    initiator.request_of(source, &claims.header).map(|(key, seal)| {
                        security.expect_failure(index, key, seal, &claims, bytes);
                        OpenedWith::Answered(seal.iv)
                    })
                }
                Ok(FrameView::Solicitation(view)) => {
                    let header = view.claims().header;
                    initiator.request_of(source, &header).map(|(key, seal)| {
                        let iv = header.iv(Direction::ToInitiator);
                        security.expect_answer::<SOLICITATION_HEADER_LEN>(
                            index, key, iv, &seal.iv, bytes,
                        );
                        OpenedWith::Answered(seal.iv)
                    })
                }
                Ok(FrameView::SolicitedData(view)) => {
                    let claims = view.claims();
                    responder.solicitation_of(source, &claims).map(|(key, answered)| {
                        let iv = claims.header.iv(Direction::ToResponder);
                        security.expect_answer::<DATA_HEADER_LEN>(index, key, iv, answered, bytes);
                        OpenedWith::Answered(*answered)
                    })
                }
                Ok(FrameView::Acknowledgement(view)) => {
                    let header = view.claims().header;
                    initiator.solicitation_of(source, &header).map(|(key, answered)| {
                        let iv = header.iv(Direction::ToInitiator);
                        security.expect_answer::<ACKNOWLEDGEMENT_HEADER_LEN>(
                            index, key, iv, answered, bytes,
                        );
                        OpenedWith::Answered(*answered)
                    })
                }
            };
            if with.is_some() {
                which.insert(index);
            }
            let with = with.unwrap_or(OpenedWith::Nothing);
            let class = view.as_ref().map_or(ClassOfService::Throughput, FrameView::class);
            batch.push(Seen { view, class, opened: Opened { index, with, authentic: false } });
        }
        let authentic = security.open(frames, which, &derivations);
        for seen in batch {
            seen.opened.authentic = authentic.has(seen.opened.index);
        }
    }
}
