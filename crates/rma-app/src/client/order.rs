//! What a transfer of a [`Client`](super::Client) asks for, until it is a [`Call`].

use std::sync::Arc;

use rma_core::{
    executor::{Call, CallError, Outcome},
    grant::Grant,
    op::OpType,
    time::Instant,
};

use super::remaining::{check_within, error_in_whole};
use crate::{
    buffer::{BufPiece, Bufs},
    executor::check_op_type,
    options::TransferOptions,
};

/// What to transfer, and how.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) op_type: OpType,
    pub(super) what: What,
    pub(super) options: TransferOptions,
    /// Of another transfer, which left missing what this one is to transfer.
    pub(super) only: Option<Arc<Outcome>>,
    pub(super) fenced: bool,
    /// It does not wait for a place.
    pub(super) or_full: bool,
}

#[derive(Debug)]
pub(super) enum What {
    /// All of the only buffer.
    Whole {
        grant: Grant,
        remote_offset: u64,
    },
    Pieces(Vec<BufPiece>),
}

impl Order {
    /// Does something with the call that this is for `bufs`. A refusal names the pieces as the
    /// application does.
    pub(super) fn with_call<T>(
        &self,
        bufs: &Bufs,
        deadline: Option<Instant>,
        act: impl FnOnce(&Call<'_>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let bufs = bufs.as_ref();
        let (one, many);
        let whole = match &self.what {
            What::Whole { grant, remote_offset } => {
                one = [bufs[0].piece(grant, *remote_offset)];
                one.as_slice()
            }
            What::Pieces(pieces) => {
                let parts = pieces.iter().enumerate();
                let parts = parts.map(|(index, it)| bufs[it.buf].part(index, it));
                many = parts.collect::<Result<Vec<_>, _>>()?;
                &many
            }
        };
        for (index, piece) in whole.iter().enumerate() {
            check_op_type(index, piece.grant, self.op_type)?;
        }
        let parts;
        let pieces = match &self.only {
            None => whole,
            Some(outcome) => {
                check_within(outcome, whole)?;
                parts = outcome.remaining(whole, |piece| piece.grant);
                &parts
            }
        };
        let TransferOptions { class, retry, .. } = self.options;
        let mut call = Call::of(pieces);
        (call.class, call.retry, call.deadline) = (class, retry, deadline);
        act(&call).map_err(|error| match &self.only {
            Some(only) => error_in_whole(only, error),
            None => error,
        })
    }
}
