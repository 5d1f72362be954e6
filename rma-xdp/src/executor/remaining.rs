//! Transfers of what another transfer left missing.
//!
//! Such a call has one piece for each [`Missing`] of that transfer, and what it says of itself counts in these. The
//! application counts in all that it has asked for, and whoever is asked next is asked in the same numbers: so whatever
//! such a call says is told in the numbers of the whole.

use rma_core::executor::{CallError, Missing, Outcome, Piece};

/// Whether what is missing by `outcome` lies in `whole`: beyond are others' buffers.
pub(super) fn check_within(outcome: &Outcome, whole: &[Piece<'_>]) -> Result<(), CallError> {
    for &Missing { piece, offset, len, .. } in &outcome.missing {
        let end = offset.checked_add(len);
        let is_in = |it: &Piece<'_>| end.is_some_and(|end| end <= it.len);
        if !whole.get(piece).is_some_and(is_in) {
            return Err(CallError::NotOfThisTransfer { piece, offset, len });
        }
    }
    Ok(())
}

/// What became of the call for what is missing by `only`, in the numbers of the whole.
pub(super) fn outcome_in_whole(only: &Outcome, mut outcome: Outcome) -> Outcome {
    for missing in &mut outcome.missing {
        let part = &only.missing[missing.piece];
        (missing.piece, missing.offset) = (part.piece, part.offset + missing.offset);
    }
    // Parts that touch may have ended alike; and nobody need give them in order.
    outcome.missing.sort_unstable_by_key(|missing| (missing.piece, missing.offset));
    outcome.missing.dedup_by(|next, before| {
        let joins = next.piece == before.piece
            && next.offset == before.offset + before.len
            && next.tried == before.tried;
        if joins {
            before.len += next.len;
        }
        joins
    });
    outcome
}

/// Why the call for what is missing by `only` was refused, with the pieces' numbers in the whole.
pub(super) fn error_in_whole(only: &Outcome, mut error: CallError) -> CallError {
    let in_whole = |piece: &mut usize| *piece = only.missing[*piece].piece;
    match &mut error {
        CallError::EmptyPiece { piece }
        | CallError::RemoteOutOfBounds { piece, .. }
        | CallError::LocalOutOfBounds { piece, .. }
        | CallError::AnotherHost { piece }
        | CallError::Submit { piece, .. } => in_whole(piece),
        CallError::Overlap { first, second } => {
            in_whole(first);
            in_whole(second);
        }
        // The others name no piece.
        _ => {}
    }
    error
}
