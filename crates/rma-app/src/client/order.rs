//! The order of a future of a [`Client`](super::Client), until it is a [`Request`].

use std::sync::Arc;

use rma_core::{
    executor::{Call, CallError, OpCall, Outcome, Piece, Publish},
    grant::Grant,
    op::{ClassOfService, OpType},
    outcome::OpName,
    portal::{Change, Placement},
    time::Instant,
};

use super::{
    remaining::{check_within, error_in_whole},
    request::Request,
};
use crate::{
    buffer::{BufPiece, Bufs},
    options::TransferOptions,
    transfers::check_op_type,
};

/// The ordered op and its options.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) what: What,
    pub(super) options: TransferOptions,
    pub(super) fenced: bool,
    /// It does not wait for a place.
    pub(super) or_full: bool,
}

#[derive(Debug)]
pub(super) enum What {
    Transfer {
        op_type: OpType,
        extent: Extent,
        /// Of another transfer, which left missing what this one is to transfer.
        only: Option<Arc<Outcome>>,
        publication: Publication,
    },
    Op {
        grant: Grant,
        op: BufOp,
    },
    /// To ask what became of an op.
    Settle {
        grant: Grant,
        name: OpName,
    },
}

/// The part of its buffers that a transfer transfers.
#[derive(Debug)]
pub(super) enum Extent {
    /// All of the only buffer.
    Whole {
        grant: Grant,
        remote_offset: u64,
    },
    Pieces(Vec<BufPiece>),
}

/// The way in which a write tells that all of it is there.
#[derive(Debug, Default)]
pub(super) struct Publication {
    /// By its last word.
    pub(super) is_ordered: bool,
    /// By an event with this immediate.
    pub(super) imm: Option<Box<(Grant, u64)>>,
}

/// A recorded op, whose bytes are all of the only buffer.
#[derive(Clone, Copy, Debug)]
pub(super) enum BufOp {
    Send { immediate: u64 },
    Notify { immediate: u64 },
    WriteWithImm { remote_offset: u64, immediate: u64 },
    CompareSwap { remote_offset: u64, expected: u64, new: u64 },
    FetchAdd { remote_offset: u64, addend: u64 },
}

impl Order {
    pub(super) const fn new(what: What) -> Self {
        Self { what, options: TransferOptions::new(), fenced: false, or_full: false }
    }

    /// Does something with what this is for `bufs`. A refusal names the pieces as the application
    /// does.
    pub(super) fn with_request<T>(
        &self,
        bufs: &Bufs,
        deadline: Option<Instant>,
        act: impl FnOnce(Request<'_>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let TransferOptions { class, retry, .. } = self.options;
        match &self.what {
            What::Transfer { op_type, extent, only, publication } => {
                extent.with_pieces(*op_type, bufs, only.as_deref(), |pieces| {
                    let mut call = Call::of(pieces);
                    (call.class, call.retry, call.deadline) = (class, retry, deadline);
                    call.publish = publication.publish();
                    act(Request::Transfer(&call))
                })
            }
            What::Op { grant, op } => {
                let mut call = OpCall::of(grant, op.change(bufs));
                call.class = class.unwrap_or(ClassOfService::Latency);
                (call.retry, call.deadline) = (retry, deadline);
                act(Request::Op(&call))
            }
            &What::Settle { ref grant, name } => act(Request::Settle { grant, name, deadline }),
        }
    }
}

impl Extent {
    /// Does something with the pieces of a call of `op_type`, or with the `only` ones that are
    /// missing.
    fn with_pieces<T>(
        &self,
        op_type: OpType,
        bufs: &Bufs,
        only: Option<&Outcome>,
        act: impl FnOnce(&[Piece<'_>]) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let bufs = bufs.as_ref();
        let (one, many);
        let whole = match self {
            Self::Whole { grant, remote_offset } => {
                one = [bufs[0].piece(grant, *remote_offset)];
                one.as_slice()
            }
            Self::Pieces(pieces) => {
                let parts = pieces.iter().enumerate();
                let parts = parts.map(|(index, it)| bufs[it.buf].part(index, it));
                many = parts.collect::<Result<Vec<_>, _>>()?;
                &many
            }
        };
        for (index, piece) in whole.iter().enumerate() {
            check_op_type(index, piece.grant, op_type)?;
        }
        let Some(only) = only else { return act(whole) };
        check_within(only, whole)?;
        let parts = only.remaining(whole, |piece| piece.grant);
        act(&parts).map_err(|error| error_in_whole(only, error))
    }
}

impl Publication {
    fn publish(&self) -> Publish<'_> {
        match (&self.imm, self.is_ordered) {
            (None, false) => Publish::Plain,
            (None, true) => Publish::Ordered,
            (Some(imm), is_ordered) => {
                let (grant, immediate) = &**imm;
                let placement = if is_ordered { Placement::Ordered } else { Placement::Any };
                Publish::WithImmediate { grant, immediate: *immediate, placement }
            }
        }
    }
}

impl BufOp {
    /// As an executor takes it.
    fn change(self, bufs: &Bufs) -> Change<'_> {
        let source = || bufs.as_ref()[0].source();
        match self {
            Self::Send { immediate } => Change::Send { message: source(), immediate },
            Self::Notify { immediate } => Change::Notify { immediate },
            Self::WriteWithImm { remote_offset, immediate } => {
                let placement = Placement::Any;
                Change::WriteWithImm { remote_offset, source: source(), immediate, placement }
            }
            Self::CompareSwap { remote_offset, expected, new } => {
                Change::CompareSwap { remote_offset, expected, new }
            }
            Self::FetchAdd { remote_offset, addend } => Change::FetchAdd { remote_offset, addend },
        }
    }
}
